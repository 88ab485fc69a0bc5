"""A subagent is told what its tools and its sources bear out, and nothing else."""

from __future__ import annotations

import json
import re
from collections.abc import Collection
from dataclasses import replace

import pytest
from engine_kit import engine, submitted, turns

import scopes
from config.prompts import prompt
from scopes.handles import Handles
from scopes.notes import Notes
from scopes.pages.pages import Pages
from scopes.resources import Resources
from scopes.search_engines import SearchEngine
from scopes.sheets import Sheets
from scopes.tool import Tool
from subagents.brief import Brief, parent_prompt, system_prompt, template

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
    assert names <= {t.name for t in scopes.scope(name).tools}


@pytest.mark.parametrize("name", NAMES)
def test_no_tool_is_spoken_of_that_is_not_offered(name: str) -> None:
    for clients in subsets(name):
        tools = able(name, clients)
        said = system_prompt(name, tools) + json.dumps([t.schema() for t in tools])
        named = {t for t in ALL_TOOLS if re.search(rf"\b{t}\b", said)}
        assert named <= {t.name for t in tools}, clients


def test_a_parent_is_told_of_its_own_tools_alone() -> None:
    whole = parent_prompt({"post_message", "schedule_create"})
    bare = parent_prompt(())
    for tool in ("post_message", "schedule_create", "schedule_list"):
        assert (tool in whole, tool in bare) == (True, False)
    assert "{" not in whole + bare
    assert "\n\n\n" not in bare
    assert "How to answer\n- Only from" in bare


def test_a_scope_that_shares_its_tools_is_told_of_those_that_it_has() -> None:
    clients: dict[type, object] = dict.fromkeys((Notes, Sheets, Resources))
    assert system_prompt("email", scopes.offered("email", clients)) == ""
    assert "\n\n\n" not in template("email", "answer", True, clients)[0][0]["text"]
    said = system_prompt("data", scopes.offered("data", clients))
    assert said.startswith("Rows are lines")
    assert "list_tables" not in said
    assert "chart" not in said


def test_a_context_of_all_is_told_of_the_sources_that_it_holds_alone() -> None:
    tools = scopes.scope("all").tools
    for held in scopes.MODULES:
        said = system_prompt("all", tools, {held})
        assert said.startswith(prompt("scope_all"))
        assert "run_python" in said
        assert [s for s, words in SAYS.items() if words in said] == [held] * (held != "web")


def test_a_context_of_all_is_told_nothing_of_writing_or_of_web_pages() -> None:
    tools = scopes.scope("all").tools
    said = system_prompt("all", tools)
    assert [s for s, words in SAYS.items() if words not in said] == ["web"]
    told = said.removeprefix(prompt("scope_all"))
    assert not re.search(r"\b(post|send|label|draft|commit|keep|write)\b", told, re.IGNORECASE)
    assert said == system_prompt("all", tools, set(scopes.MODULES))


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


def test_contexts_of_all_that_hold_the_same_kinds_share_their_prefix() -> None:
    one = template("all", "answer", True, None, ["notes:own", "data:shop"])
    two = template("all", "answer", True, None, ["sheet:x", "data:y", "notes:C1"])
    other = template("all", "answer", True, None, ["notes:own", "C1"])
    assert json.dumps(one) == json.dumps(two)
    assert one[1] == other[1]
    assert one[2] != other[2]
    assert template("slack", "answer", True, None, ["notes:own"]) == template(
        "slack", "answer", True
    )


async def test_a_run_tells_a_context_of_all_of_what_its_brief_gives_it() -> None:
    def holding(brief: Brief, *handles: str) -> Brief:
        return replace(brief, handles=Handles(dict.fromkeys(handles, "")))

    async with engine(turns(submitted(), submitted())) as e:
        made = [e.brief(task, 1, scope="all") for task in ("Look about", "Look again")]
        made[1] = holding(made[1], "notes:own")
        first, second = await e.fanout().freeze(made)
        for each in (first, second):
            handle = await e.spawner.start(each.id, each)
            await handle.result()
    told = [request["system"][0]["text"] for request in e.requests]
    assert ["Slack messages" in text for text in told] == [True, False]
    assert all(prompt("scope_all") in text for text in told)
    asked = [request["messages"][0]["content"][0]["text"] for request in e.requests]
    assert ["\nWINDOW: " in text for text in asked] == [True, False]
    assert ["\nNOW: " in text for text in asked] == [False, True]
