"""The command `assistant schedules`: how they stand, and what an operator does with one."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

from bot.cli.outcome import DONE, dump, guarded, say, tell
from bot.cli.paused import NAME_CHARS, NOBODY
from bot.schedule import telling
from bot.schedule.book import ScheduleBook, ScheduleError
from bot.schedule.records import StoredSchedule
from bot.schedule.standing import is_served, lines, standings
from bot.schedule.ticks import Ticks
from bot.storage.database import Database
from bot.storage.vault import vault_of
from config.settings import Settings, load_settings
from scopes.tool import one_line, readable

NOT_SERVED = "Nothing serves at present: it is done as soon as `assistant serve` runs."

Work = Callable[[Settings, Database], Awaitable[int]]


def run_list(as_json: bool) -> int:
    """All schedules, those too that nothing has taken up yet."""

    async def work(settings: Settings, database: Database) -> int:
        now = datetime.now(UTC)
        found = await standings(database, settings.schedules, now)
        served = await is_served(database, settings.data_dir)
        if as_json:
            dump({"served": served, "schedules": [each.to_json() for each in found]})
            return DONE
        for each in found:
            say("\n".join(lines(each, now)))
        if not found:
            tell("There is no schedule. Set one under `schedules` in assistant.yaml, or in chat.")
        elif not served:
            tell("Nothing serves at present: they run while `assistant serve` does.")
        return DONE

    return on_database(work, as_json)


def run_now(name: str, as_json: bool) -> int:
    """A run besides its times; the process that serves takes it up."""

    async def work(settings: Settings, database: Database) -> int:
        row = await known(database, name)
        if row.state == "paused":
            raise ScheduleError(f"{name} is paused.", "`assistant schedules resume` lets it go on.")
        if row.state != "active":
            raise ScheduleError(f"{name} cannot run: {row.why}", "Mend it first.")
        tick = await Ticks(database).ask_now(name, datetime.now(UTC))
        served = await is_served(database, settings.data_dir)
        if as_json:
            dump({"name": name, "at": tick.at, "served": served})
        else:
            say(f"{name} is to run now.")
            say("`assistant schedules` shows what comes of it." if served else NOT_SERVED)
        return DONE

    return on_database(work, as_json)


def run_pause(name: str, by: str | None, as_json: bool) -> int:
    who = one_line(readable(by or ""))[:NAME_CHARS] or NOBODY

    async def work(settings: Settings, database: Database) -> int:
        row = await known(database, name)
        changed = row.state != "paused"
        if changed:
            await ScheduleBook(database).pause(name, f"paused by {who}")
        if as_json:
            dump({"name": name, "state": "paused", "changed": changed})
        else:
            say(f"Paused: {name}." if changed else f"{name} was paused before; nothing changed.")
        return DONE

    return on_database(work, as_json)


def run_resume(name: str, as_json: bool) -> int:
    async def work(settings: Settings, database: Database) -> int:
        row, now = await known(database, name), datetime.now(UTC)
        changed = row.state == "paused"
        if changed:
            await ScheduleBook(database).resume(name, now)
        state = "active" if changed else row.state
        if as_json:
            dump({"name": name, "state": state, "changed": changed})
        elif changed:
            say(f"{name} goes on. Next run: {telling.next_runs(row.spec, now, 1)}.")
            say("What came due while it was paused is not caught up.")
        else:
            say(f"{name} is not paused but {row.state}; nothing changed.")
        return DONE

    return on_database(work, as_json)


def run_delete(name: str, as_json: bool) -> int:
    async def work(settings: Settings, database: Database) -> int:
        await ScheduleBook(database).delete(name)
        dump({"name": name, "state": "deleted"}) if as_json else say(f"Deleted: {name}.")
        return DONE

    return on_database(work, as_json)


def which_schedule(as_json: bool) -> int:
    """It is not said which one."""

    def fault() -> int:
        hint = "`assistant schedules` lists them."
        raise ScheduleError("--now and --dry-run take the name of a schedule, and it alone.", hint)

    return guarded(fault, as_json)


async def known(database: Database, name: str) -> StoredSchedule:
    """The schedule of this name, once it was taken up. Raises ScheduleError."""
    book = ScheduleBook(database)
    row = await book.get(name)
    if row is None:
        there = ", ".join(each.id for each in await book.all())
        hint = f"There are: {there}." if there else "There is none yet."
        hint += " `assistant serve` takes up those of assistant.yaml."
        raise ScheduleError(f"There is no schedule {name[:40]!r}.", hint)
    return row


def on_database(work: Work, as_json: bool) -> int:
    """Run one command on the state; its exit code."""

    async def go(settings: Settings) -> int:
        database = await Database.open(settings.data_dir, settings.database_url, vault_of(settings))
        try:
            return await work(settings, database)
        finally:
            await database.aclose()

    return guarded(lambda: asyncio.run(go(load_settings())), as_json)
