"""The offline mind as a parent agent: splits a request, delegates, writes from the views."""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from bot.local.cues import asked_for, fold, language_of, topics_of
from bot.local.hearing import Exchange, Heard, sections
from bot.local.model_answer import Answer
from bot.local.phrases import OFFLINE, phrase
from bot.local.search import keywords
from bot.local.views import View, parse_views, section_lines, top_lines

DELEGATING = ("run_subagent", "run_subagents")
MAX_CHANNELS = 5
"""Most channels that a question which names none is taken to."""
MAX_LINES = 12
"""Most findings of one question that an answer tells; the rest is counted."""
_CHANNEL = re.compile(r"(?<![\w&/])#[\w-]+|\b[CG][A-Z0-9]{8,}\b")
_MENTION = re.compile(r"<#([CG][A-Z0-9]+)(?:\|[^>]*)?>")
_THREAD = re.compile(r"\b([CGD][A-Z0-9]{2,}/\d+\.\d+)|/archives/([CGD][A-Z0-9]+)/p(\d{10})(\d{6})")
_NUMBERED = re.compile(r"(?:^|\s)(?:\(?\d{1,2}[.)]|[-*•])\s+(?=\S)")
_AND = re.compile(r",?\s+(?:and|y|e|et|und|en|a|oraz|och)\s+(?=[^#]*[#<])")
_PERSON = re.compile(r"@?([A-ZÀ-Þ][\w'’-]+(?: [A-ZÀ-Þ][\w'’-]+)*|U[A-Z0-9]{6,})\s*\??$")
_LISTED = re.compile(r"^\s*\[([CG][A-Z0-9]+)\] #(\S+?)(?:: (.*))?$")


@dataclass(frozen=True)
class Question:
    """One question of a request, with the sources it names."""

    text: str
    sources: tuple[str, ...]
    """Channel ids or names, as written."""


def use(name: str, **arguments: Any) -> dict[str, Any]:
    """A tool call as a content block; the server gives it an id."""
    return {"type": "tool_use", "name": name, "input": arguments}


def _say(text: str) -> Answer:
    return Answer([{"type": "text", "text": text}])


def answer_as_parent(heard: Heard) -> Answer:
    """The parent's next turn: direct look-ups, subagents, or the answer."""
    told = "\n".join(heard.opening)
    if "WRITE: top lines" in told:
        return _say(_top(told, heard))
    request = heard.section("REQUEST") or told
    questions = split(request)
    language = language_of(fold(request))
    if heard.tools and not heard.must_end:
        calls = _calls(questions, heard)
        if calls:
            return Answer(calls)
    return _say(_written(questions, heard, language))


def _top(told: str, heard: Heard) -> str:
    found: list[tuple[str, str]] = []
    name = ""
    for key, body in sections(told):
        if key == "SECTION":
            name, _, body = body.partition("\n")
            found.append((name.strip(), body))
    return top_lines(found, heard.section("LANGUAGE") or "en")


def split(request: str) -> list[Question]:
    """The separate questions of a request; one that names no channel inherits the one before it."""
    pieces = [piece.strip() for piece in _pieces(_MENTION.sub(r"\1", request))]
    questions: list[Question] = []
    lead = ""
    for piece in (piece for piece in pieces if piece):
        asks = piece.endswith("?") or len(pieces) == 1 or bool(asked_for(fold(piece)))
        if not asks:
            lead = f"{lead} {piece}".strip()
            continue
        text = f"{lead} {piece}".strip()
        sources = tuple(dict.fromkeys(_CHANNEL.findall(text)))
        if not sources and questions and "channels" not in asked_for(fold(piece)):
            sources = questions[-1].sources
        questions.append(Question(text, sources))
        lead = "" if questions else lead
    return questions or [Question(request.strip(), tuple(_CHANNEL.findall(request)))]


def _pieces(request: str) -> list[str]:
    numbered = [part for part in _NUMBERED.split(request) if part.strip()]
    if len(_NUMBERED.findall(request)) >= 2:
        return numbered
    marked = re.findall(r"[^?]+\?+|[^?]+$", request)
    pieces: list[str] = []
    for part in marked:
        halves = _AND.split(part)
        named = all(_CHANNEL.search(half) for half in halves)
        pieces += halves if len(halves) > 1 and named else [part]
    return pieces


def _calls(questions: Sequence[Question], heard: Heard) -> list[dict[str, Any]]:
    """What to do next: look-ups and subagents that no earlier turn has asked for."""
    asked = [exchange.name for exchange in heard.exchanges]
    if any(name in DELEGATING for name in asked):
        return []
    direct = [_direct(question) for question in questions]
    open_ones = [q for q, call in zip(questions, direct, strict=True) if call is None]
    calls = [call for call in direct if call and call["name"] in heard.tools and not asked]
    if not open_ones or "run_subagent" not in heard.tools:
        return calls
    unnamed = [question for question in open_ones if not question.sources]
    if unnamed and not asked and "list_channels" in heard.tools:
        listing = use("list_channels")
        return [*(call for call in calls if call != listing), listing]
    return calls + [
        call for question in open_ones if (call := _delegated(question, heard)) is not None
    ]


def _direct(question: Question) -> dict[str, Any] | None:
    """The one look-up that answers the question, if there is one."""
    if thread := _THREAD.search(question.text):
        item = thread[1] or f"{thread[2]}/{thread[3]}.{thread[4]}"
        return use("read_thread", thread=item)
    asked = asked_for(fold(question.text))
    if "person" in asked and (person := _PERSON.search(question.text.strip())):
        return use("lookup_user", user=person[1])
    if "channels" in asked and not question.sources:
        return use("list_channels")
    return None


def _delegated(question: Question, heard: Heard) -> dict[str, Any] | None:
    sources = list(question.sources) or _chosen(question, heard)
    if not sources:
        return None
    words = question.text.split()
    return use(
        "run_subagent",
        task=question.text,
        description=" ".join(words[:6])[:120],
        scope="slack",
        handles=sources,
        contract="answer",
    )


def _chosen(question: Question, heard: Heard) -> list[str]:
    """Channels whose name or topic shares a word with the question, or else the first listed."""
    listed = [
        (found[1], f"{found[2]} {found[3] or ''}")
        for exchange in heard.exchanges
        if exchange.name == "list_channels"
        for line in exchange.text.splitlines()
        if (found := _LISTED.match(line))
    ]
    words, _ = keywords(question.text)
    fitting = [
        channel
        for channel, about in listed
        if words & keywords(about.replace("-", " "))[0]
        or topics_of(fold(question.text)) & topics_of(fold(about.replace("-", " ")))
    ]
    return (fitting or [channel for channel, _ in listed])[:MAX_CHANNELS]


def _written(questions: Sequence[Question], heard: Heard, language: str) -> str:
    """The answer: a section for each question, every statement with its finding."""
    views = {str(e.input.get("task")): _views(e) for e in heard.exchanges if e.name in DELEGATING}
    looked_up = [exchange for exchange in heard.exchanges if exchange.name not in DELEGATING]
    earlier = [view for text in heard.opening for view in parse_views(text)]
    parts = ["\n".join(_lines(earlier, language))] if earlier else []
    for question in questions:
        direct = _direct(question)
        if question.text in views or direct is None:
            lines = _lines(views.get(question.text, ()), language)
            head = [f"*{question.text}*"] if len(questions) > 1 else []
            if lines or not earlier:
                parts.append("\n".join([*head, *(lines or [phrase(language, "no_source")])]))
        else:
            parts += [_shown(e) for e in looked_up if e.name == direct["name"]]
    return "\n\n".join([*parts, OFFLINE])


def _lines(views: Iterable[View], language: str) -> list[str]:
    return [line for view in views for line in section_lines(view, language, MAX_LINES)]


def _views(exchange: Exchange) -> list[View]:
    return parse_views(exchange.text) or [View("failed", exchange.text)]


def _shown(exchange: Exchange) -> str:
    """What a look-up returned, without its delimiters."""
    lines = [line for line in exchange.text.splitlines() if not re.match(r"^</?items-", line)]
    return "\n".join(re.sub(r"^(\s*)\[[^\]]+\] ", r"\1- ", line) for line in lines)
