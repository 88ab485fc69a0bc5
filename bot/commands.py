"""What each command does: settings, a run, a document, an exit code.

Exit 0 = done, 1 = done but something failed or was not covered, 2 = wrong use or set-up.
"""

from __future__ import annotations

import asyncio
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import scopes as scope_table
from bot.app import SAMPLE_LISTS, App, Options, Request, open_app
from bot.errors import SetupError
from bot.given import Given
from bot.parent import Ask
from bot.progress import showing
from bot.report import ask_text, printable, run_text, sweep_text
from bot.sources import chosen
from bot.store import Store
from bot.sweep import Sweep
from config.settings import Settings, SettingsError, load_settings
from scopes.tool import iso, one_line
from subagents.audit import audit

DONE, INCOMPLETE, WRONG_USE = 0, 1, 2
SAMPLE_CHANNELS = "csm-*"

Document = dict[str, Any]
Work = Callable[[App], Awaitable[Document]]


def run_demo(as_json: bool) -> int:
    settings_options = Options(model="offline", sample=True)
    return _reading(
        lambda: settings_options,
        lambda app: _sweep(app, [SAMPLE_CHANNELS], next(iter(SAMPLE_LISTS)), None),
        as_json,
        sweep_text,
    )


def run_sweep(given: Given, channels: Sequence[str], tracker: str | None, limit: int | None) -> int:
    return _reading(
        given.options, lambda app: _sweep(app, channels, tracker, limit), given.json, sweep_text
    )


def run_ask(given: Given, question: str) -> int:
    async def work(app: App) -> Document:
        if not question.strip():
            raise SetupError("no_question", "The question is empty.", "Put it in quotes.")
        await app.channels()
        async with app.run("ask", question) as run:
            document = await Ask(app, run, Request(question, app.window(_week(app)))).answer()
            await app.finish(run, document)
            return document

    return _reading(given.options, work, given.json, ask_text)


async def _sweep(
    app: App, patterns: Sequence[str], tracker: str | None, limit: int | None
) -> Document:
    channels = chosen(await app.channels(), patterns)
    left_out = channels[limit:] if limit else []
    question = f"sweep {' '.join(patterns)}"
    async with app.run("sweep", question) as run:
        request = Request(question, app.window(_week(app)))
        document = await Sweep(app, run, request, channels[:limit], tracker).report()
        missing = [f"{c.name}: left out by --limit {limit}" for c in left_out]
        document["coverage"]["not_covered"] += missing
        await app.finish(run, document)
        return document


def _week(app: App) -> timedelta:
    return timedelta(days=app.settings.sweep.since_days)


def _reading(
    options: Callable[[], Options], work: Work, as_json: bool, text: Callable[[Document], str]
) -> int:
    """Run one reading command from its options to its exit code."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)

    async def go(settings: Settings, chosen_options: Options) -> tuple[Document, str]:
        with showing(sys.stderr) as emit:
            async with open_app(settings, chosen_options, emit) as app:
                _stop_by_ctrl_c(app)
                for problem in app.problems:
                    _tell(f"warning: {problem}")
                return await work(app), app.store_fault

    def run() -> int:
        document, fault = asyncio.run(go(load_settings(), options()))
        _print(document, as_json, text)
        if fault:
            _tell(f"warning: the run was not stored: {fault}")
        if why := _model_fault(document):
            hint = "Check ANTHROPIC_API_KEY, ANTHROPIC_BASE_URL and `models` in assistant.yaml."
            _tell(f"error: The model answered nothing: {why}. {hint}")
        whole = document["status"] == "complete" and not document["coverage"]["not_covered"]
        return DONE if whole and not fault else INCOMPLETE

    return _guarded(run, as_json)


def _stop_by_ctrl_c(app: App) -> None:
    """The first Ctrl-C ends the run with what there is, the second one ends the process."""
    loop = asyncio.get_running_loop()

    def stop() -> None:
        loop.remove_signal_handler(signal.SIGINT)
        _tell("stopping with what there is; Ctrl-C again to end at once")
        app.stop.set()

    loop.add_signal_handler(signal.SIGINT, stop)


def _model_fault(document: Document) -> str:
    """The one reason for which no model call gave anything, or nothing."""
    parts = [document, *document["subagents"]]
    faults = {p["reason"] for p in parts if p.get("stopped_by") in ("model_error", "rate_limit")}
    return str(faults.pop()) if document["status"] == "failed" and len(faults) == 1 else ""


def list_runs(limit: int, as_json: bool) -> int:
    async def work(store: Store) -> int:
        found = await store.runs(limit)
        if as_json:
            keys = ("id", "kind", "status", "question", "model", "started", "cost_usd")
            _dump([{k: asdict(r)[k] for k in keys} for r in found])
            return DONE
        for run in found:
            cost = "" if run.cost_usd is None else f"${run.cost_usd:.4f}"
            when = f"{run.started:%Y-%m-%d %H:%M}"
            asked = one_line(run.question)[:60]
            _say(f"{run.id}  {when}  {run.kind:6} {run.status:10} {cost:>9}  {asked}")
        if not found:
            _tell("No runs yet. Try `assistant demo`.")
        return DONE

    return _stored(work, as_json)


def show_run(run_id: str, as_json: bool) -> int:
    async def work(store: Store) -> int:
        run = await store.run(run_id)
        subagents = [asdict(s) for s in await store.subagents(run.id)]
        if as_json:
            _dump({**asdict(run), "subagents": subagents})
            return DONE
        _say(run_text({**asdict(run), "started": iso(run.started)}, subagents))
        if run.result:
            _say("\n" + (sweep_text if run.kind == "sweep" else ask_text)(dict(run.result)))
        return DONE

    return _stored(work, as_json)


def audit_run(run_id: str, as_json: bool) -> int:
    async def work(store: Store) -> int:
        run = await store.run(run_id)
        report = audit(await store.trajectory(run.id))
        if as_json:
            _dump({"run_id": run.id, **asdict(report)})
        else:
            for leak in report.leaks:
                source = f" (read by {leak.source_context})" if leak.source_context else ""
                _say(f"LEAK in {leak.context}, by {leak.kind}: {leak.detail}{source}")
            _say(report.line())
        return INCOMPLETE if report.leaks or not report.contexts else DONE

    return _stored(work, as_json)


def review(as_json: bool) -> int:
    async def work(store: Store) -> int:
        reviews = await store.subagents_by_template()
        if as_json:
            _dump([asdict(r) for r in reviews])
            return DONE
        for each in reviews:
            _say(f"{each.template}: {len(each.troubled)} of {each.total} in trouble")
            for one in each.troubled:
                reason = (one.result or {}).get("reason") or one.stopped_by
                _say(f"  {one.run} {one.id} {one.status}: {reason}"[:160])
                _say(f"    brief: {one_line(str(one.brief.get('task', '')))}"[:160])
        return DONE

    return _stored(work, as_json)


def list_scopes(as_json: bool) -> int:
    names = scope_table.scope_names()
    tools = {name: [t.name for t in scope_table.scope(name).tools] for name in names}
    if as_json:
        _dump([{"name": name, "tools": offered} for name, offered in tools.items()])
        return DONE
    for name, offered in tools.items():
        _say(f"{name}: {', '.join(offered)}")
    return DONE


def _stored(work: Callable[[Store], Awaitable[int]], as_json: bool) -> int:
    """Run a command that only looks at what is stored."""

    async def go(settings: Settings) -> int:
        store = await Store.open(settings.data_dir)
        try:
            return await work(store)
        finally:
            await store.aclose()

    return _guarded(lambda: asyncio.run(go(load_settings())), as_json)


def _guarded(run: Callable[[], int], as_json: bool) -> int:
    """Faults of use and set-up as one sentence on stderr (and a document with --json)."""
    try:
        return run()
    except SetupError as error:
        code, message, hint = error.code, error.message, error.hint
    except SettingsError as error:
        code, message, hint = "bad_settings", str(error), ""
    except KeyboardInterrupt:
        code, message, hint = "stopped", "Stopped.", ""
    if as_json:
        _dump({"error": {"code": code, "message": message, "hint": hint}})
    _tell(f"error: {message} {hint}".strip())
    return WRONG_USE


def _print(document: Document, as_json: bool, text: Callable[[Document], str]) -> None:
    if as_json:
        _dump(document)
    else:
        _say(text(document))


def _say(text: str) -> None:
    print(printable(text))


def _tell(text: str) -> None:
    print(printable(text), file=sys.stderr)


def _dump(value: Any) -> None:
    encoding = sys.stdout.encoding or "utf-8"  # a stream in memory has none
    ascii_only = encoding.lower() not in ("utf-8", "utf8")
    print(json.dumps(value, ensure_ascii=ascii_only, indent=2, default=iso))
