"""Bytes to characters, and characters that nobody sees."""

from __future__ import annotations

import codecs
import re

from scopes.clean import printable

BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
WIDER = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
}
"""What mail says it is written in, and what it is written in (WHATWG Encoding, labels)."""
REFUSED = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)
"""Codecs of Python that no mail is written in; two of them take quadratic time."""

_VARIATION = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_FLAG = re.compile("(?<=\U0001f3f4)[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f")
_SMUGGLED = re.compile(
    f"[\U000e0000-\U000e007f]|[{_VARIATION}]{{3}}|[\u202d\u202e]"
    "|[\u00ad\u034f\u061c\u180e\u200b-\u200f\u2060-\u206f\ufeff\ufff9-\ufffb]{8}"
)


def decoded(data: bytes, charset: str = "") -> str:
    """Return the text of bytes in a charset that may be missing, unknown or wrong.

    Raises nothing.
    """
    for mark, name in BOMS:
        if data.startswith(mark):
            return data[len(mark) :].decode(name, "replace")
    codec = _codec(charset)
    if codec in ("", "cp1252"):
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError:
            return data.decode("cp1252", "replace")
    return data.decode(codec, "replace")


def _codec(charset: str) -> str:
    """Name of the codec to use; empty where the charset is none that mail is written in."""
    try:
        name = codecs.lookup(charset.strip().strip("\"'")).name
        b"a".decode(name, "replace")  # raises LookupError for what is no charset, such as rot13
    except (LookupError, ValueError):
        return ""
    return "" if name in REFUSED else WIDER.get(name, name)


def smuggled(text: str) -> bool:
    """Return whether a text carries another one in characters that show nothing, or shows it
    reversed.

    The tags of a flag, one variation selector and a few joiners are how emoji and scripts are
    spelled; more of them in a row spell nothing.
    """
    return not text.isascii() and _SMUGGLED.search(_FLAG.sub("", text)) is not None


def line(text: str, most: int) -> str:
    """Return what is seen of a text, on one line of at most `most` characters."""
    return " ".join(printable(text).split())[:most]
