"""Numbers about the running bot, in Prometheus' form."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.process_collector import ProcessCollector

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
OTHER = "other"

REQUEST_OUTCOMES = frozenset(
    ("done", "partial", "failed", "waiting", "stopped", "refused", "ignored", "given_up", "crashed")
)
SUBAGENT_STATUSES = frozenset(("complete", "partial", "failed", "cancelled", "refused"))
MAIL_OUTCOMES = frozenset(("ok", "too_old", "revoked", "failed", "not_connected"))
TOKEN_KINDS = frozenset(("input", "output", "cache_read", "cache_write"))

_MOST_VALUES = 60
"""Different values of one open label; each is a series that is kept for good."""
_ACK_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 3.0)
_SIGN_S = (0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0)
_ANSWER_S = (0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 40.0, 60.0, 120.0, 300.0, 600.0)


class _Values:
    """The values that a label has taken: the first sixty; any further one counts as `other`."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, value: str) -> str:
        if value not in self._seen and len(self._seen) >= _MOST_VALUES:
            return OTHER
        self._seen.add(value)
        return value


class Metrics:
    """What one process counts, in a registry of its own."""

    def __init__(self) -> None:
        self.last_model_outcome = ""
        """How the last call of a model ended: `ok`, or why it gave nothing; empty = none yet."""
        self._registry = registry = CollectorRegistry()
        ProcessCollector(registry=registry)
        self._models, self._methods, self._codes = _Values(), _Values(), _Values()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"assistant_{name}", text, labels, registry=registry)

        def gauge(name: str, text: str) -> Gauge:
            return Gauge(f"assistant_{name}", text, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...]) -> Histogram:
            return Histogram(f"assistant_{name}", text, buckets=buckets, registry=registry)

        self._requests = counter("requests", "Requests that ended, by how.", "outcome")
        self._ack = histogram("ack_seconds", "From an event's arrival to its ack.", _ACK_S)
        self._sign = histogram(
            "first_sign_seconds", "From a request's arrival to the first visible sign.", _SIGN_S
        )
        self._answer = histogram(
            "answer_seconds", "From a request's arrival to the finished reply.", _ANSWER_S
        )
        self._subagents = counter("subagents", "Subagents that ended, by how.", "status")
        self._calls = counter("model_calls", "Calls of a model.", "model", "outcome")
        self._tokens = counter("model_tokens", "Tokens read and written.", "model", "kind")
        self._dollars = counter("model_dollars", "US dollars that models cost.", "model")
        self._slack = counter("slack_calls", "Calls of Slack's Web API.", "method", "outcome")
        self._backfilled = counter("backfilled", "Requests found by looking back, not by event.")
        self._duplicates = counter("duplicates", "Events whose request was stored already.")
        self._queue = gauge("queue_depth", "Stored requests that wait for their turn.")
        self._working = gauge("requests_at_work", "Requests being answered now.")
        self._sockets = gauge("sockets_connected", "Sockets to Slack that are connected.")
        self._polls = counter("mail_polls", "Looks for new mail in a mailbox, by how.", "outcome")
        self._unwatched = gauge(
            "mail_watches_ending", "Mailboxes of which Gmail will soon tell nothing any more."
        )
        self._lag = gauge(
            "event_loop_lag_seconds", "How late the event loop ran what was due, at the last look."
        )

    def render(self) -> bytes:
        """All numbers as text of the type `CONTENT_TYPE`."""
        return generate_latest(self._registry)

    def acked(self, seconds: float) -> None:
        self._ack.observe(seconds)

    def first_sign(self, seconds: float) -> None:
        self._sign.observe(seconds)

    def request_ended(self, outcome: str, seconds: float | None = None) -> None:
        """`outcome`: of REQUEST_OUTCOMES; `seconds` to the finished reply, None = there is none."""
        self._requests.labels(_known(outcome, REQUEST_OUTCOMES)).inc()
        if seconds is not None:
            self._answer.observe(seconds)

    def subagent_ended(self, status: str) -> None:
        self._subagents.labels(_known(status, SUBAGENT_STATUSES)).inc()

    def model_called(
        self,
        model: str,
        outcome: str = "ok",
        tokens: Mapping[str, int] | None = None,
        dollars: float | None = None,
    ) -> None:
        """`tokens`: by TOKEN_KINDS, other keys are left out; `dollars` None = not known."""
        self.last_model_outcome = outcome
        model = self._models(model)
        self._calls.labels(model, self._codes(outcome)).inc()
        for kind in TOKEN_KINDS & (tokens or {}).keys():
            self._tokens.labels(model, kind).inc((tokens or {})[kind])
        if dollars is not None:
            self._dollars.labels(model).inc(dollars)

    def slack_called(self, method: str, outcome: str = "ok") -> None:
        """`outcome`: `ok`, Slack's error code, or what became of the call (`timeout`, `lost`)."""
        self._slack.labels(self._methods(method), self._codes(outcome)).inc()

    def backfilled(self, requests: int = 1) -> None:
        self._backfilled.inc(requests)

    def duplicate(self) -> None:
        self._duplicates.inc()

    def queued(self, requests: int) -> None:
        self._queue.set(requests)

    def at_work(self, requests: int) -> None:
        self._working.set(requests)

    def connected(self, sockets: int) -> None:
        self._sockets.set(sockets)

    def mail_polled(self, outcome: str) -> None:
        """`outcome`: of MAIL_OUTCOMES."""
        self._polls.labels(_known(outcome, MAIL_OUTCOMES)).inc()

    def watches_ending(self, mailboxes: int) -> None:
        self._unwatched.set(mailboxes)

    def lagged(self, seconds: float) -> None:
        self._lag.set(seconds)


def _known(value: str, known: frozenset[str]) -> str:
    return value if value in known else OTHER
