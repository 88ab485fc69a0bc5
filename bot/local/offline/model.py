"""The offline model: it reads one Messages API request and answers by a few fixed rules.

It is not a language model and says so in everything it writes. It uses only the request and the
recorded answers for the sample data: no files, no clock, no random numbers.
"""

from __future__ import annotations

import re
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import OFFLINE, Conversation, read_conversation, use
from bot.local.offline.data import as_data
from bot.local.offline.mail import as_triage
from bot.local.offline.parent import as_parent
from bot.local.offline.recordings import find_recorded
from bot.local.offline.threads import as_reader

_EMPTY: dict[str, dict[str, Any]] = {
    "review": {"points": []},
    "verdicts": {"verdicts": []},
    "tracker": {"rows": []},
    "table": {"columns": [], "rows": []},
}
"""Contract -> empty fields of its result; the other contracts have a text."""
_SLACK_SOURCE = re.compile(r"(?<![\w/])[CGD][A-Z0-9]{2,}\b")
"""A channel or a thread of Slack."""


def answer(request: dict[str, Any]) -> Answer:
    """Return the offline model's answer to one Messages API request."""
    talk = read_conversation(request)
    if recorded := find_recorded(talk):
        return recorded
    return _as_subagent(talk) if "submit_result" in talk.tools else as_parent(talk)


def _as_subagent(talk: Conversation) -> Answer:
    contract, handles = talk.section("CONTRACT"), talk.section("MAY READ")
    if contract == "triage":
        return as_triage(talk)
    if contract == "answer" and "data:" in handles:
        return as_data(talk)
    if contract == "issues" or (contract == "answer" and _SLACK_SOURCE.search(handles)):
        return as_reader(talk)
    why = f"This needs a language model {OFFLINE}."
    empty = _EMPTY.get(contract, {"text": why})
    return Answer([use("submit_result", **empty, not_covered=[], needs=why)])
