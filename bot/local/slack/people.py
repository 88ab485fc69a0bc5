"""What people do in the local workspace, and what the app hears of it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.local.slack import events, interactions
from bot.local.slack.delivery import Deliveries
from bot.local.slack.state import BOT_USER, SlackState
from bot.local.slack.streams import halt
from bot.local.slack.views import home, view_json
from bot.local.workspace import Channel, File, Message, Reaction, micros, timestamp

Json = dict[str, Any]


class People:
    """The hands of everybody in the workspace; KeyError for what is not there.

    All methods may be called from any thread. They return when the deed is done; the events of it
    are on their way then.
    """

    def __init__(self, state: SlackState, deliveries: Deliveries) -> None:
        self.responses = interactions.Responses(state)
        self._state = state
        self._deliveries = deliveries

    def say(
        self,
        user: str,
        channel: str,
        text: str,
        thread_ts: str | None = None,
        files: Iterable[File] = (),
        *,
        broadcast: bool = False,
        context: Sequence[Mapping[str, Any]] = (),
    ) -> str:
        """Write a message; its timestamp. Who is not in a public channel joins it without a word.

        `broadcast` also shows a reply in the channel. `context` is what they look at, in the
        agent pane: entities of app_context_changed.
        """
        with self._state.lock:
            self._place(user, channel)
            message = Message("", text, user, files=tuple(files))
            if broadcast:
                message = replace(message, subtype="thread_broadcast")
            told = self._write(channel, thread_ts, message)
        if context:
            told[0]["app_context"] = {"entities": [dict(each) for each in context]}
        self._tell(channel, *told)
        return str(told[0]["ts"])

    def say_as_bot(self, bot_id: str, channel: str, text: str, thread_ts: str | None = None) -> str:
        """Write what another app's bot says; its timestamp."""
        with self._state.lock:
            message = Message("", text, bot_id=bot_id, username=bot_id, subtype="bot_message")
            told = self._write(channel, thread_ts, message)
        self._tell(channel, *told)
        return str(told[0]["ts"])

    def edit(self, user: str, channel: str, ts: str, text: str) -> None:
        """Change one's own message."""
        with self._state.lock:
            place = self._place(user, channel)
            before = self._message(channel, ts)
            at = timestamp(self._state.new_ts(channel))
            after = replace(before, text=text, edited=at, edited_by=user)
            self._state.timelines[channel].replace(after)
            told = list(events.changed(self._state, place, after, before))
        self._tell(channel, *told)

    def delete(self, user: str, channel: str, ts: str) -> None:
        with self._state.lock:
            place = self._place(user, channel)
            before = self._message(channel, ts)
            self._state.timelines[channel].remove(micros(ts))
            told = list(events.deleted(self._state, place, before))
        self._tell(channel, *told)

    def react(self, user: str, channel: str, ts: str, name: str) -> None:
        with self._state.lock:
            place = self._place(user, channel)
            message = self._message(channel, ts)
            reactions = {each.name: each for each in message.reactions}
            old = reactions.get(name, Reaction(name, 0))
            reactions[name] = Reaction(name, old.count + 1, (*old.users, user))
            changed = replace(message, reactions=tuple(reactions.values()))
            self._state.timelines[channel].replace(changed)
            told = events.reacted(self._state, place, message, user, name)
        self._tell(channel, told)

    def dm(self, user: str) -> str:
        """The channel of the direct message, or agent pane, of this person with the bot."""
        with self._state.lock:
            return self._state.direct(user, BOT_USER).id

    def join(self, user: str, channel: str, inviter: str = "") -> None:
        """Also the bot's own joining, when somebody invites it."""
        with self._state.lock:
            place = self._state.channels[channel]
            self._state.members[channel][user] = None
            told = events.joined(self._state, place, user, inviter)
        self._tell(channel, told)

    def leave(self, user: str, channel: str) -> None:
        """Or be removed; the app is not told."""
        with self._state.lock:
            self._state.members[channel].pop(user, None)

    def stop(self, user: str, channel: str, thread_ts: str) -> None:
        """Press Slack's Stop button: it ends the streams and leaves the session's state alone."""
        ended = halt(self._state, channel, thread_ts)
        self._tell(
            None,
            {
                "type": "agent_session_stopped",
                "channel": channel,
                "thread_ts": thread_ts,
                "user": user,
                "streaming_message_ts": ended,
                "event_ts": events.now_ts(self._state),
            },
        )

    def open_home(self, user: str, tab: str = "home") -> None:
        """Open the app's page; `tab` is "home" or "messages" (the agent pane)."""
        with self._state.lock:
            told: Json = {
                "type": "app_home_opened",
                "user": user,
                "channel": self.dm(user),
                "tab": tab,
                "event_ts": events.now_ts(self._state),
            }
            if tab == "home" and (view := home(self._state, user)):
                told["view"] = view_json(self._state, view)
        self._tell(None, told)

    def look_at(self, user: str, channel: str | None) -> None:
        """Turn to a channel with the agent pane open; None = to nothing that Slack names."""
        entity = {
            "type": "slack#/types/channel_id",
            "value": channel,
            "team_id": self._state.team.id,
        }
        told = {
            "type": "app_context_changed",
            "user": user,
            "channel": self.dm(user),
            "context": {"entities": [entity]} if channel else {},
            "event_ts": events.now_ts(self._state),
        }
        self._tell(None, told)

    def click(
        self, user: str, channel: str, ts: str, action_id: str, value: str | None = None
    ) -> None:
        """Press a button of a message; `value` chooses between the two that give feedback."""
        with self._state.lock:
            message = self._message(channel, ts)
            action = interactions.action_of(message.blocks, action_id, value)
            url = self.responses.url(user, channel)
            payload = interactions.click(self._state, user, channel, message, action, url)
        self._put("interactive", "block_actions", payload)

    def use_shortcut(self, user: str, channel: str, ts: str, callback_id: str) -> None:
        """Choose a shortcut of a message."""
        with self._state.lock:
            url = self.responses.url(user, channel)
            message = self._message(channel, ts)
            payload = interactions.shortcut(self._state, user, channel, message, callback_id, url)
        self._put("interactive", "message_action", payload)

    def click_home(self, user: str, action_id: str, value: str | None = None) -> None:
        """Press a button of one's App Home."""
        with self._state.lock:
            payload = interactions.click_home(self._state, user, action_id, value)
        self._put("interactive", "block_actions", payload)

    def submit(self, user: str, view_id: str, typed: Mapping[str, str]) -> None:
        """Send in the form of a modal; `typed`: block id -> text."""
        with self._state.lock:
            payload = interactions.submit(self._state, user, view_id, typed)
        self._put("interactive", "view_submission", payload)

    def close_modal(self, user: str, view_id: str) -> None:
        """Close a modal without sending it in; the app is not told. KeyError if it is not open."""
        with self._state.lock:
            interactions.close(self._state, user, view_id)

    def slash(self, user: str, channel: str, command: str, text: str = "") -> None:
        """Give a slash command; what its ack says is whispered to them."""
        with self._state.lock:
            url = self.responses.url(user, channel)
            payload = interactions.slash(self._state, user, channel, command, text, url)
        self._put(
            "slash_commands",
            "slash_commands",
            payload,
            lambda answer: self.responses.whisper(user, channel, answer),
        )

    def _write(self, channel: str, thread_ts: str | None, message: Message) -> list[Json]:
        """Store a new message and give it its time; the events of it."""
        ts = timestamp(self._state.new_ts(channel))
        message = replace(message, ts=ts, thread_ts=self._root(channel, thread_ts))
        self._state.timelines[channel].add(message)
        return list(events.written(self._state, self._state.channels[channel], message))

    def _tell(self, channel: str | None, *told: Json) -> None:
        """Deliver the events, if the app hears of this channel (None = in any case)."""
        if channel is None or events.is_told(self._state, channel):
            for event in told:
                self._deliveries.event(event)

    def _put(
        self,
        kind: str,
        type: str,
        payload: Json,
        answered: Callable[[Any], None] | None = None,
    ) -> None:
        self._deliveries.put(kind, payload["trigger_id"], type, payload, answered)

    def _place(self, user: str, channel: str) -> Channel:
        place = self._state.channels[channel]
        if not self._state.may_see(user, place):
            raise KeyError(f"{user} is not in {channel}.")
        self._state.members[channel].setdefault(user, None)
        return place

    def _message(self, channel: str, ts: str) -> Message:
        return self._state.timelines[channel][micros(ts)]

    def _root(self, channel: str, thread_ts: str | None) -> str:
        if not thread_ts:
            return ""
        root = self._message(channel, thread_ts)
        return root.thread_ts or root.ts
