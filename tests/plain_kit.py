"""The words of the engine, which no user should read, and where a bot wrote them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from standins.slack import LocalSlack

from bot.local.model.answer import Answer
from bot.local.model.server import Responder
from bot.local.slack.state import BOT_USER

ENGINE_WORDS = (
    *("brief", "briefs", "handle", "handles", "context", "contexts", "subagent", "subagents"),
    *(r"user(?! groups?\b)", "partial", "needs_context", "rate_limit", "model_error", "tool_error"),
    *("invalid_output", "trajectory", "delimiter", "run_subagent", "run_subagents"),
    r"[sr]\d+",
)
WORD = re.compile(rf"(?<![\w/.#-])(?:{'|'.join(ENGINE_WORDS)})(?![\w/-])", re.IGNORECASE)
SHOWN = ("text", "title", "markdown_text")
"""Arguments and fields of Slack's that a reader sees."""


def engine_words(text: str) -> set[str]:
    return {word.lower() for word in WORD.findall(text)}


def shown_texts(value: Any, key: str = "", shown: Sequence[str] = SHOWN) -> Iterator[str]:
    """Yield all texts of a call to Slack, or of a view, that a reader sees."""
    if isinstance(value, str):
        if value[:1] in "[{" and key in ("blocks", "chunks", "view"):
            yield from shown_texts(json.loads(value), shown=shown)
        elif key in shown:
            yield value
    elif isinstance(value, Mapping):
        for name, each in value.items():
            yield from shown_texts(each, name, shown)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from shown_texts(each, shown=shown)


def recording_model(model: Responder, script: set[str]) -> Responder:
    """Return the same model; it adds the engine's words in its answers to `script`."""

    def answer(body: dict[str, Any]) -> Answer:
        reply = model(body)
        script.update(engine_words("\n".join(_strings(reply.content))))
        return reply

    return answer


def frame_words(slack: LocalSlack, script: set[str]) -> list[str]:
    """Return the bot's texts in Slack with a word of the engine that neither the test's own model
    nor anybody in its workspace used."""
    for timeline in slack.state.timelines.values():
        for message in timeline.all():
            if message.user != BOT_USER:
                script.update(engine_words(message.text))
    return [
        f"{effect.method}: {text}"
        for effect in slack.effects
        if effect.user == BOT_USER
        for text in shown_texts(effect.args)
        if engine_words(text) - script
    ]


def _strings(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for each in value.values() if isinstance(value, Mapping) else value:
            yield from _strings(each)
