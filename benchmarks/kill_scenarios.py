"""The requests of the kill matrix, the actions of people, and the results expected once."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.kill_model import (
    CHANNELS,
    FEW,
    INSTRUCTIONS,
    MARK,
    NEEDED,
    OPTIONS,
    PREFERENCES,
    QUESTION,
    REMINDER,
    found_in,
)

Phrases = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """A request. `{n}` in its texts is its number, `{user}` the id of the requester."""

    text: str
    messages: tuple[Phrases, ...]
    """Phrases of each message of the bot: in the channel by time, then to only the requester."""
    contexts: tuple[int, ...]
    """Contexts of each run, by time: a parent and its subagents; 0 = no model call."""
    in_thread: bool = True
    """True if it is asked in somebody else's thread."""
    press: str = ""
    """Button that the requester presses on each card."""
    schedule: str = ""
    """Schedule to run once in the terminal, when it is set and the request answered."""
    rows: tuple[tuple[str, int], ...] = ()
    """Queries that count rows, and the expected count."""
    preferences: Phrases = ()
    """Expected preferences of the requester."""
    instructions: str = ""
    """Expected instructions of the channel."""

    def subagents(self) -> tuple[int, ...]:
        """Return the number of subagents of each run."""
        return tuple(max(0, contexts - 1) for contexts in self.contexts)


def _cited(channels: int) -> Phrases:
    links = (f"[{n}](http" for n in range(1, channels + 1))
    return (*links, *(f"{found_in(n)} [" for n in range(1, channels + 1)), MARK)


def _of(query: str) -> str:
    return f"select count(*) from {query}"


_DONE = _of("actions where requester = '{user}' and state = 'done'")
_ACTIONS = _of("actions where requester = '{user}'")
_SET = _of("schedules where id = '{schedule}' and state = 'active'")
_RAN = _of("schedule_runs where schedule = '{schedule}' and state = 'ran'")
_DELIVERED = _of("schedule_runs where schedule = '{schedule}' and delivery = 'delivered'")
_SCHEDULED = ((_SET, 1), (_RAN, 1), (_DELIVERED, 1))

CHANNELS_READ = Scenario(
    "what is open in the support channels?", (_cited(CHANNELS),), (1 + CHANNELS,)
)
SCENARIOS = {
    "": CHANNELS_READ,
    "choice": Scenario(
        "send the report",
        ((NEEDED,), (QUESTION, f"{OPTIONS[1]} Chosen by <@{{user}}>"), _cited(FEW)),
        (1, 1 + FEW),
        press="action_choose_1",
        rows=((_DONE, 1), (_ACTIONS, 1)),
    ),
    "waves": Scenario("read on in the support channels", (_cited(FEW),), (1 + 2 * FEW,)),
    "reminder": Scenario(
        f"remind me each year: {REMINDER}. Name it call-ana-{{n}}",
        (("call-ana-{n} is set", MARK), (f"Reminder: {REMINDER}",)),
        (1, 0),
        in_thread=False,
        schedule="call-ana-{n}",
        rows=_SCHEDULED,
    ),
    "question": Scenario(
        "ask that each year. Name it orders-{n}",
        ((MARK,), ("orders-{n} is set",), (*_cited(FEW), "Schedule orders-{n} of <@{user}>")),
        (1, 1 + FEW),
        press="action_approve",
        schedule="orders-{n}",
        rows=((_DONE, 1), (_ACTIONS, 1), *_SCHEDULED),
    ),
    "preferences": Scenario(
        f"from now on {PREFERENCES[0]} and {PREFERENCES[1]}, but no: forget {PREFERENCES[0]}",
        ((f"This preference is deleted: {PREFERENCES[0]}", MARK),),
        (1,),
        in_thread=False,
        preferences=PREFERENCES[1:],
    ),
    "instructions": Scenario(
        f"in this channel: {INSTRUCTIONS}; and {PREFERENCES[1]}",
        ((MARK,), ("are set, and hold from",), ("It is kept, and holds from",)),
        (1,),
        press="action_approve",
        rows=((_DONE, 2), (_ACTIONS, 2)),
        preferences=PREFERENCES[1:],
        instructions=INSTRUCTIONS,
    ),
}
"""Name -> the request; most points use the first one."""
