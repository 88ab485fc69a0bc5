"""Uploads of files to the local Slack."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from starlette.responses import Response

from bot.local.slack.json import file_json
from bot.local.slack.records import Json, Upload
from bot.local.slack.state import (
    Call,
    SlackState,
    new_message,
    place_message,
    writable,
)
from bot.local.workspace import File

UPLOAD_PATH = "/upload/v1/{file}"


def _address(call: Call) -> Json:
    name, length = call.require("filename"), call.require("length")
    id = f"F0UP{len(call.state.uploads):05d}"
    call.state.uploads[id] = Upload(id, name, int(length), call.identity.user)
    return {"upload_url": f"{call.state.base_url}upload/v1/{id}", "file_id": id}


def take(state: SlackState, id: str, content: bytes) -> Response:
    """Receive the bytes of a file, which is identified by the address alone."""
    state.uploads[id].content = content
    return Response(f"OK - {len(content)}", 200, media_type="text/plain")


def _complete(call: Call) -> Json:
    """Show files in a message of their own."""
    channel = writable(call, "channel_id")
    message = place_message(call, channel, new_message(call, channel))
    files = []
    for each in call.objects("files"):
        upload = call.state.uploads[each["id"]]
        upload.completed = True
        title = str(each.get("title") or upload.name)
        files.append(File(upload.id, upload.name, title, content=upload.content))
    shown = replace(message, files=tuple(files))
    call.keep(channel, shown)
    return {"files": [file_json(call.state, file) for file in files]}


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "files.getUploadURLExternal": _address,
    "files.completeUploadExternal": _complete,
}
