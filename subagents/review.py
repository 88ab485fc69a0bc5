"""Check what a specialist of a panel submits: its places and quotes are in the material."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from scopes.tool import Item
from subagents.contracts import ReviewContract, ReviewFinding, VerdictsContract
from subagents.evidence import SourceLog, normal, occurs

_LINE = re.compile(r"(?P<path>.+):(?P<line>\d{1,7})")
SHORT = 60
"""Characters of a text that a fault repeats."""


def item_at(place: str, items: Mapping[str, Item]) -> Item | None:
    """Return the item with this id, or the part of a file that this line stands in."""
    place = place.strip().strip("[]")
    if place in items:
        return items[place]
    found = _LINE.fullmatch(place)
    if not found:
        return None
    line, before = int(found["line"]), None
    for item in items.values():
        at = _LINE.fullmatch(item.id)
        if at and at["path"] == found["path"] and int(at["line"]) <= line:
            before = item if before is None or _first(item) > _first(before) else before
    return before if before and line < _first(before) + before.text.count("\n") + 1 else None


def _first(item: Item) -> int:
    return int(item.id.rpartition(":")[2])


def quotes_in(finding: ReviewFinding, items: Mapping[str, Item]) -> list[str]:
    """Return the quotes that the material holds, those of the place first."""
    own = item_at(finding.place, items)
    text = normal(own.text) if own else ""
    here = [q for q in finding.quotes if own and occurs(q, text)]
    if len(here) == len(finding.quotes):  # the usual case: the rest of the material is not read
        return here
    texts = [normal(item.text) for item in items.values()]
    return here + [q for q in finding.quotes if q not in here and any(occurs(q, t) for t in texts)]


def review_faults(value: ReviewContract, reading: SourceLog) -> Iterator[str]:
    """Yield what is wrong with the form of findings, each with the number that they were given."""
    seen = set[str]()
    for number, each in enumerate(value.points, 1):
        name = each.id or f"number {number}"
        if not each.id or each.id in seen:
            yield f"Finding {name}: it has no id of its own."
        seen.add(each.id)
        if reading.asked and each.category not in reading.asked:
            yield f"Finding {name}: category {each.category[:SHORT]!r} is none of CATEGORIES."
        if fault := _unsupported(each, reading.items):
            yield f"Finding {name}: {fault}."


def _unsupported(each: ReviewFinding, items: Mapping[str, Item]) -> str:
    """Return why the material does not carry a finding; empty if it does."""
    if item_at(each.place, items) is None:
        return f"place {each.place[:SHORT]!r} is no [id] of MATERIAL"
    if not each.quotes:
        return "it has no quote"
    if not quotes_in(each, items):
        return f"{each.quotes[0][:SHORT]!r} is not in MATERIAL"
    return "" if each.claim.strip() else "it claims nothing"


def supported_points(value: ReviewContract, reading: SourceLog) -> tuple[ReviewContract, list[str]]:
    """Return the findings that the material carries, with ids of items as places; and what was
    dropped, in words."""
    kept, dropped = [], []
    for number, each in enumerate(value.points, 1):
        fault = _unsupported(each, reading.items)
        if not fault and reading.asked and each.category not in reading.asked:
            fault = f"category {each.category[:SHORT]!r} is none that it may have"
        item = item_at(each.place, reading.items)
        if fault or item is None:
            dropped.append(f"finding {number}: {fault}")
            continue
        quotes = quotes_in(each, reading.items)
        lost = [quote for quote in each.quotes if quote not in quotes]
        dropped += [f"finding {number}: {q[:SHORT]!r} is in nothing that was read" for q in lost]
        kept.append(each.model_copy(update={"place": item.id, "quotes": quotes}))
    return value.model_copy(update={"points": kept}), dropped


NEEDS_EVIDENCE = ("confirm", "refute", "weaken")


def verdict_faults(value: VerdictsContract, reading: SourceLog) -> Iterator[str]:
    """Yield what is wrong with the form of verdicts: ids, one for each finding, evidence."""
    given = [each.finding for each in value.verdicts]
    if unknown := [id for id in given if id not in reading.asked]:
        yield f"Not to be judged: {', '.join(unknown)[:200]}."
    if twice := sorted({id for id in given if given.count(id) > 1}):
        yield f"Judged twice: {', '.join(twice)}."
    if missing := [id for id in reading.asked if id not in given]:
        yield f"Without a verdict: {', '.join(missing)}."
    texts = [normal(item.text) for item in reading.items.values()]
    for each in value.verdicts:
        shown = any(occurs(each.evidence, text) for text in texts)
        if each.verdict in NEEDS_EVIDENCE and not shown:
            yield f"{each.finding}: its evidence is no passage of MATERIAL."
