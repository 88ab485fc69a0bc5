"""The commands that look at what is stored, or at what there is. They start no engine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bot.cli.outcome import DONE, INCOMPLETE, dump, guarded, say, tell
from bot.cli.report import ask_text, run_text, sweep_text
from bot.cli.written_files import write_files
from bot.memory.resources import ResourceShelf
from bot.replies.plan import shorten
from bot.storage.store import Store
from bot.storage.vault import vault_of
from bot.triage.digest_text import digest_text
from config.settings import Settings, load_settings
from scopes.tool import iso, one_line
from subagents.audit import audit


def list_runs(limit: int, as_json: bool) -> int:
    async def work(store: Store) -> int:
        found = await store.runs(limit)
        if as_json:
            keys = ("id", "kind", "status", "question", "model", "started", "cost_usd")
            dump([{k: asdict(r)[k] for k in keys} for r in found])
            return DONE
        for run in found:
            cost = "" if run.cost_usd is None else f"${run.cost_usd:.4f}"
            when = f"{run.started:%Y-%m-%d %H:%M}"
            asked = shorten(one_line(run.question), 60)
            say(f"{run.id}  {when}  {run.kind:9} {run.status:10} {cost:>9}  {asked}")
        if not found:
            tell("No runs yet. Try `assistant demo`.")
        return DONE

    return stored(work, as_json)


def show_run(run_id: str, as_json: bool, folder: Path | None = None) -> int:
    """A stored run; its files are written where a folder is given."""

    async def work(store: Store) -> int:
        run = await store.run(run_id)
        if folder is not None:
            return await _write(store, run.id, folder, as_json)
        subagents = [asdict(s) for s in await store.subagents(run.id)]
        if as_json:
            dump({**asdict(run), "subagents": subagents})
            return DONE
        say(run_text({**asdict(run), "started": iso(run.started)}, subagents))
        if run.result:
            say("\n" + _text(run.result))
        return DONE

    return stored(work, as_json)


async def _write(store: Store, run: str, folder: Path, as_json: bool) -> int:
    written = await write_files(ResourceShelf(store.database), run, folder)
    if as_json:
        dump({"run_id": run, "files": [str(path) for path in written]})
        return DONE
    for path in written:
        say(str(path))
    if not written:
        tell("This run has kept no files.")
    return DONE


def _text(document: Mapping[str, Any]) -> str:
    """A result as it was printed, or as much of it as Slack was sent."""
    if "verdicts" in document:
        return digest_text(document, load_settings().triage.categories)
    return (sweep_text if document["kind"] == "sweep" else ask_text)(dict(document))


def audit_run(run_id: str, as_json: bool) -> int:
    async def work(store: Store) -> int:
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

    return stored(work, as_json)


def review(as_json: bool) -> int:
    async def work(store: Store) -> int:
        reviews = await store.subagents_by_template()
        if as_json:
            dump([asdict(r) for r in reviews])
            return DONE
        for each in reviews:
            say(f"{each.template}: {len(each.troubled)} of {each.total} in trouble")
            for one in each.troubled:
                reason = (one.result or {}).get("reason") or one.stopped_by
                say(shorten(f"  {one.run} {one.id} {one.status}: {reason}", 160))
                say(shorten(f"    brief: {one_line(str(one.brief.get('task', '')))}", 160))
        return DONE

    return stored(work, as_json)


def stored(work: Callable[[Store], Awaitable[int]], as_json: bool) -> int:
    """Run a command that only looks at what is stored."""

    async def go(settings: Settings) -> int:
        store = await Store.open(settings.data_dir, settings.database_url, vault_of(settings))
        try:
            return await work(store)
        finally:
            await store.aclose()

    return guarded(lambda: asyncio.run(go(load_settings())), as_json)
