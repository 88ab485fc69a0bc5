"""Handle requests from Slack: take them up, decide whether to answer, reply.

`RequestHandler.work` is the body of a workflow. After a crash it runs again from its start;
finished steps return their stored results.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from html import unescape
from typing import Any

from pydantic import BaseModel

from bot.background import repeat
from bot.log import about
from bot.memory import add_files
from bot.metrics import Metrics
from bot.policy.policy import Admission, Later, NotPermitted, Permitted
from bot.reports.documents import Answer, PanelAlarm, PanelReport
from bot.requests.context import ContextReader, RequestContext, TaskContext
from bot.requests.delivery import Delivery, audience_check
from bot.runs.durable import Durable
from bot.runs.run import ActiveRun, Runs
from bot.runs.store import RunNotFound, Store
from bot.runs.worker import Worker
from bot.slack import blocks
from bot.slack.assistant_pane import title_of
from bot.slack.client import ChannelClosed, WriteFailed
from bot.slack.markdown import Prose
from bot.slack.messages import Mark, MessagePart
from bot.slack.stream import StreamingReply
from bot.slack.writer import MessageWriter
from bot.storage.requests import (
    RequestQueue,
    StoredReply,
    StoredRequest,
    asked_at,
    workflow_id,
)
from bot.tasks.ask import Ask
from config.sections import LimitSettings
from config.settings import Settings
from config.words import in_language, phrase
from scopes.slack_reader import SlackReader
from subagents.delegation import NO_LIMITS
from subagents.delegation import Allowed as AllowedSubagents

log = logging.getLogger(__name__)

BUDGET_LOOK_S = 1.0
STOPS_EVERY_S = 0.5


@dataclass
class RequestWorker(Worker[StoredRequest]):
    """Starts workflows for stored requests: the oldest first, one at a time in each thread."""

    runs: Runs

    async def load_claimed(self) -> Sequence[StoredRequest]:
        return await self.inbox.at_work()

    async def take(self, free: int) -> Sequence[StoredRequest]:
        return await self.inbox.take(free, datetime.now(UTC))

    def key(self, work: StoredRequest) -> str:
        return work.key

    def workflow(self, work: StoredRequest) -> tuple[str, str, str, int]:
        return ("request", workflow_id(work), work.key, work.attempt)

    @property
    def is_busy(self) -> bool:
        """Return whether anything runs, including subagents of other replicas' requests."""
        return bool(self.at_work or self.runs.ids)

    async def watch_stops(self) -> None:
        """Stop the runs whose users asked for it on any replica. Runs until cancelled."""
        await repeat(self._stop, STOPS_EVERY_S, "no Stop is noticed")

    async def _stop(self) -> None:
        for run in await self.inbox.find_stopped(self.runs.ids):
            self.runs.stop(run)


class Admitted(BaseModel):
    """The decision on a request, as it is stored with its run."""

    verdict: str = "allowed"
    """`allowed`, `refused` (the user is told why) or `silent`."""
    reason: str = ""
    as_of: datetime
    limits: LimitSettings
    allowed: AllowedSubagents = NO_LIMITS


@dataclass
class RequestHandler:
    """Answers requests; one for each process."""

    settings: Settings
    model_name: str
    store: Store
    inbox: RequestQueue
    writer: MessageWriter
    runs: Runs
    durable: Durable
    admission: Admission
    context: ContextReader
    metrics: Metrics
    delivery: Delivery
    _admitting: asyncio.Lock = field(default_factory=asyncio.Lock)

    async def work(self, key: str, attempt: int, is_lost: bool) -> dict[str, Any]:
        """Run the workflow of one attempt. It always stores the request's final state."""
        request = await self.inbox.request(key)
        if request is None or request.run is None or request.attempt != attempt:
            return {"state": "gone"}
        if request.state != "running":  # it had ended: the process died before this workflow ended
            return {"state": request.state}
        language = await self._language(request)
        with about(run=request.run, request=key), in_language(language):
            try:
                if is_lost:
                    await self.durable.cancel_children(workflow_id(request))
                    state = await self._fail(request, phrase("reply.crashed"))
                else:
                    state = await self._answer(request)
            except Exception as error:  # top-level boundary: the worker continues with others
                is_refused = isinstance(error, WriteFailed)
                level = logging.WARNING if is_refused else logging.ERROR
                log.log(level, "request %s failed: %s", key, error, exc_info=not is_refused)
                state = await self._fail(request, phrase("reply.failed"))
            seconds = (datetime.now(UTC) - request.received).total_seconds()
            log.info("%s after %.1f s", state, seconds)
        self.metrics.count_request(state, seconds if state == "done" else None)
        return {"state": state}

    async def _language(self, request: StoredRequest) -> str:
        return await self.admission.people.language(request.user, request.channel, request.words)

    async def _answer(self, request: StoredRequest) -> str:
        assert request.run
        resumed = await self.store.find_run(request.run) is not None
        if request.stopped_by and not resumed:
            return await self._end_stopped(request)
        if not resumed and not await self._admit(request, request.run):
            until = datetime.now(UTC) + timedelta(seconds=BUDGET_LOOK_S)
            await self.inbox.postpone(request.key, until, request.reply)
            return "waiting"
        async with self.runs.at_work(request.run) as live:
            admitted = Admitted.model_validate(live.args)
            if admitted.verdict != "allowed":
                return await self._turn_away(request, live, admitted)
            return await self._reply(request, live, resumed)

    async def _end_stopped(self, request: StoredRequest) -> str:
        """Stop a request before its turn, or while it waits for the model."""
        if request.reply is None and not isinstance(
            await self.admission.decide(request), Permitted
        ):
            await self.inbox.finish(request.key, "ignored")  # it would have got no answer
            return "ignored"
        reply = StreamingReply(self.writer, request, self.settings.reply, request.reply)
        async with aclosing(reply):
            reply_state = await reply.fail(phrase("reply.stopped_early"))
        await self.inbox.finish(request.key, "failed", reply_state)  # no answer to build upon
        return "stopped"

    async def _admit(self, request: StoredRequest, run: str) -> bool:
        """Decide on the request once, and store the decision with its run and budget.

        Returns False if it cannot be decided yet.
        """
        await self.admission.gather(request, self.settings.serve.outage_give_up_s)
        async with self._admitting:  # concurrent requests must count what the others may spend
            return await self._decide(request, run)

    async def _decide(self, request: StoredRequest, run: str) -> bool:
        decision = await self.admission.decide(request)
        if isinstance(decision, Later):
            return False
        admitted = Admitted(as_of=asked_at(request), limits=self.settings.limits)
        if isinstance(decision, Permitted):
            allowed = AllowedSubagents(decision.scopes, decision.models)
            limits = admitted.limits.model_copy(update={"cost_usd": decision.cost_usd})
            admitted = admitted.model_copy(update={"allowed": allowed, "limits": limits})
        else:
            verdict = "refused" if isinstance(decision, NotPermitted) else "silent"
            changes = {"verdict": verdict, "reason": decision.reason}
            admitted = admitted.model_copy(update=changes)
        await self.store.start_run(
            run,
            request.kind,
            request.text,
            self.model_name,
            admitted.model_dump(mode="json"),
            requester=request.user,
            request=request.key,
        )
        if admitted.verdict == "allowed":
            await self.runs.open_budget(run, admitted.limits)
        return True

    async def _more(self, request: StoredRequest, usd: float) -> float:
        """Return how much of these US dollars the policy still allows a running request."""
        async with self._admitting:
            decision = await self.admission.decide(request, usd)
        if not isinstance(decision, Permitted) or decision.fixed:
            return 0.0
        return min(usd, decision.cost_usd)

    async def _turn_away(self, request: StoredRequest, live: ActiveRun, admitted: Admitted) -> str:
        log.info("not answered: %s", admitted.reason)
        key = f"{live.run.id}/refusal"
        if admitted.verdict == "refused" and not live.run.find_recorded(key, bool):
            thread = None if request.thread_ts == request.ts else request.thread_ts
            try:
                await self.writer.whisper(request.channel, request.user, admitted.reason, thread)
            except WriteFailed as error:  # nobody else may learn of it instead
                log.warning("%s is not told why: %s", request.user, error)
            await live.run.record(key, bool, True)
        await self.store.finish_run(live.run.id, "refused", cost_usd=0.0)
        await self.inbox.finish(request.key, "ignored")
        return "ignored"

    async def _reply(self, request: StoredRequest, live: ActiveRun, resumed: bool) -> str:
        stored = live.run.find_recorded(f"{live.run.id}/reply", StoredReply) or request.reply
        links: dict[str, Sequence[str]] = {}
        settings = self.settings.reply
        reply = StreamingReply(
            self.writer,
            request,
            settings,
            stored,
            render=Prose(links, settings, unescape(request.text), request.user).live,
            title=title_of(request.text),
            run=live.run.id,
            admits=audience_check(live.run, request.channel),
        )
        async with aclosing(reply):
            # a later attempt shows itself by its answer
            if not self.delivery.is_begun(live) and request.reply is None:
                await self._open(request, live, reply, resumed)
            ask = await self._work(request, live, links)
            document = await ask.work()
            await add_files(live.run, document)
            if document.status == "failed" and document.passing:
                return await self._wait(request, live, reply, document)
            done = await self.delivery.write(
                request, live, reply, ask.answer_context(document), document
            )
        await self.store.finish_run(
            live.run.id,
            document.status,
            result=document.to_json(),
            cost_usd=document.cost_usd,
            private=bool(done.withheld),
        )
        if not done.is_lost:
            await ask.reports.record_delivery()
        if isinstance(document, PanelReport) and document.alarms:
            report = partial(self._report_alarms, request, document.alarms)
            await self.delivery.once(live, "alarms", list[str], report)
        await self.delivery.attach(request, live, ask.answer_context(document), done)
        await self.delivery.ask(request, live, done)
        await self.inbox.finish(request.key, "done", done)
        return "done"

    async def _report_alarms(
        self, request: StoredRequest, alarms: Sequence[PanelAlarm]
    ) -> list[str]:
        """Count the alarms of a review; notify administrators of many, and return these people."""
        for each in alarms:
            self.metrics.count_panel_alarm(each.kind, each.count)
        total = sum(each.count for each in alarms)
        informed: list[str] = []
        if total >= self.settings.panel.alarms:
            text = phrase("panel.told", n=total, user=f"<@{request.user}>", run=request.run)
            part, mark = blocks.sentence(text), Mark(f"{request.written_key}/alarms")
            for admin in await self.admission.file.admins():
                try:
                    place = await self.writer.direct(admin)
                    await self.writer.post(mark, place, None, part, look_first=True)
                    informed.append(admin)
                except WriteFailed as error:
                    log.warning("%s is not told of alarms: %s", admin, error)
        return informed

    async def _open(
        self, request: StoredRequest, live: ActiveRun, reply: StreamingReply, resumed: bool
    ) -> None:
        """Show the first sign of work, and progress from then on."""
        live.listeners.append(reply.emit)

        async def open() -> StoredReply:
            return await reply.open(look_first=resumed)

        await self.delivery.once(live, "reply", StoredReply, open)
        if not resumed:
            self.metrics.first_sign.observe((datetime.now(UTC) - request.received).total_seconds())
        await open()  # if an earlier process ran this step: show that it continues
        await reply.set_working(True)

    async def _work(
        self, request: StoredRequest, live: ActiveRun, links: dict[str, Sequence[str]]
    ) -> Ask:
        """Return the task that answers it; `links` is updated with its citable sources."""
        key, read = f"{live.run.id}/surroundings", partial(self.context.read, request, live)
        around = await live.run.once(key, RequestContext, read)
        admitted = Admitted.model_validate(live.args)
        asked = replace(around.request, allowed=admitted.allowed)
        token = request.action_token if self.settings.slack.search else ""
        live.run.client(SlackReader).action_token = token
        context = TaskContext(
            settings=self.settings,
            model_name=self.model_name,
            durable=self.durable,
            store=self.store,
            live=live,
            workflow=workflow_id(request),
            problems=around.refused,
            more=partial(self._more, request),
        )
        work = Ask(context, live.run, asked)
        live.listeners.insert(0, lambda event: links.update(work.citable.links()))
        return work

    async def _wait(
        self, request: StoredRequest, live: ActiveRun, reply: StreamingReply, document: Answer
    ) -> str:
        """Report once that the provider is down, and retry until the time for it is over."""
        serve, now = self.settings.serve, datetime.now(UTC)
        reply_state = request.reply
        since = (reply_state and reply_state.down_since) or now
        ended = (now - since).total_seconds() > serve.outage_give_up_s
        if ended or reply_state is None:
            reply_state = await reply.fail(phrase("reply.given_up" if ended else "reply.down"))
        await self.store.finish_run(live.run.id, "failed", result=document.to_json())
        if ended:
            await self.inbox.finish(request.key, "failed", reply_state)
            return "failed"
        until = now + timedelta(seconds=serve.outage_retry_s)
        reply_state = reply_state.model_copy(update={"down_since": since})
        await self.inbox.postpone(request.key, until, reply_state)
        return "waiting"

    async def _fail(self, request: StoredRequest, text: str) -> str:
        """End with one sentence for people and a reference to look up the run."""
        reply_state = request.reply
        reply = StreamingReply(self.writer, request, self.settings.reply, reply_state)
        try:
            reply_state = await self._post_apology(reply, request, text)
        except Exception as error:  # top-level boundary: the request is over, reported or not
            trace = not isinstance(error, WriteFailed)
            log.warning("%s is not told of its failure: %s", request.key, error, exc_info=trace)
        finally:
            await reply.aclose()
        if request.run:
            error_record = {"code": "failed", "message": text}
            try:
                await self.store.finish_run(request.run, "failed", error=error_record)
            except RunNotFound:
                log.info("run %s was not begun", request.run)
        await self.inbox.finish(request.key, "failed", reply_state)
        return "failed"

    async def _post_apology(
        self, reply: StreamingReply, request: StoredRequest, text: str
    ) -> StoredReply | None:
        """Post the sentence; if the bot cannot write in the channel, tell the requester that in a
        direct message. Raises WriteFailed."""
        try:
            return await reply.apologise(text, request.run or "")
        except ChannelClosed as error:
            if error.code == "thread_not_found" or request.channel.startswith("D"):
                raise
        closed = phrase("reply.closed", channel=f"<#{request.channel}>")
        place, mark = await self.writer.direct(request.user), Mark(f"{request.written_key}/closed")
        await self.writer.post(mark, place, None, MessagePart(closed), look_first=True)
        return request.reply
