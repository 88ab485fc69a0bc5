"""The databases and sheets of the scope data, from the settings or a command."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import SetupError
from bot.tooling.provider import OpenedTools, ToolProvider, readers_of
from config.sections import DatabaseSettings
from scopes.databases.duck import Duck, DuckPool
from scopes.databases.tables import DATABASE_PREFIX, Databases, SourceDatabase
from scopes.effects import SHEET
from scopes.label import WORKSPACE, Label, Readers

if TYPE_CHECKING:  # Google clients are imported only if they are configured
    from scopes.google.client import GoogleClient
    from scopes.google.spreadsheet import Spreadsheet

NO_DATABASES = (
    "No database is configured: set data.databases in assistant.yaml, or give --database FILE."
)
NO_SHEETS = "No sheet is configured: name one under data.sheets (docs/google.md)."
DATABASE_TOOLS = ("list_tables", "describe_table", "execute_query")
SHEET_TOOLS = ("read_sheet", "append_rows")
GOOGLE_SETUP_HINT = "docs/google.md explains how to set it up."
MOST_BYTES = 5_000_000
"""Maximum bytes kept of a result."""


def missing_credentials(source: str) -> str:
    """Return the message for a source without credentials."""
    return (
        f"{source} has no credentials: name a key file in {source}.service_account or in "
        "google.service_account (docs/google.md)."
    )


@dataclass
class DataTools(ToolProvider):
    """Databases of the settings and of a command line, and spreadsheets of Google Sheets.

    All runs share the opened ones, by handle, because they have connections.
    """

    _databases: dict[str, SourceDatabase] = field(default_factory=dict)
    _sheets: dict[str, Spreadsheet] = field(default_factory=dict)

    @cached_property
    def pool(self) -> DuckPool:
        return DuckPool(self.settings.data.memory_mb)

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        """Open the sources. Raises SetupError if one of the settings cannot be used."""
        databases, sheets = self.databases(), self.sheets()
        clients: dict[type, object] = {}
        if databases:
            labels, rows = self._labels(databases), self.settings.data.max_rows
            clients[Databases] = Databases(databases, labels, rows)
        if sheets:
            from scopes.sheets import Sheets

            clients[Sheets] = Sheets(sheets, self._labels(sheets))
        handles = {handle: handle.partition(":")[2] for handle in (*databases, *sheets)}
        return OpenedTools(clients, handles)

    def databases(self) -> dict[str, SourceDatabase]:
        """Return handle -> database of those that can be opened. Raises SetupError."""
        for name, config in self.settings.data.databases.items():
            handle = f"{DATABASE_PREFIX}{name}"
            if handle not in self._databases and (source := self._database(name, config)):
                self._databases[handle] = source
        given = {handle: self._duck(path, None) for handle, path in self._from_options.items()}
        return {**self._databases, **given}

    def sheets(self) -> dict[str, Spreadsheet]:
        """Return handle -> spreadsheet of those that can be opened. Raises SetupError."""
        if not self.settings.data.sheets:
            return {}
        from scopes.google.spreadsheet import SHEETS_SCOPE, Spreadsheet

        endpoint = self.settings.endpoints.sheets_api_endpoint
        for name, sheet in self.settings.data.sheets.items():
            handle, own = f"{SHEET}{name}", sheet.service_account
            if handle not in self._sheets and (
                google := self._google(f"data.sheets.{name}", own, SHEETS_SCOPE, endpoint)
            ):
                self._sheets[handle] = Spreadsheet(google, sheet.id)
        return self._sheets

    @cached_property
    def _from_options(self) -> Mapping[str, Path]:
        """Return handle -> database of the command line; each is named by its file."""
        found: dict[str, Path] = {}
        paths = self.options.databases if self.options else ()
        for path in dict.fromkeys(each.resolve() for each in paths):
            name = handle_of(path)
            again = (f"{name}-{n}" for n in count(2))
            found[next(h for h in chain([name], again) if h not in found)] = path
        return found

    def _database(self, name: str, config: DatabaseSettings) -> SourceDatabase | None:
        """Return a database of the settings; None = there are no credentials."""
        limits = self.settings.data
        if config.path:
            return self._duck(config.path, config.schema_)
        if config.postgres:
            from scopes.databases.postgres import Postgres  # its driver takes 0.1 s and 7 MB

            secret = config.password_file
            return Postgres(config.postgres, config.schema_, secret, limits.query_s, MOST_BYTES)
        from scopes.databases.bigquery import BIGQUERY_SCOPE, BigQuery

        source, endpoint = f"data.databases.{name}", self.settings.endpoints.bigquery_api_endpoint
        google = self._google(source, config.service_account, BIGQUERY_SCOPE, endpoint)
        if google is None or config.bigquery is None:
            return None
        project, _, dataset = config.bigquery.rpartition(".")
        return BigQuery(google, project, dataset, limits.query_s, limits.bigquery_usd, MOST_BYTES)

    def _duck(self, path: Path, schema: str | None) -> Duck:
        seconds = self.settings.data.query_s
        return Duck(path.expanduser(), schema, self.pool, seconds, MOST_BYTES)

    def _google(
        self, source: str, own: Path | None, scope: str, endpoint: str | None
    ) -> GoogleClient | None:
        """Return a client for a source of the settings; None = there are no credentials.

        Its own service account takes precedence, then the token of the operator at the command
        line, then the shared service account. Raises SetupError if a key file cannot be used.
        """
        from scopes.google.auth import Sentences, delegated_credentials, token_credentials
        from scopes.google.client import GoogleClient
        from scopes.google.errors import GoogleError

        settings, token = self.settings.google, self._token
        if token and not own:
            return GoogleClient(token_credentials(token), settings, endpoint)
        key = own or (Path(settings.service_account) if settings.service_account else None)
        if key is None:
            return None
        setting = f"{source}.service_account" if own else "google.service_account"
        sentences = Sentences(
            f"Google does not accept the key in {setting}: make a new one.",
            f"Google does not accept the key in {setting}: its account was deleted.",
            setting,
        )
        oauth, within = self.settings.endpoints.google_oauth_endpoint, settings.timeout_s
        try:
            access = delegated_credentials(key, None, oauth, within, (scope,), sentences)
        except GoogleError as error:
            raise SetupError("google", f"{source}: {error}", GOOGLE_SETUP_HINT) from None
        return GoogleClient(access, settings, endpoint)

    @property
    def _token(self) -> str:
        """Return the token of the environment, which only commands of the operator use."""
        token = self.settings.secrets.google_access_token if self.options else None
        return token.get_secret_value() if token else ""

    def _labels(self, handles: Iterable[str]) -> dict[str, Label]:
        readers = self.readers()
        return {h: Label(True, readers[h], frozenset({h}), outside=True) for h in handles}

    def readers(self) -> Mapping[str, Readers]:
        data = self.settings.data
        return {
            **{f"{DATABASE_PREFIX}{n}": readers_of(e.readers) for n, e in data.databases.items()},
            **{f"{SHEET}{n}": readers_of(each.readers) for n, each in data.sheets.items()},
            **dict.fromkeys(self._from_options, WORKSPACE),
        }

    def _keyless(self, section: str) -> list[str]:
        """Return the message for each source of a section that has not the credentials it needs."""
        data = self.settings.data
        keys = {
            "databases": {n: e.service_account for n, e in data.databases.items() if e.bigquery},
            "sheets": {name: each.service_account for name, each in data.sheets.items()},
        }
        shared = self._token or self.settings.google.service_account
        keyless = [name for name, key in keys[section].items() if not (key or shared)]
        return [missing_credentials(f"data.{section}.{name}") for name in keyless]

    def problems(self) -> Sequence[str]:
        return [*self._keyless("databases"), *self._keyless("sheets")]

    def find_missing(self) -> Mapping[str, str]:
        data, missing = self.settings.data, dict[str, str]()
        databases, sheets = self._keyless("databases"), self._keyless("sheets")
        if len(databases) == len(data.databases) + len(self._from_options):
            missing |= dict.fromkeys(DATABASE_TOOLS, databases[0] if databases else NO_DATABASES)
        if len(sheets) == len(data.sheets):
            missing |= dict.fromkeys(SHEET_TOOLS, sheets[0] if sheets else NO_SHEETS)
        return missing

    async def aclose(self) -> None:
        """Close connections, end processes."""
        for opened in (self._databases, self._sheets):
            while opened:
                await opened.popitem()[1].aclose()
        await self.pool.aclose()


def handle_of(path: Path) -> str:
    """Return the handle of a database that a command line names."""
    name = re.sub(r"[^a-z0-9_-]+", "-", path.resolve().stem.lower()).strip("-_")[:40]
    return f"{DATABASE_PREFIX}{name or 'database'}"
