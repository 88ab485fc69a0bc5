"""What a user corrected in digests of mail."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from types import MappingProxyType

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.tables import address_of, mail_corrections
from config.words import phrase
from scopes.clean import printable

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
