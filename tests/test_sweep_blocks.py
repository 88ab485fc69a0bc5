"""A sweep in Slack: first what to do, the rest in the thread; within limits, and nothing acts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from document_kit import sweep_report
from hypothesis import given, settings
from report_kit import BEFORE, EVIL, LINK, finding, section, still, sweeps, swept
from slack_sdk.models.blocks import Block

from bot.local.slack.blocks import checked
from bot.local.slack.shown import flat
from bot.reports.slack import SHORT, report_parts
from bot.reports.sweep import sweep_view
from bot.reports.translations import languages
from bot.requests.delivery import render_answer
from bot.slack.blocks import MessagePart
from bot.storage.requests import StoredRequest
from config.settings import load_settings

Json = Mapping[str, Any]


def posted(document: Json, place: str = "findings.csv") -> tuple[MessagePart, ...]:
    """The messages of a report, after Slack's checks and those of its SDK."""
    parts = report_parts(sweep_report(document), place=place)
    for part in parts:
        assert checked([dict(block) for block in part.blocks])
        for block in Block.parse_all(json.loads(json.dumps(part.blocks))):
            block.validate_json()
        assert len(part.blocks) < 50  # buttons come below
        assert weight(part) <= 13_200
    return parts


def weight(part: MessagePart) -> int:
    return sum(len(flat(block)) for block in part.blocks)


def shown(part: MessagePart) -> str:
    return "\n".join(map(flat, part.blocks))


def whole(document: Json) -> str:
    return "\n".join(map(shown, posted(document)))


def inside(value: Any) -> Iterator[Json]:
    """Every object of the blocks, however deep."""
    if isinstance(value, Mapping):
        yield value
    each = value.values() if isinstance(value, Mapping) else value
    if not isinstance(each, str | int | None):
        for one in each:
            yield from inside(one)


# ---- what is told


def five_markets() -> Json:
    first = {"customers": 12, "messages": 30, "links": []}
    return swept(
        section("csm-fr", finding("F1.1", change="new"), finding("F1.2", "waiting")),
        section(
            "csm-es",
            finding("F2.1", "unanswered", change="open", age_days=12, owner="Ana Ruiz"),
            finding("F2.2", "solved", change="solved"),
            finding("F2.3", severity="low", change="reopened"),
        ),
        section("csm-de", summary="No issues in 12 threads."),
        title="weekly-emea",
        compared=BEFORE,
        top_lines=[
            {"text": f"Do {n}", "findings": ids, **first}
            for n, ids in enumerate((["F2.1", "F1.1"], ["F1.1"], ["F2.3"]), 1)
        ],
        patterns=[
            {
                "text": "Cards are charged twice",
                "findings": ["F1.1", "F2.1"],
                "markets": ["csm-fr", "csm-es"],
            }
        ],
        tracker={
            "id": "F1",
            "title": "Bugs",
            "status": "complete",
            "reason": "",
            "read": 9,
            **{"untracked": 2, "tracked": 0, "closed": 1},
        },
        channels_added=["csm-de"],
        still_open=[still()],
    )


def test_the_first_message_says_what_to_do_and_the_thread_tells_each_market() -> None:
    first, france, spain, quiet, foot = posted(five_markets())
    told = shown(first).splitlines()
    assert told[:3] == [
        "Customer issues: weekly-emea",
        "**4 open (2 high) · 1 new, 2 still open for up to 12 days, 1 solved, 1 reopened"
        " · compared with the report up to 1 Mar 2025**",
        "1 Mar 2025 to 15 Mar 2025 · 3 channels · 120 messages in 36 threads read",
    ]
    document = five_markets()
    link = {f["id"]: f["links"][0] for s in document["sections"] for f in s["findings"]}
    text = shown(first)
    assert f"1. Do 1 (12 customers, 30 messages) [1]({link['F1.1']}) [3]({link['F2.1']})" in text
    assert "- Cards are charged twice · **#csm-fr, #csm-es**" in text
    assert "- Tracker (Bugs): 2 not in it, 0 in it, 1 closed in it but still reported" in text
    assert "- New channels: #csm-de" in text
    assert "- ● **#csm-fr**  1 open (1 high), 1 new · 40 messages in 12 threads read" in text
    assert "- – **#csm-de**  no open issue · 40 messages in 12 threads read" in text
    assert shown(france).startswith("#csm-fr\n")
    assert shown(spain).startswith("#csm-es\n")
    assert "Still open, no news in this window" in shown(quiet)
    assert "#csm-es** · 12 days · unanswered · The till hangs · nobody" in shown(quiet)
    assert shown(foot).endswith("$0.1234 · 12,345 tokens · run abc123")


def test_a_finding_is_told_with_all_that_its_reader_needs() -> None:
    one = finding(
        "F1.1",
        change="open",
        age_days=12,
        owner="Ana Ruiz",
        customers=["A", "B", "C", "D", "E"],
        tracker={"status": "closed", "key": "BUG-1402", "title": "Twice", "link": f"{LINK}9"},
    )
    lines = whole(swept(section("csm-es", one), compared=BEFORE)).splitlines()
    start = next(n for n, line in enumerate(lines) if "**● 1. STILL OPEN 12 days**" in line)
    assert lines[start : start + 7] == [
        f"**● 1. STILL OPEN 12 days** · unsolved · **Issue F1.1** · [open]({one['links'][0]})",
        "> No funciona el pago.",
        "A, B, C, D and 1 more · 2 messages · since 4 Mar 2025",
        "Owner: **Ana Ruiz**",
        "→ Answer Ana.",
        "Severity high: money is lost",
        f"Tracker: [BUG-1402 Twice (closed in the tracker, still reported)]({LINK}9)",
    ]


@pytest.mark.parametrize(
    ("change", "state", "mark"),
    [
        ("new", "unsolved", "● 1. NEW"),
        ("changed", "unsolved", "● 1. CHANGED"),
        ("reopened", "unanswered", "● 1. REOPENED"),
        ("solved", "solved", "✓ 1. SOLVED"),
        (None, "unsolved", "● 1."),
    ],
)
def test_what_became_of_it_since_the_last_report_stands_before_it(
    change: str | None, state: str, mark: str
) -> None:
    one = finding("F1.1", state, change=change)
    assert f"**{mark}**" in whole(swept(section("a", one), compared=BEFORE))


def test_in_a_first_report_nothing_is_called_new() -> None:
    text = whole(swept(section("a", finding("F1.1", change="new"))))
    assert "NEW" not in text
    assert "1 new" not in text


def test_what_was_not_read_is_never_called_free_of_issues() -> None:
    bad = section("csm-es", status="failed", summary="Slack gave no answer.")
    document = swept(bad, section("csm-fr", finding("F1.1")), status="partial")
    document["coverage"]["not_covered"] = [f"gap {n}" for n in range(9)]
    text = whole(document)
    assert "no open issue" not in text
    assert "**#csm-es**  40 messages in 12 threads read (not read)" in text
    assert "not complete" in text
    assert [text.count(f"gap {n}") for n in range(9)] == [1] * 9


def test_a_market_with_nothing_but_old_issues_is_never_called_free_of_them() -> None:
    old = [still(), still("The printer is dead", severity="high")]
    first = shown(posted(swept(section("csm-es"), compared=BEFORE, still_open=old))[0])
    assert "no open issue" not in first
    assert "● **#csm-es**  2 open (1 high)" in first


def test_a_report_without_issues_is_one_message() -> None:
    (part,) = posted(swept(section("csm-es")))
    assert "0 open" in shown(part)
    assert "no open issue" in shown(part)
    assert "run abc123" in shown(part)


def test_a_document_stored_before_reports_were_compared_is_shown() -> None:
    new = ("title", "language", "compared", "tracker", "patterns", "still_open", "counts", "notes")
    old = {k: v for k, v in swept(section("a", finding("F1.1"))).items() if k not in new}
    one = old["sections"][0]["findings"][0]
    for key in ("issue", "change", "first", "age_days", "tracker", "threads"):
        del one[key]
    assert "Issue F1.1" in whole(old)


def test_a_tracker_that_could_not_be_read_is_said_to_be_so() -> None:
    tracker = {"title": "Bugs", "status": "failed", "reason": "The bot cannot open the list."}
    text = whole(swept(section("a", finding("F1.1")), tracker=tracker))
    assert "Tracker (Bugs): could not be read: The bot cannot open the list." in text
    assert "not in" not in text


def test_as_an_answer_it_has_feedback_buttons_below_and_says_where_the_rest_is() -> None:
    request = StoredRequest("T1", "C1", "1.2", "1.2", "U1", "mention", {"text": "sweep *"})
    many = section("a", *(finding(f"F1.{n}") for n in range(310)))
    shown_as = render_answer(sweep_report(swept(many)), request, load_settings(env={}), 2.0)
    *before, last = shown_as.parts
    assert last.blocks[-1]["type"] == "context_actions"
    assert not [b for part in before for b in part.blocks if b["type"] == "context_actions"]
    said = sweep_view(sweep_report(swept(many))).notification
    assert shown_as.parts[0].text == said
    text = "\n".join(map(shown, shown_as.parts))
    assert "10 more, left out here: assistant show abc123 --json" in text


# ---- languages


def placeholders(words: Any) -> set[str]:
    texts = words if isinstance(words, list) else [words]
    return {name for text in texts for name in re.findall(r"{(\w+)}", text)}


@pytest.mark.parametrize("language", languages())
def test_every_language_has_all_words_with_what_they_are_about(language: str) -> None:
    english, other = languages()["en"], languages()[language]
    assert {k: placeholders(v) for k, v in other.items()} == {
        k: placeholders(v) for k, v in english.items()
    }
    assert len(other["months"]) == 12


@pytest.mark.parametrize(
    ("language", "said"),
    [
        ("de", ["4 offen (2 dringend)", "NOCH OFFEN, 12 Tage", "niemand", "1. März 2025"]),
        ("es", ["abiertos: 4", "SIGUE ABIERTO 12 días", "nadie", "del 1 mar 2025 al 15 mar"]),
        ("cs", ["otevřené: 4", "STÁLE OTEVŘENÉ 12 dní", "3 kanály", "nikdo"]),
        ("pt-BR", ["abertos: 4", "AINDA ABERTO 12 dias", "ninguém"]),
        ("ja", ["4 open (2 high)"]),
    ],
)
def test_the_words_of_a_report_are_those_of_its_readers(language: str, said: list[str]) -> None:
    text = whole({**five_markets(), "language": language})
    assert [words for words in said if words not in text] == []
    assert "No funciona el pago." in text


# ---- limits


@given(sweeps())
@settings(max_examples=60, deadline=None)
def test_slack_takes_any_report(document: Json) -> None:
    for part in posted(document):
        assert part.text


def two_hundred(**words: str) -> Json:
    """As many channels with twenty findings each, and as many gaps; much is open without news."""
    sections = [
        section(f"market-{k}", *(finding(f"F{k}.{n}", **words) for n in range(20)))
        for k in range(200)
    ]
    old = [still(f"Old {n}") for n in range(500)]
    document = swept(*sections, compared=BEFORE, still_open=old)
    document["coverage"]["not_covered"] = [f"market-{k}: some of it" for k in range(200)]
    return document


@pytest.mark.parametrize("words", ["It fails & fails.", "& < > " * 60])
def test_two_hundred_channels_are_a_short_first_message_and_a_bounded_thread(words: str) -> None:
    document = two_hundred(claim=words, next_step=words, severity_reason=words)
    parts = posted(document)
    assert weight(parts[0]) <= SHORT
    text = "\n".join(map(shown, parts))
    told = len(re.findall(r"\*\*● \d+\.\*\*", text))
    left = sum(map(int, re.findall(r"(\d+) more, left out here: findings.csv", text)))
    assert told == 200
    assert told + left == 4_000
    assert "Old 99" in text
    assert "and 400 more" in text
    assert "market-0: 40 messages" in text


def test_a_few_findings_too_many_are_counted_in_their_market() -> None:
    parts = posted(swept(section("a", *(finding(f"F1.{n}") for n in range(310)))), "the file")
    text = "\n".join(map(shown, parts))
    assert "10 more, left out here: the file" in text


# ---- nothing acts


ALLOWED = {
    "rich_text": {"elements"},
    "rich_text_section": {"elements"},
    "rich_text_list": {"elements", "style"},
    "rich_text_quote": {"elements"},
    "text": {"text", "style"},
    "link": {"url", "text"},
    "plain_text": {"text", "emoji"},
    "header": {"text"},
    "context": {"elements"},
}


@given(sweeps())
@settings(max_examples=60, deadline=None)
def test_nothing_in_a_report_acts_but_links_to_slack(document: Json) -> None:
    for part in posted(document):
        for each in inside(part.blocks):
            kind = each.get("type")
            assert kind is None or {*each} - {"type"} <= ALLOWED[kind], each
            assert kind != "link" or each["url"].startswith("https://acme.slack.com/")
            assert kind != "plain_text" or each["emoji"] is False


def test_the_text_for_notifications_is_numbers_alone() -> None:
    document = swept(
        section(EVIL, finding("F1.1", change="new", claim=EVIL, owner=EVIL)),
        title=EVIL,
        notes=[EVIL],
        top_lines=[],
        compared=BEFORE,
    )
    told = "Sweep, 1 channel: 1 open (1 high) · 1 new · compared with the report up to 1 Mar 2025."
    assert sweep_view(sweep_report(document)).notification == told
    assert [part.text for part in posted(document)] == [
        told,
        "Sweep, part 2 of 3",
        "Sweep, part 3 of 3",
    ]


def test_only_a_link_of_slacks_own_is_one() -> None:
    links: Sequence[str] = (
        "https://acme.slack.com.evil.example/archives/C1/p1",
        "https://evil.example/https://acme.slack.com/archives/C1/p1",
        "https://user@acme.slack.com/archives/C1/p1",
        "http://acme.slack.com/archives/C1/p1",
    )
    findings = [finding(f"F1.{n}", links=[link]) for n, link in enumerate(links)]
    parts = posted(swept(section("a", *findings)))
    assert [e for p in parts for e in inside(p.blocks) if e.get("type") == "link"] == []
