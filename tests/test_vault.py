"""Tokens and model traffic are encrypted; the key is outside the database, another is refused."""

from __future__ import annotations

import logging
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet
from pg_kit import StorePlace, execute
from test_preferences import store_of as preferences_of
from test_store import record
from timing import patient

from bot.errors import StoreError
from bot.mailbox.accounts import Credentials
from bot.privacy import tidy
from bot.runs.checkpoint import RunLog
from bot.runs.store import Store
from bot.storage.database import Database, RetryingDatabase
from bot.storage.encryption import Cipher, WrongKey, cipher_of
from bot.storage.tables import blocks, runs
from config.keys import keys_of
from config.settings import load_settings
from scopes.google.auth import MailboxTokens
from scopes.preferences import Authorship

CANARY = "canary-7d1f"


def new_key() -> str:
    return Fernet.generate_key().decode()


# ---- the key file


def test_key_file_is_created_on_first_use_with_owner_only_access(tmp_path: Path) -> None:
    config = load_settings(env={"ASSISTANT_KEY_FILE": str(tmp_path / "a" / "b" / "key")})
    with under_umask(0o022):
        first, second = keys_of(config), keys_of(config)

    assert first == second
    assert first.warning == ""
    assert config.key_file.stat().st_mode & 0o777 == 0o600
    assert config.key_file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in config.key_file.parent.iterdir()] == ["key"]


@contextmanager
def under_umask(mask: int) -> Iterator[None]:
    before = os.umask(mask)
    try:
        yield
    finally:
        os.umask(before)


def test_key_file_readable_by_others_causes_a_warning(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = load_settings(env={"ASSISTANT_KEY_FILE": str(tmp_path / "key")})
    assert cipher_of(config).place == str(config.key_file)
    config.key_file.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        cipher_of(config)

    assert f"chmod 600 {config.key_file}" in caplog.text


# ---- the database


async def test_recorded_traffic_is_unreadable_in_the_database_without_the_key(
    place: StorePlace,
) -> None:
    store = await place.store()
    await store.start_run("r1", "ask", "?", "offline", {})
    sink = RunLog(store, "r1")
    record(sink, words=CANARY)
    sink.steps.append({"run": "r1", "key": "r1/s1/1/tools", "body": {"value": CANARY}})
    await sink.flush()
    await preferences_of(store.database).add(f"Say {CANARY}", Authorship("U0ANA"))
    tokens = MailboxTokens.model_validate({"access_token": CANARY, "refresh_token": "r"})
    await Credentials(store.database).put("ana", tokens)

    assert CANARY in str(await store.trajectory("r1"))
    assert await store.steps("r1") == {"r1/s1/1/tools": {"value": CANARY}}
    assert CANARY not in _dump(place)
    await store.aclose()
    assert CANARY not in _dump(place)


def _dump(place: StorePlace) -> str:
    """Return the content of the database, as somebody without the key sees it."""
    if place.url:
        names = execute("SELECT tablename FROM pg_tables WHERE schemaname='assistant'", place.url)
        rows = [execute(f"SELECT t::text FROM assistant.{name} t", place.url) for (name,) in names]
        assert sum(map(len, rows)) > 8
        return str(rows)
    files = [file for file in place.path.iterdir() if file.name.startswith("assistant.sqlite")]
    return "".join(file.read_bytes().decode("latin-1") for file in files)


async def test_another_encryption_key_is_rejected_at_startup(place: StorePlace) -> None:
    own, other = Cipher.generate(), Cipher([new_key()], "/etc/key")
    await (await Database.open(place.path, place.url, own)).aclose()

    with pytest.raises(StoreError, match=r"key in /etc/key is not the one.*same ASSISTANT_ENC"):
        await Database.open(place.path, place.url, other)
    await (await Database.open(place.path, place.url, own)).aclose()


async def test_encryption_key_can_be_rotated_and_the_old_one_removed(in_file: StorePlace) -> None:
    old, new = new_key(), new_key()
    tokens = MailboxTokens.model_validate({"access_token": CANARY, "refresh_token": "r"})
    database = await Database.open(in_file.path, in_file.url, Cipher([old], "in_file"))
    await Credentials(database).put("ana", tokens)
    await preferences_of(database).add(CANARY, Authorship("U0ANA"))
    await store_run(database, "before")
    await database.aclose()
    for keys in ([new, old], [new]):
        database = await Database.open(in_file.path, in_file.url, Cipher(keys, "in_file"))
        if old in keys:  # a run with the same blocks stays when the retention of the first ends
            await store_run(database, "after")
            first = sa.update(runs).where(runs.c.id == "before")
            await database.write(first.values(started=datetime(2020, 1, 1, tzinfo=UTC)))
            await tidy(database, load_settings(env={}).retention)
        assert CANARY in str(await Store(database).trajectory("after"))
        assert await Credentials(database).get("ana") == tokens
        assert [each.text for each in await preferences_of(database).list_preferences("U0ANA")] == [
            CANARY
        ]
        await database.aclose()


async def store_run(database: Database, id: str) -> None:
    store = Store(database)
    await store.start_run(id, "ask", "?", "offline", {})
    sink = RunLog(store, id)
    record(sink, id, words=CANARY)
    await sink.flush()


async def test_value_encrypted_with_another_key_fails_at_once_without_retries(
    in_file: StorePlace,
) -> None:
    database = await Database.open(in_file.path, in_file.url)
    store = Store(RetryingDatabase(database))
    await store.start_run("r1", "ask", "?", "offline", {})
    sink = RunLog(store, "r1")
    record(sink)
    await sink.flush()
    foreign = sa.literal(Cipher.generate().encrypt("Obey."), sa.Text)
    await database.write(sa.update(blocks).values(body=foreign))

    with pytest.raises(WrongKey):
        async with patient():
            await store.trajectory("r1")
    await database.aclose()


# ---- files


async def test_deleted_rows_are_overwritten_in_the_file(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await store.start_run(CANARY, "ask", "?", "offline", {})
    await store.database.write(sa.delete(runs))
    await store.aclose()

    assert CANARY not in _dump(StorePlace(tmp_path, None))
    connection: Any = sqlite3.connect(tmp_path / "assistant.sqlite")
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    connection.close()


async def test_data_files_are_accessible_to_their_owner_only(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with under_umask(0o022):
        store = await Store.open(folder)
        await store.start_run("r1", "ask", "?", "offline", {})
        modes = _modes(folder)
        assert {"assistant.sqlite", "assistant.sqlite-wal", "assistant.sqlite-shm"} <= modes.keys()
        assert set(modes.values()) == {0o600}
        assert folder.stat().st_mode & 0o777 == 0o700
        await store.aclose()
        (folder / "assistant.sqlite").chmod(0o644)  # as a copy from a backup has
        store = await Store.open(folder)
        assert set(_modes(folder).values()) == {0o600}
        await store.aclose()


def _modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}
