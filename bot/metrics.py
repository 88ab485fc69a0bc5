"""Metrics of the running bot, in Prometheus' format."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
TOKEN_KINDS = frozenset(("input", "output", "cache_read", "cache_write"))

_ACK_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0)
_SIGN_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ANSWER_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)


class Metrics:
    """The metrics of one process, in a separate registry."""

    def __init__(self) -> None:
        self.last_model_outcome = ""
        """Outcome of the last model call: `ok`, or the reason of its failure; empty = none yet."""
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"assistant_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"assistant_{name}", text, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"assistant_{name}", text, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests that ended, by how.", "outcome")
        self.ack = histogram("ack_seconds", "From an event's arrival to its ack.", _ACK_S)
        self.first_sign = histogram(
            "first_sign_seconds", "From a request's arrival to the first visible sign.", _SIGN_S
        )
        self._answer = histogram(
            "answer_seconds", "From a request's arrival to the finished reply.", _ANSWER_S
        )
        self._feedback = counter("feedback", "Ratings of answers.", "value")
        self._reasons = counter("bad_answers", "Reasons that bad answers were given.", "reason")
        self._subagents = counter("subagents", "Subagents that ended, by how.", "status")
        self._calls = counter("model_calls", "Calls of a model.", "model", "outcome")
        self._tokens = counter("model_tokens", "Tokens read and written.", "model", "kind")
        self._dollars = counter("model_dollars", "US dollars that models cost.", "model")
        self._alarms = counter("panel_alarms", "Alarms of reviews by panels.", "kind")
        self._slack = counter("slack_calls", "Calls of Slack's Web API.", "method", "outcome")
        self.backfilled = counter("backfilled", "Requests found by looking back, not by event.")
        self.duplicates = counter("duplicates", "Events whose request was stored already.")
        self.queued = gauge("queue_depth", "Stored requests that wait for their turn.")
        self.working = gauge("requests_at_work", "Requests being answered now.")
        self.sockets = gauge("sockets_connected", "Sockets to Slack that are connected.")
        self.lag = gauge(
            "event_loop_lag_seconds", "How late the event loop ran what was due, at the last look."
        )

    def render(self) -> bytes:
        """Return all metrics as text of the type `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def count_request(self, outcome: str, seconds: float | None = None) -> None:
        """Count a request; `seconds` to its reply, if any."""
        self._requests.labels(outcome).inc()
        if seconds is not None:
            self._answer.observe(seconds)

    def count_feedback(self, value: str, reason: str = "") -> None:
        """Count a rating, `good` or `bad`; with a reason, count only the reason."""
        if reason:
            self._reasons.labels(reason).inc()
        else:
            self._feedback.labels(value).inc()

    def count_subagent(self, status: str) -> None:
        self._subagents.labels(status).inc()

    def count_model_call(
        self,
        model: str,
        outcome: str = "ok",
        tokens: Mapping[str, int] | None = None,
        dollars: float | None = None,
    ) -> None:
        """Count a model call; `tokens`: by TOKEN_KINDS; `dollars` None = not known."""
        self.last_model_outcome = outcome
        self._calls.labels(model, outcome).inc()
        for kind, count in (tokens or {}).items():
            if kind in TOKEN_KINDS:
                self._tokens.labels(model, kind).inc(count)
        if dollars is not None:
            self._dollars.labels(model).inc(dollars)

    def count_panel_alarm(self, kind: str, times: int) -> None:
        self._alarms.labels(kind).inc(times)

    def count_slack_call(self, method: str, outcome: str = "ok") -> None:
        """Count a Slack call; `outcome` as in `bot.slack.client.Count`."""
        self._slack.labels(method, outcome).inc()


T = TypeVar("T")
R = TypeVar("R")


def time_calls(
    call: Callable[[T], Awaitable[R]], seconds: Histogram
) -> Callable[[T], Awaitable[R]]:
    """Wrap an async callable so that the seconds of each call are observed."""

    async def call_timed(argument: T) -> R:
        with seconds.time():
            return await call(argument)

    return call_timed
