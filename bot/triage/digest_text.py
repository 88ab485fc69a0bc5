"""A digest in a terminal: the first ten lines say what to do, each thread takes two."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bot.cli.report import DOTS, OFFLINE, WIDTH
from bot.triage.digest import Digest, First, Group, Line, digest_of

MOST_GAPS = 10
WHO = 28
"""Characters of the name of who wrote what can wait."""
INDENT = " " * 6


def digest_text(document: Mapping[str, Any], categories: Iterable[str] = ()) -> str:
    """The document of a triage as text; `categories` is the order in which they are told."""
    digest = digest_of(document, categories)
    return "\n".join([*_head(digest), *_body(digest), *_foot(digest)])


def _head(digest: Digest) -> Iterator[str]:
    yield from _wrapped(digest.title + (f", {digest.period}" if digest.period else ""))
    yield from _wrapped(digest.summary)
    if digest.ended:
        yield from _wrapped(digest.ended)
    if digest.offline:
        yield from ["", *_wrapped(OFFLINE)]
    if digest.first:
        yield from ["", "DO FIRST"]
    for number, first in enumerate(digest.first, 1):
        yield from _wrapped(f"{number}. {first.text}{_numbers(first)}", "   ")


def _body(digest: Digest) -> Iterator[str]:
    if digest.pressing:
        yield from _title("Asked of you, or urgent", sum(len(g.lines) for g in digest.pressing))
    for number, group in enumerate(digest.pressing):
        yield from [""] if number else []
        yield from _pressing(group)
    for name, lines in digest.categories:
        yield from _title(name, len(lines))
        for line in lines:
            yield from _resting(line)
    if digest.matters:
        yield from _title("Several threads, one matter", sum(len(g.lines) for g in digest.matters))
    for group in digest.matters:
        yield from _wrapped(f"  {group.told}", "  ")
        for line in group.lines:
            yield from _resting(line)


def _numbers(first: First) -> str:
    return "".join(f"{space}[{line.number}]" for space, line in first.named) + first.more


def _pressing(group: Group) -> Iterator[str]:
    if group.matter:
        yield from _wrapped(group.told)
    for line in group.lines:
        head = f"{DOTS[line.priority]} {line.number:>2}  {line.sender.full}"
        yield _cut(f"{head}: {line.subject}" if line.subject else head)
        state = [line.due.told] if line.due else []
        state += ["asks you"] if line.asked else []
        yield from _indented("", " · ".join([*state, line.age]))
        for warning in line.warnings:
            yield from _indented("⚠ ", warning)
        yield from _indented("", line.facts, 2)
        yield from _indented("→ ", line.action, 2)
        yield from _indented("✎ ", line.draft, 1)
        if line.link:
            yield f"{INDENT}{line.link}"


def _indented(mark: str, text: str, most: int | None = None) -> list[str]:
    """The text below its thread on at most so many lines; nothing where there is none."""
    return _wrapped(f"{INDENT}{mark}{text}", INDENT + " " * len(mark), most) if text else []


def _resting(line: Line) -> Iterator[str]:
    """A thread that can wait, on two lines at most."""
    warned = f" · ⚠ {'; '.join(line.warnings)}" if line.warnings else ""
    trusted = line.who == line.sender.name
    who = _cut(line.who, WHO) if trusted else line.who
    yield _cut(f"{line.number:>4}  {who} · {line.age}{warned} · {line.fact}")
    todo = [line.due.told] if line.due else []
    todo += [f"→ {line.action}"] if line.action else []
    if todo:
        yield _cut(f"{INDENT}{'. '.join(todo)}")


def _foot(digest: Digest) -> Iterator[str]:
    if digest.filtered:
        yield from _title(
            "Filtered, not shown to a model", sum(len(f.threads) for f in digest.filtered)
        )
    for each in digest.filtered:
        yield from _wrapped(each.told, "  ")
    if digest.unread:
        yield from _title("Could not be read", sum(len(u.threads) for u in digest.unread))
    for unread in digest.unread:
        yield from _wrapped(unread.told, "  ")
    links = [line for _, lines in digest.categories for line in lines if line.link]
    links += [line for group in digest.matters for line in group.lines if line.link]
    if links:
        yield from _title("To open what can wait", len(links))
        yield from (f"{line.number:>4}  {line.link}" for line in sorted(links, key=_number))
    yield from ["", *_wrapped(f"Coverage: {digest.coverage}", "  ")]
    for gap in digest.not_covered[:MOST_GAPS]:
        yield from _wrapped(f"  not covered: {gap}", "    ")
    if (more := len(digest.not_covered) - MOST_GAPS) > 0:
        yield f"  not covered: and {more:,} more (see --json)"
    yield from _wrapped(f"Cost: {digest.cost}", "  ")


def _number(line: Line) -> int:
    return line.number


def _title(words: str, number: int) -> list[str]:
    said = f"{words.upper()} ({number:,}) "
    return ["", said + "─" * max(4, WIDTH - len(said))]


def _cut(text: str, most: int = WIDTH) -> str:
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


def _wrapped(text: str, indent: str = "", most: int | None = None) -> list[str]:
    return textwrap.wrap(
        text,
        WIDTH,
        subsequent_indent=indent,
        break_on_hyphens=False,
        max_lines=most,
        placeholder=" …",
    ) or [""]
