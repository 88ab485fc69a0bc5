"""What was written in a copy comes into the folder by the gate's word of that moment, once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from engine_kit import engine, submitted, turns
from files_kit import ANA, BOOK, Desk, repository

from scopes.closing import Left
from scopes.effects import Access, Effect
from scopes.intent import Intent
from scopes.label import Label
from scopes.tool import ToolContext, ToolResult, tool
from subagents.child import run_child
from subagents.rules import MAX_FILED

COPY = "changes were left in a subagent's own copy, work/r1/trees/s1-book in the data folder"
BEN = "U0BEN"


async def wrote(desk: Desk) -> ToolContext:
    """A subagent that wrote beside others and committed nothing."""
    repository(desk.root)
    one = desk.context("s1", beside=True)
    await desk.use("write_file", by=one, path="a.md", text="One\n", folder=BOOK)
    return one


def stays(desk: Desk) -> None:
    """Nothing came, and nothing is lost."""
    assert not (desk.root / "a.md").exists()
    assert (desk.data / "work/r1/trees/s1-book/a.md").read_text() == "One\n"


async def test_bringing_is_a_decision_of_the_gate_in_its_log(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    assert await desk.ended(await wrote(desk)) == {"commit in files:book": ""}
    assert (desk.root / "a.md").read_text() == "One\n"
    logged = [(d.context, d.tool, d.verdict, d.rule) for d in desk.decisions]
    assert logged[-1] == ("s1", "bring_files", "allow", "bring within all rules")


@pytest.mark.parametrize(
    ("requester", "readers", "label", "rule"),
    [
        (ANA, {BEN}, Label(), "entitlement"),
        (ANA, {ANA, BEN}, Label(readers=frozenset({ANA})), "audience"),
        (BEN, {ANA}, Label(), "entitlement"),
    ],
    ids=["closed-to-the-requester", "read-something-private", "another-requester"],
)
async def test_what_may_not_come_any_more_stays_in_the_copy_and_is_told(
    tmp_path: Path, requester: str, readers: set[str], label: Label, rule: str
) -> None:
    desk = Desk(tmp_path)
    one = replace(await wrote(desk), requester=requester, label=label)
    desk.projects[BOOK] = replace(desk.projects[BOOK], readers=frozenset(readers))
    undone = await desk.ended(one)
    text = f"book is as it was, as the gate's rule of {rule} wants it: {COPY}"
    assert undone == {"commit in files:book": text}
    last = desk.decisions[-1]
    assert (last.tool, last.verdict, last.rule) == ("bring_files", "deny", rule)
    stays(desk)


async def test_after_a_stop_nothing_comes_and_the_result_says_so(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    undone = await desk.ended(await wrote(desk), stopped=True)
    assert undone["commit in files:book"].startswith(
        "book is as it was, as the request was stopped"
    )
    stays(desk)


async def test_who_has_made_all_changes_it_may_still_brings_them(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    one = await wrote(desk)
    desk.gate.counts["file s1"] = MAX_FILED
    assert await desk.ended(one) == {"commit in files:book": ""}


# ---- from the end of a subagent

told: list[str] = []
"""The calls by which something was brought."""


@tool(Access.WRITE, Effect.BRING)
async def bring(ctx: ToolContext) -> ToolResult:
    """Bring what lies aside."""
    told.append(ctx.key)
    return ToolResult()


class Aside:
    """Holds something of each context."""

    def left(self, context: str) -> list[Left]:
        return [Left(bring, {}, "it", "It stays, {}.")]


@pytest.mark.parametrize("stopped", [False, True])
async def test_what_a_subagent_left_comes_when_it_ends_well_and_nobody_stopped_it(
    stopped: bool,
) -> None:
    told.clear()
    async with engine(turns(submitted("Done.", findings=[]))) as e:
        e.run.clients = {**e.run.clients, Aside: Aside()}
        asked = replace(e.brief("Find out", 2), beside=True, intent=Intent(text="Find out"))
        (frozen,) = await e.fanout().freeze([asked])
        found = await run_child(e.run, frozen, e.run.stop.set if stopped else None)
    assert told == ([] if stopped else [f"{e.run.id}/s1/close"])
    assert ("It stays, as the request was stopped." in found.not_covered) == stopped
