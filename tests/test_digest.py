"""A digest as text: its order and matters, no thread lost, and no active content."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from digest_kit import CATEGORIES, LINK, triage, triages, verdict
from document_kit import triage_report
from hypothesis import given, settings
from standins.slack_shown import flat

from bot.reports.digest import MAX_UNFOLDED_ROWS, TOP, digest_view, summary
from bot.reports.formats import sender
from bot.reports.slack import report_parts
from bot.reports.text import WIDTH, report_text, thread_text
from bot.reports.view import Entry, Group, ReportSection
from bot.tasks.reports import report_words
from bot.terminal import without_bold
from config.words import phrase
from scopes.clean import unseen

NEEDS, URGENT = phrase("digest.needs"), phrase("digest.urgent")
CAN_WAIT, OTHERS = phrase("digest.can_wait"), phrase("digest.others")
FILTERED, UNREAD = phrase("digest.filtered"), phrase("digest.unread")


NOW = datetime(2025, 3, 15, 9, tzinfo=UTC)
Json = Mapping[str, Any]


def sections(document: Json) -> tuple[ReportSection, ...]:
    return digest_view(triage_report(document), CATEGORIES).sections


def text_of(document: Json) -> str:
    return without_bold(report_text(triage_report(document)))


def ids(group: Group) -> list[str]:
    return [entry.id for entry in group.entries]


def presses(section: ReportSection) -> bool:
    return section.title.startswith((NEEDS, URGENT))


def pressing_ids(document: Json) -> list[list[str]]:
    return [ids(group) for each in sections(document) if presses(each) for group in each.groups]


def waiting_ids(document: Json) -> list[list[str]]:
    found = [each for each in sections(document) if each.title.startswith(CAN_WAIT)]
    return [ids(group) for each in found for group in each.groups]


def threads(document: Json) -> list[Entry]:
    groups = [group for each in sections(document) for group in each.groups]
    return [entry for group in groups for entry in group.entries if entry.number]


# ---- order


def test_threads_that_need_you_come_first_then_urgent_ones_then_the_rest_by_category() -> None:
    document = triage(
        verdict("calm", category="invoice"),
        verdict("asked", asked_of_me=True, priority="low", category="news"),
        verdict("urgent", priority="high", category="other"),
        verdict("mail", category="customer"),
        verdict("odd", category="an unknown one"),
        verdict("team", category="colleague"),
        verdict("due", priority="high", deadline="2025-06-30", category="invoice"),
    )
    titles = [each.title for each in sections(document) if presses(each)]
    assert titles == [f"{NEEDS} (2)", f"{URGENT} (1)"]
    assert pressing_ids(document) == [["due", "asked"], ["urgent"]]
    assert waiting_ids(document) == [["mail", "team", "calm", "odd"]]


def test_pressing_threads_are_ordered_by_deadline_and_waiting_time() -> None:
    for_me = {"asked_of_me": True}
    document = triage(
        verdict("later", priority="high", deadline="2025-03-20"),
        verdict("old", priority="high", at="2025-03-10T00:00:00Z", **for_me),
        verdict("far", priority="medium", deadline="2025-06-30", **for_me),
        verdict("young", priority="high", at="2025-03-14T00:00:00Z", **for_me),
        verdict("today", priority="medium", deadline="2025-03-15", **for_me),
        verdict("over", priority="low", deadline="2025-03-14", **for_me),
        verdict("forgotten", priority="low", deadline="2025-01-14", **for_me),
    )
    order = ["over", "today", "old", "young", "later", "far", "forgotten"]
    assert [i for group in pressing_ids(document) for i in group] == order


def test_first_five_threads_are_shown_in_full_and_the_rest_folded() -> None:
    needs = [
        verdict(f"n{day}", asked_of_me=True, at=f"2025-03-{day:02}T08:00:00Z", deadline=due)
        for day, due in ((13, "2025-03-16"), *((day, None) for day in range(1, 13)))
    ]
    calm = [
        verdict(f"c{day}", at=f"2025-03-{day:02}T08:00:00Z")
        for day in range(1, MAX_UNFOLDED_ROWS + 2)
    ]
    shown = sections(triage(*needs, *calm))
    assert [(each.title, each.fold and each.fold.text) for each in shown] == [
        (f"{NEEDS} (13)", None),
        (f"{CAN_WAIT} ({MAX_UNFOLDED_ROWS + 1})", f"Show {MAX_UNFOLDED_ROWS + 1}"),
    ]
    full, rest = shown[0].groups
    assert ids(full) == ["n13", "n1", "n2", "n3", "n4"]
    assert (full.fold, rest.fold and rest.fold.text) == (None, "Show 8 more")
    assert ids(rest) == [f"n{day}" for day in range(5, 13)]
    short = sections(triage(*needs[:5], *calm[1:]))
    assert not any(each.fold or any(g.fold for g in each.groups) for each in short)


def test_top_line_keeps_its_main_thread_out_of_can_wait() -> None:
    first = {"text": "Answer the plain one.", "findings": ["F1.1"], "threads": ["plain", "gone"]}
    both = {"text": "Answer it.", "findings": [], "threads": ["asks", "tells"]}
    document = triage(
        verdict("plain", priority="low"),
        verdict("tells"),
        verdict("asks", asked_of_me=True),
        top_lines=[first, both],
        matters=[{"text": "One outage", "threads": ["asks", "tells"]}],
    )
    assert pressing_ids(document) == [["plain", "asks"]]
    assert waiting_ids(document) == [["tells"]], "the thread that asks nothing can wait"
    assert summary(triage_report(document)) == "3 threads: 2 need you, 1 can wait."
    assert "1. Answer the plain one. [1]\n" in text_of(document)


# ---- matters


def test_matter_is_shown_once_with_its_other_threads_folded_below() -> None:
    for_me = {"asked_of_me": True}
    document = triage(
        *(verdict(f"alone{n}", deadline="2025-03-15", **for_me) for n in range(3)),
        verdict("first", deadline="2025-03-14", **for_me),
        verdict("second", deadline="2025-03-14", **for_me),
        *(verdict(f"late{n}", **for_me) for n in range(4)),
        verdict("calm"),
        matters=[{"text": "The outage", "threads": ["first", "late0", "calm", "late1", "second"]}],
    )
    assert pressing_ids(document) == [
        ["first", "second"],
        ["late0", "late1"],
        ["alone0", "alone1", "alone2"],
        ["late2", "late3"],
    ]
    (section,) = (each for each in sections(document) if presses(each))
    assert [group.title for group in section.groups] == [
        *("The outage (threads 1 to 4)", "", OTHERS, ""),
    ]
    assert [group.fold and group.fold.text for group in section.groups] == [
        *(None, "Show 2 more", None, "Show 2 more"),
    ]
    assert text_of(document).count("The outage") == 1


# ---- completeness


@given(triages())
@settings(max_examples=30, deadline=None)
def test_every_thread_appears_exactly_once(document: Json) -> None:
    shown, ids = threads(document), sorted(v["thread_id"] for v in document["verdicts"])
    assert sorted(entry.id for entry in shown) == ids
    assert [entry.number for entry in shown] == list(range(1, len(shown) + 1))
    for title, some in ((FILTERED, "filtered"), (UNREAD, "unreadable")):
        lists = [s.groups[0].entries for s in sections(document) if s.title.startswith(title)]
        counts = [re.findall(r" \((\d+)\): ", str(e.row[0]))[0] for rows in lists for e in rows]
        assert sum(map(int, counts)) == len(document[some])
    text = report_text(triage_report(document), CATEGORIES)
    assert sorted(re.findall(r"#all/(\S+)", text)) == ids
    for entry in shown[-1:]:
        assert entry.url in thread_text(triage_report(document), entry.number, CATEGORIES)
    assert all(len(line) <= WIDTH for line in text.splitlines() if LINK not in line)
    assert text.encode()


# ---- one thread


def test_draft_is_shown_in_full_or_only_announced_as_ready() -> None:
    draft = "Dear Lena,\n\n" + "All is well. " * 20 + "\n\nAna"
    many = [verdict(f"a{n}", asked_of_me=True, draft_reply=draft) for n in range(TOP + 1)]
    document = triage_report(triage(*many))
    text = without_bold(report_text(document))
    assert text.count("> Ana\n") == TOP
    assert "…" not in text
    last = text.partition(f"{TOP + 1}. Waiting")[2]
    assert phrase("digest.draft_ready") in last
    assert "Dear Lena" in thread_text(document, TOP + 1)
    slack = "\n".join(flat(b) for part in report_parts(document) for b in part.blocks)
    assert slack.count("> Ana") == TOP
    long = triage_report(triage(verdict("a", asked_of_me=True, draft_reply=draft * 9)))
    (block,) = (b for b in report_parts(long)[0].blocks if "Lena Brandt" in flat(b))
    assert "Dear Lena" not in flat(block)
    assert phrase("digest.draft_ready") in flat(block)


@pytest.mark.parametrize(
    ("header", "full", "plain"),
    [
        ("Lena Brandt <lena@nordlicht.example>", "Lena Brandt (nordlicht.example)", "Lena Brandt"),
        ("service@paypal.com <x@evil.example>", "service@paypal.com (evil.example)", ""),
        ("Bank (bank.example) <x@bank.io>", "Bank (bank.example) (bank.io)", ""),
        ("Acme IT Support <x@evil.example>", "Acme IT Support (evil.example)", ""),
        ("Acme IT <it@acme.example>", "Acme IT (acme.example)", "Acme IT"),
        ("Acmeron Ltd <x@acmeron.example>", "Acmeron Ltd (acmeron.example)", "Acmeron Ltd"),
        (
            "PayPal <x@p\u0430ypal.com>",  # a Cyrillic letter
            "PayPal (p\u0430ypal.com [written out: p\\u0430ypal.com])",
            "PayPal",
        ),
        ("", "unknown sender", ""),
    ],
)
def test_misleading_sender_name_is_shown_with_the_domain(
    header: str, full: str, plain: str
) -> None:
    found = sender(header, "ana@acme.example")
    assert (found.full, found.plain) == (full, plain or full)


def test_thread_with_a_warning_shows_the_senders_domain() -> None:
    assert "Lena Brandt: Export stuck · 2 d" in text_of(triage(verdict("a")))
    flagged: Json = {"flags": ["has hidden text"], "status": "partial", "key_facts": ["Pay."]}
    text = text_of(triage(verdict("a", **flagged)))
    assert "Lena Brandt (nordlicht.example): Export stuck · ⚠ read in part · ⚠ has hidden" in text
    text = text_of(triage(verdict("a", priority="high", **flagged)))
    assert "   ⚠ read in part\n   ⚠ has hidden text\n   Pay.\n" in text


# ---- text of strangers


NASTY = (
    "See https://evil.example/x \u202eor\x1b[31m [F9.9] <!here> sk-ant-api03-abcdefghij1234567890"
    "\nDO FIRST\n1. Pay."
)


def test_text_from_mails_cannot_control_the_terminal_or_add_links() -> None:
    document = triage(
        verdict(
            "a",
            sender=f"{NASTY} <a@evil.example>",
            subject=NASTY,
            key_facts=[NASTY],
            proposed_action=NASTY,
            draft_reply=NASTY,
            flags=[NASTY],
            category=NASTY,
            asked_of_me=True,
        ),
        verdict("b", category=NASTY),
        top_lines=[{"text": NASTY, "findings": [], "threads": ["a"]}],
        filtered=[{"thread_id": "f", "subject": NASTY, "sender": NASTY, "reason": NASTY}],
        unreadable=[{"thread_id": "u", "subject": NASTY, "reason": NASTY}],
    )
    text = text_of(document)
    assert not [c for c in text if unseen(c) and c != "\n"]
    assert set(re.findall(r"https?://[^/\s]+", text)) == {"https://mail.google.com"}
    assert "sk-ant" not in text
    assert text.splitlines().count("DO FIRST") == 1, "no line of a mail poses as a heading"
    assert text_of(triage(verdict("a", subject=" \u200b\u202e "))).count(": (no subject) ·") == 1
    words = report_words(triage_report(document))
    assert not re.search(r"\[F9|https?://|sk-ant|\x1b", words)


@pytest.mark.parametrize(
    "link",
    [None, "", "https://evil.example/", "https://mail.google.com.evil.example/", "javascript:1"],
)
def test_only_links_to_gmail_are_shown(link: str | None) -> None:
    text = text_of(triage(verdict("a", link=link, priority="high"), verdict("b", link=link)))
    assert "://" not in text
    assert "javascript" not in text
