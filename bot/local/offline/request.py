"""Take a request apart: which questions it holds, and which scope can answer each."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from bot.local.offline.conversation import Conversation
from bot.local.offline.data import SELECT
from bot.local.offline.orders import sum_in, to_keep
from bot.local.offline.search import NOTES, URL

GLOB = re.compile(r"(?<![\w*])#?([\w-]*)\*(?![\w*])")
CHANNEL = re.compile(r"(?<![\w&/])#[\w-]+|\b[CG][A-Z0-9]{8,}\b")
_MENTION = re.compile(r"<#([CG][A-Z0-9]+)(?:\|[^>]*)?>|#([CG][A-Z0-9]{8,}\b)")
_LOOKING = re.compile(r"\n\(While asking, the user has the channel (\w+) open;[^\n]*\)\s*$")
_NUMBERED = re.compile(r"(?:^|\s)\(?\d{1,2}[.)]\s+(?=\S)")
_CLAUSE = re.compile(r",\s+(?:and\s+)?(?=(?:what|which|who|how)\b)|(?<=\?)\s+", re.IGNORECASE)
RUN_FOLDER = "files:run"
"""The files that a request keeps; nobody asks about them."""
_ASKS = re.compile(r"(?:what|which|who|how|where|when|list|find|select)\b|.*\?\s*$", re.I | re.S)
_FEW = 3
"""Fewer words than these are no question of their own."""
_FACTS = re.compile(r"^(?:MAIL|NOTES|DATA|WEB|FILES): ", re.MULTILINE)
_HANDLE = re.compile(r"(?<![\w:])((?:data|files|notes|mail|web):[\w.-]+)")
_LISTED = re.compile(r"^\s*\[([CG][A-Z0-9]+)\] #(\S+?)(?:: .*)?$", re.MULTILINE)
_EVERY = re.compile(r"\b(?:all|every|each) (?:of )?(?:the |my |our )?(?:[\w-]+ )?channels?\b", re.I)
_WORDS = {
    "slack": re.compile(r"\b(?:slack|channels?|threads?|unanswered|unsolved)\b", re.I),
    "email": re.compile(r"\b(?:e-?mails?|mails?|inbox|mailbox)\b", re.I),
    "notes": NOTES,
    "web": re.compile(r"\b(?:web|internet|online|website)\b", re.I),
    "data": re.compile(r"\bhow (?:many|much)\b|\b(?:total|sum|refunds?|tables?|database)\b", re.I),
    "files": re.compile(
        r"\b\w+\.(?:py|md|toml|txt|cfg)\b|\.\w+ files?\b|\b(?:files?|folder|code|repository)\b",
        re.I,
    ),
}
"""Scope -> what is said of things in it; the first one that fits and is held counts."""
_PREFIX = {"email": "mail:"}


@dataclass(frozen=True)
class Question:
    """One question of a request."""

    text: str
    scope: str
    handles: tuple[str, ...] = ()
    """What a subagent of that scope is given; of Slack the channels it names, as written."""
    patterns: tuple[str, ...] = ()
    """Beginnings of the names of channels that are meant; an empty one fits all."""

    @property
    def names_channels(self) -> bool:
        """Return whether it says which channels it is about."""
        return bool(self.handles or self.patterns)


@dataclass(frozen=True)
class Request:
    """A request as the rules understand it."""

    text: str
    questions: tuple[Question, ...]
    here: str
    """Id of the channel that it was asked in or beside; empty where that is none to read."""


def read_request(talk: Conversation) -> Request:
    """Return the questions of an opening; of any other text, the whole is the request."""
    told = talk.section("REQUEST") or "\n".join(talk.told)
    beside = _LOOKING.search(told)
    text = _MENTION.sub(r"\1\2", _LOOKING.sub("", told)).strip()
    rooms = [key for key, name in talk.here.items() if key[0] in "CG" and name.startswith("#")]
    here = beside[1] if beside else next((key for key in rooms if "/" not in key), "")
    held = _held(talk)
    questions: list[Question] = []
    for part in _parts(text):
        question = _question(part, held, talk)
        before = questions[-1] if questions else None
        if before and before.scope == question.scope == "slack" and not question.names_channels:
            question = replace(question, handles=before.handles, patterns=before.patterns)
        questions.append(question)
    return Request(text, tuple(questions), here)


def _parts(text: str) -> list[str]:
    numbered = [part.strip() for part in _NUMBERED.split(text) if part.strip()]
    if len(_NUMBERED.findall(text)) > 1:
        return numbered
    parts: list[str] = []
    start = 0
    for found in _CLAUSE.finditer(text):
        head, tail = text[start : found.start()], text[found.end() :]
        if min(len(head.split()), len(tail.split())) >= _FEW and _ASKS.match(tail):
            parts.append(head.strip())
            start = found.end()
    return [part for part in (*parts, text[start:].strip()) if part] or [text]


def _held(talk: Conversation) -> list[str]:
    """Return the handles that the facts behind the request name."""
    told = "\n".join(talk.told).partition("\nFENCE:")[2]
    lines = [line for line in told.splitlines() if _FACTS.match(line)]
    return list(dict.fromkeys(handle for line in lines for handle in _HANDLE.findall(line)))


def _question(text: str, held: list[str], talk: Conversation) -> Question:
    scope = _scope(text, held, talk)
    if scope == "slack":
        named = tuple(dict.fromkeys(CHANNEL.findall(GLOB.sub(" ", text))))
        patterns = tuple(dict.fromkeys(start.lstrip("#") for start in GLOB.findall(text)))
        every = ("",) if _EVERY.search(text) and not named else ()
        return Question(text, scope, named, patterns or every)
    prefix = _PREFIX.get(scope, f"{scope}:")
    own = [h for h in held if h.startswith(prefix) and h != RUN_FOLDER]
    pages = list(dict.fromkeys(URL.findall(text))) if scope == "web" else []
    return Question(text, scope, (*pages, *own))


def _scope(text: str, held: list[str], talk: Conversation) -> str:
    """Return the scope that a question needs, of those that something is held for."""
    kinds = {
        "email" if h.startswith("mail:") else h.partition(":")[0] for h in held if h != RUN_FOLDER
    }
    if "data" in kinds and SELECT.search(text):
        return "data"
    if to_keep(text) and "notes" in kinds:
        return "notes"
    if sum_in(text) and "web" in kinds:
        return "web"
    reads_slack = "list_channels" in talk.tools
    if CHANNEL.search(text) or GLOB.search(text) or "/archives/" in text:
        return "slack"
    if URL.search(text) and "web" in kinds:
        return "web"
    for scope, words in _WORDS.items():
        if words.search(text) and (scope in kinds or (scope == "slack" and reads_slack)):
            return scope
    given = [kind for kind in ("data", "files", "email") if kind in kinds]
    if reads_slack or not kinds:
        return "slack"
    return given[0] if given else "notes" if "notes" in kinds else sorted(kinds)[0]


def listed_channels(talk: Conversation) -> dict[str, str]:
    """Return the channels that list_channels gave: id -> name without #."""
    listings = [e.text for e in talk.exchanges if e.name == "list_channels"]
    return {id: name for text in listings for id, name in _LISTED.findall(text)}
