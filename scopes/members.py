"""Members of conversations from Slack: cached for seconds, read again on request.

None means "could not be checked": decisions treat it as the worst case.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

import aiohttp

from scopes.cache import Cache, Clock, Key
from scopes.slack_client import NO_SENSE, NOT_FOUND_ERRORS, Absent, SlackClient, SlackRefused

log = logging.getLogger(__name__)

T = TypeVar("T")

KEPT_S = 20.0
"""Seconds for which a membership is valid; writes check it again."""
MOST_KEPT = 1_000
ALL_KINDS = "public_channel,private_channel,mpim,im"
JOINED_PUBLIC: Key = ("list of joined public", "channels")

ConversationKind = Literal["public", "private", "direct", "group"]


@dataclass(frozen=True, slots=True)
class MembersOf:
    """A conversation as the gate sees one."""

    id: str
    name: str
    """Without `#`; empty for direct messages."""
    kind: ConversationKind
    shared: bool
    """People of other companies are in it, or are invited."""
    archived: bool
    members: frozenset[str] | None
    """None: everyone, as in a public channel that is not shared."""

    @property
    def open(self) -> bool:
        """Return whether every full member of the workspace may read it."""
        return self.kind == "public"

    @property
    def title(self) -> str:
        return f"#{self.name}" if self.name else "a direct message"


@dataclass(frozen=True, slots=True)
class FailedCall:
    """The reason why Slack did not return a fact at the last request."""

    is_answer: bool
    """True if it answered that there is no such thing."""
    refusal: str
    """Why it refuses, and who can change that, in sentences; empty if the cause may pass."""


class CachedFacts(Cache):
    """Facts from Slack; one that Slack does not return is None for all who wait, and logged."""

    def __init__(self, kept_s: float, clock: Clock = time.monotonic, most: int = MOST_KEPT) -> None:
        super().__init__(kept_s, clock, most)
        self.failures: dict[Key, FailedCall] = {}
        self.refused: dict[str, str] = {}
        """Kind of fact -> the refusal that was its last answer."""

    async def check(
        self, key: Key, ask: Callable[[], Awaitable[T]], *, fresh: bool = False
    ) -> T | None:
        """Return the fact, or None; `fresh` = ask again now."""

        async def ask_once() -> T | None:
            try:
                fact = await ask()
            except (Absent, SlackRefused, aiohttp.ClientError, TimeoutError) as error:
                why = str(error) or type(error).__name__
                log.warning("could not check the %s: %s", " ".join(key), why)
                if len(self.failures) >= self._most:
                    self.failures.clear()
                refused = error if isinstance(error, SlackRefused) else None
                is_answer = (
                    refused.code in NOT_FOUND_ERRORS if refused else isinstance(error, Absent)
                )
                refusal = f"{refused}." if refused and refused.remedy else ""
                self.failures[key] = FailedCall(is_answer, refusal)
                self.refused |= {key[0]: refusal} if refusal else {}
                return None
            self.failures.pop(key, None)
            self.refused.pop(key[0], None)
            return fact

        return await self.get(key, ask_once, fresh=fresh)


async def whole(client: SlackClient, method: str, key: str, **arguments: Any) -> list[Any]:
    """Return all objects of a paged method, none missing: else somebody could read too much."""
    pages = client.pages(method, key, 1, True, **arguments)
    return [each async for each in pages]


class Members:
    """Reads members with one token. One for the process."""

    def __init__(self, client: SlackClient, clock: Clock = time.monotonic) -> None:
        self.client = client
        self._facts = CachedFacts(KEPT_S, clock)

    @property
    def refusals(self) -> list[str]:
        """Return why Slack refuses to tell who is where, and who can change that, in sentences."""
        return list(self._facts.refused.values())

    async def place(self, channel: str, *, fresh: bool = False) -> MembersOf | None:
        """Return the conversation, or None if it could not be checked."""

        async def ask() -> MembersOf:
            info = await self._info(channel)
            kind, shared = kind_of(info), _is_shared(info)
            everyone = kind == "public" and not shared
            members = None if everyone else await self._members(channel)
            name = "" if kind in ("direct", "group") else str(info.get("name") or "")
            return MembersOf(channel, name, kind, shared, bool(info.get("is_archived")), members)

        return await self._facts.check(("conversation", channel), ask, fresh=fresh)

    async def inside(self, channel: str) -> frozenset[str] | None:
        """Return who is in it now, even if everyone may read it."""

        async def ask() -> frozenset[str]:
            return await self._members(channel)

        return await self._facts.check(("members of", channel), ask, fresh=True)

    async def of_user(self, user: str, *, fresh: bool = False) -> frozenset[str] | None:
        """Return the conversations of this user; private ones only if the bot is in them."""

        async def ask() -> frozenset[str]:
            method = "users.conversations"
            found = await whole(self.client, method, "channels", user=user, types=ALL_KINDS)
            return frozenset(str(c["id"]) for c in found if isinstance(c, Mapping) and "id" in c)

        return await self._facts.check(("conversations of", user), ask, fresh=fresh)

    async def reads(self, user: str, channel: str, *, full: bool, fresh: bool = False) -> bool:
        """Return whether a user may read a conversation: one that they are in, or, as a `full`
        member of the workspace, a public one. A "no" is always checked now, and takes as long as
        any other; so is a `fresh` "yes".
        """
        kept: frozenset[str] | None = self._facts.get_fact("conversations of", user)
        is_known = (kept and channel in kept) or (full and self._is_known_as_public(channel))
        if is_known and not fresh:
            return True
        channels = await self.of_user(user, fresh=True)
        if channels is not None and channel in channels:
            return True
        return await self._opens(user, channel, full, fresh)

    async def is_in_public(self, channel: str) -> bool:
        """Return whether the token's user is in this channel and it is public, as of at most
        `KEPT_S` ago. One listing answers for all channels."""

        async def ask() -> frozenset[str]:
            method = "users.conversations"
            found = await whole(self.client, method, "channels", types="public_channel")
            return frozenset(
                str(c["id"]) for c in found if isinstance(c, Mapping) and kind_of(c) == "public"
            )

        joined = await self._facts.check(JOINED_PUBLIC, ask)
        return joined is not None and channel in joined

    def _is_known_as_public(self, channel: str) -> bool:
        info: Mapping[str, Any] | None = self._facts.get_fact("channel", channel)
        if info is not None:
            return kind_of(info) == "public"
        return channel in (self._facts.get_fact(*JOINED_PUBLIC) or ())

    async def _opens(self, user: str, channel: str, full: bool, fresh: bool) -> bool:
        """Return whether it is public, or their direct message with the bot, even if unlisted."""
        if not fresh and await self.is_in_public(channel):
            return full
        info = await self._facts.check(
            ("channel", channel), lambda: self._info(channel), fresh=True
        )
        if info is None:
            return False
        kind = kind_of(info)
        return full if kind == "public" else kind == "direct" and info.get("user") == user

    async def aclose(self) -> None:
        """Cancel the requests in progress."""
        await self._facts.aclose()

    async def _info(self, channel: str) -> Mapping[str, Any]:
        info = (await self.client.call("conversations.info", channel=channel)).get("channel")
        if not isinstance(info, Mapping) or info.get("id") != channel:
            raise SlackRefused("conversations.info", NO_SENSE, "")
        return info

    async def _members(self, channel: str) -> frozenset[str]:
        method = "conversations.members"
        found = await whole(self.client, method, "members", channel=channel)
        if not found or not all(isinstance(user, str) for user in found):
            raise SlackRefused(method, NO_SENSE, "")
        return frozenset(found)


def kind_of(info: Mapping[str, Any]) -> ConversationKind:
    """Return the kind; a conversation that Slack does not call public is private."""
    if info.get("is_im"):
        return "direct"
    if info.get("is_mpim"):
        return "group"
    return "public" if info.get("is_private") is False and "id" in info else "private"


def _is_shared(info: Mapping[str, Any]) -> bool:
    """Return whether people of other companies are in it or invited."""
    invited = info.get("pending_shared") or info.get("pending_connected_team_ids")
    return bool(info.get("is_ext_shared") or info.get("is_pending_ext_shared") or invited)
