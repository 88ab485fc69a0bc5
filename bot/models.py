"""The model that a process calls: Claude, or the stand-in of fixed rules that needs no key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from bot.errors import SetupError
from bot.local.mind.mind import answer as offline_mind
from bot.local.model.server import ModelServer
from bot.local.server import LocalServer
from config.settings import Settings
from subagents.model import ModelClient


@contextmanager
def model_client(settings: Settings, name: str) -> Iterator[ModelClient]:
    """The client of `claude`, or of the `offline` stand-in, which runs while inside."""
    if name == "offline":
        with LocalServer(ModelServer(offline_mind).app, "model") as server:
            yield ModelClient(settings.models, "offline", server.url)
        return
    key, base_url = settings.secrets.anthropic_api_key, settings.endpoints.anthropic_base_url
    if key is None and base_url is None:
        raise SetupError(
            "no_api_key",
            "No API key for --model claude.",
            "Set ANTHROPIC_API_KEY in the environment or in .env, or use --model offline.",
        )
    yield ModelClient(settings.models, key.get_secret_value() if key else "none", base_url)
