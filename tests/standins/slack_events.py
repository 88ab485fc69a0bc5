"""What Slack tells the app of edits, deletions and the app's own writes."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from bot.local.slack.events import is_told, mention, mentions, nested, now_ts, when, written
from bot.local.slack.state import Call, Effect, SlackState
from bot.local.workspace import Channel, Message, micros

Json = dict[str, Any]

_WRITTEN = ("chat.postMessage", "chat.startStream", "files.completeUploadExternal")
_CHANGED = ("chat.update", "chat.stopStream")


def changed(
    state: SlackState, channel: Channel, message: Message, before: Message
) -> Iterator[Json]:
    """The events of an edit; a mention that is new in it is an `app_mention`, too."""
    now = nested(state, channel, message)
    yield {
        "type": "message",
        "subtype": "message_changed",
        "message": now,
        "previous_message": nested(state, channel, before),
        "hidden": True,
        **when(state, channel),
    }
    if mentions(message) and not mentions(before) and not channel.is_im:
        yield mention(now | {"channel": channel.id, "event_ts": now_ts(state)})


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
        "previous_message": nested(state, channel, previous),
        "deleted_ts": before.ts,
        "hidden": True,
        **when(state, channel),
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
