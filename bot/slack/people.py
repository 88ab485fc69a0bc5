"""Look up facts about users, user groups and channels in Slack, and cache them briefly.

None means "could not be checked"; decisions must treat it as the worst case.
"""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

from bot.slack.messages import mapping
from config.words import detect_language, languages
from scopes.cache import Clock
from scopes.members import CachedFacts
from scopes.slack_client import Absent, SlackClient, SlackRefused
from scopes.slack_items import SlackPerson, UserKind

T = TypeVar("T")
KEPT_S = 300.0
"""Seconds that a fact is cached. Failures are not cached."""
MOST_KEPT = 10_000


@dataclass(frozen=True, slots=True)
class Person:
    """A user of this workspace."""

    id: str
    kind: UserKind
    name: str = ""
    zone: str = ""
    """Time zone, by its IANA name."""
    title: str = ""
    """Role, from the profile."""
    locale: str = ""
    """Language and region of their Slack, such as `de-DE`."""


@dataclass(frozen=True, slots=True)
class ChannelFacts:
    """The facts about a channel for the policy."""

    id: str
    name: str
    shared: bool
    """People of other companies are in it."""
    private: bool


async def _store_nothing(id: str, name: str) -> None:
    """Store no name."""


class People:
    """Fetches each fact once in `KEPT_S`, shared by all requests that need it at the same time."""

    def __init__(
        self,
        client: SlackClient,
        languages: Mapping[str, str] = MappingProxyType({}),
        *,
        remember: Callable[[str, str], Awaitable[None]] = _store_nothing,
        clock: Clock = time.monotonic,
    ) -> None:
        """`languages`: channel id -> the language of all answers there (`slack.languages`).

        `remember` gets the id and name of each user and channel that Slack returns.
        """
        self.client = client
        self._remember = remember
        self._languages = languages
        self._facts = CachedFacts(KEPT_S, clock, MOST_KEPT)

    async def aclose(self) -> None:
        """Cancel pending look-ups."""
        await self._facts.aclose()

    async def person(self, user: str, team: str, *, fresh: bool = False) -> Person | None:
        """Return the user as seen from this workspace; `fresh` = as of now."""
        return person_of(await self._user(user, fresh), team)

    async def language(self, user: str, channel: str = "", said: str = "") -> str:
        """Return the language for this user there, as a code; empty = it is not known.

        It is the channel's, else that of the request `said` if its words are clear, else that of
        their profile. If the profile has a language without a catalogue, the request counts as
        written in it: the detected one may be a similar language.
        """
        if language := self._languages.get(channel):
            return language
        person = await self.person(user, "")
        locale = person.locale if person else ""
        has_catalogue = not locale or locale.partition("-")[0] in languages()
        return (detect_language(said) if has_catalogue else "") or locale

    async def address(self, user: str) -> str | None:
        """Return the user's mail address in the workspace; None = Slack does not return it."""
        profile = mapping(mapping(await self._user(user)).get("profile"))
        return str(profile.get("email") or "") or None

    async def names(self, users: Iterable[str], team: str) -> dict[str, str]:
        """Return the names of these users, without those that cannot be looked up.

        Ids distinguish two people with the same name.
        """
        found = await asyncio.gather(*(self.person(each, team) for each in dict.fromkeys(users)))
        people = [each for each in found if each]
        names = Counter(each.name for each in people)
        return {p.id: f"{p.name} ({p.id})" if names[p.name] > 1 else p.name for p in people}

    async def channel(self, channel: str) -> ChannelFacts | None:
        def parse(body: Mapping[str, Any]) -> ChannelFacts | None:
            return channel_of(body.get("channel"))

        key = ("channel", channel)
        return await self._fact(key, "conversations.info", parse, channel=channel)

    async def group(self, group: str) -> frozenset[str] | None:
        """Return the ids of the users in a user group; a disabled group has none."""

        def parse(body: Mapping[str, Any]) -> frozenset[str] | None:
            users = body.get("users")
            return frozenset(map(str, users)) if isinstance(users, list) else None

        return await self._fact(("group", group), "usergroups.users.list", parse, usergroup=group)

    def has_no_answer(self, user: str) -> bool:
        """Return whether Slack sent no answer at all to the last request about this user."""
        return self._is_silent("user", user)

    def may_pass(self, user: str, channel: str) -> bool:
        """Return whether Slack sent no answer about one of them, but may send one in a minute."""
        keys = (("user", user), ("channel", channel))
        return any(self._is_silent(*key) and not self.refusal(*key) for key in keys)

    def refusal(self, kind: str, id: str) -> str:
        """Return why Slack last did not return this fact, and who can change that.

        The reason is in sentences for people. It is empty if Slack answered or may answer in a
        minute.
        """
        failure = self._facts.failures.get((kind, id))
        return failure.refusal if failure else ""

    def _is_silent(self, *key: str) -> bool:
        failure = self._facts.failures.get(key)
        return failure is not None and not failure.is_answer

    async def _user(self, user: str, fresh: bool = False) -> Any:
        def parse(body: Mapping[str, Any]) -> Any:
            return body.get("user") if person_of(body.get("user"), "") else None

        about = {"user": user, "include_locale": "true"}
        return await self._fact(("user", user), "users.info", parse, fresh, **about)

    async def _fact(
        self,
        key: tuple[str, str],
        method: str,
        parse: Callable[[Mapping[str, Any]], T | None],
        fresh: bool = False,
        **args: str,
    ) -> T | None:
        """Return a fact; None = it could not be checked."""

        async def ask() -> T:
            try:
                fact = parse(await self.client.call(method, **args))
            except Absent as error:
                raise SlackRefused(method, str(error), "") from error
            if fact is None:
                raise Absent("Slack's answer makes no sense")
            await self._remember_name(key[1], fact)
            return fact

        return await self._facts.check(key, ask, fresh=fresh)

    async def _remember_name(self, id: str, fact: Any) -> None:
        if isinstance(fact, ChannelFacts) and fact.name:
            await self._remember(id, f"#{fact.name}")
        elif person := person_of(fact, ""):
            await self._remember(id, person.name)


def person_of(user: Any, team: str) -> Person | None:
    """Parse a user of users.info; None if the data is incomplete."""
    if not isinstance(user, Mapping) or not isinstance(user.get("id"), str):
        return None
    home = user.get("team_id")
    if not isinstance(home, str):
        return None
    found = SlackPerson(user)
    locale = str(user.get("locale") or "")
    return Person(found.id, found.kind(team), found.name, found.zone, found.title, locale)


def channel_of(channel: Any) -> ChannelFacts | None:
    """Parse a channel of conversations.info; None if the data is incomplete."""
    match channel:
        case {"id": str(id)}:
            shared = channel.get("is_ext_shared") or channel.get("is_pending_ext_shared")
            name, private = str(channel.get("name") or ""), bool(channel.get("is_private"))
            return ChannelFacts(id, name, bool(shared), private)
    return None
