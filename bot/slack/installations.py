"""The workspaces that installed the app, and the states of installations in progress."""

from __future__ import annotations

import hashlib
import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

import sqlalchemy as sa
from slack_sdk.oauth.installation_store import Installation
from slack_sdk.oauth.installation_store.async_installation_store import AsyncInstallationStore
from slack_sdk.oauth.state_store.async_state_store import AsyncOAuthStateStore

from bot.log import learn
from bot.storage.database import Database
from bot.storage.tables import installations, oauth_states

STATE_LIFE = timedelta(minutes=10)
INSTALL = "install"
"""Phase of an OAuth state of an installation."""
_NOT_KEPT = ("user_token", "user_refresh_token", "incoming_webhook_url")


class Installations(AsyncInstallationStore):
    """The installations of one database, encrypted. Its methods raise StoreError."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def async_save(self, installation: Installation) -> None:
        """Store an installation, replacing an earlier one of the same workspace."""
        body = installation.to_dict()
        at = body.pop("installed_at")
        body = {k: v for k, v in body.items() if k not in _NOT_KEPT and v is not None}
        id = installation.team_id or installation.enterprise_id
        insert = self._database.insert(installations).values(id=id, at=at, body=body)
        latest = {"at": insert.excluded.at, "body": insert.excluded.body}
        await self._database.write(insert.on_conflict_do_update(index_elements=["id"], set_=latest))

    async def all(self) -> list[Installation]:
        rows = await self._database.read(sa.select(installations).order_by(installations.c.id))
        found = [Installation(**row.body, installed_at=row.at.timestamp()) for row in rows]
        learn(each.bot_token for each in found if each.bot_token)
        return found

    async def remove(self, id: str, before: datetime) -> bool:
        """Delete installations before that time; return whether there were any."""
        is_older = sa.and_(installations.c.id == id, installations.c.at <= before)
        return bool(await self._database.write(sa.delete(installations).where(is_older)))


class InstallStates(AsyncOAuthStateStore):
    """States of installations: each is valid once, for ten minutes."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def async_issue(self, *args: Any, **kwargs: Any) -> str:
        state, now = secrets.token_urlsafe(32), datetime.now(UTC)
        row = {"state": _digest(state), "account": "", "phase": INSTALL, "tries": 0}
        insert = sa.insert(oauth_states).values(**row, expires=now + STATE_LIFE, body="")
        delete_expired = sa.delete(oauth_states).where(oauth_states.c.expires < now)

        def work(connection: sa.Connection) -> None:
            connection.execute(delete_expired)
            connection.execute(insert)

        await self._database.change(work)
        return state

    async def async_consume(self, state: str) -> bool:
        """Return whether the state was issued and not used before."""
        c = oauth_states.c
        live = sa.and_(c.state == _digest(state), c.phase == INSTALL, c.expires > datetime.now(UTC))
        return bool(await self._database.write(sa.delete(oauth_states).where(live)))


def _digest(state: str) -> str:
    return hashlib.sha256(state.encode("utf-8", "replace")).hexdigest()
