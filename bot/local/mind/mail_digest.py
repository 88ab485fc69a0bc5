"""The offline mind over a digest: what to do first, and which threads are one matter."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, timedelta

from bot.local.mind.cues import fold, language_of
from bot.local.mind.grouping import keys_in
from bot.local.mind.hearing import Heard
from bot.local.mind.mail_cues import topics
from bot.local.mind.mail_said import MARK, act, say
from bot.local.mind.phrases import OFFLINE
from bot.local.mind.views import parse_views

FIRST = 3
"""Most lines on what to do first."""
_DUE = re.compile(r"(?:^|\| )due (\d{4}-\d\d-\d\d)(?= \||$)")
_VERDICT = re.compile(r"\[(?P<id>F\d+\.\d+)\] (?P<rest>.*)")
_STEP = re.compile(r"(?:^|\| )next: ([^|]*)")
_FACT = re.compile(r"\(fact1\) (.*?)(?: \(fact2\) |$)")
_SAID = re.compile(r"due \d|next: ")
ASKED = "asked of the reader"
_TODAY = re.compile(r"TODAY: \w+ (\d{4}-\d\d-\d\d)")
_BAD = frozenset({"outage", "twice"})
"""Topics that say what is wrong: without one of them threads share no matter."""
_NEAR = timedelta(3)
LEVELS = ("high", "medium", "low")


@dataclass(frozen=True)
class Told:
    """What a view tells of one thread."""

    id: str
    claim: str
    step: str
    """The proposed action; empty where the view has no room for it."""
    level: str
    """high, medium or low; empty where it is not told."""
    due: date
    """`date.max` where there is no deadline."""
    asked: bool

    @property
    def text(self) -> str:
        return f"{self.claim} {self.step.removesuffix(MARK)}"


def is_digest(heard: Heard) -> bool:
    """Whether this asks for the lines of a digest."""
    return heard.opening[-1].strip() == "WRITE: digest lines"


def digest_lines(heard: Heard) -> str:
    """At most three lines on what to do first, then a line `SAME:` for each matter, all cited."""
    language = heard.section("LANGUAGE") or "en"
    found = [each for text in heard.opening for each in _told(text)]
    matters = _matters(found)
    told = _TODAY.search(heard.opening[0])
    today = date.fromisoformat(told[1]) if told else date.min
    lines = [f"- {step} {cited}" for step, cited in _first(found, matters, today, language)]
    if lines:
        head, _, cited = lines[-1].rpartition(" [")
        lines[-1] = f"{head} {OFFLINE} [{cited}"
    else:
        lines = [f"{say(language, 'none')} {OFFLINE}"]
    titles = [_title(each, language) for each in matters]
    same = [
        f"SAME: {say(language, 'same', title)} {_cited(each)}"
        for title, each in zip(titles, matters, strict=True)
    ]
    return "\n".join([*lines, *same])


def _told(text: str) -> Iterator[Told]:
    """The threads that a block shows: `[F1.1] customer | high | (fact1) ... | next: ...`."""
    for view in parse_views(text):
        found = _VERDICT.match(view.text)
        if not found:
            continue
        parts = found["rest"].split(" | ")
        due, step = _DUE.search(found["rest"]), _STEP.search(found["rest"])
        facts = [p for p in parts[1:] if p not in (*LEVELS, ASKED) and not _SAID.match(p)]
        first = _FACT.match(facts[0]) if facts else None
        yield Told(
            id=found["id"],
            claim=first[1] if first else facts[0] if facts else parts[0],
            step=step[1].strip() if step else "",
            level=next((part for part in parts[:2] if part in LEVELS), ""),
            due=date.fromisoformat(due[1]) if due else date.max,
            asked=ASKED in parts[:4],
        )


def _first(
    found: Sequence[Told],
    matters: Sequence[Sequence[Told]],
    today: date,
    language: str,
) -> list[tuple[str, str]]:
    """The acts that come first, each with what it rests on; a matter is told once."""
    shared = {f.id: matter for matter in matters for f in matter}
    acts = sorted(
        (each for each in found if _act(each, language)),
        key=lambda each: _rank(each, len(shared.get(each.id, ())), today),
    )
    lines: list[tuple[str, str]] = []
    told: set[str] = set()
    for each in acts:
        if each.id in told or len(lines) == FIRST:
            continue
        alike = shared.get(each.id, [each])
        told |= {f.id for f in alike}
        cited = [each, *(f for f in alike if f is not each)]
        lines.append((_act(each, language), _cited(cited)))
    return lines


def _act(told: Told, language: str) -> str:
    """What the reader is to do about it; empty where it is nothing."""
    if not told.step.strip("-"):
        return say(language, "look", told.claim.rstrip(" .")) if told.asked else ""
    return act(told.step, language)


def _rank(told: Told, shared: int, today: date) -> tuple[int, date, int, str]:
    """What comes first: high, due soon or an outage; then the earlier date, the larger matter."""
    soon = abs(told.due - today) <= _NEAR
    grave = "outage" in topics(told.text)
    height = LEVELS.index(told.level) if told.level else int(not (soon or grave))
    return height, told.due if soon else date.max, -shared, told.id


def _matters(found: Sequence[Told]) -> list[list[Told]]:
    """Findings of one matter together, each with at least two of them."""
    signs = [(keys_in(f.text), topics(f.text)) for f in found]
    matters: list[list[int]] = []
    for at, sign in enumerate(signs):
        homes = [m for m in matters if any(_alike(sign, signs[other]) for other in m)]
        matters = [m for m in matters if m not in homes]
        matters.append([*(other for home in homes for other in home), at])
    return [[found[at] for at in sorted(m)] for m in sorted(matters) if len(m) > 1]


def _alike(
    one: tuple[frozenset[tuple[str, str]], frozenset[str]],
    two: tuple[frozenset[tuple[str, str]], frozenset[str]],
) -> bool:
    """A shared ticket, or two shared topics of which one is what is wrong."""
    shared = one[1] & two[1]
    return bool(one[0] & two[0]) or (len(shared) > 1 and bool(shared & _BAD))


def _title(matter: Sequence[Told], language: str) -> str:
    """The shortest claim, one in the language of the report before others."""
    claims = [f.claim.rstrip(" .") for f in matter]
    unlike = "en" if language != "en" else "sv"  # what a text is taken for that tells nothing
    read = [claim for claim in claims if language_of(fold(claim), unlike) == language]
    return min(read or claims, key=len)


def _cited(findings: Sequence[Told]) -> str:
    return "".join(f"[{finding.id}]" for finding in findings)
