"""The offline mind over a tracker: its rows handed in, and which findings they are about."""

import re
from collections.abc import Iterator, Mapping, Sequence

from bot.local.mind.cues import fold
from bot.local.mind.grouping import TrackerItem, parse_tracker, same_as
from bot.local.mind.hearing import Heard
from bot.local.mind.views import ViewFinding

_CELL = re.compile(r"(?:^|\| )([^|:]{1,30}): ([^|]*?)(?= \||$)")
_NAMES = {
    "title": ("title", "titel", "titre", "titolo", "titulo", "name", "summary", "issue"),
    "market": (
        "market",
        "country",
        "markt",
        "land",
        "marche",
        "pays",
        "mercato",
        "mercado",
        "pais",
    ),
    "closed": ("closed", "resolved", "done"),
}
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_ROW = re.compile(r"^(?P<name>\S+) \| (?P<status>open|closed) \| (?P<rest>.+)$")


def handed_in(heard: Heard) -> dict[str, object]:
    """The arguments of `submit_result`: the rows of the material, cell by cell."""
    items = parse_tracker("\n".join(text for text in heard.opening if text.startswith("MATERIAL")))
    return {"rows": [_row(item) for item in items], "not_covered": []}


def _row(item: TrackerItem) -> Mapping[str, str]:
    cells = {fold(name): value.strip() for name, value in _CELL.findall(item.text)}

    def cell(what: str) -> str:
        return next((cells[name] for name in _NAMES[what] if cells.get(name)), "")

    def day(what: str) -> str:
        found = _DAY.search(cell(what))
        return found[0] if found else ""

    return {
        "id": item.id,
        "key": item.key,
        "title": cell("title") or item.text.partition(" | ")[0],
        "status": "closed" if item.closed else "open",
        "market": cell("market"),
        "closed": day("closed"),
    }


def tracked_lines(heard: Heard, findings: Sequence[ViewFinding]) -> Iterator[str]:
    """`TRACKED:` lines for findings that are about one of the rows shown."""
    rows = [_item(found) for line in _told(heard) if (found := _ROW.match(line))]
    for finding in findings:
        row = same_as(f"{finding.claim} {finding.next_step}", rows)
        if row and finding.id not in heard.section("TRACKED BY CODE"):
            yield f"TRACKED: [{finding.id}] = {row.key}"


def _told(heard: Heard) -> list[str]:
    return [line for text in heard.opening for line in text.splitlines()]


def _item(found: re.Match[str]) -> TrackerItem:
    return TrackerItem(found["name"], found["rest"], found["name"], found["status"] == "closed")
