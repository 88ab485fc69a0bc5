"""The arguments that Slack refuses, before it executes a call.

Not documented, but measured in github.com/slackapi/bolt-js #2509 and python-slack-sdk #1859: a
stream ends five minutes after its start, and chat.update is refused while it runs.
"""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.local.slack.records import Json, Stream
from bot.local.slack.state import Call, Key, SlackError, SlackState
from bot.local.slack.streams import end, is_open
from bot.local.workspace import SLACKBOT, micros
from standins.slack_blocks import (
    CHUNKS,
    HOME,
    MAX_MARKDOWN,
    MAX_VIEW_BLOCKS,
    MODAL,
    PROMPTS,
    check_blocks,
    fit,
)
from standins.slack_files import check_completed_uploads
from standins.slack_scopes import need

MAX_TEXT = 40_000
"""Longer text is cut: docs.slack.dev/changelog/2018-04-truncating-really-long-messages."""
MAX_UPDATED_TEXT = 4_000
"""Longer text is refused: docs.slack.dev/reference/methods/chat.update (`msg_too_long`)."""
MAX_METADATA = 8_000
"""Characters of a message's metadata."""
MAX_TITLE = 200
MAX_TASKS = 50
"""The maximum of a plan block."""
MAX_BYTES = 1_000_000_000
TRIGGER_S = 3.0
"""Life of a trigger id, which comes with an interaction."""
KINDS = frozenset({"public_channel", "private_channel", "mpim", "im"})
SESSION_STATUSES = ("processing", "active", "suspended", "closed")
_EMOJI = re.compile(r"[a-z0-9_+'\-]{1,100}(::skin-tone-[2-6])?")


class StrictCall(Call):
    """A call that refuses malformed arguments."""

    def time(self, name: str, default: int) -> int:
        try:
            return super().time(name, default)
        except ValueError:
            raise SlackError(f"invalid_ts_{name}") from None

    def objects(self, name: str) -> tuple[Json, ...]:
        try:
            found = super().objects(name)
        except (TypeError, ValueError):
            raise SlackError(f"invalid_{name}_format") from None
        if not all(isinstance(each, dict) for each in found):
            raise SlackError(f"invalid_{name}_format")
        return found

    def kinds(self) -> set[str]:
        kinds = super().kinds()
        if not kinds <= KINDS:
            raise SlackError("invalid_types")
        return kinds

    def page(
        self, keys: Sequence[Key], kind: str, default: int, most: int
    ) -> tuple[Sequence[Key], str]:
        limit = self.text("limit") or "0"
        if not limit.isdecimal() or int(limit) > most:
            raise SlackError("invalid_limit")
        try:
            return super().page(keys, kind, default, most)
        except ValueError:
            raise SlackError("invalid_cursor") from None


def check(call: Call) -> Call:
    """Return the call as Slack executes it; raise SlackError where Slack refuses it."""
    call = StrictCall(call.state, call.identity, call.method, call.args)
    need(call)
    if one := _CHECKS.get(call.method):
        one(call)
    text = call.text("text")
    return replace(call, args={**call.args, "text": text[:MAX_TEXT]}) if text else call


def expire(state: SlackState, ttl_s: float) -> None:
    """End every stream whose time is over."""
    for (channel, ts), stream in list(state.streams.items()):
        message = state.timelines[channel].get(micros(ts))
        if not stream.ended and message and state.now() - stream.started >= ttl_s:
            end(state, stream, message, "expired")


def _message(call: Call) -> None:
    text, markdown = call.text("text"), call.text("markdown_text")
    blocks = check_blocks(call.objects("blocks"))
    if not (text or markdown or blocks):
        raise SlackError("no_text")
    if markdown and (text or blocks):
        raise SlackError("markdown_text_conflict")
    if len(markdown) > MAX_MARKDOWN:
        raise SlackError("msg_too_long")
    _metadata(call)


def _update(call: Call) -> None:
    if is_open(call.state, call.text("channel"), call.text("ts")):
        raise SlackError("streaming_state_conflict")
    if len(call.text("text")) > MAX_UPDATED_TEXT:
        raise SlackError("msg_too_long")
    _message(call)


def _delete(call: Call) -> None:
    if is_open(call.state, call.text("channel"), call.text("ts")):
        raise SlackError("cant_delete_message")


def _reaction(call: Call) -> None:
    if not _EMOJI.fullmatch(call.require("name").strip(":")):
        raise SlackError("invalid_name")


def _metadata(call: Call) -> None:
    """Refuse all but an event type with a payload of at most 8 KB."""
    value = _json(call, "metadata", "invalid_metadata_format")
    if not value:
        return
    payload = value.get("event_payload") if isinstance(value, dict) else None
    if not isinstance(payload, dict) or not isinstance(value.get("event_type"), str):
        raise SlackError("invalid_metadata_format")
    if len(json.dumps(payload)) > MAX_METADATA:
        raise SlackError("metadata_too_large")


def _json(call: Call, name: str, error: str) -> Any:
    try:
        return call.value(name)
    except ValueError:
        raise SlackError(error) from None


def _direct(call: Call) -> None:
    """Refuse a direct message with a deactivated user or a bot."""
    user = call.state.users.get(call.require("users"))
    if user and user.deleted:
        raise SlackError("user_disabled")
    if user and (user.is_bot or user.id == SLACKBOT):
        raise SlackError("cannot_dm_bot")


def _group(call: Call) -> None:
    group = call.state.usergroups.get(call.text("usergroup"))
    if group and group.disabled:
        raise SlackError("subteam_disabled")


# ---- agents


def _status(call: Call) -> None:
    _one_of(call.require("status"), SESSION_STATUSES)
    if len(call.text("title")) > MAX_TITLE:
        raise SlackError("invalid_arguments")
    initiator = call.text("initiator_user_id")
    if initiator and initiator not in call.state.users:
        raise SlackError("user_not_found")


def _prompts(call: Call) -> None:
    prompts = _json(call, "prompts", "invalid_arguments")
    fit(PROMPTS, prompts, "/prompts", "invalid_arguments")


def _one_of(value: str, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise SlackError("invalid_arguments")


# ---- streams


def _start(call: Call) -> None:
    call.require("thread_ts")
    channel = call.state.channels.get(call.require("channel"))
    if channel and channel.kind != "im":
        _recipient(call)
    _one_of(call.text("task_display_mode"), ("plan",))
    _check_tasks(call, None)


def _append(call: Call) -> None:
    stream = _stream(call)
    if not call.args.get("chunks"):
        raise SlackError("no_text")
    _check_tasks(call, stream)


def _stop(call: Call) -> None:
    stream = _stream(call)
    _metadata(call)
    _check_tasks(call, stream)


def _stream(call: Call) -> Stream | None:
    """Return the stream that the call continues; None if it has ended."""
    stream = call.state.streams.get((call.text("channel"), call.text("ts")))
    return None if stream and stream.ended else stream


def _recipient(call: Call) -> None:
    """Refuse a recipient without the id of their workspace and their id in it."""
    team, id = call.text("recipient_team_id"), call.text("recipient_user_id")
    if not team:
        raise SlackError("missing_recipient_team_id")
    if not id:
        raise SlackError("missing_recipient_user_id")
    user = call.state.users.get(id)
    if user is None or team != (user.team_id or call.state.team.id):
        raise SlackError("user_not_found")


def _check_tasks(call: Call, stream: Stream | None) -> None:
    ids = {chunk["id"] for chunk in _chunks(call) if chunk["type"] == "task_update"}
    if len(ids | (stream.rows.keys() if stream else set())) > MAX_TASKS:
        raise SlackError("invalid_chunks")


def _chunks(call: Call) -> list[Json]:
    chunks = _json(call, "chunks", "invalid_chunks") or []
    fit(CHUNKS, chunks, "/chunks", "invalid_chunks")
    for chunk in chunks:
        if len(chunk.get("text") or "") > MAX_MARKDOWN:
            raise SlackError("msg_too_long")
    return list(chunks)


# ---- views


def _publish(call: Call) -> None:
    _view(call, "home")


def _open(call: Call) -> None:
    found = call.state.triggers.get(call.require("trigger_id"))
    if found is None:
        raise SlackError("invalid_trigger_id")
    user, at = found
    if not user:
        raise SlackError("exchanged_trigger_id")
    if call.state.now() - at > TRIGGER_S:
        raise SlackError("expired_trigger_id")
    _view(call, "modal")


def _view(call: Call, kind: str) -> None:
    view = _json(call, "view", "invalid_arguments")
    fit(HOME if kind == "home" else MODAL, view, "/view", "invalid_arguments")
    check_blocks(view["blocks"], MAX_VIEW_BLOCKS, "invalid_arguments")


def _address(call: Call) -> None:
    length = call.require("length")
    if not length.isdecimal() or not 0 < int(length) <= MAX_BYTES:
        raise SlackError("invalid_arguments")


_CHECKS: Mapping[str, Callable[[Call], None]] = {
    "agents.sessions.setStatus": _status,
    "assistant.threads.setSuggestedPrompts": _prompts,
    "chat.appendStream": _append,
    "chat.delete": _delete,
    "chat.postEphemeral": _message,
    "chat.postMessage": _message,
    "chat.startStream": _start,
    "chat.stopStream": _stop,
    "chat.update": _update,
    "conversations.open": _direct,
    "files.completeUploadExternal": check_completed_uploads,
    "files.getUploadURLExternal": _address,
    "reactions.add": _reaction,
    "usergroups.users.list": _group,
    "views.open": _open,
    "views.publish": _publish,
}
