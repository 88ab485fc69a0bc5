"""Run `assistant doctor`: report what keeps the bot from working, and what to do about it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from contextlib import aclosing
from dataclasses import asdict, dataclass, replace
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any, Literal, TypeVar
from urllib.parse import urlsplit

import aiohttp
from pydantic import SecretStr
from slack_sdk.errors import SlackApiError

from bot.doctor import services, slack
from bot.doctor.slack import Account, Hello, Missing, Problem
from bot.errors import StoreError
from bot.log import Redactor, secret_values
from bot.manifest import REDIRECT_PATH, Permission, bot_permissions, user_permissions
from bot.slack.installations import Installations
from bot.storage.database import Database
from bot.terminal import DONE, INCOMPLETE, WRONG_USE, dump, errors_reported, say
from config.settings import (
    Settings,
    SettingsError,
    check_common,
    for_team,
    load_settings,
    settings_file,
)
from scopes.programs import WorkerProcess
from scopes.slack_client import SlackClient, lacks, open_session, web_client

T = TypeVar("T")
State = Literal["ok", "problem", "missing", "unchecked"]

LIMIT_S = 30.0
"""Seconds until a check is given up; its requests have shorter timeouts."""
SKEW_S = 60.0
"""Clock difference that is a problem; from 300 s on Slack's signatures are refused."""
FEW = 15
"""Messages for each call that a distributed app gets (docs.slack.dev/apis/web-api/rate-limits)."""

HELD = {"calls": "start nothing and reach no network", "files": "change no file"}
"""What `scopes.confinement` makes the kernel enforce on our programs."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one check."""

    check: str
    state: State
    says: str


class Unchecked(Exception):
    """A check that could not be made, with the reason."""


def diagnose(as_json: bool) -> int:
    """Run `assistant doctor`. Exit code 0 = all is well, 1 = a problem, 2 = not set up."""
    with errors_reported(as_json):
        settings = load_settings()
        # a service may have quoted a secret
        secrets = Redactor(secret_values(settings.secrets))
        found = asyncio.run(examine(settings))
        verdicts = [replace(each, says=secrets.cut(each.says)) for each in found]
        states = {v.state for v in verdicts}
        if as_json:
            dump(
                {"ok": not states & {"problem", "missing"}, "checks": [asdict(v) for v in verdicts]}
            )
        for verdict in () if as_json else verdicts:
            mark = "ok: " if verdict.state == "ok" else ""
            say(f"{verdict.check:11} {mark}{verdict.says}")
        return WRONG_USE if "missing" in states else INCOMPLETE if "problem" in states else DONE


async def examine(settings: Settings) -> list[Verdict]:
    """Run all checks, concurrently if they do not depend on each other."""
    key = await _judge("key", services.key(settings))  # the check of the database needs the key
    async with open_session(settings.slack) as session:
        others = asyncio.gather(
            _judge("settings", services.settings_agree(settings)),
            _judge("database", services.database(settings)),
            _judge("model main", services.model(settings, "main")),
            _judge("model fast", services.model(settings, "fast")),
            _judge("programs", programs()),
            *(_judge("google", check) for check in services.google_checks(settings)),
        )
        if not settings.slack.client_id:
            asked = SlackChecks(settings, session).examine()
        elif settings.team:
            asked = _of_all()
        else:
            asked = check_installed(settings, session)
        slack, rest = await asyncio.gather(asked, others)
    schedules = await _judge("schedules", services.schedules(settings))  # after the database
    wanted = services.source_checks(settings)
    sources = await asyncio.gather(*(_judge(name, check) for name, check in wanted))
    return [*slack, key, *rest, *([schedules] if schedules.says else []), *sources]


async def _of_all() -> list[Verdict]:
    said = "not checked: `assistant doctor` without --team checks all installations"
    return [Verdict("install", "unchecked", said)]


async def programs() -> str:
    """Describe how this system confines our programs that read untrusted input."""
    program = WorkerProcess("scopes.confinement", LIMIT_S)
    try:
        held = (await program.ask(b"")).decode().split()
    finally:
        await program.aclose()
    said = ", ".join(HELD[each] for each in held)
    return "those that read pages and files " + (said or "are not confined by this system")


async def _judge(name: str, check: Awaitable[str]) -> Verdict:
    try:
        async with asyncio.timeout(LIMIT_S):
            return Verdict(name, "ok", await check)
    except TimeoutError:
        said = f"No answer within {LIMIT_S:.0f} s: check the network, and try again."
        return Verdict(name, "problem", said)
    except Unchecked as error:
        return Verdict(name, "unchecked", f"not checked: {error}")
    except Problem as error:
        return Verdict(name, "missing" if isinstance(error, Missing) else "problem", str(error))


def _seen(found: T | None, check: str) -> T:
    """Return what another check has found; raise Unchecked if it failed."""
    if found is None:
        raise Unchecked(f"see {check}")
    return found


async def check_installed(settings: Settings, session: aiohttp.ClientSession) -> list[Verdict]:
    """Check an app that several workspaces install."""
    each: list[Installed] = []

    async def workspaces() -> str:
        each.extend(await find_installed(settings))
        if each:
            return f"{len(each)} installed the app"
        public = (settings.serve.public_url or "").rstrip("/")
        return f"none installed the app yet: open {public}/slack/install while `serve` runs"

    verdicts = [
        await _judge("install", check_client(settings)),
        await _judge("events", _events(settings, session)),
        await _judge("workspaces", workspaces()),
    ]
    own = (check_workspace(settings, settings_file(), session, one) for one in each)
    judged = (_judge(one.id, check) for one, check in zip(each, own, strict=True))
    return [*verdicts, *await asyncio.gather(*judged)]


async def _events(settings: Settings, session: aiohttp.ClientSession) -> str:
    if settings.slack.mode == "http":
        return await signing(settings)
    if settings.secrets.slack_app_token is None:
        raise Missing(f"{slack.APP} is not set: run `assistant setup`.")
    token = settings.secrets.slack_app_token.get_secret_value()
    await slack.hello(slack.slack(settings, session, token), session)
    return "a socket was greeted"


async def signing(settings: Settings) -> str:
    if settings.secrets.slack_signing_secret is None:
        raise Missing("SLACK_SIGNING_SECRET is not set: run `assistant setup`.")
    return "the signing secret is set; Slack's page of the app verifies the request URL"


class SlackChecks:
    """Checks the app in Slack, one after the other: some need what an earlier one has found."""

    def __init__(self, settings: Settings, session: aiohttp.ClientSession) -> None:
        self._settings, self._session = settings, session
        self._account: Account | None = None
        self._hello: Hello | None = None
        self._listed: list[dict[str, Any]] | None = None

    async def examine(self) -> list[Verdict]:
        rows = {"token": self._token, "scopes": self._scopes}
        if self._settings.secrets.slack_user_token:
            rows |= {"user token": self._user_token}
        if self._settings.slack.mode == "socket":
            rows |= {"events": self._events, "sockets": self._sockets}
        else:
            rows |= {"events": partial(signing, self._settings)}
        rows |= {"channels": self._channels, "clock": self._clock, "rates": self._rates}
        return [await _judge(name, check()) for name, check in rows.items()]

    def _client(self, variable: str) -> SlackClient:
        secret: SecretStr | None = getattr(self._settings.secrets, variable.lower())
        if secret is None:
            raise Missing(f"{variable} is not set: run `assistant setup`.")
        return slack.slack(self._settings, self._session, secret.get_secret_value())

    async def _token(self) -> str:
        self._account = account = await slack.account(self._client(slack.BOT), slack.BOT)
        return f"@{account.name} in {account.team}"

    async def _scopes(self) -> str:
        needed = bot_permissions(self._settings)
        _hold(_seen(self._account, "token").scopes, needed)
        return f"all {len(needed)} that are needed"

    async def _user_token(self) -> str:
        account = await slack.account(self._client(slack.USER), slack.USER)
        _hold(account.scopes, user_permissions(self._settings))
        return f"searches as {account.name}"

    async def _events(self) -> str:
        self._hello = greeting = await slack.hello(self._client(slack.APP), self._session)
        account = _seen(self._account, "token")
        app = await slack.app_of_bot(self._client(slack.BOT), account.bot)
        if app and greeting.app and app != greeting.app:
            raise Problem(
                f"{slack.APP} is of the app {greeting.app}, {slack.BOT} of {app}: "
                "run `assistant setup` with the tokens of one app."
            )
        return "a socket was greeted"

    async def _sockets(self) -> str:
        others = _seen(self._hello, "events").connections - 1
        wanted, most = self._settings.slack.sockets, slack.MOST_SOCKETS
        if others + wanted > most and others != wanted:  # as many as wanted: `serve` is running
            raise Problem(
                f"{others} sockets are open and Slack allows {most}: stop another "
                "`assistant serve`, or lower slack.sockets."
            )
        return f"{others} open, {wanted} wanted, {most} allowed"

    async def _channels(self) -> str:
        name = _seen(self._account, "token").name
        self._listed = listed = await slack.channels(self._client(slack.BOT))
        rules = self._settings.policy.channels
        asked = [pattern for pattern, rule in rules.items() if rule.answer is not False]
        absent = [c for c in listed if not c.get("is_member") and _is_named(c, asked)]
        if absent:
            names = ", ".join(f"#{c.get('name')}" for c in absent[:3])
            more = f" and {len(absent) - 3} more" if len(absent) > 3 else ""
            raise Problem(f"The policy names {names}{more}: type /invite @{name} there.")
        joined = sum(bool(c.get("is_member")) for c in listed)
        return f"in {joined} of {len(listed)}" if joined else f"in none: /invite @{name} in some"

    async def _clock(self) -> str:
        ahead = _seen(self._account, "token").ahead_s
        if ahead is None:
            raise Unchecked("Slack's answer held no time")
        if abs(ahead) > SKEW_S:
            way = "ahead of" if ahead > 0 else "behind"
            raise Problem(
                f"This machine's clock is {abs(ahead):.0f} s {way} Slack's, and from 300 s on "
                "signatures are refused: set it right."
            )
        return "right to the minute"

    async def _rates(self) -> str:
        """Compare slack.app_distribution with the real size of one page of messages."""
        said = self._settings.slack.app_distribution
        listed = _seen(self._listed, "channels")
        joined = [str(c.get("id")) for c in listed if c.get("is_member")]
        # a distributed app has one call a minute
        for channel in joined[: 1 if said == "distributed" else 3]:
            count, more = await slack.messages(self._client(slack.BOT), channel, FEW + 5)
            if more:
                break
        else:
            raise Unchecked(f"no channel with more than {FEW} messages was met")
        measured = "distributed" if count <= FEW else "internal"
        if measured != said:
            raise Problem(
                f"Slack gives {count} messages a call, as to an app that is {measured}: "
                f"set slack.app_distribution to {measured}."
            )
        return f"as of an app that is {said}"


def _hold(granted: frozenset[str] | None, needed: Sequence[Permission]) -> None:
    """Raise a Problem if a required scope was not granted."""
    if granted is None:
        raise Unchecked("Slack did not say what the token was granted")
    if missing := [p.scope for p in needed if p.scope not in granted]:
        raise Problem(slack.explain_missing_scopes(missing))


def _is_named(channel: dict[str, Any], patterns: Sequence[str]) -> bool:
    """Return whether the policy has a rule for the channel, by its id or a pattern of its name."""
    name = str(channel.get("name"))
    return channel.get("id") in patterns or any(
        fnmatchcase(name, pattern.removeprefix("#")) for pattern in patterns
    )


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


async def check_client(settings: Settings) -> str:
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
    await know_client(settings, settings.secrets.slack_client_secret.get_secret_value())
    return f"the client is known, browsers come back to {public.rstrip('/')}{REDIRECT_PATH}"


async def know_client(settings: Settings, secret: str) -> None:
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


async def find_installed(settings: Settings) -> list[Installed]:
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


async def check_workspace(
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
