"""The offline model as a subagent over a folder: it reads named files, searches, writes a text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from bot.local.model.answer import Answer
from bot.local.offline.calls import Shown, counted, items_of, use, within
from bot.local.offline.conversation import OFFLINE, Conversation
from bot.local.offline.orders import NOT_DONE, is_order, open_end, to_write
from bot.local.offline.words import content_words, fold, named_words, words_of

MAX_FILES = 20
"""Most files that are read."""
MAX_LINES = 12
"""Most lines of a search that are told, those that hold most words of the question first."""
_FOLDER = re.compile(r"\bfiles:[\w.-]+")
_EVERY = re.compile(r"\b(?:every|each|all)\b.*?(?<!\w)(\.\w+)\b")
_PLAIN = frozenset({"file", "files", "folder", "project", "code", "repository", "function", "line"})
_SIZE = re.compile(r" [\d,.]+ ?[kM]?B?$")
_ENDED = "There are more such lines"
"""How a search says that it did not show all."""


def as_files(talk: Conversation) -> Answer:
    """Return the next turn: a look around, files, a text written and read again, the result."""
    folder = next(iter(_FOLDER.findall(talk.section("MAY READ"))), "")
    if not talk.must_end and (calls := _calls(talk)):
        for call in calls:
            call["input"]["folder"] = folder
        return Answer(calls)
    return Answer([use("submit_result", **_result(talk))])


def _calls(talk: Conversation) -> list[dict[str, Any]]:
    task = talk.section("TASK")
    called = [exchange.name for exchange in talk.exchanges]
    if any(e.is_error for e in talk.exchanges if e.name == "write_file"):
        return []
    if written := to_write(task):
        if "write_file" not in called:
            return [use("write_file", path=written.path, text=written.text)]
        return [] if "read_file" in called else [use("read_file", path=written.path)]
    if is_order(task) or "read_file" in called or "search_files" in called:
        return []
    if not called:
        return [use("list_files")]
    paths = _paths(talk)
    named = [path for path in paths if _is_named(path, task)]
    if every := _EVERY.search(task):
        named = [path for path in paths if path.endswith(every[1])]
    if named:
        return [use("read_file", path=path) for path in named[:MAX_FILES]]
    quoted = re.findall(r"[`'\"]([^`'\"]+)[`'\"]", task)
    spelled = {fold(word): word for word in re.findall(r"[^\W_]{3,}", task)}
    wanted = [spelled.get(word, word) for word in _named(task)]
    return [use("search_files", pattern=word) for word in quoted or wanted[:3]]


def _named(task: str) -> list[str]:
    words = named_words(task)
    return [word for word in words if word not in _PLAIN] or words


def _is_named(path: str, task: str) -> bool:
    """Return whether a task names a file, by its path or by its bare name."""
    names = (path, path.rpartition("/")[2])
    return any(re.search(rf"(?<![\w/]){re.escape(name)}(?![\w/])", task) for name in names)


def _paths(talk: Conversation) -> list[str]:
    """Return the files that were listed."""
    found = [item for e in talk.exchanges if e.name == "list_files" for item in items_of(e.text)]
    names = [(i.id.partition(":")[2].strip("/"), n) for i in found for n in i.text.split(", ")]
    files = [(inside, _SIZE.sub("", name)) for inside, name in names if not name.endswith("/")]
    return [f"{inside}/{name}".lstrip("/") for inside, name in files]


def _result(talk: Conversation) -> dict[str, Any]:
    task = talk.section("TASK")
    failed = [e for e in talk.exchanges if e.is_error and e.name != "submit_result"]
    left = [f"{e.name}: {e.text}"[:300] for e in failed]
    written = [e for e in talk.exchanges if e.name == "write_file" and not e.is_error]
    if is_order(task) and not written:
        return open_end(f"It was not done: {left[-1].rstrip('.')}") if left else open_end(*NOT_DONE)
    words = content_words(task)
    every = sorted(
        _findings(talk), key=lambda each: -len(words & words_of(" ".join(each["quotes"])))
    )
    most = MAX_LINES if len(every) > MAX_FILES else MAX_FILES
    findings = within(every[:most], talk.max_bytes - 1000)
    if more := len(every) - len(findings):
        least = "at least " if any(_ENDED in e.text for e in talk.exchanges) else ""
        left.append(f"{least}{more} more places that hold a word of the question")
    notes = [" ".join(e.text.split()) for e in written]
    facts = [f"{counted(len(findings), 'line')} of files."] if findings else []
    text = " ".join([*notes, *facts]) or "Nothing was found."
    return {"text": f"{text} {OFFLINE}", "findings": findings, "not_covered": left, "needs": ""}


def _findings(talk: Conversation) -> Iterator[dict[str, Any]]:
    """Return the lines that a search found, and the first telling line of each file read."""
    seen = set[str]()
    for exchange in talk.exchanges:
        if exchange.is_error or exchange.name not in ("read_file", "search_files"):
            continue
        items = list(items_of(exchange.text))
        for item in items if exchange.name == "search_files" else items[:1]:
            if item.id not in seen:
                seen.add(item.id)
                yield _fact(exchange.input.get("path") or item.id, item)


def _fact(where: object, item: Shown) -> dict[str, Any]:
    lines = (line.strip() for line in item.text.splitlines())
    line = next((line for line in lines if any(c.isalnum() for c in line)), "(empty)")
    quotes = [line[:300]] if len(line) > 1 and line != "(empty)" else []
    return {"claim": f"{where}: {line}"[:500], "evidence": [item.id], "quotes": quotes}
