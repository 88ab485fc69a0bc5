"""Documents as text: what is read is what the data say; nothing that strangers wrote acts."""

from __future__ import annotations

import copy
import re
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from document_kit import RESULT, answer_document, sweep_report
from hypothesis import given
from hypothesis import strategies as st

from bot.reports.sweep import MOST_FINDINGS
from bot.reports.text import WIDTH, ask_text, report_text, run_text
from bot.reports.translations import words_of
from bot.storage.tables import StoredRun, StoredSubagent
from bot.terminal import printable
from scopes.handles import Handles
from scopes.label import TRUSTED
from subagents.brief import Brief, BriefDraft, SpawnedBrief, brief_to_json

Json = dict[str, Any]
LINK = "https://acme.slack.com/archives/C1/p1741597200000100"


def finding(number: int, state: str = "unsolved", **more: Any) -> Json:
    return {
        "id": f"F1.{number}",
        "claim": f"Issue {number}",
        "state": state,
        "severity": "high",
        "owner": "",
        "next_step": "",
        "customers": [],
        "people": 1,
        "messages": 2,
        "links": [LINK],
        "since": None,
        **more,
    }


def section(*findings: Json, **more: Any) -> Json:
    cover = {"messages_read": 40, "threads_read": 12}
    return {
        "item": "support-es",
        "status": "complete",
        "summary": "Two sentences.",
        "findings": list(findings),
        "coverage": cover,
        **more,
    }


def coverage(items: int = 1, *not_covered: str, **counts: int) -> Json:
    ends = {"complete": items, "partial": 0, "failed": 0, "cancelled": 0, "refused": 0}
    return {"items": items, **ends, **counts, "not_covered": list(not_covered)}


def swept(*sections: Json, **more: Any) -> Json:
    return {
        "run_id": "abc123",
        "kind": "sweep",
        "status": "complete",
        "model": "claude",
        "window": {"oldest": "2025-03-01T00:00:00Z", "latest": "2025-03-15T00:00:00Z"},
        "coverage": coverage(len(sections)),
        "top_lines": [],
        "sections": list(sections),
        "unsupported": 0,
        "usage": {"total": 12345},
        "cost_usd": 0.1234,
        **more,
    }


def asked(answer: str, links: dict[str, list[str]], **more: Any) -> Json:
    return {
        "run_id": "abc123",
        "kind": "ask",
        "model": "claude",
        "answer": answer,
        "links": links,
        "subagents": [],
        "statements": [{"text": "One."}, {"text": "Two."}],
        "cited": 1,
        "degraded": False,
        "coverage": coverage(1),
        "unsupported": 0,
        "usage": {"total": 10},
        "cost_usd": None,
        **more,
    }


def flat(text: str) -> str:
    return " ".join(text.split())


def test_a_section_counts_what_it_shows() -> None:
    text = flat(
        report_text(
            sweep_report(
                swept(
                    section(
                        finding(1, customers=["Café Sol", "Bar Luna"], people=2, messages=7),
                        finding(2, "unanswered", customers=["café sol"], people=1),
                        finding(3, people=3, since="2025-03-04T09:00:00Z"),
                        finding(4, "waiting"),
                        finding(5, "none"),
                    )
                )
            )
        )
    )
    assert "● 3 open (3 high) · 40 messages in 12 threads read" in text
    assert "● 1. · unsolved · Issue 1 Café Sol, Bar Luna · 7 messages" in text
    assert "3 customers · 2 messages · since 4 Mar 2025" in text
    assert "Waiting or solved · ● 4. · waits for the customer · Issue 4" in text
    assert "Issue 5" not in text
    assert "1 Mar 2025 to 15 Mar 2025" in text
    assert "$0.1234 · 12,345 tokens · run abc123" in text


def test_one_of_a_kind_is_told_in_the_singular() -> None:
    text = flat(report_text(sweep_report(swept(section(finding(1, messages=1))))))
    assert "1 customer · 1 message" in text
    assert "· 1 channel ·" in text


def test_what_is_too_much_is_counted_and_found_elsewhere() -> None:
    many = [finding(n, "solved") for n in range(1, MOST_FINDINGS + 8)]
    text = report_text(sweep_report(swept(section(*many))))
    assert text.count("· solved · Issue") == MOST_FINDINGS
    assert "7 more" in text
    assert "assistant show abc123 --json" in flat(text)


@pytest.mark.parametrize("status", ["partial", "failed", "cancelled"])
def test_a_section_that_is_not_whole_says_so_and_why(status: str) -> None:
    doc = swept(
        section(finding(1), status=status, summary="Slack gave no answer in time."),
        status="partial",
        coverage=coverage(1, "support-es: Slack gave no answer", complete=0, **{status: 1}),
    )
    text = flat(report_text(sweep_report(doc)))
    assert f"({words_of('en')(status)})" in text
    assert "Slack gave no answer in time." in text
    assert "Issue 1" in text
    assert "NOT COVERED · support-es: Slack gave no answer" in text


def test_an_empty_section_says_what_was_read() -> None:
    text = flat(report_text(sweep_report(swept(section(summary="no message in the window")))))
    assert "BY MARKET – #support-es no open issue · 40 messages in 12 threads read" in text
    assert "DO FIRST" not in text


def test_the_owner_and_the_next_step_are_told() -> None:
    found = [
        finding(1, owner="Ana", next_step="Send the log."),
        finding(2, owner="nobody", next_step="Answer Ana."),
    ]
    text = flat(report_text(sweep_report(swept(section(*found)))))
    assert "Owner: Ana → Send the log." in text
    assert "Owner: nobody → Answer Ana." in text


def test_a_report_that_is_compared_says_what_is_new_and_what_is_not() -> None:
    old = {
        "issue": "i-0a1b2c3d",
        "first": "2025-03-03T08:00:00Z",
        "item": "support-es",
        "claim": "The till hangs",
        "severity": "low",
        "state": "unanswered",
        "owner": "nobody",
        "age_days": 12,
        "links": [LINK],
    }
    text = flat(
        report_text(
            sweep_report(
                swept(
                    section(
                        finding(1, change="new", severity_reason="money is lost"),
                        finding(2, change="open", age_days=1),
                        finding(3, "solved", change="solved"),
                    ),
                    title="weekly",
                    compared={"with": "2025-03-01T00:00:00Z", "reports": 2},
                    still_open=[old],
                )
            )
        )
    )
    assert text.startswith("Customer issues: weekly 3 open (2 high) · 1 new, 2 still open")
    assert "3 open (2 high) · 1 new, 2 still open for up to 12 days, 1 solved" in text
    assert "● 3 open (2 high), 1 new · 40 messages" in text
    assert "● 1. NEW · unsolved · Issue 1" in text
    assert "Severity high: money is lost" in text
    assert "● 2. STILL OPEN 1 day · unsolved · Issue 2" in text
    assert "· ✓ 3. SOLVED · solved · Issue 3" in text
    no_news = text.partition("Still open, no news in this window")[2]
    assert "· ○ #support-es · 12 days · unanswered · The till hangs · nobody" in no_news
    first = report_text(sweep_report(swept(section(finding(1, change="new")))))
    assert "NEW" not in first
    urgent: Json = {"still_open": [{**old, "severity": "high"}]}
    urgent["compared"] = {"with": "2025-03-01T00:00:00Z", "reports": 2}
    text = flat(report_text(sweep_report(swept(section(), **urgent))))
    assert f"DO FIRST 1. #support-es: The till hangs · STILL OPEN 12 days {LINK}" in text


def test_patterns_name_markets_and_the_tracker_its_gaps() -> None:
    tracker = {"title": "Bugs", "status": "complete", "reason": "", "untracked": 2}
    told = {"status": "closed", "key": "BUG-7", "title": "Twice", "link": None}
    document = swept(
        section(finding(1, tracker=told), finding(2)),
        patterns=[{"text": "Cards", "findings": ["F1.1", "F1.2"], "markets": ["it", "es"]}],
        tracker={**tracker, "tracked": 1, "closed": 3},
        channels_added=["csm-cz"],
        notes=["The budget of the month is nearly used up."],
    )
    text = flat(report_text(sweep_report(document)))
    assert "PATTERNS ACROSS MARKETS · Cards (#it, #es) [1] [2]" in text
    assert "Tracker (Bugs): 2 not in it, 1 in it, 3 closed in it but still reported" in text
    assert "· New channels: #csm-cz · The budget of the month is nearly used up." in text
    assert "Tracker: BUG-7 Twice (closed in the tracker, still reported)" in text
    failed = {"title": "Bugs", "status": "failed", "reason": "The list is gone."}
    text = flat(report_text(sweep_report({**document, "tracker": failed})))
    assert "Tracker (Bugs): could not be read: The list is gone." in text


def test_top_lines_carry_numbers_and_counts() -> None:
    top = {
        "text": "Refund the double charge",
        "findings": ["F1.3", "F1.1", "F1.2"],
        "customers": 12,
        "messages": 1,
    }
    found = [finding(n, links=[f"{LINK}{n}"]) for n in (1, 2, 3)]
    lines = report_text(sweep_report(swept(section(*found), top_lines=[top]))).splitlines()
    start = lines.index("DO FIRST")
    assert lines[start + 1 : start + 3] == [
        "1. Refund the double charge (12 customers, 1 message) [1] [2] [3]",
        "",
    ]


def test_the_stand_in_says_what_it_is_and_the_model_does_not() -> None:
    offline = report_text(sweep_report(swept(section(), model="offline")))
    assert "not a language model" in offline
    assert "list prices" in offline
    assert "language model" not in report_text(sweep_report(swept(section())))


def test_an_unknown_price_is_told_as_unknown() -> None:
    assert "price unknown" in report_text(sweep_report(swept(section(), cost_usd=None)))


def test_many_gaps_are_cut_with_their_number() -> None:
    text = report_text(
        sweep_report(swept(section(), coverage=coverage(1, *(f"gap\n{n}" for n in range(14)))))
    )
    assert text.count("· gap") == 10
    assert "and 4 more" in text


def test_citations_become_numbers_in_the_order_of_the_text() -> None:
    text = ask_text(
        answer_document(
            asked(
                "Cards fail [F2.1]. Bills [F1.1; F2.1] too.\n\nMore [F9.9][F1.3].",
                {"F1.1": [LINK], "F2.1": [LINK + "2"], "F1.3": []},
            )
        )
    )
    assert "Cards fail [1]. Bills [2][1] too." in text
    assert text.index(f"[1] {LINK}2") < text.index(f"[2] {LINK}")
    assert "F9.9" not in text
    assert "1 of 2 statements cited" in text


def test_an_answer_of_one_context_says_so() -> None:
    assert "isolation is advisory" in ask_text(answer_document(asked("x", {}, degraded=True)))
    assert "Sources" not in ask_text(answer_document(asked("x", {})))


def test_a_stored_run_lists_how_its_subagents_ended() -> None:
    at = datetime(2025, 3, 15, tzinfo=UTC)
    run = StoredRun("abc123", "sweep", "partial", "sweep *", "claude", {}, at)
    late = {**RESULT, "status": "failed", "reason": "late", "steps": 2, "tool_calls": [{}]}
    draft = BriefDraft(task="Read it", description="Read #support-es", scope="slack")
    spawned = SpawnedBrief(
        "s1",
        Brief(draft, Handles({}), None, TRUSTED),
        delimiter="abc",
        model="fast",
        system=(),
        tools=(),
        template="slack/issues@1",
        parent="p1",
        seconds=60.0,
        spare=10.0,
    )
    brief = brief_to_json(spawned)
    first = StoredSubagent("abc123", "s1", 1, brief, "slack/issues@1", late, "failed", "time", None)
    text = flat(run_text(run, [first, replace(first, id="s2", result=None)]))
    assert "s1 failed/time (late) · slack/issues@1 · 2 model calls, 1 tool call, 0 findings" in text
    assert "s2 failed/time · " in text


def test_lines_are_as_wide_as_a_terminal_and_links_stay_whole() -> None:
    long = finding(1, claim="word " * 100, links=[LINK + "x" * 100])
    for line in report_text(sweep_report(swept(section(long)))).splitlines():
        assert len(line) <= WIDTH or "https://" in line
    assert LINK + "x" * 100 in report_text(sweep_report(swept(section(long))))


@given(st.text())
def test_nothing_that_is_printed_steers_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert len(shown) == len(text)
    assert [c for c in shown if c.isalnum()] == [c for c in text if c.isalnum()]


def test_what_people_write_with_is_printed_as_it_is() -> None:
    for text in ("a\tb\nc", "👩‍👩‍👧 é ß 漢字", "می‌خواهم", "Łódź — «ok»"):
        assert printable(text) == text


def test_a_document_is_not_changed_by_being_shown() -> None:
    doc = swept(section(finding(1)))
    before = copy.deepcopy(doc)
    report_text(sweep_report(doc))
    assert doc == before
