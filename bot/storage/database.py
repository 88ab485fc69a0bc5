"""The database: a SQLite file of this process, or Postgres shared by replicas."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import re
import sqlite3
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from functools import update_wrapper
from pathlib import Path
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast

import sqlalchemy as sa
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.engine import URL

from bot.errors import SetupError, StoreError
from bot.storage.encryption import Cipher, WrongKey, cipher_here, cipher_of
from bot.storage.tables import REVISIONS, credentials, flags, installations, preferences
from config.settings import Settings
from scopes.tool import compact_json

log = logging.getLogger(__name__)

MIGRATION_LOCK = 7_002
"""Advisory lock of Postgres that a replica holds while it migrates."""
ONE_MIGRATION = threading.Lock()
"""Alembic keeps its state in a module, and several workspaces are opened at once."""
SEARCH_TABLES = ("notes_search", "conversations_search")
"""Tables of SQLite that FTS5 searches: created in bot/migrations."""
KEY_CHECK = "key_check"
"""Flag with an encrypted text, which reveals a wrong key at the start."""


def migrate(engine: sa.Engine, where: object, elsewhere: str) -> None:
    """Create the schema in an empty database, once among concurrent processes.

    `elsewhere` tells how to use another database. Raises StoreError for a foreign database, or
    one with the schema of another version.
    """
    with engine.connect() as connection:
        if _revision(connection, where, elsewhere) == REVISIONS[-1]:
            return
    with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        if _revision(connection, where, elsewhere) != REVISIONS[-1]:  # no other process did it
            _upgrade(connection)


def check_key(engine: sa.Engine, cipher: Cipher) -> None:
    """Raise WrongKey if the key that this database was first used with is not in the cipher.

    If a key other than the first was in use, encrypt the tokens again with the first.
    """
    find = sa.select(flags.c.value).where(flags.c.name == KEY_CHECK)
    with engine.connect() as connection:
        found: str | None = connection.execute(find).scalar()
    if found is None:
        row = {"name": KEY_CHECK, "value": cipher.encrypt(KEY_CHECK), "at": datetime.now(UTC)}
        dialect = postgresql if engine.dialect.name == "postgresql" else sqlite
        with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
            connection.execute(dialect.insert(flags).values(row).on_conflict_do_nothing())
            found = str(connection.execute(find).scalar_one())
    cipher.decrypt(found)
    if not cipher.is_current(found):
        _rotate(engine, cipher)


def _rotate(engine: sa.Engine, cipher: Cipher) -> None:
    """Encrypt permanent data (tokens and preferences) with the first key."""
    columns = (credentials.c.body, preferences.c.text, installations.c.body)
    with engine.execution_options(begin="BEGIN IMMEDIATE").begin() as connection:
        for column in columns:  # read and written again: the first key encrypts
            key = list(column.table.primary_key)
            query = sa.select(*key, column.label("kept")).with_for_update()
            for row in connection.execute(query).all():
                is_row = sa.and_(*(each == row[number] for number, each in enumerate(key)))
                update = sa.update(column.table).where(is_row)
                connection.execute(update.values({column: row.kept}))
        is_row = flags.c.name == KEY_CHECK
        connection.execute(sa.update(flags).where(is_row).values(value=cipher.encrypt(KEY_CHECK)))


def _revision(connection: sa.Connection, where: object, elsewhere: str) -> str | None:
    """Return the schema revision of the database, None for an empty one."""
    tables = sa.inspect(connection).get_table_names()
    if not tables:
        return None
    found: str | None = None
    if "alembic_version" in tables:
        found = connection.exec_driver_sql("SELECT version_num FROM alembic_version").scalar()
    if found is None:
        raise StoreError(where, "holds something else", f"Move that away, or {elsewhere}")
    if found in REVISIONS:
        return found
    what = f"was written by another version of the assistant (schema {found}, not {REVISIONS[-1]})"
    raise StoreError(where, what, f"Use that version, move it away, or {elsewhere}")


def _upgrade(connection: sa.Connection) -> None:
    # Imported here: the import of Alembic takes 0.15 s, and nearly no start needs it.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("script_location", "bot:migrations")
    config.set_main_option("path_separator", "os")
    with ONE_MIGRATION:
        command.upgrade(config, "head")


FILE_ELSEWHERE = "set data_dir to another directory."
URL_ELSEWHERE = "set DATABASE_URL to another database."
_MOVE = "Move it away to start with an empty one."
_SQLITE_ERRORS = {
    sqlite3.SQLITE_FULL: ("has no space left", f"Free some, or {FILE_ELSEWHERE}"),
    sqlite3.SQLITE_IOERR: (
        "cannot be written: the disk is full, has a size limit or is faulty",
        f"Free some space, or {FILE_ELSEWHERE}",
    ),
    sqlite3.SQLITE_READONLY: ("is read-only", f"Make it writable, or {FILE_ELSEWHERE}"),
    sqlite3.SQLITE_PERM: ("may not be used by this account", f"Allow it, or {FILE_ELSEWHERE}"),
    sqlite3.SQLITE_CANTOPEN: (
        "cannot be opened",
        f"Make it and its directory readable and writable, or {FILE_ELSEWHERE}",
    ),
    sqlite3.SQLITE_BUSY: (
        "is in use by another assistant",
        "Try again when that one has finished.",
    ),
    sqlite3.SQLITE_CORRUPT: ("is damaged", _MOVE),
    sqlite3.SQLITE_NOTADB: ("is not a database", _MOVE),
}
_FAULT_SQLSTATES = ("08", "25006", "28", "3D", "3F", "40", "42501", "53", "55", "57", "58", "XX")
"""SQLSTATEs, or their classes, of faults of a server or an account, not of a query."""


@contextmanager
def translate_errors(where: object) -> Iterator[None]:
    """Translate errors of the disk and the database into StoreError."""
    try:
        yield
    except (sa.exc.DBAPIError, sqlite3.Error) as error:
        cause = error.orig if isinstance(error, sa.exc.DBAPIError) else error
        code = getattr(cause, "sqlite_errorcode", None) or 0
        if code & 0xFF in _SQLITE_ERRORS:
            raise StoreError(where, *_SQLITE_ERRORS[code & 0xFF]) from error
        if code or not isinstance(error, sa.exc.DBAPIError) or not _is_of_the_server(error):
            raise
        lines = str(error.orig).strip().splitlines()
        hint = f"Check that Postgres runs and takes this account, or {URL_ELSEWHERE}"
        raise StoreError(where, f"cannot be used: {lines[0] if lines else error}", hint) from error
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        hint = f"Fix that, or {FILE_ELSEWHERE}"
        raise StoreError(where, f"cannot be used: {reason}", hint) from error


def _is_of_the_server(error: sa.exc.DBAPIError) -> bool:
    if state := getattr(error.orig, "sqlstate", None):
        return bool(state.startswith(_FAULT_SQLSTATES))
    return isinstance(error, sa.exc.OperationalError | sa.exc.ProgrammingError)


BatchItem = TypeVar("BatchItem")
BatchResult = TypeVar("BatchResult")


class BatchWriter(Generic[BatchItem, BatchResult]):
    """Passes to `work`, in one batch, all items that were added while the previous batch ran.

    `work` returns the result or error of each item, in order; if it raises, all callers get that
    error. If a waiting caller is cancelled, its item is still processed. If the work itself is
    cancelled, as at the end of a loop, all callers are cancelled.
    """

    def __init__(
        self, work: Callable[[Sequence[BatchItem]], Awaitable[Sequence[BatchResult | Exception]]]
    ) -> None:
        self._work = work
        self._pending: list[tuple[BatchItem, asyncio.Future[BatchResult]]] = []
        self._working: asyncio.Task[None] | None = None

    def ask(self, item: BatchItem) -> asyncio.Future[BatchResult]:
        """Add an item; return a future of its result. It is processed even if nobody waits."""
        loop = asyncio.get_running_loop()
        done: asyncio.Future[BatchResult] = loop.create_future()
        self._pending.append((item, done))
        if self._working is None:
            self._working = loop.create_task(self._work_on_all())
        return done

    async def aclose(self) -> None:
        """Wait until all items are processed."""
        if self._working:
            await self._working

    async def _work_on_all(self) -> None:
        batch: list[tuple[BatchItem, asyncio.Future[BatchResult]]] = []
        try:
            while self._pending:
                batch, self._pending = self._pending, []
                outcomes = await self._outcomes([item for item, _ in batch])
                for (_, done), outcome in zip(batch, outcomes, strict=True):
                    if done.cancelled():
                        continue
                    if isinstance(outcome, Exception):
                        done.set_exception(outcome)
                    else:
                        done.set_result(outcome)
        finally:
            self._working = None
            for _, done in (*batch, *self._pending):
                done.cancel()
            self._pending = []

    async def _outcomes(self, items: Sequence[BatchItem]) -> Sequence[BatchResult | Exception]:
        try:
            return await self._work(items)
        except Exception as error:  # raised for all waiting callers
            return [error] * len(items)


CHUNK_SIZE = 500
"""Maximum values of one condition or rows of one transaction, since others wait for it."""


def chunks(values: Iterable[Any], size: int = CHUNK_SIZE) -> Iterator[list[Any]]:
    """Yield the values, sorted, in lists of at most this size."""
    ordered = sorted(values)
    for start in range(0, len(ordered), size):
        yield ordered[start : start + size]


T = TypeVar("T")
Work = Callable[[sa.Connection], Any]
"""Runs inside a transaction; it may run again if that one fails."""

READER_THREADS = 3
"""Threads that read: a slow search of the console delays no other read."""
POOL_SIZE = READER_THREADS + 1
BUSY_SECONDS = 10
"""Seconds that a command waits for another process that is writing."""
SCHEMA = "assistant"
"""Schema of our tables in Postgres; nothing else in that database is touched.

If several workspaces are served, the address of each names its schema: see
`Settings.database_url`.
"""


def open_file(path: Path, cipher: Cipher) -> sa.Engine:
    """Open an engine for the file, readable only by its owner, at the current schema.

    Blocks for a few milliseconds, or 0.2 s if it must create the schema. Raises StoreError.
    """
    with translate_errors(path):
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        make_private(path)
        return _ready(_file_engine(path), cipher, path, FILE_ELSEWHERE)


def make_private(path: Path) -> None:
    """Restrict a database file, and SQLite's files next to it, to its owner."""
    if not path.exists():
        path.touch(mode=0o600)  # SQLite gives the files next to it the same mode
    for file in (path, *(path.with_name(f"{path.name}-{kind}") for kind in ("wal", "shm"))):
        with suppress(
            FileNotFoundError, PermissionError
        ):  # we cannot restrict the file of another account
            if file.stat().st_mode & 0o077:
                file.chmod(0o600)


def open_server(url: str, cipher: Cipher) -> sa.Engine:
    """Open an engine for a Postgres database, at the current schema. Raises StoreError."""
    address = server_url(url)
    where = place_of(address)
    with translate_errors(where):
        engine = sa.create_engine(
            address,
            pool_size=POOL_SIZE,
            max_overflow=0,
            hide_parameters=True,  # a logged error must not reveal what people wrote
            pool_pre_ping=True,  # reconnect after the server was restarted
            connect_args={
                "options": f"-csearch_path={schema_of(address)}",
                "connect_timeout": BUSY_SECONDS,
            },
            json_serializer=compact_json,
        )
        return _ready(engine, cipher, where, URL_ELSEWHERE)


def server_url(url: str) -> URL:
    """Return the address with the installed driver. Raises StoreError for other databases."""
    try:
        address = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):  # ValueError: a port that is no number
        address = URL.create("unknown")
    if not address.drivername.startswith(("postgresql", "postgres")):
        what = "is named by a DATABASE_URL that is no postgresql:// address"
        raise StoreError("of the replicas", what, "Write it as postgresql://user@host/database.")
    return address.set(drivername="postgresql+psycopg")


def schema_of(address: URL) -> str:
    """Return the schema of our tables that an address names."""
    found = re.search(r"-csearch_path=(assistant_t\w+)", str(address.query.get("options", "")))
    return found[1] if found else SCHEMA


def place_of(address: URL) -> str:
    """Return a server's database for display: without account and password."""
    return f"{address.database or ''} on {address.host or 'this machine'}"


def _ready(engine: sa.Engine, cipher: Cipher, where: object, elsewhere: str) -> sa.Engine:
    """Bring the schema up to date and check the key; return the engine."""
    engine.dialect.cipher = cipher  # type: ignore[attr-defined]  # EncryptedText looks for it there
    try:
        if engine.dialect.name == "postgresql":
            _make_schema(engine, schema_of(engine.url))
        migrate(engine, where, elsewhere)
        check_key(engine, cipher)
    except BaseException:
        engine.dispose()
        raise
    return engine


def _make_schema(engine: sa.Engine, schema: str) -> None:
    with engine.begin() as connection:
        connection.execute(sa.select(sa.func.pg_advisory_xact_lock(MIGRATION_LOCK)))
        if not sa.inspect(connection).has_schema(schema):  # the account may own nothing else
            connection.exec_driver_sql(f"CREATE SCHEMA {schema}")


def _file_engine(path: Path) -> sa.Engine:
    engine = sa.create_engine(
        URL.create("sqlite", database=str(path)),
        pool_size=POOL_SIZE,
        max_overflow=0,
        hide_parameters=True,  # a logged error must not reveal what people wrote
        connect_args={"timeout": BUSY_SECONDS, "check_same_thread": False},
        json_serializer=compact_json,
    )

    # We open transactions ourselves: the driver would open them late and not around DDL.
    @sa.event.listens_for(engine, "connect")
    def _set_up(connection: sqlite3.Connection, _: object) -> None:
        connection.isolation_level = None
        write_ahead(connection)
        # Deleted text is overwritten, so that nobody finds it in the file.
        for pragma in ("foreign_keys=ON", "secure_delete=ON"):
            connection.execute(f"PRAGMA {pragma}").close()

    @sa.event.listens_for(engine, "begin")
    def _begin(connection: sa.Connection) -> None:
        connection.exec_driver_sql(connection.get_execution_options().get("begin", "BEGIN"))

    return engine


def write_ahead(connection: sqlite3.Connection) -> None:
    """Turn on write-ahead logging (WAL), so that reads do not wait for changes.

    SQLite itself refuses at once if another process starts to write to a file that is not in this
    mode yet, as with two processes that start together on a new file. Raises
    sqlite3.OperationalError if the other process has not finished after BUSY_SECONDS.
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
    """Reads in some threads and writes in another: neither the event loop nor a read waits.

    Changes that are requested while a transaction runs share the next one: a transaction waits 2
    to 6 ms for the disk, and a fan-out of 200 would otherwise wait for more than a second. Methods
    that read or write raise StoreError.
    """

    def __init__(self, engine: sa.Engine, where: str) -> None:
        self.where = where
        self.shared = engine.dialect.name == "postgresql"
        """True if other processes may use it, too."""
        self.fault = ""
        """Why the last write failed; empty = it succeeded."""
        self._engine = engine
        self._writing = engine.execution_options(begin="BEGIN IMMEDIATE")
        self._readers = ThreadPoolExecutor(READER_THREADS, "store-reads")
        self._writer = ThreadPoolExecutor(1, "store-writes")
        self._changes: BatchWriter[Work, Any] = BatchWriter(self._outcomes)
        self._upserts: dict[tuple[Any, ...], sqlite.Insert] = {}

    @classmethod
    async def open(
        cls, data_dir: Path, url: str | None = None, cipher: Cipher | None = None
    ) -> Database:
        """Open `assistant.sqlite` in this directory, or the Postgres database of `url`.

        Without a cipher, the keys of this account and environment are used. Raises StoreError for a
        database that is damaged, foreign, of another version, written with another key,
        unreachable or not writable.
        """
        if cipher is None:
            cipher = await asyncio.to_thread(cipher_here, data_dir)
        if url:
            engine = await asyncio.to_thread(open_server, url, cipher)
            return cls(engine, place_of(engine.url))
        path = data_dir / "assistant.sqlite"
        return cls(await asyncio.to_thread(open_file, path, cipher), str(path))

    @classmethod
    async def of(cls, settings: Settings) -> Database:
        """Open the database that the settings name, with the keys from the settings."""
        return await cls.open(settings.data_dir, settings.database_url, cipher_of(settings))

    async def aclose(self) -> None:
        """Finish pending work, then close the database."""
        await self._changes.aclose()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        # The threads first: a call after the connections are closed would open one again.
        self._readers.shutdown()
        self._writer.shutdown()
        with translate_errors(self.where):
            self._engine.dispose()

    def insert(self, table: sa.Table) -> sqlite.Insert:
        """Return an INSERT that supports ON CONFLICT, for either kind of database."""
        statement = (postgresql if self.shared else sqlite).insert(table)
        return cast(sqlite.Insert, statement)

    def upsert(
        self, table: sa.Table, index: tuple[str, ...] = (), changed: tuple[str, ...] = ()
    ) -> sqlite.Insert:
        """Return an INSERT of rows; a row with the same `index` gets these columns updated.

        Without columns an existing row stays. Each statement is built once: building takes as
        long as running it.
        """
        key = (table.name, index, changed)
        if key not in self._upserts:
            statement = self.insert(table)
            latest = {name: statement.excluded[name] for name in changed}
            self._upserts[key] = (
                statement.on_conflict_do_update(index_elements=index, set_=latest)
                if changed
                else statement.on_conflict_do_nothing()
            )
        return self._upserts[key]

    async def read(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        """Return the rows of a query."""

        def fetch() -> Sequence[sa.Row[Any]]:
            with self._engine.connect() as connection:
                return connection.execute(query).all()

        return await self._do(self._readers, fetch)

    async def change(self, work: Callable[[sa.Connection], T]) -> T:
        """Run `work` in a transaction; return its result when its changes are stored.

        Raises what `work` raises. If the caller is cancelled, the change is still made.
        """
        result: T = await self._changes.ask(work)
        return result

    async def write(self, statement: sa.Insert | sa.Update | sa.Delete) -> int:
        """Run one statement; return the number of rows that it touched."""
        counted = statement.execution_options(preserve_rowcount=True)  # also counts for an INSERT
        return await self.change(lambda connection: connection.execute(counted).rowcount)

    async def empty_log(self) -> None:
        """Remove traces of deleted rows from an SQLite file.

        The search indexes are merged, and the write-ahead log is emptied.
        """
        if self.shared:
            return

        def merge(connection: sa.Connection) -> None:
            for index in SEARCH_TABLES:
                connection.exec_driver_sql(f"INSERT INTO {index} ({index}) VALUES ('optimize')")

        def empty() -> None:
            with self._engine.connect() as connection:
                driver = cast(sqlite3.Connection, connection.connection.driver_connection)
                driver.execute("PRAGMA wal_checkpoint(TRUNCATE)").close()

        await self.change(merge)
        await self._do(self._writer, empty)

    async def _outcomes(self, works: Sequence[Work]) -> list[Any]:
        """Return the result or error of each work: in one transaction, else in one each."""
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

    async def _do(self, threads: ThreadPoolExecutor, work: Callable[[], T]) -> T:
        def run_translated() -> T:
            with translate_errors(self.where):
                return work()

        return await asyncio.get_running_loop().run_in_executor(threads, run_translated)


class OnDatabase(Protocol):
    @property
    def database(self) -> Database: ...


S = TypeVar("S", bound=OnDatabase)
P = ParamSpec("P")


def in_transaction(
    work: Callable[Concatenate[S, sa.Connection, P], T],
) -> Callable[Concatenate[S, P], Coroutine[Any, Any, T]]:
    """Return a method that awaits its work in a transaction; see `Database.change`.

    The work gets the connection before its arguments, and may run again if the transaction fails.
    """

    async def method(self: S, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.database.change(
            lambda connection: work(self, connection, *args, **kwargs)
        )

    update_wrapper(method, work)
    return method


RETRY_S = 2.0


class RetryingDatabase(Database):
    """The same database, but it retries failed calls forever. Raises only WrongKey.

    So a fault that somebody can fix does not lose work that was paid for.
    """

    def __init__(self, database: Database) -> None:
        self.where, self.shared = database.where, database.shared
        self._database = database
        self._upserts = {}

    async def aclose(self) -> None:
        """Do nothing: the opener of the database closes it."""

    async def read(self, query: sa.Select[Any]) -> Sequence[sa.Row[Any]]:
        return await self._patiently(lambda: self._database.read(query))

    async def change(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._patiently(lambda: self._database.change(work))

    async def empty_log(self) -> None:
        await self._patiently(self._database.empty_log)

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except WrongKey:  # somebody has changed one value, and waiting does not fix that
                raise
            except StoreError as error:
                log.error("%s It is tried again every %.0f s.", error, RETRY_S)
                await asyncio.sleep(RETRY_S)


LOCK = "serve.lock"


@contextmanager
def only_process(data_dir: Path) -> Iterator[None]:
    """Hold the lock of the data directory. Raises SetupError if another process has it."""
    with translate_errors(data_dir):
        data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        (data_dir / LOCK).touch(mode=0o600)
        file = (data_dir / LOCK).open("ab+", buffering=0)  # closing it writes nothing
    with closing(file):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            file.seek(0)
            pid = file.read().decode().strip() or "?"
            why = f"Another `assistant serve` (pid {pid}) uses {data_dir}."
            hint = "Stop that one, or set DATABASE_URL to a Postgres that replicas may share."
            raise SetupError("locked", why, hint) from None
        with translate_errors(data_dir):
            file.truncate(0)
            file.write(str(os.getpid()).encode())
        yield
