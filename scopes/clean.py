"""Clean text before it is shown or stored: decode it, and remove invisible parts and secrets."""

from __future__ import annotations

import codecs
import re
import unicodedata
from typing import Final, Literal

import regex

SECRET_PLACEHOLDER = "[removed]"
_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
_CONTROLS = re.compile(r"[\x00-\x08\x0e-\x1f\x7f]")
_HIDDEN = frozenset({"Cc", "Cf", "Cn", "Co", "Cs"})
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0\ufffc\U00016fe4\U0001d159")
"""Letters and signs without a shape."""
_KEPT_CHARACTERS = frozenset("\n\t\u200c\u200d\ufe0f")
"""Joiners and selectors among them are kept only where they are needed, see below."""
_SELECTOR = re.compile("[\ufe00-\ufe0f\u180b-\u180f\U000e0100-\U000e01ef]")
_SYNTAX_CHARACTERS = frozenset("<>@#&*_`|/.\\[]{}=%^")
"""Wide forms of these are folded; wide commas and round brackets belong to written Chinese."""

_EMOJI = (
    "\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u23ff\u24c2\u25a0-\u27bf\u2934\u2935"
    "\u2b00-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_JOINING_SCRIPTS = "\u0600-\u0dff\u1780-\u17ff"
"""Scripts in which a joiner between two letters is spelling: Arabic to Sinhala, Khmer."""
_STRAY = (
    re.compile(rf"(?<![{_EMOJI}])\ufe0f(?!\u20e3)"),
    re.compile(
        rf"(?<![{_EMOJI}\ufe0f{_JOINING_SCRIPTS}])\u200d|\u200d(?![{_EMOJI}{_JOINING_SCRIPTS}])"
        rf"|(?<![{_JOINING_SCRIPTS}])\u200c|\u200c(?![{_JOINING_SCRIPTS}])"
    ),
)


def printable(text: str) -> str:
    """Return the text without invisible characters, and with disguised letters as plain ones.

    Removes control, format (bidi, zero-width, tag), private, unassigned and surrogate characters,
    variation selectors and blank fillers; joiners and the emoji selector are kept inside emoji,
    joiners also inside words of scripts that need them. NFKC is not applied to the whole text: it
    would make a 102 of a 10 squared, and change the commas of Chinese. Mathematical, wide and
    ligature letters are folded, as are wide forms of signs that act in markup and addresses; the
    rest is NFC.
    """
    text = _BREAKS.sub("\n", text)
    if text.isascii():
        return _CONTROLS.sub("", text)
    text = text.translate(_VISIBLE_FORMS)
    for stray in _STRAY:
        text = stray.sub("", text)
    return normalize_unicode(text)


MAX_MARKS: Final = 30
"""Maximum marks on one letter, as in the Stream-Safe Text Format of UAX #15."""
_MARK = r"[\P{ccc=0}\u0f73\u0f75\u0f81\uff9e\uff9f]"
"""A character that is sorted after its letter, in any form."""
_MANY_MARKS = regex.compile(f"({_MARK}{{{MAX_MARKS}}}){_MARK}+")


def normalize_unicode(text: str, form: Literal["NFC", "NFKC", "NFKD"] = "NFC") -> str:
    """Return the text in a normal form of Unicode; drop marks of a letter beyond `MAX_MARKS`.

    Python sorts them in quadratic time and blocks everything else meanwhile: 40,000 marks take
    seconds, ten times as many take minutes.
    """
    few = text if text.isascii() else _MANY_MARKS.sub(r"\1", text)
    return unicodedata.normalize(form, few)


class _Table(dict[int, str]):
    """A translation table that is filled on the first occurrence of each character."""

    def __missing__(self, code: int) -> str:
        form = self[code] = _visible_form(chr(code))
        return form


_VISIBLE_FORMS = _Table()


def _visible_form(letter: str) -> str:
    category = unicodedata.category(letter)
    if letter in _KEPT_CHARACTERS:
        return letter
    if category == "Cn" and "\U0001f000" <= letter <= "\U0001faff":
        return letter  # reserved for emoji that are newer than Python's tables
    if unseen(letter):
        return ""
    if category == "Zs":
        return letter if letter == "\u3000" else " "
    return _fold(letter, category)


def unseen(letter: str) -> bool:
    """Return whether a character shows nothing: control, format or filler signs, selectors."""
    hidden = unicodedata.category(letter) in _HIDDEN or letter in _FILLERS
    return hidden or _SELECTOR.fullmatch(letter) is not None


def _fold(letter: str, category: str) -> str:
    kind = unicodedata.decomposition(letter).partition(" ")[0]
    plain = unicodedata.normalize("NFKC", letter)
    folds = (
        kind in ("<font>", "<small>", "<noBreak>")
        or (
            kind == "<wide>"
            and ((plain.isascii() and plain.isalnum()) or plain in _SYNTAX_CHARACTERS)
        )
        or (kind == "<compat>" and (category in ("Ll", "Lu", "Lt") or letter == "\u2024"))
    )
    return plain if folds else letter


_PRIVATE = r"PRIVATE\ KEY[A-Z ]{0,40}-----"
_TOKENS = re.compile(
    rf"""(?x)(?=[xXsrAy1GgwSnphe-])(?:
      (?i:xox[abcdeprsu]|xwfp)[-.](?=[\w.%-]{{0,200}}\d)[\w.%-]+     # Slack: bot, user, refresh ...
    | (?i:xapp)-(?=[\w%-]{{0,200}}\d)[\w%-]+
    | sk-ant-(?=[\w-]{{0,200}}\d)[\w-]{{6,}}                        # Anthropic
    | (?<![\w-])sk-(?=[\w-]{{0,200}}\d)[\w-]{{20,}}                 # OpenAI
    | (?<![\w/+])(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{{16}}(?![\w/+])  # AWS access keys
    | (?<![\w/+-])AIza[\w-]{{35}}(?![\w/+-])                      # Google: API key, OAuth, client
    | ya29\.[\w-]{{10,}}
    | (?<![\w/:.+])1//0[\w-]{{20,}}
    | GOCSPX-[\w-]{{10,}}
    | gh[pousr]_[A-Za-z0-9]{{20,}} | github_pat_\w{{20,}}
    | gl(?:pat|ptt|dt|rt|cbt|oas|soat|ft)-[\w-]{{16,}}            # GitLab
    | (?<![A-Za-z0-9])[sr]k_(?:live|test)_[A-Za-z0-9]{{10,}}      # Stripe
    | whsec_[\w+/=-]{{16,}}
    | SG\.[\w-]{{16,}}\.[\w-]{{16,}}                              # SendGrid
    | npm_[A-Za-z0-9]{{30,}} | pypi-[\w-]{{40,}} | hf_[A-Za-z0-9]{{30,}}
    | (?<![\w-])eyJ[\w-]{{8,}}\.eyJ[\w-]{{8,}}(?:\.[\w-]*)?                 # JSON Web Tokens
    | -----BEGIN\ [A-Z ]{{0,40}}{_PRIVATE}(?:(?!-----BEGIN\ )[\s\S]){{0,8000}}?
      -----END\ [A-Z ]{{0,40}}{_PRIVATE}
    | -----BEGIN\ [A-Z ]{{0,40}}{_PRIVATE}(?:(?:[\s>|]|\\[nr])*[A-Za-z0-9+/=]{{16,}})* # no end
    )"""
)
"""It begins with the first letters of all tokens: a search skips everything else."""
_NOT_A_PLACEHOLDER = (
    r"(?!['\"]?(?:None|null|nil|true|false|os\.|env\.|process\.|/[a-z]|<[^<>\n]*>|\*\*\*|\.\.\.|\[removed"
    r"|\$\{?[A-Za-z_]+\}?(?!\w)|\{\{?\w+\}))"
)
"""Placeholders for passwords in examples and settings."""
_SECRET_NAME = (
    "[aefpstAEFPST\u017f]"
    r"(?i:(?<=p)(?:assword|asswd|wd|assphrase)|(?<=t)oken"
    r"|(?<=s)ecret(?:[_-]?access)?(?:[_-]?key)?"
    r"|(?:(?<=a)pi|(?<=p)rivate|(?<=a)ccess|(?<=a)uth|(?<=e)ncryption|(?<=f)ernet)[_ -]?key)"
)
"""Its first letter is separate, so that a search skips to the next such letter."""
_NAME = re.compile(_SECRET_NAME)
_CONTEXTS = tuple(
    (head.startswith(_SECRET_NAME), re.compile(f"(?P<head>{head})(?i:{secret})"))
    for head, secret in (
        # addresses that hold a password or are one
        (r"(?i:\b[a-z][a-z0-9+.-]{0,30}://[^\s:/@]*:)", r"[^\s/]+(?=@)"),
        (r"(?i:hooks\.slack\.com/)", r"[\w/%-]+"),
        (r"(?i:(?:wss?://|/link/)[^\s'\"<>]{0,200}?[?&]ticket=)", r"[^&\s'\"<>]+"),
        # the authorisation of a request
        (r"(?i:authorization['\"]?\s*[:=]\s*['\"]?(?:bearer|basic|token)\s+)", r"[\w.~+/=-]{6,}"),
        (r"(?i:\bbearer\s+)", r"(?=[\w.~+/=-]{0,200}(?:\d|[.~+_=]\w)|[a-z]{20})[\w.~+/=-]{6,}"),
        # a name with "=", or with ":" before something that looks like no word
        (
            rf"{_SECRET_NAME}['\"]?[ \t]*=[ \t]*",
            rf"{_NOT_A_PLACEHOLDER}(?:'[^'\n]{{0,500}}'|\"[^\"\n]{{0,500}}\"|['\"]?[^\s'\"&),;]{{4,}})",
        ),
        (
            rf"{_SECRET_NAME}['\"][ \t]*:[ \t]*",
            rf"{_NOT_A_PLACEHOLDER}(?:'[^'\n]{{4,500}}'|\"[^\"\n]{{4,500}}\")",
        ),
        (
            rf"{_SECRET_NAME}[`*]*[ \t]*:[`* \t]*",
            rf"{_NOT_A_PLACEHOLDER}(?=[^\s`]{{0,200}}\d)(?=[^\s`]{{0,200}}[a-z])[^\s'\"`,;]{{6,}}",
        ),
        # keys without a form of their own
        (r"(?i:(?:key|fernet)\W[^\n]{0,40}?(?<![\w-]))", r"[\w-]{43}=(?![\w=])"),
        (r"(?i:aws[^\n]{0,40}(?:secret|key)[^\n]{0,20}?(?<![\w/+]))", r"[\w/+]{40}(?![\w/+=])"),
    )
)
"""Whether a pattern begins with a name of a secret, and the pattern of a secret in its context."""


def redact(text: str) -> str:
    """Return the text with `[removed]` in place of everything that looks like a secret."""
    text, is_named = _TOKENS.sub(SECRET_PLACEHOLDER, text), _NAME.search(text)
    for begins_with_name, pattern in _CONTEXTS:
        if is_named or not begins_with_name:
            text = pattern.sub(rf"\g<head>{SECRET_PLACEHOLDER}", text)
    return text


_QUOTED_SECRET_START = re.compile(rf"{_SECRET_NAME}['\"]?[ \t]*[:=][ \t]*['\"]")
"""The start of a possible password, which lasts until its quote or its line ends."""
_KEY_END = re.compile(r"-----END[^\n]*-----\s")
_MAX_SECRET_CHARS = 10_000
"""Characters of the longest secret, a private key of 8,192 bits."""


def find_unsettled(text: str) -> int:
    """Return the position from which an unfinished text may still become (part of) a secret."""
    before = max(0, len(text) - _MAX_SECRET_CHARS)
    at, found = len(text) + 1, len(text)
    while found < at:
        at = found
        tail = text[before:at]
        found = before + _of_word(tail, min(_of_key(tail), _of_quote(tail), len(tail)))
    return at


def _of_word(text: str, at: int) -> int:
    """Return the start of the word that ends at a position: it may be part of the same key."""
    word = text[:at].rsplit(None, 1)[-1:]
    return at - len(word[0]) if word and text[:at].endswith(word[0]) else at


def _of_quote(text: str) -> int:
    found = _QUOTED_SECRET_START.search(text, text.rfind("\n") + 1)
    return found.start() if found else len(text)


def _of_key(text: str) -> int:
    """Return the start of a key without an end (`-----END ...-----` and a space on one line)."""
    start = text.rfind("-----BEGIN")
    return len(text) if start < 0 or _KEY_END.search(text, start) else start


_NUMBER = r"[+-]?[0-9]+(?:[.,][0-9]+)*(?:[eE][+-]?[0-9]+)?%?"
_FORMULA = re.compile(
    rf"""(?x)(?:\A(?!{_NUMBER}\Z) | (?<=[,;\t\r\n])(?!{_NUMBER}(?:[,;\t\r\n]|\Z)))
      (?=[\s\xa0\u3000"]*+ [=+\-@\uff1d\uff0b\uff0d\uff20])
    | \A(?=[\t\r\n]) | \A(?=[\s"]*+ (?i:sep)\s*=)"""
)
"""The start of a cell that a spreadsheet takes for a formula, or for a line that sets the separator
(`sep=|`); also within a text: some programs separate cells by `;`, others by a comma."""


def csv_cell(value: object) -> str:
    """Return a value for a CSV file, with `'` where a spreadsheet would begin a formula."""
    text = "" if value is None else str(value)
    return _FORMULA.sub("'", text)


BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
ACTUAL_CHARSETS = {
    "ascii": "cp1252",
    "iso8859-1": "cp1252",
    "gb2312": "gb18030",
    "gbk": "gb18030",
    "euc_kr": "cp949",
    "shift_jis": "cp932",
}
"""The charset that a mail names -> the one that it really uses (WHATWG Encoding, labels)."""
REFUSED_CODECS = frozenset(
    {"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"}
)
"""Codecs of Python that no mail uses; two of them take quadratic time."""

_SELECTOR_RANGES = "\ufe00-\ufe0f\U000e0100-\U000e01ef"
_FLAG = re.compile("(?<=\U0001f3f4)[\U000e0030-\U000e0039\U000e0061-\U000e007a]{2,6}\U000e007f")
_SMUGGLED_TEXT = re.compile(
    f"[\U000e0000-\U000e007f]|[{_SELECTOR_RANGES}]{{3}}|[\u202d\u202e]"
    "|[\u00ad\u034f\u061c\u180e\u200b-\u200f\u2060-\u206f\ufeff\ufff9-\ufffb]{8}"
)


def decode_text(data: bytes, charset: str = "") -> str:
    """Return the text of bytes in a charset that may be missing or wrong. Raises nothing."""
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
    """Return the name of the codec to use; empty if no mail uses the charset."""
    try:
        name = codecs.lookup(charset.strip().strip("\"'")).name
        b"a".decode(name, "replace")  # raises LookupError if it is no charset, such as rot13
    except (LookupError, ValueError):
        return ""
    return "" if name in REFUSED_CODECS else ACTUAL_CHARSETS.get(name, name)


def smuggles_text(text: str) -> bool:
    """Return whether a text carries another one in invisible characters, or shows it reversed.

    Emoji and scripts use the tags of a flag, one variation selector and a few joiners; more of them
    in a row belong to no script.
    """
    return not text.isascii() and _SMUGGLED_TEXT.search(_FLAG.sub("", text)) is not None


def line(text: str, most: int) -> str:
    """Return the visible part of a text, on one line of at most `most` characters."""
    return " ".join(printable(text).split())[:most]
