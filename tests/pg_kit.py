"""Databases for tests: fresh ones, in a file and on a Postgres server.

What a store creates at its first start is created once a session and copied, which is faster than
to migrate; on the server, where a copy is slow as well, a database is emptied and used again.
Tests of the migrations use places that are `bare`.

The server is TEST_DATABASE_URL, or one on this machine that lets `postgres` in. Without one, tests
are skipped; with CI_SERVICES=required they fail, so that nobody takes a skipped test for passed.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import shutil
import tempfile
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from dbos import run_dbos_database_migrations
from psycopg import sql
from sqlalchemy import make_url

from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.encryption import Cipher
from bot.storage.tables import flags

HERE = "postgresql://postgres@127.0.0.1:5432/postgres"
STORE = "assistant.sqlite"
COPIED = ExitStack()
"""Holds the originals of copies until conftest.py closes it after all tests."""


@cache
def server() -> str:
    """Return the address of a server that lets us create databases."""
    url = os.environ.get("TEST_DATABASE_URL") or HERE
    try:
        psycopg.connect(url, connect_timeout=30).close()
    except psycopg.Error as error:
        why = f"no Postgres answers at {at(url)}: {str(error).splitlines()[0]}"
        if os.environ.get("CI_SERVICES") == "required":
            pytest.fail(why)
        pytest.skip(why)
    return url


def at(url: str) -> str:
    """Return an address without its password."""
    return make_url(url).render_as_string(hide_password=True)


def of(url: str, **parts: Any) -> str:
    """Return the address with another user, password, port or database."""
    return make_url(url).set(**parts).render_as_string(hide_password=False)


def execute(statement: str, url: str | None = None, **names: str) -> list[tuple[Any, ...]]:
    """Run one statement; `{name}` in it stands for an identifier."""
    where = url or server()
    with psycopg.connect(where, autocommit=True, client_encoding="utf8") as connection:
        composed = sql.SQL(statement).format(
            **{key: sql.Identifier(name) for key, name in names.items()}
        )
        cursor = connection.execute(composed)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def database(model: str = "template1", encoding: str = "UTF8") -> Iterator[str]:
    """Yield the address of a new database; drop it afterwards, even with open connections.

    It is empty, or a copy of the one named `model`, to which nobody may be connected. Only
    `template0` can be copied with another encoding.
    """
    name = f"test_{secrets.token_hex(6)}"
    other = "" if encoding == "UTF8" else f"ENCODING '{encoding}' LC_COLLATE 'C' LC_CTYPE 'C'"
    execute(f"CREATE DATABASE {{name}} TEMPLATE {{model}} {other}", name=name, model=model)
    try:
        yield of(server(), database=name)
    finally:
        execute("DROP DATABASE {name} WITH (FORCE)", name=name)


@contextmanager
def role() -> Iterator[tuple[str, str]]:
    """Yield name and password of an account that may only log in."""
    name, password = f"test_{secrets.token_hex(6)}", secrets.token_hex(8)
    execute(f"CREATE ROLE {{name}} LOGIN PASSWORD '{password}'", name=name)
    try:
        yield name, password
    finally:
        execute("DROP ROLE {name}", name=name)


def _make_store(folder: Path, url: str | None) -> None:
    """Create what a first start creates, except the row about the key."""

    async def start() -> None:
        store = await Store.open(folder, url)
        await store.database.write(sa.delete(flags))
        await store.aclose()

    with ThreadPoolExecutor(1) as thread:  # the caller's may have a running loop
        thread.submit(asyncio.run, start()).result()


@cache
def store_file() -> Path:
    """Return a file as a first start leaves it."""
    folder = Path(COPIED.enter_context(tempfile.TemporaryDirectory()))
    _make_store(folder, None)
    return folder / STORE


def with_store(folder: Path) -> None:
    """Give a folder without a database the one of a first start."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if not (folder / STORE).exists():
        shutil.copy(store_file(), folder / STORE)


@cache
def workflow_file() -> Path:
    """Return the file of dbos with its tables."""
    file = store_file().with_name("workflows.sqlite")
    run_dbos_database_migrations(f"sqlite:///{file}")
    return file


def with_files(folder: Path) -> None:
    """Give a folder what a bot has there after its first start."""
    with_store(folder)
    if not (folder / workflow_file().name).exists():
        shutil.copy(workflow_file(), folder)


@cache
def store_database() -> str:
    """Return the name of a Postgres database as a first start leaves it."""
    url = COPIED.enter_context(database())
    with tempfile.TemporaryDirectory() as folder:
        _make_store(Path(folder), url)
    return str(make_url(url).database)


EMPTIED: list[str] = []
"""Addresses of copies of `store_database` that are free again."""


@contextmanager
def empty_database() -> Iterator[str]:
    """Yield a database as a first start leaves it: one that another test has left, or a new one.

    One whose tables have changed is not used again.
    """
    if not EMPTIED:
        EMPTIED.append(COPIED.enter_context(database(store_database())))
    url = EMPTIED.pop()
    form = _form(url)
    yield url
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}", url)
    if _form(url) == form:
        _empty(url)
        EMPTIED.append(url)


def _form(url: str) -> list[tuple[Any, ...]]:
    """Return columns, triggers and version of the tables."""
    return execute(
        "SELECT table_name::text, column_name::text, data_type::text"
        " FROM information_schema.columns WHERE table_schema = 'assistant'"
        " UNION ALL SELECT event_object_table::text, trigger_name::text, action_statement::text"
        " FROM information_schema.triggers"
        " UNION ALL SELECT '', version_num, '' FROM assistant.alembic_version ORDER BY 1, 2, 3",
        url,
    )


def _empty(url: str) -> None:
    """Delete all rows except those of migrations, and restart the sequences."""
    with psycopg.connect(url, autocommit=True) as connection, connection.transaction():
        connection.execute("SET LOCAL session_replication_role = replica")  # without triggers
        tables = connection.execute(
            "SELECT schemaname, tablename FROM pg_tables"
            " WHERE schemaname IN ('assistant', 'dbos')"
            " AND tablename NOT IN ('alembic_version', 'dbos_migrations')"
        ).fetchall()
        for schema, table in tables:
            connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(schema, table)))
        counters = connection.execute("SELECT schemaname, sequencename FROM pg_sequences")
        for schema, name in counters.fetchall():
            restart = sql.SQL("ALTER SEQUENCE {} RESTART").format(sql.Identifier(schema, name))
            connection.execute(restart)


@dataclass(frozen=True)
class StorePlace:
    """The place of a store: a directory, or a Postgres database."""

    path: Path
    url: str | None

    @property
    def shared(self) -> bool:
        return self.url is not None

    async def store(self, *runs: str) -> Store:
        """Open the store once more, and start these runs."""
        store = await Store.open(self.path, self.url)
        for run in runs:
            await store.start_run(run, "mention", f"What of {run}?", "offline", {})
        return store

    @asynccontextmanager
    async def stores(self, count: int = 1, *runs: str) -> AsyncIterator[list[Store]]:
        """Open several stores of the place, as replicas do; only one if it is a file."""
        opened = [await self.store(*runs) for _ in range(count if self.shared else 1)]
        try:
            yield opened
        finally:
            for store in opened:
                await store.aclose()


@contextmanager
def store_place(kind: str, path: Path, *, bare: bool = False) -> Iterator[StorePlace]:
    """A place for a store, `sqlite` or `postgres`, with its tables; `bare`: without them."""
    if kind == "sqlite":
        if not bare:
            with_store(path)
        yield StorePlace(path, None)
        return
    with database() if bare else empty_database() as url:
        yield StorePlace(path, url)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    """Both kinds of database, one after the other."""
    with store_place(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def in_file(tmp_path: Path) -> Iterator[StorePlace]:
    """A file, for tests that need only one kind of database."""
    with store_place("sqlite", tmp_path) as found:
        yield found


@asynccontextmanager
async def encrypted_database(place: StorePlace) -> AsyncIterator[Database]:
    database = await Database.open(place.path, place.url, Cipher.generate())
    yield database
    await database.aclose()


@pytest.fixture
async def database_in_file(in_file: StorePlace) -> AsyncIterator[Database]:
    """An open database in a file."""
    async with encrypted_database(in_file) as database:
        yield database


@pytest.fixture
async def each_database(place: StorePlace) -> AsyncIterator[Database]:
    """Both kinds of open database, one after the other."""
    async with encrypted_database(place) as database:
        yield database


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[StorePlace]:
    """A Postgres database."""
    with store_place("postgres", tmp_path) as found:
        yield found


@pytest.fixture(params=["sqlite", "postgres"])
def bare(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[StorePlace]:
    """Both kinds of database before the first start."""
    with store_place(request.param, tmp_path, bare=True) as found:
        yield found


@pytest.fixture
def bare_postgres(tmp_path: Path) -> Iterator[StorePlace]:
    """A Postgres database before the first start."""
    with store_place("postgres", tmp_path, bare=True) as found:
        yield found
