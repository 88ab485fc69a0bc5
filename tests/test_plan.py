"""The plan in Slack: a row a subagent, grouped when there are many, never more than it may show."""

from __future__ import annotations

from bot.slack.plan import MAX_TITLE, Plan, lines, short_heading, tasks
from subagents.events import (
    AnswerDelta,
    Event,
    SourcesRead,
    SubagentFinished,
    SubagentQueued,
    SubagentStarted,
    ToolsCalled,
)


def planned(*events: Event) -> Plan:
    plan = Plan()
    for event in events:
        plan.take(event)
    return plan


def queued(count: int, scope: str = "slack", start: int = 1) -> list[Event]:
    return [
        SubagentQueued(f"s{n}", f"Read {n}", scope, "fast") for n in range(start, start + count)
    ]


def done(n: int, status: str = "complete") -> Event:
    return SubagentFinished(f"s{n}", status, "none", 2, 0.001)


def said(plan: Plan, max_rows: int = 40, shown: tuple[str, ...] = ()) -> list[tuple[str, str]]:
    return [(task.title, task.status) for task in tasks(plan, max_rows, shown)]


def test_nothing_is_planned_before_something_is_looked_up() -> None:
    plan = Plan()
    assert short_heading(plan) == "On it …"
    assert said(plan) == []
    plan.take(ToolsCalled("p1", ("run_subagent", "schedule_list")))
    assert said(plan) == []
    plan.take(ToolsCalled("p1", ("list_channels", "list_channels")))
    assert said(plan) == [("Channels", "in_progress")]
    plan.take(SourcesRead(3, 12))
    assert said(plan) == [("3 of 12 channels read", "in_progress")]
    plan.take(SourcesRead(12, 12))
    plan.take(AnswerDelta("So"))
    assert said(plan) == [("12 of 12 channels read", "complete")]
    assert short_heading(plan, over=True) == "Done"


def test_each_question_has_a_row_that_follows_it() -> None:
    plan = planned(*queued(4), SubagentStarted("s1"), SubagentStarted("s2"))
    plan.take(ToolsCalled("s1", ("read_thread",)))
    plan.take(done(3))
    plan.take(done(4, "failed"))
    plan.take(done(5))
    assert said(plan) == [
        ("Read 1 · Slack", "in_progress"),
        ("Read 2 · Slack", "in_progress"),
        ("Read 3 · Slack, 2 findings", "complete"),
        ("Read 4 · Slack, 2 findings, this failed", "error"),
        ("A question · 2 findings", "complete"),
    ]
    assert short_heading(plan) == "3 of 5 done"


def test_what_strangers_wrote_is_calm_and_short() -> None:
    plan = planned(SubagentQueued("s1", "a\n<!channel> " + "é" * 999, "slack", "fast"))
    (row,) = tasks(plan, 40)
    assert len(row.title) <= MAX_TITLE
    assert "\n" not in row.title
    text = lines(tasks(plan, 40), short_heading(plan))
    assert "&lt;!channel&gt;" in text
    assert "<!" not in text
