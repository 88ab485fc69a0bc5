"""The databases and sheets of the scope data, from the settings or a command."""

from __future__ import annotations

import re
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Generic, TypeVar

from bot.errors import SetupError
from bot.tooling.provider import DATABASE_TOOLS, SHEET_TOOLS, OpenedTools, ToolProvider, readers_of
from config.sections import DatabaseSettings, SheetSettings
from scopes.databases.duck import Duck, DuckPool
from scopes.databases.tables import DATABASE_PREFIX, Databases, SourceDatabase
from scopes.effects import SHEET
from scopes.label import WORKSPACE, Label, Readers

if TYPE_CHECKING:  # Google clients are imported only if they are configured
    from scopes.google.client import GoogleClient
    from scopes.google.spreadsheet import Spreadsheet

GOOGLE_SETUP_HINT = "docs/google.md explains how to set it up."
MOST_BYTES = 5_000_000
"""Maximum bytes kept of a result."""


def missing_credentials(source: str) -> str:
    """Return the message for a source without credentials."""
    return (
        f"{source} has no credentials: name a key file in {source}.service_account or in "
        "google.service_account (docs/google.md)."
    )


S = TypeVar("S", SourceDatabase, "Spreadsheet")


@dataclass
class TableProvider(ToolProvider, Generic[S]):
    """Sources of the settings, some of them at Google; `S` is the type that reads one."""

    tools: ClassVar[tuple[str, ...]]
    prefix: ClassVar[str]
    """Prefix of their handles, before the name in the settings."""
    section: ClassVar[str]
    """Section of the settings, such as `data.sheets`."""
    _open_sources: dict[str, S] = field(default_factory=dict)
    """Handle -> opened source; one for all runs, because it has connections."""

    @property
    @abstractmethod
    def configured(self) -> Mapping[str, DatabaseSettings] | Mapping[str, SheetSettings]:
        """Return the sources of the settings, by name."""

    @abstractmethod
    def at_google(self, name: str) -> bool:
        """Return whether a source of the settings needs credentials for Google."""

    def handles(self, opened_handles: Iterable[str]) -> dict[str, str]:
        return {handle: handle.removeprefix(self.prefix) for handle in opened_handles}

    def labels(self, opened_handles: Iterable[str]) -> dict[str, Label]:
        by_handle = self.readers()
        return {h: Label(True, by_handle[h], frozenset({h}), outside=True) for h in opened_handles}

    def google(self, name: str, scope: str, endpoint: str | None) -> GoogleClient | None:
        """Return a client for a source of the settings; None = there are no credentials.

        Its own service account takes precedence, then the token of the operator at the command
        line, then the shared service account. Raises SetupError if a key file cannot be used.
        """
        from scopes.google.auth import Sentences, delegated_credentials, token_credentials
        from scopes.google.client import GoogleClient
        from scopes.google.errors import GoogleError

        settings, source = self.settings.google, f"{self.section}.{name}"
        own, token = self.configured[name].service_account, self._token
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

    def readers(self) -> Mapping[str, Readers]:
        sources = self.configured.items()
        return {f"{self.prefix}{name}": readers_of(each.readers) for name, each in sources}

    def problems(self) -> Sequence[str]:
        shared = self._token or self.settings.google.service_account
        return [
            missing_credentials(f"{self.section}.{name}")
            for name, each in self.configured.items()
            if self.at_google(name) and not (each.service_account or shared)
        ]

    def find_missing(self) -> Mapping[str, str]:
        faults = self.problems()
        any_open = len(faults) < len(self.readers())
        return {} if any_open or not faults else dict.fromkeys(self.tools, faults[0])

    async def aclose(self) -> None:
        """Close connections."""
        while self._open_sources:
            _, source = self._open_sources.popitem()
            await source.aclose()


@dataclass
class DataTools(TableProvider[SourceDatabase]):
    """Databases of the settings and of a command line."""

    tools, prefix, section = DATABASE_TOOLS, DATABASE_PREFIX, "data.databases"

    @property
    def configured(self) -> Mapping[str, DatabaseSettings]:
        return self.settings.data.databases

    def at_google(self, name: str) -> bool:
        return self.configured[name].bigquery is not None

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
        client = Databases(by_handle, self.labels(by_handle), self.settings.data.max_rows)
        return OpenedTools({Databases: client}, self.handles(by_handle))

    def _sources(self) -> Iterator[tuple[str, SourceDatabase]]:
        """Return handle and database of each source that can be opened."""
        for name, config in self.configured.items():
            handle = f"{DATABASE_PREFIX}{name}"
            source = self._open_sources.get(handle) or self._source(name, config)
            if source:
                self._open_sources[handle] = source
                yield handle, source
        for handle, path in self._from_options.items():
            yield handle, self._duck(path, None)

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

    def _source(self, name: str, config: DatabaseSettings) -> SourceDatabase | None:
        """Return a database of the settings; None = there are no credentials."""
        limits = self.settings.data
        if config.path:
            return self._duck(config.path, config.schema_)
        if config.postgres:
            from scopes.databases.postgres import Postgres  # its driver takes 0.1 s and 7 MB

            secret = config.password_file
            return Postgres(config.postgres, config.schema_, secret, limits.query_s, MOST_BYTES)
        from scopes.databases.bigquery import BIGQUERY_SCOPE, BigQuery

        google = self.google(name, BIGQUERY_SCOPE, self.settings.endpoints.bigquery_api_endpoint)
        if google is None or config.bigquery is None:
            return None
        project, _, dataset = config.bigquery.rpartition(".")
        return BigQuery(google, project, dataset, limits.query_s, limits.bigquery_usd, MOST_BYTES)

    def _duck(self, path: Path, schema: str | None) -> Duck:
        seconds = self.settings.data.query_s
        return Duck(path.expanduser(), schema, self.pool, seconds, MOST_BYTES)

    def readers(self) -> Mapping[str, Readers]:
        return {**super().readers(), **dict.fromkeys(self._from_options, WORKSPACE)}

    async def aclose(self) -> None:
        """Close connections, end processes."""
        await super().aclose()
        await self.pool.aclose()


def handle_of(path: Path) -> str:
    """Return the handle of a database that a command line names."""
    name = re.sub(r"[^a-z0-9_-]+", "-", path.resolve().stem.lower()).strip("-_")[:40]
    return f"{DATABASE_PREFIX}{name or 'database'}"


@dataclass
class SheetTools(TableProvider["Spreadsheet"]):
    """Spreadsheets of Google Sheets."""

    tools, prefix, section = SHEET_TOOLS, SHEET, "data.sheets"

    @property
    def configured(self) -> Mapping[str, SheetSettings]:
        return self.settings.data.sheets

    def at_google(self, name: str) -> bool:
        return True

    async def open(self, run: str, requester: str | None) -> OpenedTools:
        """Open the spreadsheets. Raises SetupError if a key file cannot be used."""
        from scopes.google.spreadsheet import SHEETS_SCOPE, Spreadsheet
        from scopes.sheets import Sheets

        endpoint = self.settings.endpoints.sheets_api_endpoint
        books: dict[str, Spreadsheet] = {}
        for name, sheet in self.configured.items():
            handle = f"{SHEET}{name}"
            if handle not in self._open_sources and (
                google := self.google(name, SHEETS_SCOPE, endpoint)
            ):
                self._open_sources[handle] = Spreadsheet(google, sheet.id)
            if handle in self._open_sources:
                books[handle] = self._open_sources[handle]
        clients: dict[type, object] = {Sheets: Sheets(books, self.labels(books))} if books else {}
        return OpenedTools(clients, self.handles(books))
