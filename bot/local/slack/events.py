"""Events as Slack tells them: docs.slack.dev/reference/events."""

import re
import uuid
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bot.local.slack.json import message_json
from bot.local.slack.state import BOT_USER, Call, Effect, SlackState
from bot.local.workspace import Channel, Message, micros, timestamp

Json = dict[str, Any]

MENTION = f"<@{BOT_USER}>"

_CHANNEL_TYPES = {
    "public_channel": "channel",
    "private_channel": "group",
    "mpim": "mpim",
    "im": "im",
}
_USER = re.compile(r"<@([A-Z0-9]+)>")
_WRITTEN = ("chat.postMessage", "chat.startStream", "files.completeUploadExternal")
_CHANGED = ("chat.update", "chat.stopStream")


def channel_type(channel: Channel) -> str:
    return _CHANNEL_TYPES[channel.kind]


def now_ts(state: SlackState) -> str:
    return timestamp(int(state.now() * 1_000_000))


def is_told(state: SlackState, channel: str) -> bool:
    """Whether the app hears of what happens there: its bot has to be a member."""
    return BOT_USER in state.members.get(channel, ())


def written(state: SlackState, channel: Channel, message: Message) -> Iterator[Json]:
    """The events of a new message: `message`, and `app_mention` where it mentions the bot."""
    event = _nested(state, channel, message)
    event |= {"channel": channel.id, "event_ts": message.ts}
    if not message.bot_id:
        event["assistant_thread"] = {"action_token": f"{channel.id}.{message.ts}.local"}
    yield event | {"channel_type": channel_type(channel)}
    if _mentions(message) and not channel.is_im:
        yield mention(event)


def mention(event: Json) -> Json:
    """The app_mention beside a message event; it names neither subtype nor kind of channel."""
    left_out = ("subtype", "channel_type")
    return {k: v for k, v in event.items() if k not in left_out} | {"type": "app_mention"}


def changed(
    state: SlackState, channel: Channel, message: Message, before: Message
) -> Iterator[Json]:
    """The events of an edit; a mention that is new in it is an `app_mention`, too."""
    nested = _nested(state, channel, message)
    yield {
        "type": "message",
        "subtype": "message_changed",
        "message": nested,
        "previous_message": _nested(state, channel, before),
        "hidden": True,
        **_when(state, channel),
    }
    if _mentions(message) and not _mentions(before) and not channel.is_im:
        yield mention(nested | {"channel": channel.id, "event_ts": now_ts(state)})


def deleted(state: SlackState, channel: Channel, before: Message) -> Iterator[Json]:
    """A root with replies is not deleted but changed, into a tombstone."""
    left = state.timelines[channel.id].get(micros(before.ts))
    if left:
        yield from changed(state, channel, left, before)
        return
    previous = before if not before.is_reply else replace(before, subtype="")
    yield {
        "type": "message",
        "subtype": "message_deleted",
        "previous_message": _nested(state, channel, previous),
        "deleted_ts": before.ts,
        "hidden": True,
        **_when(state, channel),
    }


def reacted(state: SlackState, channel: Channel, message: Message, user: str, name: str) -> Json:
    return {
        "type": "reaction_added",
        "user": user,
        "reaction": name,
        "item": {"type": "message", "channel": channel.id, "ts": message.ts},
        "item_user": message.user,
        "event_ts": now_ts(state),
    }


def named_message(call: Call) -> Message | None:
    """The message that a call names by its `ts`, as it is before the call."""
    timeline = call.state.timelines.get(call.text("channel"))
    try:
        return timeline.get(micros(call.text("ts"))) if timeline else None
    except ValueError:
        return None


def of_write(state: SlackState, effect: Effect, before: Message | None) -> Iterator[Json]:
    """The events of a write of a message through the Web API; the app hears of its own, too.

    `before` is the message that the call named, as it was.
    """
    channel = state.channels.get(effect.channel)
    if channel is None or not effect.ts or not is_told(state, channel.id):
        return
    message = state.timelines[channel.id].get(micros(effect.ts))
    if effect.method == "chat.delete" and before:
        yield from deleted(state, channel, before)
    elif message is None:
        return
    elif effect.method in _WRITTEN:
        yield from written(state, channel, message)
    elif effect.method in _CHANGED and before:
        yield from changed(state, channel, message, before)
    elif effect.method == "reactions.add":
        name = str(effect.args.get("name", "")).strip(":")
        yield reacted(state, channel, message, effect.user, name)


def rich_text(text: str) -> Json:
    """The block that Slack makes of what a person types."""
    elements: list[Json] = []
    for number, part in enumerate(_USER.split(text)):
        if number % 2:
            elements.append({"type": "user", "user_id": part})
        elif part:
            elements.append({"type": "text", "text": part})
    section = {"type": "rich_text_section", "elements": elements}
    return {"type": "rich_text", "block_id": "b1", "elements": [section]}


def _mentions(message: Message) -> bool:
    return MENTION in message.text or f"<@{BOT_USER}|" in message.text


def _nested(state: SlackState, channel: Channel, message: Message) -> Json:
    """A message inside of an event."""
    body = message_json(state, channel.id, message)
    if message.bot_id or not message.user or message.subtype == "tombstone":
        return body
    body["client_msg_id"] = str(uuid.uuid5(uuid.NAMESPACE_URL, f"{channel.id}/{message.ts}"))
    if not message.blocks and message.text:
        body["blocks"] = [rich_text(message.text)]
    if message.files:
        body |= {"subtype": "file_share", "upload": False, "display_as_bot": False}
    user = state.users.get(message.user)
    if user and user.team_id:
        body |= {"team": user.team_id, "user_team": user.team_id, "source_team": user.team_id}
    return body


def _when(state: SlackState, channel: Channel) -> Json:
    at = now_ts(state)
    return {
        "channel": channel.id,
        "ts": at,
        "event_ts": at,
        "channel_type": channel_type(channel),
    }
