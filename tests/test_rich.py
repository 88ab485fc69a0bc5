"""Rich text of what a model wrote: its structure stays, and nothing in it acts."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from document_kit import answer_document
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from slack_sdk.models.blocks import Block
from timing import computed_within

from bot.citations import neutralize_links
from bot.local.slack.blocks import checked
from bot.local.slack.shown import flat
from bot.reports.slack import answer_message
from bot.slack.blocks import Rendered
from bot.slack.markdown import Numbers, Prose, blocks, segments
from config.sections import ReplySettings
from config.settings import load_settings
from scopes.clean import REMOVED

REQUESTER, OTHER = "U0ANA", "U0LUIS"
PERMALINK = "https://acme.slack.com/archives/C0A/p1740498077000100?thread_ts=1.2&cid=C0A"
ASKED = "Is https://asked.example/a?b=1 up? See www.asked.example and ftp://asked.example."
CITED = {"F1.1": [PERMALINK]}
REPLY = load_settings(env={}).reply.model_copy(update={"link_hosts": ("docs.example.com",)})
Json = dict[str, Any]


def prose(requester: str = REQUESTER, settings: ReplySettings = REPLY) -> Prose:
    return Prose(CITED, settings, ASKED, requester)


def made(text: str) -> list[Json]:
    """The blocks of what a model wrote, as they are posted."""
    maker = prose()
    body = maker.link_citations(text, Numbers(CITED))
    found = list(blocks(body, maker.allowed(), REQUESTER))
    assert not found or checked(found)
    for parsed in Block.parse_all(found):
        parsed.validate_json()
    return found


def parts(text: str) -> list[Json]:
    (block,) = made(text)
    return list(block["elements"])


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


def shown(text: str) -> str:
    return "\n".join(map(flat, made(text)))


def text_leaf(text: str, *styles: str) -> Json:
    style = {"style": dict.fromkeys(styles, True)} if styles else {}
    return {"type": "text", "text": text, **style}


def section(*elements: Json) -> Json:
    return {"type": "rich_text_section", "elements": list(elements)}


def items(style: str, *texts: str, **more: int) -> Json:
    elements = [section(text_leaf(text)) for text in texts]
    return {"type": "rich_text_list", "style": style, "elements": elements, **more}


# ---- structure


def test_styles_are_read_and_their_marks_go() -> None:
    line = "a **b** *c* _d_ ~~e~~ `f*g*` **_h_** snake_case_name 2*3*4 \\*i\\* __j__"
    found = list(leaves(made(line)))
    styles = [f"{leaf['text']}={'+'.join(leaf['style'])}" for leaf in found if "style" in leaf]
    expected = "b=bold c=italic d=italic e=strike f*g*=code h=bold+italic 3=italic j=bold"
    assert styles == expected.split()
    said = "".join(leaf["text"] for leaf in found)
    assert said == "a b c d e f*g* h snake_case_name 234 *i* j"


def test_paragraphs_headings_and_rules_are_sections() -> None:
    assert parts("# Open *now*\nOne\ntwo.\n\nThree.\n---\nEnd < x > & &lt;") == [
        section(
            text_leaf("Open ", "bold"),
            text_leaf("now", "bold", "italic"),
            text_leaf("\nOne\ntwo.\n\nThree.\n———\nEnd < x > & <"),
        )
    ]


def test_lists_nest_and_go_on_with_their_numbers() -> None:
    text = "To do:\n- one\n  more of it\n\n- two\n  - deep\n    1. x\n- three\n\n"
    text += "Then\n\n3. c\n4. d\n1. e"
    assert parts(text) == [
        section(text_leaf("To do:")),
        items("bullet", "one\nmore of it", "two"),
        items("bullet", "deep", indent=1),
        items("ordered", "x", indent=2),
        items("bullet", "three"),
        section(text_leaf("\nThen")),
        items("ordered", "c", "d", "e", offset=2),
    ]


def test_a_list_with_only_ones_is_counted_through_what_is_nested_in_it() -> None:
    assert parts("1. a\n   - x\n1. b\n1. c") == [
        items("ordered", "a"),
        items("bullet", "x", indent=1),
        items("ordered", "b", "c", offset=1),
    ]


def test_quotes_and_code_are_their_own_parts() -> None:
    quote = {
        "type": "rich_text_quote",
        "elements": [text_leaf("one\n• two"), text_leaf("!", "bold")],
    }
    code = {"type": "rich_text_preformatted", "elements": [text_leaf("x = 1 < 2\n\n  *y*")]}
    text = "> one\n> - two**!**\n\n```py\nx = 1 < 2\n\n  *y*\n```\nEnd"
    assert parts(text) == [quote, code, section(text_leaf("End"))]


def test_a_table_is_a_block_with_its_sides_and_links() -> None:
    before, table, after = made(
        "Here:\n\n| a | b |\n|:-:|--:|\n| **x** [F1.1] | \\|y |\n| z |\n\nEnd"
    )
    assert table["column_settings"] == [
        {"align": "center", "is_wrapped": True},
        {"align": "right", "is_wrapped": True},
    ]
    assert [[flat(cell) for cell in row] for row in table["rows"]] == [
        ["a", "b"],
        [f"**x** [1]({PERMALINK})", "|y"],
        ["z", "–"],
    ]
    assert (flat(before), flat(after)) == ("Here:", "End")


# ---- links and mentions


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("Open [F1.1].", PERMALINK),
        ("It is https://asked.example/a?b=1, as asked.", "https://asked.example/a?b=1"),
        ("[the page](https://asked.example/a?b=1)", "https://asked.example/a?b=1"),
        ("<https://asked.example/a?b=1|the page>", "https://asked.example/a?b=1"),
        (
            "See https://docs.example.com/guide/a_b-c.html.",
            "https://docs.example.com/guide/a_b-c.html",
        ),
        ("[guide](https://Docs.Example.com)", "https://Docs.Example.com"),
    ],
)
def test_what_code_made_was_asked_or_is_allowed_is_a_link(text: str, url: str) -> None:
    links = [leaf for leaf in leaves(made(text)) if leaf["type"] == "link"]
    assert [leaf["url"] for leaf in links] == [url]


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
def test_nothing_else_is_a_link_in_any_shape(shape: str) -> None:
    for evil in EVIL:
        check_inert(shape.replace("{}", evil))


def check_inert(text: str) -> None:
    """No link, mention or image but those of code, in blocks, text and stream alike."""
    document = ended(text)
    rendered = answer_message(answer_document(document), "k", REPLY, 1.0, REQUESTER)
    for leaf in leaves([b for p in rendered.parts for b in p.blocks if b["type"] in RICH]):
        assert leaf["type"] in ("text", "link", "user", "raw_text")
        assert leaf.get("url", PERMALINK) in (PERMALINK, "https://asked.example/a?b=1")
        assert leaf.get("user_id", REQUESTER) == REQUESTER
        assert not re.search(r"<[@#!][^<>\n]*>", leaf.get("text", ""))
        assert_no_address(leaf.get("text", ""))
    streamed = prose().live(f"{text}\n\nmore")
    for said in (rendered.streamed_text, streamed, *(part.text for part in rendered.parts)):
        assert_nothing_acts(said)
    types = re.findall(r'"type": "(\w+)"', json.dumps([p.blocks for p in rendered.parts]))
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


def ended(text: str, **more: Any) -> Json:
    cover = dict.fromkeys(("items", "partial", "failed", "cancelled", "refused"), 0)
    return {
        **{"answer": text, "question": ASKED, "links": CITED, "run_id": "r1", "cost_usd": 0.01},
        **{"status": "complete", "stopped_by": "none", "model": "claude", "unsupported": 0},
        **{"degraded": False, "coverage": {**cover, "not_covered": []}},
        "subagents": [],
        **more,
    }


MARKS = "<!channel> <#C0A|x> <!date^1^{d}|x> @here :smile: [F1.1] ` ** _ | ]( &lt; &gt; \\".split()
MARKS += [f"<@{OTHER}>", f"<@{REQUESTER}>", "https://asked.example/", "\u200b", "\u202e", "\ue000"]
BREAKS = ["\n", "\n\n", "> ", "- ", "1. ", "```\n", "| a | b |\n|---|---|\n"]
PIECES = st.sampled_from([*EVIL, *SHAPES, *MARKS, *BREAKS])


@hypothesis_settings(max_examples=400, deadline=None)
@given(st.lists(PIECES, max_size=9).map("".join), st.sampled_from(EVIL))
def test_nothing_acts_however_it_is_put_together(text: str, evil: str) -> None:
    check_inert(text.replace("{}", evil))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"Hi <@{REQUESTER}>, ask <@{OTHER}|luis>", f"Hi <@{REQUESTER}>, ask @luis"),
        (f"`<@{REQUESTER}>` <!channel> <!here|x> @everyone", "@channel @x @everyone"),
        ("&lt;!channel&gt; &lt;@U0LUIS&gt;", "@channel @U0LUIS"),
        ("call +49 30 1234567 or mail ana@acme.com", "call +49 30 1234567 or mail ana@acme.com"),
        ("see config.yaml and evil.example/x", "see config.yaml and evil.example/x"),
        ("a \ue000 b", "a  b"),
        (":warning: ![x](y)", ":warning: ! [x] (y)"),
    ],
)
def test_only_the_requester_is_mentioned_and_words_stay(text: str, said: str) -> None:
    assert shown(text).endswith(said)
    mentioned = [leaf["user_id"] for leaf in leaves(made(text)) if leaf["type"] == "user"]
    assert mentioned == [REQUESTER] * shown(text).count(f"<@{REQUESTER}>")


def test_where_slack_reads_text_hosts_and_mail_addresses_are_broken_up() -> None:
    text = "See evil.example/x, mail ana.b@acme.com, v1.2.3, e.g. reply.json, docs.yaml 3.5"
    said = "See evil[.]example/x, mail ana.b@acme[.]com, v1.2.3, e.g. reply.json, docs.yaml 3.5"
    assert neutralize_links(text) == said
    rendered = answer_message(answer_document(ended(text)), "k", REPLY, 1.0)
    assert (rendered.parts[0].text, rendered.streamed_text) == (said, said)
    assert "evil.example/x, mail ana.b@acme.com" in json.dumps(rendered.parts[0].blocks)


def test_without_a_requester_nobody_is_mentioned() -> None:
    rendered = answer_message(answer_document(ended(f"Hi <@{REQUESTER}>")), "k", REPLY, 1.0)
    assert "<@" not in json.dumps([rendered.parts[0].text, rendered.streamed_text])
    assert not [leaf for leaf in leaves(list(rendered.parts[0].blocks)) if leaf["type"] == "user"]


# ---- what nobody sees, and secrets

SECRET = "xoxb-2345-6789-aBcDeF"


def every_text(rendered: Rendered) -> str:
    said = [[part.text, *part.blocks] for part in rendered.parts]
    return json.dumps([said, rendered.streamed_text, rendered.below], ensure_ascii=False)


@pytest.mark.parametrize(
    "secret", [SECRET, SECRET.replace("-2", "-\u200b2"), f"\uff58{SECRET[1:]}"]
)
@pytest.mark.parametrize("shape", ["{}", "`{}`", "```\n{}\n```", "| a |b|\n|---|---|\n| {} |x|"])
def test_no_secret_is_shown_in_any_place(shape: str, secret: str) -> None:
    told = [{"findings": [{"id": "F1.1", "claim": f"The token is {secret}"}]}]
    cover = {"items": 1, "partial": 0, "failed": 1, "cancelled": 0, "refused": 0}
    document = ended(
        f"{shape.format(secret)}\n\nIt is so [F1.1].",
        subagents=told,
        coverage={**cover, "not_covered": [f"{'x' * 190} AKIA23452345FODNN7EX"]},
    )
    said = every_text(answer_message(answer_document(document), "k", REPLY, 1.0))
    assert "2345" not in said
    assert said.count(REMOVED) >= 4


def test_a_secret_is_never_shown_while_it_is_being_written() -> None:
    text = f"The token is {SECRET}, or password = 'two words' and postgres://u:hunter@2@h/d, fine."
    for end in range(len(text) + 1):
        so_far = prose().live(text[:end])
        assert not any(part in so_far for part in ("xoxb", "two", "hunter", "2345"))
    assert prose().live(f"{text}\n\nThe end").count(REMOVED) == 3


def test_hidden_characters_do_not_reach_slack() -> None:
    hidden = "a\u200bb\u202ec\U000e0041d\u2800e\ufe01f"
    claims = [{"findings": [{"id": "F1.1", "claim": hidden}]}]
    document = answer_document(ended(f"{hidden} [F1.1]", subagents=claims))
    said = every_text(answer_message(document, "k", REPLY, 1.0))
    assert "abcdef" in said
    unseen = "[\u200b-\u200f\u202a-\u202e\u2061-\u2069\u2800\ufe01\U000e0000-\U000e007f]"
    assert not re.search(unseen, said)


def test_odd_and_large_text_is_made_in_time() -> None:
    odd = "`a``,[,**a ,_a ,~~a,|,[x](,> ,```\n,- ,1. ,\\,a.,**_".split(",")
    with computed_within(8):
        for piece in odd:
            maker = prose()
            text = maker.link_citations((piece * 12_000)[:12_000], Numbers(CITED))
            blocks(text, maker.allowed())
            neutralize_links(text)


def test_rich_text_makes_no_link_by_itself() -> None:
    """Even of text that nothing was taken out of before."""
    for evil in EVIL:
        for text in (evil, f"[x]({evil})", f"**[{evil}]({evil})**", f"| a |\n|---|\n| {evil} |"):
            for leaf in leaves(list(blocks(text, prose().allowed()))):
                assert leaf["type"] in ("text", "raw_text")
                assert_no_address(leaf["text"])
