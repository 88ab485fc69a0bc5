"""Scopes are exact, and a tool is what its signature and docstring say."""

from __future__ import annotations

import json

import pytest
from engine_kit import (
    call,
    channel_id,
    engine,
    results,
    submitted,
    turns,
    workspace,
)

import scopes
from bot.local.model.checks import check_message_request
from bot.local.slack.server import LocalSlack
from scopes.clients import Clients, name_of, names_in, with_clients
from scopes.conversations import Conversations
from scopes.effects import Access
from scopes.google.gmail import Gmail
from scopes.notes import Notes
from scopes.resources import Resources
from scopes.sheets import Sheets
from scopes.tool import estimate_tokens
from subagents.brief import SUBMIT, fixed_tokens, template, tools_for
from subagents.contracts import CONTRACTS

NAMES = scopes.scope_names()


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
