"""`assistant scopes`: what is offered, and why a tool is missing."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from bot_kit import configure

import scopes
from bot.cli.scopes import list_scopes
from bot.mailbox.accounts import GOOGLE, OPERATOR
from bot.mailbox.credentials import Credentials, MailboxTokens
from bot.runs.store import Store
from bot.storage.encryption import cipher_of
from config.settings import load_settings
from scopes.google.gmail import Gmail

MAIL = [tool.name for tool in scopes.scope("email").tools if tool.client is Gmail]


@pytest.fixture
def listed(capsys: pytest.CaptureFixture[str]) -> Any:
    def run() -> dict[str, Any]:
        assert list_scopes(True) == 0
        return {offer["name"]: offer for offer in json.loads(capsys.readouterr().out)}

    return run


def test_each_tool_is_offered_or_missing_with_a_reason_and_what_to_do(listed: Any) -> None:
    for name, offer in listed().items():
        names = {tool.name for tool in scopes.scope(name).tools}
        assert {*offer["tools"], *offer["missing"]} == names
        assert not {*offer["tools"]} & {*offer["missing"]}
        assert all(why.endswith(".") and " " in why for why in offer["missing"].values())


def test_tools_for_mail_are_missing_until_there_is_a_mailbox(listed: Any) -> None:
    assert "send_mail" in MAIL
    assert "save_note" not in MAIL
    email = listed()["email"]
    assert not email["given"]
    assert all(offer["given"] for name, offer in listed().items() if name not in ("email", "slack"))
    assert [*email["missing"]] == MAIL
    assert all("Connect Gmail" in why for why in email["missing"].values())
    assert "search_mail" in listed()["all"]["missing"]
    configure("google: {service_account: key.json}")
    assert listed()["email"]["missing"] == {}
    assert listed()["email"]["given"]


@pytest.mark.parametrize(("account", "missing"), [("U0ANA", []), (OPERATOR, MAIL)])
def test_a_mailbox_counts_where_its_owner_may_ask_about_it(
    listed: Any, account: str, missing: list[str]
) -> None:
    async def connect() -> None:
        settings = load_settings()
        store = await Store.open(settings.data_dir, settings.database_url, cipher_of(settings))
        tokens = MailboxTokens.model_validate({"access_token": "a", "refresh_token": "r"})
        await Credentials(store.database).put(GOOGLE, account, tokens)
        await store.aclose()

    asyncio.run(connect())
    assert [*listed()["email"]["missing"]] == missing
