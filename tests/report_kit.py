"""Documents of sweeps to be shown: one finding, a section, a whole one, and any."""

from __future__ import annotations

from typing import Any, get_args

from document_kit import gaps_of
from hypothesis import strategies as st

from subagents.contracts import IssueState

Json = dict[str, Any]
LINK = "https://acme.slack.com/archives/C1/p"
EVIL = "<!channel> <@U0ANA> *b* _i_ `c` [x](https://evil.example) ![y](https://evil.example/i.png)"


def finding(id: str, state: str = "unsolved", **more: Any) -> Json:
    return {
        "id": id,
        "claim": f"Issue {id}",
        "state": state,
        "severity": "high",
        "severity_reason": "money is lost",
        "next_step": "Answer Ana.",
        "customers": ["Café Sol"],
        "quotes": ["No funciona el pago."],
        "people": 1,
        "messages": 2,
        "links": [f"{LINK}{id[1:].replace('.', '000')}"],
        "since": "2025-03-04T09:00:00Z",
        **more,
    }


def section(item: str, *findings: Json, **more: Any) -> Json:
    cover = {"messages_read": 40, "threads_read": 12}
    return {
        "item": item,
        "channel": "C1",
        "subagents": ["s1"],
        "status": "complete",
        "summary": "What it found, in a sentence.",
        "findings": list(findings),
        "coverage": cover,
        **more,
    }


def still(claim: str = "The till hangs", **more: Any) -> Json:
    return {
        "issue": "i-0a1b2c3d",
        "claim": claim,
        "item": "csm-es",
        "severity": "medium",
        "state": "unanswered",
        "owner": "nobody",
        "first": "2025-03-03T08:00:00Z",
        "age_days": 12,
        "links": [f"{LINK}1740000000000100"],
        **more,
    }


def swept(*sections: Json, **more: Any) -> Json:
    ends = {"complete": len(sections), "partial": 0, "failed": 0, "cancelled": 0, "refused": 0}
    return {
        "coverage": {"items": len(sections), **ends, "not_covered": []},
        "sections": list(sections),
        "usage": {"total": 12345},
        "cost_usd": 0.1234,
        **more,
    }


BEFORE = {"with": "2025-03-01T00:00:00Z", "reports": 3}
CHANGES = (None, "new", "open", "changed", "solved", "reopened")
TEXT = st.one_of(
    st.text(max_size=40),
    st.sampled_from(
        [
            "",
            EVIL,
            "=HYPERLINK(evil)",
            "https://evil.example/x and www.evil.example ana@evil.example @here",
            "x" * 600,
            "&<>" * 200,
            "\u202e\u200b\ud800",
            "# 1. - + | a\n\n## b",
            "many words " * 60,
        ]
    ),
)
_SOME = st.lists(TEXT, max_size=6)
_LINKS = st.sampled_from(
    [
        [],
        [f"{LINK}1740000000000100"],
        ["https://evil.example/archives/C1"],
        ["javascript:alert(1)"],
        [f"{LINK}1?thread_ts=1740000000.000100&cid=C1"],
    ]
)
_TRACKED = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "status": st.sampled_from(("untracked", "tracked", "closed")),
            "key": TEXT,
            "title": TEXT,
            "link": st.sampled_from([None, "https://acme.slack.com/lists/T1/F1", "https://e.x/"]),
        }
    ),
)
_FINDING: st.SearchStrategy[Json] = st.fixed_dictionaries(
    {
        "claim": TEXT,
        "state": st.sampled_from(get_args(IssueState)),
        "severity": st.sampled_from(("high", "medium", "low")),
        "severity_reason": TEXT,
        "owner": TEXT,
        "next_step": TEXT,
        "customers": _SOME,
        "quotes": _SOME,
        "links": _LINKS,
        "change": st.sampled_from(CHANGES),
        "age_days": st.one_of(st.none(), st.integers(0, 400)),
        "tracker": _TRACKED,
    }
)
_TRACKER = st.one_of(
    st.none(),
    st.fixed_dictionaries(
        {
            "title": TEXT,
            "status": st.sampled_from(("complete", "partial", "failed")),
            "reason": TEXT,
            **dict.fromkeys(("read", "untracked", "tracked", "closed"), st.integers(0, 9)),
        }
    ),
)


@st.composite
def sweeps(draw: st.DrawFn) -> Json:
    """Any document whose findings have ids of their own, as `Sweep` gives them."""
    sections = []
    for k in range(draw(st.integers(0, 5))):
        drawn = draw(st.lists(_FINDING, max_size=4))
        found = [finding(f"F{k}.{n}", **each) for n, each in enumerate(drawn)]
        status = draw(st.sampled_from(("complete", "partial", "failed", "cancelled")))
        sections.append(section(draw(TEXT), *found, summary=draw(TEXT), status=status))
    ids = st.lists(st.sampled_from([*(f["id"] for s in sections for f in s["findings"]), "F9.9"]))
    counts = {"customers": 3, "messages": 9, "links": []}
    document = swept(
        *sections,
        top_lines=[
            {"text": draw(TEXT), "findings": draw(ids), **counts}
            for _ in range(draw(st.integers(0, 4)))
        ],
        patterns=[
            {"text": draw(TEXT), "findings": draw(ids), "markets": draw(_SOME)}
            for _ in range(draw(st.integers(0, 7)))
        ],
        still_open=[still(draw(TEXT), links=draw(_LINKS)) for _ in range(draw(st.integers(0, 4)))],
        title=draw(TEXT),
        language=draw(st.sampled_from(("en", "de", "es", "fr", "it", "ja"))),
        compared=draw(st.sampled_from((None, BEFORE))),
        tracker=draw(_TRACKER),
        status=draw(st.sampled_from(("complete", "partial", "failed", "cancelled"))),
        **{name: draw(_SOME) for name in ("notes", "channels_added", "channels_gone")},
    )
    document["coverage"]["not_covered"] = gaps_of(*draw(_SOME))
    return document
