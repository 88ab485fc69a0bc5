"""The offline model as a parent agent: what it looks up, whom it asks, and what it then writes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline import posts, schedules, standing
from bot.local.offline.calls import use
from bot.local.offline.channels import STATES, rank
from bot.local.offline.conversation import OFFLINE, Conversation, Exchange, sections
from bot.local.offline.data import COUNTED
from bot.local.offline.reports import NOTHING_TO_ADD, days_of, report_turn, since
from bot.local.offline.request import Question, Request, listed_channels, read_request
from bot.local.offline.sample import issue_of
from bot.local.offline.views import View, ViewFinding, parse_views

MAX_CHANNELS = 5
"""Most channels that a question which names none is taken to."""
MAX_SWEPT = 24
"""Most channels that are read one by one; the others are named."""
MAX_LINES = 12
"""Most findings of one question that an answer tells; the rest is counted."""
MAX_FIRST = 3
"""Most lines on what to do first."""
HELP = (
    "The offline rules read channels and threads («What is open in #support?»), sweep channels"
    " («sweep csm-*»), and read what they are given of mails, notes, tables and files."
)
_DELEGATING = ("run_subagent", "run_subagents")
_THREAD = re.compile(r"\b([CGD][A-Z0-9]{2,}/\d+\.\d+)|/archives/([CGD][A-Z0-9]+)/p(\d{10})(\d{6})")
_PERSON = re.compile(
    r"\b[Ww]ho is (?:@?([A-ZÀ-Þ][\w'’-]+(?: [A-ZÀ-Þ][\w'’-]+)*)|(U[A-Z0-9]{6,}))\s*\??$"
)
_CHANNELS = re.compile(r"\b(?:which|what|list)(?: all)?(?: the| my)? channels\b", re.IGNORECASE)
_GREETING = re.compile(
    r"\W*(?:hi|hello|hey|help|good (?:morning|evening)|thanks?|thank you|what can you do)\W*$"
    r"|\(The message mentions you and says nothing else\.\)$",
    re.IGNORECASE,
)


def as_parent(talk: Conversation) -> Answer:
    """Return the parent's next turn: look-ups, subagents, or the answer."""
    if any("WRITE: top lines" in text for text in talk.opening):
        return _say(top_lines(talk))
    request = read_request(talk)
    free = bool(talk.tools) and not talk.must_end
    if turn := schedules.turn(request.text, talk, free) or standing.turn(request.text, talk, free):
        return Answer(list(turn.calls)) if turn.calls else _say(f"{turn.text}\n\n{OFFLINE}")
    report = report_turn(request.text, talk, free)
    if isinstance(report, str):
        return _say(report if report == NOTHING_TO_ADD else f"{report}\n\n{OFFLINE}")
    if report:
        return Answer([report])
    if order := posts.order_in(request.text):
        calls = [] if talk.exchanges or not free else posts.calls(order, talk)
        return Answer(calls) if calls else _say(f"{posts.outcome(talk)}\n\n{OFFLINE}")
    if _GREETING.match(request.text):
        return _say(f"{HELP}\n\n{OFFLINE}")
    if free and (calls := _calls(request, talk)):
        return Answer(calls)
    return _say(_written(request, talk))


def _say(text: str) -> Answer:
    return Answer([{"type": "text", "text": text}])


# ---- what to ask for


def _calls(request: Request, talk: Conversation) -> list[dict[str, Any]]:
    """Return the look-ups and subagents that no earlier turn has asked for."""
    called = {exchange.name for exchange in talk.exchanges}
    if called & set(_DELEGATING):
        return []
    direct = [call for question in request.questions if (call := _direct(question))]
    rest = [question for question in request.questions if not _direct(question)]
    calls = [] if called else [call for call in direct if call["name"] in talk.tools]
    if not rest or "run_subagent" not in talk.tools:
        return calls
    if (
        any(_is_open(question, request) for question in rest)
        and "list_channels" in talk.tools - called
    ):
        listing = use("list_channels")
        return [*(call for call in calls if call != listing), listing]
    return calls + [call for question in rest for call in _delegated(question, request, talk)]


def _direct(question: Question) -> dict[str, Any] | None:
    """Return the one look-up that answers the question, if there is one."""
    if question.scope != "slack":
        return None
    if thread := _THREAD.search(question.text):
        return use("read_thread", thread=thread[1] or f"{thread[2]}/{thread[3]}.{thread[4]}")
    if person := _PERSON.search(question.text.strip()):
        return use("lookup_user", user=person[1] or person[2])
    if _CHANNELS.search(question.text) and not question.names_channels:
        return use("list_channels")
    return None


def _is_open(question: Question, request: Request) -> bool:
    """Return whether a question needs the list of channels before it can be handed on."""
    named = question.handles or request.here
    return question.scope == "slack" and bool(question.patterns or not named)


def _delegated(question: Question, request: Request, talk: Conversation) -> list[dict[str, Any]]:
    when = since(days_of(question.text), talk) if question.scope == "slack" else {}
    if question.patterns:
        items = _matching(question, talk)[:MAX_SWEPT]
        template = _template(question) | when
        return [use("run_subagents", items=items, template=template)] if items else []
    return [
        _brief(task, handles, question.scope, when)
        for task, handles in _tasks(question, request, talk)
    ]


def _tasks(
    question: Question, request: Request, talk: Conversation
) -> list[tuple[str, Sequence[str]]]:
    """Return a task for each channel that a question names, or one for all that is held."""
    if question.scope != "slack":
        return [(question.text, question.handles)] if question.handles else []
    if len(question.handles) > 1:
        return [(f"{question.text} ({name})", [name]) for name in question.handles]
    here = [request.here] if request.here else list(listed_channels(talk))[:MAX_CHANNELS]
    handles = list(question.handles) or here
    return [(question.text, handles)] if handles else []


def _brief(
    task: str, handles: Sequence[str], scope: str, when: Mapping[str, str]
) -> dict[str, Any]:
    return use(
        "run_subagent",
        task=task,
        description=" ".join(task.split()[:6])[:120],
        scope=scope,
        handles=list(handles),
        contract="answer",
        **when,
    )


def _template(question: Question) -> dict[str, str]:
    return {
        "task": f"{question.text.rstrip('?')} ({{item}})",
        "description": "{item}",
        "scope": "slack",
        "contract": "issues",
    }


def _matching(question: Question, talk: Conversation) -> list[str]:
    """Return the ids of the channels whose names begin as the question says, or that it names."""
    named = {handle.lstrip("#") for handle in question.handles}
    channels = listed_channels(talk).items()
    return [
        id
        for id, name in channels
        if name.startswith(question.patterns) or name in named or id in named
    ]


# ---- what to write


def _written(request: Request, talk: Conversation) -> str:
    """Return the answer; what an earlier session of the request found comes first."""
    earlier = [view for text in talk.told for view in parse_views(text)]
    parts = ["\n".join(line for view in earlier for line in _lines(view))] if earlier else []
    for question in request.questions:
        lines = _section(question, request, talk)
        if not lines and not earlier:
            lines = ["There is nothing to read this in."]
        if lines:
            head = [f"*{' '.join(question.text.split())}*"] if len(request.questions) > 1 else []
            parts.append("\n".join([*head, *lines]))
    if talk.files:
        parts.append(f"The offline rules do not read attached files: {', '.join(talk.files)}.")
    return "\n\n".join([*parts, OFFLINE])


def _section(question: Question, request: Request, talk: Conversation) -> list[str]:
    if direct := _direct(question):
        return [_shown(e) for e in talk.exchanges if e.name == direct["name"]]
    if question.patterns:
        return _swept(question, talk)
    tasks = [task for task, _ in _tasks(question, request, talk)]
    back = [e for e in talk.exchanges if e.name in _DELEGATING and e.input.get("task") in tasks]
    lines: list[str] = []
    for exchange in back:
        if len(tasks) > 1:
            lines.append(f"**{', '.join(map(str, exchange.input['handles']))}**:")
        lines += _outcome(exchange)
    if question.scope == "slack" and not question.handles and not request.here and back:
        names = [f"#{name}" for name in listed_channels(talk).values()]
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
    names = {id: f"#{name}" for id, name in listed_channels(talk).items()}
    lines: list[str] = []
    for exchange in talk.exchanges:
        if exchange.name == "run_subagents":
            items = exchange.input["items"]
            for item, view in zip(items, parse_views(exchange.text), strict=False):
                states = [finding.state for finding in view.findings]
                tally = [f"{states.count(state)} {state}" for state in STATES if state in states]
                lines.append(f"**{names.get(item, item)}** ({', '.join(tally) or 'nothing'}):")
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
    if finding.state not in STATES:
        return finding.next_step.strip("- .")
    step = "" if finding.state == "solved" else finding.next_step.strip("- .")
    return "; ".join(part for part in (f"{finding.state}, {finding.severity}", step) if part)


def _shown(exchange: Exchange) -> str:
    """Return what a look-up gave, for people to read."""
    lines = [line for line in exchange.text.splitlines() if not re.match(r"^</?items-", line)]
    return "\n".join(re.sub(r"^(\s*)\[[^\]]+\] ", r"\1- ", line) for line in lines)


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
    name = ""
    for key, body in sections("\n".join(talk.opening)):
        if key == "SECTION":
            name, _, body = body.partition("\n")
            found += [(name.strip(), f) for view in parse_views(body) for f in view.findings]
    return found


def _press(members: Sequence[tuple[str, ViewFinding]]) -> tuple[object, ...]:
    findings = [finding for _, finding in members]
    people = sum(finding.people for finding in findings)
    return min(rank(f.state, f.severity) for f in findings)[1], -people, findings[0].id


def _cited(members: Sequence[tuple[str, ViewFinding]]) -> str:
    return "".join(f"[{finding.id}]" for _, finding in members)
