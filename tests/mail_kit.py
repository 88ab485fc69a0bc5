"""Mailboxes for tests, and scripted models that triage them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.utils import format_datetime
from pathlib import Path
from typing import Any

from engine_kit import call, is_child, opening, results, say, turn, use

from bot.local.model.answer import Answer

Json = dict[str, Any]

ME = "helena@acme.example"
START = datetime(2026, 3, 2, 9, 0, tzinfo=UTC)
ITEM = re.compile(r"^\s*\[([0-9a-f]{16}/[0-9a-f]{16})\]", re.MULTILINE)
FINDING = re.compile(r"\[(F\d+\.\d+)\]")


def mail(
    number: int,
    text: str = "Hello.",
    sender: str = "",
    reply_to: str = "",
    to: str = ME,
    files: Mapping[str, bytes] | None = None,
    **headers: str,
) -> bytes:
    """Return a mail of the given minute; `reply_to` is the number of the mail that it answers.

    All `files` are attached as if they were PDFs.
    """
    message = EmailMessage()
    message["From"] = sender or f"Customer {number} <c{number}@shop.example>"
    message["To"] = to
    message["Subject"] = headers.pop("subject", f"Order {1000 + number}")
    message["Date"] = format_datetime(START + timedelta(minutes=number))
    message["Message-ID"] = f"<m{number}@shop.example>"
    if reply_to:
        message["In-Reply-To"] = message["References"] = f"<m{reply_to}@shop.example>"
    for name, value in headers.items():
        message[name.replace("_", "-")] = value
    message.set_content(text)
    for name, content in (files or {}).items():
        message.add_attachment(content, maintype="application", subtype="pdf", filename=name)
    return message.as_bytes()


def mbox(path: Path, *mails: bytes) -> Path:
    """Write a file with these mails."""
    head = b"From sender@shop.example Mon Mar  2 09:00:00 2026\n"
    bodies = [re.sub(rb"(?m)^(>*From )", rb">\1", each) for each in mails]
    path.write_bytes(b"\n".join(head + body for body in bodies) + b"\n")
    return path


def letters(count: int) -> list[bytes]:
    """Return `count` threads that each ask something, no two alike."""
    return [
        mail(n, f"Hello, when will order {1000 + n} arrive? The parcel of customer {n} is late.\n")
        for n in range(1, count + 1)
    ]


def items_in(body: Json) -> list[str]:
    """Return the ids of the mails in the opening of a subagent."""
    return ITEM.findall(opening(body))


def verdict(body: Json, **fields: Any) -> Answer:
    """Return a verdict whose one fact is that the order of the mail is late."""
    match = re.search(r"order (\d+)", opening(body))
    defaults = {
        "category": "customer",
        "priority": "medium",
        "asked_of_me": True,
        "key_facts": [f"order {match[1]} is late" if match else "a mail"],
        "proposed_action": "Tell when it arrives",
        "draft_reply": "It will arrive soon.",
        "evidence": items_in(body)[:1],
    }
    return call("submit_result", **{**defaults, **fields})


def triage_model(body: Json) -> Answer:
    """Triage the inbox as a parent that adds nothing to the digest."""
    if turn(body) == 0:
        return Answer([use("triage_inbox")])
    (result,) = results(body)
    return say(str(result["content"]) if result.get("is_error") else "NONE")


def judging_model(body: Json) -> Answer:
    """Judge each thread, and then cite the first two."""
    if is_child(body):
        return verdict(body)
    if "WRITE: digest lines" not in str(body["messages"]):
        return triage_model(body)
    cited = list(dict.fromkeys(FINDING.findall(str(body["messages"]))))
    return say(
        f"Answer the first. [{cited[0]}]\nSAME: late parcels {''.join(f'[{c}]' for c in cited[:2])}"
    )
