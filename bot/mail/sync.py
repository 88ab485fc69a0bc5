"""Which threads a triage has to read: those that got mail since the last one was delivered.

From a cursor Gmail tells the changes; without one, or where its history is too old, the mailbox is
listed. What a triage came to is noted when its digest is delivered, and not before: a crash repeats
the listing. The cursor is taken before anything is listed, so mail that comes in meanwhile is told
the next time, and what was read of it already is known by its ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import astuple, dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Protocol
from uuid import uuid4

from bot.mail.polls import MailPolls, at_most, noticed
from bot.mail.state import Cursor, Handled, MailState, is_incoming
from scopes.google.gmail import HistoryTooOld
from scopes.mail import Changes, MailThread, ThreadRef
from scopes.tool import Window

LIVE = timedelta(hours=1)
"""A window that ended so little ago ends now (a run may wait for its turn); an older one is a look
back, which moves nothing."""
MARGIN = timedelta(days=1)
"""So much of what was read is listed again: two clocks differ, and what was handled is known."""

FIRST = "This is the first triage of this mailbox."
PAST = "This is a look back."
OTHER = "This is another mailbox than at the last triage."
ANEW = "The mailbox's history has begun anew since the last triage."
TOO_OLD = "Gmail no longer knows the changes since the last triage."


class History(Protocol):
    """What is asked of a mailbox: see scopes.google.gmail.Gmail."""

    async def address(self) -> str: ...
    async def history(self) -> str: ...
    async def find(self, query: str = "", limit: int | None = None) -> Sequence[ThreadRef]: ...
    async def changes(self, since: str) -> Changes: ...


@dataclass(frozen=True, slots=True)
class Sync:
    """What a triage has to read, and where the next one goes on once this one is delivered."""

    refs: tuple[ThreadRef, ...]
    """Each thread once: snoozed ones whose time has come, then the newest first, then those that
    the last triage did not come to. Of the first and the last no more than the id is known."""
    cursor: str
    """For MailState.delivered; empty where nothing moves on."""
    full: bool
    """The mailbox was listed, rather than asked for its changes."""
    why: str
    """Why it was listed, in a sentence; empty where it was not."""
    handled: Mapping[str, Handled] = field(default_factory=dict)
    """What was read before of these threads."""
    woken: Set[str] = frozenset()
    """The threads that were snoozed until now."""

    @property
    def threads(self) -> tuple[str, ...]:
        return tuple(ref.id for ref in self.refs)

    def to_json(self) -> dict[str, Any]:
        """For a step: a replay reads what was read."""
        handled = {id: [sorted(h.messages), h.history] for id, h in self.handled.items()}
        return {
            **{"refs": [list(astuple(ref)) for ref in self.refs], "handled": handled},
            **{"cursor": self.cursor, "full": self.full, "why": self.why},
            "woken": sorted(self.woken),
        }

    @classmethod
    def of(cls, stored: Mapping[str, Any]) -> Sync:
        """What `to_json` gave."""
        known = {i: Handled(frozenset(ids), at) for i, (ids, at) in stored["handled"].items()}
        refs = tuple(ThreadRef(*ref) for ref in stored["refs"])
        told = {name: stored[name] for name in ("cursor", "full", "why")}
        return cls(refs, **told, handled=known, woken=frozenset(stored["woken"]))

    def is_new(self, thread: MailThread) -> bool:
        """Whether a thread, read just now, has anything that was not handled.

        A label, a draft or an own reply is nothing new; nor is what came in while the last triage
        ran and was read by it.
        """
        known = self.handled.get(thread.id)
        if known is None or not known.messages or thread.id in self.woken:
            return True
        return any(m.id not in known.messages for m in thread.messages if is_incoming(m))


async def new_threads(
    gmail: History, state: MailState, account: str, query: str, window: Window
) -> Sync:
    """The threads that match the query and got mail in the window or since the last delivery.

    A window that ended more than LIVE ago is listed whole, whatever was handled, and moves no
    cursor. Raises StoreError, and what Gmail raises.
    """
    now = datetime.now(UTC)
    if window.latest < now - LIVE:
        found = await gmail.find(_bounded(query, window.oldest, window.latest))
        return Sync(_once(found), "", True, PAST)
    stored = await state.cursor(account)
    history = await gmail.history()
    reached = Cursor(await gmail.address(), history, now, line=uuid4().hex)
    if why := _begins_anew(stored, reached):
        found = await gmail.find(_bounded(query, window.oldest))
        return Sync(_once(found), reached.to_text(), True, why)
    assert stored, "a mailbox without a cursor begins anew"
    oldest = min(window.oldest, stored.at - MARGIN)
    reached = replace(reached, line=stored.line)
    return await _since(gmail, state, account, stored, reached, _bounded(query, oldest))


async def _since(
    gmail: History, state: MailState, account: str, stored: Cursor, reached: Cursor, query: str
) -> Sync:
    """What came after a cursor, by Gmail's changes or else by what the listing says of threads.

    What was noticed in between is not asked for again: see bot/mail/polling.py.
    """
    woken, owed = await state.awake(account, reached.at), await state.owed(account)
    before = noticed(await MailPolls(state.database).get(account), stored)
    try:
        if before.lost:
            raise HistoryTooOld("Changes were lost between two looks.")
        changes = await gmail.changes(before.history)
    except HistoryTooOld:
        found = await gmail.find(query)
        known = await state.handled(account, {*woken, *owed, *(ref.id for ref in found)})
        listed = [ref for ref in found if not _is_handled(ref, known.get(ref.id))]
        why = TOO_OLD
    else:
        got_mail = {*before.threads, *changes.threads}
        changed = {*got_mail, *stored.unlisted}
        found = await gmail.find(query) if changed else []
        listed = [ref for ref in found if ref.id in changed]
        unlisted = tuple(sorted(got_mail - {ref.id for ref in listed}))
        reached = replace(reached, history=changes.history, unlisted=unlisted)
        known = await state.handled(account, {*woken, *owed, *(ref.id for ref in listed)})
        why = ""
    refs = _once([*map(_unlisted, woken), *listed, *map(_unlisted, owed)])
    handled = {ref.id: known[ref.id] for ref in refs if ref.id in known}
    return Sync(refs, reached.to_text(), bool(why), why, handled, frozenset(woken))


def _begins_anew(stored: Cursor | None, reached: Cursor) -> str:
    """Why what is stored says nothing of this mailbox; empty where it does."""
    if stored is None:
        return FIRST
    if stored.mailbox != reached.mailbox:
        return OTHER
    return "" if at_most(stored.history, reached.history) else ANEW


def _is_handled(ref: ThreadRef, handled: Handled | None) -> bool:
    """Whether a listed thread did not change since it was read."""
    return bool(handled and handled.messages and at_most(ref.history, handled.history))


def _bounded(query: str, oldest: datetime, latest: datetime | None = None) -> str:
    """The query for `[oldest, latest)`; Gmail takes seconds since 1970."""
    parts = [f"({query})"] if query else []
    parts.append(f"after:{max(0, int(oldest.timestamp()))}")
    parts += [f"before:{int(latest.timestamp())}"] if latest else []
    return " ".join(parts)


def _unlisted(thread: str) -> ThreadRef:
    return ThreadRef(thread, "", "")


def _once(refs: Iterable[ThreadRef]) -> tuple[ThreadRef, ...]:
    first: dict[str, ThreadRef] = {}
    for ref in refs:
        first.setdefault(ref.id, ref)
    return tuple(first.values())
