"""What `Ask` is worked on with, for one run of `serve`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from bot.durable import Durable
from bot.requests.inbox import StoredRequest
from bot.runs.runs import Live, WorkflowSpawner
from bot.storage.store import Store
from config.settings import Settings
from subagents.run import Run


@dataclass(frozen=True)
class Desk:
    """Stands in the place of `App` of the command line."""

    settings: Settings
    model_name: str
    durable: Durable
    store: Store
    live: Live
    workflow: str
    problems: tuple[str, ...]

    @property
    def lists(self) -> Mapping[str, str]:
        return self.settings.slack.lists

    def spawner(self, run: Run) -> WorkflowSpawner:
        return WorkflowSpawner(self.durable, self.store, self.live, self.workflow)


class Surroundings(Protocol):
    """What was said around a request, read from Slack."""

    async def read(self, request: StoredRequest, live: Live) -> dict[str, Any]:
        """`{text, conversation, files, earlier, here, label, refused}` as JSON."""
