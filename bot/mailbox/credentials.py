"""OAuth tokens of the accounts that the bot may use elsewhere, stored encrypted."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime

import sqlalchemy as sa
from pydantic import SecretStr

from bot.logging import learn
from bot.storage.database import Database
from bot.storage.tables import credentials

Tokens = Mapping[str, SecretStr]
"""Tokens from a provider, by name: such as `access_token` and `refresh_token`."""


class Credentials:
    """The tokens of one database, by provider and account. Their text is in no repr.

    Its methods raise StoreError.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    async def put(self, provider: str, account: str, tokens: Tokens) -> None:
        """Store the tokens of an account, replacing earlier ones."""
        plain = {name: token.get_secret_value() for name, token in tokens.items()}
        _learn(plain)
        of = {"provider": provider, "account": account}
        row = {**of, "body": json.dumps(plain), "at": datetime.now(UTC)}
        insert = self.database.upsert(credentials, ("provider", "account"), ("body", "at"))
        await self.database.write(insert.values(row))

    async def get(self, provider: str, account: str) -> Tokens | None:
        """Return the tokens of an account; None = there are none."""
        rows = await self.database.read(sa.select(credentials.c.body).where(_of(provider, account)))
        if not rows:
            return None
        tokens = json.loads(rows[0].body)
        _learn(tokens)
        return {name: SecretStr(token) for name, token in tokens.items()}

    async def delete(self, provider: str, account: str) -> bool:
        """Delete the tokens of an account; return whether there were any."""
        gone = await self.database.write(sa.delete(credentials).where(_of(provider, account)))
        return bool(gone)

    async def accounts(self, provider: str) -> list[str]:
        """Return the accounts that have tokens, by name."""
        c = credentials.c
        query = sa.select(c.account).where(c.provider == provider).order_by(c.account)
        return [row.account for row in await self.database.read(query)]


def _learn(tokens: Mapping[str, str]) -> None:
    """Keep tokens out of the log; what is stored beside them, such as an address, is not secret."""
    learn(text for name, text in tokens.items() if name.endswith("_token"))


def _of(provider: str, account: str) -> sa.ColumnElement[bool]:
    return sa.and_(credentials.c.provider == provider, credentials.c.account == account)
