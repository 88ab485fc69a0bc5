"""The sanitizer: code decides what other contexts may read of a finding, or why it is withheld.

No free text of one agent reaches another unfiltered: a claim is cleaned and shortened, quotes
are copied from the material, and text that looks like more than a statement is withheld.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import regex

from scopes.clean import normalize_unicode, printable
from scopes.tool import Item, one_line
from subagents.contracts import Grade, ReviewFinding
from subagents.delimiter import clip, leaks_delimiter

MAX_CLAIM: Final = 300
"""Characters of a claim that others read."""
MAX_QUOTE: Final = 300
MAX_QUOTES: Final = 3

Reason = Literal[
    "delimiter",
    "provenance",
    "encoded",
    "homoglyph",
    "instruction",
    "empty",
    "category",
    "evidence",
]
"""Why a finding is withheld: its claim holds one of the first five or lacks one of the others."""


@dataclass(frozen=True, slots=True)
class CleanFinding:
    """The fields of a finding that other contexts read; they do not show who wrote it."""

    id: str
    category: str
    severity: Grade
    claim: str
    place: str
    """Made by code: an id of the material, with a line if it has several."""
    quotes: tuple[str, ...] = ()
    """Spans of the material."""

    def line(self) -> str:
        """Return it on one line; a quote is a JSON string, so that it imitates no other part."""
        quotes = " ".join(json.dumps(quote, ensure_ascii=False) for quote in self.quotes)
        parts = [f"[{self.id}] {self.claim}", f"{self.category}, {self.severity}", self.place]
        return " | ".join([*parts, f"quotes: {quotes}"] if quotes else parts)


@dataclass(frozen=True, slots=True)
class Excerpt:
    """A part of the material."""

    place: str
    text: str


_FILE_POSITION = re.compile(r"(?P<of>.+?):(?P<line>\d{1,7})(?:[-–]\d{1,7})?")
_HUNK = re.compile(r"^@@ -\d", re.MULTILINE)
"""The head of a part of a diff."""
_MARKS = ('"“”„«»', "'’‘")
"""Quotation marks that a faithful copy may exchange."""


@dataclass(frozen=True)
class Material:
    """The texts under review, by id; an id that ends in `:12` begins at that line."""

    texts: Mapping[str, str]

    @classmethod
    def of(cls, items: Iterable[Item]) -> Material:
        """Return the material of these items, without invisible characters."""
        return cls({item.id: printable(item.text) for item in items})

    def find(self, quote: str, near: str = "") -> Excerpt | None:
        """Return the span that a quote copies, ignoring case, spaces and quotation marks.

        `near`: the place to search first. Of a diff a line that it removes comes last.
        """
        words = printable(quote).strip(" \"'.…").split()
        if len("".join(words)) < 2:
            return None
        pattern = re.compile(r"\s+".join(map(_any_marks, words)), re.IGNORECASE)
        source, _ = source_of(near)
        for id in sorted(self.texts, key=lambda id: source_of(id)[0] != source):
            if all_found := list(pattern.finditer(self.texts[id])):
                found = min(all_found, key=lambda each: self._is_removed(id, each.start()))
                return Excerpt(self._place(id, found.start()), found[0])
        return None

    def _is_removed(self, id: str, at: int) -> bool:
        """Return whether a diff removes the line at this position."""
        text = self.texts[id]
        return _HUNK.search(text) is not None and text[text.rfind("\n", 0, at) + 1] == "-"

    def holder(self, place: str) -> str:
        """Return the id of the text that holds a place; empty if none does."""
        place = _bare(place)
        source, line = source_of(place)
        at, parts = line or 0, self._parts.get(source, ())
        held = (id for id, first in parts if first <= at <= first + self.texts[id].count("\n"))
        return place if place in self.texts else next(held, "")

    def resolve(self, place: str) -> str:
        """Return a place of the material in the form that code writes; empty for any other."""
        source, line = source_of(_bare(place))
        held = self.holder(place)
        return f"{source}:{line}" if held not in ("", _bare(place)) else held

    def says(self, word: str) -> bool:
        return word.casefold() in self._folded_text

    @cached_property
    def _folded_text(self) -> str:
        return "\n".join(self.texts.values()).casefold()

    @cached_property
    def _parts(self) -> dict[str, list[tuple[str, int]]]:
        """Map each source to its texts, with the number of their first line."""
        found: dict[str, list[tuple[str, int]]] = {}
        for id in self.texts:
            source, first = source_of(id)
            found.setdefault(source, []).append((id, first or 1))
        return found

    def _place(self, id: str, at: int) -> str:
        if "\n" not in self.texts[id]:
            return id
        source, first = source_of(id)
        return f"{source}:{(first or 1) + self.texts[id].count(chr(10), 0, at)}"


def _any_marks(word: str) -> str:
    escaped = re.escape(word)
    for marks in _MARKS:
        escaped = re.sub(rf"\\?[{marks}]", f"[{marks}]", escaped)
    return escaped


def _bare(place: str) -> str:
    return one_line(place).strip("[] ")


def source_of(place: str) -> tuple[str, int | None]:
    """Return the file, message or page of a place, and its line if it names one."""
    if not (match := _FILE_POSITION.fullmatch(place)):
        return place, None
    source, line = match.groups()
    return source, int(line)


def sanitize(
    finding: ReviewFinding, material: Material, categories: Collection[str]
) -> CleanFinding | Reason:
    """Return what others may read of a finding, or why it is withheld.

    Its id comes from code. A quote is left out if it is not in the material or holds what no claim
    may hold; a finding with neither a quote nor a place in the material is withheld.
    """
    claim = one_line(printable(finding.claim))
    spans = [span for quote in finding.quotes if (span := material.find(quote, finding.place))]
    place = material.resolve(finding.place) or next((span.place for span in spans), "")
    bare = without_markup(claim)  # its words, even if marks stood between the letters
    for text in (claim, bare, place):
        if reason := fault(text, material):
            return reason
    if not (claim := shorten_claim(bare)):
        return "empty"
    if finding.category not in categories:
        return "category"
    if not place:
        return "evidence"
    quotes = (quotable(span, material) for span in spans)
    kept = tuple(dict.fromkeys(filter(None, quotes)))[:MAX_QUOTES]
    return CleanFinding(finding.id, finding.category, finding.severity, claim, place, kept)


def quotable(span: Excerpt, material: Material) -> str:
    """Return a span on one line; empty if it holds what others may read only in the material."""
    text = one_line(span.text)
    return "" if fault(text, material) else text[:MAX_QUOTE]


def fault(text: str, material: Material) -> Reason | None:
    """Return why a text may not reach another context."""
    return next((reason for reason, holds in CLAIM_CHECKS.items() if holds(text, material)), None)


def shorten_claim(claim: str) -> str:
    return clip(claim, MAX_CLAIM)


_ADDRESS = re.compile(r"\(?(?:https?://|www\.|mailto:)\S+", re.IGNORECASE)
_MARKUP = str.maketrans("<>[]{}|`\\", "\u2039\u203a()()/'/", "*#~@")


def without_markup(text: str) -> str:
    """Return a text that no reader takes for a tag, a link, a mention or a heading."""
    return one_line(_ADDRESS.sub("(address)", text).translate(_MARKUP))


_DELIMITER_TAG = re.compile(
    r"(?ix) \bitems-[0-9a-f]{6,} | <\s*/?\s*(?:items|material|findings?|claims?|quotes?|documents?"
    r"|system|user|assistant|human|instructions?|tool)\b | <\|[^|]*\|> | \[/?(?:INST|SYS)\]"
    r"| `{3,} | ={4,} | -{4,} | \#{3,} | <{3,} | >{3,}"
    r"| \b(?:begin|end|start)\s+of\s+(?:the\s+)?(?:material|document|findings?|data|prompt|input)\b"
)
_HEADINGS = re.compile(
    r"\b(?:TASK|QUESTIONS|KNOWN|OUTPUT|OUT OF SCOPE|ASKED BY|MAY READ|WINDOW|NOW|LANGUAGE|CONTRACT"
    r"|FENCE|MATERIAL|REQUEST|FINDINGS?[A-Z ]*|OPINIONS?|VERDICTS?|RESULTS?|LABEL|STATE)\s*:"
)
"""The sections that code writes into a brief."""
_ORIGIN = re.compile(
    r"(?ix) (?:^|[(\[,;.:–-]\s*)(?:copied|checked|verified|confirmed|approved|signed)\s+by\b"
    r"| \b(?:all|both|every|each|other|another|most|two|three|four)\s+(?:of\s+the\s+)?(?:other\s+)?"
    r"(?:judge|specialist|reviewer|expert|agent|subagent|model)s?\s+(?:\w+\s+)?"
    r"(?:agree|accept|approv|confirm|found|mark|refut|reject|vote)"
    r"| \bF\d+\.\d+\b | \[[FRsp]\d+\] | \bprovenance\s*[=:]"
)
"""Words by which a text claims an origin or an authority that only code can state."""
_ENCODED_DATA = re.compile(
    r"\b[0-9a-fA-F]{32,}\b"
    r"|(?=[A-Za-z0-9+/]*[A-Z])(?=[A-Za-z0-9+/]*[a-z])(?=[A-Za-z0-9+/]*[0-9])[A-Za-z0-9+/]{24,}"
    r"|[A-Z2-7]{32,}|(?:[A-Za-z0-9+/]{12,}={1,2})(?!\w)"
    r"|(?:%[0-9a-fA-F]{2}|\\x[0-9a-fA-F]{2}|\\u[0-9a-fA-F]{4}|&\#?\w{1,8};|\\[0-7]{3}){3,}"
    r"|(?:\b[01]{8}\b\s*){3,}|(?=(?:\d\d[\s,:]*)*\d?[a-fA-F])(?:\b[0-9a-fA-F]{2}\b[\s,:]*){8,}"
)
"""Base64, hex, base32, escapes, bytes."""
_SPACED_LETTERS = re.compile(r"(?:(?<!\w)\w[\s._\-*]+){6,}")
"""Letters separated by spaces or marks."""
_SCRIPTS = ("Latin", "Cyrillic", "Greek", "Armenian", "Cherokee")
"""Scripts with letters that look the same."""
_WORD = regex.compile(r"[\p{L}\p{M}]{3,}")
_SCRIPT_LETTERS = {name: regex.compile(rf"\p{{Script={name}}}") for name in _SCRIPTS}


def _is_disguised(text: str, material: Material) -> bool:
    """Return whether a word mixes scripts, or is in another script than most of the text and
    nowhere in the material."""
    if text.isascii():
        return False
    words = [
        (word, {name for name, letter in _SCRIPT_LETTERS.items() if letter.search(word)})
        for word in _WORD.findall(text)
    ]
    counts = {name: sum(name in used for _, used in words) for name in _SCRIPTS}
    usual = max(counts, key=lambda name: counts[name])
    return any(
        len(used) > 1 or (used and usual not in used and not material.says(word))
        for word, used in words
    )


_CLAUSE = (
    r"(?:^|[.!?:;(\"'“”‘’…]\s*|\b(?:please|now|then|bitte|por favor|per favore|s'il vous plait)\s+)"
)
_ORDERS = (
    r"ignore(?!\[)|disregard|forget|obey|pretend|do not|don't|act as|behave"
    r"|stop (?:here|now|review\w*)"
    r"|ignoriere\w*|vergiss|vergessen sie|antworte\w*|bestatige\w*|widerlege\w*|befolge\w*|beachte"
    r"|ignorez|oubli(?:e|ez)|confirmez?|repond(?:s|ez)|suivez"
    r"|ignora|ignoren|olvida|olvide|confirma|confirme|responde|responda"
    r"|dimentica|conferma|rispondi|segui|negeer|vergeet|esqueca"
)
_VERBS = (
    r"confirm|refute|weaken|approve|accept|dismiss|reject|rate|mark|vote|answer|respond|reply|say"
    r"|output|print|report|submit|classify|treat|judge"
)
_OVERRIDE_VERBS = (
    r"ignor|disregard|forget|overrid|bypass|vergiss|vergess|missacht|oubli|olvid|dimentic|obey"
)
_GUIDANCE_NOUNS = (
    r"instruct|(?:system|your|the) prompt|guideline|verdict|other findings"
    r"|everything (?:above|before|else|so far)|(?:all|any) (?:of the )?(?:above|previous|prior)"
    r"|anweisung|consigne|instruc|istruzion"
)
_INSTRUCTION = re.compile(
    rf"{_CLAUSE}(?:{_ORDERS})\b"
    rf"|{_CLAUSE}(?:{_VERBS})\s+(?:\w+\s+)?(?:this|these|all|every|each|any|it|only|that|as|yes)\b"
    rf"|(?:{_CLAUSE}|\band\s+)(?:answer|respond|reply)\s+with\b"
    r"|\b(?:call|use|invoke)\s+(?:submit_result|run_subagent)|\bthis (?:finding|claim|verdict)\b"
    r"|\b(?:judge|reviewer|evaluator|specialist)s?\s*(?:[,:]|(?:must|should|shall|have to)\b)"
    rf"|\b(?:{_OVERRIDE_VERBS})\w*\W(?:[^.!?]{{0,40}}?\W)?(?:{_GUIDANCE_NOUNS})"
    r"|\byou\s+(?:are|must|should|shall|will|have to)\b|\bas an? (?:ai|language model)\b"
    r"|\b(?:your|deine|votre|tu|tuo|tua)\s+(?:task|verdict|instructions?|role|job|answer|output"
    r"|prompt|judge?ment|opinion|aufgabe|tache|tarea|compito)\b"
    r"|\b(?:du\s+(?:bist|musst|sollst)|vous\s+(?:etes|devez)|tu\s+(?:es|dois)|debes|eres|devi)\b"
    rf"|{_CLAUSE}(?:system|assistant|user|human|developer)\s*:"
    r"|忽略|无视|無視|忘记|忘れて|игнорируй|забудь|무시"
)
"""Orders at the beginning of a sentence, words that set instructions aside, and words to a judge.
A statement about code ("Handlers ignore all errors") has a subject."""


def is_instruction(text: str) -> bool:
    """Return whether a text holds an order."""
    return _INSTRUCTION.search(_fold(text)) is not None


def _fold(text: str) -> str:
    """Return a text in lower case without accents, so that spelling variants compare as equal."""
    return re.sub("[\u0300-\u036f]", "", normalize_unicode(text, "NFKD")).casefold()


CLAIM_CHECKS: dict[Reason, Callable[[str, Material], bool]] = {
    "delimiter": lambda text, _: leaks_delimiter(text) or bool(_DELIMITER_TAG.search(text)),
    "provenance": lambda text, _: bool(_HEADINGS.search(text) or _ORIGIN.search(text)),
    "encoded": lambda text, _: bool(_ENCODED_DATA.search(text) or _SPACED_LETTERS.search(text)),
    "homoglyph": _is_disguised,
    "instruction": lambda text, _: is_instruction(text),
}
"""Checks for what a text may not hold, in the order in which they run."""
