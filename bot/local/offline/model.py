"""The offline model: it reads one Messages API request and answers by a few fixed rules.

It is not a language model and says so in everything it writes. It knows nothing but the request,
and what readers wrote about the sample data: no files, no clock, no chance.
"""

from __future__ import annotations

import re
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import Conversation, items_of, read_conversation, use
from bot.local.offline.data import as_data
from bot.local.offline.mail import as_triage, digest_lines, is_digest
from bot.local.offline.parent import as_parent
from bot.local.offline.recordings import recorded
from bot.local.offline.search import as_searcher
from bot.local.offline.threads import as_reader, handles_in

_KEY = re.compile(r"\b[A-Z][A-Z0-9]{1,9}-\d{1,6}\b")
_CELL = re.compile(r"(?:^|\| )([^|:]{1,30}): ([^|]*?)(?= \||$)")
_CLOSED = frozenset({"closed", "resolved", "done", "fixed", "completed"})

NO_REVIEW = "The offline stand-in has fixed rules and cannot review: that needs a language model."


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
    if contract in ("review", "verdicts"):
        empty = "points" if contract == "review" else "verdicts"
        return Answer([use("submit_result", **{empty: []}, not_covered=[], needs=NO_REVIEW)])
    if contract == "tracker":
        return Answer([use("submit_result", **_tracker_rows(talk))])
    if handles_in(handles):
        return as_reader(talk)
    if re.search(r"\bdata:", handles):
        return as_data(talk)
    if re.search(r"\b(?:files|mail|web|notes):|https?://", handles):
        return as_searcher(talk)
    return as_reader(talk)


def _tracker_rows(talk: Conversation) -> dict[str, Any]:
    """Return the arguments of `submit_result`: a row for each item of the material."""
    material = "\n".join(text for text in talk.opening if text.startswith("MATERIAL"))
    return {
        "rows": [_tracker_row(item.id, item.text) for item in items_of(material)],
        "not_covered": [],
    }


def _tracker_row(id: str, text: str) -> dict[str, str]:
    cells = {name.strip().lower(): value.strip() for name, value in _CELL.findall(text)}
    key, status = _KEY.search(text), cells.get("status", "")
    return {
        "id": id,
        "key": key[0] if key else "",
        "title": cells.get("title") or cells.get("name") or text.partition(" | ")[0],
        "status": "closed" if status.lower() in _CLOSED else "open",
        "stage": status,
        "owner": cells.get("owner", ""),
    }
