"""The `gate` table: the cost of a decision, with and without cached memberships."""

from __future__ import annotations

import statistics
import time
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from standins.slack import API_PATH, BOT_TOKEN, LocalSlack

import scopes
from benchmarks.table import Row
from bot.local.server import LocalServer
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, Team, User, Workspace
from bot.policy.directory import SlackDirectory
from bot.slack.people import People
from config.settings import load_settings
from scopes.effects import Handles
from scopes.intent import Intent
from scopes.label import TRUSTED_LABEL, Label
from scopes.members import Members
from scopes.slack import OPEN_CHANNELS
from scopes.slack_client import connect, open_session
from scopes.tool import ToolContext, Window
from subagents.gate import Decision, Gate

DECISIONS = 2_000
LOOKUPS = 40
MEMBERS = ("U0ANA", "U0LUIS")
CHANNELS = ("C0BOARD", "C0TEAM")
NOTES = """\
Medians. The Slack stand-in runs in this process; what is looked up goes over loopback to it. A
decision logs one line into a list. Kept: who asks and what they are in was asked within 20 s."""


def _workspace() -> Workspace:
    people = tuple(User(id, id.lower(), id) for id in MEMBERS)
    channels = tuple(
        Channel(id, id.lower(), (), (*MEMBERS, BOT_USER), is_private=True) for id in CHANNELS
    )
    return Workspace(Team("T0BENCH", "Bench", "bench"), people, channels)


def _context(requester: str | None, label: Label = TRUSTED_LABEL) -> ToolContext:
    now = datetime.now(UTC)
    board, team = CHANNELS
    return ToolContext(
        run="r1",
        requester=requester,
        handles=Handles({OPEN_CHANNELS: "", board: "#board", team: "#team"}),
        label=label,
        window=Window(now - timedelta(days=7), now),
        clients={},
        max_output_tokens=8_000,
        intent=Intent("Tell #team what is new in #board", frozenset({team}), team, f"{team}/1.1"),
    )


async def gate() -> list[Row]:
    """Measure decisions of a requester, with the directory of `serve`."""
    limits = load_settings(env={}).slack
    with LocalServer(LocalSlack(_workspace()).app, "slack") as server:
        async with open_session(limits) as session:
            client = connect(session, BOT_TOKEN, server.url + API_PATH, limits)
            members = Members(client)
            directory = SlackDirectory(members, People(client), _nothing, BOT_USER, "T0BENCH")
            log: list[Decision] = []
            try:
                return await _rows(Gate(log.append, directory))
            finally:
                await members.aclose()


async def _rows(gate: Gate) -> list[Row]:
    tools = {t.name: t for t in scopes.scope("slack").tools}
    board, team = CHANNELS
    private = Label(True, frozenset(MEMBERS), frozenset({board}))
    asking = _context(MEMBERS[0])

    def deciding(
        ctx: ToolContext, name: str, args: Mapping[str, Any]
    ) -> Callable[[], Awaitable[Any]]:
        return lambda: gate.decide("s1", ctx, tools[name], dict(args))

    listing = deciding(asking, "list_channels", {"match": "board"})
    reading = deciding(asking, "read_channel_history", {"channel": "#board"})
    posting = {"channel": team, "text": "It is done."}
    telling = deciding(_context(MEMBERS[0], private), "post_message", posting)
    free = deciding(asking, "post_message", posting)
    anew = "the requester's rights are asked again: 3 calls of Slack"
    note = "and the memberships of source and destination"
    return [
        Row("decision without look-up", await _median_ms(listing, DECISIONS), " ms", 0.2),
        Row("decision to read, kept", await _median_ms(reading, DECISIONS), " ms", 0.2),
        Row("decision to post public text", await _median_ms(free, LOOKUPS), " ms", None, anew),
        Row("decision to post private text", await _median_ms(telling, LOOKUPS), " ms", None, note),
    ]


async def _median_ms(decide: Callable[[], Awaitable[Any]], times: int) -> float:
    await decide()
    spent = []
    for _ in range(times):
        began = time.perf_counter()
        await decide()
        spent.append(time.perf_counter() - began)
    return statistics.median(spent) * 1000


async def _nothing(destination: str) -> frozenset[str]:
    return frozenset()
