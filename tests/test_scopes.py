"""The scopes and their tools: descriptions, schemas, handles, pages."""

from __future__ import annotations

import json
from typing import Annotated, Any

import pytest
from engine_kit import (
    Json,
    call,
    channel_id,
    engine,
    line,
    results,
    settings_for,
    submission,
    turns,
    workspace,
)
from standins.model_checks import check_message_request
from standins.slack import LocalSlack

import scopes
from bot.local.model.answer import Answer
from scopes.effects import HandleArgument, Handles
from scopes.tool import ToolContext, ToolResult, estimate_tokens, not_found, tool
from subagents.brief import SUBMIT, fixed_tokens, template, tools_for
from subagents.contracts import CONTRACTS

NAMES = scopes.scope_names()


@pytest.mark.parametrize("name", NAMES)
def test_scope_has_few_small_tools_and_none_that_starts_subagents(name: str) -> None:
    tools = scopes.scope(name).tools
    offered = [t.name for t in tools]
    assert len(offered) == len(set(offered))
    assert len(offered) <= 12 or name == scopes.ALL
    assert not {"run_subagent", "run_subagents", SUBMIT} & set(offered)
    assert fixed_tokens(name, tools) <= (4_800 if name == scopes.ALL else 1_500)


def test_scope_all_contains_the_tools_of_every_permitted_scope() -> None:
    everything = {t for name in scopes.MODULES for t in scopes.scope(name).tools}
    assert {*scopes.scope(scopes.ALL).tools} == everything
    clients: dict[Any, object] = {t.client: t for t in everything if t.client}
    for permitted in (None, [scopes.ALL], [*scopes.MODULES]):
        assert {*scopes.offered_tools(scopes.ALL, clients, permitted)} == everything
    two = [scopes.ALL, "slack", "web"]
    assert {*scopes.offered_tools(scopes.ALL, clients, two)} == {
        t for name in ("slack", "web") for t in scopes.scope(name).tools
    }
    assert scopes.offered_tools(scopes.ALL, {}, two) == ()
    assert scopes.offered_tools("data", clients, two) == scopes.offered_tools("data", clients)


# ---- handles


HELD = Handles({"C1": "#support-es", "C2": "#General", "F1": "Bug tracker", "slack:channels": ""})


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("C1", "C1"),
        ("support-es", "C1"),
        ("bug tracker", "F1"),
        ("C1/1.2", "C1/1.2"),
        ("#general/1.2", "C2/1.2"),
        ("C3", None),
        ("C1/", None),
        ("", None),
        ("#", None),
    ],
)
def test_a_handle_is_found_by_id_or_name(name: str, found: str | None) -> None:
    assert HELD.resolve(name) == found
    assert HELD.exact(name) == (found if found in HELD.titles else None)


def test_not_found_message_is_short_and_on_one_line() -> None:
    message = not_found("channel", "x" * 500 + "\nC1")
    assert len(message) < 200
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "held", "usable", "useless"),
    [
        ("slack", {"C01": ""}, {"read_channel_history", "read_thread"}, {"list_slack_list_items"}),
        ("slack", {"F01": "bugs"}, {"list_slack_list_items"}, {"read_thread"}),
        ("slack", {"slack:search": ""}, {"search_messages"}, {"read_channel_history"}),
        ("email", {"18c": ""}, {"read_mail_thread"}, {"search_mail", "send_mail"}),
        ("data", {"data:shop": ""}, {"execute_query"}, {"read_sheet"}),
        ("all", {"C01": "", "data:shop": ""}, {"read_thread", "execute_query"}, {"search_mail"}),
    ],
)
def test_tools_without_a_usable_handle_are_not_offered(
    name: str, held: dict[str, str], usable: set[str], useless: set[str]
) -> None:
    offered = {t.name for t in tools_for("answer", scopes.scope(name).tools, held)}
    assert usable <= offered
    assert not useless & offered


@tool()
async def read_status(
    ctx: ToolContext, service: Annotated[str, HandleArgument("status")]
) -> ToolResult:
    """Read the status of a service."""
    return ToolResult(note=service)


def test_tool_of_a_new_scope_is_offered_with_the_handles_of_its_prefix() -> None:
    assert tools_for("answer", [read_status], {"status:web": "web"}) == (read_status,)
    assert tools_for("answer", [read_status], {"data:shop": "shop"}) == ()


def test_siblings_with_handles_of_the_same_kinds_share_prompt_and_schemas() -> None:
    def prefix(*held: str) -> str:
        offered = tools_for("answer", scopes.scope("slack").tools, held)
        return json.dumps(template("slack", "answer", True, offered, held))

    assert prefix("C01") == prefix("C02", "C03/1.2")
    assert prefix("C01") != prefix("C01", "F01")


@pytest.mark.parametrize("strict", [True, False])
async def test_requests_of_all_scopes_and_contracts_are_valid_for_the_api(strict: bool) -> None:
    pairs = [(name, contract) for name in NAMES for contract in CONTRACTS]
    async with engine(turns(submission()), settings_for({"cost_usd": 20.0})) as e:
        e.run.model.models = e.run.model.models.model_copy(update={"strict_tools": strict})
        briefs = [
            e.brief(f"Look about {n}", 1, scope=name, contract=contract)
            for n, (name, contract) in enumerate(pairs)
        ]
        await e.fanout().run_all(briefs)
        reading = [brief.tools(e.run.clients) for brief in briefs]
        writing = e.brief("Post", 1, scope="slack", writes=True).tools(e.run.clients)
    posting = {"post_message", "send_direct_message", "add_reaction"}
    assert posting <= {tool.name for tool in writing}
    assert not posting & {tool.name for offered in reading for tool in offered}
    assert len({line(sent, "TASK") for sent in e.requests}) == len(pairs)
    for sent in e.requests:
        check_message_request(sent)
        number = int(line(sent, "TASK").split()[-1])
        assert [t["name"] for t in sent["tools"]] == [t.name for t in reading[number]] + [SUBMIT]
    for name, contract in pairs:
        offered = tools_for(contract, scopes.scope(name).tools)
        system, tools, _ = template(name, contract, strict, offered)
        check_message_request({**e.requests[0], "system": system, "tools": tools})
        limit = 5_700 if name == scopes.ALL else 3_600
        assert estimate_tokens(json.dumps([system, tools])) < limit


# ---- reading in pages


async def test_a_channel_is_read_page_by_page_to_its_end() -> None:
    pages: list[str] = []

    def model(body: Json) -> Answer:
        if not results(body):
            return call("read_channel_history", channel=channel_id(1))
        page = results(body)[-1]["content"]
        pages.append(page)
        if 'cursor="' not in page:
            return submission("Read.")
        cursor = page.split('cursor="')[1].split('"')[0]
        return call("read_channel_history", channel=channel_id(1), cursor=cursor)

    settings = settings_for({"max_tool_output_tokens": 1_500})
    async with engine(model, settings, slack=LocalSlack(workspace(1, 60))) as e:
        (report,) = await e.fanout().run_all([e.brief("Read channel 1", 1)])
    assert len(pages) > 4
    assert report.coverage["messages_read"] == 120
    assert report.coverage["threads_read"] == 60
    assert report.coverage["complete"] is True
    assert report.coverage["pages"] == len(pages)
    assert all(estimate_tokens(p) <= 1_500 for p in pages)
