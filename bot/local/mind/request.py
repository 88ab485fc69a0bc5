"""Takes a request to the bot apart: which questions it holds, and of which channels they are."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bot.local.mind.cues import asked_for, fold, language_of, spoken, without
from bot.local.mind.hearing import Heard
from bot.local.mind.scopes import Piece, pieces
from bot.local.mind.search import keywords

CHANNEL = re.compile(r"(?<![\w&/])#[\w-]+|\b[CG][A-Z0-9]{8,}\b")
GLOB = re.compile(r"(?<![\w*])#?([\w-]*)\*(?![\w*])")
NOTHING = "(The message mentions you and says nothing else.)"
_MENTION = re.compile(r"<#([CG][A-Z0-9]+)(?:\|[^>]*)?>|#([CG][A-Z0-9]{8,}\b)")
_LOOKING = re.compile(r"\n\(While asking, the user has the channel (\w+) open;[^\n]*\)\s*$")
_NUMBERED = re.compile(r"(?:^|\s)(?:\(?\d{1,2}[.)]|[-*•])\s+(?=\S)")
_AND = re.compile(r",?\s+(?:and|y|e|et|und|en|a|oraz|och)\s+(?=[^#]*[#<])")
_LISTED = re.compile(r"^\s*\[([CG][A-Z0-9]+)\] #(\S+?)(?:: (.*))?$")
_SPANISH = re.compile("[¿¡ñÑ]")
_WORD = re.compile(r"[^\W_]+")
_TOLD = re.compile(r"^\s*\[[^\]]+\] \S+ \S+ [^:]+: (?:@assistant[\s,:]*)?(.*)$")
OWN = "your own earlier answer}"
"""How a line of the conversation ends that the assistant wrote."""
_SHORT = 4
"""Most letters of the words that join channels: and, in, vs, with."""
_FEW = 6
"""Most words of a request that goes on from the one before it."""


@dataclass(frozen=True)
class Question:
    """One question of a request, with the sources it names."""

    text: str
    sources: tuple[str, ...] = ()
    """Channel ids or names, as written; the id of where it was asked for "here"."""
    every: bool = False
    """It asks of all channels, or of all that a pattern or a word of their names fits."""
    asks: str = ""
    """What is to be found out, where `text` goes on from what was said before; else empty."""
    scope: str = "slack"
    """Which scope can answer it; of another one `sources` are handles."""

    @property
    def task(self) -> str:
        return self.asks or self.text

    def task_of(self, source: str, title: str) -> str:
        """The task for one of several sources: it stands where all of them stood."""
        spans = [found.span() for found in CHANNEL.finditer(self.task)]
        if not spans:
            return f"{self.task} ({title})"
        start, end = spans[0][0], spans[-1][1]
        tail = re.match(r"(?:[,\s]+\w+){1,2}", self.task[end:])
        if tail and bare(tail[0]) and spoken("here", fold(tail[0])):
            end += tail.end()
        if len(self.sources) > 1 and bare(self.task[start:end]):
            return f"{self.task[:start]}{title}{self.task[end:]}"
        return self.task if len(self.sources) < 2 else f"{self.task} ({title})"


@dataclass(frozen=True)
class Asked:
    """A request as the rules understand it."""

    text: str
    language: str
    questions: tuple[Question, ...]
    here: str
    """Id of the channel that it was asked in or beside; empty where that is none to read."""
    titles: Mapping[str, str]
    """Id of a channel that it names or stands in -> name."""

    def title(self, source: str) -> str:
        """A source as people know it."""
        return self.titles.get(source, source)


def read_request(heard: Heard) -> Asked:
    """The request of an opening; of any other text, the whole is the request."""
    told = heard.section("REQUEST") or "\n".join(heard.told)
    beside = _LOOKING.search(told)
    text = _MENTION.sub(r"\1\2", _LOOKING.sub("", told)).strip()
    pairs = re.findall(r"(\S+) \(([^()]*)\)", heard.section("NAMED SOURCES"))
    titles = {key: name for key, name in [*pairs, *heard.here.items()] if "/" not in key}
    rooms = [key for key, name in heard.here.items() if key[0] in "CG" and name.startswith("#")]
    here = beside[1] if beside else next((key for key in rooms if "/" not in key), "")
    questions = [
        question
        for piece in pieces(text, heard) or [Piece(text, "slack")]
        for question in (
            split(piece.text, here, _before(heard))
            if piece.scope == "slack"
            else [Question(piece.text, piece.handles, scope=piece.scope)]
        )
    ]
    return Asked(text, tongue(text), tuple(questions), here, titles)


def tongue(text: str) -> str:
    """The language of a request, told by a greeting where it holds little else."""
    folded = fold(CHANNEL.sub(" ", text))
    language = "es" if _SPANISH.search(text) else language_of(folded)
    said = next((s for s in ("able", "hello", "every", "more") if spoken(s, folded)), "")
    return spoken(said, folded) if said and language == "en" else language


def _before(heard: Heard) -> str:
    """What was last asked of a channel in the conversation, without a name and the mention."""
    said = [_TOLD.match(line) for line in heard.block("CONVERSATION").splitlines()]
    asked = [found[1] for found in said if found and not found[0].endswith(OWN)]
    whole = [text for text in asked if asked_for(fold(text)) or keywords(text)[1]]
    return whole[-1] if whole else ""


def split(request: str, here: str = "", before: str = "") -> list[Question]:
    """The separate questions of a request; one that names no channel inherits the one before it.

    `here` stands for "here"; `before` is what was asked before, which "and in #it?" goes on from.
    """
    pieces = [piece.strip() for piece in _pieces(request)]
    questions: list[Question] = []
    lead = ""
    for piece in (piece for piece in pieces if piece):
        asks = piece.endswith("?") or len(pieces) == 1 or bool(asked_for(fold(piece)))
        if not asks and not (questions and CHANNEL.search(piece)):
            lead = f"{lead} {piece}".strip()
            continue
        question = _question(f"{lead} {piece}".strip(), here)
        if not lead:
            question = _going_on(question, questions[-1].task if questions else before)
        if questions and not (question.sources or question.every or _lists(piece)):
            question = replace(question, sources=questions[-1].sources)
        questions.append(question)
        lead = "" if questions else lead
    return questions or [_question(request.strip(), here)]


def _lists(text: str) -> bool:
    return "channels" in asked_for(fold(text))


def _question(text: str, here: str) -> Question:
    folded = fold(text)
    asked = asked_for(folded)
    found = CHANNEL.findall(GLOB.sub(" ", text))
    if here and spoken("here", folded) and not spoken("thread", folded):
        found.append(here)
    listed = len(asked) > 1 if "channels" in asked else bool(spoken("every", folded))
    every = not found and (listed or bool(globs(text)))
    return Question(text, tuple(dict.fromkeys(found)), every)


def _going_on(question: Question, before: str) -> Question:
    """A short "and in Italy?" asks what was asked before, elsewhere."""
    folded = fold(question.text)
    starts = spoken("also", " ".join(folded.split()[:2]))
    named = bare(CHANNEL.sub(" ", without("here", folded)), strict=False)
    place = question.sources or keywords(question.text)[0]
    if not (before and starts and named and place) or len(folded.split()) > _FEW:
        return question
    asks = CHANNEL.sub(" ", GLOB.sub(" ", before))
    if question.sources:
        asks = f"{asks.rstrip(' ?')} {' '.join(question.sources)}?"
    return Question(question.text, question.sources, question.every, asks)


def globs(text: str) -> list[str]:
    """The beginnings that `name-*` stands for; `*` alone is all."""
    return [found.strip("#") for found in GLOB.findall(text)]


def bare(text: str, *, strict: bool = True) -> bool:
    """Whether a text, its channels apart, asks nothing of its own; `strict`: names nothing more."""
    folded = without("filler", without("here", fold(CHANNEL.sub(" ", text))))
    short = all(len(word) <= _SHORT for word in _WORD.findall(folded))
    return not asked_for(folded) and (short or not strict)


def _pieces(request: str) -> list[str]:
    numbered = [part for part in _NUMBERED.split(request) if part.strip()]
    if len(_NUMBERED.findall(request)) >= 2:
        return numbered
    return [half for part in re.findall(r"[^?]+\?+|[^?]+$", request) for half in _halves(part)]


def _halves(part: str) -> list[str]:
    """The parts between an "and" that joins two questions, each with a channel of its own."""
    joins = [*_AND.finditer(part)]
    ends = [found.start() for found in joins[1:]] + [len(part)]
    halves, start = [], 0
    for found, end in zip(joins, ends, strict=False):
        if CHANNEL.search(part[start : found.start()]) and not bare(part[found.end() : end]):
            halves.append(part[start : found.start()])
            start = found.end()
    return [*halves, part[start:]]


def listed_channels(heard: Heard) -> dict[str, tuple[str, str]]:
    """The channels that list_channels gave: id -> name without #, topic."""
    return {
        found[1]: (found[2], found[3] or "")
        for exchange in heard.exchanges
        if exchange.name == "list_channels"
        for line in exchange.text.splitlines()
        if (found := _LISTED.match(line))
    }


def matching(question: Question, channels: Mapping[str, tuple[str, str]]) -> list[str]:
    """The channels that a question about `every` means: by pattern, or by words of their names."""
    starts = [start.casefold() for start in globs(question.text)]
    if starts:
        names = {key: name.casefold() for key, (name, _) in channels.items()}
        return [key for key, name in names.items() if name.startswith(tuple(starts))]
    words = subject_words(question.text)
    parts = {key: name_words([channel]) for key, channel in channels.items()}
    named = words & set().union(*parts.values())
    whole = [key for key, own in parts.items() if named <= own]
    return whole or [key for key, own in parts.items() if named & own]


def name_words(channels: Iterable[tuple[str, str]]) -> set[str]:
    """The words that names of channels (name, topic) are made of."""
    return {word for name, _ in channels for word in _WORD.findall(fold(name))}


def subject_words(text: str) -> set[str]:
    """The folded words of a text that are no quantifier or command."""
    folded = without("filler", fold(GLOB.sub(" ", text)))
    return {word for word in _WORD.findall(folded) if not asked_for(word)}


def fitting(question: Question, channels: Mapping[str, tuple[str, str]]) -> list[str]:
    """Channels whose name or topic shares a word or a topic with the question."""
    words, topics = keywords(question.text)
    about = {
        key: keywords(f"{name} {topic}".replace("-", " "))
        for key, (name, topic) in channels.items()
    }
    return [key for key, (own, touched) in about.items() if words & own or topics & touched]
