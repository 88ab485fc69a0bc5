"""How an answer ends: written where it may stand, then what waits for approval; and what follows
from a person's word."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, Protocol

import scopes
from bot.memory import conversations
from bot.replies.attaching import Attaching
from bot.replies.live import Admits
from bot.replies.outbox import Outbox
from bot.replies.reply import Reply, place_of
from bot.replies.shown import rendered
from bot.replies.writes import WriteFailed, taken
from bot.requests.inbox import Inbox
from bot.requests.private import Private
from bot.requests.requests import StoredRequest
from bot.runs.runs import Live, Runs
from bot.schedule.retried import try_now
from bot.storage.store import Store
from config.settings import Settings
from scopes.intent import Intent
from scopes.label import Label
from scopes.tool import Handles, Tool, ToolContext, ToolError
from subagents.action import Action
from subagents.directory import Obstacle
from subagents.gate import Deny
from subagents.run import Run, Step

log = logging.getLogger(__name__)

BELIEVED_S = 5.0
"""Seconds that a look at who sees a message holds while an answer is being written into it."""


class NotDone(Exception):
    """An approved action was not executed; its text says why, in a sentence for people."""


class Asker(Protocol):
    """What is needed of `bot.approval.approvals.Approvals`."""

    async def show(self, run: str, request: StoredRequest) -> int: ...
    async def offer_grant(
        self, run: str, request: StoredRequest, sources: Mapping[str, str], destination: str
    ) -> None: ...


@dataclass
class Finishing:
    """Finishes requests; one for the process."""

    settings: Settings
    store: Store
    inbox: Inbox
    outbox: Outbox
    runs: Runs
    approvals: Asker

    async def write(
        self,
        request: StoredRequest,
        live: Live,
        reply: Reply,
        ctx: ToolContext,
        document: Mapping[str, Any],
    ) -> dict[str, Any]:
        """Write the answer: the same one however often, and never progress in its place again.

        It stands where it was asked for if everyone there may read it at this moment; else the
        requester gets it alone.
        """

        async def took() -> dict[str, Any]:
            return {"seconds": (datetime.now(UTC) - request.received).total_seconds()}

        seconds = (await live.steps.step(f"{live.run.id}/took", took))["seconds"]

        async def finish() -> dict[str, Any]:
            gate = live.run.gate
            obstacles = (await gate.release("p1", ctx)).obstacles
            if not obstacles:
                return await reply.finish(rendered(document, request, self.settings, seconds))
            private = Private(self.outbox, self.settings)
            sent = await private.send(gate, ctx, request, document, obstacles, seconds)
            told = {"withheld": [asdict(o) for o in obstacles], "lost": sent.place is None}
            return {**await reply.fail(sent.said), **told, "private": sent.place}

        return await self.step(live, "finish", finish)

    async def attach(
        self, request: StoredRequest, live: Live, ctx: ToolContext, done: Mapping[str, Any]
    ) -> None:
        """Put up the files of the request behind its answer, which stands whatever becomes of
        them; `ctx` is that of the answer."""
        patience = self.settings.serve.outage_give_up_s
        await Attaching(self.outbox, patience).attach(live, request, ctx, done)

    async def ask(self, request: StoredRequest, live: Live, done: Mapping[str, Any]) -> None:
        """Show what waits for a person's word; the answer stands whatever becomes of it."""

        async def show() -> dict[str, Any]:
            obstacles = [Obstacle(**each) for each in done.get("withheld", ())]
            if obstacles and all(o.grantable for o in obstacles):
                sources = {o.source: o.name for o in obstacles}
                await self.approvals.offer_grant(live.run.id, request, sources, request.channel)
            return {"cards": await self.approvals.show(live.run.id, request)}

        try:
            await self.step(live, "ask", show)
        except WriteFailed as error:
            log.warning("what waits for approval of %s is not shown: %s", request.key, error)

    async def step(self, live: Live, name: str, write: Step) -> dict[str, Any]:
        """A step that writes to Slack, and waits for it to come back."""
        patience = self.settings.serve.outage_give_up_s
        return await live.steps.step(f"{live.run.id}/{name}", lambda: taken(write, patience))

    async def publish(self, run: str) -> bool:
        """Write an answer that was held back where it was asked for.

        False = it may not stand there now either. The report of a schedule is delivered anew.
        Raises WriteFailed.
        """
        if await try_now(self.store.database, run):
            return True
        stored = await self.store.run(run)
        request, document = await self.inbox.request(stored.request or ""), stored.result
        if request is None or request.run != run or not document or not document.get("label"):
            return False
        label = Label.of(document["label"])
        async with self.runs.at_work(run) as live:
            ctx = bare_context(live.run, label, Intent(home=request.channel))
            if (await live.run.gate.release("p1", ctx)).obstacles:
                return False
        took = (stored.finished or stored.started) - stored.started
        seconds = took.total_seconds()
        reply = Reply(self.outbox, place_of(request), self.settings.reply, request.reply, run=run)
        try:
            done = await reply.finish(rendered(document, request, self.settings, seconds))
        finally:
            await reply.aclose()
        await conversations.made_public(self.store.database, run)
        if (request.reply or {}).get("withheld"):  # else all of this was done before
            async with self.runs.at_work(run) as live:
                ctx = bare_context(live.run, label, Intent(home=request.channel))
                await self.attach(request, live, ctx, done)
        await self.inbox.finish(request.key, "done", done)
        return True

    async def again(self, run: str, lookups: Sequence[str]) -> bool:
        """Have the request of this run answered again, with these look-ups approved.

        May be called again. False = it was answered again since, or is forgotten.
        """
        found = await self.store.begun(run)
        if found is None or not found.request:
            return False
        return await self.inbox.again(found.request, run, lookups)

    async def perform(self, action: Action) -> str:
        """Execute what was approved, exactly as stored; what was done, in a sentence of code's.

        It may be called again: what writes is written once under the action's id. Raises NotDone
        for what must not or cannot be done, WriteFailed where Slack is away.
        """
        async with self.runs.at_work(action.run) as live:
            tool = _tool(action, live.run.clients)
            key = f"action/{action.id}"
            ctx = bare_context(live.run, action.label, action.intent, key)
            try:
                async with asyncio.timeout(live.run.limits.tool_timeout_s):
                    found = await live.run.gate.perform(action, ctx, tool)
            except ToolError as error:
                raise NotDone(str(error)) from error
            except TimeoutError:
                late = f"{tool.name} gave no answer in time; it may have been done."
                raise NotDone(late) from None
        if isinstance(found, Deny):
            raise NotDone(found.reason)
        return found.note or "Done."


def bare_context(run: Run, label: Label, intent: Intent, key: str = "") -> ToolContext:
    """A context of a run that holds nothing but what it is given here."""
    return ToolContext(
        run=run.id,
        requester=run.requester,
        handles=Handles(),
        label=label,
        window=None,
        clients=run.clients,
        max_output_tokens=run.limits.max_tool_output_tokens,
        intent=intent,
        key=key,
    )


def admits(run: Run, home: str) -> Admits:
    """Whether what rests on a label may be shown in `home` while it is being written."""
    clock = asyncio.get_running_loop().time
    seen: dict[Label, tuple[float, bool]] = {}
    """Until when it is believed, and what was said."""

    async def ask(label: Label) -> bool:
        until, known = seen.get(label, (0.0, False))
        if clock() >= until:
            ctx = bare_context(run, label, Intent(home=home))
            known = (await run.gate.release("p1", ctx, again=label in seen)).public
            seen[label] = (clock() + BELIEVED_S, known)
        return known

    return ask


def _tool(action: Action, clients: Mapping[type, object]) -> Tool:
    tools: Sequence[Tool] = scopes.tools_of(action.scope, clients)
    found = next((t for t in tools if t.name == action.tool), None)
    if found is None:
        raise NotDone(f"There is no tool {action.tool} any more.")
    return found
