"""The text of a PDF, and the limits for a hostile one."""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Sequence

import pytest
from pdf_kit import CATALOG, HELVETICA, pdf, pdf_file, stream, text_object

from scopes.documents.pdf import PdfText, text_of
from scopes.programs import WorkerDied, WorkerProcess


def read(data: bytes, max_pages: int = 9, max_chars: int = 9_000) -> PdfText:
    return text_of(data, max_pages, max_chars)


def one_page(contents: bytes, page: bytes = b"", more: Sequence[bytes] = ()) -> bytes:
    """A PDF of one page with these facts; the first of `more` is object 6."""
    facts = b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents 5 0 R %s >>" % page
    pages = b"<< /Type /Pages /Kids [4 0 R] /Count 1 >>"
    return pdf_file([CATALOG, pages, HELVETICA, facts, contents, *more])


GOOD, WORDS = pdf(text_object("some words"), text_object("more")), "some words\n\nmore"


def test_damaged_pages_are_skipped_and_invalid_page_sizes_ignored() -> None:
    assert read(GOOD.replace(b"/Type /Page /", b"/Type /Rage /", 1)).read == 1
    assert read(GOOD.replace(b"/Kids [4 0 R", b"/Kids [9 9 R")).text == "more"
    for box in (b"[-1e38 -1e38 1e38 1e38]", b"[0 0 0 0]", b"[nan 1]", b"6 0 R"):
        assert read(GOOD.replace(b"[0 0 612 792]", box)).text == WORDS  # a page may be of any size


def twice_compressed() -> bytes:
    packing = zlib.compressobj(1)
    once = b"".join(packing.compress(bytes(1 << 20)) for _ in range(600)) + packing.flush()
    return one_page(stream(zlib.compress(once), b"/Filter [/FlateDecode /FlateDecode]"))


def in_itself() -> bytes:
    form = b"/Type /XObject /Subtype /Form /BBox [0 0 9 9] /Resources << /XObject << /X 6 0 R >> >>"
    page = b"/Resources << /XObject << /X 6 0 R >> >> "
    return one_page(stream(b"/X Do"), page, more=[stream(b"/X Do " * 9, form)])


LIMITS = b'{"max_chars": 9000, "source": false}\n'


@pytest.mark.parametrize("build", [twice_compressed, in_itself])
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
