"""The offline model as a subagent over mails, the web or notes: it searches, reads, and quotes.

It also keeps a note and computes a sum.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.calls import counted, items_of, use
from bot.local.offline.conversation import OFFLINE, Conversation, Exchange
from bot.local.offline.orders import (
    NO_SEARCH,
    NO_SOURCE,
    NOT_DONE,
    is_order,
    open_end,
    sum_in,
    to_keep,
)
from bot.local.offline.words import content_words, named_words, words_of

MAX_READ = 5
"""Most threads or pages that are read of what a search gave, and most findings."""
MAX_QUERY = 5
"""Most words of a search."""
URL = re.compile(r"https?://[^\s<>|]+[^\s<>|.,;:!?)]")
NOTES = re.compile(r"\b(?:notes?|noted|remember|asked before|conversations?)\b", re.IGNORECASE)
_READERS = ("read_mail_thread", "read_url", "read_note")
_FINDERS = {
    "search_mail": "mail:",
    "web_search": "web:",
    "search_notes": "notes:",
    "search_conversations": "notes:",
}
"""A search -> the kind of handle that it needs."""
_BY = re.compile(r"^(?:[^<>:]{0,80}<[^<>\s]+>|\S+@\S+)?: ")
_SUBJECT = re.compile(r"^Subject: (?P<subject>.*?)\. ")
_ENDS = re.compile(r"(?<=[.!?…])(?<!\b[A-Za-z]\.)\s+|\n+")
_LONGEST = 400


def as_searcher(talk: Conversation) -> Answer:
    """Return the next turn: what is ordered, or a search, what it found read; the result."""
    calls = [] if talk.must_end else _calls(talk, talk.section("TASK"))
    return Answer(calls or [use("submit_result", **_result(talk, talk.section("TASK")))])


def _calls(talk: Conversation, task: str) -> list[dict[str, Any]]:
    called = {exchange.name for exchange in talk.exchanges}
    if (text := to_keep(task)) and "save_note" in talk.tools:
        title = " ".join(text.split()[:8]).rstrip(" :,.")
        return [] if called else [use("save_note", title=title, text=text)]
    if (figures := sum_in(task)) and "run_python" in talk.tools:
        code = f"print('{figures} =', round({figures}, 10))"
        return [] if called else [use("run_python", code=code)]
    if is_order(task):
        return []
    pages = list(dict.fromkeys(URL.findall(talk.section("MAY READ"))))
    if pages and not called:
        return [use("read_url", url=page) for page in pages]
    finders = [name for name in _FINDERS if name in talk.tools and _may(name, talk, task)]
    if not called:
        return [use(name, query=_query(name, task)) for name in finders]
    if called & set(_READERS):
        return []
    found = [call for e in talk.exchanges for call in _reads(e)]
    return [call for call in found if call["name"] in talk.tools][:MAX_READ]


def _may(name: str, talk: Conversation, task: str) -> bool:
    """Return whether the task was given what a search needs; notes only if it speaks of them."""
    held = _FINDERS[name] in talk.section("MAY READ")
    return held and (_FINDERS[name] != "notes:" or NOTES.search(task) is not None)


def _query(name: str, task: str) -> str:
    """Return the words to search for; mails need to hold only one of them."""
    words = " ".join(named_words(task)[:MAX_QUERY])
    return f"{{{words}}}" if name == "search_mail" and words else words


def _reads(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """Return the calls that read what a search listed."""
    for item in items_of(exchange.text):
        if exchange.name == "search_mail":
            yield use("read_mail_thread", thread=item.id.partition("/")[0])
        elif exchange.name == "web_search":
            yield use("read_url", url=item.id)
        elif exchange.name == "search_notes":
            yield use("read_note", note=item.id)


def _result(talk: Conversation, task: str) -> dict[str, Any]:
    failed = [e for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    left = [f"{e.name}: {e.text}"[:300] for e in failed]
    done = [e for e in talk.exchanges if e.name in ("save_note", "run_python") and not e.is_error]
    if done and done[-1].name == "save_note":
        text = f"{' '.join(done[-1].text.split())} {OFFLINE}"
        return {"text": text, "findings": [], "not_covered": left, "needs": ""}
    if done:
        (item,) = items_of(done[-1].text)
        said = item.text.strip()
        finding = {"claim": said, "evidence": [item.id], "quotes": [said]}
        text = f"It was computed. {OFFLINE}"
        return {"text": text, "findings": [finding], "not_covered": left, "needs": ""}
    if is_order(task) or to_keep(task) or sum_in(task):
        why = f"It was not done: {failed[-1].text.rstrip('.')[:300]}" if failed else ""
        return open_end(why) if why else open_end(*NOT_DONE)
    findings = _findings(talk, task)
    if not findings and not left and not talk.exchanges:
        web = "web:" in talk.section("MAY READ") and "web" in task.lower()
        return open_end(*(NO_SEARCH if web else NO_SOURCE))
    told = f"{counted(len(findings), 'passage')} found." if findings else "Nothing was found."
    return {"text": f"{told} {OFFLINE}", "findings": findings, "not_covered": left, "needs": ""}


def _findings(talk: Conversation, task: str) -> list[dict[str, Any]]:
    """Return of each thing that was read the sentence that shares most words with the question."""
    words = content_words(task)
    best: dict[str, tuple[int, dict[str, Any]]] = {}
    for exchange in talk.exchanges:
        if exchange.is_error or exchange.name not in (*_READERS, *_FINDERS):
            continue
        about = ""
        for item in items_of(exchange.text):
            text = _BY.sub("", item.text, count=1)
            if subject := _SUBJECT.match(text):
                about, text = f"{subject['subject']}: ", text[subject.end() :]
            thing = item.id.partition("/")[0] if exchange.name == "read_mail_thread" else item.id
            for sentence in filter(None, map(str.strip, _ENDS.split(text))):
                score = len(words & words_of(f"{about} {sentence}"))
                if score > best.get(thing, (0, {}))[0] and len(sentence) <= _LONGEST:
                    claim = f"{about}{sentence}"
                    finding = {"claim": claim, "evidence": [item.id], "quotes": [sentence]}
                    best[thing] = (score, finding)
    ranked = sorted(best.values(), key=lambda each: -each[0])
    return [finding for _, finding in ranked[:MAX_READ]]
