"""`assistant setup`: asks for the secrets one by one, tries each at once, and writes `.env`."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

import typer
from pydantic import SecretStr

from bot.checks import checks, host_checks
from bot.checks.checks import Problem
from bot.cli.envfile import check_place, storable, write_env
from bot.cli.outcome import DONE, guarded, say, tell
from bot.errors import SetupError
from bot.manifest import bot_permissions, manifest, new_app_link
from config.settings import Settings, load_settings
from scopes.slack_client import open_session

ENV_FILE = Path(".env")
LIMIT_S = 20.0
"""Seconds until the trial of one secret is given up."""


@dataclass(frozen=True, slots=True)
class Step:
    """One secret: where it is found, what it looks like, how it is tried."""

    variable: str
    where: str
    pattern: str
    looks: str
    tried: Callable[[Settings, str], Awaitable[str]]
    """Says what the secret is good for, or raises a Problem."""
    optional: bool = False


async def _bot(settings: Settings, token: str) -> str:
    async with open_session(settings.slack) as session:
        found = await checks.account(checks.slack(settings, session, token), checks.BOT)
    if not found.bot:
        raise Problem(f"That is {found.name}'s own token: copy the Bot User OAuth Token.")
    needed = [p.scope for p in bot_permissions(settings)]
    if missing := [s for s in needed if found.scopes is not None and s not in found.scopes]:
        raise Problem(f"Reinstall the app, then copy its token: it lacks {', '.join(missing)}.")
    return f"@{found.name} in {found.team}"


async def _app(settings: Settings, token: str) -> str:
    async with open_session(settings.slack) as session:
        await checks.hello(checks.slack(settings, session, token), session)
    return "Slack greeted a socket"


async def _signing(settings: Settings, secret: str) -> str:
    return "noted; only an event from Slack can prove it"


async def _key(settings: Settings, key: str) -> str:
    return f"{await checks.model_answers(settings, key, 'fast')} answers"


async def _database(settings: Settings, url: str) -> str:
    secrets = settings.secrets.model_copy(update={"database_url": SecretStr(url)})
    return await host_checks.database(settings.model_copy(update={"secrets": secrets}))


BOT = Step(
    checks.BOT,
    "On the app's page: Install App > Install to Workspace, then copy the Bot User OAuth Token.",
    r"xoxb-\S+",
    "the bot token begins with xoxb-",
    _bot,
)
APP = Step(
    checks.APP,
    "Basic Information > App-Level Tokens > Generate, with the scope connections:write.",
    r"xapp-\S+",
    "the app-level token begins with xapp-",
    _app,
)
SIGNING = Step(
    "SLACK_SIGNING_SECRET",
    "Basic Information > App Credentials: copy the Signing Secret.",
    r"[0-9a-f]{32}",
    "the signing secret has 32 characters, 0-9 and a-f",
    _signing,
)
KEY = Step(
    checks.KEY,
    "On console.anthropic.com: API keys > Create key.",
    r"sk-ant-\S+",
    "the key begins with sk-ant-",
    _key,
)
OTHER_KEY = Step(
    checks.KEY, "What your own model server asks for.", r"\S+", "it has no spaces", _key, True
)
DATABASE = Step(
    "DATABASE_URL",
    "Only where several replicas are to serve: the address of a Postgres database.",
    r"postgres(ql)?(\+\w+)?://\S+",
    "the address is written postgresql://user:password@host/database",
    _database,
    True,
)


def steps(settings: Settings) -> list[Step]:
    """What these settings need, in the order in which it is asked for."""
    hears = APP if settings.slack.mode == "socket" else SIGNING
    key = OTHER_KEY if settings.endpoints.anthropic_base_url else KEY
    return [BOT, hears, key, DATABASE]


def run_setup(from_env: bool, url: str | None) -> int:
    """`assistant setup`. What was there is kept until every secret has been tried."""

    def run() -> int:
        warning = check_place(ENV_FILE)
        settings = load_settings()
        link = new_app_link(manifest(settings, url))
        try:
            values = _given(settings) if from_env else _asked(settings, link)
        except (typer.Abort, KeyboardInterrupt):
            raise SetupError("stopped", "Stopped.", "Nothing was written.") from None
        write_env(ENV_FILE, values)
        say(f"{ENV_FILE} is written, for your account only. Next: `assistant doctor`.")
        if warning:
            tell(f"warning: {warning}")
        return DONE

    return guarded(run, False)


def _given(settings: Settings) -> dict[str, str]:
    """The secrets that the environment or `.env` holds already, each tried."""
    values = {}
    for step in steps(settings):
        value = _current(settings, step)
        if value:
            say(f"{step.variable}: {_tried(settings, step, value)}")
            values[step.variable] = value
        elif not step.optional:
            raise SetupError("not_set", f"{step.variable} is not set.", step.where)
    return values


def _asked(settings: Settings, link: str) -> dict[str, str]:
    say(f"Open this link, choose your workspace and create the app:\n\n{link}\n")
    values = {}
    for step in steps(settings):
        say(step.where + (" Leave it empty to go without." if step.optional else ""))
        if value := _ask(settings, step):
            values[step.variable] = value
    return values


def _ask(settings: Settings, step: Step) -> str:
    """A secret that works, or nothing for one that may be left out."""
    value = _current(settings, step)
    if value and not typer.confirm(f"{step.variable} is set already. Keep it?", default=True):
        value = ""
    while True:
        value = value or _typed(step)
        if not value:
            return ""
        try:
            say(f"  ok: {_tried(settings, step, value)}")
            return value
        except SetupError as error:
            tell(f"  {error.message} Try again.")
            value = ""


def _typed(step: Step) -> str:
    default = "" if step.optional else None  # without a default an empty line is asked for again
    typed = typer.prompt(step.variable, default=default, hide_input=True, show_default=False)
    return str(typed).strip()


def _current(settings: Settings, step: Step) -> str:
    secret: SecretStr | None = getattr(settings.secrets, step.variable.lower())
    return secret.get_secret_value() if secret else ""


def _tried(settings: Settings, step: Step, value: str) -> str:
    """What the secret is good for. Raises SetupError with a sentence that does not show it."""

    async def go() -> str:
        async with asyncio.timeout(LIMIT_S):
            return await step.tried(settings, value)

    try:
        if not re.fullmatch(step.pattern, value) or not storable(value):
            raise Problem(f"This cannot be {step.variable}: {step.looks}.")
        return asyncio.run(go()).replace(value, "***")
    except Problem as error:
        raise SetupError("refused", str(error).replace(value, "***"), "") from None
    except TimeoutError:
        raise SetupError("refused", "There was no answer: check the network.", "") from None
