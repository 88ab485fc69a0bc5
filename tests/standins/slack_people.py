"""What people do in Slack that the page of the local Slack does not offer."""

from collections.abc import Iterable
from dataclasses import replace
from functools import cached_property
from typing import Any

from bot.local.slack import events, people
from bot.local.slack.chat import with_reaction
from bot.local.slack.events import interaction, name_of
from bot.local.slack.json import message_json
from bot.local.slack.records import Json, Whisper
from bot.local.slack.state import APP_ID, SlackState
from bot.local.slack.views import new_trigger
from bot.local.workspace import File, Message, micros, timestamp
from standins import slack_events
from standins.slack_delivery import Deliveries


class People(people.People):
    """Actions of all users, with all that Slack lets them do."""

    deliveries: Deliveries

    @cached_property
    def contexts(self) -> dict[str, Json]:
        """User -> what they have open beside the agent pane."""
        return {}

    def say(
        self,
        user: str,
        channel: str,
        text: str,
        thread_ts: str | None = None,
        files: Iterable[File] = (),
    ) -> str:
        """Write a message; return its timestamp. A direct message carries what they look at."""
        with self.state.lock:
            self.place(user, channel)
            payloads = self.write(channel, thread_ts, Message("", text, user, files=tuple(files)))
        if (open_beside := self.contexts.get(user)) and channel == self.dm(user):
            payloads[0]["app_context"] = open_beside
        self.tell(channel, *payloads)
        return str(payloads[0]["ts"])

    def write(self, channel: str, thread_ts: str | None, message: Message) -> list[Json]:
        """Store a message; a person's has a token that searches in their name."""
        payloads = super().write(channel, thread_ts, message)
        if message.bot_id:
            return payloads
        if message.files:
            payloads[0]["subtype"] = "file_share"
        token = f"{channel}.{payloads[0]['ts']}.local"
        more: Json = {"assistant_thread": {"action_token": token}}
        if team := self.state.users[message.user].team_id:
            more |= {"team": team, "user_team": team}
        return [each | more for each in payloads]

    def say_as_bot(self, bot_id: str, channel: str, text: str) -> str:
        """Write a message of another app's bot; return its timestamp."""
        with self.state.lock:
            message = Message("", text, bot_id=bot_id, username=bot_id, subtype="bot_message")
            payloads = self.write(channel, None, message)
        self.tell(channel, *payloads)
        return str(payloads[0]["ts"])

    def edit(self, user: str, channel: str, ts: str, text: str) -> None:
        """Change one's own message."""
        with self.state.lock:
            place = self.place(user, channel)
            before = self.message(channel, ts)
            at = timestamp(self.state.new_ts(channel))
            after = replace(before, text=text, edited=at)
            self.state.timelines[channel].replace(after)
            payloads = list(slack_events.edit_events(self.state, place, after, before))
        self.tell(channel, *payloads)

    def delete(self, user: str, channel: str, ts: str) -> None:
        with self.state.lock:
            place = self.place(user, channel)
            before = self.message(channel, ts)
            self.state.timelines[channel].remove(micros(ts))
            payloads = list(slack_events.delete_events(self.state, place, before))
        self.tell(channel, *payloads)

    def react(self, user: str, channel: str, ts: str, name: str) -> None:
        with self.state.lock:
            self.place(user, channel)
            message = self.message(channel, ts)
            self.state.timelines[channel].replace(with_reaction(message, name, user))
        item = {"type": "message", "channel": channel, "ts": ts}
        about = {"reaction": name, "item": item, "item_user": message.user}
        self.notify("reaction_added", user, within=channel, **about)

    def join(self, user: str, channel: str) -> None:
        """Also the bot's own joining, when somebody invites it."""
        with self.state.lock:
            kind = "C" if self.state.channels[channel].kind == "public_channel" else "G"
            self.state.members[channel][user] = None
        about = {"channel": channel, "channel_type": kind, "team": self.state.team.id}
        self.notify("member_joined_channel", user, within=channel, **about)

    def leave(self, user: str, channel: str) -> None:
        """Leave or be removed; the app gets no event."""
        with self.state.lock:
            self.state.members[channel].pop(user, None)

    def look_at(self, user: str, channel: str | None) -> None:
        """Turn to a channel with the agent pane open; None = to nothing that Slack names."""
        team = self.state.team.id
        entity = {"type": "slack#/types/channel_id", "value": channel, "team_id": team}
        self.contexts[user] = {"entities": [entity]} if channel else {}
        context = self.contexts[user]
        self.notify("app_context_changed", user, channel=self.dm(user), context=context)

    def use_shortcut(self, user: str, channel: str, ts: str, callback_id: str) -> None:
        """Choose a shortcut of a message."""
        with self.state.lock:
            message = self.message(channel, ts)
            payload = shortcut(self.state, user, channel, message, callback_id)
        self.put("interactive", "message_action", payload)

    def slash(self, user: str, channel: str, command: str, text: str = "") -> None:
        """Run a slash command; the text of its ack is whispered to the user."""
        with self.state.lock:
            payload = slash(self.state, user, channel, command, text)
        self.deliveries.put(
            "slash_commands",
            payload["trigger_id"],
            "slash_commands",
            payload,
            lambda answer: self._whisper(user, channel, answer),
        )

    def _whisper(self, user: str, channel: str, answer: Any) -> None:
        """Show an answer to one person, unless it is empty."""
        reply = answer if isinstance(answer, dict) else {"text": answer}
        text, blocks = reply.get("text") or "", reply.get("blocks") or ()
        if text or blocks:
            with self.state.lock:
                ts = events.now_ts(self.state)
                whisper = Whisper(channel, user, ts, str(text), blocks=tuple(blocks))
                self.state.whispers.append(whisper)


def shortcut(state: SlackState, user: str, channel: str, message: Message, id: str) -> Json:
    """The choice of a shortcut of a message."""
    return interaction(state, user) | {
        "type": "message_action",
        "callback_id": id,
        "action_ts": events.now_ts(state),
        "message_ts": message.ts,
        "message": message_json(state, channel, message),
        "channel": {"id": channel, "name": name_of(state, channel)},
    }


def slash(state: SlackState, user: str, channel: str, command: str, text: str) -> Json:
    return {
        "team_id": state.team.id,
        "team_domain": state.team.domain,
        "channel_id": channel,
        "channel_name": name_of(state, channel),
        "user_id": user,
        "user_name": state.users[user].name,
        "command": command,
        "text": text,
        "api_app_id": APP_ID,
        "is_enterprise_install": "false",
        "trigger_id": new_trigger(state, user),
    }
