"""The writes of the app, and the events of writes, edits and deletions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bot.local.slack.events import (
    channel_type,
    is_told,
    mention,
    mentions,
    message_events,
    nest_message,
    now_ts,
)
from bot.local.slack.records import Json
from bot.local.slack.state import Call, SlackState
from bot.local.workspace import Channel, Message, micros, timestamp

_WRITTEN = ("chat.postMessage", "chat.startStream", "files.completeUploadExternal")
_CHANGED = ("chat.update", "chat.stopStream")
_THREAD = ("channel_id", "thread_ts")
_PLACES: Mapping[str, tuple[str, str]] = {
    **dict.fromkeys((*_WRITTEN, *_CHANGED), ("channel", "ts")),
    "agents.sessions.setStatus": _THREAD,
    "assistant.threads.setSuggestedPrompts": _THREAD,
    "assistant.threads.setTitle": _THREAD,
    "chat.appendStream": ("channel", "ts"),
    "chat.delete": ("channel", "ts"),
    "chat.postEphemeral": ("channel", "message_ts"),
    "files.completeUploadExternal": ("channel_id", ""),
    "reactions.add": ("channel", "timestamp"),
    "views.open": ("", ""),
    "views.publish": ("", ""),
}
"""Methods that write: the fields of answer or arguments that name the channel and the message."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One write that the local Slack executed."""

    method: str
    user: str
    channel: str
    """For a view, its id."""
    ts: str
    """The message that was written or changed."""
    args: Mapping[str, Any]
    """The arguments of the call."""


def effect_of(call: Call, body: Json) -> Effect | None:
    """Return the write of a call that was answered with `body`; None for a call that reads."""
    if call.method not in _PLACES:
        return None
    place, at = _PLACES[call.method]
    fields = {**call.args, **body}
    channel = str(fields.get(place) or body["view"]["id"])
    ts = str(fields.get(at) or "")
    if call.method == "files.completeUploadExternal":
        ts = timestamp(call.state.timelines[channel].newest())
    return Effect(call.method, call.identity.user, channel, ts, call.args)


def _when(state: SlackState, channel: Channel) -> Json:
    """Return the place and time fields of an event."""
    at = now_ts(state)
    kind = channel_type(channel)
    return {"channel": channel.id, "ts": at, "event_ts": at, "channel_type": kind}


def edit_events(
    state: SlackState, channel: Channel, message: Message, before: Message
) -> Iterator[Json]:
    """Yield the events of an edit; a mention that is new in it is an `app_mention`, too."""
    now = nest_message(state, channel, message)
    yield {
        "type": "message",
        "subtype": "message_changed",
        "message": now,
        "previous_message": nest_message(state, channel, before),
        "hidden": True,
        **_when(state, channel),
    }
    if mentions(message) and not mentions(before) and not channel.is_im:
        yield mention(now | {"channel": channel.id, "event_ts": now_ts(state)})


def delete_events(state: SlackState, channel: Channel, before: Message) -> Iterator[Json]:
    """Yield the events of a deletion; a root with replies is changed into a tombstone instead."""
    tombstone = state.timelines[channel.id].get(micros(before.ts))
    if tombstone:
        yield from edit_events(state, channel, tombstone, before)
        return
    previous = before if not before.is_reply else replace(before, subtype="")
    yield {
        "type": "message",
        "subtype": "message_deleted",
        "previous_message": nest_message(state, channel, previous),
        "deleted_ts": before.ts,
        "hidden": True,
        **_when(state, channel),
    }


def named_message(call: Call) -> Message | None:
    """Return the message that a call names by its `ts`, as it is before the call."""
    timeline = call.state.timelines.get(call.text("channel"))
    try:
        return timeline.get(micros(call.text("ts"))) if timeline else None
    except ValueError:
        return None


def of_write(state: SlackState, effect: Effect, before: Message | None) -> Iterator[Json]:
    """Yield the events of a write of a message through the Web API; the app gets its own, too.

    `before` is the message that the call named, as it was.
    """
    channel = state.channels.get(effect.channel)
    if channel is None or not effect.ts or not is_told(state, channel.id):
        return
    message = state.timelines[channel.id].get(micros(effect.ts))
    if effect.method == "chat.delete" and before:
        yield from delete_events(state, channel, before)
    elif message is None:
        return
    elif effect.method in _WRITTEN:
        yield from message_events(state, channel, message)
    elif effect.method in _CHANGED and before:
        yield from edit_events(state, channel, message, before)
