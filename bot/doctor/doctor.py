"""Run `assistant doctor`: report problems of the setup, and what to do about them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import asdict, dataclass, replace
from email.utils import parsedate_to_datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

import aiohttp
from pydantic import SecretStr
from slack_sdk.errors import SlackApiError
from slack_sdk.oauth.installation_store import Installation

from bot.doctor import services
from bot.doctor.services import AGAIN, Missing, Problem, Unchecked
from bot.errors import StoreError
from bot.log import Redactor, secret_values
from bot.manifest import REDIRECT_PATH, Permission, bot_permissions, user_permissions
from bot.slack.installations import Installations
from bot.storage.database import Database
from bot.terminal import DONE, INCOMPLETE, WRONG_USE, dump, say
from config.settings import (
    Settings,
    SettingsError,
    check_common,
    for_team,
    load_settings,
    settings_file,
)
from scopes.programs import WorkerProcess
from scopes.slack_client import (
    Absent,
    SlackClient,
    SlackRefused,
    connect,
    lacks,
    open_session,
    scopes_in,
    web_client,
)

T = TypeVar("T")

LIMIT_S = 30.0
"""Seconds until a check is given up; its requests have shorter timeouts."""
MOST_SOCKETS = 10
"""Sockets that Slack allows an app (docs.slack.dev/apis/events-api/using-socket-mode)."""
MOST_CHANNELS = 10_000
"""Maximum channels searched: ten calls of a method that allows twenty per minute."""

BOT, APP, USER = "SLACK_BOT_TOKEN", "SLACK_APP_TOKEN", "SLACK_USER_TOKEN"
_REINSTALL = "reinstall the app and run `assistant setup`."
_TOKEN_FAULTS = {
    "invalid_auth": f"is not valid: {AGAIN}",
    "not_authed": f"is not valid: {AGAIN}",
    "not_allowed_token_type": f"holds a token of another kind: {AGAIN}",
    "account_inactive": f"belongs to an app or a person that was removed: {_REINSTALL}",
    "token_revoked": f"was revoked: {_REINSTALL}",
    "token_expired": f"has expired: turn token rotation off, {_REINSTALL}",
}
CONFINEMENT_TEXTS = {"calls": "start nothing and reach no network", "files": "change no file"}
"""What `scopes.confinement` makes the kernel enforce on our programs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check."""

    check: str
    state: services.State
    says: str


def diagnose(as_json: bool) -> int:
    """Run `assistant doctor`. Exit code 0 = all is well, 1 = a problem, 2 = not set up."""
    settings = load_settings()
    # a service may have quoted a secret
    secrets = Redactor(secret_values(settings.secrets))
    found = asyncio.run(examine(settings))
    verdicts = [replace(each, says=secrets.cut(each.says)) for each in found]
    states = {v.state for v in verdicts}
    if as_json:
        dump({"ok": not states & {"problem", "missing"}, "checks": [asdict(v) for v in verdicts]})
    for verdict in () if as_json else verdicts:
        mark = "ok: " if verdict.state == "ok" else ""
        say(f"{verdict.check:11} {mark}{verdict.says}")
    return WRONG_USE if "missing" in states else INCOMPLETE if "problem" in states else DONE


async def examine(settings: Settings) -> list[Verdict]:
    """Run all checks, concurrently if they do not depend on each other."""
    async with open_session(settings.slack) as session:
        others = asyncio.gather(
            _judge("settings", services.settings_agree(settings)),
            _judge("database", services.database(settings)),
            _judge("model main", services.model(settings, "main")),
            _judge("model fast", services.model(settings, "fast")),
            _judge("programs", programs()),
        )
        slack, rest = await asyncio.gather(SlackChecks(settings, session).examine(), others)
    checks = services.source_checks(settings)
    sources = await asyncio.gather(*(_judge(name, check) for name, check in checks))
    return [*slack, *rest, *sources]


async def programs() -> str:
    """Describe how this system confines our programs that read untrusted input."""
    program = WorkerProcess("scopes.confinement", LIMIT_S)
    try:
        enforced = (await program.ask(b"")).decode().split()
    finally:
        await program.aclose()
    text = ", ".join(CONFINEMENT_TEXTS[each] for each in enforced)
    return "those that read pages and files " + (text or "are not confined by this system")


async def _judge(name: str, check: Awaitable[str]) -> Verdict:
    try:
        async with asyncio.timeout(LIMIT_S):
            return Verdict(name, "ok", await check)
    except TimeoutError:
        text = f"No answer within {LIMIT_S:.0f} s: check the network, and try again."
        return Verdict(name, "problem", text)
    except Problem as problem:
        return Verdict(name, problem.state, str(problem))


# ---- calls to Slack


@dataclass(frozen=True, slots=True)
class Account:
    """The account of a token, with the other facts in Slack's answer."""

    team: str
    name: str
    bot: str
    """Id of the bot; empty for a person."""
    scopes: frozenset[str] | None
    """The granted scopes of the token; None = Slack did not return them."""
    ahead_s: float | None
    """Seconds by which this machine's clock is ahead of Slack's; None = not known."""

    def find_missing(self, needed: Sequence[Permission]) -> list[str]:
        """Return the needed scopes that it lacks; none if Slack did not return its scopes."""
        return [p.scope for p in needed if self.scopes is not None and p.scope not in self.scopes]


def slack_client(settings: Settings, session: aiohttp.ClientSession, token: str) -> SlackClient:
    """Return a client that tries once, because the doctor reports failures at once."""
    no_retries = settings.slack.model_copy(update={"retry_attempts": 0, "page_size": 999})
    return connect(session, token, settings.endpoints.slack_api_url, no_retries)


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


async def hello(client: SlackClient, session: aiohttp.ClientSession) -> int:
    """Connect one socket until Slack greets it; return the app's open sockets including it.

    An event that arrives at that moment is not acked, so Slack sends it again to another socket.
    """
    with _explain_errors(client, APP):
        address = str((await client.call("apps.connections.open"))["url"])
        async with asyncio.timeout(services.PATIENCE_S), session.ws_connect(address) as socket:
            message = await socket.receive()
        if message.type is not aiohttp.WSMsgType.TEXT:
            raise Problem("Slack closed the socket at once: try again in a minute.")
        greeting: Mapping[str, Any] = message.json()
    if greeting.get("type") != "hello":
        code = str(greeting.get("reason") or "no proper answer")
        raise Problem(_refusal(APP, "apps.connections.open", code, ""))
    return int(greeting.get("num_connections") or 1)


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
    text = lacks(scopes)
    return f"{text[0].upper()}{text[1:]}: add {it} under OAuth & Permissions and reinstall the app."


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


# ---- the app in Slack


SKEW_S = 60.0
"""Clock difference that is a problem; above 300 s Slack's signatures are refused."""
SECRET = "SLACK_CLIENT_SECRET"
NO_CODE = "a-code-of-nobody"
"""Slack refuses it only after it knows the client."""
_LOCAL = ("localhost", "127.0.0.1", "::1", "0.0.0.0")


def _require(found: T | None, check: str) -> T:
    """Return the result of another check; raise Unchecked if it failed."""
    if found is None:
        raise Unchecked(f"see {check}")
    return found


class SlackChecks:
    """Checks the app in Slack in sequence: some checks need the result of an earlier one."""

    def __init__(self, settings: Settings, session: aiohttp.ClientSession) -> None:
        self._settings, self._session = settings, session
        self._account: Account | None = None
        self._connections: int | None = None

    async def examine(self) -> list[Verdict]:
        settings = self._settings
        if settings.slack.client_id and settings.team:
            text = "not checked: `assistant doctor` without --team checks all installations"
            return [Verdict("install", "unchecked", text)]
        if settings.slack.client_id:
            return await self._check_installations()
        rows = {"token": self._token, "scopes": self._scopes}
        if settings.secrets.slack_user_token:
            rows |= {"user token": self._user_token}
        rows |= {"events": self._events}
        if settings.slack.mode == "socket":
            rows |= {"sockets": self._sockets}
        rows |= {"channels": self._channels, "clock": self._clock}
        return [await _judge(name, check()) for name, check in rows.items()]

    async def _check_installations(self) -> list[Verdict]:
        """Check an app that several workspaces install."""
        each: list[Installation] = []

        async def workspaces() -> str:
            each.extend(await find_installed(self._settings))
            if each:
                return f"{len(each)} installed the app"
            public = (self._settings.serve.public_url or "").rstrip("/")
            return f"none installed the app yet: open {public}/slack/install while `serve` runs"

        verdicts = [
            await _judge("install", check_client(self._settings)),
            await _judge("events", self._events()),
            await _judge("workspaces", workspaces()),
        ]
        checks = (_judge(_id_of(one), self._workspace(one, settings_file())) for one in each)
        return [*verdicts, *await asyncio.gather(*checks)]

    async def _workspace(self, each: Installation, path: Path | None) -> str:
        """Check one installation: its token, its permissions, its settings and its storage."""
        id = _id_of(each)
        client = slack_client(self._settings, self._session, str(each.bot_token))
        found = await account(client, f"The token of {id}")
        if absent := found.find_missing(bot_permissions(self._settings)):
            raise Problem(f"In {found.team} {lacks(absent)}: install it there again.")
        if each.is_enterprise_install:
            return f"the organization {found.team}; each of its workspaces has its own storage"
        try:
            own = for_team(self._settings, id, path)
        except SettingsError as error:
            raise Problem(str(error)) from None
        return f"@{found.name} in {found.team}; {await services.database(own)}"

    def _client(self, variable: str) -> SlackClient:
        secret: SecretStr | None = getattr(self._settings.secrets, variable.lower())
        if secret is None:
            raise Missing(f"{variable} is not set: run `assistant setup`.")
        return slack_client(self._settings, self._session, secret.get_secret_value())

    async def _token(self) -> str:
        self._account = found = await account(self._client(BOT), BOT)
        return f"@{found.name} in {found.team}"

    async def _scopes(self) -> str:
        needed = bot_permissions(self._settings)
        _hold(_require(self._account, "token"), needed)
        return f"all {len(needed)} that are needed"

    async def _user_token(self) -> str:
        found = await account(self._client(USER), USER)
        _hold(found, user_permissions(self._settings))
        return f"searches as {found.name}"

    async def _events(self) -> str:
        if self._settings.slack.mode == "http":
            if self._settings.secrets.slack_signing_secret is None:
                raise Missing("SLACK_SIGNING_SECRET is not set: run `assistant setup`.")
            return "the signing secret is set; Slack's page of the app verifies the request URL"
        self._connections = await hello(self._client(APP), self._session)
        return "a socket was greeted"

    async def _sockets(self) -> str:
        others = _require(self._connections, "events") - 1
        needed, most = self._settings.slack.sockets, MOST_SOCKETS
        if others + needed > most and others != needed:  # equal: `serve` is running
            raise Problem(
                f"{others} sockets are open and Slack allows {most}: stop another "
                "`assistant serve`, or lower slack.sockets."
            )
        return f"{others} open, {needed} wanted, {most} allowed"

    async def _channels(self) -> str:
        name = _require(self._account, "token").name
        listed = await channels(self._client(BOT))
        rules = self._settings.policy.channels
        allowed = [pattern for pattern, rule in rules.items() if rule.answer is not False]
        absent = [c for c in listed if not c.get("is_member") and _is_named(c, allowed)]
        if absent:
            names = ", ".join(f"#{c.get('name')}" for c in absent[:3])
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            raise Problem(f"The policy names {names}{more}: type /invite @{name} there.")
        count = sum(bool(c.get("is_member")) for c in listed)
        return f"in {count} of {len(listed)}" if count else f"in none: /invite @{name} in some"

    async def _clock(self) -> str:
        ahead = _require(self._account, "token").ahead_s
        if ahead is None:
            raise Unchecked("Slack's answer held no time")
        if abs(ahead) > SKEW_S:
            side = "ahead of" if ahead > 0 else "behind"
            raise Problem(
                f"This machine's clock is {abs(ahead):.0f} s {side} Slack's, and from 300 s on "
                "signatures are refused: set it right."
            )
        return "right to the minute"


def _hold(found: Account, needed: Sequence[Permission]) -> None:
    """Raise a Problem if a required scope was not granted."""
    if found.scopes is None:
        raise Unchecked("Slack did not say what the token was granted")
    if missing := found.find_missing(needed):
        raise Problem(explain_missing_scopes(missing))


def _is_named(channel: dict[str, Any], patterns: Sequence[str]) -> bool:
    """Return whether the policy has a rule for the channel, by its id or a pattern of its name."""
    name = str(channel.get("name"))
    return channel.get("id") in patterns or any(
        fnmatchcase(name, pattern.removeprefix("#")) for pattern in patterns
    )


async def check_client(settings: Settings) -> str:
    """Check the app's client, and the address to which Slack redirects browsers."""
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
    await know_client(settings, settings.secrets.slack_client_secret.get_secret_value())
    return f"the client is known, browsers come back to {public.rstrip('/')}{REDIRECT_PATH}"


async def know_client(settings: Settings, secret: str) -> None:
    """Request a token for an invalid code: Slack checks the client first."""
    web = web_client(
        settings.endpoints.slack_api_url, timeout=services.PATIENCE_S, retry_handlers=[]
    )
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


async def find_installed(settings: Settings) -> list[Installation]:
    """Return the installations. Raises Problem if the common database cannot be read."""
    try:
        async with aclosing(await Database.of(settings)) as database:
            return await Installations(database).all()
    except (StoreError, SettingsError) as error:
        raise Problem(str(error)) from None


def _id_of(each: Installation) -> str:
    """Return the id of the workspace, or of the organization, that installed the app."""
    return str(each.enterprise_id if each.is_enterprise_install else each.team_id)
