"""Hours of lost sockets: each request gets exactly one answer."""

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
from serve_kit import Served, echo, mention, serve, with_sections
from standins.slack import LocalSlack
from standins.slack_shown import Shown
from timing import patient

from bot.local.slack.state import BOT_USER

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
TIRELESS = with_sections(
    policy={"user_daily_usd": None, "daily_usd": None},
    slack={"paced": False, "deaf_after_s": 1.0, "page_size": 20},
)
"""No budgets and no rate limits; a deaf socket is noticed within a second."""


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
    drops: int = 0

    def speak(self) -> None:
        """Post a random message of somebody; most ask the bot."""
        user, channel = self.chance.choice(PEOPLE), self.chance.choice(PLACES)
        word = f"w{len(self.questions)}w"
        threads = [each for each in self.questions if each.channel in PLACES]
        earlier = self.chance.choice(threads[-12:]) if threads else None
        match self.chance.choices(("mention", "follow_up", "direct", "aside"), (4, 3, 1, 2))[0]:
            case "mention":
                self._ask(user, channel, mention(word), word)
            case "direct":
                self._ask(user, self.slack.people.dm(user), word, word)
            case "follow_up" if earlier:
                self._ask(user, earlier.channel, f"and {word}?", word, earlier.thread)
            case _:  # a thread in which the bot was never asked
                root = self.slack.people.say(user, channel, "nothing for the bot")
                self.slack.people.say(user, channel, "a reply", root)

    def _ask(self, user: str, channel: str, text: str, word: str, thread: str = "") -> None:
        ts = self.slack.people.say(user, channel, text, thread or None)
        self.questions.append(Question(channel, ts, thread or ts, word))

    def cut(self) -> None:
        """Let the network fail in a random way."""
        self.drops += 1
        if self.chance.random() < 0.2:
            self.slack.sockets.refuse(self.chance.uniform(0.1, 0.8))
        self.slack.sockets.drop(self.chance.choice(ENDINGS), self.chance.choice((None, 0, 0, 1)))

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


async def assert_all_answered(bot: Served, questions: list[Question]) -> None:
    """Check that each question gets its answer, once, and that the bot writes nothing else."""
    wanted = {each.key for each in questions}
    async with patient(90):
        while not (wanted <= {key_of(m) for _, m in messages_of_bot(bot.slack)}):  # noqa: ASYNC110
            await asyncio.sleep(0.2)
    bot.bench.backfill.ask()  # a message that is read again is not answered again
    await bot.bench.backfill.idle()
    await bot.quiet()
    written = list(messages_of_bot(bot.slack))
    assert Counter(key_of(shown) for _, shown in written) == dict.fromkeys(wanted, 1)
    answers = {key_of(shown): (channel, shown) for channel, shown in written}
    for each in questions:
        channel, shown = answers[each.key]
        assert (channel, shown.thread_ts) == (each.channel, each.thread)
        assert each.word in shown.text, shown.text


@pytest.mark.parametrize(
    ("hours", "lives", "seed", "at_least"),
    [
        (2, 2, 1, 10),
        pytest.param(24, 3, 24, 150, marks=pytest.mark.slow),
    ],
)
async def test_dropped_sockets_lose_and_duplicate_no_request(
    hours: int, lives: int, seed: int, at_least: int, tmp_path: Path
) -> None:
    """People also write between the lives of the bot."""
    began = time.time()
    slack = LocalSlack(
        workspace(len(PLACES)),
        retries_s=(0.0, 0.3, 1.0),
        ack_s=0.5,
        now=lambda: began + (time.time() - began) * FASTER - hours * HOUR_S * 2 * FASTER,
    )
    slack.sockets.goodbye_s, slack.sockets.warning_s, slack.sockets.silent_s = 0.1, 0.5, 3.0
    day = Day(slack, random.Random(seed))
    options: Json = {"slack": slack, "change": TIRELESS, "reply": {"update_s": 0.5}}
    for _ in range(lives - 1):
        async with serve(tmp_path, scripted_parent(echo), **options):
            await day.live(hours * HOUR_S / lives)
        for _ in range(3):
            day.speak()
    async with serve(tmp_path, scripted_parent(echo), **options) as bot:
        await day.live(hours * HOUR_S / lives)
        await assert_all_answered(bot, day.questions)
    assert len(day.questions) >= at_least
    assert day.drops >= hours * 4
