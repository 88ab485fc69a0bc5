"""Gmail fails while a triage reads, or the mailbox changes: no mail is lost, none is told twice."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count as numbers
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Done, Shell, configure, model_at, refused
from engine_kit import MUX, is_child, opening, until
from mail_kit import ME, judging, letters, mail, mbox
from serve_kit import ASKER, Served
from starlette.types import ASGIApp, Receive, Scope, Send
from test_inbox_triage import with_mail
from test_triage import threads

from bot.local.google import TOKEN, Fault, Grant, LocalGoogle
from bot.local.mbox import load_mbox
from bot.local.model import Answer, ModelServer
from bot.looked import UNCHANGED
from bot.triage import GONE

Json = dict[str, Any]

ATTEMPTS = 2
"""Of each call: as few as are more than one."""
REFUSALS = ("429", "quotaExceeded", "rateLimitExceeded", "500", "malformed", "drop")


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


@dataclass
class Meanwhile:
    """Somebody does something just before a mailbox is asked for something for the nth time."""

    app: ASGIApp
    part: str = ""
    """Of the address; empty = nothing is waited for."""
    nth: int = 1
    deed: Callable[[], object] = lambda: None
    seen: int = 0

    def before(self, part: str, deed: Callable[[], object], nth: int = 1) -> None:
        self.part, self.deed, self.nth, self.seen = part, deed, nth, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self.part and self.part in scope["path"]:
            self.seen += 1
            if self.seen == self.nth:
                self.deed()
        await self.app(scope, receive, send)


@dataclass
class Desk:
    """The command line of somebody whose mailbox is connected."""

    shell: Shell
    google: LocalGoogle
    meanwhile: Meanwhile
    model: ModelServer
    documents: list[Json] = field(default_factory=list)

    def typed(self, *more: object) -> Done:
        return self.shell("triage", "--json", *more)

    def triage(self, *more: object) -> Json:
        """The digest, in which each thread that was listed stands once."""
        done = self.typed(*more)
        assert done.code in (0, 1), done.err
        assert "Traceback" not in done.err
        document: Json = done.json
        assert len(threads(document)) == len(set(threads(document)))
        self.documents.append(document)
        return document

    def told(self) -> Counter[str]:
        """Subject -> in how many digests there was a verdict on it."""
        return Counter(v["subject"] for each in self.documents for v in each["verdicts"])

    def judged(self) -> Counter[str]:
        """What was judged by the model, and how often."""
        children = [opening(b) for b in self.model.recorded if is_child(b)]
        return Counter(text.partition("when will ")[2][:10] for text in children)


@contextmanager
def connected(
    shell: Shell, patch: pytest.MonkeyPatch, folder: Path, *mails: bytes, mind: Any = judging
) -> Iterator[Desk]:
    configure(
        f"google: {{max_attempts: {ATTEMPTS}, timeout_s: 5}}\ntriage: {{since_days: 36000}}\n"
    )
    google = LocalGoogle(load_mbox(mbox(folder / "m.mbox", *mails), ME))
    meanwhile = Meanwhile(google.app)
    with MUX.serving(meanwhile) as url, model_at(patch, mind) as model:
        patch.setenv("GMAIL_API_ENDPOINT", url)
        patch.setenv("GOOGLE_ACCESS_TOKEN", TOKEN)
        yield Desk(shell, google, meanwhile, model)


def subjects(count: int) -> Counter[str]:
    return Counter(f"Order {1000 + n}" for n in range(1, count + 1))


# ---- calls of Gmail that fail


@pytest.mark.parametrize("kind", REFUSALS)
@pytest.mark.parametrize("method", ["getProfile", "threads.list", "threads.get"])
def test_a_call_that_failed_for_now_costs_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str, kind: str
) -> None:
    with connected(shell, monkeypatch, tmp_path, *letters(3)) as desk:
        desk.google.faults.append(Fault(method, kind))
        assert desk.triage()["status"] == "complete"
        assert desk.google.faults == []
        assert desk.told() == subjects(3)
        assert desk.triage()["verdicts"] == []
        assert desk.model.requests == 4


@pytest.mark.parametrize("kind", [*REFUSALS, "forbidden", "dailyLimitExceeded"])
def test_threads_that_gmail_does_not_give_are_named_and_judged_the_next_time(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, kind: str
) -> None:
    with connected(shell, monkeypatch, tmp_path, *letters(5)) as desk:
        desk.google.faults.append(Fault("threads.get", kind, times=5 + 2))
        first = desk.triage()
        lost = {each["thread_id"] for each in first["unreadable"]}
        assert first["status"] != "complete"
        assert len(lost) >= 1
        assert len(first["verdicts"]) + len(lost) == 5
        assert all(each["reason"] for each in first["unreadable"])
        desk.google.faults.clear()
        second = desk.triage()
        assert {v["thread_id"] for v in second["verdicts"]} == lost
        assert desk.told() == subjects(5)
        assert set(desk.judged().values()) == {1}
        assert desk.triage()["verdicts"] == []


@pytest.mark.parametrize("kind", [*REFUSALS, "forbidden"])
@pytest.mark.parametrize("method", ["getProfile", "threads.list", "history.list"])
def test_a_mailbox_that_cannot_be_listed_is_said_in_one_sentence_and_loses_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, method: str, kind: str
) -> None:
    with connected(shell, monkeypatch, tmp_path, *letters(2)) as desk:
        if method == "history.list":
            desk.triage()
            desk.google.gmail.add(letters(3)[2], frozenset({"INBOX"}))
        desk.google.faults.append(Fault(method, kind, times=9))
        told = refused(desk.typed(), "gmail")
        assert "Google" in told or "Gmail" in told
        desk.google.faults.clear()
        desk.triage()
        assert sum(desk.told().values()) == len(desk.google.gmail.threads)
        assert set(desk.told().values()) == {1}


def test_access_that_is_withdrawn_in_the_midst_loses_nothing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with connected(shell, monkeypatch, tmp_path, *letters(24)) as desk:
        desk.meanwhile.before("/threads/", desk.google.tokens.clear, nth=9)
        first = desk.triage()
        lost = first["unreadable"]
        assert first["status"] == "partial"
        assert 0 < len(first["verdicts"]) < 24
        assert len(first["verdicts"]) + len(lost) == 24
        assert {each["reason"] for each in lost} == {lost[0]["reason"]}
        assert "Google" in lost[0]["reason"]
        assert "Google" in refused(desk.typed(), "gmail")
        desk.google.tokens[TOKEN] = Grant(ME)
        assert desk.triage()["status"] == "complete"
        assert desk.told() == subjects(24)
        assert set(desk.judged().values()) == {1}


@pytest.mark.parametrize("forgotten", [1, 2])
def test_too_old_a_history_is_made_up_for_by_a_listing(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, forgotten: int
) -> None:
    with connected(shell, monkeypatch, tmp_path, *letters(3)) as desk:
        desk.triage()
        for number in range(forgotten):
            desk.google.gmail.add(letters(5)[3 + number], frozenset({"INBOX"}))
            desk.google.gmail.forget_history()
        desk.triage()
        assert desk.told() == subjects(3 + forgotten)
        assert set(desk.judged().values()) == {1}
        assert desk.triage()["verdicts"] == []


@pytest.mark.parametrize("seed", range(6))
def test_whatever_fails_each_thread_is_told_once_in_the_end(
    shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, seed: int
) -> None:
    chance = random.Random(seed)
    methods = ("getProfile", "threads.list", "threads.get", "threads.get", "history.list", "*")
    arriving = iter(letters(24)[12:])
    with connected(shell, monkeypatch, tmp_path, *letters(12)) as desk:
        for _ in range(3):
            desk.google.faults += [
                Fault(chance.choice(methods), chance.choice(REFUSALS), times=chance.randint(1, 3))
                for _ in range(chance.randint(1, 4))
            ]
            if chance.random() < 0.3:
                desk.google.gmail.forget_history()
            done = desk.typed()
            if done.code == 2:
                refused(done, "gmail")
            else:
                desk.documents.append(done.json)
            for _ in range(chance.randint(0, 3)):
                desk.google.gmail.add(next(arriving), frozenset({"INBOX"}))
            desk.google.faults.clear()
        desk.triage()
        assert desk.told() == subjects(len(desk.google.gmail.threads))
        assert set(desk.judged().values()) == {1}
