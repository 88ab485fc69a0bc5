"""Preferences of people and instructions of channels as rows: `scopes.preferences.Preferences`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.policy.directory import SlackDirectory
from bot.storage.database import Database
from bot.storage.tables import outside_calls, preferences
from scopes.effects import OPEN_NOTES
from scopes.preferences import FULL, MAX_PREFERENCES, Authorship, Preference
from scopes.spaces import notes_of, space_of
from scopes.tool import ToolError

SETTING = 7_005
"""Advisory lock of Postgres that a replica holds while it sets one."""
UNCHECKED = "Slack does not tell just now who is in this channel. Ask again in a minute."
NOT_IN_IT = "Only a full member of this workspace who is in this channel sets its instructions."


@dataclass(frozen=True, slots=True)
class PreferenceStore:
    """Preferences in one database. The methods also raise StoreError."""

    database: Database
    directory: SlackDirectory

    async def listed(self, user: str) -> Sequence[Preference]:
        rows = await self.database.read(_in(space_of(OPEN_NOTES, user)))
        return [Preference(row.id, row.text) for row in rows]

    async def add(self, text: str, authorship: Authorship) -> None:
        space = space_of(OPEN_NOTES, authorship.by)

        def add(connection: sa.Connection) -> None:
            self._lock(connection)
            known = connection.execute(_in(space)).all()
            same = [row.id for row in known if row.text.casefold() == text.casefold()]
            if len(known) - len(same) >= MAX_PREFERENCES:
                raise ToolError(FULL)
            connection.execute(sa.delete(preferences).where(preferences.c.id.in_(same)))
            connection.execute(sa.insert(preferences).values(_row(space, text, authorship)))

        await self.database.change(add)

    def _lock(self, connection: sa.Connection) -> None:
        """Let no other replica count or replace rows until this transaction ends."""
        if self.database.shared:
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(SETTING)))

    async def delete(self, user: str, id: int, key: str = "", run: str = "") -> None:
        mine = sa.and_(preferences.c.id == id, preferences.c.space == space_of(OPEN_NOTES, user))

        def delete(connection: sa.Connection) -> None:
            connection.execute(sa.delete(preferences).where(mine))
            if key:
                row = {"key": key, "run": run, "at": datetime.now(UTC)}
                connection.execute(sa.insert(outside_calls).values(row))

        await self.database.change(delete)

    async def has_deleted(self, key: str) -> bool:
        rows = await self.database.read(sa.select(outside_calls).where(outside_calls.c.key == key))
        return bool(rows)

    async def instructions(self, channel: str) -> str:
        rows = await self.database.read(_in(_of(channel)))
        return rows[0].text if rows else ""

    async def instructed(self, user: str) -> Mapping[str, str]:
        channels = {_of(id): id for id in await self.directory.members.of_user(user) or ()}
        set_in = preferences.c.space.in_(sorted(channels))
        query = sa.select(preferences.c.space, preferences.c.text).where(set_in)
        rows = await self.database.read(query.order_by(preferences.c.id))
        return {channels[row.space]: row.text for row in rows}

    async def check_member(self, user: str, channel: str) -> None:
        person = await self.directory.people.person(user, self.directory.team, fresh=True)
        inside = await self.directory.members.inside(channel)
        if person is None or inside is None:
            raise ToolError(UNCHECKED)
        if person.kind != "member" or user not in inside:
            raise ToolError(NOT_IN_IT)

    async def instruct(self, channel: str, text: str, authorship: Authorship) -> None:
        space = _of(channel)

        def replace(connection: sa.Connection) -> None:
            self._lock(connection)
            connection.execute(sa.delete(preferences).where(preferences.c.space == space))
            if text:
                connection.execute(sa.insert(preferences).values(_row(space, text, authorship)))

        await self.database.change(replace)


def _of(channel: str) -> str:
    return space_of(notes_of(channel), None)


def _in(space: str) -> sa.Select[Any]:
    rows = sa.select(preferences.c.id, preferences.c.text).where(preferences.c.space == space)
    return rows.order_by(preferences.c.id)


def _row(space: str, text: str, authorship: Authorship) -> dict[str, Any]:
    return {
        "space": space,
        "text": text,
        "by": authorship.by,
        "label": authorship.label.to_json(),
        "run": authorship.run,
        "at": datetime.now(UTC),
    }
