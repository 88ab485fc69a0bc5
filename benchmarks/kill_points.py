"""The moments of a request at which its process is killed, by name."""

from __future__ import annotations

from dataclasses import dataclass
from fnmatch import fnmatchcase

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
    refused: frozenset[str] = frozenset()
    """Databases whose short form has it for a Slack that refuses streams."""


def _point(name: str, *kills: Kill, short: str = "", refused: str = "") -> Point:
    return Point(name, kills, frozenset(short.split()), frozenset(refused.split()))


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
    "chat.stopStream final",
)
EDITED = Calls("chat.postMessage", "chat.update plan", "chat.update text", "chat.update final")


def points(calls: Calls) -> tuple[Point, ...]:
    """Return every point of a request whose reply is written by these calls."""
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
