"""The offline model over a tracker list: it hands in the rows as they are."""

from __future__ import annotations

import re
from typing import Any

from bot.local.offline.calls import items_of
from bot.local.offline.conversation import Conversation

_KEY = re.compile(r"\b[A-Z][A-Z0-9]{1,9}-\d{1,6}\b")
_CELL = re.compile(r"(?:^|\| )([^|:]{1,30}): ([^|]*?)(?= \||$)")
_DAY = re.compile(r"\d{4}-\d\d-\d\d")
_CLOSED = frozenset({"closed", "resolved", "done", "fixed", "completed"})


def rows_of(talk: Conversation) -> dict[str, Any]:
    """Return the arguments of `submit_result`: a row for each item of the material."""
    material = "\n".join(text for text in talk.opening if text.startswith("MATERIAL"))
    return {"rows": [_row(item.id, item.text) for item in items_of(material)], "not_covered": []}


def _row(id: str, text: str) -> dict[str, str]:
    cells = {name.strip().lower(): value.strip() for name, value in _CELL.findall(text)}
    key = _KEY.search(text)
    day = _DAY.search(cells.get("closed", "") or cells.get("resolved", ""))
    status = cells.get("status", "").lower()
    return {
        "id": id,
        "key": key[0] if key else "",
        "title": cells.get("title") or cells.get("name") or text.partition(" | ")[0],
        "status": "closed" if status in _CLOSED or (day and not status) else "open",
        "market": cells.get("market", ""),
        "closed": day[0] if day else "",
    }
