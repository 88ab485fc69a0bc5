"""The text of a PDF: a program of its own, so that a hostile file can take nothing down with it.

`python -I pdf.py SECONDS MAX_PAGES MAX_CHARS < file.pdf` prints one JSON object, either
`{"text", "pages", "read"}` or `{"error": "encrypted" | "damaged"}`. It limits its own memory
and time.
"""

from __future__ import annotations

import io
import json
import logging
import resource
import sys
import warnings
from typing import Any

from pypdf import PdfReader

MAX_MEMORY = 1 << 30


def limit(seconds: int) -> None:
    """Bind this process: what goes on for too long or grows too large is ended by the system."""
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 1))
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))


def text_of(data: bytes, max_pages: int, max_chars: int) -> dict[str, Any]:
    """Text of the first pages, up to so many characters."""
    reader = PdfReader(io.BytesIO(data))
    if reader.is_encrypted and not reader.decrypt(""):
        return {"error": "encrypted"}
    parts: list[str] = []
    pages = len(reader.pages)
    for number in range(min(pages, max_pages)):
        parts.append(reader.pages[number].extract_text())
        if sum(map(len, parts)) > max_chars:
            break
    return {"text": "\n\n".join(parts)[: max_chars + 1], "pages": pages, "read": len(parts)}


def main() -> None:
    seconds, max_pages, max_chars = map(int, sys.argv[1:4])
    limit(seconds)
    logging.disable()
    warnings.simplefilter("ignore")
    try:
        found = text_of(sys.stdin.buffer.read(), max_pages, max_chars)
    except Exception:  # the seam: a damaged file raises whatever it meets in the library
        found = {"error": "damaged"}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
