"""`assistant ask` over databases, folders, mailboxes and Slack together, with the offline rules."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bot_kit import Done, Json, Shell, in_one_turn, model_at
from document_kit import gap_lines
from engine_kit import is_child

CITY = "SELECT city, count(*) AS n_shops FROM shops GROUP BY city ORDER BY n_shops DESC LIMIT 1"
THREE = f"1) How many shops are there?\n2) SELECT sum(amount) AS total FROM sales\n3) {CITY}"


@pytest.fixture
def tables(tmp_path: Path) -> Path:
    folder = tmp_path / "tables"
    folder.mkdir()
    shops = "shop_id,name,city\n1,Baixa,Lisbon\n2,Chiado,Lisbon\n3,Ribeira,Porto\n"
    (folder / "shops.csv").write_text(shops, "utf-8")
    sales = "sale_id,shop_id,sale_date,amount\n1,1,2026-03-02,120\n2,3,2026-03-09,45\n"
    (folder / "sales.csv").write_text(sales + "3,2,2026-02-27,999\n", "utf-8")
    return folder


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    folder = tmp_path / "shop"
    (folder / "tests").mkdir(parents=True)
    (folder / "pyproject.toml").write_text('[project]\nname = "shop"\n', "utf-8")
    (folder / "cart.py").write_text('"""Carts."""\n\n\ndef add():\n    return 1\n', "utf-8")
    (folder / "tests" / "test_cart.py").write_text(
        "import pytest\n" + "# a long file\n" * 100, "utf-8"
    )
    return folder


def asked(shell: Shell, question: str, *sources: object) -> Done:
    return shell("ask", question, *sources, "--model", "offline", "--json")


def asked_at(shell: Shell, question: str, *sources: object) -> Done:
    """With whatever stands at ANTHROPIC_BASE_URL."""
    return shell("ask", question, *sources, "--as-of", "2026-03-16", "--json")


def section(document: Json, head: str) -> str:
    """What the answer says to one of its questions."""
    found: str = document["answer"].partition(f"*{head}*\n")[2].partition("\n\n")[0]
    return found


# ---- databases


def test_three_questions_at_once_are_three_isolated_subagents(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tables: Path
) -> None:
    with model_at(monkeypatch) as server:
        done = asked_at(shell, THREE, "--database", tables)
    document = done.json
    assert done.code == 0
    assert in_one_turn(server) == ["run_subagent"] * 3
    assert [(s["scope"], s["status"]) for s in document["subagents"]] == [("data", "complete")] * 3
    claims = [s["findings"][0]["claim"] for s in document["subagents"]]
    assert [claim.rpartition(": ")[2] for claim in claims] == ["3", "1164", "2"]
    assert claims[2].startswith("city: Lisbon")
    assert all(f"[F{n}.1]" in document["answer"] for n in (1, 2, 3))
    for n, body in enumerate(b for b in server.recorded if is_child(b)):
        told = json.dumps(body["messages"][0])
        assert sum(part in told for part in re.findall(r"\d\) ([^\n]+)", THREE)) == 1, n
    audit = shell("audit", document["run_id"])
    assert audit.code == 0
    assert "0 leaks" in audit.out


# ---- all sources together


def test_slack_mail_and_data_are_three_scopes_whose_findings_are_joined(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = (
        "Which questions in #csm-spain are still unanswered, what do my mails say about the "
        "double charge, and which market had the largest refunds in March?"
    )
    with model_at(monkeypatch) as server:
        done = asked_at(shell, question, "--sample")
    document = done.json
    assert in_one_turn(server) == ["run_subagent"] * 3
    assert [s["scope"] for s in document["subagents"]] == ["slack", "email", "data"]
    cited = {id for statement in document["statements"] for id in statement["findings"]}
    assert {id.partition(".")[0] for id in cited} == {"F1", "F2", "F3"}
    found = {s["scope"]: s["findings"][0] for s in document["subagents"]}
    assert found["slack"]["links"][0].startswith("https://almadora.slack.com/archives/C0CSMSPAIN/")
    assert "mail.google.com" in found["email"]["links"][0]
    assert found["data"]["quotes"][0] == "Spain"
    audit = shell("audit", document["run_id"])
    assert audit.code == 0
    assert "0 leaks" in audit.out


# ---- folders and notes


def test_requests_over_a_checkout_are_done_from_its_files_side_by_side(
    shell: Shell, checkout: Path
) -> None:
    first = "Where is 'pytest' imported?"
    question = f"1. {first}\n2. Write a file tax.txt with the text VAT is 21 %"
    document = asked(shell, question, "--folder", checkout).json
    assert [s["scope"] for s in document["subagents"]] == ["files"] * 2
    assert (checkout / "tax.txt").read_text("utf-8") == "VAT is 21 %\n"
    assert "import pytest" in section(document, first)
    (found,) = document["subagents"][0]["findings"]
    assert "tests/test_cart.py:1" in str(found["evidence"])
    assert gap_lines(document) == []
    assert shell("audit", document["run_id"]).code == 0


# ---- nothing given


def test_a_folder_of_the_settings_that_is_gone_is_not_covered_and_the_rest_is(
    shell: Shell, tables: Path
) -> None:
    Path("assistant.yaml").write_text("files: {projects: {gone: {path: /no/where}}}", "utf-8")
    done = asked(shell, CITY, "--database", tables)
    told = "files.projects.gone.path: There is no folder /no/where."
    assert done.code == 1
    assert "Lisbon" in done.json["answer"]
    assert told in gap_lines(done.json)
    assert f"warning: {told}" in done.err
    listed = shell("scopes")
    assert listed.code == 0
    assert f"not offered: files:gone. {told}" in listed.out
