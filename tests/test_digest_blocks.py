"""A digest in Slack: within Slack's limits, its buttons name threads, and no mail acts in it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from digest_kit import CATEGORIES, LINK, triage, triages, verdict
from document_kit import triage_report
from hypothesis import given, settings
from slack_sdk.models.blocks import Block

from bot.local.slack.blocks import checked
from bot.local.slack.shown import flat
from bot.reports.digest import digest_view
from bot.reports.digest_actions import (
    ACTIONS,
    ASKED,
    CATEGORY,
    CORRECT,
    DRAFT,
    LABEL,
    PRIORITY,
    SNOOZE,
    DigestClick,
    blocks_after,
    digest_click,
)
from bot.reports.slack import MAX_BLOCKS, report_parts
from bot.slack.blocks import MessagePart

ANA, CHANNEL, TS = "U0ANA", "D0ANA", "1741597200.000100"
Json = Mapping[str, Any]


def posted(document: Json) -> tuple[MessagePart, ...]:
    """The messages of a digest, after Slack's checks and those of its SDK."""
    parts = report_parts(triage_report(document), CATEGORIES)
    for part in parts:
        check(part.blocks)
    return parts


def check(blocks: Sequence[Json]) -> None:
    assert checked([dict(block) for block in blocks])
    for block in Block.parse_all(json.loads(json.dumps(blocks))):
        block.validate_json()


def inside(value: Any) -> Iterator[Json]:
    """Every object of the blocks, however deep."""
    if isinstance(value, Mapping):
        yield value
    each = value.values() if isinstance(value, Mapping) else value
    if not isinstance(each, str | int | None):
        for one in each:
            yield from inside(one)


def clickable(part: MessagePart) -> list[Json]:
    return [e for block in part.blocks if block["type"] == "actions" for e in block["elements"]]


def body(element: Json, option: Json | None = None, **more: Any) -> Json:
    chosen = {"selected_option": option} if option else {"value": element.get("value")}
    return {
        "type": "block_actions",
        "user": {"id": ANA},
        "container": {"channel_id": CHANNEL, "message_ts": TS},
        "actions": [{"action_id": element["action_id"], **chosen}],
        **more,
    }


def clicks(part: MessagePart) -> Iterator[DigestClick]:
    """Every click that its buttons and menus allow."""
    for element in clickable(part):
        for option in element.get("options") or (None,):
            click = digest_click(body(element, option))
            assert click
            yield click


def shown(part: MessagePart) -> str:
    return "\n".join(map(flat, part.blocks))


# ---- limits


@given(triages())
@settings(max_examples=60, deadline=None)
def test_slack_takes_any_digest_also_after_each_click_in_it(document: Json) -> None:
    for part in posted(document):
        blocks: Sequence[Json] = part.blocks
        for click in clicks(part):
            blocks = blocks_after(blocks, click, f"{click.what} was done. " * 50)
        check(blocks)
        assert len(blocks) <= MAX_BLOCKS
        assert not [block for block in blocks if block["type"] == "actions"]


@given(triages())
@settings(max_examples=60, deadline=None)
def test_each_thread_is_linked_once_besides_the_things_to_do_first(document: Json) -> None:
    links = [
        leaf["url"].removeprefix(LINK)
        for part in posted({**document, "top_lines": []})
        for leaf in inside(part.blocks)
        if leaf.get("type") == "link"
    ]
    assert sorted(links) == sorted(v["thread_id"] for v in document["verdicts"])


def test_a_digest_of_very_many_threads_is_more_messages_and_loses_none() -> None:
    words = {"key_facts": ["A & <fact>. " * 40], "proposed_action": "Do & say it. " * 40}
    many = [verdict(f"t{n}", asked_of_me=n % 3 == 0, **words) for n in range(200)]
    gone = [{"thread_id": f"u{n}", "subject": "S" * 99, "reason": f"Fault {n}"} for n in range(90)]
    parts = posted(triage(*many, unreadable=gone))
    urls = [e["url"] for p in parts for e in inside(p.blocks) if e.get("type") == "link"]
    assert sorted(urls) == sorted(v["link"] for v in many)
    assert all(sum(f"Fault {n} (1)" in shown(part) for part in parts) == 1 for n in range(90))
    assert parts[-1].text == f"Mail triage, part {len(parts)} of {len(parts)}"


def test_fifty_threads_are_a_first_message_that_says_what_to_do_and_one_with_the_rest() -> None:
    first = [{"text": f"Do {n}.", "findings": [], "threads": [f"t{n}"]} for n in range(3)]
    facts = {"key_facts": ["A fact with a figure of 1,200 EUR."], "proposed_action": "Answer it."}
    many = [verdict(f"t{n}", asked_of_me=n < 8, **facts) for n in range(50)]
    parts = posted(triage(*many, top_lines=first))
    assert [part.text for part in parts] == [
        "Mail triage. 50 threads: 8 ask for you or are urgent, 42 can wait.",
        "Mail triage, part 2 of 2",
    ]
    told = shown(parts[0]).splitlines()
    assert told[:6] == [
        "Mail triage for ana@acme.example",
        "8 Mar to 15 Mar 2025",
        "50 threads: 8 ask for you or are urgent, 42 can wait.",
        "",
        "**Do first**",
        f"1. Do 0. [1]({LINK}t0)",
    ]
    assert "Needs your reply, or urgent (8)" in shown(parts[0])
    assert shown(parts[1]).startswith("**Other (42)**\n9. **Lena Brandt** · 2 d · A fact")


def test_a_full_message_has_room_for_what_is_done_about_each_thread() -> None:
    words = {"key_facts": ["A fact. " * 30], "proposed_action": "Do it. " * 30}
    short = [verdict(f"s{n}", asked_of_me=True) for n in range(40)]
    long = [verdict(f"t{n}", asked_of_me=True, category="customer", **words) for n in range(40)]
    for part in (part for many in (short, long) for part in posted(triage(*many))):
        blocks: Sequence[Json] = part.blocks
        for click in [each for each in clicks(part) if each.what != SNOOZE]:
            blocks = blocks_after(blocks, click, f"{click.value} was noted. " * 20)
        check(blocks)
        assert sum(block["type"] == "actions" for block in blocks) == len(
            [block for block in part.blocks if block["type"] == "actions"]
        )


def test_a_small_digest_is_one_message() -> None:
    (part,) = posted(triage(verdict("a", priority="high"), verdict("b")))
    assert shown(part).endswith("$0.0712 · 12,345 tokens · run abc123")


def test_numbers_of_lists_are_those_by_which_threads_are_named() -> None:
    document = triage(
        verdict("a", asked_of_me=True),
        *(verdict(f"b{n}", key_facts=[f"Fact {n}. " * 25]) for n in range(30)),
        top_lines=[{"text": "Do.", "findings": [], "threads": ["a"]}],
    )
    text = "\n".join(map(shown, posted(document)))
    for number in range(30):
        order = sorted(range(30), key=lambda n: f"b{n}")
        assert f"\n{number + 2}. **Lena Brandt** · 2 d · Fact {order[number]}. " in text


# ---- buttons


def test_a_pressing_thread_can_be_labelled_drafted_snoozed_and_corrected() -> None:
    urgent = verdict(
        "a1", priority="high", asked_of_me=True, category="customer", draft_reply="Hi."
    )
    (part,) = posted(triage(urgent, verdict("b2")))
    assert {e["action_id"]: e.get("value") for e in clickable(part)} == {
        DRAFT: "abc123/a1",
        LABEL: "abc123/a1",
        SNOOZE: "abc123/a1",
        CORRECT: None,
    }
    words = [e["text"]["text"] for e in clickable(part) if e["type"] == "button"]
    assert words == ["Create draft", "Label it customer", "Snooze 1 day"]
    corrections = [(c.field, c.value) for c in clicks(part) if c.what == CORRECT]
    others = [(CATEGORY, name) for name in CATEGORIES if name != "customer"]
    assert corrections == [(PRIORITY, "low"), (ASKED, "false"), *others]


def test_only_what_applies_is_offered() -> None:
    asked = verdict("a1", asked_of_me=True, draft_reply="", category="")
    (part,) = report_parts(triage_report(triage(asked)))
    assert [e["action_id"] for e in clickable(part)] == [SNOOZE, CORRECT]
    assert [c.field for c in clicks(part)] == ["", ASKED]


def test_a_click_tells_who_what_run_and_thread_and_where() -> None:
    (part,) = posted(triage(verdict("a1", priority="high")))
    label, snooze, *_ = clicks(part)
    assert label == DigestClick(ANA, LABEL, "abc123", "a1", CHANNEL, TS)
    assert (snooze.what, label.what in ACTIONS) == (SNOOZE, True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"actions": []},
        {"actions": [{"action_id": "action_approve", "value": "abc123/a1"}]},
        {"actions": [{"action_id": LABEL}]},
        {"actions": [{"action_id": LABEL, "value": "abc123"}]},
        {"actions": [{"action_id": LABEL, "value": "abc123/a1/../b"}]},
        {"actions": [{"action_id": LABEL, "value": "abc123/a1\n"}]},
        {"actions": [{"action_id": CORRECT, "value": "abc123/a1"}]},
        {"actions": [{"action_id": CORRECT, "selected_option": {"value": "abc/a1/status=x"}}]},
        {"actions": [{"action_id": CORRECT, "selected_option": None}]},
        {"user": {}},
        {"user": {"id": "B0BOT"}},
    ],
)
def test_what_is_no_click_on_a_digest_is_none(wrong: Json) -> None:
    button = {"action_id": LABEL, "value": "abc123/a1"}
    assert digest_click(body(button))
    assert digest_click({**body(button), **wrong}) is None


def test_what_was_clicked_goes_and_what_was_done_is_told_beside_the_rest() -> None:
    document = triage(verdict("a1", priority="high", draft_reply="Hi."), verdict("b2"))
    (part,) = posted(document)
    draft, label, *_, news, _, _ = clicks(part)
    once = blocks_after(part.blocks, draft, "The draft is made.")
    assert blocks_after(once, draft, "The draft is made.") == once
    blocks = blocks_after(blocks_after(once, label, "Labelled *other*."), news, "Noted.")
    row = next(n for n, block in enumerate(blocks) if block["type"] == "actions")
    left = blocks[row]["elements"]
    assert [e["action_id"] for e in left] == [SNOOZE, CORRECT]
    assert news.button_value not in [option["value"] for option in left[1]["options"]]
    assert len(left[1]["options"]) == len(list(clicks(part))) - 4
    said = [(e["type"], e["text"]) for e in blocks[row + 1]["elements"]]
    assert said == [
        ("plain_text", "The draft is made."),
        ("plain_text", "Labelled *other*."),
        ("plain_text", "Noted."),
    ]
    check(blocks)


# ---- nothing acts


ALLOWED = {
    "rich_text": {"elements"},
    "rich_text_section": {"elements"},
    "rich_text_list": {"elements", "style", "offset"},
    "rich_text_quote": {"elements"},
    "text": {"text", "style"},
    "link": {"url", "text"},
    "plain_text": {"text", "emoji"},
    "header": {"text"},
    "context": {"elements"},
    "actions": {"elements", "block_id"},
    "button": {"action_id", "value", "text"},
    "static_select": {"action_id", "placeholder", "options"},
}


@given(triages())
@settings(max_examples=60, deadline=None)
def test_nothing_in_a_digest_acts_but_its_buttons_and_links_to_gmail(document: Json) -> None:
    for part in posted(document):
        for each in inside(part.blocks):
            kind = each.get("type")
            assert kind is None or {*each} - {"type"} <= ALLOWED[kind], each
            assert kind != "link" or each["url"].startswith(LINK)
            assert kind != "plain_text" or each["emoji"] is False


def test_the_text_for_notifications_is_numbers_alone() -> None:
    evil = "<!channel> https://evil.example"
    first = [{"text": evil, "findings": [], "threads": ["a"]}]
    document = triage(
        verdict("a", subject=evil, sender=evil, category=evil, priority="high"),
        top_lines=first,
        filtered=[{"thread_id": "f", "subject": evil, "sender": evil, "reason": evil}],
        mailbox=evil,
    )
    told = "Mail triage. 2 threads: 1 asks for you or is urgent, 1 filtered."
    assert digest_view(triage_report(document)).notification == told
    assert [part.text for part in posted(document)] == [told]


def test_a_warning_stands_before_what_the_mail_says() -> None:
    flagged = verdict("a", priority="high", flags=["has hidden text"], key_facts=["Pay now."])
    (part,) = posted(triage(flagged))
    text = shown(part)
    assert 0 < text.index("⚠ has hidden text") < text.index("Pay now.")
