"""The error codes that docs.slack.dev/reference/methods lists for the methods that write."""

from __future__ import annotations

EVERYWHERE = """access_denied accesslimited account_inactive deprecated_endpoint ekm_access_denied
    enterprise_is_restricted fatal_error internal_error invalid_arg_name invalid_arguments
    invalid_array_arg invalid_auth invalid_charset invalid_form_data invalid_post_type
    method_deprecated missing_post_type missing_scope no_permission not_allowed_token_type
    not_authed org_login_required ratelimited request_timeout service_unavailable
    team_access_not_granted team_added_to_org token_expired token_revoked
    two_factor_setup_required"""
"""What every method may answer."""
UNDOCUMENTED = "http_404 unknown_method not_allowed user_not_in_channel a_code_nobody_listed"
"""Seen, or made up; `http_404` is the status alone."""
_POST = """channel_not_found duplicate_channel_not_found duplicate_message_not_found invalid_blocks
    invalid_metadata_format invalid_metadata_schema is_archived message_limit_exceeded
    messages_tab_disabled metadata_must_be_sent_from_app metadata_too_large msg_blocks_too_long
    no_text not_in_channel rate_limited restricted_action restricted_action_non_threadable_channel
    restricted_action_read_only_channel restricted_action_thread_locked
    restricted_action_thread_only_channel slack_connect_canvas_sharing_blocked
    slack_connect_file_link_sharing_blocked slack_connect_lists_sharing_blocked team_not_found"""
_STREAM = f"""{_POST} channel_type_not_supported invalid_chunks msg_blocks_too_many"""
_OPEN_STREAM = f"""{_STREAM} as_user_not_supported cannot_provide_both_markdown_text_and_chunks
    message_not_found message_not_in_streaming_state message_not_owned_by_app
    streaming_mode_mismatch too_many_attachments too_many_contact_cards"""
DOCUMENTED = {
    "chat.startStream": f"""{_STREAM} invalid_blocks_format messaging_processing_failed
        missing_recipient_team_id missing_recipient_user_id user_not_found""",
    "chat.appendStream": f"""{_OPEN_STREAM} markdown_text_or_chunks_required
        markdown_text_required messaging_processing_failed stopped_by_user""",
    "chat.stopStream": f"""{_OPEN_STREAM} attachment_payload_limit_exceeded
        cannot_reply_to_message missing_file_data""",
    "chat.update": """as_user_not_supported block_mismatch blocked_file_type
        cant_broadcast_message cant_update_message channel_not_found edit_window_closed
        external_channel_migrating file_deleted file_is_deleted file_not_found
        file_share_limit_reached invalid_attachments invalid_blocks invalid_blocks_format
        invalid_metadata_format invalid_metadata_schema is_inactive markdown_text_conflict
        max_file_sharing_exceeded message_limit_exceeded message_not_found
        metadata_must_be_sent_from_app metadata_too_large msg_too_long
        no_dual_broadcast_content_update no_text posting_to_channel_denied
        slack_connect_blocked_file_type slack_connect_canvas_sharing_blocked
        slack_connect_clip_sharing_blocked slack_connect_file_link_sharing_blocked
        slack_connect_file_upload_sharing_blocked streaming_state_conflict team_not_found
        too_many_attachments unable_to_share_files update_failed""",
    "chat.postMessage": f"""{_POST} app_access_restricted as_user_not_supported
        attachment_payload_limit_exceeded cannot_reply_to_message draft_already_deleted
        draft_already_sent draft_has_conflict draft_not_found invalid_blocks_format
        markdown_text_conflict missing_file_data send_on_behalf_not_allowed thread_not_found
        too_many_attachments too_many_contact_cards""",
    "chat.postEphemeral": """cannot_reply_to_message channel_not_found invalid_attachments
        invalid_blocks invalid_blocks_format is_archived markdown_text_conflict
        message_limit_exceeded messages_tab_disabled msg_too_long no_text not_in_channel
        restricted_action too_many_attachments user_not_in_channel""",
    "files.completeUploadExternal": """channel_not_found channels_limit_exceeded file_not_found
        file_type_not_allowed file_update_failed file_uploads_except_images_disabled
        invalid_blocks invalid_channel not_in_channel posting_to_channel_denied
        user_is_external_guest""",
}
"""Method -> its own codes."""


def codes(method: str) -> list[str]:
    """Return every code that this method may answer, each once."""
    return sorted({*DOCUMENTED[method].split(), *EVERYWHERE.split(), *UNDOCUMENTED.split()})
