"""`assistant connect google`, what opens a mailbox afterwards, and what the doctor says of it."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit

import pytest
from bot_kit import Shell, configure
from connect_kit import ANA, MAILBOX, StandIn, google_at, settings_at
from google_data_kit import key_file
from pg_kit import with_store
from pydantic import SecretStr
from standins.google_oauth import CLIENT_ID, CLIENT_SECRET
from timing import WAIT_S

from bot.errors import SetupError
from bot.log import Redactor, learn
from bot.mailbox.accounts import Credentials, mail_credentials, oauth_of
from bot.storage.database import Database
from bot.storage.encryption import Cipher
from config.settings import load_settings
from scopes.google.auth import MailboxTokens
from scopes.google.errors import MODIFY, GoogleRevoked

CLIENT = f"google: {{client_id: {CLIENT_ID}}}\n"


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A Google that this process's commands, and those that it starts, take for the real one."""
    configure(CLIENT)
    monkeypatch.setenv("GOOGLE_CLIENT_SECRET", CLIENT_SECRET)
    with google_at() as made:
        monkeypatch.setenv("GOOGLE_OAUTH_ENDPOINT", f"{made.url}/oauth")
        monkeypatch.setenv("GMAIL_API_ENDPOINT", made.url)
        yield made


class Command:
    """A command that runs in a process of its own, and what it says."""

    def __init__(self, *args: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bot", "connect", "google", "--port", "0", *args],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)},
        )

    def line(self, beginning: str) -> str:
        """The next line on stderr that begins so."""
        assert self.process.stderr
        for line in self.process.stderr:
            if line.startswith(beginning):
                return line.strip()
        raise AssertionError(f"nothing began with {beginning!r}")

    def ended(self) -> tuple[int, str, str]:
        out, err = self.process.communicate(timeout=WAIT_S)
        return self.process.returncode, out, err


@contextmanager
def connecting(*args: str) -> Iterator[Command]:
    command = Command(*args)
    try:
        yield command
    finally:
        command.process.kill()
        command.process.communicate()


class _Stay(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *args: Any) -> None:
        return None


def back_from(page: str) -> str:
    """The address that Google sends a browser back to from its page."""
    try:
        urllib.request.build_opener(_Stay).open(page, timeout=WAIT_S)
    except HTTPError as answer:
        return str(answer.headers["location"])
    raise AssertionError("Google sent nobody back")


def tokens_of(settings: Any, account: str) -> MailboxTokens | None:
    async def read() -> MailboxTokens | None:
        database = await Database.open(settings.data_dir)
        try:
            return await Credentials(database).get(account)
        finally:
            await database.aclose()

    return asyncio.run(read())


@pytest.mark.system
def test_the_operator_connects_in_a_browser_of_this_machine(google: StandIn, shell: Shell) -> None:
    with connecting("--json") as command:
        page = command.line("http")
        asked = {name: value for name, (value,) in parse_qs(urlsplit(page).query).items()}
        assert asked["scope"] == MODIFY
        assert asked["redirect_uri"].startswith("http://127.0.0.1:")
        wrong = asked["redirect_uri"] + "?state=other&code=4/stolen"
        with pytest.raises(HTTPError, match="400"):
            urllib.request.urlopen(wrong, timeout=WAIT_S)
        with urllib.request.urlopen(page, timeout=WAIT_S) as answer:
            assert b"You may close this page" in answer.read()
        code, out, err = command.ended()
    assert (code, json.loads(out)) == (0, {"account": "operator", "address": MAILBOX})
    tokens = tokens_of(load_settings(), "operator")
    assert tokens
    assert tokens.address == MAILBOX
    assert tokens.refresh_token.get_secret_value() == google.accounts.grants[0].refresh_token
    for token in (tokens.access_token, tokens.refresh_token):
        assert token.get_secret_value() not in out + err

    done = shell("connect", "google", "--disconnect")
    assert done.out == f"Disconnected: {MAILBOX}. Google has revoked its tokens.\n"
    assert google.accounts.grants[0].revoked
    done = shell("connect", "google", "--disconnect", "--json")
    assert done.json == {"account": "operator", "address": None, "revoked": False}


# ---- what opens a mailbox


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Credentials]:
    with_store(tmp_path / "state")
    database = await Database.open(tmp_path / "state", cipher=Cipher.generate())
    yield Credentials(database)
    await database.aclose()


async def connect(google: StandIn, store: Credentials, account: str) -> None:
    """As a person does it, with a token that has just ended."""
    oauth = oauth_of(settings_at(google))
    assert oauth
    page = oauth.address_to_open("http://127.0.0.1/back", "s", "v" * 43)
    back = await asyncio.to_thread(back_from, page)
    (code,) = parse_qs(urlsplit(back).query)["code"]
    tokens = await oauth.exchange("http://127.0.0.1/back", code, "v" * 43)
    ended = datetime.now(UTC) - timedelta(hours=1)
    await store.put(account, tokens.model_copy(update={"expires_at": ended}))


async def test_a_connected_mailbox_is_opened_also_when_its_token_has_ended(
    store: Credentials,
) -> None:
    with google_at() as google:
        await connect(google, store, ANA)
        access = await mail_credentials(settings_at(google), store, ANA, None)
        assert access
        assert google.accounts.whose(await access.token()) == MAILBOX
        assert await mail_credentials(settings_at(google), store, "U0EVA", None) is None
        google.accounts.revoke(MAILBOX)
        again = await mail_credentials(settings_at(google), store, ANA, None)
        assert again
        with pytest.raises(GoogleRevoked, match="Connect it again"):
            await again.token()
        unset = settings_at(google, client_id=None)
        with pytest.raises(SetupError, match=r"google\.client_id is not set"):
            await mail_credentials(unset, store, ANA, None)


async def test_the_fixed_token_is_the_operators_alone(store: Credentials) -> None:
    with google_at() as google:
        settings = settings_at(google)
        fixed = settings.secrets.model_copy(update={"google_access_token": SecretStr("ya29.fix")})
        settings = settings.model_copy(update={"secrets": fixed})
        access = await mail_credentials(settings, store, "operator", None)
        assert access
        assert await access.token() == "ya29.fix"
        assert await mail_credentials(settings, store, ANA, "ana@acme.example") is None


async def test_a_service_account_opens_the_mailbox_of_the_users_own_address(
    store: Credentials, tmp_path: Path
) -> None:
    with google_at() as google:
        settings = settings_at(google, service_account=str(key_file(tmp_path)))
        access = await mail_credentials(settings, store, "U0EVA", "eva@acme.example")
        assert access
        assert google.accounts.whose(await access.token()) == "eva@acme.example"
        assert await mail_credentials(settings, store, "U0EVA", None) is None
        await connect(google, store, ANA)
        own = await mail_credentials(settings, store, ANA, "other@acme.example")
        assert own
        assert google.accounts.whose(await own.token()) == MAILBOX, "what was connected goes first"


# ---- what all of this rests on


async def test_the_log_loses_tokens_as_soon_as_they_are_stored_or_loaded(
    store: Credentials,
) -> None:
    redactor = Redactor()
    odd = "a token of no known shape / 77"
    assert redactor.clean(f"it is {odd}") == f"it is {odd}"
    tokens = {"access_token": odd, "refresh_token": "1//refresh", "address": MAILBOX}
    await store.put(ANA, MailboxTokens.model_validate(tokens))
    assert redactor.clean(f"it is {odd}") == "it is [removed]"
    assert redactor.clean("a%20token%20of%20no%20known%20shape%20%2F%2077") == "[removed]"
    assert redactor.clean(MAILBOX) == MAILBOX
    learn(f"filler-{number:04}" for number in range(600))
    assert odd in redactor.clean(odd), "only so many are looked for"
    await store.get(ANA)
    assert redactor.clean(odd) == "[removed]"
