"""The text of a PDF, and the limits for a hostile one."""

from __future__ import annotations

import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from pdf_kit import CATALOG, HELVETICA, compressed_stream, pdf, pdf_file, stream, text_object

import scopes
from scopes.documents.pdf import text_of
from scopes.documents.text import DocumentText
from scopes.programs import WorkerDied, WorkerProcess

ROOT = Path(scopes.__file__).parent.parent


def read(data: bytes, max_pages: int = 9, max_chars: int = 9_000) -> DocumentText:
    return text_of(data, max_pages, max_chars)


def text(data: bytes) -> str:
    found = read(data)
    assert not found.cut
    return found.text


def lines(*each: str) -> bytes:
    return b"".join(text_object(line, f"72 {700 - 14 * n}") for n, line in enumerate(each))


def with_font(more: bytes = b"") -> bytes:
    return b"/Resources << /Font << /F1 3 0 R >> %s>> " % more


def one_page(contents: bytes, page: bytes = b"", more: Sequence[bytes] = ()) -> bytes:
    """A PDF of one page with these facts; the first of `more` is object 6."""
    facts = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R %s >>" % page
    objects = [
        CATALOG,
        b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>",
    ]
    return pdf_file([*objects, HELVETICA, facts, contents, *more])


def test_text_is_limited_to_max_pages_and_max_chars() -> None:
    found = read(pdf(*[text_object("x")] * 5), max_pages=3)
    facts = "PDF, text of 3 of 5 pages"
    assert found == DocumentText("x\n\nx\n\nx", facts, cut=True)
    found = read(pdf(*[text_object("x" * 40)] * 5), max_chars=50)
    assert (found.facts, found.cut, len(found.text)) == ("PDF, text of 2 of 5 pages", True, 50)
    assert read(pdf(b"")) == DocumentText("", "PDF, text of 1 of 1 pages", cut=False)


@pytest.mark.parametrize("drawn", [True, False])
def test_values_of_filled_forms_are_read(drawn: bool) -> None:
    look = stream(
        b"BT /F1 12 Tf 2 4 Td (Ana Garcia) Tj ET",
        b"/Type /XObject /Subtype /Form /BBox [0 0 200 20] " + with_font(),
    )
    name = (
        b"<< /Type /Annot /Subtype /Widget /FT /Tx /T (name) /V (Ana Garcia) /DA (/F1 12 Tf)"
        b" /Rect [220 695 420 715] /P 4 0 R /F 4 %s >>" % (b"/AP << /N 7 0 R >>" * drawn)
    )
    form = b"/AcroForm << /Fields [6 0 R] /DR << /Font << /F1 3 0 R >> >> >>"
    page = b"/Annots [6 0 R] " + with_font()
    plain = one_page(stream(text_object("Customer:")), page, more=[name, look])
    assert text(plain.replace(CATALOG, CATALOG[:-2] + form + b" >>")).split("\n") == [
        *("Customer:", "Ana Garcia")
    ]


GOOD, WORDS = (
    pdf(lines("some words", "on a page"), text_object("more")),
    "some words\non a page\n\nmore",
)


def test_damaged_pages_are_skipped_and_invalid_page_sizes_ignored() -> None:
    assert "text of 1 of" in read(GOOD.replace(b"/Type /Page /", b"/Type /Rage /", 1)).facts
    assert read(GOOD.replace(b"/Kids [4 0 R", b"/Kids [9 9 R")).text == "more"
    for box in (b"[-1e38 -1e38 1e38 1e38]", b"[0 0 0 0]", b"[nan 1]", b"6 0 R"):
        assert text(GOOD.replace(b"[0 0 612 792]", box)) == WORDS  # a page may be of any size


DAMAGED = """
import random, sys
from scopes.programs import limit
from scopes.documents.pdf import text_of
from scopes.documents.text import DAMAGED_MESSAGE, DocumentRefused
limit(memory=512 << 20, seconds=60)
good, chance, errors = sys.stdin.buffer.read(), random.Random(7), set()
for _ in range(int(sys.argv[1])):
    bad = bytearray(good)
    for _ in range(chance.choice((1, 1, 3, 10, 60))):
        bad[chance.randrange(len(bad))] = chance.randrange(256)
    try:
        text_of(bytes(bad), 9, 9_000)
        errors.add("")
    except DocumentRefused as error:
        errors.add("damaged" if str(error) == DAMAGED_MESSAGE else str(error))
print(*sorted(errors), sep=",")
"""


def test_randomly_corrupted_bytes_cause_no_crash_or_password_error() -> None:
    argv = [sys.executable, "-c", DAMAGED, "2000"]
    done = subprocess.run(argv, cwd=ROOT, input=GOOD, capture_output=True, timeout=100, check=False)
    assert (done.returncode, done.stdout) == (0, b",damaged\n")


def twice_compressed() -> bytes:
    packing = zlib.compressobj(1)
    once = b"".join(packing.compress(bytes(1 << 20)) for _ in range(600)) + packing.flush()
    return one_page(stream(zlib.compress(once), b"/Filter [/FlateDecode /FlateDecode]"))


def states() -> bytes:
    return one_page(compressed_stream(b"q " * 9_000_000))


def letters() -> bytes:
    return one_page(compressed_stream(b"BT /F1 1 Tf " + b"(a) Tj " * 2_000_000), with_font())


def in_itself() -> bytes:
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >>"
    page = with_font(b"/XObject << /X 6 0 R >> ")
    return one_page(stream(b"/X Do"), page, more=[stream(b"/X Do " * 9, form)])


LIMITS = b'{"max_chars": 9000, "source": false}\n'


@pytest.mark.parametrize("build", [twice_compressed, states, letters, in_itself])
async def test_pdf_bomb_kills_its_worker_and_the_next_file_is_read(
    build: Callable[[], bytes],
) -> None:
    bomb = build()
    assert len(bomb) < 100_000
    program = WorkerProcess("scopes.documents.worker", 60)
    try:
        with pytest.raises(WorkerDied):
            await program.ask(LIMITS + bomb)
        good = await program.ask(LIMITS + GOOD)
    finally:
        await program.aclose()
    assert json.loads(good)["facts"] == "PDF, text of 2 of 2 pages"
