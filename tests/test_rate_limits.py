"""Rate limits: the refusal of one call slows its siblings, and no call waits for ever."""

from __future__ import annotations

import asyncio
import time
from datetime import UTC, datetime, timedelta

import pytest
from engine_kit import engine, settings_for, submission, turns
from hypothesis import given, settings
from hypothesis import strategies as st
from standins.model_faults import Fault, Faults
from timing import WAIT_S, patient

from bot.slack.client import RateLimit, ReadTurns
from config.sections import SlackSettings
from config.settings import load_settings
from subagents.prices import Usage
from subagents.rate_limiter import PREFIX, RateLimiter

MODEL = "claude-haiku-5-5"
USED = Usage(100, 100)


def headers(kind: str, limit: int, remaining: int, seconds: float) -> dict[str, str]:
    reset = datetime.now(UTC) + timedelta(seconds=seconds)
    return {
        f"{PREFIX}{kind}-limit": str(limit),
        f"{PREFIX}{kind}-remaining": str(remaining),
        f"{PREFIX}{kind}-reset": reset.isoformat().replace("+00:00", "Z"),
    }


class Crowd:
    """Calls through a rate limiter, each of some length, counted while they run."""

    def __init__(self, rate_limiter: RateLimiter) -> None:
        self.rate_limiter = rate_limiter
        self.at_once = self.most = self.done = 0
        self.starts: list[float] = []

    async def call(self, seconds: float = 0.01, model: str = MODEL) -> None:
        async with self.rate_limiter.slot(model):
            self.starts.append(time.monotonic())
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            await asyncio.sleep(seconds)
            self.at_once -= 1
            self.rate_limiter.record_reply(model, {}, USED)
        self.done += 1


async def test_429_halves_the_concurrency_and_successes_restore_it_gradually() -> None:
    rate_limiter = RateLimiter(16)
    rate_limiter.record_refusal(MODEL, 0.0)
    rate_limiter.record_refusal(MODEL, 0.0)
    crowd = Crowd(rate_limiter)
    await asyncio.gather(*(crowd.call() for _ in range(4)))
    assert crowd.most == 4
    assert 4 < rate_limiter.limit(MODEL).width < 6
    for _ in range(200):
        rate_limiter.record_reply(MODEL, {}, USED)
    assert rate_limiter.limit(MODEL).width == 16


async def test_429_delays_only_calls_to_the_same_model() -> None:
    rate_limiter = RateLimiter(8)
    crowd = Crowd(rate_limiter)
    began = time.monotonic()
    rate_limiter.record_refusal(MODEL, 0.3)
    await asyncio.gather(*(crowd.call() for _ in range(3)))
    assert min(crowd.starts) - began >= 0.3
    rate_limiter.record_refusal(MODEL, 600.0)
    await crowd.call(model="another")


@pytest.mark.parametrize(
    ("kind", "gap"),
    [("requests", 0.6), ("input-tokens", 6.0), ("output-tokens", 1.2), ("tokens", 7.2)],
)
async def test_calls_near_a_limit_are_paced_at_its_refill_rate(kind: str, gap: float) -> None:
    """95 of 100 units come back in 57 s; the last call took 1, 6 + 4, 2 and 12 of them."""
    rate_limiter = RateLimiter(8)
    plenty = headers("requests", 1000, 1000, 1.0)
    used = Usage(input=6, output=2, cache_read=50, cache_write=4)
    rate_limiter.record_reply(MODEL, plenty, used)
    assert rate_limiter.limit(MODEL).gap == 0
    rate_limiter.record_reply(MODEL, plenty | headers(kind, 100, 5, 57.0), used)
    rate_limiter.record_reply(MODEL, {}, used)  # a reply without headers changes nothing
    assert rate_limiter.limit(MODEL).gap == pytest.approx(gap, rel=0.01)
    rate_limiter.record_reply(MODEL, plenty | headers(kind, 100, 90, 57.0), used)
    assert rate_limiter.limit(MODEL).gap == 0


@settings(max_examples=60, deadline=None, database=None)
@given(
    st.dictionaries(
        st.sampled_from([f"{PREFIX}{k}-{f}" for k in ("requests", "tokens") for f in
                         ("limit", "remaining", "reset")]),
        st.one_of(st.text(max_size=5), st.integers().map(str),
                  st.sampled_from(["2999-11-21T10:00:00Z", "2999-11-21", "1970-01-01T00:00:00"])),
    )
)  # fmt: skip
def test_invalid_rate_limit_headers_cause_no_crash_or_long_wait(fields: dict[str, str]) -> None:
    rate_limiter = RateLimiter(8)
    rate_limiter.record_reply(MODEL, fields, USED)
    assert 0 <= rate_limiter.limit(MODEL).gap <= 60


async def test_cancelled_waiting_calls_release_their_slots() -> None:
    """Waiting calls are cancelled at any moment, also just as they are let in."""
    rate_limiter = RateLimiter(4)
    for _ in range(2):
        rate_limiter.record_refusal(MODEL, 0.0)
    crowd = Crowd(rate_limiter)
    async with patient():
        for round_ in range(30):
            tasks = [asyncio.create_task(crowd.call(0.001)) for _ in range(12)]
            for n, task in enumerate(tasks):
                await asyncio.sleep(0.0002 * (round_ % 4))
                if n % 2:
                    task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert rate_limiter.limit(MODEL).in_flight == 0
    async with patient():
        await asyncio.gather(*(crowd.call(0.001) for _ in range(12)))


async def test_one_subagents_429_slows_its_siblings() -> None:
    models = {"retry_after_cap_s": 0.1, "max_attempts": 3}
    faults = Faults([Fault("http_429", retry_after=0.1)])
    settings = settings_for({"max_concurrency": 16}, models)
    async with engine(turns(submission()), settings, faults=faults) as e:
        await asyncio.gather(*(e.agent(name=f"s{n}").run() for n in range(1, 4)))
    assert len(e.requests) == 4
    assert 8 < e.run.rate_limiter.limit(MODEL).width < 9, "halved, and wider by three replies"


# ---- calls to Slack

INFO = "conversations.info"


def slack_settings(**more: object) -> SlackSettings:
    return load_settings(env={}).slack.model_copy(update={"timeout_s": 5, **more})


async def test_refused_slack_method_waits_before_its_next_call() -> None:
    turns = ReadTurns(slack_settings())
    loop = asyncio.get_running_loop()
    await asyncio.wait_for(turns.take(INFO), WAIT_S)
    turns.record_refusal(INFO, 0.3)
    began = loop.time()
    await turns.take(INFO)
    assert loop.time() - began >= 0.3
    await asyncio.wait_for(turns.take("conversations.history"), WAIT_S)


async def test_after_a_refusal_patient_calls_leave_room_within_the_tier_limit() -> None:
    turns = ReadTurns(slack_settings(), reserved=0.1)
    turns.record_refusal(INFO, 0.0)
    for is_patient, allowed in ((True, 45), (False, 5)):
        for _ in range(allowed):
            await asyncio.wait_for(turns.take(INFO, patient=is_patient), WAIT_S)
        late = asyncio.ensure_future(turns.take(INFO, patient=is_patient))
        done, _ = await asyncio.wait([late], timeout=0.2)
        late.cancel()
        assert not done, "the next of this minute waits"


def test_requests_in_quick_succession_all_show_the_stop_button() -> None:
    limit = RateLimit()
    shown = [limit.take_now("agents.sessions.setStatus", live=True) for _ in range(26)]
    assert shown == [True] * 25 + [False], "the other half removes the buttons"
    edited = [limit.take_now("chat.update", live=True) for _ in range(2)]
    assert edited == [True, False], "progress is spread out"
