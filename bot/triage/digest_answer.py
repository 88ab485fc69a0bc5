"""A triage as an answer in Slack: Markdown whose citations code turns into links to the mails."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from bot.replies.cite import SPACED
from bot.triage.digest import Digest, Filtered, Group, Line, Unread, digest_of

OTHERS = 30
"""Threads by category that one answer tells; of the rest the number is told."""


def digest_answer(document: Mapping[str, Any], categories: Iterable[str] = ()) -> str:
    """The digest, each thread once, with `[F1.1]` where its verdict can be looked up."""
    digest = digest_of(document, categories)
    cited = {v["thread_id"]: v["finding"] for v in document["verdicts"] if v["finding"]}
    return "\n".join(_lines(digest, cited)).strip()


def _lines(digest: Digest, cited: Mapping[str, str]) -> Iterator[str]:
    yield digest.summary
    if digest.ended:
        yield f"_{digest.ended}_"
    yield from _headed("To do first", _first(digest, cited))
    yield from _headed("Asked of you, or urgent", _groups(digest.pressing, cited))
    room = OTHERS
    for name, lines in digest.categories:
        shown, room = lines[:room], max(0, room - len(lines))
        more = [f"- and {len(lines) - len(shown)} more"] if lines[len(shown) :] else []
        told = [*(_line(line, cited) for line in shown), *more]
        yield from _headed(f"{name} ({len(lines)})", told)
    yield from _headed("One matter", _groups(digest.matters, cited))
    yield from _headed("Not read: automatic, or your own", _told(digest.filtered))
    yield from _headed("Could not be read", _told(digest.unread))


def _headed(title: str, lines: Iterable[str]) -> Iterator[str]:
    """The lines under a heading; nothing where there are none."""
    if found := list(lines):
        yield f"\n**{title}**"
        yield from found


def _first(digest: Digest, cited: Mapping[str, str]) -> Iterator[str]:
    for number, first in enumerate(digest.first, 1):
        marks = "".join(f" [{cited[line.id]}]" for line in first.lines if line.id in cited)
        yield f"{number}. {first.text}{marks}"


def _told(groups: Iterable[Filtered | Unread]) -> Iterator[str]:
    return (f"- {each.told}" for each in groups)


def _groups(groups: Iterable[Group], cited: Mapping[str, str]) -> Iterator[str]:
    for group in groups:
        yield from _group(group, cited)


def _group(group: Group, cited: Mapping[str, str]) -> Iterator[str]:
    if group.matter:
        yield f"- **{group.matter}**"
    yield from (_line(line, cited, "  " if group.matter else "") for line in group.lines)


def _line(line: Line, cited: Mapping[str, str], indent: str = "") -> str:
    due = f" · **{line.due.words}**" if line.due else ""
    warned = "".join(f" · ⚠ {warning}" for warning in line.warnings)
    mark = f" [{cited[line.id]}]" if line.id in cited else ""
    told = f"{line.fact} → {line.action}" if line.action else line.fact
    said = SPACED.sub("", told)  # only code cites
    return f"{indent}- **{line.who}** · {line.age}{due} · {said}{mark}{warned}"
