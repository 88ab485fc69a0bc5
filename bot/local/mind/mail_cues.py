"""Reads the sentences of mails for requests, urgency, trouble and topics, by fixed words.

The words are those of `mind_mail_words.yaml`; it is not a language model.
"""

import re
from collections.abc import Mapping
from functools import cache, lru_cache
from pathlib import Path

import yaml
from pydantic import TypeAdapter

from bot.local.mind.cues import fold

_WORDS = Path(__file__).parent / "mind_mail_words.yaml"
_GLOB = re.compile(r"(?<!\\)([a-z])\*")
_END = re.compile(
    r"(?<=[.!?…])(?<!\b[A-Za-z]\.)(?<!\b(?:Dr|Mr|Ms|St|Nr|No|ca|vs)\.)(?<!\bMrs\.)"
    r"(?:(?<!\d\.)|(?!\s+(?:Jan|Feb|Mär|Apr|Mai|Jun|Jul|Aug|Sep|Okt|Nov|Dez)))"
    r"\s+(?=[\"'“«(¿¡\[]*[A-ZÀ-Þ0-9¿¡>])|(?<=[?!])\s+"
)
_LEAST = 3
"""Words that a question has at least; "OK?" asks nothing that can be answered."""


@cache
def _words() -> Mapping[str, Mapping[str, str]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return TypeAdapter(dict[str, dict[str, str]]).validate_python(
        yaml.load(_WORDS.read_text(encoding="utf-8"), loader)
    )


def spelled(language: str, kind: str) -> str:
    """The words of a kind as one regular expression; English for a language not listed."""
    words = _words().get(language, _words()["en"])[kind]
    return _GLOB.sub(r"\1\\w*", words.replace("| ", "|"))


@cache
def words(language: str, kind: str) -> re.Pattern[str]:
    """The words of a kind, whole, in folded text."""
    return re.compile(rf"(?<!\w)(?:{spelled(language, kind)})(?!\w)")


def has(kind: str, folded: str) -> bool:
    """Whether a folded text has words of a kind that is listed for all languages together."""
    return words("any", kind).search(folded) is not None


def sentences(text: str) -> list[str]:
    """The sentences of a text, verbatim."""
    return [part.strip() for part in _END.split(text) if part and part.strip()]


@lru_cache(maxsize=20_000)
def asks(sentence: str, language: str) -> bool:
    """Whether a sentence asks or requests something of whoever reads it."""
    folded = fold(sentence)
    plain = words(language, "polite").sub(" ", folded)
    if plain.rstrip(" \"'»”)").endswith("?") and len(plain.split()) >= _LEAST:
        return True
    first = re.match(rf"\W*(?:{spelled(language, 'act')})(?!\w)", plain)
    return bool(first or words(language, "ask").search(plain))


def topics(text: str) -> frozenset[str]:
    """The topics of trouble that a text touches, whatever its language."""
    folded = fold(text)
    return frozenset(name for name in _words()["matters"] if words("matters", name).search(folded))
