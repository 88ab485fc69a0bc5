"""A triage from a file of mails to its digest: nothing is lost or paid twice."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Done, Shell, configure, model_at, refusal_text, small_export
from document_kit import gap_lines
from engine_kit import call, is_child, say
from fork_server import forked_command
from mail_kit import ME, judging_model, letters, mail, mbox, verdict
from standins.model import Responder
from test_commands import wait_for_requests

from bot.local.model.answer import Answer

Json = dict[str, Any]

OFFLINE = ("triage", "--model", "offline", "--json")
Triage = Callable[..., tuple[Done, list[Json]]]
SENDER = "Customer 1 <c1@shop.example>"
NEWS = "News <no-reply@news.example>"


@pytest.fixture
def triage(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Triage:
    """Triage mails with a model; return the result and the requests to the model."""

    def run(
        mails: Sequence[bytes], *more: object, model: Responder = judging_model
    ) -> tuple[Done, list[Json]]:
        file = mbox(tmp_path / "m.mbox", *mails)
        with model_at(monkeypatch, model) as server:
            result = shell("triage", "--mbox", file, "--me", ME, *more, "--json")
        return result, server.recorded

    return run


def threads(document: Json) -> list[str]:
    """Return the ids of all threads in a document."""
    return [
        each["thread_id"] for k in ("verdicts", "filtered", "unreadable") for each in document[k]
    ]


def test_digest_is_forgotten_with_the_sender_of_a_filtered_mail(
    triage: Triage, shell: Shell
) -> None:
    result, _ = triage(
        [*letters(1), mail(10, "Our news.", NEWS, List_Unsubscribe="<mailto:u@n.x>")]
    )
    assert "no-reply@news.example" in str(result.json["filtered"])
    assert shell("forget", "--user", "no-reply@news.example", "--json").json["runs"] == 1
    assert "news.example" not in shell("show", result.json["run_id"], "--json").out


def test_each_thread_gets_a_verdict_or_is_filtered(triage: Triage) -> None:
    news = mail(10, "Our news of March.", NEWS, List_Unsubscribe="<mailto:u@news.example>")
    result, recorded = triage([*letters(3), news, mail(11, "Any news of it?", reply_to="1")])
    document = result.json
    assert result.code == 0, result.err
    assert (document["status"], document["mailbox"]) == ("complete", ME)
    assert len(document["verdicts"]) == 3
    assert [each["sender"] for each in document["filtered"]] == [NEWS]
    assert document["unreadable"] == []
    assert len(set(threads(document))) == 4
    first = next(v for v in document["verdicts"] if v["messages"] == 2)
    assert (first["category"], first["asked_of_me"]) == ("customer", True)
    assert first["key_facts"] == ["order 1001 is late"]
    assert first["evidence"][0].startswith(f"{first['thread_id']}/")
    assert first["link"].startswith("https://mail.google.com/")
    assert len(recorded) == 4, "one model call a thread, and one for the digest"
    assert "News" not in json.dumps([r["messages"] for r in recorded]), "no model saw it"


def test_limit_selects_the_newest_threads_and_ignores_filtered_ones(triage: Triage) -> None:
    news = [mail(90 + n, "News.", NEWS, Auto_Submitted="auto-generated") for n in range(20)]
    result, _ = triage([*letters(30), *news], "--limit", 5)
    subjects = {v["subject"] for v in result.json["verdicts"]}
    assert subjects == {f"Order {n}" for n in range(1026, 1031)}
    assert len(result.json["filtered"]) == 20
    assert result.code == 0  # threads over the limit are no failure
    assert gap_lines(result.json) == ["25 older threads left out by the limit of 5"]


def test_damaged_mail_in_an_mbox_is_reported_and_makes_the_triage_partial(
    shell: Shell, tmp_path: Path
) -> None:
    file = mbox(tmp_path / "m.mbox", *letters(2))
    with file.open("ab") as stream:
        stream.write(b"\nFrom nobody Mon Mar 10 09:00:00 2025\n\nNo headers.\n")
    result = shell(*OFFLINE, "--mbox", file, "--me", ME, "--json")
    assert (result.json["status"], result.code) == ("partial", 1)
    (missing,) = gap_lines(result.json)
    assert "has no headers" in missing


ENCRYPTED = b"""\
From: Kim <kim@client.example>
To: helena@acme.example
Subject: Offer
Date: Mon, 02 Mar 2026 09:30:00 +0000
Content-Type: application/pkcs7-mime; smime-type=enveloped-data

MIAGCSqGSIb3
"""


def test_unreadable_mails_are_named_with_the_reason(triage: Triage, shell: Shell) -> None:
    reply = ENCRYPTED.replace(b"\nSubject: Offer", b"\nIn-Reply-To: <m1@shop.example>\nSubject: Re")
    result, (request, _) = triage([*letters(1), reply, ENCRYPTED])
    document = result.json
    assert (document["status"], result.code) == ("partial", 1)
    (lost,), (judged,) = document["unreadable"], document["verdicts"]
    reason = "encrypted (S/MIME): open it in your mail program"
    assert (lost["subject"], lost["reason"]) == ("Offer", reason)
    assert judged["not_read"] == [f"{reason} (Kim <kim@client.example>, 2026-03-02)"]
    assert f"Order 1001: not read: {judged['not_read'][0]}" in gap_lines(document)
    assert "could not be read: encrypted (S/MIME); it may ask" in json.dumps(request["messages"])
    assert shell("audit", document["run_id"]).code == 0
    shown = " ".join(shell("show", document["run_id"]).out.split())
    assert f"⚠ not read: {reason}"[:50] in shown
    assert triage([ENCRYPTED])[1] == [], "no digest is written about nothing"


def test_archived_mail_of_a_file_is_judged(triage: Triage) -> None:
    result, _ = triage([mail(1, "When will it arrive?", X_Gmail_Labels="Archived")])
    assert len(result.json["verdicts"]) == 1


def test_failed_subagent_affects_only_its_own_thread(triage: Triage) -> None:
    def model(body: Json) -> Answer:
        if is_child(body) and "order 1002" in str(body["messages"]):
            return call("submit_result", category="customer", nonsense=True)
        return judging_model(body)

    result, _ = triage(letters(3), model=model)

    document = result.json
    assert (result.code, document["status"]) == (1, "partial")
    assert len(document["verdicts"]) == 2
    (lost,) = document["unreadable"]
    assert lost["subject"] == "Order 1002"
    assert lost["reason"] == "the language model's answer could not be used"
    assert len(set(threads(document))) == 3


def test_facts_with_figures_or_addresses_not_in_the_mail_are_dropped_and_counted(
    triage: Triage,
) -> None:
    def model(body: Json) -> Answer:
        facts = ["Order 1001 is late", "They claim 4,500 EUR", "Write to boss@evil.example"]
        if is_child(body):
            return verdict(body, key_facts=facts, category="lottery")
        return judging_model(body)

    result, _ = triage(letters(1), model=model)
    (only,) = result.json["verdicts"]
    assert only["key_facts"] == ["Order 1001 is late"]
    assert only["category"] == "other"
    assert result.json["unsupported"] == 2


def test_verdict_without_valid_evidence_is_returned_to_the_model_once(triage: Triage) -> None:
    def model(body: Json) -> Answer:
        if is_child(body) and len(body["messages"]) == 1:
            return verdict(body, evidence=["F0/1"])
        return judging_model(body)

    result, recorded = triage(letters(1), model=model)
    assert result.json["verdicts"][0]["evidence"]
    assert len(recorded) == 3


def test_long_mail_thread_is_read_in_pages(triage: Triage) -> None:
    configure("limits: {max_material_tokens: 300, max_tool_output_tokens: 600}\n")
    long = [mail(1, "Where is order 1001?\n")] + [
        mail(n, f"Reminder {n}: {'still nothing, ' * 30}\n", reply_to="1") for n in range(2, 9)
    ]

    def model(body: Json) -> Answer:
        if not is_child(body):
            return say("Look at it. [F1.1]")
        if len(body["messages"]) == 1:
            return call("read_mail_thread", thread=thread_of(body))
        last = str(body["messages"][-1])
        if "More: call again" in last:
            cursor = last.rpartition('cursor="')[2].partition('"')[0]
            return call("read_mail_thread", thread=thread_of(body), cursor=cursor)
        return verdict(body, evidence=[f"{thread_of(body)}/{thread_of(body)}"])

    result, _ = triage(long, model=model)
    (only,) = result.json["verdicts"]
    (child,) = result.json["subagents"]
    assert child["coverage"]["complete"], child["coverage"]
    assert child["coverage"]["messages_read"] == only["messages"] == 8
    assert child["coverage"]["pages"] > 1


LONG = "Where is order 1001? " * 9_000


@pytest.mark.parametrize(
    ("texts", "read"),
    [((LONG,), "0 of 1"), ((LONG, "And now?"), "0 of 2"), (("Hello.", LONG), "1 of 2")],
    ids=["long", "long, short", "short, long"],
)
def test_unread_messages_are_counted_and_not_their_pages(
    triage: Triage, texts: tuple[str, ...], read: str
) -> None:
    """A message of which a part was not read is not read."""

    def model(body: Json) -> Answer:
        if is_child(body) and len(body["messages"]) == 1:
            return call("read_mail_thread", thread=thread_of(body))
        return verdict(body, evidence=[]) if is_child(body) else say("NONE")

    mails = [mail(n, text, reply_to="1" * (n - 1)) for n, text in enumerate(texts, 1)]
    (line,) = gap_lines(triage(mails, model=model)[0].json)
    assert line == f"Order 1001: read {read} messages"


def thread_of(body: Json) -> str:
    """Return the id of the thread that a subagent may read."""
    text = str(body["messages"][0])
    return text.partition("MAY READ: ")[2].partition(" ")[0]


def test_audit_finds_no_mail_text_in_other_contexts(triage: Triage, shell: Shell) -> None:
    result, _ = triage(letters(12))
    audit = shell("audit", result.json["run_id"])
    assert audit.code == 0
    assert "13 contexts" in audit.out
    assert " 0 leaks" in audit.out


def test_messages_after_as_of_are_ignored(triage: Triage) -> None:
    result, _ = triage(letters(5), "--as-of", "2026-03-02T09:03:30")
    assert {v["subject"] for v in result.json["verdicts"]} == {
        f"Order {n}" for n in (1001, 1002, 1003)
    }


# ---- a crash


@pytest.mark.system
def test_resumed_triage_repeats_no_stored_work_after_a_kill(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = mbox(tmp_path / "m.mbox", *letters(20))
    configure("limits: {max_concurrency: 4}\n")
    with model_at(monkeypatch, judging_model, latency_s=0.15) as model:
        with forked_command("triage", "--mbox", str(file), "--me", ME, "--json"):
            wait_for_requests(model, 9)
        (run,) = shell("runs", "--json").json
        assert run["status"] == "running"
        stored = shell("show", run["id"], "--json").json["subagents"]
        paid = sum(each["status"] == "complete" for each in stored)
        assert 0 < paid < 20
        requests = model.requests
        result = shell("triage", "--resume", run["id"], "--json")
    assert result.code == 0, result.err
    document = result.json
    assert (document["run_id"], document["status"]) == (run["id"], "complete")
    assert len(document["verdicts"]) == len(set(threads(document))) == 20
    assert model.requests - requests <= 20 - paid + 1
    assert model.requests <= 20 + 1 + 4, "only calls under way are repeated"
    audit = shell("audit", run["id"])
    assert audit.code == 0, audit.out
    again = shell("triage", "--resume", run["id"], "--json")
    assert "complete" in refusal_text(again, "complete")


def test_a_draft_does_not_answer_a_mail(triage: Triage, shell: Shell, tmp_path: Path) -> None:
    draft = mail(9, "On Friday.", ME, "1", "c1@shop.example", X_Gmail_Labels="Drafts")
    mails = mail(1, "When will it arrive?"), draft
    offline = shell(*OFFLINE, "--mbox", mbox(tmp_path / "m.mbox", *mails), "--me", ME).json
    judged, recorded = triage(mails)
    assert "On Friday. {a draft, not sent; to c1@shop.example}" in str(recorded[0])
    for (each,) in (offline["verdicts"], judged.json["verdicts"]):
        assert each["asked_of_me"]
        assert (each["sender"], each["at"]) == (SENDER, "2026-03-02T09:01:00Z")
        assert each["link"].endswith(each["thread_id"]), "the mail, not the draft"


def test_offline_model_takes_nobody_else_for_the_reader(shell: Shell, tmp_path: Path) -> None:
    mails = mail(1, "Can you pay?", f'"{ME}" <a@evil.example>'), mail(2, "Can you?", f"x{ME}")
    document = shell(*OFFLINE, "--mbox", mbox(tmp_path / "m.mbox", *mails), "--me", ME).json
    assert [each["asked_of_me"] for each in document["verdicts"]] == [True, True]


def test_mailbox_owner_of_a_file_is_shown_and_can_be_set(shell: Shell, tmp_path: Path) -> None:
    file = mbox(tmp_path / "m.mbox", *letters(2))
    guessed = shell(*OFFLINE, "--mbox", file)
    assert guessed.json["mailbox"] == ME
    assert f"Read as the mailbox of {ME}" in guessed.err
    assert "--reader" in guessed.err
    chosen = shell(*OFFLINE, "--mbox", file, "--reader", "c1@shop.example")
    assert chosen.json["mailbox"] == "c1@shop.example"
    assert "Read as the mailbox" not in chosen.err


# ---- invalid commands


def test_invalid_triage_sources_are_rejected_with_a_reason(shell: Shell, tmp_path: Path) -> None:
    nothing = tmp_path / "nothing.mbox"
    nothing.write_bytes(b"")
    assert "empty" in refusal_text(shell(*OFFLINE, "--mbox", nothing), "bad_mbox")
    missing = shell(*OFFLINE, "--mbox", tmp_path / "missing.mbox")
    assert "missing.mbox" in refusal_text(missing, "bad_mbox")
    both = shell(*OFFLINE, "--mbox", nothing, "--sample")
    assert "--sample or --mbox" in refusal_text(both, "two_sources")
    owner = shell(*OFFLINE, "--sample", "--me", "bo@acme.example")
    assert "--mbox" in refusal_text(owner, "me_of_what")
    assert "assistant connect google" in refusal_text(shell(*OFFLINE), "no_mailbox")
    assert "assistant runs" in refusal_text(shell(*OFFLINE, "--resume", "nope"), "unknown_run")
    more = shell("triage", "--resume", "r1", "--limit", "3", "--json")
    assert "--limit" in refusal_text(more, "resume_alone")
    sweep = shell.sweep(small_export(tmp_path))
    other = shell(*OFFLINE, "--resume", sweep["run_id"])
    assert "is no triage" in refusal_text(other, "no_triage")


def test_a_thread_of_a_stored_digest_is_shown_in_full(shell: Shell) -> None:
    digest = shell(*OFFLINE, "--sample", "--limit", "3").json
    run = digest["run_id"]
    shown = shell("show", run, "--thread", "1")
    assert shown.code == 0
    whole = " ".join(shown.out.replace("\n>", "\n").split())  # a draft is quoted
    (entry,) = (v for v in digest["verdicts"] if v["link"] in shown.out)
    for text in (*entry["key_facts"], entry["draft_reply"] or ""):
        assert " ".join(text.split()) in whole
    assert "no thread 9" in refusal_text(shell("show", run, "--thread", "9"), "no_thread")
    assert shell("show", run, "--thread", "0").code == 2
    refusal_text(shell("show", run, "--thread", "1", "--json"), "which_form")
