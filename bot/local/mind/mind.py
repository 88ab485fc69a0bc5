"""The offline model stand-in's mind: reads what a request shows and answers by rules.

It is not a language model and says so once in everything it writes. It knows nothing but the
request: no files, no clock, no chance.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from bot.local.mind.calls import use
from bot.local.mind.cues import asked_for, fold, topics_of
from bot.local.mind.data import as_data
from bot.local.mind.files import as_files
from bot.local.mind.grouping import parse_tracker
from bot.local.mind.hearing import Exchange, Heard, hear
from bot.local.mind.issues import (
    NEEDS_ACTION,
    Board,
    Finding,
    counts,
    quote_of,
    read_board,
    submission,
)
from bot.local.mind.mail_digest import digest_lines, is_digest
from bot.local.mind.orders import NOT_DONE, is_order, open_end
from bot.local.mind.parent import answer_as_parent
from bot.local.mind.phrases import OFFLINE, phrase
from bot.local.mind.search import best_lines, keywords
from bot.local.mind.seek import as_seeker
from bot.local.mind.threads import Thread, join
from bot.local.mind.tracker import handed_in
from bot.local.mind.triage import triage
from bot.local.model.answer import Answer

_CHANNEL = re.compile(r"(?<![\w/])([CGD][A-Z0-9]{2,})\b(?!/)")
_THREAD = re.compile(r"(?<![\w/])([CGD][A-Z0-9]{2,}/\d+\.\d+)")
_LIST = re.compile(r"(?<![\w/])(F[A-Z0-9]{2,})\b(?!/)")
_ID = re.compile(r"[CGD][A-Z0-9]{2,}/\d+\.\d+")
_FOUND = 5
"""Most messages that an answer by keywords quotes."""
_READERS = ("read_channel_history", "read_thread", "search_messages")


def answer(request: dict[str, Any]) -> Answer:
    """What the offline mind does with one Messages API request."""
    heard = hear(request)
    if "submit_result" in heard.tools:
        own = _OWN.get(heard.section("CONTRACT")) or _by_handles(heard.section("MAY READ"))
        return own(heard)
    if is_digest(heard):
        return Answer([{"type": "text", "text": digest_lines(heard)}])
    return answer_as_parent(heard)


def _rows(heard: Heard) -> Answer:
    return Answer([use("submit_result", **handed_in(heard))])


_OWN = {"triage": triage, "tracker": _rows}
"""Contracts that need no reading by tools."""


def _by_handles(handles: str) -> Callable[[Heard], Answer]:
    """How a task is done, by what it may read."""
    if _CHANNEL.search(handles) or _LIST.search(handles):
        return _as_subagent
    if re.search(r"\bdata:", handles):
        return as_data
    if re.search(r"\bfiles:", handles):
        return as_files
    return as_seeker if re.search(r"\b(?:mail|web|notes):|https?://", handles) else _as_subagent


def _as_subagent(heard: Heard) -> Answer:
    if heard.section("CONTRACT") == "answer" and is_order(heard.section("TASK")):
        return Answer([use("submit_result", **open_end(*NOT_DONE))])
    repair = next(
        (e.text for e in reversed(heard.exchanges) if e.name == "submit_result" and e.is_error), ""
    )
    if not heard.must_end and not repair and (calls := _to_read(heard)):
        return Answer(calls)
    return Answer([use("submit_result", **_result(heard, repair))])


def _to_read(heard: Heard) -> list[dict[str, Any]]:
    """The reading that is left to do: first pages of everything, then the pages after them."""
    sources = heard.section("MAY READ")
    wanted: list[tuple[str, dict[str, str]]] = []
    for channel in dict.fromkeys(_CHANNEL.findall(sources)):
        wanted.append(("read_channel_history", {"channel": channel}))
    for thread in dict.fromkeys(_THREAD.findall(sources)):
        wanted.append(("read_thread", {"thread": thread}))
    for number in dict.fromkeys(_LIST.findall(sources)):
        wanted.append(("list_slack_list_items", {"list": number}))
    for exchange in heard.exchanges:
        if exchange.cursor and not exchange.is_error:
            arguments = {k: str(v) for k, v in exchange.input.items() if k != "cursor"}
            wanted.append((exchange.name, {**arguments, "cursor": exchange.cursor}))
    done = [(exchange.name, dict(exchange.input)) for exchange in heard.exchanges]
    return [
        use(name, **arguments)
        for name, arguments in wanted
        if name in heard.tools and (name, arguments) not in done
    ]


def _result(heard: Heard, repair: str) -> dict[str, Any]:
    threads = _threads(heard)
    report = _report(heard)
    contract = heard.section("CONTRACT") or "answer"
    tracker = [
        i
        for e in heard.exchanges
        if e.name == "list_slack_list_items"
        for i in parse_tracker(e.text)
    ]
    to_bots = _asked_of_bots(threads)
    boards = [
        read_board([each for each in part if each.root.id not in to_bots], report)
        for part in _by_channel(threads)
    ]
    room = heard.max_bytes - 1000 >> (1 if repair else 0)
    if contract == "issues":
        findings, no_issue = submission(boards, tracker, report, room)
        main: dict[str, Any] = {"no_issue": [*no_issue, *to_bots]}
        text = _summary(findings, len(threads), report)
    else:
        findings = _answers(heard, boards, report, room)
        main = {}
        text = _summary(findings, len(threads), report)
    if repair:
        findings, main = _mended(findings, main, repair)
    left = [_failure(exchange) for exchange in heard.exchanges if _is_gap(exchange)]
    known = bool(heard.section("MAY READ")) or bool(threads)
    return {
        **_prose(contract, text, findings),
        **main,
        "findings": findings,
        "not_covered": left,
        "needs": "" if known else "a channel to read",
    }


def _report(heard: Heard) -> str:
    """The language to report in: as set, or else as the author of the brief asks."""
    set_to = heard.section("LANGUAGE") or "en"
    asked = re.match(r"Language: (\w+)", heard.section("OUTPUT"))
    return asked[1] if asked and " " in set_to else set_to


def _prose(contract: str, text: str, findings: Sequence[Finding]) -> dict[str, Any]:
    if contract == "issues":
        return {"summary": text}
    if contract == "table":
        rows = [[f["claim"], f["state"], f["severity"]] for f in findings]
        return {"columns": ["claim", "state", "severity"], "rows": rows, "text": text}
    return {"text": text}


def _threads(heard: Heard) -> list[Thread]:
    pages = [e.text for e in heard.exchanges if e.name in _READERS and not e.is_error]
    return join([*pages, *(text for text in heard.opening if text.startswith("MATERIAL"))])


def _asked_of_bots(threads: Sequence[Thread]) -> list[str]:
    """Roots that begin with the name of a bot which answers in some thread: no issue of people."""
    bots = {f"@{line.author}" for thread in threads for line in thread.lines[1:] if line.bot}
    return [t.root.id for t in threads if bots and t.root.text.startswith(tuple(bots))]


def _by_channel(threads: Sequence[Thread]) -> list[list[Thread]]:
    channels: dict[str, list[Thread]] = {}
    for thread in threads:
        channels.setdefault(thread.root.id.partition("/")[0], []).append(thread)
    return list(channels.values())


def _is_gap(exchange: Exchange) -> bool:
    return exchange.is_error and exchange.name != "submit_result"


def _failure(exchange: Exchange) -> str:
    what = ", ".join(str(value) for value in exchange.input.values())
    return f"{exchange.name} {what}: {exchange.text}"[:300]


def _summary(findings: Sequence[Finding], threads: int, report: str) -> str:
    if not findings:
        return f"{phrase(report, 'nothing', threads)} {OFFLINE}"
    tally = counts(findings)
    said = phrase(report, "summary", len(findings), threads, *tally.values())
    acts = [f for f in findings if f["state"] in NEEDS_ACTION]
    worst = phrase(report, "worst", acts[0]["claim"]) if acts else ""
    return " ".join(part for part in (said, worst, OFFLINE) if part)


def _answers(heard: Heard, boards: Sequence[Board], report: str, room: int) -> list[Finding]:
    """Findings that answer the brief's question: threads in the states asked for, or messages."""
    question = f"{heard.section('TASK')}\n{heard.section('QUESTIONS')}"
    states = _states(fold(question))
    wanted = keywords(question)
    if not states and any(wanted):
        return _by_keywords(wanted, boards, issues="act" in asked_for(fold(question)))
    if not states:  # "what happened?", "catch me up"
        return submission(boards, [], report, room)[0]
    asked = [
        replace(board, groups=tuple(g for g in board.groups if g[0].verdict.state in states))
        for board in boards
    ]
    found, _ = submission(asked, [], report, room)
    about = topics_of(fold(question))
    told = [
        f for f in found if about & topics_of(fold(" ".join([f["claim"], *f.get("quotes", ())])))
    ]
    return told or found


def _states(question: str) -> set[str]:
    """The thread states that a folded question asks for; none where it asks for something else."""
    asked = asked_for(question)
    states = set(asked & {"unanswered", "unsolved", "waiting"})
    if "solved" in asked and "unsolved" not in asked:
        states.add("solved")
    if "open" in asked:
        states |= set(NEEDS_ACTION)
    if not states and "act" in asked and not keywords(question)[0]:
        states = set(NEEDS_ACTION)
    return states


def _by_keywords(
    wanted: tuple[frozenset[str], frozenset[str]], boards: Sequence[Board], *, issues: bool
) -> list[Finding]:
    """Messages that match; `issues`: only what issues begin with, since replies tell less."""
    judged = {each.thread.root.id: each for board in boards for each in board.threads}
    threads = [each.thread for each in judged.values()]
    if issues:
        told = [each.thread for each in judged.values() if each.verdict.state != "none"]
        threads = [Thread(thread.lines[:1]) for thread in told]
    findings = []
    for thread, line in best_lines(wanted, threads)[:_FOUND]:
        each = judged[thread.root.id]
        findings.append(
            {
                "claim": quote_of(line).rstrip("."),
                "state": each.verdict.state,
                "severity": each.severity,
                "evidence": [line.id],
                "quotes": [quote_of(line)],
            }
        )
    return findings


def _mended(
    findings: list[Finding], main: Mapping[str, Any], repair: str
) -> tuple[list[Finding], dict[str, Any]]:
    """The same again without what the program refused by name."""
    named = set(_ID.findall(repair))
    unplaced = set(_ID.findall(repair.partition("that you read")[2]))
    replied = set(_ID.findall(repair.partition("Not unanswered")[2].partition(".  ")[0])) - unplaced
    mended = []
    for finding in findings:
        hit = named & set(finding["evidence"])
        if hit & replied and finding["state"] == "unanswered":
            finding = {**finding, "state": "unsolved"}
        mended.append(finding)
    no_issue = list(dict.fromkeys([*main.get("no_issue", ()), *sorted(unplaced)]))
    return mended, {**main, **({"no_issue": no_issue} if "no_issue" in main else {})}
