"""A bot that dies while it triages: after the restart no thread is judged twice, one digest stands,
and what its buttons do is done once."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from engine_kit import MUX, is_child, opening, until
from fleet_kit import Fleet, fleet
from mail_kit import ME, judging_model, letters, mbox
from pg_kit import store_place
from serve_kit import ASKER
from standins.connections import drop_connection, read_ahead
from standins.google import TOKEN, LocalGoogle
from standins.google_oauth import CLIENT_ID, CLIENT_SECRET, LocalGoogleOauth
from standins.slack_shown import Shown
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from timing import Patience

from bot.local.google.mbox import load_mbox
from bot.local.slack.server import API_PATH
from bot.local.slack.state import BOT_USER
from bot.mailbox.accounts import Credentials
from bot.mailbox.actions import GIVEN_UP_AFTER
from bot.reports.digest_actions import DRAFT, LABEL
from bot.runs.store import Store
from bot.storage.requests import RequestQueue
from bot.storage.tables import StoredRun, mail_acts
from scopes.google.auth import MailboxTokens
from subagents.overlap import audit

pytestmark = pytest.mark.system

Json = dict[str, Any]

AT_ONCE = 4
"""Subagents at work together: so many calls of the model are under way at a kill."""
ORDER = re.compile(r"order (\d+)")


@dataclass
class Dam:
    """An app behind which requests of one kind can be held back, until whoever made them is dead.

    What was held is dropped then: the app behind it never saw it, or its answer reached nobody.
    """

    app: ASGIApp
    wanted: Callable[[str, str, bytes], bool] = lambda http, path, body: False
    passes: int = 0
    """Requests of the kind that get through."""
    effective: bool = False
    """The app sees what is held, and its answer alone is held back."""
    passed: int = 0
    held: int = 0
    lives: int = 0

    def hold(
        self, wanted: Callable[[str, str, bytes], bool], passes: int = 0, *, effective: bool = False
    ) -> None:
        """From now on; `wanted` looks at the method, the path and the body of a request."""
        self.wanted, self.passes, self.effective = wanted, passes, effective
        self.passed = self.held = 0

    def burst(self) -> None:
        """Drop what is held, and hold nothing more."""
        self.wanted, self.lives = (lambda http, path, body: False), self.lives + 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, replay = await read_ahead(receive)
        if not self.wanted(scope["method"], scope["path"], body):
            await self.app(scope, replay, send)
        elif self.passed < self.passes:
            self.passed += 1
            await self.app(scope, replay, send)
        else:
            await self._hold_request(scope, replay)

    async def _hold_request(self, scope: Scope, receive: Receive) -> None:
        life = self.lives
        if self.effective:
            await self.app(scope, receive, _to_nobody)
        self.held += 1
        while life == self.lives:  # noqa: ASYNC110 - set from another thread
            await asyncio.sleep(0.01)
        await drop_connection(scope)


async def _to_nobody(message: Message) -> None:
    """An answer that is not sent on."""


def a_child(http: str, path: str, body: bytes) -> bool:
    return path.endswith("/messages") and b'"submit_result"' in body


def the_lines(http: str, path: str, body: bytes) -> bool:
    return path.endswith("/messages") and b"WRITE: digest lines" in body


def a_read(http: str, path: str, body: bytes) -> bool:
    return http == "GET" and "/threads/" in path


def the_last_part(http: str, path: str, body: bytes) -> bool:
    return "/chat." in path and b"feedback_buttons" in body


@dataclass
class Office:
    """A bot as processes of their own, somebody's mailbox, and what stands between them."""

    bots: Fleet
    google: LocalGoogle
    store: Store
    mail: Dam
    model: Dam
    slack: Dam
    count: int
    """Threads in the mailbox."""
    channel: str = field(init=False)

    def __post_init__(self) -> None:
        self.channel = self.bots.slack.people.dm(ASKER)

    def ask(self, text: str = "triage my inbox") -> str:
        return self.bots.slack.people.say(ASKER, self.channel, text)

    def bot_messages(self, thread: str) -> list[Shown]:
        return [m for m in self.bots.slack.visible(self.channel, thread) if m.user == BOT_USER]

    async def kill_and_restart(self) -> None:
        """The process ends as by a power cut, and what it had asked for is heard no more."""
        self.bots.bots[-1].kill()
        self.bots.balancer.targets.clear()
        for dam in (self.mail, self.model, self.slack):
            dam.burst()
        await self.bots.start_bots()

    async def run(self, number: int = 0) -> StoredRun:
        """The latest run, or the one so many before it."""
        return (await self.store.runs(number + 1))[number]

    async def done(self, thread: str, seconds: float = 60.0) -> StoredRun:
        """The run of a request, once it is answered and nothing is at work any more."""

        inbox, patience = RequestQueue(self.store.database), Patience(seconds)
        while await inbox.at_work() or not any(m.metadata for m in self.bot_messages(thread)):
            said = self.bots.bots[-1].log.read_text("utf-8")[-4_000:]
            assert not patience.over, f"{self.bot_messages(thread)}\n{said}"
            await asyncio.sleep(0.05)
        return await self.run()

    async def complete(self) -> int:
        """Subagents whose results are stored."""
        runs = await self.store.runs(1)
        found = await self.store.subagents(runs[0].id) if runs else []
        return sum(each.status == "complete" for each in found)

    def judgement_counts(self) -> Counter[str]:
        """Thread -> how often a model judged it."""
        children = [opening(b) for b in self.bots.model.recorded if is_child(b)]
        return Counter(found[1] for text in children if (found := ORDER.search(text)))

    def fetch_counts(self) -> Counter[str]:
        made = [m for m in self.google.requests if m.method == "gmail.users.threads.get"]
        return Counter(m.path["id"] for m in made if m.status == 200)


@asynccontextmanager
async def office(folder: Path, kind: str, count: int) -> AsyncIterator[Office]:
    """No process yet. The requester has connected a mailbox of so many threads."""
    google = LocalGoogle(load_mbox(mbox(folder / "m.mbox", *letters(count)), ME))
    sections: Json = {
        "google": {"client_id": CLIENT_ID, "max_attempts": 2},
        "triage": {"since_days": 36_000},
        "limits": {"max_concurrency": AT_ONCE, "cost_usd": 50.0},
    }
    with ExitStack() as stack:
        serving = stack.enter_context
        place = serving(store_place(kind, folder))
        bots = serving(fleet(folder, judging_model, url=place.url, **sections))
        dams = Dam(google.app), Dam(bots.model.app), Dam(bots.slack.app)
        mail, model, slack = (serving(MUX.served_app(dam)) for dam in dams)
        bots.env |= {
            "GMAIL_API_ENDPOINT": mail,
            "GOOGLE_OAUTH_ENDPOINT": serving(MUX.served_app(LocalGoogleOauth().app)),
            "GOOGLE_CLIENT_SECRET": CLIENT_SECRET,
            "ANTHROPIC_BASE_URL": model,
            "SLACK_API_URL": slack + API_PATH,
        }
        store = await Store.open(folder / "data", place.url)
        try:
            tokens = {"access_token": TOKEN, "refresh_token": "1//refresh", "address": ME}
            mine = MailboxTokens.model_validate(tokens)
            await Credentials(store.database).put(ASKER, mine)
            yield Office(bots, google, store, *dams, count)
        finally:
            await store.aclose()


async def holds(dam: Dam, seconds: float = 30.0) -> None:
    await until(lambda: dam.held, seconds)


async def in_the_reading(at: Office) -> None:
    at.mail.hold(a_read, at.count // 2)
    at.ask()
    await holds(at.mail)


async def in_the_fan_out(at: Office) -> None:
    """All that was answered is stored; all else that was asked is under way."""
    paid = at.count // 2
    at.model.hold(a_child, paid)
    at.ask()
    await holds(at.model)
    patience = Patience(30)
    while await at.complete() < paid:
        assert not patience.over
        await asyncio.sleep(0.02)
    assert at.model.held <= AT_ONCE


async def before_the_first_lines(at: Office) -> None:
    at.model.hold(the_lines)
    at.ask()
    await holds(at.model)
    assert await at.complete() == at.count


async def with_the_digest_written(at: Office) -> None:
    """Slack has all of it, and the process has not heard so."""
    at.slack.hold(the_last_part, effective=True)
    at.ask()
    await holds(at.slack)


MOMENTS = (in_the_reading, in_the_fan_out, before_the_first_lines, with_the_digest_written)
LONG = pytest.mark.slow
SHORT = {"sqlite": (in_the_reading, with_the_digest_written), "postgres": (in_the_fan_out,)}
KILLS = [
    pytest.param(
        *(kind, moment, count),
        marks=() if count < 50 and moment in SHORT[kind] else LONG,
        id=f"{kind}, {moment.__name__}, {count}",
    )
    for kind in SHORT
    for moment in MOMENTS
    for count in (34, 50)
]


def assert_one_digest(at: Office, thread: str) -> None:
    """One digest, in one message or in several parts, each of them once."""
    shown = at.bot_messages(thread)
    texts = [m.text for m in shown]
    assert len(texts) == len(set(texts)), texts
    assert sum(text.startswith("Mail triage for ") for text in texts) == 1, texts
    assert sum("feedback_buttons" in str(m.blocks) for m in shown) == 1
    assert not any(m.streaming for m in shown)


@pytest.mark.parametrize(("kind", "moment", "count"), KILLS)
async def test_killed_triage_judges_each_thread_once_and_posts_one_digest(
    tmp_path: Path, kind: str, moment: Callable[[Office], Any], count: int
) -> None:
    async with office(tmp_path, kind, count) as at:
        await at.bots.start_bots()
        await moment(at)
        (thread,) = [m.ts for m in at.bots.slack.visible(at.channel) if m.user == ASKER]
        await at.kill_and_restart()
        run = await at.done(thread)

        assert_one_digest(at, thread)
        assert run.result
        assert run.status == run.result["status"] == "complete"
        verdicts = [v["thread_id"] for v in run.result["verdicts"]]
        assert len(verdicts) == len(set(verdicts)) == count
        assert sorted(at.judgement_counts().values()) == [1] * count
        assert sum(not is_child(body) for body in at.bots.model.recorded) == 3
        assert len(await at.store.subagents(run.id)) == count
        assert max(at.fetch_counts().values()) <= (2 if moment is in_the_reading else 1)
        assert audit(await at.store.trajectory(run.id)).leaks == ()
        assert not [line for bot in at.bots.bots for line in bot.tracebacks()]

        again = at.ask("triage my inbox once more")
        after = await at.done(again)
        assert after.result
        assert after.result["verdicts"] == []
        assert sorted(at.judgement_counts().values()) == [1] * count


# ---- the buttons


def makes_a_draft(http: str, path: str, body: bytes) -> bool:
    return http == "POST" and path.endswith("/drafts")


def labels_a_thread(http: str, path: str, body: bytes) -> bool:
    return path.endswith("/modify")


CLICKS = ((DRAFT, makes_a_draft), (LABEL, labels_a_thread))


def button(at: Office, thread: str, action: str, verdict: Json, run: StoredRun) -> bool:
    """Press it where it still stands; whether it did."""
    standing = _messages_with_button(at, thread, action, verdict, run)
    for ts in standing:
        carried = f"{run.id}/{verdict['thread_id']}"
        at.bots.slack.people.click(ASKER, at.channel, ts, action, carried)
    return bool(standing)


def _messages_with_button(
    at: Office, thread: str, action: str, verdict: Json, run: StoredRun
) -> list[str]:
    """The messages that have this button."""
    row = f"{run.id}/{verdict['thread_id']}"
    buttons = [
        (message.ts, element)
        for message in at.bot_messages(thread)
        for block in message.blocks
        if block.get("block_id") == row
        for element in block["elements"]
    ]
    return [ts for ts, element in buttons if element["action_id"] == action]


async def press_button(at: Office, thread: str, action: str, verdict: Json, run: StoredRun) -> None:
    """Press a button, and see it go."""
    assert button(at, thread, action, verdict, run)
    await until(lambda: not _messages_with_button(at, thread, action, verdict, run), 20)


def done_to(at: Office, verdict: Json) -> tuple[int, int]:
    """Drafts in a thread, and whether its mail has the label of its category."""
    gmail = at.google.gmail
    with gmail.lock:
        label, (mail, *rest) = (
            gmail.label(verdict["category"]),
            gmail.of_thread(verdict["thread_id"]),
        )
        return sum("DRAFT" in m.labels for m in rest), int(label in mail.labels)


@pytest.mark.parametrize(
    ("kind", "effective"),
    [
        pytest.param("sqlite", False, id="sqlite, not done"),
        pytest.param("postgres", True, id="postgres, done, unheard of"),
        pytest.param("sqlite", True, id="sqlite, done, unheard of", marks=LONG),
        pytest.param("postgres", False, id="postgres, not done", marks=LONG),
    ],
)
async def test_click_interrupted_by_a_kill_takes_effect_once_when_repeated(
    tmp_path: Path, kind: str, effective: bool
) -> None:
    async with office(tmp_path, kind, 2) as at:
        await at.bots.start_bots()
        thread = at.ask()
        run = await at.done(thread)
        assert run.result
        before, cut = run.result["verdicts"]
        for action, _ in CLICKS:
            await press_button(at, thread, action, before, run)
        assert done_to(at, before) == (1, 1)
        for action, call in CLICKS:
            at.mail.hold(call, effective=effective)
            assert button(at, thread, action, cut, run)
            await holds(at.mail)
            await at.kill_and_restart()
            await _long_after(at)
            await press_button(at, thread, action, cut, run)
            assert not button(at, thread, action, before, run), "what was done has no button"
        assert done_to(at, before) == done_to(at, cut) == (1, 1)
        assert len(at.google.gmail.drafts) == 2
        assert at.google.gmail.sent == []
        names = list(at.google.gmail.labels.values())
        assert len(names) == len(set(names))
        assert not [line for bot in at.bots.bots for line in bot.tracebacks()]


async def _long_after(at: Office) -> None:
    """Whoever began an act and never ended it is taken for dead by now."""
    long_ago = datetime.now(UTC) - 2 * GIVEN_UP_AFTER
    began = sa.update(mail_acts).where(mail_acts.c.outcome.is_(None)).values(at=long_ago)
    assert await at.store.database.write(began) == 1
