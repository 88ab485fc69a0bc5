"""Spans of a run, as an OTLP receiver on loopback gets them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bot_kit import AS_OF, Shell, configure, model_at, small_export
from engine_kit import MUX
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from bot.local.offline.model import answer as offline_model

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"
QUESTION = "What is open in #support-es?"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Span]]:
    """The spans that an OTLP receiver gets."""
    received: list[Span] = []

    async def receive(request: Request) -> Response:
        export = ExportTraceServiceRequest.FromString(await request.body())
        for resource in export.resource_spans:
            received.extend(span for scope in resource.scope_spans for span in scope.spans)
        return Response()

    app = Starlette(routes=[Route("/v1/traces", receive, methods=["POST"])])
    with MUX.served_app(app) as url:
        monkeypatch.setenv(ENDPOINT, url)
        yield received


def spans_named(spans: list[Span], beginning: str) -> list[Span]:
    return [span for span in spans if span.name.startswith(beginning)]


@pytest.fixture
def ask(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that asks the offline model one question about a small export."""
    files = ("--slack-export", small_export(tmp_path), "--as-of", AS_OF, "--since", "30d")

    def run_ask() -> Any:
        with model_at(monkeypatch, offline_model):
            return shell("ask", QUESTION, *files, "--json")

    return run_ask


def facts(span: Span) -> dict[str, Any]:
    return {each.key: each.value.string_value or each.value.int_value for each in span.attributes}


def test_run_is_exported_as_one_tree_of_spans(ask: Any, spans: list[Span]) -> None:
    result = ask()

    (root,) = [span for span in spans if not span.parent_span_id]
    assert facts(root)["assistant.run.id"] == result.json["run_id"]
    assert len({span.trace_id for span in spans}) == 1
    ids = {span.span_id: span for span in spans}
    (child,) = spans_named(spans, "invoke_agent slack")
    (parent,) = {ids[child.parent_span_id].name}
    assert parent == "invoke_agent parent"
    assert "assistant.status" in facts(child)
    assert "assistant.status" not in facts(ids[child.parent_span_id])
    calls = [span for span in spans_named(spans, "chat ") if span.parent_span_id == child.span_id]
    assert calls
    assert all(facts(span)["gen_ai.usage.input_tokens"] > 0 for span in calls)
    assert {facts(span)["gen_ai.provider.name"] for span in calls} == {"anthropic"}
    assert spans_named(spans, "execute_tool submit_result")
    assert spans_named(spans, "decide ")
    for span in spans:
        assert span.end_time_unix_nano >= span.start_time_unix_nano
        if span.parent_span_id:
            assert ids[span.parent_span_id].start_time_unix_nano <= span.start_time_unix_nano


def test_trace_contents_are_sent_only_if_enabled(ask: Any, spans: list[Span]) -> None:
    ask()
    assert QUESTION not in str(spans)
    usual = {name for span in spans for name in facts(span)}

    configure("traces: {contents: true}")
    ask()
    assert QUESTION in str(spans)
    contents = ("input.messages", "output.messages", "tool.call.arguments")
    assert {name for span in spans for name in facts(span)} - usual == {
        f"gen_ai.{name}" for name in contents
    }


def test_unreachable_trace_receiver_is_logged_once_and_the_run_completes(
    ask: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv(ENDPOINT, "http://127.0.0.1:9")
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_TIMEOUT", "1")  # seconds; it tries again until then

    result = ask()

    assert result.json["status"] == "complete"
    assert caplog.text.count("Traces cannot be sent to http://127.0.0.1:9/v1/traces") == 1


def test_invalid_trace_endpoint_is_rejected_with_its_variable_name(
    ask: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(ENDPOINT, "collector:4317")

    result = ask()

    assert result.code == 2
    assert ENDPOINT in result.err + result.out
