"""Text as it really is: what nobody sees is written out, and look-alikes are told apart."""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from scopes.clean import unseen
from scopes.pages.hosts import MAX_NAME

_SPACES = frozenset({"Zl", "Zp", "Zs"})
_NO_LINES = re.compile(r"(?:(?<=\n)|\A)(?: *\n){3,}")
_NO_WORDS = re.compile(" {41,}")
_HOST = re.compile(r"(?:@|://)([^\s/@:?#]+)|^([^\s/@:?#]+\.[^\s/@:?#]+)$")


def visible(text: str) -> str:
    """The text with each character that nobody sees as `\\uXXXX`; only line feeds stay.

    A joiner or selector inside an emoji stays, too. Of empty lines and spaces that would push what
    follows out of sight the number is told.
    """
    return _counted(_letters(text))


def _counted(text: str) -> str:
    text = _NO_LINES.sub(lambda found: f"[{found[0].count(chr(10)):,} empty lines]\n", text)
    return _NO_WORDS.sub(lambda found: f"[{len(found[0]):,} spaces]", text)


def _letters(text: str) -> str:
    if text.isascii() and text.replace("\n", "").isprintable():
        return text
    around = pairwise(f" {text} ")
    befores = [before for before, _ in around]
    afters = [*text[1:], " "]
    return "".join(
        _written(c) if _is_unseen(c, before, after) else c
        for c, before, after in zip(text, befores, afters, strict=False)
    )


def _is_unseen(letter: str, before: str, after: str) -> bool:
    if letter in "\n ":
        return False
    if letter == "\ufe0f":
        return unicodedata.category(before) != "So"
    if letter == "\u200d":
        return not (_is_emoji(before) and unicodedata.category(after) == "So")
    return unseen(letter) or unicodedata.category(letter) in _SPACES


def _is_emoji(letter: str) -> bool:
    return unicodedata.category(letter) in ("So", "Sk") or letter == "\ufe0f"


def spelled(text: str) -> str:
    """A name or address in plain ASCII beside itself; the text alone where it is plain ASCII."""
    return visible(text).replace("\n", "\\n") + _written_out(text)


def told(value: Any, indent: str = "") -> str:
    """Any value of JSON, over several lines, with each text in it spelled."""
    inner = f"{indent} "
    if isinstance(value, str):
        return visible(json.dumps(value, ensure_ascii=False)) + _written_out(value)
    if isinstance(value, Mapping):
        lines = [f"{inner}{told(str(k))}: {told(v, inner)}" for k, v in value.items()]
        return "{\n" + ",\n".join(lines) + f"\n{indent}}}"
    if isinstance(value, list | tuple):
        lines = [f"{inner}{told(each, inner)}" for each in value]
        return "[\n" + ",\n".join(lines) + f"\n{indent}]"
    return json.dumps(value)


def _written_out(text: str) -> str:
    """What stands beside a text that is not plain ASCII."""
    if text.isascii():
        return ""
    hosts = [name for found in _HOST.findall(text) for name in found if name and not name.isascii()]
    coded = [host for host in map(_punycode, hosts) if host]
    plain = "".join(c if c.isascii() and c.isprintable() else _written(c) for c in text)
    return f" [written out: {', '.join([_counted(plain), *coded])}]"


def _punycode(host: str) -> str:
    if len(host) > MAX_NAME:  # it is none, and the codec takes quadratic time
        return ""
    try:
        return _letters(host.encode("idna").decode())  # which keeps control characters
    except UnicodeError:
        return ""


def _written(letter: str) -> str:
    code = ord(letter)
    return f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"
