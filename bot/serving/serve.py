"""Run `assistant serve`: assemble all parts, from the event sources to the replies."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import signal
import socket
import uuid
import webbrowser
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    ExitStack,
    asynccontextmanager,
)
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from prometheus_client import Gauge

from bot.approvals.service import Approvals, CardPoster
from bot.approvals.store import Actions
from bot.background import in_background, repeat
from bot.console.app import PATH, ConsoleAccess, LoopbackAccess
from bot.console.pages import console_routes
from bot.console.signin import Administrators, SlackSignIn, TeamAccess
from bot.context import trace_runs
from bot.errors import SetupError
from bot.listeners.backfill import Backfill
from bot.listeners.home import Home, readable_handles
from bot.listeners.intake import Cursors, Intake
from bot.listeners.interactions import DigestActing, Interactions
from bot.listeners.socket_mode import EnvelopeHandler, Sockets
from bot.local_mode import model_client
from bot.log import log_to
from bot.mailbox.accounts import Credentials, Mailboxes
from bot.mailbox.oauth import MailboxConnector
from bot.memory import PreferenceStore
from bot.metrics import Metrics, time_calls
from bot.policy.directory import Grants, SlackDirectory
from bot.policy.policy import Admission, PolicyFile
from bot.privacy import forget_pending_forever, tidy
from bot.requests.context import ContextReader
from bot.requests.delivery import Delivery
from bot.requests.handler import RequestHandler, RequestWorker
from bot.runs.durable import CHILD, Durable, LockLost, Workflows
from bot.runs.run import Runs, Subagents
from bot.runs.store import Store
from bot.schedules.chat import ScheduleService
from bot.schedules.scheduler import Schedules
from bot.schedules.validation import ScheduleValidator
from bot.serving.observability import Health, TokenProbe, watch_process
from bot.serving.web import connect_routes, serve_app, web_app
from bot.slack.client import clients, who_am_i
from bot.slack.people import People
from bot.slack.writer import MessageWriter, Writer
from bot.storage.budget import settle_dead_calls
from bot.storage.database import Database, RetryingDatabase, only_process
from bot.storage.encryption import cipher_of
from bot.storage.requests import RequestQueue
from bot.storage.run_index import Names
from bot.terminal import DONE, WRONG_USE, tell
from bot.tooling.provider import toolkit_of
from config.sections import RetentionSettings
from config.settings import Settings, load_settings, settings_file
from scopes.members import Members
from scopes.preferences import Preferences
from scopes.schedules import ScheduleSetup
from scopes.slack import SlackWriter
from scopes.slack_client import open_session
from scopes.slack_reader import SlackReader
from subagents.model import ModelClient
from subagents.rate_limiter import RateLimiter

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

    from bot.serving.local import LocalWorkspace
    from bot.serving.workspaces import Workspaces

log = logging.getLogger(__name__)


@dataclass
class Server:
    """The parts of a serving process that others need."""

    settings: Settings
    console: Sequence[BaseRoute]
    dispatch: RequestWorker
    durable: Durable
    intake: Intake
    writer: MessageWriter
    approvals: Approvals
    schedules: Schedules
    health: Health
    metrics: Metrics
    sockets: Sockets | None
    backfill: Backfill
    connecting: MailboxConnector
    administrators: Administrators
    url: str = ""
    """Address of the HTTP server (/healthz and others)."""
    tasks: list[Coroutine[Any, Any, None]] = field(default_factory=list)

    def is_idle(self) -> bool:
        return not (
            self.dispatch.at_work or self.dispatch.runs.ids or self.schedules.worker.at_work
        )

    @property
    def running(self) -> int:
        """Number of running requests and reports."""
        return len(self.dispatch.at_work) + len(self.schedules.worker.at_work)

    async def drain(self, seconds: float) -> bool:
        """Start nothing more, and wait for current work; return whether all of it has ended."""
        worker = self.schedules.worker
        return all(await asyncio.gather(self.dispatch.drain(seconds), worker.drain(seconds)))


@dataclass(frozen=True)
class Process:
    """The parts that all workspaces of a process share."""

    workflows: Workflows
    policy_path: Path | None
    model: ModelClient
    model_name: str
    """Either `claude` or `offline`."""
    rate_limiter: RateLimiter
    metrics: Metrics = field(default_factory=Metrics)
    sign_in: SlackSignIn | None = None
    """Identifies the user of a browser, if several workspaces have one console."""

    @classmethod
    def create(
        cls,
        settings: Settings,
        policy_path: Path | None,
        model: ModelClient,
        name: str,
    ) -> Process:
        url, most = settings.database_url, settings.limits.max_concurrency
        workflows = Workflows(
            executor=f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}" if url else "single",
            file=settings.data_dir / "workflows.sqlite",
            url=url,
            max_concurrency=most,
            max_crashes=settings.serve.max_crashes,
            per_minute=settings.serve.subagents_per_minute,
        )
        return cls(workflows, policy_path, model, name, RateLimiter(most))

    async def start(self, stack: AsyncExitStack, settings: Settings) -> None:
        """Start the workflows of this process, until the stack is closed."""
        if not settings.database_url:
            stack.enter_context(only_process(settings.data_dir))
        await self.workflows.open()
        stack.push_async_callback(self.workflows.aclose)

    def tasks(self, retention: RetentionSettings) -> list[Coroutine[Any, Any, None]]:
        """Return the tasks for its workflows."""
        return [reap_or_exit(self.workflows), forget_workflows_forever(retention, self.workflows)]


@asynccontextmanager
async def run_server(
    settings: Settings, policy_path: Path | None, model: ModelClient, name: str
) -> AsyncIterator[Server]:
    """Run the bot inside the context. `name` is the model's: `claude` or `offline`."""
    async with AsyncExitStack() as stack:
        process = Process.create(settings, policy_path, model, name)
        await process.start(stack, settings)
        server = await assemble(stack, settings, process, Durable(process.workflows))
        server.tasks += [*process.tasks(settings.retention), collect_when_idle(server.is_idle)]
        for work in server.tasks:
            stack.callback(work.close)  # if startup fails, it never ran
        server.url = await stack.enter_async_context(
            serve_app(_web(server), settings.serve.host, settings.serve.port)
        )
        async with in_background(server.tasks):
            yield server


async def assemble(
    stack: AsyncExitStack, settings: Settings, process: Process, durable: Durable
) -> Server:
    """Assemble the parts that serve one workspace: the only one, or one of several."""
    url, name = settings.database_url, process.model_name
    metrics = process.metrics
    cipher = cipher_of(settings)
    store = await Store.open(settings.data_dir, url, cipher)
    stack.push_async_callback(store.aclose)
    client, web = clients(settings, await stack.enter_async_context(open_session(settings.slack)))
    bot, address = await who_am_i(client, settings)
    inbox, writer = RequestQueue(store.database), MessageWriter(web, settings.slack)
    writer.count_calls(metrics.count_slack_call)
    health, cursors = Health(), Cursors(inbox)
    people = People(client, settings.slack.languages, remember=Names(store.database).save)
    stack.push_async_callback(people.aclose)
    policy = PolicyFile.of(settings, process.policy_path)
    admission = Admission(policy, people, inbox, settings.limits.cost_usd)
    members = Members(client)
    stack.push_async_callback(members.aclose)
    reader = SlackReader(client, timedelta(days=settings.slack.lookback_days), members=members)
    retrying_store = Store(RetryingDatabase(store.database))
    toolkit = toolkit_of(settings, retrying_store.database)
    stack.push_async_callback(toolkit.aclose)
    grants = Grants(retrying_store.database)
    directory = SlackDirectory(members, people, grants.sources_for, bot.user, bot.team)
    directory.things = toolkit.readers()
    written_to: dict[type, object] = {SlackWriter: Writer(writer, settings.reply)}
    mail = Mailboxes(settings, Credentials(retrying_store.database), people.address)
    runs = Runs(
        store=retrying_store,
        model=process.model,
        rate_limiter=process.rate_limiter,
        reader=reader,
        executor=durable.executor,
        metrics=metrics,
        directory=directory,
        clients=written_to,
        mailboxes=mail,
        toolkit=toolkit,
        traces=trace_runs(settings, retrying_store, stack),
    )
    dispatch = RequestWorker(inbox, durable, settings.serve.max_requests, runs)
    queue, slots = (
        RequestQueue(retrying_store.database),
        asyncio.Semaphore(settings.limits.max_concurrency),
    )
    proposals = CardPoster(
        Actions(retrying_store.database), writer, admission, directory, address, settings.approvals
    )
    delivery = Delivery(settings, retrying_store, queue, writer, runs, proposals)
    approvals = Approvals(
        Actions(store.database), proposals, grants, web, durable, bot.team, delivery
    )
    answering = RequestHandler(
        settings=settings,
        model_name=name,
        store=retrying_store,
        inbox=queue,
        writer=writer,
        runs=runs,
        durable=durable,
        admission=replace(admission, inbox=queue),
        context=ContextReader(
            retrying_store, queue, client.web, people, settings.reply, bot.user, address
        ),
        metrics=metrics,
        delivery=delivery,
    )
    validator = ScheduleValidator(reader, directory, admission.file, mail)
    schedules = Schedules(settings, name, runs, durable, writer, validator, proposals)
    written_to[ScheduleSetup] = ScheduleService(schedules.store, validator)
    written_to[Preferences] = PreferenceStore(retrying_store.database, directory)
    children = Subagents(runs, retrying_store, slots, metrics)
    connecting = MailboxConnector(settings, store.database, web, address)
    preferences = PreferenceStore(store.database, directory)
    reach = partial(readable_handles, toolkit, directory)
    home = Home(admission, reach, connecting, preferences)
    digests = DigestActing(inbox, mail, writer)
    interactions = Interactions(web, admission, approvals, digests, home, store, settings.reply)
    intake = Intake(cursors, writer, web, bot, interactions, settings)
    intake.on_request, intake.on_feedback = dispatch.wake, metrics.count_feedback
    intake.on_repeat = metrics.duplicates.inc
    stack.push_async_callback(intake.aclose)
    backfill = Backfill(intake, cursors, client, settings.slack)
    backfill.on_found = metrics.backfilled.inc
    hear = time_calls(intake.from_socket, metrics.ack)
    sockets = None if settings.team else sockets_of(settings, hear, backfill.ask)
    administrators = Administrators(bot.team, policy, people)
    access: ConsoleAccess | None = None
    if sign_in := process.sign_in:
        access = TeamAccess(sign_in, bot.team)
    elif settings.console.public_url and not settings.team:
        found = {bot.team: administrators}.get
        sign_in = SlackSignIn(settings, store.database, cipher, found, bot.team)
        access = TeamAccess(sign_in, bot.team)
    elif not _is_forwarded_to(settings):
        access = LoopbackAccess()
    server = Server(
        settings=settings,
        console=console_routes(store, settings, access, policy) if access else [],
        dispatch=dispatch,
        durable=durable,
        intake=intake,
        writer=writer,
        approvals=approvals,
        schedules=schedules,
        health=health,
        metrics=metrics,
        sockets=sockets,
        backfill=backfill,
        connecting=connecting,
        administrators=administrators,
    )
    _register_workflows(server, answering, children)
    await policy.read()  # an invalid policy stops the start; later, it stops all answers
    await _start(stack, server, store, cursors, Watch(server, admission))
    server.tasks.append(watch_process(health, metrics, store.database, sockets))
    return server


def _register_workflows(server: Server, answering: RequestHandler, subagents: Subagents) -> None:
    """Register the body of each workflow, and what settles the calls of a dead replica."""
    durable, dispatch, database = server.durable, server.dispatch, server.dispatch.inbox.database

    async def request(key: str, *args: Any) -> dict[str, Any]:
        with dispatch.count_work(key):
            return await answering.work(key, *args)

    async def settle(dead: str) -> None:
        log.warning("replica %s is dead; its work goes on in others", dead)
        await database.change(partial(settle_dead_calls, owner=dead))

    durable.bodies |= {"request": request, CHILD: subagents.work}
    durable.bodies |= {"action": server.approvals.execute, **server.schedules.bodies()}
    durable.on_dead = settle


def _is_forwarded_to(settings: Settings) -> bool:
    """Return whether a proxy passes requests on to this process.

    By default nginx names neither the client nor the host, so that every client would look like a
    browser on this machine.
    """
    there_is_one = settings.slack.mode == "http" or settings.serve.public_url
    return bool(there_is_one or settings.team)


async def _start(
    stack: AsyncExitStack, server: Server, store: Store, cursors: Cursors, watch: Watch
) -> None:
    """Resume work of an earlier process, and start the background tasks."""
    dispatch, durable, backfill = server.dispatch, server.durable, server.backfill
    runs, sockets = dispatch.runs, server.sockets
    await store.database.change(partial(settle_dead_calls, owner=durable.executor))
    await durable.open()
    stack.push_async_callback(durable.aclose)
    await server.schedules.begin()
    backfill.ask()
    server.tasks = [
        dispatch.run(),
        dispatch.watch_stops(),
        server.approvals.run(),
        *server.schedules.tasks(),
        cursors.run(),
        backfill.run(),
        tidy_forever(server.settings, store.database),
        forget_pending_forever(store.database, server.settings.data_dir),
        *([runs.follow()] if durable.shared else []),
        watch.count(),
        *([sockets.run()] if sockets else []),
    ]


COUNT_EVERY_S = 1.0


@dataclass
class Watch:
    """Observes the parts of one workspace."""

    server: Server
    admission: Admission
    _shares: dict[Gauge, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Register the health check of each part."""
        health = self.server.health
        health.add("policy", self._policy)
        health.add("token", TokenProbe(self.admission.people.client).check)
        health.add("draining", lambda: "It is ending." if self.server.dispatch.draining else None)
        health.add("model", self._model, "noted")

    async def count(self) -> None:
        """Update the metrics until cancelled."""
        try:
            await repeat(self._count, COUNT_EVERY_S, "the metrics are not up to date")
        finally:
            for gauge in list(self._shares):
                self._set(gauge, 0)

    async def _count(self) -> None:
        server, metrics = self.server, self.server.metrics
        self._set(metrics.working, len(server.dispatch.at_work))
        self._set(metrics.queued, await server.dispatch.inbox.count_waiting())
        self._set(metrics.sockets, server.sockets.alive if server.sockets else 0)

    def _set(self, gauge: Gauge, share: int) -> None:
        """Set this workspace's part of a metric of the whole process."""
        gauge.inc(share - self._shares.get(gauge, 0))
        self._shares[gauge] = share

    async def _policy(self) -> str | None:
        try:
            await self.admission.file.read()
        except SetupError as fault:
            return str(fault)
        return None

    def _model(self) -> str | None:
        failed = self.server.metrics.last_model_outcome not in ("", "ok")
        return "The last call of the model failed." if failed else None


def _web(server: Server) -> Any:
    connecting = server.connecting
    handler = time_calls(server.intake.from_http, server.metrics.ack)
    http = server.settings.slack.mode == "http"
    pages = [
        *(connect_routes(lambda state: connecting) if connecting.oauth else []),
        *server.console,
    ]
    return web_app(server.health, server.metrics, handler if http else None, pages=pages)


def run_serve(
    model: str | None, port: int | None, page_port: int | None = None, opened: bool = False
) -> int:
    """Serve until SIGTERM or Ctrl-C: the sample workspace if there is a port for its page.

    `opened`: also open the page in a browser.
    """
    with ExitStack() as stack:
        settings, sample = load_settings(), None
        own: dict[str, object] = {} if port is None else {"port": port}
        if page_port is not None:  # new users look at the page, not at the log
            own |= {"log_level": "warning", "log_format": "text"}
        changed = settings.serve.model_copy(update=own)
        settings = settings.model_copy(update={"serve": changed})
        stack.enter_context(log_to(settings.serve, settings.secrets))
        path = settings_file()
        if page_port is not None:
            from bot.serving.local import local_workspace

            sample = stack.enter_context(local_workspace(settings, page_port))
            settings = sample.settings
        name = model or ("offline" if sample else "claude")
        asyncio.run(_serve(settings, path, name, sample, opened))
    return DONE


async def _serve(
    settings: Settings, path: Path | None, name: str, sample: LocalWorkspace | None, opened: bool
) -> None:
    """Serve until SIGTERM or SIGINT, then finish current work; the rest resumes at the next start.

    Raises SetupError if it cannot start.
    """
    stopping, loop = asyncio.Event(), asyncio.get_running_loop()

    def stop() -> None:
        if stopping.is_set():
            _end_at_once()
        stopping.set()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    async with AsyncExitStack() as stack:
        model = stack.enter_context(model_client(settings, name))
        stack.push_async_callback(model.aclose)
        server = await stack.enter_async_context(_run(settings, path, model, name))
        has_console = isinstance(server, Server) and server.console
        console = f", the console at {server.url}{PATH}" if has_console else ""
        log.info("serving; health and metrics at %s%s", server.url, console)
        if sample and isinstance(server, Server):
            await sample.connect(server.dispatch.inbox.database)
            tell(f"Open {sample.page} in a browser to try it. Ctrl-C ends it.")
            tell(f"What it did is shown at {server.url}{PATH}")
            if opened:
                webbrowser.open(sample.page)
        await stopping.wait()
        drain_s = settings.serve.drain_s
        log.info(
            "finishing current work, for at most %.0f s; a second signal ends at once", drain_s
        )
        if not await server.drain(drain_s):
            log.warning("%d requests and reports continue after the next start", server.running)
            _end_at_once()


def _run(
    settings: Settings, policy_path: Path | None, model: ModelClient, name: str
) -> AbstractAsyncContextManager[Server | Workspaces]:
    if not settings.slack.client_id:
        return run_server(settings, policy_path, model, name)
    from bot.serving.workspaces import run_workspaces

    return run_workspaces(settings, policy_path, model, name)


def _end_at_once() -> None:
    """Exit at once. An abrupt exit loses nothing, but closing parts of running work might."""
    logging.shutdown()
    os._exit(0)


def sockets_of(
    settings: Settings, hear: EnvelopeHandler, on_gap: Callable[[], object]
) -> Sockets | None:
    """Return the sockets of Socket Mode. Raises SetupError if a secret is not set."""
    if settings.slack.mode == "http":
        if not settings.secrets.slack_signing_secret:
            hint = "Set SLACK_SIGNING_SECRET, or slack.mode: socket."
            raise SetupError("no_secret", "Slack's events cannot be checked.", hint)
        return None
    token = settings.secrets.slack_app_token
    if not token:
        hint = "Set SLACK_APP_TOKEN (xapp-...), or slack.mode: http. `assistant setup` helps."
        raise SetupError("no_app_token", "There is no token for Socket Mode.", hint)
    return Sockets(
        hear,
        token.get_secret_value(),
        settings.slack,
        base_url=settings.endpoints.slack_api_url,
        on_gap=on_gap,
    )


TIDY_EVERY_S = 3_600.0
COLLECT_EVERY_S = 60.0


async def collect_when_idle(is_idle: Callable[[], bool]) -> None:
    """Collect all garbage about once a minute while nothing is running, until cancelled."""
    while True:
        await asyncio.sleep(COLLECT_EVERY_S)
        if is_idle():
            gc.collect()


async def tidy_forever(settings: Settings, database: Database) -> None:
    """Delete data past its retention, now and every hour, until cancelled."""

    async def delete() -> None:
        await tidy(database, settings.retention, settings.data_dir)
        before = datetime.now(UTC) - timedelta(days=settings.retention.workflows_days)
        await RequestQueue(database).forget(before)

    await repeat(delete, TIDY_EVERY_S, "what is old could not be deleted")


async def forget_workflows_forever(retention: RetentionSettings, workflows: Workflows) -> None:
    """Delete ended workflows past their retention, now and every hour, until cancelled."""

    async def delete() -> None:
        await workflows.forget(datetime.now(UTC) - timedelta(days=retention.workflows_days))

    await repeat(delete, TIDY_EVERY_S, "old workflows could not be deleted")


async def reap_or_exit(workflows: Workflows) -> None:
    """Adopt the work of dead replicas until cancelled; exit if we may be considered dead."""
    try:
        await workflows.reap()
    except LockLost as error:
        log.error("%s", error)
        logging.shutdown()
        os._exit(WRONG_USE)  # another replica may be doing our work already
