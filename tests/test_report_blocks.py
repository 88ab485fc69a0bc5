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
from report_kit import BEFORE, EVIL, LINK, finding, section, still, sweeps, swept
from slack_sdk.models.blocks import Block
from slack_sdk.models.views import View
from standins.slack_blocks import checked
from standins.slack_shown import flat

from bot.reports.digest import digest_view
from bot.reports.digest_actions import (
    ACTIONS,
    ASKED,
    CATEGORY,
    CORRECT,
    DRAFT,
    LABEL,
    PRIORITY,
    SHOW,
    SNOOZE,
    DigestClick,
    blocks_after,
    digest_click,
)
from bot.reports.frame import DETAILS
from bot.reports.slack import MAX_BLOCKS, SHORT, details_view, opened_parts, report_parts
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


def unfolded(document: Json) -> tuple[MessagePart, ...]:
    """The messages of a digest, and those that its buttons open."""
    parts = digest(document)
    buttons = [c.button_value for part in parts for c in clicks(part) if c.what == SHOW]
    more = [opened_parts(triage_report(document), CATEGORIES, each) for each in buttons]
    assert all(more)
    for each in (part for some in more for part in some):
        check(each.blocks)
        assert not any(click.what == SHOW for click in clicks(each))
    return (*parts, *(part for some in more for part in some))


def posted(document: Json, place: str = "findings.csv") -> tuple[MessagePart, ...]:
    """The messages of a sweep, after the same checks."""
    parts = report_parts(sweep_report(document), place=place)
    for part in parts:
        check(part.blocks)
        assert len(part.blocks) < 50  # buttons come below
        assert weight(part) <= 13_200
    return parts


def check(blocks: Sequence[Json]) -> None:
    assert checked([dict(block) for block in blocks])
    for block in Block.parse_all(json.loads(json.dumps(blocks))):
        block.validate_json()


def weight(part: MessagePart) -> int:
    return sum(len(flat(block)) for block in part.blocks)


def shown(part: MessagePart) -> str:
    return "\n".join(map(flat, part.blocks))


def whole(document: Json) -> str:
    return "\n".join(map(shown, posted(document)))


def details(document: Json) -> str:
    """The details of a sweep, which Slack takes."""
    view = details_view(sweep_report(document), load_settings(env={}).reply, 1.0)
    View(**view).validate_json()
    assert checked(view["blocks"], 100)
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


def nothing_acts(parts: Sequence[MessagePart], allowed: Mapping[str, set[str]], url: str) -> None:
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
@settings(max_examples=60, deadline=None)
def test_slack_takes_any_digest_also_after_each_click_in_it(document: Json) -> None:
    for part in unfolded(document):
        blocks: Sequence[Json] = part.blocks
        for click in clicks(part):
            blocks = blocks_after(blocks, click, f"{click.what} was done. " * 50)
        check(blocks)
        assert len(blocks) <= MAX_BLOCKS
        assert not clickable(MessagePart("", tuple(map(dict, blocks))))


@given(triages())
@settings(max_examples=60, deadline=None)
def test_nothing_in_a_digest_acts_but_its_buttons_and_links_to_gmail(document: Json) -> None:
    nothing_acts(unfolded(document), {**ALLOWED, **BUTTONS}, MAIL)
    linked = [url.removeprefix(MAIL) for url in links(unfolded({**document, "top_lines": []}))]
    assert sorted(linked) == sorted(v["thread_id"] for v in document["verdicts"])


def test_a_digest_of_very_many_threads_is_more_messages_and_loses_none() -> None:
    words = {"key_facts": ["A & <fact>. " * 40], "proposed_action": "Do & say it. " * 40}
    many = [verdict(f"t{n}", asked_of_me=n % 3 == 0, **words) for n in range(200)]
    gone = [{"thread_id": f"u{n}", "subject": "S" * 99, "reason": f"Fault {n}"} for n in range(90)]
    document = triage(*many, unreadable=gone)
    (first,), parts = digest(document), unfolded(document)
    assert len([click for click in clicks(first) if click.what != SHOW]) < 60
    assert sorted(links(parts)) == sorted(v["link"] for v in many)
    assert all(sum(f"Fault {n} (1)" in shown(part) for part in parts) == 1 for n in range(90))


def test_a_digest_of_five_hundred_threads_is_one_message_and_its_counts_add_up() -> None:
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
    said, *numbers = re.findall(r"\d+", re.findall(r"500 threads: .*", shown(first))[0])
    assert int(said) == sum(map(int, numbers)) == 500
    totals = re.findall(r"(?m)\((\d+)\)\**$", shown(first))
    assert sum(map(int, totals)) == 500, "the titles of the sections"
    parts = unfolded(document)
    assert sorted(links(parts)) == sorted(v["link"] for v in many)
    for part in parts:
        assert len(part.blocks) < 50
        assert weight(part) <= 13_200
        assert all(len(e["text"]["text"]) <= 3000 for e in part.blocks if e["type"] == "section")
        assert "<!channel>" not in part.text
    nothing_acts(parts, {**ALLOWED, **BUTTONS}, MAIL)
    assert "N0, N1, " in "\n".join(map(shown, parts))
    assert "(no subject)" in "\n".join(map(shown, parts))


def test_a_digest_of_nothing_says_so() -> None:
    (part,) = digest(triage())
    assert "No threads." in shown(part)
    assert not clickable(part)


def test_a_full_message_has_room_for_what_is_done_about_each_thread() -> None:
    words = {"key_facts": ["A fact. " * 30], "proposed_action": "Do it. " * 30}
    short = [verdict(f"s{n}", asked_of_me=True) for n in range(40)]
    long = [verdict(f"t{n}", asked_of_me=True, category="customer", **words) for n in range(40)]
    for part in (part for many in (short, long) for part in unfolded(triage(*many))):
        blocks: Sequence[Json] = part.blocks
        for click in [each for each in clicks(part) if each.what not in (SNOOZE, SHOW)]:
            blocks = blocks_after(blocks, click, f"{click.value} was noted. " * 20)
        check(blocks)
        rows = [
            [block["type"] for block in each].count("actions") for each in (blocks, part.blocks)
        ]
        assert rows[0] == rows[1]


def test_numbers_of_lists_are_those_by_which_threads_are_named() -> None:
    ids = sorted(f"b{n}" for n in range(30))
    document = triage(
        verdict("a", asked_of_me=True),
        *(verdict(id, key_facts=[f"Fact {id}. " * 25]) for id in ids),
        top_lines=[{"text": "Do.", "findings": [], "threads": ["a"]}],
    )
    text = "\n".join(map(shown, unfolded(document)))
    for number, id in enumerate(ids, 2):
        assert f"\n{number}. **Lena Brandt**: Export stuck · 2 days\nFact {id}. " in text


def test_a_pressing_thread_can_be_labelled_drafted_snoozed_and_corrected() -> None:
    urgent = verdict(
        "a1", priority="high", asked_of_me=True, category="customer", draft_reply="Hi."
    )
    (part,) = digest(triage(urgent, verdict("b2")))
    assert {e["action_id"]: e.get("value") for e in clickable(part)} == {
        **dict.fromkeys((DRAFT, LABEL, SNOOZE), "abc123/a1"),
        CORRECT: None,
    }
    words = [e["text"]["text"] for e in clickable(part) if e["type"] == "button"]
    assert words == ["Create draft", "Label it customer", "Snooze 1 day"]
    corrections = [(c.field, c.value) for c in clicks(part) if c.what == CORRECT]
    others = [(CATEGORY, name) for name in CATEGORIES if name != "customer"]
    assert corrections == [(PRIORITY, "low"), (ASKED, "false"), *others]
    draft, label, *_ = clicks(part)
    assert label == DigestClick(ANA, LABEL, "abc123", "a1", CHANNEL, TS)
    assert {draft.what, label.what} <= {*ACTIONS}


def test_only_what_applies_is_offered() -> None:
    asked = verdict("a1", asked_of_me=True, draft_reply="", category="")
    (part,) = report_parts(triage_report(triage(asked)))
    assert [e["action_id"] for e in clickable(part)] == [SNOOZE, CORRECT]
    assert [c.field for c in clicks(part)] == ["", ASKED]


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
    (part,) = digest(triage(verdict("a1", priority="high", draft_reply="Hi."), verdict("b2")))
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
    notes = ("The draft is made.", "Labelled *other*.", "Noted.")
    assert said == [("plain_text", note) for note in notes]
    check(blocks)


def test_the_text_for_notifications_is_numbers_alone() -> None:
    first = [{"text": EVIL, "findings": [], "threads": ["a"]}]
    document = triage(
        verdict("a", subject=EVIL, sender=EVIL, category=EVIL, priority="high"),
        top_lines=first,
        filtered=[{"thread_id": "f", "subject": EVIL, "sender": EVIL, "reason": EVIL}],
        mailbox=EVIL,
    )
    told = "Mail triage. 2 threads: 1 needs you, 1 filtered."
    assert digest_view(triage_report(document)).notification == told
    assert [part.text for part in digest(document)] == [told]
    document = swept(
        section(EVIL, finding("F1.1", change="new", claim=EVIL, owner=EVIL)),
        title=EVIL,
        notes=[EVIL],
        compared=BEFORE,
    )
    counts = "1 open problem (1 urgent) · 1 new"
    told = f"Sweep, 1 channel: {counts} · compared with the report up to 1 Mar 2025."
    assert sweep_view(sweep_report(document)).notification == told
    others = ["Sweep, part 2 of 3", "Sweep, part 3 of 3"]
    assert [part.text for part in posted(document)] == [told, *others]


# ---- a sweep


@given(sweeps())
@settings(max_examples=60, deadline=None)
def test_slack_takes_any_report_and_nothing_in_it_acts_but_links_to_slack(document: Json) -> None:
    parts = posted(document)
    assert all(part.text for part in parts)
    nothing_acts(parts, ALLOWED, "https://acme.slack.com/")


def test_only_a_link_of_slacks_own_is_one() -> None:
    urls = (
        "https://acme.slack.com.evil.example/archives/C1/p1",
        "https://evil.example/https://acme.slack.com/archives/C1/p1",
        "https://user@acme.slack.com/archives/C1/p1",
        "http://acme.slack.com/archives/C1/p1",
    )
    findings = [finding(f"F1.{n}", links=[url]) for n, url in enumerate(urls)]
    assert links(posted(swept(section("a", *findings)))) == []


OLD = "2025-03-03T09:00:00Z"


def three_markets() -> Json:
    first = {"customers": 12, "messages": 30, "links": []}
    return swept(
        section("csm-fr", finding("F1.1", change="new"), finding("F1.2", "waiting")),
        section(
            "csm-es",
            finding("F2.1", "unanswered", change="open", age_days=12, owner="Ana Ruiz", since=OLD),
            finding("F2.2", "solved", change="solved"),
            finding("F2.3", severity="low", change="reopened"),
        ),
        section("csm-de", summary="No issues in 12 threads."),
        title="weekly-emea",
        compared=BEFORE,
        top_lines=[{"text": "Do it", "findings": ["F2.1", "F1.1"], **first}],
        channels_added=["csm-de"],
        still_open=[still()],
    )


def test_the_first_message_says_what_to_do_and_the_thread_tells_the_rest() -> None:
    first, alone, resting, quiet, foot = posted(three_markets())
    text = shown(first)
    assert text.splitlines()[:3] == [
        "Customer issues: weekly-emea",
        "**4 open problems (2 urgent) · 1 more waits for the customer or a fix · 1 new, 2 still"
        " open for up to 12 days, 1 solved, 1 reopened"
        " · compared with the report up to 1 Mar 2025**",
        "1 Mar 2025 to 15 Mar 2025 · 3 channels · 120 messages in 36 threads read",
    ]
    sections = three_markets()["sections"]
    url = {f["id"]: f["links"][0] for s in sections for f in s["findings"]}
    assert f"1. **Issue F2.1** [1]({url['F2.1']})" in text
    assert f"[1]({url['F2.1']}) · Café Sol (also [2] [3] [4]), 12 days\n→ Do it" in text
    assert f"2. **Issue F1.1** [2]({url['F1.1']})" in text
    assert "→ owner missing: Answer Ana." in text
    assert "- New channels: #csm-de" in text
    assert "- ● **#csm-fr**  1 open problem (1 urgent), 1 new [2]" in text
    assert "- – **#csm-de**  no open problem · No issues in 12 threads." in text
    assert shown(alone).startswith("**Open problems**\n**● 1. STILL OPEN 12 days** **Issue F2.1")
    assert "**– 4.** **Issue F1.2**" in shown(resting)
    assert "Still open, no news in this window" in shown(quiet)
    assert "#csm-es** · 12 days · unanswered · The till hangs · nobody" in shown(quiet)
    assert shown(foot).endswith("3 channels · messages of 1–14 Mar 2025 · $0.123")


def test_what_became_of_it_since_the_last_report_stands_before_it() -> None:
    told = (("new", "unsolved"), ("changed", "unsolved"), ("reopened", "unanswered"))
    found = [finding(f"F1.{n}", state, change=change) for n, (change, state) in enumerate(told)]
    still_told = finding("F1.4", change="open", age_days=12, customers=[*"ABCDE"])
    solved = finding("F1.6", "solved", change="solved")
    text = whole(swept(section("a", *found, still_told, finding("F1.5"), solved), compared=BEFORE))
    marks = ("● 1. STILL OPEN 12 days", "● 2. NEW", "● 3. CHANGED", "● 4. REOPENED", "● 5.")
    assert [mark for mark in marks if f"**{mark}**" not in text] == []
    assert "A, B, C +2 · #a · open since 4 Mar (11 days, A)" in text
    assert "SOLVED: 1" in text


def test_in_a_first_report_nothing_is_called_new() -> None:
    text = whole(swept(section("a", finding("F1.1", change="new"))))
    assert "NEW" not in text
    assert "1 new" not in text


def test_what_was_not_read_is_never_called_free_of_issues() -> None:
    bad = section("csm-es", status="failed", summary="Slack gave no answer.")
    tracker = {"title": "Bugs", "status": "failed", "reason": "The bot cannot open the list."}
    document = swept(bad, section("csm-fr", finding("F1.1")), status="partial", tracker=tracker)
    document["coverage"]["not_covered"] = gaps_of(*(f"gap {n}" for n in range(9)))
    text = whole(document)
    assert "no open problem" not in text
    assert "**#csm-es**  not read · Slack gave no answer." in text
    assert "not complete" in text
    assert "not covered: gap 0 and 8 more" in text
    assert [details(document).count(f"gap {n}") for n in range(9)] == [1] * 9
    assert "Tracker (Bugs): could not be read: The bot cannot open the list." in text
    assert "not in it" not in text


def test_a_market_with_nothing_but_old_issues_is_never_called_free_of_them() -> None:
    old = [still(), still("The printer is dead", severity="high")]
    first = shown(posted(swept(section("csm-es"), compared=BEFORE, still_open=old))[0])
    assert "no open problem" not in first
    assert "**#csm-es**  2 open problems (1 urgent)" in first


@pytest.mark.parametrize("customers", [["Bar Luna"], [f"Bar {n}" for n in range(9)]])
def test_lines_of_a_table_or_a_list_lead_to_each_of_their_threads(customers: list[str]) -> None:
    bug = {"status": "tracked", "key": "BUG-1", "title": "Charged twice"}
    several = [f"{LINK}1", f"{LINK}2?thread_ts=1&cid=C1", f"{LINK}3"]
    one = finding("F1.1", links=several, customers=customers, tracker=bug)
    text = whole(swept(section("a", one, finding("F1.2", tracker=bug))))
    assert f" [1]({LINK}1) [2]({LINK}3)" in text
    assert f" [↗]({LINK}10002)" in text
    assert "thread_ts" not in text


def test_a_short_report_is_one_message() -> None:
    (part,) = posted(swept(section("csm-es")))
    for words in ("0 open", "no open problem", "1 channel · messages of 1–14 Mar 2025 · $0.123"):
        assert words in shown(part)
    assert "run abc123" not in shown(part)
    (part,) = digest(triage(verdict("a", priority="high"), verdict("b")))
    assert shown(part).endswith("2 threads · messages of 8–15 Mar 2025 · $0.071")


def test_a_stopped_report_tells_once_how_far_it_came() -> None:
    stopped = {"reason": "it was stopped", "stopped_by": "user"}
    some, rest = section("a"), [section(f"b{n}", status="cancelled") for n in range(2)]
    sweep = swept(some, *rest, status="cancelled")
    sweep["coverage"] |= {"items": 3, "complete": 1, "partial": 0, "cancelled": 2}
    sweep["coverage"]["not_covered"] = [{**stopped, "source": f"b{n}"} for n in range(2)]
    lost = [{"thread_id": "c", "subject": "C", "reason": "it was stopped"}]
    read = verdict("a"), verdict("b")
    mail = triage(*read, unreadable=lost, status="cancelled")
    mail["coverage"] |= {"unreached": 3, "not_covered": [{**stopped, "source": "C"}]}
    for text, line in (
        (whole(sweep), "Stopped after 1 of 3 channels; 2 were not looked at."),
        (report_text(sweep_report(sweep)), "Stopped after 1 of 3 channels; 2 were not looked at."),
        (
            "\n".join(map(shown, digest(mail))),
            "Stopped after 2 of 6 threads; 4 were not looked at.",
        ),
    ):
        assert text.count("Stopped after") == text.count(line) == 1
        assert "not covered" not in text.lower()


def test_a_document_stored_before_reports_were_compared_is_shown() -> None:
    new = ("title", "language", "compared", "tracker", "patterns", "still_open", "counts", "notes")
    old = {k: v for k, v in swept(section("a", finding("F1.1"))).items() if k not in new}
    one = old["sections"][0]["findings"][0]
    for key in ("issue", "change", "first", "age_days", "tracker", "threads"):
        del one[key]
    assert "Issue F1.1" in whole(old)


def test_as_an_answer_it_has_feedback_buttons_below_and_says_where_the_rest_is() -> None:
    request = StoredRequest("T1", "C1", "1.2", "1.2", "U1", "mention", {"text": "sweep *"})
    many = swept(section("a", *(finding(f"F1.{n}") for n in range(310))))
    shown_as = render_answer(sweep_report(many), request, load_settings(env={}))
    *before, last = shown_as
    assert last.blocks[-1]["type"] == "context_actions"
    assert not [b for part in before for b in part.blocks if b["type"] == "context_actions"]
    text = "\n".join(map(shown, shown_as))
    assert "10 more, left out here: assistant show abc123 --json" in text


def two_hundred(**words: str) -> Json:
    """As many channels with twenty findings each, and as many gaps; much is open without news."""
    sections = [
        section(f"market-{k}", *(finding(f"F{k}.{n}", **words) for n in range(20)))
        for k in range(200)
    ]
    old = [still(f"Old {n}") for n in range(500)]
    document = swept(*sections, compared=BEFORE, still_open=old)
    document["coverage"]["not_covered"] = gaps_of(*(f"market-{k}: some of it" for k in range(200)))
    return document


@pytest.mark.parametrize("words", ["It fails & fails.", "& < > " * 60])
def test_two_hundred_channels_are_a_short_first_message_and_a_bounded_thread(words: str) -> None:
    decided = [{"text": "Whether the fee is paid", "findings": ["F1.1"]}]
    found = two_hundred(claim=words, next_step=words, severity_reason=words)
    document = {**found, "decisions": decided}
    parts = posted(document)
    assert weight(parts[0]) <= SHORT
    assert "Whether the fee is paid" in shown(parts[0])
    assert re.search(r"and 1\d\d more$", shown(parts[0]))  # of the markets
    text = "\n".join(map(shown, parts))
    told = len(set(re.findall(r"\*\*[●◐] (\d+)\.\*\*", text)))
    (left,) = re.findall(r"([\d,]+) more, left out here: findings.csv", text)
    assert told == 300
    assert left == "3,700"
    assert "Old 99" in text
    assert "and 400 more" in text
    assert "not covered: market-0: some of it and 199 more" in text
    assert "market-0: 40 messages" in details(document)
