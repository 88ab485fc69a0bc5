"""Implement the commands on stored runs, the gate's log, pause, the console; no engine runs."""

from __future__ import annotations

import asyncio
import logging
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from contextlib import AsyncExitStack
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from bot.cli.output import CommandContext, name_or_default, on_database, result_text
from bot.errors import SetupError
from bot.memory import ResourceStore
from bot.privacy import Forget, Forgotten, at_work
from bot.reports.documents import TriageReport, parse_document
from bot.reports.text import run_text, thread_text
from bot.runs.store import Store
from bot.slack.plan import clean_line, shorten
from bot.storage.deletions import ForgetTarget, forget_later
from bot.storage.requests import BAD, RequestQueue
from bot.storage.tables import StoredRun
from bot.terminal import DONE, INCOMPLETE, say, tell
from config.settings import settings_file
from scopes.resources import Resource, space_of_run
from scopes.tool import one_line
from subagents.brief import draft_of
from subagents.gate import Decision
from subagents.overlap import audit

if TYPE_CHECKING:  # imported only when a run is replayed
    from bot.tasks.replay import Record, Replay

LISTED_FIELDS = ("id", "kind", "status", "question", "model", "started", "cost_usd")
"""Fields of a run in the list as JSON."""


@on_database
async def list_runs(context: CommandContext, limit: int) -> None:
    found = await Store(context.database).runs(limit)
    votes = await RequestQueue(context.database).votes(run.request or "" for run in found)
    rows, lines = [], []
    for run in found:
        run_votes = asdict(votes[run.request or ""])
        rows.append({k: getattr(run, k) for k in LISTED_FIELDS} | run_votes)
        cost = "" if run.cost_usd is None else f"${run.cost_usd:.4f}"
        question = shorten(one_line(run.question), 60)
        vote_text = ", ".join(f"{number} {vote}" for vote, number in run_votes.items() if number)
        feedback = f"  ({vote_text})" if vote_text else ""
        when = f"{run.started:%Y-%m-%d %H:%M}"
        head = f"{run.id}  {when}  {run.kind:9} {run.status:10} {cost:>9}"
        lines.append(f"{head}  {question}{feedback}")
    context.show(rows, *lines, empty="No runs yet. Try `assistant demo`.")


@on_database
async def list_feedback(context: CommandContext, limit: int, only_bad: bool) -> None:
    """List the feedback on answers, with their runs."""
    value = BAD if only_bad else ""
    found = await RequestQueue(context.database).ratings(limit, value)
    lines = []
    for each in found:
        head = f"{each.run or '-':12}  {each.at:%Y-%m-%d %H:%M}  {each.value:4}  {each.user}"
        why = ": ".join(filter(None, (each.reason, one_line(each.comment or ""))))
        question = shorten(one_line(each.question or ""), 60)
        lines.append("  ".join(filter(None, (head, question, clean_line(why)))))
    ratings = [asdict(each) for each in found]
    context.show(ratings, *lines, empty="Nobody has rated an answer yet.")


@on_database
async def show_run(
    context: CommandContext, run_id: str, folder: Path | None = None, thread: int | None = None
) -> None:
    """Show a stored run, or one thread of its digest; write its files if a folder is given."""
    store = Store(context.database)
    run = await store.run(run_id)
    if folder is not None:
        files = [str(path) for path in await write_files(store, run.id, folder)]
        document = {"run_id": run.id, "files": files}
        context.show(document, *files, empty="This run has kept no files.")
    elif thread is not None:
        if context.as_json:
            hint = "Leave --thread out: the document has all threads."
            raise SetupError("which_form", "Both --thread and --json are given.", hint)
        say(_thread(run, thread, context.settings.triage.categories))
    else:
        subagents = await store.subagents(run.id)
        lines = [run_text(run, subagents)]
        if run.result:
            lines.append("\n" + result_text(parse_document(run.result), whole=True))
        found = {**asdict(run), "subagents": [asdict(each) for each in subagents]}
        context.show(found, *lines)


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


async def write_files(store: Store, run: str, folder: Path) -> list[Path]:
    """Write the newest version of each file; existing files are not replaced.

    Raises SetupError if the folder is not writable or has such a file, and StoreError.
    """
    files, space = ResourceStore(store.database), space_of_run(run)
    found = [await files.get(space, f.name, f.version) for f in await files.list_files(space)]
    return await asyncio.to_thread(_write_all, [f for f in found if f], folder)


def _write_all(files: Sequence[Resource], folder: Path) -> list[Path]:
    paths = [folder / each.name for each in files]
    try:
        if files:
            folder.mkdir(parents=True, exist_ok=True)
        for path, each in zip(paths, files, strict=True):
            with path.open("xb") as file:
                file.write(each.shown)
    except OSError as error:
        why = f"Nothing can be written to {error.filename or folder} ({error.strerror})."
        raise SetupError("folder", why, "Name another folder.") from error
    return paths


@on_database
async def audit_run(context: CommandContext, run_id: str) -> int:
    store = Store(context.database)
    run = await store.run(run_id)
    report = audit(await store.trajectory(run.id))
    lines = []
    for leak in report.leaks:
        source = f" (read by {leak.source_context})" if leak.source_context else ""
        lines.append(f"LEAK in {leak.context}, by {leak.kind}: {leak.detail}{source}")
    context.show({"run_id": run.id, **asdict(report)}, *lines, report.line())
    return INCOMPLETE if report.leaks or not report.contexts else DONE


MOST_NAMED = 20
"""Maximum number of departing requests named in addition to the first one."""


@on_database
async def run_replay(
    context: CommandContext, run_id: str, model: str | None, start: str | None
) -> int:
    """Replay a run; with a model, ask it from the context `start` on (default: the first)."""
    from bot.local_mode import model_client
    from bot.tasks.replay import Replay, read_record

    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    settings, store = context.settings, Store(context.database)
    if start and not model:
        text = "--from says where to ask a model again."
        raise SetupError("from_alone", text, "Add --model claude.")
    run = await store.run(run_id)
    record = await read_record(store, run, settings.retention.trajectories_days)
    async with AsyncExitStack() as stack:
        client = None
        if model:
            client = stack.enter_context(model_client(settings, model))
            stack.push_async_callback(client.aclose)
        replay = Replay(record, settings, context.database, client, start or "")
        result = await replay.run()
    found, lines = _replay_json(replay), [_replay_text(replay)]
    if model:
        found["result"] = result.to_json() if result else None
        lines += ["\n" + result_text(result)] if result else []
    context.show(found, *lines)
    return INCOMPLETE if replay.departures else DONE


def _counts(record: Record, replay: Replay) -> tuple[int, int]:
    """Return the number of recorded requests, and of those that the replay made identically."""
    departed = {(each.context, each.number) for each in replay.departures}
    identical = {(context, record.numbers[context, seq]) for context, seq in replay.repeated_calls}
    return len(record.requests), len(identical - departed)


def _replay_json(replay: Replay) -> dict[str, object]:
    total, same = _counts(replay.record, replay)
    return {
        "run_id": replay.record.run.id,
        "kind": replay.record.task.kind,
        "requests": total,
        "same": same,
        "asked": len(replay.live_calls),
        "departures": [asdict(each) for each in replay.ordered],
    }


def _replay_text(replay: Replay) -> str:
    total, same = _counts(replay.record, replay)
    record, again = replay.record, len(replay.live_calls)
    head = f"{record.run.id} ({record.task.kind}): {same} of {total} requests are the same"
    head += f", {again} were asked again." if again else "."
    if not replay.departures:
        return head
    first, *others = replay.ordered
    lines = [head, "", first.line, *([first.diff] if first.diff else [])]
    if others:
        departures = ", ".join(f"{d.context}/{d.number} ({d.kind})" for d in others[:MOST_NAMED])
        more = len(others) - MOST_NAMED
        lines += ["", f"Then: {departures}{f', and {more} more' if more > 0 else ''}."]
    return "\n".join(lines)


@on_database
async def review(context: CommandContext) -> None:
    reviews = await Store(context.database).subagents_by_template()
    lines = []
    for each in reviews:
        lines.append(f"{each.template}: {len(each.troubled)} of {each.total} in trouble")
        for one in each.troubled:
            reason = (one.result or {}).get("reason") or one.stopped_by
            lines.append(shorten(f"  {one.run} {one.id} {one.status}: {reason}", 160))
            lines.append(shorten(f"    brief: {one_line(draft_of(one.brief).task)}", 160))
    context.show([asdict(each) for each in reviews], *lines)


@on_database
async def run_pause(context: CommandContext, by: str | None) -> None:
    """Pause the workspace; `by` is shown to users who ask during the pause."""
    queue = RequestQueue(context.database)
    before = await queue.paused_by()
    await queue.pause(name_or_default(by))
    who = await queue.paused_by()
    text = f"It was paused before, by {who}; nothing changed."
    if before is None:
        text = (
            f"Paused by {who}. Requests that are running are finished. New and waiting ones\n"
            "are kept and answered after `assistant resume`; nothing is lost."
        )
    context.show({"paused": True, "by": who, "changed": before is None}, text)


@on_database
async def run_resume(context: CommandContext) -> None:
    """Resume the workspace."""
    queue = RequestQueue(context.database)
    before = await queue.paused_by()
    await queue.resume()
    text = "It was not paused; nothing changed."
    if before is not None:
        text = (
            f"Resumed (it was paused by {before}). Requests that waited are answered now, the\n"
            "oldest first, as soon as `assistant serve` runs."
        )
    context.show({"paused": False, "by": before, "changed": before is not None}, text)


COUNT_DESCRIPTIONS = {
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
    "names": "names that the console shows",
}
IN_USE_MESSAGE = "Runs in use that saw it: {}. `assistant serve` deletes them when they have ended."


@on_database
async def run_forget(context: CommandContext, /, dry_run: bool, **options: str | None) -> int:
    """Run `assistant forget`; `options` name what to delete."""
    target = choose_target(options)
    done = await Forget(context.database, dry_run, context.settings.data_dir)(target)
    if not dry_run and await at_work(context.database):
        await forget_later(context.database, target)  # a run that read it may store it again
    found = {target.kind: target.id, "dry_run": dry_run, **asdict(done)}
    context.show(found, describe(target, done, dry_run))
    if done.later:
        tell(IN_USE_MESSAGE.format(done.later))
    return INCOMPLETE if done.later and not dry_run else DONE


def choose_target(options: dict[str, str | None]) -> ForgetTarget:
    """Return what to delete. Raises SetupError unless it is exactly one thing."""
    targets = {kind: id.strip() for kind, id in options.items() if id and id.strip()}
    if len(targets) != 1:
        hint = "Give one of --user U..., --channel C..., --source ID (or a permalink)."
        raise SetupError("forget_what", "Exactly one thing is forgotten at a time.", hint)
    ((kind, id),) = targets.items()
    return ForgetTarget.source(id) if kind == "source" else ForgetTarget(kind, id)


def describe(target: ForgetTarget, done: Forgotten, dry_run: bool) -> str:
    """Describe what was deleted."""
    counts = [
        (n, COUNT_DESCRIPTIONS[name])
        for name, n in asdict(done).items()
        if n and name in COUNT_DESCRIPTIONS
    ]
    if not counts:
        text = f"Nothing is stored of the {target.kind} {target.id}."
        if target.kind == "source" or re.fullmatch(r"[A-Z][A-Z0-9]+|\S+@\S+", target.id):
            return text
        return f"{text} Give the id, such as {target.kind[0].upper()}0123ABCD, not a name."
    head = "Would be forgotten" if dry_run else "Forgotten"
    lines = "\n".join(f"  {what}: {n}" for n, what in counts)
    return f"{head} of the {target.kind} {target.id}:\n{lines}"


@on_database
async def show_log(context: CommandContext, run: str | None) -> None:
    """Show the decisions of all runs, or of one, oldest first."""
    store = Store(context.database)
    found = await store.decisions((await store.run(run)).id if run else None)
    context.show([asdict(each) for each in found], *map(line, found), empty="No decisions yet.")


def line(each: Decision) -> str:
    """Format a decision as one line of a table."""
    who = each.requester or "-"
    what = f"{each.run:12}  {each.context:4} {who:12} {each.tool:22} {each.verdict:8}"
    return f"{each.at:%Y-%m-%d %H:%M:%S}  {what} {each.rule}"


@on_database
async def run_console(context: CommandContext, port: int) -> None:
    """Serve the console until Ctrl-C or SIGTERM, and print its address."""
    from starlette.applications import Starlette

    from bot.console.app import PATH, LoopbackAccess
    from bot.console.pages import console_routes
    from bot.policy.policy import PolicyFile
    from bot.serving.web import serve_app

    settings, policy = context.settings, PolicyFile.of(context.settings, settings_file())
    store, access = Store(context.database), LoopbackAccess()
    app = Starlette(routes=console_routes(store, settings, access, policy))
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()
    async with serve_app(app, "127.0.0.1", port, "Give --port another one.") as here:
        say(f"{here}{PATH}")
        tell("The console is at this address. Ctrl-C ends it.")
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stopping.set)
        await stopping.wait()
