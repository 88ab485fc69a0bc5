"""What a call does to the world, and which of its arguments decide whether it may.

A tool declares it in its signature; the gate decides by nothing else.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Annotated, Any, Final


class Access(StrEnum):
    """The kind of access that a call needs; the gate decides by it."""

    READ = "read"
    WRITE = "write"  # the requester's own things: a note, a draft, a label
    EGRESS = "egress"  # leaves: post, send, fetch, push


class Effect(StrEnum):
    """The kind of action of a call; each kind has rules of its own."""

    NONE = "none"  # reads what its handles name
    QUERY = "query"  # reads by a statement of its own (SQL)
    CODE = "code"  # runs code
    KEEP = "keep"  # stores something of the requester's own
    DRAFT = "draft"  # prepares what its requester sends outside with one click
    PREFER = "prefer"  # decides how its requester is answered from now on
    REMIND = "remind"  # tells its requester something later
    CHOOSE = "choose"  # asks its requester to choose
    FILE = "file"  # writes into a working folder that its context was given
    POST = "post"  # says something in a conversation
    REACT = "react"  # marks a message
    FETCH = "fetch"  # asks an address
    SEARCH = "search"  # gives words to a service outside
    SEND = "send"  # mails, invites, shares
    INSTRUCT = "instruct"  # decides how all who ask in a conversation are answered
    CHANGE = "change"  # changes what others rely on: a sheet, a calendar, a branch


EFFECTS: dict[Access, frozenset[Effect]] = {
    Access.READ: frozenset({Effect.NONE, Effect.QUERY, Effect.CODE}),
    Access.WRITE: frozenset(
        {Effect.KEEP, Effect.DRAFT, Effect.FILE} | {Effect.PREFER, Effect.REMIND, Effect.CHOOSE}
    ),
    Access.EGRESS: frozenset(
        {Effect.POST, Effect.REACT, Effect.FETCH, Effect.SEARCH, Effect.SEND}
        | {Effect.INSTRUCT, Effect.CHANGE}
    ),
}
"""Which effects a tool of each access may declare."""


@dataclass(frozen=True, slots=True)
class HandleArgument:
    """Marks an argument whose value names a thing that the caller must hold."""

    kind: str


class Part(StrEnum):
    """Marks an argument by the part that it plays in a call that leaves."""

    SAID = "said"  # the text that others will read
    ADDRESS = "address"  # the URL that is asked
    WORDS = "words"  # what a service outside is asked
    STATEMENT = "statement"  # SQL
    THREAD = "thread"  # the message that is replied to, besides the channel
    KEPT = "kept"  # a name under which the result is stored, where one is given


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call as it is put before a person: looked into by the tool, before anybody is asked."""

    values: Mapping[str, Any]
    """All arguments as they will run: what was left open is filled in, names are ids."""
    told: Mapping[str, str] = field(default_factory=dict)
    """What follows from them, made by code: stands beside them on the card."""


THREAD: Final = "thread"
"""Kind of a thread in Slack."""
MAIL_THREAD: Final = "mail thread"
"""Kind of a thread in the requester's own mailbox: what opens it opens no other mailbox."""
OPEN_MAIL: Final = "mail:search"
"""Open handle of a context that may search the whole mailbox of its requester."""
OPEN_WEB: Final = "web:search"
"""Open handle of a context that may search the web."""
READ_WEB: Final = "web:read"
"""Held instead where there is no engine: of a context that reads addresses and computes."""
NOTES: Final = "notes"
"""Kind of a space of notes and files: the requester's own, a conversation's, the team's."""
OPEN_NOTES: Final = "notes:own"
"""Handle of what is the requester's own, whoever that is."""
SHEET: Final = "sheet:"
PROJECT: Final = "files:"
"""What handles of sheets and of folders begin with."""
RUN_FOLDER: Final = "files:run"
"""Handle of the request's own folder."""
WHOLE: Final = {MAIL_THREAD: OPEN_MAIL}
"""Kind of thing -> the open handle that stands for all of them."""

Channel = Annotated[str, HandleArgument("channel")]
Thread = Annotated[str, HandleArgument(THREAD)]
ListId = Annotated[str, HandleArgument("list")]
MailThreadId = Annotated[str, HandleArgument(MAIL_THREAD)]
FolderId = Annotated[str, HandleArgument("folder")]
Person = Annotated[str, HandleArgument("person")]
Said = Annotated[str, Part.SAID]
Address = Annotated[str, Part.ADDRESS]
Words = Annotated[str, Part.WORDS]
Statement = Annotated[str, Part.STATEMENT]
Kept = Annotated[str, Part.KEPT]
