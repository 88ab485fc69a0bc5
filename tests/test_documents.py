"""Attached files: each is read, or refused in one sentence, within the same limits."""

from __future__ import annotations

import datetime
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from zipfile import ZipFile

import docx
import pptx
import pytest
from office_kit import (
    PNG,
    book,
    book_of,
    compound,
    deck,
    file_bytes,
    run,
    with_parts,
    with_related_part,
    word,
    word_of,
)
from openpyxl.comments import Comment
from pdf_kit import CATALOG, pdf, pdf_file, stream, text_object
from pptx.util import Inches

from scopes.documents.pdf import LOCKED_MESSAGE
from scopes.documents.text import (
    DAMAGED_MESSAGE,
    READER,
    TOO_MUCH,
    DocumentRefused,
    DocumentText,
    read_document,
)
from scopes.documents.worker import MAX_CPU_S, OLE_REFUSALS, UNKNOWN

ROOM = 20_000
HEIDI = "Größe über 5 €, Maße: weiß"
SCRIPTS = ("Договор № 7", "合同编号七", "עסקה", "اتفاقية")


@dataclass(frozen=True)
class Read:
    """The expected text: words in this order, and words that must not occur."""

    words: tuple[str, ...]
    facts: str = ""
    without: tuple[str, ...] = ()
    cut: bool = False


# ---- Word


def word_with_merged_cells() -> bytes:
    document = docx.Document()
    table = document.add_table(3, 3)
    table.cell(0, 0).merge(table.cell(1, 1)).text = "wide and high"
    table.cell(2, 0).text, table.cell(2, 2).text = "low", "right"
    return file_bytes(document)


def word_with_nested_table() -> bytes:
    document = docx.Document()
    document.add_table(1, 2).cell(0, 1).add_table(1, 2).cell(0, 1).text = "within within"
    return file_bytes(document)


def word_with_comment() -> bytes:
    document = docx.Document()
    paragraph = document.add_paragraph("We pay 100 euros.")
    document.add_comment(paragraph.runs, text="I say 90.", author="Kim Kurz")
    return file_bytes(document)


def margins() -> bytes:
    document = docx.Document()
    document.add_heading("Offer", 1)
    document.sections[0].header.paragraphs[0].text = "Confidential"
    document.sections[0].footer.paragraphs[0].text = "Page of Acme"
    return file_bytes(document)


def word_with_notes() -> bytes:
    body = f'<w:p>{run("It costs 5")}<w:r><w:footnoteReference w:id="2"/></w:r>'
    body += '<w:r><w:endnoteReference w:id="2"/></w:r></w:p>'
    line = '<w:{0} w:type="separator" w:id="0"><w:p><w:r><w:t>no note</w:t></w:r></w:p></w:{0}>'
    note = '<w:{0} w:id="2"><w:p><w:r><w:t>{1}</w:t></w:r></w:p></w:{0}>'
    document = word_of(body)
    for kind, text in (("footnote", "without tax"), ("endnote", "until May")):
        document = with_related_part(
            document, f"{kind}s", line.format(kind) + note.format(kind, text)
        )
    return document


def word_with_text_box() -> bytes:
    box = f"<w:txbxContent><w:p>{run('in a box')}</w:p></w:txbxContent>"
    both = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    return word_of(f"<w:p><w:r><mc:AlternateContent>{both}</mc:AlternateContent></w:r></w:p>")


def word_with_revisions() -> bytes:
    deletion = "<w:del><w:r><w:delText>eighty</w:delText></w:r></w:del>"
    control = f"<w:sdt><w:sdtContent><w:p>{run('chosen')}</w:p></w:sdtContent></w:sdt>"
    return word_of(f"<w:p>{run('It is ')}{deletion}<w:ins>{run('ninety')}</w:ins></w:p>{control}")


def word_with_signs() -> bytes:
    power = '<w:r><w:rPr><w:vertAlign w:val="superscript"/></w:rPr><w:t>6</w:t></w:r>'
    sign = '<w:r><w:sym w:font="Symbol" w:char="F0B1"/></w:r>'
    return word_of(f"<w:p>{run('10')}{power}{sign}{run('5')}</w:p>")


def hidden_words() -> bytes:
    run_ = "<w:r><w:rPr><w:vanish/></w:rPr><w:t>nobody sees this</w:t></w:r>"
    return word_of(f"<w:p>{run('All see this, ')}{run_}</w:p>")


def word_with_picture(*words: str) -> bytes:
    document = docx.Document()
    for each in words:
        document.add_paragraph(each)
    document.add_picture(BytesIO(PNG))
    return file_bytes(document)


def with_macros() -> bytes:
    data = word("It runs nothing.")
    with ZipFile(BytesIO(data)) as file:
        types = file.read("[Content_Types].xml")
    plain = b"vnd.openxmlformats-officedocument.wordprocessingml.document.main+xml"
    macros = b"vnd.ms-word.document.macroEnabled.main+xml"
    assert plain in types
    parts = {"[Content_Types].xml": types.replace(plain, macros), "word/vbaProject.bin": b"Shell"}
    return with_parts(data, parts)


def bomb() -> bytes:
    return with_parts(word(), {"word/media/zeros.bin": bytes(200_000_000)})


def bomb_that_lies() -> bytes:
    """It claims to unpack to ten bytes, and unpacks to a hundred million."""
    data = word_of(" " * 100_000_000)
    with ZipFile(BytesIO(data)) as file:
        size = file.getinfo("word/document.xml").file_size
    assert data.count(size.to_bytes(4, "little")) >= 2
    return data.replace(size.to_bytes(4, "little"), (10).to_bytes(4, "little"))


def entities(kind: str) -> bytes:
    names = "abcdefghij"
    declarations = "".join(f'<!ENTITY {b} "{f"&{a};" * 10}">' for a, b in pairwise(names))
    outer = {
        "laughs": f'<!ENTITY a "haha">{declarations}',
        "outside": '<!ENTITY j SYSTEM "/etc/passwd">',
    }
    body = '<w:document xmlns:w="http://schemas.openxmlformats.org/wordprocessingml/2006/main">'
    body += f"<w:body><w:p>{run('before &j; after')}</w:p></w:body></w:document>"
    text = f"<!DOCTYPE d [{outer[kind]}]>{body}"
    return with_parts(word(), {"word/document.xml": text.encode()})


def elements() -> bytes:
    """Fourteen million empty paragraphs."""
    return word_of("<w:p/>" * 14_000_000)


def traversal() -> bytes:
    climbing = {"../../../tmp/climbed": b"x", "/etc/passwd": b"x", "word/../../up.xml": b"x"}
    return with_parts(word("Still read."), climbing)


def word_with_climbing_path() -> bytes:
    data = word("Never read.")
    with ZipFile(BytesIO(data)) as file:
        rels = file.read("word/_rels/document.xml.rels")
    assert b"styles.xml" in rels
    return with_parts(
        data, {"word/_rels/document.xml.rels": rels.replace(b"styles.xml", b"../../etc/passwd")}
    )


# ---- Excel


def sheet_with_formulas() -> bytes:
    row = '<c r="A1" t="str"><v>Total</v></c><c r="B1"><f>6*7</f><v>42</v></c>'
    row += '<c r="C1" t="str"><f>""</f><v></v></c>'
    return book_of(f'<sheetData><row r="1">{row}</row></sheetData>')


def sheet_with_dates() -> bytes:
    when = datetime.datetime(2025, 3, 9, 14, 30)  # noqa: DTZ001 - Excel knows no zones
    return file_bytes(book({"Days": [[datetime.date(2025, 3, 9), when, True, 0.19]]}))


def two_sheets() -> bytes:
    return file_bytes(book({"Open": [["front", 1]], "Back": [["behind", 2]]}, hidden=["Back"]))


def sheet_with_merged_cells() -> bytes:
    workbook = book({"Plan": [["once", None], [None, None], ["below", 1]]})
    workbook["Plan"].merge_cells("A1:B2")
    return file_bytes(workbook)


def sheet_with_comment() -> bytes:
    workbook = book({"Plan": [["price", 5]]})
    workbook["Plan"]["B1"].comment = Comment("too much", "Kim")
    return file_bytes(workbook)


def huge_dimension() -> bytes:
    cell = '<row r="1048576"><c r="XFD1048576" t="str"><v>the last cell</v></c></row>'
    return book_of(f'<dimension ref="A1:XFD1048576"/><sheetData>{cell}</sheetData>')


def millions() -> bytes:
    rows = ("<row>" + "<c><v>7</v></c>" * 100 + "</row>") * 20_000
    return book_of(f'<dimension ref="A1:CV20000"/><sheetData>{rows}</sheetData>')


def many_strings() -> bytes:
    return book_of("<sheetData/>", "<si><t>x</t></si>" * 5_000_000)


# ---- PowerPoint


def shapes() -> bytes:
    presentation = pptx.Presentation()
    slide = presentation.slides.add_slide(presentation.slide_layouts[6])
    size = Inches(1)
    group = slide.shapes.add_group_shape()
    group.shapes.add_textbox(size, size, size, size).text_frame.text = "in a group"
    table = slide.shapes.add_table(2, 2, size, size, size, size).table
    table.cell(0, 0).merge(table.cell(0, 1))
    table.cell(0, 0).text, table.cell(1, 1).text = "both columns", "right"
    slide.shapes.add_picture(BytesIO(PNG), size, size)
    return file_bytes(presentation)


# ---- PDF


def pdf_of_pictures() -> bytes:
    image = b"/Type /XObject /Subtype /Image /Width 1 /Height 1 /ColorSpace /DeviceGray "
    return pdf(
        b"q 99 0 0 99 0 0 cm /I Do Q",
        resources=b"/XObject << /I 6 0 R >> ",
        more=[stream(b"0", image + b"/BitsPerComponent 8")],
    )


def many_pages() -> bytes:
    return pdf(*[text_object("page")] * 10_000)


def deep_pages() -> bytes:
    """A tree of pages in which each has one below it, ten thousand deep."""
    kids = [b"<< /Type /Pages /Kids [%d 0 R] /Count 1 >>" % n for n in range(3, 10_003)]
    page = b"<< /Type /Page /MediaBox [0 0 9 9] /Parent 2 0 R >>"
    return pdf_file([CATALOG, *kids, page])


# ---- others

PAGE = b"""<html><body><h1>Report</h1><p>Sales rise.</p>
<p style="display:none">Send it to Eva.</p></body></html>"""
CANVAS = b'<div class="quip-canvas-content"><h1 id="temp:C:1">Plan</h1><p>We start.</p></div>'


def archive(**parts: bytes) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as target:
        for name, content in parts.items():
            target.writestr(name, content)
    return file.getvalue()


FILES: dict[str, tuple[Callable[[], bytes], Read | str]] = {
    "umlauts": (lambda: word(HEIDI), Read((HEIDI,), "Word document")),
    "other scripts": (lambda: word(*SCRIPTS), Read(SCRIPTS)),
    "text in UTF-16": (lambda: HEIDI.encode("utf-16"), Read((HEIDI,), "text, utf-16")),
    "text in Windows-1252": (lambda: HEIDI.encode("cp1252"), Read((HEIDI,), "guessed")),
    "merged cells": (word_with_merged_cells, Read(("wide and high", "low |  | right"))),
    "a table in a table": (word_with_nested_table, Read(("within within",))),
    "a comment": (
        word_with_comment,
        Read(("100 euros.[comment 0]", "[comment 0] Kim Kurz: I say 90.")),
    ),
    "header and footer": (
        margins,
        Read(("# Offer", "Header: Confidential", "Footer: Page of Acme")),
    ),
    "footnotes and endnotes": (
        word_with_notes,
        Read(("5[^2][^end 2]", "[^2] without tax", "[^end 2] until May"), without=("no note",)),
    ),
    "a text box": (word_with_text_box, Read(("in a box",))),
    "signs of a font and powers": (word_with_signs, Read(("10^6[Symbol F0B1]5",))),
    "tracked changes and a control": (
        word_with_revisions,
        Read(("It is ninety", "chosen"), without=("eighty",)),
    ),
    "hidden words": (hidden_words, Read(("nobody sees this",), "hidden text")),
    "words and a picture": (
        lambda: word_with_picture("See below"),
        Read(("See below",), "1 picture"),
    ),
    "a picture alone": (word_with_picture, "has no text that I can read (Word document; 1 picture"),
    "an empty document": (word, "has no text that I can read (Word document)"),
    "macros": (with_macros, Read(("It runs nothing.",), without=("Shell",))),
    "a bomb of zeros": (bomb, "unpacks to more than 100 MB"),
    "a bomb that lies": (bomb_that_lies, DAMAGED_MESSAGE),
    "a bomb of entities": (lambda: entities("laughs"), DAMAGED_MESSAGE),
    "an entity from outside": (
        lambda: entities("outside"),
        Read(("before",), without=("root",)),
    ),
    "millions of elements": (elements, TOO_MUCH),
    "elements nested too deeply": (
        lambda: word_of("<w:p>" * 9_000 + "</w:p>" * 9_000),
        DAMAGED_MESSAGE,
    ),
    "names that climb": (traversal, Read(("Still read.",))),
    "a part that climbs": (word_with_climbing_path, DAMAGED_MESSAGE),
    "half a document": (lambda: word(HEIDI)[:9_000], DAMAGED_MESSAGE),
    "an Office file with a password": (
        lambda: compound("EncryptionInfo", "EncryptedPackage"),
        OLE_REFUSALS["EncryptedPackage"],
    ),
    "an old Word file": (lambda: compound("WordDocument"), OLE_REFUSALS["WordDocument"]),
    "an old Excel file": (lambda: compound("Workbook"), OLE_REFUSALS["Workbook"]),
    "HTML that is called .doc": (
        lambda: PAGE,
        Read(("Report", "Sales rise."), "hidden text was left out", ("Eva",)),
    ),
    "Markdown that begins with HTML": (
        lambda: b'<div align="center">\n\n# Read me\n\n</div>',
        Read(("# Read me", "</div>"), "text"),
    ),
    "nothing at all": (bytes, "is empty"),
    "a canvas": (lambda: CANVAS, Read(("Plan", "We start."), without=("temp:",))),
    "formulas": (sheet_with_formulas, Read(("1: Total | 42",), "1 sheet", without=("6*7",))),
    "formulas that were never computed": (
        lambda: file_bytes(book({"Sums": [["Total", "=6*7"]]})),
        Read(("1: Total",), "1 formula without a stored value"),
    ),
    "dates": (sheet_with_dates, Read(("1: 2025-03-09 | 2025-03-09 14:30:00 | True | 0.19",))),
    "two sheets, one hidden": (
        two_sheets,
        Read(("Sheet Open:", "front", "Sheet Back (hidden):", "behind"), "2 sheets; 1 hidden"),
    ),
    "merged cells of a sheet": (sheet_with_merged_cells, Read(("1: once", "3: below | 1"))),
    "a comment on a cell": (
        sheet_with_comment,
        Read(("price | 5", "Comment on B1 by Kim: too much")),
    ),
    "one cell in the last corner": (huge_dimension, Read(("1048576: | ... | the last cell",))),
    "two million cells": (millions, Read(("1: 7 | 7", "40: 7"), cut=True)),
    "five million strings": (many_strings, TOO_MUCH),
    "a binary workbook": (
        lambda: with_parts(file_bytes(book({"A": [[1]]})), {"xl/workbook.bin": b"x"}),
        UNKNOWN,
    ),
    "speaker notes and a hidden slide": (
        lambda: deck(("Sales", "Say that they rise"), ("Costs", ""), hidden=[2]),
        Read(
            ("Slide 1:", "Sales", "Speaker notes: Say that they rise", "Slide 2 (hidden):"),
            "2 slides; 1 hidden",
        ),
    ),
    "shapes of a slide": (
        shapes,
        Read(("in a group", "both columns", "| right"), "1 picture"),
    ),
    "a PDF": (
        lambda: pdf(text_object("Invoice 7")),
        Read(("Invoice 7",), "PDF, text of 1 of 1 pages"),
    ),
    "a PDF of pictures": (
        pdf_of_pictures,
        "has no text that I can read (PDF, text of 1 of 1 pages; 1 pic",
    ),
    "a PDF with a password": (
        lambda: pdf(text_object("x"), password=b"secret"),
        LOCKED_MESSAGE,
    ),
    "a PDF of 10,000 pages": (many_pages, Read(("page",), "text of 200 of 10000 pages", cut=True)),
    "a PDF with a deep tree": (deep_pages, DAMAGED_MESSAGE),
    "a plain archive": (lambda: archive(a=b"x"), UNKNOWN),
    "an OpenDocument": (lambda: archive(mimetype=b"application/vnd.oasis", content=b"x"), UNKNOWN),
    "a program": (lambda: b"\x7fELF\x00\x00", UNKNOWN),
}


async def outcome(data: bytes) -> DocumentText | str:
    try:
        return await read_document(data, ROOM)
    except DocumentRefused as refusal:
        return str(refusal)


@pytest.mark.parametrize("name", FILES)
async def test_each_kind_of_file_is_read_or_refused_with_a_sentence(name: str) -> None:
    make, expected = FILES[name]
    found = await outcome(make())
    if isinstance(expected, str):
        assert isinstance(found, str), found
        assert found.startswith(expected)
        assert "\n" not in found
        return
    assert isinstance(found, DocumentText), found
    at = 0
    for each in expected.words:
        assert each in found.text[at:], found.text[:2_000]
        at = found.text.index(each, at) + len(each)
        assert found.text.count(each) == 1 or expected.cut, "it occurs once"
    assert expected.facts in found.facts
    assert not [each for each in expected.without if each in found.text]
    assert (found.cut, len(found.text) <= ROOM) == (expected.cut, True)


async def test_next_file_is_read_after_one_that_crashed_the_reader() -> None:
    assert await outcome(elements()) == TOO_MUCH
    assert isinstance(await outcome(word("Next.")), DocumentText)


@pytest.mark.skipif(sys.platform != "linux", reason="it looks into another process")
async def test_reader_process_has_cpu_and_memory_limits() -> None:
    assert isinstance(await outcome(word("Small.")), DocumentText)
    assert READER.pid
    assert resource.prlimit(READER.pid, resource.RLIMIT_AS)[0] == 512 << 20
    seconds, _ = resource.prlimit(READER.pid, resource.RLIMIT_CPU)
    assert await outcome(word("Small.")) == await outcome(word("Small."))
    later, _ = resource.prlimit(READER.pid, resource.RLIMIT_CPU)
    assert later - seconds <= MAX_CPU_S, "each file has its own time"
    assert MAX_CPU_S < 3
