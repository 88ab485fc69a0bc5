"""The rules of the gate, one by one, and what must hold of any sequence of calls."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Annotated, Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule

from config.sections import ToolCalls
from scopes.effects import (
    Access,
    Address,
    Channel,
    Effect,
    Handles,
    Kept,
    Part,
    Person,
    Said,
    Statement,
    Thread,
    Words,
)
from scopes.intent import Intent
from scopes.label import INTERNET, TRUSTED_LABEL, WORKSPACE, Label
from scopes.tool import Item, Tool, ToolContext, ToolResult, tool
from subagents.directory import Obstacle
from subagents.gate import (
    MAX_PROPOSED,
    Action,
    Allow,
    Card,
    Decision,
    Deny,
    Gate,
    count_allowed,
    count_calls,
)
from subagents.rules import MAX_ASKED, MAX_FREE, MAX_GUARDED, MAX_KEPT, MAX_PAGES, MAX_PAGES_RUN

ANA, BOB = "U0ANA", "U0BOB"
HOME, OTHER, SECRET = "C0HOME", "C0OTHER", "C0SECRET"
THREAD = f"{HOME}/1740498077.000100"
ran: list[str] = []
"""Names of the tools that have run."""


@tool(Access.EGRESS, Effect.POST)
async def say(
    ctx: ToolContext, channel: Channel, text: Said, thread: Annotated[str, Part.THREAD] = ""
) -> ToolResult:
    """Say something."""
    ran.append("say")
    return ToolResult(note="said")


@tool(Access.EGRESS, Effect.POST)
async def whisper(ctx: ToolContext, user: Person, text: Said) -> ToolResult:
    """Tell one person."""
    return ToolResult(note="said")


@tool(Access.EGRESS, Effect.SEND)
async def mail(ctx: ToolContext, to: str, text: Said) -> ToolResult:
    """Send a mail."""
    ran.append("mail")
    return ToolResult(note="sent")


@tool(Access.EGRESS, Effect.CHANGE)
async def append(ctx: ToolContext, row: str) -> ToolResult:
    """Append a row."""
    return ToolResult(note="appended")


@tool(Access.EGRESS, Effect.FETCH)
async def read_url(ctx: ToolContext, url: Address) -> ToolResult:
    """Read a page."""
    return ToolResult(note="read")


@tool(Access.EGRESS, Effect.SEARCH)
async def web_search(ctx: ToolContext, query: Words) -> ToolResult:
    """Search."""
    ran.append("search")
    return ToolResult(note="found")


@tool(Access.READ, Effect.QUERY)
async def query(ctx: ToolContext, sql: Statement, keep: Kept = "") -> ToolResult:
    """Query."""
    return ToolResult(note="rows")


@tool()
async def read(ctx: ToolContext, channel: Channel) -> ToolResult:
    """Read a channel."""
    return ToolResult(note="read")


class Facts:
    """A directory made of sets."""

    def __init__(self) -> None:
        self.members = {HOME: {ANA, BOB}, OTHER: {ANA, BOB, "U0EVE"}, SECRET: {BOB}}

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        return user in self.members.get(thing.partition("/")[0], set())

    async def obstacles(self, label: Label, destination: str) -> tuple[Obstacle, ...]:
        await asyncio.sleep(0)
        there = self.members.get(destination, {destination})
        if isinstance(label.readers, str) or there <= label.readers:
            return ()
        return (Obstacle(SECRET, "#secret", "not everyone is a member"),)


class World:
    """A gate with its log, and a context to ask from."""

    def __init__(self, requester: str | None = ANA, **intent: Any) -> None:
        self.log: list[Decision] = []
        self.proposed: list[Action] = []
        self.facts = Facts()
        self.gate = Gate(self.log.append, self.facts, self.proposed.append)
        fields = {"text": "", "named": frozenset(), "home": HOME, "thread": THREAD} | intent
        self.ctx = ToolContext(
            run="r1",
            requester=requester,
            handles=Handles({c: f"#{c.lower()}" for c in (HOME, OTHER, SECRET)} | {ANA: "@ana"}),
            clients={},
            max_output_tokens=1000,
            intent=Intent(**fields),
            scope="slack",
        )

    def with_label(self, label: Label) -> World:
        self.ctx = replace(self.ctx, label=label)
        return self

    async def __call__(self, tool_: Tool, **args: Any) -> Allow | Card | Deny:
        return await self.gate.decide("p1", self.ctx, tool_, args)


PRIVATE = Label(True, frozenset({BOB}), frozenset({SECRET}))
READ = Label(True, WORKSPACE, frozenset({OTHER}))


async def test_unrequested_run_writes_nothing_and_asks_for_no_approval() -> None:
    for world in (World(home="", thread=""), World(None)):
        for tool_, args in (
            (say, {"channel": OTHER, "text": "x"}),
            (whisper, {"user": "me", "text": "x"}),
            (mail, {"to": "a@b.example", "text": "x"}),
            (append, {"row": "x"}),
        ):
            assert isinstance(await world(tool_, **args), Deny), tool_.name
        assert world.proposed == []
    saving = await World(home="", thread="")(note, text="x")
    assert (type(saving), saving.rule) == (Deny, "consequence")
    named = World(text="Tell #other x.", home="", thread="")
    verdict = await named(append, row="x")
    assert isinstance(verdict, Deny)
    assert "nobody can be asked here" in verdict.reason
    assert named.proposed == []


async def test_own_thread_and_requester_may_be_messaged_without_approval() -> None:
    world = World().with_label(READ)
    assert isinstance(await world(say, channel=HOME, text="x", thread=THREAD), Allow)
    assert isinstance(await world(say, channel=HOME, text="x", thread="1740498077.000100"), Allow)
    assert isinstance(await world(say, channel=HOME, text="x", thread=""), Card)
    assert isinstance(await world(say, channel=HOME, text="x", thread=f"{HOME}/1.2"), Card)
    assert isinstance(await world(whisper, user=ANA, text="x"), Allow)
    assert isinstance(await world(whisper, user=BOB, text="x"), Deny), "Bob is no handle"
    assert isinstance(await world(whisper, user=f"{ANA}/,{BOB}", text="x"), Deny)


@tool(Access.READ, Effect.CODE)
async def run_code(ctx: ToolContext, code: str) -> ToolResult:
    """Run code."""
    raise AssertionError("it has no sandbox")


@tool(Access.READ, Effect.CODE, sandboxed=True)
async def compute(ctx: ToolContext, code: str) -> ToolResult:
    """Run code without any I/O."""
    return ToolResult(note="4")


async def test_code_runs_in_a_sandbox_or_not_at_all() -> None:
    assert isinstance(await World()(run_code, code="1"), Deny)
    assert isinstance(await World()(compute, code="2+2"), Allow)


async def test_words_of_the_request_may_be_posted_even_after_private_reads() -> None:
    text = 'post "Deploy done" in #other'
    world = World(BOB, text=text, named=frozenset({OTHER})).with_label(PRIVATE)
    assert isinstance(await world(say, channel=OTHER, text="Deploy done"), Allow)
    assert isinstance(await world(say, channel=OTHER, text="Deploy done: plan"), Deny)


async def test_irreversible_actions_always_need_approval() -> None:
    """Also if they say only words of the request."""
    world = World(text='send "hi" to a@example.org and append it')
    sent = await world(mail, to="a@example.org", text="hi")
    appended = await world(append, row="hi")
    assert isinstance(sent, Card)
    assert isinstance(appended, Card)
    assert world.proposed == [sent.action, appended.action]


async def test_repeated_call_reuses_its_card_and_cards_are_limited() -> None:
    world = World()
    first = await world(mail, to="a", text="x")
    again = await world(mail, to="a", text="x")
    assert isinstance(first, Card)
    assert isinstance(again, Card)
    assert again.action is first.action
    for n in range(MAX_PROPOSED + 5):
        verdict = await world(mail, to=f"b{n}", text="x")
    assert isinstance(verdict, Deny)
    assert len(world.proposed) == MAX_PROPOSED


async def test_messages_beyond_the_limit_need_approval() -> None:
    world = World(named=frozenset({OTHER}))
    verdicts = [await world(say, channel=OTHER, text=f"{n}") for n in range(MAX_FREE + 2)]
    assert [isinstance(v, Allow) for v in verdicts] == [True] * MAX_FREE + [False] * 2
    assert isinstance(verdicts[-1], Card)
    again = World(named=frozenset({OTHER}))
    again.gate.counts = count_allowed(world.log)
    assert isinstance(await again(say, channel=OTHER, text="more"), Card), (
        "a resumed run keeps the count"
    )


async def test_concurrent_messages_respect_the_limit() -> None:
    """All calls of a turn are decided side by side, and each decision waits for Slack."""
    world = World(named=frozenset({OTHER}))
    may_read = world.facts.may_read

    async def slow(user: str | None, thing: str, *, fresh: bool = False) -> bool:
        await asyncio.sleep(0.01)
        return await may_read(user, thing, fresh=fresh)

    world.facts.may_read = slow  # type: ignore[method-assign]
    calls = [world(say, channel=OTHER, text=f"{n}") for n in range(MAX_FREE + 2)]
    verdicts = await asyncio.gather(*calls)
    assert sum(isinstance(v, Allow) for v in verdicts) == MAX_FREE


ADDRESS = "https://example.org/prices"


@pytest.mark.parametrize(
    "url", ["file:///etc/passwd", "https://user:pw@example.org/", "https://127.0.0.1/"]
)
async def test_unsafe_addresses_are_denied_even_if_the_request_has_them(url: str) -> None:
    assert isinstance(await World(text=f"read {url} now")(read_url, url=url), Deny)


async def test_web_search_after_private_reads_allows_only_words_of_the_request() -> None:
    world = World(text="who is Acme Corp?")
    assert isinstance(await world(web_search, query="acme competitors"), Allow)
    private = world.with_label(PRIVATE)
    assert isinstance(await private(web_search, query="acme launch delayed"), Card)
    assert isinstance(await private(web_search, query="Acme Corp"), Allow)
    assert isinstance(await private(web_search, query="corp acme"), Card)


MIXED = Label(True, WORKSPACE, frozenset({OTHER}), outside=True)
"""Text of a public channel, and something that an outsider wrote."""


async def test_only_the_exact_address_of_the_request_is_read() -> None:
    world = World(text=f"read {ADDRESS}.").with_label(PRIVATE)
    assert isinstance(await world(read_url, url=ADDRESS), Allow)
    assert isinstance(await world(read_url, url=f"{ADDRESS}?x=1"), Deny)


async def test_address_listed_early_is_not_read_after_private_text() -> None:
    early = "https://example.org/early"
    world = World()
    world.ctx = replace(world.ctx, handles=world.ctx.handles.join({early: ""}, early=True))
    assert isinstance(await world.with_label(MIXED)(read_url, url=early), Allow)
    assert isinstance(await world.with_label(PRIVATE)(read_url, url=early), Card)


@pytest.mark.parametrize(("label", "most"), [(MIXED, MAX_GUARDED), (PRIVATE, MAX_ASKED)])
async def test_outside_lookups_after_workspace_reads_are_limited(label: Label, most: int) -> None:
    addresses = [f"https://example.org/{n}" for n in range(most + 2)]
    world = World(text=" ".join(addresses))
    for url in addresses:
        assert isinstance(await world(read_url, url=url), Allow), "these reveal nothing"
    world.with_label(label)
    verdicts = [await world(read_url, url=url) for url in addresses]
    assert [isinstance(v, Allow) for v in verdicts] == [True] * most + [False] * 2
    resumed = World(text=" ".join(addresses)).with_label(label)
    resumed.gate.counts = count_allowed(world.log)
    assert isinstance(await resumed(read_url, url=addresses[0]), Card)


async def test_page_reads_are_limited_per_context_and_per_run() -> None:
    world = World()
    world.ctx = replace(world.ctx, handles=world.ctx.handles.join({ADDRESS: ""}))
    for n in range(MAX_PAGES):
        assert isinstance(await world(read_url, url=ADDRESS), Allow), n
    assert isinstance(await world(read_url, url=ADDRESS), Deny)
    assert isinstance(await world(web_search, query="x y"), Deny)
    other = await world.gate.decide("s2", world.ctx, read_url, {"url": ADDRESS})
    assert isinstance(other, Allow), "another context has its own"
    world.gate.counts["ask"] = MAX_PAGES_RUN
    assert isinstance(await world.gate.decide("s3", world.ctx, read_url, {"url": ADDRESS}), Deny)


LABELS = st.builds(
    Label,
    st.booleans(),
    st.one_of(
        st.sampled_from([INTERNET, WORKSPACE]), st.frozensets(st.sampled_from([ANA, BOB, "U0EVE"]))
    ),
    st.frozensets(st.sampled_from([HOME, OTHER, SECRET])),
    st.booleans(),
)


class Interleavings(RuleBasedStateMachine):
    """Any calls in any order: each one that runs was allowed, and only readers get private text."""

    def __init__(self) -> None:
        super().__init__()
        self.world = World(BOB, text="say hi in #other", named=frozenset({OTHER}))
        self.label = TRUSTED_LABEL
        ran.clear()

    def call(self, tool_: Tool, **args: Any) -> None:
        self.world.with_label(self.label)
        before = len(self.world.log)
        done = len(ran)
        asyncio.run(self.world.gate.call("p1", self.world.ctx, tool_, args))
        assert len(self.world.log) == before + 1
        if len(ran) > done:
            assert self.world.log[-1].verdict == "allow"

    @rule(label=LABELS)
    def reads(self, label: Label) -> None:
        before = self.label
        self.label = self.label.join(label)
        assert before.within(self.label)

    @rule(channel=st.sampled_from([HOME, OTHER, SECRET, "C0NOTHING"]), text=st.text(max_size=9))
    def says(self, channel: str, text: str) -> None:
        done = len(ran)
        self.call(say, channel=channel, text=text)
        if len(ran) > done and text.strip() not in ("say", "hi", "in", "say hi"):
            there = self.world.facts.members[channel]
            assert (
                isinstance(self.label.readers, str)
                or there <= self.label.readers
                or (self.world.ctx.intent.says(text))
            )

    @rule(query=st.text(max_size=9))
    def searches(self, query: str) -> None:
        done = len(ran)
        self.call(web_search, query=query)
        if len(ran) > done:
            label = self.label
            free = label.readers == INTERNET or (label.readers == WORKSPACE and not label.outside)
            assert free or self.world.ctx.intent.says(query)

    @rule(to=st.text(max_size=5))
    def sends(self, to: str) -> None:
        done = len(ran)
        self.call(mail, to=to, text="x")
        assert len(ran) == done, "nothing is sent without a person"


TestInterleavings = Interleavings.TestCase
TestInterleavings.settings = settings(max_examples=40, stateful_step_count=25, deadline=None)


@tool(Access.EGRESS, Effect.REACT)
async def mark(ctx: ToolContext, message: Thread, name: str) -> ToolResult:
    """Mark a message."""
    return ToolResult(note="marked")


async def test_reaction_to_a_message_not_named_in_the_request_needs_approval() -> None:
    own = f"{HOME}/1740498099.000100"
    world = World(own=own)
    assert isinstance(await world(mark, message=own, name="eyes"), Allow)
    assert isinstance(await world(mark, message=THREAD, name="ok"), Card)


@tool(Access.WRITE)
async def note(ctx: ToolContext, text: Said) -> ToolResult:
    """Keep a note."""
    return ToolResult(note="kept")


async def test_saved_notes_and_results_are_limited_per_context_and_must_be_requested() -> None:
    world = World()
    verdicts = [await world(query, sql="SELECT 1", keep=f"{n}.csv") for n in range(MAX_KEPT + 1)]
    assert [isinstance(v, Allow) for v in verdicts] == [True] * MAX_KEPT + [False]
    assert isinstance(await world(query, sql="SELECT 1"), Allow)
    assert isinstance(await world(note, text="x"), Deny)
    other = await world.gate.decide("s2", world.ctx, note, {"text": "x"})
    assert isinstance(other, Allow), "another context has its own"
    repeated = World()
    for _ in range(MAX_KEPT):  # each process that resumes the run decides again
        await repeated(query, sql="SELECT 1", keep="a.csv")
    assert count_allowed(repeated.log) == {"keep p1": 1}
    unrequested = World(home="", thread="")
    denied = await unrequested(query, sql="SELECT 1", keep="a.csv")
    assert isinstance(denied, Deny)
    assert denied.reason == "Nobody has asked for anything to be stored here."
    assert isinstance(await unrequested(query, sql="SELECT 1"), Allow)


@tool()
async def recall(ctx: ToolContext) -> ToolResult:
    """Read one's notes."""
    return ToolResult((Item("note/1", "plan", None, Label(True, frozenset({ANA}))),))


async def test_restricted_item_without_a_source_is_labelled_with_its_tool() -> None:
    world = World()
    found = await world.gate.call("p1", world.ctx, recall, {})
    assert isinstance(found, ToolResult)
    assert found.items[0].label.sources == frozenset({"tool:recall"})


async def test_tool_calls_are_counted_per_context_and_across_restarts() -> None:
    most = ToolCalls(turn=9, context=4, request=6)  # the seventh is one too many in any context
    first = World()
    first.gate.limits, first.ctx = most, replace(first.ctx, turn=1)
    for _ in range(3):
        await first(read, channel=HOME)
    await first.gate.obstacles(first.ctx.context, first.ctx)  # logged, but no call
    again = World()
    again.gate.limits, again.gate.requested = most, count_calls(first.log)
    again.ctx = replace(again.ctx, turn=2)
    verdicts = [await again(read, channel=HOME) for _ in range(2)]
    assert [isinstance(v, Allow) for v in verdicts] == [True, False]
    others = [await again.gate.decide("s2", again.ctx, read, {"channel": HOME}) for _ in range(2)]
    assert [isinstance(v, Allow) for v in others] == [True, False]


async def test_calls_over_the_turn_limit_are_not_allowed_except_by_code() -> None:
    world = World(named=frozenset({OTHER}))
    world.gate.limits, world.ctx = ToolCalls(turn=1), replace(world.ctx, turn=1)
    verdicts = [await world(say, channel=OTHER, text=f"{n}") for n in range(4)]
    assert [isinstance(v, Allow) for v in verdicts] == [True, False, False, False]
    assert count_allowed(world.log) == {"leave": 1}
    world.ctx = replace(world.ctx, turn=None)
    assert isinstance(await world(say, channel=OTHER, text="x"), Allow)


async def test_decision_log_counts_readers_without_naming_them() -> None:
    world = World(BOB).with_label(PRIVATE)
    await world(say, channel=OTHER, text="x")
    assert world.log[-1].label == {**PRIVATE.to_json(), "readers": 1}
    await world.with_label(READ)(say, channel=OTHER, text="x")
    assert (world.log[-1].label or {})["readers"] == "workspace"
