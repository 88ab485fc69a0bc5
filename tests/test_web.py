"""The bot's HTTP server: health checks, and limits of size and time for events."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from engine_kit import until
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from timing import WAIT_S

from bot.background import in_background
from bot.manifest import EVENTS_PATH
from bot.metrics import Metrics
from bot.serving import observability
from bot.serving.observability import Health, LoopLag
from bot.serving.web import MOST_BYTES, serve_app, web_app

SESSION_TIMEOUT = aiohttp.ClientTimeout(total=WAIT_S)


@pytest.fixture
async def http() -> AsyncIterator[aiohttp.ClientSession]:
    async with aiohttp.ClientSession(timeout=SESSION_TIMEOUT) as session:
        yield session


async def answer(http: aiohttp.ClientSession, url: str) -> tuple[int, Any]:
    async with http.get(url) as response:
        return response.status, await response.json()


async def echo(request: Request) -> Response:
    return PlainTextResponse(str(len(await request.body())))


async def test_health_says_which_part_fails_and_why(http: aiohttp.ClientSession) -> None:
    health, errors = Health(), {"sockets": "Both sockets are down."}

    async def check_database() -> str | None:
        await asyncio.sleep(0)
        return None

    health.add("loop", lambda: None, "live")
    health.add("database", check_database)
    health.add("sockets", lambda: errors.get("sockets"))
    health.add("model", lambda: "The model was overloaded.", "noted")
    noted = "model: The model was overloaded."
    async with serve_app(web_app(health, Metrics()), "127.0.0.1", 0) as url:
        alive = {"ok": True, "reasons": [], "parts": {"loop": "ok"}}
        assert await answer(http, url + "/healthz") == (200, alive)
        status, body = await answer(http, url + "/readyz")
        assert (status, body["parts"]["database"]) == (503, "ok")
        assert body["reasons"] == ["sockets: Both sockets are down.", noted]
        errors.clear()
        status, body = await answer(http, url + "/readyz")
        assert (status, body["reasons"]) == (200, [noted])


async def test_failed_or_hanging_health_check_is_reported_for_its_part(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def fail() -> str | None:
        raise KeyError("x")

    health = Health(check_s=0.1)
    health.add("broken", fail)
    health.add("hanging", lambda: asyncio.sleep(600, None))
    report = await health.report()
    assert report.parts == {
        "broken": "It could not be checked (KeyError).",
        "hanging": "It did not answer within 0.1 s.",
    }
    assert "KeyError" in caplog.text


async def test_blocked_event_loop_is_reported_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observability, "LAG_EVERY_S", 0.01)
    lags: list[float] = []
    lag = LoopLag(lags.append, bad_s=0.5)
    async with in_background([lag.sample()]):
        await asyncio.sleep(0)
        assert lag.check() is None
        time.sleep(0.8)  # noqa: ASYNC251
        await until(lambda: lags)
        assert lag.check() == f"The event loop was blocked for {lags[0]:.1f} s a moment ago."
        await until(lambda: lag.check() is None)


async def test_event_bodies_above_the_size_limit_are_rejected(http: aiohttp.ClientSession) -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MOST_BYTES // 100_000 + 1):
            yield b"x" * 100_000

    async with serve_app(web_app(Health(), Metrics(), echo), "127.0.0.1", 0) as url:
        events = url + EVENTS_PATH
        async with http.post(events, data=b"x" * MOST_BYTES) as response:
            assert (response.status, await response.text()) == (200, str(MOST_BYTES))
        async with http.post(events, data=b"x" * (MOST_BYTES + 1)) as response:
            assert response.status == 413
            assert "1,000,000" in (await response.json())["error"]
        async with http.post(events, data=endless()) as response:
            assert response.status == 413


async def test_incomplete_request_body_times_out() -> None:
    async with serve_app(web_app(Health(), Metrics(), echo, body_s=0.2), "127.0.0.1", 0) as url:
        port = int(url.rpartition(":")[2])
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST /slack/events HTTP/1.1\r\nhost: x\r\ncontent-length: 5\r\n\r\nab")
        assert b"408" in await asyncio.wait_for(reader.readline(), WAIT_S)
        writer.close()
        await writer.wait_closed()
