"""The app's own writes, and what Slack tells the app of them, of edits and of deletions."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from bot.local.slack.events import (
    is_told,
    mention,
    mentions,
    message_events,
    nest_message,
    now_ts,
    when,
)
from bot.local.slack.state import Call, SlackState
from bot.local.workspace import Channel, Message, micros, timestamp

Json = dict[str, Any]

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
"""Methods that write: what names the channel and the message, in the answer or the arguments."""


@dataclass(frozen=True, slots=True)
class Effect:
    """One write that the local Slack carried out."""

    method: str
    user: str
    channel: str
    """Of a view its id."""
    ts: str
    """The message written or changed."""
    args: Mapping[str, Any]
    """What the caller sent."""


def effect_of(call: Call, body: Json) -> Effect | None:
    """The write that a call, answered with `body`, carried out; None where it only read."""
    if call.method not in _PLACES:
        return None
    place, at = _PLACES[call.method]
    told = {**call.args, **body}
    channel = str(told.get(place) or body["view"]["id"])
    ts = str(told.get(at) or "")
    if call.method == "files.completeUploadExternal":
        ts = timestamp(call.state.timelines[channel].newest())
    return Effect(call.method, call.identity.user, channel, ts, call.args)


def edit_events(
    state: SlackState, channel: Channel, message: Message, before: Message
) -> Iterator[Json]:
    """The events of an edit; a mention that is new in it is an `app_mention`, too."""
    now = nest_message(state, channel, message)
    yield {
        "type": "message",
        "subtype": "message_changed",
        "message": now,
        "previous_message": nest_message(state, channel, before),
        "hidden": True,
        **when(state, channel),
    }
    if mentions(message) and not mentions(before) and not channel.is_im:
        yield mention(now | {"channel": channel.id, "event_ts": now_ts(state)})


def delete_events(state: SlackState, channel: Channel, before: Message) -> Iterator[Json]:
    """A root with replies is not deleted but changed, into a tombstone."""
    left = state.timelines[channel.id].get(micros(before.ts))
    if left:
        yield from edit_events(state, channel, left, before)
        return
    previous = before if not before.is_reply else replace(before, subtype="")
    yield {
        "type": "message",
        "subtype": "message_deleted",
        "previous_message": nest_message(state, channel, previous),
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
        yield from delete_events(state, channel, before)
    elif message is None:
        return
    elif effect.method in _WRITTEN:
        yield from message_events(state, channel, message)
    elif effect.method in _CHANGED and before:
        yield from edit_events(state, channel, message, before)
