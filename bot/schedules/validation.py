"""Validate schedules: when they are set, at startup, and before each run.

Errors are sentences for people that end with the action to take.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass, replace
from typing import Any, Literal

import aiohttp

from bot.mailbox.accounts import Mailboxes, how_to_connect
from bot.policy.directory import SlackDirectory
from bot.policy.policy import (
    DIRECT,
    AdmissionFacts,
    NotPermitted,
    Permitted,
    PolicyFault,
    PolicyFile,
    admin,
    decide,
    needed_groups,
)
from bot.schedules.description import language_of
from bot.slack.people import Person
from bot.tasks.sources import match_channels
from config.schedules import PERSON, Schedule
from config.sections import Policy
from config.words import phrase
from scopes.label import Label
from scopes.members import MembersOf
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader
from subagents.delegation import Allowed
from subagents.directory import Obstacle

Origin = Literal["config", "chat"]

AT_ONCE = 16
"""Channels that are checked concurrently."""
ONLY_PUBLIC = "mail leaves the workspace, so only public channels are mailed to others"
NO_ADMIN = "only an administrator has reports mailed to others than themselves"
_WILDCARDS = frozenset("*?[")
TRANSIENT_CODE = "passing"
"""`code` of the error of a run whose occurrence is retried."""


class ScheduleFault(Exception):
    """A schedule cannot run or deliver; the text tells people why, and what to do about it."""

    def __init__(self, why: str, *, passing: bool = False) -> None:
        self.passing = passing
        """Whether it may succeed later: Slack, for example, has sent no answer."""
        super().__init__(why)

    def to_json(self) -> dict[str, str]:
        """Return the error of the row of such a run."""
        return {"code": TRANSIENT_CODE if self.passing else "failed", "message": str(self)}

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> ScheduleFault:
        return cls(stored["message"], passing=stored["code"] == TRANSIENT_CODE)


def _unanswered(why: str = "") -> ScheduleFault:
    return ScheduleFault(why or phrase("check.again"), passing=True)


@dataclass(frozen=True, slots=True)
class DeliveryPlace:
    """The place where a report goes."""

    channel: str
    """Id of a conversation or a person; empty = by mail."""
    name: str
    """Its name for people; `<@U...>` for a person."""
    mail: str = ""


@dataclass(frozen=True)
class ScheduleValidator:
    """Validates schedules; one for each process."""

    reader: SlackReader
    directory: SlackDirectory
    policy: PolicyFile
    mailboxes: Mailboxes

    async def language(self, spec: Schedule) -> str:
        """Return the language of messages to its owner."""
        return await language_of(self.directory.people, spec, spec.to)

    async def objection(self, spec: Schedule, origin: Origin) -> str:
        """Return the reason why it cannot work, in a helpful sentence; empty if it can.

        Raises ScheduleFault, if that is not known, and StoreError.
        """
        try:
            async with aclosing(self.reader.fresh()) as reader:
                await self.check(spec, origin, reader)
        except ScheduleFault as fault:
            if fault.passing:
                raise
            return str(fault)
        return ""

    async def check(self, spec: Schedule, origin: Origin, reader: SlackReader) -> list[ChannelInfo]:
        """Return the channels that a sweep will read: matching ones that its owner may read.

        Raises ScheduleFault and StoreError.
        """
        place = await self.destination(spec, origin, reader)
        with _answers():
            if spec.kind == "triage" or "@" in spec.to:
                await self._mailbox(spec)
            if spec.kind == "ask":
                await self.find_allowed(spec, place.channel)
            if spec.tracker:
                await self._tracker(spec, reader)
            return await self._sources(spec, reader) if spec.kind == "sweep" else []

    async def destination(
        self, spec: Schedule, origin: Origin, reader: SlackReader
    ) -> DeliveryPlace:
        """Return where its reports go, if its owner may still own it and have them posted there.

        Raises ScheduleFault and StoreError.
        """
        with _answers():
            await self._owner(spec, origin)
            return await self._destination(spec, reader)

    async def channels(self) -> list[ChannelInfo]:
        """Return the channels that the bot sees. Raises ScheduleFault."""
        with _answers():
            async with aclosing(self.reader.fresh()) as reader:
                return await reader.channels()

    async def place(self, spec: Schedule, reader: SlackReader) -> str:
        """Return the id of its destination."""
        found = find_channel(await reader.channels(), spec.to)
        return found.id if found else spec.to

    async def find_allowed(self, spec: Schedule, place: str) -> Allowed:
        """Return what subagents may use by the rules for its owner, as for a request there.

        Raises ScheduleFault.
        """
        people, policy = self.directory.people, await self.policy.read()
        person = await people.person(spec.owner, self.directory.team)
        facts = None if spec.is_private else await people.channel(place)
        kind = DIRECT if spec.is_private else "mention"
        admission_facts = AdmissionFacts(spec.owner, place, kind, person, facts)
        groups = {g: await people.group(g) for g in needed_groups(policy, admission_facts)}
        decision = decide(policy, replace(admission_facts, groups=groups), spec.budget_usd)
        if isinstance(decision, Permitted):
            return Allowed(decision.scopes, decision.models)
        if (facts is None and kind != DIRECT) or None in groups.values():
            raise _unanswered()
        if isinstance(decision, NotPermitted):
            why = str(decision.reason)
            raise ScheduleFault(phrase("check.may_not_ask_why", owner=spec.owner, why=why))
        message = phrase("check.may_not_ask", owner=spec.owner, admin=admin(policy))
        raise ScheduleFault(message)

    async def obstacles(
        self,
        spec: Schedule,
        channels: Sequence[ChannelInfo],
        place: str,
        label: Label,
        *,
        trusted: bool = False,
    ) -> tuple[Obstacle, ...]:
        """Return the current obstacles between its reports and their readers.

        `place` is the id of its destination. `label` is the label of the context in which it was
        requested: the sources of an answer are known only on delivery. `trusted`: it is in the
        settings, whose author may have reports mailed to others.
        """
        directory, private = self.directory, [c.id for c in channels if c.is_private]
        if spec.kind in ("ask", "reminder"):
            return () if spec.is_private else await directory.obstacles(label, place)
        if "@" in spec.to:
            own = await directory.people.address(spec.owner)
            if own is not None and own.casefold() == spec.to.casefold():
                return ()
            if spec.kind == "triage" or private:
                return (Obstacle(spec.to, spec.to, ONLY_PUBLIC, grantable=False),)
            trusted = trusted or spec.owner in await self.policy.admins()
            return () if trusted else (Obstacle(spec.to, spec.to, NO_ADMIN, grantable=False),)
        sources = frozenset(["mail:"] if spec.kind == "triage" else private)
        if spec.is_private or not sources:
            return ()
        return await directory.obstacles(Label(True, frozenset({spec.owner}), sources), place)

    async def _owner(self, spec: Schedule, origin: Origin) -> None:
        user, policy = spec.owner, await self.policy.read()
        person = await self._person(user)
        if person is None:
            raise ScheduleFault(phrase("check.no_user", user=user))
        if person.kind in ("deleted", "bot"):
            raise ScheduleFault(phrase("check.no_owner", owner=user))
        if origin == "config" and person.kind == "member":
            return
        if not await self._may_schedule(policy, person):
            message = phrase("check.not_owner", owner=user, admin=admin(policy))
            raise ScheduleFault(message)

    async def _may_schedule(self, policy: Policy, person: Person) -> bool:
        allowed = policy.schedulers
        if person.id in allowed or f"{person.kind}s" in allowed or person.kind in allowed:
            return True
        if person.kind != "member":
            return False
        for group in (each for each in allowed if each.startswith("S")):
            members = await self.directory.people.group(group)
            if members is None:
                raise _unanswered()
            if person.id in members:
                return True
        return False

    async def _mailbox(self, spec: Schedule) -> None:
        mailbox = await self.mailboxes.open(spec.owner)
        if mailbox is None:
            how = how_to_connect(self.mailboxes.settings)
            raise ScheduleFault(phrase("check.no_mailbox", owner=spec.owner, how=how))
        await mailbox.aclose()

    async def _destination(self, spec: Schedule, reader: SlackReader) -> DeliveryPlace:
        if spec.is_private:
            return DeliveryPlace(spec.owner, f"<@{spec.owner}>")
        if "@" in spec.to:
            return DeliveryPlace("", spec.to, spec.to)
        if PERSON.fullmatch(spec.to):
            person = await self._person(spec.to)
            if person is None or person.kind in ("deleted", "bot"):
                raise ScheduleFault(phrase("check.no_user", user=spec.to))
            return DeliveryPlace(spec.to, f"<@{spec.to}>")
        place = spec.to
        if spec.to.startswith("#"):
            found = find_channel(await reader.channels(), spec.to)
            if found is None:
                raise ScheduleFault(phrase("check.unseen", place=spec.to))
            place = found.id
        destination = await self._place(place, spec.to)
        if destination.archived:
            raise ScheduleFault(phrase("check.archived", place=destination.title))
        info = await reader.web.call("conversations.info", channel=place)
        if not (info.get("channel") or {}).get("is_member"):
            raise ScheduleFault(phrase("check.not_in", place=destination.title))
        if not await self.directory.may_read(spec.owner, place):
            await self._surely(spec.owner)
            message = phrase("check.unreadable", owner=spec.owner, place=destination.title)
            raise ScheduleFault(message)
        return DeliveryPlace(place, destination.title)

    async def _person(self, user: str) -> Person | None:
        """Return a person; None = there is none. Raises ScheduleFault."""
        people = self.directory.people
        person = await people.person(user, self.directory.team, fresh=True)
        if person is None and people.has_no_answer(user):
            raise _unanswered(people.refusal("user", user))
        return person

    async def _place(self, channel: str, shown: str) -> MembersOf:
        place = await self.directory.members.place(channel, fresh=True)
        if place is None:
            try:
                await self.reader.web.call("conversations.info", channel=channel)
            except Absent:
                raise ScheduleFault(phrase("check.unseen", place=shown)) from None
            raise _unanswered()
        return place

    async def _tracker(self, spec: Schedule, reader: SlackReader) -> None:
        assert spec.tracker
        try:
            await reader.web.call("slackLists.items.list", list_id=spec.tracker, limit=1)
        except Absent:
            raise ScheduleFault(phrase("check.no_tracker", id=spec.tracker)) from None
        if not await self.directory.may_read(spec.owner, spec.tracker):
            message = phrase("check.not_tracker", owner=spec.owner, id=spec.tracker)
            raise ScheduleFault(message)

    async def _sources(self, spec: Schedule, reader: SlackReader) -> list[ChannelInfo]:
        """Return the channels; channels that the owner may not read never match a pattern."""
        listed = await reader.channels()
        hits = {pattern: match_channels(listed, pattern) for pattern in spec.channels}
        by_id = {c.id: c for found in hits.values() for c in found}
        may = await self._readable(spec.owner, list(by_id.values()))
        for pattern, found in hits.items():
            if not any(c.id in may for c in found):
                raise await self._explain_nothing(spec, pattern, found)
        return [c for c in by_id.values() if c.id in may]

    async def _readable(self, owner: str, channels: Sequence[ChannelInfo]) -> set[str]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def may(channel: ChannelInfo) -> bool:
            async with gate:
                return await self.directory.may_read(owner, channel.id)

        answers = await asyncio.gather(*map(may, channels))
        return {c.id for c, yes in zip(channels, answers, strict=True) if yes}

    async def _surely(self, owner: str) -> None:
        """Check that a "no" of the directory is not a missing answer. Raises ScheduleFault."""
        if await self.directory.members.of_user(owner, fresh=True) is None:
            raise _unanswered()

    async def _explain_nothing(
        self, spec: Schedule, pattern: str, found: Sequence[ChannelInfo]
    ) -> ScheduleFault:
        if found:
            await self._surely(spec.owner)
        if _WILDCARDS & set(pattern):
            message = phrase("check.no_match", owner=spec.owner, pattern=repr(pattern))
            return ScheduleFault(message)
        shown = pattern if pattern.startswith(("#", "C", "G")) else f"#{pattern}"
        return ScheduleFault(phrase("check.no_source", owner=spec.owner, place=shown))


@contextmanager
def _answers() -> Iterator[None]:
    """Raise ScheduleFault if Slack or the policy cannot be read."""
    try:
        yield
    except PolicyFault as fault:
        raise _unanswered(fault.reason) from fault
    except SlackRefused as error:
        raise _unanswered(f"{error}." if error.remedy else "") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise _unanswered() from error


def find_channel(channels: Sequence[ChannelInfo], to: str) -> ChannelInfo | None:
    """Return the channel with this id or `#name`."""
    name = to[1:].casefold() if to.startswith("#") else None
    return next((c for c in channels if c.id == to or c.name.casefold() == name), None)
