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

from bot.approval.grants import Grants
from bot.directory import SlackDirectory
from bot.errors import SetupError
from bot.local.export import ExportError, load_export
from bot.local.sample_workspace import SAMPLE_AS_OF, SAMPLE_DAYS, load_sample
from bot.local.server import LocalServer
from bot.local.slack import API_PATH, BOT_TOKEN, LocalSlack
from bot.local.slack_state import BOT_USER
from bot.local.workspace import Workspace
from bot.models import model_client
from bot.notes import NoteShelf
from bot.options import Options as Options
from bot.pace import ReadTurns
from bot.people import People
from bot.retention import tidy
from bot.sink import StoreSink
from bot.store import Store, StoreError
from bot.vault import vault_of
from config.settings import Limits, Settings
from scopes.members import Members
from scopes.notes import Notes
from scopes.slack_client import SlackRefused, connect, open_session
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
TOKEN_FAULTS = frozenset(
    {"invalid_auth", "not_authed", "account_inactive", "token_revoked", "token_expired"}
)
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
    _spawners: dict[str, TaskSpawner] = field(default_factory=dict)
    """Run id -> what started its subagents."""

    @property
    def model_name(self) -> str:
        return self.options.model

    @property
    def lists(self) -> dict[str, str]:
        """Slack Lists that may be read: id -> title."""
        return dict(SAMPLE_LISTS if self.options.sample else self.settings.slack.lists)

    def window(self, default: timedelta) -> Window:
        since = self.options.since or (SAMPLE_DAYS * DAY if self.options.sample else default)
        return Window(self.as_of - min(since, self.as_of - EPOCH), self.as_of)

    async def channels(self) -> list[ChannelInfo]:
        """The channels that can be seen. Raises SetupError where Slack does not tell."""
        assert self.reader, "a command that reads channels opens a workspace"
        try:
            return await self.reader.channels()
        except SlackRefused as error:
            raise SetupError("slack", f"{error}.", self._remedy(error)) from error
        except (aiohttp.ClientError, TimeoutError) as error:
            why = f"Slack cannot be reached ({type(error).__name__})."
            raise SetupError("slack", why, "Check the network and SLACK_API_URL.") from error

    def _remedy(self, error: SlackRefused) -> str:
        if error.needed:
            return "Add it to the app and install the app again."
        if error.code not in TOKEN_FAULTS:
            return "Try again later."
        user = self.options.as_user
        return f"There is no user {user} here: mend --as-user." if user else "Mend SLACK_BOT_TOKEN."

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
        run = Run(
            id=run_id,
            requester=self.options.as_user,
            model=self.model,
            governor=self.governor,
            purse=Purse(caps, asyncio.get_running_loop().time),
            gate=Gate(sink.log_decision, self.directory),
            sink=sink,
            limits=limits,
            clients={**self._clients(), **({SlackReader: reader} if reader else {})},
            emit=self.emit,
            stop=self.stop,
        )
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

    def _clients(self) -> dict[type, object]:
        """What a run uses besides Slack: the operator's notes are for no user of an export."""
        notes = NoteShelf(self.store.database)
        return self.clients if self.options.as_user else {Notes: notes, **self.clients}

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
            workspace = await asyncio.to_thread(_workspace, options)
            reader = _reader(settings, session, workspace, options, stack)
        yield App(
            settings=settings,
            options=options,
            model=model,
            governor=RateGovernor(settings.limits.max_concurrency),
            store=store,
            reader=reader,
            as_of=options.as_of or _end_of(workspace, options),
            problems=workspace.problems if workspace else (),
            directory=_directory(store, reader, workspace, options, stack),
            emit=emit,
        )


def _workspace(options: Options) -> Workspace | None:
    """The workspace loaded from what was given, or None for the real one."""
    if options.sample:
        return load_sample()
    if options.slack_export is None:
        return None
    try:
        return load_export(options.slack_export)
    except ExportError as error:
        raise SetupError("bad_export", str(error), "") from error


def _reader(
    settings: Settings,
    session: aiohttp.ClientSession,
    workspace: Workspace | None,
    options: Options,
    stack: AsyncExitStack,
) -> SlackReader:
    slack, user = settings.slack, settings.secrets.slack_user_token
    user_token = user.get_secret_value() if user else None
    if workspace is not None:
        server = stack.enter_context(LocalServer(LocalSlack(workspace).app, "slack"))
        url: str | None = server.url + API_PATH
        user_token = f"xoxp-{options.as_user}" if options.as_user else None
        token: str | None = user_token or BOT_TOKEN
    else:
        secret = settings.secrets.slack_bot_token
        token, url = secret.get_secret_value() if secret else None, settings.endpoints.slack_api_url
    if not token:
        raise SetupError(
            "no_slack_token",
            "No Slack workspace to read.",
            "Set SLACK_BOT_TOKEN, or give --slack-export ZIP, or try `assistant demo`.",
        )
    if workspace is None and options.as_user:
        why = "A real workspace is read with the bot's rights only."
        raise SetupError("as_user", why, "Leave --as-user out, or give --slack-export ZIP.")
    return SlackReader(
        connect(session, token, url, slack, ReadTurns(slack)),
        timedelta(days=slack.lookback_days),
        connect(session, user_token, url, slack) if user_token else None,
    )


def _directory(
    store: Store,
    reader: SlackReader | None,
    workspace: Workspace | None,
    options: Options,
    stack: AsyncExitStack,
) -> Directory:
    """Who may read what: the operator as the bot, or a user of the files by their own token."""
    if reader is None or workspace is None or options.as_user is None:
        return Operator()
    members = Members(reader.web)
    stack.push_async_callback(members.aclose)
    people, grants = People(reader.web), Grants(store.database)
    return SlackDirectory(members, people, grants.covering, BOT_USER, workspace.team.id)


def _end_of(workspace: Workspace | None, options: Options) -> datetime:
    """Now; for files, the midnight after their last message, so that old exports show something."""
    if options.sample and workspace:
        return SAMPLE_AS_OF
    stamps = [m.ts for c in workspace.channels for m in c.messages] if workspace else []
    if not stamps:
        return datetime.now(UTC)
    last = datetime.fromtimestamp(max(float(ts) for ts in stamps), UTC)
    return last.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
