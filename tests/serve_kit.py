"""The whole bot in this process, with a local Slack and a local model, for tests of `serve`.

None of our code is replaced: a test changes settings, models, faults and what people do.
"""

from __future__ import annotations

import itertools
import os
import socket
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from engine_kit import (
    Json,
    brief_answer,
    come,
    is_child,
    opening,
    say,
    scripted_parent,
    settings_for,
    until,
    workspace,
)
from pg_kit import with_files
from plain_kit import frame_words, recording_model
from pydantic import SecretStr
from standins.model import ModelServer, Responder
from standins.model_faults import Faults
from standins.slack import API_PATH, APP_TOKEN, BOT_TOKEN, SIGNING_SECRET, LocalSlack
from standins.slack_delivery import ACK_S
from standins.slack_shown import Shown
from timing import WAIT_S

from bot.approvals import service
from bot.local.model.answer import Answer
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Workspace
from bot.runs import durable
from bot.runs.store import Store
from bot.serving.serve import Server, run_server
from bot.slack.plan import Plan, short_heading
from bot.storage.requests import RequestQueue
from config.settings import Settings
from subagents.model import ModelClient
from subagents.overlap import audit
from subagents.provenance import Leak

ASKER = "U0ANA"
CENTURY_DAYS = 36_500


def request_in(body: Json) -> str:
    """Return the request that a parent got."""
    lines = opening(body).splitlines()
    return [each for each in lines if each.startswith("REQUEST: ")][-1].removeprefix("REQUEST: ")


def echo(body: Json) -> Answer:
    """Answer as a parent that repeats its request."""
    return say(f"You asked: {request_in(body)}")


def change_settings(settings: Settings, **sections: Mapping[str, Any]) -> Settings:
    """Return the settings with these values in their sections."""
    changes = {n: getattr(settings, n).model_copy(update=v) for n, v in sections.items()}
    return settings.model_copy(update=changes)


def with_rules(**rules: Any) -> Callable[[Settings], Settings]:
    """Return a change of settings: the rules hold everywhere; `policy` sets other fields of it."""
    wide = rules.pop("policy", {})

    def change(settings: Settings) -> Settings:
        everywhere = settings.policy.everywhere.model_copy(update=rules)
        return change_settings(settings, policy={"everywhere": everywhere, **wide})

    return change


def with_sections(**sections: Mapping[str, Any]) -> Callable[[Settings], Settings]:
    """Return a change of settings that sets fields: `slack={...}`, `policy={...}`."""
    return lambda settings: change_settings(settings, **sections)


def mention(text: str) -> str:
    return f"<@{BOT_USER}> {text}"


def serve_settings(
    data_dir: Path,
    slack_url: str,
    *,
    url: str | None = None,
    mode: str = "socket",
    port: int = 0,
    **sections: Any,
) -> Settings:
    """Return settings with short waits, a free port, and `serve={...}`, `limits={...}`, ..."""
    engine = {name: sections.pop(name, None) for name in ("limits", "models", "roles")}
    base = settings_for(**engine)
    slack = {"mode": mode, "deaf_after_s": 5.0, "retry_attempts": 3, "timeout_s": 5}
    quick = {"port": port, "drain_s": 10.0, "outage_retry_s": 0.5, "outage_give_up_s": 5.0}
    changes: dict[str, Mapping[str, Any]] = {
        "slack": {**slack, **sections.pop("slack", {})},
        "serve": {**quick, **sections.pop("serve", {})},
        "reply": {"since_days": CENTURY_DAYS, "update_s": 0.05, **sections.pop("reply", {})},
        "secrets": {
            "slack_bot_token": SecretStr(BOT_TOKEN),
            "slack_app_token": SecretStr(APP_TOKEN),
            "slack_signing_secret": SecretStr(SIGNING_SECRET),
            "database_url": SecretStr(url) if url else None,
        },
        "endpoints": {"slack_api_url": slack_url},
        **sections,
    }
    return change_settings(base, **changes).model_copy(update={"data_dir": data_dir})


PORTS = range(20_000, 32_000)
"""Below the ports that the kernel assigns, so that a free port stays free until it is bound."""
_tried = itertools.count(os.getpid() * 997)


def free_port() -> int:
    """Return a port that nobody listens on; another one each time, and in each process."""
    for number in itertools.islice(_tried, len(PORTS)):
        with socket.socket() as free, suppress(OSError):
            free.bind(("127.0.0.1", PORTS[number % len(PORTS)]))
            return int(free.getsockname()[1])
    raise AssertionError("no port is free")


def events_url(port: int) -> str:
    """Return the URL at which a bot in mode http receives Slack's events."""
    return f"http://127.0.0.1:{port}/slack/events"


class Room:
    """What people write to a bot in its workspace, and what they see of it."""

    slack: LocalSlack

    @property
    def channel(self) -> str:
        """The first channel that is no direct message."""
        return next(c.id for c in self.slack.state.channels.values() if not c.is_im)

    def ask(
        self,
        text: str = "What is open in #support-2?",
        *,
        user: str = ASKER,
        channel: str = "",
        **more: Any,
    ) -> str:
        """Mention the bot; return the message's timestamp."""
        return self.slack.people.say(user, channel or self.channel, mention(text), **more)

    def replies(self, thread: str | None = None, channel: str = "") -> list[Shown]:
        """Return the bot's messages in a thread, or anywhere in the channel."""
        messages = self.slack.visible(channel or self.channel, thread)
        return [m for m in messages if m.user == BOT_USER]

    def finished_messages(self, thread: str, channel: str = "") -> list[Shown]:
        """Return the finished messages; one that shows only a plan is not finished."""
        unfinished = ("", short_heading(Plan()))
        messages = self.replies(thread, channel)
        return [m for m in messages if m.text not in unfinished and m.metadata and not m.streaming]

    def is_whole(self, thread: str) -> bool:
        """Return whether a part of a whole answer is there; a stream that Slack cut off is none."""
        marks = (m.metadata["event_payload"] for m in self.replies(thread) if m.metadata)
        return any(mark.get("of") for mark in marks)


@dataclass
class Served(Room):
    """A running bot."""

    slack: LocalSlack
    model: ModelServer
    bench: Server
    settings: Settings

    @property
    def store(self) -> Store:
        return self.bench.dispatch.runs.store

    @property
    def inbox(self) -> RequestQueue:
        return self.bench.dispatch.inbox

    async def answers(
        self, thread: str, count: int = 1, *, channel: str = "", seconds: float = 20.0
    ) -> list[Shown]:
        """Return the finished messages in a thread once there are `count` and work has ended."""

        def has_come() -> bool:
            return len(self.finished_messages(thread, channel)) >= count

        await until(lambda: not self.bench.dispatch.at_work and has_come(), seconds)
        return self.finished_messages(thread, channel)

    async def answer(self, thread: str, **more: Any) -> Shown:
        (only,) = await self.answers(thread, **more)
        return only

    async def answer_directly(self, text: str, user: str = ASKER) -> Shown:
        """Ask in a direct message; return the answer, which is one message."""
        dm = self.slack.people.dm(user)
        return await self.answer(self.slack.people.say(user, dm, text), channel=dm)

    async def wait_until_stored(self, ts: str) -> None:
        """Return when this message of the channel is stored as a request."""
        key = f"{self.slack.state.team.id}/{self.channel}/{ts}"
        await come(lambda: self.inbox.request(key))

    async def quiet(self) -> None:
        """Return when all events are acknowledged, nothing waits and nothing is at work."""
        inbox, dispatch = self.inbox, self.bench.dispatch

        async def is_quiet() -> bool:
            acked = all(d.acked_at or d.reason for d in self.slack.deliveries)
            waits = await inbox.count_waiting() or await inbox.at_work() or dispatch.at_work
            return acked and not waits

        await come(is_quiet)

    def parents(self) -> list[Json]:
        """Return the requests of parents that reached the model, in order of arrival."""
        return [body for body in list(self.model.recorded) if not is_child(body)]

    def whispers(self, user: str = ASKER) -> list[str]:
        """Return the messages that only this person saw."""
        return [w.text for w in self.slack.state.whispers if w.user == user]

    async def leaks(self) -> list[Leak]:
        """Return what the audit finds in the runs that have ended."""
        runs = [r for r in await self.store.runs(200) if r.status not in ("running", "refused")]
        reports = [audit(await self.store.trajectory(run.id)) for run in runs]
        return [leak for report in reports for leak in report.leaks]


@asynccontextmanager
async def serve(
    tmp_path: Path,
    responder: Responder | None = None,
    *,
    slack: LocalSlack | None = None,
    space: Workspace | None = None,
    url: str | None = None,
    mode: str = "socket",
    port: int = 0,
    faults: Faults | None = None,
    latency_s: float = 0.0,
    ack_s: float = ACK_S,
    change: Callable[[Settings], Settings] = lambda settings: settings,
    policy_path: Path | None = None,
    **sections: Any,
) -> AsyncIterator[Served]:
    """Run the bot, connected and ready; by default its parent asks one subagent and then answers.

    `ack_s` is how long the local Slack waits for an acknowledgement.
    """
    port = port or (free_port() if mode == "http" else 0)
    slack = slack or LocalSlack(
        space or workspace(6),
        retries_s=(0.0, 0.3, 1.0),
        request_url=events_url(port) if mode == "http" else None,
        ack_s=ack_s,
    )
    responder = responder or scripted_parent(brief_answer(2), say("It is **open** [F1.1]."))
    script: set[str] = set()
    server = ModelServer(
        recording_model(responder, script), faults=faults, latency_s=latency_s, record=True
    )
    with (
        LocalServer(slack.app, "slack") as at,
        LocalServer(server.app, "model") as model_server,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(service, "PERSON_S", 30.0)  # two seconds pass on a busy machine
        patch.setattr(durable, "QUEUE_POLL_S", 0.05)  # each subagent waits for this poll,
        patch.setattr(durable, "JOIN_POLL_S", 0.05)  # and its parent for this one
        settings = serve_settings(
            tmp_path / "data", at.url + API_PATH, url=url, mode=mode, port=port, **sections
        )
        settings = change(settings)
        if url is None:
            with_files(settings.data_dir)
        model = ModelClient(settings.models, "k", model_server.url)
        try:
            async with run_server(settings, policy_path, model, "claude") as bench:
                if bench.sockets:
                    await until(bench.sockets.connected.is_set)
                bot = Served(slack, server, bench, settings)
                yield bot
                assert await bench.drain(WAIT_S)
                leaks = await bot.leaks()
                assert leaks == [], leaks
                assert not (found := frame_words(slack, script)), found
        finally:
            await model.aclose()
