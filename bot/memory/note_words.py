"""The words of notes and conversations, as they are indexed: hidden from who lacks the key.

Each word stands in the index as a keyed digest of itself; a longer one also as that of its
beginning, so that `invoices` is found by `invoice`, in most languages that are written with spaces.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import unicodedata
from collections.abc import Iterator
from itertools import islice

from scopes.clean import unified

STEM = 5
"""Letters by which words are alike."""
MAX_ASKED = 30
"""Different words of one search."""
MAX_INDEXED = 40_000
"""Different words of one text, its first ones: Postgres takes 1 MB of them, 20 bytes for each."""

_WORD = re.compile(r"[^\W_]+")
_UNSPACED = re.compile(r"[\u0e00-\u0e7f\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]")


def indexed(text: str, key: bytes) -> str:
    """The words of a text, hidden, each once."""
    first = islice(dict.fromkeys(_words(text)), MAX_INDEXED)
    return " ".join(hidden_word(word, key) for word in first)


def asked(query: str, key: bytes) -> list[str]:
    """The words of a search, hidden, each once."""
    return [hidden_word(word, key) for word in _each_once(query)]


def every(query: str, key: bytes) -> list[str]:
    """Those of them that a text holds which has all words of the search, in whichever form."""
    loose = [word for word in _each_once(query) if len(word) <= STEM or word.endswith("~")]
    return [hidden_word(word, key) for word in loose]


def hidden_word(word: str, key: bytes) -> str:
    """What stands for a word in the index."""
    return "w" + hmac.new(key, word.encode(errors="replace"), hashlib.sha256).hexdigest()[:14]


def _each_once(query: str) -> list[str]:
    return list(dict.fromkeys(_words(query)))[:MAX_ASKED]


def _words(text: str) -> Iterator[str]:
    flat = unified(text, "NFKD").casefold()
    plain = "".join(c for c in flat if not unicodedata.combining(c))
    for word in _WORD.findall(plain):
        if _UNSPACED.search(word):
            yield from (word[k : k + 2] for k in range(max(1, len(word) - 1)))
            continue
        yield word
        if len(word) > STEM:
            yield f"{word[:STEM]}~"
