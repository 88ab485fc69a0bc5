"""Hours of lost sockets, and writes that fail at random: each request gets exactly one answer."""

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

The backfill reads again the two minutes before its cursor, or twice the time that a deaf socket may
stay unnoticed, which is one second here.
"""
PEOPLE = ("U0ANA", "U0LUIS", "U0EVA")
PLACES = ("C00000001", "C00000002", "C00000003")
ENDINGS: tuple[Any, ...] = ("refresh_requested", "warning", "link_disabled", "abort", "silent")


def tireless(settings: Settings) -> Settings:
    """No budgets and no rate limits; a deaf socket is noticed within a second."""
    quick = {"paced": False, "deaf_after_s": 1.0, "page_size": 20}
    return change_settings(
        settings, policy={"user_daily_usd": None, "daily_usd": None}, slack=quick
    )


@dataclass(frozen=True)
class Question:
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
    """People who keep asking, and a network that keeps failing."""

    slack: LocalSlack
    chance: random.Random
    questions: list[Question] = field(default_factory=list)
    drops: Counter[str] = field(default_factory=Counter)
    sent: Counter[str] = field(default_factory=Counter)

    def speak(self) -> None:
        """Post a random message of somebody; most ask the bot."""
        kinds = ("mention", "follow_up", "direct", "in_thread", "aside", "nearby")
        kind = self.chance.choices(kinds, (35, 20, 10, 10, 15, 10))[0]
        user, channel = self.chance.choice(PEOPLE), self.chance.choice(PLACES)
        word = f"w{len(self.questions)}x{sum(self.sent.values())}w"
        threads = [a for a in self.questions if a.channel in PLACES]
        earlier = self.chance.choice(threads[-12:]) if threads else None
        self.sent[kind] += 1
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
        self.questions.append(Question(channel, ts, thread or ts, word))

    def cut(self) -> None:
        """Let the network fail in a random way."""
        how = self.chance.choices(ENDINGS, (4, 2, 2, 3, 2))[0]
        which = self.chance.choice((None, 0, 0, 1))
        self.drops[how] += 1
        if self.chance.random() < 0.2:
            self.drops["refused"] += 1
            self.slack.sockets.refuse(self.chance.uniform(0.1, 0.8))
        self.slack.sockets.drop(how, which)

    async def live(self, seconds: float) -> None:
        """Let people write and the network fail, minutes apart."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            await asyncio.sleep(self.chance.uniform(0.02, 0.2))
            if self.chance.random() < 0.4:
                self.cut()
            else:
                self.speak()


def messages_of_bot(slack: LocalSlack) -> Iterator[tuple[str, Shown]]:
    """Each message of the bot, with its channel."""
    for channel in list(slack.state.channels):
        for shown in slack.visible(channel):
            if shown.user == BOT_USER:
                yield channel, shown


def key_of(shown: Shown) -> str:
    payload = (shown.metadata or {}).get("event_payload") or {}
    return "" if shown.streaming else str(payload.get("key") or "")


async def all_answered(bot: Served, questions: list[Question], seconds: float) -> None:
    """Check that each question gets its answer, once, and that the bot writes nothing else."""
    wanted = {each.key for each in questions}
    async with patient(seconds):
        while not (wanted <= {key_of(m) for _, m in messages_of_bot(bot.slack)}):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    bot.bench.backfill.ask()  # a message that is read again is not answered again
    await bot.bench.backfill.idle()
    async with patient(30):
        while bot.bench.dispatch.at_work or await bot.inbox.count_waiting():  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    written = list(messages_of_bot(bot.slack))
    assert Counter(key_of(shown) for _, shown in written) == dict.fromkeys(wanted, 1)
    answers = {key_of(shown): (channel, shown) for channel, shown in written}
    for each in questions:
        channel, shown = answers[each.key]
        assert (channel, shown.thread_ts) == (each.channel, each.thread)
        assert each.word in shown.text, shown.text


async def endure(folder: Path, hours: float, lives: int, seed: int) -> Day:
    """Simulate these hours in some lives of the bot; people also write between them."""
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
        options: Json = {"slack": slack, "change": tireless, "reply": {"update_s": 0.5}}
        async with serve(folder, scripted_parent(echo), **options) as bot:
            await day.live(hours * HOUR_S / lives)
            if number == lives - 1:
                await all_answered(bot, day.questions, 90)
        for _ in range(3):
            if number < lives - 1:
                day.speak()
    return day


@pytest.mark.parametrize(
    ("hours", "lives", "seed", "at_least"),
    [
        (2, 2, 1, 10),
        pytest.param(2, 2, 2, 10, marks=pytest.mark.slow),
        pytest.param(24, 3, 24, 150, marks=pytest.mark.slow),
    ],
)
async def test_dropped_sockets_lose_and_duplicate_no_request(
    hours: int, lives: int, seed: int, at_least: int, tmp_path: Path
) -> None:
    day = await endure(tmp_path, hours, lives, seed)
    assert len(day.questions) >= at_least
    assert sum(day.drops.values()) >= hours * 4
    assert hours < 24 or set(day.drops) == {*ENDINGS, "refused"}
    print(f"{len(day.questions)} questions, {dict(day.sent)}; {dict(day.drops)}")


# ---- writes that fail

WRITES = """chat.postMessage chat.update chat.delete chat.startStream chat.appendStream
    chat.stopStream chat.postEphemeral agents.sessions.setStatus""".split()
KINDS = ("500", "lost", "429", "drop", "malformed", "slow")


MOST = 3
"""A write is tried four times; one that failed each time would rightly end in an apology."""


@dataclass
class WriteFailures:
    """Each write fails by chance, in some way, at most MOST times. Reads do not fail."""

    slack: LocalSlack
    chance: random.Random
    odds: float
    happened: Counter[str] = field(default_factory=Counter)
    failed: Counter[tuple[str, bytes]] = field(default_factory=Counter)

    def maybe_fail(self, method: str, body: bytes) -> None:
        """Let the next call fail, or not."""
        if self.failed[method, body] < MOST and self.chance.random() < self.odds:
            kind = self.chance.choice(KINDS)
            self.failed[method, body] += 1
            self.happened[f"{method} {kind}"] += 1
            self.slack.faults.append(Fault(method, kind, 0.3))


class FailingWrites:
    """Lets writes fail before they reach Slack."""

    def __init__(self, app: ASGIApp, failures: WriteFailures) -> None:
        self._app, self._failures = app, failures

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        method = str(scope.get("path")).removeprefix(API_PATH)
        if method not in WRITES:
            await self._app(scope, receive, send)
            return
        body, again = await read_ahead(receive)
        self._failures.maybe_fail(method, body)
        await self._app(scope, again, send)  # nothing else runs until it takes the fault


async def serve_with_write_failures(
    folder: Path, requests: int, seed: int, odds: float
) -> WriteFailures:
    slack = LocalSlack(workspace(len(PLACES)), retries_s=(0.0, 0.3, 1.0))
    failures = WriteFailures(slack, random.Random(seed), odds)
    slack.app.add_middleware(FailingWrites, failures=failures)
    people = random.Random(seed)
    options: Json = {"slack": slack, "change": tireless, "latency_s": 0.2}
    async with serve(folder, scripted_parent(echo), **options) as bot:
        day = Day(slack, people)
        for number in range(requests):
            user, word = people.choice(PEOPLE), f"w{number}w"
            direct = people.random() < 0.2
            channel = slack.people.dm(user) if direct else people.choice(PLACES)
            day._ask(user, channel, word if direct else mention(word), word)
            await asyncio.sleep(people.uniform(0, 0.3))
        await all_answered(bot, day.questions, 150)
        failures.odds = 0.0
    return failures


@pytest.mark.parametrize(
    ("requests", "seed", "odds", "at_least"),
    [
        (10, 3, 0.25, 5),
        pytest.param(10, 4, 0.25, 5, marks=pytest.mark.slow),
        pytest.param(70, 5, 0.3, 100, marks=pytest.mark.slow),
    ],
)
async def test_each_request_gets_one_answer_despite_random_write_failures(
    requests: int, seed: int, odds: float, at_least: int, tmp_path: Path
) -> None:
    failures = await serve_with_write_failures(tmp_path, requests, seed, odds)
    assert failures.happened.total() >= at_least
    assert at_least < 100 or {name.partition(" ")[2] for name in failures.happened} == set(KINDS)
    print(dict(failures.happened))
