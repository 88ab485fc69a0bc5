"""The rows of one run without what it held of some items: what is to be changed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa

from bot.erasure.scrub import Lost, Scrubber
from bot.erasure.texts import Texts
from bot.erasure.traces import Traces
from subagents.shingles import texts

Row = Mapping[str, Any]
Values = dict[str, Any]

NOTHING: Any = sa.literal_column("''")
"""Of a question: not sealed, so that a query can see that there is none."""


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """New values of the columns that hold something."""

    run: Values
    subagents: Mapping[str, Values]
    """By id."""
    actions: Sequence[str]
    """Ids of those that are to go: what a person approves of is fixed to the byte."""
    findings: int


def scrubbed(
    run: Row, subagents: Sequence[Row], actions: Sequence[Row], items: Set[str], words: Texts
) -> Scrubbed:
    """What changes of a run that forgets these items; `words` is what is known of their text."""
    traces = Traces(text for item in items for text in words.get(item, ()))
    lost = Lost(frozenset(items), traces, blind=not items <= words.keys())
    scrubber = Scrubber(lost)
    asked = (run["request"] or "").partition("/")[2] in items
    results = {s["id"]: scrubber.result(s["result"]) for s in subagents if s["result"]}
    document = run["result"] and scrubber.document(run["result"])
    briefs = {s["id"]: scrubber.brief(s["brief"]) for s in subagents}
    if asked:
        document = document and {**document, "question": ""}
        briefs = {id: _unasked(brief) for id, brief in briefs.items()}
    made = {"result": document, "error": run["error"] and scrubber.part(run["error"])}
    question: Values = {"question": NOTHING} if asked and run["question"] else {}
    changed = {
        s["id"]: _changed(s, {"brief": briefs[s["id"]], "result": results.get(s["id"])})
        for s in subagents
    }
    return Scrubbed(
        question | _changed(run, made),
        {id: values for id, values in changed.items() if values},
        [a["id"] for a in actions if lost.blind or traces.are_in(_all_text(a))],
        len(scrubber.changed),
    )


def _changed(row: Row, made: Values) -> Values:
    return {name: value for name, value in made.items() if value is not None and value != row[name]}


def _unasked(brief: Values) -> Values:
    """A brief without the words of the request."""
    intent = brief.get("intent")
    return {**brief, "intent": {**intent, "text": ""}} if intent else brief


def _all_text(action: Row) -> str:
    return "\n".join(texts({"body": action["body"], "outcome": action["outcome"]}))
