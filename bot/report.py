"""Documents as people read them in a terminal: a thread as it would look in Slack."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bot.cite import CITED, ids_in
from scopes.tool import one_line
from subagents.contracts import NEEDS_ACTION
from subagents.evidence import distinct

WIDTH = 92
DOTS = {"high": "●", "medium": "◐", "low": "○"}
WAITING_SHOWN = 3
"""Findings that need no action now which a section lists; the rest is counted."""

Json = Mapping[str, Any]


def sweep_text(doc: Json) -> str:
    """A sweep's report: what to do first, a section a channel, coverage and cost."""
    window = doc["window"]
    days = f"{_day(window['oldest'])} to {_day(window['latest'])}"
    lines = [f"Customer issues in {_count(len(doc['sections']), 'channel')}, {days}", ""]
    if doc["model"] == "offline":
        lines += [*_wrapped(OFFLINE, ""), ""]
    lines += ["DO FIRST"] if doc["top_lines"] else []
    for number, line in enumerate(doc["top_lines"], 1):
        cited = " ".join(f"[{i}]" for i in line["findings"])
        counts = f"{_count(line['customers'], 'customer')}, {_count(line['messages'], 'message')}"
        lines += _wrapped(f"{number}. {line['text']} ({counts}) {cited}", "   ")
        lines += [f"   {link}" for link in line["links"][:2]]
    for each in doc["sections"]:
        lines += ["", *_section(each)]
    return "\n".join([*lines, "", *_foot(doc)])


OFFLINE = (
    "Written by the offline stand-in: fixed rules, not a language model. "
    "Set ANTHROPIC_API_KEY and use --model claude for the real one."
)


def _section(section: Json) -> Iterator[str]:
    cover, findings = section["coverage"], section["findings"]
    open_ones = [f for f in findings if f["state"] in NEEDS_ACTION]
    rest = [f for f in findings if f["state"] in ("waiting", "solved")]
    named = distinct(name for f in open_ones for name in f["customers"])
    people = len(named) + sum(f["people"] for f in open_ones if not f["customers"])
    yield f"#{section['item']}  " + "─" * max(4, WIDTH - len(section["item"]) - 3)
    whole = "" if section["status"] == "complete" else f"  ({section['status'].upper()})"
    found = f"{_count(len(open_ones), 'open issue')} of {_count(people, 'customer')} · "
    yield (
        f"{found if findings or not whole else ''}"  # nothing found in what was not read is no news
        f"{_count(cover['messages_read'], 'message')} in "
        f"{_count(cover['threads_read'], 'thread')} read{whole}"
    )
    if not findings or section["status"] != "complete":
        yield from _wrapped(section["summary"], "")
    for finding in open_ones:
        yield from _finding(finding)
    for finding in rest[:WAITING_SHOWN]:
        yield from _wrapped(f"  · {finding['state']}: {finding['claim']} [{finding['id']}]", "    ")
    if len(rest) > WAITING_SHOWN:
        left = len(rest) - WAITING_SHOWN
        yield f"  · and {left} more that wait for the customer or are solved"


def _finding(finding: Json) -> Iterator[str]:
    since = f", since {_day(finding['since'])}" if finding.get("since") else ""
    who = f" ({', '.join(finding['customers'][:4])}{'…' if finding['customers'][4:] else ''})"
    yield from _wrapped(
        f"{DOTS[finding['severity']]} {finding['state'].upper()} {finding['claim']} — "
        f"{_count(finding['people'], 'customer')}{who if finding['customers'] else ''}, "
        f"{_count(finding['messages'], 'message')}{since} [{finding['id']}]",
        "  ",
    )
    if finding["next_step"]:
        said = finding["next_step"].startswith(finding["owner"])
        owner = "" if said else f"{finding['owner']}: "
        yield from _wrapped(f"  → {owner}{finding['next_step']}", "    ")
    if finding["links"]:
        more = f" (+{len(finding['links']) - 1})" if finding["links"][1:] else ""
        yield f"    {finding['links'][0]}{more}"


def ask_text(doc: Json) -> str:
    """An answer with its citations as numbers, and the sources that they stand for."""
    numbers: dict[str, int] = {}

    def number(match: re.Match[str]) -> str:
        cited = [i for i in ids_in(match.group()) if doc["links"].get(i)]
        return "".join(f"[{numbers.setdefault(i, len(numbers) + 1)}]" for i in cited)

    text = CITED.sub(number, doc["answer"])
    lines = [line for part in text.splitlines() for line in _wrapped(part, "")]
    if numbers:
        lines += ["", "Sources"]
        lines += [f"[{n}] {doc['links'][i][0]}" for i, n in numbers.items()]
    if doc["degraded"]:
        lines += ["", "One context read everything here: isolation is advisory for this answer."]
    return "\n".join([*lines, "", *_foot(doc)])


def _foot(doc: Json) -> Iterator[str]:
    cover = doc["coverage"]
    ended = ", ".join(
        f"{cover[s]} {s}"
        for s in ("complete", "partial", "failed", "cancelled", "refused")
        if cover[s]
    )
    what = _count(cover["items"], "channel" if doc["kind"] == "sweep" else "subagent")
    usage, cost = doc["usage"], doc["cost_usd"]
    price = "price unknown" if cost is None else f"${cost:.4f}"
    if doc["model"] == "offline":
        price += " at the models' list prices; nothing was paid"
    statement = ""
    if doc["kind"] == "ask":
        statement = f" · {doc['cited']} of {len(doc['statements'])} statements cited"
    yield f"Coverage: {what}" + (f", {ended}" if ended else "") + statement
    for each in cover["not_covered"][:10]:
        yield from _wrapped(f"  not covered: {one_line(each)}", "    ")
    if cover["not_covered"][10:]:
        yield f"  not covered: and {len(cover['not_covered']) - 10} more (see --json)"
    if doc["unsupported"]:
        yield f"Dropped because no source carries it: {doc['unsupported']}"
    yield f"Cost: {price} · {usage['total']:,} tokens · run {doc['run_id']}"


def run_text(run: Json, subagents: Sequence[Json]) -> str:
    """One stored run: its subagents and how they ended, then its result."""
    lines = [
        f"run {run['id']}  {run['kind']}  {run['status']}  {run['started']}",
        f"asked: {run['question']}",
        "",
    ]
    for each in subagents:
        result = each["result"] or {}
        why = f" ({result.get('reason')})" if result.get("reason") else ""
        lines += _wrapped(
            f"{each['id']} {each['status']}/{each['stopped_by']}{why} · {each['template']} · "
            f"{result.get('steps', 0)} model calls, {len(result.get('tool_calls', []))} tool "
            f"calls, {len(result.get('findings', []))} findings · {each['brief']['description']}",
            "    ",
        )
    return "\n".join(lines)


UNPRINTABLE = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Characters that steer a terminal, or turn the order of what it shows."""


def printable(text: str) -> str:
    """A text that may hold what strangers wrote, safe to print."""
    return UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)


def _wrapped(text: str, indent: str) -> list[str]:
    return textwrap.wrap(
        text, WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    ) or [""]


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _day(at: str) -> str:
    return f"{datetime.fromisoformat(at):%d %b %Y}".lstrip("0")
