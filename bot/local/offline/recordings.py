"""Replay recorded answers: what careful readers answered as the model on the sample data.

A turn is replayed only in a context that begins alike and has shown the same items; the rules
answer any other one. `benchmarks/record.py` makes the file.
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

RECORDED = "(recorded: a careful reader wrote this for the samples)"
"""Said once in every answer of a parent that is replayed."""

Content = Sequence[Mapping[str, Any]]
Key = tuple[str, int, str]
_CHOSEN = re.compile(r"^CHOSEN .*$", re.MULTILINE)
"""What a requester has chosen whom the assistant asked back."""
_CODE = re.compile(r"(?!en\b)[a-z]{2}(-|$)")
"""A language that is not the one of most recordings."""
_QUERY = re.compile(r"\bq-[0-9a-f]{6}\b")
"""The id of a query, which differs from run to run."""


def find_recorded(talk: Conversation) -> Answer | None:
    """Return the recorded next turn of a context; None if there is none."""
    content = _turns().get(key_of(talk))
    if content is None:
        return None
    ends = not any(block["type"] == "tool_use" for block in content)
    marks = [{"type": "text", "text": f"\n\n{RECORDED}"}] if ends and _question_of(talk) else []
    ids = {f"q-#{number}": id for number, id in enumerate(_queries(talk), 1)}
    return Answer([*_replace_ids(content, ids), *marks])


def key_of(talk: Conversation) -> Key:
    """Return what a context is known by: how it begins, its turn, a digest of the items seen."""
    chosen = [line for text in talk.told for line in _CHOSEN.findall(text)]
    language = talk.section("LANGUAGE")
    foreign = [f"LANGUAGE: {language}"] if _CODE.match(language) else []
    if asked := _question_of(talk):
        material = (text for text in talk.opening if text.startswith("MATERIAL"))
        texts = [*material, *(exchange.text for exchange in talk.exchanges)]
        seen = sorted({_QUERY.sub("q-#", item.id) for text in texts for item in items_of(text)})
    else:  # the first lines of a report: all that its subagents found, whatever the window
        head, *seen = talk.opening
        asked = head.partition(".")[0]
    opening = "\n".join([asked, *foreign, *chosen])
    digest = hashlib.sha256("\n".join(seen).encode()).hexdigest()[:12]
    return " ".join(opening.split()), talk.turn, digest


def _question_of(talk: Conversation) -> str:
    """Return what a subagent or a parent was asked; empty for the first lines of a report."""
    return talk.section("TASK") or talk.section("REQUEST")


def as_recorded(talk: Conversation, content: Content) -> Content:
    """Return an answer as it is stored: its queries are numbered in the order of their calls."""
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
def _turns() -> Mapping[Key, Content]:
    return {
        (each["opening"], turn, said["seen"]): said["content"]
        for each in read_data("recordings")
        for turn, said in enumerate(each["turns"])
    }
