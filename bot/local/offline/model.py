"""The offline model: it reads one Messages API request and answers by a few fixed rules.

It is not a language model and says so in everything it writes. It knows nothing but the request,
and what readers wrote about the sample data: no files, no clock, no chance.
"""

from __future__ import annotations

import re
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import OFFLINE, Conversation, read_conversation, use
from bot.local.offline.data import as_data
from bot.local.offline.mail import as_triage, digest_lines, is_digest
from bot.local.offline.parent import BEYOND, NOTE, as_parent
from bot.local.offline.recordings import recorded
from bot.local.offline.threads import as_reader, handles_in

_BEYOND_RULES = {
    "review": ("points", "review"),
    "verdicts": ("verdicts", "review"),
    "tracker": ("rows", "read a tracker"),
}
"""Contract -> the list that stays empty in its result, and what fixed rules cannot do."""


def answer(request: dict[str, Any]) -> Answer:
    """Return what the offline model says to one Messages API request."""
    talk = read_conversation(request)
    if replayed := recorded(talk):
        return replayed
    if "submit_result" in talk.tools:
        return _as_subagent(talk)
    if is_digest(talk):
        return Answer([{"type": "text", "text": digest_lines(talk)}])
    return as_parent(talk)


def _as_subagent(talk: Conversation) -> Answer:
    contract, handles = talk.section("CONTRACT"), talk.section("MAY READ")
    if contract == "triage":
        return as_triage(talk)
    if contract in _BEYOND_RULES:
        empty, what = _BEYOND_RULES[contract]
        why = (
            f"The offline stand-in has fixed rules and cannot {what}: that needs a language model."
        )
        return Answer([use("submit_result", **{empty: []}, not_covered=[], needs=why)])
    if handles_in(handles):
        return as_reader(talk)
    if re.search(r"\bdata:", handles):
        return as_data(talk)
    if re.search(r"\bnotes:", handles):
        return _as_notes(talk)
    return as_reader(talk)


def _as_notes(talk: Conversation) -> Answer:
    """Keep the note that a task dictates, word for word."""
    note = NOTE.match(talk.section("TASK"))
    if note and not talk.exchanges and not talk.must_end:
        title = " ".join(note["text"].split()[:8]).rstrip(" :,.")
        return Answer([use("save_note", title=title, text=note["text"].strip())])
    kept = [" ".join(each.text.split()) for each in talk.exchanges if not each.is_error]
    failed = [each.text[:300] for each in talk.exchanges if each.is_error]
    told = {
        "text": f"{kept[-1] if kept else BEYOND} {OFFLINE}",
        "findings": [],
        "not_covered": failed,
        "needs": "" if kept or failed else "a note to keep",
    }
    return Answer([use("submit_result", **told)])
