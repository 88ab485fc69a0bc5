"""The offline model as a subagent over Slack: it reads every page and says where threads stand."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.calls import counted, use
from bot.local.offline.conversation import OFFLINE, Conversation, Exchange, next_pages
from bot.local.offline.messages import (
    Thread,
    Verdict,
    claim_of,
    customers_of,
    judge,
    quote_of,
    read_threads,
)
from bot.local.offline.orders import NOT_DONE, is_order, open_end
from bot.local.offline.sample import verdict_of
from bot.local.offline.words import content_words, states_in, words_of

STATES = ("unanswered", "unsolved", "waiting", "known", "declined", "solved")
SEVERITIES = ("high", "medium", "low")
_MAX_MATCHES = 5
"""Most messages that an answer by words quotes."""
_CHANNEL = re.compile(r"(?<![\w/])([CGD][A-Z0-9]{2,})\b(?!/)")
_THREAD = re.compile(r"(?<![\w/])([CGD][A-Z0-9]{2,}/\d+\.\d+)")
_LIST = re.compile(r"(?<![\w/])(F[A-Z0-9]{2,})\b(?!/)")
_ID = re.compile(r"[CGD][A-Z0-9]{2,}/\d+\.\d+")
_READERS = ("read_channel_history", "read_thread", "search_messages")
_STEPS = {
    "unanswered": "Answer {}: nobody has replied.",
    "unsolved": "Go back to {}: it is still open.",
    "waiting": "Wait for {}, then ask again.",
    "known": "Tell {} when it is fixed.",
    "declined": "None.",
    "solved": "None.",
}
_BRIEF, _SHORT = ("waiting", "declined", "solved"), ("claim", "state", "evidence")
"""States of which the contract `issues` wants these fields alone."""
_CORE = ("claim", "state", "severity", "evidence", "customers")

Finding = dict[str, Any]


def as_reader(talk: Conversation) -> Answer:
    """Return the next turn: pages to read, or the result."""
    if talk.section("CONTRACT") == "answer" and is_order(talk.section("TASK")):
        return Answer([use("submit_result", **open_end(*NOT_DONE))])
    refusals = [e.text for e in talk.exchanges if e.name == "submit_result" and e.is_error]
    if not talk.must_end and not refusals and (calls := _to_read(talk)):
        return Answer(calls)
    return Answer([use("submit_result", **_result(talk, refusals[-1] if refusals else ""))])


def handles_in(text: str) -> bool:
    """Return whether a list of handles names something in Slack."""
    return bool(_CHANNEL.search(text) or _LIST.search(text))


def _to_read(talk: Conversation) -> list[dict[str, Any]]:
    """Return the calls that are left: first pages of everything, then the pages after them."""
    sources = talk.section("MAY READ")
    wanted = [
        *(("read_channel_history", {"channel": id}) for id in _CHANNEL.findall(sources)),
        *(("read_thread", {"thread": id}) for id in _THREAD.findall(sources)),
        *(("list_slack_list_items", {"list": id}) for id in _LIST.findall(sources)),
        *next_pages(talk),
    ]
    done = [(exchange.name, dict(exchange.input)) for exchange in talk.exchanges]
    left = [each for n, each in enumerate(wanted) if each not in done and each not in wanted[:n]]
    return [use(name, **arguments) for name, arguments in left if name in talk.tools]


def _result(talk: Conversation, refusal: str) -> dict[str, Any]:
    contract = talk.section("CONTRACT") or "answer"
    pages = [e.text for e in talk.exchanges if e.name in _READERS and not e.is_error]
    material = [text for text in talk.opening if text.startswith("MATERIAL")]
    threads = read_threads([*pages, *material])
    verdicts = {thread.root.id: verdict_of(thread) or judge(thread) for thread in threads}
    if contract == "issues":
        findings = _findings(threads, verdicts)
        none = [id for id, verdict in verdicts.items() if verdict.state == "none"]
        findings, more = _mended(findings, none, refusal)
        findings = [
            {key: f[key] for key in _SHORT} if f["state"] in _BRIEF else f for f in findings
        ]
        main: dict[str, Any] = {"no_issue": more}
    else:
        findings, main = _answering(talk, threads, verdicts), {}
    findings = _fitting(findings, (talk.max_bytes - 1000) // (2 if refusal else 1))
    text = _summary(findings, len(threads))
    gaps = [e for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    return {
        **_prose(contract, text, findings),
        **main,
        "findings": findings,
        "not_covered": [_failure(exchange) for exchange in gaps],
        "needs": "" if talk.section("MAY READ") or threads else "a channel to read",
    }


def _prose(contract: str, text: str, findings: Sequence[Finding]) -> dict[str, Any]:
    if contract == "issues":
        return {"summary": text}
    if contract == "table":
        rows = [[f["claim"], f["state"], f["severity"]] for f in findings]
        return {"columns": ["claim", "state", "severity"], "rows": rows, "text": text}
    return {"text": text}


def _failure(exchange: Exchange) -> str:
    what = ", ".join(str(value) for value in exchange.input.values())
    return f"{exchange.name} {what}: {exchange.text}"[:300]


def _summary(findings: Sequence[Finding], threads: int) -> str:
    if not findings:
        return f"Nothing found in {threads} threads. {OFFLINE}"
    states = [finding["state"] for finding in findings]
    tally = ", ".join(f"{states.count(state)} {state}" for state in STATES if state in states)
    if not tally:
        return f"{counted(len(findings), 'message')} in {counted(threads, 'thread')} fit. {OFFLINE}"
    found = f"{counted(len(findings), 'finding')} in {counted(threads, 'thread')}"
    return f"{found}: {tally}. {OFFLINE}"


def _findings(threads: Iterable[Thread], verdicts: Mapping[str, Verdict]) -> list[Finding]:
    """Return a finding for each issue, the most pressing first.

    Recorded threads of one channel with the same issue and state share one.
    """
    groups: dict[tuple[str, ...], list[Thread]] = {}
    for thread in threads:
        verdict = verdicts[thread.root.id]
        if verdict.state != "none":
            channel = thread.root.id.partition("/")[0]
            key = (channel, verdict.issue, verdict.state) if verdict.issue else (thread.root.id,)
            groups.setdefault(key, []).append(thread)
    found = [_finding(members, verdicts) for members in groups.values()]
    return sorted(found, key=lambda f: (*rank(f["state"], f["severity"]), -len(f["evidence"])))


def rank(state: str, severity: str) -> tuple[bool, int, int]:
    """Return a key that sorts the most pressing first: what needs action, then by severity."""
    states = STATES.index(state) if state in STATES else len(STATES)
    severities = SEVERITIES.index(severity) if severity in SEVERITIES else len(SEVERITIES)
    return states > 1, severities, states


def _finding(members: Sequence[Thread], verdicts: Mapping[str, Verdict]) -> Finding:
    judged = [verdicts[thread.root.id] for thread in members]
    worst = min(judged, key=lambda verdict: SEVERITIES.index(verdict.severity))
    lead = members[0]
    helpers = [line for line in lead.people if line.author != lead.root.author]
    last = lead.lines[-1]
    quotes = [quote_of(lead.root)]
    if last is not lead.root and (quote := quote_of(last)):
        quotes.append(quote)
    evidence = [line.id for thread in members for line in (thread.root, thread.lines[-1])]
    return {
        "claim": worst.issue or claim_of(lead),
        "state": worst.state,
        "severity": worst.severity,
        "severity_reason": worst.reason,
        "owner": helpers[-1].author if helpers else "",
        "next_step": _STEPS[worst.state].format(lead.root.author),
        "customers": list(dict.fromkeys(name for each in members for name in customers_of(each))),
        "evidence": list(dict.fromkeys(evidence)),
        "quotes": [quote for quote in quotes if quote],
    }


def _fitting(findings: Sequence[Finding], room: int) -> list[Finding]:
    """Return findings that fit into so many bytes of JSON: briefer ones, then one a state."""
    if size_of(findings) <= room:
        return list(findings)
    brief = [{key: f[key] for key in _CORE if f.get(key)} for f in findings]
    if size_of(brief) <= room:
        return brief
    joined = []
    for state in STATES:
        if alike := [finding for finding in findings if finding["state"] == state]:
            evidence = list(dict.fromkeys(id for f in alike for id in f["evidence"]))
            worst = min((f.get("severity", "low") for f in alike), key=SEVERITIES.index)
            claim = f"{len(alike)} issues are {state}"
            joined.append({"claim": claim, "state": state, "severity": worst, "evidence": evidence})
    return joined


def size_of(value: object) -> int:
    """Return the bytes of a value as JSON in UTF-8."""
    return len(json.dumps(value, ensure_ascii=False).encode())


def _answering(
    talk: Conversation, threads: Sequence[Thread], verdicts: Mapping[str, Verdict]
) -> list[Finding]:
    """Return the threads in the states that the question names, else messages that share words."""
    question = f"{talk.section('TASK')}\n{talk.section('QUESTIONS')}"
    words = content_words(question)
    states = states_in(question)
    if states or not words:
        issues = _findings(threads, verdicts)
        asked = [f for f in issues if not states or f["state"] in states]
        named = [f for f in asked if words & words_of(" ".join([f["claim"], *f["quotes"]]))]
        return named or asked
    scored = []
    for thread in threads:
        score, line = max(
            ((len(words & words_of(f"{line.text} {line.author}")), line) for line in thread.lines),
            key=lambda pair: pair[0],
        )
        if not quote_of(line):
            continue
        if score >= max(1, len(words) / 2):
            scored.append((score, thread, line))
    best = sorted(scored, key=lambda each: -each[0])[:_MAX_MATCHES]
    return [
        {
            "claim": quote_of(line).rstrip("."),
            "state": verdicts[thread.root.id].state,
            "severity": verdicts[thread.root.id].severity,
            "evidence": [line.id],
            "quotes": [quote_of(line)],
        }
        for _, thread, line in best
    ]


def _mended(
    findings: list[Finding], none: Sequence[str], refusal: str
) -> tuple[list[Finding], list[str]]:
    """Return findings and threads without an issue, without what the program refused by name."""
    unplaced = set(_ID.findall(refusal.partition("that you read")[2]))
    replied = set(_ID.findall(refusal.partition("Not unanswered")[2]))
    for finding in findings:
        if finding["state"] == "unanswered" and (replied - unplaced) & set(finding["evidence"]):
            finding["state"] = "unsolved"
    return findings, list(dict.fromkeys([*none, *sorted(unplaced)]))
