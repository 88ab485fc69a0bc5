"""Ask external services; each question returns what it found, or raises a Problem."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import Any, Literal
from urllib.parse import urlsplit

import aiohttp
import anthropic
from slack_sdk.errors import SlackApiError

from config.sections import Models
from config.settings import Settings
from scopes.slack_client import Absent, SlackClient, SlackRefused, connect, lacks, scopes_in
from subagents.model import FAULTS, UNFINISHED, fault_of
from subagents.providers import NAMES, NO_CREDENTIALS, ProviderNotReady, open_client

MOST_SOCKETS = 10
"""Sockets that Slack allows an app (docs.slack.dev/apis/events-api/using-socket-mode)."""
MOST_CHANNELS = 10_000
"""Channels that are searched: ten calls of a method that allows twenty a minute."""
PATIENCE_S = 10.0
"""Seconds until a request is given up."""

BOT, APP, USER = "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_USER_TOKEN"
KEY = "ANTHROPIC_API_KEY"

_AGAIN = "copy it again with `assistant setup`."
_REINSTALL = "reinstall the app and run `assistant setup`."
_TOKEN_FAULTS = {
    "invalid_auth": f"is not valid: {_AGAIN}",
    "not_authed": f"is not valid: {_AGAIN}",
    "not_allowed_token_type": f"holds a token of another kind: {_AGAIN}",
    "account_inactive": f"belongs to an app or a person that was removed: {_REINSTALL}",
    "token_revoked": f"was revoked: {_REINSTALL}",
    "token_expired": f"has expired: turn token rotation off, {_REINSTALL}",
}


Role = Literal["main", "fast"]


class Problem(Exception):
    """Something that keeps the bot from working: one sentence that ends with what to do."""


class Missing(Problem):
    """Something that has not been set up at all."""


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a token, with what else Slack's answer says."""

    team: str
    name: str
    bot: str
    """Id of the bot; empty for a person."""
    scopes: frozenset[str] | None
    """The scopes that the token was granted; None = Slack did not say."""
    ahead_s: float | None
    """Seconds by which this machine's clock is ahead of Slack's; None = Slack did not say."""


@dataclass(frozen=True, slots=True)
class Hello:
    """Slack's greeting of a socket."""

    connections: int
    """Sockets of this app that are open now, including this one."""
    app: str


def slack(settings: Settings, session: aiohttp.ClientSession, token: str) -> SlackClient:
    """Return a client that tries once, because the doctor reports failures at once."""
    once = settings.slack.model_copy(update={"retry_attempts": 0, "page_size": 999})
    return connect(session, token, settings.endpoints.slack_api_url, once)


async def account(client: SlackClient, variable: str) -> Account:
    """Return the account of a token. `variable` is the name of its setting."""
    with _explain_errors(client, variable):
        response = await client.web.auth_test()
    now = time.time()
    headers = {str(name).lower(): str(value) for name, value in response.headers.items()}
    granted = headers.get("x-oauth-scopes")
    return Account(
        team=str(response.get("team") or ""),
        name=str(response.get("user") or ""),
        bot=str(response.get("bot_id") or ""),
        scopes=None if granted is None else frozenset(s.strip() for s in granted.split(",")),
        ahead_s=_ahead(headers.get("date"), now),
    )


def _ahead(date: str | None, now: float) -> float | None:
    try:
        return now - parsedate_to_datetime(date).timestamp() if date else None
    except ValueError:
        return None


async def hello(client: SlackClient, session: aiohttp.ClientSession) -> Hello:
    """Connect one socket until Slack greets it. `client` has the app-level token.

    An event that arrives in that moment is not acked, so Slack sends it again to another socket.
    """
    with _explain_errors(client, APP):
        address = str((await client.call("apps.connections.open"))["url"])
        async with asyncio.timeout(PATIENCE_S), session.ws_connect(address) as socket:
            message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise Problem("Slack closed the socket at once: try again in a minute.")
        greeting: Mapping[str, Any] = message.json()
    if greeting.get("type") != "hello":
        code = str(greeting.get("reason") or "no proper answer")
        raise Problem(_refusal(APP, "apps.connections.open", code, ""))
    about = greeting.get("connection_info") or {}
    return Hello(int(greeting.get("num_connections") or 1), str(about.get("app_id") or ""))


async def channels(client: SlackClient) -> list[dict[str, Any]]:
    """Return the channels that the bot can see, up to MOST_CHANNELS."""
    found: list[dict[str, Any]] = []
    kinds = "public_channel,private_channel"
    with _explain_errors(client, BOT):
        async for channel in client.pages(
            "conversations.list", "channels", types=kinds, exclude_archived="true"
        ):
            found.append(channel)
            if len(found) == MOST_CHANNELS:
                break
    return found


async def messages(client: SlackClient, channel: str, limit: int) -> tuple[int, bool]:
    """Return how many of `limit` messages one call gives, and whether there are more."""
    with _explain_errors(client, BOT):
        body = await client.call("conversations.history", channel=channel, limit=limit)
    return len(body.get("messages") or ()), bool(body.get("has_more"))


async def app_of_bot(client: SlackClient, bot: str) -> str:
    """Return the id of the app that a bot belongs to; empty if Slack does not return it."""
    with _explain_errors(client, BOT):
        try:
            found = (await client.call("bots.info", bot=bot)).get("bot") or {}
        except (Absent, SlackRefused):
            return ""
    return str(found.get("app_id") or "")


@contextmanager
def _explain_errors(client: SlackClient, variable: str) -> Iterator[None]:
    """Turn the errors of a call to Slack into a Problem."""
    try:
        yield
    except SlackRefused as error:
        raise Problem(_refusal(variable, error.method, error.code, error.needed)) from None
    except Absent as error:
        raise Problem(_refusal(variable, "the call", str(error), "")) from None
    except SlackApiError as error:
        data = getattr(error.response, "data", None)
        body = data if isinstance(data, dict) else {}
        code = str(body.get("error") or "no proper answer")
        raise Problem(_refusal(variable, "auth.test", code, "")) from None
    except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:
        where = urlsplit(client.web.base_url).netloc
        why = "no answer in time" if isinstance(error, TimeoutError) else type(error).__name__
        raise Problem(
            f"Slack cannot be reached at {where} ({why}): check the network and SLACK_API_URL."
        ) from None


def explain_missing_scopes(scopes: Sequence[str]) -> str:
    """Return the sentence for an app that lacks scopes, as a refused request reports it."""
    it = "them" if len(scopes) > 1 else "it"
    told = lacks(scopes)
    return f"{told[0].upper()}{told[1:]}: add {it} under OAuth & Permissions and reinstall the app."


def _refusal(variable: str, method: str, code: str, needed: str) -> str:
    if code in _TOKEN_FAULTS:
        return f"{variable} {_TOKEN_FAULTS[code]}"
    if code == "missing_scope" and variable == APP:
        return (
            f"{APP} lacks {needed or 'connections:write'}: make a new one, then `assistant setup`."
        )
    if code == "missing_scope":
        return explain_missing_scopes(scopes_in(needed))
    if code == "ratelimited":
        return "Slack allows no more calls just now: try again in a minute."
    if code == "too_many_websockets":
        return f"{MOST_SOCKETS} sockets are open, Slack's limit: stop another `assistant serve`."
    if code == "no proper answer":
        return f"Slack gave no proper answer to {method}: try again in a minute."
    return f"Slack refused {method}: look up {code} at docs.slack.dev/reference/methods."


async def model_answers(settings: Settings, key: str | None, role: Role) -> str:
    """Ask a model for one token; returns the model's id."""
    model = getattr(settings.models, role)
    base_url = settings.endpoints.anthropic_base_url
    try:
        client = await asyncio.to_thread(open_client, settings.models, key, base_url, PATIENCE_S)
    except ProviderNotReady as error:
        raise Missing(str(error)) from None
    try:
        await client.messages.create(
            model=model, max_tokens=1, messages=[{"role": "user", "content": "Say: ok"}]
        )
    except FAULTS as error:
        where = urlsplit(str(client.base_url)).netloc
        raise Problem(_model_problem(error, role, settings.models, where)) from None
    finally:
        await client.close()
    return str(model)


def _model_problem(error: Exception, role: Role, models: Models, where: str) -> str:
    """Say what to do about an error of a model."""
    status = error.status_code if isinstance(error, anthropic.APIStatusError) else 0
    model, own = getattr(models, role), models.provider == "anthropic"
    name = "The model API" if own else NAMES[models.provider]
    if not own and (status == 401 or isinstance(error, NO_CREDENTIALS)):
        return f"{name} does not know the credentials ({error}): renew them."[:400]
    told = {
        401: f"{KEY} is not valid: {_AGAIN}",
        403: f"{KEY} may not use {model}: allow it there, or change models.{role}.",
        404: f"There is no model {model}: fix models.{role} in assistant.yaml.",
    }
    if not own:
        told[403] = f"The account may not use {model} on {name}: allow it there."
        fix = f"fix models.{role} or its region."
        told[404] = f"{name} has no model {model} in {models.region}: {fix}"
    if status in told:
        return told[status]
    if isinstance(error, UNFINISHED):
        check = ", ANTHROPIC_BASE_URL and models.base_url" if own else " and models.region"
        return f"{name} cannot be reached at {where}: check the network{check}."
    fault = fault_of(error)
    if fault.retry:
        return f"{name} takes no calls just now ({fault.reason}): try again in a minute."
    return f"{name} refused {model} ({fault.reason}): check `models` and your account there."
