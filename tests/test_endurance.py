"""Hours of lost sockets, and writes that fail at random: each request is answered, and once."""

from __future__ import annotations

import asyncio
import random
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from engine_kit import Json, scripted_parent, workspace
from serve_kit import Served, change_settings, echo, mention, serve
from standins.connections import read_ahead
from standins.slack import API_PATH, LocalSlack
from standins.slack_faults import Fault
from standins.slack_shown import Shown
from starlette.types import ASGIApp, Receive, Scope, Send
from timing import patient

from bot.local.slack.state import BOT_USER
from config.settings import Settings

pytestmark = pytest.mark.system

HOUR_S = 2.0
"""Real seconds of a simulated hour."""
FASTER = 60.0
"""How much faster Slack's clock, and so its timestamps, run than ours.

The backfill reads again what was said in the two minutes before its cursor, or for twice as long as
a deaf socket may stay unnoticed, which is one second here: that fits.
"""
PEOPLE = ("U0ANA", "U0LUIS", "U0EVA")
PLACES = ("C00000001", "C00000002", "C00000003")
ENDINGS: tuple[Any, ...] = ("refresh_requested", "warning", "link_disabled", "abort", "silent")


def tireless(settings: Settings) -> Settings:
    """No budgets and no rates of our own; a deaf socket is noticed within a second."""
    quick = {"paced": False, "deaf_after_s": 1.0, "page_size": 20}
    return change_settings(
        settings, policy={"user_daily_usd": None, "daily_usd": None}, slack=quick
    )


@dataclass(frozen=True)
class Asked:
    channel: str
    ts: str
    thread: str
    word: str
    """Occurs in no other request."""

    @property
    def key(self) -> str:
        return f"T0ACME/{self.channel}/{self.ts}"


@dataclass
class Day:
    """People who go on asking, and a network that does not hold."""

    slack: LocalSlack
    chance: random.Random
    asked: list[Asked] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)
    said: Counter[str] = field(default_factory=Counter)

    def speak(self) -> None:
        """Somebody says something somewhere; mostly it asks the bot."""
        kinds = ("mention", "follow_up", "direct", "in_thread", "aside", "nearby")
        kind = self.chance.choices(kinds, (35, 20, 10, 10, 15, 10))[0]
        user, channel = self.chance.choice(PEOPLE), self.chance.choice(PLACES)
        word = f"w{len(self.asked)}x{sum(self.said.values())}w"
        threads = [a for a in self.asked if a.channel in PLACES]
        earlier = self.chance.choice(threads[-12:]) if threads else None
        self.said[kind] += 1
        match kind:
            case "mention":
                self._ask(user, channel, mention(word), word)
            case "direct":
                self._ask(user, self.slack.people.dm(user), word, word)
            case "follow_up" if earlier:
                self._ask(user, earlier.channel, f"and {word}?", word, earlier.thread)
            case "in_thread" if earlier:
                self._ask(user, earlier.channel, mention(word), word, earlier.thread)
            case "nearby":  # a thread in which the bot was never asked
                root = self.slack.people.say(user, channel, "a root")
                self.slack.people.say(user, channel, "a reply", root)
            case _:
                self.slack.people.say(user, channel, "nothing for the bot")

    def _ask(self, user: str, channel: str, text: str, word: str, thread: str = "") -> None:
        ts = self.slack.people.say(user, channel, text, thread or None)
        self.asked.append(Asked(channel, ts, thread or ts, word))

    def cut(self) -> None:
        """The network fails in one of its ways."""
        how = self.chance.choices(ENDINGS, (4, 2, 2, 3, 2))[0]
        which = self.chance.choice((None, 0, 0, 1))
        self.drops[how] += 1
        if self.chance.random() < 0.2:
            self.drops["refused"] += 1
            self.slack.sockets.refuse(self.chance.uniform(0.1, 0.8))
        self.slack.sockets.drop(how, which)

    async def live(self, seconds: float) -> None:
        """Some minutes go by between two things that happen."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(self.chance.uniform(0.02, 0.2))
            if self.chance.random() < 0.4:
                self.cut()
            else:
                self.speak()


def ours(slack: LocalSlack) -> Iterator[tuple[str, Shown]]:
    """All that the bot has written, and where."""
    for channel in list(slack.state.channels):
        for shown in slack.visible(channel):
            if shown.user == BOT_USER:
                yield channel, shown


def key_of(shown: Shown) -> str:
    payload = (shown.metadata or {}).get("event_payload") or {}
    return "" if shown.streaming else str(payload.get("key") or "")


async def all_answered(bot: Served, asked: list[Asked], seconds: float) -> None:
    """Each has one answer, the right one, and there is nothing else."""
    wanted = {each.key for each in asked}
    async with patient(seconds):
        while not (wanted <= {key_of(m) for _, m in ours(bot.slack)}):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    bot.bench.backfill.ask()  # what is read once more is not answered once more
    await bot.bench.backfill.idle()
    async with patient(30):
        while bot.bench.dispatch.at_work or await bot.inbox.count_waiting():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    written = list(ours(bot.slack))
    assert Counter(key_of(shown) for _, shown in written) == dict.fromkeys(wanted, 1)
    answers = {key_of(shown): (channel, shown) for channel, shown in written}
    for each in asked:
        channel, shown = answers[each.key]
        assert (channel, shown.thread_ts) == (each.channel, each.thread)
        assert each.word in shown.text, shown.text


async def endure(folder: Path, hours: float, lives: int, seed: int) -> Day:
    """So many simulated hours, in so many lives of the bot; people talk between them, too."""
    began = time.time()
    slack = LocalSlack(
        workspace(len(PLACES)),
        retries_s=(0.0, 0.3, 1.0),
        ack_s=0.5,
        now=lambda: began + (time.time() - began) * FASTER - hours * HOUR_S * 2 * FASTER,
    )
    slack.sockets.goodbye_s, slack.sockets.warning_s, slack.sockets.silent_s = 0.1, 0.5, 3.0
    day = Day(slack, random.Random(seed))
    for number in range(lives):
        how: Json = {"slack": slack, "change": tireless, "reply": {"update_s": 0.5}}
        async with serve(folder, scripted_parent(echo), **how) as bot:
            await day.live(hours * HOUR_S / lives)
            if number == lives - 1:
                await all_answered(bot, day.asked, 90)
        for _ in range(3):
            if number < lives - 1:
                day.speak()
    return day


@pytest.mark.parametrize(
    ("hours", "lives", "seed", "asked"),
    [
        (2, 2, 1, 10),
        pytest.param(2, 2, 2, 10, marks=pytest.mark.slow),
        pytest.param(24, 3, 24, 150, marks=pytest.mark.slow),
    ],
)
async def test_dropped_sockets_lose_and_duplicate_no_request(
    hours: int, lives: int, seed: int, asked: int, tmp_path: Path
) -> None:
    day = await endure(tmp_path, hours, lives, seed)
    assert len(day.asked) >= asked
    assert sum(day.drops.values()) >= hours * 4
    assert hours < 24 or set(day.drops) == {*ENDINGS, "refused"}
    print(f"{len(day.asked)} asked, {dict(day.said)}; {dict(day.drops)}")


# ---- writes that fail

WRITES = """chat.postMessage chat.update chat.delete chat.startStream chat.appendStream
    chat.stopStream chat.postEphemeral agents.sessions.setStatus""".split()
KINDS = ("500", "lost", "429", "drop", "malformed", "slow")


MOST = 3
"""A write is tried four times; one that failed each time would rightly end in an apology."""


@dataclass
class Weather:
    """Each write fails with some probability, in some way, at most MOST times. What is looked up
    does not fail."""

    slack: LocalSlack
    chance: random.Random
    odds: float
    happened: Counter[str] = field(default_factory=Counter)
    failed: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    def strike(self, method: str, body: bytes) -> None:
        """Let the call that comes next fail, perhaps."""
        if self.failed[method, body] < MOST and self.chance.random() < self.odds:
            kind = self.chance.choice(KINDS)
            self.failed[method, body] += 1
            self.happened[f"{method} {kind}"] += 1
            self.slack.faults.append(Fault(method, kind, 0.3))


class Outdoors:
    """Shows each write to the weather before Slack answers it."""

    def __init__(self, app: ASGIApp, weather: Weather) -> None:
        self._app, self._weather = app, weather

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = str(scope.get("path")).removeprefix(API_PATH)
        if method not in WRITES:
            await self._app(scope, receive, send)
            return
        body, again = await read_ahead(receive)
        self._weather.strike(method, body)
        await self._app(scope, again, send)  # nothing else runs until it takes the fault


async def storm(folder: Path, requests: int, seed: int, odds: float) -> Weather:
    slack = LocalSlack(workspace(len(PLACES)), retries_s=(0.0, 0.3, 1.0))
    weather = Weather(slack, random.Random(seed), odds)
    slack.app.add_middleware(Outdoors, weather=weather)
    people = random.Random(seed)
    how: Json = {"slack": slack, "change": tireless, "latency_s": 0.2}
    async with serve(folder, scripted_parent(echo), **how) as bot:
        day = Day(slack, people)
        for number in range(requests):
            user, word = people.choice(PEOPLE), f"w{number}w"
            direct = people.random() < 0.2
            channel = slack.people.dm(user) if direct else people.choice(PLACES)
            day._ask(user, channel, word if direct else mention(word), word)
            await asyncio.sleep(people.uniform(0, 0.3))
        await all_answered(bot, day.asked, 150)
        weather.odds = 0.0
    return weather


@pytest.mark.parametrize(
    ("requests", "seed", "odds", "failed"),
    [
        (10, 3, 0.25, 5),
        pytest.param(10, 4, 0.25, 5, marks=pytest.mark.slow),
        pytest.param(70, 5, 0.3, 100, marks=pytest.mark.slow),
    ],
)
async def test_each_request_gets_one_answer_despite_random_write_failures(
    requests: int, seed: int, odds: float, failed: int, tmp_path: Path
) -> None:
    weather = await storm(tmp_path, requests, seed, odds)
    assert weather.happened.total() >= failed
    assert failed < 100 or {name.partition(" ")[2] for name in weather.happened} == set(KINDS)
    print(dict(weather.happened))
