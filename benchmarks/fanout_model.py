"""The model of the `fanout` table: a parent with N children, each of two tool rounds and a result.

The request says `FANOUT: N`; the parent lists the channels and hands out the first N. A child reads
its channel, then a thread of it, and hands in one finding. The parent answers with a line for each
finding. It knows nothing but the request.
"""

from __future__ import annotations

import re
from typing import Any

from bot.local.model.answer import Answer

_NUMBER = re.compile(r"FANOUT: (\d+)")
_CHANNEL = re.compile(r"\b(C0BENCH\d+)\b")
_THREAD = re.compile(r"\[(C0BENCH\d+/\d+\.\d+)\]")
_FINDING = re.compile(r"\[(F\d+\.\d+)\]")


def channel_id(number: int) -> str:
    return f"C0BENCH{number:04}"


def fanout(request: dict[str, Any]) -> Answer:
    """Return the next step of the parent or of a child."""
    messages = request["messages"]
    done = sum(message["role"] == "assistant" for message in messages)
    first, last = _text(messages[0]), _text(messages[-1])
    if any(tool["name"] == "submit_result" for tool in request.get("tools", ())):
        return _child(first, last, done)
    if done == 0:
        return _call("list_channels", {})
    if done == 1:
        found = _NUMBER.search(first)
        items = [channel_id(n) for n in range(int(found[1]) if found else 1)]
        template = {"task": "Say what is open in {item}.", "description": "Read {item}"}
        call = {"items": items, "template": {**template, "scope": "slack"}}
        return _call("run_subagents", call)
    lines = [f"- It is open. [{id}]" for id in dict.fromkeys(_FINDING.findall(last))]
    return Answer([{"type": "text", "text": "\n".join(lines) or "Nothing."}])


def _child(first: str, last: str, done: int) -> Answer:
    channel = _CHANNEL.search(first)
    if done == 0 and channel:
        return _call("read_channel_history", {"channel": channel[1]})
    threads = _THREAD.findall(last)
    if done == 1 and threads:
        return _call("read_thread", {"thread": threads[0]})
    finding = {"claim": "The till does not start.", "evidence": threads[:1]}
    return _call("submit_result", {"text": "One thing is open.", "findings": [finding]})


def _call(name: str, arguments: dict[str, Any]) -> Answer:
    return Answer([{"type": "tool_use", "name": name, "input": arguments}])


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return "\n".join(_text_of(block) for block in blocks)


def _text_of(block: dict[str, Any]) -> str:
    inner = block.get("content") if block["type"] == "tool_result" else block.get("text", "")
    if isinstance(inner, list):
        return "\n".join(str(part.get("text", "")) for part in inner)
    return str(inner or "")
