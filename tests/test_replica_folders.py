"""Two replicas over one project folder: nothing that a subagent wrote is lost or done twice."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pygit2
import pytest
from engine_kit import Json, is_child, line, results, say, submitted, turn, until, use
from files_kit import branches, git, repository, subjects, text_at
from fleet_kit import at_work_first, fleet
from pg_kit import Kept, execute, postgres
from serve_kit import ASKER

from bot.local.model.answer import Answer
from bot.local.model.server import Mind

pytestmark = pytest.mark.system

__all__ = ["postgres"]

PARTS = range(1, 9)


def writers(errors: list[str]) -> Mind:
    """A parent that has each part of a chapter written and committed by a subagent of its own."""

    def mind(body: Json) -> Answer:
        if not is_child(body):
            chapter = line(body, "REQUEST").split()[-1]
            briefs = [
                use(
                    "run_subagent",
                    task=f"Write {chapter}-{n}",
                    description=f"Part {n}",
                    scope="files",
                    handles=["files:book"],
                )
                for n in PARTS
            ]
            return Answer(briefs) if turn(body) == 0 else say("All parts are written.")
        errors.extend(str(each["content"]) for each in results(body) if each.get("is_error"))
        part = line(body, "TASK").split()[-1]
        steps = [
            use("write_file", path=f"{part}.md", text=f"# {part}\n"),
            use("git_commit", message=f"Write {part}"),
        ]
        step = turn(body)
        return Answer([steps[step]]) if step < len(steps) else submitted("Done.", findings=[])

    return mind


def written(repo: pygit2.Repository) -> dict[str, str]:
    """Subject of each commit of a request -> the branch that it is on. Each is on one."""
    names = branches(repo) - {"main"}
    found = [(each, name) for name in names for each in subjects(repo, name) if each != "Begin"]
    assert len(found) == len(dict(found))
    return dict(found)


@pytest.mark.parametrize("killed", [pytest.param(False, marks=pytest.mark.slow), True])
async def test_what_two_replicas_write_side_by_side_is_all_there_once(
    postgres: Kept, tmp_path: Path, killed: bool
) -> None:
    assert postgres.url
    repo, errors = repository(tmp_path / "book", {"README.md": "# Book\n"}), list[str]()
    chapters = 0
    book = {"path": str(tmp_path / "book"), "readers": [ASKER]}
    with fleet(
        tmp_path,
        writers(errors),
        url=postgres.url,
        latency_s=0.2,
        files={"projects": {"book": book}},
        limits={"max_concurrency": 4, "seconds": 600.0, "cost_usd": 50.0},
    ) as bots:
        await bots.started(2)
        while chapters < 6:  # whoever looks first takes what is free: at times it is one
            chapters += 1
            thread = bots.ask(f"Write the parts of this chapter into the book: {chapters}")
            if killed:
                await until(lambda: len(written(repo)) >= 2, 30)
                first, _ = await at_work_first(bots)
                await asyncio.to_thread(first.kill)
            shown = await bots.answer(thread, 60)
            assert "in a direct message" in shown.text  # not everyone there may read the project
            workers = execute(
                "SELECT DISTINCT executor_id FROM dbos.workflow_status WHERE name = 'subagent'",
                postgres.url,
            )
            if killed or len(workers) == 2:
                break
        else:
            raise AssertionError("one replica did all of it")
    parts = [f"{chapter}-{n}" for chapter in range(1, chapters + 1) for n in PARTS]
    made = written(repo)
    assert sorted(made) == sorted(f"Write {part}" for part in parts)
    assert len(branches(repo)) == 1 + chapters  # no draft is left
    for part in parts:
        assert text_at(repo, f"{part}.md", made[f"Write {part}"]) == f"# {part}\n"
    assert git(tmp_path / "book", "status", "--porcelain") == ""
    assert errors == []
