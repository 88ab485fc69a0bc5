"""What the tools of the scope data work with: the databases that the settings or a command name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import chain, count
from pathlib import Path

import scopes.databases.tables
from bot.cli.options import Options
from bot.storage.database import Database
from bot.tooling.bigquery import bigquery_of
from bot.tooling.google import has_credentials, missing_credentials
from bot.tooling.kit import Kit, Opened, readers_of
from config.settings import Settings
from config.tools import Database as Configured
from scopes.databases.duck import Duck
from scopes.databases.duck_pool import DuckPool
from scopes.databases.tables import DATA, Databases
from scopes.label import WORKSPACE, Label, Readers

NONE = "No database is configured: set data.databases in assistant.yaml, or give --database FILE."
TOOLS = ("list_tables", "describe_table", "execute_query")


@dataclass(frozen=True)
class DataKit(Kit):
    """Databases of the settings, and those of a command line."""

    settings: Settings
    database: Database
    given: Options | None
    """Options of a command; None = it serves Slack."""
    _made: dict[str, scopes.databases.tables.Database] = field(default_factory=dict)
    """Handle -> what was opened; one for all runs, as they hold connections."""

    @cached_property
    def pool(self) -> DuckPool:
        return DuckPool(self.settings.data.memory_mb)

    async def open(self, run: str, requester: str | None) -> Opened:
        """Raises SetupError where a database of the settings cannot be used as they are."""
        by_handle = dict(self._sources())
        if not by_handle:
            return Opened()
        if any(isinstance(source, Duck) for source in by_handle.values()):
            self.pool.warm()
        who = self.readers()
        labels = {h: Label(True, who[h], frozenset({h}), outside=True) for h in by_handle}
        client = Databases(by_handle, labels, self.settings.data.max_rows)
        return Opened({Databases: client}, {h: h.removeprefix(DATA) for h in by_handle})

    def _sources(self) -> Iterator[tuple[str, scopes.databases.tables.Database]]:
        """Handle and database of each that can be opened."""
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
        """Handle -> database of the command line; each is named by its file."""
        found: dict[str, Path] = {}
        given = self.given.databases if self.given else ()
        for path in dict.fromkeys(each.resolve() for each in given):
            name = handle_of(path)
            again = (f"{name}-{n}" for n in count(2))
            found[next(h for h in chain([name], again) if h not in found)] = path
        return found

    def _source(self, name: str, config: Configured) -> scopes.databases.tables.Database | None:
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
        why = missing_credentials(f"data.databases.{next(iter(databases))}") if databases else NONE
        return dict.fromkeys(TOOLS, why)

    def problems(self) -> Sequence[str]:
        return [
            missing_credentials(f"data.databases.{name}")
            for name, each in self.settings.data.databases.items()
            if each.bigquery and not self._has_credentials(each)
        ]

    def _has_credentials(self, config: Configured) -> bool:
        operator = self.given is not None
        return has_credentials(self.settings, config.service_account, operator=operator)

    async def aclose(self) -> None:
        """Close connections, end processes."""
        while self._made:
            _, source = self._made.popitem()
            await source.aclose()
        await self.pool.aclose()


def handle_of(path: Path) -> str:
    """The handle of a database that a command line names."""
    name = re.sub(r"[^a-z0-9_-]+", "-", path.resolve().stem.lower()).strip("-_")[:40]
    return f"{DATA}{name or 'database'}"
