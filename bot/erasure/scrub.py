"""Stored briefs, results and answers without what rested on sources that were deleted."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from bot.erasure.sightings import source_of
from bot.erasure.traces import REMOVED, Traces, replaced
from bot.replies.cite import ids_in

Json = dict[str, Any]

NO_TEXT = frozenset(
    """id run_id run kind status stopped_by model scope contract state severity evidence since as_of
    oldest latest usage template handles given_handles fence made parent requester label tool_calls
    model_preference effort language expects share window no_issue named home thread item author at
    link thread_id threads issue first change channel channels_added channels_gone counts""".split()
)
"""Keys whose values are ids, names, times and numbers made by code, not text that anyone wrote."""
_MARKS: Mapping[str, Any] = {
    **{"text": REMOVED, "reason": REMOVED, "value": None},
    **{"not_covered": [REMOVED], "unsupported": [REMOVED]},
}
_OF_THREAD: Mapping[str, Any] = {
    **{"subject": REMOVED, "sender": "", "writer": "", "key_facts": [], "proposed_action": ""},
    **{"draft_reply": None, "deadline": None, "flags": []},
}
"""What a digest tells of a mail thread that it holds no more of."""
_MAIL = "mail:"
_MESSAGE = re.compile(r"([CDFG][A-Z0-9]+|[0-9a-f]{8,})/.+")
"""Of Slack, or a mail: what is read of these stands in a label."""
_PERMALINK = re.compile(r"/archives/([A-Z0-9]+)/p(\d{10})(\d{6})")


@dataclass(frozen=True, slots=True)
class Lost:
    """What of one run is to be forgotten."""

    items: frozenset[str]
    traces: Traces
    blind: bool = False
    """The words of some of the items are not known any more: what is not tied to other items by its
    evidence goes, too."""

    @property
    def sources(self) -> set[str]:
        named = set(map(source_of, self.items)) | self.items
        return named | {_MAIL + each for each in named}

    def reached(self, label: Mapping[str, Any] | None) -> bool:
        """Whether a context of this label may have read any of the items."""
        read = (label or {}).get("sources")
        told = all(map(_MESSAGE.fullmatch, self.items))  # what is read of others may not say so
        return not read or not told or not self.sources.isdisjoint(read)

    def all_of(self, label: Mapping[str, Any] | None) -> bool:
        """Whether a context of this label has read nothing but mail threads that are lost."""
        read = set((label or {}).get("sources") or ())
        return bool(read) and read <= {s for s in self.sources if s.startswith(_MAIL)}


@dataclass
class Scrubber:
    """Goes through what is stored of one run: its results first, then briefs, then the document."""

    lost: Lost
    changed: set[str] = field(default_factory=set)
    """Ids of the findings that lost something."""
    gone: set[str] = field(default_factory=set)
    """Those of them that rested on nothing else."""
    reached: set[str] = field(default_factory=set)
    """Ids of the subagents that may have read any of it."""

    def result(self, stored: Mapping[str, Any]) -> Json:
        """A SubagentResult."""
        made = {**stored}
        if self.lost.reached(stored.get("label")):
            self.reached.add(str(stored.get("id")))
            if self.lost.blind or self.lost.all_of(stored.get("label")):
                made |= {name: mark for name, mark in _MARKS.items() if made.get(name)}
        return self._mapping(made)

    def brief(self, stored: Mapping[str, Any]) -> Json:
        """A frozen brief; what it asks stays, but for words of the deleted text."""
        material = [i for i in stored.get("material") or () if i["id"] not in self.lost.items]
        lines = [line for line in stored.get("finding_lines") or () if self._keeps(line)]
        return self._mapping({**stored, "material": material, "finding_lines": lines})

    def document(self, stored: Mapping[str, Any]) -> Json:
        """What a run printed: an answer or a report, with the results that went into it."""
        made = {**stored, "subagents": [self.result(r) for r in stored.get("subagents") or ()]}
        self._cited_only(stored.get("links"))
        self._looked_up(stored.get("looked_up") or {})
        return self._mapping(made)

    def part(self, stored: Mapping[str, Any]) -> Json:
        """Anything else that is stored as JSON."""
        return self._mapping(stored)

    def _keeps(self, line: str) -> bool:
        cites = self.lost.blind or self.gone & set(ids_in(line))
        return not (cites or self.lost.traces.are_in(line))

    def _cited_only(self, links: Any) -> None:
        """Findings of earlier answers are not stored here; the links of each say what it is of."""
        for id, found in (links or {}).items() if isinstance(links, Mapping) else ():
            if found and {item_at(link) for link in found} <= self.lost.items:
                self.gone.add(id)

    def _looked_up(self, own: Mapping[str, Any]) -> None:
        """What the parent looked up itself is in no result: its items say what they are."""
        self.gone |= {id for id, one in own.items() if one["item"] in self.lost.items}

    def _value(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.lost.traces.removed(value)
        if isinstance(value, list):
            made = [self._value(each) for each in value]
            words = " ".join(each for each in made if isinstance(each, str))
            return [REMOVED] if self.lost.traces.are_in(words) else made
        return self._mapping(value) if isinstance(value, Mapping) else value

    def _mapping(self, value: Mapping[str, Any]) -> Json:
        made = dict(value)
        if "claim" in made and "evidence" in made:
            made = self._finding(made)
        elif "text" in made and "contract" not in made and _are_ids(made.get("findings")):
            made = self._statement(made)
        elif _are_ids(made.get("subagents")) and "summary" in made:
            made = self._section(made)
        elif "claim" in made and "issue" in made:
            made = self._still_open(made)
        if self._tells_of(made.get("thread_id")):
            made |= {name: mark for name, mark in _OF_THREAD.items() if name in made}
        if "text" in made and any(map(self._tells_of, made.get("threads") or ())):
            made["text"] = REMOVED
        if isinstance(made.get("answer"), str):
            made["answer"] = replaced(made["answer"], self._is_lost)
        for cited in ("links", "looked_up"):
            if isinstance(made.get(cited), Mapping):
                made[cited] = {i: each for i, each in made[cited].items() if i not in self.gone}
        return {k: v if k in NO_TEXT else self._value(v) for k, v in made.items()}

    def _finding(self, finding: Json) -> Json:
        rest = [e for e in finding["evidence"] if e not in self.lost.items]
        if len(rest) == len(finding["evidence"]):
            return finding
        self.changed.add(finding["id"])
        links = [at for at in finding.get("links") or () if item_at(at) not in self.lost.items]
        made = {**finding, "evidence": rest, "links": links, "quotes": []}
        if not rest:
            self.gone.add(finding["id"])
            made |= {"state": "none", "severity": "low", "links": [], "since": None}
            made |= {"messages": 0, "people": 0}
        if not rest or self.lost.blind:
            made |= {"claim": REMOVED, "severity_reason": "", "owner": "", "next_step": ""}
            made |= {"customers": []}
        return made

    def _statement(self, statement: Json) -> Json:
        cited = set(statement["findings"])
        if cited & self.gone or (self.lost.blind and not cited):
            return {**statement, "text": REMOVED} | ({"links": []} if "links" in statement else {})
        return statement

    def _section(self, section: Json) -> Json:
        unsure = self.lost.blind and not self.reached.isdisjoint(section["subagents"])
        return {**section, "summary": REMOVED} if unsure else section

    def _still_open(self, issue: Json) -> Json:
        """An issue of an earlier report: where it rests on what is lost, its links say so."""
        links = [at for at in issue.get("links") or () if item_at(at) not in self.lost.items]
        if len(links) == len(issue.get("links") or ()) and not self.lost.blind:
            return issue
        return {**issue, "claim": REMOVED, "owner": "", "links": links}

    def _tells_of(self, thread: Any) -> bool:
        return isinstance(thread, str) and thread in self.lost.sources

    def _is_lost(self, sentence: str) -> bool:
        cited = set(ids_in(sentence))
        words = bool(re.search(r"\w", sentence))
        return bool(cited & self.gone) or (self.lost.blind and words and not cited)


def item_at(link: str) -> str:
    """Id of the message that a permalink leads to; empty where it leads to none."""
    found = _PERMALINK.search(link)
    return f"{found[1]}/{found[2]}.{found[3]}" if found else ""


def _are_ids(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)
