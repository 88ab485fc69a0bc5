"""Prompts are versioned files; what they promise is what code does."""

from __future__ import annotations

import json
import re
from importlib.resources import files

import pytest

import scopes
from config.prompts import VERSION, prompt
from scopes.tool import estimate_tokens
from subagents.brief import template, tools_for
from subagents.contracts import (
    CONTRACTS,
    DEFAULT_MODEL,
    OFFERED,
)
from subagents.delegation import delegation_schemas

NAMES = sorted(f.name.removesuffix(".md") for f in files("config").joinpath("prompts").iterdir())


@pytest.mark.parametrize("name", NAMES)
def test_every_prompt_begins_with_its_version_and_holds_text(name: str) -> None:
    raw = files("config").joinpath("prompts", f"{name}.md").read_text("utf-8")
    assert VERSION.match(raw)
    assert prompt(name)
    assert "<!--" not in prompt(name)


def test_every_scope_and_contract_has_its_prompt_and_no_prompt_is_left_over() -> None:
    needed = {scopes.scope(name).prompt for name in scopes.scope_names()}
    needed |= {f"contract_{name}" for name in CONTRACTS}
    needed |= {"subagent", "submit_result", "parent", "run_subagent", "run_subagents", "handoff"}
    needed |= {"sweep_task", "sweep_tracker", "top_lines", "triage_task", "digest_lines"}
    needed |= {"web_search"}
    assert set(NAMES) == needed


@pytest.mark.parametrize("contract", CONTRACTS)
@pytest.mark.parametrize("scope", scopes.scope_names())
def test_siblings_share_a_prefix_with_nothing_of_one_run_in_it(scope: str, contract: str) -> None:
    system, tools, version = template(scope, contract, True)
    assert re.fullmatch(rf"{scope}/{contract}@[0-9a-f]{{8}}", version)
    assert (system, tools, version) == template(scope, contract, True)
    assert "{" not in re.sub(r"\{(facts|before window)\}", "", system[0]["text"])
    assert [t["name"] for t in tools] == [
        *(t.name for t in tools_for(scope, contract)),
        "submit_result",
    ]


@pytest.mark.parametrize("contract", ["issues", "triage", "tracker"])
def test_a_subagent_that_only_reports_has_no_tool_that_writes(contract: str) -> None:
    every = {tool.name for tool in scopes.scope("slack").tools + scopes.scope("email").tools}
    writes = {"post_message", "send_direct_message", "add_reaction", "send_mail", "create_draft"}
    assert writes <= every
    for scope in ("slack", "email", "files"):
        assert not {tool.name for tool in tools_for(scope, contract)} & {*writes, "write_file"}
    assert writes <= {t.name for s in ("slack", "email") for t in tools_for(s, "answer")}


def test_the_fixed_part_of_a_slack_subagent_is_small() -> None:
    system, tools, _ = template("slack", "issues", True)
    assert estimate_tokens(str(system) + str(tools)) <= 2_200  # by bytes; in tokens about 1,500


def test_the_parent_is_told_of_every_field_and_contract_that_it_may_set() -> None:
    told = prompt("parent")
    single, many = (t["input_schema"]["properties"] for t in delegation_schemas(24))
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
    for offering, told in ((["web"], False), (["notes", "all"], True), ([], True)):
        for made in delegation_schemas(24, offering):
            assert ("all =" in json.dumps(made)) is told, offering
