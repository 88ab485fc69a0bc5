"""Reports in Slack: within its limits, the urgent part first, nothing lost, and nothing acts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from digest_kit import CATEGORIES, triage, triages, verdict
from digest_kit import LINK as MAIL
from document_kit import gaps_of, sweep_report, triage_report
from hypothesis import given, settings
from report_kit import BEFORE, EVIL, finding, section, still, sweeps, swept
from report_kit import LINK as SLACK
from slack_sdk.models.blocks import Block
from slack_sdk.models.views import View
from standins.slack_blocks import check_blocks
from standins.slack_shown import flat

from bot.reports.digest import digest_view
from bot.reports.digest_actions import (
    CORRECT,
    LABEL,
    SHOW,
    DigestClick,
    blocks_after,
    digest_click,
)
from bot.reports.frame import DETAILS
from bot.reports.slack import MAX_BLOCKS, details_view, render_opened, report_parts
from bot.reports.sweep import sweep_view
from bot.reports.text import report_text
from bot.requests.delivery import render_answer
from bot.slack.messages import MessagePart
from bot.storage.requests import StoredRequest
from config.settings import load_settings

ANA, CHANNEL, TS = "U0ANA", "D0ANA", "1741597200.000100"
Json = Mapping[str, Any]


def digest(document: Json) -> tuple[MessagePart, ...]:
    """The messages of a digest, after Slack's checks and those of its SDK."""
    parts = report_parts(triage_report(document), CATEGORIES)
    for part in parts:
        check(part.blocks)
    return parts


def unfold_digest(document: Json) -> tuple[MessagePart, ...]:
    """The messages of a digest, and those that its buttons open."""
    parts = digest(document)
    buttons = [c.button_value for part in parts for c in clicks(part) if c.what == SHOW]
    more = [render_opened(triage_report(document), CATEGORIES, each) for each in buttons]
    assert all(more)
    for each in (part for some in more for part in some):
        check(each.blocks)
        assert not any(click.what == SHOW for click in clicks(each))
    return (*parts, *(part for some in more for part in some))


def sweep_parts(document: Json) -> tuple[MessagePart, ...]:
    """The messages of a sweep, after the same checks."""
    parts = report_parts(sweep_report(document))
    for part in parts:
        check(part.blocks)
        assert len(part.blocks) < 50  # buttons come below
        assert weight(part) <= 13_200
    return parts


def check(blocks: Sequence[Json]) -> None:
    assert check_blocks([dict(block) for block in blocks])
    for block in Block.parse_all(json.loads(json.dumps(blocks))):
        block.validate_json()


def weight(part: MessagePart) -> int:
    return sum(len(flat(block)) for block in part.blocks)


def part_text(part: MessagePart) -> str:
    return "\n".join(map(flat, part.blocks))


def whole(document: Json) -> str:
    return "\n".join(map(part_text, sweep_parts(document)))


def details(document: Json) -> str:
    """The details of a sweep, which Slack takes."""
    view = details_view(sweep_report(document), load_settings(env={}).reply, 1.0)
    View(**view).validate_json()
    assert check_blocks(view["blocks"], 100)
    return "\n".join(map(flat, view["blocks"]))


def inside(value: Any) -> Iterator[Json]:
    """Every object of the blocks, however deep."""
    if isinstance(value, Mapping):
        yield value
    each = value.values() if isinstance(value, Mapping) else value
    if not isinstance(each, str | int | None):
        for one in each:
            yield from inside(one)


def links(parts: Sequence[MessagePart]) -> list[str]:
    return [e["url"] for p in parts for e in inside(p.blocks) if e.get("type") == "link"]


ALLOWED = {
    "rich_text": {"elements"},
    "rich_text_section": {"elements"},
    "rich_text_list": {"elements", "style", "offset"},
    "rich_text_quote": {"elements"},
    "text": {"text", "style"},
    "link": {"url", "text"},
    "table": {"rows"},
    "plain_text": {"text", "emoji"},
    "mrkdwn": {"text", "verbatim"},
    "header": {"text"},
    "context": {"elements"},
    "section": {"block_id", "text", "accessory"},
    "button": {"action_id", "value", "text"},
}
BUTTONS = {
    "actions": {"elements", "block_id"},
    "static_select": {"action_id", "placeholder", "options"},
}


def assert_nothing_acts(
    parts: Sequence[MessagePart], allowed: Mapping[str, set[str]], url: str
) -> None:
    for each in (e for part in parts for e in inside(part.blocks)):
        kind = each.get("type")
        assert kind is None or {*each} - {"type"} <= allowed[kind], each
        assert kind != "link" or each["url"].startswith(url)
        assert kind != "plain_text" or each["emoji"] is False


# ---- a digest


def clickable(part: MessagePart) -> list[Json]:
    """Its buttons and menus, but that of its details."""
    below = [e for block in part.blocks if block["type"] == "actions" for e in block["elements"]]
    below += [block["accessory"] for block in part.blocks if "accessory" in block]
    return [each for each in below if each["action_id"] != DETAILS]


def body(element: Json, option: Json | None = None) -> Json:
    chosen = {"selected_option": option} if option else {"value": element.get("value")}
    return {
        "type": "block_actions",
        "user": {"id": ANA},
        "container": {"channel_id": CHANNEL, "message_ts": TS},
        "actions": [{"action_id": element["action_id"], **chosen}],
    }


def clicks(part: MessagePart) -> Iterator[DigestClick]:
    """Every click that its buttons and menus allow."""
    for element in clickable(part):
        for option in element.get("options") or (None,):
            click = digest_click(body(element, option))
            assert click
            yield click


@given(triages())
@settings(max_examples=30, deadline=None)
def test_any_digest_is_valid_in_slack_after_each_click_and_otherwise_inert(
    document: Json,
) -> None:
    parts = unfold_digest(document)
    assert_nothing_acts(parts, {**ALLOWED, **BUTTONS}, MAIL)
    linked = [url.removeprefix(MAIL) for url in links(unfold_digest({**document, "top_lines": []}))]
    assert sorted(linked) == sorted(v["thread_id"] for v in document["verdicts"])
    for part in parts:
        blocks: Sequence[Json] = part.blocks
        for click in clicks(part):
            blocks = blocks_after(blocks, click, f"{click.what} was done. " * 50)
        check(blocks)
        assert len(blocks) <= MAX_BLOCKS
        assert not clickable(MessagePart("", tuple(map(dict, blocks))))


def test_digest_of_500_threads_is_one_message_with_consistent_counts() -> None:
    ranks = ("high", "medium", "low", "low")
    many = [
        verdict(
            f"{n:x}",
            subject=f"Matter {n}",
            sender=f"<!channel> *Bold* <b>{n}</b> <p{n}@shop.example>",
            priority=ranks[n % 4],
            asked_of_me=n % 5 == 0,
            category=CATEGORIES[n % len(CATEGORIES)],
            proposed_action="Do it. " * 30,
        )
        for n in range(400)
    ]
    filtered = [
        {"thread_id": f"f{n}", "subject": "S", "sender": f"N{n} <n@x.example>", "reason": "news"}
        for n in range(60)
    ]
    lost = [{"thread_id": f"u{n}", "subject": "", "reason": "it is damaged"} for n in range(40)]
    document = triage(*many, filtered=filtered, unreadable=lost)
    (first,) = digest(document)
    total, *numbers = re.findall(r"\d+", re.findall(r"500 threads: .*", part_text(first))[0])
    assert int(total) == sum(map(int, numbers)) == 500
    totals = re.findall(r"(?m)\((\d+)\)\**$", part_text(first))
    assert sum(map(int, totals)) == 500, "the titles of the sections"
    parts = unfold_digest(document)
    assert sorted(links(parts)) == sorted(v["link"] for v in many)
    for part in parts:
        assert len(part.blocks) < 50
        assert weight(part) <= 13_200
        assert "<!channel>" not in part.text
    assert_nothing_acts(parts, {**ALLOWED, **BUTTONS}, MAIL)
    text = "\n".join(map(part_text, parts))
    assert "N0, N1, " in text
    assert "(no subject)" in text


@pytest.mark.parametrize(
    "wrong",
    [
        {"actions": []},
        {"actions": [{"action_id": "action_approve", "value": "abc123/a1"}]},
        {"actions": [{"action_id": LABEL, "value": "abc123"}]},
        {"actions": [{"action_id": LABEL, "value": "abc123/a1/../b"}]},
        {"actions": [{"action_id": CORRECT, "value": "abc123/a1"}]},
        {"actions": [{"action_id": CORRECT, "selected_option": {"value": "abc/a1/status=x"}}]},
        {"user": {}},
    ],
)
def test_invalid_digest_clicks_are_ignored(wrong: Json) -> None:
    button = {"action_id": LABEL, "value": "abc123/a1"}
    assert digest_click(body(button))
    assert digest_click({**body(button), **wrong}) is None


def test_notification_text_shows_counts_and_no_source_text() -> None:
    first = [{"text": EVIL, "findings": [], "threads": ["a"]}]
    document = triage(
        verdict("a", subject=EVIL, sender=EVIL, category=EVIL, priority="high"),
        top_lines=first,
        filtered=[{"thread_id": "f", "subject": EVIL, "sender": EVIL, "reason": EVIL}],
        mailbox=EVIL,
    )
    text = "Mail triage. 2 threads: 1 needs you, 1 filtered."
    assert digest_view(triage_report(document)).notification == text
    assert [part.text for part in digest(document)] == [text]
    document = swept(
        section(EVIL, finding("F1.1", change="new", claim=EVIL, owner=EVIL)),
        title=EVIL,
        notes=[EVIL],
        compared=BEFORE,
    )
    counts = "1 open problem (1 urgent) · 1 new"
    text = f"Sweep, 1 channel: {counts} · compared with the report up to 1 Mar 2025."
    assert sweep_view(sweep_report(document)).notification == text
    assert [part.text for part in sweep_parts(document)] == [text, "Sweep, part 2 of 2"]


# ---- a sweep


@given(sweeps())
@settings(max_examples=30, deadline=None)
def test_any_sweep_report_is_valid_in_slack_and_links_only_to_slack(document: Json) -> None:
    parts = sweep_parts(document)
    assert all(part.text for part in parts)
    assert_nothing_acts(parts, ALLOWED, "https://acme.slack.com/")


def test_lookalike_slack_links_are_not_rendered() -> None:
    urls = (
        "https://acme.slack.com.evil.example/archives/C1/p1",
        "https://evil.example/https://acme.slack.com/archives/C1/p1",
        "https://user@acme.slack.com/archives/C1/p1",
        "http://acme.slack.com/archives/C1/p1",
    )
    findings = [finding(f"F1.{n}", links=[url]) for n, url in enumerate(urls)]
    assert links(sweep_parts(swept(section("a", *findings)))) == []


def test_unread_channels_are_never_reported_as_free_of_problems() -> None:
    bad = section("csm-es", status="failed", summary="Slack gave no answer.")
    tracker = {"title": "Bugs", "status": "failed", "reason": "The bot cannot open the list."}
    document = swept(bad, section("csm-fr", finding("F1.1")), status="partial", tracker=tracker)
    document["coverage"]["not_covered"] = gaps_of(*(f"gap {n}" for n in range(9)))
    text = whole(document)
    assert "no open problem" not in text
    assert "**#csm-es** not read · Slack gave no answer." in text
    assert "not complete" in text
    assert "not covered: gap 0 and 8 more" in text
    assert [details(document).count(f"gap {n}") for n in range(9)] == [1] * 9
    assert "Tracker (Bugs): could not be read: The bot cannot open the list." in text
    old = [still(), still("The printer is dead", severity="high")]
    first = part_text(sweep_parts(swept(section("csm-es"), compared=BEFORE, still_open=old))[0])
    assert "no open problem" not in first
    assert "● **#csm-es** 2 open problems (1 urgent)" in first
    assert "No threads." in part_text(digest(triage())[0])


def test_stopped_report_states_its_coverage_once() -> None:
    gap = {"reason": "it was stopped", "stopped_by": "user"}
    channels = [section("a"), *(section(f"b{n}", status="cancelled") for n in range(2))]
    sweep = swept(*channels, status="cancelled")
    sweep["coverage"] |= {"items": 3, "complete": 1, "partial": 0, "cancelled": 2}
    sweep["coverage"]["not_covered"] = [{**gap, "source": f"b{n}"} for n in range(2)]
    lost = [{"thread_id": "c", "subject": "C", "reason": "it was stopped"}]
    mail = triage(verdict("a"), verdict("b"), unreadable=lost, status="cancelled")
    mail["coverage"] |= {"unreached": 3, "not_covered": [{**gap, "source": "C"}]}
    swept_line = "Stopped after 1 of 3 channels; 2 were not looked at."
    mail_line = "Stopped after 2 of 6 threads; 4 were not looked at."
    for text, line in (
        (whole(sweep), swept_line),
        (report_text(sweep_report(sweep)), swept_line),
        ("\n".join(map(part_text, digest(mail))), mail_line),
    ):
        assert text.count("Stopped after") == text.count(line) == 1
        assert "not covered" not in text.lower()
    sweep["coverage"] |= {"complete": 3, "cancelled": 0}
    assert "Stopped after all 3 channels." in whole(sweep)


def test_long_sweep_answer_has_feedback_buttons_only_in_its_last_message() -> None:
    request = StoredRequest("T1", "C1", "1.2", "1.2", "U1", "mention", {"text": "sweep *"})
    many = swept(section("a", *(finding(f"F1.{n}") for n in range(310))))
    messages = render_answer(sweep_report(many), request, load_settings(env={}))
    last_blocks = [part.blocks[-1]["type"] == "context_actions" for part in messages]
    assert last_blocks == [False] * (len(messages) - 1) + [True]


def test_first_message_has_six_top_lines_and_later_ones_have_the_rest() -> None:
    numbers = range(1, 17)
    found = [finding(f"F1.{n}", customers=[f"Bar {n}"]) for n in numbers]
    lines = [
        {"text": f"Eva Sol: call Bar {n}, {'& < > ' * 200}", "findings": [f"F1.{n}"]}
        for n in numbers
    ]
    first, *rest = map(part_text, sweep_parts(swept(section("a", *found), top_lines=lines)))
    assert [n for n in numbers if f"call Bar {n}," in first] == [1, 2, 3, 4, 5, 6]
    assert all(f"call Bar {n}," in "".join(rest) for n in numbers[6:])


def test_many_closed_issues_of_one_channel_fit_into_messages() -> None:
    fields = {"claim": "It is long since solved. " * 4, "links": [f"{SLACK}?thread_ts=1.2&cid=C1"]}
    closed = (finding(f"F1.{n}", "solved", customers=[f"Bar {n}"], **fields) for n in range(200))
    assert "\n- Bar 199: It is long since solved" in whole(swept(section("a", *closed)))


def test_report_on_100_channels_begins_with_decisions_and_has_a_bounded_thread() -> None:
    words = "& < > " * 60
    fields = {"claim": words, "next_step": words, "severity_reason": words}
    sections = [
        section(f"market-{k}", *(finding(f"F{k}.{n}", **fields) for n in range(4)))
        for k in range(100)
    ]
    decisions = [{"text": "Whether the fee is paid", "findings": ["F1.1"]}]
    old = [still(f"Old {n}") for n in range(120)]
    document = swept(*sections, compared=BEFORE, still_open=old, decisions=decisions)
    document["coverage"]["not_covered"] = gaps_of(*(f"market-{k}: some of it" for k in range(100)))
    parts = sweep_parts(document)
    assert "Whether the fee is paid" in part_text(parts[0])
    text = "\n".join(map(part_text, parts))
    assert "and 75 more\n" in text  # of the markets
    assert len(set(re.findall(r"^(\d+)\. [●◐] ", text, re.MULTILINE))) == 300
    assert "100 more, left out here: `assistant show abc123 --json`" in text
    assert "Old 99" in text
    assert "and 20 more" in text
    assert "not covered: market-0: some of it and 99 more" in text
    assert "market-0: 40 messages" in details(document)
