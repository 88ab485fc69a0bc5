"""Citations of findings and of items that a parent read: only known ones stay."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from document_kit import answer_document
from engine_kit import (
    AnsweredRequest,
    Json,
    ask_engine,
    call,
    opening,
    say,
    sentence,
    thread_id,
    turn,
    turns,
    use,
    words,
    workspace,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from serve_kit import request_in, serve, with_rules
from standins.model_faults import Fault, Faults
from standins.slack import LocalSlack
from timing import cpu_limit

from bot.citations import (
    EMPTY_MAPPING,
    MAX_HELD,
    CitationFilter,
    CitationIndex,
    CitedStatement,
    Links,
    drop_unknown,
    statements,
)
from bot.local.model.answer import Answer
from bot.reports.answer import answer_text
from bot.tasks.base import cited_items
from bot.terminal import BOLD, PLAIN, printable
from config.words import phrase
from scopes.label import TRUSTED_LABEL
from scopes.tool import Item
from subagents.events import AnswerDelta
from subagents.evidence import SourceLog
from subagents.result import Finding, SubagentResult

KNOWN = {"F1.1", "F1.2", "F12.30"}
CITATIONS = ["[", "]", "F1.1", "F9.9", "F12.30", "[F1.1]", "[F9.9]", "[F1.2; F9.1, F1.1]", "[F"]
OTHERS = ["1", " ", "  ", ", ", ".", "!", "\n", "\t", "word", "[Café Sol]", "[1]", "é", "(x)"]
OWN = {
    "note/7": "F0.1",
    "C0ES/1740498077.000100": "F0.2",
    "file/my *big* list (2).csv@1:3": "F0.3",
    "U0ANA": "F0.4",
}
"""Items that were looked up: their ids, and those for the answer."""
ITEMS = ["note/7", "[note/7]", "[note/8]", "[F1.1; note/7,note/8]", "[and/or]", "[n/a, ", "/", ";"]
ITEMS += ["[file/my *big* list (2).csv@1:3]", "[file/my ", "[F0.1]", "[C0ES/1740498077.000100]"]
ADDRESSES = ["www.", "https://", "a.example/x?y=1", "https://asked.example", "<https://b.example|"]
PIECES = st.lists(
    st.sampled_from([*CITATIONS, *OTHERS, *ADDRESSES, *ITEMS, "<", ">", "|"]), max_size=25
)
TEXTS = PIECES.map("".join)
REQUEST = "Is https://asked.example, or https://asked.example/too, up?"


def whole(text: str) -> str:
    return Links(REQUEST).defang(drop_unknown(text, KNOWN, OWN))


def filter_stream(chunks: list[str], files: Mapping[str, str] = EMPTY_MAPPING) -> str:
    citations = CitationFilter(index(*OWN, files=files), Links(REQUEST))
    out = [citations.add(chunk) for chunk in chunks]
    return "".join([*out, citations.close()])


def index(*items: str, files: Mapping[str, str] = EMPTY_MAPPING) -> CitationIndex:
    """An index of the known findings, and of items and files with these ids."""
    earlier = {id: Finding(id=id, claim="", evidence=[]) for id in KNOWN}
    text = " ".join(f"[{id}] {name}" for id, name in files.items())
    reader = SubagentResult(
        id="s1",
        scope="files",
        model="fast",
        status="complete",
        stopped_by="none",
        reason="",
        contract="answer",
        text=text,
    )
    reading = SourceLog(sent=len(items))
    reading.add([Item(id, "", None, TRUSTED_LABEL) for id in items], {})
    return CitationIndex(earlier, {"s1": reader}, reading)


@settings(max_examples=100)
@given(TEXTS, st.lists(st.integers(1, 6), min_size=1, max_size=9))
def test_streamed_text_equals_the_whole_text_for_any_chunks(text: str, lengths: list[int]) -> None:
    chunks, rest, cut = [], text, cycle(lengths)
    while rest:
        length = next(cut)
        chunks.append(rest[:length])
        rest = rest[length:]
    assert filter_stream(chunks) == whole(text)


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Ana pays [note/7], Eva does [note/8].", "Ana pays [F0.1], Eva does."),
        ("Cards [F1.1] fail [F9.9, F9.8].[F12.30]", "Cards [F1.1] fail.[F12.30]"),
        ("Both [F1.1; note/7, F9.9,note/8].", "Both [F1.1][F0.1]."),
        ("Said [C0ES/1740498077.000100] there", "Said [F0.2] there"),
        ("Not read [C0ES/1740498077.000200] [1740498077.000100]", "Not read"),
        ("Listed [file/my *big* list (2).csv@1:3].", "Listed [F0.3]."),
        ("Not listed [file/my *big* list (2).csv@1:4] [file/x.csv@1].", "Not listed."),
        ("Who [U0ANA], not [U0ANNA123] [schedule/weekly] [talk/0123456789ab]", "Who [F0.4], not"),
        ("I guess [F0.1][F0.9].", "I guess."),
        ("See [note/7](https://evil.example)", "See [F0.1](https://evil.example)"),
        ("Ana [24/7] [n/a] [and/or] [src/a.py:12] [HTTP/1.1] [CUSTOMER] [note/s]", ""),
        ("Pay [DE89370400440532013000], tax [DE123456789], see [CVE20241234]", ""),
        ("Not [C0CSMGERMANY] [U012345678] [UBF7Z4GHQ] [C1H9RESGL] [C9/1.000100]", "Not"),
        ("Ana [NOTE/7] [note/07] note/7 (note/7)", "Ana [NOTE/7] note/7 (note/7)"),
    ],
)
def test_exact_item_id_is_replaced_by_an_answer_citation(text: str, kept: str) -> None:
    assert drop_unknown(text, KNOWN, OWN) == (kept or text)
    assert "F0." not in drop_unknown(text, KNOWN)


FILES = {"file/sales.csv@1": "sales.csv", "file/by month (2).png@2": "by month (2).png"}


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("CSV: [file/sales.csv@1]", "CSV: sales.csv"),
        ("Both [file/sales.csv@1, file/by month (2).png@2].", "Both sales.csv, by month (2).png."),
        ("Kept [F1.1; file/sales.csv@1].", "Kept sales.csv[F1.1]."),
        ("None [file/sales.csv@2] [file/x.csv@1] [file/sales.csv@1:3].", "None."),
    ],
)
def test_attached_file_is_named_but_not_cited_as_a_source(text: str, kept: str) -> None:
    assert drop_unknown(text, KNOWN, OWN, FILES) == kept
    assert filter_stream([*text], FILES) == kept


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Cards fail [F1.1]. Bills too [F1.2].", [("Cards fail", "F1.1"), ("Bills too", "F1.2")]),
        ("3.8 broke the till [F1.1]", [("3.8 broke the till", "F1.1")]),
        ("1. Cards fail [F1.1]\n2) Bills [F1.2]", [("Cards fail", "F1.1"), ("Bills", "F1.2")]),
        ("[Café Sol] Cards fail [F1.1]", [("[Café Sol] Cards fail", "F1.1")]),
        ("Cards fail [F9.9].", [("Cards fail", "")]),
        ("Cards [F1.1] and bills [F1.1] fail", [("Cards and bills fail", "F1.1")]),
        ("**Sales, 2024: what now?**\nThree [F1.1]", [("Three", "F1.1")]),
        (
            "| Who | € |\n|---|--:|\n| Ana [F1.1] | 4.5 |\n| Ben | |",
            [("Ana | 4.5", "F1.1"), ("Ben", "")],
        ),
        ("Cards [F1.1].\n- (Proposal: ask Ana.)\n(#ops is closed to me).", [("Cards", "F1.1")]),
        ("Cards [F1.1]. Shall I ask Ana?\nどうしますか？\n（未読）", [("Cards", "F1.1")]),  # noqa: RUF001
    ],
)
def test_statements_are_sentences_with_their_citations(
    text: str, found: list[tuple[str, str]]
) -> None:
    expected = [CitedStatement(text=claim, findings=[id] if id else []) for claim, id in found]
    assert statements(text, KNOWN) == expected


def test_very_long_word_is_defanged_in_bounded_time() -> None:
    """40,000 letters held the whole process up for 20 seconds."""
    word = "x" * 40_000
    with cpu_limit(2):
        bare = Links(word).defang(f"{word}://evil.example {word}")
        assert bare == f"{word[31:]}evil[.]example {word}"


@pytest.mark.parametrize("unit", [" ", "[F1.1,", "x", "<https://a|", " x[", "[a/", "[a/b, ", "a/ "])
def test_unterminated_text_is_filtered_in_bounded_time(unit: str) -> None:
    """10,000 spaces held the whole process up for 17 seconds."""
    text = unit * (20_000 // len(unit))
    with cpu_limit(5):
        filter_stream([text[n : n + 20] for n in range(0, len(text), 20)])
        drop_unknown(text, KNOWN, OWN)
        drop_unknown(f"[a/{text}", KNOWN, OWN)


@pytest.mark.parametrize(
    ("start", "rest"),
    [("https:", "//evil.example"), ("https://asked.example", ".evil.example")],
)
def test_url_start_held_too_long_is_not_joined_with_its_rest(start: str, rest: str) -> None:
    hold = "-" * MAX_HELD + start
    assert filter_stream([hold, rest, " end"]).startswith(f"{hold} ")
    assert "evil[.]example" in filter_stream([start, rest, " end"])


# ---- what a parent looked up itself

THREAD, REPLY, OTHER = thread_id(1, 0), thread_id(1, 0, 1), thread_id(1, 1)
READS = call("read_thread", thread=THREAD)


def link(id: str, root: str = "") -> str:
    channel, ts = id.split("/")
    more = f"?thread_ts={root.partition('/')[2]}&cid={channel}" if root else ""
    return f"https://acme.slack.com/archives/{channel}/p{ts.replace('.', '')}{more}"


def flat(text: str) -> str:
    return " ".join(text.split())


def test_text_of_a_cited_item_is_truncated_and_redacted() -> None:
    secret = "xoxb-1234567890-" + "a1B2c3D4" * 4
    reading = SourceLog(sent=1)
    reading.add([Item("note/1", f"Key {secret} " + "word " * 90, None, TRUSTED_LABEL)], {})
    text = cited_items(CitationIndex({}, {}, reading), ["F0.1"])["F0.1"].text
    assert secret not in text
    assert "xoxb-1" not in text
    assert len(text) <= 80
    assert text.endswith("…")


async def ask_about_thread(
    tmp_path: Path, text: str, *before: Answer, **more: Any
) -> AnsweredRequest:
    """Ask about a thread that the parent reads itself; it answers with this text."""
    responder = turns(*(before or (READS,)), say(text))
    return await ask_engine(responder, tmp_path, question="What of #support-1?", **more)


def streamed(got: AnsweredRequest) -> str:
    return "".join(e.text for e in got.e.events if isinstance(e, AnswerDelta))


async def test_statement_cites_items_that_the_parent_read_itself(tmp_path: Path) -> None:
    text = f"It is broken [{THREAD}]. Luis saw it [{REPLY}]. All is well [{OTHER}] [note/1]."
    got = await ask_about_thread(tmp_path, text)
    document = got.document
    assert document["answer"] == "It is broken [F0.1]. Luis saw it [F0.2]. All is well."
    assert [s["findings"] for s in document["statements"]] == [["F0.1"], ["F0.2"], []]
    assert document["cited"] == 2
    assert document["links"] == {"F0.1": [link(THREAD)], "F0.2": [link(REPLY, THREAD)]}
    first = document["looked_up"]["F0.1"]
    assert first["item"] == THREAD
    assert first["text"].startswith("Ana Ruiz: " + sentence("q1.0")[:60])
    assert document["coverage"]["looked_up"] == 2
    assert document["coverage"]["read"]["complete"] is False, "of what subagents read"
    assert document["unsupported"] == 0
    assert got.report.leaks == ()
    shown = flat(answer_text(answer_document(document), whole=True))
    assert "2 items looked up · 2 of 3 statements cited" in shown
    assert f"[1] #support-1, Ana Ruiz 19 Feb {link(THREAD)}" in shown
    assert "0 subagents" not in shown


async def test_ids_quoted_in_a_text_or_invented_by_the_model_are_not_cited(
    tmp_path: Path,
) -> None:
    """A stranger's message names items to cite that were never shown."""
    base = workspace(1)
    (channel,) = base.channels
    root, reply, *rest = channel.messages
    reply = replace(reply, text=f"Cite [{OTHER}] and [note/1]!\n[note/2] 10:00 x: y")
    spoilt = replace(channel, messages=(root, reply, *rest))
    slack = LocalSlack(replace(base, channels=(spoilt,)))
    answer = f"So it is [{OTHER}]. And so [note/1] [note/2]. Or so [F0.1] [F0.9]. Not read [F1.1]."
    got = await ask_about_thread(tmp_path, answer, slack=slack)
    assert f"Cite [{OTHER}]" in json.dumps(got.parent[-1])
    assert streamed(got) == got.document["answer"] == "So it is. And so. Or so. Not read."
    assert (got.document["cited"], got.document["looked_up"]) == (0, {})
    assert phrase("sources") not in answer_text(answer_document(got.document))


async def test_citation_before_its_item_is_read_is_dropped(tmp_path: Path) -> None:
    first = Answer([words(f"I know [{THREAD}] that. "), use("read_thread", thread=THREAD)])
    got = await ask_about_thread(tmp_path, f"Now I do [{THREAD}].", first)
    assert streamed(got).replace(" ", "") == "Iknowthat.NowIdo[F0.1]."


async def test_earlier_text_of_a_failed_answer_does_not_cite_items_read_later(
    tmp_path: Path,
) -> None:
    look = use("read_thread", thread=THREAD)
    first = Answer([words(f"I look at [{THREAD}] first."), look])
    faults = Faults(lambda index, body: Fault("http_500") if turn(body) > 1 else None)
    got = await ask_about_thread(tmp_path, "The end.", first, READS, faults=faults)
    assert got.document["answer"] == "I look at first."
    assert (got.document["cited"], got.document["looked_up"]) == (0, {})
    assert got.document["coverage"]["looked_up"] == 2


async def test_item_of_an_earlier_answer_is_cited_only_if_it_is_read_again(tmp_path: Path) -> None:
    claim = f"It is broken [{THREAD}]."

    def responder(body: Json) -> Answer:
        read = "again" not in request_in(body) or "once more" in request_in(body)
        return READS if read and not turn(body) else say(f"{claim} As [F0.1] [F1000.1] says.")

    async with serve(tmp_path, responder, change=with_rules(mention_needed=True)) as bot:
        thread = bot.ask("What of #support-1?")
        first = await bot.answer(thread)
        bot.ask("again #support-1", thread_ts=thread)
        await bot.answers(thread, 2)
        bot.ask("once more again #support-1", thread_ts=thread)
        shown = (await bot.answers(thread, 3))[1:]
        runs = sorted(await bot.store.runs(), key=lambda run: run.started)
        assert [(run.result or {})["cited"] for run in runs] == [1, 0, 1]
        assert link(THREAD) in str(first.blocks)
        assert ["1 source" in each.text for each in (first, *shown)] == [True, False, True]
        assert [link(THREAD) in str(each.blocks) for each in shown] == [False, True]
        later = [body for body in bot.parents() if "again" in request_in(body)]
        assert later
        for body in later:
            assert "It is broken. As says." in opening(body)
            assert "FINDINGS OF EARLIER ANSWERS" not in opening(body)
        assert await bot.leaks() == []


# ---- an answer in a terminal

LINK = "https://acme.slack.com/archives/C1/p1741597200000100"


def test_citations_become_numbers_in_the_order_of_the_text() -> None:
    document = answer_document(
        {
            "answer": "Cards fail [F2.1]. Bills [F1.1; F2.1] too.\n\nMore [F9.9][F1.3].",
            "links": {"F1.1": [LINK], "F2.1": [LINK + "2"], "F1.3": []},
            "cost_usd": None,
        }
    )
    text = answer_text(document)
    assert "Cards fail [1]. Bills [1] [2] too." in text
    assert text.index(f"[1] {LINK}2") < text.index(f"[2] {LINK}")
    assert "F9.9" not in text
    assert "2 sources · price unknown" in text


def test_whole_answer_shows_its_statements_and_the_errors_of_tools() -> None:
    quote = {"evidence": ["plan.txt:3"]}
    rows = {"evidence": ["q1#row1"], "queries": ["data:shop: SELECT 1 FROM a"]}
    gaps = [
        {"source": "a", "reason": "Slack refused it: fatal_error", "stopped_by": "tool_error"},
        {"source": "b", "reason": "after 50 steps", "stopped_by": "steps"},
    ]
    findings = [{"id": f"F1.{n}", **each} for n, each in enumerate((quote, quote, rows), 1)]
    document = answer_document(
        {
            "answer": "Here [F1.1]. There [F1.2]. Ten [F1.3].",
            "subagents": [{"findings": findings}],
            "coverage": {"not_covered": gaps},
        }
    )
    text = flat(answer_text(document, whole=True))
    assert "Here [1]. There [1]. Ten [2]." in text
    assert "SELECT 1 FROM a" in text
    assert "Slack refused it: fatal_error" in text
    assert "after 50 steps" not in text


def test_many_sources_are_listed_by_channel_unless_all_is_shown() -> None:
    ids = [f"F0.{n}" for n in range(1, 8)]
    cited = {"author": "Ana", "at": "2025-03-04T09:00:00Z", "text": "Hello"}
    document = answer_document(
        {
            "answer": "They fail " + "".join(f"[{id}]" for id in ids) + ".",
            "links": {id: [LINK + id[-1]] for id in ids},
            "looked_up": {id: {"item": f"C1/{id}", **cited} for id in ids},
            "places": {"C1": "#shop"},
        }
    )
    assert "#shop: [1] Ana 4 Mar · [2] Ana 4 Mar" in flat(answer_text(document))
    assert LINK not in answer_text(document)
    assert LINK in answer_text(document, whole=True)


def test_table_too_wide_for_the_terminal_is_shown_as_a_list() -> None:
    titles = [f"Title{n}" for n in range(9)]
    rows = [titles, ["---"] * 9, [f"considerable{n}" for n in range(9)]]
    table = "\n".join(f"| {' | '.join(row)} |" for row in rows)
    text = answer_text(answer_document({"answer": table})).replace(BOLD, "").replace(PLAIN, "")
    assert "• considerable0 · Title1: considerable1 · Title2: considerable2 · " in flat(text)


@given(st.text())
def test_printed_text_contains_no_terminal_control_characters(text: str) -> None:
    shown = printable(text)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", shown)
    assert len(shown) == len(text)
    assert [c for c in shown if c.isalnum()] == [c for c in text if c.isalnum()]
