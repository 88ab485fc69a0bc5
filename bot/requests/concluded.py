"""How a parent's work came out: the text of the answer, and its status."""

from __future__ import annotations

from collections.abc import Sequence

from bot.replies.citable import Citable
from bot.replies.cite import drop_unknown, ids_in
from bot.tally import all_refused
from subagents.handoff import ParentRun
from subagents.result import SubagentResult


def written(results: Sequence[SubagentResult], done: ParentRun, citable: Citable) -> str:
    """What the parent wrote; where it was stopped before it came to that, the results and why.

    A subagent's words cite nothing that the parent looked up.
    """
    known = citable.findings()
    own = citable.looked_up(done.ending.seen)
    files = citable.files()
    text = drop_unknown(done.ending.text, known, own, files).strip()
    if text and (done.ending.stopped_by == "none" or known.keys() & ids_in(text) or not known):
        return text
    why = done.ending.reason or done.ending.stopped_by
    what = "The answer could not be finished" if text else "No answer could be written"
    said = "It was stopped." if why == "user" else f"{what} ({why})."
    lines = [text, ""] if text else []
    lines.append(said + (" What the subagents returned:" if results else ""))
    for r in results:
        cited = " ".join(f"[{f.id}]" for f in r.findings[:5])
        lines.append(f"- {drop_unknown(r.text, known, files=files)} {cited}")
    return "\n".join(lines)


FAULTS = ("model_error", "rate_limit", "tool_error", "invalid_output")
"""Ends after which a parent's last words are no answer."""


def status_of(results: Sequence[SubagentResult], done: ParentRun) -> str:
    """complete, partial, failed or cancelled: of the answer with all that went into it."""
    stopped = done.ending.stopped_by
    if stopped == "user":
        return "cancelled"
    if not done.ending.text or stopped in FAULTS:
        return "partial" if any(r.findings for r in results) else "failed"
    whole = stopped == "none" and all(r.status in ("complete", "refused") for r in results)
    whole = whole and not all_refused(results)
    return "complete" if whole else "partial"
