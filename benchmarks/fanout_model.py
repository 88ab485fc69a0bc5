"""The model of the fan-outs: a parent with N children, each of two tool rounds and a result.

The request says `FANOUT: N`; the parent lists the channels and hands out the first N. A child reads
its channel, then a thread of it, and hands in one finding. The parent answers with a line for each
finding. It knows nothing but the request.
"""

from __future__ import annotations

import re
from typing import Any

from engine_kit import call, finding, is_child, opening, say, since, submission, turn

from benchmarks.workload import channel_id
from bot.local.model.answer import Answer

_NUMBER = re.compile(r"FANOUT: (\d+)")
_CHANNEL = re.compile(r"\b(C0BENCH\d+)\b")
_THREAD = re.compile(r"\[(C0BENCH\d+/\d+\.\d+)\]")
_FINDING = re.compile(r"\[(F\d+\.\d+)\]")


def fanout(request: dict[str, Any]) -> Answer:
    """Return the next step of the parent or of a child."""
    first, last, done = opening(request), since(request), turn(request)
    if is_child(request):
        return _child(first, last, done)
    if done == 0:
        return call("list_channels")
    if done == 1:
        found = _NUMBER.search(first)
        items = [channel_id(n) for n in range(int(found[1]) if found else 1)]
        template = {"task": "Say what is open in {item}.", "description": "Read {item}"}
        return call("run_subagents", items=items, template={**template, "scope": "slack"})
    lines = [f"- It is open. [{id}]" for id in dict.fromkeys(_FINDING.findall(last))]
    return say("\n".join(lines) or "Nothing.")


def _child(first: str, last: str, done: int) -> Answer:
    channel = _CHANNEL.search(first)
    if done == 0 and channel:
        return call("read_channel_history", channel=channel[1])
    threads = _THREAD.findall(last)
    if done == 1 and threads:
        return call("read_thread", thread=threads[0])
    found = finding("The till does not start.", *threads[:1])
    return submission("One thing is open.", findings=[found])
