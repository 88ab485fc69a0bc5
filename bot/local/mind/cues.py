"""Reads one person's turn for signs of success, failure, asking, thanks and promises.

A reading by rules over the words of `words.yaml`; it is not a language model. A success counts
only where it is claimed: not negated, hoped for, asked about or conditional.
"""

import html
import re
import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from pathlib import Path

import yaml
from pydantic import TypeAdapter

_WORDS = Path(__file__).parent / "words.yaml"
_SPOKEN = ("hello", "able", "here", "thread", "every", "more", "also", "ordinal", "filler")
"""Sections that say by language (`ordinal`: by number) what a request may hold."""
_SHARED = ("any", "topics", "asked", *_SPOKEN)
"""Sections of the words that belong to no one language."""
_BRIEF = 4
"""Most words of a clause whose "works" needs no "now" beside it."""
_HEAD = 5
"""Words at the start of a sentence that are read as its heading."""
_MARGIN = 2
"""Function words by which a text must differ from the language expected of it."""
_FEW = 12
"""Words up to which a text may lack the function words of its language."""
_GLOB = re.compile(r"(?<!\\)([a-z])\*")
_NOISE = re.compile(r"```.*?```|`[^`]*`|<[^>]*>|https?://\S+|\S+@\S+|:[a-z_]+:")
_SENTENCE = re.compile(r"(?<=[.!?…])\s+|\s[-•–—]\s|\s*[;•]\s*")
_NAME = re.compile(r"<@[^>]*>|@\w+")


@dataclass(frozen=True)
class Turn:
    """What a person's consecutive messages say, read in order."""

    solved: bool
    """The last thing said about the problem is that it is gone or closed."""
    settled: bool
    """A sentence opens with the success (a heading, an edit), and no question follows it."""
    open: bool
    """The last thing said is a failure, a new question or a "still"."""
    fails: bool
    """The last thing said is a failure or a new question."""
    question: bool
    """There is a question mark."""
    asks: bool
    """There is a question mark, or a phrase of asking."""
    thanks: bool
    promises: bool
    """Will try or report back."""
    passes: bool
    """Looks into it, hands it on, or has no idea (said by a helper)."""
    supplies: bool
    """Sends something that was asked for: a screenshot, a file, settings."""
    troubled: bool
    """Tells of something that is wrong."""
    grave: str
    """What shows that work, data or money is at stake, as written (folded); else empty."""
    me_too: bool
    notice: bool
    """Opens as an announcement and asks nothing."""
    words: int
    rest: int
    """Words outside of the sentences that only thank or greet."""


def fold(text: str) -> str:
    """Lower case without accents, entities, links, code, mentions and emoji codes."""
    plain = _NOISE.sub(" ", _NAME.sub(" ", html.unescape(text))).replace("’", "'").lower()
    plain = plain.replace("ß", "ss").replace("ł", "l").replace("ø", "o")
    folded = unicodedata.normalize("NFKD", plain)
    return " ".join("".join(c for c in folded if not unicodedata.combining(c)).split())


@cache
def _words() -> Mapping[str, Mapping[str, str]]:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return TypeAdapter(dict[str, dict[str, str]]).validate_python(
        yaml.load(_WORDS.read_text(encoding="utf-8"), loader)
    )


@cache
def _patterns(language: str) -> Mapping[str, re.Pattern[str]]:
    patterns: dict[str, re.Pattern[str]] = {}
    for name, words in _words()[language].items():
        whole = _GLOB.sub(r"\1\\w*", words.replace("| ", "|"))
        patterns[name] = re.compile(rf"(?<!\w)(?:{whole})(?!\w)")
    return patterns


@cache
def _clause() -> re.Pattern[str]:
    return re.compile(rf"[,:()\"“”]|(?={_patterns('any')['contrast'].pattern})")


@lru_cache(maxsize=2_000)
def language_of(text: str, default: str = "en") -> str:
    """The language of folded text by its function words; the default unless clearly another.

    A few words may hold no function word: then all words that are known of a language count.
    """
    counts = {name: len(_patterns(name)["stop"].findall(text)) for name in _languages()}
    best = max(counts, key=lambda name: counts[name])
    if counts[best] >= counts[default] + _MARGIN:
        return best
    if len(text.split()) > _FEW:
        return default
    counts = {
        name: sum(len(pattern.findall(text)) for pattern in _patterns(name).values())
        for name in _languages()
    }
    best = max(counts, key=lambda name: counts[name])
    return best if counts[best] >= counts[default] + _MARGIN else default


@cache
def _languages() -> tuple[str, ...]:
    return tuple(name for name in _words() if name not in _SHARED)


@lru_cache(maxsize=2_000)
def topics_of(text: str) -> frozenset[str]:
    """Which of the common topics a folded text touches, whatever its language."""
    return frozenset(name for name, words in _patterns("topics").items() if words.search(text))


def asked_for(text: str) -> frozenset[str]:
    """What a folded question about threads asks for: states, `act`, `channels` or `person`.

    `open` is unanswered or unsolved.
    """
    return frozenset(name for name, words in _patterns("asked").items() if words.search(text))


def spoken(section: str, text: str) -> str:
    """The language (or number) in which a folded text says what that section lists, or empty."""
    return next((name for name, words in _patterns(section).items() if words.search(text)), "")


def without(section: str, text: str, put: str = " ") -> str:
    """The folded text with `put` for all that the section lists."""
    for words in _patterns(section).values():
        text = words.sub(put, text)
    return text


@lru_cache(maxsize=50_000)
def is_common(word: str) -> bool:
    """Whether a folded word belongs to the vocabulary of asking, failing and thanking."""
    asking = [*_patterns("asked").values(), _patterns("any")["generic"]]
    return any(pattern.fullmatch(word) for pattern in asking) or any(
        pattern.fullmatch(word) for name in _languages() for pattern in _patterns(name).values()
    )


def _claimed(cues: Mapping[str, re.Pattern[str]], kind: str, clause: str) -> str:
    """Answers "yes" where the clause claims it, "no" where it denies it, else ""."""
    found = cues[kind].search(clause)
    if not found:
        return ""
    if cues["iffy"].search(clause[: found.start()]):
        return ""
    around = clause[: found.start()] + " " + " ".join(clause[found.end() :].split()[:2])
    return "no" if cues["no"].search(around) else "yes"


def _signs(cues: Mapping[str, re.Pattern[str]], sentence: str) -> list[str]:
    """What a sentence says of the problem, in order: "fixed", "works", "fails", "still", "ask"."""
    if sentence.endswith("?"):
        return ["ask"]
    if cues["iffy"].match(sentence):
        return []
    signs: list[str] = []
    contrast = False
    for clause in (part.strip() for part in _clause().split(sentence) if part.strip()):
        contrast = contrast or (bool(signs) and bool(_patterns("any")["contrast"].match(clause)))
        fixed = _claimed(cues, "fixed", clause) or _claimed(cues, "finds", clause)
        works = _claimed(cues, "works", clause)
        brief = len(clause.split()) <= _BRIEF
        if fixed == "yes":
            signs.append("fixed")
        elif works == "yes" and (brief or cues["now"].search(clause)):
            signs.append("works")
        elif "no" in (fixed, works):
            signs.append("fails")
        elif cues["still"].search(clause) and not cues["thanks"].search(clause):
            signs.append("fails" if cues["problem"].search(clause) else "still")
        elif contrast and signs[-1] == "works" and cues["no"].search(clause):
            signs.append("still")
    return signs


def _outcome(signs: Sequence[str]) -> str:
    """The last word on the problem; a mere "still" does not undo that it was fixed."""
    outcome = ""
    for sign in signs:
        if not (sign == "still" and outcome == "fixed"):
            outcome = sign
    return outcome


def _passes(cues: Mapping[str, re.Pattern[str]], sentences: Sequence[str]) -> bool:
    """Taken on, handed on or not done yet; "if it does not work yet" is a proposal instead."""
    found = ((s, cues["passes"].search(s)) for s in sentences)
    return any(hit and not cues["iffy"].search(s[: hit.start()]) for s, hit in found)


def _is_notice(text: str) -> bool:
    head = text.lstrip(" *_!¡-•")
    found = _patterns("any")["notice"].match(head)
    if found is None or "?" in text:
        return False
    return head[found.end() :].lstrip(" *_")[:1] in (":", "!")


@lru_cache(maxsize=2_000)
def read_turn(text: str, default: str = "en") -> Turn:
    """Read one person's consecutive messages, joined; `default` is the thread's language."""
    folded = fold(text)
    cues, common = _patterns(language_of(folded, default)), _patterns("any")
    sentences = [
        part.strip(" .:-*_!") for part in _SENTENCE.split(folded) if part and part.strip(" .:-*_!")
    ]
    signs = [_signs(cues, sentence) for sentence in sentences]
    outcome = _outcome([sign for each in signs for sign in each])
    heads = [_claimed(cues, "fixed", " ".join(s.split()[:_HEAD])) == "yes" for s in sentences]
    last_ask = max((i for i, each in enumerate(signs) if "ask" in each), default=-1)
    thanking = [bool(cues["thanks"].search(sentence)) for sentence in sentences]
    grave = cues["grave"].search(folded)
    return Turn(
        solved=outcome in ("fixed", "works"),
        settled=any(heads[last_ask + 1 :]),
        open=outcome in ("fails", "still", "ask"),
        fails=outcome in ("fails", "ask"),
        question="?" in folded,
        asks="?" in folded or any(cues[kind].search(folded) for kind in ("asks", "iffy")),
        thanks=any(thanking),
        promises=bool(cues["will"].search(folded)),
        passes=_passes(cues, sentences),
        supplies=bool(common["supplies"].search(folded)),
        troubled=any(cues[kind].search(folded) for kind in ("problem", "still", "no")),
        grave=grave[0] if grave else "",
        me_too=bool(common["me_too"].search(folded)),
        notice=_is_notice(folded),
        words=len(folded.split()),
        rest=sum(
            len(s.split()) for s, thanks in zip(sentences, thanking, strict=True) if not thanks
        ),
    )
