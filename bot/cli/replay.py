"""Implement `assistant replay`: a recorded run again, with today's prompts and code."""

from __future__ import annotations

import logging
import sys
from contextlib import AsyncExitStack
from dataclasses import asdict

from bot.cli.output import CommandContext, on_database, result_text
from bot.errors import SetupError
from bot.local_mode import model_client
from bot.runs.store import Store
from bot.tasks.replay import Record, Replay, Start, read_record
from bot.terminal import DONE, INCOMPLETE

MOST_NAMED = 20
"""Departing requests that are named besides the first one."""


@on_database
async def run_replay(
    context: CommandContext, run_id: str, model: str | None, start: str | None
) -> int:
    """Replay a run; with a model, ask again from the context `start` on (default: the first)."""
    logging.basicConfig(level=logging.CRITICAL, stream=sys.stderr)
    settings, store = context.settings, Store(context.database)
    if start and not model:
        text = "--from says where to ask a model again."
        raise SetupError("from_alone", text, "Add --model claude.")
    run = await store.run(run_id)
    record = await read_record(store, run, settings.retention.trajectories_days)
    async with AsyncExitStack() as stack:
        again = None
        if model:
            client = stack.enter_context(model_client(settings, model))
            stack.push_async_callback(client.aclose)
            again = Start(record, start or next(iter(record.contexts)), client)
        replay = Replay(record, settings, context.database, again)
        result = await replay.run()
    found, lines = _json(replay), [_text(replay)]
    if model:
        found["result"] = result.to_json() if result else None
        lines += ["\n" + result_text(result)] if result else []
    context.show(found, *lines)
    return INCOMPLETE if replay.departures else DONE


def _counts(record: Record, replay: Replay) -> tuple[int, int]:
    """Return how many requests are recorded, and how many of them were made alike."""
    departed = {(each.context, each.number) for each in replay.departures}
    alike = {(context, record.numbers[context, seq]) for context, seq in replay.compared}
    return len(record.requests), len(alike - departed)


def _json(replay: Replay) -> dict[str, object]:
    total, same = _counts(replay.record, replay)
    return {
        "run_id": replay.record.run.id,
        "kind": replay.record.task.kind,
        "requests": total,
        "same": same,
        "asked": len(replay.asked),
        "departures": [asdict(each) for each in replay.ordered],
    }


def _text(replay: Replay) -> str:
    total, same = _counts(replay.record, replay)
    record, again = replay.record, len(replay.asked)
    head = f"{record.run.id} ({record.task.kind}): {same} of {total} requests are the same"
    head += f", {again} were asked again." if again else "."
    if not replay.departures:
        return head
    first, *others = replay.ordered
    lines = [head, "", first.line, *([first.diff] if first.diff else [])]
    if others:
        named = ", ".join(f"{d.context}/{d.number} ({d.kind})" for d in others[:MOST_NAMED])
        more = len(others) - MOST_NAMED
        lines += ["", f"Then: {named}{f', and {more} more' if more > 0 else ''}."]
    return "\n".join(lines)
