"""Which tools from outside are trusted as they are described now, and which calls were begun."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Literal

import sqlalchemy as sa

from bot.storage.database import Database
from bot.storage.tool_tables import outside_calls, outside_tools

log = logging.getLogger(__name__)

State = Literal["on", "new", "changed"]
"""Of a tool: approved as it is; never approved; approved as it was."""
SERVER = ""
"""The row of this name says that a server was seen at all."""


class OutsideTools:
    """What one database knows of tools from outside. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def states(self, server: str, digests: Mapping[str, str]) -> dict[str, State]:
        """How each tool that a server describes now stands, by name.

        When a server is seen for the first time, what it describes counts as approved: who put it
        into the settings has looked at it.
        """
        rows = await self._database.read(_of(server))
        if not rows:
            first = _rows(server, {SERVER: "", **digests}, {SERVER: "", **digests})
            insert = self._database.upsert(outside_tools)  # another process may have come first
            await self._database.change(lambda connection: connection.execute(insert, first))
            rows = await self._database.read(_of(server))
        seen = {row["tool"]: row["seen"] for row in rows}
        anew = {tool: digest for tool, digest in digests.items() if seen.get(tool) != digest}
        if anew:
            await self._saw(server, anew)
        approved = {row["tool"]: row["approved"] for row in rows}
        return {
            tool: "on" if approved.get(tool) == d else "changed" if approved.get(tool) else "new"
            for tool, d in digests.items()
        }

    async def approved(self, server: str) -> dict[str, str]:
        """Tool -> the digest that was approved; empty for none."""
        rows = await self._database.read(_of(server))
        return {row["tool"]: row["approved"] for row in rows if row["tool"] != SERVER}

    async def confirm(self, server: str, digests: Mapping[str, str]) -> None:
        """Approve of tools as they are described by these digests."""
        rows = _rows(server, {SERVER: "", **digests}, digests)
        upsert = self._database.upsert(
            outside_tools, ("server", "tool"), ("approved", "seen", "at")
        )
        await self._database.change(lambda connection: connection.execute(upsert, rows))

    async def _saw(self, server: str, anew: Mapping[str, str]) -> None:
        """Note descriptions that were not seen before, and warn of them once."""
        rows = _rows(server, dict.fromkeys(anew, ""), anew)
        upsert = self._database.upsert(outside_tools, ("server", "tool"), ("seen", "at"))
        await self._database.change(lambda connection: connection.execute(upsert, rows))
        log.warning(
            "%d tools of the server %s are described anew (%s): they are off until an "
            "administrator confirms them by `assistant mcp confirm`",
            len(anew),
            server,
            ", ".join(ascii(tool[:60]) for tool in list(anew)[:5]),
        )

    async def begin(self, key: str, run: str) -> bool:
        """Note that a call begins; False = it began before, in this life or an earlier one."""
        row = {"key": key, "run": run, "at": datetime.now(UTC)}
        insert = self._database.insert(outside_calls).values(row)
        return await self._database.write(insert.on_conflict_do_nothing()) == 1


def old_calls(connection: sa.Connection, before: datetime) -> int:
    """Delete the calls that were begun before then."""
    return connection.execute(sa.delete(outside_calls).where(outside_calls.c.at < before)).rowcount


def _of(server: str) -> sa.Select[tuple[object, ...]]:
    return sa.select(outside_tools).where(outside_tools.c.server == server)


def _rows(
    server: str, approved: Mapping[str, str], seen: Mapping[str, str]
) -> list[dict[str, object]]:
    now = datetime.now(UTC)
    return [
        {"server": server, "tool": t, "approved": a, "seen": seen.get(t, ""), "at": now}
        for t, a in approved.items()
    ]
