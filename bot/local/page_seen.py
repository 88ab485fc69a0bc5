"""What one person sees in a conversation of the local Slack, as JSON for its page."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

from bot.local.slack.server import LocalSlack
from bot.local.slack.shown import Shown
from bot.local.slack.state import BOT_USER
from bot.local.slack.views import home
from bot.local.workspace import Message, micros

LOOK_S = 0.25
"""Time between two looks at what is visible."""
MOST_SHOWN = 200
"""Top-level messages of a channel that are sent; the page says how many came before."""

_PING_LOOKS = 60

Json = dict[str, Any]


async def changes_of(slack: LocalSlack, user: str, channel: str, thread: str) -> AsyncIterator[str]:
    """Server-sent events, one each time that something has changed; ends when nobody listens.

    `channel` "" = the assistant's home; `thread` is the timestamp of a root, "" = none is open.
    """
    seen, before, quiet = _Seen(slack), "", 0
    while True:
        now = json.dumps(seen.of(user, channel, thread))
        if now != before:
            yield f"data: {now}\n\n"
            before, quiet = now, 0
        elif (quiet := quiet + 1) % _PING_LOOKS == 0:
            yield ": still here\n\n"
        await asyncio.sleep(LOOK_S)


class _Seen:
    def __init__(self, slack: LocalSlack) -> None:
        self._slack, self._state = slack, slack.state

    def of(self, user: str, channel: str, thread: str) -> Json:
        if not channel:
            return {"home": self._home_view(user)}
        with self._state.lock:
            shown = self._slack.visible(channel)
            top = [each for each in shown if not each.thread_ts]
            inside = [each for each in shown if thread and thread in (each.ts, each.thread_ts)]
            return {
                "earlier": max(0, len(top) - MOST_SHOWN),
                "messages": [self._message(channel, each) for each in top[-MOST_SHOWN:]],
                "thread": [self._message(channel, each) for each in inside],
                "whispers": self._whispers(user, channel),
                "working": self._working(channel, thread, inside),
                "prompts": self._prompts(channel),
            }

    def _message(self, channel: str, shown: Shown) -> Json:
        timeline = self._state.timelines[channel]
        stored = timeline.get(micros(shown.ts)) or Message(shown.ts)
        replies = [timeline[at] for at in timeline.replies(micros(shown.ts))]
        return {
            "ts": shown.ts,
            "user": shown.user,
            "name": stored.username,
            "text": stored.text,
            "blocks": list(shown.blocks),
            "streaming": shown.streaming,
            "edited": bool(stored.edited) and stored.user != BOT_USER,
            "subtype": stored.subtype,
            "files": [file.name or file.title or file.id for file in stored.files],
            "reactions": [[reaction.name, reaction.count] for reaction in stored.reactions],
            "replies": len(replies),
            "repliers": list(dict.fromkeys(reply.user or reply.bot_id for reply in replies))[:4],
            "latest": replies[-1].ts if replies else "",
        }

    def _whispers(self, user: str, channel: str) -> list[Json]:
        return [
            {"ts": each.ts, "thread": each.thread_ts, "text": each.text, "blocks": [*each.blocks]}
            for each in self._state.whispers
            if (each.user, each.channel) == (user, channel)
        ]

    def _working(self, channel: str, thread: str, shown: list[Shown]) -> bool:
        """Whether the assistant is at work in the thread; then it can be stopped."""
        session = self._state.sessions.get((channel, thread))
        processing = session is not None and session.status == "processing"
        return processing or any(each.streaming for each in shown)

    def _prompts(self, channel: str) -> list[Json]:
        pane = self._state.panes.get((channel, ""))
        return [dict(prompt) for prompt in pane.prompts] if pane else []

    def _home_view(self, user: str) -> list[Any] | None:
        view = home(self._state, user)
        return list(view.body.get("blocks") or ()) if view else None
