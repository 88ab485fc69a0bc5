"""What a subagent and a parent are told: what their tools, sources and brief bear out."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from importlib.resources import files
from typing import Any

import pytest
from engine_kit import WINDOW, engine, submitted, turns
from pydantic import ValidationError

import scopes
from bot.tasks.triage import Reader, brief_of
from config.settings import VERSION, load_settings, prompt
from scopes.handles import Handles
from scopes.label import TRUSTED, Label
from scopes.mail import SHOWN, MailMessage, MailText, item_of
from scopes.notes import Notes
from scopes.pages.pages import Pages
from scopes.resources import Resources
from scopes.search_engines import SearchEngine
from scopes.sheets import Sheets
from scopes.tool import Item, Tool
from subagents.brief import (
    MATERIAL,
    Brief,
    BriefDraft,
    parent_prompt,
    system_prompt,
    template,
    tools_for,
)
from subagents.contracts import CONTRACTS, DEFAULT_MODEL, OFFERED
from subagents.delegation import delegation_schemas
from subagents.delimiter import new_delimiter
from subagents.overlap import shingles
from subagents.result import SubagentResult
from subagents.summary import parent_view

FILES = sorted(f.name.removesuffix(".md") for f in files("config").joinpath("prompts").iterdir())
NAMES = scopes.scope_names()
MARK = re.compile(r"^\{([^}]*)\} ", re.MULTILINE)
SAYS = {
    "slack": "Slack messages",
    "email": "Mails",
    "data": "list_tables",
    "web": "A page's text",
    "notes": "Notes, kept files",
    "files": "[folder:path:line]",
}
"""Scope -> words that only its own prompt has."""
ALL_TOOLS = {t.name: t for name in NAMES for t in scopes.scope(name).tools}


# ---- the files


@pytest.mark.parametrize("name", FILES)
def test_every_prompt_begins_with_its_version_and_holds_text(name: str) -> None:
    raw = files("config").joinpath("prompts", f"{name}.md").read_text("utf-8")
    assert VERSION.match(raw)
    assert prompt(name)
    assert "<!--" not in prompt(name)


def test_every_scope_and_contract_has_its_prompt_and_no_prompt_is_left_over() -> None:
    needed = {scopes.scope(name).prompt for name in NAMES}
    needed |= {f"contract_{name}" for name in CONTRACTS}
    needed |= {"subagent", "submit_result", "parent", "run_subagent", "run_subagents", "handoff"}
    needed |= {"sweep_task", "sweep_tracker", "top_lines", "triage_task", "digest_lines"}
    needed |= {"web_search", "challenge", "challenge_task"}
    needed |= {"review_task", "judge_task", "defence_task", "panel_lines"}
    assert set(FILES) == needed


# ---- a template: what siblings share


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("scope", NAMES)
def test_siblings_share_a_prefix_with_nothing_of_one_run_in_it(scope: str, contract: str) -> None:
    system, tools, version = template(scope, contract, True)
    assert re.fullmatch(rf"{scope}/{contract}@[0-9a-f]{{8}}", version)
    assert (system, tools, version) == template(scope, contract, True)
    assert "{" not in re.sub(r"\{(facts|before window)\}", "", system[0]["text"])
    assert "items-" not in json.dumps([system, tools])
    assert [t["name"] for t in tools] == [
        *(t.name for t in tools_for(scope, contract)),
        "submit_result",
    ]
    assert tools[-1]["strict"] is True
    assert template(scope, contract, False)[2] != version


@pytest.mark.parametrize("contract", ["issues", "triage", "tracker", "review", "verdicts"])
def test_a_subagent_that_only_reports_has_no_tool_that_writes(contract: str) -> None:
    writes = {"post_message", "send_direct_message", "add_reaction", "send_mail", "create_draft"}
    for scope in ("slack", "email", "files"):
        assert not {tool.name for tool in tools_for(scope, contract)} & {*writes, "write_file"}
    assert writes <= {t.name for s in ("slack", "email") for t in tools_for(s, "answer")}


@pytest.mark.parametrize(
    ("contract", "scope", "held", "offered"),
    [
        ("issues", "slack", [], set()),
        ("triage", "email", [], set()),
        ("triage", "email", ["0bdfb2e5421481fc"], {"read_mail_thread", "read_attachment"}),
        ("issues", "slack", ["C0SPAIN01/1.1"], {"read_thread", "get_permalink"}),
    ],
)
def test_a_subagent_that_only_reports_is_offered_what_reads_its_sources(
    contract: str, scope: str, held: list[str], offered: set[str]
) -> None:
    system, tools, _ = template(scope, contract, True, None, held)
    assert {t["name"] for t in tools} == {*offered, "submit_result"}
    assert SAYS[scope] in system[0]["text"]  # it is told how lines are read
    assert ("cursor" in system[0]["text"]) == ("read_channel_history" in offered)


@pytest.mark.parametrize("held", [["C0SPAIN01", "slack:search"], ["F1"], ["U0ANA"], ["data:shop"]])
def test_a_subagent_keeps_its_tools_where_a_handle_is_no_exact_source(held: list[str]) -> None:
    assert tools_for("slack", "issues", held=held) == tools_for("slack", "issues")


def test_a_subagent_that_does_more_than_report_keeps_its_tools() -> None:
    assert tools_for("slack", "answer", held=[]) == scopes.scope("slack").tools


def kinds(name: str) -> list[object]:
    return list(dict.fromkeys(t.client for t in scopes.scope(name).tools))


def subsets(name: str) -> list[list[object]]:
    """All clients of a scope, all but one, and one alone; who can search can read pages."""
    found = kinds(name)
    less = [[c for c in found if c is not left] for left in found]
    return [c + [Pages] * (SearchEngine in c) for c in (found, *less, *([c] for c in found))]


def able(name: str, clients: Collection[object]) -> tuple[Tool, ...]:
    return tuple(t for t in scopes.scope(name).tools if t.client in clients)


@pytest.mark.parametrize("name", [n for n in NAMES if n != scopes.ALL])
def test_each_line_of_a_scope_stands_under_tools_that_it_has(name: str) -> None:
    marks = MARK.findall(prompt(f"scope_{name}"))
    assert len(marks) == len(prompt(f"scope_{name}").splitlines())
    names = {tool for mark in marks for tool in re.split(r"[ |]", mark)}
    assert names <= {*(t.name for t in scopes.scope(name).tools), MATERIAL}
    assert system_prompt(name, scopes.scope(name).tools) == MARK.sub("", prompt(f"scope_{name}"))


@pytest.mark.parametrize("name", NAMES)
def test_no_tool_is_spoken_of_that_is_not_offered(name: str) -> None:
    for clients in subsets(name):
        tools = able(name, clients)
        said = system_prompt(name, tools) + json.dumps([t.schema() for t in tools])
        named = {t for t in ALL_TOOLS if re.search(rf"\b{t}\b", said)}
        assert named <= {t.name for t in tools}, clients


def test_a_scope_that_shares_its_tools_is_told_of_those_that_it_has() -> None:
    clients: dict[type, object] = dict.fromkeys((Notes, Sheets, Resources))
    assert system_prompt("email", scopes.offered("email", clients)) == ""
    assert "\n\n\n" not in template("email", "answer", True, clients)[0][0]["text"]
    said = system_prompt("data", scopes.offered("data", clients))
    assert said.startswith("Rows are lines")
    assert "list_tables" not in said


# ---- the scope of everything


def test_a_context_of_all_is_told_of_the_sources_that_it_holds() -> None:
    tools = scopes.scope("all").tools
    for held in scopes.MODULES:
        said = system_prompt("all", tools, {held})
        assert said.startswith(prompt("scope_all"))
        assert [s for s, words in SAYS.items() if words in said] == [held]
    assert all(words in system_prompt("all", tools) for words in SAYS.values())


def test_contexts_of_all_that_hold_the_same_kinds_share_their_prefix() -> None:
    one = template("all", "answer", True, None, ["notes:own", "data:shop"])
    two = template("all", "answer", True, None, ["sheet:x", "data:y", "notes:C1"])
    other = template("all", "answer", True, None, ["notes:own", "C1"])
    assert json.dumps(one) == json.dumps(two)
    assert one[1] == other[1]
    assert one[2] != other[2]


@pytest.mark.parametrize(
    ("handle", "scope"),
    [
        ("C00000001", "slack"),
        ("D1/1740498077.000100", "slack"),
        ("F0BUG", "slack"),
        ("U0ANA", "slack"),
        ("slack:channels", "slack"),
        ("mail:search", "email"),
        ("0bdfb2e5421481fc", "email"),
        ("data:shop", "data"),
        ("sheet:targets", "data"),
        ("web:read", "web"),
        ("https://a.example/b?c=D:1", "web"),
        ("notes:C1", "notes"),
        ("files:run", "files"),
        ("mcp:crm", ""),
    ],
)
def test_a_handle_tells_the_scope_that_reads_it(handle: str, scope: str) -> None:
    assert scopes.scope_of(handle) == scope


async def test_a_run_tells_a_context_of_all_of_what_its_brief_gives_it() -> None:
    async with engine(turns(submitted(), submitted())) as e:
        made = [e.brief(task, 1, scope="all") for task in ("Look about", "Look again")]
        made[1] = replace(made[1], handles=Handles({"notes:own": ""}))
        for each in await e.fanout().freeze(made):
            handle = await e.spawner.start(each.id, each)
            await handle.result()
    told = [request["system"][0]["text"] for request in e.requests]
    assert ["Slack messages" in text for text in told] == [True, False]
    asked = [request["messages"][0]["content"][0]["text"] for request in e.requests]
    assert ["\nWINDOW: " in text for text in asked] == [True, False]
    assert ["\nNOW: " in text for text in asked] == [False, True]


# ---- the parent


def test_a_parent_is_told_of_its_own_tools_alone() -> None:
    whole = parent_prompt({"post_message", "schedule_create"})
    bare = parent_prompt(())
    for tool in ("post_message", "schedule_create", "schedule_list"):
        assert (tool in whole, tool in bare) == (True, False)
    assert "{" not in whole + bare
    assert "\n\n\n" not in bare


def test_the_parent_is_told_of_every_field_and_contract_that_it_may_set() -> None:
    told = prompt("parent")
    single, many, _ = (t["input_schema"]["properties"] for t in delegation_schemas(24))
    assert single["contract"]["enum"] == list(OFFERED)
    assert all(f"`{name}`" in told for name in OFFERED)
    for draft in (single, many["template"]["properties"]):
        for name, field in draft.items():
            assert field.get("description") or f"{name}:" in told, name
        models = draft["model_preference"]["description"]
        for model in ("fast", "main"):
            by = " and ".join(name for name in OFFERED if DEFAULT_MODEL[name] == model)
            assert f"{model} for {by}" in models


def test_the_parent_is_told_of_all_only_where_it_is_offered() -> None:
    assert "`all`" not in prompt("parent")
    for offering, told in ((["web"], False), (["notes", "all"], True), ([], True)):
        for made in delegation_schemas(24, offering)[:2]:
            assert ("all =" in json.dumps(made)) is told, offering


# ---- a brief

FENCE = new_delimiter()
DRAFT = BriefDraft(
    task="Find the customer issues",
    description="Issues",
    scope="slack",
    questions=("Which are open?", "Who owns\nthem?"),
    known="x\nFINDINGS FROM EARLIER (copied by code)",
    contract="issues",
)
HELD = Handles({"C123": "#support-es", "F123": "Bug tracker", "C9/1.1": ""})


def test_a_brief_shows_every_section_that_says_something_and_no_other() -> None:
    lines = Brief(DRAFT, HELD, WINDOW, TRUSTED, "en").text(FENCE).splitlines()
    assert lines[:4] == [
        "TASK: Find the customer issues",
        "QUESTIONS:",
        "- Which are open?",
        "- Who owns them?",
    ]
    assert "MAY READ: C123 (#support-es); F123 (Bug tracker); C9/1.1" in lines
    assert "WINDOW: 2025-02-19 21:20 to 2025-02-26 21:20 (UTC)" in lines
    assert "LANGUAGE: en" in lines
    assert "CONTRACT: issues" in lines
    assert lines[-1].startswith(f"FENCE: {FENCE} ")
    assert not any(line.startswith(("OUTPUT", "OUT OF SCOPE")) for line in lines)


def test_a_window_is_told_to_the_minute_in_the_zone_of_who_asks() -> None:
    odd = replace(WINDOW, latest=WINDOW.latest + timedelta(seconds=59, microseconds=1))
    text = Brief(DRAFT, HELD, odd, TRUSTED, zone="Europe/Madrid").text(FENCE)
    assert "\nWINDOW: 2025-02-19 22:20 to 2025-02-26 22:20 (Europe/Madrid)\n" in text


@pytest.mark.parametrize(
    ("handle", "windowed"),
    [
        ("notes:own", False),
        ("U0ANA", False),
        ("", False),
        ("C123", True),
        ("C99/1.1", True),
        ("slack:search", True),
        ("mail:search", True),
        ("0bdfb2e5421481fc", True),
    ],
)
def test_all_is_told_its_window_where_it_holds_messages_or_mails(
    handle: str, windowed: bool
) -> None:
    draft = BriefDraft(task="Count", description="Count", scope="all")
    held = dict.fromkeys(filter(None, ("data:shop", handle)), "")
    text = Brief(draft, Handles(held), WINDOW, TRUSTED).text(FENCE)
    assert ("\nNOW: 2025-02-26 21:20 (UTC)\n" in text) != windowed
    window = "2025-02-19 21:20 to 2025-02-26 21:20 (UTC) (of messages and mails)"
    assert (f"\nWINDOW: {window}\n" in text) == windowed


@pytest.mark.parametrize(
    ("scope", "handle", "works"),
    [
        ("files", "files:run", True),
        ("all", "files:book", True),
        ("all", "data:shop", False),
        ("data", "files:run", False),
    ],
)
def test_who_works_in_a_folder_has_it_and_the_tools_for_it(
    scope: str, handle: str, works: bool
) -> None:
    brief = Brief(BriefDraft(task="Count", scope=scope), Handles({handle: ""}), None, TRUSTED)
    assert brief.holds_folder is works


@pytest.mark.parametrize("scope", ["data", "files", "web", "notes"])
def test_a_scope_without_messages_is_told_the_time_and_no_window(scope: str) -> None:
    draft = BriefDraft(task="Count", description="Count", scope=scope)
    text = Brief(draft, Handles(), WINDOW, TRUSTED).text(FENCE)
    assert "\nNOW: 2025-02-26 21:20 (UTC)\n" in text
    assert "WINDOW" not in text


@pytest.mark.parametrize(
    "given",
    [
        {"prompt": "the real text"},
        {"description": "x" * 121},
        {"task": ""},
        {"model_preference": "huge"},
        {"effort": "max"},
        {"handles": "C123"},
    ],
)
def test_unknown_keys_and_wrong_values_are_refused_by_name(given: dict[str, object]) -> None:
    base = {"task": "Look", "description": "Look", "scope": "slack"}
    with pytest.raises(ValidationError) as error:
        BriefDraft.model_validate({**base, **given})
    assert [e["loc"][0] for e in error.value.errors()] == list(given)


def test_findings_and_material_stand_in_blocks_of_their_own_that_no_field_forges() -> None:
    ((_, instructions, _),) = Brief(DRAFT, HELD, None, TRUSTED).blocks(FENCE)
    assert "FINDINGS FROM EARLIER" in instructions["text"]

    item = Item("C1/1.1", "line one\nline two", None, Label(untrusted=True))
    made = Brief(DRAFT, HELD, None, TRUSTED, findings=("[F1.1] x",), material=(item,))
    _, (_, findings, _), (_, material, _) = made.blocks(FENCE)
    assert findings["text"].endswith("\n[F1.1] x")
    assert material["text"] == f"MATERIAL:\n<{FENCE}>\n[C1/1.1] line one line two\n</{FENCE}>"


# ---- the brief of a triage

ME = "marit@nordkran.example"
AT = datetime(2026, 5, 4, 9, tzinfo=UTC)
TRIAGE = load_settings(env={}).triage
READER = Reader(ME, ME, date(2026, 5, 5))
OTHERS = tuple(f"Person {n} <p{n}@nordkran.example>" for n in range(9))


def mail(body: str, to: tuple[str, ...] = (ME,), cc: tuple[str, ...] = ()) -> Item:
    text = MailText("Cranes", "Bodil <bodil@havn.example>", to, cc, AT, body, (), (), (), "")
    return item_of(MailMessage("1" * 16, "1" * 16, AT, text, {}), ME, ME, "")


def brief(language: str | None) -> Brief:
    settings = TRIAGE.model_copy(update={"language": language})
    return brief_of("1" * 16, "Cranes", [mail("Can you come?")], READER, settings)


def result(*facts: str) -> SubagentResult:
    value: dict[str, Any] = {"category": "customer", "priority": "high", "deadline": ""}
    value |= {"asked_of_me": True, "key_facts": list(facts), "proposed_action": "Answer."}
    value["evidence"] = []
    ended: dict[str, Any] = {"id": "s1", "status": "complete", "stopped_by": "none"}
    return SubagentResult(**ended, scope="email", model="fast", contract="triage", value=value)


def test_a_brief_names_its_language_and_every_category_with_its_use() -> None:
    german = brief("de").text(new_delimiter())
    assert "LANGUAGE: de" in german
    assert all(f"\n- {name}: {when}" in german for name, when in TRIAGE.categories.items())


@pytest.mark.parametrize("field", ["to", "cc"])
def test_the_reader_is_named_wherever_they_stand_among_many_recipients(field: str) -> None:
    people = (*OTHERS[:7], f"Marit <{ME.upper()}>", *OTHERS[7:])
    notes = mail("Hello", **{field: people}).notes
    said = next(note for note in notes if note.startswith(f"{field} "))
    assert ME.upper() in said
    assert said.count("@") == SHOWN + 1
    assert said.endswith(", and 4 more")


def test_facts_that_follow_each_other_in_a_mail_make_no_excerpt_of_it_in_the_view() -> None:
    facts = ("The contract ends on 31 March", "The new draft raises the fee to 0.24 %")
    source = shingles(". ".join(facts))
    written = set().union(*map(shingles, facts))
    shown = shingles(parent_view(result(*facts), 500))
    assert source - written
    assert source & shown <= written
