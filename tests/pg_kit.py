"""Databases for tests: fresh ones, in a file and on a Postgres server.

The server is TEST_DATABASE_URL, or one on this machine that lets `postgres` in. Where there is
none, tests are skipped; with CI_SERVICES=required they fail, so that nobody takes that for passed.
"""

from __future__ import annotations

import os
import secrets
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg import sql
from sqlalchemy import make_url

from bot.store import Store

HERE = "postgresql://postgres@127.0.0.1:5432/postgres"


@cache
def server() -> str:
    """Address of a server that lets us create databases."""
    url = os.environ.get("TEST_DATABASE_URL") or HERE
    try:
        psycopg.connect(url, connect_timeout=3).close()
    except psycopg.Error as error:
        why = f"no Postgres answers at {at(url)}: {str(error).splitlines()[0]}"
        if os.environ.get("CI_SERVICES") == "required":
            pytest.fail(why)
        pytest.skip(why)
    return url


def at(url: str) -> str:
    """An address that may be shown."""
    return make_url(url).render_as_string(hide_password=True)


def of(url: str, **parts: Any) -> str:
    """The address with another user, password, port or database."""
    return make_url(url).set(**parts).render_as_string(hide_password=False)


def execute(statement: str, url: str | None = None, **names: str) -> list[tuple[Any, ...]]:
    """Run one statement; `{name}` in it stands for an identifier."""
    with psycopg.connect(url or server(), autocommit=True) as connection:
        composed = sql.SQL(statement).format(
            **{key: sql.Identifier(name) for key, name in names.items()}
        )
        cursor = connection.execute(composed)
        return cursor.fetchall() if cursor.description else []


@contextmanager
def database() -> Iterator[str]:
    """Address of a database of one's own, empty, gone afterwards whoever is still connected."""
    name = f"test_{secrets.token_hex(6)}"
    execute("CREATE DATABASE {name}", name=name)
    try:
        yield of(server(), database=name)
    finally:
        execute("DROP DATABASE {name} WITH (FORCE)", name=name)


@contextmanager
def role() -> Iterator[tuple[str, str]]:
    """Name and password of an account that may log in and nothing else."""
    name, password = f"test_{secrets.token_hex(6)}", secrets.token_hex(8)
    execute(f"CREATE ROLE {{name}} LOGIN PASSWORD '{password}'", name=name)
    try:
        yield name, password
    finally:
        execute("DROP ROLE {name}", name=name)


@dataclass(frozen=True)
class Kept:
    """Where a store lies: a directory, or a Postgres database."""

    path: Path
    url: str | None

    @property
    def shared(self) -> bool:
        return self.url is not None

    async def store(self, *runs: str) -> Store:
        """Opened once more, with these runs begun."""
        store = await Store.open(self.path, self.url)
        for run in runs:
            await store.start_run(run, "mention", f"What of {run}?", "offline", {})
        return store

    @asynccontextmanager
    async def stores(self, count: int = 1, *runs: str) -> AsyncIterator[list[Store]]:
        """Several stores over the one place, as replicas have them; one, where it is a file."""
        opened = [await self.store(*runs) for _ in range(count if self.shared else 1)]
        try:
            yield opened
        finally:
            for store in opened:
                await store.aclose()


@contextmanager
def kept(kind: str, path: Path) -> Iterator[Kept]:
    """A place for a store: `sqlite` or `postgres`."""
    if kind == "sqlite":
        yield Kept(path, None)
        return
    with database() as url:
        yield Kept(path, url)


@pytest.fixture(params=["sqlite", "postgres"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kept]:
    """Both kinds of database, one after the other; import it to have it."""
    with kept(request.param, tmp_path) as found:
        yield found


@pytest.fixture
def postgres(tmp_path: Path) -> Iterator[Kept]:
    """A Postgres database; import it to have it."""
    with kept("postgres", tmp_path) as found:
        yield found
