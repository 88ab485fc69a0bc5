"""Accounts that are being connected: the person, the browser, and the final code."""

from __future__ import annotations

import hashlib
import hmac
import logging
import re
import secrets
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import sqlalchemy as sa
from pydantic import BaseModel
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.mailbox.accounts import Credentials, GoogleOauth, disconnect, oauth_of
from bot.mailbox.corrections import Corrections, is_applicable, latest_corrections
from bot.storage.database import Database, in_transaction
from bot.storage.tables import oauth_states
from config.settings import Settings
from config.words import phrase
from scopes.google.auth import MailboxTokens
from scopes.tool import one_line, readable

log = logging.getLogger(__name__)

STATE_LIFETIME = timedelta(minutes=10)
"""Lifetime of each half: from the click to the return from Google, and from then to the code."""
MOST_TRIES = 5
"""Number of wrong codes after which a connection has to be restarted."""
CODE_DIGITS = 8

_columns = oauth_states.c


class _Body(BaseModel):
    """The secrets of an attempt, stored encrypted: `code` and `tokens` once it is granted."""

    team: str = ""
    verifier: str = ""
    browser: str = ""
    """Hash of the cookie of the browser that started it."""
    code: str = ""
    tokens: MailboxTokens | None = None


@dataclass(frozen=True, slots=True)
class ConnectAttempt:
    """A person who is connecting an account, by their Slack id at the click."""

    account: str
    """The Slack user."""
    team: str
    verifier: str
    """PKCE verifier: proves to Google that the same client starts and ends this."""


@dataclass(frozen=True, slots=True)
class WrongCode:
    """The answer to a wrong code."""

    attempts_left: int
    """Number of remaining attempts; 0 = the connection has to be restarted."""


class OauthStates:
    """The states of one database, with encrypted data. Its methods raise StoreError."""

    def __init__(self, database: Database, prefix: str = "") -> None:
        """Each state begins with `prefix`, which distinguishes several workspaces."""
        self.database, self._prefix = database, prefix

    @in_transaction
    def begin(self, connection: sa.Connection, account: str, team: str) -> str:
        """Return a new state for the person who clicked, replacing an earlier one."""
        state, now = self._prefix + secrets.token_urlsafe(32), datetime.now(UTC)
        body = _Body(team=team, verifier=secrets.token_urlsafe(48))
        is_obsolete = sa.or_(_columns.account == account, _columns.expires < now)
        connection.execute(sa.delete(oauth_states).where(is_obsolete))
        insert = sa.insert(oauth_states).values(
            state=_digest(state),
            account=account,
            phase="asked",
            tries=0,
            expires=now + STATE_LIFETIME,
            body=body.model_dump_json(),
        )
        connection.execute(insert)
        return state

    async def find(self, state: str) -> ConnectAttempt | None:
        """Return the attempt of a state that may still be used; else None. Changes nothing."""
        rows = await self.database.read(_live(_columns.state == _digest(state)))
        return _attempt(rows[0]) if rows and rows[0].phase in ("asked", "begun") else None

    async def claim(self, state: str, browser: str) -> ConnectAttempt | None:
        """Bind the state permanently to this browser; None if impossible."""
        return await self._advance(state, browser, ("asked", "begun"), "begun")

    async def spend(self, state: str, browser: str) -> ConnectAttempt | None:
        """End the first half once, in the browser that started it; None in any other case."""
        return await self._advance(state, browser, ("begun",), "spent")

    @in_transaction
    def _advance(
        self,
        connection: sa.Connection,
        state: str,
        browser: str,
        before: tuple[str, ...],
        after: str,
    ) -> ConnectAttempt | None:
        """Move a state to another phase, only in its browser; return its attempt."""
        query = _live(_columns.state == _digest(state)).with_for_update()
        row = connection.execute(query).first()
        if row is None or row.phase not in before:
            return None
        body = _Body.model_validate_json(row.body)
        body.browser = body.browser or _digest(browser)
        if not _same(body.browser, _digest(browser)):
            return None
        update = sa.update(oauth_states).where(_columns.state == row.state)
        connection.execute(update.values(phase=after, body=body.model_dump_json()))
        return _attempt(row)

    async def grant(self, state: str, asking: ConnectAttempt, tokens: MailboxTokens) -> str:
        """Store Google's tokens until the person enters the returned code.

        If they have restarted in the meantime, store nothing and return an empty code.
        """
        code = f"{secrets.randbelow(10**CODE_DIGITS):0{CODE_DIGITS}}"
        update = sa.update(oauth_states).where(
            _columns.state == _digest(state),
            _columns.account == asking.account,
            _columns.phase == "spent",
        )
        update = update.values(
            phase="granted",
            expires=datetime.now(UTC) + STATE_LIFETIME,
            body=_Body(code=code, tokens=tokens).model_dump_json(),
        )
        return code if await self.database.write(update) else ""

    async def waiting_mailbox(self, account: str) -> str:
        """Return the mailbox that waits for this person's code; empty = none."""
        rows = await self.database.read(_select_granted(account))
        tokens = _Body.model_validate_json(rows[0].body).tokens if rows else None
        return tokens.address if tokens else ""

    @in_transaction
    def confirm(
        self, connection: sa.Connection, account: str, code: str
    ) -> MailboxTokens | WrongCode:
        """Return Google's tokens once, to the person who enters the code."""
        row = connection.execute(_select_granted(account).with_for_update()).first()
        if row is None:
            return WrongCode(0)
        body, is_state = _Body.model_validate_json(row.body), _columns.state == row.state
        is_right = _same(body.code, re.sub(r"\D", "", code))
        tries_left = MOST_TRIES - row.tries - 1
        if is_right or tries_left <= 0:
            connection.execute(sa.delete(oauth_states).where(is_state))
        else:
            connection.execute(sa.update(oauth_states).where(is_state).values(tries=row.tries + 1))
        return body.tokens if is_right and body.tokens else WrongCode(tries_left)

    async def drop(self, account: str) -> None:
        """Delete this person's attempts."""
        await self.database.write(sa.delete(oauth_states).where(_columns.account == account))


def _live(condition: sa.ColumnElement[bool]) -> sa.Select[Any]:
    return sa.select(oauth_states).where(condition, _columns.expires > datetime.now(UTC))


def _select_granted(account: str) -> sa.Select[Any]:
    return _live(sa.and_(_columns.account == account, _columns.phase == "granted"))


def _attempt(row: sa.Row[Any]) -> ConnectAttempt:
    body = _Body.model_validate_json(row.body)
    return ConnectAttempt(row.account, body.team, body.verifier)


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "replace")).hexdigest()


def _same(one: str, other: str) -> bool:
    return hmac.compare_digest(one.encode(), other.encode())


START_PATH, BACK_PATH = "/google/connect", "/google/callback"
NAME_CHARS = 80
"""Maximum characters of a person's name, which they choose themselves."""

HomePublisher = Callable[[str, str], Awaitable[None]]
"""Refreshes the Home of a user of a team."""


@dataclass(frozen=True, slots=True)
class MailAccess:
    """Status of a user's mailbox on their Home."""

    state: Literal["off", "absent", "offered", "waiting", "connected", "delegated"]
    address: str = ""
    link: str = ""
    """Address of the next page, for the state `offered`."""
    note: str = ""
    """Result of their last action."""
    corrected: tuple[str, ...] = ()
    """Their corrections in digests, newest first."""


@dataclass(frozen=True, slots=True)
class Owner:
    """The future owner of a mailbox, according to Slack."""

    name: str
    workspace: str


async def nobody(user: str, team: str) -> None:
    """Publish nothing."""


class MailboxConnector:
    """Connects a mailbox, from the button to the stored tokens. Its methods raise StoreError."""

    def __init__(
        self, settings: Settings, database: Database, web: AsyncWebClient, url: str
    ) -> None:
        """`web` asks Slack for names; `url` is the workspace's, as in auth.test."""
        self.web, self.url = web, url
        self._public = (settings.serve.public_url or "").rstrip("/")
        self._delegated = bool(settings.google.service_account)
        self._categories = settings.triage.categories
        self._oauth = oauth_of(settings)
        self.states = OauthStates(database, f"{settings.team}." if settings.team else "")
        self._store = Credentials(database)
        self._corrections = Corrections(database)
        self.publish: HomePublisher = nobody
        """Called after a change that is not on the user's Home yet."""

    @property
    def oauth(self) -> GoogleOauth | None:
        """Return the OAuth client; None = an administrator has not set this up."""
        return self._oauth if self._public else None

    @property
    def is_https(self) -> bool:
        return self._public.startswith("https://")

    @property
    def redirect_uri(self) -> str:
        return self._public + BACK_PATH

    async def access(self, user: str, note: str = "") -> MailAccess:
        """Return the status of a user's mailbox."""
        corrections = latest_corrections(await self._corrections.all(user))
        corrected = tuple(
            each.words
            if is_applicable(each, self._categories)
            else phrase("correction.unused", correction=each.words)
            for each in corrections
        )
        return replace(await self._access(user), note=note, corrected=corrected)

    async def _access(self, user: str) -> MailAccess:
        if address := await self._store.address(user):
            return MailAccess("connected", address)
        if address := await self.states.waiting_mailbox(user):
            return MailAccess("waiting", address)
        absent: Literal["absent", "off"] = "absent" if self.oauth else "off"
        return MailAccess("delegated" if self._delegated else absent)

    async def begin(self, user: str, team: str) -> MailAccess:
        """Start a connection, after this user clicked `Connect Gmail` in Slack."""
        if not self.oauth:
            return await self.access(user)
        state = await self.states.begin(user, team)
        link = f"{self._public}{START_PATH}?state={state}"
        return replace(await self.access(user), state="offered", address="", link=link)

    async def confirm(self, user: str, code: str) -> MailAccess:
        """Check the code that this user typed."""
        found = await self.states.confirm(user, code)
        if isinstance(found, WrongCode):
            wrong = (
                phrase("mail.wrong_code", n=found.attempts_left)
                if found.attempts_left
                else phrase("mail.over")
            )
            return await self.access(user, wrong)
        await self._store.put(user, found)
        log.info("%s has connected a mailbox", user)
        return await self.access(user)

    async def cancel(self, user: str) -> MailAccess:
        """Cancel a connection that waits for a code, and delete Google's tokens."""
        await self.states.drop(user)
        return await self.access(user)

    async def disconnect(self, user: str) -> MailAccess:
        withdrawn = await disconnect(self._store, self._oauth, user)
        if withdrawn is None:
            return await self.access(user)
        log.info("%s has disconnected a mailbox", user)
        note = phrase("mail.disconnected", address=withdrawn.address)
        if withdrawn.fault:
            note += f" {phrase('mail.revoke')}"
        return await self.access(user, note)

    async def forget_corrections(self, user: str) -> MailAccess:
        await self._corrections.clear(user)
        return await self.access(user)

    async def owner(self, state: str) -> Owner | None:
        """Return the owner of this link; None if it is expired. Raises OwnerUnknown."""
        asking = await self.states.find(state)
        return await self.find_owner(asking) if asking else None

    async def leave(self, state: str, browser: str) -> str | None:
        """Return Google's page for the browser that follows this link; None for other browsers."""
        oauth = self.oauth
        asking = await self.states.claim(state, browser) if oauth else None
        if asking is None or oauth is None:
            return None
        return oauth.address_to_open(self.redirect_uri, state, asking.verifier)

    async def fetch(self, state: str, asking: ConnectAttempt, code: str) -> tuple[str, str]:
        """Return the mailbox that Google opened, and the code for its owner to enter in Slack.

        The code is empty if they have restarted in the meantime. Raises ConnectFailed.
        """
        assert self.oauth
        tokens = await self.oauth.exchange(self.redirect_uri, code, asking.verifier)
        shown = await self.states.grant(state, asking, tokens)
        if shown:
            await self.publish(asking.account, asking.team)
        return tokens.address, shown

    async def find_owner(self, asking: ConnectAttempt) -> Owner:
        """Return the person's data in Slack. Raises OwnerUnknown if Slack does not return it."""
        try:
            response = await self.web.users_info(user=asking.account)
        except (SlackApiError, aiohttp.ClientError, TimeoutError) as error:
            kind = type(error).__name__
            raise OwnerUnknown(f"Slack does not say who {asking.account} is: {kind}") from None
        user = response.get("user") or {}
        handle = one_line(readable(str(user.get("name") or "")))[:NAME_CHARS]
        name = one_line(readable(str(user.get("real_name") or handle)))[:NAME_CHARS]
        return Owner(f"{name} (@{handle}, {asking.account})", urlsplit(self.url).netloc)


class OwnerUnknown(Exception):
    """Slack does not return the owner of a link at the moment."""
