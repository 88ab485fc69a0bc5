"""Durable execution: every run that was started ends, in this process or in the next one.

The only importer of dbos, which stores started workflows and restarts those of a dead process. Its
steps are not used: it numbers them in the order of calls, which differs between two attempts of a
run whose subagents run in parallel, and stores each in a separate transaction. Step results are in
our `steps` table (`bot.runs.checkpoint`), by name, in one transaction with the trajectory of that
step: a replay can never give one subagent the result of another, source text is never stored
twice, and the steps of many subagents share a transaction.

`APPLICATION` is pinned: a new version of it would never resume the workflows of an old one. Raise
it only when a workflow's own steps get other names or meanings, after draining the old one.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import time
import zlib
from collections import defaultdict
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import psycopg
from dbos import DBOS, DBOSConfig, DBOSPortableJSONSerializer, SetWorkflowID, WorkflowHandleAsync
from dbos._context import _clear_local_dbos_context as _leave_the_workflow

from bot.errors import SetupError, StoreError
from bot.storage.database import make_private, place_of, server_url, translate_errors, write_ahead

log = logging.getLogger(__name__)

APPLICATION = "wf-1"
QUEUE = "subagents"
QUEUE_POLL_S = 0.25
JOIN_POLL_S = 0.25
"""Seconds between checks for another replica's result."""
NOTICE_POLL_S = 0.05  # our workflows send no messages, but shutdown waits for the next poll
REAP_EVERY_S = 2.0
STORE_AWAY_S = 2.0
"""Seconds until a lost workflow tries again to end its work in a database that is away."""
REPLICA_LOCK_CLASS = 7_001
"""Class of the advisory locks that replicas hold while they live."""
MAX_THREADS = 16
"""Maximum threads; DBOS would start one for each waiting step."""
ENDED_STATUSES = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
CHILD = "subagent"
"""The workflow that others start."""
NAMES = ("request", CHILD, "action", "occurrence", "delivery")
"""Workflows of each workspace."""

T = TypeVar("T")
WorkflowBody = Callable[..., Awaitable[dict[str, Any]]]
"""A workflow: plain JSON in and out. Its last argument tells whether it is lost: then it must end
its work without another try, since each try ended with the process or with an error of the code."""
ChildWorkflow = WorkflowHandleAsync[dict[str, Any]]
"""A child workflow that was started."""


def prepare_connection(connection: sqlite3.Connection, _: object) -> None:
    """Set up a connection to the workflow file that does not wait for the disk at each commit.

    Only a power cut loses the last moments, and nothing depends on them: a started request is in
    the request queue, which is written durably, and so are the steps and results from which a
    restarted workflow continues.
    """
    if sqlite3.sqlite_version_info < SUBSECONDS:  # DBOS uses it on Python 3.12 and newer
        connection.create_function("unixepoch", 1, lambda _: time.time())
    write_ahead(connection)  # five times faster
    connection.execute("PRAGMA synchronous=NORMAL").close()  # another factor of two


SUBSECONDS = (3, 42)
"""First SQLite version with `unixepoch('subsec')` (sqlite.org/lang_datefunc.html)."""
FILE_OPTIONS = {"pool_events": [(prepare_connection, "connect")]}
"""Options of SQLAlchemy's engine for that file."""


class LockLost(SetupError):
    """Another replica may take over: this process must end, and may be restarted."""

    def __init__(self, why: str) -> None:
        what = f"{why}; what was begun here goes on elsewhere."
        super().__init__("lock_lost", what, "Start it again.")


@dataclass
class Workflows:
    """The workflows of this process, of all workspaces that it serves.

    Open it before these; `aclose` it last. `open` and `forget` raise StoreError.
    """

    executor: str
    """Id of this process among those that share the database."""
    file: Path
    url: str | None
    """Address of Postgres; None = `file`."""
    max_concurrency: int
    max_crashes: int
    """Number of crashes of its process after which a workflow is lost."""
    per_minute: int | None = None
    """Subagents started in a period by all replicas together; None = no limit."""
    period_s: float = 60.0
    names: Sequence[str] = NAMES
    served: dict[str, Durable] = field(default_factory=dict)
    """Workspaces that this process serves at the moment."""
    flows: dict[str, Any] = field(default_factory=dict)
    """Name of a workflow -> its function, as dbos knows it."""
    opened: defaultdict[str, asyncio.Event] = field(
        default_factory=lambda: defaultdict(asyncio.Event)
    )
    """Workspace -> whether it is served."""
    _running: set[asyncio.Task[Any]] = field(default_factory=set)
    _lock: psycopg.AsyncConnection[Any] | None = None

    @property
    def shared(self) -> bool:
        return self.url is not None

    async def open(self) -> None:
        """Start, and resume the workflows that an earlier process of this id left."""
        for name in self.names:
            # If a lost one crashes its process, too, dbos itself stops restarting it.
            decorate = DBOS.workflow(name=name, max_recovery_attempts=2 * self.max_crashes)
            self.flows[name] = decorate(self._function(name))
        try:
            with translate_errors(self.where):
                DBOS(config=self._config())
                if self.url:
                    await self._claim()
                DBOS.launch()
                if self.shared:
                    await self._share()
        except BaseException:
            await self.aclose()
            raise

    @property
    def where(self) -> str:
        return place_of(server_url(self.url)) if self.url else str(self.file)

    async def _share(self) -> None:
        rate = self.per_minute
        await DBOS.register_queue_async(
            QUEUE,
            global_concurrency=self.max_concurrency,
            worker_concurrency=self.max_concurrency,
            limiter={"limit": rate, "period": self.period_s} if rate else None,
            polling_interval_sec=QUEUE_POLL_S,
            on_conflict="always_update",
        )

    def _config(self) -> DBOSConfig:
        if self.url:
            address = server_url(self.url).render_as_string(hide_password=False)
        else:
            make_private(self.file)
            address = f"sqlite:///{self.file}"
        return DBOSConfig(
            name="assistant",
            system_database_url=address,
            executor_id=self.executor,
            application_version=APPLICATION,
            max_executor_threads=MAX_THREADS,
            notification_listener_polling_interval_sec=NOTICE_POLL_S,
            **({} if self.url else {"db_engine_kwargs": FILE_OPTIONS}),
            serializer=DBOSPortableJSONSerializer(),
            log_level="ERROR",
        )

    def _function(self, name: str) -> WorkflowBody:
        """Return a plain function to run a workflow: dbos marks the functions that it gets."""

        async def flow(team: str, *args: Any) -> dict[str, Any]:
            if task := asyncio.current_task():
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            # In one process a child crashes as often as its parent, which is asked: it costs 1 ms.
            is_lost = (self.shared or name != CHILD) and await self._has_crashed_too_often()
            if not is_lost:
                try:
                    return await self._run(name, team, *args, False)
                except Exception:  # top-level boundary: one workflow
                    log.exception("the workflow %s has failed", DBOS.workflow_id)
            while True:
                try:
                    return await self._run(name, team, *args, True)
                except StoreError as error:  # nobody else would end its work
                    log.error("%s", error)
                    await asyncio.sleep(STORE_AWAY_S)

        flow.__name__ = flow.__qualname__ = name
        return flow

    async def _run(self, name: str, team: str, *args: Any) -> dict[str, Any]:
        """Run a workflow of a workspace; if that closes meanwhile, again when it is back."""
        task = asyncio.current_task()
        while True:
            await self.opened[team].wait()
            durable = self.served[team]
            work = asyncio.ensure_future(durable.bodies[name](*args))
            durable.work.add(work)
            try:
                return await work
            except asyncio.CancelledError:
                if not durable.closed or (task and task.cancelling()):
                    raise
            finally:
                durable.work.discard(work)

    async def _has_crashed_too_often(self) -> bool:
        """Return whether the workflow that runs here has begun more often than is allowed."""
        id = DBOS.workflow_id or ""
        listing = DBOS.list_workflows_async(workflow_ids=[id], load_input=False, load_output=False)
        (found,) = await _apart(listing)
        is_lost = (found.recovery_attempts or 0) > self.max_crashes
        if is_lost:
            log.error("%s is given up: each try ended with the process", id)
        return is_lost

    async def forget(self, before: datetime) -> int:
        """Delete ended workflows; return how many. Their ids may then be used again."""
        with translate_errors(self.where):
            ended = await DBOS.list_workflows_async(
                status=ENDED_STATUSES,
                completed_before=before.isoformat(),
                load_input=False,
                load_output=False,
                limit=10_000,
            )
            await DBOS.delete_workflows_async([each.workflow_id for each in ended])
        return len(ended)

    async def aclose(self) -> None:
        """Close; the next process of this id, or another replica, resumes unfinished workflows."""
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)
        loop = asyncio.get_running_loop()
        with ThreadPoolExecutor(1, "durable-close") as executor:
            await loop.run_in_executor(executor, lambda: DBOS.destroy(destroy_registry=True))
        loop.set_default_executor(ThreadPoolExecutor())  # dbos has closed the one that it had set
        if self._lock:
            await self._lock.close()
            self._lock = None

    # Postgres only: a replica holds a lock while it lives; the one that gets a dead replica's lock
    # recovers its work.

    async def _claim(self) -> None:
        assert self.url
        address = server_url(self.url).set(drivername="postgresql")
        try:
            self._lock = await psycopg.AsyncConnection.connect(
                address.render_as_string(hide_password=False), autocommit=True, connect_timeout=10
            )
            query = "select pg_try_advisory_lock(%s, %s)"
            cursor = await self._lock.execute(query, (REPLICA_LOCK_CLASS, _key(self.executor)))
            row = await cursor.fetchone()
        except psycopg.Error as error:
            what = f"cannot be used: {str(error).strip().splitlines()[0]}"
            raise StoreError(self.where, what, "Check that Postgres runs.") from error
        if not row or not row[0]:
            raise LockLost(f"Another replica is called {self.executor}")

    async def reap(self) -> None:
        """Resume the work of replicas that died, forever. Raises LockLost."""
        while self.shared:
            try:
                await self.reap_once()
            except psycopg.Error as error:
                raise LockLost("The lock of this replica was lost") from error
            except StoreError as error:
                log.error("%s", error)
            await asyncio.sleep(REAP_EVERY_S)

    async def reap_once(self) -> list[str]:
        """Resume the work of dead replicas once; return those that were found dead."""
        assert self._lock
        await self._lock.execute("select 1")
        with translate_errors(self.where):
            rows = await DBOS.list_workflows_async(
                status="PENDING", load_input=False, load_output=False
            )
        executors = {r.executor_id for r in rows if r.executor_id}
        dead = []
        for other in sorted(executors - {self.executor}):
            key = (REPLICA_LOCK_CLASS, _key(other))
            cursor = await self._lock.execute("select pg_try_advisory_lock(%s, %s)", key)
            row = await cursor.fetchone()
            if row and row[0]:
                try:
                    for durable in list(self.served.values()):
                        if durable.on_dead:
                            await durable.on_dead(other)
                    # Private: dbos 3.4 has no public call for it; tests/test_durable.py covers it.
                    await asyncio.to_thread(DBOS._recover_pending_workflows, [other])
                    dead.append(other)
                finally:
                    await self._lock.execute("select pg_advisory_unlock(%s, %s)", key)
        return dead


def _apart(work: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
    """Run work outside the context of a workflow.

    dbos numbers the calls of a workflow, and takes the same number in a later attempt for the same
    child; here the id of a child identifies it.
    """
    apart = copy_context()
    apart.run(_leave_the_workflow)  # private; tests/test_triage_kills.py covers it
    return asyncio.create_task(work, context=apart)


def _key(executor: str) -> int:
    return zlib.crc32(executor.encode()) - 2**31


class Durable:
    """The workflows of one workspace. `begin` raises StoreError."""

    def __init__(self, workflows: Workflows, team: str = "") -> None:
        """Create it; `team`: its id, with which the ids of its workflows begin; empty = it is the
        only workspace."""
        self.workflows, self._team = workflows, team
        self.executor, self.shared = workflows.executor, workflows.shared
        self.bodies: dict[str, WorkflowBody] = {}
        """Name of a workflow -> its body."""
        self.on_dead: Callable[[str], Awaitable[None]] | None = None
        """Called for a replica that died, before its workflows are resumed."""
        self.work: set[asyncio.Future[dict[str, Any]]] = set()
        """Workflows that run at the moment."""
        self.closed = False

    async def open(self) -> None:
        """Let its workflows run, including those that an earlier process left."""
        self.workflows.served[self._team] = self
        self.workflows.opened[self._team].set()

    async def aclose(self) -> None:
        """Stop the running workflows; they resume when the workspace is served again."""
        self.closed = True
        self.workflows.served.pop(self._team, None)
        self.workflows.opened[self._team].clear()
        for work in list(self.work):
            work.cancel()
        await asyncio.gather(*self.work, return_exceptions=True)

    async def begin(self, name: str, id: str, *args: Any) -> None:
        """Start a workflow, once for each id, even if called more often."""
        with translate_errors(self.workflows.where), SetWorkflowID(self._id(id)):
            await DBOS.start_workflow_async(self.workflows.flows[name], self._team, *args)

    async def spawn(self, name: str, id: str, *args: Any) -> ChildWorkflow:
        """Start a child, once for each id: here, or by a queue if replicas share it."""
        flow, team = self.workflows.flows[name], self._team

        async def start() -> ChildWorkflow:
            with SetWorkflowID(self._id(id)):
                if self.shared:
                    return await DBOS.enqueue_workflow_async(QUEUE, flow, team, *args)
                return await DBOS.start_workflow_async(flow, team, *args)

        return await _apart(start())

    @staticmethod
    async def join(child: ChildWorkflow) -> dict[str, Any]:
        """Return the result of a child."""
        return await _apart(child.get_result(polling_interval_sec=JOIN_POLL_S))

    async def cancel_children(self, id: str) -> None:
        """Cancel the children of a workflow that is lost."""
        await _apart(self._cancel_children(self._id(id)))

    async def _cancel_children(self, id: str) -> None:
        pending = await DBOS.list_workflows_async(
            workflow_id_prefix=f"{id}/",
            status=["PENDING", "ENQUEUED"],
            load_input=False,
            load_output=False,
        )
        await DBOS.cancel_workflows_async([each.workflow_id for each in pending])

    def _id(self, id: str) -> str:
        return f"{self._team}|{id}" if self._team else id
