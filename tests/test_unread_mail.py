"""Mail that cannot be read, such as encrypted mail, is reported as unread, never as empty."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Shell, model_at
from document_kit import gap_lines
from engine_kit import is_child
from gmail_kit import id_of, stored_message
from mail_kit import ME, judging_model, mail, mbox
from test_email_scope import tools

Json = dict[str, Any]
ARMOR = "-----BEGIN PGP MESSAGE-----\n\nhQEMA0Z6\n=aXyZ\n-----END PGP MESSAGE-----"
HEAD = b"From: Kim <kim@client.example>\nTo: helena@acme.example\nSubject: Offer\n"
DATE = b"Date: Mon, 02 Mar 2026 09:30:00 +0000\n"
OPEN = "open it in your mail program"


def one(kind: str, body: str, *more: str) -> bytes:
    """Return a mail of one part."""
    lines = [f"Content-Type: {kind}", *more, "", body]
    return HEAD + DATE + "\n".join(lines).encode() + b"\n"


def several(kind: str, *parts: str) -> bytes:
    """Return a mail of these parts, each with its headers."""
    body = "".join(f"--b\n{part}\n" for part in parts)
    return one(f'{kind}; boundary="b"', f"{body}--b--")


TEXT = "Content-Type: text/plain\n\n"
P7M = 'application/pkcs7-mime; smime-type=enveloped-data; name="smime.p7m"'
BASE64 = "Content-Transfer-Encoding: base64"
TNEF = f'Content-Type: application/ms-tnef; name="winmail.dat"\n{BASE64}\n\neJ8+IgAA'
PGP = "Content-Type: application/pgp-encrypted\n\nVersion: 1"
UNREAD = {
    "S/MIME": (one(P7M, "MIAGCSqGSIb3", BASE64), f"encrypted (S/MIME): {OPEN}"),
    "S/MIME, an older name": (
        one("application/x-pkcs7-mime", "MIAGCSqG", BASE64),
        f"encrypted (S/MIME): {OPEN}",
    ),
    "S/MIME, signed": (
        one("application/pkcs7-mime; smime-type=signed-data", "MIAGCSqG", BASE64),
        f"signed and opaque (S/MIME): {OPEN}",
    ),
    "PGP/MIME": (
        several(
            'multipart/encrypted; protocol="application/pgp-encrypted"',
            PGP,
            f"Content-Type: application/octet-stream\n\n{ARMOR}",
        ),
        f"encrypted (PGP): {OPEN}",
    ),
    "PGP/MIME, repacked": (
        several("multipart/mixed", TEXT, PGP, f"Content-Type: application/octet-stream\n\n{ARMOR}"),
        f"encrypted (PGP): {OPEN}",
    ),
    "inline PGP": (one("text/plain", ARMOR), f"encrypted (PGP): {OPEN}"),
    "inline PGP in HTML": (
        one("text/html", f"<pre>{ARMOR}</pre>"),
        f"encrypted (PGP): {OPEN}",
    ),
    "TNEF": (several("multipart/mixed", TNEF), f"packed by Outlook (winmail.dat): {OPEN}"),
    "TNEF by its name": (
        several("multipart/mixed", TEXT, TNEF.replace("ms-tnef", "octet-stream")),
        f"packed by Outlook (winmail.dat): {OPEN}",
    ),
    "above 5 MB": (
        one("text/plain", "It is long. \n" * 420_000),
        f"too long: {OPEN}",
    ),
}


def run_triage(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, file: Path
) -> tuple[Json, list[Json]]:
    """Return the document of a triage and the requests of its subagents; check the exit code."""
    with model_at(monkeypatch, judging_model) as model:
        result = shell("triage", "--mbox", file, "--me", ME, "--json")
    document = result.json
    assert result.code == (document["status"] != "complete")
    assert bool(gap_lines(document)) == bool(result.code)
    return document, [body for body in model.recorded if is_child(body)]


@pytest.mark.parametrize("kind", UNREAD)
def test_unreadable_mail_is_listed_with_the_reason(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    raw, reason = UNREAD[kind]
    file = mbox(tmp_path / "m.mbox", raw)
    document, requests = run_triage(shell, monkeypatch, file)
    (lost,) = document["unreadable"]
    assert (lost["subject"], lost["reason"]) == ("Offer", reason)
    assert (document["verdicts"], requests, document["status"]) == ([], [], "failed")
    digest = shell("triage", "--mbox", file, "--me", ME, "--model", "offline").out
    assert reason[:40] in " ".join(digest.split())


def test_verdict_of_a_thread_names_its_unreadable_mail(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    raw, reason = UNREAD["S/MIME"]
    reply = raw.replace(b"Subject: Offer\n", b"Subject: Re: Offer\n")
    reply = reply.replace(b"\nDate:", b"\nIn-Reply-To: <m1@shop.example>\nDate:")
    first = mail(1, "When will order 1001 arrive?", subject="Offer")
    file = mbox(tmp_path / "m.mbox", first, reply)
    document, (request,) = run_triage(shell, monkeypatch, file)
    (verdict,) = document["verdicts"]
    assert verdict["messages"] == 2
    assert verdict["not_read"] == [f"{reason} (Kim <kim@client.example>, 2026-03-02)"]
    assert document["status"] == "partial"
    (gap,) = gap_lines(document)
    assert gap == f"Offer: not read: {verdict['not_read'][0]}"
    cause = reason.partition(": ")[0]
    assert f"could not be read: {cause}; it may" in json.dumps(request["messages"])
    audit = shell("audit", document["run_id"])
    assert audit.code == 0, audit.out
    assert "may ask for something" in json.dumps(request["messages"])
    digest = shell("triage", "--mbox", file, "--me", ME, "--model", "offline").out
    assert f"⚠ not read: {reason}"[:60] in " ".join(digest.split())


async def test_mail_tools_mark_unreadable_mail_with_the_reason() -> None:
    raw, reason = UNREAD["S/MIME"]
    async with tools(stored_message(1, raw)) as call:
        for name, arguments in (("search_mail", {}), ("read_mail_thread", {"thread": id_of(1)})):
            (item,) = (await call(name, **arguments)).items
            assert f"could not be read: {reason.partition(': ')[0]}; " in item.line()
