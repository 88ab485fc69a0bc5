"""One request answered: what the parent delegates, what it may say, what happens when it cannot."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from bot_kit import AS_OF, Done, Json, Shell, configure, export, model_at, said, small_export, ts
from document_kit import gap_lines
from engine_kit import call, is_child, line, results, say, submitted, turn, turns, use
from standins.model_faults import Faults

from bot.local.model.answer import Answer
from bot.local.model.server import Mind
from bot.local.offline.model import answer as offline_model

SPAIN = f"C0SUPPORTES/{ts('10 09:00')}"
OPEN = "What is open in #support-es?"

Ask = Callable[..., tuple[Done, list[Json]]]


@pytest.fixture
def ask(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Puts a question to a model; what came of it, and the requests that the model got."""
    zip_file = small_export(tmp_path)

    def put(
        mind: Mind = offline_model, question: str = OPEN, *, faults: Faults | None = None
    ) -> tuple[Done, list[Json]]:
        with model_at(monkeypatch, mind, faults) as server:
            done = shell(
                *("ask", question, "--slack-export", zip_file),
                *("--as-of", AS_OF, "--since", "30d", "--json"),
            )
        return done, server.recorded

    return put


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


@pytest.mark.parametrize(
    ("look_up", "seen"),
    [(use("list_channels"), "#support-en"), (use("read_thread", thread=SPAIN), "tarjeta")],
)
def test_one_look_up_spawns_no_subagent(ask: Ask, look_up: Json, seen: str) -> None:
    done, recorded = ask(turns(Answer([look_up]), say("There it is.")))
    assert (done.json["status"], done.json["subagents"]) == ("complete", [])
    assert seen in json.dumps(results(recorded[-1]), ensure_ascii=False)


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


def test_statements_say_what_they_rest_on_and_what_is_made_up_is_dropped(ask: Ask) -> None:
    answer = say("Cards are refused [F1.1]. Ghosts roam [F1.2]. I hope this helps [F7.7; F1.1].")
    document = ask(with_parent(Answer([brief()]), answer))[0].json
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


def test_of_a_child_that_is_cut_off_it_is_said_what_is_not_covered(ask: Ask) -> None:
    def mind(body: Json) -> Answer:
        if not is_child(body):
            return say("It was not read to the end.") if turn(body) else Answer([brief()])
        cut = Answer([use("read_channel_history", channel=SPAIN.partition("/")[0])], "max_tokens")
        return CHILD(body) if turn(body) == 0 else cut

    done, _ = ask(mind)
    (subagent,) = done.json["subagents"]
    assert (subagent["status"], subagent["stopped_by"]) == ("partial", "tokens")
    assert gap_lines(done.json) == ["s1: its output was cut off"]
    assert done.code == 1


def test_without_subagents_the_answer_says_that_isolation_is_advisory(
    ask: Ask, shell: Shell
) -> None:
    configure("limits: {max_subagents: 0}")
    done, recorded = ask(lambda body: say("It is quiet."))
    assert done.json["degraded"]
    assert "All sources were read together" in shell("show", done.json["run_id"]).out
    offered = {t["name"] for t in recorded[0]["tools"]}
    assert offered >= {"list_channels", "read_thread", "lookup_user", "read_channel_history"}
    assert not offered & {"run_subagent", "run_subagents", "post_message", "submit_result"}


def test_what_a_parent_was_not_given_it_cannot_read(ask: Ask) -> None:
    tries = [
        use("read_thread", thread=f"C0SUPPORTEN/{ts('12 09:00')}"),
        use("read_channel_history", channel="#support-es"),
        use("post_message", channel="#support-es", text="hi"),
        use("schedule_delete", name="daily"),
    ]
    _, recorded = ask(turns(Answer(tries), say("Nothing.")))
    thread, *others = results(recorded[-1])
    assert thread["content"].startswith("No thread C0SUPPORTEN/")
    for each in others:
        assert "No tool" in each["content"]
        assert each["is_error"]


def test_a_task_and_a_scope_are_enough_where_the_request_names_the_source(ask: Ask) -> None:
    simple = use("run_subagent", task="Say what is open.\nBe brief.", scope="slack")
    done, recorded = ask(with_parent(Answer([simple]), say("One is open [F1.1].")))
    assert done.json["status"] == "complete"
    child = next(filter(is_child, recorded))
    assert line(child, "MAY READ") == "C0SUPPORTES (#support-es)"
    assert "Say what is open. Be brief." in done.err
    (told,) = results(parents(recorded)[-1])
    given = "The brief named no source; it was given C0SUPPORTES (#support-es)."
    assert given in told["content"]


# ---- when


def test_a_subagent_reads_the_days_that_its_parent_names_and_the_answer_says_which(
    ask: Ask,
) -> None:
    march = brief(since="2025-03-10", until="2025-03-10")
    done, recorded = ask(with_parent(Answer([march]), say("One is open [F1.1].")))
    child = next(filter(is_child, recorded))
    assert line(child, "WINDOW") == "2025-03-10 00:00 to 2025-03-11 00:00 (UTC)"
    assert line(recorded[0], "NOW") == "Saturday, 2025-03-15 00:00 (UTC)"
    assert done.json["windows"] == [
        {"oldest": "2025-03-10T09:00:00.000100Z", "latest": "2025-03-11T00:00:00Z"}
    ]
    assert done.json["zone"] == "UTC"
