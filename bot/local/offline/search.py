"""The offline model over mails, files, notes and pages: it searches or reads, and quotes.

It also keeps a note, and writes a file whose text stands in the order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import (
    OFFLINE,
    Conversation,
    Exchange,
    content_words,
    counted,
    items_of,
    named_words,
    use,
    words_of,
)

MAX_READ = 5
"""Most threads that are read of what a search gave, and most findings."""
URL = re.compile(r"https?://[^\s<>|]+[^\s<>|.,;:!?)]")
NOTE = re.compile(r"\W*(?:please )?(?:note|remember) that (?P<text>\S.*)", re.I | re.S)
_WRITE = re.compile(
    r"\W*(?:please )?write a file [`'\"]?(?P<path>[\w./-]+\.\w+)[`'\"]? with the text (?P<text>.+)",
    re.IGNORECASE | re.DOTALL,
)
_SEARCHES = {"mail": "search_mail", "files": "search_files", "notes": "search_notes"}
"""Kind of a handle -> the tool that searches it."""
_NOTES = re.compile(r"\b(?:notes?|noted|remember)\b", re.IGNORECASE)
_NO_SOURCE = "The offline rules have nothing to read this in"
_ENDS = re.compile(r"(?<=[.!?…])(?<!\b[A-Za-z]\.)\s+|\n+")
_HEAD = re.compile(r"^(?:(?:[^<>:]{0,80}<[^<>\s]+>|\S+@\S+)?: )?(?:Subject: (?P<subject>.*?)\. )?")
_LONGEST = 400


def as_searcher(talk: Conversation) -> Answer:
    """Return the next turn: what is ordered, or a search, what it found read; the result."""
    calls = [] if talk.must_end else _calls(talk, talk.section("TASK"))
    calls = [call for call in calls if call["name"] in talk.tools]
    return Answer(calls or [use("submit_result", **_result(talk, talk.section("TASK")))])


def _calls(talk: Conversation, task: str) -> list[dict[str, Any]]:
    if talk.exchanges:
        done = {exchange.name for exchange in talk.exchanges}
        found = [call for e in talk.exchanges for call in _reads(e) if call["name"] not in done]
        return found[:MAX_READ]
    handles = re.findall(r"\b(?:mail|files|notes):[\w.-]+", talk.section("MAY READ"))
    folder = next((handle for handle in handles if handle.startswith("files:")), "")
    if note := NOTE.match(task):
        title = " ".join(note["text"].split()[:8]).rstrip(" :,.")
        return [use("save_note", title=title, text=note["text"].strip())]
    if (file := _WRITE.match(task)) and folder:
        return [
            use("write_file", path=file["path"], text=f"{file['text'].strip()}\n", folder=folder)
        ]
    pages = [
        use("read_url", url=url) for url in dict.fromkeys(URL.findall(talk.section("MAY READ")))
    ]
    return [*pages, *(call for each in dict.fromkeys(handles) for call in _search(each, task))]


def _search(handle: str, task: str) -> list[dict[str, Any]]:
    """Return the calls that search what a handle names for the words of a task."""
    words, tool = named_words(task)[:MAX_READ], _SEARCHES[handle.partition(":")[0]]
    if tool == "search_files":
        quoted = re.findall(r"[`'\"]([^`'\"]+)[`'\"]", task)
        return [use(tool, folder=handle, pattern=word) for word in quoted or words[:3]]
    if not words or (tool == "search_notes" and not _NOTES.search(task)):
        return []
    text = " ".join(words)
    return [use(tool, query=f"{{{text}}}" if tool == "search_mail" else text)]


def _reads(exchange: Exchange) -> Iterator[dict[str, Any]]:
    """Return the calls that read what a search listed."""
    for item in items_of(exchange.text):
        if exchange.name == "search_mail":
            yield use("read_mail_thread", thread=item.id.partition("/")[0])
        elif exchange.name == "search_notes":
            yield use("read_note", note=item.id)


def _result(talk: Conversation, task: str) -> dict[str, Any]:
    left = [
        f"{e.name}: {e.text}"[:300]
        for e in talk.exchanges
        if e.is_error and e.name != "submit_result"
    ]
    done = [e.text for e in talk.exchanges if e.name in ("save_note", "write_file")]
    if not talk.exchanges:
        text = f"{_NO_SOURCE}. {OFFLINE}"
        return {"text": text, "findings": [], "not_covered": [], "needs": _NO_SOURCE}
    findings = _findings(talk, task)
    text = f"{counted(len(findings), 'passage')} found." if findings else "Nothing was found."
    if done and not left:
        text = " ".join(done[-1].split())
    return {"text": f"{text} {OFFLINE}", "findings": findings, "not_covered": left, "needs": ""}


def _findings(talk: Conversation, task: str) -> list[dict[str, Any]]:
    """Return of each thing that was read the sentence that shares most words with the question."""
    words = content_words(task)
    best: dict[str, tuple[int, dict[str, Any]]] = {}
    for exchange in talk.exchanges:
        if exchange.is_error or exchange.name in ("save_note", "write_file", "submit_result"):
            continue
        for item in items_of(exchange.text):
            head = _HEAD.match(item.text)
            about = f"{head['subject']}: " if head and head["subject"] else ""
            thing = item.id.partition("/")[0] if "mail" in exchange.name else item.id
            for part in _ENDS.split(item.text[head.end() if head else 0 :]):
                sentence = part.strip()
                score = len(words & words_of(f"{about} {sentence}"))
                if sentence and score > best.get(thing, (0,))[0] and len(sentence) <= _LONGEST:
                    finding = {"evidence": [item.id], "quotes": [sentence]}
                    best[thing] = (score, {"claim": f"{about}{sentence}", **finding})
    ranked = sorted(best.values(), key=lambda each: -each[0])
    return [finding for _, finding in ranked[:MAX_READ]]
