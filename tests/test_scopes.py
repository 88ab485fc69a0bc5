"""Scopes are exact, and a tool is what its signature and docstring say."""

from __future__ import annotations

import json

import pytest
from engine_kit import (
    call,
    channel_id,
    engine,
    results,
    run_agent,
    submitted,
    thread_id,
    turns,
    workspace,
)
from hypothesis import given, settings
from hypothesis import strategies as st

import scopes
from bot.local.model.checks import check_message_request
from bot.local.slack.server import LocalSlack
from scopes.clients import Clients, name_of, names_in, with_clients
from scopes.conversations import Conversations
from scopes.effects import Access
from scopes.google.gmail import Gmail
from scopes.handles import Handles
from scopes.label import TRUSTED, WORKSPACE, Label
from scopes.notes import Notes
from scopes.resources import Resources
from scopes.sheets import Sheets
from scopes.slack_names import named_in
from scopes.tool import Item, ToolContext, ToolResult, estimate_tokens, not_found, tool
from subagents.brief import SUBMIT, fixed_tokens, template, tools_for
from subagents.contracts import CONTRACTS

NAMES = scopes.scope_names()
LABELS = st.builds(
    Label,
    st.booleans(),
    st.one_of(st.just(WORKSPACE), st.frozensets(st.sampled_from("abcd"))),
    st.frozensets(st.sampled_from(["C1", "C2", "F1"])),
)


@pytest.mark.parametrize("name", NAMES)
def test_a_scope_has_few_tools_with_names_of_their_own_and_none_that_spawns(name: str) -> None:
    offered = [t.name for t in scopes.scope(name).tools]
    assert len(offered) == len(set(offered)) <= (26 if name == scopes.ALL else 12)
    assert not {"run_subagent", "run_subagents", SUBMIT} & set(offered)


@pytest.mark.parametrize("name", [n for n in NAMES if n != scopes.ALL])
def test_a_subagent_pays_little_for_its_scope(name: str) -> None:
    assert fixed_tokens(name, scopes.scope(name).tools) <= 1_500


def test_a_scope_for_everything_only_reads() -> None:
    assert {t.access for t in scopes.scope("all").tools} == {Access.READ}


def test_an_unknown_scope_says_which_there_are() -> None:
    with pytest.raises(scopes.UnknownScope) as error:
        scopes.scope("mail")
    assert error.value.names == NAMES
    assert str(error.value) == f"No scope 'mail'. Scopes: {', '.join(NAMES)}."


def test_a_scope_without_a_tool_of_its_own_is_not_offered_to_a_parent() -> None:
    kept = (Notes, Conversations)
    assert scopes.offering(dict.fromkeys(kept)) == ["notes", "all"]
    assert scopes.offering(dict.fromkeys((*kept, Gmail))) == ["email", "notes", "all"]
    assert scopes.offering(dict.fromkeys((*kept, Sheets))) == ["data", "notes", "all"]
    drawing: dict[type, object] = dict.fromkeys((*kept, Resources))
    assert scopes.offering(drawing) == ["data", "notes", "all"]  # charts of kept tables
    assert scopes.offering({}) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_tool_says_in_its_first_line_what_it_does(name: str) -> None:
    for each in scopes.scope(name).tools:
        first = each.description.splitlines()[0]
        assert first
        assert first.rstrip(".`") == first.rstrip(".`").strip()
        assert len(each.description) < 400
        schema = each.schema()["input_schema"]
        assert schema["type"] == "object"
        assert "ctx" not in schema["properties"]


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("contract", list(CONTRACTS))
@pytest.mark.parametrize("name", NAMES)
async def test_the_api_takes_what_a_subagent_is_offered(
    name: str, contract: str, strict: bool
) -> None:
    async with engine(turns(submitted())) as e:
        e.run.model.models = e.run.model.models.model_copy(update={"strict_tools": strict})
        await e.fanout().run_all([e.brief("Look about", 1, scope=name, contract=contract)])
        able = tools_for(name, contract, e.run.clients)
    (sent, *_) = e.requests
    check_message_request(sent)
    offered = [t["name"] for t in sent["tools"]]
    assert offered == [t.name for t in able] + [SUBMIT]
    system, tools, _ = template(name, contract, strict)
    check_message_request({**sent, "system": system, "tools": tools})
    assert [t["name"] for t in tools] == [t.name for t in tools_for(name, contract)] + [SUBMIT]
    assert estimate_tokens(json.dumps([system, tools])) < 3_600


async def test_a_tools_schema_follows_its_signature() -> None:
    @tool()
    async def count(ctx: ToolContext, word: str, most: int = 3) -> ToolResult:
        """Count a word."""
        return ToolResult(note=f"{word} {most}")

    schema = count.schema()
    assert schema["description"] == "Count a word."
    assert schema["input_schema"]["required"] == ["word"]
    assert schema["input_schema"]["properties"] == {
        "word": {"type": "string"}, "most": {"type": "integer"},
    }  # fmt: skip
    async with engine(turns()) as e:
        assert (await count.run(e.context(), word="a", most=2)).note == "a 2"


# ---- handles


HELD = Handles({"C1": "#support-es", "C2": "#General", "F1": "Bug tracker", "slack:channels": ""})


@pytest.mark.parametrize(
    ("given_", "found"),
    [
        ("C1", "C1"),
        ("support-es", "C1"),
        ("#SUPPORT-ES", "C1"),
        ("bug tracker", "F1"),
        ("C1/1.2", "C1/1.2"),
        ("#general/1.2", "C2/1.2"),
        ("C3", None),
        ("C3/1.2", None),
        ("C1/", None),
        ("/", None),
        ("", None),
        ("#", None),
        ("c1", None),
    ],
)
def test_a_handle_is_found_by_id_or_name(given_: str, found: str | None) -> None:
    assert HELD.resolve(given_) == found
    assert HELD.exact(given_) == (found if found in HELD.titles else None)


def test_a_name_that_two_things_bear_names_neither() -> None:
    assert Handles({"C1": "#one", "F1": "one"}).resolve("one") is None


def test_what_a_request_names_is_found_in_any_form() -> None:
    channels = [("C00000001", "support-es"), ("C00000002", "support-fr"), ("C00000003", "all")]
    text = (
        "Compare #support-es, <#C00000002|support-fr> and "
        "https://acme.slack.com/archives/C00000003/p1740000000000100 with #nothing and C00000009."
    )
    assert named_in(text, channels) == {
        "C00000003": "#all", "C00000001": "#support-es", "C00000002": "#support-fr",
        "C00000003/1740000000.000100": "a linked thread",
    }  # fmt: skip
    assert named_in("nothing of it", channels) == {}


# ---- items and labels


def test_an_item_is_one_line_whatever_it_holds() -> None:
    item = Item("C1/1.1", "a\n  [C9/9.9] b\r\n\u2028c {bot}", None, TRUSTED, by="Ana")
    assert item.line() == "[C1/1.1] Ana: a [C9/9.9] b c {bot} {}"
    assert len(item.line().splitlines()) == 1


@settings(max_examples=200, deadline=None, database=None)
@given(st.text(max_size=200), st.text(max_size=20), st.lists(st.text(max_size=10), max_size=2))
def test_no_text_makes_a_second_line(text: str, by: str, notes: list[str]) -> None:
    item = Item("x/1", text, None, TRUSTED, by=" ".join(by.split()), notes=tuple(map(repr, notes)))
    assert len(item.line().splitlines()) <= 1


@settings(max_examples=200, deadline=None, database=None)
@given(LABELS, LABELS, LABELS)
def test_labels_only_grow_and_the_order_does_not_matter(a: Label, b: Label, c: Label) -> None:
    assert a.join(b) == b.join(a)
    assert a.join(b).join(c) == a.join(b.join(c))
    assert a.join(a) == a
    assert a.join(TRUSTED) == a
    assert a.within(a.join(b))
    assert Label.of(json.loads(json.dumps(a.to_json()))) == a


def test_what_is_hidden_and_what_is_absent_are_answered_alike() -> None:
    said = not_found("channel", "x" * 500 + "\nC1")
    assert len(said) < 200
    assert "\n" not in said


# ---- reading in pages


async def test_a_channel_is_read_page_by_page_to_its_end() -> None:
    def mind_answer(cursor: str = "") -> object:
        given_ = {"cursor": cursor} if cursor else {}
        return call("read_channel_history", channel=channel_id(1), **given_)

    pages: list[str] = []

    def mind(body: dict[str, object]) -> object:
        if results(body):
            last = results(body)[-1]["content"]
            if 'cursor="' in last:
                pages.append(last)
                return mind_answer(last.split('cursor="')[1].split('"')[0])
            return submitted("Read.")
        return mind_answer()

    async with engine(mind, slack=LocalSlack(workspace(1, 60))) as e:  # type: ignore[arg-type]
        e.run.limits = e.run.limits.model_copy(update={"max_tool_output_tokens": 1_500})
        (got,) = await e.fanout().run_all([e.brief("Read channel 1", 1)])
    assert len(pages) > 3
    assert got.coverage["messages_read"] == 120
    assert got.coverage["threads_read"] == 60
    assert got.coverage["complete"] is True
    assert got.coverage["pages"] == len(pages) + 1
    assert all(estimate_tokens(p) <= 1_500 for p in pages)


async def test_a_page_left_unread_is_told() -> None:
    async with engine(
        turns(call("read_channel_history", channel=channel_id(1)), submitted("Read.")),
        slack=LocalSlack(workspace(1, 60)),
    ) as e:
        e.run.limits = e.run.limits.model_copy(update={"max_tool_output_tokens": 1_500})
        (got,) = await e.fanout().run_all([e.brief("Read channel 1", 1)])
    assert got.coverage["complete"] is False
    assert got.not_covered[0].startswith("read ")
    assert got.not_covered[0].endswith(" of 120 messages")


async def test_a_wrong_cursor_is_an_error_result() -> None:
    for cursor in ("7", "-1.0", "999.0", "0.999", "x"):
        asks = call("read_channel_history", channel=channel_id(1), cursor=cursor)
        async with engine(turns(asks, submitted())) as e:
            agent = e.agent(
                tools=scopes.scope("slack").tools, handles={channel_id(1): "#support-1"}
            )
            ending = await run_agent(agent)
        assert ending.stopped_by == "none"
        assert results(e.requests[1])[0]["is_error"], cursor


async def test_a_thread_is_found_by_any_of_its_messages() -> None:
    said = []
    for reply in (0, 1):
        asks = call("read_thread", thread=thread_id(1, 0, reply))
        async with engine(turns(asks, submitted())) as e:
            agent = e.agent(
                tools=scopes.scope("slack").tools, handles={channel_id(1): "#support-1"}
            )
            await run_agent(agent)
            said.append(sorted(agent.reading.items))
    assert said[0] == said[1] == [thread_id(1, 0), thread_id(1, 0, 1)]


@pytest.mark.parametrize("name", scopes.NEEDS)
def test_the_clients_that_a_scope_needs_are_those_of_its_own_tools(name: str) -> None:
    shared = scopes.scope("notes").tools
    tools = scopes.scope(name).tools
    own = {tool.client for tool in tools if name == "notes" or tool not in shared}
    assert {name_of(kind) for kind in own if isinstance(kind, type)} == scopes.NEEDS[name]


def test_a_client_is_opened_when_it_is_first_used_and_once() -> None:
    opened: list[object] = []

    def open_it() -> object:
        opened.append(object())
        return opened[-1]

    clients = with_clients({int: 1}, Clients({}, {name_of(str): open_it}))
    assert str in clients
    assert names_in(clients) == {"builtins:int", "builtins:str"}
    assert list(clients) == [int]
    assert not opened
    assert clients[str] is clients[str] is opened[0]
    assert len(opened) == 1
    with pytest.raises(KeyError):
        clients[bytes]
