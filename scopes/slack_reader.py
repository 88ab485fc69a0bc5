"""Read Slack for the tools: all pages, grouped into threads, each source fetched once."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

from config.words import phrase
from scopes.cache import Cache, Key
from scopes.label import WORKSPACE, Label, Readers
from scopes.members import Members, kind_of
from scopes.slack_client import Absent, SlackClient
from scopes.slack_items import (
    Columns,
    Maker,
    SlackMessage,
    SlackPerson,
    row_text,
    ts_of,
)
from scopes.tool import BEFORE_WINDOW, Item, Window

CONCURRENT_REPLIES = 16
"""Threads fetched at once; Slack allows about 50 calls a minute (tier 3), and refuses the rest."""

CONCURRENT_HISTORIES = 8
"""Channels whose history is fetched at once: it may be a year of messages, and few are kept."""

PAGE_GROWTH = 5
"""Growth of pages: the requested week fills at most one page, the time before it many."""

EPOCH = datetime.fromtimestamp(0, UTC)


@dataclass(frozen=True, slots=True)
class ChannelInfo:
    id: str
    name: str
    is_private: bool
    topic: str
    topic_by: str = ""
    """Id of the user who set it."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> ChannelInfo:
        """Return a channel from Slack's data."""
        id, topic = str(raw["id"]), raw.get("topic") or {}
        topic_text, by = str(topic.get("value") or ""), str(topic.get("creator") or "")
        return cls(id, str(raw.get("name") or id), bool(raw.get("is_private")), topic_text, by)


@dataclass(frozen=True, slots=True)
class SlackConversation:
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
    """Time before a window in which to look for roots of active threads; zero = no limit."""
    user_web: SlackClient | None = None
    """The requester's own token: only with it is there a workspace search."""
    action_token: str = ""
    """Of the requester's message: for a while the bot may search public channels with it."""
    members: Members | None = None
    """Lists which channels are public, for all runs; None = each channel is asked about."""
    _fetched: Cache = field(default_factory=Cache)
    _histories: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(CONCURRENT_HISTORIES)
    )
    _threads: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(CONCURRENT_REPLIES)
    )

    def fresh(self) -> SlackReader:
        """Return a reader of the same workspace that has fetched nothing: one for each run."""
        return SlackReader(self.web, self.lookback, self.user_web, members=self.members)

    def patient(self) -> SlackReader:
        """Return a copy whose calls let those of others go first."""
        return replace(self, web=self.web.patient())

    def release(self, channel: str) -> None:
        """Forget what was read in a channel: nobody needs it any more."""
        self._fetched.forget("read", channel)

    async def aclose(self) -> None:
        """Cancel the requests in progress."""
        await self._fetched.aclose()

    async def team_url(self) -> str:
        return str((await self._identity()).get("url") or "")

    async def invite(self) -> str:
        """Return the clause on how to invite the bot."""
        return phrase("invite.clause", bot=(await self._identity()).get("user"))

    async def not_in(self, place: str) -> str:
        """Return the sentence for a place that the bot is not in."""
        invite = await self.invite()
        return f"I am not in {place}. {invite[0].upper()}{invite[1:]}"

    async def _identity(self) -> dict[str, Any]:
        """Return the user and the workspace of the token."""
        return dict(await self._fetched.get(("team",), lambda: self.web.call("auth.test")))

    async def channels(self) -> list[ChannelInfo]:
        """Return the channels that the token can see and that are not archived, by name."""

        async def fetch() -> list[ChannelInfo]:
            kinds = "public_channel,private_channel"
            found = [
                ChannelInfo.of(c)
                async for c in self.web.pages(
                    "conversations.list", "channels", types=kinds, exclude_archived="true"
                )
            ]
            return sorted(found, key=lambda c: c.name)

        return list(await self._fetched.get(("channels",), fetch))

    async def people(self) -> dict[str, str]:
        """Return user id -> the name shown, made unique with the id if two users share it."""

        async def fetch() -> dict[str, str]:
            names = {user.id: user.name for user in await self._users()}
            seen = Counter(names.values())
            return {k: f"{n} ({k})" if seen[n] > 1 else n for k, n in names.items()}

        return dict(await self._fetched.get(("people",), fetch))

    async def kinds(self) -> dict[str, str]:
        """Return user id -> kind, for all users in the list of the workspace."""

        async def fetch() -> dict[str, str]:
            team = str((await self._identity()).get("team_id") or "")
            return {user.id: user.kind(team) for user in await self._users()}

        return dict(await self._fetched.get(("kinds",), fetch))

    async def _users(self) -> list[SlackPerson]:
        async def fetch() -> list[SlackPerson]:
            return [SlackPerson(user) async for user in self.web.pages("users.list", "members")]

        return list(await self._fetched.get(("users",), fetch))

    async def user(self, user: str) -> SlackPerson:
        return SlackPerson(dict((await self.web.call("users.info", user=user))["user"]))

    async def label(self, channel: str) -> Label:
        """Return the label of a channel: untrusted, and if private, for its members only."""

        async def fetch(web: SlackClient) -> Label:
            readers: Readers = WORKSPACE
            if not (self.members and await self.members.is_in_public(channel)):
                info = (await web.call("conversations.info", channel=channel))["channel"]
                if kind_of(info) != "public":
                    members = web.pages("conversations.members", "members", channel=channel)
                    readers = frozenset([str(m) async for m in members])
            return Label(untrusted=True, readers=readers, sources=frozenset({channel}))

        async def by_either() -> Label:
            try:
                return await fetch(self.web)
            except Absent:  # the requester's own token found it, in a channel without the bot
                if self.user_web is None:
                    raise
                return await fetch(self.user_web)

        return await self._fetched.get(("label", channel), by_either)

    async def conversations(self, channel: str, window: Window) -> list[SlackConversation]:
        """Return every thread with a message inside the window, by time of opening.

        Replies inside the window to older questions count: their earlier messages come along as
        context. Threads with only messages of the bot, such as its reports, are left out. Raises
        `Absent` if the channel does not exist for this token.
        """
        key = _key(channel, window)
        found = await self._fetched.get(key, lambda: self._read(channel, window))
        return [c for c in found if c.root.at and window.opens(c.root.at)]

    async def _read(self, channel: str, window: Window) -> list[SlackConversation]:
        is_bounded = self.lookback and window.oldest - EPOCH > self.lookback
        oldest = {"oldest": ts_of(window.oldest - self.lookback)} if is_bounded else {}
        bounds = {"latest": ts_of(window.latest), **oldest}
        async with self._histories:
            wanted = [
                m
                async for each in self.web.pages(
                    "conversations.history", "messages", PAGE_GROWTH, channel=channel, **bounds
                )
                if not (m := SlackMessage(each)).is_reply and m.last_at >= window.oldest
            ]
        if not wanted:
            return []
        maker = await self._maker(channel, window)
        roots = [m.ts for m in wanted if m.has_replies]
        replies = await self._replies(channel, roots, window)
        threads = [replies.get(m.ts, [m]) for m in wanted]
        found = [
            c for messages in threads if (c := assemble_thread(messages, maker)) and c.in_window
        ]
        who = await self._identity() if found else {}
        bot = who.get("user_id") if who.get("bot_id") else None  # a person's token is no bot
        kept = [c for c in found if not bot or any(item.author != bot for item in c.items)]
        return sorted(kept, key=lambda c: c.root.id)

    async def _replies(
        self, channel: str, roots: Sequence[str], window: Window
    ) -> dict[str, list[SlackMessage]]:
        """Return root -> the messages of its thread up to the window's end."""
        found, waiting, latest = {}, iter(roots), ts_of(window.latest)

        async def fetch() -> None:
            for ts in waiting:
                arguments = {"channel": channel, "ts": ts, "latest": latest}
                pages = self.web.pages("conversations.replies", "messages", **arguments)
                async with self._threads:
                    found[ts] = [SlackMessage(m) async for m in pages]

        try:
            async with asyncio.TaskGroup() as group:  # a task per thread took as long as reading it
                for _ in roots[:CONCURRENT_REPLIES]:
                    group.create_task(fetch())
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None  # the type that the caller expects
        return found

    async def thread(self, channel: str, ts: str, window: Window | None) -> SlackConversation:
        """Return one thread by any of its timestamps. Raises `Absent`."""
        if window and (conversation := self._find_read(channel, ts, window)):
            return conversation
        latest = {"latest": ts_of(window.latest)} if window else {}
        messages = [
            SlackMessage(m)
            async for m in self.web.pages(
                "conversations.replies", "messages", channel=channel, ts=ts, **latest
            )
        ]
        root = messages[0].thread or ts if messages else ts
        if messages and root != messages[0].ts:
            return await self.thread(channel, root, window)
        found = assemble_thread(messages, await self._maker(channel, window))
        if found is None:
            raise Absent("thread_not_found")
        return found

    def _find_read(self, channel: str, ts: str, window: Window) -> SlackConversation | None:
        """Return a thread that was read with its channel."""
        found: list[SlackConversation] = self._fetched.get_fact(*_key(channel, window)) or []
        id = f"{channel}/{ts}"
        return next((c for c in found if any(item.id == id for item in c.items)), None)

    async def _maker(self, channel: str, window: Window | None) -> Maker:
        people, url, label = await self.people(), await self.team_url(), await self.label(channel)
        return Maker(channel, people, url, label, window, await self.kinds())

    async def list_rows(self, list_id: str) -> list[Item]:
        """Return the items of a Slack List, with cells as people see them. Raises `Absent`."""
        people = await self.people()
        first = await self.web.call("slackLists.items.list", list_id=list_id, include_list="true")
        schema = ((first.get("list") or {}).get("list_metadata") or {}).get("schema") or ()
        columns, link = Columns.of(schema), (first.get("list") or {}).get("permalink")
        link = f"{link}?record_id=" if link else ""
        label = Label(True, WORKSPACE, frozenset({f"list:{list_id}"}), outside=True)
        return [
            Item(
                f"{list_id}/{row['id']}",
                row_text(row, columns, people),
                link and f"{link}{row['id']}",
                label,
            )
            async for row in self.web.pages("slackLists.items.list", "items", list_id=list_id)
        ]

    async def search(self, query: str, window: Window | None) -> tuple[list[Item], bool]:
        """Return the newest matches, and whether Slack has more: in everything that the requester
        can see with their own token, else in public channels with the token of their message.

        Messages outside of the window are left out. Raises SlackRefused.
        """
        if self.user_web is None:
            return await self._search_public(query, window) if self.action_token else ([], False)
        if window:  # Slack takes days in the requester's time zone, and excludes both
            last = window.latest + timedelta(days=1) - timedelta(microseconds=1)
            first = max(window.oldest - timedelta(days=2), EPOCH)
            query += f" after:{first:%Y-%m-%d} before:{last:%Y-%m-%d}"
        body = await self.user_web.call(
            "search.messages", query=query, count=50, sort="timestamp", sort_dir="desc"
        )
        found = body.get("messages") or {}
        matches = found.get("matches") or ()
        pairs = [(str((m.get("channel") or {}).get("id")), SlackMessage(m)) for m in matches]
        more = int((found.get("paging") or {}).get("pages") or 1) > 1
        return [await self._hit(*each, window) for each in pairs if _is_in(each[1], window)], more

    async def _search_public(self, query: str, window: Window | None) -> tuple[list[Item], bool]:
        """Shape: docs.slack.dev/reference/methods/assistant.search.context; a page has 20."""
        arguments: dict[str, Any] = {"query": query, "action_token": self.action_token, "limit": 20}
        arguments |= {"channel_types": "public_channel", "content_types": "messages"}
        arguments |= {"sort": "timestamp", "sort_dir": "desc"}
        if window:
            arguments |= {"after": int(window.oldest.timestamp())}
            arguments |= {"before": int(window.latest.timestamp()) + 1}
        body = await self.web.call("assistant.search.context", **arguments)
        pairs = [
            (
                str(m.get("channel_id")),
                SlackMessage(
                    {
                        **{"ts": str(m.get("message_ts")), "user": m.get("author_user_id")},
                        **{"text": m.get("content"), "permalink": m.get("permalink")},
                    }
                ),
            )
            for m in (body.get("results") or {}).get("messages") or ()
        ]
        more = bool((body.get("response_metadata") or {}).get("next_cursor"))
        return [await self._hit(*each, window) for each in pairs if _is_in(each[1], window)], more

    async def _hit(self, channel: str, match: SlackMessage, window: Window | None) -> Item:
        label, people = await self.label(channel), await self.people()
        maker = Maker(channel, people, "", label, window, await self.kinds())
        return replace(maker.item(match, match.ts), link=match.link)


def _is_in(match: SlackMessage, window: Window | None) -> bool:
    return window is None or window.holds(match.at)


def assemble_thread(messages: Sequence[SlackMessage], maker: Maker) -> SlackConversation | None:
    """Return messages as a thread; None if people wrote none of them before the window's end."""
    end = maker.window.latest if maker.window else None
    kept = [
        m for m in sorted(messages, key=lambda m: m.ts) if m.is_said and (end is None or m.at < end)
    ]
    # If the first message was deleted, the first remaining one opens the thread.
    items = [maker.item(m, kept[0].ts) for m in kept]
    return SlackConversation(items[0], tuple(items[1:])) if items else None


def _key(channel: str, window: Window) -> Key:
    return ("read", channel, str(window.oldest), str(window.latest))
