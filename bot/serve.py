"""`assistant serve`: everything put together, from the sockets to the finished reply."""

from __future__ import annotations

import asyncio
import logging
import socket
import uuid
from collections.abc import AsyncIterator, Coroutine
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from slack_sdk.web.async_client import AsyncWebClient

from bot.answering import Answering
from bot.backfill import Backfill
from bot.connection import Hear
from bot.cursors import Cursors
from bot.dispatch import Dispatch
from bot.durable import Durable
from bot.errors import SetupError
from bot.faces import Faces
from bot.health import DatabaseProbe, Health, LoopLag
from bot.heard import Bot
from bot.inbox import Inbox
from bot.intake import Intake
from bot.metrics import Metrics
from bot.names import Names
from bot.outbox import Outbox
from bot.patient import Patient
from bot.people import People
from bot.policy import Admission
from bot.policy_file import PolicyFile
from bot.runs import Runs, Subagents
from bot.sockets import Sockets
from bot.store import Store
from bot.surroundings import Surroundings
from bot.upkeep import reaped, tidied
from bot.watch import Watch, timed
from bot.web import served, web_app
from bot.workspace import clients, only_process, who_am_i
from config.settings import Settings
from scopes.slack_client import open_session
from scopes.slack_reader import SlackReader
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
    health: Health
    metrics: Metrics
    sockets: Sockets | None
    backfill: Backfill
    url: str = ""
    """Of /healthz and the rest."""
    tasks: list[Coroutine[Any, Any, None]] = field(default_factory=list)


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
    database_url = settings.database_url
    executor = f"{socket.gethostname()}-{uuid.uuid4().hex[:8]}" if database_url else "single"
    if not database_url:
        stack.enter_context(only_process(settings.data_dir))
    store = await Store.open(settings.data_dir, database_url)
    stack.push_async_callback(store.aclose)
    session = await stack.enter_async_context(open_session(settings.slack))
    client, web = clients(settings, session)
    bot, address = await who_am_i(client)
    inbox, outbox = Inbox(store.database), Outbox(web, settings.slack)
    metrics, health = Metrics(), Health()
    people, cursors = People(client), Cursors(inbox)
    admission = Admission(
        PolicyFile(policy_path, settings.policy), people, inbox, settings.limits.cost_usd
    )
    reader = SlackReader(client, timedelta(days=settings.slack.lookback_days))
    governor = RateGovernor(settings.limits.max_concurrency)
    kept = Store(Patient(store.database))
    runs = Runs(kept, model, governor, reader, executor, metrics)
    durable = _durable(settings, executor, database_url)
    dispatch = Dispatch(inbox, durable, runs, settings.serve.max_requests)
    asked = Inbox(kept.database)
    around = Surroundings(
        kept, asked, client.web, Names(client), people, settings.reply, bot.user, address
    )
    answering = Answering(
        *(settings, name, kept, asked, outbox, runs, durable),
        *(replace(admission, inbox=asked), around, metrics),
    )
    slots = asyncio.Semaphore(settings.limits.max_concurrency)
    _workflows(durable, dispatch, answering, Subagents(runs, kept, slots, metrics))
    intake = _intake(settings, inbox, cursors, outbox, web, bot, admission, address, dispatch)
    stack.push_async_callback(intake.aclose)
    backfill = Backfill(intake, inbox, cursors, client, settings.slack)
    sockets = _sockets(settings, timed(intake.from_socket, metrics.acked), backfill)
    bench = Bench(settings, dispatch, durable, intake, outbox, health, metrics, sockets, backfill)
    watch = await _watch(stack, bench, store, admission)
    await _begin(stack, bench, store, cursors, watch)
    return bench


async def _begin(
    stack: AsyncExitStack, bench: Bench, store: Store, cursors: Cursors, watch: Watch
) -> None:
    """Go on with what an earlier process left, and say what is to be done from now on."""
    dispatch, durable, backfill = bench.dispatch, bench.durable, bench.backfill
    inbox, runs, sockets = dispatch.inbox, dispatch.runs, bench.sockets
    await inbox.adopt(durable.executor, durable.executor)  # the books of its earlier life
    await durable.open()
    stack.push_async_callback(durable.aclose)
    await dispatch.recover()
    backfill.ask()
    bench.tasks = [
        dispatch.run(),
        dispatch.watch_stops(),
        cursors.run(),
        backfill.run(),
        tidied(bench.settings.retention, store, inbox, durable),
        reaped(durable),
        *([runs.follow()] if durable.shared else []),
        watch.count(),
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


def _durable(settings: Settings, executor: str, url: str | None) -> Durable:
    return Durable(
        executor=executor,
        bodies={},
        file=settings.data_dir / "workflows.sqlite",
        url=url,
        max_concurrency=settings.limits.max_concurrency,
        max_crashes=settings.serve.max_crashes,
        per_minute=settings.serve.subagents_per_minute,
    )


def _workflows(
    durable: Durable, dispatch: Dispatch, answering: Answering, subagents: Subagents
) -> None:
    async def request(key: str, attempt: int) -> dict[str, Any]:
        await dispatch.begun(key)
        try:
            state = await answering.work(key, attempt)
        except BaseException:
            dispatch.ended(key, lost=True)
            raise
        dispatch.ended(key)
        return state

    async def apology(key: str) -> dict[str, Any]:
        try:
            return await answering.apologise(key)
        finally:
            dispatch.ended(key)

    async def adopt(dead: str) -> None:
        log.warning("replica %s is dead; its work goes on here", dead)
        await dispatch.inbox.adopt(dead, durable.executor)

    async def owners() -> set[str]:
        return {r.owner for r in await dispatch.inbox.at_work() if r.owner}

    durable.bodies |= {"request": request, "subagent": subagents.work, "apology": apology}
    durable.on_dead, durable.owners = adopt, owners
    durable.on_adopted = dispatch.recover


def _intake(
    settings: Settings,
    inbox: Inbox,
    cursors: Cursors,
    outbox: Outbox,
    web: AsyncWebClient,
    bot: Bot,
    admission: Admission,
    address: str,
    dispatch: Dispatch,
) -> Intake:
    secret = settings.secrets.slack_signing_secret
    return Intake(
        inbox,
        cursors,
        outbox,
        web,
        bot,
        signing_secret=secret.get_secret_value() if secret else None,
        on_request=dispatch.wake,
        face=Faces(admission, web, address),
    )


def _sockets(settings: Settings, hear: Hear, backfill: Backfill) -> Sockets | None:
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
        on_gap=backfill.ask,
    )


def _web(bench: Bench) -> Any:
    heard = timed(bench.intake.from_http, bench.metrics.acked)
    http = bench.settings.slack.mode == "http"
    return web_app(bench.health, bench.metrics, heard if http else None)
