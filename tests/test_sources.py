"""What a sweep reads: channels chosen by name, large ones cut between threads."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

from engine_kit import WINDOW, Engine, Json, engine, workspace
from hypothesis import given
from hypothesis import strategies as st
from standins.slack import LocalSlack

from bot.local.model.answer import Answer
from bot.tasks.sources import SweepSource, split
from bot.tasks.sweep import SweepPlanner
from config.settings import load_settings
from scopes.label import TRUSTED
from scopes.slack_reader import SlackConversation
from scopes.tool import Item, Window, estimate_tokens
from subagents.events import SourcesRead

START = datetime(2025, 3, 1, tzinfo=UTC)
MONTH = Window(START, START + timedelta(days=30))


def conversation(number: int, letters: int) -> SlackConversation:
    at = START + timedelta(minutes=number)
    root = Item(f"C1/{number}", "x" * letters, None, TRUSTED, at=at, by="Ana")
    return SlackConversation(root, ())


def size(found: list[SlackConversation]) -> int:
    return sum(estimate_tokens(i.line()) + 1 for c in found for i in c.items)


@given(st.lists(st.integers(1, 900), max_size=60), st.integers(60, 800), st.integers(1, 12))
def test_shares_hold_every_thread_once_and_stay_below_both_caps(
    lengths: list[int], max_tokens: int, max_threads: int
) -> None:
    found = [conversation(n, length) for n, length in enumerate(lengths)]
    shares = split(found, MONTH, max_tokens, max_threads, max_tokens)
    opened = [[c for c in found if c.root.at and share.window.opens(c.root.at)] for share in shares]
    assert [c for threads in opened for c in threads] == found
    for share, threads in zip(shares, opened, strict=True):
        assert 1 <= len(threads) <= max_threads
        assert share.ids == tuple(c.root.id for c in threads)
        assert size(threads) <= max_tokens or (len(threads) == 1 and not share.items)
        assert share.items in ((), tuple(c.root for c in threads))


# ---- read ahead

HISTORY = "conversations.history"


def never(request: Json) -> Answer:
    raise AssertionError("planning asks no model")


async def sources_of(e: Engine) -> list[SweepSource]:
    return [SweepSource(each, WINDOW) for each in await e.reader.channels()]


async def planned(planning: SweepPlanner, source: SweepSource) -> SweepSource:
    source.plan = await asyncio.wait_for(planning.plan(source), 10)
    assert source.plan.shares, "there is something to read"
    return source


async def test_the_next_channel_is_read_when_one_is_done_and_let_go_of() -> None:
    limits = load_settings(env={}).limits.model_copy(update={"max_concurrency": 2})
    slack = LocalSlack(workspace(5))
    async with engine(never, slack=slack) as e, asyncio.TaskGroup() as group:
        e.run.limits = limits
        sources = await sources_of(e)
        planning = SweepPlanner(e.run, sources, 40, group)
        first, second, third, *others = [*sources]
        for source in (first, second):
            await planned(planning, source)
        assert slack.calls[HISTORY] == 2, "the others wait for room"
        calls = slack.calls.total()
        await e.reader.conversations(first.channel.id, WINDOW)
        assert slack.calls.total() == calls, "its subagent reads what was read for the plan"
        planning.read(first)
        await planned(planning, third)
        assert slack.calls[HISTORY] == 3
        await e.reader.conversations(first.channel.id, WINDOW)
        assert slack.calls[HISTORY] == 4, "what was read of the first was let go of"
        for source in (second, third):
            planning.read(source)
        for source in others:
            planning.read(await planned(planning, source))
        told = [event for event in e.events if isinstance(event, SourcesRead)]
        assert (told[0], told[-1]) == (SourcesRead(0, 5), SourcesRead(5, 5))
