"""What a document of an answer has where no parent wrote it: of a sweep or a triage in Slack."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from bot.parent import Workplace
from bot.requests.asked import Request
from bot.tally import STATUSES
from scopes.label import Label
from scopes.tool import Handles, ToolContext
from subagents.prices import Usage
from subagents.result import SubagentResult
from subagents.run import Run

ANSWERED = {"stopped_by": "none", "reason": "", "passing": False, "degraded": False, "sessions": 1}


def sentence(
    app: Workplace,
    run: Run,
    request: Request,
    kind: str,
    text: str,
    status: str,
    missing: Sequence[str],
) -> dict[str, Any]:
    """An answer of one sentence, for which no model was asked."""
    return {
        "run_id": run.id,
        "kind": kind,
        "status": status,
        **ANSWERED,
        "reason": " ".join(missing),
        "model": app.model_name,
        "question": request.text,
        "answer": text,
        "statements": [],
        "cited": 0,
        "coverage": {"items": 0, **dict.fromkeys(STATUSES, 0), "not_covered": list(missing)},
        "links": {},
        "unsupported": 0,
        "label": request.label.to_json(),
        "usage": Usage().to_json(),
        "cost_usd": 0.0,
        "subagents": [],
    }


def links_of(results: Iterable[SubagentResult]) -> dict[str, list[str]]:
    """The links of all findings, by id."""
    return {f.id: f.links for r in results for f in r.findings}


def writing(run: Run, request: Request, document: Mapping[str, Any]) -> ToolContext:
    """The context of the finished answer, for the gate."""
    return ToolContext(
        run=run.id,
        requester=run.requester,
        handles=Handles(),
        label=Label.of(document["label"]),
        window=request.window,
        clients=run.clients,
        max_output_tokens=run.limits.max_tool_output_tokens,
        intent=request.intent,
        scope="parent",
    )
