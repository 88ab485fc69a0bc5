"""The actions of people in the local workspace, and the events that the app gets."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.local.slack import events
from bot.local.slack.records import Json
from bot.local.slack.socket import Deliveries
from bot.local.slack.state import BOT_USER, SlackState
from bot.local.slack.streams import halt
from bot.local.slack.views import home, view_json
from bot.local.workspace import Channel, Message, micros, timestamp


class People:
    """Acts for all people in the workspace. Raises KeyError for names that do not exist.

    All methods may be called from any thread. They return when the action is done and its events
    are queued.
    """

    def __init__(self, state: SlackState, deliveries: Deliveries) -> None:
        self.state = state
        self.deliveries = deliveries

    def say(self, user: str, channel: str, text: str, thread_ts: str | None = None) -> str:
        """Write a message, which joins its writer to a public channel; return its timestamp."""
        with self.state.lock:
            self.place(user, channel)
            created = self.write(channel, thread_ts, Message("", text, user))
        self.tell(channel, *created)
        return str(created[0]["ts"])

    def dm(self, user: str) -> str:
        """Return the channel of this person's direct message, or agent pane, with the bot."""
        with self.state.lock:
            return self.state.direct(user, BOT_USER).id

    def stop(self, user: str, channel: str, thread_ts: str) -> None:
        """Press Slack's Stop button: it ends the streams and leaves the session's state alone."""
        ended = halt(self.state, channel, thread_ts)
        place = {"channel": channel, "thread_ts": thread_ts}
        self.notify("agent_session_stopped", user, **place, streaming_message_ts=ended)

    def open_home(self, user: str, tab: str = "home") -> None:
        """Open the app's page; `tab` is "home" or "messages" (the agent pane)."""
        with self.state.lock:
            view = home(self.state, user) if tab == "home" else None
            shown: Json = {"view": view_json(self.state, view)} if view else {}
        self.notify("app_home_opened", user, channel=self.dm(user), tab=tab, **shown)

    def click(
        self, user: str, channel: str, ts: str, action_id: str, value: str | None = None
    ) -> None:
        """Press a button of a message; `value` chooses between the two that give feedback."""
        with self.state.lock:
            message = self.message(channel, ts)
            action = events.action_of(message.blocks, action_id, value)
            payload = events.click(self.state, user, channel, message, action)
        self.put("interactive", "block_actions", payload)

    def click_home(self, user: str, action_id: str, value: str | None = None) -> None:
        """Press a button of the person's App Home."""
        with self.state.lock:
            payload = events.click_home(self.state, user, action_id, value)
        self.put("interactive", "block_actions", payload)

    def submit(self, user: str, view_id: str, typed: Mapping[str, str]) -> None:
        """Submit the form of a modal; `typed`: block id -> text."""
        with self.state.lock:
            payload = events.submit(self.state, user, view_id, typed)
        self.put("interactive", "view_submission", payload)

    def close_modal(self, user: str, view_id: str) -> None:
        """Close a modal without submitting it or notifying the app. KeyError if it is not open."""
        with self.state.lock:
            events.close(self.state, user, view_id)

    def write(self, channel: str, thread_ts: str | None, message: Message) -> list[Json]:
        """Store a new message with its time; return its events."""
        ts = timestamp(self.state.new_ts(channel))
        message = replace(message, ts=ts, thread_ts=self.root(channel, thread_ts))
        self.state.timelines[channel].add(message)
        return list(events.message_events(self.state, self.state.channels[channel], message))

    def tell(self, channel: str | None, *queued: Json) -> None:
        """Deliver the events if the app receives those of this channel (None = always)."""
        if channel is None or events.is_told(self.state, channel):
            for event in queued:
                self.deliveries.event(event)

    def notify(self, type: str, user: str, *, within: str | None = None, **fields: Any) -> None:
        """Deliver an event of what a person did, if the app receives those of the channel."""
        at = {"event_ts": events.now_ts(self.state)}
        self.tell(within, {"type": type, "user": user, **fields, **at})

    def put(self, kind: str, type: str, payload: Json) -> None:
        self.deliveries.put(kind, payload["trigger_id"], type, payload)

    def place(self, user: str, channel: str) -> Channel:
        place = self.state.channels[channel]
        if not self.state.may_see(user, place):
            raise KeyError(f"{user} is not in {channel}.")
        self.state.members[channel].setdefault(user, None)
        return place

    def message(self, channel: str, ts: str) -> Message:
        return self.state.timelines[channel][micros(ts)]

    def root(self, channel: str, thread_ts: str | None) -> str:
        if not thread_ts:
            return ""
        root = self.message(channel, thread_ts)
        return root.thread_ts or root.ts
