"""Files of the local Slack: files.info, their content behind `url_private`, and uploads."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from urllib.parse import quote

from starlette.responses import Response

from bot.local.slack.json import file_json
from bot.local.slack.records import Json, Upload
from bot.local.slack.state import (
    Call,
    Identity,
    SlackError,
    SlackState,
    new_message,
    placed,
    writable,
)
from bot.local.workspace import Channel, File, Message

FILES_PATH = "/files-pri/{place}/{name:path}"

UPLOAD_PATH = "/upload/v1/{file}"

_KINDS = {"csv": "text/csv", "png": "image/png", "txt": "text/plain"}
_GONE = ("tombstone", "hidden_by_limit")


def _info(call: Call) -> Json:
    found = find(call.state, call.required("file"))
    if found is None or not call.state.may_see(call.identity.user, found[1]):
        raise SlackError("file_not_found")
    file, channel, message = found
    if file.mode in _GONE:
        raise SlackError("file_deleted")
    body = file_json(call.state, channel.id, message, file)
    place = {"im": "ims", "public_channel": "channels"}.get(channel.kind, "groups")
    body |= {"channels": [], "groups": [], "ims": [], place: [channel.id]}
    return {"file": body, "comments": [], "response_metadata": {"next_cursor": ""}}


def find(state: SlackState, id: str) -> tuple[File, Channel, Message] | None:
    """A file and the message that it was shared in."""
    for channel in list(state.channels.values()):
        for message in list(state.timelines[channel.id].all()):
            for file in message.files:
                if file.id == id:
                    return file, channel, message
    return None


def download(state: SlackState, identity: Identity | None, place: str, name: str) -> Response:
    """The content of a file, for who may read it.

    `place` is "<team>-<file>"; `name` may begin with "download/".
    """
    found = find(state, place.partition("-")[2])
    hidden = found and not (identity and state.may_see(identity.user, found[1]))
    if found is None or hidden or found[0].mode in _GONE:
        return Response("<h1>404</h1>", 404, media_type="text/html")
    file = found[0]
    headers = {}
    if name.startswith("download/"):
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(file.name)}"
    kind = file.mimetype or "application/octet-stream"
    return Response(file.content, 200, headers, kind)


def _address(call: Call) -> Json:
    name, length = call.required("filename"), call.required("length")
    id = f"F0UP{len(call.state.uploads):05d}"
    call.state.uploads[id] = Upload(id, name, int(length), call.identity.user)
    return {"upload_url": f"{call.state.base_url}upload/v1/{id}", "file_id": id}


def take(state: SlackState, id: str, content: bytes) -> Response:
    """The bytes of a file; the address alone says whose it is."""
    state.uploads[id].content = content
    return Response(f"OK - {len(content)}", 200, media_type="text/plain")


def _complete(call: Call) -> Json:
    """Show files in a message of their own."""
    channel = writable(call, "channel_id")
    message = placed(call, channel, new_message(call, channel))
    files = []
    for each in call.objects("files"):
        upload = call.state.uploads[each["id"]]
        upload.completed = True
        files.append(_file(upload, str(each.get("title") or "")))
    shown = replace(message, text=call.text("initial_comment"), files=tuple(files))
    call.keep(channel, shown)
    return {"files": [file_json(call.state, channel.id, shown, file) for file in files]}


def _file(upload: Upload, title: str) -> File:
    kind = upload.name.rpartition(".")[2].lower()
    return File(
        upload.id,
        upload.name,
        title or upload.name,
        _KINDS.get(kind, "application/octet-stream"),
        kind,
        upload.length,
        content=upload.content,
    )


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "files.info": _info,
    "files.getUploadURLExternal": _address,
    "files.completeUploadExternal": _complete,
}
