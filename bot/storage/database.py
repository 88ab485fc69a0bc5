"""The database: an own SQLite file, or Postgres where replicas share it."""

from __future__ import annotations

import asyncio
import sqlite3
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL

from bot.errors import StoreError
from bot.storage.complaints import FILE_ELSEWHERE, URL_ELSEWHERE, explaining
from bot.storage.key_check import check
from bot.storage.schema import MIGRATING, migrate
from bot.storage.sealed import dumps
from bot.storage.together import Together
from bot.storage.vault import Vault, vault_here

T = TypeVar("T")
Work = Callable[[sa.Connection], Any]
"""Runs inside a transaction; it may be run again where that one fails."""

BUSY_SECONDS = 10
"""How long a command waits for another process that is writing."""
SCHEMA = "assistant"
"""Where the tables lie in Postgres: whatever else is in that database is left alone."""


def open_file(path: Path, vault: Vault) -> sa.Engine:
    """An engine for the file, which is made readable by its owner only, at today's schema.

    Blocks for a few milliseconds, or 0.2 s where a schema has to be made. Raises StoreError.
    """
    with explaining(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(path)
        return _ready(_file_engine(path), vault, path, FILE_ELSEWHERE)


def make_private(path: Path) -> None:
    """Make a database file, or an old one, its owner's only, and what SQLite keeps beside it."""
    if not path.exists():
        path.touch(mode=0o600)  # SQLite gives the files beside it the same mode
    for file in (path, *(path.with_name(f"{path.name}-{kind}") for kind in ("wal", "shm"))):
        with suppress(FileNotFoundError, PermissionError):  # another account's is not ours to shut
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def open_server(url: str, vault: Vault) -> sa.Engine:
    """An engine for a Postgres database, at today's schema. Raises StoreError."""
    address = server_url(url)
    where = place_of(address)
    with explaining(where):
        engine = sa.create_engine(
            address,
            pool_size=2,
            max_overflow=0,
            hide_parameters=True,  # an error that is logged must not tell what people wrote
            pool_pre_ping=True,  # a server that was restarted is found again
            connect_args={"options": f"-csearch_path={SCHEMA}", "connect_timeout": BUSY_SECONDS},
            json_serializer=dumps,
        )
        return _ready(engine, vault, where, URL_ELSEWHERE)


def server_url(url: str) -> URL:
    """The address with the driver that is installed. Raises StoreError for one of another kind."""
    try:
        address = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: a port that is no number
        address = URL.create("unknown")
    if not address.drivername.startswith(("postgresql", "postgres")):
        what = "is named by a DATABASE_URL that is no postgresql:// address"
        raise StoreError("of the replicas", what, "Write it as postgresql://user@host/database.")
    return address.set(drivername="postgresql+psycopg")


def place_of(address: URL) -> str:
    """A server's database as it may be shown: without account and password."""
    return f"{address.database or ''} on {address.host or 'this machine'}"


def _ready(engine: sa.Engine, vault: Vault, where: object, elsewhere: str) -> sa.Engine:
    """At today's schema, with the vault that its columns are encrypted by, which has the key."""
    engine.dialect.vault = vault  # type: ignore[attr-defined]  # bot/storage/sealed.py looks for it there
    try:
        if engine.dialect.name == "postgresql":
            _make_schema(engine)
        migrate(engine, where, elsewhere)
        engine.dialect.digest_key = check(engine, vault)  # type: ignore[attr-defined]  # the same
    except BaseException:
        engine.dispose()
        raise
    return engine


def _make_schema(engine: sa.Engine) -> None:
    with engine.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATING)))
        if not sa.inspect(connection).has_schema(SCHEMA):  # an account may own no more than it
            connection.exec_driver_sql(f"CREATE SCHEMA {SCHEMA}")


def _file_engine(path: Path) -> sa.Engine:
    engine = sa.create_engine(
        URL.create("sqlite", database=str(path)),
        # One connection for reads and one for changes: see Database.
        pool_size=2,
        max_overflow=0,
        hide_parameters=True,  # an error that is logged must not tell what people wrote
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        json_serializer=dumps,
    )

    # The driver opens transactions by itself, late and not round DDL; we say when.
    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None
        write_ahead(connection)
        # What is deleted is overwritten: whoever has the key shall not find it in the file, either.
        for pragma in ("foreign_keys=ON", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def write_ahead(connection: sqlite3.Connection) -> None:
    """Let changes be written ahead (WAL), so that reads do not wait for them.

    SQLite itself refuses at once where another process begins to write to a file that is not in
    this mode yet, as two do that start together on a new one. Raises sqlite3.OperationalError
    where that one has not finished after BUSY_SECONDS.
    """
    until = time.monotonic() + BUSY_SECONDS
    while True:
        try:
            return connection.execute("PRAGMA journal_mode=WAL").close()
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > until:
                raise
            time.sleep(0.01)


class Database:
    """Reads in one thread, changes in another, so that neither the event loop nor a read waits.

    Changes that are asked for while a transaction runs share the next one: a transaction waits 2 to
    6 ms for the disk, and a fan-out of 200 would wait for a second and more.
    """

    def __init__(self, engine: sa.Engine, where: str) -> None:
        self.where = where
        self.shared = engine.dialect.name == "postgresql"
        """Whether other processes work on it, too."""
        self.vault: Vault = engine.dialect.vault  # type: ignore[attr-defined]
        self.fault = ""
        """Why nothing could be written just now; empty = it could."""
        self._engine = engine
        self._writing = engine.execution_options(begin="BEGIN IMMEDIATE")
        self._reader, self._writer = (
            ThreadPoolExecutor(max_workers=1, thread_name_prefix=f"store-{name}")
            for name in ("reads", "writes")
        )
        self._changes: Together[Work, Any] = Together(self._outcomes)
        self._upserts: dict[tuple[Any, ...], sqlite.Insert] = {}

    @property
    def digest_key(self) -> bytes:
        """Of what is hidden where rows are looked for by it."""
        key: bytes = self._engine.dialect.digest_key  # type: ignore[attr-defined]
        return key

    @classmethod
    async def open(
        cls, data_dir: Path, url: str | None = None, vault: Vault | None = None
    ) -> Database:
        """`assistant.sqlite` in this directory, or the Postgres database of `url`.

        Without a vault that of this account and environment is taken. Raises StoreError for a
        database that is damaged, foreign, newer than this program, written with another key, out of
        reach or not writable.
        """
        if vault is None:
            vault = await asyncio.to_thread(vault_here, data_dir)
        if url:
            engine = await asyncio.to_thread(open_server, url, vault)
            return cls(engine, place_of(engine.url))
        path = data_dir / "assistant.sqlite"
        return cls(await asyncio.to_thread(open_file, path, vault), str(path))

    async def aclose(self) -> None:
        """Close it when what was asked for is done."""
        await self._changes.aclose()
        await self._do(self._reader, lambda: None)
        await self._do(self._writer, self._engine.dispose)
        self._reader.shutdown()
        self._writer.shutdown()

    def insert(self, table: sa.Table) -> sqlite.Insert:
        """An INSERT with ON CONFLICT, which both kinds of database spell alike."""
        made = (postgresql if self.shared else sqlite).insert(table)
        return cast(sqlite.Insert, made)

    def upsert(
        self, table: sa.Table, index: tuple[str, ...] = (), changed: tuple[str, ...] = ()
    ) -> sqlite.Insert:
        """An INSERT of rows; where one with this `index` is there, it changes these columns of it.

        Without columns what is there stays. Made once each: that takes as long as running it.
        """
        key = (table.name, index, changed)
        if key not in self._upserts:
            made = self.insert(table)
            latest = {name: made.excluded[name] for name in changed}
            self._upserts[key] = (
                made.on_conflict_do_update(index_elements=index, set_=latest)
                if changed
                else made.on_conflict_do_nothing()
            )
        return self._upserts[key]

    async def read(self, query: sa.Select[Any], **values: Any) -> list[dict[str, Any]]:
        """The rows of a query; `values` are for its parameters, where it was made beforehand."""

        def fetch() -> list[dict[str, Any]]:
            with self._engine.connect() as connection:
                return [dict(row) for row in connection.execute(query, values).mappings()]

        return await self._do(self._reader, fetch)

    async def change(self, work: Callable[[sa.Connection], T]) -> T:
        """What `work` returns, when its changes are stored. Raises StoreError, or what it raises.

        Who is cancelled while waiting leaves the change to be made.
        """
        made: T = await self._changes.ask(work)
        return made

    async def write(self, statement: sa.Insert | sa.Update | sa.Delete) -> int:
        """Run one statement; returns the number of rows that it touched."""
        counted = statement.execution_options(preserve_rowcount=True)  # of an INSERT, too
        return await self.change(lambda connection: connection.execute(counted).rowcount)

    async def _outcomes(self, works: Sequence[Work]) -> list[Any]:
        """What each work returned or raised: all in one transaction, or else each in its own."""
        try:
            outcomes = await self._do(self._writer, lambda: self._commit(works))
            self.fault = ""
            return outcomes
        except Exception as error:
            self.fault = str(error) if isinstance(error, StoreError) else self.fault
            if len(works) == 1:
                return [error]
        return [(await self._outcomes([work]))[0] for work in works]

    def _commit(self, works: Sequence[Work]) -> list[Any]:
        with self._writing.begin() as connection:
            return [work(connection) for work in works]

    async def _do(self, thread: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        def explained() -> T:
            with explaining(self.where):
                return work()

        return await asyncio.get_running_loop().run_in_executor(thread, explained)
