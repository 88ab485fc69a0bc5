"""`assistant eval`: figures with intervals, baselines, comparisons, cases from stored runs."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import duckdb
import pytest
import yaml
from bot_kit import AS_OF, Shell, export, export_message, model_at, refusal_text, small_export
from engine_kit import is_child
from mail_kit import letters, mail, mbox

from bot.evaluation.cases import READERS, suite_of
from bot.evaluation.scores import (
    CaseResult,
    Observation,
    differences,
    names_rows,
    outcome,
    scipy_stats,
)
from bot.local.model.answer import Answer
from bot.local.offline.model import answer as offline_model
from bot.mailbox.accounts import OPERATOR
from bot.mailbox.corrections import Corrections
from bot.runs.store import Store
from bot.storage.encryption import cipher_of
from bot.storage.requests import RequestQueue
from config.settings import load_settings

Json = dict[str, Any]
WORSE = Path(__file__).parent / "worse_prompts"
STATES = ("unsolved", "unsolved", "unsolved", "solved", "unanswered")
"""Of the threads of `support`, over and over."""


REPLIES = {
    "unanswered": (),
    "unsolved": (("Try it again please", "U0LUIS"), ("It fails again, what now?", "U0ANA")),
    "solved": (("Try it again please", "U0LUIS"), ("It works, thank you", "U0ANA")),
}


def thread(day: int, state: str) -> list[Json]:
    """Messages of a thread in this state, by the rules of the offline model."""
    at = f"{day:02} 09:00"
    messages = [export_message(at, f"The export of day {day} fails, what can I do?")]
    for hour, (text, user) in enumerate(REPLIES[state], 10):
        messages.append(export_message(f"{day:02} {hour}:00", text, user, at))
    return messages


def states(folder: Path, count: int = 10) -> Path:
    """Write a suite of `count` threads with their states; return its folder."""
    wanted = [STATES[n % len(STATES)] for n in range(count)]
    threads = [thread(day, state) for day, state in enumerate(wanted, 1)]
    export(folder, {"support": [message for each in threads for message in each]})
    case = {
        "task": "sweep",
        "channels": ["support"],
        "sources": {"slack_export": "export.zip", "as_of": AS_OF, "since": "30d"},
    }
    cases = [
        {**case, "id": f"c{n}", "item": f"support/{root['ts']}", "expected": {"state": state}}
        for n, ((root, *_), state) in enumerate(zip(threads, wanted, strict=True))
    ]
    return suite(folder, cases)


def suite(folder: Path, cases: Sequence[Json]) -> Path:
    (folder / "cases.yaml").write_text(yaml.safe_dump(list(cases)), "utf-8")
    return folder


def evaluate(shell: Shell, folder: Path, *more: object) -> Json:
    """Evaluate a suite with the offline model; return its document."""
    document: Json = shell("eval", folder, "--model", "offline", "--json", *more).json
    return document


def figures(document: Json, system: int = 0) -> dict[str, float | None]:
    return {each["name"]: each["value"] for each in document["systems"][system]["figures"]}


# ---- suites of a team, and their results


def test_suite_is_compared_with_one_context_and_a_script(shell: Shell, tmp_path: Path) -> None:
    folder = states(tmp_path)
    table = shell("eval", folder, "--model", "offline")
    assert "time of assistant" in table.err
    assert "time" not in table.out, "the table is the same twice"
    document = evaluate(shell, folder)
    assert [each["name"] for each in document["systems"]] == ["assistant", "one context", "script"]
    found = figures(document)
    assert [found[name] for name in ("accuracy", "precision", "recall", "coverage")] == [1, 1, 1, 1]
    assert found["unsupported claims"] == 0
    accuracy = document["systems"][0]["figures"][0]
    assert 0.7 < accuracy["low"] < 0.75 < accuracy["high"] == 1  # of ten cases
    assert figures(document, 2)["precision"] == 0.8  # it mistakes thanks for a question


def test_uncovered_cases_count_as_wrong(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with model_at(monkeypatch, lambda body: Answer([])):
        done = shell("eval", states(tmp_path), "--alone", "--json")
    assert done.code == 1
    found = figures(done.json)
    assert (found["accuracy"], found["coverage"], found["recall"]) == (0, 0, 0)


# ---- comparisons


def obedient(body: Json) -> Answer:
    """The offline model, but its prompt decides what `solved` means."""
    answer = offline_model(body)
    rule = re.search(r"solved = ([^;.]*)", json.dumps(body.get("system")))
    if not (is_child(body) and rule and rule[1] == "anybody has replied"):
        return answer
    for block in answer.content:
        for each in block.get("input", {}).get("findings", ()):
            if each["state"] == "unsolved":
                each["state"] = "solved"
    return answer


def test_comparison_detects_a_worse_prompt_with_its_interval(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone, saved = ("eval", states(tmp_path), "--alone"), tmp_path / "before.json"
    with model_at(monkeypatch, obedient):
        assert shell(*alone, "--save", saved).code == 0
        done = shell(*alone, "--prompts", WORSE, "--compare", saved, "--json")
    every, needed, others = done.json["differences"]
    assert (every["against"], every["verdict"], every["value"]) == ("before", "worse", -0.6)
    assert every["low"] <= -0.6 <= every["high"] < 0
    assert every["p"] < 0.05
    assert (needed["count"], needed["value"], needed["verdict"]) == (8, -0.75, "worse")
    assert (others["count"], others["value"], others["p"]) == (2, 0, 1)


def outcomes(right: Sequence[bool]) -> list[CaseResult]:
    return [CaseResult(case=str(n), right=each, covered=True) for n, each in enumerate(right)]


def test_few_cases_show_no_difference_and_unpaired_cases_are_ignored() -> None:
    (found,) = differences(outcomes([True] * 3), "x", outcomes([False] * 2))
    assert (found.count, found.value, found.verdict) == (2, 1, "no difference shown")
    (same,) = differences(outcomes([True] * 30), "x", outcomes([True] * 30))
    assert (same.low, same.high, same.p) == (0, 0, 1)


# ---- answers, mails, reviews


@pytest.mark.parametrize(
    ("text", "answer", "right"),
    [
        ("There are 9 of them [F1.1].", [[9]], True),
        ("There are 19 of them [F9.9], or 9.5.", [[9]], False),
        ("Revenue: 1,234,567.5 in total", [[1234567.5]], True),
        ("T016 (Ace), T017", [["T016"], ["T017"]], True),
        ("T0161", [["T016"]], False),
        ("Acme, Inc. has 3", [["Acme, Inc.", 3]], True),
        ("Nothing was found.", [], False),
    ],
)
def test_answer_is_right_if_it_contains_every_value(
    text: str, answer: list[list[object]], right: bool
) -> None:
    assert names_rows(text, answer) is right


def test_answers_are_scored_by_required_text_omissions_and_citations(
    shell: Shell, tmp_path: Path
) -> None:
    sources = {"slack_export": str(small_export(tmp_path)), "as_of": AS_OF, "since": "30d"}
    case = {"sources": sources, "question": "Which questions in #support-es are unanswered?"}
    cited = shell.ask(tmp_path / "export.zip", case["question"])  # type: ignore[arg-type]
    items = cited["subagents"][0]["findings"][0]["evidence"]
    wanted = [
        {"says": [["nobody has replied", "pagar CON tarjeta"]], "denied": 0, "cites": items},
        {"says": ["Rechnung"]},
        {"omits": ["pagar con tarjeta"]},
        {"cites": ["C0SUPPORTES/1.000100"]},
    ]
    cases = [{"id": str(n), **case, "expected": each} for n, each in enumerate(wanted)]
    assistant, _ = evaluate(shell, suite(tmp_path, cases))["systems"]
    assert [each["right"] for each in assistant["outcomes"]] == [True, False, False, False]


def test_script_for_mails_looks_for_question_marks(shell: Shell, tmp_path: Path) -> None:
    file = mbox(tmp_path / "m.mbox", *letters(2), mail(9, "All is well, thank you."))
    verdicts = shell("triage", "--mbox", file, "--model", "offline", "--json").json["verdicts"]
    newest, second, first = [each["thread_id"] for each in verdicts]
    case = {"task": "triage", "sources": {"mbox": "m.mbox"}}
    wanted = {newest: False, second: True, first: True}
    cases = [{**case, "id": t, "item": t, "expected": {"asked": v}} for t, v in wanted.items()]
    result = evaluate(shell, suite(tmp_path, cases))
    assert figures(result, 2)["accuracy"] == 1
    assert figures(result)["coverage"] == 1


def test_planted_fault_counts_only_if_one_finding_states_it_fully() -> None:
    cases = suite_of("panel", None).cases
    fault = next(case for case in cases if case.id == "incident/impact-window")
    for findings, found in (
        (["The impact begins at 06:41, although the first charge was at 05:12."], True),
        (["The impact begins at 06:41.", "The first charge was at 05:12."], False),
    ):
        seen = Observation(findings=tuple(findings))
        assert outcome(fault, seen).right is found


# ---- labelled data


def labelled_data(folder: Path) -> Path:
    """A folder of labelled data with one label of each kind."""
    (folder / "labels").mkdir()
    small_export(folder).rename(folder / "slack_export.zip")
    mbox(folder / "mail.mbox", *letters(1))
    with duckdb.connect(str(folder / "business.duckdb")) as connection:
        connection.execute("CREATE SCHEMA shop; CREATE TABLE shop.orders AS SELECT 7 AS id")
    votes = [{"speech_acts": {"req": ["1.1"]}}, {"speech_acts": {}}, {"speech_acts": {"req": [2]}}]
    gold = {"db": "shop", "question": "Which order?", "as_of": "2024-07-01", "answer": [[7]]}
    state = {"id": "support-es/1741597200.000100", "state": "unanswered", "agreed": True}
    parts: dict[str, Any] = {
        "STATS": {"as_of": AS_OF},
        "labels/support_states": [state, {**state, "id": "support-en/1", "agreed": False}],
        "labels/email_bc3_summaries": [{"thread_id": "11", "annotators": votes}],
        "labels/email_messages": [
            {"thread_id": "11", "source": "bc3"},
            {"thread_id": "12", "source": "tests", "label": "spam"},
            {"thread_id": "13", "source": "other"},
        ],
        "labels/sql_gold": [gold],
    }
    for name, content in parts.items():
        (folder / f"{name}.json").write_text(json.dumps(content), "utf-8")
    return folder


def test_labels_become_cases(tmp_path: Path) -> None:
    data = labelled_data(tmp_path)
    read = {name: suite_of(name, data).cases for name in READERS}
    found = {
        name: [
            (c.item, c.expected.model_dump(exclude_none=True, exclude_defaults=True)) for c in many
        ]
        for name, many in read.items()
    }
    assert found == {
        "states": [("support-es/1741597200.000100", {"state": "unanswered"})],
        "asked": [("11", {"asked": True})],
        "triage": [("11", {"needs_reader": True}), ("12", {"needs_reader": False})],
        "filter": [("11", {"filtered": False}), ("12", {"filtered": True})],
        "sql": [("", {"rows": ((7,),)})],
    }
    assert read["sql"][0].question == "In the schema shop: Which order? Today is 2024-07-01."


# ---- cases from stored runs


async def change_store(work: Any) -> None:
    """Change the store of the commands."""
    settings = load_settings()
    store = await Store.open(settings.data_dir, settings.database_url, cipher_of(settings))
    try:
        await work(store)
    finally:
        await store.aclose()


def test_a_rated_answer_becomes_a_case_with_the_reasons(shell: Shell, tmp_path: Path) -> None:
    run = shell.ask(small_export(tmp_path), "Which questions in #support-es are unanswered?")
    unrated = shell("eval", "add", run["run_id"], "--into", tmp_path / "x")
    assert "Nobody has rated" in refusal_text(unrated, "not_rated")
    no_folder = shell("eval", "add", run["run_id"], "--as", "good", "--into", "/dev/null/x")
    assert "Nothing can be written to /dev/null/x" in refusal_text(no_folder, "folder")
    for rating, accuracy in (("good", 1), ("bad", 0)):
        folder = tmp_path / rating
        done = shell("eval", "add", run["run_id"], "--as", rating, "--into", folder)
        assert done.code == 0, done.err
        assert figures(evaluate(shell, folder, "--alone"))["accuracy"] == accuracy

    async def rate(store: Store) -> None:
        await store.start_run("r2", "ask", "What is open?", "m", {}, request="T/C/1")
        await store.finish_run("r2", "complete", result=run, cost_usd=0.0)
        queue = RequestQueue(store.database)
        await queue.feedback("T/C/1", "U0ANA", "bad")
        await queue.explain("T/C/1", "U0ANA", "missing", "Nothing of #support-en.")

    asyncio.run(change_store(rate))
    assert shell("eval", "add", "r2", "--into", tmp_path).code == 0
    (case,) = yaml.safe_load((tmp_path / "cases.yaml").read_text("utf-8"))
    assert case["note"] == "missing: Nothing of #support-en."
    assert case["expected"]["omits"]


def test_corrected_threads_and_good_sweeps_become_cases(shell: Shell, tmp_path: Path) -> None:
    file = mbox(tmp_path / "m.mbox", *letters(2))
    run = shell("triage", "--mbox", file, "--model", "offline", "--json").json
    nothing = shell("eval", "add", run["run_id"], "--into", tmp_path)
    assert "would have been right" in refusal_text(nothing, "no_case")
    thread, other = [each["thread_id"] for each in run["verdicts"]]

    async def correct(store: Store) -> None:
        await Corrections(store.database).add(OPERATOR, thread, "c@x.example", "priority", "low")

    asyncio.run(change_store(correct))
    assert shell("eval", "add", run["run_id"], "--into", tmp_path).code == 0
    assert shell("eval", "add", run["run_id"], "--into", tmp_path, "--as", "good").code == 0
    cases = {each["id"]: each for each in yaml.safe_load((tmp_path / "cases.yaml").read_text())}
    assert cases[thread]["expected"]["priority"] == "low"
    assert cases[other]["expected"].keys() == {"asked", "priority"}
    sweep = shell.sweep(small_export(tmp_path))
    done = shell("eval", "add", sweep["run_id"], "--as", "good", "--into", tmp_path / "s", "--json")
    assert len(done.json["cases"]) == 3
    assert figures(evaluate(shell, tmp_path / "s", "--alone"))["accuracy"] == 1


# ---- wrong use


def test_example_cases_in_the_evaluation_docs_are_valid(tmp_path: Path) -> None:
    page = (Path(__file__).parents[1] / "docs" / "evaluation.md").read_text("utf-8")
    (block,) = re.findall(r"```text\n(- id: .*?)```", page, re.DOTALL)
    (tmp_path / "cases.yaml").write_text(block, "utf-8")
    found = suite_of(str(tmp_path), None).cases
    assert [case.task for case in found] == ["ask", "sweep", "triage", "review"]


CASE = {"id": "1", "question": "?", "expected": {"says": ["a"]}}


@pytest.mark.parametrize(
    ("cases", "error"),
    [
        ([{**CASE, "expectd": 1}], "unknown key 'expectd'"),
        ([{**CASE, "expected": {}}], "nothing is expected"),
        ([{**CASE, "task": "triage"}], "needs item"),
        (["x"], "case 1 in "),
        ([CASE, CASE], "the id '1' twice"),
    ],
)
def test_error_of_a_suite_names_the_wrong_case(
    shell: Shell, tmp_path: Path, cases: list[Any], error: str
) -> None:
    done = shell("eval", suite(tmp_path, cases), "--model", "offline", "--json")
    assert error in refusal_text(done, "bad_cases")


def test_each_usage_error_is_reported_in_one_sentence(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad, empty, old = tmp_path / "bad", tmp_path / "empty", tmp_path / "old.json"
    bad.mkdir()
    empty.mkdir()
    (bad / "no_prompt.md").write_text("<!-- version: 1 -->\nx")
    (bad / "cases.yaml").write_text("a: [")
    system = {"name": "assistant", "figures": [], "outcomes": [], "seconds": {"name": "s"}}
    old.write_text(json.dumps({"suite": "x", "model": "m", "cases": 0, "systems": [system]}))
    for text, code, *args in (
        ("There is no suite 'dances'", "unknown_suite", "dances"),
        ("reads labelled data", "no_data", "states"),
        ("slack_export.zip", "no_data", "states", "--data", empty),
        ("has no cases.yaml", "no_cases", empty),
        ("cannot be read", "bad_cases", bad),
        ("is a result of the suite x", "bad_baseline", "twins", "--compare", old),
        ("is no result", "bad_baseline", "twins", "--compare", bad / "cases.yaml"),
        ("no prompt 'no_prompt'", "bad_prompts", "twins", "--prompts", bad),
        ("no folder of prompts", "bad_prompts", "twins", "--prompts", empty),
    ):
        done = shell("eval", *args, "--model", "offline", "--json")
        assert text in refusal_text(done, str(code))
    assert shell("eval", "add").code == 2
    assert "There is no run" in shell("eval", "add", "nothing").err
    scipy_stats()
    monkeypatch.setitem(sys.modules, "scipy", None)
    done = shell("eval", "twins", "--model", "offline")
    assert (done.code, done.out) == (2, "")
    assert "uv tool install '.[eval]'" in done.err
