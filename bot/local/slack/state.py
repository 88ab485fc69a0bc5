"""The state of a running local Slack; a call with its arguments, rights and target."""

import base64
import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from bot.local.slack.records import Stream, Upload, View, Whisper
from bot.local.workspace import (
    SLACKBOT,
    Channel,
    Message,
    SlackList,
    Timeline,
    User,
    UserGroup,
    Workspace,
    micros,
    timestamp,
)

APP_ID = "A0LOCAL"
BOT_USER = "U0ASSISTANT"
BOT_ID = "B0ASSISTANT"

_FALSE = ("", "0", "false", "False")

Key = TypeVar("Key", int, str)


class SlackError(Exception):
    """A refusal: `ok` is false, `code` is Slack's error, `extra` are further fields."""

    def __init__(self, code: str, **extra: Any) -> None:
        super().__init__(code)
        self.code = code
        self.extra = extra


@dataclass(frozen=True, slots=True)
class Identity:
    """The owner of a token."""

    user: str
    bot_id: str = ""
    """Empty for a user token."""


class SlackState:
    """A mutable workspace: its loaded content, and all later writes with their authors."""

    def __init__(self, workspace: Workspace) -> None:
        """Load a workspace, and add the bot to all public channels."""
        self.team = workspace.team
        self.users: dict[str, User] = {
            SLACKBOT: User(SLACKBOT, "slackbot", "Slackbot", "Slackbot"),
            BOT_USER: User(BOT_USER, "assistant", "Assistant", "assistant", is_bot=True),
        }
        self.users |= {user.id: user for user in workspace.users}
        self.channels: dict[str, Channel] = {c.id: c for c in workspace.channels}
        self.lists: dict[str, SlackList] = {each.id: each for each in workspace.lists}
        self.timelines = {c.id: Timeline(c.messages) for c in workspace.channels}
        self.members = {c.id: dict.fromkeys(c.members) for c in workspace.channels}
        for channel in workspace.channels:
            if channel.kind == "public_channel":
                self.members[channel.id][BOT_USER] = None
        self.usergroups: dict[str, UserGroup] = {each.id: each for each in workspace.usergroups}
        self.streams: dict[tuple[str, str], Stream] = {}
        self.sessions: dict[tuple[str, str], str] = {}
        """Channel and thread -> the status of the agent's conversation there."""
        self.prompts: dict[tuple[str, str], tuple[Mapping[str, str], ...]] = {}
        """Channel and thread -> suggested prompts; thread "" = in the empty pane."""
        self.views: dict[str, View] = {}
        self.triggers: dict[str, tuple[str, float]] = {}
        """Trigger id -> its user ("" once used), and its start time."""
        self.whispers: list[Whisper] = []
        self.uploads: dict[str, Upload] = {}
        self.base_url = f"https://files.{self.team.domain}.slack.com/"
        """Address of files; the server sets its own address here."""
        self.lock = threading.RLock()
        """Held during every call: people act from other threads than the server's."""
        self.now: Callable[[], float] = time.time

    def new_ts(self, channel: str) -> int:
        """Return the time of a new message in microseconds, later than all in the channel."""
        return max(int(self.now() * 1_000_000), self.timelines[channel].newest() + 1)

    def may_see(self, user: str, channel: Channel) -> bool:
        return channel.kind == "public_channel" or user in self.members[channel.id]

    def direct(self, one: str, other: str) -> Channel:
        """Return the direct message of two people; create it if there is none."""
        for channel in self.channels.values():
            if channel.is_im and self.members[channel.id].keys() == {one, other}:
                return channel
        channel = Channel(f"D0IM{len(self.channels)}", "", is_private=True, is_im=True)
        self.channels[channel.id], self.timelines[channel.id] = channel, Timeline(())
        self.members[channel.id] = dict.fromkeys((one, other))
        return channel


@dataclass(frozen=True, slots=True)
class Call:
    """One request for a Web API method."""

    state: SlackState
    identity: Identity
    method: str
    args: Mapping[str, Any]

    def text(self, name: str) -> str:
        """Return an argument as text; empty if it was not sent."""
        value = self.args.get(name)
        return "" if value is None else str(value)

    def require(self, name: str) -> str:
        value = self.text(name)
        if not value:
            message = f"[ERROR] missing required field: {name}"
            raise SlackError("invalid_arguments", response_metadata={"messages": [message]})
        return value

    def flag(self, name: str) -> bool:
        return self.text(name) not in _FALSE

    def time(self, name: str, default: int) -> int:
        """Return a timestamp argument in microseconds."""
        return micros(self.text(name)) if self.text(name) else default

    def value(self, name: str) -> Any:
        """Return an argument that is JSON, sent as such or as a string."""
        value = self.args.get(name)
        return json.loads(value) if value and isinstance(value, str) else value

    def objects(self, name: str) -> tuple[dict[str, Any], ...]:
        """Return a list of JSON objects."""
        return tuple(self.value(name) or ())

    def kinds(self) -> set[str]:
        """Return the kinds of conversation in `types`."""
        return set((self.text("types") or "public_channel").replace(" ", "").split(","))

    def is_member(self, channel: Channel) -> bool:
        return self.identity.user in self.state.members[channel.id]

    def page(
        self, keys: Sequence[Key], kind: str, default: int, most: int
    ) -> tuple[Sequence[Key], str]:
        """Return the keys of the requested page, and the next cursor (empty at the end)."""
        cursor = base64.b64decode(self.text("cursor")).decode()
        start = [f"{kind}:{key}" for key in keys].index(cursor) if self.text("cursor") else 0
        end = start + (min(int(self.text("limit") or default), most) or default)
        following = f"{kind}:{keys[end]}" if end < len(keys) else ""
        return keys[start:end], base64.b64encode(following.encode()).decode()

    def keep(self, channel: Channel, message: Message) -> None:
        """Store a message, new or changed."""
        timeline = self.state.timelines[channel.id]
        exists = timeline.get(micros(message.ts)) is not None
        (timeline.replace if exists else timeline.add)(message)


def visible(call: Call, argument: str = "channel") -> Channel:
    """Return the named channel if it may be seen; a person's id names their direct message."""
    id = call.require(argument)
    if id in call.state.users and id != call.identity.user:
        return call.state.direct(call.identity.user, id)
    channel = call.state.channels.get(id)
    if channel is None or not call.state.may_see(call.identity.user, channel):
        raise SlackError("channel_not_found")
    return channel


def writable(call: Call, argument: str = "channel") -> Channel:
    """Return the named channel if the caller may write there."""
    channel = visible(call, argument)
    if not call.is_member(channel):
        raise SlackError("not_in_channel")
    if channel.is_archived:
        raise SlackError("is_archived")
    return channel


def message_of(
    call: Call, channel: Channel, argument: str, error: str = "message_not_found"
) -> Message:
    """Return the message at a timestamp; `error` is Slack's error if there is none."""
    try:
        message = call.state.timelines[channel.id].get(micros(call.require(argument)))
    except ValueError:
        message = None
    if message is None:
        raise SlackError(error)
    return message


def own_message(call: Call, channel: Channel, error: str) -> Message:
    """Return the caller's own message at `ts`; `error` is Slack's error if it is not theirs."""
    message = message_of(call, channel, "ts")
    if message.user != call.identity.user or message.subtype == "tombstone":
        raise SlackError(error)
    return message


def new_message(call: Call, channel: Channel) -> Message:
    """Return a new empty message of the caller, in the thread that `thread_ts` names, if any."""
    thread_ts = root_of(call, channel).ts if call.text("thread_ts") else ""
    ts, caller = timestamp(call.state.new_ts(channel.id)), call.identity
    return Message(ts, user=caller.user, bot_id=caller.bot_id, thread_ts=thread_ts)


def root_of(call: Call, channel: Channel) -> Message:
    """Return the root of the thread that `thread_ts` names, by its root or a reply."""
    message = message_of(call, channel, "thread_ts", "thread_not_found")
    timeline = call.state.timelines[channel.id]
    return timeline[micros(message.thread_ts)] if message.is_reply else message
