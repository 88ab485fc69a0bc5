"""Connecting a mailbox from Slack: a click, a visit to Google, and a code that is said in Slack.

Who follows the link need not be who pressed the button: somebody may send their own link to
another person, whose mailbox would then be theirs to read. So the pages name the Slack user whom
the mailbox is for, and what Google gave counts for nothing until that user has typed, in Slack,
a code which only the browser shows in which Google was told yes. A confirmation in Slack alone
would not help, since it would ask the very person who sent the link.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Literal
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.accounts.connected import GOOGLE, connected, disconnect
from bot.accounts.credentials import Credentials
from bot.accounts.google_oauth import GoogleOauth, oauth_of
from bot.accounts.oauth_states import Asking, OauthStates, Wrong
from bot.mail.corrections import Corrections, counts, in_force
from bot.mail.polls import news_of
from bot.mail.state import MailState
from bot.storage.database import Database
from config.settings import Settings
from scopes.tool import one_line, readable

log = logging.getLogger(__name__)

START_PATH, BACK_PATH = "/google/connect", "/google/callback"
NAME_CHARS = 80
"""Of a person's name, which they choose themselves."""
UNUSED = "not used: it is no category of the settings"
_OVER = "That is over. Press Connect Gmail to begin anew."

Publish = Callable[[str, str], Awaitable[None]]
"""Shows a user of a team their Home anew."""


@dataclass(frozen=True, slots=True)
class MailAccess:
    """What a user's Home says of their mailbox."""

    state: Literal["off", "absent", "offered", "waiting", "connected", "delegated"]
    address: str = ""
    link: str = ""
    """Of `offered`: where to go on."""
    note: str = ""
    """How what they did last has ended."""
    shut: str = ""
    """Of `connected` and `delegated`: what to do, where Google lets us in no longer."""
    new: int | None = None
    """Threads with new mail since the last digest; None = not known."""
    corrected: tuple[str, ...] = ()
    """What they have set right in digests, the newest first."""


@dataclass(frozen=True, slots=True)
class Owner:
    """Whom a mailbox will belong to, as Slack says it."""

    name: str
    workspace: str


async def nobody(user: str, team: str) -> None:
    """Publishes nothing."""


class Connecting:
    """Takes a person from the button to a connected mailbox."""

    def __init__(
        self, settings: Settings, database: Database, web: AsyncWebClient, url: str
    ) -> None:
        """`web` asks Slack for names; `url` is the workspace's address, as auth.test says it."""
        self._web, self._workspace = web, urlsplit(url).netloc
        self._public = (settings.serve.public_url or "").rstrip("/")
        self._delegated = bool(settings.google.service_account)
        self._categories = settings.triage.categories
        self._oauth = oauth_of(settings)
        self._states, self._store = OauthStates(database), Credentials(database)
        self._corrections, self._mail = Corrections(database), MailState(database)
        self.publish: Publish = nobody
        """Called when something has changed while the user looked elsewhere."""

    @property
    def oauth(self) -> GoogleOauth | None:
        """The client to connect with; None = an administrator has not set this up."""
        return self._oauth if self._public else None

    @property
    def is_https(self) -> bool:
        return self._public.startswith("https://")

    @property
    def redirect_uri(self) -> str:
        return self._public + BACK_PATH

    # ---- in Slack

    async def access(self, user: str, note: str = "") -> MailAccess:
        """How it stands with a user's mailbox. Raises StoreError."""
        corrections = in_force(await self._corrections.all(user))
        told = tuple(
            each.told if counts(each, self._categories) else f"{each.told} ({UNUSED})"
            for each in corrections
        )
        access = replace(await self._access(user), note=note, corrected=told)
        if access.state not in ("connected", "delegated"):
            return access
        news = await news_of(self._mail, user)
        return replace(access, shut=news.shut, new=news.threads)

    async def _access(self, user: str) -> MailAccess:
        if address := await connected(self._store, user):
            return MailAccess("connected", address)
        if address := await self._states.waiting(user):
            return MailAccess("waiting", address)
        absent: Literal["absent", "off"] = "absent" if self.oauth else "off"
        return MailAccess("delegated" if self._delegated else absent)

    async def begin(self, user: str, team: str) -> MailAccess:
        """`Connect Gmail` was pressed by this user, as Slack vouches."""
        if not self.oauth:
            return await self.access(user)
        state = await self._states.begin(user, team)
        link = f"{self._public}{START_PATH}?state={state}"
        return replace(await self.access(user), state="offered", address="", link=link)

    async def confirm(self, user: str, typed: str) -> MailAccess:
        """The code was typed by this user."""
        found = await self._states.confirm(user, typed)
        if isinstance(found, Wrong):
            tries = f"{found.left} more {'try' if found.left == 1 else 'tries'}"
            wrong = f"That is not the code. You have {tries}."
            return await self.access(user, wrong if found.left else _OVER)
        await self._store.put(GOOGLE, user, found)
        log.info("%s has connected a mailbox", user)
        return await self.access(user)

    async def cancel(self, user: str) -> MailAccess:
        """The user does not want what waits for a code; what Google gave is deleted."""
        await self._states.drop(user)
        return await self.access(user)

    async def disconnect(self, user: str) -> MailAccess:
        gone = await disconnect(self._store, self._oauth, user)
        if gone is None:
            return await self.access(user)
        log.info("%s has disconnected a mailbox", user)
        note = f"{gone.address} is disconnected, and its tokens are deleted."
        return await self.access(user, f"{note} {_at_google(gone.fault)}".rstrip())

    async def forget_corrections(self, user: str) -> MailAccess:
        await self._corrections.clear(user)
        return await self.access(user, "What you had set right is forgotten.")

    # ---- in the browser

    async def owner(self, state: str) -> Owner | None:
        """Whom this link was made for; None where it is over. Raises StoreError, OwnerUnknown."""
        asking = await self._states.asked(state)
        return await self.named(asking) if asking else None

    async def leave(self, state: str, browser: str) -> str | None:
        """Google's page, for the browser that goes on with this link; None for any other one."""
        oauth = self.oauth
        asking = await self._states.claim(state, browser) if oauth else None
        if asking is None or oauth is None:
            return None
        return oauth.address_to_open(self.redirect_uri, state, asking.verifier)

    async def returned(self, state: str, browser: str) -> Asking | None:
        """Who is back from Google, once, in the browser in which they left."""
        return await self._states.spend(state, browser)

    async def fetch(self, state: str, asking: Asking, code: str) -> tuple[str, str]:
        """The mailbox that Google let us into, and the code that its owner has to say in Slack.

        The code is empty where they have begun anew. Raises ConnectFailed, StoreError.
        """
        assert self.oauth
        tokens = await self.oauth.exchange(self.redirect_uri, code, asking.verifier)
        shown = await self._states.grant(state, asking, tokens)
        if shown:
            await self.publish(asking.account, asking.team)
        return tokens["address"].get_secret_value(), shown

    async def named(self, asking: Asking) -> Owner:
        """The person as Slack knows them; raises OwnerUnknown where it does not say."""
        try:
            told = await self._web.users_info(user=asking.account)
        except (SlackApiError, aiohttp.ClientError, TimeoutError) as error:
            log.warning("Slack does not say who %s is: %s", asking.account, type(error).__name__)
            raise OwnerUnknown from None
        user = told.get("user") or {}
        handle = one_line(readable(str(user.get("name") or "")))[:NAME_CHARS]
        name = one_line(readable(str(user.get("real_name") or handle)))[:NAME_CHARS]
        return Owner(f"{name} (@{handle}, {asking.account})", self._workspace)


class OwnerUnknown(Exception):
    """Slack does not say just now whom a link was made for."""


def _at_google(fault: str) -> str:
    told = "Google could not be told: remove the assistant at myaccount.google.com/permissions."
    return told if fault else ""
