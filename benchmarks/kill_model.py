"""The workspace of the kill matrix, and its model's answers to the requests."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from engine_kit import call, finding, is_child, results, say, submission, use

from bot.local.model.answer import Answer
from bot.local.workspace import Channel, Message, Team, User, Workspace

Json = dict[str, Any]

CHANNELS = 12
ASKERS = 200
"""People who may ask: one per request, so that none is known before."""
CUSTOMER = "U0EVA"
OFFICE = "C0OFFICE"
DAY_S = 86_400
WORDS = (
    """amber basil cedar dahlia ebony fennel garlic hazel indigo juniper kelp lavender""".split()
)
"""One per channel: no two channels share an important word."""
MARK = "This is all of it"
"""Ends the answer; occurs in it once."""
FEW = 3
"""Subagents if twelve would only take longer."""
QUESTION, OPTIONS = "Which report do you mean?", ["The weekly one", "The monthly one"]
NEEDED = "I need to know which report"
READ_ON = "Read to its end"
REMINDER = "Call Ana about the offer"
ORDERS = "Tell what the support channels wait for"
YEARLY = "0 9 1 1 *"
PREFERENCES = ("answer me in Portuguese", "call the customer Acme")
INSTRUCTIONS = "Keep it to three bullets"


TWINS = dict(
    zip(
        ["support", "office", *WORDS],
        """helpdesk bureau arnica borage cypress daisy elder fuchsia ginger heather indium
        jasmine kale laurel""".split(),
        strict=True,
    )
)
"""Word -> its replacement in a second workspace with the same ids."""


def twin(text: str, *, back: bool = False) -> str:
    """Return a text of the first workspace in the words of the second, or the other way round."""
    words = {new: old for old, new in TWINS.items()} if back else TWINS
    return re.sub(rf"\b({'|'.join(words)})\b", lambda found: words[found[0]], text)


def is_twin(text: str) -> bool:
    """Return whether a text has a word of the second workspace."""
    return twin(text, back=True) != text


def twin_workspace(team: Team) -> Workspace:
    """Return the second workspace: the same people and channels, other words."""
    first = workspace()
    channels = tuple(
        replace(
            channel,
            name=twin(channel.name),
            messages=tuple(replace(m, text=twin(m.text)) for m in channel.messages),
        )
        for channel in first.channels
    )
    return replace(first, team=team, channels=channels)


def workspace() -> Workspace:
    """Return twelve channels with one open question each, asked yesterday, and one for the bot."""
    askers = tuple(User(asker(n), f"ana{n}", f"Ana Ruiz {n}") for n in range(ASKERS))
    people = (*askers, User(CUSTOMER, "eva", "Eva Roth"))
    start = int(time.time()) - DAY_S
    channels = [
        Channel(channel_id(n), f"support-{n}", (_question(n, start + n),), (CUSTOMER,))
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


def responder(body: Json) -> Answer:
    """Answer by the script of the request; a subagent reads its channel and submits a finding."""
    if is_twin(str(body["messages"][0])):
        first = responder(json.loads(twin(json.dumps(body), back=True)))
        return replace(first, content=json.loads(twin(json.dumps(first.content))))
    name, turn = call_of(body)
    if name in SCRIPTS:
        return SCRIPTS[name](turn, body)
    if name != "parent":
        kind, channel = name.split()
        return _child(kind, int(channel), turn, body)
    opening = str(body["messages"][0])
    return next(script for text, script in SCRIPTS.items() if text in opening)(turn, body)


Script = Callable[[int, Json], Answer]


def _reading(number: int) -> Script:
    """Return a script: list the channels, start so many subagents in one turn, cite them all."""

    def script(turn: int, body: Json) -> Answer:
        if turn == 1:
            return call("list_channels", match="support")
        if turn == 2:
            return Answer([_brief(n) for n in range(1, number + 1)])
        return _cited(number)

    return script


def _cited(number: int, before: int = 0) -> Answer:
    """Cite so many subagents, one a channel, after those `before`."""
    lines = [f"- {found_in(n)} [F{n + before}.1]." for n in range(1, number + 1)]
    return say("\n".join(["These are open:", "", *lines, "", f"{MARK}."]))


def found_in(number: int) -> str:
    """Return the finding about one channel."""
    return f"In channel {number} the {WORDS[number - 1]} import shows rows twice"


def _choice(turn: int, body: Json) -> Answer:
    asks = call("ask_user", question=QUESTION, options=OPTIONS)
    return asks if turn == 1 else say(NEEDED)


def _waves(turn: int, body: Json) -> Answer:
    """Start a few subagents, hand each of their findings to one more, and cite the latter."""
    if turn < 3:
        return _reading(FEW)(turn, body)
    if turn == 3:
        template = {"task": f"{READ_ON}, in support: {{item}}", "scope": "slack"}
        items = [f"F{n}.1" for n in range(1, FEW + 1)]
        return call("run_subagents", items=items, template=template)
    return _cited(FEW, before=FEW)


def _reminder(turn: int, body: Json) -> Answer:
    name = _named(body, "call-ana")
    sets = call("remind_me", name=name, text=REMINDER, cron=YEARLY)
    return sets if turn == 1 else _told(body)


def _standing_question(turn: int, body: Json) -> Answer:
    name = _named(body, "orders")
    sets = call("schedule_create", name=name, kind="ask", request=ORDERS, cron=YEARLY)
    return sets if turn == 1 else say(f"{MARK}.")


def _preferences(turn: int, body: Json) -> Answer:
    """Keep two preferences in one turn, and delete one of them in the next."""
    if turn == 1:
        return Answer([use("remember_preference", text=text) for text in PREFERENCES])
    if turn == 2:
        return call("forget_preference", words=PREFERENCES[0])
    return _told(body)


def _instructions(turn: int, body: Json) -> Answer:
    """Set them, and keep a preference; their cards come in this order."""
    if turn == 1:
        return call("set_channel_instructions", text=INSTRUCTIONS)
    if turn == 2:
        return call("remember_preference", text=PREFERENCES[1])
    return say(f"{MARK}.")


def _told(body: Json) -> Answer:
    """Answer with the results of all tools."""
    return say("\n\n".join([*(str(part["content"]) for part in results(body)), f"{MARK}."]))


def _named(body: Json, name: str) -> str:
    """Return the name that the request gives to a schedule."""
    found = re.search(rf"{name}-\d+", str(body["messages"][0]))
    assert found
    return found[0]


AGAIN, DUE = "again", "due"
"""Parents that answer with the requester's choice, or for a schedule."""
SCRIPTS: dict[str, Script] = {
    "what is open in the support channels?": _reading(CHANNELS),
    "send the report": _choice,
    "read on in the support channels": _waves,
    "remind me each year": _reminder,
    "ask that each year": _standing_question,
    "from now on": _preferences,
    "in this channel": _instructions,
    AGAIN: _reading(FEW),
    DUE: _reading(FEW),
}
"""Words of a request, or the caller -> the script of the parent."""


def _child(kind: str, number: int, turn: int, body: Json) -> Answer:
    if turn == 1:
        if kind == "reader":
            (item,) = set(re.findall(rf"{channel_id(number)}/\d+\.\d+", str(body["messages"][0])))
            return call("read_thread", thread=item)
        return call("read_channel_history", channel=channel_id(number))
    ids = re.findall(rf"{channel_id(number)}/\d+\.\d+", str(body["messages"][-1]))
    word = WORDS[number - 1]
    claim = f"Since the {word} update the {word} import shows rows twice"
    found = finding(claim, *ids[:1], state="unsolved")
    return submission(f"Channel {number} is read.", findings=[found])


def _brief(number: int) -> Json:
    return use(
        "run_subagent",
        task=f"Find out what is open in channel support-{number} ({channel_id(number)})",
        description=f"Open in support-{number}",
        scope="slack",
        handles=[channel_id(number)],
    )


def call_of(body: Json) -> tuple[str, int]:
    """Return the caller (`parent`, `again`, `due`, `child 7`, `reader 7`), and the number of the
    call in that conversation."""
    turn = 1 + sum(m["role"] == "assistant" for m in body["messages"])
    opening = str(body["messages"][0])
    if not is_child(body):
        if "CHOSEN when you asked back" in opening:
            return AGAIN, turn
        return (DUE if ORDERS in opening else "parent"), turn
    found = re.search(r"C0SUPPORT(\d\d)", opening)
    assert found, opening
    return f"{'reader' if READ_ON in opening else 'child'} {int(found[1])}", turn
