"""Check what `serve` needs where several workspaces install the app by OAuth."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import aiohttp
from slack_sdk.errors import SlackApiError

from bot.doctor import services, slack
from bot.doctor.slack import Missing, Problem
from bot.errors import StoreError
from bot.manifest import REDIRECT_PATH, bot_permissions
from bot.slack.installations import Installations
from bot.storage.database import Database
from config.settings import Settings, SettingsError, check_common, for_team
from scopes.slack_client import lacks, web_client

SECRET = "SLACK_CLIENT_SECRET"
NO_CODE = "a-code-of-nobody"
"""Slack refuses it only after it knows the client."""
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


@dataclass(frozen=True, slots=True)
class Installed:
    """A workspace, or an organization, that installed the app."""

    id: str
    token: str
    is_company: bool


async def client(settings: Settings) -> str:
    """Check the app's client, and where Slack sends browsers back to."""
    try:
        check_common(settings)
    except SettingsError as error:
        raise Problem(str(error)) from None
    if settings.secrets.slack_client_secret is None:
        raise Missing(f"{SECRET} is not set: copy it from Basic Information, App Credentials.")
    public = settings.serve.public_url
    if public is None:
        raise Missing("serve.public_url is not set: give the https address of this server.")
    parts = urlsplit(public)
    if parts.scheme != "https" or parts.hostname in _LOCAL:
        raise Problem(
            f"serve.public_url is {public}, where Slack sends nobody back: give the https address "
            "under which browsers reach this server."
        )
    await known(settings, settings.secrets.slack_client_secret.get_secret_value())
    return f"the client is known, browsers come back to {public.rstrip('/')}{REDIRECT_PATH}"


async def known(settings: Settings, secret: str) -> None:
    """Ask Slack for the token of a code that nobody has: it says first who asks."""
    web = web_client(settings.endpoints.slack_api_url, timeout=slack.PATIENCE_S, retry_handlers=[])
    try:
        await web.oauth_v2_access(
            client_id=settings.slack.client_id or "", client_secret=secret, code=NO_CODE
        )
    except SlackApiError as error:
        code = str(error.response.get("error") or "no proper answer")
    except (aiohttp.ClientError, TimeoutError, OSError) as error:
        raise Problem(
            f"Slack cannot be reached ({type(error).__name__}): check the network and "
            "SLACK_API_URL."
        ) from None
    else:
        code = "no proper answer"
    if code in ("invalid_client_id", "bad_client_id"):
        raise Problem("slack.client_id is of no app: copy the Client ID from Basic Information.")
    if code == "bad_client_secret":
        raise Problem(f"{SECRET} is not the secret of slack.client_id: copy it again.")
    if code != "invalid_code":
        raise Problem(f"Slack refused oauth.v2.access ({code}): try again in a minute.")


async def installed(settings: Settings) -> list[Installed]:
    """Return who installed the app. Raises Problem if the common database cannot be read."""
    try:
        async with aclosing(await Database.of(settings)) as database:
            found = await Installations(database).all()
    except (StoreError, SettingsError) as error:
        raise Problem(str(error)) from None
    return [
        Installed(
            str(each.enterprise_id if each.is_enterprise_install else each.team_id),
            str(each.bot_token),
            bool(each.is_enterprise_install),
        )
        for each in found
    ]


async def workspace(
    settings: Settings, path: Path | None, session: aiohttp.ClientSession, each: Installed
) -> str:
    """Check one installation: its token, its permissions, its settings and its storage."""
    web = slack.slack(settings, session, each.token)
    account = await slack.account(web, f"The token of {each.id}")
    needed = [p.scope for p in bot_permissions(settings)]
    absent = [s for s in needed if account.scopes is not None and s not in account.scopes]
    if absent:
        raise Problem(f"In {account.team} {lacks(absent)}: install it there again.")
    if each.is_company:
        return f"the organization {account.team}; each of its workspaces has its own storage"
    try:
        own = for_team(settings, each.id, path)
    except SettingsError as error:
        raise Problem(str(error)) from None
    return f"@{account.name} in {account.team}; {await services.database(own)}"
