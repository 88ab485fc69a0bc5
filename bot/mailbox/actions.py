"""Button actions under a mail digest: each is executed once, even if clicked more often."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

import sqlalchemy as sa

from bot.errors import SetupError
from bot.storage.database import Database
from bot.storage.tables import address_of, mail_acts, mail_corrections
from config.words import phrase
from scopes.clean import printable

SENTENCE_KEY = "said"
"""Key of the sentence in the stored outcome."""
GIVEN_UP_AFTER = timedelta(minutes=2)
"""Time after which a process that started an action and did not end it is considered dead."""


class UnderWay(SetupError):
    """The same click is being executed, here or by another replica."""

    def __init__(self) -> None:
        super().__init__("under_way", phrase("digest.under_way"), "")


class MailActions:
    """The button actions of one database, by account and key. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def once(
        self, account: str, key: str, thread: str, act: Callable[[], Awaitable[str]]
    ) -> str:
        """Return the result of `act`, from now or from an earlier call with this key.

        After a crash during the action it is executed again, so repeating it must be harmless, as
        it is for Gmail's labels and drafts. Raises UnderWay, or the error of the act: then the next
        click executes it again.
        """
        started_at = datetime.now(UTC)
        row = {"account": account, "key": key, "thread": thread, "outcome": None, "at": started_at}
        insert = self._database.upsert(mail_acts).values(row)
        if not await self._database.write(insert):
            found = await self._take_over(account, key, started_at)
            if found is not None:
                return found
        is_attempt = sa.and_(
            _is(account, key), mail_acts.c.at == started_at, mail_acts.c.outcome.is_(None)
        )
        try:
            outcome = await act()
        except BaseException:
            await self._database.write(sa.delete(mail_acts).where(is_attempt))
            raise
        await self._database.write(
            sa.update(mail_acts).where(is_attempt).values(outcome={SENTENCE_KEY: outcome})
        )
        return outcome

    async def _take_over(self, account: str, key: str, started_at: datetime) -> str | None:
        """Return an existing result; None = no process is executing it, so this one takes over."""
        dead = sa.and_(mail_acts.c.outcome.is_(None), mail_acts.c.at < started_at - GIVEN_UP_AFTER)
        take = sa.update(mail_acts).where(_is(account, key), dead).values(at=started_at)
        if await self._database.write(take):
            return None
        query = sa.select(mail_acts.c.outcome).where(_is(account, key))
        rows = await self._database.read(query)
        if not rows or rows[0].outcome is None:
            raise UnderWay
        return str(rows[0].outcome[SENTENCE_KEY])


def _is(account: str, key: str) -> sa.ColumnElement[bool]:
    return sa.and_(mail_acts.c.account == account, mail_acts.c.key == key)


VALUES = MappingProxyType({"priority": "low", "asked_of_me": "false"})
"""Field of a verdict -> the correction that a digest offers; a category may be any name."""
MAX_CATEGORY = 60  # characters
MAX_TOLD = 10
"""Maximum sentences in one brief."""

_PLAIN = re.compile(r"[a-z0-9._%+-]{1,64}@[a-z0-9.-]{1,190}")
"""An address that a sentence may contain. Others never appear: strangers choose their addresses,
and a quoted one could contain an instruction."""
_CORRECTION_PHRASES = MappingProxyType(
    {"priority": "are not urgent", "asked_of_me": "ask nothing of the reader"}
)


@dataclass(frozen=True, slots=True)
class Correction:
    """One field of one thread's verdict, as corrected by the user."""

    thread: str
    field: str
    """`priority`, `category` or `asked_of_me`."""
    value: str
    sender: str
    """Address of the mails that it applies to, in lower case."""
    at: datetime

    @property
    def words(self) -> str:
        """Return the correction in words, for its author."""
        return phrase(f"correction.{self.field}", sender=self.sender, category=self.value)

    @property
    def sentence(self) -> str:
        """Return the sentence for a brief; empty if the address may not be named."""
        category = f'belong to the category "{self.value}"'
        says = _CORRECTION_PHRASES.get(self.field, category)
        text = f"You were corrected before: mails from {self.sender} {says}."
        return text if _PLAIN.fullmatch(self.sender) else ""


def latest_corrections(corrections: Iterable[Correction]) -> list[Correction]:
    """Return the first correction of each sender and field; `Corrections.all` is newest first."""
    first: dict[tuple[str, str], Correction] = {}
    for each in corrections:
        first.setdefault((each.sender, each.field), each)
    return list(first.values())


def is_applicable(correction: Correction, categories: Container[str]) -> bool:
    """Return whether it can be applied: its category may no longer be in the settings."""
    return correction.field != "category" or correction.value in categories


def sentences_about(
    corrections: Iterable[Correction], senders: Iterable[str], categories: Container[str]
) -> list[str]:
    """Return the sentences about these senders for a brief."""
    addresses = {address_of(sender) for sender in senders}
    found = latest_corrections(each for each in corrections if each.sender in addresses)
    texts = [each.sentence for each in found if is_applicable(each, categories)]
    return [each for each in texts if each][:MAX_TOLD]


class Corrections:
    """The corrections of one database, by account. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, account: str, thread: str, sender: str, field: str, value: str) -> None:
        """Store a correction, replacing an earlier one of that field of the thread.

        `sender`: as in `MailText.sender`. Raises ValueError for an unknown field or value.
        """
        insert = self._database.upsert(
            mail_corrections, ("account", "thread", "field"), ("sender", "value", "at")
        ).values(
            account=account,
            thread=thread,
            field=field,
            sender=address_of(sender),
            value=_check(field, value),
            at=datetime.now(UTC),
        )
        await self._database.write(insert)

    async def all(self, account: str) -> list[Correction]:
        """Return the account's corrections, newest first."""
        c = mail_corrections.c
        query = sa.select(mail_corrections).where(c.account == account)
        rows = await self._database.read(query.order_by(c.at.desc(), c.thread, c.field))
        return [Correction(r.thread, r.field, r.value, r.sender, r.at) for r in rows]

    async def clear(self, account: str) -> None:
        """Delete all corrections of an account."""
        is_account = mail_corrections.c.account == account
        await self._database.write(sa.delete(mail_corrections).where(is_account))


def _check(field: str, value: str) -> str:
    if field == "category":
        name = printable(value).strip()
        if 0 < len(name) <= MAX_CATEGORY and '"' not in name:
            return name
    elif value == VALUES.get(field):
        return value
    raise ValueError(f"no verdict has a {field} of {value!r}")
