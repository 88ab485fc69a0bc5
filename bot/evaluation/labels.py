"""The suites that are built in: readers of labelled data, and cases that are shipped."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from bot.errors import SetupError
from bot.evaluation.cases import Case, Expected, Sources, Suite, load_folder

SHIPPED = Path(__file__).parent / "suites"
SINCE = "30d"
"""Window of the labelled states."""
PEOPLE, SPAM = ("ham", "discussion", "office"), "spam"
KINDS = {"bc3": "discussion", "enron-labelled": "office"}
"""Source of a mail -> what it is; others are labelled one by one."""


def suite_of(name: str, data: Path | None) -> Suite:
    """Return the suite of this name, or that of a folder. Raises SetupError."""
    if reader := READERS.get(name):
        if data is None:
            what = f"The suite {name} reads labelled data."
            raise SetupError("no_data", what, "Give its folder: --data FOLDER.")
        return Suite(name, tuple(reader(data)))
    if (SHIPPED / name).is_dir() and "/" not in name:
        return load_folder(SHIPPED / name, name)
    if Path(name).is_dir():
        return load_folder(Path(name))
    known = ", ".join([*READERS, *sorted(each.name for each in SHIPPED.iterdir())])
    raise SetupError(
        "unknown_suite", f"There is no suite {name!r}.", f"Give a folder, or one of: {known}."
    )


def states(data: Path) -> Iterator[Case]:
    """Yield the threads of an export whose readers agree on their state."""
    export = _file(data, "slack_export.zip")
    day = _json(data, "STATS.json")["as_of"]
    sources = Sources(slack_export=export, as_of=day, since=SINCE)
    labels = [each for each in _json(data, "labels/support_states.json") if each["agreed"]]
    channels = tuple(sorted({each["id"].partition("/")[0] for each in labels}))
    for each in sorted(labels, key=lambda label: str(label["id"])):
        yield Case(
            id=each["id"],
            task="sweep",
            sources=sources,
            channels=channels,
            item=each["id"],
            expected=Expected(state=each["state"]),
        )


def asked(data: Path) -> Iterator[Case]:
    """Yield the threads of which people marked the requests; most of them decide."""
    for thread, is_asked in _requests(data).items():
        yield _mail(data, thread, Expected(asked=is_asked))


def triage(data: Path) -> Iterator[Case]:
    """Yield those threads and the spam: what should a reader see first?"""
    spam = [id for id, kind in _kinds(data).items() if kind == SPAM]
    for thread, needed in {**_requests(data), **dict.fromkeys(spam, False)}.items():
        yield _mail(data, thread, Expected(needs_reader=needed))


def filter_(data: Path) -> Iterator[Case]:
    """Yield mails of people, which no filter may keep back, and spam."""
    for thread, kind in _kinds(data).items():
        if kind in (*PEOPLE, SPAM):
            yield _mail(data, thread, Expected(filtered=kind == SPAM))


def sql(data: Path) -> Iterator[Case]:
    """Yield questions to a database with the rows that answer them."""
    path = _file(data, "business.duckdb")
    for number, each in enumerate(_json(data, "labels/sql_gold.json"), 1):
        today = f" Today is {each['as_of']}." if each["as_of"] else ""
        yield Case(
            id=f"{each['db']}/{number}",
            sources=Sources(database=(path,)),
            question=f"In the schema {each['db']}: {each['question']}{today}",
            expected=Expected(rows=each["answer"]),
        )


READERS: Mapping[str, Callable[[Path], Iterator[Case]]] = {
    "states": states,
    "triage": triage,
    "asked": asked,
    "filter": filter_,
    "sql": sql,
}
"""Name of a suite -> how its cases are read from a folder of labelled data."""


def _mail(data: Path, thread: str, expected: Expected) -> Case:
    sources = Sources(mbox=_file(data, "mail.mbox"))
    return Case(id=thread, task="triage", sources=sources, item=thread, expected=expected)


def _requests(data: Path) -> dict[str, bool]:
    """Return thread -> whether most annotators marked a request in it."""
    found = {}
    for each in _json(data, "labels/email_bc3_summaries.json"):
        votes = [bool(one["speech_acts"].get("req")) for one in each["annotators"]]
        found[str(each["thread_id"])] = sum(votes) * 2 > len(votes)
    return dict(sorted(found.items()))


def _kinds(data: Path) -> dict[str, str]:
    """Return thread -> what its mails are; empty where nobody said."""
    found = {}
    for each in _json(data, "labels/email_messages.json"):
        label = str(each.get("label") or "")
        found[str(each["thread_id"])] = KINDS.get(each["source"]) or label
    return dict(sorted(found.items()))


def _file(data: Path, name: str) -> Path:
    path = data / name
    if not path.is_file():
        raise SetupError("no_data", f"There is no {path}.", "docs/evaluation.md names the files.")
    return path


def _json(data: Path, name: str) -> Any:
    path = _file(data, name)
    try:
        return json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise SetupError("bad_data", f"{path} is no JSON: {error}.", "") from None
