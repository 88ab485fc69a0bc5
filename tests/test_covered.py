"""What a subagent listed, searched or queried and did not read is told, and only that."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Done, Shell, model_at
from document_kit import gap_lines
from engine_kit import call, is_child, say, submitted, turn, use

from bot.local.model.answer import Answer

Json = dict[str, Any]
FOLDER, DATA, MAIL = "files:src", "data:shop", "mail:search"


@pytest.fixture
def src(tmp_path: Path) -> Path:
    """41 modules, a text beside them, and two more modules in a folder of their own."""
    folder = tmp_path / "src"
    (folder / "tests").mkdir(parents=True)
    for n in range(41):
        (folder / f"m{n:02}.py").write_text(f'"""Module {n} of the shop."""\n', "utf-8")
    (folder / "README.md").write_text("The shop.\n", "utf-8")
    for name in ("test_a.py", "test_b.py"):
        (folder / "tests" / name).write_text("import pytest\n", "utf-8")
    return folder


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    """A database with a table of 2,000 rows."""
    folder = tmp_path / "shop"
    folder.mkdir()
    rows = "".join(f"{n},{n * 3}\n" for n in range(2_000))
    (folder / "sales.csv").write_text(f"id,amount\n{rows}", "utf-8")
    return folder


def read(*numbers: int, of: str = "m{:02}.py") -> list[Json]:
    return [use("read_file", folder=FOLDER, path=of.format(n)) for n in numbers]


def asked(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    source: Sequence[object],
    task: str,
    *steps: Sequence[Json],
) -> Done:
    """A question whose one subagent takes these steps and then says that it is done."""
    scope = {"--folder": "files", "--database": "data", "--mbox": "email"}[str(source[0])]
    handle = {"files": FOLDER, "data": DATA, "email": MAIL}[scope]

    def mind(body: Json) -> Answer:
        if is_child(body):
            at = turn(body)
            return Answer(list(steps[at])) if at < len(steps) else submitted("It is all here.")
        if turn(body) == 0:
            brief = {"task": task, "description": "Look", "scope": scope, "handles": [handle]}
            return call("run_subagent", **brief)
        return say("It is all here.")

    with model_at(monkeypatch, mind):
        done = shell("ask", task, *source, "--json")
    assert done.json["subagents"], done.json["answer"]
    return done


def told(shell: Shell, done: Done) -> list[str]:
    """What was not covered of what did not end whole; nothing where all did."""
    (subagent,) = done.json["subagents"]
    gaps = list(subagent["not_covered"])
    status = "partial" if gaps else "complete"
    assert (subagent["status"], done.json["status"]) == (status, status), gaps
    assert done.code == bool(gaps)
    assert gap_lines(done.json) == [f"s1: {gap}" for gap in gaps]
    audit = shell("audit", done.json["run_id"])
    assert audit.code == 0, audit.out
    return gaps


LIST = use("list_files", folder=FOLDER)


@pytest.mark.parametrize(
    ("task", "steps", "gap"),
    [
        ("Summarize every module.", [[LIST], read(1, 2)], "41 of 43 files in src"),
        (
            "Read all files in tests.",
            [[LIST], read(0, of="tests/test_a.py")],
            "1 of 2 files in src",
        ),
        ("総括: すべてのファイル", [[LIST], read(1)], "42 of 43 files in src"),
        ("Read all files.", [[LIST]], "44 of 44 files in src"),
        ("Read m01.py and m02.py, all of these files.", [[LIST], read(1)], "1 of 2 files in src"),
    ],
)
def test_a_task_that_asks_for_all_files_names_those_that_were_not_read(
    shell: Shell,
    monkeypatch: pytest.MonkeyPatch,
    src: Path,
    task: str,
    steps: list[list[Json]],
    gap: str,
) -> None:
    (only,) = told(shell, asked(shell, monkeypatch, ("--folder", src), task, *steps))
    assert only.startswith(f"{gap} were not read: ")
