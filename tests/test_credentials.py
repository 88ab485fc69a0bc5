"""OAuth tokens: kept by provider and account, encrypted, shown nowhere."""

from __future__ import annotations

import logging

import pytest
import sqlalchemy as sa
from pg_kit import Kept, execute, place

from bot.mailbox.credentials import Credentials, MailboxTokens
from bot.storage.database import Database
from bot.storage.tables import credentials

__all__ = ["place"]

TOKEN, FRESH = "ya29.first-secret", "ya29.second-secret"


def tokens(access: str) -> MailboxTokens:
    return MailboxTokens.model_validate({"access_token": access, "refresh_token": "1//again"})


async def test_tokens_are_kept_by_provider_and_account(place: Kept) -> None:
    database = await Database.open(place.path, place.url)
    kept = Credentials(database)
    await kept.put("google", "bea@acme.example", tokens(TOKEN))
    await kept.put("google", "ana@acme.example", tokens(TOKEN))
    await kept.put("google", "bea@acme.example", tokens(FRESH))

    assert await kept.get("google", "bea@acme.example") == tokens(FRESH)
    assert await kept.get("google", "nobody@acme.example") is None
    assert await kept.get("github", "bea@acme.example") is None
    named = await kept.accounts("google")
    assert named == ["ana@acme.example", "bea@acme.example"]
    assert await kept.accounts("github") == []
    assert await kept.delete("google", "bea@acme.example")
    assert not await kept.delete("google", "bea@acme.example")
    assert await kept.get("google", "bea@acme.example") is None
    assert await kept.get("google", "ana@acme.example") == tokens(TOKEN)
    await database.aclose()


async def test_a_token_stands_in_no_row_repr_or_log(
    place: Kept, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    database = await Database.open(place.path, place.url)
    kept = Credentials(database)
    await kept.put("google", "bea@acme.example", tokens(TOKEN))
    found = await kept.get("google", "bea@acme.example")
    stored = await database.read(sa.select(sa.type_coerce(credentials.c.body, sa.Text)))

    assert TOKEN not in f"{found!r} {found} {kept!r} {stored} {caplog.text}"
    await database.aclose()
    if place.url:
        assert TOKEN not in str(execute("SELECT * FROM assistant.credentials", place.url))
