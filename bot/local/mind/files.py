"""The offline mind as a subagent over a folder: what it holds, a module or a text written there."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from bot.local.mind.calls import Shown, items_of, use, within
from bot.local.mind.cues import fold
from bot.local.mind.hearing import Exchange, Heard
from bot.local.mind.orders import NOT_DONE, is_order, open_end, to_write
from bot.local.mind.phrases import OFFLINE
from bot.local.mind.search import keywords, prefixes
from bot.local.model.answer import Answer

MAX_FILES = 20
"""Most files that are read."""
MAX_LINES = 12
"""Most lines of a search that are told, those that hold most words of the question first."""
_FOLDER = re.compile(r"\bfiles:[\w.-]+")
_MAKES = re.compile(
    r"\b(?:creat\w*|writ\w*|mak\w*|add)\b (?:(?!(?:to|in|into|of|for|from|on)\b)[\w-]+ ){0,5}?"
    r"(?P<kind>module|file|script)\b(?: (?:called|named))?\s*[`'\"]?(?P<name>[\w./-]*)",
    re.IGNORECASE,
)
_ARTICLE = re.compile(
    r"\b(?:draft|writ\w*|creat\w*)\b.*?\barticle\b(?:.*?\b(?:about|on)\b)?\s*(?P<topic>[^.;:]*)",
    re.IGNORECASE,
)
_TESTING = re.compile(r"\btest\w*\b.*\bframework|\bframework\b.*\btest", re.IGNORECASE)
_EVERY = re.compile(r"\b(?:every|each|all)\b.*(?:\.py\b|python files?|modules?)", re.IGNORECASE)
_FRAMEWORKS = re.compile(r"\b(pytest|unittest|nose2?|doctest|jest|vitest|mocha|junit|rspec)\b")
_CONFIG = re.compile(
    r"(?:^|/)(?:pyproject\.toml|setup\.(?:cfg|py)|tox\.ini|requirements[\w.-]*\.txt|package\.json"
    r"|(?:tests?/)?test_\w+\.py)$"
)
_DEFINED = re.compile(r"^(?:async )?(?:def|class) (\w+)", re.MULTILINE)
_SAYS = re.compile(r'^\s*(?:[rR]?"""|\'\'\')\s*(.+?)(?:"""|\'\'\'|$)', re.MULTILINE)
_FUNCTION = re.compile(
    r"\bfunctions?\b[^`'\"\w]*(?:called |named )?[`'\"]?(?P<name>[a-z_]\w*)", re.I
)
_MEANT = re.compile(
    r"(?:words?|terms?|texts?|strings?|lines?|files?|folders?|projects?|repo(?:sitory)?|checkout"
    r"|code|use[ds]?|need(?:s|ed)?|mention(?:s|ed)?|defined?|occurs?|appears?|stands?)$"
)
"""What is said of a search itself: not looked for where the question has other words."""
_ENDED = "There are more such lines"
"""How a search says that it did not show all."""
_SIZE = re.compile(r" [\d,.]+ ?[kM]?B?$")
_NOT_NAMES = ("that", "which", "with", "for", "to", "and", "it", "in", "named", "called", "a")


def as_files(heard: Heard) -> Answer:
    """The next turn: a look around, files, a text written and read again, the result."""
    task = heard.section("TASK")
    folder = next(iter(_FOLDER.findall(heard.section("MAY READ"))), "")
    if not heard.must_end and (calls := _calls(heard, task)):
        return Answer([_within(call, folder) for call in calls])
    return Answer([use("submit_result", **_result(heard, task))])


def _within(call: dict[str, Any], folder: str) -> dict[str, Any]:
    """The call in the folder of the task; notes and conversations have none."""
    if not call["name"].startswith("search_") or call["name"] == "search_files":
        call["input"]["folder"] = folder
    return call


def _calls(heard: Heard, task: str) -> list[dict[str, Any]]:
    called = [exchange.name for exchange in heard.exchanges]
    if any(e.is_error for e in heard.exchanges if e.name in ("write_file", "git_commit")):
        return []
    if found := _ARTICLE.search(task):
        topic = re.sub(r"^(?:the|our|an?) | from .*$", "", found["topic"].strip())
        return _drafting(heard, called, topic or task)
    if written := to_write(task):
        return _making(heard, called, written.path, written.text, task)
    if path := _made(task):
        return _making(heard, called, path, _module(task), task)
    if is_order(task):
        return []
    if not called:
        return [use("list_files")]
    if "read_file" in called or "search_files" in called:
        return []
    paths = _paths(heard)
    if _TESTING.search(task):
        tests = [p for p in paths if _CONFIG.search(p)]
        return [use("read_file", path=p) for p in sorted(tests, key=_config_first)[:6]]
    named = [p for p in paths if re.search(rf"(?<![\w/]){re.escape(p.rpartition('/')[2])}\b", task)]
    code = [p for p in paths if p.endswith(".py")] if _EVERY.search(task) else named
    if code:
        return [use("read_file", path=path) for path in code[:MAX_FILES]]
    words = sorted(re.findall(r"[`'\"]([^`'\"]+)[`'\"]", task) or _words(task)[:3])
    return [use("search_files", pattern=word) for word in words]


def _config_first(path: str) -> tuple[bool, str]:
    return "test_" in path, path


def _words(task: str) -> list[str]:
    wanted, _ = keywords(task)
    words = dict.fromkeys(re.findall(r"[^\W_]{3,}", task))
    own = [word for word in words if prefixes(fold(word)) & wanted]
    return [word for word in own if not _MEANT.match(word.lower())] or own


def _paths(heard: Heard) -> list[str]:
    """The files that were listed."""
    found = [item for e in heard.exchanges if e.name == "list_files" for item in items_of(e.text)]
    names = [(i.id.partition(":")[2].strip("/"), n) for i in found for n in i.text.split(", ")]
    files = [(inside, _SIZE.sub("", name)) for inside, name in names if not name.endswith("/")]
    return [f"{inside}/{name}".lstrip("/") for inside, name in files]


def _made(task: str) -> str:
    """The path of the Python module that a task orders; empty where it orders none."""
    found = _MAKES.search(task)
    if not found:
        return ""
    name = found["name"].rstrip(".") if found["name"] not in _NOT_NAMES else ""
    if "." in name:
        return name if name.endswith(".py") else ""
    if not name and found["kind"].lower() == "file":
        return ""
    return f"{name or 'module'}.py"


def _making(
    heard: Heard, called: list[str], path: str, text: str, task: str
) -> list[dict[str, Any]]:
    if "write_file" not in called:
        return [use("write_file", path=path, text=text)]
    if re.search(r"\bcommit", task) and "git_commit" in heard.tools and "git_commit" not in called:
        return [use("git_commit", message=f"Add {path}")]
    return [use("read_file", path=path)] if "read_file" not in called else []


def _module(task: str) -> str:
    """A module as plain as its task: a docstring, and each function that it names."""
    said = " ".join(task.split()).rstrip(".").replace('"""', "'")
    names = [f["name"] for f in _FUNCTION.finditer(task) if f["name"].lower() not in _NOT_NAMES]
    returned = re.search(r"\breturn(?:s|ing)? (\d+|'[^']*'|\"[^\"]*\"|True|False)", task)
    value = returned[1] if returned else "None"
    shown = [f'\n\ndef {n}():\n    """As the task says."""\n    return {value}\n' for n in names]
    return f'"""{said}."""\n{"".join(shown)}'


def _drafting(heard: Heard, called: list[str], topic: str) -> list[dict[str, Any]]:
    """Notes and conversations are searched, the text written, committed, pushed, read again."""
    search = [n for n in ("search_notes", "search_conversations") if n in heard.tools]
    search = search if "notes:" in heard.section("MAY READ") else []
    path = f"articles/{'-'.join(re.findall(r'[a-z0-9]+', topic.lower())[:6]) or 'article'}.md"
    if search and search[0] not in called:
        return [use(name, query=" ".join(_words(topic)[:5])) for name in search]
    if "write_file" not in called:
        return [use("write_file", path=path, text=_draft(heard, topic))]
    for name in ("git_commit", "git_push"):
        if name in heard.tools and name not in called:
            more = {"message": f"Draft an article about {topic}"[:72]} if "commit" in name else {}
            return [use(name, **more)]
    return [use("read_file", path=path)] if "read_file" not in called else []


def _draft(heard: Heard, topic: str) -> str:
    found = [i for e in heard.exchanges if e.name.startswith("search_") for i in items_of(e.text)]
    said = [f"- {item.text.lstrip(': ')} ({item.id})" for item in found[:10]]
    known = said or ["No note or conversation says anything about it."]
    return "\n".join([f"# {topic[:1].upper()}{topic[1:]}", "", *known, "", OFFLINE, ""])


def _result(heard: Heard, task: str) -> dict[str, Any]:
    failed = [e for e in heard.exchanges if e.is_error and e.name != "submit_result"]
    left = [f"{e.name}: {e.text}"[:300] for e in failed]
    notes = [" ".join(e.text.split()) for e in heard.exchanges if _changes(e)]
    if is_order(task) and not notes:
        return open_end(f"It was not done: {left[-1].rstrip('.')}") if left else open_end(*NOT_DONE)
    every = list(_findings(heard, task))
    findings = within(_best(every, task), heard.max_bytes - 1000)
    if more := len(every) - len(findings):
        least = "at least " if any(_ENDED in e.text for e in heard.exchanges) else ""
        left.append(f"{least}{more} more places that hold a word of the question")
    told = " ".join([*notes, f"{len(findings)} facts with their lines." if findings else ""])
    text = told.strip() or "Nothing was found."
    return {"text": f"{text} {OFFLINE}", "findings": findings, "not_covered": left, "needs": ""}


def _best(findings: Sequence[dict[str, Any]], task: str) -> list[dict[str, Any]]:
    """Of many lines those with most words of the question; of each file one before the next."""
    if len(findings) <= MAX_FILES:
        return list(findings)
    words = {part for word in _words(task) for part in prefixes(fold(word))}
    told = Counter[str]()
    ranks = []
    for finding in findings:
        path = finding["evidence"][0].rpartition(":")[0]
        said = prefixes(fold(" ".join(finding["quotes"])))
        hidden = re.search(r"[:/]\.", path) is not None
        ranks.append((-len(words & said), hidden, told[path], path.count("/")))
        told[path] += 1
    order = sorted(range(len(findings)), key=ranks.__getitem__)
    return [findings[n] for n in order[:MAX_LINES]]


def _changes(exchange: Exchange) -> bool:
    return exchange.name in ("write_file", "git_commit", "git_push") and not exchange.is_error


def _findings(heard: Heard, task: str) -> Iterator[dict[str, Any]]:
    testing, seen = bool(_TESTING.search(task)), set[str]()
    for exchange in heard.exchanges:
        if exchange.is_error or exchange.name not in ("read_file", "search_files"):
            continue
        for n, item in enumerate(items_of(exchange.text)):
            if exchange.name == "search_files":
                if item.id not in seen:
                    yield _fact(f"{item.id}: {item.text.strip()}", item, item.text.strip())
                seen.add(item.id)
            elif testing:
                for found in _FRAMEWORKS.finditer(item.text):
                    line = _line_of(item.text, found.start())
                    if found[1] not in seen:
                        seen.add(found[1])
                        yield _fact(f"Tests use {found[1]}: {line}", item, line)
            elif n == 0:
                yield _about(str(exchange.input["path"]), item)


def _about(path: str, item: Shown) -> dict[str, Any]:
    """What a file says it is, and what it defines."""
    says = _SAYS.search(item.text)
    first = says[1].strip() if says else item.text.strip().partition("\n")[0]
    defined = ", ".join(_DEFINED.findall(item.text)) or "nothing"
    return _fact(
        f"{path}: {first}{f' (defines {defined})' if path[-3:] == '.py' else ''}", item, first
    )


def _fact(claim: str, item: Shown, quote: str) -> dict[str, Any]:
    quotes = [quote[:300]] if len(quote) > 1 else []
    return {"claim": claim[:500], "evidence": [item.id], "quotes": quotes}


def _line_of(text: str, at: int) -> str:
    start, end = text.rfind("\n", 0, at) + 1, text.find("\n", at)
    return text[start : end if end >= 0 else len(text)].strip()
