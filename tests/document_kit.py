"""Typed documents from as many fields as a test is about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.reports.documents import AnswerDocument, SweepFinding, SweepReport, TriageReport

Json = dict[str, Any]

RESULT = {
    **{"id": "s1", "scope": "slack", "model": "fast", "status": "complete"},
    **{"stopped_by": "none", "contract": "issues"},
}
RUN = {"run_id": "abc123", "status": "complete", "model": "claude", "coverage": {}}
WINDOW = {"oldest": "2025-03-01T00:00:00Z", "latest": "2025-03-15T00:00:00Z"}


def sweep_report(document: Mapping[str, Any]) -> SweepReport:
    sections = [_section(section) for section in document.get("sections", ())]
    fields = {**RUN, "as_of": WINDOW["latest"], "window": WINDOW, **document, "sections": sections}
    return SweepReport.model_validate({**fields, "subagents": _results(document)})


def sweep_finding(finding: Mapping[str, Any]) -> SweepFinding:
    return SweepFinding.model_validate(_finding(finding))


def triage_report(document: Mapping[str, Any]) -> TriageReport:
    return TriageReport.model_validate(document)


def answer_document(document: Mapping[str, Any]) -> AnswerDocument:
    return AnswerDocument.model_validate({**RUN, **document, "subagents": _results(document)})


def _section(section: Mapping[str, Any]) -> Json:
    findings = [_finding(finding) for finding in section.get("findings", ())]
    return {"item": "general", "channel": "C1", **section, "findings": findings}


def _results(document: Mapping[str, Any]) -> list[Json]:
    return [
        {**RESULT, **result, "findings": [_finding(f) for f in result.get("findings", ())]}
        for result in document.get("subagents", ())
    ]


def _finding(finding: Mapping[str, Any]) -> Json:
    return {"id": "F1.1", "claim": "It is broken", "evidence": [], **finding}


def gaps_of(*reasons: str) -> list[Json]:
    return [{"reason": reason} for reason in reasons]


def gap_lines(document: Mapping[str, Any]) -> list[str]:
    """Return what a document says that it does not cover, each after its source or subagent."""
    return [
        ": ".join(filter(None, (gap["source"] or gap["subagent"], gap["reason"])))
        for gap in document["coverage"]["not_covered"]
    ]
