"""A generated mailbox behind Gmail, and a scripted model that judges it."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime
from itertools import islice
from typing import Any

from engine_kit import is_child, opening, say
from mail_kit import items_in, verdict
from standins.google import LocalGoogle
from starlette.types import ASGIApp

from bot.local.google.mbox import Entry, Mailbox, mailbox_of
from bot.local.model.answer import Answer

ME = "helena@acme.example"
MAIL_TOKENS = 1_000
"""Tokens of one mail of a long thread; a token is three bytes, as in the product's estimate."""
_FINDING = re.compile(r"\[(F\d+\.\d+)\]")
_WORDS = """
parcel pallet invoice depot carrier customs label driver warehouse delivery address reference
contract discount schedule meeting report figure harbour branch supplier quantity sample colour
screen printer battery cable handle corner shelf garden window kitchen morning evening quarter
""".split()
_VERBS = "moved checked counted sent booked changed kept found lost weighed sorted repaired".split()


# ---- mails


def written_mailbox(threads: int, tokens: int) -> Mailbox:
    """Return threads of about so many tokens each, of the last hours, without equal sentences."""
    now = datetime.now(UTC).replace(microsecond=0)
    entries = []
    for number in range(1, threads + 1):
        mails = max(1, round(tokens / MAIL_TOKENS))
        for step in range(mails):
            at = now - timedelta(minutes=2 * number, seconds=mails - step)
            raw = _mail(number, step, tokens // mails, at)
            entries.append(Entry(raw))
    return mailbox_of(entries, ME)


def _mail(thread: int, step: int, tokens: int, at: datetime) -> bytes:
    mail = EmailMessage(policy=SMTP)
    mail["From"] = f"Customer {thread} <c{thread}@shop{thread}.example>"
    mail["To"] = f"Helena Vasconcelos <{ME}>"
    mail["Subject"] = f"{'Re: ' if step else ''}Order {1000 + thread}"
    mail["Date"] = format_datetime(at)
    mail["Message-ID"] = f"<m{thread}.{step}@shop{thread}.example>"
    if step:
        before = [f"<m{thread}.{k}@shop{thread}.example>" for k in range(step)]
        mail["In-Reply-To"], mail["References"] = before[-1], " ".join(before)
    mail.set_content(_text(thread, step, tokens))
    return mail.as_bytes()


def _text(thread: int, step: int, tokens: int) -> str:
    """Return a question, then sentences until it is long enough."""
    head = f"Hello Helena, when will order {1000 + thread} arrive? It was due on Monday."
    sentences, size = [head], len(head)
    for sentence in islice(_sentences(thread * 1_000 + step * 100), tokens):
        if size >= 3 * tokens:
            break
        sentences.append(sentence)
        size += len(sentence) + 1
    return "\n".join(sentences) + "\n"


def _sentences(seed: int) -> Iterator[str]:
    """Yield sentences: the same for the same seed."""
    chance = random.Random(seed)
    while True:
        a, b, c, d = chance.choices(_WORDS, k=4)
        number = f" in {chance.randint(1_000, 9_999)}" if chance.random() < 0.2 else ""
        yield f"We {chance.choice(_VERBS)} the {a} {b} near the {c} of the {d}{number}."


# ---- the scripted model


def responder(body: dict[str, Any]) -> Answer:
    """Return a verdict as long as a model's, or three lines and two topics of a digest."""
    if is_child(body):
        return verdict(body, **VERDICT, evidence=items_in(body)[-2:])
    cited = list(dict.fromkeys(_FINDING.findall(opening(body))))
    few = enumerate(cited[:3], 1)
    lines = [f"- Tell customer {k} today when their order arrives. [{c}]" for k, c in few]
    same = [f"SAME: parcels that were due on Monday {''.join(f'[{c}]' for c in cited[3:9])}"]
    return say("\n".join(lines + same))


VERDICT = {
    "priority": "high",
    "key_facts": [
        "Asks when the order will arrive",
        "It was due on Monday and has not come",
        "They have looked in the depot, with the carrier and at the branch",
    ],
    "proposed_action": "Ask the carrier where the order is and tell the customer today.",
    "draft_reply": (
        "Hello,\n\nthank you for your mail. I am sorry that your order has not arrived on "
        "Monday as it should have. I am asking the carrier where it is just now and will tell "
        "you [when it arrives] as soon as I know. If you need it sooner, tell me, and we will "
        "look for another way.\n\nKind regards\nHelena"
    ),
}


def gmail(threads: str, tokens: str, latency_s: str) -> ASGIApp:
    google = LocalGoogle(written_mailbox(int(threads), int(tokens)), latency_s=float(latency_s))
    for held in google.gmail.messages.values():
        held.root  # noqa: B018  # parsed now: a real Gmail has read its mails long ago
    return google.app
