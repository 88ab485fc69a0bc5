"""What the offline mind as a parent writes from look-ups and subagents' views."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from bot.local.mind.earlier import said_in
from bot.local.mind.hearing import Exchange, Heard
from bot.local.mind.phrases import OFFLINE, phrase
from bot.local.mind.talk import say
from bot.local.mind.views import STATES, View, first_things, parse_views, section_lines

DELEGATING = ("run_subagent", "run_subagents")
MAX_LINES = 12
"""Most findings of one question that an answer tells; the rest is counted."""
MIN_LINES = 3
"""Findings that each of many channels may tell, however many there are."""


COUNTED = "counted by:"
"""Stands before the statement by which a subagent has counted."""


@dataclass(frozen=True)
class Section:
    """What an answer says to one question, or of one channel."""

    head: str
    lines: tuple[str, ...]


def written(sections: Sequence[Section], heard: Heard, language: str) -> str:
    """The answer: every statement with its finding; a head for each section where there are more.

    Views of an earlier session of the request come first.
    """
    earlier = [view for text in heard.told for view in parse_views(text)]
    parts = ["\n".join(lines_of(earlier, language, MAX_LINES))] if earlier else []
    for section in sections:
        lines = section.lines or (() if earlier else (phrase(language, "no_source"),))
        if lines:
            parts.append("\n".join([*([section.head] if len(sections) > 1 else []), *lines]))
    return "\n\n".join([*parts, OFFLINE])


def lines_of(views: Iterable[View], language: str, most: int) -> tuple[str, ...]:
    """Views as the lines of a section, each citing its finding."""
    return tuple(line for view in views for line in section_lines(view, language, most))


def told_of(views: Sequence[View], language: str) -> tuple[str, ...]:
    """What came back of a question about anything but Slack: its findings, else its text."""
    lines: list[str] = []
    for view in views:
        if view.findings or view.status in ("failed", "cancelled", "refused", "unknown"):
            lines += section_lines(view, language, MAX_LINES)
            lines += [_bare(view)] if COUNTED in view.text else []
        else:
            lines.append(_bare(view))
    return tuple(lines)


def _bare(view: View) -> str:
    return view.text.replace(OFFLINE, "").strip()


def about_channel(name: str, views: Sequence[View], language: str, share: int) -> Section:
    """The section of one of `share` channels, with its counts."""
    tally = _tally(views, language)
    most = max(MIN_LINES, MAX_LINES // share)
    head = f"**{name}** ({tally}):" if tally else f"**{name}**:"
    return Section(head, lines_of(views, language, most))


def swept(views: Mapping[str, Sequence[View]], language: str) -> Section:
    """What to do first over all channels that were swept, and how many issues each has."""
    first = first_things(views.items(), language)
    lines = [say(language, "first"), *(f"- {line} {cited}" for line, cited in first), ""]
    for name, own in views.items():
        failed = [view for view in own if view.status in ("failed", "cancelled", "refused")]
        tally = "".join(lines_of(failed, language, 1)) or _tally(own, language)
        lines.append(f"- {name}: {tally or phrase(language, 'found_none')}")
    return Section("", tuple(lines if first else lines[2:]))


def _tally(views: Sequence[View], language: str) -> str:
    """How many findings there are of each state; views that have no room for all say so."""
    states = Counter(finding.state for view in views for finding in view.findings)
    counts = [f"{states[s]} {say(language, s)}" for s in STATES if states[s]]
    more = sum(view.left_out for view in views)
    return ", ".join([*counts, *([f"+{more}"] if more else [])])


def views_of(task: str, title: str, heard: Heard, language: str) -> list[View]:
    """The views that a task came back with; one that fails where it was not even begun."""
    told = [e for e in heard.exchanges if e.name in DELEGATING and e.input.get("task") == task]
    return [view for exchange in told for view in _views(exchange, title, language)]


def _views(exchange: Exchange, title: str, language: str) -> list[View]:
    if exchange.is_error and "refused, handles" in exchange.text:
        return [View("unknown", say(language, "unknown", title))]
    return parse_views(exchange.text) or [View("failed", exchange.text)]


def views_by_item(heard: Heard) -> dict[str, list[View]]:
    """The views of a task that was run over many items, by item."""
    found: dict[str, list[View]] = {}
    for exchange in heard.exchanges:
        if exchange.name == "run_subagents":
            views = parse_views(exchange.text)
            for item, view in zip(exchange.input["items"], views, strict=False):
                found[item] = [view]
    return found


def shown(exchange: Exchange, language: str) -> str:
    """What a look-up returned, for people to read."""
    if exchange.name == "read_thread" and (said := said_in(exchange.text, language)):
        return "\n".join(said)
    lines = [line for line in exchange.text.splitlines() if not re.match(r"^</?items-", line)]
    return "\n".join(re.sub(r"^(\s*)\[[^\]]+\] ", r"\1- ", line) for line in lines)
