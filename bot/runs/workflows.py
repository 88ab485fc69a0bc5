"""The workflows of a serving process: requests, subagents, approved actions, schedules."""

from __future__ import annotations

import logging
from typing import Any

from bot.approval.approvals import Approvals
from bot.durable import Durable
from bot.requests.answering import Answering
from bot.requests.dispatch import Dispatch
from bot.runs.runs import Subagents
from bot.schedule.wiring import Schedules
from config.settings import Settings

log = logging.getLogger(__name__)


def durable_of(settings: Settings, executor: str, url: str | None) -> Durable:
    """The durable execution of one process; it is to be opened when all is put together."""
    return Durable(
        executor=executor,
        bodies={},
        file=settings.data_dir / "workflows.sqlite",
        url=url,
        max_concurrency=settings.limits.max_concurrency,
        max_crashes=settings.serve.max_crashes,
        per_minute=settings.serve.subagents_per_minute,
    )


def give_workflows(
    durable: Durable,
    dispatch: Dispatch,
    answering: Answering,
    subagents: Subagents,
    approvals: Approvals,
    schedules: Schedules,
) -> None:
    """Say what each workflow does, and what to do for a replica that died."""

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
        await approvals.adopt(dead)
        await schedules.adopt(dead)

    async def owners() -> set[str]:
        at_work = {r.owner for r in await dispatch.inbox.at_work() if r.owner}
        return at_work | await approvals.owners() | await schedules.owners()

    async def recover() -> None:
        await dispatch.recover()
        await approvals.recover()
        await schedules.recover()

    durable.bodies |= {"request": request, "subagent": subagents.work, "apology": apology}
    durable.bodies |= {"action": approvals.execute, **schedules.bodies()}
    durable.on_dead, durable.owners = adopt, owners
    durable.on_adopted = recover
