"""The scripted model of the benchmarks: some tool rounds, then the result, all from the prompt.

It reads three lines of the first user message: `BENCH-ROUNDS: K`, `BENCH-ARGS: {json}` (the
arguments of each call of the first ordinary tool) and `BENCH-SUBMIT: {json}` (the arguments of
`submit_result`).
"""

import json
import re
from typing import Any

from bot.local.model.answer import Answer

_LINE = re.compile(r"^BENCH-(ROUNDS|ARGS|SUBMIT): (.+)$", re.MULTILINE)
_SUBMIT = "submit_result"


def bench(request: dict[str, Any]) -> Answer:
    """Return the next step of a subagent whose brief holds the BENCH lines."""
    messages = request["messages"]
    script = {name: json.loads(value) for name, value in _LINE.findall(_text(messages[0]))}
    offered = [tool["name"] for tool in request.get("tools", [])]
    ordinary = [name for name in offered if name != _SUBMIT]
    done = sum(message["role"] == "assistant" for message in messages)
    if ordinary and done < script.get("ROUNDS", 0):
        return _call(ordinary[0], script.get("ARGS", {}))
    if _SUBMIT in offered:
        return _call(_SUBMIT, script.get("SUBMIT", {}))
    return Answer([{"type": "text", "text": "done"}])


def _call(name: str, arguments: dict[str, Any]) -> Answer:
    return Answer([{"type": "tool_use", "name": name, "input": arguments}])


def _text(message: dict[str, Any]) -> str:
    content = message["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block["text"] for block in content if block["type"] == "text")
