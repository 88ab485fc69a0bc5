"""Implement `assistant init`, `setup` and `connect`: settings, tested secrets, a mailbox."""

from __future__ import annotations

import asyncio
import hmac
import re
import secrets
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path

import typer
from dotenv import set_key
from pydantic import SecretStr
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from bot.cli.output import CommandContext, on_database
from bot.doctor import doctor, services
from bot.doctor.services import KEY as MODEL_KEY
from bot.doctor.services import Problem
from bot.errors import SetupError
from bot.mailbox.accounts import (
    OPERATOR,
    PERMISSIONS_PAGE,
    ConnectFailed,
    Credentials,
    disconnect,
    oauth_of,
    require_oauth,
)
from bot.manifest import bot_permissions, manifest, new_app_link
from bot.serving.web import serve_app
from bot.terminal import DONE, INCOMPLETE, dump, say, tell
from config.settings import Settings, load_settings
from scopes.slack_client import open_session

INITIAL = ("default.yaml", "env.example")
"""Files of `config` that are copied to a new folder, as comments."""
SETTINGS_HEADER = """\
# Settings of workspace-assistant. Every option is here with its default, commented out: uncomment
# what you change, together with the section above it. Secrets go into .env, never into this file.

"""
NEXT = """\
assistant.yaml and .env.example are written. Next:
  1. `assistant setup` creates the Slack app with you, asks for the secrets and writes .env
     (or copy .env.example to .env and fill it in).
  2. `assistant doctor` says what is missing.
  3. `assistant serve` runs the bot."""


def run_init() -> int:
    """Write both files into the working directory. Raises SetupError if one exists."""
    defaults, secrets = ((files("config") / n).read_text("utf-8") for n in INITIAL)
    options = defaults[defaults.index("\nmodels:") + 1 :].splitlines()  # without its own header
    settings = SETTINGS_HEADER + "".join(f"# {line}".rstrip() + "\n" for line in options)
    texts = {Path("assistant.yaml"): settings, Path(".env.example"): secrets}
    if existing := [str(path) for path in texts if path.exists()]:
        hint = "Move them away, or use another folder."
        raise SetupError("exists", f"{' and '.join(existing)}: already here.", hint)
    try:
        for path, text in texts.items():
            path.write_text(text, "utf-8")
    except OSError as error:
        why = str(error.strerror).lower()
        raise SetupError("file", f"{path} cannot be written: {why}.", "Fix that.") from error
    say(NEXT)
    return DONE


_UNQUOTED_VALUE = re.compile(r"[\w./:@%?=&+,~-]+")


def storable(value: str) -> bool:
    """Return whether a written value is read back unchanged."""
    return bool(value) and value.isprintable() and "${" not in value


def write_env(path: Path, values: Mapping[str, str]) -> None:
    """Set these variables in a file of mode 0600; other lines stay. Raises SetupError."""
    try:
        path.touch(mode=0o600)
        path.chmod(0o600)
        for name, value in values.items():  # Docker takes quotes literally
            set_key(path, name, value, "never" if _UNQUOTED_VALUE.fullmatch(value) else "always")
    except (OSError, UnicodeDecodeError) as error:
        why = str(error.strerror).lower() if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SetupError("env_file", f"{path} cannot be written: {why}.", "Fix that.") from error


ENV_FILE = Path(".env")
LIMIT_S = 20.0
"""Seconds until the test of one secret times out."""


@dataclass(frozen=True, slots=True)
class Step:
    """One secret: where to find it, its format, and how to test it."""

    variable: str
    where: str
    pattern: str
    looks: str
    test: Callable[[Settings, str], Awaitable[str]]
    """Returns what the secret gives access to, or raises a Problem."""
    optional: bool = False


async def _bot(settings: Settings, token: str) -> str:
    async with open_session(settings.slack) as session:
        client = doctor.slack_client(settings, session, token)
        found = await doctor.account(client, doctor.BOT)
    if not found.bot:
        raise Problem(f"That is {found.name}'s own token: copy the Bot User OAuth Token.")
    if missing := found.find_missing(bot_permissions(settings)):
        raise Problem(f"Reinstall the app, then copy its token: it lacks {', '.join(missing)}.")
    return f"@{found.name} in {found.team}"


async def _app(settings: Settings, token: str) -> str:
    async with open_session(settings.slack) as session:
        await doctor.hello(doctor.slack_client(settings, session, token), session)
    return "Slack greeted a socket"


async def _check_signing(settings: Settings, secret: str) -> str:
    return "noted; only an event from Slack can prove it"


async def _client(settings: Settings, secret: str) -> str:
    await doctor.know_client(settings, secret)
    return "it is that of slack.client_id"


async def _key(settings: Settings, key: str) -> str:
    return f"{await services.model_answers(settings, key, 'fast')} answers"


async def _database(settings: Settings, url: str) -> str:
    secrets = settings.secrets.model_copy(update={"database_url": SecretStr(url)})
    return await services.database(settings.model_copy(update={"secrets": secrets}))


BOT = Step(
    doctor.BOT,
    "On the app's page: Install App > Install to Workspace, then copy the Bot User OAuth Token.",
    r"xoxb-\S+",
    "the bot token begins with xoxb-",
    _bot,
)
APP = Step(
    doctor.APP,
    "Basic Information > App-Level Tokens > Generate, with the scope connections:write.",
    r"xapp-\S+",
    "the app-level token begins with xapp-",
    _app,
)
SIGNING_SECRET_STEP = Step(
    "SLACK_SIGNING_SECRET",
    "Basic Information > App Credentials: copy the Signing Secret.",
    r"[0-9a-f]{32}",
    "the signing secret has 32 characters, 0-9 and a-f",
    _check_signing,
)
CLIENT = Step(
    "SLACK_CLIENT_SECRET",
    "Basic Information > App Credentials: copy the Client Secret.",
    r"[0-9a-f]{32}",
    "the client secret has 32 characters, 0-9 and a-f",
    _client,
)
KEY = Step(
    MODEL_KEY,
    "On console.anthropic.com: API keys > Create key.",
    r"sk-ant-\S+",
    "the key begins with sk-ant-",
    _key,
)
OTHER_KEY = Step(
    MODEL_KEY, "What your own model server asks for.", r"\S+", "it has no spaces", _key, True
)
BEDROCK_KEY = Step(
    "AWS_BEARER_TOKEN_BEDROCK",
    "An API key of Amazon Bedrock, where the process has no AWS credentials.",
    r"\S+",
    "it has no spaces",
    _key,
    True,
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
    """Return the secrets that these settings need, in the order of the questions."""
    events = APP if settings.slack.mode == "socket" else SIGNING_SECRET_STEP
    key = OTHER_KEY if settings.endpoints.anthropic_base_url else KEY
    provider_key = BEDROCK_KEY if settings.models.provider == "bedrock" else key
    keys = [] if settings.models.provider == "vertex" else [provider_key]
    slack = CLIENT if settings.slack.client_id else BOT  # each installation brings its own token
    return [slack, events, *keys, DATABASE]


def run_setup(url: str | None) -> int:
    """Run `assistant setup`. Existing values are kept until every secret has been tested."""
    settings = load_settings()
    try:
        values = _ask_all(settings, new_app_link(manifest(settings, url)))
    except (typer.Abort, KeyboardInterrupt):
        raise SetupError("stopped", "Stopped.", "Nothing was written.") from None
    write_env(ENV_FILE, values)
    say(f"{ENV_FILE} is written, for your account only. Next: `assistant doctor`.")
    return DONE


def _ask_all(settings: Settings, link: str) -> dict[str, str]:
    say(f"Open this link, choose your workspace and create the app:\n\n{link}\n")
    values = {}
    for step in steps(settings):
        say(step.where + (" Leave it empty to go without." if step.optional else ""))
        if value := _ask(settings, step):
            values[step.variable] = value
    return values


def _ask(settings: Settings, step: Step) -> str:
    """Return a working secret; an empty string if it is optional and not given."""
    value = _current(settings, step)
    if value and not typer.confirm(f"{step.variable} is set already. Keep it?", default=True):
        value = ""
    while True:
        # without a default, typer repeats the prompt after an empty line
        default = "" if step.optional else None
        value = (
            value
            or str(
                typer.prompt(step.variable, default=default, hide_input=True, show_default=False)
            ).strip()
        )
        if not value:
            return ""
        try:
            say(f"  ok: {_try_secret(settings, step, value)}")
            return value
        except SetupError as error:
            tell(f"  {error.message} Try again.")
            value = ""


def _current(settings: Settings, step: Step) -> str:
    secret: SecretStr | None = getattr(settings.secrets, step.variable.lower())
    return secret.get_secret_value() if secret else ""


def _try_secret(settings: Settings, step: Step, value: str) -> str:
    """Test a secret; return what it gives access to. Raises SetupError without showing it."""

    async def go() -> str:
        async with asyncio.timeout(LIMIT_S):
            return await step.test(settings, value)

    try:
        if not re.fullmatch(step.pattern, value) or not storable(value):
            raise Problem(f"This cannot be {step.variable}: {step.looks}.")
        return asyncio.run(go()).replace(value, "***")
    except Problem as error:
        raise SetupError("refused", str(error).replace(value, "***"), "") from None
    except TimeoutError:
        raise SetupError("refused", "There was no answer: check the network.", "") from None


BACK_PATH = "/google/callback"
WAIT_S = 600.0
"""Seconds to wait for the user to come back from Google."""
CLOSE_PAGE_MESSAGE = "You may close this page, and go back to the terminal."
FOREIGN_PAGE_MESSAGE = "This is not the page that the terminal has named."


@on_database
async def run_connect(context: CommandContext, port: int) -> None:
    """Connect a mailbox and print its address."""
    address = await _connect(context.settings, Credentials(context.database), port)
    context.show({"account": OPERATOR, "address": address}, f"Connected: {address}.")


@on_database
async def run_disconnect(context: CommandContext) -> int:
    """Delete the tokens, and revoke them at Google."""
    account = await disconnect(Credentials(context.database), oauth_of(context.settings), OPERATOR)
    if account is None:
        text = "No mailbox is connected here."
    elif account.shared:
        text = f"Disconnected: {account.address}. Somebody else here has connected it, too, so "
        text += "what\nGoogle granted stays."
    else:
        text = f"Disconnected: {account.address}. Google has revoked its tokens."
    revoked = bool(account and not account.fault and not account.shared)
    found = {"account": OPERATOR, "address": account and account.address, "revoked": revoked}
    if account is None or not account.fault:
        context.show(found, text)
        return DONE
    if context.as_json:
        dump(found)
    tell(f"The tokens of {account.address} are deleted here, but Google did not confirm it.")
    tell(f"{account.fault} Remove the assistant yourself at {PERMISSIONS_PAGE}.")
    return INCOMPLETE


async def _connect(settings: Settings, store: Credentials, port: int) -> str:
    """Take the operator to Google and back; return the mailbox that is now stored."""
    oauth = require_oauth(settings)
    state, verifier = secrets.token_urlsafe(32), secrets.token_urlsafe(48)
    code: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def come_back(request: Request) -> Response:
        """Take the answer to our request; the first one ends the waiting."""
        given = request.query_params
        is_ours = hmac.compare_digest(given.get("state", "").encode(), state.encode())
        if is_ours and not code.done():
            if given.get("code"):
                code.set_result(given["code"])
            else:
                code.set_exception(ConnectFailed(given.get("error", "")))
        headers = {"cache-control": "no-store", "referrer-policy": "no-referrer"}
        text = CLOSE_PAGE_MESSAGE if is_ours else FOREIGN_PAGE_MESSAGE
        return PlainTextResponse(text, 200 if is_ours else 400, headers)

    app = Starlette(routes=[Route(BACK_PATH, come_back)])
    try:
        async with serve_app(app, "127.0.0.1", port, "Give --port another one.") as here:
            back = here + BACK_PATH
            page = oauth.address_to_open(back, state, verifier)
            tell(f"Open this page, and allow it:\n\n{page}\n")
            await _wait_for(code)
        tokens = await oauth.exchange(back, code.result(), verifier)
    except ConnectFailed as error:
        raise SetupError("connect", str(error), "") from None
    address = tokens.address
    if before := await store.address(OPERATOR):
        same = before == address
        tell("It was connected before." if same else f"It takes the place of {before}.")
    await store.put(OPERATOR, tokens)
    return address


async def _wait_for(code: asyncio.Future[str]) -> None:
    """Wait for the code. Raises ConnectFailed, or SetupError if nobody comes back."""
    try:
        async with asyncio.timeout(WAIT_S):
            await code
    except TimeoutError:
        why = f"Nobody came back from Google within {WAIT_S / 60:.0f} minutes."
        raise SetupError("connect", why, "Start again.") from None
