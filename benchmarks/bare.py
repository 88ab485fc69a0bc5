"""The yardstick: the least code over the same SDK and transport that makes the same calls.

No limits, no record, no gate, no checks, no retries: a loop that sends, runs the tool, sends again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

from anthropic import AsyncAnthropic, DefaultAioHttpClient

from benchmarks.ours import Sample
from benchmarks.workload import CHANNELS, briefs, settings_for
from scopes import scope
from subagents.brief import SUBMIT, template, tools_for
from subagents.delimiter import new_delimiter, wrap

Json = dict[str, Any]


@dataclass
class Bare:
    """A client and what never changes between calls."""

    client: Any
    """AsyncAnthropic; untyped, since the bodies are plain JSON."""
    fixed: Mapping[str, Any]
    """The part of a request body that all calls share."""

    async def sample(self, number: int, sends: str = "same") -> Sample:
        """`sends`: the `same` bodies as ours; `unfenced` results; or the `task` alone and those."""
        openings = []
        for brief in briefs(number):
            delimiter = new_delimiter()
            lines = [f"[{c.id}] #{c.name}: {c.topic}" for c in CHANNELS]
            text = brief.draft.task if sends == "task" else brief.text(delimiter)
            shown = wrap(delimiter, lines) if sends == "same" else "\n".join(lines)
            openings.append((text, f"{shown}\n{len(lines)} channels."))
        wall, cpu = time.perf_counter(), time.process_time()
        tokens = await asyncio.gather(*(self._loop(text, found) for text, found in openings))
        wall, cpu = time.perf_counter() - wall, time.process_time() - cpu
        return Sample(wall, cpu, sum(tokens))

    async def _loop(self, text: str, found: str) -> int:
        """One subagent; returns the input tokens that it used."""
        messages: list[Json] = [{"role": "user", "content": [{"type": "text", "text": text}]}]
        tokens = 0
        while True:
            reply = await self.client.messages.create(**self.fixed, messages=messages)
            used = reply.usage
            tokens += used.input_tokens + (used.cache_read_input_tokens or 0)
            tokens += used.cache_creation_input_tokens or 0
            calls = [block for block in reply.content if block.type == "tool_use"]
            if not calls or any(call.name == SUBMIT for call in calls):
                return int(tokens)
            content = [block.to_dict(mode="json") for block in reply.content]
            messages.append({"role": "assistant", "content": content})
            messages.append({"role": "user", "content": await self._answer(calls, found)})

    @staticmethod
    async def _answer(calls: Sequence[Any], found: str) -> list[Json]:
        async def one(call: Any) -> Json:
            return {"type": "tool_result", "tool_use_id": call.id, "content": found}

        return list(await asyncio.gather(*map(one, calls)))


@asynccontextmanager
async def open_bare(url: str) -> AsyncIterator[Bare]:
    models = settings_for(1).models
    role = models.roles.subagent_fast
    offered = tools_for("answer", scope("slack").tools)
    system, tools, _ = template("slack", "answer", models.strict_tools, offered)
    mark = {"type": "ephemeral"}
    fixed = {
        "model": models.fast,
        "max_tokens": role.max_tokens,
        "system": [{**system[0], "cache_control": mark}],
        "tools": tools,
        "cache_control": mark,
        "output_config": {"effort": role.effort},
        "thinking": {"type": role.thinking},
    }
    http = DefaultAioHttpClient()
    client = AsyncAnthropic(
        api_key="bench", base_url=url, max_retries=0, timeout=models.timeout_s, http_client=http
    )
    try:
        yield Bare(client, fixed)
    finally:
        await client.close()
