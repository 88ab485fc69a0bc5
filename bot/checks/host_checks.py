"""What this machine and these settings offer the bot: each check says what it found or raises."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import os
import shutil
from pathlib import Path

import aiohttp
import sqlalchemy as sa

from bot.checks.checks import KEY, Missing, Problem, Role, model_answers
from bot.errors import StoreError
from bot.schedule.book import ScheduleBook
from bot.serving.workspace import LOCK
from bot.storage.database import Database
from bot.storage.vault import vault_of
from config.keys import keys_of
from config.settings import Settings, SettingsError
from scopes import scope_names

MIN_FREE = 100 * 1024 * 1024
"""Bytes of free disk below which the state of requests is in danger."""
HEALTH_S = 1.0
"""Seconds in which a `serve` tells that it is one."""


async def settings_agree(settings: Settings) -> str:
    """Values that are valid one by one and make no sense together."""
    policy = settings.policy
    rules = [policy.everywhere, policy.direct, *policy.channels.values(), *policy.users.values()]
    unknown = {name for rule in rules for name in rule.scopes or ()} - set(scope_names())
    if unknown:
        known = ", ".join(scope_names())
        raise Problem(f"There is no scope {min(unknown)}: mend it in `policy`; there are {known}.")
    if settings.serve.subagents_per_minute and not settings.secrets.database_url:
        raise Problem(
            "serve.subagents_per_minute holds on Postgres only: set DATABASE_URL, or make it null."
        )
    return f"valid, state in {settings.data_dir}"


async def model(settings: Settings, role: Role) -> str:
    key = settings.secrets.anthropic_api_key
    if key is None and settings.endpoints.anthropic_base_url is None:
        raise Missing(f"{KEY} is not set: run `assistant setup`.")
    return f"{await model_answers(settings, key.get_secret_value() if key else None, role)} answers"


async def port(settings: Settings, session: aiohttp.ClientSession) -> str:
    """Whether `serve` can listen, or does already."""
    host, number = settings.serve.host, settings.serve.port
    try:
        server = await asyncio.get_running_loop().create_server(asyncio.Protocol, host, number)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            why = (error.strerror or str(error)).lower()
            raise Problem(f"{host}:{number} cannot be used ({why}): set serve.host.") from None
        if await _is_serve(session, f"http://{host}:{number}/healthz"):
            return f"`serve` answers on {host}:{number}"
        taken = f"Port {number} of {host} is taken by another program"
        raise Problem(f"{taken}: stop that, or set serve.port.") from None
    server.close()
    await server.wait_closed()
    return f"{host}:{number} is free" if number else "any free one is taken"


async def _is_serve(session: aiohttp.ClientSession, url: str) -> bool:
    try:
        async with asyncio.timeout(HEALTH_S), session.get(url) as response:
            return response.status in (200, 503)
    except (aiohttp.ClientError, TimeoutError):
        return False


async def key(settings: Settings) -> str:
    """Whether there is a key that encrypts what is stored; makes the key file at first use."""
    try:
        found = await asyncio.to_thread(keys_of, settings)
    except SettingsError as error:
        raise Problem(str(error)) from None
    if found.warning:
        raise Problem(found.warning)
    old = len(found.values) - 1
    return f"in {found.place}" + (f", and {old} that only decrypt" if old else "")


async def database(settings: Settings) -> str:
    """Whether the state can be stored; makes or updates the tables, as every command does."""
    secret = settings.secrets.database_url
    url = secret.get_secret_value() if secret else None
    try:
        opened = await Database.open(settings.data_dir, url, vault_of(settings))
        try:
            return await (_server(opened) if url else _file(opened, settings.data_dir))
        finally:
            await opened.aclose()
    except (StoreError, SettingsError) as error:
        raise Problem(str(error)) from None
    except sa.exc.ProgrammingError as error:
        said = str(error.orig).strip().splitlines()[0]
        hint = "GRANT CREATE ON DATABASE to the account of DATABASE_URL."
        raise Problem(f"Postgres refuses: {said}. {hint}") from None


async def schedules(settings: Settings) -> str:
    """Whether the schedules that are set can run; empty where there are none."""
    try:
        opened = await Database.open(settings.data_dir, settings.database_url, vault_of(settings))
        try:
            known = await ScheduleBook(opened).all()
        finally:
            await opened.aclose()
    except (StoreError, SettingsError, sa.exc.ProgrammingError):
        return ""  # the check of the database says it
    for each in known:
        if each.state == "refused":
            raise Problem(f"{each.id} cannot run: {each.why}")
    for each in known:
        if each.trouble and not each.trouble.get("over"):
            raise Problem(f"{each.id} fails since {each.trouble['since']}: {each.trouble['why']}")
    unknown = settings.schedules.keys() - {each.id for each in known}
    new = f"; {len(unknown)} of the settings begin with the next start" if unknown else ""
    return f"{len(known)} set, none of them fails{new}" if known or unknown else ""


async def _file(opened: Database, folder: Path) -> str:
    def write(connection: sa.Connection) -> None:
        version = connection.exec_driver_sql("PRAGMA user_version").scalar()
        connection.exec_driver_sql(f"PRAGMA user_version = {version}")

    free = shutil.disk_usage(folder).free
    if free < MIN_FREE:
        raise Problem(
            f"The disk of {folder} is nearly full ({free // 2**20} MB free, {MIN_FREE // 2**20} MB "
            "needed): free some, or set data_dir to another disk."
        )
    await opened.change(write)
    running = serving(folder)
    holder = "no `serve` is running" if running is None else f"`serve` is running (pid {running})"
    return f"SQLite in {folder}, {free // 2**30} GB free; {holder}"


def serving(folder: Path) -> str | None:
    """Process id of the `serve` that owns this folder's state; None = there is none."""
    try:
        held = os.open(folder / LOCK, os.O_RDWR)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(held, 32).decode("ascii", "replace").strip() or "unknown"
    finally:
        os.close(held)
    return None


async def _server(opened: Database) -> str:
    query = sa.select(sa.func.current_setting("server_version").label("version"))
    (row,) = await opened.read(query)
    return f"Postgres {row['version']}, {opened.where}"
