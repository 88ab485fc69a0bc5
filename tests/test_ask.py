"""One request: what the parent delegates, what it may say, what happens when it cannot."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from bot_kit import (
    AS_OF,
    Done,
    Json,
    Shell,
    configure,
    delegating_model,
    finding_model,
    in_one_turn,
    model_at,
    small_export,
    ts,
)
from document_kit import gap_lines
from engine_kit import call, is_child, line, results, say, submission, turn, turns, use

from bot.local.model.answer import Answer
from bot.local.model.server import Responder

SPAIN = f"C0SUPPORTES/{ts('10 09:00')}"
OPEN = "What is open in #support-es?"

Ask = Callable[..., tuple[Done, list[Json]]]


@pytest.fixture
def ask(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Ask:
    """Ask a question; return the output and the requests that the model got."""
    window = ("--slack-export", small_export(tmp_path), "--as-of", AS_OF, "--since", "30d")

    def run_ask(responder: Responder) -> tuple[Done, list[Json]]:
        with model_at(monkeypatch, responder) as server:
            done = shell("ask", OPEN, *window, "--json")
        return done, server.recorded

    return run_ask


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
    submission(
        "One is open.",
        findings=[
            {"claim": "Cards are refused", "state": "unanswered", "evidence": [SPAIN]},
            {"claim": "A ghost", "state": "unsolved", "evidence": ["C0SUPPORTES/9.9"]},
        ],
    ),
)


def with_parent(*answers: Answer) -> Responder:
    """A parent with these answers, turn by turn, and children that find one open question."""
    parent = turns(*answers)
    return lambda body: CHILD(body) if is_child(body) else parent(body)


def test_truncated_subagent_is_listed_as_a_gap(ask: Ask) -> None:
    def responder(body: Json) -> Answer:
        if not is_child(body):
            return say("It was not read to the end.") if turn(body) else Answer([brief()])
        cut = Answer([use("read_channel_history", channel=SPAIN.partition("/")[0])], "max_tokens")
        return CHILD(body) if turn(body) == 0 else cut

    done, _ = ask(responder)
    (subagent,) = done.json["subagents"]
    assert (subagent["status"], subagent["stopped_by"]) == ("partial", "tokens")
    assert gap_lines(done.json) == ["s1: its output was cut off"]
    assert done.code == 1


def test_answer_without_subagents_says_all_sources_were_read_together(
    ask: Ask, shell: Shell
) -> None:
    configure("limits: {max_subagents: 0}")
    search = Answer([use("search_messages", query="quiet")])
    done, recorded = ask(lambda body: say("It is quiet.") if turn(body) else search)
    assert done.json["degraded"]
    assert gap_lines(done.json) == []
    assert "All sources were read together" in shell("show", done.json["run_id"]).out
    offered = {t["name"] for t in recorded[0]["tools"]}
    assert offered >= {"list_channels", "read_thread", "lookup_user", "read_channel_history"}
    assert not offered & {"run_subagent", "run_subagents", "post_message", "submit_result"}


def test_brief_without_handles_gets_the_source_named_in_the_request(ask: Ask) -> None:
    simple = use("run_subagent", task="Say what is open.\nBe brief.", scope="slack")
    done, recorded = ask(with_parent(Answer([simple]), say("One is open [F1.1].")))
    assert done.json["status"] == "complete"
    child = next(filter(is_child, recorded))
    assert line(child, "MAY READ") == "C0SUPPORTES (#support-es)"
    assert "Say what is open. Be brief." in done.err
    (result,) = results(parents(recorded)[-1])
    note = "The brief named no source; it was given C0SUPPORTES (#support-es)."
    assert note in result["content"]


# ---- when


def test_subagent_reads_the_window_of_its_brief_and_the_answer_lists_it(ask: Ask) -> None:
    march = brief(since="2025-03-10", until="2025-03-10")
    done, recorded = ask(with_parent(Answer([march]), say("One is open [F1.1].")))
    child = next(filter(is_child, recorded))
    assert line(child, "WINDOW") == "2025-03-10 00:00 to 2025-03-11 00:00 (UTC)"
    assert line(recorded[0], "NOW") == "Saturday, 2025-03-15 00:00 (UTC)"
    assert done.json["windows"] == [
        {"oldest": "2025-03-10T09:00:00.000100Z", "latest": "2025-03-11T00:00:00Z"}
    ]
    assert done.json["zone"] == "UTC"


# ---- over several sources: a scripted parent, and subagents with the offline rules


def test_answer_combines_findings_of_slack_mail_and_data(
    shell: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    question = (
        "Which questions in #csm-spain are still unanswered, what do my mails say about the "
        "double charge, and how many refunds are there?"
    )
    mails = "What do my mails say about the double charge?"
    responder = delegating_model(
        ("Which questions are still unanswered?", "slack", "#csm-spain"),
        (mails, "email", "mail:search"),
        ("How many refunds are there?", "data", "data:sales"),
        readers={mails: finding_model("search_mail", query="double charge")},
    )
    with model_at(monkeypatch, responder) as server:
        done = shell("ask", question, "--sample", "--as-of", "2026-03-16", "--json")
    document = done.json
    assert in_one_turn(server) == ["run_subagent"] * 3
    assert [s["scope"] for s in document["subagents"]] == ["slack", "email", "data"]
    cited = {id for statement in document["statements"] for id in statement["findings"]}
    assert {id.partition(".")[0] for id in cited} == {"F1", "F2", "F3"}
    found = {s["scope"]: s["findings"][0] for s in document["subagents"]}
    assert found["slack"]["links"][0].startswith("https://almadora.slack.com/archives/C0CSMSPAIN/")
    assert "mail.google.com" in found["email"]["links"][0]
    assert found["data"]["claim"].startswith("n_refunds: ")
    audit = shell("audit", document["run_id"])
    assert audit.code == 0
    assert "0 leaks" in audit.out


def test_missing_folder_is_listed_as_a_gap_and_the_rest_is_answered(shell: Shell) -> None:
    Path("assistant.yaml").write_text("files: {projects: {gone: {path: /no/where}}}", "utf-8")
    database = Path("shop.csv")
    database.write_text("city\nLisbon\n", "utf-8")
    source = ("--database", database, "--model", "offline", "--json")
    done = shell("ask", "SELECT city FROM shop", *source)
    warning = "files.projects.gone.path: There is no folder /no/where."
    assert done.code == 1
    assert "Lisbon" in done.json["answer"]
    assert warning in gap_lines(done.json)
    assert f"warning: {warning}" in done.err
    scopes = shell("scopes")
    assert scopes.code == 0
    assert f"not offered: files:gone. {warning}" in scopes.out


# ---- findings of finished subagents are handles for further ones


def waves(scope: str, handle: str, reads: Responder) -> Responder:
    """A parent with two waves: the second one gets a finding of the first, and reads."""
    second = use("run_subagent", task="Read on", scope=scope, handles=[handle])
    parent = turns(Answer([brief()]), Answer([second]), say("It is all told [F1.1]."))

    def responder(body: Json) -> Answer:
        if not is_child(body):
            return parent(body)
        return CHILD(body) if "C0SUPPORTES (" in line(body, "MAY READ") else reads(body)

    return responder


@pytest.mark.parametrize("handle", ["F1.1", "[F1.1]", SPAIN])
def test_finding_used_as_a_handle_gives_access_to_its_thread_only(ask: Ask, handle: str) -> None:
    contents: list[str] = []

    def reads(body: Json) -> Answer:
        contents[:] = [str(each["content"]) for each in results(body)]
        if turn(body) == 0:
            return call("search_messages", query="tarjeta", channel="#support-es")
        if turn(body) == 1:
            return call("read_thread", thread=SPAIN)
        return submission("Read.", findings=[{"claim": "Read on", "evidence": [SPAIN]}])

    done, _ = ask(waves("slack", handle, reads))
    assert done.json["subagents"][0]["findings"][0]["sources"] == [SPAIN]
    assert [f["claim"] for f in done.json["subagents"][1]["findings"]] == ["Read on"]
    denied, thread = contents
    assert "No channel" in denied
    assert SPAIN in thread


@pytest.mark.parametrize(
    ("scope", "handle", "why"),
    [
        ("slack", "F7.1", "No source F7.1."),
        ("web", "F1.1", "F1.1 rests on nothing that a subagent of the scope web can read"),
        ("slack", "C0SUPPORTEN", "No source C0SUPPORTEN."),
    ],
)
def test_handle_not_backed_by_a_finding_is_refused_with_a_reason(
    ask: Ask, scope: str, handle: str, why: str
) -> None:
    done, recorded = ask(waves(scope, handle, turns(submission("never"))))
    assert why in str(results(parents(recorded)[-1])[-1]["content"])
    assert [each["status"] for each in done.json["subagents"][1:]] == ["refused"]
