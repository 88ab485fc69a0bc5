"""No mail is lost between two triages and none is handled twice, whatever happens in between."""

from __future__ import annotations

import re
import uuid
from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from gmail_kit import START, id_of, mail, office, stored
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pg_kit import Kept, kept
from pydantic import TypeAdapter
from standins.google import forget_history

from bot.mailbox.sync import (
    HandledMail,
    MailState,
    Sync,
    new_threads,
    seen_of,
)
from scopes.google.gmail import HistoryTooOld
from scopes.mail import Changes, MailMessage, MailText, MailThread, ThreadRef
from scopes.tool import Window

ME = "U0ANA"
WEEK = timedelta(days=7)
TEXT = MailText("Bill", "Bo <bo@x.example>", (), (), "Please pay.", (), (), "")
IN, OWN, DRAFT = frozenset({"INBOX"}), frozenset({"SENT"}), frozenset({"DRAFT"})


def window(oldest: timedelta = WEEK, latest: timedelta = timedelta(0)) -> Window:
    now = datetime.now(UTC)
    return Window(now - oldest, now - latest)


@dataclass
class Mailbox:
    """As much of Gmail as a sync asks for: see bot.mailbox.sync.History."""

    name: str = "ana@x.example"
    number: int = 1000
    forgotten: int = 0
    """The changes up to here are no longer known."""
    added: list[tuple[int, MailMessage]] = field(default_factory=list)
    touched: dict[str, int] = field(default_factory=dict)
    lagging: set[str] = field(default_factory=set)
    """Threads that the search does not find yet."""
    coming: list[str] = field(default_factory=list)
    """Threads that get mail while they are asked about: one after each answer."""
    queries: list[str] = field(default_factory=list)
    read: list[str] = field(default_factory=list)

    def put(self, thread: str, labels: frozenset[str] = IN, age: timedelta = timedelta(0)) -> str:
        self.touch(thread)
        id = f"m{self.number}"
        at = datetime.now(UTC) - age
        self.added.append((self.number, MailMessage(id, thread, at, TEXT, {}, labels)))
        return id

    def touch(self, thread: str) -> None:
        """Anything that changes a thread without adding mail: a label, a star."""
        self.number += 7  # history ids have gaps
        self.touched[thread] = self.number

    def _meanwhile(self) -> None:
        if self.coming:
            self.put(self.coming.pop())

    async def address(self) -> str:
        return self.name

    async def history(self) -> str:
        told = str(self.number)
        self._meanwhile()
        return told

    async def find(self, query: str = "", limit: int | None = None) -> list[ThreadRef]:
        self.queries.append(query)
        after = int((re.search(r"after:(\d+)", query) or ["", "0"])[1])
        before = int((re.search(r"before:(\d+)", query) or ["", "9999999999"])[1])
        hits = {
            m.thread
            for _, m in self.added
            if m.at and after <= m.at.timestamp() < before and "INBOX" in m.labels
        } - self.lagging
        newest = sorted(hits, key=lambda thread: -self.touched[thread])
        found = [ThreadRef(thread, "", str(self.touched[thread])) for thread in newest]
        self._meanwhile()
        return found

    async def changes(self, since: str) -> Changes:
        if int(since) < self.forgotten:
            raise HistoryTooOld(404, "history", "The history is too old.")
        threads = dict.fromkeys(m.thread for number, m in self.added if number > int(since))
        told = Changes(str(self.number), tuple(threads))
        self._meanwhile()
        return told

    def thread(self, id: str) -> MailThread:
        self.read.append(id)
        found = tuple(m for _, m in self.added if m.thread == id)
        self._meanwhile()
        return MailThread(id, found, str(self.touched[id]))


@dataclass
class Triage:
    """As bot/tasks/triage.py goes about it: what it read, and what its digest says."""

    sync: Sync
    handled: dict[str, list[str]] = field(default_factory=dict)
    """What stands in the digest: thread -> ids of its messages."""
    unchanged: dict[str, list[str]] = field(default_factory=dict)
    left: list[str] = field(default_factory=list)

    async def deliver(self, state: MailState, account: str = ME) -> None:
        done = {**self.handled, **self.unchanged}
        await state.record_delivery(
            HandledMail(
                account=account,
                run="r1",
                cursor=self.sync.cursor,
                threads=done,
                left=self.left,
            )
        )


SYNC = TypeAdapter(Sync)


async def triage(
    mailbox: Mailbox,
    state: MailState,
    account: str = ME,
    limit: int = 99,
    within: Window | None = None,
) -> Triage:
    sync = await new_threads(mailbox, state, account, "in:inbox", within or window())
    assert SYNC.validate_json(SYNC.dump_json(sync)) == sync
    made = Triage(sync)
    for id in sync.threads:
        if len(made.handled) == limit:
            made.left.append(id)
            continue
        thread = mailbox.thread(id)
        to = made.handled if sync.is_new(thread) else made.unchanged
        to[id] = seen_of(thread)
    return made


async def delivered(mailbox: Mailbox, state: MailState, **options: Any) -> Triage:
    made = await triage(mailbox, state, **options)
    await made.deliver(state)
    return made


THREADS = st.sampled_from(["t1", "t2", "t3"])
COMING = st.lists(THREADS, max_size=3)
EVENTS = st.one_of(
    st.tuples(st.just("mail"), THREADS),
    st.tuples(st.sampled_from(["reply", "draft", "to oneself", "label"]), THREADS),
    st.tuples(st.just("history ends"), st.just("")),
    st.tuples(st.just("triage"), COMING, st.sampled_from([1, 99])),
    st.tuples(st.just("crash"), COMING, st.sampled_from([1, 99])),
)


@pytest.fixture(scope="module")
def in_one_file(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Kept]:
    with kept("sqlite", tmp_path_factory.mktemp("mail")) as found:
        yield found


@dataclass
class Story:
    """A mailbox, what happens to it, and what its user was shown."""

    state: MailState
    account: str
    mailbox: Mailbox = field(default_factory=Mailbox)
    shown: list[tuple[str, set[str]]] = field(default_factory=list)
    """Thread and messages of each line of each digest."""

    async def happens(self, event: Sequence[Any]) -> None:
        match event:
            case ("mail", thread):
                self.mailbox.put(thread)
            case ("reply" | "draft" | "to oneself" as kind, thread) if (
                thread in self.mailbox.touched
            ):
                labels = {"reply": OWN, "draft": DRAFT, "to oneself": OWN | IN}
                self.mailbox.put(thread, labels[kind])
            case ("label", thread) if thread in self.mailbox.touched:
                self.mailbox.touch(thread)
            case ("history ends", _):
                self.mailbox.forgotten = self.mailbox.number
            case ("triage" | "crash" as kind, coming, limit):
                self.mailbox.coming = list(coming)
                await self.triaged(limit, crash=kind == "crash")

    async def triaged(self, limit: int, *, crash: bool = False) -> None:
        self.mailbox.read.clear()
        made = await triage(self.mailbox, self.state, self.account, limit)
        assert len(self.mailbox.read) == len(set(self.mailbox.read))
        if crash:
            return
        self.shown += [(thread, set(ids)) for thread, ids in made.handled.items()]
        await made.deliver(self.state, self.account)

    def incoming(self) -> set[str]:
        return {m.id for _, m in self.mailbox.added if "INBOX" in m.labels}

    def check(self) -> None:
        seen: set[str] = set()
        for thread, ids in self.shown:
            assert ids & self.incoming() - seen, f"{thread} is shown again with nothing new in it"
            seen |= ids
        assert self.incoming() <= seen, "mail is lost"


@given(st.lists(EVENTS, max_size=14))
@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.too_slow])
async def test_no_mail_is_lost_or_handled_twice(in_one_file: Kept, events: list[Any]) -> None:
    store = await in_one_file.store()
    story = Story(MailState(store.database), uuid.uuid4().hex)
    for event in events:
        await story.happens(event)
    story.mailbox.coming.clear()
    await story.triaged(99)
    story.check()
    lines = len(story.shown)
    await story.triaged(99)
    assert len(story.shown) == lines
    await store.aclose()


@pytest.fixture
async def state(tmp_path: Path) -> AsyncIterator[MailState]:
    store = await Kept(tmp_path, None).store()
    yield MailState(store.database)
    await store.aclose()


@pytest.fixture
async def each(place: Kept) -> AsyncIterator[MailState]:
    """On each kind of database: times are compared there."""
    store = await place.store()
    yield MailState(store.database)
    await store.aclose()


async def test_the_second_triage_asks_for_changes_only(state: MailState) -> None:
    mailbox = Mailbox()
    mailbox.put("old", age=timedelta(days=8))
    mailbox.put("t1")
    first = await delivered(mailbox, state)
    mailbox.put("t2")
    second = await triage(mailbox, state)
    idle = len(mailbox.queries)

    assert first.sync.threads == ("t1",)
    assert second.sync.threads == ("t2",)
    await second.deliver(state)
    third = await triage(mailbox, state)
    assert third.sync.threads == ()
    assert len(mailbox.queries) == idle, "nothing changed, so nothing is listed"
    assert "t1" in (await triage(mailbox, state, "U0EVA")).handled, "another account's is its own"


async def test_a_snoozed_thread_comes_back_in_its_time_and_once(each: MailState) -> None:
    mailbox = Mailbox()
    mailbox.put("t1")
    mailbox.put("t2")
    await delivered(mailbox, each)
    now = datetime.now(UTC)
    await each.snooze(ME, "t1", now - timedelta(seconds=1))
    await each.snooze(ME, "t2", now + timedelta(days=1))

    assert (await delivered(mailbox, each)).handled.keys() == {"t1"}
    assert (await delivered(mailbox, each)).sync.threads == ()
    assert await each.awake(ME, now + timedelta(hours=23)) == []
    assert await each.awake(ME, now + timedelta(days=1)) == ["t2"]
    mailbox.put("t2")
    assert (await delivered(mailbox, each)).handled.keys() == {"t2"}
    assert await each.awake(ME, now + timedelta(days=1)) == ["t2"]


async def test_mail_that_the_search_finds_late_is_looked_for_once_more(state: MailState) -> None:
    mailbox = Mailbox()
    mailbox.put("t1")
    await delivered(mailbox, state)
    mailbox.put("late")
    mailbox.put("archived", frozenset({"Label_1"}))
    mailbox.lagging = {"late"}
    missed = await delivered(mailbox, state)
    mailbox.lagging = set()
    found = await delivered(mailbox, state)

    assert (missed.sync.threads, found.sync.threads) == ((), ("late",))
    asked = len(mailbox.queries)
    assert (await delivered(mailbox, state)).sync.threads == ()
    assert len(mailbox.queries) == asked, "what the query does not mean is not looked for for ever"


async def test_another_mailbox_is_triaged_anew(state: MailState) -> None:
    old = Mailbox()
    for thread in ("t1", "t2"):
        old.put(thread)
    await delivered(old, state, limit=1)
    new = Mailbox("eva@x.example", number=500)
    new.put("t2")
    made = await delivered(new, state)

    assert made.handled == {"t2": ["m507"]}
    assert await state.unfinished_threads(ME) == []
    assert (await state.find_handled(ME, {"t1", "t2"})).keys() == {"t2"}
    assert (await triage(new, state)).sync.threads == ()


async def test_a_look_back_lists_all_that_was_there_and_moves_nothing(state: MailState) -> None:
    mailbox = Mailbox()
    mailbox.put("old", age=timedelta(days=3))
    mailbox.put("t1")
    back = window(latest=timedelta(days=1))
    first = await delivered(mailbox, state, within=back)
    again = await triage(mailbox, state, within=back)

    assert first.sync.cursor == ""
    assert first.handled.keys() == again.handled.keys() == {"old"}
    assert await state.cursor(ME) is None
    assert (await triage(mailbox, state)).sync.last is None


async def test_two_triages_at_once_lose_nothing(state: MailState) -> None:
    mailbox = Mailbox()
    mailbox.put("t0")
    await delivered(mailbox, state)
    mailbox.put("t1")
    one = await triage(mailbox, state)
    mailbox.put("t2")
    two = await triage(mailbox, state, limit=1)
    await two.deliver(state)
    await one.deliver(state)
    after = await delivered(mailbox, state)

    assert [set(each.handled) for each in (one, two)] == [{"t1"}, {"t2"}]
    assert two.left == ["t1"]
    assert after.handled == {}
    assert (await triage(mailbox, state)).sync.threads == ()


async def test_gmail_and_its_search_tell_what_a_sync_asks_for(state: MailState) -> None:
    """Own labels, drafts and replies, spam and archived mail, a history that ended."""
    old = [stored(1, mail(1), 1), stored(2, mail(2), 2), stored(3, mail(3), 3, frozenset())]
    async with office(*old) as at:
        local = at.local.gmail

        async def told() -> tuple[Sync, set[str]]:
            gmail = at.made()
            whole = Window(START, datetime.now(UTC))
            sync = await new_threads(gmail, state, ME, "in:inbox", whole)
            threads = [await gmail.thread(id) for id in sync.threads]
            seen = {thread.id: seen_of(thread) for thread in threads}
            await state.record_delivery(
                HandledMail(account=ME, run="r1", cursor=sync.cursor, threads=seen, left=[])
            )
            return sync, {thread.id for thread in threads if sync.is_new(thread)}

        first, new = await told()
        assert (first.threads, new) == ((id_of(2), id_of(1)), {id_of(1), id_of(2)})
        await at.gmail.relabel(id_of(1), ["Customers"], [])
        await at.gmail.draft(await at.gmail.thread(id_of(2)), "Thanks.", "k1")
        second, new = await told()
        assert (second.threads, new) == ((id_of(2),), set())
        local.add(mail(4, answers=1), ["INBOX"], thread=id_of(1))
        local.add(mail(5), ["SPAM"])
        local.add(mail(6), [])
        third, new = await told()
        assert (third.threads, new) == ((id_of(1),), {id_of(1)})
        fetched = at.asked("threads.get")
        assert (await told())[0].threads == ()
        assert at.asked("threads.get") == fetched
        late = local.add(mail(7), ["INBOX"]).thread
        forget_history(local)
        last, new = await told()
        assert (last.threads, new) == ((late,), {late})
