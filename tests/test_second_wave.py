"""What a finished subagent found is handed to further subagents by the ids of its findings."""

from __future__ import annotations

from pathlib import Path

import pytest
from bot_kit import AS_OF, Done, Json, Shell, model_at, small_export, ts
from engine_kit import call, is_child, led_by, line, results, say, submitted, turn, turns, use

from bot.local.model.answer import Answer
from bot.local.model.server import Mind

SPAIN = f"C0SUPPORTES/{ts('10 09:00')}"


def waves(first: Answer, second: Answer, *, finds: Mind, reads: Mind) -> Mind:
    """A parent with two waves; children that were given a store find, the others read."""

    def child(body: Json) -> Answer:
        stores = ("mail:search", "slack:channels", "C0SUPPORTES (", "web:search")
        wide = any(store in line(body, "MAY READ") for store in stores)
        return finds(body) if wide else reads(body)

    return led_by(first, second, say("It is all told [F1.1]."), children=child)


def one(scope: str, handles: list[str], task: str = "Find them") -> Json:
    return use("run_subagent", task=task, scope=scope, handles=handles)


def refused(body: Json) -> str:
    return str(results(body)[-1]["content"])


# ---- in Slack


def asked(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, folder: Path, second: Json, reads: Mind
) -> tuple[Done, list[Json]]:
    finds = turns(
        call("read_channel_history", channel="#support-es"),
        submitted("One is open.", findings=[{"claim": "Cards fail", "evidence": [SPAIN]}]),
    )
    mind = waves(
        Answer([one("slack", ["#support-es"])]), Answer([second]), finds=finds, reads=reads
    )
    with model_at(monkeypatch, mind) as server:
        done = shell(
            *("ask", "What is open in #support-es?", "--slack-export", small_export(folder)),
            *("--as-of", AS_OF, "--since", "30d", "--json"),
        )
    return done, [body for body in server.recorded if not is_child(body)]


@pytest.mark.parametrize("given", ["F1.1", "[F1.1]", SPAIN])
def test_a_finding_gives_its_thread_and_nothing_else_of_the_channel(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    told: list[str] = []

    def reads(body: Json) -> Answer:
        told[:] = [str(each["content"]) for each in results(body)]
        if turn(body) == 0:
            return call("search_messages", query="tarjeta", channel="#support-es")
        if turn(body) == 1:
            return call("read_thread", thread=SPAIN)
        return submitted("Read.", findings=[{"claim": "Read on", "evidence": [SPAIN]}])

    done, _ = asked(shell, monkeypatch, tmp_path, one("slack", [given]), reads)
    assert done.json["subagents"][0]["findings"][0]["sources"] == [SPAIN]
    assert [f["claim"] for f in done.json["subagents"][1]["findings"]] == ["Read on"]
    denied, thread = told
    assert "No channel" in denied
    assert SPAIN in thread


@pytest.mark.parametrize(
    ("scope", "handle", "why"),
    [
        ("slack", "F7.1", "No source F7.1."),
        ("web", "F1.1", "F1.1 rests on nothing that a subagent of the scope web can read"),
        ("slack", "C0SUPPORTEN", "No source C0SUPPORTEN."),
        ("slack", f"C0SUPPORTES/{ts('11 09:00')}", "No source"),
    ],
)
def test_what_no_finding_rests_on_is_refused_in_words(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, scope: str, handle: str, why: str
) -> None:
    done, parents = asked(
        shell, monkeypatch, tmp_path, one(scope, [handle]), turns(submitted("never"))
    )
    assert why in refused(parents[-1])
    assert [each["status"] for each in done.json["subagents"][1:]] == ["refused"]
