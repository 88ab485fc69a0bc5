"""What a finished subagent found is handed to further subagents by the ids of its findings."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from bot_kit import AS_OF, Done, Json, Shell, model_at, small_export, ts
from engine_kit import call, is_child, line, results, say, submitted, turn, turns, use
from mail_kit import ME, mail, mbox

from bot.local.model.answer import Answer
from bot.local.model.server import Mind

SPAIN = f"C0SUPPORTES/{ts('10 09:00')}"
MAILS = 200
CONTRACTS = range(3, MAILS, 5)
"""Numbers of the mails that hold a contract: 40."""
THREAD = re.compile(r"^\s*\[([0-9a-f]{16})/[0-9a-f]{16}\]", re.MULTILINE)
READ_EACH = {"task": "Tell when {item} ends", "scope": "email"}


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def waves(first: Answer, second: Answer, *, finds: Mind, reads: Mind) -> Mind:
    """A parent with two waves; children that were given a store find, the others read."""
    parent = turns(first, second, say("It is all told [F1.1]."))

    def mind(body: Json) -> Answer:
        if not is_child(body):
            return parent(body)
        stores = ("mail:search", "slack:channels", "C0SUPPORTES (", "web:search")
        wide = any(store in line(body, "MAY READ") for store in stores)
        return finds(body) if wide else reads(body)

    return mind


def one(scope: str, handles: list[str], task: str = "Find them") -> Json:
    return use("run_subagent", task=task, scope=scope, handles=handles)


def refused(body: Json) -> str:
    return str(results(body)[-1]["content"])


# ---- two hundred mails


def letters() -> list[bytes]:
    return [
        mail(
            n,
            f"The contract {n} ends on {1 + n % 28} June 2026.\n"
            if n in CONTRACTS
            else f"Where is the parcel of order {n}?\n",
            subject=f"Contract {n}" if n in CONTRACTS else f"Order {n}",
        )
        for n in range(MAILS)
    ]


def searches(body: Json) -> Answer:
    """A subagent that turns the pages of a search, and tells one finding for each thread."""
    found = [str(each["content"]) for each in results(body)]
    if turn(body) == 0:
        return call("search_mail", query="subject:contract")
    if more := re.search(r'cursor="(\d+)"', found[-1]):
        return call("search_mail", query="subject:contract", cursor=more[1])
    ids = dict.fromkeys(re.findall(r"\[([0-9a-f]{16}/[0-9a-f]{16})\]", "\n".join(found)))
    findings = [{"claim": f"Contract {n}", "evidence": [id]} for n, id in enumerate(ids)]
    return submitted(f"{len(ids)} contracts.", findings=findings)


def reads_one(body: Json) -> Answer:
    (thread,) = line(body, "MAY READ").split("; ")
    if turn(body) == 0:
        return call("read_mail_thread", thread=thread)
    (item,) = re.findall(r"\[([0-9a-f]{16}/[0-9a-f]{16})\]", str(results(body)[-1]["content"]))
    said = re.search(r"ends on (\d+ June 2026)", str(results(body)[-1]["content"]))
    assert said
    found = {"claim": f"It ends on {said[1]}", "evidence": [item], "quotes": [said[0]]}
    return submitted("Read.", findings=[found])


def test_contracts_are_found_in_200_mails_and_each_is_read_by_a_subagent_of_its_own(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = [f"F1.{n}" for n in range(1, len(CONTRACTS) + 1)]
    mind = waves(
        Answer([one("email", ["mail:search"])]),
        Answer([use("run_subagents", items=ids, template=READ_EACH)]),
        finds=searches,
        reads=reads_one,
    )
    box = mbox(tmp_path / "in.mbox", *letters())
    with model_at(monkeypatch, mind) as server:
        done = shell(
            *(
                "ask",
                "Search my mail for contracts of this year, then read each: when does it end?",
            ),
            *("--mbox", box, "--as-of", "2026-04-01", "--me", ME, "--json"),
        )
    assert done.json["status"] == "complete", done.json["coverage"]
    finder, *readers = done.json["subagents"]
    assert len(finder["findings"]) == len(readers) == len(CONTRACTS)
    quoted = {f["quotes"][0] for r in readers for f in r["findings"]}
    assert quoted == {f"ends on {1 + n % 28} June 2026" for n in CONTRACTS}
    given = [line(body, "MAY READ") for body in server.recorded if is_child(body)]
    assert len({each for each in given if each != "mail:search"}) == len(CONTRACTS)
    audited = shell("audit", done.json["run_id"])
    assert audited.code == 0
    assert audited.out.rstrip().endswith("0 leaks")


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
            return call("read_channel_history", channel="#support-es")
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
    shell: Shell,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    scope: str,
    handle: str,
    why: str,
) -> None:
    done, parents = asked(
        shell, monkeypatch, tmp_path, one(scope, [handle]), turns(submitted("never"))
    )
    assert why in refused(parents[-1])
    assert [each["status"] for each in done.json["subagents"][1:]] == ["refused"]
