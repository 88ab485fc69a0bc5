"""The offline model as a parent agent: whom it asks, and what it then writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import (
    OFFLINE,
    Conversation,
    Exchange,
    View,
    ViewFinding,
    parse_views,
    sections,
    use,
)
from bot.local.offline.data import COUNTED, SELECT
from bot.local.offline.orders import order_turn, since
from bot.local.offline.sample import issue_of
from bot.local.offline.search import NOTE, URL
from bot.local.offline.threads import STATES, rank

MAX_CHANNELS = 5
"""Most channels that a question which names none is taken to."""
MAX_SWEPT = 24
"""Most channels that are read one by one; the others are named."""
MAX_LINES = 12
"""Most findings of one question that an answer tells; the rest is counted."""
MAX_FIRST = 3
"""Most lines on what to do first."""
RUN_FOLDER = "files:run"
"""The files that a request keeps; nobody asks about them."""
HELP = (
    "The offline rules read channels and threads («What is open in #support?»), sweep channels"
    " («sweep csm-*»), and read what they are given of mails, notes, tables and files."
)
_DELEGATING = ("run_subagent", "run_subagents")
_GREETING = re.compile(
    r"\W*(?:hi|hello|hey|help|good (?:morning|evening)|thanks?|thank you|what can you do)\W*$"
    r"|\(The message mentions you and says nothing else\.\)$",
    re.IGNORECASE,
)
_GLOB = re.compile(r"(?<![\w*])#?([\w-]*)\*(?![\w*])")
_CHANNEL = re.compile(r"(?<![\w&/])#[\w-]+|\b[CG][A-Z0-9]{8,}\b")
_MENTION = re.compile(r"<#([CG][A-Z0-9]+)(?:\|[^>]*)?>|#([CG][A-Z0-9]{8,}\b)")
_LOOKING = re.compile(r"\n\(While asking, the user has the channel (\w+) open;[^\n]*\)\s*$")
_NUMBERED = re.compile(r"(?:^|\s)\(?\d{1,2}[.)]\s+(?=\S)")
_CLAUSE = re.compile(r",\s+(?:and\s+)?(?=(?:what|which|who|how)\b)|(?<=\?)\s+", re.IGNORECASE)
_ASKS = re.compile(r"(?:what|which|who|how|where|when|list|find|select)\b|.*\?\s*$", re.I | re.S)
_FEW = 3
"""Fewer words than these are no question of their own."""
_FACTS = re.compile(r"^(?:MAIL|NOTES|DATA|WEB|FILES): ", re.MULTILINE)
_HANDLE = re.compile(r"(?<![\w:])((?:data|files|notes|mail|web):[\w.-]+)")
_LISTED = re.compile(r"^\s*\[([CG][A-Z0-9]+)\] #(\S+?)(?:: .*)?$", re.MULTILINE)
_EVERY = re.compile(r"\b(?:all|every|each) (?:of )?(?:the |my |our )?(?:[\w-]+ )?channels?\b", re.I)
_WORDS = {
    "slack": r"slack|channels?|threads?|unanswered|unsolved",
    "email": r"e-?mails?|mails?|inbox|mailbox",
    "notes": r"notes?|noted|note that|remember",
    "data": r"how (?:many|much)|total|sum|refunds?|tables?|database",
    "files": r"\w+\.(?:py|md|toml|txt|cfg)|files?|folder|code|repository",
}
"""Scope -> what is said of things in it; the first one that fits and is held counts."""


@dataclass(frozen=True)
class Question:
    """One question of a request, and the scope that can answer it."""

    text: str
    scope: str
    handles: tuple[str, ...] = ()
    """What a subagent of that scope is given; of Slack the channels it names, as written."""
    patterns: tuple[str, ...] = ()
    """Beginnings of the names of channels that are meant; an empty one fits all."""


@dataclass(frozen=True)
class Request:
    """A request as the rules understand it."""

    text: str
    questions: tuple[Question, ...]
    here: str
    """Id of the channel that it was asked in or beside; empty where that is none to read."""


def as_parent(talk: Conversation) -> Answer:
    """Return the parent's next turn: the call of an order, subagents, or the answer."""
    if any("WRITE: top lines" in text for text in talk.opening):
        return _say(top_lines(talk))
    request = _request(talk)
    free = bool(talk.tools) and not talk.must_end
    order = order_turn(request.text, talk, free)
    if isinstance(order, str):
        return _say(order if order == "NONE" else f"{order}\n\n{OFFLINE}")
    if order:
        return Answer([order])
    if _GREETING.match(request.text):
        return _say(f"{HELP}\n\n{OFFLINE}")
    calls = _calls(request, talk) if free else []
    return Answer(calls) if calls else _say(_written(request, talk))


def _say(text: str) -> Answer:
    return Answer([{"type": "text", "text": text}])


# ---- what is asked


def _request(talk: Conversation) -> Request:
    told = talk.section("REQUEST") or "\n".join(talk.told)
    beside = _LOOKING.search(told)
    text = _MENTION.sub(r"\1\2", _LOOKING.sub("", told)).strip()
    rooms = [key for key, name in talk.here.items() if key[0] in "CG" and name.startswith("#")]
    here = beside[1] if beside else next((key for key in rooms if "/" not in key), "")
    facts = "\n".join(talk.told).partition("\nFENCE:")[2].splitlines()
    held = [h for line in facts if _FACTS.match(line) for h in _HANDLE.findall(line)]
    held = [handle for handle in dict.fromkeys(held) if handle != RUN_FOLDER]
    questions: list[Question] = []
    for part in _parts(text):
        question = _question(part, held, talk)
        before = questions[-1] if questions else None
        bare = not question.handles and not question.patterns
        if before and before.scope == question.scope == "slack" and bare:
            question = replace(question, handles=before.handles, patterns=before.patterns)
        questions.append(question)
    return Request(text, tuple(questions), here)


def _parts(text: str) -> list[str]:
    """Return the questions of a text: its numbered ones, else each clause that asks."""
    if len(_NUMBERED.findall(text)) > 1:
        return [part.strip() for part in _NUMBERED.split(text) if part.strip()]
    parts: list[str] = []
    start = 0
    for found in _CLAUSE.finditer(text):
        head, tail = text[start : found.start()], text[found.end() :]
        if min(len(head.split()), len(tail.split())) >= _FEW and _ASKS.match(tail):
            parts.append(head.strip())
            start = found.end()
    return [part for part in (*parts, text[start:].strip()) if part] or [text]


def _question(text: str, held: Sequence[str], talk: Conversation) -> Question:
    scope = _scope(text, held, talk)
    if scope == "slack":
        named = tuple(dict.fromkeys(_CHANNEL.findall(_GLOB.sub(" ", text))))
        patterns = tuple(dict.fromkeys(start.lstrip("#") for start in _GLOB.findall(text)))
        every = ("",) if _EVERY.search(text) and not named else ()
        return Question(text, scope, named, patterns or every)
    prefix = "mail:" if scope == "email" else f"{scope}:"
    pages = dict.fromkeys(URL.findall(text)) if scope == "web" else ()
    return Question(text, scope, (*pages, *(h for h in held if h.startswith(prefix))))


def _scope(text: str, held: Sequence[str], talk: Conversation) -> str:
    """Return the scope that a question needs, of those that something is held for."""
    kinds = {h.partition(":")[0].replace("mail", "email") for h in held}
    reads_slack = "list_channels" in talk.tools
    for scope, found in (
        ("data", SELECT.search(text)),
        ("notes", NOTE.match(text)),
        ("slack", _CHANNEL.search(text) or _GLOB.search(text)),
        ("web", URL.search(text)),
    ):
        if found and (scope in kinds or scope == "slack"):
            return scope
    for scope, words in _WORDS.items():
        said = re.search(rf"\b(?:{words})\b", text, re.IGNORECASE)
        if said and (scope in kinds or (scope == "slack" and reads_slack)):
            return scope
    given = [kind for kind in ("data", "files", "email", "notes", "web") if kind in kinds]
    return "slack" if reads_slack or not given else given[0]


def _calls(request: Request, talk: Conversation) -> list[dict[str, Any]]:
    """Return the list of channels where one is needed, then the subagents."""
    called = {exchange.name for exchange in talk.exchanges}
    if called & set(_DELEGATING) or "run_subagent" not in talk.tools:
        return []
    is_open = any(
        question.scope == "slack" and (question.patterns or not (question.handles or request.here))
        for question in request.questions
    )
    if is_open and "list_channels" in talk.tools - called:
        return [use("list_channels")]
    return [call for question in request.questions for call in _asked(question, request, talk)]


def _asked(question: Question, request: Request, talk: Conversation) -> list[dict[str, Any]]:
    when = since(question.text, talk) if question.scope == "slack" else {}
    if question.patterns:
        task = f"{question.text.rstrip('?')} ({{item}})"
        template = {"task": task, "description": "{item}", "scope": "slack", "contract": "issues"}
        items = _matching(question, talk)[:MAX_SWEPT]
        return [use("run_subagents", items=items, template=template | when)] if items else []
    return [
        use(
            "run_subagent",
            task=task,
            description=" ".join(task.split()[:6])[:120],
            scope=question.scope,
            handles=list(handles),
            contract="answer",
            **when,
        )
        for task, handles in _tasks(question, request, talk)
    ]


def _tasks(
    question: Question, request: Request, talk: Conversation
) -> list[tuple[str, Sequence[str]]]:
    """Return a task for each channel that a question names, or one for all that is held."""
    if question.scope == "slack" and len(question.handles) > 1:
        return [(f"{question.text} ({name})", [name]) for name in question.handles]
    handles = list(question.handles)
    if question.scope == "slack" and not handles:
        handles = [request.here] if request.here else list(_channels(talk))[:MAX_CHANNELS]
    return [(question.text, handles)] if handles else []


def _channels(talk: Conversation) -> Mapping[str, str]:
    """Return the channels that list_channels gave: id -> name without #."""
    listings = [e.text for e in talk.exchanges if e.name == "list_channels"]
    return {id: name for text in listings for id, name in _LISTED.findall(text)}


def _matching(question: Question, talk: Conversation) -> list[str]:
    """Return the ids of the channels whose names begin as the question says, or that it names."""
    named = {handle.lstrip("#") for handle in question.handles}
    return [
        id
        for id, name in _channels(talk).items()
        if name.startswith(question.patterns) or name in named or id in named
    ]


# ---- what to write


def _written(request: Request, talk: Conversation) -> str:
    """Return the answer; what an earlier session of the request found comes first."""
    earlier = [view for text in talk.told for view in parse_views(text)]
    parts = ["\n".join(line for view in earlier for line in _lines(view))] if earlier else []
    for question in request.questions:
        lines = _swept(question, talk) if question.patterns else _section(question, request, talk)
        if not lines and not earlier:
            lines = ["There is nothing to read this in."]
        if lines:
            head = [f"*{' '.join(question.text.split())}*"] if len(request.questions) > 1 else []
            parts.append("\n".join([*head, *lines]))
    if talk.files:
        parts.append(f"The offline rules do not read attached files: {', '.join(talk.files)}.")
    return "\n\n".join([*parts, OFFLINE])


def _section(question: Question, request: Request, talk: Conversation) -> list[str]:
    tasks = [task for task, _ in _tasks(question, request, talk)]
    back = [e for e in talk.exchanges if e.name in _DELEGATING and e.input.get("task") in tasks]
    lines: list[str] = []
    for exchange in back:
        if len(tasks) > 1:
            lines.append(f"**{', '.join(map(str, exchange.input['handles']))}**:")
        lines += _outcome(exchange)
    if question.scope == "slack" and not question.handles and not request.here and back:
        names = [f"#{name}" for name in _channels(talk).values()]
        rest = f" Not read: {', '.join(names[MAX_CHANNELS:])}." if names[MAX_CHANNELS:] else ""
        lines.append(f"Read: {', '.join(names[:MAX_CHANNELS])}.{rest}")
    return lines


def _outcome(exchange: Exchange) -> list[str]:
    if exchange.is_error and "refused, handles" in exchange.text:
        named = ", ".join(map(str, exchange.input["handles"]))
        return [f"There is no {named} that I may read."]
    views = parse_views(exchange.text) or [View("failed", exchange.text)]
    return [line for view in views for line in _lines(view)]


def _swept(question: Question, talk: Conversation) -> list[str]:
    """Return a paragraph for each channel that was read."""
    names = {id: f"#{name}" for id, name in _channels(talk).items()}
    lines: list[str] = []
    for exchange in talk.exchanges:
        if exchange.name == "run_subagents":
            items = exchange.input["items"]
            for item, view in zip(items, parse_views(exchange.text), strict=False):
                lines.append(f"**{names.get(item, item)}**:")
                lines += _lines(view, most=MAX_FIRST)
            left = [names[id] for id in _matching(question, talk) if id not in items]
            lines += [f"Not read: {', '.join(left)}."] if left else []
    if not lines and names:
        lines = [f"No channel matches. There are: {', '.join(names.values())}."]
    return lines


def _lines(view: View, most: int = MAX_LINES) -> list[str]:
    """Return a view as lines of an answer, each citing its finding."""
    text = view.text.replace(OFFLINE, "").strip()
    if view.status in ("failed", "cancelled", "refused"):
        return [f"This could not be read: {text}"]
    lines = [f"Only partly read: {text}"] if view.status == "partial" else []
    for finding in view.findings[:most]:
        facts = _standing(finding)
        lines.append(f"- «{finding.claim}»{facts and f' ({facts})'} [{finding.id}]")
    if more := len(view.findings[most:]) + view.left_out:
        lines.append(f"… and {more} more")
    if not view.findings or COUNTED in text:
        lines.append(text or "Nothing was found for this.")
    return lines


def _standing(finding: ViewFinding) -> str:
    """Return state, severity and next step, as far as they say anything."""
    step = "" if finding.state == "solved" else finding.next_step.strip("- .")
    if finding.state not in STATES:
        return step
    return "; ".join(part for part in (f"{finding.state}, {finding.severity}", step) if part)


# ---- the top of a sweep's report


def top_lines(talk: Conversation) -> str:
    """Return what to do first over all sections, what several have, and their tracker rows."""
    found = list(_sectioned(talk))
    issues: dict[str, list[tuple[str, ViewFinding]]] = {}
    for section, finding in found:
        key = finding.claim if issue_of(finding.claim) else finding.id
        issues.setdefault(key, []).append((section, finding))
    open_ones = [
        [each for each in members if each[1].state in ("unanswered", "unsolved")]
        for members in issues.values()
    ]
    first = sorted(filter(None, open_ones), key=_press)[:MAX_FIRST]
    lines = [f"- {_to_do([f for _, f in m])} {_cited(m)}" for m in first]
    told = lines or ["Nothing was found for this."]
    told[-1] = _marked(told[-1])
    shared = [m for m in issues.values() if len(m) > 1]
    told += [f"PROBLEM: {m[0][1].claim} {_cited(m)}" for m in shared]
    known = set(re.findall(r"F\d+\.\d+", talk.section("TRACKED BY CODE")))
    rows = [text for text in talk.opening if text.startswith("TRACKER") or " | open | " in text]
    for _, finding in found:
        issue = issue_of(finding.claim)
        if issue and issue.tracker and finding.id not in known and rows:
            told.append(f"TRACKED: [{finding.id}] = {issue.tracker}")
    return "\n".join(told)


def _to_do(findings: Sequence[ViewFinding]) -> str:
    """Return the next step of one finding, or what to do about several."""
    first = findings[0]
    if len(findings) == 1:
        return first.next_step.strip("- .") or f"Look at «{first.claim}»"
    return f"Answer every open thread about «{first.claim}», the oldest first"


def _marked(line: str) -> str:
    """Return a line with the mark of the offline rules before its citations."""
    text, bracket, cited = line.partition(" [F")
    return f"{text} {OFFLINE}{bracket}{cited}"


def _sectioned(talk: Conversation) -> list[tuple[str, ViewFinding]]:
    """Return each finding with the name of its section."""
    found: list[tuple[str, ViewFinding]] = []
    for key, body in sections("\n".join(talk.opening)):
        if key == "SECTION":
            name, _, rest = body.partition("\n")
            found += [(name.strip(), f) for view in parse_views(rest) for f in view.findings]
    return found


def _press(members: Sequence[tuple[str, ViewFinding]]) -> tuple[object, ...]:
    findings = [finding for _, finding in members]
    people = sum(finding.people for finding in findings)
    return min(rank(f.state, f.severity) for f in findings)[1], -people, findings[0].id


def _cited(members: Sequence[tuple[str, ViewFinding]]) -> str:
    return "".join(f"[{finding.id}]" for _, finding in members)
