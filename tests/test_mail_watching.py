"""Gmail tells of new mail at once: what it says is looked into, and never trusted alone."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from engine_kit import until
from gmail_kit import ME, mail, stored
from poll_kit import ADMIN, ANA, EVERY, SUBSCRIPTION, TOPIC, Post, key_file, post
from serve_kit import Served, serving

from bot.checks.checks import Problem
from bot.checks.google_checks import wanted
from bot.errors import SetupError
from bot.local.google.server import Fault
from bot.local.slack.views import home
from bot.mail.alarm import NEAR
from bot.mail.polls import news_of
from bot.mail.state import MailState
from bot.mail.watching import MailWatching, Told, pubsub_of, told_by
from bot.storage.store import Store
from config.settings import Settings, SettingsError, load_settings
from scopes.google.client import GoogleError
from scopes.google.pubsub import Pubsub

OLD = (stored(1, mail(1), 1), stored(2, mail(2), 2))
DAY = timedelta(days=1)


@asynccontextmanager
async def watched(path: Path) -> AsyncIterator[tuple[Post, MailWatching, Pubsub]]:
    """A mailbox that was triaged, whose watch stands, with nothing to be told."""
    async with post(path, *OLD, poll_minutes=0) as at:
        pubsub = at.pubsub()
        watching = at.watching(pubsub)
        try:
            await at.triage()
            await watching.renew()
            await watching.listen(pubsub)
            yield at, watching, pubsub
        finally:
            await pubsub.aclose()


async def test_what_gmail_tells_is_known_at_once_and_then_acknowledged(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, watching, pubsub):
        thread = at.come(3).thread
        assert at.google.pubsub.waiting(SUBSCRIPTION) == 1
        assert await watching.listen(pubsub)
        assert (await at.noticed()).incoming == {thread}
        assert at.google.pubsub.waiting(SUBSCRIPTION) == 0
        assert (await at.triage()).new.keys() == {thread}


async def test_messages_of_one_mailbox_are_one_look_and_old_ones_none(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, watching, pubsub):
        asked = at.asked("history.list")
        threads = {at.come(number).thread for number in range(3, 9)}
        assert await watching.listen(pubsub)
        assert at.asked("history.list") == asked + 1
        assert at.google.pubsub.deliver_again(SUBSCRIPTION) > 6
        calls = at.asked()
        assert await watching.listen(pubsub)
        assert [m.method for m in at.google.requests[calls:]] == [
            "pubsub.projects.subscriptions.pull",
            "pubsub.projects.subscriptions.acknowledge",
        ]
        assert (await at.triage()).new.keys() == threads


@pytest.mark.parametrize("kind", ["429", "500", "drop"])
async def test_a_message_whose_look_failed_comes_again(tmp_path: Path, kind: str) -> None:
    async with watched(tmp_path) as (at, watching, pubsub):
        thread = at.come(3).thread
        at.google.faults.append(Fault("history.list", kind))
        assert not await watching.listen(pubsub)
        assert at.google.pubsub.waiting(SUBSCRIPTION) == 1
        at.clock.moved += timedelta(minutes=2)
        assert await watching.listen(pubsub)
        assert (await at.noticed()).threads == {thread}
        assert at.google.pubsub.waiting(SUBSCRIPTION) == 0


async def test_one_whose_acknowledgement_was_lost_does_no_harm(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, watching, pubsub):
        thread = at.come(3).thread
        at.google.faults.append(Fault("subscriptions.acknowledge", "503"))
        with pytest.raises(GoogleError):
            await watching.listen(pubsub)
        looks = at.asked("history.list")
        at.clock.moved += timedelta(minutes=1)
        assert await watching.listen(pubsub)
        assert at.asked("history.list") == looks
        assert (await at.triage()).new.keys() == {thread}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xff\xfe",
        b"[]",
        b"null",
        b"{}",
        b'{"emailAddress": null, "historyId": 3}',
        b'{"emailAddress": "a@b.example", "historyId": "x"}',
        b'{"emailAddress": "a@b.example", "historyId": -3}',
        b"[" * 100_000,
    ],
)
async def test_a_message_of_somebody_else_is_let_pass(tmp_path: Path, data: bytes) -> None:
    assert told_by(data) is None
    async with watched(tmp_path) as (at, watching, pubsub):
        calls = at.asked("getProfile")
        at.google.pubsub.publish(TOPIC, data)
        stranger = {"emailAddress": "who@else.example", "historyId": 99}
        at.google.pubsub.publish(TOPIC, json.dumps(stranger).encode())
        assert await watching.listen(pubsub)
        assert at.google.pubsub.waiting(SUBSCRIPTION) == 0
        assert at.asked("getProfile") == calls


def test_a_history_id_comes_as_a_number_or_as_text() -> None:
    for said in ("77", 77):
        data = json.dumps({"emailAddress": ME, "historyId": said}).encode()
        assert told_by(data) == Told(ME, "77")


async def test_a_watch_is_renewed_each_day_by_one_process(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, watching, _):
        first = (await at.poll()).watched_until
        other = MailWatching(at.process(), watching.alarm, watching.pubsub)
        for _ in range(3):
            await watching.renew()
        assert at.asked("users.watch") == 1
        at.clock.moved += DAY
        await watching.renew()
        await other.renew()
        later = (await at.poll()).watched_until
        assert at.asked("users.watch") == 2
        assert first
        assert later
        assert timedelta(hours=23) < later - first < timedelta(hours=25)


async def test_a_watch_that_ends_is_said_before_and_polling_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with watched(tmp_path) as (at, watching, pubsub):
        at.google.faults.append(Fault("users.watch", "403", times=999))
        for _ in range(5):
            at.clock.moved += DAY
            await watching.renew()
        assert (watching.alarm.check(), at.told(ADMIN)) == (None, [])
        assert (await at.poll()).watch_failures == 5
        with caplog.at_level(logging.ERROR):
            for _ in range(40):
                at.clock.moved += DAY / 24
                await watching.renew()
        until_ = (await at.poll()).watched_until
        assert until_
        assert until_ - at.clock() < NEAR
        assert "cannot be renewed" in (watching.alarm.check() or "")
        assert len(at.told(ADMIN)) == 1
        assert at.told(ADMIN)[0] == watching.alarm.said
        assert any("cannot be renewed" in each.getMessage() for each in caplog.records)
        assert b"assistant_mail_watches_ending 1.0" in at.metrics.render()

        at.clock.moved += 2 * DAY
        thread = at.come(3).thread
        assert at.google.pubsub.waiting(SUBSCRIPTION) == 0, "Gmail tells nothing any more"
        await at.polling.polls.put_off(ANA, at.clock())
        await at.polling.poll(ANA)
        assert (await at.noticed()).threads == {thread}

        at.google.faults.clear()
        at.clock.moved += DAY
        await watching.renew()
        assert watching.alarm.check() is None
        assert b"assistant_mail_watches_ending 0.0" in at.metrics.render()
        at.come(4)
        assert await watching.listen(pubsub)
        assert len((await at.noticed()).threads) == 2


async def test_a_topic_that_never_took_a_watch_is_said_at_once_and_once(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        pubsub = at.pubsub()
        await at.triage()
        at.google.faults.append(Fault("users.watch", "403", times=9))
        for process in (at.watching(pubsub), at.watching(pubsub)):
            await process.renew()
            assert process.alarm.check()
        assert len(at.told(ADMIN)) == 1
        await pubsub.aclose()


async def test_who_is_shut_out_has_no_watch_and_their_messages_do_not_come_for_ever(
    tmp_path: Path,
) -> None:
    async with watched(tmp_path) as (at, watching, pubsub):
        at.come(3)
        at.revoke()
        assert not await watching.listen(pubsub)
        at.clock.moved += DAY
        assert await watching.listen(pubsub)
        await watching.renew()
        assert at.asked("users.watch") == 1
        assert watching.alarm.check() is None


async def test_a_watch_that_is_not_wanted_any_more_is_ended(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, _, pubsub):
        off = at.watching(None)
        at.clock.moved += DAY
        await off.renew()
        assert at.google.gmail.watch is None
        assert (await at.poll()).watched_until is None
        at.clock.moved += DAY
        await off.renew()
        assert at.asked("users.stop") == 1
        await pubsub.aclose()


@pytest.mark.parametrize("kind", ["403", "503", "404", "drop"])
async def test_where_pubsub_is_down_it_is_said_and_polling_goes_on(
    tmp_path: Path, kind: str
) -> None:
    async with watched(tmp_path) as (at, watching, pubsub):
        pauses = list[float]()

        async def pause(seconds: float) -> None:
            pauses.append(seconds)
            if len(pauses) == 4:
                at.google.faults.clear()
            if len(pauses) > 5:
                raise _Over

        at.google.faults.append(Fault("subscriptions.pull", kind, times=99))
        thread = at.come(3).thread
        listening = MailWatching(at.polling, watching.alarm, pubsub, sleep=pause)
        said = []

        async def look() -> None:
            for _ in range(3):
                assert not await listening._listen(pubsub)
            said.append(listening.check())
            await at.polling.polls.put_off(ANA, at.clock())
            await at.polling.poll(ANA)

        await look()
        assert said == ["What Gmail tells over Pub/Sub cannot be pulled."]
        assert (await at.noticed()).threads == {thread}
        with pytest.raises(_Over):
            await listening._listening(pubsub)
        assert pauses[:4] == [2, 4, 8, 16]
        assert pauses[4] == 1
        assert listening.check() is None


class _Over(Exception):
    """The test has seen enough."""


async def test_both_go_on_by_themselves(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD) as at:
        pubsub = at.pubsub()
        await at.triage()
        watching = at.watching(pubsub)
        task = asyncio.create_task(watching.run())
        try:
            await until(lambda: at.google.gmail.watch is not None)
            at.come(3)
            await until(lambda: at.google.pubsub.subscriptions[SUBSCRIPTION].acknowledged)
            await until(lambda: at.google.pubsub.waiting(SUBSCRIPTION) == 0)
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await pubsub.aclose()
        assert len((await at.noticed()).threads) == 1


async def test_polling_and_messages_together_handle_nothing_twice(tmp_path: Path) -> None:
    async with watched(tmp_path) as (at, watching, pubsub):
        new = set()
        for number in range(3, 12):
            new.add(at.come(number).thread)
            if number % 2:
                await watching.listen(pubsub)
            if number % 3:
                await at.polling.polls.put_off(ANA, at.clock())
                await at.look(EVERY)
        assert (await at.triage()).new.keys() == new
        assert (await at.triage()).new == {}


async def test_the_doctor_says_whether_messages_can_be_pulled(tmp_path: Path) -> None:
    async with post(tmp_path / "s", *OLD, pubsub_service_account=str(key_file(tmp_path))) as at:
        settings = at.settings.model_copy(update={"data_dir": tmp_path / "s"})
        (check,) = wanted(settings)
        with pytest.raises(Problem, match="may not pull projects/p/subscriptions/bot"):
            await check
        pubsub = at.pubsub()
        (check,) = wanted(settings)
        assert f"told by {SUBSCRIPTION}" in await check
        at.google.faults.append(Fault("subscriptions.testIamPermissions", "503"))
        (check,) = wanted(settings)
        with pytest.raises(Problem, match="Google could not answer"):
            await check
        await at.triage()
        at.google.faults.append(Fault("users.watch", "403"))
        await at.watching(pubsub).renew()
        (check,) = wanted(settings)
        with pytest.raises(Problem, match="cannot be renewed"):
            await check
        await pubsub.aclose()


def test_half_of_a_set_up_is_refused(tmp_path: Path) -> None:
    for given, why in (
        (f"pubsub_topic: {TOPIC}", "belong together"),
        (f"pubsub_topic: {TOPIC}, pubsub_subscription: {SUBSCRIPTION}", "the key file"),
        (f"pubsub_topic: mail, pubsub_subscription: {SUBSCRIPTION}", "pubsub_topic"),
        ("poll_minutes: -1", "poll_minutes"),
    ):
        path = tmp_path / "given.yaml"
        path.write_text(f"google: {{{given}}}\n", "utf-8")
        with pytest.raises(SettingsError, match=why):
            load_settings(path, env={})


async def test_a_bot_knows_of_new_mail_and_says_so_in_app_home(tmp_path: Path) -> None:
    """With the key file, over Pub/Sub, in the bot itself; then the triage asks for no more."""
    place, key = tmp_path / "data", key_file(tmp_path)
    store = await Store.open(place)
    async with post(store, *OLD, pubsub_service_account=str(key), poll_minutes=0) as at:
        at.google.pubsub.subscribe(TOPIC, SUBSCRIPTION)
        await at.triage()
        await store.aclose()

        def change(settings: Settings) -> Settings:
            ends = at.settings.endpoints.model_copy(
                update={"slack_api_url": settings.endpoints.slack_api_url}
            )
            secret = {"google_client_secret": at.settings.secrets.google_client_secret}
            secrets = settings.secrets.model_copy(update=secret)
            changed = {"google": at.settings.google, "endpoints": ends, "secrets": secrets}
            return settings.model_copy(update=changed)

        async with serving(tmp_path, change=change) as bot:
            state = MailState(bot.store.database)
            await until(lambda: at.google.gmail.watch is not None)
            at.come(3)
            at.come(4)
            news = None
            end = asyncio.get_running_loop().time() + 20
            while news != 2 and asyncio.get_running_loop().time() < end:
                news = (await news_of(state, ANA)).threads
                await asyncio.sleep(0.02)
            bot.slack.people.open_home(ANA)
            await until(lambda: "2 threads with new mail since" in _home(bot))
            ready = await bot.bench.health.ready()
            assert ready.parts["mail_watches"] is None


def _home(bot: Served) -> str:
    found = home(bot.slack.state, ANA)
    return str(found.body) if found else ""


async def test_a_key_that_cannot_be_used_ends_the_start(tmp_path: Path) -> None:
    async with post(tmp_path, *OLD, pubsub_service_account=str(tmp_path / "none.json")) as at:
        with pytest.raises(SetupError, match="no usable key file"):
            pubsub_of(at.settings)
