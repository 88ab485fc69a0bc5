"""Citations: known ones stay, unknown ones go, also where a text comes in pieces."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import cycle

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing import computed_within

from bot.citations import (
    MAX_HELD,
    NOTHING,
    CitationFilter,
    CitationIndex,
    Statement,
    defang,
    drop_unknown,
    ids_in,
    statements,
)
from scopes.label import TRUSTED
from scopes.tool import Item
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
ASKED = "Is https://asked.example, or https://asked.example/too, up?"


def whole(text: str) -> str:
    return defang(drop_unknown(text, KNOWN, OWN), ASKED)


def streamed(chunks: list[str], files: Mapping[str, str] = NOTHING) -> str:
    citations = CitationFilter(index(*OWN, files=files), ASKED)
    out = [citations.add(chunk) for chunk in chunks]
    return "".join([*out, citations.close()])


def index(*items: str, files: Mapping[str, str] = NOTHING) -> CitationIndex:
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
    reading.add([Item(id, "", None, TRUSTED) for id in items], {})
    return CitationIndex(earlier, {"s1": reader}, reading)


@settings(max_examples=300)
@given(TEXTS, st.lists(st.integers(1, 6), min_size=1, max_size=9))
def test_a_stream_gives_the_same_text_however_it_is_cut(text: str, lengths: list[int]) -> None:
    chunks, rest, cut = [], text, cycle(lengths)
    while rest:
        length = next(cut)
        chunks.append(rest[:length])
        rest = rest[length:]
    assert streamed(chunks) == whole(text)


def cited_in(text: str) -> list[str]:
    """The ids of all brackets that hold nothing but ids."""
    inner = re.findall(r"\[([^\[\]]*)\]", text)
    lists = [[each.strip(" \t\n") for each in re.split("[,;]", each)] for each in inner]
    return [i for ids in lists if all(map(is_id, ids)) for i in ids]


def is_id(text: str) -> bool:
    return text in OWN or re.fullmatch(r"F\d+\.\d+|note/\d+", text) is not None


@given(TEXTS)
def test_no_unknown_citation_stays_and_no_known_one_goes(text: str) -> None:
    kept = drop_unknown(text, KNOWN)
    assert set(ids_in(kept)) <= KNOWN
    assert ids_in(kept) == [i for i in cited_in(text) if i in KNOWN]
    own = drop_unknown(text, KNOWN, OWN)
    wanted = [OWN.get(i, i) for i in cited_in(text) if i in KNOWN or i in OWN]
    assert ids_in(own) == wanted


def test_what_cites_nothing_is_passed_on_word_by_word() -> None:
    citations = CitationFilter(index())
    assert citations.add("See [the man") == "See [the "
    assert citations.add("ual] again") == "manual] "
    assert citations.add(" and on") == "again and "


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Two are open [F1.1], one waits [F9.9].", "Two are open [F1.1], one waits."),
        ("Open [F1.1; F9.9, F1.2].", "Open [F1.1][F1.2]."),
        ("Rien [F9.9] ne marche [F1.1] !", "Rien ne marche [F1.1] !"),
        ("Que faire ? Ouvert : oui", "Que faire ? Ouvert : oui"),
        ("- a [F9.9]\n- b [F1.1] [F9.9]\n", "- a\n- b [F1.1]\n"),
        ("[Café Sol] is open [F1.1]", "[Café Sol] is open [F1.1]"),
    ],
)
def test_only_unknown_citations_are_taken_out(text: str, kept: str) -> None:
    assert drop_unknown(text, KNOWN) == kept


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("Ana pays [note/7].", "Ana pays [F0.1]."),
        ("Ana pays [note/7], Eva does [note/8].", "Ana pays [F0.1], Eva does."),
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
        ("Dear [CUSTOMER1], [DOCUMENT1](notes) for [WINDOWS11] is out", ""),
        ("Part [W12345678] [WX12345678] [C1234567890], due [D20241231]", ""),
        ("In [UTF8STRING], `regs[DATAREG12]`, at [USD/1.083250]", ""),
        ("Not [C0CSMGERMANY] [U012345678] [UBF7Z4GHQ] [C1H9RESGL] [C9/1.000100]", "Not"),
        ("Ana [note/7, p. 3] [the note/7] [note/7 ", ""),
        ("Ana [NOTE/7] [note/07] note/7 (note/7)", "Ana [NOTE/7] note/7 (note/7)"),
    ],
)
def test_an_item_is_cited_by_its_very_id_and_gets_one_of_codes(text: str, kept: str) -> None:
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
def test_a_file_that_goes_with_the_answer_is_named_and_is_no_source(text: str, kept: str) -> None:
    assert drop_unknown(text, KNOWN, OWN, FILES) == kept
    assert streamed([*text], FILES) == kept


def test_an_id_with_spaces_is_held_back_to_its_end() -> None:
    citations = CitationFilter(index(*OWN))
    pieces = ("It says so [file/my *big* ", "list ", "(2).csv@1:3] and ", "[F1.1, ", "note/7]")
    out = "".join(map(citations.add, pieces))
    assert out == "It says so [F0.3] "
    assert out + citations.close() == "It says so [F0.3] and [F1.1][F0.1]"


def test_what_is_looked_up_while_it_writes_may_be_cited_from_then_on() -> None:
    citable = index()
    citations = CitationFilter(citable)
    before = citations.add("Before [note/7] it. ")
    citable.reading.add([Item("note/7", "", None, TRUSTED)], {})
    citable.reading.sent = 1
    assert before + citations.add("After [note/7] it. ") == "Before it. After [F0.1] "


@pytest.mark.parametrize(
    ("text", "kept"),
    [
        ("See https://evil.example/x.", "See evil[.]example/x[.]"),
        ("See www.evil.example", "See www[.]evil[.]example"),
        ("See www [F9.9].evil.example", "See www[.]evil[.]example"),
        ("<https://evil.example|our help page>", "our help page (evil[.]example)"),
        ("It is https://asked.example, as you said.", "It is https://asked.example, as you said."),
        ("It is https://asked.exam", "It is asked[.]exam"),
        ("Version 3.8 is out, e.g. here", "Version 3.8 is out, e.g. here"),
    ],
)
def test_no_address_stays_alive_but_those_that_were_asked_about(text: str, kept: str) -> None:
    assert whole(text) == kept


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("Cards fail [F1.1]. Bills too [F1.2].", [("Cards fail", "F1.1"), ("Bills too", "F1.2")]),
        ("Cards fail. [F1.1]", [("Cards fail", "F1.1")]),
        ("27 customers are hit [F1.1]", [("27 customers are hit", "F1.1")]),
        ("3.8 broke the till [F1.1]", [("3.8 broke the till", "F1.1")]),
        ("1. Cards fail [F1.1]\n2) Bills [F1.2]", [("Cards fail", "F1.1"), ("Bills", "F1.2")]),
        ("- Cards fail [F1.1]\n* Bills [F1.2]", [("Cards fail", "F1.1"), ("Bills", "F1.2")]),
        ("# Heading\nOpen in Spain:\n- Cards [F1.1]", [("Cards", "F1.1")]),
        ("[Café Sol] Cards fail [F1.1]", [("[Café Sol] Cards fail", "F1.1")]),
        ("Cards fail [F1.1] Bills too [F1.2]", [("Cards fail", "F1.1"), ("Bills too", "F1.2")]),
        ("Que faire ? [F1.1]", [("Que faire ?", "F1.1")]),
        ("Cards fail [F9.9].", [("Cards fail", "")]),
        ("Cards [F1.1] and bills [F1.1] fail", [("Cards and bills fail", "F1.1")]),
        ("*How many cars are there?*\nThree [F1.1]", [("Three", "F1.1")]),
        ("**Sales, 2024: what now?**\nThree [F1.1]", [("Three", "F1.1")]),
        ("*What is 17*23?*\n391 [F1.1]", [("391", "F1.1")]),
        ("*Cards* and *bills* fail [F1.1]", [("*Cards* and *bills* fail", "F1.1")]),
    ],
)
def test_statements_are_the_sentences_with_what_they_rest_on(
    text: str, found: list[tuple[str, str]]
) -> None:
    expected = [Statement(said, (cited,) if cited else ()) for said, cited in found]
    assert statements(text, KNOWN) == expected


def test_a_word_without_an_end_is_looked_through_once() -> None:
    """40,000 letters held the whole process up for 20 seconds."""
    word = "x" * 40_000
    with computed_within(2):
        assert defang(f"{word}://evil.example {word}", word) == f"{word[31:]}evil[.]example {word}"


@pytest.mark.parametrize("unit", [" ", "[F1.1,", "x", "<https://a|", " x[", "[a/", "[a/b, ", "a/ "])
def test_a_stream_of_what_never_ends_takes_linear_time(unit: str) -> None:
    """10,000 spaces held the whole process up for 17 seconds."""
    text = unit * (20_000 // len(unit))
    with computed_within(5):
        streamed([text[n : n + 20] for n in range(0, len(text), 20)])
        drop_unknown(text, KNOWN, OWN)
        drop_unknown(f"[a/{text}", KNOWN, OWN)


@pytest.mark.parametrize(
    ("begun", "rest"),
    [("https:", "//evil.example"), ("https://asked.example", ".evil.example")],
)
def test_nothing_is_added_to_what_was_held_too_long(begun: str, rest: str) -> None:
    hold = "-" * MAX_HELD + begun
    assert streamed([hold, rest, " end"]).startswith(f"{hold} ")
    assert "evil[.]example" in streamed([begun, rest, " end"])
