"""Shingles: the eight-word runs of a text by which a copied excerpt is recognised."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Set
from itertools import islice
from typing import Any

from scopes.clean import unified

WORDS = 8
"""Words in a shingle. Shorter runs recur by chance, longer ones miss a sentence (DESIGN, law 2)."""

# Scripts without spaces have no words to count, so a character stands for a part of one: a Chinese
# word has about 1.7 characters, a Japanese one about 2, a Thai, Lao, Khmer or Burmese one about 4
# with its vowel signs. Eight words are then 16 Han or kana characters, or 32 Thai ones.
_HALF = "\u3005\u3041-\u3096\u30a1-\u30fa\u30fc\u3400-\u4dbf\u4e00-\u9fff\U00020000-\U0003134f"
_QUARTER = "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff"
UNSPACED = re.compile(f"[{_HALF}{_QUARTER}]")
_HALF_WORD = re.compile(f"[{_HALF}]")

# Marks belong to their word: `\w` alone would cut a Hindi word at each vowel sign.
_MARKS = "\u0300-\u036f\u0591-\u05c7\u064b-\u065f\u0900-\u0dff"
_UNSEEN = re.compile("[\u00ad\u200b-\u200f\u2060\ufeff]|\\b_|_\\b")
"""Joiners that do not show, and the underscores that Slack and Markdown set round emphasis."""
# Addresses, item ids, times and channel names count as one word however many \w+ are in them:
# briefs and item lines share them by construction. So does the id of a finding: its last digit
# would otherwise be the number of the list entry that the claim behind it is from.
_UNITS = (
    r"https?://[^\s<>|)\]\"]+",
    r"\bf\d+\.\d+\b",
    r"[a-z0-9]+/\d+\.\d+",
    r"\d{4}-\d\d-\d\d(?:[t ]\d\d:\d\d(?::\d\d(?:\.\d+)?)?z?)?",
    r"#[\w-]+",
    r"(?<=\[)[!-Z\\^-~]+(?=\](?!\())",
)
_WORD = re.compile("|".join([*_UNITS, rf"[\w{_MARKS}]+"]))
_TOKEN = re.compile(
    "|".join([*_UNITS, f"[{_HALF}{_QUARTER}]", rf"(?:(?![{_HALF}{_QUARTER}])[\w{_MARKS}])+"])
)
_PLAIN = re.compile(r"[^\W\d_]")
_CODED = re.compile(r"https?:|#|.*\d")

_SILENT = frozenset(("id", "tool_use_id", "type", "signature", "data", "cache_control"))
"""Keys of a content block whose values are not text that anyone wrote."""


def texts(block: Mapping[str, Any]) -> Iterator[str]:
    """Every text in a content block, its nested blocks and its tool arguments.

    A string that is itself JSON is read as such, so that its escapes do not hide its words.
    """
    for key, value in block.items():
        if key not in _SILENT:
            yield from _strings(value)


def shingles(text: str, words: int = WORDS) -> set[int]:
    """Hashes (64 bits, valid within this process) of all eight-word runs of a text.

    Compared after NFKC and casefold, by words: spelling of width, case and punctuation do not hide
    a copy. Empty for a text of fewer than eight words, or of as many as `words` says.
    """
    tokens, unspaced = _tokens(text)
    if not unspaced:
        return set(map(hash, zip(*(islice(tokens, i, None) for i in range(words)), strict=False)))
    return {hash(tuple(tokens[start:end])) for start, end in _windows(tokens, words)}


def excerpts(text: str, wanted: Set[int]) -> list[str]:
    """The passages of a text that are made of the wanted shingles, as normalised words.

    Runs that are mostly figures, ids, times and addresses are left out: those recur by
    construction and are no one's words.
    """
    tokens, unspaced = _tokens(text)
    found: list[tuple[int, int]] = []
    for start, end in _windows(tokens):
        window = tuple(tokens[start:end])
        if hash(window) not in wanted or not _says_something(window):
            continue
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], end)
        else:
            found.append((start, end))
    return [_joined(tokens[start:end], unspaced) for start, end in found]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        inner = _json(value)
        if inner is None:
            yield value
        else:
            yield from _strings(inner)
    elif isinstance(value, Mapping):
        for child in value.values():
            yield from _strings(child)
    elif isinstance(value, list | tuple):
        for child in value:
            yield from _strings(child)


def _json(text: str) -> Any:
    """The object or list that a text spells in JSON, or None."""
    if text[:1] not in ("{", "["):
        return None
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _tokens(text: str) -> tuple[list[str], bool]:
    """Words, and single characters of scripts without spaces; and whether there were such."""
    text = _UNSEEN.sub("", unified(text, "NFKC").casefold())
    unspaced = UNSPACED.search(text) is not None
    return (_TOKEN if unspaced else _WORD).findall(text), unspaced


def _windows(tokens: list[str], words: int = WORDS) -> Iterator[tuple[int, int]]:
    """For each token the shortest run from it that is worth so many words, as (start, end)."""
    weights = [_weight(token) for token in tokens]
    end = total = 0
    for start, weight in enumerate(weights):
        while total < 4 * words and end < len(weights):
            total += weights[end]
            end += 1
        if total < 4 * words:
            return
        yield start, end
        total -= weight


def _weight(token: str) -> int:
    """Quarters of a word."""
    if len(token) > 1 or not UNSPACED.match(token):
        return 4
    return 2 if _HALF_WORD.match(token) else 1


def _says_something(window: tuple[str, ...]) -> bool:
    plain = sum(1 for token in window if _is_plain(token))
    return 2 * plain >= len(window)


def _is_plain(token: str) -> bool:
    return _weight(token) < 4 or bool(_PLAIN.search(token) and not _CODED.match(token))


def _joined(tokens: list[str], unspaced: bool) -> str:
    if not unspaced:
        return " ".join(tokens)
    parts = [token if _weight(token) < 4 else f" {token} " for token in tokens]
    return " ".join("".join(parts).split())
