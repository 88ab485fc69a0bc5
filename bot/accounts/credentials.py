"""OAuth tokens of the accounts that the bot may use elsewhere, encrypted where they are stored."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import sqlalchemy as sa
from pydantic import SecretStr

from bot.errors import StoreError
from bot.logs import learn
from bot.storage.database import Database
from bot.storage.gate_tables import credentials

Tokens = Mapping[str, SecretStr]
"""What a provider gave, by name: such as `access_token` and `refresh_token`."""


class Credentials:
    """The tokens of one database, by provider and account. Their text shows in no repr."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def put(self, provider: str, account: str, tokens: Tokens) -> None:
        """Store the tokens of an account in place of those that it had. Raises StoreError."""
        plain = {name: token.get_secret_value() for name, token in tokens.items()}
        _learn(plain)
        body = json.dumps({"of": [provider, account], "tokens": plain})
        row = {"provider": provider, "account": account, "body": body, "at": datetime.now(UTC)}
        insert = self._database.upsert(credentials, ("provider", "account"), ("body", "at"))
        await self._database.write(insert.values(row))

    async def get(self, provider: str, account: str) -> Tokens | None:
        """The tokens of an account; None = there are none. Raises StoreError."""
        rows = await self._database.read(
            sa.select(credentials.c.body).where(_of(provider, account))
        )
        if not rows:
            return None
        body = json.loads(rows[0]["body"])
        if body["of"] != [provider, account]:  # moved here by somebody who has no key
            what = f"holds tokens of another account as those of {account} at {provider}"
            raise StoreError(self._database.where, what, "Connect that account anew.")
        _learn(body["tokens"])
        return {name: SecretStr(token) for name, token in body["tokens"].items()}

    async def delete(self, provider: str, account: str) -> bool:
        """Forget the tokens of an account; whether there were any. Raises StoreError."""
        gone = await self._database.write(sa.delete(credentials).where(_of(provider, account)))
        return bool(gone)

    async def accounts(self, provider: str) -> list[tuple[str, datetime]]:
        """The accounts that have tokens, by name, and when those were stored."""
        c = credentials.c
        query = sa.select(c.account, c.at).where(c.provider == provider).order_by(c.account)
        return [(row["account"], row["at"]) for row in await self._database.read(query)]


def _learn(tokens: Mapping[str, str]) -> None:
    """Keep tokens out of the log; what else lies beside them, such as an address, is no secret."""
    learn(text for name, text in tokens.items() if name.endswith("_token"))


def _of(provider: str, account: str) -> sa.ColumnElement[bool]:
    return sa.and_(credentials.c.provider == provider, credentials.c.account == account)
