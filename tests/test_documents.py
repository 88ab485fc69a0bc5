"""Attached files: each is read, or refused in one sentence, within the same limits."""

from __future__ import annotations

import datetime
import resource
import sys
from collections.abc import Callable
from dataclasses import dataclass
from io import BytesIO
from itertools import pairwise
from typing import Any
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

from scopes.documents.text import (
    DAMAGED_MESSAGE,
    READER,
    TOO_MUCH,
    DocumentRefused,
    DocumentText,
    read_document,
)
from scopes.documents.worker import LOCKED_PDF_MESSAGE, MAX_CPU_S, OLE_REFUSALS, UNKNOWN

ROOM = 20_000
SCRIPTS = ("Größe über 5 €", "Договор № 7", "合同编号七", "עסקה", "اتفاقية")


@dataclass(frozen=True)
class Read:
    """The expected text: words in this order, and words that must not occur."""

    words: tuple[str, ...]
    facts: str = ""
    without: tuple[str, ...] = ()
    cut: bool = False


# ---- Word


def word_of_all_kinds() -> bytes:
    """A document with all that the library can write."""
    document = docx.Document()
    document.add_heading("Offer", 1)
    paragraph = document.add_paragraph("We pay 100 euros.")
    document.add_comment(paragraph.runs, text="I say 90.", author="Kim Kurz")
    document.sections[0].header.paragraphs[0].text = "Confidential"
    document.sections[0].footer.paragraphs[0].text = "Page of Acme"
    table = document.add_table(3, 3)
    table.cell(0, 0).merge(table.cell(1, 1)).text = "wide and high"
    table.cell(2, 0).text, table.cell(2, 2).text = "low", "right"
    table.cell(2, 1).add_table(1, 1).cell(0, 0).text = "a table in a table"
    document.add_picture(BytesIO(PNG))
    return file_bytes(document)


def word_with_text_beside_the_paragraphs() -> bytes:
    """A text box, a control, tracked changes, hidden words and notes."""
    box = f"<w:txbxContent><w:p>{run('in a box')}</w:p></w:txbxContent>"
    both = f"<mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback>"
    body = f"<w:p><w:r><mc:AlternateContent>{both}</mc:AlternateContent></w:r></w:p>"
    deletion = "<w:del><w:r><w:delText>eighty</w:delText></w:r></w:del>"
    body += f"<w:p>{run('It is ')}{deletion}<w:ins>{run('ninety')}</w:ins></w:p>"
    body += f"<w:sdt><w:sdtContent><w:p>{run('chosen')}</w:p></w:sdtContent></w:sdt>"
    body += "<w:p><w:r><w:rPr><w:vanish/></w:rPr><w:t>nobody sees this</w:t></w:r></w:p>"
    body += f'<w:p>{run("It costs 5")}<w:r><w:footnoteReference w:id="2"/></w:r>'
    body += '<w:r><w:endnoteReference w:id="2"/></w:r></w:p>'
    line = '<w:{0} w:type="separator" w:id="0"><w:p><w:r><w:t>no note</w:t></w:r></w:p></w:{0}>'
    note = '<w:{0} w:id="2"><w:p><w:r><w:t>{1}</w:t></w:r></w:p></w:{0}>'
    document = word_of(body)
    for kind, text in (("footnote", "without tax"), ("endnote", "until May")):
        document = with_related_part(
            document, f"{kind}s", line.format(kind) + note.format(kind, text)
        )
    return document


def word_with_a_picture_alone() -> bytes:
    document = docx.Document()
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


def workbook_of_all_kinds() -> bytes:
    """Dates, merged cells, a comment and a hidden sheet."""
    when = datetime.datetime(2025, 3, 9, 14, 30)  # noqa: DTZ001 - Excel knows no zones
    dates: list[Any] = [datetime.date(2025, 3, 9), when, True, 0.19]
    rows = [dates, ["once", None], [None, None]]
    workbook = book({"Open": rows, "Back": [["behind", 2]]}, hidden=["Back"])
    workbook["Open"].merge_cells("A2:B3")
    workbook["Back"]["B1"].comment = Comment("too much", "Kim")
    return file_bytes(workbook)


def huge_dimension() -> bytes:
    cell = '<row r="1048576"><c r="XFD1048576" t="str"><v>the last cell</v></c></row>'
    return book_of(f'<dimension ref="A1:XFD1048576"/><sheetData>{cell}</sheetData>')


def millions() -> bytes:
    rows = ("<row>" + "<c><v>7</v></c>" * 100 + "</row>") * 20_000
    return book_of(f'<dimension ref="A1:CV20000"/><sheetData>{rows}</sheetData>')


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


def archive(**parts: bytes) -> bytes:
    file = BytesIO()
    with ZipFile(file, "w") as target:
        for name, content in parts.items():
            target.writestr(name, content)
    return file.getvalue()


FILES: dict[str, tuple[Callable[[], bytes], Read | str]] = {
    "other scripts": (lambda: word(*SCRIPTS), Read(SCRIPTS, "Word document")),
    "a document of all kinds": (
        word_of_all_kinds,
        Read(
            (
                "# Offer",
                "We pay 100 euros.[comment 0]",
                "wide and high",
                "low | a table in a table | right",
                "Header: Confidential",
                "Footer: Page of Acme",
                "[comment 0] Kim Kurz: I say 90.",
            ),
            "1 picture",
        ),
    ),
    "text beside the paragraphs": (
        word_with_text_beside_the_paragraphs,
        Read(
            (
                "in a box",
                "It is ninety",
                "chosen",
                "nobody sees this",
                "5[^2][^end 2]",
                "[^2] without tax",
                "[^end 2] until May",
            ),
            "hidden text",
            without=("eighty", "no note"),
        ),
    ),
    "a picture alone": (
        word_with_a_picture_alone,
        "has no text that I can read (Word document; 1 picture",
    ),
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
    "an Office file with a password": (
        lambda: compound("EncryptionInfo", "EncryptedPackage"),
        OLE_REFUSALS["EncryptedPackage"],
    ),
    "an old Word file": (lambda: compound("WordDocument"), OLE_REFUSALS["WordDocument"]),
    "Markdown that begins with HTML": (
        lambda: b'<div align="center">\n\n# Read me\n\n</div>',
        Read(("# Read me", "</div>"), "text"),
    ),
    "formulas": (sheet_with_formulas, Read(("1: Total | 42",), "1 sheet", without=("6*7",))),
    "formulas that were never computed": (
        lambda: file_bytes(book({"Sums": [["Total", "=6*7"]]})),
        Read(("1: Total",), "1 formula without a stored value"),
    ),
    "a workbook of all kinds": (
        workbook_of_all_kinds,
        Read(
            (
                "Sheet Open:",
                "1: 2025-03-09 | 2025-03-09 14:30:00 | True | 0.19",
                "2: once",
                "Sheet Back (hidden):",
                "behind",
                "Comment on B1 by Kim: too much",
            ),
            "2 sheets; 1 hidden",
        ),
    ),
    "one cell in the last corner": (huge_dimension, Read(("1048576: | ... | the last cell",))),
    "two million cells": (millions, Read(("1: 7 | 7", "40: 7"), cut=True)),
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
        LOCKED_PDF_MESSAGE,
    ),
    "a PDF of 10,000 pages": (many_pages, Read(("page",), "text of 200 of 10000 pages", cut=True)),
    "a PDF with a deep tree": (deep_pages, DAMAGED_MESSAGE),
    "an OpenDocument": (lambda: archive(mimetype=b"application/vnd.oasis", content=b"x"), UNKNOWN),
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
async def test_each_file_has_its_own_cpu_time() -> None:
    before = await outcome(word("Small."))
    assert READER.pid
    seconds, _ = resource.prlimit(READER.pid, resource.RLIMIT_CPU)
    assert await outcome(word("Small.")) == before
    later, _ = resource.prlimit(READER.pid, resource.RLIMIT_CPU)
    assert later - seconds <= MAX_CPU_S < 3
