"""The databases and sheets of the scope data, from the settings or a command."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING

from bot.errors import SetupError
from bot.tooling.provider import OpenedTools, ToolProvider, readers_of
from bot.tooling.registry import NO_DATABASES, NO_SHEETS
from config.sections import DatabaseSettings, SheetSettings
from config.settings import Settings
from scopes.databases.duck import Duck, DuckPool
from scopes.databases.tables import DATA, Databases, SourceDatabase
from scopes.effects import SHEET
from scopes.label import WORKSPACE, Label, Readers

if TYPE_CHECKING:  # what asks Google is imported where something of it is configured
    from scopes.databases.bigquery import BigQuery
    from scopes.google.client import GoogleClient
    from scopes.google.spreadsheet import Spreadsheet

HELP = "docs/google.md explains how to set it up."


def has_credentials(settings: Settings, own: Path | None, *, operator: bool) -> bool:
    """Return whether there are credentials for a source; `own` is the key file that it names."""
    token = operator and settings.secrets.google_access_token
    return bool(own or settings.google.service_account or token)


def google_of(
    settings: Settings,
    source: str,
    own: Path | None,
    scope: str,
    endpoint: str | None,
    *,
    operator: bool,
) -> GoogleClient | None:
    """Return a client for a source (`data.sheets.targets`); None = there are no credentials.

    Its own service account takes precedence, then the token of the operator at the command line,
    then the shared service account. Raises SetupError if the key file cannot be used.
    """
    from scopes.google.auth import Sentences, delegated_credentials, token_credentials
    from scopes.google.client import GoogleClient
    from scopes.google.errors import GoogleError

    google, token = settings.google, settings.secrets.google_access_token
    if not own and operator and token:
        return GoogleClient(token_credentials(token.get_secret_value()), google, endpoint)
    key = own or (Path(google.service_account) if google.service_account else None)
    if key is None:
        return None
    setting = f"{source}.service_account" if own else "google.service_account"
    sentences = Sentences(
        f"Google does not accept the key in {setting}: make a new one.",
        f"Google does not accept the key in {setting}: its account was deleted.",
        setting,
    )
    oauth = settings.endpoints.google_oauth_endpoint
    try:
        access = delegated_credentials(key, None, oauth, google.timeout_s, (scope,), sentences)
    except GoogleError as error:
        raise SetupError("google", f"{source}: {error}", HELP) from None
    return GoogleClient(access, google, endpoint)


def missing_credentials(source: str) -> str:
    """Return the message for a source without credentials."""
    return (
        f"{source} has no credentials: name a key file in {source}.service_account or in "
        "google.service_account (docs/google.md)."
    )


def bigquery_of(
    settings: Settings, name: str, config: DatabaseSettings, *, operator: bool
) -> BigQuery | None:
    """Return the dataset of `data.databases.<name>`; None = there are no credentials.

    `operator`: the fixed token of the environment counts, too. Raises SetupError if a key file
    cannot be used, ValueError if `config` is not a dataset.
    """
    from scopes.databases.bigquery import BIGQUERY_SCOPE, BigQuery

    if not config.bigquery:
        raise ValueError(f"{name} is no dataset of BigQuery")
    project, _, dataset = config.bigquery.rpartition(".")
    endpoint, source = settings.endpoints.bigquery_api_endpoint, f"data.databases.{name}"
    own = config.service_account
    google = google_of(settings, source, own, BIGQUERY_SCOPE, endpoint, operator=operator)
    if google is None:
        return None
    limits = settings.data
    size = limits.max_result_mb * 1_000_000
    return BigQuery(google, project, dataset, limits.query_s, limits.bigquery_usd, size)


TOOLS = ("list_tables", "describe_table", "execute_query")


@dataclass
class DataTools(ToolProvider):
    """Databases of the settings, and those of a command line."""

    _made: dict[str, SourceDatabase] = field(default_factory=dict)
    """Handle -> what was opened; one for all runs, as they hold connections."""

    @cached_property
    def pool(self) -> DuckPool:
        return DuckPool(self.settings.data.memory_mb)

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        """Open the databases. Raises SetupError if one of the settings cannot be used."""
        by_handle = dict(self._sources())
        if not by_handle:
            return OpenedTools()
        if any(isinstance(source, Duck) for source in by_handle.values()):
            self.pool.warm()
        who = self.readers()
        labels = {h: Label(True, who[h], frozenset({h}), outside=True) for h in by_handle}
        client = Databases(by_handle, labels, self.settings.data.max_rows)
        return OpenedTools({Databases: client}, {h: h.removeprefix(DATA) for h in by_handle})

    def _sources(self) -> Iterator[tuple[str, SourceDatabase]]:
        """Return handle and database of each that can be opened."""
        for name, config in self.settings.data.databases.items():
            handle = f"{DATA}{name}"
            if handle not in self._made:
                source = self._source(name, config)
                if source is None:
                    continue
                self._made[handle] = source
            yield handle, self._made[handle]
        for handle, path in self._given.items():
            yield handle, self._duck(path, None)

    @cached_property
    def _given(self) -> Mapping[str, Path]:
        """Return handle -> database of the command line; each is named by its file."""
        found: dict[str, Path] = {}
        given = self.given.databases if self.given else ()
        for path in dict.fromkeys(each.resolve() for each in given):
            name = handle_of(path)
            again = (f"{name}-{n}" for n in count(2))
            found[next(h for h in chain([name], again) if h not in found)] = path
        return found

    def _source(self, name: str, config: DatabaseSettings) -> SourceDatabase | None:
        if config.path:
            return self._duck(config.path, config.schema_)
        if config.postgres:
            from scopes.databases.postgres import Postgres  # its driver takes 0.1 s and 7 MB

            limits = self.settings.data
            secret, size = config.password_file, limits.max_result_mb * 1_000_000
            return Postgres(config.postgres, config.schema_, secret, limits.query_s, size)
        return bigquery_of(self.settings, name, config, operator=self.given is not None)

    def _duck(self, path: Path, schema: str | None) -> Duck:
        limits = self.settings.data
        size = limits.max_result_mb * 1_000_000
        return Duck(path.expanduser(), schema, self.pool, limits.query_s, size)

    def readers(self) -> Mapping[str, Readers]:
        configured = self.settings.data.databases.items()
        found = {f"{DATA}{name}": readers_of(config.readers) for name, config in configured}
        return found | dict.fromkeys(self._given, WORKSPACE)

    def missing(self) -> Mapping[str, str]:
        databases = self.settings.data.databases
        if self._given or any(
            each.bigquery is None or self._has_credentials(each) for each in databases.values()
        ):
            return {}
        why = (
            missing_credentials(f"data.databases.{next(iter(databases))}")
            if databases
            else NO_DATABASES
        )
        return dict.fromkeys(TOOLS, why)

    def problems(self) -> Sequence[str]:
        return [
            missing_credentials(f"data.databases.{name}")
            for name, each in self.settings.data.databases.items()
            if each.bigquery and not self._has_credentials(each)
        ]

    def _has_credentials(self, config: DatabaseSettings) -> bool:
        operator = self.given is not None
        return has_credentials(self.settings, config.service_account, operator=operator)

    async def aclose(self) -> None:
        """Close connections, end processes."""
        while self._made:
            _, source = self._made.popitem()
            await source.aclose()
        await self.pool.aclose()


def handle_of(path: Path) -> str:
    """Return the handle of a database that a command line names."""
    name = re.sub(r"[^a-z0-9_-]+", "-", path.resolve().stem.lower()).strip("-_")[:40]
    return f"{DATA}{name or 'database'}"


"""Prefix of the handle of a sheet."""


@dataclass
class SheetTools(ToolProvider):
    """Spreadsheets of Google Sheets."""

    _made: dict[str, Spreadsheet] = field(default_factory=dict)
    """Spreadsheets by handle; one for all runs, as they hold connections and a token."""

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        """Open the spreadsheets. Raises SetupError if a key file cannot be used."""
        from scopes.sheets import Sheets

        books = dict(self._books())
        if not books:
            return OpenedTools()
        who = self.readers()
        labels = {h: Label(True, who[h], frozenset({h}), outside=True) for h in books}
        titles = {handle: handle.removeprefix(SHEET) for handle in books}
        return OpenedTools({Sheets: Sheets(books, labels)}, titles)

    def _books(self) -> Iterator[tuple[str, Spreadsheet]]:
        """Return those with credentials."""
        from scopes.google.spreadsheet import SHEETS_SCOPE, Spreadsheet

        endpoint, operator = self.settings.endpoints.sheets_api_endpoint, self.given is not None
        for name, sheet in self.settings.data.sheets.items():
            handle, source, own = f"{SHEET}{name}", f"data.sheets.{name}", sheet.service_account
            if handle not in self._made:
                google = google_of(
                    self.settings, source, own, SHEETS_SCOPE, endpoint, operator=operator
                )
                if google is None:
                    continue
                self._made[handle] = Spreadsheet(google, sheet.id)
            yield handle, self._made[handle]

    def readers(self) -> Mapping[str, Readers]:
        return {
            f"{SHEET}{name}": readers_of(sheet.readers)
            for name, sheet in self.settings.data.sheets.items()
        }

    def missing(self) -> Mapping[str, str]:
        sheets = self.settings.data.sheets
        if any(map(self._has_credentials, sheets.values())):
            return {}
        why = missing_credentials(f"data.sheets.{next(iter(sheets))}") if sheets else NO_SHEETS
        return dict.fromkeys(("read_sheet", "append_rows"), why)

    def problems(self) -> Sequence[str]:
        return [
            missing_credentials(f"data.sheets.{name}")
            for name, sheet in self.settings.data.sheets.items()
            if not self._has_credentials(sheet)
        ]

    def _has_credentials(self, sheet: SheetSettings) -> bool:
        operator = self.given is not None
        return has_credentials(self.settings, sheet.service_account, operator=operator)

    async def aclose(self) -> None:
        """Close connections."""
        while self._made:
            _, book = self._made.popitem()
            await book.aclose()
