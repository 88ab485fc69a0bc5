"""Gmail's units are given out in order, never above a minute's, and not while Google says wait."""

from __future__ import annotations

import asyncio

import pytest
from google_kit import Clock
from hypothesis import example, given
from hypothesis import strategies as st

from scopes.google.quota import Quota


def quota(units: int, clock: Clock) -> Quota:
    return Quota(units, clock, clock.sleep)


CALLS = st.lists(
    st.tuples(
        st.integers(1, 120),  # units, also more than the minute has
        st.floats(0, 50),  # seconds until the next call comes
    ),
    min_size=1,
    max_size=60,
)


@example(calls=[(1, 1.5448315574245193), (1, 2.0), (1, 0.0), (40, 0.0)], limit=40)
@given(calls=CALLS, limit=st.integers(40, 100))
async def test_no_minute_ever_has_more_units_than_the_limit(
    calls: list[tuple[int, float]], limit: int
) -> None:
    clock = Clock()
    subject, given_at = quota(limit, clock), []
    for units, pause in calls:
        await subject.take(units)
        given_at.append((clock.now, min(units, limit)))
        clock.now += pause
    for start, _ in given_at:
        assert sum(u for at, u in given_at if start <= at < start + 60) <= limit


async def test_a_call_above_the_whole_limit_is_made_when_nothing_else_was() -> None:
    clock = Clock()
    subject = quota(100, clock)
    await subject.take(5)
    await subject.take(500)
    assert 1060.0 <= clock.now <= 1062.0


async def test_calls_are_served_as_they_came_also_when_a_later_one_would_fit() -> None:
    clock = Clock()
    subject, served = quota(100, clock), []

    async def call(name: str, units: int) -> None:
        await subject.take(units)
        served.append(name)

    async with asyncio.TaskGroup() as group:
        for name, units in (("first", 90), ("large", 90), ("small", 1), ("last", 1)):
            group.create_task(call(name, units))
    assert served == ["first", "large", "small", "last"]


async def test_a_call_that_was_given_up_while_it_waited_took_no_units() -> None:
    clock = Clock()

    async def for_ever(_: float) -> None:
        await asyncio.Event().wait()

    subject = Quota(100, clock, for_ever)
    await subject.take(100)
    waiting = asyncio.create_task(subject.take(50))
    await asyncio.sleep(0)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    clock.now += 100
    await asyncio.wait_for(subject.take(100), 5)
