"""Where a report goes, and whether all who read it there may read it: as of the moment it goes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import aiohttp

from bot.policy.people import People
from bot.policy.policy_file import PolicyFault, PolicyFile
from bot.replies.writes import ChannelClosed, TokenRefused, Unsettled, WriteFailed
from bot.requests.finishing import bare_context
from bot.runs.runs import Live
from bot.schedule.records import StoredSchedule
from scopes.intent import Intent
from scopes.label import Label
from scopes.slack_client import SlackRefused
from scopes.slack_reader import SlackReader
from subagents.directory import Obstacle

MOST_NAMED = 5
ANOTHER = "or let its reports go elsewhere."
CLOSED: Mapping[str, str] = {
    "is_archived": f"{{place}} is archived. Unarchive it, {ANOTHER}",
    "channel_is_archived": f"{{place}} is archived. Unarchive it, {ANOTHER}",
    "not_in_channel": f"I am not in {{place}}. Invite me there with /invite, {ANOTHER}",
    "channel_not_found": f"I do not see {{place}} any more. Invite me there, {ANOTHER}",
    "messages_tab_disabled": "Direct messages with me are switched off in this workspace.",
    "thread_not_found": "The message that the report began with is gone.",
}
READ_ONLY = f"I may not post in {{place}}. Let me post there, {ANOTHER}"
NO_SCOPE = "Slack says that I lack a permission to post. Whoever runs me has to install me again."
NO_TOKEN = "Slack does not accept my token any more. Whoever runs me has to look at it."
AWAY = "Slack could not be reached, or gave no answer in time."
REFUSED = "Slack did not take it ({code})."
OWNER_GONE = (
    "Its owner <@{owner}> is deactivated, and it uses their rights. It needs another owner."
)
NOT_YOURS = "<@{owner}> may not read all that it rests on any more: {names}."
NOT_THERE = "Not everyone in {place} may read what it rests on: {names}. {then}"
ASKED = "An administrator is asked to allow it there."
ELSEWHERE = f"Take those channels out of it, {ANOTHER}"
ONLY_PUBLIC = (
    "It rests on what not everyone in the workspace may read, so it is mailed to nobody but its "
    "owner. Let it go to the owner, or read public channels only."
)
NOT_APPROVED = (
    "A report is mailed to anybody but its owner only where an administrator, or the settings "
    "file, says so. Ask an administrator to set it."
)


class NotDelivered(Exception):
    """One try came to nothing; its text says why and what to do, for the schedule's owner."""

    def __init__(
        self, text: str, sources: Mapping[str, str] | None = None, place: str = ""
    ) -> None:
        self.sources = sources or {}
        """Id -> name of what an administrator could allow to stand in `place` for good."""
        self.place = place
        super().__init__(text)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a report goes."""

    channel: str
    """Id of a conversation; empty = by mail."""
    name: str
    """As people call it; a person as `<@U...>`."""
    mail: str = ""


@dataclass(frozen=True)
class Destinations:
    """Looks where reports may go; one for the process."""

    people: People
    policy: PolicyFile
    team: str

    async def find(self, stored: StoredSchedule, live: Live) -> Place:
        """The place, as it is called now. Raises NotDelivered."""
        owner, to = stored.spec.owner, stored.spec.to
        person = await self.people.person(owner, self.team, fresh=True)
        if person is not None and person.kind == "deleted":
            raise NotDelivered(OWNER_GONE.format(owner=owner))
        if stored.spec.is_private:
            return Place(owner, f"<@{owner}>")
        if "@" in to:
            return Place("", to, to)
        reader = live.run.clients[SlackReader]
        assert isinstance(reader, SlackReader)
        try:
            found = await reader.channels()
        except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
            raise NotDelivered(AWAY) from error
        bare = to.removeprefix("#")
        for each in found:
            if bare == each.id or (to.startswith("#") and bare.casefold() == each.name.casefold()):
                return Place(each.id, f"#{each.name}")
        if to.startswith("#"):
            gone = f"There is no channel {to} any more, or it is archived. Name another one."
            raise NotDelivered(gone)
        return Place(to, to)

    async def check(
        self, stored: StoredSchedule, live: Live, place: Place, label: Label, own: Sequence[str]
    ) -> None:
        """Whether the owner, and all who read it there, may read it now; `own` are the owner's own
        mail addresses. Raises NotDelivered."""
        owner = stored.spec.owner
        ctx = bare_context(live.run, label, Intent(home=place.channel))
        if hidden := (await live.run.gate.release("p1", ctx, to=owner)).obstacles:
            raise NotDelivered(NOT_YOURS.format(owner=owner, names=_named(hidden)))
        if place.mail:
            if place.mail.casefold() not in {each.casefold() for each in own}:
                await self._to_others(stored, label)
            return
        if place.channel == owner:
            return
        if obstacles := (await live.run.gate.release("p1", ctx)).obstacles:
            raise _withheld(place, obstacles)

    async def _to_others(self, stored: StoredSchedule, label: Label) -> None:
        """Mail leaves the workspace, and nobody can take it back."""
        if not label.is_open:
            raise NotDelivered(ONLY_PUBLIC)
        if stored.origin == "config":
            return
        try:
            admins = (await self.policy.read()).admins
        except PolicyFault:
            admins = ()
        if stored.spec.owner not in admins:
            raise NotDelivered(NOT_APPROVED)


def told_of(error: WriteFailed, place: Place) -> str:
    """Why Slack did not take it, in a sentence that says what to do."""
    if isinstance(error, ChannelClosed):
        return CLOSED.get(error.code, READ_ONLY).format(place=place.name)
    if isinstance(error, TokenRefused):
        return NO_SCOPE if error.code in ("missing_scope", "no_permission") else NO_TOKEN
    if isinstance(error, Unsettled) or error.code in ("no_connection", "ratelimited"):
        return AWAY
    return REFUSED.format(code=error.code)


def _withheld(place: Place, obstacles: Sequence[Obstacle]) -> NotDelivered:
    grantable = all(o.grantable for o in obstacles)
    then = ASKED if grantable else ELSEWHERE
    told = NOT_THERE.format(place=place.name, names=_named(obstacles), then=then)
    sources = {o.source: o.name for o in obstacles} if grantable else {}
    return NotDelivered(told, sources, place.channel)


def _named(obstacles: Sequence[Obstacle]) -> str:
    named = list(dict.fromkeys(f"{o.name} ({o.why})" for o in obstacles))
    more = f" and {len(named) - MOST_NAMED} more" if len(named) > MOST_NAMED else ""
    return f"{'; '.join(named[:MOST_NAMED])}{more}"
