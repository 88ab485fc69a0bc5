"""Scopes are exact, and a tool is what its signature and docstring say."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from bot_kit import configure
from engine_kit import (
    Json,
    call,
    channel_id,
    engine,
    line,
    results,
    settings_for,
    submitted,
    turns,
    workspace,
)
from pg_kit import with_store
from standins.model_checks import check_message_request
from standins.slack import LocalSlack

import scopes
from bot.cli.scopes import list_scopes
from bot.local.model.answer import Answer
from bot.mailbox.accounts import GOOGLE, OPERATOR
from bot.mailbox.google_oauth import Credentials, MailboxTokens
from bot.runs.store import Store
from bot.storage.encryption import cipher_of
from config.settings import load_settings
from scopes.clients import Clients, name_of, names_in, with_clients
from scopes.conversations import Conversations
from scopes.google.gmail import Gmail
from scopes.handles import Handles
from scopes.notes import Notes
from scopes.resources import Resources
from scopes.sheets import Sheets
from scopes.tool import ToolContext, ToolResult, estimate_tokens, not_found, tool
from subagents.brief import SUBMIT, fixed_tokens, template, tools_for
from subagents.contracts import CONTRACTS

NAMES = scopes.scope_names()


@pytest.mark.parametrize("name", NAMES)
def test_a_scope_has_few_tools_that_cost_little_and_none_that_spawns(name: str) -> None:
    tools = scopes.scope(name).tools
    offered = [t.name for t in tools]
    assert len(offered) == len(set(offered)) <= (42 if name == scopes.ALL else 12)
    assert not {"run_subagent", "run_subagents", SUBMIT} & set(offered)
    assert fixed_tokens(name, tools) <= (4_400 if name == scopes.ALL else 1_500)


def test_all_holds_the_tools_of_every_scope_that_is_permitted() -> None:
    everything = {t for name in scopes.MODULES for t in scopes.scope(name).tools}
    assert {*scopes.scope(scopes.ALL).tools} == everything
    clients: dict[Any, object] = {t.client: t for t in everything if t.client}
    for permitted in (None, [scopes.ALL], [*scopes.MODULES]):
        assert {*scopes.offered(scopes.ALL, clients, permitted)} == everything
    two = [scopes.ALL, "slack", "web"]
    assert {*scopes.offered(scopes.ALL, clients, two)} == {
        t for name in ("slack", "web") for t in scopes.scope(name).tools
    }
    assert scopes.offered(scopes.ALL, {}, two) == ()
    assert scopes.offered("data", clients, two) == scopes.offered("data", clients)


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


def test_an_unknown_scope_says_which_there_are() -> None:
    with pytest.raises(scopes.UnknownScope) as error:
        scopes.scope("mail")
    assert error.value.names == NAMES
    assert str(error.value) == f"No scope 'mail'. Scopes: {', '.join(NAMES)}."


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


def test_what_is_hidden_and_what_is_absent_are_answered_alike() -> None:
    said = not_found("channel", "x" * 500 + "\nC1")
    assert len(said) < 200
    assert "\n" not in said


@pytest.mark.parametrize("strict", [True, False])
async def test_the_api_takes_what_a_subagent_is_offered(strict: bool) -> None:
    pairs = [(name, contract) for name in NAMES for contract in CONTRACTS]
    async with engine(turns(submitted()), settings_for({"cost_usd": 20.0})) as e:
        e.run.model.models = e.run.model.models.model_copy(update={"strict_tools": strict})
        briefs = [
            e.brief(f"Look about {n}", 1, scope=name, contract=contract)
            for n, (name, contract) in enumerate(pairs)
        ]
        await e.fanout().run_all(briefs)
        able = [
            tools_for(*pair, e.run.clients, held=brief.handles.titles)
            for pair, brief in zip(pairs, briefs, strict=True)
        ]
    assert len({line(sent, "TASK") for sent in e.requests}) == len(pairs)
    for sent in e.requests:
        check_message_request(sent)
        number = int(line(sent, "TASK").split()[-1])
        assert [t["name"] for t in sent["tools"]] == [t.name for t in able[number]] + [SUBMIT]
    for name, contract in pairs:
        system, tools, _ = template(name, contract, strict)
        check_message_request({**e.requests[0], "system": system, "tools": tools})
        most = 5_700 if name == scopes.ALL else 3_600
        assert estimate_tokens(json.dumps([system, tools])) < most


# ---- reading in pages


async def test_a_channel_is_read_page_by_page_to_its_end() -> None:
    pages: list[str] = []

    def mind(body: Json) -> Answer:
        if not results(body):
            return call("read_channel_history", channel=channel_id(1))
        page = results(body)[-1]["content"]
        pages.append(page)
        if 'cursor="' not in page:
            return submitted("Read.")
        cursor = page.split('cursor="')[1].split('"')[0]
        return call("read_channel_history", channel=channel_id(1), cursor=cursor)

    settings = settings_for({"max_tool_output_tokens": 1_500})
    async with engine(mind, settings, slack=LocalSlack(workspace(1, 60))) as e:
        (got,) = await e.fanout().run_all([e.brief("Read channel 1", 1)])
    assert len(pages) > 4
    assert got.coverage["messages_read"] == 120
    assert got.coverage["threads_read"] == 60
    assert got.coverage["complete"] is True
    assert got.coverage["pages"] == len(pages)
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


# ---- the command

MAIL = [tool.name for tool in scopes.scope("email").tools if tool.client is Gmail]


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]) -> Any:
    def run() -> dict[str, Any]:
        assert list_scopes(True) == 0
        return {offer["name"]: offer for offer in json.loads(capsys.readouterr().out)}

    return run


def test_each_tool_is_offered_or_missing_with_a_reason_and_what_to_do(listed: Any) -> None:
    for name, offer in listed().items():
        names = {tool.name for tool in scopes.scope(name).tools}
        assert {*offer["tools"], *offer["missing"]} == names
        assert not {*offer["tools"]} & {*offer["missing"]}
        assert all(why.endswith(".") and " " in why for why in offer["missing"].values())


def test_tools_for_mail_are_missing_until_there_is_a_mailbox(listed: Any) -> None:
    assert "send_mail" in MAIL
    assert "save_note" not in MAIL
    email = listed()["email"]
    assert not email["given"]
    assert all(offer["given"] for name, offer in listed().items() if name not in ("email", "slack"))
    assert [*email["missing"]] == MAIL
    assert all("Connect Gmail" in why for why in email["missing"].values())
    assert "search_mail" in listed()["all"]["missing"]
    configure("google: {service_account: key.json}")
    assert listed()["email"]["missing"] == {}
    assert listed()["email"]["given"]


@pytest.mark.parametrize(("account", "missing"), [("U0ANA", []), (OPERATOR, MAIL)])
def test_a_mailbox_counts_where_its_owner_may_ask_about_it(
    listed: Any, account: str, missing: list[str]
) -> None:
    async def connect() -> None:
        settings = load_settings()
        with_store(settings.data_dir)
        store = await Store.open(settings.data_dir, settings.database_url, cipher_of(settings))
        tokens = MailboxTokens.model_validate({"access_token": "a", "refresh_token": "r"})
        await Credentials(store.database).put(GOOGLE, account, tokens)
        await store.aclose()

    asyncio.run(connect())
    assert [*listed()["email"]["missing"]] == missing
