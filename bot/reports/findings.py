"""One finding of a sweep as its readers are told of it."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bot.cli.report import DOTS
from bot.mail.words import said
from bot.replies.prose import address
from bot.reports.marks import NAME, mark, owner, tracked
from bot.reports.words import Words
from subagents.contracts import NEEDS_ACTION

SLACK = re.compile(r"https://[a-z0-9.-]{1,100}\.slack(?:-gov)?\.com/[A-Za-z0-9/_.?=&-]{1,200}")
"""The only links of a report."""
CLAIM, QUOTE, REASON, STEP = 300, 260, 200, 260
"""Characters shown of each."""
MOST_NAMED = 4
"""Customers that are named; of the others the number is told."""
MOST_QUOTES = 2
RESTING = ("waiting", "solved")
NOTHING = "–"
"""Stands for a text that shows nothing."""
DONE = "✓"
"""Stands in place of the dot where nothing is left to do."""

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Told:
    """One finding."""

    number: int
    """Its place in the report, from 1; by it the first lines name it."""
    dot: str
    mark: str
    """What became of it since the last report; empty where nothing is compared."""
    state: str
    claim: str
    quotes: tuple[str, ...]
    customers: str
    """Empty where none is named."""
    extent: str
    """How many messages, since when."""
    why: str
    """Why it is as severe as it is; empty where it is not told."""
    owner: str
    step: str
    """Empty where there is none."""
    tracker: str
    """Empty where no tracker was read."""
    tracker_link: str
    link: str
    """To its thread; empty where the document has none that is Slack's."""
    market: str

    @property
    def head(self) -> str:
        """What stands before the claim: its dot and number, what is new, how it stands."""
        return " ".join(filter(None, (self.dot, f"{self.number}.", self.mark)))


@dataclass(frozen=True, slots=True)
class Quiet:
    """An issue that is still open although the window shows nothing of it."""

    dot: str
    market: str
    claim: str
    age: str
    state: str
    owner: str
    link: str


def is_open(finding: Json) -> bool:
    """Whether the team must act on it."""
    return finding["state"] in NEEDS_ACTION


def told(finding: Json, number: int, market: str, words: Words) -> Told:
    """The finding in the words of its readers."""
    reason = said(finding.get("severity_reason"), REASON)
    why = words("why", severity=words(finding["severity"]), reason=reason) if reason else ""
    return Told(
        number=number,
        dot=DONE if finding["state"] == "solved" else DOTS[finding["severity"]],
        mark=mark(finding, words),
        state=words(finding["state"]) if finding["state"] != "none" else "",
        claim=said(finding["claim"], CLAIM) or NOTHING,
        quotes=_quotes(finding.get("quotes") or ()),
        customers=customers(finding, words),
        extent=extent(finding, words),
        why=why,
        owner=owner(finding, words),
        step=said(finding["next_step"], STEP),
        tracker=tracked(finding, words),
        tracker_link=linked([(finding.get("tracker") or {}).get("link")]),
        link=linked(finding["links"]),
        market=market,
    )


def quiet(issue: Json, words: Words) -> Quiet:
    """An issue of `still_open` in the words of its readers."""
    return Quiet(
        dot=DOTS[issue["severity"]],
        market=said(issue["item"], NAME),
        claim=said(issue["claim"], CLAIM) or NOTHING,
        age=words("days", n=issue["age_days"]),
        state=words(issue["state"]),
        owner=owner(issue, words),
        link=linked(issue["links"]),
    )


def linked(links: Sequence[object]) -> str:
    """The first of the links, if it is Slack's; nothing else is a link in a report."""
    first = address(str(links[0] or "")) if links else ""
    return first if SLACK.fullmatch(first) else ""


def customers(finding: Json, words: Words, most: int = MOST_NAMED) -> str:
    """The first customers by name, and how many there are beyond them."""
    named = [said(name, NAME) for name in finding["customers"]]
    more = len(named) - most
    return ", ".join(named[:most]) + (f" {words('more', n=more)}" if more > 0 else "")


def extent(finding: Json, words: Words) -> str:
    """How much was said of it, and since when."""
    since = finding.get("since")
    parts = [] if finding["customers"] else [words("customers", n=finding["people"])]
    parts.append(words("messages", n=finding["messages"]))
    parts += [words("since", day=words.day(since))] if since else []
    return " · ".join(parts)


def _quotes(quotes: Sequence[object]) -> tuple[str, ...]:
    return tuple(filter(None, (said(each, QUOTE) for each in quotes[:MOST_QUOTES])))
