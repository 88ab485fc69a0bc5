"""Accounts that are being connected: who asked, in which browser, and the code that ends it."""

from __future__ import annotations

import hashlib
import hmac
import json
import re
import secrets
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Literal

import sqlalchemy as sa
from pydantic import SecretStr

from bot.accounts.credentials import Tokens
from bot.storage.database import Database
from bot.storage.gate_tables import oauth_states

LIFETIME = timedelta(minutes=10)
"""Of each half: from the click to the return from Google, and from there to the code."""
MOST_TRIES = 5
"""Wrong codes after which a connection has to be begun anew."""
CODE_DIGITS = 8

_STATE = re.compile(r"[\w-]{43}")
_c = oauth_states.c

Phase = Literal["asked", "begun", "spent", "granted"]
Change = Callable[[dict[str, Any], Phase], Phase | None]
"""Mends what a state carries, and returns its next phase; None = it may not be used so."""


@dataclass(frozen=True, slots=True)
class Asking:
    """Somebody who is connecting an account, as Slack vouched for them when they pressed."""

    account: str
    """The Slack user."""
    team: str
    verifier: str
    """Of PKCE: proves to Google that who began is who ends."""


@dataclass(frozen=True, slots=True)
class Wrong:
    """A code that was not the one."""

    left: int
    """Tries that are left; 0 = it has to be begun anew."""


class OauthStates:
    """The states of one database. What they carry is sealed, and names the row that it is of."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def begin(self, account: str, team: str) -> str:
        """A new state for who pressed, in place of what they had begun. Raises StoreError."""
        state, now = secrets.token_urlsafe(32), datetime.now(UTC)
        body = _sealed(state, team=team, verifier=secrets.token_urlsafe(48), account=account)
        row = {
            **{"state": _digest(state), "account": account, "phase": "asked", "tries": 0},
            **{"expires": now + LIFETIME, "body": body},
        }

        def work(connection: sa.Connection) -> None:
            over = sa.or_(_c.account == account, _c.expires < now)
            connection.execute(sa.delete(oauth_states).where(over))
            connection.execute(sa.insert(oauth_states).values(row))

        await self._database.change(work)
        return state

    async def asked(self, state: str) -> Asking | None:
        """Whose state this is, while it may still be used; None for any other. Changes nothing."""
        if not _STATE.fullmatch(state):
            return None
        rows = await self._database.read(_live(_c.state == _digest(state)))
        body = _opened(rows[0]) if rows and rows[0]["phase"] in ("asked", "begun") else None
        return _asking(body) if body else None

    async def claim(self, state: str, browser: str) -> Asking | None:
        """Begin in this browser, and in no other from now on; None where that cannot be."""

        def change(body: dict[str, Any], phase: Phase) -> Phase | None:
            if phase == "begun":  # pressed once more
                return "begun" if _same(body["browser"], _digest(browser)) else None
            body["browser"] = _digest(browser)
            return "begun" if phase == "asked" else None

        return await self._change(state, change)

    async def spend(self, state: str, browser: str) -> Asking | None:
        """End the first half, once, in the browser that it was begun in; None for anything else."""

        def change(body: dict[str, Any], phase: Phase) -> Phase | None:
            right = phase == "begun" and _same(body["browser"], _digest(browser))
            return "spent" if right else None

        return await self._change(state, change)

    async def _change(self, state: str, change: Change) -> Asking | None:
        """Whose state it is, if `change` lets it pass; at most one caller gets a change through."""

        def work(connection: sa.Connection) -> Asking | None:
            row = _locked(connection, _live(_c.state == _digest(state)))
            body = _opened(row) if row else None
            phase = change(body, row["phase"]) if row and body else None
            if row is None or body is None or phase is None:
                return None
            mine = sa.update(oauth_states).where(_c.state == row["state"])
            connection.execute(mine.values(phase=phase, body=json.dumps(body)))
            return _asking(body)

        return await self._database.change(work) if _STATE.fullmatch(state) else None

    async def grant(self, state: str, asking: Asking, tokens: Tokens) -> str:
        """Keep what Google gave until the person has said the code that is returned.

        Nothing is kept, and the code is empty, where they have begun anew meanwhile.
        """
        code = f"{secrets.randbelow(10**CODE_DIGITS):0{CODE_DIGITS}}"
        plain = {name: token.get_secret_value() for name, token in tokens.items()}
        body = _sealed(state, account=asking.account, code=code, tokens=plain)
        update = sa.update(oauth_states).where(
            _c.state == _digest(state), _c.account == asking.account, _c.phase == "spent"
        )
        expires = datetime.now(UTC) + LIFETIME
        values = {"phase": "granted", "expires": expires, "body": body}
        return code if await self._database.write(update.values(values)) else ""

    async def waiting(self, account: str) -> str:
        """The mailbox that waits for this person's code; empty = none does."""
        rows = await self._database.read(_granted(account))
        body = _opened(rows[0]) if rows else None
        return str(body["tokens"]["address"]) if body else ""

    async def confirm(self, account: str, typed: str) -> Tokens | Wrong:
        """What Google gave, handed out once to who says the code."""

        def work(connection: sa.Connection) -> Tokens | Wrong:
            row = _locked(connection, _granted(account))
            body = _opened(row) if row else None
            if row is None or body is None:
                return Wrong(0)
            mine = _c.state == row["state"]
            if _same(body["code"], re.sub(r"\D", "", typed)):
                connection.execute(sa.delete(oauth_states).where(mine))
                return {name: SecretStr(token) for name, token in body["tokens"].items()}
            left = MOST_TRIES - row["tries"] - 1
            over = sa.delete(oauth_states).where(mine)
            once_more = sa.update(oauth_states).where(mine).values(tries=row["tries"] + 1)
            connection.execute(once_more if left > 0 else over)
            return Wrong(left)

        return await self._database.change(work)

    async def drop(self, account: str) -> None:
        """Forget what this person has begun."""
        await self._database.write(sa.delete(oauth_states).where(_c.account == account))


def expired(connection: sa.Connection) -> int:
    """Delete what nobody has ended in time."""
    connection.execute(sa.delete(oauth_states).where(_c.expires < datetime.now(UTC)))
    return 0


def _live(which: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(oauth_states).where(which, _c.expires > datetime.now(UTC))


def _granted(account: str) -> sa.Select[Any]:
    return _live(sa.and_(_c.account == account, _c.phase == "granted"))


def _locked(connection: sa.Connection, query: sa.Select[Any]) -> dict[str, Any] | None:
    """The row of a query, for this transaction alone."""
    row = connection.execute(query.with_for_update()).mappings().first()
    return dict(row) if row else None


def _sealed(state: str, **fields: Any) -> str:
    return json.dumps({"of": _digest(state), **fields})


def _opened(row: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a row carries; None where it was moved there by somebody who has no key."""
    body: dict[str, Any] = json.loads(row["body"])
    genuine = body["of"] == row["state"] and body["account"] == row["account"]
    return body if genuine else None


def _asking(body: Mapping[str, Any]) -> Asking:
    return Asking(body["account"], body["team"], body["verifier"])


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())
