"""Traces: a finished run as OpenTelemetry spans, built from its stored records.

The names follow the semantic conventions for generative AI. Tracing does not slow down a running
request, and a killed process loses no span. Times come from the records: the span of a tool is the
span of the batch it was called in.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from opentelemetry.context import Context as Parent
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes as gen_ai
from opentelemetry.trace import SpanKind, StatusCode, set_span_in_context

from bot.errors import StoreError
from bot.runs.store import RunNotFound, Store
from bot.storage.tables import StoredRun, StoredSubagent, inbox
from scopes.clean import redact
from subagents.gate import Decision
from subagents.trajectory import (
    Context,
    RecordedReply,
    RecordedRequest,
    Trajectory,
    messages_of,
)

log = logging.getLogger(__name__)

AGENT = "assistant"
PROVIDERS = {"anthropic": "anthropic", "bedrock": "aws.bedrock", "vertex": "gcp.vertex_ai"}
"""Names of the conventions, by `models.provider`."""
CLOSE_S = 5
"""Seconds in which the last spans are sent when the process ends."""
NANOSECONDS_PER_SECOND = 1_000_000_000
FAILED_STATUSES = ("failed", "refused")


class _OneWarning(SpanExporter):
    """Sends spans, and logs once that they cannot be sent."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        self.inner = OTLPSpanExporter(endpoint=endpoint)
        self.warned = False
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL)  # it logs each failure

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self.inner.export(spans)
        if result is not SpanExportResult.SUCCESS and not self.warned:
            self.warned = True
            log.warning(
                "Traces cannot be sent to %s: check OTEL_EXPORTER_OTLP_ENDPOINT.", self.endpoint
            )
        return result

    def shutdown(self) -> None:
        self.inner.shutdown()  # type: ignore[no-untyped-call]


class Traces:
    """Exports finished runs, without contents unless the settings ask for them."""

    def __init__(
        self, store: Store, endpoint: str, provider: str, *, contents: bool = False
    ) -> None:
        self.store, self.contents = store, contents
        self.provider = PROVIDERS[provider]
        self._provider = TracerProvider(resource=Resource.create({"service.name": AGENT}))
        self._provider.add_span_processor(BatchSpanProcessor(_OneWarning(endpoint)))
        self.tracer = self._provider.get_tracer("workspace-assistant")

    async def export(self, run: str) -> None:
        """Queue the spans of a run, if it is finished; the sending happens in a thread."""
        try:
            stored = await self.store.run(run)
            if stored.finished is None:
                return  # another process continues it, and exports it
            parts = (
                await self._inbox_row(stored.request),
                await self.store.subagents(run),
                await self.store.trajectory(run),
                await self.store.decisions(run),
            )
        except (RunNotFound, StoreError) as error:
            log.warning("run %s is not traced: %s", run, error)
            return
        RunSpans(self, stored, *parts).emit()

    async def _inbox_row(self, key: str | None) -> sa.Row[Any] | None:
        query = sa.select(inbox.c.received, inbox.c.kind, inbox.c.team, inbox.c.channel)
        rows = await self.store.database.read(query.where(inbox.c.key == key)) if key else ()
        return next(iter(rows), None)

    async def aclose(self) -> None:
        """Send queued spans, for a few seconds at most."""
        await asyncio.to_thread(self._provider.force_flush, CLOSE_S * 1_000)
        await asyncio.to_thread(self._provider.shutdown)


@dataclass
class RunSpans:
    """The spans of one run, from the outside in."""

    traces: Traces
    run: StoredRun
    received: sa.Row[Any] | None
    subagents: Sequence[StoredSubagent]
    trajectory: Trajectory
    decisions: Sequence[Decision]

    def emit(self) -> None:
        """Emit the request, the run, its contexts, and their calls."""
        run, end = self.run, self.run.finished
        assert end
        above = None
        if received := self.received:
            about = {"assistant.request.kind": received.kind, "assistant.team": received.team}
            above = self._span("request", None, received.received, end, about, SpanKind.SERVER)
        about = {
            gen_ai.GEN_AI_OPERATION_NAME: "invoke_agent",
            gen_ai.GEN_AI_AGENT_NAME: AGENT,
            "assistant.run.id": run.id,
            "assistant.run.kind": run.kind,
            "assistant.run.status": run.status,
            **({} if run.cost_usd is None else {"assistant.cost_usd": run.cost_usd}),
        }
        failed = run.status if run.status in FAILED_STATUSES else ""
        whole = self._span(f"invoke_agent {AGENT}", above, run.started, end, about, failed=failed)
        spans: dict[str | None, Parent] = {None: whole}
        for context in self.trajectory.contexts:
            parent = spans.get(context.parent, whole)
            spans[context.id] = self._context(context, parent, end)
        for each in self.decisions:
            about = {"assistant.verdict": each.verdict, "assistant.rule": each.rule}
            about[gen_ai.GEN_AI_TOOL_NAME] = each.tool
            self._span(
                f"decide {each.tool}", spans.get(each.context, whole), each.at, each.at, about
            )

    def _context(self, context: Context, parent: Parent, run_end: datetime) -> Parent:
        """Emit a context with its model calls and tools; return it as a parent of others."""
        requests = [r for r in self.trajectory.requests if r.context == context.id]
        replies = {
            (r.seq, r.attempt): r for r in self.trajectory.replies if r.context == context.id
        }
        times = [*(r.at for r in requests), *(r.at for r in replies.values())]
        stored = next((each for each in self.subagents if each.id == context.id), None)
        usage = (stored.result or {}).get("usage", {}) if stored else {}
        about = {
            gen_ai.GEN_AI_OPERATION_NAME: "invoke_agent",
            gen_ai.GEN_AI_AGENT_ID: context.id,
            gen_ai.GEN_AI_AGENT_NAME: context.scope,
            gen_ai.GEN_AI_REQUEST_MODEL: context.model,
            "assistant.template": context.template,
            **({"assistant.status": stored.status} if stored else {}),
            **_usage(usage),
        }
        end = run_end if context.kind == "parent" else max(times, default=context.created)
        failed = stored.stopped_by if stored and stored.status in FAILED_STATUSES else ""
        name = f"invoke_agent {context.scope}"
        span = self._span(name, parent, context.created, end, about, failed=failed)
        for request, later in zip(requests, [*requests[1:], None], strict=True):
            reply = replies.get((request.seq, request.attempt))
            self._call(context, request, reply, span)
            if reply:
                self._tools(reply, span, later.at if later else end)
        return span

    def _call(
        self,
        context: Context,
        request: RecordedRequest,
        reply: RecordedReply | None,
        parent: Parent,
    ) -> None:
        outcome = reply.outcome if reply else {}
        about: dict[str, Any] = {
            gen_ai.GEN_AI_OPERATION_NAME: "chat",
            gen_ai.GEN_AI_PROVIDER_NAME: self.traces.provider,
            gen_ai.GEN_AI_REQUEST_MODEL: context.model,
            **_usage(outcome.get("usage") or {}),
        }
        if reason := outcome.get("stop_reason"):
            about[gen_ai.GEN_AI_RESPONSE_FINISH_REASONS] = [reason]
        if self.traces.contents:
            about[gen_ai.GEN_AI_INPUT_MESSAGES] = _json(messages_of(self.trajectory, request))
            about[gen_ai.GEN_AI_OUTPUT_MESSAGES] = _json(
                self._blocks(reply.blocks if reply else ())
            )
        start = request.at
        end = reply.at if reply else start
        error = str(outcome.get("error") or "")
        self._span(f"chat {context.model}", parent, start, end, about, SpanKind.CLIENT, error)

    def _tools(self, reply: RecordedReply, parent: Parent, end: datetime) -> None:
        """Emit a span for each tool that a reply calls, until the context's next request."""
        for block in self._blocks(reply.blocks):
            match block:
                case {"type": "tool_use", "id": id, "name": name, "input": given}:
                    about = {
                        gen_ai.GEN_AI_OPERATION_NAME: "execute_tool",
                        gen_ai.GEN_AI_TOOL_NAME: name,
                        gen_ai.GEN_AI_TOOL_CALL_ID: id,
                        gen_ai.GEN_AI_TOOL_TYPE: "function",
                    }
                    if self.traces.contents:
                        about[gen_ai.GEN_AI_TOOL_CALL_ARGUMENTS] = _json(given)
                    self._span(f"execute_tool {name}", parent, reply.at, end, about)

    def _blocks(self, hashes: Iterable[str]) -> list[dict[str, Any]]:
        return [json.loads(self.trajectory.blocks[digest]) for digest in hashes]

    def _span(
        self,
        name: str,
        parent: Parent | None,
        start: datetime,
        end: datetime,
        attributes: Mapping[str, Any],
        kind: SpanKind = SpanKind.INTERNAL,
        failed: str = "",
    ) -> Parent:
        """Emit one span; return it as the parent of others."""
        span = self.traces.tracer.start_span(
            name, parent or Parent(), kind, attributes, start_time=_nanoseconds(start)
        )
        if failed:
            span.set_attribute("error.type", failed)
            span.set_status(StatusCode.ERROR)
        span.end(_nanoseconds(max(start, end)))
        return set_span_in_context(span)


def _usage(usage: Mapping[str, Any]) -> dict[str, int]:
    """Return the attributes for the usage of a call or a context; empty if it is not known."""
    if not usage:
        return {}
    read, written = usage.get("cache_read", 0), usage.get("cache_write", 0)
    return {
        gen_ai.GEN_AI_USAGE_INPUT_TOKENS: usage.get("input", 0) + read + written,
        gen_ai.GEN_AI_USAGE_OUTPUT_TOKENS: usage.get("output", 0),
        gen_ai.GEN_AI_USAGE_CACHE_READ_INPUT_TOKENS: read,
        gen_ai.GEN_AI_USAGE_CACHE_CREATION_INPUT_TOKENS: written,
    }


def _json(value: Any) -> str:
    """Return a content as JSON, without anything that looks like a secret."""
    return redact(json.dumps(value, ensure_ascii=False))


def _nanoseconds(at: datetime) -> int:
    return int(at.timestamp() * NANOSECONDS_PER_SECOND)
