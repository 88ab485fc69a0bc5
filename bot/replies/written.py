"""What we have written to Slack already: found again by the metadata that every message carries."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.replies.writes import Writes

MOST_PAGES = 20
"""Of a channel's history in which a message of ours is looked for."""
EVENT_TYPE = "assistant_reply"
"""The type of the metadata that our messages carry."""


@dataclass(frozen=True, slots=True)
class Mine:
    """What we have written in a thread."""

    parts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Messages of a reply by the number of the part, from 1 on; more than one = written twice."""
    final: Mapping[str, int] = field(default_factory=dict)
    """Messages that hold a part of a finished answer, and how many parts that answer has."""
    unmarked: tuple[str, ...] = ()
    """Messages without metadata, newest first: streams that were never finished."""


class Written:
    """Looks for messages of ours; raises WriteFailed."""

    def __init__(self, writes: Writes, page_size: int) -> None:
        self._writes, self._page = writes, page_size
        self._me: frozenset[str] = frozenset()

    async def find(
        self,
        channel: str,
        thread_ts: str | None,
        key: str,
        after: str,
        besides: Collection[str] = (),
    ) -> str | None:
        """The first message of ours with this key: other apps may write the same metadata.

        `besides`: these messages do not count.
        """
        async for message in self._ours(channel, thread_ts, after):
            if _key(message) == key and message["ts"] not in besides:
                return str(message["ts"])
        return None

    async def find_file(self, channel: str, thread_ts: str, known: str) -> str | None:
        """The first message of ours in a thread that shows the file of this name or id."""
        async for message in self._ours(channel, thread_ts, ""):
            files = message.get("files") or ()
            if any(known in (f.get("id"), f.get("name")) for f in files if isinstance(f, dict)):
                return str(message["ts"])
        return None

    async def of(self, channel: str, thread_ts: str, key: str, after: str) -> Mine:
        """The messages of a reply, and unfinished ones, that are newer than `after`."""
        parts: dict[int, tuple[str, ...]] = {}
        final: dict[str, int] = {}
        unmarked = []
        async for message in self._ours(channel, thread_ts, after):
            ts = str(message.get("ts") or "")
            if _seconds(ts) <= _seconds(after):
                continue
            base, _, number = _key(message).partition("#")
            if base == key:
                part = int(number) if number.isdecimal() else 1
                parts[part] = (*parts.get(part, ()), ts)
                if isinstance(of := _payload(message).get("of"), int):
                    final[ts] = of
            elif not message.get("metadata"):
                unmarked.append(ts)
        return Mine(parts, final, tuple(reversed(unmarked)))

    async def _ours(
        self, channel: str, thread_ts: str | None, after: str
    ) -> AsyncIterator[dict[str, Any]]:
        """What we wrote in a thread, from its root on, or in a channel: since `after`, which ends
        after MOST_PAGES, or among the newest."""
        me = await self._identity()
        method = "conversations.replies" if thread_ts else "conversations.history"
        args: dict[str, Any] = {"channel": channel, "limit": self._page}
        args |= {"include_all_metadata": "true"}
        args |= {"ts": thread_ts} if thread_ts else {}
        args |= {"oldest": after} if after else {}
        cursors = {""}
        while len(cursors) <= MOST_PAGES or thread_ts:
            body = await self._writes.call(method, args, repeatable=True)
            for message in body.get("messages") or ():
                if isinstance(message, dict) and {message.get("user"), message.get("bot_id")} & me:
                    yield message
            cursor = (body.get("response_metadata") or {}).get("next_cursor") or ""
            if cursor in cursors or not (thread_ts or after):
                return
            cursors.add(cursor)
            args["cursor"] = cursor

    async def _identity(self) -> frozenset[str]:
        """Our ids as authors."""
        if not self._me:
            body = await self._writes.call("auth.test", {}, repeatable=True)
            ids = (body.get("user_id"), body.get("bot_id"))
            self._me = frozenset(each for each in ids if isinstance(each, str) and each)
        return self._me


def marks(key: str, run: str, of: int = 0) -> dict[str, Any]:
    """The arguments of a write by which its message is found again.

    `of` says that it is one of so many parts of a finished answer.
    """
    part = key.partition("#")[2]
    payload = {"key": key, "part": int(part) if part.isdecimal() else 1, "run": run}
    payload |= {"of": of} if of else {}
    return {"metadata": {"event_type": EVENT_TYPE, "event_payload": payload}}


def _payload(message: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = message.get("metadata")
    if not isinstance(metadata, dict) or metadata.get("event_type") != EVENT_TYPE:
        return {}
    return metadata.get("event_payload") or {}


def _key(message: Mapping[str, Any]) -> str:
    return str(_payload(message).get("key") or "")


def _seconds(ts: str) -> float:
    try:
        return float(ts or 0)
    except ValueError:
        return 0.0
