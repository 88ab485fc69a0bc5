"""Effects of calls on the world, and the arguments that decide whether a call may run.

A tool declares them in its signature; the gate decides by nothing else. `Handles` are what a
context's tools may touch.
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
    REMIND = "remind"  # sends its requester something later
    CHOOSE = "choose"  # asks its requester to choose
    FILE = "file"  # writes into a working folder that its context was given
    POST = "post"  # says something in a conversation
    REACT = "react"  # marks a message
    FETCH = "fetch"  # asks an address
    SEARCH = "search"  # gives words to a service outside
    SEND = "send"  # mails, invites, shares
    INSTRUCT = "instruct"  # decides the form of all answers in a conversation
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
"""Access of a tool -> the effects that it may declare."""


@dataclass(frozen=True, slots=True)
class HandleArgument:
    """Marks an argument whose value names a thing that the caller must hold."""

    kind: str


class Part(StrEnum):
    """Marks an argument by its role in a call that leaves."""

    SAID = "said"  # the text that others will read
    ADDRESS = "address"  # the URL that is asked
    WORDS = "words"  # the words for a service outside
    STATEMENT = "statement"  # SQL
    THREAD = "thread"  # the message that is replied to, besides the channel
    KEPT = "kept"  # a name under which the result is stored, if one is given


@dataclass(frozen=True, slots=True)
class PreparedCall:
    """A call as a person sees it, prepared by the tool before anybody is asked."""

    values: Mapping[str, Any]
    """All arguments as they will run: open ones are filled in, names are ids."""
    facts: Mapping[str, str] = field(default_factory=dict)
    """What follows from them, made by code: shown next to them on the card."""


THREAD: Final = "thread"
"""Kind of a thread in Slack."""
MAIL_THREAD: Final = "mail thread"
"""Kind of a thread in the requester's own mailbox: a tool for it opens no other mailbox."""
OPEN_MAIL: Final = "mail:search"
"""Open handle of a context that may search the whole mailbox of its requester."""
OPEN_WEB: Final = "web:search"
"""Open handle of a context that may search the web."""
READ_WEB: Final = "web:read"
"""Held instead if there is no engine: the context can read addresses and compute."""
NOTES: Final = "notes"
"""Kind of a space of notes and files: the requester's own, a conversation's, the team's."""
OPEN_NOTES: Final = "notes:own"
"""Handle of the requester's own notes and files, for any requester."""
SHEET: Final = "sheet:"
FILES_PREFIX: Final = "files:"
"""Prefixes of the handles of sheets and of folders."""
RUN_FOLDER: Final = "files:run"
"""Handle of the request's own folder."""
OPEN_HANDLES: Final = {MAIL_THREAD: OPEN_MAIL}
"""Kind of thing -> the open handle for all of them."""

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


@dataclass(frozen=True, slots=True)
class Handles:
    """The things that a context's tools may touch; all else does not exist for them.

    `titles` maps an id to the name that people use (`C123` -> `#support-es`). A typed open handle
    (`slack:channels`, `web:search`) has no single thing behind it and maps to an empty name.
    """

    titles: Mapping[str, str] = field(default_factory=dict)
    early: frozenset[str] = frozenset()
    """Addresses among them that a search listed before the context had read more than its task and
    the thread that the request was asked in: no text that was read later can have chosen them."""

    def resolve(self, value: str) -> str | None:
        """Return the id that `value` (an id, a name, or `<id>/<part>`) stands for, or None."""
        if value in self.titles:
            return value
        head, slash, rest = value.partition("/")
        if slash:
            owner = self.resolve(head)
            return f"{owner}/{rest}" if owner and rest else None
        wanted = value.lstrip("#@").casefold()
        hits = [k for k, name in self.titles.items() if name.lstrip("#@").casefold() == wanted]
        return hits[0] if wanted and len(hits) == 1 else None

    def exact(self, value: str) -> str | None:
        """Return the id that `value` (an id or a name) stands for, only if it is itself held."""
        found = self.resolve(value)
        return found if found in self.titles else None

    def in_front(self, path: str, kind: str) -> tuple[str, str]:
        """Return the held thing of a kind in front of a path, as in the ids of a folder's items
        (`book:src/a.py:3`), and the path in it; empty if there is none.
        """
        title, colon, rest = path.partition(":")
        named = self.exact(title) if colon else None
        return (named, rest) if named and named.startswith(kind) else ("", path)

    def ids(self, prefix: str = "") -> list[str]:
        """Return the ids of whole things (not `<id>/<part>`, no open handles) with this prefix."""
        return [k for k in self.titles if k.startswith(prefix) and not set(k) & set(":/")]

    def join(self, titles: Mapping[str, str], *, early: bool = False) -> Handles:
        """Return these with others that were listed; `early`: see the field."""
        added = frozenset(titles) if early else frozenset()
        if titles.keys() <= self.titles.keys() and added <= self.early:
            return self
        return Handles({**self.titles, **titles}, self.early | added)
