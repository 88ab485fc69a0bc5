"""Whether a schedule can do what it is set to: asked when it is set, at the start, at each run.

What is wrong is a sentence for people that ends in what to do about it.
"""

from __future__ import annotations

import asyncio
import fnmatch
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import aiohttp

from bot.mail.mailboxes import Mailboxes
from bot.policy.directory import SlackDirectory
from bot.policy.people import Person
from bot.policy.policy import admin
from bot.policy.policy_file import PolicyFault, PolicyFile
from config.schedules import Schedule
from config.settings import Policy
from scopes.members import Place
from scopes.slack_client import Absent, SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader

Origin = Literal["config", "chat"]

MOST_NAMED = 5
"""Channels that a sentence names."""
AT_ONCE = 16
"""Channels that are looked at together."""
AGAIN = "I could not check it with Slack just now. Please try again in a minute."
_WILD = frozenset("*?[")


class NotChecked(Exception):
    """Slack gave no answer: whether a schedule is right is not known. Its text is for people."""


class Wrong(Exception):
    """A schedule cannot do what it is set to; its text says what to do about it."""


@dataclass(frozen=True)
class Checking:
    """Checks schedules; one for the process."""

    reader: SlackReader
    directory: SlackDirectory
    policy: PolicyFile
    mailboxes: Mailboxes

    async def objection(self, spec: Schedule, origin: Origin) -> str:
        """What keeps it from working, in a sentence that helps; empty where nothing does.

        Raises NotChecked and StoreError.
        """
        reader = self.reader.fresh()
        try:
            await self.check(spec, origin, reader)
        except Wrong as wrong:
            return str(wrong)
        finally:
            await reader.aclose()
        return ""

    async def check(self, spec: Schedule, origin: Origin, reader: SlackReader) -> list[ChannelInfo]:
        """The channels that a sweep is to read: all of its patterns that its owner may read.

        Raises Wrong, NotChecked and StoreError.
        """
        try:
            await self._owner(spec, origin)
            await self._destination(spec, reader)
            if spec.kind == "triage" or "@" in spec.to:
                await self._mailbox(spec)
            if spec.tracker:
                await self._tracker(spec, reader)
            return await self._sources(spec, reader) if spec.kind == "sweep" else []
        except PolicyFault as fault:
            raise NotChecked(fault.reason) from fault
        except SlackRefused as error:
            raise NotChecked(f"{error}." if error.remedy else AGAIN) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            raise NotChecked(AGAIN) from error

    # ---- whose rights it uses

    async def _owner(self, spec: Schedule, origin: Origin) -> None:
        user, policy = spec.owner, await self.policy.read()
        people, team = self.directory.people, self.directory.team
        person = await people.person(user, team)
        if person is None:
            if people.unanswered(user, team):
                raise NotChecked(people.refusal("user", team, user) or AGAIN)
            raise Wrong(f"There is no user {user} here. Name as its owner a member of Slack.")
        if person.kind in ("deleted", "bot"):
            what = "is deactivated" if person.kind == "deleted" else "is an app"
            raise Wrong(f"Its owner <@{user}> {what}. It needs an owner who is a member here.")
        if origin == "config" and person.kind == "member":
            return
        if not await self._may_schedule(policy, person):
            who = {"guest": "Guests", "external": "People of other companies"}.get(person.kind)
            said = f"{who} may not" if who else f"<@{user}> is not among those who may"
            raise Wrong(f"{said} own schedules here. Ask {admin(policy)} to change that.")

    async def _may_schedule(self, policy: Policy, person: Person) -> bool:
        named = policy.schedulers
        if person.id in named or f"{person.kind}s" in named or person.kind in named:
            return True
        if person.kind != "member":
            return False
        for group in (each for each in named if each.startswith("S")):
            members = await self.directory.people.group(group)
            if members is None:
                raise NotChecked(AGAIN)
            if person.id in members:
                return True
        return False

    async def _mailbox(self, spec: Schedule) -> None:
        opened = await self.mailboxes.open(spec.owner)
        if opened is None:
            why = "reads" if spec.kind == "triage" else "is sent from"
            raise Wrong(
                f"It {why} the mailbox of <@{spec.owner}>, and none is connected. "
                "Press Connect Gmail in my App Home."
            )
        await opened.aclose()

    # ---- where its reports go

    async def _destination(self, spec: Schedule, reader: SlackReader) -> None:
        if spec.is_private or "@" in spec.to:
            return
        if spec.to.startswith("#"):
            name = spec.to[1:].casefold()
            found = next((c for c in await reader.channels() if c.name.casefold() == name), None)
            if found is None:
                raise await self._no_such(spec.to, name, reader)
            place = found.id
        else:
            place = spec.to
        there = await self._place(place, spec.to)
        if there.archived:
            raise Wrong(f"{there.title} is archived: name another channel for its reports.")
        info = await reader.web.call("conversations.info", channel=place)
        if not (info.get("channel") or {}).get("is_member"):
            raise Wrong(f"I am not in {there.title}: invite me there with /invite first.")
        if not await self.directory.may_read(spec.owner, place):
            await self._surely(spec.owner)
            raise Wrong(f"<@{spec.owner}> cannot read {there.title}, so nothing is posted there.")

    async def _no_such(self, shown: str, name: str, reader: SlackReader) -> Wrong:
        """Whether a channel of this name was archived, or never there."""
        kinds = "public_channel,private_channel"
        pages = reader.web.pages(
            "conversations.list", "channels", types=kinds, exclude_archived="false"
        )
        async for each in pages:
            if str(each.get("name") or "").casefold() == name and each.get("is_archived"):
                return Wrong(f"{shown} is archived: name another channel for its reports.")
        return Wrong(
            f"I see no channel {shown} to post to. If it is private, invite me there first."
        )

    async def _place(self, channel: str, shown: str) -> Place:
        place = await self.directory.members.place(channel, fresh=True)
        if place is None:
            try:
                await self.reader.web.call("conversations.info", channel=channel)
            except Absent:
                raise Wrong(
                    f"I see no channel {shown}. If it is private, invite me there first."
                ) from None
            raise NotChecked(AGAIN)
        return place

    # ---- what it reads

    async def _tracker(self, spec: Schedule, reader: SlackReader) -> None:
        assert spec.tracker
        try:
            await reader.web.call("slackLists.items.list", list_id=spec.tracker, limit=1)
        except Absent:
            raise Wrong(
                f"I cannot read the tracker {spec.tracker}: give its id, which begins with F, and "
                "share the list with me."
            ) from None
        if not await self.directory.may_read(spec.owner, spec.tracker):
            raise Wrong(f"<@{spec.owner}> may not read the tracker {spec.tracker}.")

    async def _sources(self, spec: Schedule, reader: SlackReader) -> list[ChannelInfo]:
        """Channels that the owner may not read are, behind a pattern, not there for them."""
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
        """A "no" of the directory may mean that Slack gave no answer. Raises NotChecked."""
        if await self.directory.members.of_user(owner, fresh=True) is None:
            raise NotChecked(AGAIN)

    async def _nothing(
        self, spec: Schedule, pattern: str, found: Sequence[ChannelInfo], may: Sequence[ChannelInfo]
    ) -> Wrong:
        if found:
            await self._surely(spec.owner)
        if _WILD & set(pattern):
            return Wrong(f"No channel that <@{spec.owner}> may read matches {pattern!r}.")
        shown = pattern if pattern.startswith(("#", "C", "G")) else f"#{pattern}"
        public = [c.name for c in may if not c.is_private]  # the sentence may be read by others
        names = ", ".join(f"#{name}" for name in public[:MOST_NAMED])
        readable = f" What can be read: {names}." if names else ""
        return Wrong(
            f"There is no channel {shown} that <@{spec.owner}> may read. If it is private, invite "
            f"me there and see that <@{spec.owner}> is a member.{readable}"
        )


def matching(channels: Sequence[ChannelInfo], pattern: str) -> list[ChannelInfo]:
    """The channels whose name or id a pattern names."""
    bare = pattern.lstrip("#")
    wanted = bare.casefold()
    return [c for c in channels if fnmatch.fnmatchcase(c.name.casefold(), wanted) or c.id == bare]
