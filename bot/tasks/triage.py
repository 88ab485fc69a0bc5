"""Triage a mailbox: read its threads, brief one subagent for each, write the digest."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime
from typing import Any

from bot.mailbox.corrections import Correction, sentences_about
from bot.mailbox.sync import HandledMail, Sync, message_ids
from bot.reports.documents import (
    EarlierDigest,
    FilteredThread,
    Gap,
    Period,
    RunCoverage,
    ThreadVerdict,
    TriageReport,
    UnreadableThread,
)
from bot.storage.tables import address_of
from bot.tasks.base import Opening, ReportTask, count_statuses, label_of
from bot.tasks.overview import TriageLines, by_urgency, read_triage_lines, urgency, verdict_text
from bot.tasks.prefilter import why_automatic
from config.prompts import prompt
from config.words import current, phrase
from scopes.effects import Handles
from scopes.google.errors import GoogleAbsent, GoogleError
from scopes.google.gmail import Gmail
from scopes.label import Label
from scopes.mail import MailThread, ThreadRef, item_of, link_of
from scopes.tool import Item, Window, estimate_tokens, iso
from subagents.brief import Brief, BriefDraft
from subagents.contracts import TriageVerdict
from subagents.result import SubagentResult, verdict
from subagents.summary import parent_view
from subagents.trajectory import Origin

log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Reader:
    """The owner of a mailbox, and the day on which it is read."""

    owner: str
    """Who may read the results: a Slack user id, or the address at the command line."""
    address: str
    today: date


def mailbox_label(owner: str) -> Label:
    """Return the label of the mailbox: only its owner may learn even that it has nothing new."""
    return Label(True, frozenset({owner}), frozenset({"mail:inbox"}), outside=True)


UNCHANGED_FILTER = "filter.unchanged"
FILE = "in:anywhere"
"""Query for a file: everything, so that each message is accounted for."""
INBOX = "{in:inbox in:spam}"
"""Query for an account; spam is counted but no model sees it."""
_GMAIL_BEGAN = datetime(2004, 4, 1, tzinfo=UTC)


def query_of(where: str, window: Window) -> str:
    """Return the Gmail query for the threads in a place with a message in the window."""
    oldest, latest = (int(at.timestamp()) for at in (window.oldest, window.latest))
    after = f" after:{oldest}" if window.oldest > _GMAIL_BEGAN else ""
    return f"{where}{after} before:{latest}"


async def all_threads(gmail: Gmail, window: Window) -> Sync:
    """Return every thread of a mailbox that is read from a file. Raises GoogleError."""
    found = await gmail.find(query_of(FILE, window))
    return Sync(tuple(found), "")


@dataclass(frozen=True, slots=True)
class ThreadRead:
    """A thread of the mailbox, and how it is handled."""

    id: str
    subject: str
    sender: str = ""
    """The last writer: `Name <address>`; a draft does not count."""
    at: datetime | None = None
    """Time of that message, UTC."""
    link: str = ""
    flags: tuple[str, ...] = ()
    senders: tuple[str, ...] = ()
    """The other writers, the last one last: corrections by the reader apply to their mails."""
    items: tuple[Item, ...] = ()
    """Its messages, oldest first; empty for a thread that no model may see."""
    history: str = ""
    """History id of the mailbox when the thread last changed."""
    seen: tuple[str, ...] = ()
    """Ids of all its messages."""
    filtered: str = ""
    """Why no model may see it; empty if one may."""
    fault: str = ""
    """Why it could not be read; empty if it was read."""
    lasting: bool = False
    """True if it cannot be read later either."""

    @property
    def is_open(self) -> bool:
        """Return whether a subagent must read it."""
        return not (self.filtered or self.fault)


def thread_read(thread: MailThread, reader: Reader, filtered: str) -> ThreadRead:
    """Return the data of a thread; its text only if a model may read it."""
    sent = [m for m in thread.messages if "DRAFT" not in m.labels]
    last, opens = (sent or thread.messages)[-1], thread.messages[0].item_id
    faults = [m.fault for m in thread.messages]
    fault = "; ".join(dict.fromkeys(faults)) if all(faults) else ""
    items = [item_of(m, reader.owner, reader.address, opens) for m in thread.messages]
    latest = dict.fromkeys(m.text.sender for m in reversed(thread.messages))
    return ThreadRead(
        id=thread.id,
        subject=thread.subject,
        sender=last.text.sender,
        at=last.at,
        link=link_of(last.id, reader.address),
        flags=tuple(sorted({flag for m in thread.messages for flag in m.text.flags})),
        senders=tuple(s for s in reversed(latest) if address_of(s) != reader.address.lower()),
        items=() if filtered else tuple(items),
        history=thread.history,
        seen=tuple(message_ids(thread)),
        filtered=filtered,
        fault="" if filtered else fault,
        lasting=all(m.text.fault for m in thread.messages),
    )


def unread(ref: ThreadRef, fault: str) -> ThreadRead:
    """Return a thread that could not be fetched."""
    return ThreadRead(ref.id, ref.snippet[:80] or "(unknown)", history=ref.history, fault=fault)


OTHER = "other"
"""The category of a thread if its category is not configured."""


def verdict_of(
    thread: ThreadRead, result: SubagentResult, categories: Sequence[str]
) -> ThreadVerdict:
    """Return the verdict; its category is a configured one, compared without case, else `other`,
    else the last one."""
    value = TriageVerdict.model_validate(result.value)
    by_name = {name.casefold(): name for name in categories}
    finding = result.findings[0] if result.findings else None
    return ThreadVerdict(
        thread_id=thread.id,
        subject=thread.subject,
        sender=thread.sender,
        writer=thread.senders[-1] if thread.senders else "",
        at=iso(thread.at) if thread.at else None,
        link=thread.link,
        messages=len(thread.items),
        category=by_name.get(value.category.strip().casefold())
        or by_name.get(OTHER)
        or categories[-1],
        priority=value.priority,
        deadline=value.deadline or None,
        asked_of_me=value.asked_of_me,
        key_facts=value.key_facts,
        proposed_action=value.proposed_action,
        draft_reply=value.draft_reply or None,
        evidence=finding.evidence if finding else [],
        flags=list(thread.flags),
        not_read=[item.gap() for item in thread.items if item.unread],
        finding=finding.id if finding else None,
        subagent=result.id,
        status=result.status,
    )


def unreadable(thread: ThreadRead, result: SubagentResult | None) -> UnreadableThread:
    """Return why a thread has no verdict, in words for its reader."""
    why = thread.fault or f"ended.{result.stopped_by if result else 'time'}"
    reason = phrase(why) if current().has(why) else thread.fault or phrase(NOT_JUDGED)
    return UnreadableThread(thread_id=thread.id, subject=thread.subject, reason=reason)


GONE, CRASHED, NOT_JUDGED = "lost.gone", "lost.crashed", "lost.not_judged"
"""Keys of why a thread has no verdict."""
AT_ONCE = 16
"""Threads that are fetched together, and whose subagents then start together."""
MIN_VIEW = 150
"""Minimum tokens of a verdict for its parent; if not all fit, urgent ones win."""


@dataclass
class Triage(ReportTask[TriageReport]):
    """One running triage."""

    kind = "triage"
    prompt = "digest_lines"
    gmail: Gmail
    reader: Reader
    listing: Callable[[], Awaitable[Sync]]
    """Returns the threads to read."""
    limit: int | None = None
    """Maximum number of threads that subagents read; None = all."""
    corrections: Sequence[Correction] = ()
    """Earlier corrections by the reader."""
    account: str = ""
    """The stored account of the mailbox; empty = its reader."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.lines = TriageLines()
        self.results: dict[str, SubagentResult] = {}
        """Id of a thread -> its subagent's result."""
        self.looked: list[ThreadRead] = []
        self.sync = Sync((), "")

    async def record_delivery(self, report: TriageReport) -> None:
        if self.app.mail:
            await self.app.mail.record_delivery(self.handled_mail())

    def handled_mail(self) -> HandledMail:
        """Return the data to record once the digest is delivered."""
        account = self.account or self.reader.owner
        done = (t for t in self.looked if t.filtered or t.fault == GONE or t.lasting)
        handled = [*done, *(t for t in self.looked if self._value(t))]
        threads = {t.id: list(t.seen) for t in handled}
        remaining = [ref.id for ref in self.sync.refs if ref.id not in threads]
        return HandledMail(
            account=account,
            run=self.run.id,
            cursor=self.sync.cursor,
            threads=threads,
            left=remaining,
        )

    async def make(self) -> TriageReport:
        async with self.reserve():
            await self._read()
            await self._overview()
        return self._document()

    async def _read(self) -> None:
        key = f"{self.run.id}/{self.context}/threads"
        self.sync = await self.run.once(key, Sync, self.listing)
        rest = list(self.sync.refs)
        remaining, stopped = self.limit or len(rest), False
        async with asyncio.TaskGroup() as group:
            while rest and remaining > 0 and not stopped:
                some, rest = rest[:AT_ONCE], rest[AT_ONCE:]
                start = len(self.looked)
                found, stopped = await self._fetch_all(some, len(self.sync.refs) - len(rest))
                for each in found:  # the step holds all of it, the digest names filtered threads
                    items = [(item.id, item.author) for item in each.items]
                    self.run.sink.saw(self.run.id, [(each.id, each.sender or None), *items])
                    if remaining > 0:
                        self.looked.append(each)
                        remaining -= each.is_open
                group.create_task(self._judge([t for t in self.looked[start:] if t.is_open]))

    async def _fetch_all(
        self, refs: Sequence[ThreadRef], number: int
    ) -> tuple[list[ThreadRead], bool]:
        """Fetch these threads; return them, and whether the user stopped the run."""

        async def read() -> tuple[list[ThreadRead], bool]:
            return await asyncio.gather(*map(self._fetch, refs)), bool(self.run.stop)

        key = f"{self.run.id}/{self.context}/threads/{number}"
        return await self.run.once(key, tuple[list[ThreadRead], bool], read)

    async def _fetch(self, ref: ThreadRef) -> ThreadRead:
        try:
            thread = await self.gmail.thread(ref.id)
            why = why_automatic(thread, self.reader.address) or ""
            return thread_read(
                thread, self.reader, why if self.sync.is_new(thread) else UNCHANGED_FILTER
            )
        except GoogleAbsent:
            return unread(ref, GONE)
        except GoogleError as error:
            return unread(ref, str(error))
        except Exception:  # boundary: one malformed thread must not harm the others
            log.exception("reading the thread %s of %s crashed", ref.id, self.run.id)
            return unread(ref, CRASHED)

    async def _judge(self, threads: Sequence[ThreadRead]) -> None:
        briefs = {thread.id: self._brief(thread) for thread in threads}
        results = await self.fanout.run_all(list(briefs.values()))
        self.results |= dict(zip(briefs, results, strict=True))

    def _brief(self, thread: ThreadRead) -> Brief:
        """Return the brief of one thread, with its text if that fits, else the thread to read."""
        settings, items = self.app.settings.triage, thread.items
        fits = sum(estimate_tokens(i.line()) for i in items) <= self.run.limits.max_material_tokens
        titles = {} if fits else {thread.id: "the thread"}
        corrected = sentences_about(self.corrections, thread.senders, settings.categories)
        categories = (f"\n- {name}: {when}" for name, when in settings.categories.items())
        today = f"Today is {self.reader.today:%A %Y-%m-%d}."
        draft = BriefDraft(
            task=prompt("triage_task"),
            description=f"Triage {thread.subject or '(no subject)'}"[:120],
            scope="email",
            contract="triage",
            known=" ".join([f"The reader is {self.reader.address}.", today, *corrected]),
            output="category is one of:" + "".join(categories),
            handles=tuple(titles),
        )
        return Brief(
            draft,
            Handles(titles),
            None,
            label_of(items),
            self.language,
            material=items if fits else (),
            expects={thread.id: tuple(i.id for i in items)},
            requester=self.run.requester,
        )

    async def _overview(self) -> None:
        """Write the first steps and the topics; by the model, else by code."""
        read = {t.id: r for t in self.looked if (r := self.results.get(t.id)) and r.findings}
        results, threads = list(read.values()), {r.findings[0].id: id for id, r in read.items()}
        if not results:
            return
        shown, cap = self.choose_views(results, urgency, MIN_VIEW)
        text = await self.write(self._opening_parts(shown, cap, len(results)), shown)
        verdicts = {r.findings[0].id: verdict_text(v) for r in results if (v := verdict(r))}
        self.lines = read_triage_lines(text, verdicts, threads)
        self.lines.first = self.lines.first or by_urgency(results, threads)

    def _opening_parts(
        self, shown: Sequence[SubagentResult], cap: int, count: int
    ) -> list[Opening]:
        head = f"TRIAGE of {count} threads. TODAY: {self.reader.today:%A %Y-%m-%d}"
        if count > len(shown):
            head += f" ({len(shown)} of them are shown, the most urgent)"
        return [
            (f"{head}\nLANGUAGE: {self.language}", Origin.REQUEST, ""),
            *((parent_view(r, cap), Origin.VIEW, r.id) for r in shown),
            ("WRITE: digest lines", Origin.REQUEST, ""),
        ]

    def _document(self) -> TriageReport:
        threads, lines, results = self.looked, self.lines, self.fanout.own
        judged = [t for t in threads if t.is_open and self._value(t) is not None]
        undone = [t for t in threads if not t.filtered and t not in judged]
        names = tuple(self.app.settings.triage.categories)
        verdicts = [verdict_of(t, self.results[t.id], names) for t in judged]
        without_verdict = [unreadable(t, self.results.get(t.id)) for t in undone]
        window, coverage = self.request.window, self._coverage(results, without_verdict)
        whole = not (without_verdict or any(verdict.not_read for verdict in verdicts))
        unsupported = sum(len(r.unsupported) for r in results) + lines.dropped
        return TriageReport(
            **self.shared_fields() | {"unsupported": unsupported},
            status=self.status(whole, bool(verdicts), coverage),
            mailbox=self.reader.address,
            window=Period(oldest=iso(window.oldest), latest=iso(window.latest)),
            coverage=coverage,
            top_lines=lines.first,
            matters=lines.matters,
            verdicts=verdicts,
            filtered=[
                FilteredThread(
                    thread_id=t.id, subject=t.subject, sender=t.sender, reason=phrase(t.filtered)
                )
                for t in threads
                if t.filtered
            ],
            unreadable=without_verdict,
            unchanged_since=self._last_digest_if_unchanged(),
            zone=self.request.requester.clock().key,
        )

    def _last_digest_if_unchanged(self) -> EarlierDigest | None:
        """Return the last digest if no thread has a newer message."""
        last, remaining = self.sync.last, len(self.sync.refs) - len(self.looked)
        if last is None or remaining or any(t.filtered != UNCHANGED_FILTER for t in self.looked):
            return None
        return EarlierDigest(run_id=last.run, at=iso(last.at))

    @property
    def label(self) -> Label:
        return super().label.join(mailbox_label(self.reader.owner))

    def _value(self, thread: ThreadRead) -> dict[str, Any] | None:
        result = self.results.get(thread.id)
        return result.value if result else None

    def _coverage(
        self, results: Sequence[SubagentResult], without_verdict: Sequence[UnreadableThread]
    ) -> RunCoverage:
        missing = [each.gap for each in without_verdict]
        missing += [
            Gap(source=t.subject or phrase("digest.no_subject"), subagent=r.id, reason=each)
            for t in self.looked
            if (r := self.results.get(t.id)) and r.value is not None
            for each in r.not_covered
        ]
        by_limit, remaining = 0, len(self.sync.refs) - len(self.looked)
        if remaining and self.run.stop:
            reason = phrase("digest.left_by_stop", n=remaining)
            missing.append(Gap(reason=reason, stopped_by="user"))
        elif remaining:
            missing.append(
                Gap(reason=phrase("digest.left_by_limit", n=remaining, limit=self.limit))
            )
            by_limit = 1
        missing += self.problems()
        found = count_statuses([r.status for r in results], missing)
        unreached = remaining if self.run.stop else None
        return found.model_copy(update={"left_out": by_limit, "unreached": unreached})
