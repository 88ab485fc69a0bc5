"""Rate limits as the API keeps them: token buckets per model that refill continuously."""

import math
import time
from dataclasses import dataclass
from datetime import UTC, datetime

from standins.model_errors import Refused

WINDOW_S = 60.0


@dataclass(frozen=True)
class RateLimits:
    """Per minute and model; the defaults are beyond what this server can serve."""

    requests: int = 10_000_000
    input_tokens: int = 10_000_000_000
    """Cache reads do not count."""
    output_tokens: int = 10_000_000_000
    """`max_tokens` counts from the start of a request, then what was really produced."""


class _Bucket:
    """`size` units that come back within a minute."""

    def __init__(self, name: str, size: int, now: float) -> None:
        self.name = name
        self.size = size
        self._level = float(size)
        self._at = now

    def level(self, now: float) -> float:
        self._level = min(self.size, self._level + (now - self._at) * self.size / WINDOW_S)
        self._at = now
        return self._level

    def wait_s(self, units: float, now: float) -> float:
        """Seconds until `units` are there; a full bucket is enough for anything."""
        lacking = min(units, self.size) - self.level(now)
        return max(0.0, lacking * WINDOW_S / self.size) if self.size else WINDOW_S

    def take(self, units: float, now: float) -> None:
        """Take `units`, or give them back when negative."""
        self._level = max(0.0, self.level(now) - units)

    def headers(self, now: float) -> tuple[int, int, float]:
        """Size, whole units left, and seconds until it is full again."""
        level = self.level(now)
        full_in = (self.size - level) * WINDOW_S / self.size if self.size else WINDOW_S
        return self.size, int(level), full_in


class RateGate:
    """Admits requests while the model's buckets last."""

    def __init__(self, limits: RateLimits | None) -> None:
        self._limits = limits or RateLimits()
        self._models: dict[str, tuple[_Bucket, _Bucket, _Bucket]] = {}

    def admit(self, model: str, input_tokens: int, max_tokens: int) -> None:
        """Take what the request needs; raises `Refused` with 429 and `retry-after` (seconds)."""
        now = time.time()
        needs = (1, input_tokens, max_tokens)
        buckets = self._buckets(model)
        for bucket, units in zip(buckets, needs, strict=True):
            wait = bucket.wait_s(units, now)
            if wait > 0:
                raise Refused(
                    429,
                    "rate_limit_error",
                    "This request would exceed your organization's rate limit of "
                    f"{bucket.size:,} {bucket.name} per minute (model: {model}).",
                    {"retry-after": str(math.ceil(wait)), **self.headers(model)},
                )
        for bucket, units in zip(buckets, needs, strict=True):
            bucket.take(units, now)

    def settle(self, model: str, unused_output_tokens: int) -> None:
        """Give back the output tokens that were reserved and not produced."""
        self._buckets(model)[2].take(-unused_output_tokens, time.time())

    def headers(self, model: str) -> dict[str, str]:
        """The `anthropic-ratelimit-*` headers as of now."""
        now = time.time()
        requests, inputs, outputs = (bucket.headers(now) for bucket in self._buckets(model))
        both = (inputs[0] + outputs[0], inputs[1] + outputs[1], max(inputs[2], outputs[2]))
        named = {"requests": requests, "input-tokens": inputs, "output-tokens": outputs}
        headers: dict[str, str] = {}
        for name, (size, left, full_in) in {**named, "tokens": both}.items():
            moment = datetime.fromtimestamp(int(now + full_in), UTC).isoformat()
            headers[f"anthropic-ratelimit-{name}-limit"] = str(size)
            headers[f"anthropic-ratelimit-{name}-remaining"] = str(left)
            headers[f"anthropic-ratelimit-{name}-reset"] = moment.replace("+00:00", "Z")
        return headers

    def _buckets(self, model: str) -> tuple[_Bucket, _Bucket, _Bucket]:
        if model not in self._models:
            now, limits = time.time(), self._limits
            self._models[model] = (
                _Bucket("requests", limits.requests, now),
                _Bucket("input tokens", limits.input_tokens, now),
                _Bucket("output tokens", limits.output_tokens, now),
            )
        return self._models[model]
