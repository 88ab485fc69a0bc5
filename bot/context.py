"""The composition root: creates everything that a run needs once, and closes it."""

from __future__ import annotations

import asyncio
import logging
import uuid
from collections.abc import AsyncIterator, Awaitable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import aiohttp

from bot.errors import SetupError, StoreError
from bot.local_mode import (
    SAMPLE_WINDOW,
    directory_of,
    end_of,
    load_workspace,
    model_client,
    no_workspace,
    reader_of,
)
from bot.options import EPOCH, Options
from bot.privacy import tidy
from bot.reports.documents import Document
from bot.runs.checkpoint import RunLog
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.encryption import cipher_of
from bot.tooling.provider import Toolkit, toolkit_of
from bot.tooling.web import bind
from config.sections import LimitSettings
from config.settings import Settings
from scopes.slack_client import TOKEN_FAULTS, SlackRefused, open_session
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import Window, with_clients
from subagents.budget import NANOUSD_PER_USD, Budget, Caps
from subagents.directory import Directory, Operator
from subagents.events import Emit, ignore
from subagents.fanout import TaskSpawner
from subagents.gate import Gate
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter
from subagents.run import Run, StopFlag

if TYPE_CHECKING:
    from bot.mailbox.sync import MailState
    from bot.runs.traces import Traces

log = logging.getLogger(__name__)

SAMPLE_LISTS = {"F0BUGTRACK": "Bug tracker"}


@dataclass
class App:
    """The parts that all runs of this process share."""

    settings: Settings
    options: Options
    model: ModelClient
    rate_limiter: RateLimiter
    store: Store
    reader: SlackReader | None
    """None if a command reads no Slack workspace."""
    as_of: datetime
    problems: tuple[str, ...]
    """Sources that could not be loaded, in words."""
    directory: Directory = field(default_factory=Operator)
    emit: Emit = ignore
    stop: StopFlag = field(default_factory=StopFlag)
    store_fault: str = ""
    """Why something could not be stored; the run continues and shows its findings."""
    clients: Mapping[type, object] = field(default_factory=dict)
    """Clients that all runs use to read, besides Slack."""
    toolkit: Toolkit = field(default_factory=Toolkit)
    """Providers that are opened for each run."""
    traces: Traces | None = None
    mail: MailState | None = None
    """State of the account that a command reads; None for a mailbox in a file."""
    _spawners: dict[str, TaskSpawner] = field(default_factory=dict)
    """Run id -> the spawner of its subagents."""

    @property
    def model_name(self) -> str:
        return self.options.model

    @property
    def lists(self) -> dict[str, str]:
        """Return Slack Lists that may be read: id -> title."""
        if self.reader is None:
            return {}
        return dict(SAMPLE_LISTS if self.options.sample else self.settings.slack.lists)

    def window(self, default: timedelta) -> Window:
        since = self.options.since or (SAMPLE_WINDOW if self.options.sample else default)
        return Window(self.as_of - min(since, self.as_of - EPOCH), self.as_of)

    async def channels(self) -> list[ChannelInfo]:
        """Return the visible channels. Raises SetupError if Slack does not list them."""
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
            return f"There is no user {user} here: fix --as-user."
        return f"{error.remedy}." if error.remedy else "Try again later."

    @asynccontextmanager
    async def run(
        self,
        kind: str,
        question: str,
        args: Mapping[str, Any] | None = None,
        limits: LimitSettings | None = None,
        resumed: str | None = None,
    ) -> AsyncIterator[Run]:
        """Open a run that is recorded from its start; the records are stored at its end.

        `resumed` names the run to continue, if any.
        """
        run_id = resumed or uuid.uuid4().hex[:12]
        sources = self.options.sources(self.as_of).model_dump(mode="json", exclude_defaults=True)
        stored_args = {"as_user": self.options.as_user, **sources, **(args or {})}
        await self.store.start_run(run_id, kind, question, self.options.model, stored_args)
        record = RunLog(self.store, run_id, on_fault=self._note_fault)
        if resumed:
            await record.load()
        reader = self.reader.fresh() if self.reader else None
        limits = limits or self.settings.limits
        tools = await self.toolkit.open(run_id, self.options.as_user)
        run = Run(
            id=run_id,
            requester=self.options.as_user,
            model=self.model,
            rate_limiter=self.rate_limiter,
            budget=Budget(Caps.of(limits), asyncio.get_running_loop().time, record.sum_paid()),
            gate=Gate(record.log_decision, self.directory, limits=limits.tool_calls),
            sink=record,
            limits=limits,
            clients=with_clients(
                with_clients(tools.clients, self.clients), {SlackReader: reader} if reader else {}
            ),
            handles=tools.handles,
            emit=self.emit,
            stop=self.stop,
            checkpoint=record,
        )
        bind(run)
        try:
            yield run
        except BaseException as error:
            how = "cancelled" if isinstance(error, asyncio.CancelledError) else "failed"
            failure = {"code": type(error).__name__, "message": str(error)}
            await self._wait_for_store(self.store.finish_run(run_id, how, error=failure))
            raise
        finally:
            if spawner := self._spawners.pop(run_id, None):
                await spawner.aclose()
            if reader:
                await reader.aclose()
            await self._wait_for_store(record.flush())
            if self.traces:
                await self.traces.export(run_id)

    async def finish(self, run: Run, document: Document) -> None:
        """Store the end of a run."""
        ended = self.store.finish_run(
            run.id, document.status, result=document.to_json(), cost_usd=document.cost_usd
        )
        await self._wait_for_store(ended)

    async def _wait_for_store(self, work: Awaitable[None]) -> None:
        """Wait for the store; a full disk costs the record, never the result."""
        try:
            await work
        except StoreError as error:
            self._note_fault(error)

    def _note_fault(self, error: StoreError) -> None:
        self.store_fault = self.store_fault or str(error)
        log.error("%s", error)

    @property
    def database(self) -> Database:
        return self.store.database

    async def extend(self, run: Run, usd: float, seconds: float) -> None:
        await run.budget.extend(round(usd * NANOUSD_PER_USD), seconds)

    def spawner(self, run: Run) -> TaskSpawner:
        return self._spawners.setdefault(run.id, TaskSpawner(run))


def trace_runs(settings: Settings, store: Store, stack: AsyncExitStack) -> Traces | None:
    """Return the tracer of finished runs; None if no address is set: then no library is loaded."""
    if settings.endpoints.traces is None:
        return None
    from bot.runs.traces import Traces

    where, provider = settings.endpoints.traces, settings.models.provider
    traces = Traces(store, where, provider, contents=settings.traces.contents)
    stack.push_async_callback(traces.aclose)
    return traces


@asynccontextmanager
async def open_app(settings: Settings, options: Options, emit: Emit) -> AsyncIterator[App]:
    """Start everything, and close it at the end. Raises SetupError with what to do."""
    async with AsyncExitStack() as stack:
        store = await Store.open(settings.data_dir, settings.database_url, cipher_of(settings))
        stack.push_async_callback(store.aclose)
        traces = trace_runs(settings, store, stack)
        await tidy(store.database, settings.retention, settings.data_dir)
        model = stack.enter_context(model_client(settings, options.model))
        stack.push_async_callback(model.aclose)
        workspace, reader = None, None
        if not options.mail:
            session = await stack.enter_async_context(open_session(settings.slack))
            workspace = await asyncio.to_thread(load_workspace, options)
            reader = reader_of(settings, session, workspace, options, stack)
        toolkit = toolkit_of(settings, store.database, options)
        stack.push_async_callback(toolkit.aclose)
        yield App(
            settings=settings,
            options=options,
            model=model,
            rate_limiter=RateLimiter(settings.limits.max_concurrency),
            store=store,
            reader=reader,
            as_of=options.as_of or end_of(workspace, options),
            problems=workspace.problems if workspace else (),
            directory=directory_of(store, reader, workspace, options, toolkit.readers()),
            emit=emit,
            toolkit=toolkit,
            traces=traces,
        )
