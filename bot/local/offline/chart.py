"""Read "as CSV" and "draw it as a bar chart" in a question: a kept file, a picture."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_AS = re.compile(
    r"[,;.?]?\s*(?:(?:and|then)\s+)*(?:please\s+)?"
    r"(?:(?:keep|save|give|export|return|show|draw|plot|make|put)\s+(?:me\s+)?"
    r"(?:it|this|that|them|the (?:result|rows))?\s*)?(?:as|into|to)\s+(?:an?\s+)?"
    r"(?:(?P<kind>csv(?: file)?|(?:bar|line) chart)"
    r"(?:\s+(?:called|named)\s+[`'\"]?(?P<name>[\w-]+)(?:\.\w+)?[`'\"]?)?"
    r"|[`'\"]?(?P<file>[\w-]+)\.csv[`'\"]?)\s*[.?!]*$",
    re.IGNORECASE,
)
_OF = re.compile(
    r"^(?:please\s+)?(?:draw|make|plot|create|show)(?:\s+me)?\s+an?\s+"
    r"(?P<kind>bar|line) chart of\s+",
    re.IGNORECASE,
)
_COLUMNS = re.compile(r"^\[q-\w+#columns\] (?P<all>.*)$", re.MULTILINE)
_COLUMN = re.compile(r"^(?P<name>.+?) (?P<type>[A-Z][A-Z0-9_ ]*(?:\(.*\))?)$")
_NUMBER = re.compile(r"DEC|NUM|FLOAT|DOUB|REAL|\w*INT(?!ERVAL)", re.IGNORECASE)


@dataclass(frozen=True)
class Wish:
    """A question to a database, and what is to become of its rows."""

    question: str
    file: str = ""
    """Name of the CSV file that keeps the rows; empty where none does."""
    kind: str = ""
    """Of the chart: bar or line; empty where none is drawn."""


def wish_of(task: str) -> Wish:
    """Return a task without the words on what to make of the rows."""
    task = task.strip()
    if found := _AS.search(task):
        kind = (found["kind"] or "csv").lower().partition(" ")[0]
        name = found["name"] or found["file"] or "rows"
        question = task[: found.start()].rstrip() + "?"
        return Wish(question, f"{name}.csv", "" if kind == "csv" else kind)
    if found := _OF.match(task):
        return Wish(f"What is {task[found.end() :]}", "rows.csv", found["kind"].lower())
    return Wish(task)


def axes(text: str) -> tuple[str, Sequence[str]]:
    """Return the columns of a result to draw by and to draw: the first, and the numbers behind it.

    Empty where there is nothing to draw.
    """
    found = _COLUMNS.search(text)
    named = [
        c for part in (found["all"].split("; ") if found else ()) if (c := _COLUMN.match(part))
    ]
    numbers = [c["name"] for c in named[1:] if _NUMBER.match(c["type"])]
    return (named[0]["name"], numbers) if numbers else ("", ())
