"""A report by mail: once, from its owner's mailbox, as text and as a page in which nothing acts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bot.policy.people import People
from bot.replies.render import Part
from bot.runs.runs import Live
from bot.schedule.destinations import NotDelivered, Place
from bot.schedule.letter import page_of, text_of
from bot.schedule.records import StoredSchedule
from scopes.google.client import GoogleError
from scopes.google.errors import GoogleBusy
from scopes.google.gmail_compose import Attached, NoRecipient, Report

NO_MAILBOX = (
    "It is sent from the mailbox of <@{owner}>, and none is connected. "
    "Press Connect Gmail in my App Home."
)
NOT_THEIRS = (
    "It was made while <@{before}> owned it, and it is mailed from nobody's mailbox but its "
    "owner's. The next report is of <@{owner}>."
)
AWAY = "Gmail could not be reached, or gave no answer in time."
NO_ADDRESS = "No mail can be sent to {to}."


@dataclass(frozen=True, slots=True)
class Mailing:
    """Sends reports; one for the process."""

    people: People

    async def own(self, stored: StoredSchedule, live: Live) -> list[str]:
        """The owner's own addresses: of their mailbox, and as Slack knows it. Raises
        NotDelivered."""
        made_for, owner = live.run.requester, stored.spec.owner
        if made_for != owner:
            raise NotDelivered(NOT_THEIRS.format(before=made_for, owner=owner))
        if live.mail is None:
            raise NotDelivered(NO_MAILBOX.format(owner=owner))
        try:
            mailbox = await live.mail.gmail.address()
        except GoogleError as error:
            raise NotDelivered(_told(error)) from error
        profile = await self.people.address(owner)
        return [mailbox, *([profile] if profile else [])]

    async def send(
        self, live: Live, place: Place, name: str, parts: Sequence[Part], files: Sequence[Attached]
    ) -> str:
        """The id of the mail, which is sent once for each run; `name` is the schedule's. Raises
        NotDelivered."""
        assert live.mail
        key, subject = live.run.id, f"{name}: {parts[0].text}"
        report = Report(page_of(parts), tuple(files))
        try:
            return await live.mail.gmail.send(
                [place.mail], subject, text_of(parts), key, report=report
            )
        except NoRecipient as error:
            raise NotDelivered(NO_ADDRESS.format(to=place.mail)) from error
        except GoogleError as error:
            raise NotDelivered(_told(error)) from error


def _told(error: GoogleError) -> str:
    return AWAY if isinstance(error, GoogleBusy) else str(error)
