"""The beginning of a long page: what one answer shows of it, read before the rest is."""

from __future__ import annotations

import re

MAX_TAGS, MAIN_TAGS = 1_600, 1_000
"""In a beginning, and at least in its main text: reading goes with the number of elements, however
little they say."""
SOON = 200
"""Tags, or ten times as many bytes of text, within which a block is looked for to end at."""

_MAIN = re.compile(r"<(?:main\b|article\b|[^<>]{1,500}\brole=[\"']?main\b)", re.IGNORECASE)
"""Where the text begins that a page is read for; what stands before it is not counted."""
_PIECE = re.compile(
    r"<!--.*?(?:-->|\Z)"
    r"|<(script|style|svg|template|noscript|iframe|textarea)\b.*?(?:</\1|\Z)"
    r"|<[^<>]*>?|[^<]+",
    re.DOTALL | re.IGNORECASE,
)
_BLOCK = re.compile(
    r"<(?:p|div|section|article|h[1-6]|[uod]l|li|d[td]|table|tr|pre|blockquote|hr|figure)\b",
    re.IGNORECASE,
)
_ANY = re.compile(r"<[a-zA-Z]")
_BEARING = re.compile(
    r"<(?:[hH][tT][mM][lL]|[bB][oO][dD][yY]|[bB][aA][sS][eE]|[sS][tT][yY][lL][eE])[ \t\n\f\r/>]"
)
"""Tags that change what stands before them: what is seen of it, or where its links lead."""


def start_of(source: str, size: int, most: int = MAX_TAGS) -> int:
    """Return where the beginning of a document ends, in front of a block, or of any tag where no
    block comes soon: it holds `size` bytes (UTF-8) of the main text, or of all of it so many tags.

    The length of the document where reading the beginning would not spare a quarter of the work,
    or where something in the rest bears on the beginning.
    """
    main = _MAIN.search(source)
    begin = main.start() if main else 0
    tags = max(MAIN_TAGS, most - source.count("<", 0, begin))
    for piece in _PIECE.finditer(source, begin):
        if source[piece.start()] != "<":
            size -= len(piece[0].strip().encode(errors="replace"))
            continue
        tags -= 1
        end_at = _ANY if tags < -SOON or size < -10 * SOON else _BLOCK
        if (size <= 0 or tags <= 0) and end_at.match(source, piece.start()):
            end = piece.start()
            worth = 4 * end <= 3 * len(source) and not _BEARING.search(source, end)
            return end if worth else len(source)
    return len(source)
