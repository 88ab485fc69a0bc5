"""Slack as the tools read it: paged to the end, put into threads, each source fetched once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from scopes.label import PUBLIC, Label, Readers
from scopes.members import kind_of
from scopes.slack_client import Absent, SlackClient
from scopes.slack_items import (
    NOT_MESSAGES,
    Columns,
    Maker,
    at_of,
    name_of,
    row_text,
    ts_of,
)
from scopes.tool import BEFORE_WINDOW, Item, Window

CONCURRENT_REPLIES = 8
"""Threads of one channel fetched at once; Slack allows about 50 calls a minute (tier 3)."""

EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    id: str
    name: str
    is_private: bool
    is_member: bool
    topic: str


@dataclass(frozen=True, slots=True)
class Conversation:
    """A thread, or a single message: the root and its replies, oldest first."""

    root: Item
    replies: tuple[Item, ...]

    @property
    def items(self) -> tuple[Item, ...]:
        return (self.root, *self.replies)

    @property
    def in_window(self) -> int:
        return sum(BEFORE_WINDOW not in item.notes for item in self.items)


@dataclass
class SlackReader:
    """Reads one workspace with one token. Open it with `connect`; safe for one event loop."""

    web: SlackClient
    lookback: timedelta
    """How far before a window the roots of still active threads are looked for; zero = no limit."""
    user_web: SlackClient | None = None
    """The requester's own token: only with it is there a workspace search."""
    _kept: dict[tuple[str, ...], asyncio.Future[Any]] = field(default_factory=dict)

    async def _once(self, key: tuple[str, ...], fetch: Callable[[], Awaitable[Any]]) -> Any:
        """Fetch once, whoever asks first; a failure is not kept."""
        task = self._kept.get(key)
        if task is None:
            task = self._kept[key] = asyncio.ensure_future(fetch())
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            raise
        except BaseException:
            if self._kept.get(key) is task:
                del self._kept[key]
            raise

    def fresh(self) -> SlackReader:
        """A reader of the same workspace that has fetched nothing: one for each run."""
        return SlackReader(self.web, self.lookback, self.user_web)

    async def aclose(self) -> None:
        """End what is still being fetched."""
        for task in self._kept.values():
            task.cancel()
        await asyncio.gather(*self._kept.values(), return_exceptions=True)

    async def team_url(self) -> str:
        async def fetch() -> str:
            return str((await self.web.call("auth.test")).get("url") or "")

        return str(await self._once(("team",), fetch))

    async def channels(self) -> list[ChannelInfo]:
        """Channels that the token can see and that are not archived, by name."""

        async def fetch() -> list[ChannelInfo]:
            kinds = "public_channel,private_channel"
            found = [
                ChannelInfo(
                    str(c["id"]),
                    str(c.get("name") or c["id"]),
                    bool(c.get("is_private")),
                    bool(c.get("is_member")),
                    str((c.get("topic") or {}).get("value") or ""),
                )
                async for c in self.web.pages(
                    "conversations.list", "channels", types=kinds, exclude_archived="true"
                )
            ]
            return sorted(found, key=lambda c: c.name)

        return list(await self._once(("channels",), fetch))

    async def people(self) -> dict[str, str]:
        """User id -> the name shown, made unique with the id where two share one."""

        async def fetch() -> dict[str, str]:
            names = {
                str(u["id"]): name_of(u) async for u in self.web.pages("users.list", "members")
            }
            seen: dict[str, int] = {}
            for name in names.values():
                seen[name] = seen.get(name, 0) + 1
            return {k: f"{n} ({k})" if seen[n] > 1 else n for k, n in names.items()}

        return dict(await self._once(("people",), fetch))

    async def user(self, user: str) -> Mapping[str, Any]:
        return dict((await self.web.call("users.info", user=user))["user"])

    async def label(self, channel: str) -> Label:
        """Everything said in Slack is untrusted; a private channel is for its members only."""

        async def fetch(web: SlackClient) -> Label:
            info = (await web.call("conversations.info", channel=channel))["channel"]
            readers: Readers = PUBLIC
            if kind_of(info) != "public":
                members = web.pages("conversations.members", "members", channel=channel)
                readers = frozenset([str(m) async for m in members])
            return Label(untrusted=True, readers=readers, sources=frozenset({channel}))

        async def by_either() -> Label:
            try:
                return await fetch(self.web)
            except Absent:  # found by the requester's own token, in a channel without the bot
                if self.user_web is None:
                    raise
                return await fetch(self.user_web)

        label = await self._once(("label", channel), by_either)
        assert isinstance(label, Label)
        return label

    async def conversations(self, channel: str, window: Window) -> list[Conversation]:
        """Every thread with a message inside the window, by time of opening.

        Replies inside the window to older questions count: their earlier messages come along as
        context. Raises `Absent` when the channel is not there for this token.
        """
        key = ("read", channel, str(window.oldest), str(window.latest))
        found: list[Conversation] = await self._once(key, lambda: self._read(channel, window))
        return [c for c in found if c.root.at and window.opens(c.root.at)]

    async def _read(self, channel: str, window: Window) -> list[Conversation]:
        bounds = {"latest": ts_of(window.latest)}
        if self.lookback and window.oldest - EPOCH > self.lookback:
            bounds["oldest"] = ts_of(window.oldest - self.lookback)
        roots = [
            m
            async for m in self.web.pages(
                "conversations.history", "messages", channel=channel, **bounds
            )
            if m.get("thread_ts") in (None, m["ts"])  # a reply also sent to the channel is a reply
        ]
        wanted = [m for m in roots if at_of(m.get("latest_reply") or m["ts"]) >= window.oldest]
        gate = asyncio.Semaphore(CONCURRENT_REPLIES)

        async def whole(message: dict[str, Any]) -> Conversation | None:
            async with gate:
                return await self._conversation(channel, message, window)

        try:
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(whole(m)) for m in wanted]
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # what the caller knows by its type
        found = [c for task in tasks if (c := task.result()) and c.in_window]
        return sorted(found, key=lambda c: c.root.id)

    async def _conversation(
        self, channel: str, message: dict[str, Any], window: Window
    ) -> Conversation | None:
        messages = [message]
        if message.get("reply_count"):
            messages = [
                m
                async for m in self.web.pages(
                    "conversations.replies",
                    "messages",
                    channel=channel,
                    ts=message["ts"],
                    latest=ts_of(window.latest),
                )
            ]
        return await self.assemble(channel, messages, window)

    async def thread(self, channel: str, ts: str, window: Window | None) -> Conversation:
        """One thread by any of its timestamps. Raises `Absent`."""
        latest = {"latest": ts_of(window.latest)} if window else {}
        messages = [
            m
            async for m in self.web.pages(
                "conversations.replies", "messages", channel=channel, ts=ts, **latest
            )
        ]
        root = str(messages[0].get("thread_ts") or ts) if messages else ts
        if messages and root != messages[0]["ts"]:
            return await self.thread(channel, root, window)
        found = await self.assemble(channel, messages, window)
        if found is None:
            raise Absent("thread_not_found")
        return found

    async def assemble(
        self, channel: str, messages: Sequence[dict[str, Any]], window: Window | None
    ) -> Conversation | None:
        """Messages as items; None when people said none of them before the window's end."""
        people, url, label = await self.people(), await self.team_url(), await self.label(channel)
        made = Maker(channel, people, url, label, window)
        said = [
            m
            for m in sorted(messages, key=lambda m: str(m["ts"]))
            if m.get("subtype") not in NOT_MESSAGES
            and (window is None or at_of(m["ts"]) < window.latest)
        ]
        # Where the first message was deleted, the first that is left opens the thread.
        items = [made.item(m, str(said[0]["ts"])) for m in said]
        return Conversation(items[0], tuple(items[1:])) if items else None

    async def list_rows(self, list_id: str) -> list[Item]:
        """The items of a Slack List, their cells as people see them. Raises `Absent`."""
        people = await self.people()
        first = await self.web.call("slackLists.items.list", list_id=list_id, include_list="true")
        schema = ((first.get("list") or {}).get("list_metadata") or {}).get("schema") or ()
        columns, link = Columns.of(schema), (first.get("list") or {}).get("permalink")
        label = Label(untrusted=True, sources=frozenset({f"list:{list_id}"}))
        return [
            Item(f"{list_id}/{row['id']}", row_text(row, columns, people), link, label)
            async for row in self.web.pages("slackLists.items.list", "items", list_id=list_id)
        ]

    async def search(self, query: str, window: Window | None) -> list[Item]:
        """Newest matches in all that the requester can see, by the requester's own token.

        What was written after the window is left out, what was before it is marked.
        """
        if self.user_web is None:
            return []
        if window:  # the day after the window, so that newer matches do not fill the answer
            query += (
                f" before:{window.latest + timedelta(days=1) - timedelta(microseconds=1):%Y-%m-%d}"
            )
        body = await self.user_web.call(
            "search.messages", query=query, count=50, sort="timestamp", sort_dir="desc"
        )
        people = await self.people()
        items = []
        for match in (body.get("messages") or {}).get("matches") or ():
            if window and at_of(match["ts"]) >= window.latest:
                continue
            channel = str((match.get("channel") or {}).get("id"))
            made = Maker(channel, people, "", await self.label(channel), window)
            items.append(replace(made.item(match, match["ts"]), link=match.get("permalink")))
        return items
