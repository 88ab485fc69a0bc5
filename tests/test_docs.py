"""README and docs are run: commands print what the pages show, and named files exist."""

import asyncio
import io
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import typer
from bot_kit import Shell

from bot.__main__ import app, main
from bot.approvals.store import Actions
from bot.cli.schedules import DryRun, PlannedChannel, Span
from bot.cli.tools import ShownServer, ShownTool
from bot.policy.directory import Grants
from bot.reports import documents
from bot.runs.store import Store
from bot.schedules.description import ScheduleStatus
from bot.storage.encryption import cipher_of
from bot.storage.requests import RequestQueue
from bot.storage.schedules import Occurrence, StoredSchedule
from bot.storage.tables import METADATA
from config.schedules import Schedule
from config.settings import load_settings
from scopes.intent import EMPTY_INTENT
from scopes.label import TRUSTED_LABEL
from subagents.directory import Obstacle
from subagents.gate import Action

ROOT = Path(__file__).resolve().parent.parent
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]
JSON_PAGE = ROOT / "docs" / "json.md"
TECHNICAL = [
    ROOT / "docs" / f"{name}.md"
    for name in "architecture configuration conformance google mail scopes security".split()
]

FENCE = re.compile(r"^```(\w*) ?(.*)\n((?:.*\n)*?)```$", re.MULTILINE)
RUN_ID = r"\b[0-9a-f]{12}\b"
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
PATH = re.compile(
    r"`((?:bot|subagents|scopes|config|tests|docs|benchmarks|examples)/[\w./-]*[\w/])`"
)
ASSISTANT_COMMAND = re.compile(r'assistant (?P<arguments>[^;|&<>]+?)(?P<exit>; echo "exit \$\?")?')


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the rest of that line, its text."""

    kind: str
    info: str
    text: str

    def commands(self) -> Iterator[tuple[str, str]]:
        """The commands of a `console` block, each with the output that it shows."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, _, output = part.partition("\n")
            yield command, output


def blocks(page: Path) -> list[Block]:
    return [Block(*found) for found in FENCE.findall(page.read_text("utf-8"))]


@dataclass
class Reader:
    """Runs the blocks of a page in order, in one folder with one state."""

    folder: Path
    runs: dict[str, str] = field(default_factory=dict)
    """Id of a run on the page -> its id here."""

    def follow(self, block: Block) -> None:
        if block.kind == "console":
            for command, output in block.commands():
                self.check(command, output)
        elif block.kind == "text" and block.info:  # the output of the command `info`
            self.check(block.info, block.text)
        elif block.kind == "python":
            self.run([sys.executable, "-c", block.text])

    def check(self, command: str, shown: str) -> None:
        """Run a command of the page; `...` in its output matches anything."""
        for on_page, here in self.runs.items():
            command = command.replace(on_page, here)
            shown = shown.replace(on_page, here)
        match = ASSISTANT_COMMAND.fullmatch(command)
        printed = _trim_lines(assistant(match) if match else self.run(["bash", "-c", command]))
        new = [i for i in dict.fromkeys(re.findall(RUN_ID, shown)) if i not in self.runs.values()]
        lines = _trim_lines(shown).splitlines()
        patterns = [_line(line, new) for line in lines]
        for k, line in enumerate(lines):
            assert re.match("".join(patterns[: k + 1]), printed), _differs(command, line, printed)
        found = re.fullmatch("".join(patterns), printed)
        assert found, _differs(command, "no more", printed)
        self.runs |= {i: found[f"run_{i}"] for i in new}

    def run(self, command: list[str]) -> str:
        ran = subprocess.run(
            command,
            cwd=self.folder,
            env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            timeout=60,
        )
        assert ran.returncode == 0, ran.stdout
        return ran.stdout


def assistant(command: re.Match[str]) -> str:
    """Run a command in this process, which has imported the bot; return all that it prints."""
    printed = io.StringIO()
    with redirect_stdout(printed), redirect_stderr(printed), pytest.raises(SystemExit) as ended:
        main(shlex.split(command["arguments"]))
    if command["exit"]:
        print(f"exit {ended.value.code}", file=printed)
    return printed.getvalue()


def _trim_lines(text: str) -> str:
    return "".join(f"{line.rstrip()}\n" for line in text.strip("\n").splitlines())


def _line(shown: str, runs: list[str]) -> str:
    """The pattern of a line; `...` alone is any number of lines, else a part of this one."""
    if shown == "...":
        return r"(?:.*\n)*?"
    pattern = re.escape(shown).replace(re.escape("..."), ".*?")
    for run in runs:
        pattern = pattern.replace(run, f"(?P<run_{run}>{RUN_ID})")
    return pattern + r"\n"


def _differs(command: str, line: str, printed: str) -> str:
    return f"$ {command}\ndoes not print\n{line}\nwhere the page shows it, but\n{printed}"


def runnable(block: Block) -> bool:
    return block.kind in ("console", "python") or bool(block.kind == "text" and block.info)


@pytest.mark.parametrize(
    "page", [p for p in PAGES if any(map(runnable, blocks(p)))], ids=lambda page: page.stem
)
def test_examples_in_docs_produce_the_output_shown(page: Path, tmp_path: Path) -> None:
    reader = Reader(tmp_path)
    for block in blocks(page):
        reader.follow(block)


def test_shell_commands_in_docs_exist() -> None:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    group = typer.main.get_command(app)
    for page in PAGES:
        for block in (b for b in blocks(page) if b.kind == "sh"):
            for line in block.text.splitlines():
                words = shlex.split(line, comments=True)
                if words[:1] == ["make"]:
                    assert words[1] in targets, line
                elif words[:1] == ["assistant"]:
                    command = group.commands[words[1]]  # type: ignore[attr-defined]
                    command.make_context(words[1], words[2:])


def test_settings_in_docs_are_valid(tmp_path: Path) -> None:
    shown = [b for page in PAGES for b in blocks(page) if b.kind == "yaml"]
    assert shown
    for block in shown:
        path = tmp_path / "assistant.yaml"
        path.write_text(block.text, "utf-8")
        load_settings(path, env={})


def test_linked_and_named_files_in_docs_exist() -> None:
    missing = []
    for page in PAGES:
        text = FENCE.sub("", page.read_text("utf-8"))
        targets = [t for t in LINK.findall(text) if "://" not in t]
        for target in targets:
            path, _, anchor = target.partition("#")
            file = (page.parent / path) if path else page
            if not file.exists() or (anchor and anchor not in _anchors(file)):
                missing.append(f"{page.name}: {target}")
        paths = PATH.findall(text) if page.name in {p.name for p in [PAGES[0], *TECHNICAL]} else []
        missing += [f"{page.name}: {name}" for name in paths if not (ROOT / name).exists()]
    assert missing == []


def _anchors(page: Path) -> list[str]:
    """The headings of a page as GitHub makes anchors of them."""
    headings = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text("utf-8")), re.MULTILINE)
    return [re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-") for h in headings]


def test_readme_starts_with_make_demo_and_make_test() -> None:
    first = next(b for b in blocks(ROOT / "README.md") if b.kind in ("sh", "console"))
    assert first.text.splitlines()[:2] == ["make demo", "make test"]


def test_tests_named_in_docs_exist() -> None:
    tests = "\n".join(p.read_text("utf-8") for p in (ROOT / "tests").rglob("test_*.py"))
    for page in TECHNICAL:
        for name in re.findall(r"`(test_\w+)`", page.read_text("utf-8")):
            assert f"def {name}(" in tests, f"{page.name}: {name}"


def test_architecture_page_lists_exactly_the_files_of_bot() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    table = page.partition("## The files of `bot/`")[2].partition("\n## ")[0]
    names, package = [], ""
    for cell in re.findall(r"^\|(.*?)\|", table, re.MULTILINE):
        heading = re.search(r"\*`bot/([\w/]*)`", cell)
        package = heading[1] if heading else package
        names += [package + name for name in re.findall(r"`(\w+\.py)`", cell)]
    bot = ROOT / "bot"
    files = {p.relative_to(bot).as_posix() for p in bot.rglob("*.py") if p.name[:2] != "__"}
    assert sorted(names) == sorted(n for n in files if not n.startswith(("local/", "migrations/")))


def test_architecture_page_lists_exactly_the_tables() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text("utf-8")
    section = page.partition("## Storage")[2].partition("\n## ")[0]
    assert set(re.findall(r"`([a-z_]+)`", section)) == {*METADATA.tables}


def test_docs_contain_no_local_paths_or_package_indexes() -> None:
    for page in PAGES:
        text = page.read_text("utf-8")
        assert not re.search(r"/work/|/home/|/root/|/tmp/|pypi\.org|--index-url", text), page.name


def test_docs_describe_every_field_of_the_json_documents(shell: Shell) -> None:
    def printed(*command: str | Path) -> Any:
        return shell(*command, "--json").json

    sample = ("--sample", "--model", "offline")
    sweep = printed("sweep", "--channels", "csm-spain", "--tracker", "F0BUGTRACK", *sample)
    ask = printed("ask", "Which questions in #csm-spain are unanswered?", *sample)
    asyncio.run(_store_action_and_grant(ask["run_id"]))
    triage = printed("triage", *sample)
    review = printed("review", ROOT / "LICENSE", "--model", "offline")
    documents = [
        *(sweep, ask, triage, review),
        *(printed("show", each["run_id"]) for each in (sweep, ask, triage, review)),
        *(printed(command, sweep["run_id"]) for command in ("audit", "replay")),
        *(printed(name) for name in ("runs", "feedback", "review-briefs", "decisions")),
        *(printed(name) for name in ("approvals", "doctor")),
        printed("forget", "--source", "C0CSMSPAIN", "--dry-run"),
        printed("show", "none"),
        *({**offer, "missing": [*offer["missing"].values()]} for offer in printed("scopes")),
    ]
    described = set(re.findall(r"`(\w+)`", JSON_PAGE.read_text("utf-8")))
    assert ({*_keys(documents)} | _fields_without_sample()) - described == set()


def _fields_without_sample() -> set[str]:
    """The fields of `schedules`, of its dry run and of `mcp`, for which there is no sample."""
    at = datetime(2026, 1, 1, tzinfo=UTC)
    spec = Schedule(kind="triage", cron="0 9 * * *", to="dm", owner="U0ANA")
    row = StoredSchedule("mail", "config", "active", "", spec, at, at, at)
    last = Occurrence("mail", at, "ran", delivery="delivered")
    status = ScheduleStatus(row, True, at, 0, last, last).to_json()
    models = (DryRun, Span, PlannedChannel)
    names = {name for model in models for name in model.model_fields}
    names |= {f.name for kind in (ShownServer, ShownTool, Obstacle) for f in fields(kind)}
    return names | set(_keys(status))


async def _store_action_and_grant(run: str) -> None:
    """Store a waiting action, a rating and a grant, which no command creates."""
    settings = load_settings()
    store = await Store.open(settings.data_dir, None, cipher_of(settings))
    args = {"channel": "C0CSMSPAIN", "text": "Done", "thread": ""}
    origin = ("a" * 32, run, "p1", "post_message", "parent")
    action = Action(
        *origin, args, "U0ANA", TRUSTED_LABEL, {}, EMPTY_INTENT, "consequence", datetime.now(UTC)
    )
    await Actions(store.database).add(action)
    await RequestQueue(store.database).feedback("T1/C1/1.000001", "U0ANA", "bad")
    await Grants(store.database).add(["C0CSMSPAIN"], "C0CSMITALY", "U0ANA", "g1")
    await store.aclose()


def _keys(value: Any) -> Iterator[str]:
    """Every key in a document, except ids."""
    if isinstance(value, dict):
        for key, child in value.items():
            if not re.fullmatch(r"F\d+\.\d+|[CF]0\w+|[0-9a-f]{16}", key):
                yield key
            yield from _keys(child)
    elif isinstance(value, list):
        for child in value:
            yield from _keys(child)


# ---- the tables of fields in docs/json.md

REWRITE = os.environ.get("GOLDEN") == "write"
MARK = re.compile(r"<!-- fields of (\w+) -->\n.*?<!-- end of fields -->", re.DOTALL)


def table(name: str) -> str:
    """Return the fields of a model with what they mean, as Markdown between its marks."""
    model = getattr(documents, name)
    properties = model.model_json_schema(mode="serialization")["properties"]
    rows = [
        f"| `{field}` | {_meaning(each['description'])} |" for field, each in properties.items()
    ]
    head = [f"<!-- fields of {name} -->", "| field | meaning |", "|---|---|"]
    return "\n".join([*head, *rows, "<!-- end of fields -->"])


def _meaning(description: str) -> str:
    text = " ".join(description.split()).removesuffix(".")
    return text[:1].lower() + text[1:]


def test_field_tables_in_docs_match_the_models() -> None:
    page = JSON_PAGE.read_text("utf-8")
    names = MARK.findall(page)
    assert len(names) == 11
    updated = MARK.sub(lambda mark: table(mark[1]), page)
    if REWRITE:
        JSON_PAGE.write_text(updated, "utf-8")
        return
    if updated != page:
        pytest.fail("docs/json.md is not up to date. `make golden` writes its tables.")
