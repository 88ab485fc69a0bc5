"""What the kill matrix asks: a workspace of twelve channels, and a parent that reads them all."""

from __future__ import annotations

import re
import time
from collections.abc import Mapping
from typing import Any

from bot.local.model.answer import Answer
from bot.local.workspace import Channel, Message, Team, User, Workspace
from subagents.brief import SUBMIT

Json = dict[str, Any]

CHANNELS = 12
ASKERS = 90
"""People who may ask: one a request, so that none of them is known before."""
CUSTOMER = "U0EVA"
OFFICE = "C0OFFICE"
DAY_S = 86_400
WORDS = (
    """amber basil cedar dahlia ebony fennel garlic hazel indigo juniper kelp lavender""".split()
)
"""One a channel: no channel shares a word that matters with another."""
MARK = "This is all of it"
"""Ends the answer; stands in it once."""


def workspace() -> Workspace:
    """Twelve channels with one open question each, asked yesterday, and one to ask the bot in."""
    askers = tuple(User(asker(n), f"ana{n}", f"Ana Ruiz {n}") for n in range(ASKERS))
    people = (*askers, User(CUSTOMER, "eva", "Eva Roth"))
    asked = int(time.time()) - DAY_S
    channels = [
        Channel(channel_id(n), f"support-{n}", (_question(n, asked + n),), (CUSTOMER,))
        for n in range(1, CHANNELS + 1)
    ]
    office = Channel(OFFICE, "office", (), (CUSTOMER,))
    return Workspace(Team("T0ACME", "Acme", "acme"), people, (*channels, office))


def asker(number: int) -> str:
    return f"U0ASKER{number % ASKERS:02d}"


def channel_id(number: int) -> str:
    return f"C0SUPPORT{number:02d}"


def _question(number: int, at: int) -> Message:
    word = WORDS[number - 1]
    text = f"The {word} import shows {word} rows twice since the {word} update, who looks at it?"
    return Message(f"{at}.000100", text, CUSTOMER, thread_ts=f"{at}.000100")


def mind(body: Json) -> Answer:
    """The parent lists the channels, starts twelve subagents in one turn and cites them all; each
    of them reads its channel and submits a finding."""
    name, turn = call_of(body)
    if name != "parent":
        return _child(int(name.removeprefix("child ")), turn, body)
    if turn == 1:
        return Answer([_use("list_channels", match="support")])
    if turn == 2:
        return Answer([_brief(n) for n in range(1, CHANNELS + 1)])
    lines = [
        f"- In channel {n} the {WORDS[n - 1]} import shows rows twice [F{n}.1]."
        for n in range(1, CHANNELS + 1)
    ]
    text = "\n".join(["These are open:", "", *lines, "", f"{MARK}."])
    return Answer([{"type": "text", "text": text}])


def _child(number: int, turn: int, body: Json) -> Answer:
    if turn == 1:
        return Answer([_use("read_channel_history", channel=channel_id(number))])
    ids = re.findall(rf"{channel_id(number)}/\d+\.\d+", str(body["messages"][-1]))
    word = WORDS[number - 1]
    claim = f"Since the {word} update the {word} import shows rows twice"
    finding = {"claim": claim, "evidence": ids[:1], "state": "unsolved"}
    return Answer([_use(SUBMIT, text=f"Channel {number} is read.", findings=[finding])])


def _brief(number: int) -> Json:
    return _use(
        "run_subagent",
        task=f"Find out what is open in channel support-{number} ({channel_id(number)})",
        description=f"Open in support-{number}",
        scope="slack",
        handles=[channel_id(number)],
    )


def _use(name: str, /, **arguments: Any) -> Json:
    return {"type": "tool_use", "name": name, "input": arguments}


def call_of(body: Mapping[str, Any]) -> tuple[str, int]:
    """Whose call this is (`parent`, `child 7`), and its number in that conversation."""
    turn = 1 + sum(m["role"] == "assistant" for m in body["messages"])
    if all(t["name"] != SUBMIT for t in body.get("tools", ())):
        return "parent", turn
    found = re.search(r"C0SUPPORT(\d\d)", str(body["messages"][0]))
    assert found, body["messages"][0]
    return f"child {int(found[1])}", turn
