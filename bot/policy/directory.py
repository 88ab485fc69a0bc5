"""The gate's directory of Slack: who may read a source, and who reads a destination."""

from __future__ import annotations

import asyncio
import logging
import re
import time
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from dataclasses import InitVar, dataclass, field, replace
from datetime import UTC, datetime
from functools import partial

import sqlalchemy as sa

from bot.errors import StoreError
from bot.slack.people import People, Person, person_of
from bot.storage.database import Database
from bot.storage.tables import grants
from config.words import phrase
from scopes.cache import Clock
from scopes.effects import RUN_FOLDER
from scopes.label import (
    DIRECTORY,
    INTERNET,
    WORKSPACE,
    Label,
    Readers,
    is_conversation,
    is_personal,
    owner_of,
)
from scopes.members import CachedFacts, Members, MembersOf, whole
from subagents.directory import Obstacle

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Grant:
    id: str
    sources: tuple[str, ...]
    destination: str
    by: str
    """User id of the administrator."""
    at: datetime
    revoked_by: str | None = None
    revoked_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class Grants:
    """All grants, including revoked ones. Its methods raise StoreError."""

    database: Database

    async def add(self, sources: Iterable[str], destination: str, by: str, id: str) -> None:
        """Add a grant, once for this id even if called more often."""
        insert = self.database.upsert(grants).values(
            id=id,
            sources=sorted(set(sources)),
            destination=destination,
            by=by,
            at=datetime.now(UTC),
        )
        await self.database.write(insert)

    async def revoke(self, id: str, by: str) -> bool:
        """Revoke a grant; return False if it does not exist."""
        is_active = sa.and_(grants.c.id == id, grants.c.revoked_at.is_(None))
        revoke = sa.update(grants).where(is_active)
        revoke = revoke.values(revoked_by=by, revoked_at=datetime.now(UTC))
        return bool(await self.database.write(revoke))

    async def all(self) -> list[Grant]:
        """Return the active and the revoked grants, oldest first."""
        rows = await self.database.read(sa.select(grants).order_by(grants.c.at, grants.c.id))
        return [Grant(**{**row._asdict(), "sources": tuple(row.sources)}) for row in rows]

    async def sources_for(self, destination: str) -> frozenset[str]:
        """Return the sources whose text may appear there now."""
        standing = sa.and_(grants.c.destination == destination, grants.c.revoked_at.is_(None))
        rows = await self.database.read(sa.select(grants).where(standing))
        return frozenset(str(s) for row in rows for s in row.sources)


GrantLookup = Callable[[str], Awaitable[frozenset[str]]]
"""Takes a destination, returns the sources granted for it (`Grants.sources_for`)."""

PERSON = re.compile(r"[UW][A-Z0-9]+")
LIST = re.compile(r"F[A-Z0-9]+")
UNRESTRICTED_HANDLES = ("notes:own", "files:run", "web:search", "web:read")
"""Handles that everybody may open: their own data, and the web.

The gate sends nothing secret to the web.
"""
MEMBERS = ("notes:team",)
"""Handles of all full members."""
MAIL = "mail:"
"""Prefix of sources of a mailbox, and the source that covers a whole mailbox."""
CHECKED_S = 20.0
"""Seconds for which the kind of a user whom a write may reach is cached."""
MOST_SINGLE = 10
"""Maximum people looked up one by one; for more, all of the workspace are listed."""


@dataclass(frozen=True, slots=True)
class Audience:
    """All people who can read a destination now."""

    name: str
    readers: Readers
    """WORKSPACE: everyone in it."""
    trouble: str = ""
    """Why only public text may go there, regardless of grants."""

    def within(self, readers: Readers | None) -> bool:
        if readers is None or isinstance(readers, str):
            return readers is not None
        return not isinstance(self.readers, str) and self.readers <= readers

    def lacks(self, right: str) -> str:
        """Return the sentence that some of them lack a right: `member` or `read`."""
        return phrase(f"why.not_all_{right}", place=self.name)


@dataclass(eq=False)
class SlackDirectory:
    """Answers from Slack's data; see `subagents.directory.Directory`. Its methods raise nothing."""

    members: Members
    people: People
    granted: GrantLookup
    bot_user: str
    team: str
    clock: InitVar[Clock] = time.monotonic
    things: Mapping[str, Readers] = field(default_factory=dict)
    """Handle -> its readers according to the settings: databases, sheets, folders, tool servers;
    INTERNET = guests and people of other companies may also read it."""
    _checked: CachedFacts = field(init=False)

    def __post_init__(self, clock: Clock) -> None:
        self._checked = CachedFacts(CHECKED_S, clock)

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        """Return whether this user may read it.

        The answer is at most some seconds old; a "no" is current, and with `fresh` a "yes" is, too.
        Full members read public channels and Slack Lists; others read conversations that both they
        and the bot are in. Users and sources that Slack returns nothing about are denied.
        None = the operator.
        """
        if user is None:
            return True
        if ":" in thing:
            return await self._may_open(user, thing, fresh)
        place = thing.partition("/")[0]
        if LIST.fullmatch(place):
            return await self._is_member(user, fresh)
        if not is_conversation(place):
            return False
        person = await self.people.person(user, self.team, fresh=fresh)
        if person is None or person.kind == "deleted":
            return False
        full = person.kind == "member"
        return await self.members.reads(user, place, full=full, fresh=fresh)

    async def _may_open(self, user: str, handle: str, fresh: bool) -> bool:
        """Return whether a handle other than a conversation is open to this user: their own
        notes and those of places that they read, and sources that the settings open to them."""
        kind, _, what = handle.partition(":")
        if kind == "notes" and is_conversation(what):
            return await self.may_read(user, what, fresh=fresh)
        if handle in UNRESTRICTED_HANDLES:
            return True
        readers = WORKSPACE if handle in MEMBERS else self.things.get(handle, frozenset())
        if isinstance(readers, str):
            return await self._is_member(user, fresh)
        return user in readers

    async def _is_member(self, user: str, fresh: bool) -> bool:
        person = await self.people.person(user, self.team, fresh=fresh)
        return person is not None and person.kind == "member"

    async def obstacles(self, label: Label, destination: str) -> tuple[Obstacle, ...]:
        """Return the current obstacles between a text with this label and a conversation or person.

        Text from the internet may go anywhere, and so may text that everybody in Slack may read.
        Sources that the settings open to full members, or notes of these, may go where all are full
        members. Text from the destination may go back to it.

        In all other cases everyone there must be a member of each source: the bot does not count,
        other bots do. If guests or other companies are present, no grant helps; a guest alone with
        the bot may read sources that they are a member of.
        """
        sources = {_place_of(source) for source in label.sources}
        others = sorted(s for s in sources - {destination} if not s.startswith("list:"))
        if label.readers == INTERNET:
            return ()
        if label.readers == WORKSPACE:
            return await self._among_members(label, destination)
        if sources and not others:
            return ()
        audience, granted, places = await asyncio.gather(
            self._audience(destination),
            self._grants_for(destination),
            asyncio.gather(*map(self._place, others)),
        )
        closed = {s: p for s, p in zip(others, places, strict=True) if not (p and p.open)}
        if others and not closed:
            return ()
        readers = {s: self._readers_of(s, label.readers) for s in closed}
        if all(
            p is None and isinstance(readers[s], str) for s, p in closed.items()
        ):  # no source explains the label
            readers = dict.fromkeys(closed, label.readers)
        if isinstance(audience, Obstacle):
            return (audience,)
        found = [
            obstacle
            for source, place in (closed or {"": None}).items()
            if (is_personal(source) or source not in granted)
            and (obstacle := _obstacle(source, place, audience, readers.get(source, label.readers)))
        ]
        trouble = audience.trouble
        if not found:  # all sources are granted
            trouble = await self._strangers(destination, audience)
        if not trouble:
            return tuple(found)
        extra = Obstacle(destination, audience.name, trouble, grantable=False)
        return (*(replace(each, grantable=False) for each in found), extra)

    def _readers_of(self, source: str, from_label: Readers) -> Readers:
        """Return who may read a source by itself; `from_label` if only the label tells.

        Text in the folder of a request also has the sources of the context that wrote it.
        """
        if source.startswith("web:") or source == RUN_FOLDER:
            return INTERNET
        if source in MEMBERS or source == DIRECTORY:
            return WORKSPACE
        owner = owner_of(source)
        return frozenset({owner}) if owner else self.things.get(source, from_label)

    async def _among_members(self, label: Label, destination: str) -> tuple[Obstacle, ...]:
        """Find readers who are not full members, if a text has sources that only these may open."""
        member_handles = {handle for handle, readers in self.things.items() if readers == WORKSPACE}
        if label.sources.isdisjoint({*member_handles, *MEMBERS}):
            return ()
        audience = await self._audience(destination)
        if isinstance(audience, Obstacle):
            return (audience,)
        trouble = await self._strangers(destination, audience)
        if not trouble and audience.readers != WORKSPACE:  # a guest alone with the bot is one, too
            trouble = await self._trouble(audience.readers)
        return (Obstacle(destination, audience.name, trouble, grantable=False),) if trouble else ()

    async def _strangers(self, destination: str, audience: Audience) -> str:
        """Find people who are not full members, even in a public channel, which all may join."""
        if audience.trouble or audience.readers != WORKSPACE or destination in MEMBERS:
            return audience.trouble
        inside = await self.members.inside(destination)
        return phrase("why.unchecked") if inside is None else await self._trouble(inside)

    async def _audience(self, destination: str) -> Audience | Obstacle:
        if PERSON.fullmatch(destination):
            reader = frozenset({destination})
            return Audience(phrase("why.dm"), reader, await self._trouble(reader, guests=True))
        if destination in MEMBERS:
            return Audience(phrase("why.team"), WORKSPACE)
        if destination in self.things:
            return Audience(destination.partition(":")[2], self.things[destination])
        place = await self._place(destination)
        if place is None:
            return Obstacle(destination, destination, phrase("why.unchecked"), grantable=False)
        if place.archived:
            return Obstacle(destination, place.title, phrase("why.archived"), grantable=False)
        if place.shared:
            return Audience(place.title, place.members or WORKSPACE, phrase("why.companies"))
        if place.members is None:
            return Audience(place.title, WORKSPACE)
        readers = place.members - {self.bot_user}
        trouble = await self._trouble(readers, guests=place.kind == "direct")
        return Audience(place.title, readers, trouble)

    async def _place(self, source: str) -> MembersOf | None:
        return await self.members.place(source, fresh=True) if is_conversation(source) else None

    async def _grants_for(self, destination: str) -> frozenset[str]:
        try:
            return await self.granted(destination)
        except StoreError as error:
            log.error("no grant counts: %s", error)
            return frozenset()

    async def _trouble(self, users: Collection[str], *, guests: bool = False) -> str:
        """Return why some of them may see only public text; empty if there are none.

        `guests` are treated as members.
        """
        kinds = {person.kind if person else None for person in await self._persons(users)}
        if "external" in kinds:
            return phrase("why.companies")
        if "guest" in kinds and not guests:
            return phrase("why.guests")
        return phrase("why.strangers") if None in kinds else ""

    async def _persons(self, users: Collection[str]) -> list[Person | None]:
        users = [user for user in users if user != self.bot_user]
        if len(users) <= MOST_SINGLE:
            return await asyncio.gather(*map(self._person, users))
        everyone = await self._checked.check(("users",), self._list) or {}
        return [everyone.get(user) for user in users]

    async def _person(self, user: str) -> Person | None:
        ask = partial(self.people.person, user, self.team, fresh=True)
        return await self._checked.check(("user", user), ask)

    async def _list(self) -> dict[str, Person]:
        listed = await whole(self.people.client, "users.list", "members")
        return {p.id: p for p in (person_of(user, self.team) for user in listed) if p}


def _is_grantable(source: str) -> bool:
    """Return whether administrators may grant a source: not one person's own data, nor a source
    known only by the name of a tool, which covers everybody's data."""
    return bool(source) and not source.startswith("tool:") and not is_personal(source)


def _place_of(source: str) -> str:
    """Return the conversation of a message, the mailbox of a mail, or another source unchanged."""
    if source.startswith(MAIL):
        return MAIL
    place = source.partition("/")[0]
    return place if is_conversation(place) else source


def _obstacle(
    source: str, place: MembersOf | None, audience: Audience, readers: Readers
) -> Obstacle | None:
    """Return why a restricted source keeps a text from this audience."""
    if place is not None:
        if audience.within(place.members):
            return None
        grantable = not is_personal(source)
        return Obstacle(source, place.title, audience.lacks("member"), grantable)
    if is_conversation(source):
        return Obstacle(source, source, phrase("why.unchecked"), grantable=False)
    if audience.within(readers):
        return None
    own_notes = is_personal(source) and source.startswith("notes:")
    name = phrase("why.your_notes") if own_notes else source
    name = phrase("why.your_mailbox") if source == MAIL else name
    name = name or phrase("why.its_sources")
    return Obstacle(source, name, audience.lacks("read"), grantable=_is_grantable(source))
