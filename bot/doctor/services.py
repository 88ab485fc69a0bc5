"""Check the model, Google, the stored state, and the sources that the settings name."""

from __future__ import annotations

import asyncio
import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Literal, TypeVar
from urllib.parse import urlsplit

import anthropic
import sqlalchemy as sa
from pydantic import BaseModel

from bot.errors import SetupError, StoreError
from bot.mailbox.accounts import ConnectFailed, Credentials, oauth_of
from bot.options import Options
from bot.policy.policy import unknown_scope
from bot.storage.database import LOCK, Database
from bot.tooling.data import DataTools, missing_credentials
from bot.tooling.provider import ToolProvider
from bot.tooling.web import WebTools
from config.sections import Models, ProjectSettings
from config.settings import Settings, SettingsError
from scopes import scope_names
from scopes.databases import tables
from scopes.databases.tables import DATABASE_PREFIX
from scopes.effects import SHEET
from scopes.folders.commands import PATH
from scopes.google.errors import GoogleError
from scopes.google.spreadsheet import Spreadsheet
from scopes.tool import SourceFailed, ToolError
from subagents.model import CALL_ERRORS, INTERRUPTION_ERRORS, fault_of
from subagents.providers import NAMES, NO_CREDENTIALS, ProviderNotReady, open_client

K = TypeVar("K", bound=ToolProvider)
T = TypeVar("T")
Role = Literal["main", "fast"]
State = Literal["ok", "problem", "missing", "unchecked"]

PATIENCE_S = 10.0
"""Seconds until a request is given up."""
KEY = "ANTHROPIC_API_KEY"
AGAIN = "copy it again with `assistant setup`."


class Problem(Exception):
    """A problem that keeps the bot from working: one sentence that ends with what to do."""

    state: State = "problem"


class Missing(Problem):
    """A part that has not been set up at all."""

    state = "missing"


class Unchecked(Problem):
    """A check that could not be completed, with the reason."""

    state = "unchecked"

    def __str__(self) -> str:
        return f"not checked: {super().__str__()}"


async def _google(settings: Settings) -> str:
    """Check whether mailboxes can be opened, and how many are connected."""
    google, found, file = settings.google, [], settings.google.service_account
    if google.client_id or settings.secrets.google_client_secret:
        found.append(await _client(settings))
    if file:
        found.append(await asyncio.to_thread(_service_account, Path(file)))
    with suppress(StoreError, SettingsError):  # the check of the database reports it
        async with aclosing(await Database.of(settings)) as db:
            found.append(f"{len(await Credentials(db).accounts())} connected")
    return "; ".join(found)


async def _client(settings: Settings) -> str:
    oauth = oauth_of(settings)
    if oauth is None:
        absent = "GOOGLE_CLIENT_SECRET" if settings.google.client_id else "google.client_id"
        raise Missing(f"{absent} is not set: see docs/google.md.")
    try:
        await oauth.check()
    except ConnectFailed as error:
        raise Problem(str(error)) from None
    if settings.serve.public_url is None:
        return "the client is known; App Home offers nothing while serve.public_url is not set"
    return f"the client is known, comes back to {settings.serve.public_url}"


class KeyFile(BaseModel):
    """The checked fields of the key file of a service account."""

    type: Literal["service_account"]
    client_email: str


def _service_account(file: Path) -> str:
    """Check the service account. Only opening a mailbox shows whether it may impersonate users."""
    try:
        text = file.read_text("utf-8")
        name = KeyFile.model_validate_json(text).client_email
    except OSError as error:
        why = (error.strerror or str(error)).lower()
        raise Problem(f"{file} cannot be read ({why}): fix google.service_account.") from None
    except ValueError:
        name = ""
    if not name:
        raise Problem(f"{file} is no key file of a service account: fix google.service_account.")
    return f"service account {name}"


MIN_FREE = 100 * 1024 * 1024
"""Bytes of free disk below which the state of requests is at risk."""


async def settings_agree(settings: Settings) -> str:
    """Check for values that are valid one by one but conflict."""
    if unknown := unknown_scope(settings.policy):
        name, names = unknown[1], ", ".join(scope_names())
        raise Problem(f"There is no scope {name}: fix it in `policy`; there are {names}.")
    return f"valid, state in {settings.data_dir}"


async def model(settings: Settings, role: Role) -> str:
    key, own = settings.model_key, settings.models.provider == "anthropic"
    if own and key is None and settings.endpoints.anthropic_base_url is None:
        raise Missing(f"{KEY} is not set: run `assistant setup`.")
    where = "" if own else f" on {NAMES[settings.models.provider]}"
    return f"{await model_answers(settings, key, role)} answers{where}"


async def model_answers(settings: Settings, key: str | None, role: Role) -> str:
    """Ask a model for one token; return the model's id."""
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
    except CALL_ERRORS as error:
        where = urlsplit(str(client.base_url)).netloc
        raise Problem(_model_problem(error, role, settings.models, where)) from None
    finally:
        await client.close()
    return str(model)


def _model_problem(error: Exception, role: Role, models: Models, where: str) -> str:
    """Return the sentence about an error of a model, with what to do."""
    status = error.status_code if isinstance(error, anthropic.APIStatusError) else 0
    model, own = getattr(models, role), models.provider == "anthropic"
    name = "The model API" if own else NAMES[models.provider]
    if not own and (status == 401 or isinstance(error, NO_CREDENTIALS)):
        return f"{name} does not know the credentials ({error}): renew them."[:400]
    text_by_status = {
        401: f"{KEY} is not valid: {AGAIN}",
        403: f"{KEY} may not use {model}: allow it there, or change models.{role}.",
        404: f"There is no model {model}: fix models.{role} in assistant.yaml.",
    }
    if not own:
        text_by_status[403] = f"The account may not use {model} on {name}: allow it there."
        fix = f"fix models.{role} or its region."
        text_by_status[404] = f"{name} has no model {model} in {models.region}: {fix}"
    if status in text_by_status:
        return text_by_status[status]
    if isinstance(error, INTERRUPTION_ERRORS):
        check = ", ANTHROPIC_BASE_URL and models.base_url" if own else " and models.region"
        return f"{name} cannot be reached at {where}: check the network{check}."
    fault = fault_of(error)
    if fault.retry:
        return f"{name} takes no calls just now ({fault.reason}): try again in a minute."
    return f"{name} refused {model} ({fault.reason}): check `models` and your account there."


async def database(settings: Settings) -> str:
    """Check whether the state can be stored; create or update the tables, as every command does."""
    try:
        async with aclosing(await Database.of(settings)) as db:
            if not settings.database_url:
                return await _file(db, settings.data_dir)
            query = sa.select(sa.func.current_setting("server_version").label("version"))
            (row,) = await db.read(query)
            return f"Postgres {row.version}, {db.where}"
    except (StoreError, SettingsError) as error:
        raise Problem(str(error)) from None
    except sa.exc.ProgrammingError as error:
        message = str(error.orig).strip().splitlines()[0]
        hint = "GRANT CREATE ON DATABASE to the account of DATABASE_URL."
        raise Problem(f"Postgres refuses: {message}. {hint}") from None


async def _file(db: Database, folder: Path) -> str:
    def write(connection: sa.Connection) -> None:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar()
        connection.exec_driver_sql(f"PRAGMA user_version = {version}")

    free = shutil.disk_usage(folder).free
    if free < MIN_FREE:
        raise Problem(
            f"The disk of {folder} is nearly full ({free // 2**20} MB free, {MIN_FREE // 2**20} MB "
            "needed): free some, or set data_dir to another disk."
        )
    await db.change(write)
    running = find_server(folder)
    holder = "no `serve` is running" if running is None else f"`serve` is running (pid {running})"
    return f"SQLite in {folder}, {free // 2**30} GB free; {holder}"


def find_server(folder: Path) -> str | None:
    """Return the process id of the `serve` that owns this folder's state; None = there is none."""
    try:
        lock = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(lock, 32).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(lock)
    return None


OPERATOR = Options(model="claude")
"""Sources are opened as `ask` opens them, including the operator's own token."""
READ_S = 25.0
"""Seconds for a database, which may be a folder of files."""
ASK_S = 15.0
"""Seconds in which one source must answer, less than for the whole check."""
NOT_READ = "not readable: "
"""Prefix of `duck_program`'s note on a listed file that is not a table."""
NO_READERS_MESSAGE = "nobody in Slack may read it: name readers"


def source_checks(settings: Settings) -> Iterator[tuple[str, Awaitable[str]]]:
    """Yield name and check of each kind of source that is configured."""
    google = settings.google
    if google.client_id or google.service_account or settings.secrets.google_client_secret:
        yield "google", _google(settings)
    if settings.data.databases:
        yield "databases", _databases(settings)
    if settings.data.sheets:
        yield "sheets", _sheets(settings)
    if settings.files.projects or settings.files.sandbox:
        yield "files", _files(settings)
    if settings.web.search:
        yield "web", _web(settings)
    if settings.mcp.servers:
        yield "mcp", _mcp(settings)


async def _databases(settings: Settings) -> str:
    """Check whether each database can be opened and has a table."""
    async with _open(DataTools, settings, OPERATOR) as kit:
        found = kit.databases()
        return await _all_of(
            _database(name, found.get(f"{DATABASE_PREFIX}{name}"), settings)
            for name in settings.data.databases
        )


async def _database(name: str, source: tables.SourceDatabase | None, settings: Settings) -> str:
    own = settings.data.databases[name]
    if source is None:
        raise Problem(missing_credentials(f"data.databases.{name}"))
    listed = await _answer(name, source.tables(), READ_S, f"Fix data.databases.{name}.")
    unreadable = [
        f"{each.name} is {each.note}" for each in listed if each.note.startswith(NOT_READ)
    ]
    if unreadable:
        raise Problem(f"{name}: {_sentence('; '.join(unreadable))}")
    if not listed:
        raise Problem(f"{name} holds no table that may be read: fix data.databases.{name}.")
    least = "at least " if len(listed) >= tables.MAX_TABLES else ""
    content = f"{least}{_many(len(listed), 'table')}"
    return _with_readers(f"{name} ({source.dialect}, {content}", own.readers)


async def _sheets(settings: Settings) -> str:
    """Check whether each sheet can be opened by its account."""
    async with _open(DataTools, settings, OPERATOR) as kit:
        found = kit.sheets()
        return await _all_of(
            _sheet(name, found.get(f"{SHEET}{name}"), settings) for name in settings.data.sheets
        )


async def _sheet(name: str, book: Spreadsheet | None, settings: Settings) -> str:
    own = settings.data.sheets[name]
    if book is None:
        raise Problem(missing_credentials(f"data.sheets.{name}"))
    _, tabs = await _answer(name, book.about(), ASK_S, "See docs/google.md.")
    return _with_readers(f"{name} ({_many(len(tabs), 'tab')}", own.readers)


async def _answer(name: str, answer: Awaitable[T], seconds: float, hint: str) -> T:
    """Return the answer of a source. Raises Problem."""
    try:
        async with asyncio.timeout(seconds):
            return await answer
    except TimeoutError:
        raise Problem(f"{name} does not answer within {seconds:.0f} s.") from None
    except (ToolError, SourceFailed, GoogleError) as error:
        raise Problem(f"{name}: {_sentence(error)} {hint}") from None


async def _files(settings: Settings) -> str:
    """Check whether the folders exist and the sandbox can start."""
    files = settings.files
    found = await _all_of(_project(name, each) for name, each in files.projects.items())
    if not files.sandbox:
        return found
    program = files.sandbox[0]
    if shutil.which(program, path=PATH) is None:
        raise Problem(f"There is no program {program} in {PATH}: fix files.sandbox.")
    if not any("{command}" in word for word in files.sandbox):
        raise Problem('files.sandbox runs nothing: put "{command}" where the command belongs.')
    return "; ".join(filter(None, [found, f"commands run in {program}"]))


async def _project(name: str, project: ProjectSettings) -> str:
    path, where = project.path.expanduser(), f"files.projects.{name}"
    if not path.is_dir():
        raise Problem(f"{name}: there is no folder {path}: fix {where}.path.")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise Problem(
            f"{name}: {path} may not be read and written by this user: change its rights."
        )
    in_git = (path / ".git").exists()
    from scopes.folders.git import ownership_problem  # loads pygit2

    if why := ownership_problem(path):
        raise Problem(f"{name}: git cannot open {path} ({why}): fix {where}.path.")
    if project.push and not in_git:
        raise Problem(f"{name} is not the top of a git repository: fix {where}.push or its path.")
    return _with_readers(f"{name} ({'git' if in_git else 'no git'}", project.readers)


async def _web(settings: Settings) -> str:
    """Check the settings of the search engine, without a call, which may cost money."""
    async with _open(WebTools, settings) as kit:
        if why := kit.find_missing().get("web_search"):
            raise Problem(why)
    return f"searched by {settings.web.search}, which was not asked"


async def _mcp(settings: Settings) -> str:
    """Check whether each MCP server answers, and which of its tools need confirmation."""
    from bot.tooling.mcp import McpTools  # its client takes 0.7 s and 55 MB
    from scopes.mcp import ServerTools
    from scopes.mcp_servers.servers import Unreachable

    async def ask(kit: McpTools, server: ServerTools) -> str:
        try:
            found = await kit.statuses(server, ASK_S)
        except Unreachable as error:
            why = f"{server.name} {error}: fix mcp.servers.{server.name}."
            raise Problem(f"{why} {kit.last_words(server)}".rstrip()) from None
        if unknown := kit.unknown(server, found):
            names = ", ".join(unknown)
            what = f"{server.name} has no tool {names}"
            raise Problem(f"{what}: fix mcp.servers.{server.name}.tools.")
        off = sum("assistant mcp confirm" in each.why for each in found)
        if off:
            what = f"{_many(off, 'tool')} of {server.name} changed: "
            raise Problem(f"{what}`assistant mcp` shows them, `assistant mcp confirm` approves.")
        count = sum(each.tool is not None for each in found)
        readers = settings.mcp.servers[server.name].readers
        return _with_readers(f"{server.name} ({_many(count, 'tool')}", readers)

    async with _open(McpTools, settings) as kit:
        return await _all_of(ask(kit, server) for server in kit.servers)


@asynccontextmanager
async def _open(
    kind: type[K], settings: Settings, given: Options | None = None
) -> AsyncIterator[K]:
    """Open a tool provider. Raises Problem if it, or the database, cannot be used."""
    try:
        database = await Database.of(settings)
    except (StoreError, SettingsError, sa.exc.ProgrammingError):
        raise Problem("It cannot be checked without the database: see there.") from None
    async with aclosing(database):
        try:
            async with aclosing(kind(settings, database, given)) as kit:
                yield kit
        except SetupError as error:
            raise Problem(str(error)) from None


async def _all_of(checks: Iterator[Awaitable[str]]) -> str:
    """Run all checks; return their results, or raise one Problem with all problems."""
    ended = await asyncio.gather(*checks, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException) and not isinstance(each, Problem):
            raise each
    wrong = [str(each) for each in ended if isinstance(each, Problem)]
    if wrong:
        raise Problem(" ".join(wrong))
    return "; ".join(map(str, ended))


def _with_readers(text: str, readers: Sequence[str]) -> str:
    """Return the text with the readers and a closing bracket."""
    return f"{text})" if readers else f"{text}, {NO_READERS_MESSAGE})"


def _sentence(error: Exception | str) -> str:
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
