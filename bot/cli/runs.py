"""Implement the commands on stored runs, the gate's log, and pause. They start no engine."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import sqlalchemy as sa

from bot.cli.ask import read_length
from bot.cli.output import name_or_default, on_database, result_text
from bot.errors import SetupError
from bot.memory import ResourceStore
from bot.privacy.forget import Forget, Forgotten, at_work
from bot.reports.documents import TriageReport, parse_document
from bot.reports.text import run_text, thread_text
from bot.runs.store import RunNotFound, Store
from bot.slack.blocks import FEEDBACK_BAD, FEEDBACK_GOOD
from bot.slack.plan import clean_line, shorten
from bot.storage.database import Database
from bot.storage.deletions import ForgetTarget, forget_later
from bot.storage.requests import RequestQueue
from bot.storage.tables import StoredRun, decisions
from bot.terminal import DONE, INCOMPLETE, dump, say, tell
from config.settings import Settings
from scopes.resources import Resource, space_of_run
from scopes.tool import one_line
from subagents.brief import draft_of
from subagents.gate import Decision
from subagents.overlap import audit

VOTES = (FEEDBACK_GOOD, FEEDBACK_BAD)


def list_runs(limit: int, as_json: bool) -> int:
    async def work(settings: Settings, database: Database) -> int:
        store = Store(database)
        found = await store.runs(limit)
        votes = await RequestQueue(database).votes(run.request or "" for run in found)
        if as_json:
            keys = ("id", "kind", "status", "question", "model", "started", "cost_usd")
            dump(
                [
                    {k: asdict(r)[k] for k in keys} | {v: votes[r.request or ""][v] for v in VOTES}
                    for r in found
                ]
            )
            return DONE
        for run in found:
            cost = "" if run.cost_usd is None else f"${run.cost_usd:.4f}"
            when = f"{run.started:%Y-%m-%d %H:%M}"
            asked = shorten(one_line(run.question), 60)
            given = votes[run.request or ""]
            told = ", ".join(f"{given[vote]} {vote}" for vote in VOTES if given[vote])
            rated = f"  ({told})" if told else ""
            say(f"{run.id}  {when}  {run.kind:9} {run.status:10} {cost:>9}  {asked}{rated}")
        if not found:
            tell("No runs yet. Try `assistant demo`.")
        return DONE

    return on_database(work, as_json)


def list_feedback(limit: int, only_bad: bool, as_json: bool) -> int:
    """List what people think of answers, with their runs."""

    async def work(settings: Settings, database: Database) -> int:
        found = await RequestQueue(database).ratings(limit, FEEDBACK_BAD if only_bad else "")
        if as_json:
            dump([asdict(each) for each in found])
            return DONE
        for each in found:
            head = f"{each.run or '-':12}  {each.at:%Y-%m-%d %H:%M}  {each.value:4}  {each.user}"
            why = ": ".join(filter(None, (each.reason, one_line(each.comment or ""))))
            asked = shorten(one_line(each.question or ""), 60)
            say("  ".join(filter(None, (head, asked, clean_line(why)))))
        if not found:
            tell("Nobody has rated an answer yet.")
        return DONE

    return on_database(work, as_json)


def show_run(
    run_id: str, as_json: bool, folder: Path | None = None, thread: int | None = None
) -> int:
    """Show a stored run, or one thread of its digest; write its files if a folder is given."""

    async def work(settings: Settings, database: Database) -> int:
        store = Store(database)
        run = await store.run(run_id)
        if folder is not None:
            return await _write(store, run.id, folder, as_json)
        if thread is not None:
            say(_thread(run, thread, settings.triage.categories))
            return DONE
        subagents = await store.subagents(run.id)
        if as_json:
            dump({**asdict(run), "subagents": [asdict(each) for each in subagents]})
            return DONE
        say(run_text(run, subagents))
        if run.result:
            say("\n" + result_text(parse_document(run.result), whole=True))
        return DONE

    return on_database(work, as_json)


def _thread(run: StoredRun, number: int, categories: Iterable[str]) -> str:
    """Return a thread of a digest as text. Raises SetupError if there is none."""
    document = parse_document(run.result) if run.result else None
    text = ""
    if isinstance(document, TriageReport):
        text = thread_text(document, number, categories)
    if not text:
        hint = f"`assistant show {run.id}` shows what it has."
        raise SetupError("no_thread", f"The run {run.id} has no thread {number}.", hint)
    return text


async def _write(store: Store, run: str, folder: Path, as_json: bool) -> int:
    written = await write_files(ResourceStore(store.database), run, folder)
    if as_json:
        dump({"run_id": run, "files": [str(path) for path in written]})
        return DONE
    for path in written:
        say(str(path))
    if not written:
        tell("This run has kept no files.")
    return DONE


async def write_files(store: ResourceStore, run: str, folder: Path) -> list[Path]:
    """Write the newest version of each file; existing files keep their names.

    Raises SetupError if the folder is not writable, and StoreError.
    """
    space = space_of_run(run)
    found = [await store.get(space, f.name, f.version) for f in await store.listed(space)]
    return await asyncio.to_thread(_write_all, [f for f in found if f], folder)


def _write_all(files: Sequence[Resource], folder: Path) -> list[Path]:
    if not files:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_write_file(folder / each.name, each.shown) for each in files]
    except OSError as error:
        why = f"Nothing can be written to {folder} ({error.strerror})."
        raise SetupError("folder", why, "Name another folder.") from error


def _write_file(wanted: Path, content: bytes) -> Path:
    """Write a file, under another name if its name is taken; return the path."""
    for path in _names(wanted):
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            if path.is_file() and path.read_bytes() == content:
                return path  # by an earlier call
            continue
        return path
    raise AssertionError("numbers do not end")


def _names(wanted: Path) -> Iterator[Path]:
    yield wanted
    yield from (wanted.with_stem(f"{wanted.stem}-{n}") for n in count(2))


def audit_run(run_id: str, as_json: bool) -> int:
    async def work(settings: Settings, database: Database) -> int:
        store = Store(database)
        run = await store.run(run_id)
        report = audit(await store.trajectory(run.id))
        if as_json:
            dump({"run_id": run.id, **asdict(report)})
        else:
            for leak in report.leaks:
                source = f" (read by {leak.source_context})" if leak.source_context else ""
                say(f"LEAK in {leak.context}, by {leak.kind}: {leak.detail}{source}")
            say(report.line())
        return INCOMPLETE if report.leaks or not report.contexts else DONE

    return on_database(work, as_json)


def review(as_json: bool) -> int:
    async def work(settings: Settings, database: Database) -> int:
        store = Store(database)
        reviews = await store.subagents_by_template()
        if as_json:
            dump([asdict(r) for r in reviews])
            return DONE
        for each in reviews:
            say(f"{each.template}: {len(each.troubled)} of {each.total} in trouble")
            for one in each.troubled:
                reason = (one.result or {}).get("reason") or one.stopped_by
                say(shorten(f"  {one.run} {one.id} {one.status}: {reason}", 160))
                say(shorten(f"    brief: {one_line(draft_of(one.brief).task)}", 160))
        return DONE

    return on_database(work, as_json)


def run_pause(by: str | None, as_json: bool) -> int:
    """Pause the workspace; `by` is shown to users who ask meanwhile."""
    name = name_or_default(by)

    async def work(settings: Settings, database: Database) -> int:
        queue = RequestQueue(database)
        before = await queue.paused_by()
        await queue.pause(name)
        who = await queue.paused_by()
        if as_json:
            dump({"paused": True, "by": who, "changed": before is None})
        elif before is None:
            say(f"Paused by {who}. Requests that are running are finished. New and waiting ones")
            say("are kept and answered after `assistant resume`; nothing is lost.")
        else:
            say(f"It was paused before, by {who}; nothing changed.")
        return DONE

    return on_database(work, as_json)


def run_resume(as_json: bool) -> int:
    """Resume the workspace."""

    async def work(settings: Settings, database: Database) -> int:
        queue = RequestQueue(database)
        before = await queue.paused_by()
        await queue.resume()
        if as_json:
            dump({"paused": False, "by": before, "changed": before is not None})
        elif before is None:
            say("It was not paused; nothing changed.")
        else:
            say(f"Resumed (it was paused by {before}). Requests that waited are answered now, the")
            say("oldest first, as soon as `assistant serve` runs.")
        return DONE

    return on_database(work, as_json)


WORDS = {
    "items": "messages, mails, rows and files that runs had seen",
    "runs": "runs that saw them, deleted whole",
    "conversations": "searchable conversations",
    "notes": "notes",
    "preferences": "preferences, and instructions of channels",
    "issues": "issues in reports of schedules",
    "files": "kept files",
    "requests": "requests that lost their text",
    "actions": "actions proposed for approval",
    "feedback": "feedback",
    "credentials": "connected accounts",
    "schedules": "schedules",
    "mail": "mailboxes, handled threads, corrections, clicks in digests",
}
LATER = "Runs in use that saw it: {}. `assistant serve` deletes them when they have ended."


def run_forget(
    user: str | None, channel: str | None, source: str | None, dry_run: bool, as_json: bool
) -> int:
    """Run `assistant forget`."""

    async def work(settings: Settings, database: Database) -> int:
        target = chosen(user, channel, source)
        done = await Forget(database, dry_run, settings.data_dir)(target)
        if not dry_run and await at_work(database):
            await forget_later(database, target)  # a run that has read it may store it again
        if as_json:
            dump({target.kind: target.id, "dry_run": dry_run, **asdict(done)})
        else:
            say(describe(target, done, dry_run))
        if done.later:
            tell(LATER.format(done.later))
        return INCOMPLETE if done.later and not dry_run else DONE

    return on_database(work, as_json)


def chosen(user: str | None, channel: str | None, source: str | None) -> ForgetTarget:
    """Return what to delete. Raises SetupError unless it is exactly one thing."""
    given = {"user": user, "channel": channel, "source": source}
    named = {kind: id.strip() for kind, id in given.items() if id and id.strip()}
    if len(named) != 1:
        hint = "Give one of --user U..., --channel C..., --source ID (or a permalink)."
        raise SetupError("forget_what", "Exactly one thing is forgotten at a time.", hint)
    ((kind, id),) = named.items()
    return ForgetTarget.source(id) if kind == "source" else ForgetTarget(kind, id)


def describe(target: ForgetTarget, done: Forgotten, dry_run: bool) -> str:
    """Describe what was deleted."""
    counts = [(n, WORDS[name]) for name, n in asdict(done).items() if n and name in WORDS]
    if not counts:
        return f"Nothing is stored of the {target.kind} {target.id}."
    head = "Would be forgotten" if dry_run else "Forgotten"
    listed = "\n".join(f"  {what}: {n}" for n, what in counts)
    return f"{head} of the {target.kind} {target.id}:\n{listed}"


SHOWN = 100
"""Decisions in a table without a limit; a document has all of them."""


async def read_log(
    database: Database,
    *,
    run: str = "",
    since: datetime | None = None,
    tool: str | None = None,
    verdict: str | None = None,
    limit: int | None = None,
) -> list[Decision]:
    """Return the latest `limit` matching decisions, oldest first. Raises StoreError."""
    c = decisions.c
    query = sa.select(decisions).order_by(c.seq.desc()).limit(limit)
    for column, value in ((c.run, run), (c.tool, tool), (c.verdict, verdict)):
        query = query.where(column == value) if value else query
    query = query.where(c.at >= since) if since else query
    rows = await database.read(query)
    return [_decision(row) for row in reversed(rows)]


def _decision(row: sa.Row[Any]) -> Decision:
    return Decision(**{name: value for name, value in row._asdict().items() if name != "seq"})


async def run_of(database: Database, id: str) -> str:
    """Return the run in the log whose id is this or begins with it. Raises RunNotFound.

    The log has runs that are stored nowhere else any more.
    """
    c = decisions.c.run
    begins = sa.func.substr(c, 1, len(id)) == id
    query = sa.select(c).where(begins).distinct().order_by(c).limit(4)
    found = [row.run for row in await database.read(query)]
    if id and (id in found or len(found) == 1):
        return id if id in found else str(found[0])
    raise RunNotFound(id, found, several=bool(id and found))


def show_log(
    run: str | None,
    since: str | None,
    tool: str | None,
    verdict: str | None,
    limit: int | None,
    as_json: bool,
) -> int:
    """Run `assistant decisions`."""

    async def work(settings: Settings, database: Database) -> int:
        found = await read_log(
            database,
            run=await run_of(database, run) if run is not None else "",
            since=datetime.now(UTC) - read_length(since) if since else None,
            tool=tool,
            verdict=verdict,
            limit=limit or (None if as_json else SHOWN),
        )
        if as_json:
            dump([asdict(each) for each in found])
            return DONE
        for each in found:
            say(line(each))
        if not found:
            tell("No such decisions.")
        elif limit is None and len(found) == SHOWN:
            tell(f"The latest {SHOWN}; --limit or --json shows more.")
        return DONE

    return on_database(work, as_json)


def line(each: Decision) -> str:
    """Format a decision as one line of a table."""
    who = each.requester or "-"
    what = f"{each.run:12}  {each.context:4} {who:12} {each.tool:22} {each.verdict:8}"
    return f"{each.at:%Y-%m-%d %H:%M:%S}  {what} {each.rule}"
