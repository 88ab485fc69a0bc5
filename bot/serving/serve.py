"""`assistant serve`: everything put together, from the sockets to the finished reply."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

from bot.accounts.connect_pages import connect_routes
from bot.accounts.connecting import Connecting
from bot.accounts.credentials import Credentials
from bot.approval.approvals import Approvals
from bot.approval.grants import Grants
from bot.approval.proposals import Proposals
from bot.durable import Durable
from bot.erasure.noticed import forgetting
from bot.errors import SetupError
from bot.faces.abilities import Reach
from bot.faces.faces import Faces
from bot.hearing.backfill import Backfill
from bot.hearing.cursors import Cursors
from bot.hearing.heard import Bot
from bot.hearing.intake import Intake
from bot.hearing.listening import listening
from bot.hearing.sockets import Sockets
from bot.mail.mailboxes import Mailboxes
from bot.mail.watching import mail_followed
from bot.policy.directory import SlackDirectory
from bot.policy.people import People
from bot.policy.policy import Admission
from bot.policy.policy_file import PolicyFile
from bot.replies.outbox import Outbox
from bot.replies.writer import Writer
from bot.requests.answering import Answering
from bot.requests.dispatch import Dispatch
from bot.requests.finishing import Finishing
from bot.requests.inbox import Inbox
from bot.requests.names import Names
from bot.requests.surroundings import Surroundings
from bot.runs.patient import Patient
from bot.runs.runs import Runs, Subagents
from bot.runs.workflows import durable_of, give_workflows
from bot.schedule.checking import Checking
from bot.schedule.desk import ChatDesk
from bot.schedule.wiring import Schedules
from bot.serving.health import DatabaseProbe, Health, LoopLag
from bot.serving.metrics import Metrics
from bot.serving.upkeep import collect_when_idle, reaped, tidied
from bot.serving.watch import Watch, timed
from bot.serving.web import served, web_app
from bot.serving.workspace import clients, only_process, who_am_i
from bot.storage.store import Store
from bot.storage.vault import vault_of
from bot.tooling.kit import Toolkit
from bot.tooling.wiring import toolkit_of
from bot.triage.digest_acting import DigestActing
from config.settings import Settings
from scopes.members import Members
from scopes.schedules import ScheduleDesk
from scopes.slack_client import open_session
from scopes.slack_reader import SlackReader
from scopes.slack_writer import SlackWriter
from subagents.governor import RateGovernor
from subagents.model import ModelClient

log = logging.getLogger(__name__)


@dataclass
class Bench:
    """The parts of a serving process that others look at."""

    settings: Settings
    dispatch: Dispatch
    durable: Durable
    intake: Intake
    outbox: Outbox
    approvals: Approvals
    schedules: Schedules
    health: Health
    metrics: Metrics
    sockets: Sockets | None
    backfill: Backfill
    connecting: Connecting
    url: str = ""
    """Of /healthz and the rest."""
    mail: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Knows of new mail between triages."""
    tasks: list[Coroutine[Any, Any, None]] = field(default_factory=list)

    async def drained(self, seconds: float) -> bool:
        """Begin nothing more, and wait for what is at work; whether all of it has ended."""
        lanes = self.schedules.lanes
        return all(await asyncio.gather(self.dispatch.drained(seconds), lanes.drained(seconds)))


@asynccontextmanager
async def working(
    settings: Settings, policy_path: Path | None, model: ModelClient, name: str
) -> AsyncIterator[Bench]:
    """A bot at work while inside. `name` is the model's: `claude` or `offline`."""
    async with AsyncExitStack() as stack:
        bench = await _bench(stack, settings, policy_path, model, name)
        bench.url = await stack.enter_async_context(
            served(_web(bench), settings.serve.host, settings.serve.port)
        )
        try:
            async with asyncio.TaskGroup() as tasks:
                begun = [tasks.create_task(each) for each in bench.tasks]
                yield bench
                for task in begun:
                    task.cancel()
        except* SetupError as errors:
            raise errors.exceptions[0] from None


async def _bench(
    stack: AsyncExitStack,
    settings: Settings,
    policy_path: Path | None,
    model: ModelClient,
    name: str,
) -> Bench:
    store, executor = await _store(stack, settings)
    client, web = clients(settings, await stack.enter_async_context(open_session(settings.slack)))
    bot, address = await who_am_i(client)
    inbox, outbox = Inbox(store.database), Outbox(web, settings.slack)
    metrics, health, cursors = Metrics(), Health(), Cursors(inbox)
    people, policy = People(client), PolicyFile(policy_path, settings.policy)
    admission = Admission(policy, people, inbox, settings.limits.cost_usd)
    members = Members(client)
    stack.push_async_callback(members.aclose)
    reader = SlackReader(client, timedelta(days=settings.slack.lookback_days), members=members)
    governor, kept = RateGovernor(settings.limits.max_concurrency), Store(Patient(store.database))
    toolkit = _toolkit(stack, settings, kept)
    directory = _directory(members, people, Grants(kept.database), bot, toolkit)
    desks = _desks(settings, outbox)
    mail = Mailboxes(settings, Credentials(kept.database), people.address)
    runs = Runs(kept, model, governor, reader, executor, metrics, directory, desks, mailboxes=mail)
    runs.toolkit = toolkit
    durable = durable_of(settings, executor, settings.database_url)
    dispatch = Dispatch(inbox, durable, runs, settings.serve.max_requests)
    asked, slots = Inbox(kept.database), asyncio.Semaphore(settings.limits.max_concurrency)
    known = (Names(client), people, settings.reply, bot.user, address)
    around = Surroundings(kept, asked, client.web, *known)
    cards = (kept.database, outbox, admission, directory, address)
    proposals = Proposals.made(settings.approvals, *cards)
    finishing = Finishing(settings, kept, asked, outbox, runs, proposals)
    approvals = Approvals.made(proposals, store.database, web, durable, bot.team, finishing)
    answering = Answering(
        *(settings, name, kept, asked, outbox, runs, durable),
        *(replace(admission, inbox=asked), around, metrics, finishing),
    )
    checking = Checking(reader, directory, admission.file, mail)
    made = (settings, name, kept, runs, durable, outbox, admission, checking, proposals)
    schedules = Schedules.made(*made)
    desks[ScheduleDesk] = ChatDesk(schedules.book, checking)
    children = Subagents(runs, kept, slots, metrics)
    give_workflows(durable, dispatch, answering, children, approvals, schedules)
    pressed = (approvals, DigestActing(inbox, mail, outbox), Reach(toolkit, directory))
    face = Faces(settings, admission, web, address, *pressed)
    parts = (inbox, cursors, outbox, client, web, bot, face, dispatch, metrics)
    intake, backfill, sockets = listening(stack, settings, *parts)
    seen = (health, metrics, sockets, backfill, face.connecting)
    bench = Bench(settings, dispatch, durable, intake, outbox, approvals, schedules, *seen)
    bench.mail = partial(mail_followed, mail, store.database, outbox, policy, metrics, health)
    await _begin(stack, bench, store, cursors, await _watch(stack, bench, store, admission))
    return bench


async def _store(stack: AsyncExitStack, settings: Settings) -> tuple[Store, str]:
    """The state, and what this process is called among those that share it."""
    url = settings.database_url
    if not url:
        stack.enter_context(only_process(settings.data_dir))
    store = await Store.open(settings.data_dir, url, vault_of(settings))
    stack.push_async_callback(store.aclose)
    return store, f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}" if url else "single"


def _toolkit(stack: AsyncExitStack, settings: Settings, store: Store) -> Toolkit:
    """What tools work with besides Slack and mail, until the process ends."""
    toolkit = toolkit_of(settings, store.database)
    stack.push_async_callback(toolkit.aclose)
    return toolkit


def _desks(settings: Settings, outbox: Outbox) -> dict[type, object]:
    """What tools write to."""
    return {SlackWriter: Writer(outbox, settings.reply)}


def _directory(
    members: Members, people: People, grants: Grants, bot: Bot, toolkit: Toolkit
) -> SlackDirectory:
    """Who may read what, as Slack and the settings say it."""
    made = SlackDirectory(members, people, grants.covering, bot.user, bot.team)
    made.things, made.anybodys = toolkit.readers(), toolkit.anybodys()
    return made


async def _begin(
    stack: AsyncExitStack, bench: Bench, store: Store, cursors: Cursors, watch: Watch
) -> None:
    """Go on with what an earlier process left, and say what is to be done from now on."""
    dispatch, durable, backfill = bench.dispatch, bench.durable, bench.backfill
    inbox, runs, sockets = dispatch.inbox, dispatch.runs, bench.sockets
    lanes = bench.schedules.lanes
    await inbox.adopt(durable.executor, durable.executor)  # the books of its earlier life
    await durable.open()
    stack.push_async_callback(durable.aclose)
    await dispatch.recover()
    await bench.approvals.recover()
    await bench.schedules.begin()
    backfill.ask()
    bench.tasks = [
        dispatch.run(),
        dispatch.watch_stops(),
        bench.approvals.run(),
        *bench.schedules.tasks(),
        cursors.run(),
        backfill.run(),
        tidied(bench.settings.retention, store, inbox, durable),
        forgetting(store.database, bench.settings.data_dir),
        reaped(durable),
        *([runs.follow()] if durable.shared else []),
        watch.count(),
        collect_when_idle(lambda: not (dispatch.at_work or runs.ids or lanes.at_work)),
        *([bench.mail()] if bench.mail else []),
        *([sockets.run()] if sockets else []),
    ]
    for task in bench.tasks:
        stack.callback(task.close)  # where it comes to nothing, they never ran


async def _watch(stack: AsyncExitStack, bench: Bench, store: Store, admission: Admission) -> Watch:
    lag, probe = LoopLag(bench.metrics.lagged), DatabaseProbe(store.database)
    await stack.enter_async_context(lag.sampled())
    stack.push_async_callback(probe.aclose)
    seen = (bench.dispatch, bench.outbox, bench.intake, bench.backfill, bench.sockets)
    watch = Watch(bench.health, bench.metrics, *seen)
    await admission.file.read()  # what is wrong at the start ends it; later nobody is answered
    watch.register(lag, probe, admission)
    return watch


def _web(bench: Bench) -> Any:
    heard = timed(bench.intake.from_http, bench.metrics.acked)
    http = bench.settings.slack.mode == "http"
    pages = connect_routes(bench.connecting) if bench.connecting.oauth else []
    return web_app(bench.health, bench.metrics, heard if http else None, pages=pages)
