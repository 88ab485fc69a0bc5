"""The pages about runs: the list, one run, and the requests of one of its contexts."""

from __future__ import annotations

import asyncio
import json
import math
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import ValidationError
from starlette.datastructures import QueryParams
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.console.app import Console, PageHandler
from bot.console.timeline import Bar, Timeline, seconds_text, timeline_of
from bot.log import Redactor, secret_values
from bot.reports.answer import answer_text
from bot.reports.documents import STATUSES, AnswerDocument, parse_document
from bot.reports.text import report_text
from bot.runs.store import WAITING_STATUS, Store
from bot.storage.database import Database
from bot.storage.requests import BAD, GOOD, SCHEDULE_KIND, RequestQueue
from bot.storage.run_index import asks, ids_named
from bot.storage.tables import StoredRun, StoredSubagent, budgets, feedback, runs, subagents
from bot.terminal import without_bold
from subagents.brief import SpawnedBrief, brief_of
from subagents.budget import NANOUSD_PER_USD
from subagents.gate import Decision
from subagents.overlap import audit
from subagents.result import SubagentResult
from subagents.trajectory import RecordedReply, Trajectory

PAGE_SIZE = 50
"""Maximum runs on one page."""
MAX_TEXT = 200
MAX_DECISIONS = 500
COMMAND_LINE = "command-line"
"""Placeholder for the requester of a run that has none."""
RUN_KINDS = ("mention", "dm", "follow_up", SCHEDULE_KIND, "ask", "sweep", "triage", "panel")
RUN_STATUSES = ("running", *STATUSES)
RATINGS = (GOOD, BAD)
Condition = sa.ColumnElement[bool]


FILTERS = ("who", "where", "kind", "status", "cost_from", "cost_to", "rating", "text")
CURSOR_PARAMETER = "before"
"""Parameter with start and id of the last run of the previous page."""


@dataclass(frozen=True)
class RunFilter:
    """The filter of a list of runs, as its form sends it."""

    values: Mapping[str, str]
    """Fields that restrict the list."""
    before: str = ""
    faults: tuple[str, ...] = ()
    """Its faults, in sentences."""
    conditions: tuple[Condition, ...] = ()

    @classmethod
    def of(cls, query: QueryParams, shared: bool) -> RunFilter:
        """Read a filter; `shared`: for a Postgres database."""
        values = {name: query.get(name, "").strip() for name in (*FILTERS, CURSOR_PARAMETER)}
        values = {name: value for name, value in values.items() if value}
        faults, conditions = list[str](), list[Condition]()
        for name, value in values.items():
            try:
                conditions.append(_condition(name, value, shared))
            except ValueError as error:
                faults.append(str(error))
        before = values.pop(CURSOR_PARAMETER, "")
        return cls(values, before, tuple(faults), tuple(conditions))

    def __getitem__(self, name: str) -> str:
        """Return the value of a field in the form."""
        return self.values.get(name, "")


def channel_of(shared: bool) -> sa.ColumnElement[str]:
    """Return the channel of a run's request with the key `team/channel/ts`; null without one."""
    key, f = runs.c.request, sa.func
    if shared:
        return f.split_part(key, "/", 2)
    rest = f.substr(key, f.instr(key, "/") + 1)
    return f.substr(rest, 1, f.instr(rest, "/") - 1)


def schedule_name() -> sa.ColumnElement[str]:
    """Return the name of the schedule that a run belongs to."""
    return sa.cast(runs.c.args["schedule"].as_string(), sa.String)


def _condition(name: str, value: str, shared: bool) -> Condition:
    """Return the condition of one field of a filter. Raises ValueError with a sentence."""
    c = runs.c
    if len(value) > MAX_TEXT:
        raise ValueError(f"“{name}” may have {MAX_TEXT} characters.")
    match name:
        case "who":
            return _by_requester(value)
        case "where":
            scheduled = sa.and_(c.kind == SCHEDULE_KIND, schedule_name() == value)
            channel = channel_of(shared)
            return sa.or_(channel == value, channel.in_(ids_named(value)), scheduled)
        case "kind":
            return c.kind == _one_of("kind", value, RUN_KINDS)
        case "status":
            return c.status == _one_of("status", value, RUN_STATUSES)
        case "cost_from":
            return c.cost_usd >= _dollars(value)
        case "cost_to":
            return c.cost_usd <= _dollars(value)
        case "rating":
            rated = feedback.c.value == _one_of("rating", value, RATINGS)
            return c.request.in_(sa.select(feedback.c.request).where(rated))
        case "text":
            return asks(value)
    return _before(value)


def _by_requester(value: str) -> Condition:
    """Match runs of somebody, by their id or their name."""
    requester = runs.c.requester
    return (
        requester.is_(None)
        if value == COMMAND_LINE
        else sa.or_(requester == value, requester.in_(ids_named(value)))
    )


def _one_of(what: str, value: str, choices: Sequence[str]) -> str:
    if value not in choices:
        raise ValueError(f"There is no {what} “{value}”: choose one of {', '.join(choices)}.")
    return value


def _dollars(value: str) -> float:
    amount = math.nan
    with suppress(ValueError):
        amount = float(value)
    if not math.isfinite(amount) or amount < 0:
        raise ValueError(f"“{value}” is no amount in dollars: write it as 0.25.")
    return amount


def _before(value: str) -> Condition:
    """Return the condition for runs that are older than `<time>~<id>`."""
    at, _, id = value.partition("~")
    started = None
    with suppress(ValueError):
        started = datetime.fromisoformat(at)
    if started is None or started.tzinfo is None or not id:
        raise ValueError("The address names no page of the list: begin at the newest run.")
    last = sa.tuple_(sa.literal(started, runs.c.started.type), sa.literal(id))
    return sa.tuple_(runs.c.started, runs.c.id) < last


async def listed_runs(
    database: Database, run_filter: RunFilter
) -> tuple[Sequence[sa.Row[Any]], str]:
    """Return a page of runs, newest first, and the place of the next page; empty = the last."""
    c = runs.c
    order = (c.started.desc(), c.id.desc())
    newest = sa.select(c.id).where(*run_filter.conditions).order_by(*order).limit(PAGE_SIZE + 1)
    ids = [row.id for row in await database.read(newest)]
    children = sa.select(sa.func.count()).where(subagents.c.run == c.id).scalar_subquery()
    query = sa.select(
        *(c.id, c.kind, c.status, c.started, c.finished, c.cost_usd, c.requester, c.request),
        sa.func.substr(c.question, 1, MAX_TEXT).label("question"),
        schedule_name().label("schedule"),
        children.label("subagents"),
    )
    listed = await database.read(query.where(c.id.in_(ids[:PAGE_SIZE])).order_by(*order))
    is_last = not listed or len(ids) <= PAGE_SIZE
    return listed, "" if is_last else f"{listed[-1].started.isoformat()}~{listed[-1].id}"


def where_of(request: str | None, schedule: str | None) -> str:
    """Return the channel or the schedule of a run; empty on the command line."""
    return request.split("/")[1] if request and request.count("/") == 2 else schedule or ""


@dataclass(frozen=True)
class ShownSubagent:
    """A subagent of a run: its brief and its findings."""

    row: StoredSubagent
    brief: SpawnedBrief
    result: SubagentResult | None

    @classmethod
    def of(cls, row: StoredSubagent) -> ShownSubagent:
        brief = brief_of(row.brief, {"system": (), "tools": ()})
        ended = row.status != WAITING_STATUS and row.result
        return cls(row, brief, SubagentResult.model_validate(row.result) if ended else None)


class RunPages:
    """The pages of one console."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.store: Store = console.store
        self._clean = Redactor(secret_values(console.settings.secrets)).clean

    def routes(self) -> list[Route]:
        of_run = {
            "/runs/{run}": self.show,
            "/runs/{run}/live": self.live,
            "/runs/{run}/audit": self.audit_run,
            "/runs/{run}/subagents/{subagent}": self.subagent,
            "/runs/{run}/contexts/{context}": self.trajectory,
        }
        pages = [Route(path, self._with_run(page)) for path, page in of_run.items()]
        return [Route("/runs", self.list), *pages]

    def _with_run(self, page: Callable[[Request, StoredRun], Awaitable[Response]]) -> PageHandler:
        """Return a page of the run in the address, or one with the reason why there is none."""

        async def answer(request: Request) -> Response:
            run = await self._run(request)
            return await page(request, run) if isinstance(run, StoredRun) else run

        return answer

    def _render(
        self, request: Request, template: str, status: int = 200, **values: Any
    ) -> Response:
        """Return a page; its templates remove secrets from texts with `clean`."""
        return self.console.render(request, template, status, clean=self._clean, **values)

    async def list(self, request: Request) -> Response:
        """List runs by the filter in the address."""
        database = self.store.database
        run_filter = RunFilter.of(request.query_params, database.shared)
        found, more = ((), "") if run_filter.faults else await listed_runs(database, run_filter)
        places = {run.id: where_of(run.request, run.schedule) for run in found}
        return self._render(
            request,
            "runs.html",
            400 if run_filter.faults else 200,
            wanted=run_filter,
            found=found,
            more=more,
            places=places,
            votes=await RequestQueue(database).votes(run.request for run in found if run.request),
            names=await self.console.names(*places.values(), *(run.requester for run in found)),
            choices={"kind": RUN_KINDS, "status": RUN_STATUSES, "rating": RATINGS},
        )

    async def show(self, request: Request, run: StoredRun) -> Response:
        """Show one run."""
        children = await self.store.subagents(run.id)
        timeline = await timeline_of(self.store.database, run, children)
        bars = {bar.id: bar for bar in timeline.bars}
        below = defaultdict[str, list[Bar]](list)
        for child in children:
            below[bars[child.id].parent or ""].append(bars[child.id])
        decisions = await self.store.decisions(run.id)
        parents = [bar for bar in timeline.bars if bar.kind == "parent"]
        return self._render(
            request,
            "run.html",
            **await self._facts(run, timeline),
            below=dict(below),
            roots=[bar.id for bar in parents] + [id for id in below if id not in bars],
            recorded=any(bar.calls for bar in timeline.bars),
            dropped=[(child.id, text) for child in children for text in child.dropped],
            answer=self._answer(run),
            decisions=decisions[-MAX_DECISIONS:],
            more_decisions=max(0, len(decisions) - MAX_DECISIONS),
            verdicts=_verdicts(decisions),
        )

    async def subagent(self, request: Request, run: StoredRun) -> Response:
        """Show the brief and the result of a subagent, as a fragment for the page of its run."""
        id = request.path_params["subagent"]
        try:
            each = ShownSubagent.of(await self.store.subagent(run.id, id))
        except LookupError:
            text = f"The run {run.id} has no subagent {id}, or retention has deleted it."
            return self._message(request, "No subagent", text, 404)
        inside = "hx-request" in request.headers
        template = "subagent_detail.html" if inside else "subagent.html"
        return self._render(request, template, run=run, each=each)

    async def live(self, request: Request, run: StoredRun) -> Response:
        """Return the growing part of a run's page; the whole page is loaded after the run's end."""
        children = await self.store.subagents(run.id)
        facts = await self._facts(run, await timeline_of(self.store.database, run, children))
        page = self._render(request, "run_live.html", **facts)
        if run.finished:
            page.headers["hx-refresh"] = "true"
        return page

    async def audit_run(self, request: Request, run: StoredRun) -> Response:
        """Check a run for leaks now; return only the fragment if the page requests it."""
        report = await asyncio.to_thread(audit, await self.store.trajectory(run.id))
        inside = "hx-request" in request.headers
        template = "audit_verdict.html" if inside else "audit.html"
        return self._render(request, template, run=run, report=report)

    async def trajectory(self, request: Request, run: StoredRun) -> Response:
        """Show the requests and replies of a context."""
        id = request.path_params["context"]
        found = await self.store.trajectory(run.id, id)
        if not found.contexts and not found.requests:
            text = (
                f"Nothing is stored of what {id} of the run {run.id} was sent: there is no such "
                "context, it was not begun yet, or retention.trajectories_days has passed."
            )
            return self._message(request, "No record", text, 404)
        calls = await asyncio.to_thread(shown_calls, found)
        return self._render(
            request,
            "trajectory.html",
            run=run,
            id=id,
            context=found.contexts[0] if found.contexts else None,
            calls=calls,
        )

    async def _facts(self, run: StoredRun, timeline: Timeline) -> dict[str, Any]:
        """Return the values for the growing part of a page."""
        query = sa.select(budgets).where(budgets.c.run == run.id)
        budget = next(iter(await self.store.database.read(query)), None)
        limits = run.args.get("limits") or {}
        paid = [bar.cost_usd for bar in timeline.bars if bar.cost_usd]
        where, key = where_of(run.request, run.args.get("schedule")), run.request or ""
        votes = await RequestQueue(self.store.database).votes([key])
        return {
            "run": run,
            "where": where,
            "names": await self.console.names(run.requester, where),
            "timeline": timeline,
            "spent": run.cost_usd if run.cost_usd is not None else sum(paid),
            "cap": budget.cap_nanousd / NANOUSD_PER_USD if budget else limits.get("cost_usd"),
            "votes": votes[key],
            "emptied": not run.question and run.finished is not None,
        }

    def _answer(self, run: StoredRun) -> str:
        """Return the result of a run as text; empty without one."""
        if not run.result:
            return ""
        try:
            document = parse_document(run.result)
        except ValidationError:
            return "This result was stored by another version, which can show it."
        if isinstance(document, AnswerDocument):
            return without_bold(answer_text(document, whole=True))
        return without_bold(report_text(document, self.console.settings.triage.categories))

    async def _run(self, request: Request) -> StoredRun | Response:
        """Return the run in the address, or a page that reports that there is none."""
        id = request.path_params["run"]
        text = f"There is no run {id}, or it was deleted."
        return await self.store.find_run(id) or self._message(request, "No such run", text, 404)

    def _message(self, request: Request, title: str, text: str, status: int) -> Response:
        return self._render(request, "message.html", status, title=title, text=text)


def _verdicts(decisions: Iterable[Decision]) -> list[tuple[str, int]]:
    return Counter(each.verdict for each in decisions).most_common()


MIN_FOLDED_CHARS = 1_200
"""Characters above which a block is folded."""
MAX_BLOCK_CHARS = 200_000
"""Maximum characters shown of one block."""
MAX_HEAD_CHARS = 100


@dataclass(frozen=True, slots=True)
class ShownBlock:
    """One block of a request or a reply."""

    origin: str
    """Why it is in the context, in words."""
    text: str
    folded: bool

    @property
    def head(self) -> str:
        """Return its beginning, in one line."""
        return " ".join(self.text[: 2 * MAX_HEAD_CHARS].split())[:MAX_HEAD_CHARS]


@dataclass(frozen=True, slots=True)
class ShownCall:
    """One model call."""

    number: int
    attempt: int
    at: datetime
    took: str
    outcome: str
    """How it ended: stop reason, tokens and cost, or the error."""
    sent: tuple[ShownBlock, ...]
    """Blocks that were not in an earlier request of the context."""
    answered: tuple[ShownBlock, ...]


def shown_calls(trajectory: Trajectory) -> list[ShownCall]:
    """Return the calls of a trajectory of one context. Takes about 1 ms for 10,000 tokens."""
    origins = {e.hash: (e.origin.value, e.ref) for e in reversed(trajectory.entries)}
    replies = {(r.seq, r.attempt): r for r in trajectory.replies}
    seen, calls = set[str](), list[ShownCall]()

    def pieces(parts: Iterator[tuple[str, str]]) -> tuple[ShownBlock, ...]:
        fresh = list[ShownBlock]()
        for place, digest in parts:
            if digest not in seen:
                seen.add(digest)
                block = json.loads(trajectory.blocks[digest])
                fresh.append(_piece(place, block, *origins.get(digest, ("", ""))))
        return tuple(fresh)

    for request in trajectory.requests:
        reply = replies.get((request.seq, request.attempt))
        sent = pieces(iter(request.parts))
        answered = pieces((("assistant", digest) for digest in reply.blocks) if reply else iter(()))
        took = (reply.at - request.at).total_seconds() if reply else None
        about = (request.seq, request.attempt, request.at, seconds_text(took), _outcome(reply))
        calls.append(ShownCall(*about, sent, answered))
    return calls


def _piece(place: str, block: Mapping[str, Any], origin: str, ref: str) -> ShownBlock:
    text = _text(place, block)
    if len(text) > MAX_BLOCK_CHARS:
        text = f"{text[:MAX_BLOCK_CHARS]}\n[cut: {len(text):,} characters]"
    name = str(block.get("name", "")) if place == "tool" else ref
    words = origin.replace("_", " ") or "of unknown origin"
    kind = str(block.get("type", ""))
    if place == "assistant" and kind:
        words = {"text": "answer", "thinking": "thinking", "tool_use": "tool call"}.get(kind, kind)
    return ShownBlock(
        f"{words}: {name}" if name else words, text, place == "tool" or len(text) > MIN_FOLDED_CHARS
    )


def _text(place: str, block: Mapping[str, Any]) -> str:
    """Return a block as readable text."""
    match block.get("type"):
        case "text" | "thinking" as kind:
            return str(block.get(kind, ""))
        case "tool_use":
            return f"{block.get('name', '')}\n{_json(block.get('input'))}"
        case "tool_result":
            content = block.get("content") or ""
            if isinstance(content, str):
                return content
            return "\n".join(_text(place, each) for each in content)
        case "image" | "document" as kind:
            return f"[{kind}, {len(json.dumps(block)):,} characters]"
    return _json(block)


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, indent=2)


def _outcome(reply: RecordedReply | None) -> str:
    if reply is None:
        return "no reply is stored"
    outcome = reply.outcome
    if error := outcome.get("error"):
        return f"failed: {error}"
    usage = outcome.get("usage") or {}
    tokens = [
        f"{usage[name]:,} {name.replace('_', ' ')}"
        for name in ("input", "cache_read", "cache_write", "output")
        if usage.get(name)
    ]
    cost = outcome.get("cost_usd")
    parts = (
        str(outcome.get("stop_reason") or ""),
        f"tokens: {', '.join(tokens)}" if tokens else "",
        "" if cost is None else f"${cost:.4f}",
    )
    return " · ".join(filter(None, parts))
