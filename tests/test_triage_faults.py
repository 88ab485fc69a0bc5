"""Gmail fails while a triage reads, or the mailbox changes: no mail is lost, none is told twice."""

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
from standins.google_oauth import CLIENT_ID
from standins.model import ModelServer
from standins.slack_shown import Shown
from starlette.types import ASGIApp, Receive, Scope, Send
from test_inbox_triage import with_mail
from test_triage import threads

from bot.local.google.mbox import load_mbox
from bot.local.model.answer import Answer
from bot.reports.digest_actions import DRAFT, LABEL
from bot.tasks.triage import AT_ONCE, GONE, UNCHANGED
from config.words import phrase

Json = dict[str, Any]

ATTEMPTS = 2
"""Of each call: as few as are more than one."""
REFUSALS = ("429", "quotaExceeded", "rateLimitExceeded", "500", "malformed", "drop")


Connect = Callable[..., AbstractContextManager["Desk"]]


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

    def run_triage(self, *more: object) -> Done:
        return self.shell("triage", "--json", *more)

    def triage(self, *more: object) -> Json:
        """The digest, in which each thread that was listed stands once."""
        done = self.run_triage(*more)
        assert done.code in (0, 1), done.err
        assert "Traceback" not in done.err
        document: Json = done.json
        assert len(threads(document)) == len(set(threads(document)))
        self.documents.append(document)
        return document

    def verdict_counts(self) -> Counter[str]:
        """Subject -> in how many digests there was a verdict on it."""
        return Counter(v["subject"] for each in self.documents for v in each["verdicts"])

    def judgement_counts(self) -> Counter[str]:
        """What was judged by the model, and how often."""
        children = [opening(b) for b in self.model.recorded if is_child(b)]
        return Counter(text.partition("when will ")[2][:10] for text in children)


@contextmanager
def connected_desk(
    shell: Shell, patch: pytest.MonkeyPatch, folder: Path, *mails: bytes, mind: Any = judging_model
) -> Iterator[Desk]:
    configure(
        f"google: {{max_attempts: {ATTEMPTS}, timeout_s: 30}}\ntriage: {{since_days: 36000}}\n"
    )
    google = LocalGoogle(load_mbox(mbox(folder / "m.mbox", *mails), ME))
    meanwhile = Meanwhile(google.app)
    with MUX.served_app(meanwhile) as url, model_at(patch, mind) as model:
        patch.setenv("GMAIL_API_ENDPOINT", url)
        patch.setenv("GOOGLE_ACCESS_TOKEN", TOKEN)
        yield Desk(shell, google, meanwhile, model)


@pytest.fixture
def connect(shell: Shell, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Connect:
    return partial(connected_desk, shell, monkeypatch, tmp_path)


def subjects(count: int) -> Counter[str]:
    return Counter(f"Order {1000 + n}" for n in range(1, count + 1))


# ---- calls of Gmail that fail


def test_triage_completes_after_transient_gmail_failures(connect: Connect) -> None:
    with connect(*letters(3)) as desk:
        faults = (("getProfile", "429"), ("threads.list", "malformed"), ("threads.get", "drop"))
        desk.google.faults += [Fault(method, kind) for method, kind in faults]
        assert desk.triage()["status"] == "complete"
        assert desk.google.faults == []
        assert desk.verdict_counts() == subjects(3)
        assert desk.triage()["verdicts"] == []
        assert desk.model.requests == 4


@pytest.mark.parametrize("kind", ["429", "500", "dailyLimitExceeded"])
def test_unreadable_threads_are_named_and_judged_by_the_next_triage(
    connect: Connect, kind: str
) -> None:
    with connect(*letters(5)) as desk:
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
        assert desk.verdict_counts() == subjects(5)
        assert set(desk.judgement_counts().values()) == {1}
        assert desk.triage()["verdicts"] == []


@pytest.mark.parametrize(
    ("method", "kind"), [("threads.list", "500"), ("history.list", "forbidden")]
)
def test_failed_mailbox_listing_is_reported_and_loses_no_thread(
    connect: Connect, method: str, kind: str
) -> None:
    with connect(*letters(2)) as desk:
        if method == "history.list":
            desk.triage()
            desk.google.gmail.add(letters(3)[2], frozenset({"INBOX"}))
        desk.google.faults.append(Fault(method, kind, times=9))
        told = refusal_text(desk.run_triage(), "gmail")
        assert "Google" in told or "Gmail" in told
        desk.google.faults.clear()
        desk.triage()
        assert sum(desk.verdict_counts().values()) == len(desk.google.gmail.threads)
        assert set(desk.verdict_counts().values()) == {1}


def test_access_revoked_during_a_triage_loses_no_thread(connect: Connect) -> None:
    with connect(*letters(12)) as desk:
        desk.meanwhile.before("/threads/", desk.google.tokens.clear, nth=6)
        first = desk.triage()
        lost = first["unreadable"]
        assert first["status"] == "partial"
        assert 0 < len(first["verdicts"]) < 12
        assert len(first["verdicts"]) + len(lost) == 12
        assert {each["reason"] for each in lost} == {lost[0]["reason"]}
        assert "Google" in lost[0]["reason"]
        assert "Google" in refusal_text(desk.run_triage(), "gmail")
        desk.google.tokens[TOKEN] = Grant(ME)
        assert desk.triage()["status"] == "complete"
        assert desk.verdict_counts() == subjects(12)
        assert set(desk.judgement_counts().values()) == {1}


def test_expired_gmail_history_loses_and_repeats_no_thread(connect: Connect) -> None:
    with connect(*letters(3)) as desk:
        desk.triage()
        for number in range(2):
            desk.google.gmail.add(letters(5)[3 + number], frozenset({"INBOX"}))
            forget_history(desk.google.gmail)
        desk.triage()
        assert desk.verdict_counts() == subjects(5)
        assert set(desk.judgement_counts().values()) == {1}
        assert desk.triage()["verdicts"] == []


@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(n, marks=pytest.mark.slow) for n in range(1, 6))]
)
def test_each_thread_gets_exactly_one_verdict_after_any_gmail_failures(
    connect: Connect, seed: int
) -> None:
    chance = random.Random(seed)
    methods = ("getProfile", "threads.list", "threads.get", "threads.get", "history.list", "*")
    arriving = iter(letters(24)[12:])
    with connect(*letters(12)) as desk:
        for _ in range(3):
            desk.google.faults += [
                Fault(chance.choice(methods), chance.choice(REFUSALS), times=chance.randint(1, 3))
                for _ in range(chance.randint(1, 4))
            ]
            if chance.random() < 0.3:
                forget_history(desk.google.gmail)
            done = desk.run_triage()
            if done.code == 2:
                refusal_text(done, "gmail")
            else:
                desk.documents.append(done.json)
            for _ in range(chance.randint(0, 3)):
                desk.google.gmail.add(next(arriving), frozenset({"INBOX"}))
            desk.google.faults.clear()
        desk.triage()
        assert desk.verdict_counts() == subjects(len(desk.google.gmail.threads))
        assert set(desk.judgement_counts().values()) == {1}


# ---- a mailbox that changes meanwhile


def test_thread_deleted_during_a_triage_is_reported_only_once(connect: Connect) -> None:
    with connect(*letters(3)) as desk:
        gmail = desk.google.gmail
        (gone, (only,)), *_ = gmail.threads.items()
        desk.meanwhile.before(f"/threads/{gone}", lambda: remove_message(gmail, only))
        first = desk.triage()
        assert [(each["thread_id"], each["reason"]) for each in first["unreadable"]] == [
            (gone, phrase(GONE))
        ]
        assert len(first["verdicts"]) == 2
        assert threads(desk.triage()) == []


def test_mail_arriving_before_its_thread_is_read_is_judged_with_it_once(
    connect: Connect,
) -> None:
    with connect(*letters(3)) as desk:
        gmail = desk.google.gmail
        id = next(iter(gmail.threads))
        reply = mail(50, "Any news of it?", subject="Re: Order", reply_to="1")
        coming = (reply, frozenset({"INBOX"}))
        desk.meanwhile.before(f"/threads/{id}", lambda: gmail.add(*coming, thread=id))
        first = desk.triage()
        assert {v["thread_id"]: v["messages"] for v in first["verdicts"]}[id] == 2
        second = desk.triage()
        assert second["verdicts"] == []
        assert {each["reason"] for each in second["filtered"]} <= {phrase(UNCHANGED)}
        assert set(desk.judgement_counts().values()) == {1}


def test_mail_arriving_after_its_thread_was_read_is_judged_by_the_next_triage(
    connect: Connect,
) -> None:
    coming: list[Callable[[], object]] = []

    def mind(body: Json) -> Answer:
        if coming and is_child(body):  # all of it was read by now
            coming.pop()()
        return judging_model(body)

    with connect(*letters(2), mind=mind) as desk:
        gmail = desk.google.gmail
        id = next(iter(gmail.threads))
        new = letters(3)[2], frozenset({"INBOX"})
        reply = mail(60, "Any news of it?", reply_to="1"), frozenset({"INBOX"})
        coming.append(lambda: (gmail.add(*new), gmail.add(*reply, thread=id)))
        assert len(desk.triage()["verdicts"]) == 2
        second = {v["subject"]: v["messages"] for v in desk.triage()["verdicts"]}
        assert second == {"Order 1003": 1, "Order 1001": 2}
        assert desk.triage()["verdicts"] == []


# ---- in Slack


async def ask_for_triage(bot: Served, text: str = "triage my inbox") -> Json:
    """The document of a triage that is asked for in a direct message."""
    channel = bot.slack.people.dm(ASKER)
    await bot.answers(bot.slack.people.say(ASKER, channel, text), channel=channel)
    result = dict((await bot.store.runs(1))[0].result or {})
    if "verdicts" in result:
        assert len(threads(result)) == len(set(threads(result)))
    return result


@pytest.mark.parametrize(
    ("action", "method", "kind"),
    [
        (DRAFT, "drafts.create", "lost"),
        (DRAFT, "drafts.create", "late"),
        (LABEL, "threads.modify", "lost"),
        (LABEL, "labels.create", "lost"),
    ],
)
async def test_clicks_create_one_draft_or_label_when_gmail_responses_are_lost_or_late(
    tmp_path: Path, action: str, method: str, kind: str
) -> None:
    google_ = {"client_id": CLIENT_ID, "max_attempts": 2, "timeout_s": 0.5}
    async with with_mail(tmp_path, *letters(1), google=google_) as (bot, google):
        document = await ask_for_triage(bot)
        thread = document["verdicts"][0]["thread_id"]
        channel = bot.slack.people.dm(ASKER)
        google.faults.append(Fault(method, kind, seconds=1.0 if kind == "late" else 0.0))
        carried, tries = f"{document['run_id']}/{thread}", 0
        while ts := message_with_button(bot, channel, action):
            told, tries = len(visible_messages(bot, channel)), tries + 1
            bot.slack.people.click(ASKER, channel, ts, action, carried)
            await until(
                lambda n=told: (
                    len(visible_messages(bot, channel)) > n
                    or not message_with_button(bot, channel, action)
                )  # type: ignore[misc]
            )
        assert google.faults == []
        assert tries <= 2, "a second click does it"
        gmail = google.gmail
        names = [id for id, name in gmail.labels.items() if name == "customer"]
        added = [each for each in gmail.messages.values() if each.labels & set(names)]
        assert len(gmail.drafts) == (action == DRAFT)
        assert len(added) == len(names) == (action == LABEL)
        assert gmail.sent == []


def visible_messages(bot: Served, channel: str) -> list[Shown]:
    """All that stands in a channel, its threads too, and what was whispered."""
    roots = bot.slack.visible(channel)
    below = [m for each in roots for m in bot.slack.visible(channel, each.ts) if m.ts != each.ts]
    return [*roots, *below]


def message_with_button(bot: Served, channel: str, action: str) -> str:
    """The message that still has this button; empty = none."""
    found = (
        m.ts for m in visible_messages(bot, channel) if f"'action_id': '{action}'" in str(m.blocks)
    )
    return next(found, "")


async def test_concurrent_triages_each_report_all_threads_or_none_and_leave_none(
    tmp_path: Path,
) -> None:
    async with with_mail(tmp_path, *letters(6)) as (bot, _):
        channel = bot.slack.people.dm(ASKER)
        one, two = (
            bot.slack.people.say(ASKER, channel, f"triage my inbox, {number}") for number in "12"
        )
        for each in (one, two):
            await bot.answers(each, channel=channel)
        results = [dict(run.result or {}) for run in await bot.store.runs(2)]
        assert all(len(threads(each)) == len(set(threads(each))) for each in results)
        reported = [Counter(v["subject"] for v in each["verdicts"]) for each in results]
        assert subjects(6) in reported
        assert all(each in (Counter(), subjects(6)) for each in reported)
        assert (await ask_for_triage(bot, "triage my inbox, once more"))["verdicts"] == []


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


# ---- and no more is asked or paid for than is needed


def test_limited_triage_fetches_no_more_than_one_batch(connect: Connect) -> None:
    with connect(*letters(AT_ONCE + 4)) as desk:
        document = desk.triage("--limit", 5)
        made = [each.method.removeprefix("gmail.users.") for each in desk.google.requests]
    assert len(document["verdicts"]) == 5
    assert made.count("threads.get") == AT_ONCE
    assert made.count("threads.list") == 1
    assert made.count("getProfile") == 2, "who it is, and what has changed until now"
