"""Replay answers that careful readers wrote for the sample data in place of a model.

A turn is replayed only in a context with the same beginning and the same shown items; the rules
answer in any other context. `benchmarks/record.py` writes the file.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import Conversation, items_of
from bot.local.sample_workspace import read_data

RECORDED_MARK = "(recorded: a careful reader wrote this for the samples)"
"""Marks every replayed answer of a parent."""

Content = Sequence[Mapping[str, Any]]
RecordingKey = tuple[str, int, str]
_CHOSEN = re.compile(r"^CHOSEN .*$", re.MULTILINE)
"""The requester's choice after a question of the assistant."""
_FOREIGN_LANGUAGE = re.compile(r"(?!en\b)[a-z]{2}(-|$)")
"""A language other than English, the language of most recordings."""
_QUERY = re.compile(r"\bq-[0-9a-f]{6}\b")
"""The id of a query, which differs from run to run."""


def find_recorded(talk: Conversation) -> Answer | None:
    """Return the recorded next turn of a context; None if there is none."""
    content = _turns().get(key_of(talk))
    if content is None:
        return None
    ends = not any(block["type"] == "tool_use" for block in content)
    marks = (
        [{"type": "text", "text": f"\n\n{RECORDED_MARK}"}] if ends and _question_of(talk) else []
    )
    ids = {f"q-#{number}": id for number, id in enumerate(_queries(talk), 1)}
    return Answer([*_replace_ids(content, ids), *marks])


def key_of(talk: Conversation) -> RecordingKey:
    """Return the key of a context: its beginning, its turn, and a digest of the shown items."""
    chosen = [line for text in talk.told for line in _CHOSEN.findall(text)]
    language = talk.section("LANGUAGE")
    foreign = [f"LANGUAGE: {language}"] if _FOREIGN_LANGUAGE.match(language) else []
    if question := _question_of(talk):
        material = (text for text in talk.opening if text.startswith("MATERIAL"))
        texts = [*material, *(exchange.text for exchange in talk.exchanges)]
        seen = sorted({_QUERY.sub("q-#", item.id) for text in texts for item in items_of(text)})
    else:  # the first lines of a report: all findings of its subagents, not the window
        head, *seen = talk.opening
        question = head.partition(".")[0]
    opening = "\n".join([question, *foreign, *chosen])
    digest = hashlib.sha256("\n".join(seen).encode()).hexdigest()[:12]
    return " ".join(opening.split()), talk.turn, digest


def _question_of(talk: Conversation) -> str:
    """Return the question to a subagent or a parent; empty for the first lines of a report."""
    return talk.section("TASK") or talk.section("REQUEST")


def as_recorded(talk: Conversation, content: Content) -> Content:
    """Return the stored form of an answer: queries are numbered in the order of their calls."""
    ids = {id: f"q-#{number}" for number, id in enumerate(_queries(talk), 1)}
    return _replace_ids(content, ids)


def _queries(talk: Conversation) -> list[str]:
    return list(dict.fromkeys(id for each in talk.exchanges for id in _QUERY.findall(each.text)))


def _replace_ids(content: Content, ids: Mapping[str, str]) -> list[dict[str, Any]]:
    text = json.dumps(content)
    for old in sorted(ids, key=len, reverse=True):  # q-#12 before q-#1
        text = text.replace(old, ids[old])
    return list(json.loads(text))


@cache
def _turns() -> Mapping[RecordingKey, Content]:
    return {
        (each["opening"], turn, recorded["seen"]): recorded["content"]
        for each in read_data("recordings")
        for turn, recorded in enumerate(each["turns"])
    }
