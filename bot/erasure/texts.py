"""The words of items, found again in what was recorded of the runs that read them."""

from __future__ import annotations

import asyncio
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.serve_tables import inbox
from bot.storage.tables import blocks, ledger, runs
from subagents.shingles import texts
from subagents.trajectory import Origin

Texts = Mapping[str, Set[str]]
"""Item id -> all that was shown as its text, to whichever context."""

READ = (Origin.TOOL_RESULT, Origin.REQUEST, Origin.MATERIAL)
FILE = "FILE: "
"""How the text of an attached file begins: see bot/requests/files.py."""
_LINE = re.compile(r"^[^\S\n]*\[([^\]\s]+)\](.*)$", re.MULTILINE)
_CHUNK = 500


async def texts_of(database: Database, held: Mapping[str, Set[str]]) -> Texts:
    """The text of the items that each run holds (run -> item ids), as far as it is still recorded.

    Raises StoreError.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for run, items in held.items():
        body = blocks.c.body
        query = sa.select(body).join(ledger, ledger.c.hash == blocks.c.hash)
        read = sa.and_(ledger.c.run == run, ledger.c.origin.in_([str(o) for o in READ]))
        rows = await database.read(query.where(read))
        row = (await database.read(sa.select(runs).where(runs.c.id == run)))[0]
        request = (row["request"] or "").partition("/")[2]
        if request in items:
            found[request].add(row["question"])
        bodies = {row["body"] for row in rows}
        for item, text in await asyncio.to_thread(_search, bodies, items, request):
            found[item].add(text)
    for item, text in await _asked(database, set().union(*held.values())):
        found[item].add(text)
    return {item: told - {""} for item, told in found.items() if told - {""}}


def _search(bodies: Iterable[str], items: Set[str], request: str) -> Sequence[tuple[str, str]]:
    """What recorded blocks show of these items, line by line."""
    with_files = [i for i in items if i == request or not set(i) & set("/:#")]
    found = []
    for body in bodies:
        for text in texts(json.loads(body)):
            for id, rest in _LINE.findall(text):
                if id in items:
                    found += [(id, rest), (id, rest.partition(": ")[2])]
            if text.startswith(FILE):
                found += [(id, text) for id in with_files]
    return found


async def _asked(database: Database, items: Set[str]) -> list[tuple[str, str]]:
    """The messages among them that are requests, as they were heard."""
    found = []
    listed = sorted(items)
    for start in range(0, len(listed), _CHUNK):
        pairs = [tuple(i.split("/", 1)) for i in listed[start : start + _CHUNK] if "/" in i]
        times = [ts for _, ts in pairs]
        query = sa.select(inbox.c.channel, inbox.c.ts, inbox.c.event).where(inbox.c.ts.in_(times))
        for row in await database.read(query):
            item = f"{row['channel']}/{row['ts']}"
            if item in items:
                found.append((item, str(row["event"].get("text") or "")))
    return found
