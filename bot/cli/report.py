"""Documents as people read them in a terminal: a thread as it would look in Slack."""

from __future__ import annotations

import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from bot.replies.cite import CITED, ids_in
from bot.reports.figures import figures_of
from bot.reports.marks import mark, tracked
from bot.reports.words import words_of
from scopes.sizes import size_of
from scopes.tool import one_line
from subagents.contracts import NEEDS_ACTION
from subagents.evidence import distinct

WIDTH = 92
DOTS = {"high": "●", "medium": "◐", "low": "○"}
WAITING_SHOWN = 3
"""Findings that need no action now which a section lists; the rest is counted."""
WITHOUT_NEWS_SHOWN = 20

Json = Mapping[str, Any]


def sweep_text(doc: Json) -> str:
    """A sweep's report: what to do first, a section a channel, coverage and cost."""
    window, title = doc["window"], f"{doc['title']}: " if doc.get("title") else ""
    days = f"{_day(window['oldest'])} to {_day(window['latest'])}"
    issues = "customer issues" if title else "Customer issues"
    lines = _wrapped(f"{title}{issues} in {_count(len(doc['sections']), 'channel')}, {days}", "")
    lines += _wrapped(figures_of(doc).line(words_of("en")), "") if doc.get("compared") else []
    lines += [""]
    if doc["model"] == "offline":
        lines += [*_wrapped(OFFLINE, ""), ""]
    lines += ["DO FIRST"] if doc["top_lines"] else []
    for number, line in enumerate(doc["top_lines"], 1):
        counts = f"{_count(line['customers'], 'customer')}, {_count(line['messages'], 'message')}"
        lines += _wrapped(f"{number}. {line['text']} ({counts}) {_cited(line)}", "   ")
        lines += [f"   {link}" for link in line["links"][:2]]
    lines += _beside(doc)
    for each in doc["sections"]:
        old = sum(issue["item"] == each["item"] for issue in doc.get("still_open") or ())
        lines += ["", *_section(each, bool(doc.get("compared")), old)]
    return "\n".join([*lines, *_without_news(doc), "", *_foot(doc)])


def _cited(line: Json) -> str:
    return " ".join(f"[{id}]" for id in line["findings"])


def _beside(doc: Json) -> Iterator[str]:
    """What is to be known beside the issues: patterns, the tracker, which channels are new."""
    patterns, tracker = doc.get("patterns") or (), doc.get("tracker")
    yield from ("", "PATTERNS") if patterns else ()
    for line in patterns:
        named = ", ".join(f"#{name}" for name in line["markets"])
        markets = f" ({named})" if any(name not in line["text"] for name in line["markets"]) else ""
        yield from _wrapped(f"· {line['text']}{markets} {_cited(line)}", "  ")
    notes = [_tracker(tracker)] if tracker else []
    for key, named in (("channels_added", "New channels"), ("channels_gone", "No longer there")):
        names = doc.get(key) or ()
        notes += [f"{named}: {', '.join(f'#{name}' for name in names)}"] if names else []
    notes += [one_line(note) for note in doc.get("notes") or ()]
    yield from ("", "TO KNOW") if notes else ()
    for note in notes:
        yield from _wrapped(f"· {note}", "  ")


def _tracker(tracker: Json) -> str:
    why = f" ({tracker['reason']})" if tracker["reason"] else ""
    name = f"Tracker ({tracker['title']})" if tracker["title"] else "Tracker"
    if tracker["status"] not in ("complete", "partial"):
        return f"{name}: could not be read{why}"
    counts = (f"{tracker[key]:,} {said}" for key, said in _TRACKED)
    part = f"; read in part{why}" if tracker["status"] == "partial" else ""
    return f"{name}: {', '.join(counts)}{part}"


_TRACKED = (
    ("untracked", "not in it"),
    ("tracked", "in it"),
    ("closed", "closed in it but still reported"),
)


def _without_news(doc: Json) -> Iterator[str]:
    issues = doc.get("still_open") or ()
    yield from ("", "STILL OPEN, NO NEWS IN THIS WINDOW") if issues else ()
    for issue in issues[:WITHOUT_NEWS_SHOWN]:
        head = f"{DOTS[issue['severity']]} #{issue['item']} · {_count(issue['age_days'], 'day')}"
        owner = f" — {issue['owner'] or 'nobody'}"
        yield from _wrapped(f"{head} · {issue['state']}: {issue['claim']}{owner}", "  ")
        yield from (f"  {link}" for link in issue["links"][:1])
    if more := len(issues[WITHOUT_NEWS_SHOWN:]):
        yield f"and {more} more (see --json)"


OFFLINE = (
    "Written by the offline stand-in: fixed rules, not a language model. "
    "Set ANTHROPIC_API_KEY and use --model claude for the real one."
)


def _section(section: Json, compared: bool, old: int) -> Iterator[str]:
    """`old`: how many issues of it are still open without news."""
    cover, findings = section["coverage"], section["findings"]
    open_ones = [f for f in findings if f["state"] in NEEDS_ACTION]
    rest = [f for f in findings if f["state"] in ("waiting", "solved")]
    named = distinct(name for f in open_ones for name in f["customers"])
    people = len(named) + sum(f["people"] for f in open_ones if not f["customers"])
    yield f"#{section['item']}  " + "─" * max(4, WIDTH - len(section["item"]) - 3)
    whole = "" if section["status"] == "complete" else f"  ({section['status'].upper()})"
    found = f"{_count(len(open_ones), 'open issue')} of {_count(people, 'customer')} · "
    found += f"{old:,} more without news · " if old else ""
    yield (
        f"{found if findings or not whole else ''}"  # nothing found in what was not read is no news
        f"{_count(cover['messages_read'], 'message')} in "
        f"{_count(cover['threads_read'], 'thread')} read{whole}"
    )
    if not findings or section["status"] != "complete":
        yield from _wrapped(section["summary"], "")
    for finding in open_ones:
        yield from _finding(finding, compared)
    for finding in rest[:WAITING_SHOWN]:
        told = f"{_news(finding, compared)}{finding['state']}: {finding['claim']}"
        yield from _wrapped(f"  · {told} [{finding['id']}]", "    ")
    if len(rest) > WAITING_SHOWN:
        left = len(rest) - WAITING_SHOWN
        yield f"  · and {left} more that wait for the customer or are solved"


def _finding(finding: Json, compared: bool) -> Iterator[str]:
    since = f", since {_day(finding['since'])}" if finding.get("since") else ""
    who = f" ({', '.join(finding['customers'][:4])}{'…' if finding['customers'][4:] else ''})"
    yield from _wrapped(
        f"{DOTS[finding['severity']]} {_news(finding, compared)}{finding['state'].upper()} "
        f"{finding['claim']} — "
        f"{_count(finding['people'], 'customer')}{who if finding['customers'] else ''}, "
        f"{_count(finding['messages'], 'message')}{since} [{finding['id']}]",
        "  ",
    )
    yield from _step(finding)
    if reason := finding.get("severity_reason"):
        yield from _wrapped(f"    {finding['severity']}: {reason}", "    ")
    if told := tracked(finding, words_of("en")):
        yield from _wrapped(f"    tracker: {told}", "    ")
    if finding["links"]:
        more = f" (+{len(finding['links']) - 1})" if finding["links"][1:] else ""
        yield f"    {finding['links'][0]}{more}"


def _news(finding: Json, compared: bool) -> str:
    news = mark(finding, words_of("en")) if compared else ""
    return f"{news} · " if news else ""


def _step(finding: Json) -> Iterator[str]:
    owner, step = finding["owner"], finding["next_step"]
    if owner == "nobody":
        yield from _wrapped(f"  → {step} (nobody has it)".replace("→  (", "→ ("), "    ")
    elif step:
        said = "" if step.startswith(owner) else f"{owner}: "
        yield from _wrapped(f"  → {said}{step}", "    ")


def ask_text(doc: Json) -> str:
    """An answer with its citations as numbers, and the sources that they stand for."""
    numbers: dict[str, int] = {}
    sources = dict(_cited_sources(doc))
    found = [f for r in doc["subagents"] for f in r["findings"]]
    queries = defaultdict(list, {f["id"]: f.get("queries") or [] for f in found})

    def number(match: re.Match[str]) -> str:
        cited = [i for i in ids_in(match.group()) if i in sources]
        return "".join(f"[{numbers.setdefault(i, len(numbers) + 1)}]" for i in cited)

    text = CITED.sub(number, doc["answer"])
    lines = [line for part in text.splitlines() for line in _wrapped(part, "")]
    if numbers:
        lines += ["", "Sources"]
        lines += [line for i, n in numbers.items() for line in _source(n, sources[i], queries[i])]
    if named := ", ".join(f"{f['name']} ({size_of(f['bytes'])})" for f in doc.get("files", ())):
        writes = f"`assistant show {doc['run_id']} --files DIR` writes them"
        lines += ["", *_wrapped(f"Files: {named} · {writes}", "  ")]
    if doc["degraded"]:
        lines += ["", "One context read everything here: isolation is advisory for this answer."]
    return "\n".join([*lines, "", *_foot(doc)])


def _cited_sources(doc: Json) -> Iterator[tuple[str, str]]:
    """Finding -> its link; of a row or a line, which have none, its id and what it says.

    The same of what was looked up: no quote of it was checked.
    """
    found = (f for r in doc["subagents"] for f in r["findings"] if f["evidence"])
    for each in found:
        said = ", ".join(f"\u00ab{one_line(quote)}\u00bb" for quote in each["quotes"][:3])
        yield each["id"], f"{each['evidence'][0]}{': ' if said else ''}{said}"
    own = doc.get("looked_up") or {}
    yield from ((id, f"{one['item']}, looked up: {one['text']}") for id, one in own.items())
    linked = ((id, links[0]) for id, links in doc["links"].items() if links)
    yield from ((id, f"{link} (looked up)" if id in own else link) for id, link in linked)


def _source(number: int, told: str, queries: Sequence[str]) -> Iterator[str]:
    """A source, and below it the statement that found it, on one line each."""
    yield from _wrapped(f"[{number}] {told}", "")
    for query in queries:
        line = f"    {one_line(query)}"
        yield line if len(line) <= WIDTH else f"{line[: WIDTH - 1]}…"


def _foot(doc: Json) -> Iterator[str]:
    cover = doc["coverage"]
    ended = ", ".join(
        f"{cover[s]} {s}"
        for s in ("complete", "partial", "failed", "cancelled", "refused")
        if cover[s]
    )
    usage, cost = doc["usage"], doc["cost_usd"]
    price = "price unknown" if cost is None else f"${cost:.4f}"
    if doc["model"] == "offline":
        price += " at the models' list prices; nothing was paid"
    told = []
    if doc["kind"] == "sweep" or cover["items"]:
        what = _count(cover["items"], "channel" if doc["kind"] == "sweep" else "subagent")
        told.append(f"{what}, {ended}" if ended else what)
    if own := cover.get("looked_up"):
        told.append(f"{_count(own, 'item')} looked up")
    if doc["kind"] == "ask":
        told.append(
            f"{doc['cited']} of {len(doc['statements'])} statements cited{_by_look_up(doc)}"
        )
    yield from _wrapped(f"Coverage: {' · '.join(told)}", "  ") if told else ()
    for each in cover["not_covered"][:10]:
        yield from _wrapped(f"  not covered: {one_line(each)}", "    ")
    if cover["not_covered"][10:]:
        left = len(cover["not_covered"]) - 10
        yield f"  not covered: and {left} more (`assistant show {doc['run_id']} --json` has all)"
    if doc["unsupported"]:
        yield f"Dropped because no source carries it: {doc['unsupported']}"
    yield f"Cost: {price} · {usage['total']:,} tokens · run {doc['run_id']}"


def _by_look_up(doc: Json) -> str:
    """How many of the cited statements rest on no finding, and so on no quote that was checked."""
    own = (doc.get("looked_up") or {}).keys()
    cited = [s["findings"] for s in doc["statements"] if own and s["findings"]]
    alone = sum(own >= set(ids) for ids in cited)
    return f" ({alone} by look-up alone, no quotes checked)" if alone else ""


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
            f"{_count(result.get('steps', 0), 'model call')}, "
            f"{_count(len(result.get('tool_calls', [])), 'tool call')}, "
            f"{_count(len(result.get('findings', [])), 'finding')} · "
            f"{each['brief']['description']}",
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
