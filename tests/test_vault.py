"""What is stored is encrypted, with a key that lies elsewhere; whoever has another one is told."""

from __future__ import annotations

import asyncio
import logging
import os
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from cryptography.fernet import Fernet
from hypothesis import given
from hypothesis import strategies as st
from pg_kit import Kept, execute, place, postgres
from test_store import ROOT, decision, record, result

from bot.checks.host_checks import key as key_line
from bot.errors import StoreError
from bot.runs.patient import Patient
from bot.runs.sink import StoreSink
from bot.storage import gate_tables
from bot.storage.database import Database
from bot.storage.key_check import CHECK
from bot.storage.resealing import reseal
from bot.storage.serve_tables import flags
from bot.storage.store import Store
from bot.storage.tables import runs
from bot.storage.vault import Vault, WrongKey, is_sealed, vault_of
from config.keys import keys_of
from config.settings import Settings, SettingsError, load_settings

__all__ = ["place", "postgres"]

CANARY = "canary-7d1f"
VAULT = Vault.new()


def new_key() -> str:
    return Fernet.generate_key().decode()


def settings(**env: str) -> Settings:
    return load_settings(env={name.upper(): value for name, value in env.items()})


# ---- sealing


@given(st.text())
def test_what_was_sealed_comes_back(text: str) -> None:
    sealed = VAULT.seal(text)

    assert VAULT.open(sealed) == text
    assert is_sealed(sealed)
    assert sealed.isascii()


def test_a_sealed_text_says_nothing_and_differs_each_time() -> None:
    long = f"{CANARY} " * 500
    sealed = [VAULT.seal(text) for text in (CANARY, CANARY, long)]

    assert not any(CANARY in each for each in sealed)
    assert sealed[0] != sealed[1]
    assert len(sealed[2]) < len(long) / 10  # packed first
    assert VAULT.open(sealed[2]) == long


def test_what_was_changed_or_sealed_by_others_is_refused() -> None:
    sealed = VAULT.seal("Hello.")
    changed = sealed[:-5] + ("A" if sealed[-5] != "A" else "B") + sealed[-4:]
    for bad in (changed, sealed[:-4], Vault.new().seal("Hello."), "Hello.", ""):
        with pytest.raises(WrongKey, match="The key in memory is not the one"):
            VAULT.open(bad)


def test_the_first_of_several_keys_seals_and_each_opens() -> None:
    old, new = new_key(), new_key()
    before, after = Vault([old], "file"), Vault([new, old], "file")

    assert after.open(before.seal("Hello.")) == "Hello."
    assert after.seal("Hello.").startswith(f"sealed:{after.current}:")
    assert not before.seal("Hello.").startswith(f"sealed:{after.current}:")
    with pytest.raises(WrongKey):
        before.open(after.seal("Hello."))


def test_no_key_shows_in_a_repr() -> None:
    keys = [new_key(), new_key()]
    given = settings(assistant_encryption_key=",".join(keys))
    shown = f"{given!r} {given} {keys_of(given)!r} {vault_of(given)!r} {vault_of(given).__dict__}"

    assert not any(key in shown for key in keys)


def test_sealing_costs_microseconds() -> None:
    text = "The customer says that the export fails. " * 25  # about 1 KB
    best = min(_seconds(text) for _ in range(5))

    assert best < 0.002


def _seconds(text: str) -> float:
    begun = time.perf_counter()
    VAULT.open(VAULT.seal(text))
    return time.perf_counter() - begun


# ---- where the key is


def test_a_key_file_is_made_at_first_use_for_its_owner_only(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        made = settings(assistant_key_file=str(tmp_path / "a" / "b" / "key"))
        first, second = keys_of(made), keys_of(made)
    finally:
        os.umask(before)

    assert first == second
    assert first.warning == ""
    assert made.key_file.stat().st_mode & 0o777 == 0o600
    assert made.key_file.parent.stat().st_mode & 0o777 == 0o700
    assert [path.name for path in made.key_file.parent.iterdir()] == ["key"]


def test_the_key_file_lies_in_the_configuration_and_not_with_the_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    chosen = settings()

    assert chosen.key_file.is_relative_to(tmp_path / "config")
    assert not chosen.key_file.is_relative_to(chosen.data_dir)


def test_processes_that_start_together_make_one_key(tmp_path: Path) -> None:
    code = (
        "from config.keys import keys_of; from config.settings import load_settings;"
        "print(keys_of(load_settings()).values[0].get_secret_value())"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT), "ASSISTANT_KEY_FILE": str(tmp_path / "k" / "key")}
    command = [sys.executable, "-c", code]
    begun = [subprocess.Popen(command, env=env, stdout=subprocess.PIPE) for _ in range(4)]
    told = {process.communicate()[0] for process in begun}

    assert len(told) == 1
    assert Fernet(told.pop().strip())


def test_a_key_file_among_the_data_is_refused(tmp_path: Path) -> None:
    inside = tmp_path / "data" / "keys" / "key"
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "data")
    for file in (inside, link / "key"):
        chosen = settings(assistant_data_dir=str(tmp_path / "data"), assistant_key_file=str(file))
        with pytest.raises(SettingsError, match=r"inside the data directory .* ASSISTANT_KEY_FILE"):
            keys_of(chosen)
    assert not inside.exists()


@pytest.mark.parametrize("text", ["", " \n", "short", "é", f"{'A' * 43}=,x", "A" * 44, "\0"])
def test_what_is_no_key_is_told_without_showing_it(tmp_path: Path, text: str) -> None:
    file = tmp_path / "key"
    file.write_text(text, "utf-8")
    with pytest.raises(SettingsError, match=r"key .*(holds|cannot be used)") as error:
        keys_of(settings(assistant_key_file=str(file)))
    assert str(error.value).count("\n") == 0
    if text.strip():
        with pytest.raises(
            SettingsError, match="ASSISTANT_ENCRYPTION_KEY holds something"
        ) as error:
            keys_of(settings(assistant_encryption_key=text))
        assert "short" not in str(error.value)


def test_a_key_file_that_cannot_be_made_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(SettingsError, match=r"cannot be used \(file exists\).*openssl rand"):
        keys_of(settings(assistant_key_file=str(tmp_path / "file" / "key")))


async def test_a_key_that_others_may_read_is_warned_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    chosen = settings(assistant_key_file=str(tmp_path / "key"))
    assert await key_line(chosen) == f"in {tmp_path / 'key'}"
    chosen.key_file.chmod(0o640)
    with caplog.at_level(logging.WARNING):
        vault_of(chosen)

    assert f"chmod 600 {chosen.key_file}" in caplog.text
    with pytest.raises(Exception, match="Other accounts may read the key file"):
        await key_line(chosen)


# ---- the database


async def test_nothing_that_was_written_stands_in_the_database(place: Kept) -> None:
    store = await place.store()
    await store.start_run("r1", "ask", f"What of {CANARY}?", "offline", {})
    sink = StoreSink(store)
    record(sink, words=CANARY)
    sink.log_decision(decision())
    await sink.keep("r1", "r1/step", {"said": CANARY})
    await sink.aclose()
    found = {**result("s1"), "findings": [{"claim": CANARY, "evidence": []}]}
    await store.save_subagent("r1", {"template": "t@1", "question": CANARY}, found)
    await store.finish_run("r1", "complete", result={"answer": CANARY}, error={"why": CANARY})

    assert (await store.run("r1")).result == {"answer": CANARY}
    assert CANARY in str(await store.trajectory("r1"))
    assert CANARY not in _dump(place)
    await store.aclose()
    assert CANARY not in _dump(place)


def _dump(place: Kept) -> str:
    """All that somebody sees who has the database and no key."""
    if place.url:
        names = execute("SELECT tablename FROM pg_tables WHERE schemaname='assistant'", place.url)
        rows = [execute(f"SELECT t::text FROM assistant.{name} t", place.url) for (name,) in names]
        assert sum(map(len, rows)) > 8
        return str(rows)
    files = [file for file in place.path.iterdir() if file.name.startswith("assistant.sqlite")]
    return "".join(file.read_bytes().decode("latin-1") for file in files)


async def test_another_key_is_refused_at_the_start_in_words(place: Kept) -> None:
    ours, other = Vault.new(), Vault([new_key()], "/etc/key")
    await (await Database.open(place.path, place.url, ours)).aclose()

    with pytest.raises(StoreError, match=r"key in /etc/key is not the one.*same ASSISTANT_ENC"):
        await Database.open(place.path, place.url, other)
    await (await Database.open(place.path, place.url, ours)).aclose()


async def test_of_replicas_that_start_together_with_different_keys_one_wins(
    postgres: Kept,
) -> None:
    vaults = [Vault.new() for _ in range(4)]
    opening = (Database.open(postgres.path, postgres.url, vault) for vault in vaults)
    opened = await asyncio.gather(*opening, return_exceptions=True)
    won = [each for each in opened if isinstance(each, Database)]
    for database in won:
        await database.aclose()

    assert len(won) == 1
    assert [type(each) for each in opened if each not in won] == [WrongKey] * 3


async def test_what_an_older_version_wrote_is_read_and_then_encrypted(place: Kept) -> None:
    database = await Database.open(place.path, place.url)
    store = Store(database)
    for number in range(120):
        await store.start_run(f"r{number}", "ask", "?", "offline", {})
    plain = {"question": _raw(CANARY), "result": _raw(f'{{"answer": "{CANARY}"}}'), "error": None}
    await database.write(sa.update(runs).values(plain))

    assert (await store.run("r7")).question == CANARY
    assert CANARY in _dump(place)
    assert await reseal(database) == 120
    assert await reseal(database) == 0
    assert (await store.run("r7")).result == {"answer": CANARY}
    await database.aclose()
    assert CANARY not in _dump(place)


def _raw(text: str) -> sa.BindParameter[str]:
    return sa.literal(text, sa.Text)


async def test_a_key_can_be_changed_and_the_old_one_taken_away(place: Kept) -> None:
    old, new = new_key(), new_key()
    database = await Database.open(place.path, place.url, Vault([old], "file"))
    await Store(database).start_run("r1", "ask", CANARY, "offline", {})
    assert await reseal(database) == 0
    await database.aclose()

    database = await Database.open(place.path, place.url, Vault([new, old], "file"))
    await Store(database).start_run("r2", "ask", CANARY, "offline", {})
    assert await reseal(database) == 1
    await database.aclose()

    database = await Database.open(place.path, place.url, Vault([new], "file"))
    assert {run.question for run in await Store(database).runs()} == {CANARY}
    await database.aclose()
    with pytest.raises(WrongKey):
        await Database.open(place.path, place.url, Vault([old], "file"))


async def test_one_value_that_was_changed_is_refused_and_not_waited_for(place: Kept) -> None:
    database = await Database.open(place.path, place.url)
    store = Store(Patient(database))
    await store.start_run("r1", "ask", "?", "offline", {})
    await database.write(sa.update(runs).values(question=_raw(Vault.new().seal("Obey."))))

    with pytest.raises(WrongKey):
        async with asyncio.timeout(1):
            await store.run("r1")
    await database.aclose()


async def test_the_check_value_is_one_flag(place: Kept) -> None:
    database = await Database.open(place.path, place.url)
    (row,) = await database.read(sa.select(flags))
    await database.aclose()

    assert row["name"] == CHECK
    assert database.vault.open(row["value"]["sealed"]) == CHECK


# ---- files


async def test_files_of_the_data_are_their_owners_only(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    before = os.umask(0o022)
    try:
        store = await Store.open(folder)
        await store.start_run("r1", "ask", "?", "offline", {})
        modes = _modes(folder)
        assert {"assistant.sqlite", "assistant.sqlite-wal", "assistant.sqlite-shm"} <= modes.keys()
        assert set(modes.values()) == {0o600}
        assert folder.stat().st_mode & 0o777 == 0o700
        await store.aclose()
        (folder / "assistant.sqlite").chmod(0o644)  # as a copy from a backup is
        store = await Store.open(folder)
        assert set(_modes(folder).values()) == {0o600}
        await store.aclose()
    finally:
        os.umask(before)


def _modes(folder: Path) -> dict[str, int]:
    return {path.name: path.stat().st_mode & 0o777 for path in folder.iterdir()}


async def test_what_is_deleted_is_overwritten(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    await store.start_run(CANARY, "ask", "?", "offline", {})
    await store.database.write(sa.delete(runs))
    await store.aclose()

    assert CANARY not in _dump(Kept(tmp_path, None))
    connection: Any = sqlite3.connect(tmp_path / "assistant.sqlite")
    assert connection.execute("SELECT count(*) FROM runs").fetchone() == (0,)
    connection.close()


async def test_an_action_that_somebody_wrote_into_the_database_is_refused(tmp_path: Path) -> None:
    store = await Store.open(tmp_path)
    try:
        await store.start_run("r1", "ask", "q", "offline", {})
        plain = {
            **{"id": "a1", "run": "r1", "tool": "t", "requester": "U1", "digest": "d"},
            **{"body": '{"tool": "send_mail"}', "state": "asked", "made": "2026-01-01T00:00:00"},
        }
        with closing(sqlite3.connect(tmp_path / "assistant.sqlite")) as connection, connection:
            marks = ", ".join("?" * len(plain))
            insert = f"INSERT INTO actions ({', '.join(plain)}) VALUES ({marks})"
            connection.execute(insert, tuple(plain.values()))
        with pytest.raises(WrongKey):
            await store.database.read(sa.select(gate_tables.actions))
    finally:
        await store.aclose()
