"""What the doctor asks of the sources that the settings name: databases, folders, servers ..."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections.abc import AsyncIterator, Awaitable, Iterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import sqlalchemy as sa

from bot.checks.checks import Problem
from bot.cli.options import Options
from bot.errors import SetupError, StoreError
from bot.storage.database import Database
from bot.storage.vault import vault_of
from bot.tooling.data import DataKit
from bot.tooling.google import missing_credentials
from bot.tooling.sheets import SheetsKit
from bot.tooling.web import WebKit
from config.settings import Settings, SettingsError
from config.tools import Project
from scopes.databases import tables
from scopes.databases.postgres import Postgres
from scopes.databases.tables import DATA, Databases
from scopes.folders.commands import GIVEN
from scopes.folders.git_home import stray
from scopes.google.client import GoogleError
from scopes.google.spreadsheet import Spreadsheet
from scopes.sheets import SHEET, Sheets
from scopes.tool import SourceFailed, ToolError

OPERATOR = Options(model="claude")
"""Sources are opened as `ask` opens them: with the operator's own token, too."""
READ_S = 25.0
"""Seconds that a database has, which may be a folder of files to be read."""
ASK_S = 15.0
"""Seconds that one source has to answer, within those of the check."""
NOT_READ = "not readable: "
"""How the note of a file begins that is listed and no table, as `duck_program` writes it."""
OTHERS_ASK = (
    "what others ask for at the same time. Revoke that from its role, or have a superuser say "
    "ALTER ROLE ... SET track_activities = off."
)
NOBODY = "nobody in Slack may read it: name readers"


def wanted(settings: Settings) -> Iterator[tuple[str, Awaitable[str]]]:
    """Name and check of each kind of source that is set."""
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
    """Whether each can be opened, and holds a table."""
    async with _state(settings) as state:
        kit = DataKit(settings, state, OPERATOR)
        try:
            opened = (await kit.open("doctor", None)).clients.get(Databases)
            found = opened.by_handle if isinstance(opened, Databases) else {}
            configured = settings.data.databases.items()
            return await _all_of(
                _database(
                    name,
                    found.get(f"{DATA}{name}"),
                    each.readers,
                    _by_token(settings, each.service_account) if each.bigquery else "",
                )
                for name, each in configured
            )
        except SetupError as error:
            raise Problem(str(error)) from None
        finally:
            await kit.aclose()


def _by_token(settings: Settings, own: Path | None) -> str:
    """Return what is added where the operator's token opens a source: it counts for `ask` alone."""
    if own or not settings.secrets.google_access_token:
        return ""
    used = "uses google.service_account" if settings.google.service_account else "needs a key file"
    return f", opened with GOOGLE_ACCESS_TOKEN: `serve` {used}"


async def _database(
    name: str, source: tables.Database | None, readers: Sequence[str], by: str
) -> str:
    if source is None:
        raise Problem(missing_credentials(f"data.databases.{name}"))
    try:
        async with asyncio.timeout(READ_S):
            listed = await source.tables()
            telling = await source.telling() if isinstance(source, Postgres) else ()
    except TimeoutError:
        raise Problem(f"{name} does not answer within {READ_S:.0f} s.") from None
    except (ToolError, SourceFailed, GoogleError) as error:
        raise Problem(f"{name}: {_sentence(error)} Mend data.databases.{name}.") from None
    lost = [f"{each.name} is {each.note}" for each in listed if each.note.startswith(NOT_READ)]
    if lost:
        raise Problem(f"{name}: {_sentence('; '.join(lost))}")
    if telling:
        raise Problem(f"{name}: who asks it sees through {', '.join(telling)} {OTHERS_ASK}")
    if not listed:
        raise Problem(f"{name} holds no table that may be read: mend data.databases.{name}.")
    least = "at least " if len(listed) >= tables.MAX_TABLES else ""
    return _said(f"{name} ({source.dialect}, {least}{_many(len(listed), 'table')}{by}", readers)


async def _sheets(settings: Settings) -> str:
    """Whether each can be opened by its account."""
    async with _state(settings) as state:
        kit = SheetsKit(settings, state, OPERATOR)
        try:
            opened = (await kit.open("doctor", None)).clients.get(Sheets)
            found = opened.by_handle if isinstance(opened, Sheets) else {}
            configured = settings.data.sheets.items()
            return await _all_of(
                _sheet(
                    name,
                    found.get(f"{SHEET}{name}"),
                    each.readers,
                    _by_token(settings, each.service_account),
                )
                for name, each in configured
            )
        except SetupError as error:
            raise Problem(str(error)) from None
        finally:
            await kit.aclose()


async def _sheet(name: str, book: Spreadsheet | None, readers: Sequence[str], by: str) -> str:
    if book is None:
        raise Problem(missing_credentials(f"data.sheets.{name}"))
    try:
        async with asyncio.timeout(ASK_S):
            _, tabs = await book.about()
    except TimeoutError:
        raise Problem(f"{name} does not answer within {ASK_S:.0f} s.") from None
    except GoogleError as error:
        raise Problem(f"{name}: {_sentence(error)} See docs/google.md.") from None
    return _said(f"{name} ({_many(len(tabs), 'tab')}{by}", readers)


async def _files(settings: Settings) -> str:
    """Whether the folders are there and the sandbox can be started."""
    files = settings.files
    found = await _all_of(_project(name, each) for name, each in files.projects.items())
    if not files.sandbox:
        return found
    program = files.sandbox[0]
    if shutil.which(program, path=GIVEN["PATH"]) is None:
        raise Problem(f"There is no program {program} in {GIVEN['PATH']}: mend files.sandbox.")
    if not any("{command}" in word for word in files.sandbox):
        raise Problem('files.sandbox runs nothing: put "{command}" where the command belongs.')
    return "; ".join(filter(None, [found, f"commands run in {program}"]))


async def _project(name: str, project: Project) -> str:
    path, where = project.path.expanduser(), f"files.projects.{name}"
    if not path.is_dir():
        raise Problem(f"{name}: there is no folder {path}: mend {where}.path.")
    if not os.access(path, os.R_OK | os.W_OK | os.X_OK):
        raise Problem(
            f"{name}: {path} may not be read and written by this user: change its rights."
        )
    in_git = (path / ".git").exists()
    if why := stray(path):
        raise Problem(f"{name}: git does not open {path}, for {why}: mend {where}.path.")
    if project.push and not in_git:
        raise Problem(f"{name} is not the top of a git repository: mend {where}.push or its path.")
    return _said(f"{name} ({'git' if in_git else 'no git'}", project.readers)


async def _web(settings: Settings) -> str:
    """Whether the search engine has what it needs; it is not asked, as that may cost."""
    async with _state(settings) as state:
        kit = WebKit(settings, state, None)
        if why := kit.missing().get("web_search"):
            raise Problem(why)
    return f"searched by {settings.web.search}, which was not asked"


async def _mcp(settings: Settings) -> str:
    """Whether each server of tools answers, and which of its tools wait for a confirmation."""
    from bot.tooling.mcp import McpKit, Standing  # its client takes 0.7 s and 55 MB
    from scopes.mcp import Server
    from scopes.servers.servers import Unreachable

    async def ask(kit: McpKit, server: Server) -> str:
        try:
            stand: list[Standing] = await kit.standings(server, ASK_S)
        except Unreachable as error:
            why = f"{server.name} {error}: mend mcp.servers.{server.name}."
            raise Problem(f"{why} {kit.last_words(server)}".rstrip()) from None
        if unknown := kit.unknown(server, stand):
            named = ", ".join(unknown)
            what = f"{server.name} has no tool {named}"
            raise Problem(f"{what}: mend mcp.servers.{server.name}.tools.")
        off = sum("assistant mcp confirm" in each.why for each in stand)
        if off:
            what = f"{_many(off, 'tool')} of {server.name} changed: "
            raise Problem(f"{what}`assistant mcp` shows them, `assistant mcp confirm` approves.")
        offered = sum(each.tool is not None for each in stand)
        said = settings.mcp.servers[server.name].readers
        return _said(f"{server.name} ({_many(offered, 'tool')}", said)

    async with _state(settings) as state:
        try:
            kit = McpKit(settings, state, None)
        except SetupError as error:
            raise Problem(str(error)) from None
        try:
            return await _all_of(ask(kit, server) for server in kit.servers)
        finally:
            await kit.aclose()


@asynccontextmanager
async def _state(settings: Settings) -> AsyncIterator[Database]:
    """Where approvals of tools are kept."""
    try:
        opened = await Database.open(settings.data_dir, settings.database_url, vault_of(settings))
    except (StoreError, SettingsError, sa.exc.ProgrammingError):
        raise Problem("It cannot be looked at without the database: see there.") from None
    try:
        yield opened
    finally:
        await opened.aclose()


async def _all_of(checks: Iterator[Awaitable[str]]) -> str:
    """What all of them say; a Problem with all that is wrong where any of them found one."""
    ended = await asyncio.gather(*checks, return_exceptions=True)
    for each in ended:
        if isinstance(each, BaseException) and not isinstance(each, Problem):
            raise each
    wrong = [str(each) for each in ended if isinstance(each, Problem)]
    if wrong:
        raise Problem(" ".join(wrong))
    return "; ".join(map(str, ended))


def _said(told: str, readers: Sequence[str]) -> str:
    """`told` with its bracket closed."""
    return f"{told})" if readers else f"{told}, {NOBODY})"


def _sentence(error: Exception | str) -> str:
    text = str(error)
    return text if text.endswith((".", "!", "?")) else f"{text}."


def _many(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"
