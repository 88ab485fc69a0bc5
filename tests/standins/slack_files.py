"""Files of the local Slack: reads, missing access, uploads that differ from their announcement."""

import html
from collections.abc import Callable, Mapping
from urllib.parse import quote

from starlette.responses import Response

from bot.local.slack.json import file_json
from bot.local.slack.records import Json
from bot.local.slack.state import Call, Identity, SlackError, SlackState
from bot.local.workspace import Channel, File, Message

FILES_PATH = "/files-pri/{place}/{name:path}"
_GONE = ("tombstone", "hidden_by_limit")


def _info(call: Call) -> Json:
    found = find(call.state, call.require("file"))
    if found is None or not call.state.may_see(call.identity.user, found[1]):
        raise SlackError("file_not_found")
    file, channel, _ = found
    if file.mode in _GONE:
        raise SlackError("file_deleted")
    body = file_json(call.state, file)
    place = {"im": "ims", "public_channel": "channels"}.get(channel.kind, "groups")
    body |= {"channels": [], "groups": [], "ims": [], place: [channel.id]}
    return {"file": body, "comments": [], "response_metadata": {"next_cursor": ""}}


def find(state: SlackState, id: str) -> tuple[File, Channel, Message] | None:
    """Return a file, and the channel and message that it was shared in."""
    for channel in list(state.channels.values()):
        for message in list(state.timelines[channel.id].all()):
            for file in message.files:
                if file.id == id:
                    return file, channel, message
    return None


def download(state: SlackState, identity: Identity | None, place: str, name: str) -> Response:
    """Return the content of a file; without access to it, a login page with status 200.

    `place` is "<team>-<file>"; `name` may begin with "download/".
    """
    found = find(state, place.partition("-")[2])
    if not identity or (found and not state.may_see(identity.user, found[1])):
        team = html.escape(state.team.name)
        page = f"<!DOCTYPE html><html><head><title>Sign in to {team} | Slack</title></head></html>"
        return Response(page, 200, media_type="text/html")
    if found is None or found[0].mode in _GONE:
        return Response("<h1>404</h1>", 404, media_type="text/html")
    file = found[0]
    headers = {}
    if name.startswith("download/"):
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(file.name)}"
    kind = file.mimetype or "application/octet-stream"
    return Response(file.content, 200, headers, kind)


def upload_refusal(state: SlackState, id: str, content: bytes) -> Response | None:
    """Return an error for bytes that were not announced or have another length; else None."""
    upload = state.uploads.get(id)
    if upload is None or upload.completed:
        return Response("Not Found", 404, media_type="text/plain")
    if len(content) != upload.length:
        return Response("Bad Request", 400, media_type="text/plain")
    return None


def check_completed_uploads(call: Call) -> None:
    """Refuse files that the caller has not uploaded, or has shared before."""
    files = call.objects("files")
    uploads = [call.state.uploads.get(str(each.get("id"))) for each in files]
    uploaded = [u for u in uploads if u and u.content and u.user == call.identity.user]
    if not files or len(uploaded) < len(files) or any(u.completed for u in uploaded):
        raise SlackError("file_not_found" if files else "invalid_arguments")
    if not call.text("channel_id"):
        raise SlackError("channel_not_found")  # a private file is of no use to the product


METHODS: Mapping[str, Callable[[Call], Json]] = {"files.info": _info}
