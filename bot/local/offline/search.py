"""The offline model over mails, files, notes and pages: it searches or reads, and quotes.

It also keeps a note.
"""

from __future__ import annotations

import re
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.conversation import (
    OFFLINE,
    Conversation,
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
_NO_SOURCE = "The offline rules have nothing to read this in"
_ENDS = re.compile(r"(?<=[.!?…])(?<!\b[A-Za-z]\.)\s+|\n+")
_HEAD = re.compile(r"^(?:(?:[^<>:]{0,80}<[^<>\s]+>|\S+@\S+)?: )?(?:Subject: (?P<subject>.*?)\. )?")
_LONGEST = 400


def as_searcher(talk: Conversation) -> Answer:
    """Return the next turn: what is ordered, or a search, what it found read; the result."""
    task = talk.section("TASK")
    calls = [] if talk.must_end else _found(talk) if talk.exchanges else _first(talk, task)
    calls = [call for call in calls if call["name"] in talk.tools]
    return Answer(calls or [use("submit_result", **_result(talk, task))])


def _first(talk: Conversation, task: str) -> list[dict[str, Any]]:
    """Return the order that a task is, or the searches for its words in all that is held."""
    held = talk.section("MAY READ")
    handles = list(dict.fromkeys(re.findall(r"\b(?:mail|files|notes):[\w.-]+", held)))
    if note := NOTE.match(task):
        title = " ".join(note["text"].split()[:8]).rstrip(" :,.")
        return [use("save_note", title=title, text=note["text"].strip())]
    calls = [use("read_url", url=url) for url in dict.fromkeys(URL.findall(held))]
    words = named_words(task)[:MAX_READ]
    quoted = re.findall(r"[`'\"]([^`'\"]+)[`'\"]", task)
    for handle in handles if words or quoted else ():
        if handle.startswith("files:"):
            patterns = quoted or words[:3]
            calls += [use("search_files", folder=handle, pattern=each) for each in patterns]
        elif handle.startswith("mail:"):
            calls.append(use("search_mail", query=f"{{{' '.join(words)}}}"))
        else:
            calls.append(use("search_notes", query=" ".join(words)))
    return calls


def _found(talk: Conversation) -> list[dict[str, Any]]:
    """Return the calls that read what searches listed."""
    done = {exchange.name for exchange in talk.exchanges}
    mails = [i for e in talk.exchanges if e.name == "search_mail" for i in items_of(e.text)]
    notes = [i for e in talk.exchanges if e.name == "search_notes" for i in items_of(e.text)]
    calls = [use("read_mail_thread", thread=item.id.partition("/")[0]) for item in mails]
    calls += [use("read_note", note=item.id) for item in notes]
    return [call for call in calls if call["name"] not in done][:MAX_READ]


def _result(talk: Conversation, task: str) -> dict[str, Any]:
    if not talk.exchanges:
        text = f"{_NO_SOURCE}. {OFFLINE}"
        return {"text": text, "findings": [], "not_covered": [], "needs": _NO_SOURCE}
    failed = [e for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    done = [e.text for e in talk.exchanges if e.name == "save_note" and not e.is_error]
    findings = _findings(talk, task)
    text = f"{counted(len(findings), 'passage')} found." if findings else "Nothing was found."
    return {
        "text": f"{' '.join(done[-1].split()) if done else text} {OFFLINE}",
        "findings": findings,
        "not_covered": [f"{e.name}: {e.text}"[:300] for e in failed],
        "needs": "",
    }


def _findings(talk: Conversation, task: str) -> list[dict[str, Any]]:
    """Return of each thing that was read the sentence that shares most words with the question."""
    words = content_words(task)
    best: dict[str, tuple[int, dict[str, Any]]] = {}
    for exchange in talk.exchanges:
        if exchange.is_error or exchange.name in ("save_note", "submit_result"):
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
