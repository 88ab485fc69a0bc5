"""Web API methods that write messages and reactions, and the links to them."""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from bot.local.slack_json import Json, message_json, permalink
from bot.local.slack_state import Call, SlackError
from bot.local.workspace import Channel, Message, Reaction, micros, timestamp

MAX_TEXT = 40_000
"""Longer text is cut: docs.slack.dev/changelog/2018-04-truncating-really-long-messages."""
MAX_MARKDOWN = 12_000

_EMOJI = re.compile(r"[a-z0-9_+'\-]{1,100}(::skin-tone-[2-6])?")


def _post(call: Call) -> Json:
    call.need("chat:write")
    channel = _writable(call)
    at = call.state.new_ts(channel.id)
    author = Message(timestamp(at), user=call.identity.user, bot_id=call.identity.bot_id)
    message = _written(call, _placed(call, channel, author))
    call.state.timelines[channel.id].add(message)
    call.did(channel.id, message)
    body = message_json(call.state, channel.id, message)
    return {"channel": channel.id, "ts": message.ts, "message": body}


def _update(call: Call) -> Json:
    call.need("chat:write")
    channel = _writable(call)
    message = _message(call, channel, "ts")
    if message.user != call.identity.user:
        raise SlackError("cant_update_message")
    at = timestamp(call.state.new_ts(channel.id))
    changed = replace(_written(call, message), edited=at, edited_by=call.identity.user)
    call.state.timelines[channel.id].replace(changed)
    call.did(channel.id, changed)
    body = message_json(call.state, channel.id, changed)
    return {"channel": channel.id, "ts": changed.ts, "text": changed.text, "message": body}


def _permalink(call: Call) -> Json:
    channel = _visible(call)
    message = _message(call, channel, "message_ts")
    return {"channel": channel.id, "permalink": permalink(call.state, channel.id, message)}


def _add_reaction(call: Call) -> Json:
    call.need("reactions:write")
    name = call.required("name").strip(":")
    if not _EMOJI.fullmatch(name):
        raise SlackError("invalid_name")
    channel = _writable(call)
    message = _message(call, channel, "timestamp")
    reactions = {reaction.name: reaction for reaction in message.reactions}
    old = reactions.get(name, Reaction(name, 0))
    if call.identity.user in old.users:
        raise SlackError("already_reacted")
    reactions[name] = Reaction(name, old.count + 1, (*old.users, call.identity.user))
    changed = replace(message, reactions=tuple(reactions.values()))
    call.state.timelines[channel.id].replace(changed)
    call.did(channel.id, changed)
    return {}


def _visible(call: Call) -> Channel:
    channel = call.state.channels.get(call.required("channel"))
    if channel is None or not call.state.may_see(call.identity.user, channel):
        raise SlackError("channel_not_found")
    return channel


def _writable(call: Call) -> Channel:
    channel = _visible(call)
    if not call.is_member(channel):
        raise SlackError("not_in_channel")
    if channel.is_archived:
        raise SlackError("is_archived")
    return channel


def _message(call: Call, channel: Channel, argument: str) -> Message:
    try:
        message = call.state.timelines[channel.id].get(micros(call.required(argument)))
    except ValueError:
        message = None
    if message is None:
        raise SlackError("message_not_found")
    return message


def _written(call: Call, message: Message) -> Message:
    """The message with the text and blocks that the call sends."""
    text, markdown = call.text("text"), call.text("markdown_text")
    blocks, attachments = call.objects("blocks"), call.objects("attachments")
    if markdown and (text or blocks):
        raise SlackError("markdown_text_conflict")
    if len(markdown) > MAX_MARKDOWN:
        raise SlackError("msg_too_long")
    if not (text or markdown or blocks or attachments):
        raise SlackError("no_text")
    text = (text or markdown)[:MAX_TEXT]
    return replace(message, text=text, blocks=blocks, attachments=attachments)


def _placed(call: Call, channel: Channel, message: Message) -> Message:
    """The new message in the thread that `thread_ts` names, if it names one."""
    if not call.text("thread_ts"):
        return message
    timeline = call.state.timelines[channel.id]
    try:
        root = timeline.get(micros(call.text("thread_ts")))
    except ValueError:
        root = None
    if root is None:
        raise SlackError("thread_not_found")
    subtype = "thread_broadcast" if call.flag("reply_broadcast") else ""
    return replace(message, thread_ts=root.thread_ts or root.ts, subtype=subtype)


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "chat.postMessage": _post,
    "chat.update": _update,
    "chat.getPermalink": _permalink,
    "reactions.add": _add_reaction,
}
