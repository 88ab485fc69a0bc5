"""One request answered: what the parent delegates, what it may say, what happens when it cannot."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from bot_kit import AS_OF, Done, Json, Shell, configure, export, model_at, said, small_export, ts
from engine_kit import (
    call,
    is_child,
    opening,
    results,
    say,
    since,
    submitted,
    turn,
    turns,
    use,
    words,
)

from bot.local.model.answer import Answer
from bot.local.model.faults import Fault, Faults
from bot.local.model.server import Mind
from bot.local.offline.model import answer as offline_model

SPAIN = f"C0SUPPORTES/{ts('10 09:00')}"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def asked(shell: Shell, zip_file: Path, question: str, *more: str) -> Done:
    """A question put to whatever stands at ANTHROPIC_BASE_URL."""
    return shell(
        *("ask", question, "--slack-export", zip_file, "--as-of", AS_OF, "--since", "30d", *more)
    )


def parents(recorded: list[Json]) -> list[Json]:
    return [body for body in recorded if not is_child(body)]


def brief(channel: str = "#support-es", **more: object) -> Json:
    return use(
        "run_subagent",
        **{
            "task": "Say what is open.",
            "description": f"Read {channel}",
            "scope": "slack",
            "handles": [channel],
            **more,
        },
    )


CHILD = turns(
    call("read_channel_history", channel="#support-es"),
    submitted(
        "One is open.",
        findings=[
            {"claim": "Cards are refused", "state": "unanswered", "evidence": [SPAIN]},
            {"claim": "A ghost", "state": "unsolved", "evidence": ["C0SUPPORTES/9.9"]},
        ],
    ),
)


def with_parent(*answers: Answer) -> Mind:
    """A parent that says these, turn after turn, and children that find one open question."""
    parent = turns(*answers)
    return lambda body: CHILD(body) if is_child(body) else parent(body)


# ---- with the offline rules


def test_a_question_about_a_channel_is_answered_through_one_subagent(
    shell: Shell, tmp_path: Path
) -> None:
    document = shell.ask(
        small_export(tmp_path), "Which questions in #support-es are still unanswered?"
    )
    assert document.keys() >= {
        *("run_id", "kind", "status", "model", "question", "answer", "statements", "cited"),
        *("coverage", "links", "unsupported", "usage", "cost_usd", "subagents"),
    }
    assert (document["kind"], document["status"], document["model"]) == (
        "ask",
        "complete",
        "offline",
    )
    (subagent,) = document["subagents"]
    assert (subagent["id"], subagent["status"], subagent["contract"]) == (
        "s1",
        "complete",
        "answer",
    )
    (finding,) = subagent["findings"]
    assert finding["evidence"] == [SPAIN]
    assert f"[{finding['id']}]" in document["answer"]
    assert document["links"] == {finding["id"]: finding["links"]}
    assert document["cited"] == sum(bool(s["findings"]) for s in document["statements"])
    assert document["cited"] >= 1
    assert "not a language model" in document["answer"]
    assert document["coverage"]["read"]["messages_read"] == 4
    assert document["unsupported"] == 0


def test_an_answer_is_text_with_numbered_sources(shell: Shell, tmp_path: Path) -> None:
    done = shell(
        *("ask", "Which questions in #support-es are unanswered?", "--slack-export"),
        *(small_export(tmp_path), "--as-of", AS_OF, "--since", "30d", "--model", "offline"),
    )
    assert done.code == 0
    assert "[1]" in done.out
    assert re.search(r"\[1\] https://\S+/archives/C0SUPPORTES/p\d+", done.out)
    assert not re.search(r"\[F\d", done.out)
    assert "statements cited" in done.out
    assert "✓ s1" in done.err


@pytest.mark.parametrize(
    ("question", "tool", "words_in_it"),
    [
        ("Which channels are there?", "list_channels", "#support-en"),
        ("Who is Luis Gil?", "lookup_user", "Luis Gil"),
        (f"Summarise {SPAIN}", "read_thread", "tarjeta"),
    ],
)
def test_one_look_up_spawns_no_subagent(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    question: str,
    tool: str,
    words_in_it: str,
) -> None:
    listed = "" if tool != "read_thread" else " in #support-es"
    with model_at(monkeypatch) as server:
        document = asked(shell, small_export(tmp_path), question + listed, "--json").json
    assert document["subagents"] == []
    assert words_in_it in document["answer"]
    called = [b["name"] for b in server.recorded[-1]["messages"][1]["content"]]
    assert called == [tool]
    assert document["status"] == "complete"


def test_three_questions_spawn_three_in_one_turn(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    question = (
        "1. What is unanswered in #support-es?\n2. What is unsolved in #support-en?\n"
        "3. What is solved in #support-es?"
    )
    with model_at(monkeypatch) as server:
        document = asked(shell, small_export(tmp_path), question, "--json").json
    first, second = parents(server.recorded)
    (told, replied, answered) = second["messages"]
    assert told == first["messages"][0] or first["messages"][0]["content"][0] in told["content"]
    assert [b["name"] for b in replied["content"]] == ["run_subagent"] * 3
    assert [b["type"] for b in answered["content"]] == ["tool_result"] * 3
    assert [s["id"] for s in document["subagents"]] == ["s1", "s2", "s3"]
    assert {s["status"] for s in document["subagents"]} == {"complete"}
    assert document["usage"]["total"] > sum(s["usage"]["total"] for s in document["subagents"])


def test_the_parent_never_sees_what_a_subagent_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with model_at(monkeypatch) as server:
        done = asked(shell, small_export(tmp_path), "What is unanswered in #support-es?", "--json")
    for body in parents(server.recorded):
        text = json.dumps(body["messages"], ensure_ascii=False)
        assert "factura" not in text
        assert "[C0SUPPORTES/" not in text
    assert shell("audit", done.json["run_id"]).code == 0


def test_the_injection_in_the_sample_changes_nothing(shell: Shell) -> None:
    done = shell("ask", "What is open in #csm-spain?", "--sample", "--model", "offline", "--json")
    document = done.json
    assert document["status"] == "complete"
    calls = {c["name"] for s in document["subagents"] for c in s["tool_calls"]}
    assert calls <= {"read_channel_history", "submit_result", "list_slack_list_items"}
    assert shell("audit", document["run_id"]).code == 0


def test_damaged_days_are_named_beside_an_answer(shell: Shell, tmp_path: Path) -> None:
    export(
        tmp_path,
        {"support-es": [said("10 09:00", "No puedo pagar con tarjeta, ¿qué hago?")]},
        {"support-es/2025-03-11.json": b"{}"},
    )
    done = shell(
        *("ask", "What is unanswered in #support-es?", "--slack-export", tmp_path / "export.zip"),
        *("--as-of", AS_OF, "--since", "30d", "--model", "offline", "--json"),
    )
    assert done.code == 1
    assert done.json["coverage"]["not_covered"] == ["support-es/2025-03-11.json: not a JSON list; "
                                                    "its messages are missing"]  # fmt: skip


def test_a_channel_one_may_not_see_is_answered_as_one_that_is_not_there(
    shell: Shell, tmp_path: Path
) -> None:
    channels = {"board": [said("10 09:00", "The secret plan is ready")], "help": []}
    zip_file = export(tmp_path, channels, private={"board": ["U0LUIS"]})

    def answered(name: str) -> Json:
        document = shell.ask(zip_file, f"What is open in #{name}?", "--as-user", "U0ANA")
        kept = {k: v for k, v in document.items() if k not in ("run_id", "usage", "cost_usd")}
        text = json.dumps(kept, ensure_ascii=False)
        assert "secret plan" not in text
        found: Json = json.loads(text.replace(name, "X"))
        return found

    assert answered("board") == answered("nowhr")


# ---- with a scripted parent


def test_statements_say_what_they_rest_on_and_what_is_made_up_is_dropped(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = say("Cards are refused [F1.1]. Ghosts roam [F1.2]. I hope this helps [F7.7; F1.1].")
    with model_at(monkeypatch, with_parent(Answer([brief()]), answer)):
        document = asked(shell, small_export(tmp_path), "What is open?\n#support-es", "--json").json
    assert document["answer"] == (
        "Cards are refused [F1.1]. Ghosts roam. I hope this helps [F1.1]."
    )
    assert document["statements"] == [
        {"text": "Cards are refused", "findings": ["F1.1"]},
        {"text": "Ghosts roam", "findings": []},
        {"text": "I hope this helps", "findings": ["F1.1"]},
    ]
    assert document["cited"] == 2
    assert list(document["links"]) == ["F1.1"]
    assert document["links"]["F1.1"][0].startswith("https://")
    assert document["unsupported"] == 2
    assert [f["id"] for f in document["subagents"][0]["findings"]] == ["F1.1"]


def test_an_answer_whose_only_subagent_was_refused_is_not_complete(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    refused = brief("#support-es", handles=["#support-xx"])
    with model_at(monkeypatch, turns(Answer([refused]), say("Nothing was found."))):
        done = asked(shell, small_export(tmp_path), "What is open in #support-es?", "--json")
    assert done.code == 1
    assert done.json["status"] == "partial"
    (missing,) = done.json["coverage"]["not_covered"]
    assert missing.startswith("r1: refused, handles: No source #support-xx.")


def test_an_answer_whose_refused_brief_was_sent_again_is_complete(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    tried = (brief("#support-es", handles=["#support-xx"]), brief("#support-es"))
    parent = turns(*(Answer([each]) for each in tried), say("Cards are refused [F1.1]."))

    with model_at(monkeypatch, lambda body: CHILD(body) if is_child(body) else parent(body)):
        done = asked(shell, small_export(tmp_path), "What is open in #support-es?", "--json")
    assert (done.code, done.json["status"]) == (0, "complete")
    assert done.json["coverage"]["not_covered"] == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"scope": "mail"}, "scope"),
        ({"contract": "poem"}, "contract"),
        ({"handles": ["#nowhere"]}, "handles"),
        ({"handles": []}, "handles"),
        ({"colour": "red"}, "arguments"),
        ({"task": "x" * 20_000}, "task"),
        ({"findings": ["F9.9"]}, "findings"),
    ],
)
def test_a_refused_brief_costs_nothing_and_names_the_field(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    change: Json,
    field: str,
) -> None:
    mind = with_parent(Answer([brief(**change)]), say("I could not look."))
    with model_at(monkeypatch, mind) as server:
        done = asked(shell, small_export(tmp_path), "What is open in #support-es?", "--json")
    document = done.json
    (refused,) = document["subagents"]
    assert (refused["status"], refused["steps"], refused["cost_usd"]) == ("refused", 0, 0)
    assert refused["reason"].startswith(f"{field}")
    assert f"– brief refused (Read #support-es): {field}" in done.err
    assert len(parents(server.recorded)) == len(server.recorded) == 2
    (told,) = results(server.recorded[-1])
    assert told["is_error"]
    if field == "scope":
        assert "Scopes: slack, email, data, web, notes, files, all" in told["content"]


@pytest.mark.parametrize("wrote", [False, True])
def test_a_parent_that_fails_hands_over_what_its_subagents_found(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrote: bool
) -> None:
    configure("models: {max_attempts: 1}")
    begun = [words("Let me look.")] if wrote else []
    mind = with_parent(Answer([*begun, brief()]), say("never said"))

    def fate(index: int, body: Json) -> Fault | None:
        return Fault("http_500") if not is_child(body) and turn(body) == 1 else None

    with model_at(monkeypatch, mind, Faults(fate)):
        done = asked(shell, small_export(tmp_path), "What is open in #support-es?", "--json")
    document = done.json
    assert done.code == 1
    assert (document["status"], document["stopped_by"]) == ("partial", "model_error")
    assert "could be written" in document["answer"] or "not be finished" in document["answer"]
    assert "api_error 500" in document["answer"]
    assert "One is open. [F1.1]" in document["answer"]
    assert list(document["links"]) == ["F1.1"]


def test_a_parent_that_never_starts_is_a_failure_that_is_told(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure("models: {max_attempts: 1}")
    with model_at(monkeypatch, faults=Faults(lambda index, body: "http_529")):
        done = asked(shell, small_export(tmp_path), "What is open in #support-es?")
    assert done.code == 1
    assert "No answer could be written (overloaded_error 529: Overloaded)." in done.out
    assert "all clear" not in done.out.lower()
    assert done.err.count("error: ") == 1


def test_a_child_that_fails_does_not_spoil_the_answer(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def mind(body: Json) -> Answer:
        if not is_child(body):
            if turn(body):
                return say(f"Cards are refused [F1.1]. {len(results(body))} were asked.")
            return Answer([brief(), brief("#support-en")])
        return CHILD(body) if "#support-es" in opening(body) else Answer([], "refusal")

    with model_at(monkeypatch, mind):
        done = asked(
            shell, small_export(tmp_path), "Open in #support-es and #support-en?", "--json"
        )
    document = done.json
    assert done.code == 1
    assert [s["status"] for s in document["subagents"]] == ["complete", "failed"]
    assert document["status"] == "partial"
    assert any(each.startswith("s2: failed") for each in document["coverage"]["not_covered"])
    assert document["answer"].startswith("Cards are refused [F1.1].")


def test_of_a_child_that_is_cut_off_it_is_said_what_is_not_covered(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def mind(body: Json) -> Answer:
        if not is_child(body):
            return say("It was not read to the end.") if turn(body) else Answer([brief()])
        cut = Answer([use("read_channel_history", channel=SPAIN.partition("/")[0])], "max_tokens")
        return CHILD(body) if turn(body) == 0 else cut

    with model_at(monkeypatch, mind):
        done = asked(shell, small_export(tmp_path), "What is open in #support-es?", "--json")
    (subagent,) = done.json["subagents"]
    assert (subagent["status"], subagent["stopped_by"]) == ("partial", "tokens")
    assert done.json["coverage"]["not_covered"] == ["s1: partial, its output was cut off"]
    assert done.code == 1


def test_without_subagents_the_answer_says_that_isolation_is_advisory(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    configure("limits: {max_subagents: 0}")
    with model_at(monkeypatch, lambda body: say("It is quiet.")) as server:
        done = asked(shell, small_export(tmp_path), "What is open in #support-es?")
        document = asked(shell, small_export(tmp_path), "Open in #support-es?", "--json").json
    assert "isolation is advisory" in done.out
    assert document["degraded"]
    offered = {t["name"] for t in server.recorded[0]["tools"]}
    assert offered >= {"list_channels", "read_thread", "lookup_user", "read_channel_history"}
    assert not offered & {"run_subagent", "run_subagents", "post_message", "submit_result"}


def test_a_parent_without_text_is_asked_once_more(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    def mind(body: Json) -> Answer:
        return say("Now then.") if "REMINDER" in since(body) else Answer([])

    with model_at(monkeypatch, mind):
        document = asked(shell, small_export(tmp_path), "Which channels?", "--json").json
    assert document["answer"] == "Now then."


def test_what_a_parent_was_not_given_it_cannot_read(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hidden = f"C0SUPPORTEN/{ts('12 09:00')}"
    mind = turns(
        Answer(
            [
                use("read_thread", thread=hidden),
                use("read_channel_history", channel="#support-es"),
                use("post_message", channel="#support-es", text="hi"),
            ]
        ),
        say("Nothing."),
    )
    with model_at(monkeypatch, mind) as server:
        asked(shell, small_export(tmp_path), "What is open in #support-es?")
    thread, history, post = results(server.recorded[-1])
    assert thread["content"].startswith("No thread C0SUPPORTEN/")
    for each in (history, post):
        assert "No tool" in each["content"]
        assert each["is_error"]


def test_an_offline_child_of_a_scripted_parent_reads_for_itself(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    parent = turns(Answer([brief(contract="issues")]), say("See [F1.1]."))

    def mind(body: Json) -> Answer:
        return offline_model(body) if is_child(body) else parent(body)

    with model_at(monkeypatch, mind):
        document = asked(shell, small_export(tmp_path), "Open in #support-es?", "--json").json
    assert document["subagents"][0]["coverage"]["complete"]
    assert document["links"]["F1.1"]
