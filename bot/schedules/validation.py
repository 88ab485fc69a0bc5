"""Validate schedules: when they are set, at startup, and before each run.

Errors are sentences for people that end with what to do.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import AsyncIterator, Collection, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Literal

import aiohttp

from bot.mailbox.accounts import Mailboxes
from bot.policy.directory import SlackDirectory
from bot.policy.policy import PolicyFault, PolicyFile, admin
from bot.slack.people import Person
from config.schedules import Schedule
from config.sections import Policy
from scopes.members import MembersOf
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader

Origin = Literal["config", "chat"]

MOST_NAMED = 5
"""Channels that a sentence names."""
AT_ONCE = 16
"""Channels that are checked concurrently."""
AGAIN = "I could not check it with Slack just now. Please try again in a minute."
_WILD = frozenset("*?[")


class CheckUnavailable(Exception):
    """Slack gave no answer, so the check is incomplete. The text is for people."""


class ScheduleInvalid(Exception):
    """A schedule cannot do what it is set to; the text says what to do about it."""


@dataclass(frozen=True)
class ScheduleValidator:
    """Validates schedules; one for each process."""

    reader: SlackReader
    directory: SlackDirectory
    policy: PolicyFile
    mailboxes: Mailboxes

    async def objection(self, spec: Schedule, origin: Origin) -> str:
        """Return what keeps it from working, in a helpful sentence; empty if nothing does.

        Raises CheckUnavailable and StoreError.
        """
        try:
            async with self.fresh_reader() as reader:
                await self.check(spec, origin, reader)
        except ScheduleInvalid as wrong:
            return str(wrong)
        return ""

    async def check(self, spec: Schedule, origin: Origin, reader: SlackReader) -> list[ChannelInfo]:
        """Return the channels that a sweep will read: matching ones that its owner may read.

        Raises ScheduleInvalid, CheckUnavailable and StoreError.
        """
        with _answers():
            await self._owner(spec, origin)
            await self._destination(spec, reader)
            if spec.kind == "triage" or "@" in spec.to:
                await self._mailbox(spec)
            if spec.tracker:
                await self._tracker(spec, reader)
            return await self._sources(spec, reader) if spec.kind == "sweep" else []

    @asynccontextmanager
    async def fresh_reader(self) -> AsyncIterator[SlackReader]:
        """Open a reader that has cached nothing yet."""
        reader = self.reader.fresh()
        try:
            yield reader
        finally:
            await reader.aclose()

    async def channels(self) -> list[ChannelInfo]:
        """Return the channels that the bot sees. Raises CheckUnavailable."""
        with _answers():
            async with self.fresh_reader() as reader:
                return await reader.channels()

    async def _owner(self, spec: Schedule, origin: Origin) -> None:
        user, policy = spec.owner, await self.policy.read()
        people, team = self.directory.people, self.directory.team
        person = await people.person(user, team)
        if person is None:
            if people.has_no_answer(user):
                raise CheckUnavailable(people.refusal("user", user) or AGAIN)
            raise ScheduleInvalid(
                f"There is no user {user} here. Name as its owner a member of Slack."
            )
        if person.kind in ("deleted", "bot"):
            what = "is deactivated" if person.kind == "deleted" else "is an app"
            raise ScheduleInvalid(
                f"Its owner <@{user}> {what}. It needs an owner who is a member here."
            )
        if origin == "config" and person.kind == "member":
            return
        if not await self._may_schedule(policy, person):
            who = {"guest": "Guests", "external": "People of other companies"}.get(person.kind)
            said = f"{who} may not" if who else f"<@{user}> is not among those who may"
            raise ScheduleInvalid(f"{said} own schedules here. Ask {admin(policy)} to change that.")

    async def _may_schedule(self, policy: Policy, person: Person) -> bool:
        named = policy.schedulers
        if person.id in named or f"{person.kind}s" in named or person.kind in named:
            return True
        if person.kind != "member":
            return False
        for group in (each for each in named if each.startswith("S")):
            members = await self.directory.people.group(group)
            if members is None:
                raise CheckUnavailable(AGAIN)
            if person.id in members:
                return True
        return False

    async def _mailbox(self, spec: Schedule) -> None:
        opened = await self.mailboxes.open(spec.owner)
        if opened is None:
            why = "reads" if spec.kind == "triage" else "is sent from"
            raise ScheduleInvalid(
                f"It {why} the mailbox of <@{spec.owner}>, and none is connected. "
                "Press Connect Gmail in my App Home."
            )
        await opened.aclose()

    async def _destination(self, spec: Schedule, reader: SlackReader) -> None:
        if spec.is_private or "@" in spec.to:
            return
        place = spec.to
        if spec.to.startswith("#"):
            found = find_channel(await reader.channels(), spec.to)
            if found is None:
                raise await self._no_such(spec.to, reader)
            place = found.id
        there = await self._place(place, spec.to)
        if there.archived:
            raise ScheduleInvalid(
                f"{there.title} is archived: name another channel for its reports."
            )
        info = await reader.web.call("conversations.info", channel=place)
        if not (info.get("channel") or {}).get("is_member"):
            raise ScheduleInvalid(f"I am not in {there.title}: invite me there with /invite first.")
        if not await self.directory.may_read(spec.owner, place):
            await self._surely(spec.owner)
            raise ScheduleInvalid(
                f"<@{spec.owner}> cannot read {there.title}, so nothing is posted there."
            )

    async def _no_such(self, shown: str, reader: SlackReader) -> ScheduleInvalid:
        """Return the error for a missing channel: archived, or never there."""
        name = shown[1:].casefold()
        kinds = "public_channel,private_channel"
        pages = reader.web.pages(
            "conversations.list", "channels", types=kinds, exclude_archived="false"
        )
        async for each in pages:
            if str(each.get("name") or "").casefold() == name and each.get("is_archived"):
                return ScheduleInvalid(
                    f"{shown} is archived: name another channel for its reports."
                )
        return ScheduleInvalid(
            f"I see no channel {shown} to post to. If it is private, invite me there first."
        )

    async def _place(self, channel: str, shown: str) -> MembersOf:
        place = await self.directory.members.place(channel, fresh=True)
        if place is None:
            try:
                await self.reader.web.call("conversations.info", channel=channel)
            except Absent:
                raise ScheduleInvalid(
                    f"I see no channel {shown}. If it is private, invite me there first."
                ) from None
            raise CheckUnavailable(AGAIN)
        return place

    async def _tracker(self, spec: Schedule, reader: SlackReader) -> None:
        assert spec.tracker
        try:
            await reader.web.call("slackLists.items.list", list_id=spec.tracker, limit=1)
        except Absent:
            raise ScheduleInvalid(
                f"I cannot read the tracker {spec.tracker}: give its id, which begins with F, and "
                "share the list with me."
            ) from None
        if not await self.directory.may_read(spec.owner, spec.tracker):
            raise ScheduleInvalid(f"<@{spec.owner}> may not read the tracker {spec.tracker}.")

    async def _sources(self, spec: Schedule, reader: SlackReader) -> list[ChannelInfo]:
        """Return the channels; those that the owner may not read never match a pattern."""
        listed = await reader.channels()
        hits = {pattern: matching(listed, pattern) for pattern in spec.channels}
        wanted = {c.id: c for found in hits.values() for c in found}
        may = await self._readable(spec.owner, list(wanted.values()))
        for pattern, found in hits.items():
            if not any(c.id in may for c in found):
                raise await self._nothing(spec, pattern, found, [c for c in listed if c.id in may])
        return [c for c in wanted.values() if c.id in may]

    async def _readable(self, owner: str, channels: Sequence[ChannelInfo]) -> set[str]:
        gate = asyncio.Semaphore(AT_ONCE)

        async def may(channel: ChannelInfo) -> bool:
            async with gate:
                return await self.directory.may_read(owner, channel.id)

        told = await asyncio.gather(*map(may, channels))
        return {c.id for c, yes in zip(channels, told, strict=True) if yes}

    async def _surely(self, owner: str) -> None:
        """Check that a "no" of the directory is not a missing answer. Raises CheckUnavailable."""
        if await self.directory.members.of_user(owner, fresh=True) is None:
            raise CheckUnavailable(AGAIN)

    async def _nothing(
        self, spec: Schedule, pattern: str, found: Sequence[ChannelInfo], may: Sequence[ChannelInfo]
    ) -> ScheduleInvalid:
        if found:
            await self._surely(spec.owner)
        if _WILD & set(pattern):
            return ScheduleInvalid(f"No channel that <@{spec.owner}> may read matches {pattern!r}.")
        shown = pattern if pattern.startswith(("#", "C", "G")) else f"#{pattern}"
        public = [c.name for c in may if not c.is_private]  # the sentence may be read by others
        names = ", ".join(f"#{name}" for name in public[:MOST_NAMED])
        readable = f" What can be read: {names}." if names else ""
        return ScheduleInvalid(
            f"There is no channel {shown} that <@{spec.owner}> may read. If it is private, invite "
            f"me there and see that <@{spec.owner}> is a member.{readable}"
        )


@contextmanager
def _answers() -> Iterator[None]:
    """Raise CheckUnavailable if Slack or the policy cannot be read."""
    try:
        yield
    except PolicyFault as fault:
        raise CheckUnavailable(fault.reason) from fault
    except SlackRefused as error:
        raise CheckUnavailable(f"{error}." if error.remedy else AGAIN) from error
    except (aiohttp.ClientError, TimeoutError) as error:
        raise CheckUnavailable(AGAIN) from error


def find_channel(channels: Sequence[ChannelInfo], to: str) -> ChannelInfo | None:
    """Return the channel with this id or `#name`."""
    name = to[1:].casefold() if to.startswith("#") else None
    return next((c for c in channels if c.id == to or c.name.casefold() == name), None)


def matching(channels: Sequence[ChannelInfo], pattern: str) -> list[ChannelInfo]:
    """Return the channels whose name or id matches a pattern."""
    bare = pattern.lstrip("#")
    wanted = bare.casefold()
    return [c for c in channels if fnmatch.fnmatchcase(c.name.casefold(), wanted) or c.id == bare]


async def admins(policy: PolicyFile) -> Collection[str]:
    """Return the administrators; none while the policy cannot be read."""
    try:
        return (await policy.read()).admins
    except PolicyFault:
        return ()
