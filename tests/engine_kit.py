"""Kit of the engine's tests: the real SDKs over loopback, scripted models, a small workspace.

A `Responder` is a function from a request to an answer; these helpers read its requests and build
its answers. No product code is replaced: a test changes only settings, responders, faults and data.
"""

from __future__ import annotations

import asyncio
import atexit
import hashlib
import json
import time
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Iterable,
    Iterator,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import cache
from itertools import count
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
import platformdirs
from genai_prices import Usage as ListedUsage
from genai_prices import calc_price
from pg_kit import with_store
from standins.connections import read_ahead
from standins.model import ModelServer, Responder
from standins.model_faults import Fault, Faults
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from starlette.responses import Response
from starlette.types import Receive, Scope, Send
from timing import WAIT_S, Patience, patient

from bot.context import App
from bot.local.model.answer import Answer
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, Message, Team, User, Workspace
from bot.options import Options
from bot.policy.directory import SlackDirectory
from bot.runs.store import Store
from bot.slack.people import People
from bot.tasks.ask import Ask
from bot.tasks.base import Request
from config.settings import Settings, load_settings
from scopes.effects import Handles
from scopes.label import TRUSTED_LABEL, Label
from scopes.members import Members
from scopes.slack_client import connect
from scopes.slack_reader import SlackReader
from scopes.tool import Item, Tool, ToolContext, ToolError, ToolResult, Window, tool
from scopes.tool import tool_schema as schema_of
from subagents.agent import Agent
from subagents.brief import SUBMIT, Brief, BriefDraft, text_block
from subagents.budget import NANOUSD_PER_USD, Budget, Caps
from subagents.contracts import CONTRACTS
from subagents.conversation import Ending, Spec
from subagents.delimiter import new_delimiter
from subagents.events import Event
from subagents.fanout import Fanout, TaskSpawner
from subagents.gate import Decision, Gate
from subagents.model import ModelClient
from subagents.overlap import audit
from subagents.rate_limiter import RateLimiter
from subagents.run import Run, step_body, step_value
from subagents.toolbox import Toolbox
from subagents.trajectory import Origin, Recording

Json = dict[str, Any]
T = TypeVar("T")

START = 1_740_000_000
WINDOW = Window(
    datetime.fromtimestamp(START, UTC), datetime.fromtimestamp(START, UTC) + timedelta(days=7)
)

# ---- answers of a scripted model


def use(name: str, /, **arguments: Any) -> Json:
    return {"type": "tool_use", "name": name, "input": arguments}


def words(text: str) -> Json:
    return {"type": "text", "text": text}


def say(text: str) -> Answer:
    return Answer([words(text)])


def call(name: str, /, **arguments: Any) -> Answer:
    return Answer([use(name, **arguments)])


def submit(text: str = "done", **fields: Any) -> Json:
    return use(SUBMIT, text=text, **fields)


def submission(text: str = "done", **fields: Any) -> Answer:
    return Answer([submit(text, **fields)])


def finding(claim: str, *evidence: str, **fields: Any) -> Json:
    return {"claim": claim, "evidence": list(evidence), **fields}


# ---- requests to a scripted model


def turn(body: Json) -> int:
    """Return how many answers of the model this conversation holds."""
    return sum(m["role"] == "assistant" for m in body["messages"])


def texts(message: Json) -> list[str]:
    content = message["content"]
    if isinstance(content, str):
        return [content]
    return [str(b.get("text") or b.get("content") or "") for b in content]


def opening(body: Json) -> str:
    return "\n".join(texts(body["messages"][0]))


def since(body: Json) -> str:
    """Return all text that the model got since its last answer."""
    parts: list[str] = []
    for message in reversed(body["messages"]):
        if message["role"] == "assistant":
            break
        parts = texts(message) + parts
    return "\n".join(parts)


def line(body: Json, name: str) -> str:
    """Return the line `NAME: ...` of the first message; empty when there is none."""
    head = f"{name}: "
    lines = opening(body).splitlines()
    return next((each.removeprefix(head) for each in lines if each.startswith(head)), "")


def results(body: Json) -> list[Json]:
    """All tool results in the conversation, in order."""
    return [
        block
        for message in body["messages"]
        if message["role"] == "user" and not isinstance(message["content"], str)
        for block in message["content"]
        if block["type"] == "tool_result"
    ]


def is_child(body: Json) -> bool:
    return any(t["name"] == SUBMIT for t in body.get("tools", ()))


def turns(*answers: Answer | Callable[[Json], Answer]) -> Responder:
    """One answer after another; the last one again and again."""

    def responder(body: Json) -> Answer:
        chosen = answers[min(turn(body), len(answers) - 1)]
        return chosen(body) if callable(chosen) else chosen

    return responder


def always(kind: str) -> Faults:
    """Every request fails in this way."""
    return Faults(lambda index, body: Fault(kind, retry_after=0))


# ---- tools of the tests


@tool()
async def look(ctx: ToolContext, word: str) -> ToolResult:
    """Look a word up."""
    item = Item(f"x/{word}", f"what is known of {word}", None, Label(untrusted=True))
    return ToolResult((item,))


@tool()
async def boom(ctx: ToolContext) -> ToolResult:
    """Crash."""
    raise RuntimeError("kaput")


@tool()
async def mend(ctx: ToolContext) -> ToolResult:
    """Refuse with an advice."""
    raise ToolError("Not like this. Try look.")


@tool()
async def rest(ctx: ToolContext, seconds: float) -> ToolResult:
    """Take some time."""
    await asyncio.sleep(seconds)
    return ToolResult(note=f"rested {seconds:g} s")


@tool()
async def flood(ctx: ToolContext, items: int, name: str = "f") -> ToolResult:
    """Return much."""
    many = [
        Item(f"{name}/{n}", sentence(f"{name}{n}", 30), None, Label(untrusted=True))
        for n in range(items)
    ]
    return ToolResult(tuple(many))


OWN_TOOLS = (look, boom, mend, rest, flood)

# ---- a small workspace


def sentence(seed: str, length: int = 14) -> str:
    """Made-up words, the same for one seed and unlike those of any other."""
    raw = hashlib.shake_256(seed.encode()).hexdigest(4 * length)
    return " ".join(raw[n : n + 8].translate(LETTERS) for n in range(0, len(raw), 8))


LETTERS = str.maketrans("0123456789", "ghijklmnop")


def channel_id(number: int) -> str:
    return f"C{number:08d}"


def thread_id(channel: int, thread: int, reply: int = 0) -> str:
    return f"{channel_id(channel)}/{START + 3600 * thread + 60 * reply}.000100"


def channel_of(number: int, threads: int) -> Channel:
    """Threads of a question and an answer, in words of their own."""
    messages = []
    for n in range(threads):
        root = thread_id(number, n).partition("/")[2]
        reply = thread_id(number, n, 1).partition("/")[2]
        question, answer = f"q{number}.{n}", f"a{number}.{n}"
        messages.append(Message(root, sentence(question), "U0ANA", thread_ts=root))
        messages.append(Message(reply, sentence(answer), "U0LUIS", thread_ts=root))
    return Channel(channel_id(number), f"support-{number}", tuple(messages), ("U0ANA", "U0LUIS"))


def workspace(channels: int = 4, threads: int = 2) -> Workspace:
    people = (
        User("U0ANA", "ana", "Ana Ruiz"),
        User("U0LUIS", "luis", "Luis Gil"),
        User("U0EVA", "eva", "Eva Roth"),
    )
    support = tuple(channel_of(n, threads) for n in range(1, channels + 1))
    return Workspace(Team("T0ACME", "Acme", "acme"), people, support)


# ---- settings


@cache
def default_settings() -> Settings:
    """Return the defaults, cached: reading them takes as long as a small test."""
    return load_settings(env={})


def settings_for(
    limits: Mapping[str, Any] | None = None,
    models: Mapping[str, Any] | None = None,
    roles: Mapping[str, Mapping[str, Any]] | None = None,
) -> Settings:
    """Return the defaults with short waits and these changes."""
    home = platformdirs.user_data_path("workspace-assistant", appauthor=False)
    base = default_settings().model_copy(update={"data_dir": home})  # another one for each test
    quick = {"timeout_s": 10.0, "max_attempts": 2, "retry_after_cap_s": 0.05}
    changed = {
        name: base.models.roles.model_dump()[name] | each for name, each in (roles or {}).items()
    }
    new_roles = base.models.roles.model_copy(
        update={n: type(base.models.roles.parent)(**each) for n, each in changed.items()}
    )
    return base.model_copy(
        update={
            "models": base.models.model_copy(
                update={**quick, **(models or {}), "roles": new_roles}
            ),
            "limits": base.limits.model_copy(update={"seconds": 30.0, **(limits or {})}),
            "slack": base.slack.model_copy(update={"retry_attempts": 0, "timeout_s": 5}),
        }
    )


def list_price_nanousd(model: str, usage: Mapping[str, Any]) -> int:
    """Return the price of one call by genai-prices itself."""
    counts = ListedUsage(
        input_tokens=usage["input_tokens"]
        + usage["cache_read_input_tokens"]
        + usage["cache_creation_input_tokens"],
        output_tokens=usage["output_tokens"],
        cache_read_tokens=usage["cache_read_input_tokens"],
        cache_write_tokens=usage["cache_creation_input_tokens"],
    )
    price = calc_price(counts, model, provider_id="anthropic").total_price
    return int((price * NANOUSD_PER_USD).to_integral_value())


# ---- the engine


class ReplayableRun(Run):
    """Returns the value of a step as a replay would read it from its JSON."""

    async def record(self, key: str, kind: type[T], value: T, *, repeatable: bool = False) -> T:
        result = await super().record(key, kind, value, repeatable=repeatable)
        return step_value(kind, json.loads(step_body(kind, result)))


@dataclass
class Engine:
    """One run against a scripted model, and what it recorded."""

    run: Run
    settings: Settings
    server: ModelServer
    slack: LocalSlack
    sink: Recording
    decisions: list[Decision]
    events: list[Event]
    reader: SlackReader
    spawner: TaskSpawner

    @property
    def requests(self) -> list[Json]:
        """The bodies that reached the server, in order of arrival."""
        return self.server.recorded

    def cost_nanousd(self) -> int:
        """Return the list price of all valid answers, each priced alone."""
        return sum(list_price_nanousd(m["model"], m["usage"]) for m in self.server.answered)

    def context(
        self, titles: Mapping[str, str] | None = None, window: Window | None = WINDOW
    ) -> ToolContext:
        return self.run.context(handles=Handles(titles or {}), window=window)

    def agent(
        self,
        text: str = "TASK: try",
        tools: Iterable[Tool] = OWN_TOOLS,
        *,
        contract: str | None = "answer",
        name: str = "s1",
        handles: Mapping[str, str] | None = None,
        **fields: Any,
    ) -> Agent:
        """A context with tools of the test's own; `fields` go into its Spec."""
        offered = {t.name: t for t in tools}
        schemas = [t.schema() for t in offered.values()]
        if contract:
            schemas.append(schema_of(SUBMIT, "End.", CONTRACTS[contract], strict=True))
        role = "subagent_fast" if contract else "parent"
        self.run.declare(
            name,
            scope="test",
            role=role,
            template="",
            tools=[t["name"] for t in schemas],
            kind="subagent" if contract else "parent",
            parent="p1" if contract else None,
        )
        origin = Origin.BRIEF if contract else Origin.REQUEST
        spec: Json = {
            "run": self.run.id,
            "context": name,
            "role": role,
            "system": [text_block("You are tried out.")],
            "tools": schemas,
            "opening": [(origin, text_block(text), "")],
            "max_steps": self.run.limits.subagent_steps,
            "context_limit": self.run.limits.child_context,
            "seconds": self.run.budget.seconds_left(),
            "contract": contract,
        }
        toolbox = Toolbox(offered, self.run.gate, self.run.limits.tool_timeout_s, new_delimiter())
        return Agent(self.run, Spec(**{**spec, **fields}), toolbox, self.context(handles))

    def fanout(self) -> Fanout:
        return Fanout(self.run, self.spawner)

    def brief(self, task: str, *channels: int, **fields: Any) -> Brief:
        """A brief over channels of the workspace."""
        titles = {channel_id(n): f"#support-{n}" for n in channels}
        draft = BriefDraft(
            **{
                "task": task,
                "description": task[:100],
                "scope": "slack",
                "handles": tuple(titles),
                **fields,
            }
        )
        return Brief(draft, Handles(titles), WINDOW, TRUSTED_LABEL)

    def app(self, store: Store) -> App:
        """Return what the tasks of this run need, wired as in the product."""
        return App(
            settings=self.settings,
            options=Options(model="claude"),
            model=self.run.model,
            rate_limiter=self.run.rate_limiter,
            store=store,
            reader=self.reader,
            as_of=WINDOW.latest,
            problems=(),
            emit=self.run.emit,
        )

    def ask(self, question: str, store: Store) -> Ask:
        """Return a parent that answers a question."""
        return Ask(self.app(store), self.run, Request(question, WINDOW))


@dataclass
class LenientServer:
    """A compatible server without limits, checks or streams."""

    content: Callable[[Json], Any]
    """Request body -> the content of the answer; None leaves it to the strict server."""
    fields: Json = field(default_factory=dict)
    """Other fields of the message that differ; None leaves a field out."""
    recorded: list[Json] = field(default_factory=list)
    strict: Any = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        raw, replay = await read_ahead(receive)
        body = json.loads(raw)
        self.recorded.append(body)
        content = self.content(body)
        if content is None:
            await self.strict(scope, replay, send)
            return
        has_calls = isinstance(content, list) and any(b.get("type") == "tool_use" for b in content)
        message: Json = {
            "id": f"msg_{len(self.recorded)}",
            "type": "message",
            "role": "assistant",
            "model": body["model"],
            "content": content,
            "stop_reason": "tool_use" if has_calls else "end_turn",
            "stop_sequence": None,
            "usage": {
                "input_tokens": -(-len(raw) // 3),
                "output_tokens": -(-len(json.dumps(content)) // 3),
            },
        }
        message = {k: v for k, v in {**message, **self.fields}.items() if v is not None}
        await Response(json.dumps(message), media_type="application/json")(scope, receive, send)


@dataclass
class Mux:
    """Many apps behind one server, each under its own path: starting servers takes time."""

    apps: dict[str, Any] = field(default_factory=dict)
    numbers: Iterator[int] = field(default_factory=count)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        _, number, rest = scope["path"].split("/", 2)
        inner = {
            **scope,
            "path": f"/{rest}",
            "raw_path": f"/{rest}".encode(),
            "root_path": f"/{number}",
        }
        await self.apps[number](inner, receive, send)

    @contextmanager
    def served_app(self, app: Any) -> Iterator[str]:
        number = str(next(self.numbers))
        self.apps[number] = app
        try:
            yield f"{servers().url}/{number}"
        finally:
            del self.apps[number]


MUX = Mux()


@cache
def servers() -> LocalServer:
    """The one server of this process."""
    server = LocalServer(MUX, "tests")
    server.start()
    atexit.register(server.stop)
    return server


async def no_grants(destination: str) -> frozenset[str]:
    """No administrator has granted anything."""
    return frozenset()


@asynccontextmanager
async def engine(
    responder: Responder,
    settings: Settings | None = None,
    *,
    slack: LocalSlack | None = None,
    faults: Faults | None = None,
    latency_s: float = 0.0,
    lax: LenientServer | None = None,
    run_id: str = "r1",
    requester: str | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> AsyncIterator[Engine]:
    """A run whose model is `responder` (or a `lax` server) and whose Slack is a small workspace."""
    settings = settings or settings_for()
    slack = slack or LocalSlack(workspace())
    server = ModelServer(responder, faults=faults, latency_s=latency_s, record=True)
    async with AsyncExitStack() as stack:
        if lax:
            lax.strict = server.app
        model_url = stack.enter_context(MUX.served_app(lax or server.app))
        slack_url = stack.enter_context(MUX.served_app(slack.app)) + API_PATH
        model = ModelClient(settings.models, "k", model_url)
        stack.push_async_callback(model.aclose)
        session = await stack.enter_async_context(aiohttp.ClientSession())
        web = connect(session, BOT_TOKEN, slack_url, settings.slack)
        members = Members(web, clock=clock)
        stack.push_async_callback(members.aclose)
        lookback = timedelta(days=settings.slack.lookback_days)
        reader = SlackReader(web, lookback, members=members)
        directory = SlackDirectory(members, People(web), no_grants, BOT_USER, slack.state.team.id)
        caps = settings.limits
        sink, decisions, events = Recording(), list[Decision](), list[Event]()
        run = ReplayableRun(
            id=run_id,
            requester=requester,
            model=model,
            rate_limiter=RateLimiter(caps.max_concurrency),
            budget=Budget(Caps.of(caps), asyncio.get_running_loop().time),
            gate=Gate(decisions.append, directory, limits=caps.tool_calls),
            sink=sink,
            limits=caps,
            clients={SlackReader: reader},
            emit=events.append,
        )
        spawner = TaskSpawner(run)
        stack.push_async_callback(spawner.aclose)
        yield Engine(run, settings, server, slack, sink, decisions, events, reader, spawner)


async def until(condition: Callable[[], object], seconds: float = WAIT_S) -> None:
    """Return when the condition holds; raise AssertionError if it does not in this time."""
    patience = Patience(seconds)
    while not condition():
        assert not patience.over, "the condition did not become true"
        await asyncio.sleep(0.01)


async def come(find: Callable[[], Awaitable[T | None]]) -> T:
    """Return the first true value."""
    async with patient():
        while not (value := await find()):  # noqa: ASYNC110 - it is in the database
            await asyncio.sleep(0.02)
    return value


async def run_agent(agent: Agent) -> Ending:
    """Run an agent to its end, and check that it left no reservations."""
    ending = await agent.run()
    assert agent.run_.budget.reserved.nanousd == 0
    assert agent.run_.budget.reserved.tokens == 0
    return ending


async def ran(
    responder: Responder,
    settings: Settings | None = None,
    *,
    faults: Faults | None = None,
    lax: LenientServer | None = None,
    **fields: Any,
) -> tuple[Engine, Agent, Ending]:
    """An agent that ran to its end, alone in an engine; `fields` are those of `Engine.agent`."""
    async with engine(responder, settings, faults=faults, lax=lax) as e:
        agent = e.agent(**fields)
        return e, agent, await run_agent(agent)


@asynccontextmanager
async def store_at(path: Path) -> AsyncIterator[Store]:
    with_store(path)
    store = await Store.open(path)
    try:
        yield store
    finally:
        await store.aclose()


def usd(nano: int) -> float:
    return float(Decimal(nano) / NANOUSD_PER_USD)


def prefixes(bodies: Sequence[Json]) -> set[str]:
    """Return the distinct beginnings (tools and system) of these requests, byte for byte."""
    return {json.dumps([b.get("tools"), b["system"]]) for b in bodies}


# ---- a parent and its subagents

QUESTION = "What is open in #support-1 and in #support-2?"


def brief(n: int = 1, **fields: Any) -> Json:
    task = f"Find out what is open in channel {n}"
    source: Json = {"scope": "slack", "handles": [channel_id(n)]}
    return use("run_subagent", **{"task": task, "description": f"Channel {n}", **source, **fields})


def child(body: Json) -> Answer:
    """Reads what it may, and hands in a finding on the first thread."""
    n = int(line(body, "MAY READ").split("#support-")[1].split(")")[0])
    if not results(body):
        return call("read_channel_history", channel=channel_id(n))
    root = thread_id(n, 0)
    quote = sentence(f"q{n}.0")
    claim = f"The {quote.split()[0]} of channel {n} has been broken since some time last week"
    return submission(f"Channel {n} is read.", findings=[finding(claim, root, state="unsolved")])


def scripted_parent(
    *turns_: Answer | Callable[[Json], Answer], children: Responder = child
) -> Responder:
    """A parent by script, its subagents by rule."""
    parent = turns(*turns_)
    return lambda body: children(body) if is_child(body) else parent(body)


class AnsweredRequest:
    """An answered question, and the requests that it took."""

    def __init__(self, e: Engine, document: Json) -> None:
        self.e, self.document = e, document
        self.children = [b for b in e.requests if is_child(b)]
        self.parent = [b for b in e.requests if not is_child(b)]
        self.subagents: list[Json] = document["subagents"]
        self.report = audit(e.sink.trajectory("r1"))


async def ask_engine(
    responder: Responder,
    tmp_path: Path,
    settings: Settings | None = None,
    question: str = QUESTION,
    **more: Any,
) -> AnsweredRequest:
    """A question answered by a parent and its subagents; `more` goes to `engine`."""
    options = {"slack": LocalSlack(workspace(6)), **more}
    async with engine(responder, settings, **options) as e, store_at(tmp_path) as store:
        await store.start_run("r1", "ask", question, "claude", {})
        document = await e.ask(question, store).work()
        assert e.run.budget.reserved.nanousd == 0
    return AnsweredRequest(e, document.to_json())


def brief_answer(n: int = 1, **fields: Any) -> Answer:
    return Answer([brief(n, **fields)])
