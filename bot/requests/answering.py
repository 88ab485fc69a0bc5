"""One request of Slack, from the decision to answer it to the finished reply: a workflow's body.

It runs again from its start after a crash; what its steps returned then is handed out again.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from html import unescape
from typing import Any

from bot.durable import Durable
from bot.faces.pane import title_of
from bot.logs import about
from bot.policy.policy import Admission, Allowed, Later, Refused
from bot.replies.attaching import with_files
from bot.replies.outbox import Outbox
from bot.replies.prose import Prose
from bot.replies.reply import Reply, place_of
from bot.replies.writes import WriteFailed
from bot.requests.asked import Request
from bot.requests.desk import Desk, Surroundings
from bot.requests.errand import Errand, errand, limits_of, usual_usd
from bot.requests.finishing import Finishing, admits
from bot.requests.inbox import STOPPED, Inbox
from bot.requests.requests import StoredRequest, asked_at, workflow_id
from bot.requests.sentences import CRASHED, DOWN, FAILED, GIVEN_UP, STOPPED_EARLY
from bot.runs.runs import Live, Runs
from bot.serving.metrics import Metrics
from bot.storage.store import RunNotFound, Store
from bot.triage.inbox_triage import InboxTriage
from config.settings import Settings
from scopes.intent import Intent
from scopes.label import Label
from scopes.slack_items import plain
from scopes.tool import Window, iso
from subagents.delegate import Allowed as AllowedSubagents

log = logging.getLogger(__name__)

BUDGET_LOOK_S = 1.0


@dataclass
class Answering:
    """Answers requests; one for the process."""

    settings: Settings
    model_name: str
    store: Store
    inbox: Inbox
    outbox: Outbox
    runs: Runs
    durable: Durable
    admission: Admission
    surroundings: Surroundings
    metrics: Metrics
    finishing: Finishing
    _admitting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def work(self, key: str, attempt: int) -> dict[str, Any]:
        """The workflow of one attempt. It ends with the request's state stored, come what may."""
        request = await self.inbox.request(key)
        if request is None or request.run is None or request.attempt != attempt:
            return {"state": "gone"}
        if request.state != "running":  # it was over: the process died before this workflow ended
            return {"state": request.state}
        with about(run=request.run, request=key):
            try:
                state = await self._answer(request)
            except WriteFailed as error:
                log.warning("the answer to %s could not be written: %s", key, error)
                state = await self._fail(request, FAILED)
            except Exception:  # the seam: one request
                log.exception("request %s failed", key)
                state = await self._fail(request, FAILED)
            seconds = (datetime.now(UTC) - request.received).total_seconds()
            log.info("%s after %.1f s", state, seconds)
        self.metrics.request_ended(state, seconds if state == "done" else None)
        return {"state": state}

    async def apologise(self, key: str) -> dict[str, Any]:
        """The workflow for a request that took its process down too often."""
        request = await self.inbox.request(key)
        if request is None or request.state != "running":
            return {"state": "gone"}
        return {"state": await self._fail(request, CRASHED)}

    async def _answer(self, request: StoredRequest) -> str:
        assert request.run
        if request.event.get(STOPPED):
            return await self._stopped(request)
        resumed = await self.store.begun(request.run) is not None
        if not resumed and not await self._admit(request, request.run):
            until = datetime.now(UTC) + timedelta(seconds=BUDGET_LOOK_S)
            await self.inbox.postpone(request.key, until, request.reply)
            return "waiting"
        async with self.runs.at_work(request.run) as live:
            if live.args["verdict"] != "allowed":
                return await self._turn_away(request, live, live.args)
            return await self._reply(request, live, resumed)

    async def _stopped(self, request: StoredRequest) -> str:
        """It was stopped before its turn came, or while it waited for the model."""
        if not request.reply and not isinstance(await self.admission.decide(request), Allowed):
            await self.inbox.finish(request.key, "ignored")  # it would not have been answered
            return "ignored"
        reply = Reply(self.outbox, place_of(request), self.settings.reply, request.reply)
        try:
            said = await reply.fail(STOPPED_EARLY)
        finally:
            await reply.aclose()
        await self.inbox.finish(request.key, "failed", said)  # no answer to build upon
        return "stopped"

    async def _admit(self, request: StoredRequest, run: str) -> bool:
        """Decide on the request, once: it is stored with its run, and with the purse it gets.

        False = not yet.
        """
        await self.admission.gather(request, self.settings.serve.outage_give_up_s)
        async with self._admitting:  # of several at one time each counts what the others may spend
            return await self._decide(request, run)

    async def _decide(self, request: StoredRequest, run: str) -> bool:
        usual = usual_usd(request.text, self.settings)
        decision = await self.admission.decide(request, usual)
        if isinstance(decision, Later):
            return False
        limits = self.settings.limits
        args: dict[str, Any] = {"reason": "", "as_of": iso(asked_at(request))}
        if isinstance(decision, Allowed):
            limits = limits_of(request.text, limits, self.settings)
            limits = limits.model_copy(update={"cost_usd": decision.limits.cost_usd})
            allowed = {"scopes": decision.limits.scopes, "models": decision.limits.models}
            args |= {"verdict": "allowed", "allowed": allowed}
        else:
            verdict = "refused" if isinstance(decision, Refused) else "silent"
            args |= {"verdict": verdict, "reason": decision.reason}
        args["limits"] = limits.model_dump(mode="json")
        await self.store.start_run(
            run,
            request.kind,
            request.text,
            self.model_name,
            args,
            requester=request.user,
            request=request.key,
        )
        if args["verdict"] == "allowed":
            await self.runs.open_purse(run, limits)
        return True

    async def _turn_away(self, request: StoredRequest, live: Live, args: Mapping[str, Any]) -> str:
        async def whisper() -> dict[str, Any]:
            thread = None if request.thread_ts == request.ts else request.thread_ts
            try:
                await self.outbox.whisper(request.channel, request.user, args["reason"], thread)
            except WriteFailed as error:  # nobody else may learn of it instead
                log.warning("%s is not told why: %s", request.user, error)
            return {}

        log.info("not answered: %s", args["reason"])
        if args["verdict"] == "refused":
            await live.steps.step(f"{live.run.id}/refusal", whisper)
        await self.store.finish_run(live.run.id, "refused", cost_usd=0.0)
        await self.inbox.finish(request.key, "ignored")
        return "ignored"

    async def _reply(self, request: StoredRequest, live: Live, resumed: bool) -> str:
        opened = live.steps.known(f"{live.run.id}/reply") or request.reply
        links: dict[str, Sequence[str]] = {}
        settings = self.settings.reply
        reply = Reply(
            self.outbox,
            place_of(request),
            settings,
            opened,
            shown=Prose(links, settings, unescape(request.text), request.user).live,
            title=title_of(request.text),
            run=live.run.id,
            admits=admits(live.run, request.channel),
        )
        try:
            # where it was taken, the answer may stand there
            begun = live.steps.known(f"{live.run.id}/took") is not None
            if not begun and request.reply is None:  # a later attempt shows itself by its answer
                await self._open(request, live, reply, resumed, opened is not None)
            ask = await self._work(request, live, links)
            document = await with_files(live.run, await ask.answer())
            if document["status"] == "failed" and document["passing"]:
                return await self._wait(request, live, reply, document)
            done = await self.finishing.write(request, live, reply, ask.writing(document), document)
        finally:
            await reply.aclose()
        status, cost = document["status"], document["cost_usd"]
        await self.store.finish_run(
            live.run.id, status, result=document, cost_usd=cost, private="withheld" in done
        )
        if isinstance(ask, InboxTriage) and not done.get("lost"):
            await ask.delivered()
        await self.finishing.attach(request, live, ask.writing(document), done)
        await self.finishing.ask(request, live, done)
        await self.inbox.finish(request.key, "done", done)
        return "done"

    async def _open(
        self, request: StoredRequest, live: Live, reply: Reply, resumed: bool, opened: bool
    ) -> None:
        """Show the first sign, and from now on how far things are."""
        live.listeners.append(reply.emit)
        look_first = resumed or request.reply is not None
        await self.finishing.step(live, "reply", lambda: reply.open(look_first=look_first))
        if not look_first:
            self.metrics.first_sign((datetime.now(UTC) - request.received).total_seconds())
        if opened:  # the step was done in an earlier life: show that it goes on
            await reply.open(look_first=look_first)
        await reply.working(True)

    async def _work(
        self, request: StoredRequest, live: Live, links: dict[str, Sequence[str]]
    ) -> Errand:
        """The request to be answered; `links` is kept up with what the answer may cite."""
        key = f"{live.run.id}/surroundings"
        around = await live.steps.step(key, lambda: self.surroundings.read(request, live))
        as_of = datetime.fromisoformat(live.args["as_of"])
        allowed = {k: tuple(v) for k, v in live.args["allowed"].items()}
        asked = Request(
            around["text"],
            Window(as_of - timedelta(days=self.settings.reply.since_days), as_of),
            fence=around["fence"],
            conversation=around["conversation"],
            files=tuple(around["files"]),
            earlier=tuple(around["earlier"]),
            here=around["here"],
            label=Label.of(around["label"]),
            allowed=AllowedSubagents(**allowed),
            said=around["said"],
            intent=Intent(
                text=plain(around["said"], {}),  # without names, which others choose
                home=request.channel,
                thread=f"{request.channel}/{request.thread_ts}",
                own=f"{request.channel}/{request.ts}",
                lookups=frozenset(request.lookups),
            ),
        )
        desk = Desk(
            self.settings,
            self.model_name,
            self.durable,
            self.store,
            live,
            workflow_id(request),
            tuple(around["refused"]),
        )
        work = errand(desk, live.run, asked, allowed["scopes"], self.store.database)
        live.listeners.insert(0, lambda event: links.update(work.links()))
        return work

    async def _wait(
        self, request: StoredRequest, live: Live, reply: Reply, document: Mapping[str, Any]
    ) -> str:
        """The provider is down: say so once, and try again until it is given up."""
        serve, now = self.settings.serve, datetime.now(UTC)
        said = dict(request.reply or {})
        since = datetime.fromisoformat(said.get("down_since") or now.isoformat())
        ended = (now - since).total_seconds() > serve.outage_give_up_s
        if ended or request.reply is None:
            said = await reply.fail(GIVEN_UP if ended else DOWN)
        await self.store.finish_run(live.run.id, "failed", result=document)
        if ended:
            await self.inbox.finish(request.key, "failed", said)
            return "failed"
        until = now + timedelta(seconds=serve.outage_retry_s)
        await self.inbox.postpone(request.key, until, {**said, "down_since": since.isoformat()})
        return "waiting"

    async def _fail(self, request: StoredRequest, text: str) -> str:
        """End with one human sentence and a reference to look the run up by."""
        said = request.reply
        reply = Reply(self.outbox, place_of(request), self.settings.reply, said)
        try:
            said = await reply.apologise(text, request.run or "")
        except Exception as error:  # the seam: even where nothing can be told, it is over
            trace = not isinstance(error, WriteFailed)
            log.warning("%s is not told of its failure: %s", request.key, error, exc_info=trace)
        finally:
            await reply.aclose()
        if request.run:
            told = {"code": "failed", "message": text}
            try:
                await self.store.finish_run(request.run, "failed", error=told)
            except RunNotFound:
                log.info("run %s was not begun", request.run)
        await self.inbox.finish(request.key, "failed", said)
        return "failed"
