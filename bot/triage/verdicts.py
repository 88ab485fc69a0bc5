"""A verdict as the digest has it: a subagent's checked words, and what code knows of the thread."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any

from bot.triage.looked import Looked
from scopes.tool import iso
from subagents.result import Finding, SubagentResult

OTHER = "other"
"""The category of a thread whose own is none of those that are configured."""


def finding_of(result: SubagentResult) -> Finding | None:
    """What a verdict is cited by; None where its evidence did not hold."""
    return result.findings[0] if result.findings else None


def verdict_of(thread: Looked, result: SubagentResult, categories: Sequence[str]) -> dict[str, Any]:
    """One entry of `verdicts`. The category is one of those configured; a deadline is a date."""
    value, finding = result.value or {}, finding_of(result)
    return {
        **thread.heading(),
        "writer": thread.senders[-1] if thread.senders else "",
        "at": iso(thread.at) if thread.at else None,
        "link": thread.link,
        "messages": len(thread.items),
        "category": category_of(str(value.get("category", "")), categories),
        "priority": value.get("priority", "low"),
        "deadline": _day(str(value.get("deadline") or "")),
        "asked_of_me": bool(value.get("asked_of_me")),
        "key_facts": value.get("key_facts", []),
        "proposed_action": value.get("proposed_action", ""),
        "draft_reply": value.get("draft_reply") or None,
        "evidence": finding.evidence if finding else [],
        "flags": list(thread.flags),
        "not_read": [item.gap() for item in thread.items if item.unread],
        "finding": finding.id if finding else None,
        "subagent": result.id,
        "status": result.status,
    }


def unreadable(thread: Looked, result: SubagentResult | None) -> dict[str, str]:
    """Why a thread has no verdict."""
    ended = (result.reason or result.stopped_by) if result else "it was not judged in time"
    reason = thread.fault or ended
    return {"thread_id": thread.id, "subject": thread.subject, "reason": reason}


def category_of(said: str, categories: Sequence[str]) -> str:
    """The configured category that was meant, whatever its case; else `other`, or the last one."""
    known = {name.casefold(): name for name in categories}
    return known.get(said.strip().casefold()) or known.get(OTHER) or categories[-1]


def _day(text: str) -> str | None:
    try:
        return date.fromisoformat(text).isoformat()
    except ValueError:
        return None
