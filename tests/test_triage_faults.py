"""Gmail fails during a triage, or the mailbox changes: no mail is lost or reported twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Done, Shell, configure, model_at, refusal_text
from engine_kit import MUX, is_child, opening, until
from mail_kit import ME, judging_model, letters, mail, mbox
from serve_kit import ASKER, Served
from standins.google import TOKEN, Grant, LocalGoogle, forget_history, remove_message
from standins.google_faults import Fault
from standins.model import ModelServer
from starlette.types import ASGIApp, Receive, Scope, Send
from test_inbox_triage import with_mail
from test_triage import threads

from bot.local.google.mbox import load_mbox
from bot.local.model.answer import Answer
from bot.tasks.triage import AT_ONCE, GONE
from config.words import phrase

Json = dict[str, Any]

INBOX = frozenset({"INBOX"})
ATTEMPTS = 2
"""Attempts of each call of Gmail."""
REFUSALS = ("429", "quotaExceeded", "rateLimitExceeded", "500", "malformed", "drop")
Connect = Callable[..., AbstractContextManager["MailShell"]]


@dataclass
class Interceptor:
    """Wraps a mailbox; performs an action before the nth request for a part of it."""

    app: ASGIApp
    part: str = ""
    """Part of the path of the request; empty = no action."""
    nth: int = 1
    action: Callable[[], object] = lambda: None
    seen: int = 0

    def before(self, part: str, action: Callable[[], object], nth: int = 1) -> None:
        self.part, self.action, self.nth, self.seen = part, action, nth, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.part and self.part in scope["path"]:
            self.seen += 1
            if self.seen == self.nth:
                self.action()
        await self.app(scope, receive, send)


@dataclass
class MailShell:
    """The command line of a user with a connected mailbox."""

    shell: Shell
    google: LocalGoogle
    interceptor: Interceptor
    model: ModelServer
    documents: list[Json] = field(default_factory=list)

    def run_triage(self, *more: object) -> Done:
        return self.shell("triage", "--json", *more)

    def triage(self, *more: object) -> Json:
        """Run a triage; return its digest, which contains each thread once."""
        result = self.run_triage(*more)
        assert result.code in (0, 1), result.err
        assert "Traceback" not in result.err
        document: Json = result.json
        assert len(threads(document)) == len(set(threads(document)))
        self.documents.append(document)
        return document

    def verdict_counts(self) -> Counter[str]:
        """Return the number of digests with a verdict, by subject."""
        return Counter(v["subject"] for each in self.documents for v in each["verdicts"])

    def judgement_counts(self) -> Counter[str]:
        """Return how often the model judged each order."""
        children = [opening(b) for b in self.model.recorded if is_child(b)]
        return Counter(text.partition("when will ")[2][:10] for text in children)


@contextmanager
def connected_shell(
    shell: Shell, patch: pytest.MonkeyPatch, folder: Path, *mails: bytes, model: Any = judging_model
) -> Iterator[MailShell]:
    configure(
        f"google: {{max_attempts: {ATTEMPTS}, timeout_s: 30}}\ntriage: {{since_days: 36000}}\n"
    )
    google = LocalGoogle(load_mbox(mbox(folder / "m.mbox", *mails), ME))
    interceptor = Interceptor(google.app)
    with MUX.served_app(interceptor) as url, model_at(patch, model) as server:
        patch.setenv("GMAIL_API_ENDPOINT", url)
        patch.setenv("GOOGLE_ACCESS_TOKEN", TOKEN)
        yield MailShell(shell, google, interceptor, server)


@pytest.fixture
def connect(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Connect:
    return partial(connected_shell, shell, monkeypatch, tmp_path)


def subjects(count: int) -> Counter[str]:
    return Counter(f"Order {1000 + n}" for n in range(1, count + 1))


# ---- calls of Gmail that fail


@pytest.mark.parametrize("kind", ["500", "dailyLimitExceeded"])
def test_unreadable_threads_are_named_and_judged_by_the_next_triage(
    connect: Connect, kind: str
) -> None:
    with connect(*letters(5)) as cli:
        cli.google.faults.append(Fault("threads.get", kind, times=5 + 2))
        first = cli.triage()
        lost = {each["thread_id"] for each in first["unreadable"]}
        assert first["status"] != "complete"
        assert len(lost) >= 1
        assert len(first["verdicts"]) + len(lost) == 5
        cli.google.faults.clear()
        second = cli.triage()
        assert {v["thread_id"] for v in second["verdicts"]} == lost
        assert cli.verdict_counts() == subjects(5)
        assert set(cli.judgement_counts().values()) == {1}


def test_failed_mailbox_listing_is_reported_and_loses_no_thread(connect: Connect) -> None:
    with connect(*letters(2)) as cli:
        for method, number in (("threads.list", 3), ("history.list", 4)):
            cli.google.gmail.add(letters(number)[-1], INBOX)
            cli.google.faults.append(Fault(method, "500", times=9))
            assert "Google" in refusal_text(cli.run_triage(), "gmail")
            cli.google.faults.clear()
            cli.triage()
        assert cli.verdict_counts() == subjects(4)


def test_access_revoked_during_a_triage_loses_no_thread(connect: Connect) -> None:
    with connect(*letters(12)) as cli:
        cli.interceptor.before("/threads/", cli.google.tokens.clear, nth=6)
        first = cli.triage()
        lost = first["unreadable"]
        assert first["status"] == "partial"
        assert 0 < len(first["verdicts"]) < 12
        assert len(first["verdicts"]) + len(lost) == 12
        assert {each["reason"] for each in lost} == {lost[0]["reason"]}
        assert "Google" in lost[0]["reason"]
        assert "Google" in refusal_text(cli.run_triage(), "gmail")
        cli.google.tokens[TOKEN] = Grant(ME)
        assert cli.triage()["status"] == "complete"
        assert cli.verdict_counts() == subjects(12)
        assert set(cli.judgement_counts().values()) == {1}


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 6))]
)
def test_each_thread_gets_exactly_one_verdict_after_any_gmail_failures(
    connect: Connect, seed: int
) -> None:
    rng = random.Random(seed)
    methods = ("getProfile", "threads.list", "threads.get", "threads.get", "history.list", "*")
    arrivals = iter(letters(24)[12:])
    with connect(*letters(12)) as cli:
        for _ in range(3):
            cli.google.faults += [
                Fault(rng.choice(methods), rng.choice(REFUSALS), times=rng.randint(1, 3))
                for _ in range(rng.randint(1, 4))
            ]
            if rng.random() < 0.3:
                forget_history(cli.google.gmail)
            result = cli.run_triage()
            if result.code == 2:
                refusal_text(result, "gmail")
            else:
                cli.documents.append(result.json)
            for _ in range(rng.randint(0, 3)):
                cli.google.gmail.add(next(arrivals), INBOX)
            cli.google.faults.clear()
        cli.triage()
        assert cli.verdict_counts() == subjects(len(cli.google.gmail.threads))
        assert set(cli.judgement_counts().values()) == {1}


# ---- changes of the mailbox during a triage


def test_thread_deleted_during_a_triage_is_reported_only_once(connect: Connect) -> None:
    with connect(mail(9, "Isn't it late?"), *letters(2)) as cli:
        gmail = cli.google.gmail
        (deleted, (only,)), *_ = gmail.threads.items()
        cli.interceptor.before(f"/threads/{deleted}", lambda: remove_message(gmail, only))
        first = cli.triage()
        lost = {"thread_id": deleted, "subject": "Isn't it late?", "reason": phrase(GONE)}
        assert first["unreadable"] == [lost]
        assert len(first["verdicts"]) == 2
        assert threads(cli.triage()) == []


def test_mail_arriving_after_its_thread_was_read_is_judged_by_the_next_triage(
    connect: Connect,
) -> None:
    arrivals: list[Callable[[], object]] = []

    def model(body: Json) -> Answer:
        if arrivals and is_child(body):  # its thread is read by now
            arrivals.pop()()
        return judging_model(body)

    with connect(*letters(2), model=model) as cli:
        gmail = cli.google.gmail
        id = next(iter(gmail.threads))
        new, reply = letters(3)[2], mail(60, "Any news of it?", reply_to="1")
        arrivals.append(lambda: (gmail.add(new, INBOX), gmail.add(reply, INBOX, thread=id)))
        assert len(cli.triage()["verdicts"]) == 2
        second = {v["subject"]: v["messages"] for v in cli.triage()["verdicts"]}
        assert second == {"Order 1003": 1, "Order 1001": 2}
        assert cli.triage()["verdicts"] == []


# ---- in Slack


async def ask_for_triage(bot: Served, text: str = "triage my inbox") -> Json:
    """Ask for a triage in a direct message; return its document."""
    channel = bot.slack.people.dm(ASKER)
    await bot.answers(bot.slack.people.say(ASKER, channel, text), channel=channel)
    result = dict((await bot.store.runs(1))[0].result or {})
    if "verdicts" in result:
        assert len(threads(result)) == len(set(threads(result)))
    return result


async def test_threads_left_by_a_stopped_triage_are_judged_by_the_next(tmp_path: Path) -> None:
    async with with_mail(tmp_path, *letters(12), latency_s=0.2, limits={"max_concurrency": 2}) as (
        bot,
        _,
    ):
        channel = bot.slack.people.dm(ASKER)
        ts = bot.slack.people.say(ASKER, channel, "triage my inbox")
        await until(lambda: sum(map(is_child, list(bot.model.recorded))) >= 5)
        bot.slack.people.stop(ASKER, channel, ts)
        await bot.answers(ts, channel=channel)
        first = (await bot.store.runs(1))[0].result
        assert first
        assert first["status"] == "cancelled"
        judged = {v["subject"] for v in first["verdicts"]}
        assert 0 < len(judged) < 12
        second = await ask_for_triage(bot, "triage my inbox again")
        assert second["status"] == "complete"
        assert {v["subject"] for v in second["verdicts"]} == set(subjects(12)) - judged
        assert (await ask_for_triage(bot, "triage my inbox a third time"))["verdicts"] == []


# ---- the number of calls


def test_limited_triage_fetches_no_more_than_one_batch(connect: Connect) -> None:
    with connect(*letters(AT_ONCE + 4)) as cli:
        document = cli.triage("--limit", 5)
        calls = [each.method.removeprefix("gmail.users.") for each in cli.google.requests]
    assert len(document["verdicts"]) == 5
    assert calls.count("threads.get") == AT_ONCE
    assert calls.count("threads.list") == 1
    assert calls.count("getProfile") == 2, "the address, and the current history id"
