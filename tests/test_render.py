"""Answers as Slack shows them: nothing in them acts or is lost, and each is within limits."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from document_kit import answer_document, gaps_of
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from slack_sdk.models.blocks import (
    Block,
    ContextActionsBlock,
    ContextBlock,
    RichTextBlock,
    SectionBlock,
    TableBlock,
)
from slack_sdk.models.views import View
from standins.slack_blocks import MAX_VIEW_BLOCKS, check_blocks
from standins.slack_shown import flat
from timing import cpu_limit

from bot.reports.documents import AnswerDocument
from bot.reports.frame import details_view
from bot.reports.slack import answer_message
from bot.slack.blocks import MAX_MESSAGE, cut, size
from bot.slack.markdown import Numbers, Prose, blocks, segments
from bot.slack.messages import MessagePart
from config.sections import ReplySettings
from config.settings import load_settings
from scopes.clean import SECRET_PLACEHOLDER

REQUESTER, OTHER = "U0ANA", "U0LUIS"
PERMALINK = "https://acme.slack.com/archives/C0A/p1740498077000100?thread_ts=1.2&cid=C0A"
ASKED = "Is https://asked.example/a?b=1 up? See www.asked.example and ftp://asked.example."
CITED = {"F1.1": [PERMALINK]}
LINKS = {"F1.1": [PERMALINK], "F1.2": [PERMALINK + "1", PERMALINK], "F2.1": []}
CLAIMS = {"findings": [{"id": id, "claim": f"Claim of {id}"} for id in LINKS]}
KEY = "T0ACME/C0SUPPORT/1740498077.000100"
REPLY = load_settings(env={}).reply.model_copy(update={"link_hosts": ("docs.example.com",)})
Json = dict[str, Any]


def answer(text: str, **more: Any) -> AnswerDocument:
    """The document of an answer with this text, to which five subagents contributed."""
    coverage = {"items": 5, "complete": 5, **more.pop("coverage", {})}
    fields = {"run_id": "0f1e2d3c4b5a", "question": ASKED, "links": LINKS, "cost_usd": 0.0123}
    fields |= {"answer": text, "coverage": coverage, "subagents": [CLAIMS], **more}
    return answer_document(fields)


def reply(chars: int) -> ReplySettings:
    return REPLY.model_copy(update={"message_chars": chars})


def prose() -> Prose:
    return Prose(CITED, REPLY, ASKED, REQUESTER)


def posted_blocks(text: str) -> list[Json]:
    """The blocks of what a model wrote, as they are posted."""
    maker = prose()
    body = maker.link_citations(text, Numbers(CITED))
    found = list(blocks(body, maker.collect_links(), REQUESTER))
    assert not found or check_blocks(found)
    for parsed in Block.parse_all(found):
        parsed.validate_json()
    return found


def leaves(value: Any) -> Iterator[Json]:
    """Every element of the rich text, however deep, and cells without any."""
    if isinstance(value, list):
        for each in value:
            yield from leaves(each)
    elif isinstance(value, dict):
        kind = str(value.get("type", ""))
        if kind and not kind.startswith("rich_text") and kind != "table":
            yield value
        else:
            yield from leaves(value.get("elements") or value.get("rows") or [])


def flat_text(text: str) -> str:
    return "\n".join(map(flat, posted_blocks(text)))


# ---- links and mentions


EVIL = [
    "https://evil.example/x?q=CANARY",
    "http://docs.example.com/x",
    "https://docs.example.com/x?q=CANARY",
    "https://docs.example.com/x#CANARY",
    "https://docs.example.com:8443/x",
    "https://docs.example.com@evil.example/",
    "https://CANARY@docs.example.com/",
    "https://docs.example.com.evil.example/",
    "https://docs.example.com\\@evil.example/",
    "https://sub.docs.example.com/",
    "https://d\u043ecs.example.com/",
    "https://asked.example/a?b=1&c=CANARY",
    "https://asked.example/a",
    "https://ASKED.example/a?b=1",
    f"{PERMALINK}&x=CANARY",
    "//evil.example/x",
    "www.evil.example",
    "evil.example/x",
    "ftp://asked.example",
    "mailto:evil@evil.example?body=CANARY",
    "tel:+15551234567",
    "slack://user?team=T1&id=U1",
    "javascript:alert(1)",
    "JAVASCRIPT://x%0aalert(1)",
    "data:text/html,x",
    "file:///etc/passwd",
    "https:/\u200b/evil.example/x",
    "ht\u00adtps://evil.example/x",
    "\uff48ttps://evil\uff0eexample/x",
    "https:\\//evil.example/x",
    "&lt;https://evil.example|x&gt;",
    "ht**tp**s://evil.example/x",
]
SHAPES = [
    "{}",
    "see {} now",
    "<{}>",
    "<{}|bank>",
    "[bank]({})",
    "[bank]( {} )",
    '[bank]({} "title")',
    "[{}](https://asked.example/a?b=1)",
    "![img]({})",
    "[![img]({})](https://asked.example/a?b=1)",
    "[bank][1]\n\n[1]: {}",
    "`{}`",
    "```\n{}\n```",
    "**{}**",
    "> {}",
    "- {}\n  - {}",
    "| a | b |\n|---|---|\n| {} | [x]({}) |",
    "# {}",
    "<img src='{}'>",
    "[F1.1]({})",
    "F1.1]({})[F1.1]({})",
]


@pytest.mark.parametrize("shape", SHAPES)
def test_untrusted_links_are_inert_in_every_markup(shape: str) -> None:
    for evil in EVIL:
        check_inert(shape.replace("{}", evil))


def check_inert(text: str) -> None:
    """No link, mention or image but those of code, in blocks, text and stream alike."""
    rendered = answer_message(answer(text, links=CITED), "k", REPLY, REQUESTER)
    for leaf in leaves([b for p in rendered for b in p.blocks if b["type"] in RICH]):
        assert leaf["type"] in ("text", "link", "user", "raw_text")
        assert leaf.get("url", PERMALINK) in (PERMALINK, "https://asked.example/a?b=1")
        assert leaf.get("user_id", REQUESTER) == REQUESTER
        assert not re.search(r"<[@#!][^<>\n]*>", leaf.get("text", ""))
        assert_no_address(leaf.get("text", ""))
    streamed = prose().live(f"{text}\n\nmore")
    for shown in (streamed, *(text for part in rendered for text in (part.text, part.streamed))):
        assert_nothing_acts(shown)
    types = re.findall(r'"type": "(\w+)"', json.dumps([p.blocks for p in rendered]))
    assert not set(types) & {"image", "broadcast", "channel", "usergroup", "emoji", "markdown"}


RICH = ("rich_text", "table")
ALLOWED = (PERMALINK, "https://asked.example/a?b=1", "www.asked.example")


def assert_no_address(text: str) -> None:
    for allowed in ALLOWED:
        text = re.sub(rf"{re.escape(allowed)}(?![\w/?#&=:@.\\-]*\w)", "", text)
    assert "://" not in text.replace(":///", "")
    assert not re.search(r"www\.\w", text)


def assert_nothing_acts(text: str) -> None:
    text = re.sub(rf"\[1\]\({re.escape(PERMALINK)}\)", "", text)
    text = re.sub(r"\]\(https://asked\.example/a\?b=1\)", "", text.replace(f"<@{REQUESTER}>", ""))
    assert_no_address(text)
    spoken = "".join(piece for code, piece in segments(text) if not code)
    assert not re.search(r"\]\([^ ]", spoken)
    assert "![" not in spoken
    assert not re.search(r"<[@#!][^<>\n]*>", text)
    assert not re.search(r"@(channel|here|everyone)\b", text)
    for allowed in ALLOWED:
        text = text.replace(allowed, "")
    assert not re.search(r"(?<![\w.-])[\w-]+\.(example|com)\b", text)


MARKS = "<!channel> <#C0A|x> <!date^1^{d}|x> @here :smile: [F1.1] ` ** _ | ]( &lt; &gt; \\".split()
MARKS += [f"<@{OTHER}>", f"<@{REQUESTER}>", "https://asked.example/", "\u200b", "\u202e", "\ue000"]
BREAKS = ["\n", "\n\n", "> ", "- ", "1. ", "```\n", "| a | b |\n|---|---|\n"]
PIECES = st.sampled_from([*EVIL, *SHAPES, *MARKS, *BREAKS])


@hypothesis_settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=9).map("".join), st.sampled_from(EVIL))
def test_random_combinations_of_markup_are_inert(text: str, evil: str) -> None:
    check_inert(text.replace("{}", evil))


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        (f"Hi <@{REQUESTER}>, ask <@{OTHER}|luis>", f"Hi <@{REQUESTER}>, ask @luis"),
        (f"`<@{REQUESTER}>` <!channel> <!here|x> @everyone", "@channel @x @everyone"),
        ("call +49 30 1234567 or mail ana@acme.com", "call +49 30 1234567 or mail ana@acme.com"),
        ("see config.yaml and evil.example/x", "see config.yaml and evil.example/x"),
        ("a \ue000 b", "a  b"),
        (":warning: ![x](y)", ":warning: ! [x] (y)"),
    ],
)
def test_only_the_requester_is_mentioned_and_text_is_kept(text: str, shown: str) -> None:
    assert flat_text(text).endswith(shown)
    mentioned = [leaf["user_id"] for leaf in leaves(posted_blocks(text)) if leaf["type"] == "user"]
    assert mentioned == [REQUESTER] * flat_text(text).count(f"<@{REQUESTER}>")


# ---- secrets and hidden characters

SECRET = "xoxb-2345-6789-aBcDeF"


def every_text(parts: Sequence[MessagePart]) -> str:
    texts = [[part.text, part.streamed, *part.blocks] for part in parts]
    return json.dumps(texts, ensure_ascii=False)


@pytest.mark.parametrize(
    "secret", [SECRET, SECRET.replace("-2", "-\u200b2"), f"\uff58{SECRET[1:]}"]
)
@pytest.mark.parametrize("shape", ["{}", "`{}`", "```\n{}\n```", "| a |b|\n|---|---|\n| {} |x|"])
def test_secrets_are_redacted_everywhere_in_an_answer_and_its_details(
    shape: str, secret: str
) -> None:
    document = answer(
        f"{shape.format(secret)}\n\nIt is so [F1.1].",
        subagents=[{"findings": [{"id": "F1.1", "claim": f"The token is {secret}"}]}],
        coverage={"not_covered": gaps_of(f"{'x' * 190} AKIA23452345FODNN7EX")},
    )
    message = every_text(answer_message(document, "k", REPLY))
    assert "2345" not in message
    assert message.count(SECRET_PLACEHOLDER) >= 2
    view = json.dumps(details_view(document, REPLY, 1.0))
    assert "2345" not in view
    assert view.count(SECRET_PLACEHOLDER) >= 2


def test_a_secret_is_never_shown_while_it_is_being_written() -> None:
    text = f"The token is {SECRET}, or password = 'two words' and postgres://u:hunter@2@h/d, fine."
    for end in range(len(text) + 1):
        so_far = prose().live(text[:end])
        assert not any(part in so_far for part in ("xoxb", "two", "hunter", "2345"))
    assert prose().live(f"{text}\n\nThe end").count(SECRET_PLACEHOLDER) == 3


def test_hidden_characters_do_not_reach_slack() -> None:
    hidden = "a\u200bb\u202ec\U000e0041d\u2800e\ufe01f"
    claims = [{"findings": [{"id": "F1.1", "claim": hidden}]}]
    message = every_text(answer_message(answer(f"{hidden} [F1.1]", subagents=claims), "k", REPLY))
    assert "abcdef" in message
    unseen = "[\u200b-\u200f\u202a-\u202e\u2061-\u2069\u2800\ufe01\U000e0000-\U000e007f]"
    assert not re.search(unseen, message)


def render_answer(text: str, chars: int = 11_000, **more: Any) -> Sequence[MessagePart]:
    parts = answer_message(answer(text, **more), KEY, reply(chars))
    check(parts, chars)
    return parts


def check(parts: Sequence[MessagePart], chars: int = 11_000) -> None:
    """Every message is one that Slack takes, by the SDK's own models and the measured limits."""
    assert parts
    for part in parts:
        assert part.text.strip()
        assert len(part.blocks) <= 50
        assert size(part.blocks) <= MAX_MESSAGE
        assert size(text_blocks(part.blocks)) <= chars
        assert sum(block["type"] == "table" for block in part.blocks) <= 1
        for parsed in Block.parse_all(list(part.blocks)):
            kinds = RichTextBlock | TableBlock | ContextBlock | ContextActionsBlock | SectionBlock
            assert isinstance(parsed, kinds)
            parsed.validate_json()
        assert check_blocks(part.blocks), "the local Slack takes them, too"
        for block in part.blocks:
            if block["type"] == "context":
                assert all(len(e["text"]) <= 3000 for e in block["elements"])
    assert [below(p.blocks) for p in parts[:-1]] == [[]] * (len(parts) - 1)


def text_blocks(blocks: Sequence[Json]) -> list[Json]:
    return [block for block in blocks if block["type"] in ("rich_text", "table")]


def below(blocks: Sequence[Json]) -> list[Json]:
    return [block for block in blocks if block not in text_blocks(blocks)]


def text_with_links(text: str) -> str:
    prose = Prose(LINKS, REPLY)
    return prose.link_citations(text, Numbers(prose.links))


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


@hypothesis_settings(max_examples=50, deadline=None)
@given(TEXTS, st.sampled_from([500, 900, 4000, 11_000, 12_000]))
def test_no_part_is_over_the_limits_and_no_word_is_lost(text: str, chars: int) -> None:
    render_answer(text, chars)
    parts = cut(text_with_links(text), reply(chars))
    wanted = words(text_with_links(text))
    for body in parts:
        assert not re.search(r"\]\([^)]*\Z", body), "cut inside a link"
    found = words("\n".join(parts))
    lost = Counter(w for w in wanted if len(w) <= 100) - Counter(found)
    assert not lost
    assert len("".join(wanted)) <= len("".join(found))
    if "|---" not in text and "```" not in text:
        assert "".join(found) == "".join(wanted)


def test_long_table_continues_in_the_next_message_with_its_titles() -> None:
    rows = [f"| {n} | {'word ' * 9}|" for n in range(250)]
    parts = render_answer("\n".join(["| Number | Words |", "|---|---|", *rows]))
    tables = [b["rows"] for part in parts for b in part.blocks if b["type"] == "table"]
    assert len(tables) == len(parts) > 2
    assert all("Number" in str(head) for head, *_ in tables)
    assert [int(flat(row[0])) for _, *body in tables for row in body] == [*range(250)]


@pytest.mark.parametrize("rows", ["| 1 | 2 | 3 |", f"|{' x |' * 21}"])
def test_table_that_would_lose_cells_is_shown_as_it_was_written(rows: str) -> None:
    titles = "| a | b |" if "1" in rows else rows
    text = "\n".join([titles, re.sub(r"[^|]+", "---", titles), rows])
    assert flat_text(text) == f"```\n{text}\n```"


@hypothesis_settings(max_examples=50, deadline=None)
@given(TEXTS, st.integers(0, 10_000))
def test_streamed_text_is_a_prefix_of_the_later_text(text: str, cut: int) -> None:
    so_far = Prose(LINKS, REPLY).live(text[: cut % (len(text) + 1)])
    assert Prose(LINKS, REPLY).live(f"{text}\n\nThe end.").startswith(so_far)


HOSTS = (
    (".evil.example", ".evil[.]example"),
    ("...evil.example/x", "...evil[.]example/x"),
    ("evil.xn--p1ai", "evil[.]xn--p1ai"),
    ("(evil.example_more)", "(evil[.]example_more)"),
    ("-.evil.example", "-[.]evil[.]example"),
)


@pytest.mark.parametrize(("host", "shown"), HOSTS)
def test_host_names_are_defanged_in_final_and_streamed_text(host: str, shown: str) -> None:
    text = f"The host is {host} for now"
    final = answer_message(answer(text), KEY, REPLY)
    assert shown in final[0].streamed
    assert all(host not in part.text for part in final)
    for count in range(len(text) + 1):  # as it is written, letter by letter
        so_far = Prose(LINKS, REPLY).live(text[:count])
        assert not re.search(r"evil\.\w|9?2e\.\w", so_far)
        assert final[0].streamed.startswith(so_far)


def test_large_pathological_text_is_rendered_within_two_seconds() -> None:
    odd = "`a``,[,**,**a ,_a ,~~a,|,[x](,<@,x|\n,](,> ,```\n,|-|\n,- ,1. ,\\,a.,**_,\n".split(",")
    texts = [piece * (10_000 // len(piece)) for piece in odd]
    texts.append("<@" * 2_500 + ">" * 2_500)
    texts.append("**a** b\n" * 8_000)
    texts += [f"a|b\n{rule}\n" for rule in (f"{' ' * 16_000}|x|", f"-{' ' * 16_000}x|")]
    for text in texts:
        with cpu_limit(2):  # the longest takes about 0.7; a quadratic one, half a minute
            render_answer(text)


# ---- details


def details(text: str, **more: Any) -> list[str]:
    """The lines of the details of an answer, which Slack takes."""
    view = details_view(answer(text, **more), reply(11_000), 14.2)
    View(**view).validate_json()
    assert check_blocks(view["blocks"], MAX_VIEW_BLOCKS)
    return "\n".join(map(flat, view["blocks"])).splitlines()


def test_details_show_sources_gaps_and_cost() -> None:
    partial = {"id": "s3", "status": "partial", "stopped_by": "none", "findings": []}
    stopped = {"id": "s4", "status": "failed", "stopped_by": "model_error", "findings": []}
    missing = [
        {"subagent": "s3", "reason": "#ops: <!channel> & more"},
        {"subagent": "s4", "stopped_by": "model_error", "reason": "http 529"},
        {"source": "#gone", "reason": "not there"},
    ]
    url = PERMALINK.replace("&", "&amp;")
    assert details(
        "One [F1.2]. Two [F1.1].",
        coverage={"failed": 1, "complete": 4, "not_covered": missing},
        subagents=[CLAIMS, partial, stopped],
        unsupported=2,
    ) == [
        "*Sources*",
        f"<{url}1|[1]> Claim of F1.2 (and 1 more)",
        f"<{url}|[2]> Claim of F1.1",
        "*Not covered*",
        "• #ops: &lt;!channel&gt; &amp; more",
        "• One question was not answered to its end: the language model failed.",
        "• #gone: not there",
        "2 statements left out because no source carries it.",
        "5 questions, $0.012, 14 secs · Reference: 0f1e2d3c4b5a",
    ]


def test_oversized_details_are_truncated_to_a_valid_slack_view() -> None:
    links = {f"F1.{n}": [f"{PERMALINK}{n}"] for n in range(1, 301)}
    findings = [{"id": i, "claim": "long " * 100, "queries": [f"SELECT {i}"]} for i in links]
    text = " ".join(f"[{i}]" for i in links)
    missing = gaps_of(*(f"#c{n}: {'long ' * 200}" for n in range(300)))
    shown = details(
        text, links=links, subagents=[{"findings": findings}], coverage={"not_covered": missing}
    )
    assert "The rest does not fit here: `assistant show 0f1e2d3c4b5a` has all of it." in shown
    assert shown[-1].endswith("Reference: 0f1e2d3c4b5a")
    last = render_answer(text, links=links, coverage={"not_covered": missing})[-1]
    (line, *_) = map(flat, below(last.blocks))
    assert line.startswith("300 sources · not covered: #c0: long long")
    assert line.endswith("… and 299 more · $0.012")


def test_untrusted_claims_and_statements_are_inert_in_the_details() -> None:
    claim = "<!channel> see https://evil.example/x <https://evil.example|here> @here"
    found: Sequence[Json] = [{"findings": [{"id": "F1.1", "claim": claim}]}]
    text = "\n".join(details("One [F1.1].", subagents=found))
    assert not any(mark in text for mark in ("://evil", "<!", "@here"))
    query = "data:shop: SELECT '<!channel> @here https://evil.example/x' FROM a\n\n*b*"
    one = {"id": "F1.1", "claim": "Ten.", "queries": [query]}
    view = details_view(answer("One [F1.1].", subagents=[{"findings": [one]}]), REPLY, 1.0)
    (block,) = [b for b in view["blocks"] if b["type"] == "rich_text"]  # Slack parses nothing in it
    (part,) = block["elements"]
    assert part["elements"] == [{"type": "text", "text": query.removeprefix("data:shop: ")}]


STATEMENTS = (
    ("-- Refunds of 2.5 weeks.\nSELECT 1 FROM a", "Refunds of 2.5 weeks"),
    ("/* Remboursements de l'été */ SELECT 1 FROM a", "Remboursements de l'été"),
    ("-- see evil.example\nSELECT 1 FROM a", "a"),
    ("-- <!channel>\nSELECT 1 FROM a", "a"),
    ("-- " + "long " * 50 + "\nSELECT 1 FROM a", "a"),
)


@pytest.mark.parametrize(("statement", "label"), STATEMENTS)
def test_statement_is_labelled_by_its_plain_comment_or_its_table(
    statement: str, label: str
) -> None:
    one = {"id": "F1.1", "claim": "Ten.", "queries": [f"data:shop: {statement}"]}
    shown = details("One [F1.1].", subagents=[{"findings": [one]}], links={})
    assert shown[1].endswith(f"Database shop: {label}")


def test_list_cited_by_a_finding_is_a_separate_source() -> None:
    record = "https://acme.slack.com/lists/T1/F0BUGS?record_id=Rec1"
    evidence = ["C1/1740497830.000100", "F0BUGS/Rec1"]
    links = [PERMALINK, record]
    one = {"id": "F1.1", "claim": "Ten.", "evidence": evidence, "links": links}
    fields = {"subagents": [{"findings": [one]}], "places": {"F0BUGS": "Bug tracker"}}
    shown = details("Known [F1.1].", **fields, links={"F1.1": links})
    assert shown[1:3] == [
        f"<{PERMALINK.replace('&', '&amp;')}|[1]> Ten. (and 1 more)",
        f"<{record}|[2]> Bug tracker",
    ]
