"""The moments of a request at which its process is killed, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

from benchmarks.kill_model import FEW
from benchmarks.kill_watch import Phase

RUNNING = "(select run from inbox where state = 'running')"


def stored_step(ending: str) -> str:
    return f"select 1 from steps where run in {RUNNING} and key like '%/{ending}'"


def ended_subagents(number: int) -> str:
    ended = f"select count(*) from subagents where run in {RUNNING} and status = 'complete'"
    return f"select 1 where ({ended}) = {number}"


@dataclass(frozen=True, slots=True)
class Kill:
    """The time of a kill: at the `nth` such moment, then as soon as `stored` holds."""

    at: str
    """Moment: a Slack method, `event`, `ack`, `parent N`, `child K.N`; may be a pattern."""
    phase: Phase
    nth: int = 1
    stored: str = ""
    """A query that finds a row when the database is that far; empty = at the moment itself."""
    after: str = ""
    """Call that must be answered before a moment counts; empty = none."""
    hold: str = ""
    """The model call that is not answered before the kill."""

    def matches(self, name: str, phase: Phase) -> bool:
        return phase == self.phase and fnmatchcase(name, self.at)


@dataclass(frozen=True, slots=True)
class Point:
    """One row: a request, and the kills of its processes one after another."""

    name: str
    kills: tuple[Kill, ...]
    scenario: str = ""
    """Name in `kill_scenarios.SCENARIOS`; empty = the request with twelve subagents."""


SHORT_FORM = {
    "sqlite": (
        "stored, ack lost",
        "first sign, answer withheld",
        "all subagents but one ended",
        "final write, answer withheld",
        "request done, workflow not",
        "waves: all but one of the second wave ended",
        "reminder: post, answer withheld",
        "preferences: deleted",
    ),
    "postgres": ("subagents queued", "all subagents but one ended"),
}
"""Database -> the points of its short form."""
SHORT_REFUSED = {
    "sqlite": ("first sign, answer withheld", "final write, answer withheld"),
    "postgres": ("first sign, answer withheld",),
}
"""The same for a Slack that refuses streams."""


Kills = Kill | tuple[Kill, ...]


def _points(scenario: str, kills: Mapping[str, Kills]) -> Iterator[Point]:
    """Return the points of a scenario by name."""
    for name, each in kills.items():
        row = each if isinstance(each, tuple) else (each,)
        yield Point(f"{scenario}: {name}" if scenario else name, row, scenario)


FIRST, SECOND = "child *.1", "child *.2"
STATUS = "agents.sessions.setStatus"
REPLIED = Kill("parent 2", "answered")


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls that write a reply."""

    first: str
    plan: str
    text: str
    last: str


STREAMED = Calls(
    "chat.startStream",
    "chat.appendStream plan",
    "chat.appendStream text",
    "chat.update final",
)
STOPPED = "chat.stopStream"
"""The last call of a short answer without sources: it has no foot that an update would add."""
EDITED = Calls("chat.postMessage", "chat.update plan", "chat.update text", "chat.update final")


def points(calls: Calls) -> tuple[Point, ...]:
    """Return every point of requests with replies by these calls."""
    others = (
        [_waves(), _reminder(), _question(), _preferences(), _instructions()]
        if calls is STREAMED  # the way of writing a reply changes nothing in them
        else []
    )
    return (*_channels(calls), *_choice(calls), *chain.from_iterable(others))


def _channels(calls: Calls) -> Iterator[Point]:
    """Return the points of the request with twelve subagents."""
    kills: dict[str, Kills] = {
        "event on its way": Kill("event", "asked"),
        "event received, not acked": Kill("event", "answered"),
        "stored, ack lost": Kill("ack", "asked"),
        "ack received": Kill("ack", "answered"),
        "taken, not begun": Kill("ack", "answered", stored=f"select 1 where exists {RUNNING}"),
        "policy asked (users.info)": Kill("users.info", "asked"),
        "policy answered": Kill("users.info", "answered"),
        "first sign, before its effect": Kill(calls.first, "asked"),
        "first sign, answer withheld": Kill(calls.first, "done"),
        "first sign, answer sent": Kill(calls.first, "answered"),
        "first sign stored": Kill(calls.first, "answered", stored=stored_step("reply")),
        "Stop button shown": Kill(f"{STATUS} processing", "done"),
        "thread asked": Kill("conversations.replies", "asked"),
        "thread read": Kill("conversations.replies", "answered"),
        "surroundings stored": Kill(calls.first, "answered", stored=stored_step("surroundings")),
        "parent's 1st call sent": Kill("parent 1", "asked"),
        "parent's 1st call answered": Kill("parent 1", "answered"),
        "parent's tools stored": Kill("parent 1", "answered", stored=stored_step("tools")),
        "parent's 2nd call sent": Kill("parent 2", "asked"),
        "parent's 2nd call in mid-stream": Kill("parent 2", "mid", 9),
        "parent's 2nd call answered": Kill("parent 2", "answered"),
        "briefs frozen": Kill("parent 2", "answered", stored=stored_step("freeze")),
        "subagents queued": Kill(
            "parent 2", "answered", stored=f"select 1 from subagents where run in {RUNNING}"
        ),
        "subagent call 1 sent": Kill(FIRST, "asked"),
        "subagent call 6 sent": Kill(FIRST, "asked", 6),
        "subagent call 12 sent": Kill(FIRST, "asked", 12),
        "subagent call 1 answered": Kill(FIRST, "answered"),
        "subagent call 6 answered": Kill(FIRST, "answered", 6),
        "subagent call 12 answered": Kill(FIRST, "answered", 12),
        "subagent's tools at work": Kill("conversations.history", "asked", 4, after="child *.1"),
        "plan update, before its effect": Kill(calls.plan, "asked"),
        "plan update, answer withheld": Kill(calls.plan, "done"),
        "a subagent's submit sent": Kill(SECOND, "asked", 3),
        "a subagent's submit answered": Kill(SECOND, "answered", 3),
        "9th submit, answer withheld": Kill(SECOND, "done", 9),
        "all subagents but one ended": Kill(
            "child 7.2", "asked", stored=ended_subagents(11), hold="child 7.2"
        ),
        "all subagents ended": Kill(SECOND, "answered", 12, stored=ended_subagents(12)),
        "parent's last call sent": Kill("parent 3", "asked"),
        "parent's last call begins": Kill("parent 3", "mid"),
        "parent's last call in mid-stream": Kill("parent 3", "mid", 15),
        "text update, before its effect": Kill(calls.text, "asked"),
        "text update, answer withheld": Kill(calls.text, "done"),
        "parent's last call answered": Kill("parent 3", "answered"),
        "answer ready, not begun": Kill("parent 3", "answered", stored=stored_step("took")),
        "final write, before its effect": Kill(calls.last, "asked"),
        "final write, answer withheld": Kill(calls.last, "done"),
        "final write, answer sent": Kill(calls.last, "answered"),
        "Stop button taken away": Kill(f"{STATUS} active", "done"),
        "final write stored": Kill(calls.last, "answered", stored=stored_step("finish")),
        "run ended, request not": Kill(
            calls.last,
            "answered",
            stored=f"select 1 from runs where id in {RUNNING} and status <> 'running'",
        ),
        "request done, workflow not": Kill(
            calls.last,
            "answered",
            stored="""select 1 from inbox where state = 'done' and
                    received = (select max(received) from inbox)""",
        ),
        "2 kills: chat.update, before its effect": (REPLIED, Kill("chat.update final", "asked")),
        "2 kills: chat.update, answer withheld": (REPLIED, Kill("chat.update final", "done")),
        "2 kills: chat.update, answer sent": (REPLIED, Kill("chat.update final", "answered")),
        "2 kills: in the fan-out twice": (Kill(FIRST, "answered", 6), Kill(SECOND, "done", 5)),
        "2 kills: at the start, in mid-stream": (
            Kill(calls.first, "done"),
            Kill("parent 3", "mid", 15),
        ),
        "2 kills: at once after the restart": (Kill(FIRST, "asked", 6), Kill("auth.test", "done")),
        "2 kills: when it is back in touch": (
            Kill(FIRST, "asked", 9),
            Kill("apps.connections.open", "done"),
        ),
        "4 kills: each time in the fan-out": (
            Kill(FIRST, "answered", 3),
            Kill(FIRST, "asked", 3),
            Kill(SECOND, "asked", 2),
            Kill(SECOND, "answered", 2),
        ),
    }
    return _points("", kills)


REQUEST = "(select max(received) from inbox)"
REQUESTER = f'(select "user" from inbox where received = {REQUEST})'
PROPOSED = f"select 1 from actions where run in {RUNNING}"
CARD = "chat.postMessage card"
DRAWN = "chat.update card"
ROOT = "chat.postMessage root"


def an_action(state: str) -> str:
    return f"select 1 from actions where requester = {REQUESTER} and state = '{state}'"


def kept(number: int) -> str:
    """Return a query for so many preferences of the requester."""
    of = f"select count(*) from preferences where by = {REQUESTER} and space like 'user:%'"
    return f"select 1 where ({of}) = {number}"


def an_occurrence(state: str) -> str:
    """Return a query for an occurrence of the latest schedule in this state."""
    latest = "(select id from schedules order by made desc limit 1)"
    return f"select 1 from schedule_runs where schedule = {latest} and state = '{state}'"


SET = f"select 1 from schedules where made >= {REQUEST}"
DELIVERED = """select 1 from schedule_runs where delivery = 'delivered' and
    schedule = (select id from schedules order by made desc limit 1)"""


def _choice(calls: Calls) -> Iterator[Point]:
    """Return the points of a request that asks its requester back."""
    last = Kill(calls.last, "done", after="again 3")
    kills: dict[str, Kills] = {
        "proposed": Kill("parent 1", "answered", stored=PROPOSED),
        "card, before its effect": Kill(CARD, "asked"),
        "card, answer withheld": Kill(CARD, "done"),
        "card stored": Kill(CARD, "answered", stored=an_action("asked")),
        "click on its way": Kill("click", "asked"),
        "click received, not acked": Kill("click", "answered"),
        "choice stored, ack lost": Kill("click ack", "asked"),
        "choice stored": Kill("click", "answered", stored=an_action("approved")),
        "card redrawn, answer withheld": Kill(DRAWN, "done"),
        "request waits again": Kill(
            "click",
            "answered",
            stored=f"select 1 from inbox where attempt > 0 and received = {REQUEST}",
        ),
        "second answer's 1st call sent": Kill("again 1", "asked"),
        "second answer's 1st call answered": Kill("again 1", "answered"),
        "second answer's 2nd call answered": Kill("again 2", "answered"),
        "second answer's subagent answered": Kill(FIRST, "answered", 2),
        "second answer in mid-stream": Kill("again 3", "mid", 9),
        "second answer, before its final write": Kill(calls.last, "asked", after="again 3"),
        "second answer, final write withheld": last,
        "2 kills: card, second answer": (Kill(CARD, "done"), last),
    }
    return _points("choice", kills)


def _waves() -> Iterator[Point]:
    """Return the points of a request whose subagents' findings are handed to others."""
    few, both = ended_subagents(FEW), ended_subagents(2 * FEW)
    kills: dict[str, Kills] = {
        "first wave ended": Kill(SECOND, "answered", FEW, stored=few),
        "call between them sent": Kill("parent 3", "asked"),
        "call between them answered": Kill("parent 3", "answered"),
        "second wave's briefs frozen": Kill(
            "parent 3",
            "answered",
            stored=f"select 1 where (select count(*) from ({stored_step('freeze')}) s) = 2",
        ),
        "second wave queued": Kill(
            "parent 3",
            "answered",
            stored=f"select 1 from subagents where run in {RUNNING} and position > {FEW}",
        ),
        "second wave's call 2 sent": Kill("reader *.1", "asked", 2),
        "second wave's call 2 answered": Kill("reader *.1", "answered", 2),
        "second wave's submit sent": Kill("reader *.2", "asked", 2),
        "all but one of the second wave ended": Kill(
            "reader 2.2", "asked", stored=ended_subagents(2 * FEW - 1), hold="reader 2.2"
        ),
        "second wave ended": Kill("reader *.2", "answered", FEW, stored=both),
        "last call sent": Kill("parent 4", "asked"),
        "2 kills: one in each wave": (Kill(FIRST, "answered", 2), Kill("reader *.2", "asked", 2)),
    }
    return _points("waves", kills)


def _reminder() -> Iterator[Point]:
    """Return the points of a reminder that needs no card, from the request to the post."""
    unstored = Kill("parent 1", "answered", stored=SET)
    kills: dict[str, Kills] = {
        "set": unstored,
        "step stored": Kill("parent 1", "answered", stored=stored_step("tools")),
        "answer withheld": Kill(STOPPED, "done"),
        "occurrence due": Kill(STOPPED, "answered", stored=an_occurrence("due")),
        "occurrence taken": Kill(STOPPED, "answered", stored=an_occurrence("running")),
        "occurrence ran": Kill(STOPPED, "answered", stored=an_occurrence("ran")),
        "post, before its effect": Kill(ROOT, "asked"),
        "post, answer withheld": Kill(ROOT, "done"),
        "delivery stored": Kill(ROOT, "answered", stored=DELIVERED),
        "2 kills: set, posted": (unstored, Kill(ROOT, "done")),
    }
    return _points("reminder", kills)


def _question() -> Iterator[Point]:
    """Return the points of a question that is set up by a card and answered at its time."""
    unfinished = Kill("click", "answered", stored=SET)
    kills: dict[str, Kills] = {
        "card, answer withheld": Kill(CARD, "done"),
        "click received, not acked": Kill("click", "answered"),
        "approval stored": Kill("click", "answered", stored=an_action("approved")),
        "set": unfinished,
        "card redrawn a second time, answer withheld": Kill(DRAWN, "done", 2),
        "occurrence taken": Kill(STOPPED, "answered", stored=an_occurrence("running")),
        "its 1st call sent": Kill("due 1", "asked"),
        "its subagent answered": Kill(FIRST, "answered", 2),
        "its last call answered": Kill("due 3", "answered"),
        "its answer stored": Kill("due 3", "answered", stored=an_occurrence("ran")),
        "post, before its effect": Kill(ROOT, "asked"),
        "post, answer withheld": Kill(ROOT, "done"),
        "2 kills: set, posted": (unfinished, Kill(ROOT, "done")),
    }
    return _points("question", kills)


def _preferences() -> Iterator[Point]:
    """Return the points of a request that keeps two preferences and deletes one."""
    deleted = Kill("parent 2", "answered", stored=kept(1))
    kills: dict[str, Kills] = {
        "one kept": Kill("parent 1", "answered", stored=kept(1)),
        "both kept": Kill("parent 1", "answered", stored=kept(2)),
        "keeping stored": Kill("parent 1", "answered", stored=stored_step("tools")),
        "deletion asked for": Kill("parent 2", "asked"),
        "deleted": deleted,
        "last call sent": Kill("parent 3", "asked"),
        "2 kills: both kept, deleted": (Kill("parent 1", "answered", stored=kept(2)), deleted),
    }
    return _points("preferences", kills)


def _instructions() -> Iterator[Point]:
    """Return the points of channel instructions and a preference, by cards."""
    new = f"select 1 from preferences where at >= {REQUEST} and space like 'channel:%'"
    kills: dict[str, Kills] = {
        "proposed": Kill("parent 1", "answered", stored=PROPOSED),
        "card, answer withheld": Kill(CARD, "done"),
        "approval stored": Kill("click", "answered", stored=an_action("approved")),
        "set": Kill("click", "answered", stored=new),
        "preference kept": Kill("click", "answered", stored=kept(1)),
        "card redrawn, answer withheld": Kill(DRAWN, "done", 2),
        "done": Kill("click", "answered", stored=an_action("done")),
    }
    return _points("instructions", kills)
