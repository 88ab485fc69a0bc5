"""The offline mind as a subagent over mails, the web or notes: searches, reads, and quotes."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bot.local.mind.calls import items_of, use
from bot.local.mind.cues import fold, topics_of
from bot.local.mind.hearing import Exchange, Heard
from bot.local.mind.mail_cues import sentences
from bot.local.mind.orders import (
    NO_SEARCH,
    NO_SOURCE,
    NOT_DONE,
    is_order,
    open_end,
    sum_in,
    to_keep,
)
from bot.local.mind.phrases import OFFLINE
from bot.local.mind.scopes import URL, says
from bot.local.mind.search import keywords, prefixes
from bot.local.model.answer import Answer

MAX_READ = 5
"""Most threads, pages or notes that are read of what a search gave."""
MAX_TOLD = 5
"""Most findings."""
MAX_QUERY = 5
"""Most words of a search."""
_READERS = ("read_mail_thread", "read_url", "read_note")
_FINDERS = ("search_mail", "web_search", "search_notes", "search_conversations")
_BY = re.compile(r"^(?:[^<>:]{0,80}<[^<>\s]+>|\S+@\S+)?: ")
_SUBJECT = re.compile(r"^Subject: (?P<subject>.*?)\. ")
_WORD = re.compile(r"[^\W_]{3,}")


def as_seeker(heard: Heard) -> Answer:
    """The next turn: what is to be done, or a search, what it found read; the result."""
    question = heard.section("TASK")
    calls = [] if heard.must_end else _done_by(heard, question)
    if calls is None:
        calls = _calls(heard, question)
    return Answer(calls or [use("submit_result", **_result(heard, question))])


def _done_by(heard: Heard, question: str) -> list[dict[str, Any]] | None:
    """The call that does what is ordered, once; None where something is to be found."""
    text, figures = to_keep(question), sum_in(question)
    if text and "save_note" in heard.tools:
        title = " ".join(text.split()[:8]).rstrip(" :,.")
        return [] if heard.exchanges else [use("save_note", title=title, text=text)]
    if figures and "run_python" in heard.tools:
        return [] if heard.exchanges else [use("run_python", code=_program(figures))]
    return [] if is_order(question) else None


def _calls(heard: Heard, question: str) -> list[dict[str, Any]]:
    """What is to be read now; first the searches."""
    called = {exchange.name for exchange in heard.exchanges}
    pages = [] if "read_url" in called else URL.findall(heard.section("MAY READ"))
    if not called and pages:
        return [use("read_url", url=page) for page in dict.fromkeys(pages)]
    finders = [n for n in _FINDERS if n in heard.tools and _holds(n, heard, question)]
    if not called:
        return [use(name, query=_query(name, question)) for name in finders]
    if called & set(_READERS) or called <= {"read_url"}:
        return []
    found = [each for e in heard.exchanges if e.name in finders for each in _things(e)]
    if not found and called == {"search_mail"} and len(heard.exchanges) == 1:
        return [use("search_mail", query="")]
    return [call for call in found if call["name"] in heard.tools][:MAX_READ]


def _holds(name: str, heard: Heard, question: str) -> bool:
    """Whether the task was given what a search needs, and means it.

    Where there is nothing but notes they are not counted, and what was asked before is no answer.
    """
    kind = {"search_mail": "mail:", "web_search": "web:"}.get(name, "notes:")
    meant = not _has_only("notes", heard) or says("notes", question)
    meant = meant or not (name == "search_conversations" or says("data", question))
    return kind in heard.section("MAY READ") and meant


def _has_only(kind: str, heard: Heard) -> bool:
    return set(re.findall(r"\b(mail|web|notes|https?):", heard.section("MAY READ"))) == {kind}


def _query(name: str, question: str) -> str:
    """The words to search for; mails need to hold only one of them."""
    wanted, _ = keywords(question)
    words = [w for w in _WORD.findall(fold(question)) if w[:5] in wanted]
    words = [w for w in dict.fromkeys(words) if not re.match(r"mail|e-?mail|note|inbox", w)]
    words = words[:MAX_QUERY]
    return f"{{{' '.join(words)}}}" if name == "search_mail" and words else " ".join(words)


def _things(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """The calls that read what a search listed."""
    for item in items_of(exchange.text):
        if exchange.name == "search_mail":
            yield use("read_mail_thread", thread=item.id.partition("/")[0])
        elif exchange.name == "web_search":
            yield use("read_url", url=item.id)
        elif exchange.name == "search_notes":
            yield use("read_note", note=item.id)


@dataclass(frozen=True)
class _Hit:
    score: float
    id: str
    quote: str
    about: str
    """What it is part of: the subject of a mail, the title of a note; empty where it has none."""


def _result(heard: Heard, question: str) -> dict[str, Any]:
    failed = [e for e in heard.exchanges if e.is_error and e.name != "submit_result"]
    left = [f"{e.name}: {e.text}"[:300] for e in failed]
    kept = [e for e in heard.exchanges if e.name == "save_note" and not e.is_error]
    if kept:
        text = re.sub(r"\s+", " ", kept[-1].text)
        return {"text": f"{text} {OFFLINE}", "findings": [], "not_covered": left, "needs": ""}
    if failed and _done_by(heard, question) is not None:
        return open_end(f"It was not done: {failed[-1].text.rstrip('.')[:300]}")
    if computed := [e for e in heard.exchanges if e.name == "run_python"]:
        return _sum(computed[-1])
    if is_order(question):
        return open_end(*NOT_DONE)
    hits = sorted(_hits(heard, question), key=lambda hit: -hit.score)
    best: dict[str, _Hit] = {}
    for hit in hits:
        best.setdefault(hit.id.partition("/")[0] if "/" in hit.id else hit.id, hit)
    findings = [
        {"claim": h.about + h.quote, "evidence": [h.id], "quotes": [h.quote]}
        for h in list(best.values())[:MAX_TOLD]
    ]
    if not findings and not left and (why := _lacks(heard, question)):
        return open_end(*why)
    text = f"{len(findings)} passages fit the question." if findings else "Nothing was found."
    return {"text": f"{text} {OFFLINE}", "findings": findings, "not_covered": left, "needs": ""}


def _program(figures: str) -> str:
    return f"print('{figures} =', round({figures}, 10))"


def _sum(computed: Exchange) -> dict[str, Any]:
    """What a program printed, as the one finding."""
    (item,) = items_of(computed.text)
    said = item.text.strip()
    findings = [{"claim": said, "evidence": [item.id], "quotes": [said]}]
    text = f"It was computed. {OFFLINE}"
    return {"text": text, "findings": findings, "not_covered": [], "needs": ""}


def _lacks(heard: Heard, question: str) -> tuple[str, str] | None:
    """What would be needed to answer, where the task was given nothing that can."""
    if _has_only("notes", heard) and not says("notes", question):
        return NO_SOURCE
    return NO_SEARCH if _has_only("web", heard) and "web_search" not in heard.tools else None


def _hits(heard: Heard, question: str) -> Iterator[_Hit]:
    """The sentences of what was read that share words or a topic with the question."""
    words, topics = keywords(question)
    read = [e for e in heard.exchanges if e.name in (*_READERS, *_FINDERS) and not e.is_error]
    for exchange in read:
        about = ""
        for item in items_of(exchange.text):
            text = _BY.sub("", item.text, count=1)
            if headed := _SUBJECT.match(text):
                about, text = f"{headed['subject']}: ", text[headed.end() :]
            shared = topics & topics_of(fold(f"{about} {text}"))
            for sentence in sentences(text):
                own = prefixes(fold(sentence))
                score = len(words & own) + 2.0 * len(topics & topics_of(fold(sentence)))
                score += len(shared) + 0.5 * len(words & prefixes(fold(about)))
                if score >= 1 and len(sentence.split()) > 2 and len(sentence) <= 400:
                    yield _Hit(score, item.id, sentence, about)
