"""The moments of a request at which its process is killed, by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from itertools import chain

from benchmarks.kill_mind import FEW
from benchmarks.kill_watch import Phase

RUNNING = "(select run from inbox where state = 'running')"


def stored_step(ending: str) -> str:
    return f"select 1 from steps where run in {RUNNING} and key like '%/{ending}'"


def ended_subagents(number: int) -> str:
    ended = f"select count(*) from subagents where run in {RUNNING} and status = 'complete'"
    return f"select 1 where ({ended}) = {number}"


@dataclass(frozen=True, slots=True)
class Kill:
    """When a process is killed: at the `nth` such moment, then as soon as `stored` holds."""

    at: str
    """Of moments: a Slack method, `event`, `ack`, `parent N`, `child K.N`; may be a pattern."""
    phase: Phase
    nth: int = 1
    stored: str = ""
    """A query that finds a row when the database is as far; empty = at the moment itself."""
    after: str = ""
    """What has to be answered before one counts; empty = nothing."""
    hold: str = ""
    """The model call that is not answered before the kill."""

    def matches(self, name: str, phase: Phase) -> bool:
        return phase == self.phase and fnmatchcase(name, self.at)


@dataclass(frozen=True, slots=True)
class Point:
    """One row: a request, and the kills in its lives one after another."""

    name: str
    kills: tuple[Kill, ...]
    short: frozenset[str] = frozenset()
    """Databases whose short form has it."""
    scenario: str = ""
    """Of `kill_scenarios.SCENARIOS`; empty = the request with twelve subagents."""
    refused: frozenset[str] = frozenset()
    """Databases whose short form has it for a Slack that refuses streams."""


def _point(name: str, *kills: Kill, short: str = "", refused: str = "") -> Point:
    return Point(name, kills, frozenset(short.split()), refused=frozenset(refused.split()))


Kills = Kill | tuple[Kill, ...]


def _points(scenario: str, kills: Mapping[str, Kills], short: str = "") -> Iterator[Point]:
    """Return the points of a scenario by name; SQLite's short form has the one of name `short`."""
    for name, each in kills.items():
        row = each if isinstance(each, tuple) else (each,)
        is_short = frozenset({"sqlite"} if name == short else ())
        yield Point(f"{scenario}: {name}", row, is_short, scenario)


BOTH = "sqlite postgres"
FIRST, SECOND = "child *.1", "child *.2"
STATUS = "agents.sessions.setStatus"
REPLIED = Kill("parent 2", "answered")


@dataclass(frozen=True, slots=True)
class Calls:
    """The calls by which a reply is written."""

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
EDITED = Calls("chat.postMessage", "chat.update plan", "chat.update text", "chat.update final")


def points(calls: Calls) -> tuple[Point, ...]:
    """Return every point of requests whose replies are written by these calls."""
    others = (
        [_waves(), _reminder(calls), _question(calls), _preferences(), _instructions()]
        if calls is STREAMED  # how a reply is written changes nothing in them
        else []
    )
    return (*_channels(calls), *_choice(calls), *chain.from_iterable(others))


def _channels(calls: Calls) -> tuple[Point, ...]:
    """Return the points of the request with twelve subagents."""
    return (
        _point("event on its way", Kill("event", "asked")),
        _point("event received, not acked", Kill("event", "answered")),
        _point("stored, ack lost", Kill("ack", "asked"), short="sqlite"),
        _point("ack received", Kill("ack", "answered")),
        _point(
            "taken, not begun", Kill("ack", "answered", stored=f"select 1 where exists {RUNNING}")
        ),
        _point("policy asked (users.info)", Kill("users.info", "asked")),
        _point("policy answered", Kill("users.info", "answered")),
        _point("first sign, before its effect", Kill(calls.first, "asked")),
        _point(
            "first sign, answer withheld", Kill(calls.first, "done"), short="sqlite", refused=BOTH
        ),
        _point("first sign, answer sent", Kill(calls.first, "answered")),
        _point("first sign stored", Kill(calls.first, "answered", stored=stored_step("reply"))),
        _point("Stop button shown", Kill(f"{STATUS} processing", "done")),
        _point("thread asked", Kill("conversations.replies", "asked")),
        _point("thread read", Kill("conversations.replies", "answered")),
        _point(
            "surroundings stored", Kill(calls.first, "answered", stored=stored_step("surroundings"))
        ),
        _point("parent's 1st call sent", Kill("parent 1", "asked")),
        _point("parent's 1st call answered", Kill("parent 1", "answered")),
        _point("parent's tools stored", Kill("parent 1", "answered", stored=stored_step("tools"))),
        _point("parent's 2nd call sent", Kill("parent 2", "asked")),
        _point("parent's 2nd call in mid-stream", Kill("parent 2", "mid", 9)),
        _point("parent's 2nd call answered", Kill("parent 2", "answered")),
        _point("briefs frozen", Kill("parent 2", "answered", stored=stored_step("freeze"))),
        _point(
            "subagents queued",
            Kill("parent 2", "answered", stored=f"select 1 from subagents where run in {RUNNING}"),
            short="postgres",
        ),
        _point("subagent call 1 sent", Kill(FIRST, "asked")),
        _point("subagent call 6 sent", Kill(FIRST, "asked", 6)),
        _point("subagent call 12 sent", Kill(FIRST, "asked", 12)),
        _point("subagent call 1 answered", Kill(FIRST, "answered")),
        _point("subagent call 6 answered", Kill(FIRST, "answered", 6)),
        _point("subagent call 12 answered", Kill(FIRST, "answered", 12)),
        _point(
            "subagent's tools at work", Kill("conversations.history", "asked", 4, after="child *.1")
        ),
        _point("plan update, before its effect", Kill(calls.plan, "asked")),
        _point("plan update, answer withheld", Kill(calls.plan, "done", 2)),
        _point("a subagent's submit sent", Kill(SECOND, "asked", 3)),
        _point("a subagent's submit answered", Kill(SECOND, "answered", 3)),
        _point("9th submit, answer withheld", Kill(SECOND, "done", 9)),
        _point(
            "all subagents but one ended",
            Kill("child 7.2", "asked", stored=ended_subagents(11), hold="child 7.2"),
            short=BOTH,
        ),
        _point("all subagents ended", Kill(SECOND, "answered", 12, stored=ended_subagents(12))),
        _point("parent's last call sent", Kill("parent 3", "asked")),
        _point("parent's last call begins", Kill("parent 3", "mid")),
        _point("parent's last call in mid-stream", Kill("parent 3", "mid", 15)),
        _point("text update, before its effect", Kill(calls.text, "asked")),
        _point("text update, answer withheld", Kill(calls.text, "done")),
        _point("parent's last call answered", Kill("parent 3", "answered")),
        _point("answer ready, not begun", Kill("parent 3", "answered", stored=stored_step("took"))),
        _point("final write, before its effect", Kill(calls.last, "asked")),
        _point(
            "final write, answer withheld",
            Kill(calls.last, "done"),
            short="sqlite",
            refused="sqlite",
        ),
        _point("final write, answer sent", Kill(calls.last, "answered")),
        _point("Stop button taken away", Kill(f"{STATUS} active", "done")),
        _point("final write stored", Kill(calls.last, "answered", stored=stored_step("finish"))),
        _point(
            "run ended, request not",
            Kill(
                calls.last,
                "answered",
                stored=f"select 1 from runs where id in {RUNNING} and status <> 'running'",
            ),
        ),
        _point(
            "request done, workflow not",
            Kill(
                calls.last,
                "answered",
                stored="""select 1 from inbox where state = 'done' and
                    received = (select max(received) from inbox)""",
            ),
            short="sqlite",
        ),
        _point(
            "2 kills: chat.update, before its effect", REPLIED, Kill("chat.update final", "asked")
        ),
        _point("2 kills: chat.update, answer withheld", REPLIED, Kill("chat.update final", "done")),
        _point("2 kills: chat.update, answer sent", REPLIED, Kill("chat.update final", "answered")),
        _point(
            "2 kills: in the fan-out twice", Kill(FIRST, "answered", 6), Kill(SECOND, "done", 5)
        ),
        _point(
            "2 kills: at the start, in mid-stream",
            Kill(calls.first, "done"),
            Kill("parent 3", "mid", 15),
        ),
        _point(
            "2 kills: at once after the restart", Kill(FIRST, "asked", 6), Kill("auth.test", "done")
        ),
        _point(
            "2 kills: when it is back in touch",
            Kill(FIRST, "asked", 9),
            Kill("apps.connections.open", "done"),
        ),
        _point(
            "4 kills: each time in the fan-out",
            Kill(FIRST, "answered", 3),
            Kill(FIRST, "asked", 3),
            Kill(SECOND, "asked", 2),
            Kill(SECOND, "answered", 2),
        ),
    )


REQUEST = "(select max(received) from inbox)"
REQUESTER = f'(select "user" from inbox where received = {REQUEST})'
PROPOSED = f"select 1 from actions where run in {RUNNING}"
CARD = "chat.postMessage card"
DRAWN = "chat.update card"
ROOT = "chat.postMessage root"


def an_action(state: str) -> str:
    return f"select 1 from actions where requester = {REQUESTER} and state = '{state}'"


def kept(number: int) -> str:
    """Preferences of the requester: so many."""
    of = f"select count(*) from preferences where by = {REQUESTER} and space like 'user:%'"
    return f"select 1 where ({of}) = {number}"


def an_occurrence(state: str) -> str:
    """Of the schedule that was set last."""
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
    return _points("waves", kills, "all but one of the second wave ended")


def _reminder(calls: Calls) -> Iterator[Point]:
    """Return the points of a reminder that needs no card, from the request to what is posted."""
    unstored = Kill("parent 1", "answered", stored=SET)
    kills: dict[str, Kills] = {
        "set": unstored,
        "step stored": Kill("parent 1", "answered", stored=stored_step("tools")),
        "answer withheld": Kill(calls.last, "done"),
        "occurrence due": Kill(calls.last, "answered", stored=an_occurrence("due")),
        "occurrence taken": Kill(calls.last, "answered", stored=an_occurrence("running")),
        "occurrence ran": Kill(calls.last, "answered", stored=an_occurrence("ran")),
        "post, before its effect": Kill(ROOT, "asked"),
        "post, answer withheld": Kill(ROOT, "done"),
        "delivery stored": Kill(ROOT, "answered", stored=DELIVERED),
        "2 kills: set, posted": (unstored, Kill(ROOT, "done")),
    }
    return _points("reminder", kills)


def _question(calls: Calls) -> Iterator[Point]:
    """Return the points of a question that is set up by a card and answered at its time."""
    unfinished = Kill("click", "answered", stored=SET)
    kills: dict[str, Kills] = {
        "card, answer withheld": Kill(CARD, "done"),
        "click received, not acked": Kill("click", "answered"),
        "approval stored": Kill("click", "answered", stored=an_action("approved")),
        "set": unfinished,
        "card redrawn a second time, answer withheld": Kill(DRAWN, "done", 2),
        "occurrence taken": Kill(calls.last, "answered", stored=an_occurrence("running")),
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
    return _points("preferences", kills, "deleted")


def _instructions() -> Iterator[Point]:
    """Return the points of what is set for a channel, and kept, by cards."""
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
