"""Documents of triages to show: a verdict, a digest of some, and any digest."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st
from report_kit import TEXT

Json = dict[str, Any]
LINK = "https://mail.google.com/mail/?authuser=ana@acme.example#all/"
CATEGORIES = ("customer", "colleague", "invoice", "meeting", "news", "personal", "other")


def verdict(id: str, **more: Any) -> Json:
    return {
        "thread_id": id,
        "subject": "Export stuck",
        "sender": "Lena Brandt <lena@nordlicht.example>",
        "at": "2025-03-13T08:00:00Z",
        "link": f"{LINK}{id}",
        "messages": 1,
        "category": "other",
        "priority": "medium",
        "subagent": "s1",
        "status": "complete",
        **more,
    }


def triage(*verdicts: Json, **more: Any) -> Json:
    ends = {"complete": len(verdicts), "partial": 0, "failed": 0, "cancelled": 0, "refused": 0}
    return {
        "run_id": "abc123",
        "status": "complete",
        "model": "claude",
        "mailbox": "ana@acme.example",
        "as_of": "2025-03-15T09:00:00Z",
        "window": {"oldest": "2025-03-08T00:00:00Z", "latest": "2025-03-15T09:00:00Z"},
        "coverage": {"items": len(verdicts), **ends, "not_covered": []},
        "verdicts": list(verdicts),
        "usage": {"total": 12345},
        "cost_usd": 0.0712,
        **more,
    }


_AT = st.datetimes().map(lambda at: f"{at.replace(microsecond=0).isoformat()}Z")
_DEADLINE = st.one_of(st.none(), st.dates().map(str))


def _verdicts(ids: list[str]) -> st.SearchStrategy[list[Json]]:
    return st.tuples(*map(_verdict, ids)).map(list)


def _verdict(id: str) -> st.SearchStrategy[Json]:
    return st.fixed_dictionaries(
        {
            "subject": TEXT,
            "sender": st.one_of(TEXT, TEXT.map(lambda name: f"{name} <a@b.example>")),
            "at": st.one_of(st.none(), _AT),
            "category": st.one_of(st.sampled_from(CATEGORIES), TEXT),
            "priority": st.sampled_from(("high", "medium", "low")),
            "deadline": _DEADLINE,
            "asked_of_me": st.booleans(),
            "key_facts": st.lists(TEXT, max_size=3),
            "proposed_action": TEXT,
            "draft_reply": st.one_of(st.none(), TEXT),
            "flags": st.lists(TEXT, max_size=2),
            "status": st.sampled_from(("complete", "partial", "failed")),
        }
    ).map(lambda drawn: verdict(id, **drawn))


@st.composite
def triages(draw: st.DrawFn) -> Json:
    """Any document whose threads are distinct, as those of a mailbox are."""
    ids = [f"{0x18C0_0000_0000_0000 + n:x}" for n in range(draw(st.integers(0, 12)))]
    cuts = sorted(draw(st.lists(st.integers(0, len(ids)), min_size=2, max_size=2)))
    read, left_out, unread = ids[: cuts[0]], ids[cuts[0] : cuts[1]], ids[cuts[1] :]
    some = st.lists(st.sampled_from([*ids, "unknown"]), max_size=5)
    reasons = st.sampled_from(["newsletter", "bounce", "spam"])
    return triage(
        *draw(_verdicts(read)),
        top_lines=[
            {"text": draw(TEXT), "findings": [], "threads": draw(some)}
            for _ in range(draw(st.integers(0, 3)))
        ],
        matters=[
            {"text": draw(TEXT), "threads": draw(some)} for _ in range(draw(st.integers(0, 3)))
        ],
        filtered=[
            {"thread_id": i, "subject": "S", "sender": draw(TEXT), "reason": draw(reasons)}
            for i in left_out
        ],
        unreadable=[{"thread_id": i, "subject": draw(TEXT), "reason": draw(TEXT)} for i in unread],
        status=draw(st.sampled_from(("complete", "partial", "failed", "cancelled"))),
    )
