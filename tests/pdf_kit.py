"""PDFs for tests, written byte by byte."""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Sequence

CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
HELVETICA = b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>"
_PADDING = bytes.fromhex("28BF4E5E4E758A4164004E56FFFA01082E2E00B6D0683E802F0CA9FE6453697A")
_OWNER, _MAY, _ID = bytes(range(32)), -4, b"0123456789abcdef"


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

    `more` are the objects behind the pages' own; a password is asked for where it is not empty.
    """
    kids = b" ".join(b"%d 0 R" % (4 + 2 * n) for n in range(len(pages)))
    objects = [CATALOG, b"<< /Type /Pages /Kids [%s] /Count %d >>" % (kids, len(pages)), HELVETICA]
    key, trailer = b"", b""
    if password is not None:
        key, trailer = _encryption(password)
    for number, content in enumerate(pages):
        at = 5 + 2 * number
        objects.append(
            b"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 612 792] /Contents %d 0 R "
            b"/Resources << /Font << /F1 3 0 R >> %s >> >>" % (at, resources)
        )
        body = _rc4(_key_of(key, at), content) if key else content
        objects.append(stream(body))
    return pdf_file([*objects, *more], trailer)


def _encryption(password: bytes) -> tuple[bytes, bytes]:
    """Return key and trailer of the standard security handler, revision 2 (ISO 32000-1, 7.6.3)."""
    data = (password + _PADDING)[:32] + _OWNER + _MAY.to_bytes(4, "little", signed=True) + _ID
    key = hashlib.md5(data).digest()[:5]
    facts = b"/V 1 /R 2 /O <%s> /U <%s> /P %d" % (
        _OWNER.hex().encode(),
        _rc4(key, _PADDING).hex().encode(),
        _MAY,
    )
    id_ = _ID.hex().encode()
    return key, b"/Encrypt << /Filter /Standard %s >> /ID [<%s> <%s>]" % (facts, id_, id_)


def _key_of(key: bytes, number: int) -> bytes:
    return hashlib.md5(key + number.to_bytes(3, "little") + bytes(2)).digest()[:10]


def _rc4(key: bytes, data: bytes) -> bytes:
    state, b, out = list(range(256)), 0, bytearray()
    for a in range(256):
        b = (b + state[a] + key[a % len(key)]) % 256
        state[a], state[b] = state[b], state[a]
    b = 0
    for n, byte in enumerate(data, 1):
        a = n % 256
        b = (b + state[a]) % 256
        state[a], state[b] = state[b], state[a]
        out.append(byte ^ state[(state[a] + state[b]) % 256])
    return bytes(out)
