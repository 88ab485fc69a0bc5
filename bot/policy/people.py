"""Facts about users, user groups and channels, asked of Slack and kept briefly.

None stands for "could not be checked": who decides by a fact treats that as the worst.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import aiohttp

from scopes.slack_client import Absent, SlackClient, SlackRefused
from scopes.slack_items import Kind as Kind
from scopes.slack_items import kind_of_person

log = logging.getLogger(__name__)

KEPT_S = 300.0
"""Seconds that a fact is believed; then Slack is asked again. A failure is not kept."""
CHECKED_S = 20.0
"""The same for what a write rests on."""
MOST_KEPT = 10_000
METHODS: Mapping[str, str] = {
    "user": "users.info",
    "channel": "conversations.info",
    "group": "usergroups.users.list",
    "address": "users.info",
}
"""Kind of fact -> the method that tells it."""


@dataclass(frozen=True, slots=True)
class Person:
    """A user as the policy sees one."""

    id: str
    kind: Kind


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """A channel as the policy sees one."""

    id: str
    name: str
    shared: bool
    """People of other companies are in it."""
    private: bool


@dataclass(slots=True)
class _Slot:
    value: Any = None
    asked: float | None = None
    """When it was known last; None = it is not."""
    unanswered: bool = False
    refusal: str = ""
    """Why Slack does not tell it and who can change that; empty for what passes by itself."""
    asking: asyncio.Lock = field(default_factory=asyncio.Lock)


class People:
    """Asks each fact once in `KEPT_S`, however many requests need it at the same time."""

    def __init__(self, client: SlackClient, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.client = client
        self._clock = clock
        self._slots: dict[tuple[str, ...], _Slot] = {}

    async def person(
        self, user: str, team: str, *, fresh: bool = False, kept_s: float = KEPT_S
    ) -> Person | None:
        """The user, seen from this workspace, as of at most `kept_s` ago; `fresh` = as of now."""

        async def ask() -> Person | None:
            body = await self.client.call("users.info", user=user)
            return person_of(body.get("user"), team)

        found: Person | None = await self._kept(("user", team, user), ask, 0 if fresh else kept_s)
        return found

    async def channel(self, channel: str) -> ChannelFacts | None:
        async def ask() -> ChannelFacts | None:
            body = await self.client.call("conversations.info", channel=channel)
            return channel_of(body.get("channel"))

        found: ChannelFacts | None = await self._kept(("channel", channel), ask)
        return found

    async def group(self, group: str) -> frozenset[str] | None:
        """Ids of the users in a user group; a group that was switched off holds nobody."""

        async def ask() -> frozenset[str] | None:
            body = await self.client.call("usergroups.users.list", usergroup=group)
            users = body.get("users")
            return frozenset(map(str, users)) if isinstance(users, list) else None

        found: frozenset[str] | None = await self._kept(("group", group), ask)
        return found

    async def address(self, user: str) -> str | None:
        """The user's mail address, as the workspace vouches for it; None = Slack does not say."""

        async def ask() -> str | None:
            profile = (await self.client.call("users.info", user=user))["user"].get("profile") or {}
            return str(profile["email"]) if profile.get("email") else None

        found: str | None = await self._kept(("address", user), ask)
        return found

    def unanswered(self, user: str, team: str) -> bool:
        """Return whether Slack gave no answer when it was last asked about this user: not even
        that there is none."""
        slot = self._slots.get(("user", team, user))
        return slot is not None and slot.unanswered

    def passing(self, user: str, team: str, channel: str) -> bool:
        """Return whether Slack gave no answer about one of them, and may give it in a minute."""
        slots = (self._slots.get(k) for k in (("user", team, user), ("channel", channel)))
        return any(slot.unanswered and not slot.refusal for slot in slots if slot)

    def refusal(self, kind: str, *key: str) -> str:
        """Return why Slack did not tell this fact when it was last asked, and who can change that,
        in sentences for people; empty where it told it, or may tell it in a minute."""
        slot = self._slots.get((kind, *key))
        return slot.refusal if slot else ""

    async def _kept(
        self, key: tuple[str, ...], ask: Callable[[], Awaitable[Any]], kept_s: float = KEPT_S
    ) -> Any:
        slot = self._slots.get(key)
        if slot is None:
            self._make_room()
            slot = self._slots[key] = _Slot()
        async with slot.asking:
            if slot.asked is None or self._clock() >= slot.asked + kept_s:
                slot.value, slot.unanswered, slot.refusal = await _or_unknown(key, ask)
                slot.asked = None if slot.value is None else self._clock()
            return slot.value

    def _make_room(self) -> None:
        if len(self._slots) >= MOST_KEPT:
            old = self._clock() - KEPT_S
            self._slots = {k: s for k, s in self._slots.items() if (s.asked or 0) > old}
        if len(self._slots) >= MOST_KEPT:
            self._slots.clear()


async def _or_unknown(
    key: tuple[str, ...], ask: Callable[[], Awaitable[Any]]
) -> tuple[Any, bool, str]:
    """Return what Slack says, whether it said nothing at all, and why it never will."""
    try:
        found = await ask()
    except (Absent, SlackRefused, aiohttp.ClientError, TimeoutError) as error:
        why = str(error) or type(error).__name__
        log.warning("could not check the %s %s: %s", key[0], key[-1], why)
        absent = isinstance(error, Absent)
        refused = SlackRefused(METHODS[key[0]], why, "") if absent else error
        lasts = isinstance(refused, SlackRefused) and refused.remedy
        return None, not absent, f"{refused}." if lasts else ""
    if found is None:
        log.warning("could not check the %s %s: Slack's answer makes no sense", key[0], key[-1])
    return found, False, ""


def person_of(user: Any, team: str) -> Person | None:
    """What users.info says of a user; None where it does not say enough."""
    if not isinstance(user, Mapping) or not isinstance(user.get("id"), str):
        return None
    home = user.get("team_id")
    if not isinstance(home, str):
        return None
    return Person(user["id"], kind_of_person(user, team))


def channel_of(channel: Any) -> ChannelFacts | None:
    """What conversations.info says of a channel; None where it does not say enough."""
    if not isinstance(channel, Mapping) or not isinstance(channel.get("id"), str):
        return None
    shared = channel.get("is_ext_shared") or channel.get("is_pending_ext_shared")
    name, private = str(channel.get("name") or ""), bool(channel.get("is_private"))
    return ChannelFacts(channel["id"], name, bool(shared), private)
