"""OAuth tokens of the accounts that the bot may use elsewhere, stored encrypted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

import sqlalchemy as sa
from pydantic import BaseModel, SecretStr, field_serializer

from bot.logging import learn
from bot.storage.database import Database
from bot.storage.tables import credentials


class MailboxTokens(BaseModel, frozen=True):
    """The OAuth tokens that open one mailbox."""

    access_token: SecretStr
    refresh_token: SecretStr
    expires_at: datetime | None = None
    """End of the access token; None = not known."""
    address: str = "a mailbox"

    @field_serializer("access_token", "refresh_token", when_used="json")
    def _plain(self, token: SecretStr) -> str:
        return token.get_secret_value()


@dataclass(frozen=True, slots=True)
class ConnectedAccount:
    """An account that is connected, without its tokens."""

    provider: str
    account: str
    """The Slack user, or the operator."""
    address: str
    at: datetime
    """When it was connected."""


class Credentials:
    """The tokens of one database, by provider and account. Their text is in no repr.

    Its methods raise StoreError.
    """

    def __init__(self, database: Database) -> None:
        self.database = database

    async def put(self, provider: str, account: str, tokens: MailboxTokens) -> None:
        """Store the tokens of an account, replacing earlier ones."""
        _learn(tokens)
        of = {"provider": provider, "account": account}
        row = {**of, "body": tokens.model_dump_json(), "at": datetime.now(UTC)}
        insert = self.database.upsert(credentials, ("provider", "account"), ("body", "at"))
        await self.database.write(insert.values(row))

    async def renew(self, provider: str, account: str, tokens: MailboxTokens) -> None:
        """Replace the tokens of a connected account, which stays connected since then."""
        _learn(tokens)
        update = sa.update(credentials).where(_of(provider, account))
        await self.database.write(update.values(body=tokens.model_dump_json()))

    async def get(self, provider: str, account: str) -> MailboxTokens | None:
        """Return the tokens of an account; None = there are none."""
        rows = await self.database.read(sa.select(credentials.c.body).where(_of(provider, account)))
        if not rows:
            return None
        tokens = MailboxTokens.model_validate_json(rows[0].body)
        _learn(tokens)
        return tokens

    async def delete(self, provider: str, account: str) -> bool:
        """Delete the tokens of an account; return whether there were any."""
        gone = await self.database.write(sa.delete(credentials).where(_of(provider, account)))
        return bool(gone)

    async def connected(self) -> list[ConnectedAccount]:
        """Return who has tokens, for whom a page shows them."""
        c = credentials.c
        query = sa.select(credentials).order_by(c.provider, c.account)
        return [
            ConnectedAccount(
                row.provider,
                row.account,
                MailboxTokens.model_validate_json(row.body).address,
                row.at,
            )
            for row in await self.database.read(query)
        ]

    async def accounts(self, provider: str) -> list[str]:
        """Return the accounts that have tokens, by name."""
        c = credentials.c
        query = sa.select(c.account).where(c.provider == provider).order_by(c.account)
        return [row.account for row in await self.database.read(query)]


def _learn(tokens: MailboxTokens) -> None:
    """Keep tokens out of the log; the address beside them is not secret."""
    learn(token.get_secret_value() for token in (tokens.access_token, tokens.refresh_token))


def _of(provider: str, account: str) -> sa.ColumnElement[bool]:
    return sa.and_(credentials.c.provider == provider, credentials.c.account == account)
