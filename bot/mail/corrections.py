"""What a user set right about mails: kept per user, shown, and told to later triages."""

from __future__ import annotations

import json
import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from types import MappingProxyType

import sqlalchemy as sa

from bot.mail.addresses import address_of
from bot.storage.database import Database
from bot.storage.mail_tables import mail_corrections
from scopes.clean import printable
from scopes.tool import iso

VALUES = MappingProxyType({"priority": ("high", "medium", "low"), "asked_of_me": ("true", "false")})
"""Field of a verdict -> what it may be corrected to; a category may be any name."""
MAX_CATEGORY = 60  # characters
MAX_TOLD = 10
"""Sentences of one brief."""

_PLAIN = re.compile(r"[a-z0-9._%+-]{1,64}@[a-z0-9.-]{1,190}")
"""An address that a sentence may name. Others are told nowhere: strangers choose their addresses,
and a quoted one could hold an order."""
_SAYS = MappingProxyType(
    {
        ("priority", "high"): "are urgent",
        ("priority", "medium"): "are of medium priority",
        ("priority", "low"): "are not urgent",
        ("asked_of_me", "true"): "ask something of the reader",
        ("asked_of_me", "false"): "ask nothing of the reader",
    }
)


@dataclass(frozen=True, slots=True)
class Correction:
    """One field of one thread's verdict, as the user says it is."""

    thread: str
    field: str
    """`priority`, `category` or `asked_of_me`."""
    value: str
    sender: str
    """Address of the mails that it holds for, in lower case."""
    at: datetime

    def to_json(self) -> dict[str, str]:
        return {**asdict(self), "at": iso(self.at)}

    @classmethod
    def of(cls, stored: Mapping[str, str]) -> Correction:
        """What `to_json` gave."""
        return cls(**{**stored, "at": datetime.fromisoformat(stored["at"])})  # type: ignore[arg-type]

    @property
    def told(self) -> str:
        """What it says, to the user who said so."""
        says = _SAYS.get((self.field, self.value)) or f'belong to the category "{self.value}"'
        return f"mails from {self.sender} {says}"

    @property
    def sentence(self) -> str:
        """What a brief says of it; empty where the address may not be told."""
        return f"You were corrected before: {self.told}." if _PLAIN.fullmatch(self.sender) else ""


def in_force(corrections: Iterable[Correction]) -> list[Correction]:
    """Of each sender and field the first, which is the newest where they come from
    `Corrections.all`."""
    first: dict[tuple[str, str], Correction] = {}
    for each in corrections:
        first.setdefault((each.sender, each.field), each)
    return list(first.values())


def counts(correction: Correction, categories: Container[str]) -> bool:
    """Whether it can be followed: a category may be no longer among those of the settings."""
    return correction.field != "category" or correction.value in categories


def told_of(
    corrections: Iterable[Correction], senders: Iterable[str], categories: Container[str]
) -> list[str]:
    """What a brief is told of these senders."""
    wanted = {address_of(sender) for sender in senders}
    found = in_force(each for each in corrections if each.sender in wanted)
    told = [each.sentence for each in found if counts(each, categories)]
    return [each for each in told if each][:MAX_TOLD]


def sender_in(body: str) -> str:
    """The address in the stored body of a correction."""
    return str(json.loads(body)["sender"])


class Corrections:
    """The corrections of one database, by account."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def add(self, account: str, thread: str, sender: str, field: str, value: str) -> None:
        """Keep a correction, in place of an earlier one of that field of the thread.

        `sender`: as `MailText.sender` has it. Raises StoreError; a ValueError for a field or a
        value that no verdict has.
        """
        body = {
            "of": [account, thread, field],
            "sender": address_of(sender),
            "value": _checked(field, value),
        }
        row = {
            **{"account": account, "thread": thread, "field": field, "body": json.dumps(body)},
            "at": datetime.now(UTC),
        }
        key, changed = ("account", "thread", "field"), ("body", "at")
        await self._database.write(
            self._database.upsert(mail_corrections, key, changed).values(row)
        )

    async def all(self, account: str) -> list[Correction]:
        """The account's corrections, newest first. Raises StoreError."""
        c = mail_corrections.c
        query = sa.select(mail_corrections).where(c.account == account)
        rows = await self._database.read(query.order_by(c.at.desc(), c.thread, c.field))
        told = [(row, json.loads(row["body"])) for row in rows]
        return [
            Correction(row["thread"], row["field"], body["value"], body["sender"], row["at"])
            for row, body in told
            if body["of"] == [account, row["thread"], row["field"]]  # else it was moved here
        ]

    async def remove(self, account: str, thread: str, field: str) -> bool:
        """Forget one; whether there was one. Raises StoreError."""
        c = mail_corrections.c
        this = sa.and_(c.account == account, c.thread == thread, c.field == field)
        return bool(await self._database.write(sa.delete(mail_corrections).where(this)))

    async def clear(self, account: str) -> None:
        """Forget all of an account's. Raises StoreError."""
        mine = mail_corrections.c.account == account
        await self._database.write(sa.delete(mail_corrections).where(mine))


def _checked(field: str, value: str) -> str:
    if field == "category":
        name = printable(value).strip()
        if 0 < len(name) <= MAX_CATEGORY and '"' not in name:
            return name
    elif value in VALUES.get(field, ()):
        return value
    raise ValueError(f"no verdict has a {field} of {value!r}")
