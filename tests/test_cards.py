"""What a card shows: all of the action as it is stored, and nothing that Slack would act upon."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from standins.slack_blocks import check_blocks
from standins.slack_shown import flat

import scopes
from bot.approvals import cards
from bot.approvals.cards import MAX_CARD, MOST_MESSAGES, ApprovalCard, title
from bot.slack.blocks import show_invisible, with_spelling
from bot.slack.messages import MessagePart
from scopes.clean import unseen
from scopes.intent import Intent
from scopes.label import TRUSTED_LABEL, Label
from subagents.gate import Action, new_id

NOW = datetime(2026, 11, 22, 9, 30, tzinfo=UTC)
ANA = "U0ANA"


@pytest.fixture(autouse=True)
def _mail_scope(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setitem(scopes.MODULES, "mail", "card_kit")
    scopes.scope.cache_clear()
    yield
    scopes.scope.cache_clear()


def action(tool: str = "send_mail", scope: str = "mail", **args: Any) -> Action:
    mail = {"subject": "Login", "text": "It is mended.", "to": ["eva@acme.example"], "cc": None}
    return Action(
        id=new_id(),
        run="r1",
        context="p1",
        tool=tool,
        scope=scope,
        args=args if tool != "send_mail" else {**mail, **args},
        requester=ANA,
        label=TRUSTED_LABEL,
        handles={"C0GENERAL": "#general", ANA: "@ana"},
        intent=Intent(),
        rule="consequence",
        made=NOW,
    )


def post(text: str = "Hello.", channel: str = "C0GENERAL", **more: Any) -> Action:
    return action("post_message", "parent", channel=channel, text=text, thread="", **more)


def text_of_parts(parts: Sequence[MessagePart]) -> str:
    """Return the text of these messages; Slack has to accept each of them."""
    return "\n".join(flat(block) for part in parts for block in check_blocks(part.blocks))


def card_for(of: Action) -> ApprovalCard:
    card = cards.pending_card(of, NOW)
    assert card
    return card


def leaves(parts: Sequence[MessagePart], kind: str = "") -> list[dict[str, Any]]:
    """Return every element of rich text, or those in groups of one kind."""
    return [
        leaf
        for part in parts
        for block in part.blocks
        if block["type"] == "rich_text"
        for group in block["elements"]
        if group["type"].endswith(kind)
        for leaf in group["elements"]
    ]


def exact(parts: Sequence[MessagePart]) -> str:
    """Return the preformatted text."""
    return "".join(leaf["text"] for leaf in leaves(parts, "rich_text_preformatted"))


def buttons(card: ApprovalCard) -> dict[str, str]:
    (row,) = [b for b in card.last.blocks if b["type"] == "actions"]
    assert all(set(b) <= {"type", "action_id", "value", "text", "style"} for b in row["elements"])
    return {b["action_id"]: b["value"] for b in row["elements"]}


def test_card_shows_action_and_recipients_first() -> None:
    of = action(cc=["luis@acme.example", "boss@acme.example"])
    lines = [line for line in text_of_parts([card_for(of).last]).splitlines() if line]
    assert lines[0] == "**Send a mail to eva@acme.example**"
    assert lines[1] == "**to:** eva@acme.example"
    assert lines[2] == "**cc:** luis@acme.example, boss@acme.example"
    assert lines[3] == "**subject:** Login"
    assert "It is mended." in "\n".join(lines[4:])
    text = "\n".join(lines)
    assert f"Asked for by <@{ANA}>. It needs approval: it does more than answer." in text
    assert "Valid until 2026-11-22 09:30 UTC." in text


def test_model_text_in_a_card_is_not_parsed_as_markup() -> None:
    bait = "<!channel> <@U0EVA> *bold* <https://evil.example|here> :tada: `x` https://evil.example"
    card = card_for(action(text=bait, subject=bait, to=[bait]))
    assert exact([card.last]) == bait
    kinds = {leaf["type"] for leaf in leaves([card.last])}
    assert kinds == {"text", "user", "date"}
    assert [leaf["user_id"] for leaf in leaves([card.last]) if leaf["type"] == "user"] == [ANA]
    assert {b["type"] for b in card.last.blocks} == {"rich_text", "actions"}
    assert "evil" not in card.last.text


def test_lookalike_characters_are_shown_as_escapes_at_any_depth_and_length() -> None:
    cyrillic = "b\u043ess@acme.example"
    long = action("vanished_tool", "nowhere", to="ana@acme.example, " * 20 + cyrillic)
    deep = action("vanished_tool", "nowhere", attendees=[{"\u0430": [{"email": cyrillic}]}])
    for of in (action(to=[cyrillic]), long, deep):
        assert "b\\u043ess@acme.example" in text_of_parts([card_for(of).last])
    assert '"\u0430" [written out: \\u0430]: [' in text_of_parts([card_for(deep).last])
    assert "b\\u043ess@acme.example" in title(action(to=[cyrillic]))
    assert with_spelling("#g\u0435neral") == "#g\u0435neral [written out: #g\\u0435neral]"


def test_no_card_is_made_for_text_or_sources_that_do_not_fit() -> None:
    assert cards.pending_card(action(text="x" * (MAX_CARD * MOST_MESSAGES + 1)), NOW) is None
    long = [action(text="y" * MAX_CARD * 2) for _ in range(12)]
    assert cards.batch(new_id(), long, NOW) is None
    many = {f"C0{n:05}": "#" + "long-name" * 5 for n in range(300)}
    names = {"destination": "C0B", "destination_name": "#b"}
    assert cards.offer(action("standing_grant", "", sources=many, **names), NOW) is None
    card = cards.offer(action("standing_grant", "", sources={"C0A": "#a"}, **names), NOW)
    assert card
    assert "• C0A (#a)" in text_of_parts([card.last])
    assert "Allow answers in C0B (#b) to use" in text_of_parts([card.last])


def test_batch_card_shows_the_exact_text_of_each_action() -> None:
    of = [action(text=f"Text {n}.", to=[f"p{n}@acme.example"]) for n in range(5)]
    card = cards.batch("a" * 32, of, NOW)
    assert card
    assert card.before == ()
    shown = text_of_parts([card.last])
    for n in range(5):
        assert f"{n + 1}. Send a mail to p{n}@acme.example" in shown
        assert f"Text {n}." in shown
    assert buttons(card) == dict.fromkeys(("action_approve_all", "action_deny_all"), "a" * 32)
    long = cards.batch("a" * 32, [action(text="z" * 5_000) for _ in range(5)], NOW)
    assert long
    assert exact(long.before) == "z" * 25_000
    assert text_of_parts(long.before).count("(continued)") == 5
    assert exact([long.last]) == ""


def label_with_sources(*sources: str) -> Label:
    return Label(True, frozenset({ANA}), frozenset(sources))


def test_card_lists_the_sources_of_its_text() -> None:
    of = replace(
        post(), label=label_with_sources("C0A", "C0A/1741564800.000100", "G0B", "D0C", "tool:mail")
    )
    text = text_of_parts([card_for(of).last])
    assert "Rests on: <#C0A>, D0C, <#G0B>, tool:mail.\n" in text
    assert "Rests on: what not everyone may read." in text_of_parts(
        [card_for(replace(post(), label=label_with_sources())).last]
    )
    many = replace(post(), label=label_with_sources(*(f"C0{n:03}" for n in range(50))))
    assert "<#C0019> and 30 more.\n" in text_of_parts([card_for(many).last])
    assert "Rests on" not in text_of_parts([card_for(post()).last])


def test_name_that_looks_like_an_id_does_not_replace_the_real_id() -> None:
    of = replace(
        action("send_direct_message", "parent", user="U0EVIL", text="x"),
        handles={"U0EVIL": "@Ana Ruiz (U0ANA)"},
    )
    assert title(of) == "Send a message to U0EVIL (@Ana Ruiz (U0ANA))"
    assert title(post()) == "Send a message to C0GENERAL (#general)"
    mark = action("add_reaction", "slack", message="C0GENERAL/1741564800.000100", name="eyes")
    assert title(mark) == "Add a reaction to C0GENERAL/1741564800.000100 (#general)"
    assert "**person:** U0EVIL (@Ana Ruiz (U0ANA))" in text_of_parts([card_for(of).last])


def test_text_after_many_empty_lines_or_spaces_stays_visible() -> None:
    text = "hello\n" + "\n" * 400 + "tail\n\n\nnear" + " " * 900 + "end\n \n  \n \n"
    expected = "hello\n[400 empty lines]\ntail\n\n\nnear[900 spaces]end\n[3 empty lines]\n"
    assert exact([card_for(post(text)).last]) == expected
    assert "[50 spaces]" in text_of_parts([card_for(action(subject="a" + " " * 50 + "b")).last])


def test_every_invisible_character_is_shown_as_an_escape() -> None:
    """These are the characters that are removed from texts that are read."""
    joiners = "\u200c\u200d\ufe0f"
    hidden = [c for c in map(chr, range(0x20, 0x20000)) if unseen(c)]
    assert {"\u180b", "\u180f", "\U00016fe4", "\U0001d159", "\u3164", "\ud800", *joiners} <= {
        *hidden
    }
    assert [c for c in hidden if show_invisible(f"a{c}b") == f"a{c}b"] == []
    assert (
        show_invisible("\r\n\ttab\u00a0end\U000e0041") == "\\u000d\n\\u0009tab\\u00a0end\\U000e0041"
    )
    harmless = "héllo 👩\u200d🔧 ❤\ufe0f 日本語 עברית\nnext"
    assert show_invisible(harmless) == harmless


TEXTS = st.text(max_size=400)


@settings(max_examples=60, deadline=None)
@given(TEXTS, TEXTS, st.lists(TEXTS, max_size=4), st.integers(1, 40))
def test_every_card_is_valid_for_slack_and_shows_its_full_text(
    text: str, subject: str, to: list[str], times: int
) -> None:
    of = action(text=text * times, subject=subject, to=to)
    card = card_for(of)
    parts = [*card.before, card.last]
    assert all(check_blocks(part.blocks) for part in parts)
    whole = exact(card.before or [card.last])
    assert show_invisible(text * times) in whole or not text
    for leaf in leaves(parts):
        shown = leaf.get("text") or "x"
        assert show_invisible(shown) == shown
        assert leaf["type"] in ("text", "user", "date")
