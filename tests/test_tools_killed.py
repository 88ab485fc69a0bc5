"""A bot killed while tools run: each effect happens once, and no process is left."""

from __future__ import annotations

import asyncio
import json
import signal
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from card_kit import cards_in, people
from data_kit import duck_file
from engine_kit import Json, is_child, line, results, say, submission, turn, until, use
from files_kit import git, repository, subjects, text_at, with_remote
from fleet_kit import Fleet, fleet
from google_data_kit import key_file
from mcp_kit import TEXT, Rogue
from mcp_kit import tool as offer
from pg_kit import store_place
from process_kit import command, descendants, is_alive
from serve_kit import ASKER
from standins.google import LocalGoogle
from standins.google_oauth import LocalGoogleOauth
from standins.model_faults import Fault, refuse
from standins.sheets import SheetsState, book_of
from standins.slack_delivery import Delivery
from timing import Patience

from bot.local.model.answer import Answer
from bot.local.server import LocalServer

SUM = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer ORDER BY customer"
HEAD = ("Region", "Amount")
ANSWER = "All three parts are done"
TASKS = {
    "data": ("data", ["data:shop", "sheet:targets", "notes:own"]),
    "files": ("files", ["files:book"]),
    "web": ("web", ["mcp:rogue"]),
}
STEPS: dict[str, tuple[tuple[Json, ...], ...]] = {
    "data": (
        (use("execute_query", sql=SUM, keep="sales.csv"),),
        (
            use("make_chart", file="sales.csv", kind="bar", x="customer", y=["total"]),
            use("save_note", title="Sales", text="Ana bought most"),
        ),
        (use("append_rows", sheet="sheet:targets", tab="Q1", rows=[["EMEA", "12"]]),),
    ),
    "files": (
        (use("read_file", path="README.md"), use("write_file", path="new.md", text="# New\n")),
        (
            use("write_file", path="README.md", text="# Book, anew\n"),
            use("edit_file", path="new.md", old="New", new="Newer"),
        ),
        (use("git_commit", message="Write the new page"),),
        (use("git_push"),),
    ),
    "web": (
        (use("rogue_record", text="a line"), use("run_python", code="print(6 * 7)")),
        (use("save_resource", name="plan.md", text="# Plan\n"),),
    ),
}
"""The default tool calls of each subagent, turn by turn."""
Moment = tuple[str, int]
"""A subagent and the number of its turn."""
NEEDS_APPROVAL = "this needs approval"
UNCERTAIN = "begun before"
"""Error of a call whose outcome is unknown after a crash, and that is not repeated."""


@dataclass
class Site:
    """A folder with everything that the request uses, and the outcome."""

    folder: Path
    url: str | None = None
    steps: Mapping[str, Sequence[Sequence[Json]]] = field(default_factory=lambda: STEPS)
    errors: list[str] = field(default_factory=list)
    """Error results of tools."""
    kills: dict[Moment, float] = field(default_factory=dict)
    """When to kill the bot, and the delay after that moment in seconds; each once. A model call at
    such a moment during another kill is refused, so the bot repeats it."""
    restarts: int = 0
    orphans: set[tuple[int, str]] = field(default_factory=set)
    """Pid and start of each process that the bot had when it was killed."""
    bots: Fleet = field(init=False)
    _dying: bool = False
    """True from the decision to kill the bot until its restart."""

    def __post_init__(self) -> None:
        self.base = duck_file(self.folder / "shop.duckdb")
        self.repo = repository(self.folder / "book", {"README.md": "# Book\n"})
        self.remote = with_remote(self.repo, self.folder / "bare.git")
        self.rogue = Rogue(self.folder, offer("record", schema=TEXT), offer("hang"))
        self.sheet = book_of("Targets", Q1=[list(HEAD)])

    def sections(self) -> dict[str, Any]:
        """Return the configuration."""
        mine, book = {"readers": [ASKER]}, self.folder / "book"
        server = {"command": self.rogue.command, "scope": "web", "access": "write", **mine}
        return {
            "data": {
                "databases": {"shop": {"path": str(self.base), **mine}},
                "sheets": {"targets": {"id": "1AbC", **mine}},
            },
            "files": {"projects": {"book": {"path": str(book), "push": True, **mine}}},
            "google": {"service_account": str(key_file(self.folder))},
            "mcp": {"servers": {"rogue": server}},
            "serve": {"max_crashes": 100},
            "limits": {"seconds": 600.0, "cost_usd": 50.0},
        }

    def model(self, body: Json) -> Answer:
        if not is_child(body):
            briefs = [_brief(name) for name in TASKS]
            return Answer(briefs) if turn(body) == 0 else say(f"{ANSWER}.")
        name, step = line(body, "TASK").split()[-1], turn(body)
        self.errors += [str(each["content"]) for each in results(body) if each.get("is_error")]
        if (name, step) in self.kills:
            if self._dying:
                refuse(Fault("http_529"))
            self._dying = True
            after_s = self.kills.pop((name, step))
            threading.Thread(target=self._kill, args=(after_s,), daemon=True).start()
        steps = self.steps[name]
        return Answer(list(steps[step])) if step < len(steps) else submission("Done.", findings=[])

    async def approve(self, after_s: float) -> None:
        """Click on each card, and kill the bot `after_s` seconds after it acknowledged the clicks:
        Slack does not send them again."""
        clicks = [self._click(card.ts) for card in cards_in(self.bots.slack, self.home)]
        await self.until(lambda: all(each.acked_at for each in clicks))
        await asyncio.sleep(after_s)
        self.kill()
        await self.until(lambda: len(self.rows()) > 1 and len(subjects(self.remote, "main")) > 1)
        await self.until(lambda: not self.cards())

    def _click(self, card: str) -> Delivery:
        self.bots.slack.people.click(ASKER, self.home, card, "action_approve")
        sent = reversed(self.bots.slack.deliveries)
        return next(each for each in sent if each.type == "block_actions")

    def _kill(self, after_s: float) -> None:
        time.sleep(after_s)
        self.kill()

    def kill(self) -> None:
        """Stop the bot, note its child processes, and kill it."""
        self._dying = True
        process = self.bots.bots[-1].process
        process.send_signal(signal.SIGSTOP)
        self.orphans = set(descendants(process.pid))
        process.kill()

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait for the condition; after each kill, check that no process is left, and restart."""
        patience = Patience(seconds)
        while self._dying or not condition():
            assert not patience.over, (self.answers(), self.attached_files(), self.errors)
            if self.bots.bots[-1].process.poll() is not None:
                await self.assert_no_orphans()
                self.bots.balancer.targets = []
                await self.bots.start_bots()
                self._dying = False
                self.restarts += 1
                patience = Patience(seconds)
            await asyncio.sleep(0.02)

    async def assert_no_orphans(self) -> None:
        """Check that no child process outlives the killed bot by three seconds."""
        end = time.monotonic() + 3.0
        while alive := [each for each in self.orphans if is_alive(*each)]:
            if time.monotonic() > end:
                raise AssertionError([command(pid) for pid, _ in alive])
            await asyncio.sleep(0.05)

    # ---- the outcome

    @property
    def home(self) -> str:
        return self.bots.slack.people.dm(ASKER)

    def answers(self) -> list[str]:
        shown = self.bots.slack.visible(self.home)
        return [m.text for m in shown if ANSWER in m.text and m.metadata and not m.streaming]

    def attached_files(self) -> list[str]:
        return [f.name for m in self.bots.slack.visible(self.home) for f in m.files]

    def cards(self) -> int:
        return len(cards_in(self.bots.slack, self.home))

    def rows(self) -> list[list[Any]]:
        return [list(row) for row in self.sheet.tabs[0].rows if any(row)]

    def server_calls(self) -> list[Any]:
        """Return the calls that the MCP server executed."""
        path = self.folder / "data" / "mcp" / "rogue" / "calls"
        return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []

    def branches(self) -> list[str]:
        """Return the branches of requests in the project."""
        return [each for each in self.repo.branches.local if each.startswith("assistant/")]

    def assert_answered_once(self) -> None:
        """Check that each effect that needs no approval happened once, and without errors."""
        assert len(self.answers()) == 1
        assert sorted(self.attached_files()) == ["plan.md", "sales.csv", "sales.png"]
        assert self.cards() == 2
        assert self.rows() == [list(HEAD)]
        (branch,) = self.branches()
        assert subjects(self.repo, branch) == ["Write the new page", "Begin"]
        assert subjects(self.remote, "main") == ["Begin"]
        assert text_at(self.repo, "README.md", branch) == "# Book, anew\n"
        assert text_at(self.repo, "new.md", branch) == "# Newer\n"
        assert git(self.folder / "book", "status", "--porcelain") == ""
        calls = self.server_calls()
        assert len(calls) == 1 or any(UNCERTAIN in each for each in self.errors)
        assert len(calls) <= 1
        expected = (UNCERTAIN, NEEDS_APPROVAL)
        assert [e for e in self.errors if not any(each in e for each in expected)] == []

    def assert_approved_once(self) -> None:
        assert self.rows() == [list(HEAD), ["EMEA", "12"]]
        (branch,) = self.branches()
        expected = ["Write the new page", "Begin"]
        assert subjects(self.remote, "main") == subjects(self.repo, branch) == expected
        assert git(self.folder / "bare.git", "fsck", "--no-dangling") == ""
        assert self.repo.branches[branch].target == self.remote.head.target
        assert subjects(self.repo, "main") == ["Begin"]  # its owner merges


def _brief(name: str) -> Json:
    scope, handles = TASKS[name]
    fields = {"task": f"Do the part {name}", "description": name, "scope": scope}
    return use("run_subagent", **fields, handles=handles)


@contextmanager
def site(folder: Path, url: str | None = None, **sections: dict[str, Any]) -> Iterator[Site]:
    """A site with Google, Slack and the model, but without a running bot."""
    work = Site(folder, url)
    accounts = LocalGoogleOauth()
    google = LocalGoogle(sheets=SheetsState({"1AbC": work.sheet}), whose=accounts.whose)
    settings = work.sections()
    settings |= {name: {**settings.get(name, {}), **more} for name, more in sections.items()}
    with (
        LocalServer(google.app, "google") as api,
        LocalServer(accounts.app, "oauth") as oauth,
        fleet(folder, work.model, url=url, space=people(), **settings) as bots,
    ):
        endpoints = {"SHEETS_API_ENDPOINT": api.url, "GOOGLE_OAUTH_ENDPOINT": oauth.url}
        bots.env.update(endpoints)
        work.bots = bots
        yield work


pytestmark = pytest.mark.system

FEW: dict[Moment, float] = {("data", 1): 0.1, ("files", 2): 0.02}
EVERY: dict[Moment, float] = {
    (name, step): 0.03 * (3 * step % 4) + 0.01
    for name, steps in STEPS.items()
    for step in range(len(steps) + 1)
}


async def post_request(work: Site) -> None:
    await work.bots.start_bots()
    work.bots.slack.people.say(
        ASKER, work.home, "Do all three parts in the book, note down and push them."
    )


async def wait_until_answered(work: Site) -> None:
    await work.until(
        lambda: work.answers() and work.cards() == 2 and len(work.attached_files()) >= 3
    )
    work.assert_answered_once()


SLOW = pytest.mark.slow


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("database", "kills", "after_s"),
    [
        pytest.param("sqlite", FEW, 0.1, id="sqlite-few"),
        pytest.param("sqlite", EVERY, 0.02, id="sqlite-every", marks=SLOW),
        pytest.param("postgres", EVERY, 0.02, id="postgres-every", marks=SLOW),
    ],
)
async def test_request_completes_without_duplicate_effects_after_kills(
    tmp_path: Path, database: str, kills: dict[Moment, float], after_s: float
) -> None:
    with store_place(database, tmp_path) as place, site(tmp_path, place.url) as work:
        work.kills = dict(kills)
        await post_request(work)
        await wait_until_answered(work)
        assert work.restarts == len(kills)
        await work.approve(after_s)
        assert work.restarts == len(kills) + 1
        work.assert_approved_once()
        assert len(work.answers()) == 1
        assert len(work.attached_files()) == 3


ENDLESS = {
    "data": ((use("execute_query", sql="SELECT count(*) FROM range(100000000000)"),),),
    "files": ((use("run_command", command="exec sleep 97", folder="files:book"),),),
    "web": ((use("rogue_hang"), use("run_python", code="while True: pass")),),
}


async def test_tool_processes_end_when_the_bot_is_killed(tmp_path: Path) -> None:
    with site(tmp_path, files={"sandbox": ["sh", "-c", "{command}"]}) as work:
        work.steps = ENDLESS
        await post_request(work)
        bot = work.bots.bots[0].process
        await until(lambda: len(work.bots.calls(of_children=True)) == 3, 40)
        await until(lambda: len([*descendants(bot.pid)]) >= 4)
        work.kill()
        assert len(work.orphans) >= 4
        bot.wait()
        await work.assert_no_orphans()
