"""PDFs for tests, written byte by byte."""

from __future__ import annotations

import zlib
from collections.abc import Sequence

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
LOCKED = b"/Encrypt << /Filter /Standard /V 1 /R 2 /P -4 /O <%s> /U <%s> >> /ID [<00> <00>]"
"""Trailer of a file that asks for a password (ISO 32000-1, 7.6.3)."""


def pdf_file(objects: Sequence[bytes], trailer: bytes = b"") -> bytes:
    """Return a file of these objects; the first is its catalog."""
    out, places = bytearray(b"%PDF-1.7\n"), []
    for number, each in enumerate(objects, 1):
        places.append(len(out))
        out += b"%d 0 obj\n%s\nendobj\n" % (number, each)
    start = len(out)
    out += b"xref\n0 %d\n0000000000 65535 f \n" % (len(objects) + 1)
    out += b"".join(b"%010d 00000 n \n" % place for place in places)
    out += b"trailer << /Size %d /Root 1 0 R %s >>\n" % (len(objects) + 1, trailer)
    return bytes(out + b"startxref\n%d\n%%%%EOF" % start)


def stream(content: bytes, facts: bytes = b"") -> bytes:
    return b"<< %s /Length %d >>\nstream\n%s\nendstream" % (facts, len(content), content)


def compressed_stream(content: bytes, facts: bytes = b"") -> bytes:
    return stream(zlib.compress(content, 9), b"/Filter /FlateDecode " + facts)


def text_object(text: str, at: str = "72 700") -> bytes:
    return f"BT /F1 12 Tf {at} Td ({text}) Tj ET ".encode("latin-1")


def pdf(
    *pages: bytes,
    password: bytes | None = None,
    resources: bytes = b"",
    more: Sequence[bytes] = (),
) -> bytes:
    """Return a PDF whose pages have these content streams; its font is called F1.

    `more` are the objects behind the pages' own. With a password, nobody can read the pages.
    """
    kids = b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(len(pages)))
    objects = [CATALOG, b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)), HELVETICA]
    trailer = b"" if password is None else LOCKED % ((b"00" * 32,) * 2)
    for number, content in enumerate(pages):
        at = 5 + 2 * number
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> %s >> >>" % (at, resources)
        )
        objects.append(stream(content))
    return pdf_file([*objects, *more], trailer)
