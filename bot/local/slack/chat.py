"""Web API methods that write messages, reactions and files, and the links to messages."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from bot.local.slack.json import file_json, message_json, number_blocks, permalink
from bot.local.slack.records import Json, Upload, Whisper
from bot.local.slack.state import (
    Call,
    SlackError,
    message_of,
    new_message,
    own_message,
    visible,
    writable,
)
from bot.local.workspace import Channel, File, Message, Reaction, micros, timestamp


def _post(call: Call) -> Json:
    channel = writable(call)
    return _keep(call, channel, new_message(call, channel))


def _update(call: Call) -> Json:
    """Change a message. Blocks and metadata that are not sent stay; [] removes them."""
    channel = writable(call)
    message = own_message(call, channel, "cant_update_message")
    at = timestamp(call.state.new_ts(channel.id))
    answer = _keep(call, channel, replace(message, edited=at))
    return answer | {"text": answer["message"]["text"]}


def _keep(call: Call, channel: Channel, message: Message) -> Json:
    """Store a message with the content of the call; return the answer."""
    message = _with_content(call, message)
    call.keep(channel, message)
    body = message_json(call.state, channel.id, message, with_metadata=True)
    return {"channel": channel.id, "ts": message.ts, "message": body}


def _delete(call: Call) -> Json:
    channel = writable(call)
    message = own_message(call, channel, "cant_delete_message")
    call.state.timelines[channel.id].remove(micros(message.ts))
    return {"channel": channel.id, "ts": message.ts}


def _whisper(call: Call) -> Json:
    """Show a message to one person of the channel; only `whispers` keeps it."""
    channel = writable(call)
    if (user := call.require("user")) not in call.state.members[channel.id]:
        raise SlackError("user_not_in_channel")
    message = _with_content(call, new_message(call, channel))
    call.state.whispers.append(
        Whisper(channel.id, user, message.ts, message.text, message.thread_ts, message.blocks)
    )
    return {"message_ts": message.ts}


def _permalink(call: Call) -> Json:
    channel = visible(call)
    message = message_of(call, channel, "message_ts")
    return {"channel": channel.id, "permalink": permalink(call.state, channel.id, message)}


def _add_reaction(call: Call) -> Json:
    name = call.require("name").strip(":")
    channel = writable(call)
    message = message_of(call, channel, "timestamp")
    if any(each.name == name and call.identity.user in each.users for each in message.reactions):
        raise SlackError("already_reacted")
    call.keep(channel, with_reaction(message, name, call.identity.user))
    return {}


def with_reaction(message: Message, name: str, user: str) -> Message:
    """Return the message with the reaction of one more person."""
    reactions = {reaction.name: reaction for reaction in message.reactions}
    old = reactions.get(name, Reaction(name, 0))
    reactions[name] = Reaction(name, old.count + 1, (*old.users, user))
    return replace(message, reactions=tuple(reactions.values()))


def _with_content(call: Call, message: Message) -> Message:
    """Return the message with the text, blocks and metadata that the call sends."""
    text, markdown = call.text("text"), call.text("markdown_text")
    blocks = number_blocks(call.objects("blocks"))
    return replace(
        message,
        text=text or markdown,
        blocks=blocks if "blocks" in call.args or markdown else message.blocks,
        metadata=call.value("metadata") or message.metadata,
    )


# ---- files

UPLOAD_PATH = "/upload/v1/{file}"


def _address(call: Call) -> Json:
    name, length = call.require("filename"), call.require("length")
    id = f"F0UP{len(call.state.uploads):05d}"
    call.state.uploads[id] = Upload(id, name, int(length), call.identity.user)
    return {"upload_url": f"{call.state.base_url}upload/v1/{id}", "file_id": id}


def _complete(call: Call) -> Json:
    """Show files in a message of their own."""
    channel = writable(call, "channel_id")
    message = new_message(call, channel)
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
    "chat.postMessage": _post,
    "chat.postEphemeral": _whisper,
    "chat.update": _update,
    "chat.delete": _delete,
    "chat.getPermalink": _permalink,
    "reactions.add": _add_reaction,
    "files.getUploadURLExternal": _address,
    "files.completeUploadExternal": _complete,
}
