"""The reading of a sweep's subagents, put into one context and sent to the stand-in again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from standins.model import ModelServer
from starlette.testclient import TestClient

from benchmarks.workload import settings_for
from bot.local.model.answer import Answer
from scopes import scope
from subagents.brief import SUBMIT, template, tools_for
from subagents.prices import Usage
from subagents.trajectory import Trajectory, messages_of

Json = dict[str, Any]
MAX_TOKENS = 64_000
READ = "read_channel_history"


@dataclass(frozen=True, slots=True)
class Turn:
    """Tool calls and their results."""

    calls: list[Json]
    results: list[Json]


@dataclass(frozen=True, slots=True)
class Reading:
    """The brief and the result of one subagent, and the call by which another context reads the
    same messages."""

    brief: str
    turn: Turn
    submission: Json

    @classmethod
    def of(cls, trajectory: Trajectory, child: str) -> Reading:
        own = (each for each in trajectory.requests if each.context == child)
        last = max(own, key=lambda each: each.seq)
        messages = messages_of(trajectory, last)
        _, material = (block["text"] for block in messages[0]["content"])
        call = {
            "type": "tool_use",
            "id": f"toolu_{child}",
            "name": READ,
            "input": {"channel": child},
        }
        read = {"type": "tool_result", "tool_use_id": call["id"], "content": material}
        (final,) = [r for r in trajectory.replies if (r.context, r.seq) == (child, last.seq)]
        blocks = [json.loads(trajectory.blocks[digest]) for digest in final.blocks]
        (submission,) = [b["input"] for b in blocks if b.get("name") == SUBMIT]
        return cls(messages[0]["content"][0]["text"], Turn([call], [read]), submission)


def one_after_another(readings: Sequence[Reading]) -> list[Turn]:
    return [reading.turn for reading in readings]


def in_one_turn(readings: Sequence[Reading]) -> list[Turn]:
    calls = [call for reading in readings for call in reading.turn.calls]
    return [Turn(calls, [result for reading in readings for result in reading.turn.results])]


def replay(readings: Sequence[Reading], turns: Sequence[Turn], more_output: int) -> list[Usage]:
    """Return the usage of each call, counted by a separate stand-in with caching.

    The last call hands in the results of all subagents, and `more_output` additional tokens.
    """
    answers = [turn.calls for turn in turns] + [[_submission(readings)]]
    server = ModelServer(lambda body: Answer(answers[len(body["messages"]) // 2]))
    messages: list[Json] = [{"role": "user", "content": [_text(_brief(readings))]}]
    usages = []
    with TestClient(server.app) as client:
        for turn in [*turns, None]:
            answer = client.post("/v1/messages", json=_body(messages), headers=_HEADERS)
            usages.append(Usage.of(answer.raise_for_status().json()["usage"]))
            if turn:
                messages.append({"role": "assistant", "content": turn.calls})
                messages.append({"role": "user", "content": turn.results})
    last = usages[-1]
    usages[-1] = Usage(last.input, last.output + more_output, last.cache_read, last.cache_write)
    return usages


_HEADERS = {"x-api-key": "bench", "anthropic-version": "2023-06-01"}


def _body(messages: Sequence[Json]) -> Json:
    models = settings_for(1).models
    offered = tools_for("issues", scope("slack").tools)
    system, tools, _ = template("slack", "issues", models.strict_tools, offered)
    mark = {"type": "ephemeral"}
    return {
        "model": models.main,
        "max_tokens": MAX_TOKENS,
        "system": [{**system[0], "cache_control": mark}],
        "tools": tools,
        "messages": list(messages),
        "cache_control": mark,
    }


def _submission(readings: Sequence[Reading]) -> Json:
    """Return one submission with everything in it."""
    merged: Json = {"summary": " ".join(r.submission["summary"] for r in readings)}
    for name in ("findings", "no_issue", "not_covered"):
        merged[name] = [each for r in readings for each in r.submission.get(name, ())]
    return {"type": "tool_use", "name": SUBMIT, "input": merged}


def _brief(readings: Sequence[Reading]) -> str:
    """Return the first brief, with differing lines of all: five tasks, five sources."""
    lines = [reading.brief.splitlines() for reading in readings]
    return "\n".join("\n".join(dict.fromkeys(same)) for same in zip(*lines, strict=True))


def _text(text: str) -> Json:
    return {"type": "text", "text": text}
