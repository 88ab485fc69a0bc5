"""Back up the stored state into one file, and restore it."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import sqlite3
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import psycopg
from pydantic import TypeAdapter
from sqlalchemy.engine import make_url

from bot.errors import SetupError
from bot.runs.durable import REPLICA_LOCK_CLASS
from bot.storage.database import make_private, only_process
from bot.storage.tables import REVISIONS
from bot.terminal import DONE, say
from config.settings import TEAMS, Settings, load_settings

FILES = ("workflows.sqlite", "assistant.sqlite")
"""In the order of copying: rows that a workflow refers to must be in the file copied after it."""
FOLDERS = ("work", "mcp")
SCHEMAS = ("assistant", "dbos")
OF_TEAMS = "assistant_t*"
"""Schemas of several workspaces."""
DUMP, MANIFEST = "postgres.dump", "backup.json"


@dataclass(frozen=True, slots=True)
class BackupManifest:
    """The description of a backup: its versions, and when it was made."""

    version: str
    schema: str
    at: str


KEY = (
    "The encryption key is not inside: keep ASSISTANT_ENCRYPTION_KEY or the key file, too, in "
    "another place."
)


def run_backup(file: Path, force: bool) -> int:
    """Write the state into `file`. The bot may run at the same time."""
    settings = _load_settings()
    if file.exists() and not force:
        raise SetupError("exists", f"{file} exists.", "Name another file, or give --force.")
    with _faults(file), tempfile.TemporaryDirectory(dir=file.absolute().parent) as folder:
        copied = Path(folder)
        names = _dump(settings, copied) if settings.database_url else _copy(settings, copied)
        _pack(settings, copied, names, copied / "backup.tar.gz")
        (copied / "backup.tar.gz").replace(file)
    say(f"{file} is written. {KEY}")
    return DONE


def _load_settings() -> Settings:
    settings = load_settings()
    if settings.team:
        hint = "Leave out --team and ASSISTANT_TEAM."
        raise SetupError("all_teams", "A backup holds the state of all workspaces.", hint)
    return settings


def _copy(settings: Settings, into: Path) -> list[str]:
    """Copy the SQLite files, each as a consistent snapshot, even if others write to them."""
    present = _files(settings.data_dir)
    if FILES[1] not in present:
        raise SetupError("nothing", f"There is no state in {settings.data_dir}.", "Check data_dir.")
    for name in present:
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        address = f"file:{settings.data_dir / name}?mode=ro"
        with (
            closing(sqlite3.connect(address, uri=True)) as source,
            closing(sqlite3.connect(into / name)) as target,
        ):
            source.backup(target)
    return present


def _files(folder: Path) -> list[str]:
    """Return the databases of a folder, including those of several workspaces."""
    return [*(each for each in FILES if (folder / each).exists()), *_of_teams(folder, FILES[1])]


def _folders(folder: Path) -> list[str]:
    return [
        *(name for name in FOLDERS if (folder / name).is_dir()),
        *(path for name in FOLDERS for path in _of_teams(folder, name)),
    ]


def _of_teams(folder: Path, name: str) -> list[str]:
    return sorted(str(each.relative_to(folder)) for each in folder.glob(f"{TEAMS}/*/{name}"))


def _dump(settings: Settings, into: Path) -> list[str]:
    only = [f"--schema={name}" for name in (*SCHEMAS, OF_TEAMS)]
    _postgres(settings, "pg_dump", "--format=custom", *only, f"--file={into / DUMP}")
    return [DUMP]


def _pack(settings: Settings, folder: Path, names: Sequence[str], file: Path) -> None:
    with closing(os.fdopen(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600), "wb")) as raw:
        manifest = BackupManifest(
            version=version("workspace-assistant"),
            schema=_revision(settings, folder),
            at=datetime.now(UTC).isoformat(timespec="seconds"),
        )
        (folder / MANIFEST).write_text(json.dumps(asdict(manifest)), "utf-8")
        with tarfile.open(fileobj=raw, mode="w:gz") as archive:
            for name in (MANIFEST, *names):
                archive.add(folder / name, name)
            for name in _folders(settings.data_dir):
                archive.add(settings.data_dir / name, name)


def _revision(settings: Settings, folder: Path) -> str:
    query = "SELECT version_num FROM alembic_version"
    if settings.database_url:
        with _connect(settings.database_url) as connection:
            row = connection.execute(query.replace("FROM ", f"FROM {SCHEMAS[0]}.")).fetchone()
    else:
        with closing(sqlite3.connect(folder / FILES[1])) as copy:
            row = copy.execute(query).fetchone()
    return str(row[0]) if row else ""


def run_restore(file: Path, force: bool) -> int:
    """Put the state of a backup in place. Raises SetupError while `serve` runs."""
    settings = _load_settings()
    alone = nullcontext() if settings.database_url else only_process(settings.data_dir)
    with _faults(file), alone:
        settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=settings.data_dir) as folder:
            unpacked = Path(folder)
            at = _unpack(file, unpacked, bool(settings.database_url))
            existing = _in_the_way(settings)
            if existing and not force:
                raise SetupError("exists", f"{existing} exists.", "--force replaces it.")
            if settings.database_url:
                options = ("--clean", "--if-exists", "--no-owner", "--exit-on-error")
                _postgres(
                    settings, "pg_restore", *options, "--single-transaction", str(unpacked / DUMP)
                )
            _move(unpacked, settings.data_dir)
    say(f"The state of {at} is restored. {KEY}")
    say("Start with `slack.backfill_hours: 0`, or old questions are answered again.")
    return DONE


def _unpack(file: Path, folder: Path, in_postgres: bool) -> str:
    """Unpack a backup that this program can read; return the time when it was made.

    Raises SetupError for any other file.
    """
    wrong = SetupError(
        "no_backup", f"{file} is not a backup of the assistant.", "Name another file."
    )
    try:
        with tarfile.open(file, "r:gz") as archive:
            archive.extractall(folder, filter="data")
        manifest = TypeAdapter(BackupManifest).validate_json((folder / MANIFEST).read_bytes())
    except (tarfile.TarError, EOFError, ValueError, FileNotFoundError) as error:
        if not file.exists():
            raise
        raise wrong from error
    if manifest.schema not in REVISIONS:
        written_by = f"another version ({manifest.version}, schema {manifest.schema})"
        what = f"{file} was written by {written_by}."
        raise SetupError("schema", what, "Install that version to restore it, then upgrade.")
    if (folder / DUMP).exists() != in_postgres:
        content = "a PostgreSQL database" if (folder / DUMP).exists() else "SQLite files"
        hint = "Unset DATABASE_URL." if in_postgres else "Set DATABASE_URL."
        raise SetupError("other_database", f"{file} is of {content}.", hint)
    return manifest.at


def _in_the_way(settings: Settings) -> str:
    """Return what a restore would replace; raise SetupError while a replica uses the database."""
    if settings.database_url is None:
        return next((str(f) for n in FILES if (f := settings.data_dir / n).exists()), "")
    lock_query = (
        "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND classid = %s AND granted AND "
        "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
    )
    with _connect(settings.database_url) as connection:
        if connection.execute(lock_query, (REPLICA_LOCK_CLASS,)).fetchone():
            raise SetupError(
                "locked", "`assistant serve` uses this database.", "Stop all replicas."
            )
        query = "SELECT nspname FROM pg_namespace WHERE nspname = ANY(%s)"
        found = connection.execute(query, (list(SCHEMAS),)).fetchone()
    return f"The schema {found[0]}" if found else ""


def _move(folder: Path, data_dir: Path) -> None:
    """Replace the state; settings of workspaces (`teams/*.yaml`) may be in the same folder."""
    for name in FILES:
        for old in (name, f"{name}-wal", f"{name}-shm"):
            (data_dir / old).unlink(missing_ok=True)
    for path in (*(data_dir / name for name in FOLDERS), *data_dir.glob(f"{TEAMS}/*/")):
        shutil.rmtree(path, ignore_errors=True)
    for path in (*(folder / name for name in (*FILES, *FOLDERS)), *folder.glob(f"{TEAMS}/*/")):
        if path.exists():
            target = data_dir / path.relative_to(folder)
            target.parent.mkdir(exist_ok=True)
            path.replace(target)
    for name in _files(data_dir):
        make_private(data_dir / name)


def _postgres(settings: Settings, program: str, *arguments: str) -> None:
    """Run a program of PostgreSQL; the password is not on the command line, which is public."""
    assert settings.database_url
    url = make_url(settings.database_url)
    shown = url.set(drivername="postgresql", password=None)
    if shutil.which(program) is None:
        command = [program, f"--dbname={shown.render_as_string()}", *arguments[:-1]]
        hint = f"Install PostgreSQL's client, or run elsewhere: {shlex.join(command)} FILE"
        raise SetupError("no_program", f"{program} is not installed.", hint)
    with tempfile.NamedTemporaryFile("w", encoding="utf-8") as file:  # only we can read it
        if url.password:
            escaped = str(url.password).replace("\\", "\\\\").replace(":", "\\:")
            file.write(f"*:*:*:*:{escaped}\n")
            file.flush()
            shown = shown.update_query_dict({"passfile": file.name})
        command = [program, f"--dbname={shown.render_as_string()}", *arguments]
        process = subprocess.run(command, capture_output=True, encoding="utf-8", check=False)
    if process.returncode:
        reason = (process.stderr.strip().splitlines() or ["no reason given"])[0]
        raise SetupError("database", f"{program} failed: {reason}", "Nothing was changed.")


def _connect(url: str) -> psycopg.Connection[tuple[Any, ...]]:
    address = make_url(url).set(drivername="postgresql")
    return psycopg.connect(address.render_as_string(hide_password=False))


@contextmanager
def _faults(file: Path) -> Iterator[None]:
    try:
        yield
    except psycopg.Error as error:
        reason = (str(error).strip().splitlines() or ["no reason given"])[0]
        raise SetupError(
            "database", f"The database refuses: {reason}", "Check DATABASE_URL."
        ) from error
    except (OSError, sqlite3.Error) as error:
        why = getattr(error, "strerror", None) or str(error)
        name = getattr(error, "filename", None) or file
        raise SetupError(
            "file", f"{name} cannot be used: {why}.", "Nothing was changed."
        ) from error
