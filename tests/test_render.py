"""Answers as Slack shows them: nothing acts or is lost, and every message is within limits."""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from document_kit import answer_document
from hypothesis import example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from slack_sdk.models.blocks import (
    Block,
    ContextActionsBlock,
    ContextBlock,
    RichTextBlock,
    TableBlock,
)
from timing import computed_within

from bot.local.slack.blocks import checked
from bot.local.slack.shown import flat
from bot.reports.slack import answer_message
from bot.slack.blocks import (
    FEEDBACK,
    FEEDBACK_BAD,
    FEEDBACK_GOOD,
    MAX_MESSAGE,
    Rendered,
    cut,
    parse_feedback,
    sentence,
    size,
)
from bot.slack.markdown import MAX_ROWS, Numbers, Prose, harmless, lines, tidy
from bot.slack.paging import split
from config.sections import ReplySettings
from config.settings import load_settings

REPLY = load_settings(env={}).reply
KEY = "T0ACME/C0SUPPORT/1740498077.000100"
URL = "https://acme.slack.com/archives/C0A/p1740498077000100?thread_ts=1.2&cid=C0A"
LINKS = {"F1.1": [URL], "F1.2": [URL + "1", URL], "F2.1": []}
Json = dict[str, Any]


def reply(chars: int) -> ReplySettings:
    return REPLY.model_copy(update={"message_chars": chars})


def document(text: str, **more: Any) -> Json:
    ended = dict.fromkeys(("complete", "partial", "failed", "cancelled", "refused"), 0)
    cover = {"items": 5, **ended, "complete": 5, "not_covered": [], "read": {}}
    findings = [{"id": i, "claim": f"Claim of {i}"} for i in LINKS]
    return {
        "run_id": "0123456789ab",
        "status": "complete",
        "stopped_by": "none",
        "model": "claude",
        "answer": text,
        "coverage": cover | more.pop("coverage", {}),
        "links": LINKS,
        "unsupported": 0,
        "degraded": False,
        "cost_usd": 0.0123,
        "subagents": [{"findings": findings}],
        **more,
    }


def rendered(text: str, chars: int = 11_000, **more: Any) -> Rendered:
    made = answer_message(answer_document(document(text, **more)), KEY, reply(chars), 14.2)
    check(made, chars)
    return made


def check(made: Rendered, chars: int = 11_000) -> None:
    """Every message is one that Slack takes, by the SDK's own models and the measured limits."""
    assert made.parts
    assert made.below == (made.parts[0].blocks[-len(made.below) :] if made.below else ())
    for part in made.parts:
        assert part.text.strip()
        assert len(part.blocks) <= 50
        assert size(part.blocks) <= MAX_MESSAGE
        assert size(said(part.blocks)) <= chars
        assert sum(block["type"] == "table" for block in part.blocks) <= 1
        for parsed in Block.parse_all(list(part.blocks)):
            kinds = RichTextBlock | TableBlock | ContextBlock | ContextActionsBlock
            assert isinstance(parsed, kinds)
            parsed.validate_json()
        assert checked(part.blocks), "the local Slack takes them, too"
        for block in part.blocks:
            if block["type"] == "context":
                assert all(len(e["text"]) <= 3000 for e in block["elements"])
    assert [below(p.blocks) for p in made.parts[:-1]] == [[]] * (len(made.parts) - 1)


def said(blocks: Sequence[Json]) -> list[Json]:
    return [block for block in blocks if block["type"] in ("rich_text", "table")]


def below(blocks: Sequence[Json]) -> list[Json]:
    return [block for block in blocks if block not in said(blocks)]


def linked(text: str, links: Any = None) -> str:
    prose = Prose(LINKS if links is None else links, REPLY)
    return prose.link_citations(text, Numbers(prose.links))


def bodies(text: str, chars: int = 11_000, last: int = 12_000) -> list[str]:
    """The markdown of each message."""
    return cut(linked(text), reply(chars), last)


def foot(made: Rendered) -> str:
    blocks = below(made.parts[-1].blocks)
    return "\n".join(e["text"] for b in blocks for e in b["elements"] if e["type"] == "mrkdwn")


# ---- the text


def test_citations_become_numbered_links_in_the_order_of_their_first_use() -> None:
    text = "One [F1.2]. Two [F1.1]. One again [F1.2]; both [F1.1, F1.2], and a row [F2.1]."
    one, two = f"[1]({URL}1)", f"[2]({URL})"
    assert linked(text) == (
        f"One {one}. Two {two}. One again {one}; both {two} {one}, and a row [3]."
    )


def test_a_link_is_made_only_where_it_is_one() -> None:
    odd = {"F1.1": ["javascript:alert(1)"], "F1.2": ["https://x.example/a b(c)|d"]}
    assert linked("a [F1.1] b [F1.2]", odd) == "a [1] b [2](https://x.example/a%20b%28c%29%7Cd)"
    assert linked("a `[F1.2]` b", odd) == "a `[1]` b"
    assert linked("```\n[F1.2]\n```", odd) == "```\n[1]\n```"
    assert linked("[F1.2][F1.1](see) wow![F1.2]", LINKS) == (
        f"[1]({URL}1) [2]({URL}) (see) wow! [1]({URL}1)"
    )


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("<!channel> hi", "@\u2060channel hi"),
        ("<!here|here> @everyone", "@\u2060here @\u2060everyone"),
        ("```\n<!channel>\n```", "```\n@\u2060channel\n```"),
        ("<@U0ANA> and <@U0ANA|ana>", "@U0ANA and @ana"),
        ("<#C0SUPPORT|support> <#C0SUPPORT>", "#support #C0SUPPORT"),
        ("<!subteam^S0TEAM|@csm> <!date^1^{date}|today>", "@csm @today"),
        ("a < b > c, List<String>", "a &lt; b &gt; c, List&lt;String&gt;"),
        ("> quoted\n>> twice > here", "> quoted\n>> twice &gt; here"),
        ("AT&T", "AT&T"),
        ("[a [b]](mailto:x@evil.example)", "[a [b]] (mailto:x@evil.example)"),
        ("[docs](https://asked.example)", "[docs](https://asked.example)"),
        ("half \ud83d of a pair\x00", "half ? of a pair"),
    ],
)
def test_nothing_in_the_text_acts(text: str, shown: str) -> None:
    assert harmless(text) == shown


# ---- parts

WORDS = st.sampled_from(
    ["Ana", "pays", "twice.", "Why?", "é", "😀", "👩‍👩‍👧", "🇪🇸🇩🇪", "a-b", "[F1.1]"]
)
SENTENCES = st.lists(WORDS, min_size=1, max_size=60).map(" ".join)
ROW = st.lists(WORDS, min_size=3, max_size=3).map(lambda c: "| " + " | ".join(c) + " |")
BLOCKS = st.one_of(
    SENTENCES,
    SENTENCES.map(lambda s: f"## {s[:60]}"),
    st.lists(SENTENCES, min_size=1, max_size=9).map(lambda s: "\n".join(f"- {x}" for x in s)),
    st.lists(SENTENCES, min_size=1, max_size=9).map(lambda s: "\n".join(f"> {x}" for x in s)),
    st.lists(SENTENCES, max_size=9).map(lambda s: "```python\n" + "\n".join(s) + "\n```"),
    st.lists(ROW, max_size=30).map(lambda r: "\n".join(["| a | b | c |", "|---|---|---|", *r])),
    st.integers(1, 3000).map(lambda n: "x" * n),
)
TEXTS = st.lists(BLOCKS, min_size=1, max_size=8).map("\n\n".join)


def words(text: str) -> list[str]:
    """Words without marks, as they are read."""
    bare = re.sub(r"\]\(https://[^)]*\)", "]", html.unescape(text))
    return re.findall(r"[^\s|*`~>:·-]+", bare.replace("\u2060", ""))


def balanced(text: str) -> bool:
    every = lines(text)
    return sum(x.kind == "open" for x in every) == sum(x.kind == "close" for x in every)


@hypothesis_settings(max_examples=150, deadline=None)
@given(TEXTS, st.sampled_from([500, 900, 4000, 11_000, 12_000]))
def test_no_part_is_over_the_limits_and_no_word_is_lost(text: str, chars: int) -> None:
    rendered(text, chars)
    made = bodies(text, chars)
    wanted = words(linked(text))
    for body in made:
        assert balanced(body)
        kinds = [line.kind for line in lines(body)]
        assert kinds.count("header") <= 1
        assert not re.search(r"\]\([^)]*\Z", body), "cut inside a link"
    found = words("\n".join(made))
    lost = Counter(w for w in wanted if len(w) <= 400) - Counter(found)
    assert not lost
    assert len("".join(wanted)) <= len("".join(found))
    if "|---" not in text and "```" not in text:
        assert "".join(found) == "".join(wanted)


PLAIN = st.lists(
    st.one_of(SENTENCES, SENTENCES.map(lambda s: f"# {s}"), SENTENCES.map(lambda s: f"- {s}")),
    min_size=1,
    max_size=20,
).flatmap(lambda blocks: st.sampled_from(["\n", "\n\n"]).map(lambda gap: gap.join(blocks)))


@hypothesis_settings(max_examples=150, deadline=None)
@given(PLAIN, st.integers(60, 2000))
@example("x" * 3000, 100)
def test_the_parts_joined_are_the_text(text: str, limit: int) -> None:
    parts = split(text, limit)
    assert "".join(parts) == text
    assert all(0 < len(part) <= limit for part in parts)


def test_a_text_is_cut_at_the_best_place_near_the_end() -> None:
    para = "Some words here. " * 10
    heading = f"{para}\n\n{para}\n\n## Next\n\n{para}"
    assert split(heading, 430)[1].startswith("## Next")
    listed = f"{para}\n" + "".join(f"- item {n} {'z' * 40}\n" for n in range(9))
    assert all(part.startswith(("Some", "- item")) for part in split(listed, 300))
    assert split(para * 3, 200)[1].startswith("Some words here. ")
    link = "word " * 30 + f"[some long label](https://asked.example/{'a' * 40})"
    assert split(link, 180) == ["word " * 30, link[150:]]


def table(rows: int, columns: int = 3, cell: str = "cell") -> str:
    head = "|" + "|".join(f" h{c} " for c in range(columns)) + "|"
    rule = "|" + "---|" * columns
    body = ["|" + "|".join(f" {cell}{r}.{c} " for c in range(columns)) + "|" for r in range(rows)]
    return "\n".join([head, rule, *body])


@pytest.mark.parametrize(
    "seen", ["🇪🇸", "👩\u200d👩\u200d👧", "👍🏽", "e\u0301\u0323", "각", "\u0915\u094d\u0937"]
)
def test_what_readers_see_as_one_character_is_not_cut(seen: str) -> None:
    for before in ("", "x", "xyz"):
        text = before + seen * 200
        parts = split(text, 100)
        assert "".join(parts) == text
        assert all(len(part) <= 100 for part in parts)
        assert all(part.removeprefix(before).replace(seen, "") == "" for part in parts)


def test_a_character_without_end_is_cut() -> None:
    text = "Z" + "\u0301" * 1_000
    parts = split(text, 100)
    assert "".join(parts) == text
    assert all(len(part) <= 100 for part in parts)


def test_a_long_table_is_split_with_its_header_repeated() -> None:
    made = bodies(f"Before.\n\n{table(250)}\n\nAfter.")
    assert len(made) == 3
    for body in made:
        kinds = [line.kind for line in lines(body)]
        assert kinds.count("header") == 1
        assert kinds.count("row") <= MAX_ROWS
    found = re.findall(r"cell(\d+)\.0", "\n".join(made))
    assert found == [str(n) for n in range(250)]
    narrow = bodies(table(60), chars=600)
    assert all(body.startswith("| h0 | h1 | h2 |\n|---|") for body in narrow)


def test_a_wide_table_becomes_a_list() -> None:
    made = "\n".join(bodies(table(3, columns=45)))
    assert re.findall(r"\*\*h(\d+):\*\* cell1\.\1\s", made) == [str(n) for n in range(45)]


def test_a_table_whose_rows_are_too_long_becomes_a_list() -> None:
    (body,) = bodies(table(3, cell="many words " * 100))
    assert body.startswith("- **h0:** many words")
    assert not any(line.kind == "header" for line in lines(body))


def test_each_message_holds_one_table_as_slack_demands() -> None:
    text = "\n\n".join(f"## Part {n}\n\n{table(2)}" for n in range(6))
    made = bodies(text)
    assert [b.splitlines()[0] for b in made] == [f"## Part {n}" for n in range(4)]
    assert made[-1].count("**h0:**") == 4


def test_pipes_in_prose_and_code_are_no_table() -> None:
    text = "Use a | b.\n---|---|---\n\n```\n| a | b |\n|---|---|\n```"
    assert not any(line.kind == "header" for line in lines(text))
    assert tidy(text, 500) == text


@hypothesis_settings(max_examples=150, deadline=None)
@given(TEXTS, st.integers(0, 10_000))
def test_what_is_shown_live_is_how_the_final_text_begins(text: str, cut: int) -> None:
    final = answer_message(answer_document(document(text)), KEY, REPLY, 1.0)
    so_far = Prose(LINKS, REPLY).live(text[: cut % (len(text) + 1)])
    if len(final.parts) == 1:
        assert final.streamed_text.startswith(so_far)


@pytest.mark.parametrize(
    ("so_far", "shown"),
    [
        ("All is <!chan", "All is"),
        ("See [F1.1] and [F", f"See [1]({URL}) and"),
        ("Done.\n\n| a | b |\n|---|---|\n| 1 | 2 |\n", "Done."),
        ("Code:\n``", "Code:"),
        ("Code:\n```py\nx = 1 ", "Code:\n```py\nx = 1"),
        ("The host is evil.exam", "The host is"),
        ("The host is evil.example now", "The host is evil[.]example"),
        ("Use xoxb-12-", "Use"),
        ("password='two words", ""),
        ("Key:\n-----BEGIN PRIVATE KEY-----\nMIIEow and ", "Key:"),
        ("See https://asked.example/x and", "See https://asked.example/x"),
        ("Mail @ever", "Mail"),
    ],
)
def test_what_may_still_change_is_held_back(so_far: str, shown: str) -> None:
    assert Prose(LINKS, REPLY, "Is https://asked.example/x up?").live(so_far) == shown


HOSTS = (
    (".evil.example", ".evil[.]example"),
    ("...evil.example/x", "...evil[.]example/x"),
    ("evil.xn--p1ai", "evil[.]xn--p1ai"),
    ("xn--80ak6aa92e.xn--p1ai/x", "xn--80ak6aa92e[.]xn--p1ai/x"),
    ("evil.example-", "evil[.]example-"),
    ("evil.example-and", "evil[.]example-and"),
    ("evil.example_", "evil[.]example_"),
    ("(evil.example_more)", "(evil[.]example_more)"),
    ("sub.evil.example--", "sub[.]evil[.]example--"),
    ("-.evil.example", "-[.]evil[.]example"),
)


@pytest.mark.parametrize(("host", "shown"), HOSTS)
def test_no_host_is_alive_whatever_stands_beside_it(host: str, shown: str) -> None:
    text = f"The host is {host} for now"
    final = answer_message(answer_document(document(text)), KEY, REPLY, 1.0)
    assert shown in final.streamed_text
    assert all(host not in part.text for part in final.parts)
    for count in range(len(text) + 1):  # as it is written, letter by letter
        so_far = Prose(LINKS, REPLY).live(text[:count])
        assert not re.search(r"evil\.\w|9?2e\.\w", so_far)
        assert final.streamed_text.startswith(so_far)


def test_odd_and_large_text_is_rendered_in_time() -> None:
    odd = ("`a``", "[", "**", "|", "<@", "x|\n", "](", "> ", "```\n", "|-|\n", "- ", "\n")
    texts = [piece * (30_000 // len(piece)) for piece in odd]
    texts.append("<@" * 5_000 + ">" * 5_000)
    texts.append("**a** b\n" * 25_000)
    texts += [f"a|b\n{rule}\n" for rule in (f"{' ' * 16_000}|x|", f"-{' ' * 16_000}x|")]
    for text in texts:
        with computed_within(6):  # the longest takes about 2; a quadratic one, minutes
            rendered(text)


# ---- what stands below it


def test_the_last_part_ends_with_sources_gaps_cost_and_buttons() -> None:
    made = rendered(
        "One [F1.2]. Two [F1.1].",
        coverage={"failed": 1, "complete": 4, "not_covered": ["s3: #ops: <!channel> & more"]},
        unsupported=2,
    )
    assert foot(made).splitlines() == [
        "*Sources*",
        f"<{URL.replace('&', '&amp;')}1|[1]> Claim of F1.2 (and 1 more)",
        f"<{URL.replace('&', '&amp;')}|[2]> Claim of F1.1",
        "*Not covered* (1 failed of 5 subagents)",
        "• s3: #ops: &lt;!channel&gt; &amp; more",
        "2 statements left out because no source carries it.",
        "5 subagents, $0.012, 14 s · run 0123456789ab",
    ]
    assert made.parts[0].text == "One [1]. Two [2]."
    (buttons,) = made.parts[-1].blocks[-1]["elements"]
    assert buttons["action_id"] == FEEDBACK
    values = [buttons[f"{kind}_button"]["value"] for kind in ("positive", "negative")]
    assert list(map(parse_feedback, values)) == [(KEY, FEEDBACK_GOOD), (KEY, FEEDBACK_BAD)]
    assert parse_feedback("else") is None


def test_what_was_looked_up_is_told_from_what_was_found() -> None:
    own = {
        "F0.1": {"item": "note/7", "text": "Lunch: <!here> at *noon*"},
        "F0.2": {"item": "C1/1.1", "text": "Ana: hello"},
    }
    links = {**LINKS, "F0.1": [], "F0.2": [URL]}
    made = rendered(
        "One [F0.1]. Two [F1.1]. Three [F0.2].",
        links=links,
        looked_up=own,
        coverage={"items": 0, "complete": 0, "looked_up": 2},
    )
    url = URL.replace("&", "&amp;")
    assert foot(made).splitlines() == [
        "*Sources*",
        "[1] note/7, looked up: Lunch: &lt;!here&gt; at *noon*",
        f"<{url}|[2]> Claim of F1.1",
        f"<{url}|[3]> looked up: Ana: hello",
        "2 items looked up, $0.012, 14 s · run 0123456789ab",
    ]


def test_many_sources_and_gaps_are_counted_not_listed() -> None:
    links = {f"F1.{n}": [URL] for n in range(1, 31)}
    text = " ".join(f"[{i}]" for i in links)
    gaps = [f"s{n}: {'long ' * 100}" for n in range(30)]
    made = rendered(text, links=links, coverage={"not_covered": gaps})
    said = foot(made)
    assert "and 22 more, linked in the text" in said
    assert "• and 25 more" in said
    assert len(said) < 4000


def test_the_last_part_leaves_room_for_what_stands_below() -> None:
    gaps = [f"s{n}: {'long ' * 100}" for n in range(5)]
    for length in range(10_000, 12_001, 250):
        text = ("word " * (length // 5)).strip() + " [F1.1]"
        rendered(text, 12_000, coverage={"not_covered": gaps})


@pytest.mark.parametrize(
    ("status", "stopped_by", "said"),
    [
        ("partial", "cost", "The budget of this request was used up"),
        ("partial", "none", "This answer is not complete"),
        ("failed", "none", "could not be answered"),
        ("failed", "model_error", "The language model failed"),
    ],
)
def test_an_answer_that_is_not_whole_says_so(status: str, stopped_by: str, said: str) -> None:
    made = rendered("Something.", status=status, stopped_by=stopped_by)
    assert said in foot(made).splitlines()[0]


def test_the_cost_line_tells_what_is_not_known_and_what_was_not_paid() -> None:
    assert "price unknown" in foot(rendered("x", cost_usd=None))
    assert "nothing was paid" in foot(rendered("x", model="offline"))
    assert "isolation is advisory" in foot(rendered("x", degraded=True))
    after = answer_message(answer_document(document("x")), KEY, REPLY, 125)
    assert "2 min 5 s" in foot(after)
    unread = foot(rendered("x", coverage={"items": 0, "complete": 0}))
    assert unread.startswith("$0.012, 14 s"), "what nobody read is not counted"


def test_there_is_always_something_to_read() -> None:
    for text in ("", " \n", "\x00", "\n\n\n"):
        (part,) = rendered(text).parts
        assert "".join(map(flat, said(part.blocks))).strip()


def test_a_sentence_carries_its_reference_and_nothing_that_acts() -> None:
    made = sentence("It broke, <!channel>.", "0123456789ab")
    check(made)
    assert made.streamed_text == "It broke, @\u2060channel."
    assert foot(made) == "Reference: 0123456789ab"
    check(sentence(""))
    check(sentence("long " * 9000))


def test_a_statement_stands_behind_its_source_and_cannot_act_there() -> None:
    query = "data:shop: SELECT '<!channel> @here https://evil.example/x' FROM a\n\n*b*" + "x" * 300
    one = {"id": "F1.1", "claim": "Ten.", "queries": [query, "data:shop: SELECT 2"]}
    said = foot(rendered("One [F1.1].", subagents=[{"findings": [one]}], links={}))
    (line,) = [each for each in said.splitlines() if each.startswith("[1]")]
    assert line.startswith("[1] Ten. · data:shop: SELECT '&lt;!channel&gt; ")
    assert "://evil" not in line
    assert "@here" not in line
    assert len(html.unescape(line)) < 130


def test_claims_of_strangers_cannot_act_in_the_sources() -> None:
    claim = "<!channel> see https://evil.example/x <https://evil.example|here> @here"
    found: Sequence[Json] = [{"findings": [{"id": "F1.1", "claim": claim}]}]
    told = foot(rendered("One [F1.1].", subagents=found))
    assert not any(mark in told for mark in ("://evil", "<!", "@here"))
