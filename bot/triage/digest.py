"""A triage as people read it: what comes first, what belongs together, each thread in one place."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import count as counting
from typing import Any

from bot.mail.words import Due, Sender, age, count, due, said, sender
from bot.replies.prose import address
from bot.triage import digest_foot
from bot.triage.digest_order import first_lines, ordered

MAIL = "https://mail.google.com/"
"""What the only links of a digest begin with."""
FIRST, MATTER, FACT, ACTION, DRAFT, REASON = 400, 300, 260, 200, 280, 200
SUBJECT, WARNING, CATEGORY = 100, 100, 60
"""Characters shown of each."""
MOST_NAMED = 6
"""Numbers of threads beside a thing to do first."""
MOST_WARNINGS = 5
MOST_SENDERS = 12
"""Senders that are named for one reason to filter; of the others the number is told."""
MOST_UNREAD = 20
"""Threads that are named for one reason why they could not be read."""
ENDED = {
    "partial": "This digest is not complete; what is missing stands at its end.",
    "cancelled": "Stopped as asked. This is what there was until then.",
    "failed": "This triage failed; what it still has to say follows.",
}

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One thread as the digest tells it."""

    number: int
    """Its place in the digest, from 1; by it the things to do first name it."""
    id: str
    sender: Sender
    subject: str
    fact: str
    """The first key fact; the subject where there is none."""
    facts: str
    """As many of them as are told of what presses; empty where there is none."""
    action: str
    draft: str
    """How a proposed reply begins; empty where there is none."""
    age: str
    """How long ago its last mail came."""
    due: Due | None
    category: str
    priority: str
    """`high`, `medium` or `low`."""
    asked: bool
    """Something is asked of the reader."""
    warnings: tuple[str, ...]
    link: str
    """To Gmail; empty where the document has none that is Gmail's."""

    @property
    def who(self) -> str:
        """The sender of what can wait: the domain is told where something is wrong."""
        return self.sender.full if self.warnings else self.sender.plain


@dataclass(frozen=True, slots=True)
class Group:
    """Threads that are one matter, or a thread by itself."""

    matter: str
    """Empty for a thread by itself."""
    lines: tuple[Line, ...]

    @property
    def told(self) -> str:
        """The matter, and which lines it takes."""
        return f"{self.matter} (threads {self.lines[0].number} to {self.lines[-1].number})"


@dataclass(frozen=True, slots=True)
class First:
    """One thing to do first."""

    text: str
    lines: tuple[Line, ...]
    """The threads that it is about, in their order."""

    @property
    def named(self) -> tuple[tuple[str, Line], ...]:
        """What is named beside it: of threads in a row the first and the last, and what is between
        two that are named."""
        runs: list[list[Line]] = []
        for line in self.lines:
            if runs and line.number == runs[-1][-1].number + 1:
                runs[-1].append(line)
            else:
                runs.append([line])
        ends = [(" ", run[0]) for run in runs] + [
            (" to " if run[2:] else " ", run[-1]) for run in runs if run[1:]
        ]
        return tuple(sorted(ends, key=lambda end: end[1].number)[:MOST_NAMED])

    @property
    def more(self) -> str:
        """How many threads come after those."""
        last = self.named[-1][1].number if self.lines else 0
        more = sum(line.number > last for line in self.lines)
        return f" and {more} more" if more else ""


@dataclass(frozen=True, slots=True)
class Filtered:
    """Threads that no model saw, for one reason."""

    reason: str
    threads: tuple[str, ...]
    senders: tuple[tuple[str, int], ...]
    """Name and number of threads, the most frequent first; the subject for the owner's own mail."""

    @property
    def told(self) -> str:
        shown = self.senders[:MOST_SENDERS]
        named = ", ".join(f"{name} ({many})" if many > 1 else name for name, many in shown)
        return f"{self.reason} ({len(self.threads):,}): {named}{_more(self.senders, shown)}"


@dataclass(frozen=True, slots=True)
class Unread:
    """Threads that could not be read, for one reason."""

    reason: str
    threads: tuple[tuple[str, str], ...]
    """Id and subject."""

    @property
    def told(self) -> str:
        shown = self.threads[:MOST_UNREAD]
        named = "; ".join(subject for _, subject in shown)
        return f"{self.reason} ({len(self.threads):,}): {named}{_more(self.threads, shown)}"


def _more(all: Sequence[Any], shown: Sequence[Any]) -> str:
    more = len(all) - len(shown)
    return f" and {more:,} more" if more else ""


@dataclass(frozen=True, slots=True)
class Digest:
    title: str
    period: str
    """Empty where there is no window."""
    summary: str
    """How many threads there are of each kind."""
    ended: str
    """Why it is not whole; empty where it is."""
    offline: bool
    first: tuple[First, ...]
    pressing: tuple[Group, ...]
    """Asked of the reader, urgent, or to be done first."""
    categories: tuple[tuple[str, tuple[Line, ...]], ...]
    matters: tuple[Group, ...]
    """Matters of several threads of which none is pressing."""
    filtered: tuple[Filtered, ...]
    unread: tuple[Unread, ...]
    not_covered: tuple[str, ...]
    coverage: str
    cost: str


def digest_of(document: Json, categories: Iterable[str] = ()) -> Digest:
    """The document of a triage, its threads numbered in the order in which they are read.

    `categories` are told in this order, others after them.
    """
    now = datetime.fromisoformat(document["as_of"]).astimezone(UTC)
    order, numbers, owner = ordered(document, categories), counting(1), document["mailbox"]

    def told(verdicts: Iterable[Json]) -> tuple[Line, ...]:
        return tuple(_line(verdict, next(numbers), now, owner) for verdict in verdicts)

    pressing = tuple(Group(said(m, MATTER), told(v)) for m, v in order.pressing)
    by_name = tuple((said(name, CATEGORY), told(v)) for name, v in order.categories)
    matters = tuple(Group(said(m, MATTER), told(v)) for m, v in order.matters)
    known = {line.id: line for group in (*pressing, *matters) for line in group.lines}
    return Digest(
        title=f"Mail triage for {said(document['mailbox'], 100)}",
        period=digest_foot.period(document),
        summary=summary(document),
        ended=ENDED.get(document["status"], ""),
        offline=document["model"] == "offline",
        first=tuple(_first(document, known)),
        pressing=pressing,
        categories=by_name,
        matters=matters,
        filtered=tuple(_filtered(document["filtered"], owner)),
        unread=tuple(_unread(document["unreadable"])),
        not_covered=tuple(said(each, REASON) for each in document["coverage"]["not_covered"]),
        coverage=digest_foot.coverage(document),
        cost=digest_foot.cost(document),
    )


def summary(document: Json) -> str:
    """One line, of numbers alone: it may stand where a text is read as markup."""
    pressing = sum(len(verdicts) for _, verdicts in ordered(document).pressing)
    read, left_out = len(document["verdicts"]), len(document["filtered"])
    unread = len(document["unreadable"])
    first = "ask for you or are urgent" if pressing > 1 else "asks for you or is urgent"
    parts = [f"{pressing or 'none'} {first}"] if read else []
    parts += [f"{read - pressing:,} can wait"] if read > pressing else []
    parts += [f"{left_out:,} filtered"] if left_out else []
    parts += [f"{unread:,} could not be read"] if unread else []
    told = ", ".join(parts)
    return f"{count(read + left_out + unread, 'thread')}: {told}." if told else "No threads."


# ---- lines


def _line(verdict: Json, number: int, now: datetime, owner: str) -> Line:
    link = address(verdict["link"] or "")
    facts = list(filter(None, (said(each, FACT) for each in verdict["key_facts"])))
    return Line(
        number=number,
        id=verdict["thread_id"],
        sender=sender(verdict["sender"], owner),
        subject=said(verdict["subject"], SUBJECT),
        fact=facts[0] if facts else said(verdict["subject"], SUBJECT),
        facts=said(" · ".join(facts), FACT),
        action=said(verdict["proposed_action"], ACTION),
        draft=said(verdict["draft_reply"], DRAFT),
        age=age(verdict["at"], now),
        due=due(verdict["deadline"], now.date()),
        category=said(verdict["category"], CATEGORY),
        priority=verdict["priority"],
        asked=verdict["asked_of_me"],
        warnings=tuple(_warnings(verdict))[:MOST_WARNINGS],
        link=link if link.startswith(MAIL) else "",
    )


def _warnings(verdict: Json) -> Iterator[str]:
    status = verdict["status"]
    if status != "complete":
        yield "read in part" if status == "partial" else f"not read to its end ({status})"
    yield from (said(f"not read: {each}", WARNING) for each in verdict.get("not_read", ()))
    yield from (said(flag, WARNING) for flag in verdict["flags"])


def _first(document: Json, lines: Mapping[str, Line]) -> Iterator[First]:
    for each in first_lines(document):
        about = [lines[i] for i in dict.fromkeys(each["threads"]) if i in lines]
        about.sort(key=lambda line: line.number)
        yield First(said(each["text"], FIRST), tuple(about))


def _filtered(filtered: Sequence[Json], owner: str) -> Iterator[Filtered]:
    for reason, _ in Counter(each["reason"] for each in filtered).most_common():
        these = [each for each in filtered if each["reason"] == reason]
        senders = Counter(_from(each, owner) for each in these)
        ids = tuple(each["thread_id"] for each in these)
        yield Filtered(said(reason, REASON), ids, tuple(senders.most_common()))


def _from(filtered: Json, owner: str) -> str:
    """The sender; of one's own mail the subject."""
    found = sender(filtered["sender"], owner)
    own = found.address == owner.lower()
    return said(filtered["subject"], SUBJECT) or "(no subject)" if own else found.plain


def _unread(unreadable: Sequence[Json]) -> Iterator[Unread]:
    for reason in dict.fromkeys(each["reason"] for each in unreadable):
        these = [each for each in unreadable if each["reason"] == reason]
        told = tuple((e["thread_id"], said(e["subject"], SUBJECT) or "(no subject)") for e in these)
        yield Unread(said(reason, REASON), told)
