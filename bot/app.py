"""The composition root: makes everything that a run needs, once, and closes it again."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from bot.cli.given_slack import directory_of, end_of, loaded, no_workspace, reader_of
from bot.cli.options import Options as Options
from bot.errors import SetupError
from bot.local.sample_workspace import SAMPLE_DAYS
from bot.models import model_client
from bot.runs.sink import StoreSink
from bot.storage.retention import tidy
from bot.storage.store import Store, StoreError
from bot.storage.vault import vault_of
from bot.tooling.kit import Toolkit
from bot.tooling.model_search import bind
from bot.tooling.wiring import toolkit_of
from config.settings import Limits, Settings
from scopes.slack_client import TOKEN_FAULTS, SlackRefused, open_session
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import Window, iso
from subagents.brief import Frozen
from subagents.directory import Directory, Operator
from subagents.events import Emit, ignore
from subagents.fanout import Keep, TaskSpawner
from subagents.frozen import frozen_json
from subagents.gate import Gate
from subagents.governor import RateGovernor
from subagents.model import ModelClient
from subagents.purse import NANO, Caps, Purse
from subagents.result import SubagentResult
from subagents.run import Run, StopFlag

log = logging.getLogger(__name__)

DAY = timedelta(days=1)
EPOCH = datetime.fromtimestamp(0, UTC)
SAMPLE_LISTS = {"F0BUGTRACK": "Bug tracker"}


@dataclass
class App:
    """The parts that all runs of this process share."""

    settings: Settings
    options: Options
    model: ModelClient
    governor: RateGovernor
    store: Store
    reader: SlackReader | None
    """None where a command reads no Slack workspace."""
    as_of: datetime
    problems: tuple[str, ...]
    """What of the sources could not be loaded, in words."""
    directory: Directory = field(default_factory=Operator)
    emit: Emit = ignore
    stop: StopFlag = field(default_factory=StopFlag)
    store_fault: str = ""
    """Why something could not be stored; the run goes on and shows what it finds."""
    clients: dict[type, object] = field(default_factory=dict)
    """What all runs read with, besides Slack."""
    toolkit: Toolkit = field(default_factory=Toolkit)
    """What is opened for each run."""
    _spawners: dict[str, TaskSpawner] = field(default_factory=dict)
    """Run id -> what started its subagents."""

    @property
    def model_name(self) -> str:
        return self.options.model

    @property
    def lists(self) -> dict[str, str]:
        """Slack Lists that may be read: id -> title."""
        if self.reader is None:
            return {}
        return dict(SAMPLE_LISTS if self.options.sample else self.settings.slack.lists)

    def window(self, default: timedelta) -> Window:
        since = self.options.since or (SAMPLE_DAYS * DAY if self.options.sample else default)
        return Window(self.as_of - min(since, self.as_of - EPOCH), self.as_of)

    async def channels(self) -> list[ChannelInfo]:
        """The channels that can be seen. Raises SetupError where Slack does not tell."""
        if self.reader is None:
            raise no_workspace()
        try:
            return await self.reader.channels()
        except SlackRefused as error:
            raise SetupError("slack", f"{error.why}.", self._remedy(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            why = f"Slack cannot be reached ({type(error).__name__})."
            raise SetupError("slack", why, "Check the network and SLACK_API_URL.") from error

    def _remedy(self, error: SlackRefused) -> str:
        if error.code in TOKEN_FAULTS and (user := self.options.as_user):
            return f"There is no user {user} here: mend --as-user."
        return f"{error.remedy}." if error.remedy else "Try again later."

    @asynccontextmanager
    async def run(
        self,
        kind: str,
        question: str,
        args: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        resumed: str | None = None,
    ) -> AsyncIterator[Run]:
        """A run that is recorded from its start; what it recorded is stored at its end.

        `resumed` names the run that goes on, where one does.
        """
        run_id = resumed or uuid.uuid4().hex[:12]
        told_args = {"as_user": self.options.as_user, "as_of": iso(self.as_of), **(args or {})}
        await self.store.start_run(run_id, kind, question, self.options.model, told_args)
        sink, reader = StoreSink(self.store), self.reader.fresh() if self.reader else None
        limits = limits or self.settings.limits
        caps = Caps(round(limits.cost_usd * NANO), limits.tokens, limits.steps, limits.seconds)
        tools = await self.toolkit.open(run_id, self.options.as_user)
        run = Run(
            id=run_id,
            requester=self.options.as_user,
            model=self.model,
            governor=self.governor,
            purse=Purse(caps, asyncio.get_running_loop().time),
            gate=Gate(sink.log_decision, self.directory, limits=limits.tool_calls),
            sink=sink,
            limits=limits,
            clients={**tools.clients, **self.clients, **({SlackReader: reader} if reader else {})},
            handles=tools.handles,
            emit=self.emit,
            stop=self.stop,
        )
        bind(run)
        try:
            yield run
        except BaseException as error:
            how = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
            told = {"code": type(error).__name__, "message": str(error)}
            await self._stored(self.store.finish_run(run_id, how, error=told))
            raise
        finally:
            if spawner := self._spawners.pop(run_id, None):
                await spawner.aclose()
            if reader:
                await reader.aclose()
            await self._stored(sink.aclose())

    async def finish(self, run: Run, document: dict[str, Any]) -> None:
        """Store how a run ended."""
        cost, status = document["cost_usd"], document["status"]
        await self._stored(self.store.finish_run(run.id, status, result=document, cost_usd=cost))

    async def _stored(self, work: Awaitable[None]) -> None:
        """Wait for the store; a full disk costs the record, never the result."""
        try:
            await work
        except StoreError as error:
            self.store_fault = self.store_fault or str(error)
            log.error("%s", error)

    def spawner(self, run: Run) -> TaskSpawner:
        return self._spawners.setdefault(run.id, TaskSpawner(run, self._keeper(run)))

    def _keeper(self, run: Run) -> Keep:
        """Stores each subagent's brief and result as it ends, after what was recorded of it."""

        async def store(frozen: Frozen, result: SubagentResult) -> None:
            brief = frozen_json(frozen, datetime.now(UTC))
            if isinstance(run.sink, StoreSink):
                await run.sink.flush()
            await self.store.save_subagent(run.id, brief, result.model_dump(mode="json"))

        async def keep(frozen: Frozen, result: SubagentResult) -> None:
            await self._stored(store(frozen, result))

        return keep


@asynccontextmanager
async def open_app(settings: Settings, options: Options, emit: Emit) -> AsyncIterator[App]:
    """Everything started; SetupError with a sentence that says what to do where it cannot be."""
    async with AsyncExitStack() as stack:
        store = await Store.open(settings.data_dir, settings.database_url, vault_of(settings))
        stack.push_async_callback(store.aclose)
        await tidy(store.database, settings.retention)
        model = stack.enter_context(model_client(settings, options.model))
        stack.push_async_callback(model.aclose)
        workspace, reader = None, None
        if not options.mail:
            session = await stack.enter_async_context(open_session(settings.slack))
            workspace = await asyncio.to_thread(loaded, options)
            reader = reader_of(settings, session, workspace, options, stack)
        toolkit = toolkit_of(settings, store.database, options)
        stack.push_async_callback(toolkit.aclose)
        yield App(
            settings=settings,
            options=options,
            model=model,
            governor=RateGovernor(settings.limits.max_concurrency),
            store=store,
            reader=reader,
            as_of=options.as_of or end_of(workspace, options),
            problems=workspace.problems if workspace else (),
            directory=directory_of(store, reader, workspace, options, toolkit.readers()),
            emit=emit,
            toolkit=toolkit,
        )
