"""One database, in a file or on a server: changes in order, none harmed by another, faults told."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from pg_kit import Kept, bare, bare_postgres, execute, of, place, postgres, role, server
from timing import WAIT_S

from bot.errors import StoreError
from bot.runs.store import Store
from bot.storage.database import KEY_CHECK, SCHEMA, BatchWriter, Database, _file_engine, server_url
from bot.storage.tables import METADATA

__all__ = ["bare", "bare_postgres", "place", "postgres"]

COUNT = sa.text(f"SELECT count(*) FROM flags WHERE name <> '{KEY_CHECK}'")


def put(name: str) -> Any:
    """A change that leaves a mark, and tells how many there are then."""

    def work(connection: sa.Connection) -> int:
        mark = sa.text("INSERT INTO flags (name, at) VALUES (:name, '2025')")
        connection.execute(mark, {"name": name})
        return int(connection.execute(COUNT).scalar_one())

    return work


def spoil(name: str) -> Any:
    """A change that fails after it has written something."""

    def work(connection: sa.Connection) -> None:
        put(name)(connection)
        raise LookupError(name)

    return work


async def marks(database: Database) -> set[str]:
    table = METADATA.tables["flags"]
    query = sa.select(table.c.name).where(table.c.name != KEY_CHECK)
    return {row.name for row in await database.read(query)}


@asynccontextmanager
async def opened(place: Kept) -> AsyncIterator[Database]:
    database = await Database.open(place.path, place.url)
    try:
        yield database
    finally:
        await database.aclose()


# ---- changes


async def test_a_change_that_fails_harms_no_other_and_leaves_nothing_behind(place: Kept) -> None:
    async with opened(place) as database:
        works = [spoil(f"bad {n}") if n % 7 == 3 else put(f"good {n}") for n in range(50)]
        twice = [put("good 0"), sa.text("no such statement")]
        outcomes = await asyncio.gather(
            *(database.change(work) for work in works),
            database.change(twice[0]),
            database.change(lambda connection: connection.execute(twice[1])),
            database.change(put("last")),
            return_exceptions=True,
        )

        bad = [n for n in range(50) if n % 7 == 3]
        assert [n for n in range(50) if isinstance(outcomes[n], LookupError)] == bad
        assert isinstance(outcomes[50], sa.exc.IntegrityError)
        assert isinstance(outcomes[51], Exception)
        good = [o for o in outcomes if isinstance(o, int)]
        assert good == list(range(1, 45))
        assert await marks(database) == {f"good {n}" for n in range(50) if n not in bad} | {"last"}


async def test_who_is_cancelled_while_waiting_harms_no_other(place: Kept) -> None:
    async with opened(place) as database:
        waiting = [asyncio.create_task(database.change(put(f"{n}"))) for n in range(20)]
        await asyncio.sleep(0)
        for task in waiting[::2]:
            task.cancel()
        told = await asyncio.gather(*waiting, return_exceptions=True)

        assert all(isinstance(each, asyncio.CancelledError) for each in told[::2])
        assert all(isinstance(each, int) for each in told[1::2])
        assert len(await marks(database)) == 20


async def test_a_slow_read_aside_delays_no_other_read(tmp_path: Path) -> None:
    database, loop = await Database.open(tmp_path), asyncio.get_running_loop()
    begun, goes_on = asyncio.Event(), threading.Event()

    def wait() -> bool:
        loop.call_soon_threadsafe(begun.set)
        return goes_on.wait(WAIT_S)

    @sa.event.listens_for(database._engine, "checkout")
    def _taken(connection: Any, _record: object, _proxy: object) -> None:
        connection.create_function("slow", 0, wait)

    slow = asyncio.create_task(database.aside().read(sa.select(sa.func.slow().label("waited"))))
    await begun.wait()
    assert await marks(database) == set()
    await database.change(put("a"))
    assert not slow.done()
    goes_on.set()
    assert (await slow)[0].waited
    await database.aclose()


# ---- the schema


def engine_of(place: Kept) -> sa.Engine:
    """A connection of one's own to what the program made."""
    if place.url:
        options = {"options": f"-csearch_path={SCHEMA}"}
        return sa.create_engine(server_url(place.url), connect_args=options)
    return _file_engine(place.path / "assistant.sqlite")


async def test_many_that_start_together_on_an_empty_database_make_it_once(bare: Kept) -> None:
    stores = await asyncio.gather(*(bare.store() for _ in range(6)))
    for store in stores:
        await store.aclose()
    async with opened(bare) as database:
        assert await marks(database) == set()


@pytest.mark.parametrize("revision", ["0016", "9999"])
async def test_a_database_of_another_version_is_refused(place: Kept, revision: str) -> None:
    await (await place.store()).aclose()
    engine = engine_of(place)
    with engine.begin() as connection:
        update = sa.text("UPDATE alembic_version SET version_num = :revision")
        connection.execute(update, {"revision": revision})
    engine.dispose()

    refused = rf"another version of the assistant \(schema {revision}.*Use that version"
    with pytest.raises(StoreError, match=refused):
        await place.store()


# ---- faults


async def complaint(tmp_path: Path, url: str) -> str:
    with pytest.raises(StoreError) as error:
        await Database.open(tmp_path, url)
    told = str(error.value)
    assert "\n" not in told
    assert "Check that Postgres runs" in told
    assert "set DATABASE_URL to another database" in told
    return told


async def test_a_refusal_of_the_server_is_told_in_a_sentence_without_the_password(
    tmp_path: Path,
) -> None:
    url = of(server(), password="hidden-word")
    for parts, said in (
        ({"username": "nobody"}, '"nobody" does not exist'),
        ({"database": "nowhere"}, '"nowhere" does not exist'),
        ({"port": 9}, "on 127.0.0.1 cannot be used: "),
    ):
        told = await complaint(tmp_path, of(url, **parts))
        assert said in told
        assert "hidden-word" not in told


async def test_an_account_that_owns_only_our_schema_is_enough(bare_postgres: Kept) -> None:
    assert bare_postgres.url
    with role() as (name, password):
        execute("CREATE SCHEMA assistant AUTHORIZATION {name}", bare_postgres.url, name=name)
        url = of(bare_postgres.url, username=name, password=password)
        store = await Store.open(bare_postgres.path, url)
        await store.start_run("r1", "ask", "?", "m", {})
        assert (await store.run("r1")).id == "r1"
        await store.aclose()
        execute("DROP SCHEMA assistant CASCADE", bare_postgres.url)


@pytest.mark.parametrize(
    "url", ["mysql://u:hidden@h/x", "hidden", "postgresql://u:hidden@h:port/x", "sqlite:///x"]
)
async def test_an_address_that_is_none_is_told_without_repeating_it(
    tmp_path: Path, url: str
) -> None:
    with pytest.raises(StoreError, match=r"Write it as postgresql://user@host/database") as error:
        await Database.open(tmp_path, url)
    assert "hidden" not in str(error.value)


def drop_connections(url: str) -> None:
    others = "datname = current_database() AND pid <> pg_backend_pid()"
    execute(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE {others}", url)


async def test_a_dropped_connection_heals(postgres: Kept) -> None:
    assert postgres.url
    async with opened(postgres) as database:
        await database.change(put("before"))
        drop_connections(postgres.url)
        assert await marks(database) == {"before"}
        drop_connections(postgres.url)
        await database.change(put("after"))

        def cut(connection: sa.Connection) -> None:
            put("lost")(connection)
            connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")

        outcomes = await asyncio.gather(
            database.change(put("beside")),
            database.change(cut),
            database.change(put("behind")),
            return_exceptions=True,
        )
        assert isinstance(outcomes[1], StoreError)
        assert not isinstance(outcomes[0] or outcomes[2], BaseException)
        assert await marks(database) == {"before", "after", "beside", "behind"}


# ---- writes in batches


async def test_what_the_work_raises_is_told_to_all_and_the_next_are_served() -> None:
    async def work(given: Sequence[int]) -> Sequence[int]:
        if 0 in given:
            raise OSError("the disk is full")
        return given

    together = BatchWriter(work)
    failed = await asyncio.gather(together.ask(0), together.ask(1), return_exceptions=True)
    assert [str(each) for each in failed] == ["the disk is full"] * 2
    assert await together.ask(1) == 1
