"""A bot killed during a triage: after the restart each thread is judged once, there is one digest,
and each button acts once."""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
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
from bot.reports.digest_actions import DRAFT, LABEL
from bot.runs.store import Store
from bot.storage.requests import RequestQueue
from bot.storage.tables import StoredRun
from scopes.google.auth import MailboxTokens
from subagents.overlap import audit

pytestmark = pytest.mark.system

Json = dict[str, Any]

AT_ONCE = 4
"""Concurrent subagents: the number of model calls under way at a kill."""
ORDER = re.compile(r"order (\d+)")


@dataclass(frozen=True)
class Kind:
    """A kind of request: parts of its path and of its body, and its method; empty = any."""

    path: str
    body: bytes = b""
    method: str = ""

    def matches(self, scope: Scope, body: bytes) -> bool:
        is_method = self.method in ("", scope["method"])
        return is_method and self.path in scope["path"] and self.body in body


CHILD_CALL = Kind("/messages", b'"submit_result"')
SUMMARY_CALL = Kind("/messages", b"WRITE: digest lines")
THREAD_READ = Kind("/threads/", method="GET")
LAST_PART = Kind("/chat.", b"feedback_buttons")
CLICKS = ((DRAFT, Kind("/drafts", method="POST")), (LABEL, Kind("/modify")))
"""The buttons, and the requests that they make."""


@dataclass
class Barrier:
    """Wraps an app and holds back requests of one kind until their sender is dead.

    They are dropped then: the app never sees them, or nobody gets its answer.
    """

    app: ASGIApp
    kind: Kind | None = None
    passes: int = 0
    """Requests of the kind that pass before one is held."""
    effective: bool = False
    """The app handles a held request; only its answer is held back."""
    passed: int = 0
    held: int = 0
    drops: int = 0

    def hold(self, kind: Kind, passes: int = 0, *, effective: bool = False) -> None:
        """Start to hold the requests of a kind, after so many that pass."""
        self.kind, self.passes, self.effective = kind, passes, effective
        self.passed = self.held = 0

    def drop_held(self) -> None:
        """Drop what is held, and hold nothing more."""
        self.kind, self.drops = None, self.drops + 1

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        body, replay = await read_ahead(receive)
        if self.kind is None or not self.kind.matches(scope, body):
            await self.app(scope, replay, send)
        elif self.passed < self.passes:
            self.passed += 1
            await self.app(scope, replay, send)
        else:
            await self._hold_request(scope, replay)

    async def _hold_request(self, scope: Scope, receive: Receive) -> None:
        drops = self.drops
        if self.effective:
            await self.app(scope, receive, _discard)
        self.held += 1
        while drops == self.drops:  # noqa: ASYNC110 - set from another thread
            await asyncio.sleep(0.01)
        await drop_connection(scope)


async def _discard(message: Message) -> None:
    """Discard a message of an answer."""


@dataclass
class TriageSystem:
    """A bot in its own processes, a mailbox, and the barriers between them."""

    bots: Fleet
    google: LocalGoogle
    store: Store
    mail: Barrier
    model: Barrier
    slack: Barrier
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
        """Kill the process, drop the requests that it had under way, and start another."""
        self.bots.bots[-1].kill()
        self.bots.balancer.targets.clear()
        for barrier in (self.mail, self.model, self.slack):
            barrier.drop_held()
        await self.bots.start_bots()

    async def wait_for_run(self, thread: str, seconds: float = 60.0) -> StoredRun:
        """Wait until the request is answered and no work is left; return its run."""
        inbox, patience = RequestQueue(self.store.database), Patience(seconds)
        while await inbox.at_work() or not any(m.metadata for m in self.bot_messages(thread)):
            log = self.bots.bots[-1].log.read_text("utf-8")[-4_000:]
            assert not patience.over, f"{self.bot_messages(thread)}\n{log}"
            await asyncio.sleep(0.05)
        return (await self.store.runs(1))[0]

    async def count_complete(self) -> int:
        """Return the number of subagents with stored results."""
        runs = await self.store.runs(1)
        found = await self.store.subagents(runs[0].id) if runs else []
        return sum(each.status == "complete" for each in found)

    def judgement_counts(self) -> Counter[str]:
        """Return how often the model judged each order."""
        children = [opening(b) for b in self.bots.model.recorded if is_child(b)]
        return Counter(found[1] for text in children if (found := ORDER.search(text)))

    def fetch_counts(self) -> Counter[str]:
        fetches = [m for m in self.google.requests if m.method == "gmail.users.threads.get"]
        return Counter(m.path["id"] for m in fetches if m.status == 200)

    def tracebacks(self) -> list[Json]:
        return [line for bot in self.bots.bots for line in bot.tracebacks()]


@asynccontextmanager
async def triage_system(folder: Path, kind: str, count: int) -> AsyncIterator[TriageSystem]:
    """Without a process yet. The requester has connected a mailbox of `count` threads."""
    google = LocalGoogle(load_mbox(mbox(folder / "m.mbox", *letters(count)), ME))
    sections: Json = {
        "google": {"client_id": CLIENT_ID, "max_attempts": 2},
        "triage": {"since_days": 36_000},
        "limits": {"max_concurrency": AT_ONCE, "cost_usd": 50.0},
    }
    with ExitStack() as stack:
        enter = stack.enter_context
        place = enter(store_place(kind, folder))
        bots = enter(fleet(folder, judging_model, url=place.url, **sections))
        barriers = Barrier(google.app), Barrier(bots.model.app), Barrier(bots.slack.app)
        mail, model, slack = (enter(MUX.served_app(barrier)) for barrier in barriers)
        bots.env |= {
            "GMAIL_API_ENDPOINT": mail,
            "GOOGLE_OAUTH_ENDPOINT": enter(MUX.served_app(LocalGoogleOauth().app)),
            "GOOGLE_CLIENT_SECRET": CLIENT_SECRET,
            "ANTHROPIC_BASE_URL": model,
            "SLACK_API_URL": slack + API_PATH,
        }
        store = await Store.open(folder / "data", place.url)
        try:
            fields = {"access_token": TOKEN, "refresh_token": "1//refresh", "address": ME}
            tokens = MailboxTokens.model_validate(fields)
            await Credentials(store.database).put(ASKER, tokens)
            yield TriageSystem(bots, google, store, *barriers, count)
        finally:
            await store.aclose()


async def wait_until_held(barrier: Barrier) -> None:
    await until(lambda: barrier.held, 30)


async def in_the_reading(system: TriageSystem) -> None:
    system.mail.hold(THREAD_READ, system.count // 2)
    system.ask()
    await wait_until_held(system.mail)


async def in_the_fan_out(system: TriageSystem) -> None:
    """Each answered subagent is stored; the calls of all others are under way."""
    paid = system.count // 2
    system.model.hold(CHILD_CALL, paid)
    system.ask()
    await wait_until_held(system.model)
    patience = Patience(30)
    while await system.count_complete() < paid:
        assert not patience.over
        await asyncio.sleep(0.02)
    assert system.model.held <= AT_ONCE


async def before_the_first_lines(system: TriageSystem) -> None:
    system.model.hold(SUMMARY_CALL)
    system.ask()
    await wait_until_held(system.model)
    assert await system.count_complete() == system.count


async def with_the_digest_written(system: TriageSystem) -> None:
    """Slack has the whole digest, but the process got no answer."""
    system.slack.hold(LAST_PART, effective=True)
    system.ask()
    await wait_until_held(system.slack)


LONG = pytest.mark.slow


def assert_one_digest(system: TriageSystem, thread: str) -> None:
    """Check that there is one digest, in one message or in parts, each of them once."""
    shown = system.bot_messages(thread)
    texts = [m.text for m in shown]
    assert len(texts) == len(set(texts)), texts
    assert sum(text.startswith("Mail triage for ") for text in texts) == 1, texts
    assert sum("feedback_buttons" in str(m.blocks) for m in shown) == 1
    assert not any(m.streaming for m in shown)


@pytest.mark.parametrize(
    ("kind", "moment"),
    [
        ("sqlite", in_the_reading),
        ("postgres", in_the_fan_out),
        pytest.param("sqlite", before_the_first_lines, marks=LONG),
        ("sqlite", with_the_digest_written),
        pytest.param("postgres", with_the_digest_written, marks=LONG),
    ],
)
async def test_killed_triage_judges_each_thread_once_and_posts_one_digest(
    tmp_path: Path, kind: str, moment: Callable[[TriageSystem], Any]
) -> None:
    count = 34
    async with triage_system(tmp_path, kind, count) as system:
        await system.bots.start_bots()
        await moment(system)
        (thread,) = [m.ts for m in system.bots.slack.visible(system.channel) if m.user == ASKER]
        await system.kill_and_restart()
        run = await system.wait_for_run(thread)

        assert_one_digest(system, thread)
        assert run.result
        assert run.status == run.result["status"] == "complete"
        verdicts = [v["thread_id"] for v in run.result["verdicts"]]
        assert len(verdicts) == len(set(verdicts)) == count
        assert sorted(system.judgement_counts().values()) == [1] * count
        assert sum(not is_child(body) for body in system.bots.model.recorded) == 3
        assert len(await system.store.subagents(run.id)) == count
        assert max(system.fetch_counts().values()) <= (2 if moment is in_the_reading else 1)
        assert audit(await system.store.trajectory(run.id)).leaks == ()
        assert system.tracebacks() == []

        after = await system.wait_for_run(system.ask("triage my inbox once more"))
        assert (after.result or {})["verdicts"] == []
        assert sorted(system.judgement_counts().values()) == [1] * count


# ---- the buttons


def messages_with_button(system: TriageSystem, thread: str, action: str, row: str) -> list[str]:
    """Return the timestamps of the messages that have this button in this row."""
    return [
        message.ts
        for message in system.bot_messages(thread)
        for block in message.blocks
        if block.get("block_id") == row
        if action in [element["action_id"] for element in block["elements"]]
    ]


def click_button(system: TriageSystem, thread: str, action: str, row: str) -> None:
    (ts,) = messages_with_button(system, thread, action, row)
    system.bots.slack.people.click(ASKER, system.channel, ts, action, row)


async def click_and_wait(system: TriageSystem, thread: str, action: str, row: str) -> None:
    """Click a button and wait until it is gone."""
    click_button(system, thread, action, row)
    await until(lambda: not messages_with_button(system, thread, action, row), 20)


def count_effects(system: TriageSystem, verdict: Json) -> tuple[int, int]:
    """Return the numbers of drafts in a thread and of category labels on its mail."""
    gmail = system.google.gmail
    with gmail.lock:
        label = gmail.label(verdict["category"])
        mail, *rest = gmail.of_thread(verdict["thread_id"])
        return sum("DRAFT" in m.labels for m in rest), int(label in mail.labels)


@pytest.mark.parametrize(
    ("kind", "effective"),
    [
        pytest.param("sqlite", False, id="not done"),
        pytest.param("postgres", True, id="done, unanswered"),
    ],
)
async def test_click_interrupted_by_a_kill_takes_effect_once_when_repeated(
    tmp_path: Path, kind: str, effective: bool
) -> None:
    async with triage_system(tmp_path, kind, 2) as system:
        await system.bots.start_bots()
        thread = system.ask()
        run = await system.wait_for_run(thread)
        verdicts = (run.result or {})["verdicts"]
        before, interrupted = (f"{run.id}/{each['thread_id']}" for each in verdicts)
        for action, request in CLICKS:
            await click_and_wait(system, thread, action, before)
            system.mail.hold(request, effective=effective)
            click_button(system, thread, action, interrupted)
            await wait_until_held(system.mail)
            await system.kill_and_restart()
            await click_and_wait(system, thread, action, interrupted)
            assert not messages_with_button(system, thread, action, before), "it is done"
        assert [count_effects(system, each) for each in verdicts] == [(1, 1)] * 2
        assert len(system.google.gmail.drafts) == 2
        assert system.google.gmail.sent == []
        names = list(system.google.gmail.labels.values())
        assert len(names) == len(set(names))
        assert system.tracebacks() == []
