"""Report the liveness and readiness of the process; each part checks itself."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

import aiohttp
import sqlalchemy as sa

from bot.errors import StoreError
from bot.listeners.socket_mode import Sockets
from bot.metrics import Metrics
from bot.storage.database import Database
from bot.storage.tables import flags
from scopes.slack_client import Absent, SlackClient, SlackRefused

log = logging.getLogger(__name__)

Check = Callable[[], str | Awaitable[str | None] | None]
"""None = it works; else one sentence with the fault."""
Kind = Literal["live", "ready", "noted"]

CHECK_S = 5.0
"""Seconds in which a part must answer."""
TOKEN_S = 10.0
"""Minimum seconds between two checks of the token in Slack."""
PROBE = "written"
"""Name of the flag that a test write sets, to check whether writing works again."""
LAG_EVERY_S = 0.5
_LAG_KEPT = 20
"""Number of event loop samples that count: those of the last 10 s."""
LAG_BAD_S = 2.0
_ONE = sa.select(sa.literal(1))


@dataclass(frozen=True, slots=True)
class HealthReport:
    ok: bool
    parts: Mapping[str, str | None]
    """Part -> None, or its fault."""

    def to_json(self) -> dict[str, Any]:
        wrong = [f"{name}: {fault}" for name, fault in self.parts.items() if fault]
        parts = {name: fault or "ok" for name, fault in self.parts.items()}
        return {"ok": self.ok, "reasons": wrong, "parts": parts}


class Health:
    """Checks the registered parts.

    `live`: without it the process is useless and must be restarted. `ready`: without it no request
    can be answered now. `noted`: only reported.
    """

    def __init__(self, check_s: float = CHECK_S) -> None:
        """`check_s`: seconds in which a part must answer."""
        self._check_s = check_s
        self._parts: dict[str, tuple[Kind, Check]] = {}

    def add(self, name: str, check: Check, kind: Kind = "ready") -> None:
        """Register a part under a unique name."""
        self._parts[name] = (kind, check)

    async def report(self, live_only: bool = False) -> HealthReport:
        """Check all parts, or the live ones."""
        parts = {n: part for n, part in self._parts.items() if not live_only or part[0] == "live"}
        asking = (self._outcome(name, check) for name, (_, check) in parts.items())
        results = await asyncio.gather(*asking)
        outcomes = dict(zip(parts, results, strict=True))
        ok = not any(outcomes[name] for name, (kind, _) in parts.items() if kind != "noted")
        return HealthReport(ok, outcomes)

    async def _outcome(self, name: str, check: Check) -> str | None:
        try:
            async with asyncio.timeout(self._check_s):
                result = check()
                return await result if inspect.isawaitable(result) else result
        except TimeoutError:
            return f"It did not answer within {self._check_s:g} s."
        except Exception as error:  # a part whose check fails does not work
            log.exception("the check of %s failed", name)
            return f"It could not be checked ({type(error).__name__})."


class LoopLag:
    """Measures the delay of the event loop: above 2 s it was blocked, and Slack waits 3 s."""

    def __init__(self, tell: Callable[[float], None], bad_s: float = LAG_BAD_S) -> None:
        """`tell` is called with the seconds of each sample, such as `Metrics.lag.set`."""
        self._tell, self._bad_s = tell, bad_s
        self._recent: list[float] = []

    def check(self) -> str | None:
        worst = max(self._recent, default=0.0)
        if worst < self._bad_s:
            return None
        return f"The event loop was blocked for {worst:.1f} s a moment ago."

    async def sample(self) -> None:
        """Sample twice a second until cancelled."""
        loop = asyncio.get_running_loop()
        while True:
            due = loop.time() + LAG_EVERY_S
            await asyncio.sleep(LAG_EVERY_S)
            late = max(0.0, loop.time() - due)
            self._recent = [*self._recent, late][-_LAG_KEPT:]
            self._tell(late)


class TokenProbe:
    """Checks whether Slack accepts our token: on demand, and not too often."""

    def __init__(self, client: SlackClient) -> None:
        self._client = client
        self._checked_at, self._fault = float("-inf"), ""

    async def check(self) -> str | None:
        now = asyncio.get_running_loop().time()
        if now - self._checked_at >= TOKEN_S:
            self._checked_at = now
            try:
                await self._client.call("auth.test")
                self._fault = ""
            except (SlackRefused, Absent) as error:
                self._fault = f"{error}. `assistant doctor` lists what to fix."
            except (aiohttp.ClientError, TimeoutError) as error:
                self._fault = f"Slack cannot be reached ({type(error).__name__})."
        return self._fault or None


async def check_database(database: Database) -> str | None:
    """Check whether the database answers reads and accepts changes."""
    fault = database.fault
    try:
        await database.read(_ONE)
        await database.change(lambda connection: connection.execute(_ONE).scalar())
        if fault:  # a full disk passes the checks above
            newer = database.upsert(flags, ("name",), ("at",))
            await database.write(newer.values(name=PROBE, value=None, at=datetime.now(UTC)))
    except StoreError as error:
        return str(error)
    return None


def watch_process(
    health: Health, metrics: Metrics, database: Database, sockets: Sockets | None
) -> Coroutine[Any, Any, None]:
    """Register checks of the event loop, the database and the sockets; return background work."""
    lag = LoopLag(metrics.lag.set)
    health.add("loop", lag.check, "live")
    health.add("database", lambda: check_database(database))
    if sockets:
        health.add("slack", lambda: None if sockets.alive else "No socket is connected.")
    return lag.sample()
