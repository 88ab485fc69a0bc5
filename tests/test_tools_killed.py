"""A process that dies while tools are at work: each thing is done once, nothing stays behind."""

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

# ---- one request that uses every tool that leaves something

# Over a database, a project with a remote, notes, kept files, a sheet and a server of tools.


SUM = "SELECT customer, sum(amount) AS total FROM orders GROUP BY customer ORDER BY customer"
HEAD = ("Region", "Amount")
SAID = "All three parts are done"
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
"""What is done where a test wants nothing else."""
Moment = tuple[str, int]
"""A subagent, and which of its answers was given."""
WAITS = "this needs approval"
BEGUN = "begun before"
"""What is said of a call that a crash left in the dark, and that is not made again."""


@dataclass
class Site:
    """A folder with all that the request works on, and what came of it."""

    folder: Path
    url: str | None = None
    steps: Mapping[str, Sequence[Sequence[Json]]] = field(default_factory=lambda: STEPS)
    """What each subagent does, call by call."""
    errors: list[str] = field(default_factory=list)
    """What tools said of failures."""
    kills: dict[Moment, float] = field(default_factory=dict)
    """When it is to be killed, and how long after that moment in seconds; each once. What is asked
    for at such a moment while it dies of another is refused, and so asked for again."""
    lives: int = 0
    orphans: set[tuple[int, str]] = field(default_factory=set)
    """Pid and start of each process that the bot had when it was killed."""
    bots: Fleet = field(init=False)
    _dying: bool = False
    """From the moment that it is to be killed until it is there anew."""

    def __post_init__(self) -> None:
        self.base = duck_file(self.folder / "shop.duckdb")
        self.repo = repository(self.folder / "book", {"README.md": "# Book\n"})
        self.remote = with_remote(self.repo, self.folder / "bare.git")
        self.rogue = Rogue(self.folder, offer("record", schema=TEXT), offer("hang"))
        self.sheet = book_of("Targets", Q1=[list(HEAD)])

    def sections(self) -> dict[str, Any]:
        """What is configured."""
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

    def mind(self, body: Json) -> Answer:
        if not is_child(body):
            asked = [_brief(name) for name in TASKS]
            return Answer(asked) if turn(body) == 0 else say(f"{SAID}.")
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
        """Click on each card, and kill so many seconds after the bot has taken the clicks: Slack
        sends none again."""
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
        """The bot dies; what it had started is noted first, while it stands still."""
        self._dying = True
        process = self.bots.bots[-1].process
        process.send_signal(signal.SIGSTOP)
        self.note_children()
        process.kill()

    def note_children(self) -> None:
        self.orphans = set(descendants(self.bots.bots[-1].process.pid))

    async def until(self, condition: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait for it; whenever the bot was killed, see that nothing of it is left, and start it
        anew."""
        patience = Patience(seconds)
        while self._dying or not condition():
            assert not patience.over, (
                self.answers(),
                self.attached_files(),
                self.cards(),
                self.errors,
            )
            if self.bots.bots[-1].process.poll() is not None:
                await self.assert_no_orphans()
                self.bots.balancer.targets = []
                await self.bots.start_bots()
                self._dying = False
                self.lives += 1
                patience = Patience(seconds)
            await asyncio.sleep(0.02)

    async def assert_no_orphans(self) -> None:
        """No process of the one that was killed outlives it by three seconds."""
        end = time.monotonic() + 3.0
        while left := [each for each in self.orphans if is_alive(*each)]:
            if time.monotonic() > end:
                raise AssertionError([command(pid) for pid, _ in left])
            await asyncio.sleep(0.05)

    # ---- what came of it

    @property
    def home(self) -> str:
        return self.bots.slack.people.dm(ASKER)

    def answers(self) -> list[str]:
        shown = self.bots.slack.visible(self.home)
        return [m.text for m in shown if SAID in m.text and m.metadata and not m.streaming]

    def attached_files(self) -> list[str]:
        return [f.name for m in self.bots.slack.visible(self.home) for f in m.files]

    def cards(self) -> int:
        return len(cards_in(self.bots.slack, self.home))

    def rows(self) -> list[list[Any]]:
        return [list(row) for row in self.sheet.tabs[0].rows if any(row)]

    def server_calls(self) -> list[Any]:
        """Calls that the server of tools carried out."""
        path = self.folder / "data" / "mcp" / "rogue" / "calls"
        return [json.loads(each) for each in path.read_text().splitlines()] if path.exists() else []

    def branches(self) -> list[str]:
        """Branches of requests in the folder."""
        return [each for each in self.repo.branches.local if each.startswith("assistant/")]

    def assert_answered_once(self) -> None:
        """All is there once, but what waits for a click; and nobody was told of a failure."""
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
        assert len(calls) == 1 or any(BEGUN in each for each in self.errors)
        assert len(calls) <= 1
        unsaid = [each for each in self.errors if BEGUN not in each and WAITS not in each]
        assert unsaid == [], unsaid

    def assert_approved_once(self) -> None:
        assert self.rows() == [list(HEAD), ["EMEA", "12"]]
        (branch,) = self.branches()
        wanted = ["Write the new page", "Begin"]
        assert subjects(self.remote, "main") == subjects(self.repo, branch) == wanted
        assert git(self.folder / "bare.git", "fsck", "--no-dangling") == ""
        assert self.repo.branches[branch].target == self.remote.head.target
        assert subjects(self.repo, "main") == ["Begin"]  # its owner merges


def _brief(name: str) -> Json:
    scope, handles = TASKS[name]
    given = {"task": f"Do the part {name}", "description": name, "scope": scope}
    return use("run_subagent", **given, handles=handles)


@contextmanager
def site(folder: Path, url: str | None = None, **sections: dict[str, Any]) -> Iterator[Site]:
    """All of it, with Google, Slack and the model beside it; no bot yet."""
    made = Site(folder, url)
    accounts = LocalGoogleOauth()
    google = LocalGoogle(sheets=SheetsState({"1AbC": made.sheet}), whose=accounts.whose)
    given = made.sections()
    given |= {name: {**given.get(name, {}), **more} for name, more in sections.items()}
    with (
        LocalServer(google.app, "google") as api,
        LocalServer(accounts.app, "oauth") as oauth,
        fleet(folder, made.mind, url=url, space=people(), **given) as bots,
    ):
        ends = {"SHEETS_API_ENDPOINT": api.url, "GOOGLE_OAUTH_ENDPOINT": oauth.url}
        bots.env.update(ends)
        made.bots = bots
        yield made


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


LATE: dict[Moment, float] = {("web", 1): 0.05}
SLOW = pytest.mark.slow


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("database", "kills", "after_s"),
    [
        pytest.param("sqlite", FEW, 0.1, id="sqlite-few"),
        pytest.param("postgres", FEW, 0.1, id="postgres-few", marks=SLOW),
        pytest.param("sqlite", EVERY, 0.02, id="sqlite-every", marks=SLOW),
        pytest.param("postgres", EVERY, 0.02, id="postgres-every", marks=SLOW),
        pytest.param("sqlite", LATE, 0.3, id="sqlite-late", marks=SLOW),
    ],
)
async def test_request_completes_without_duplicate_effects_after_kills(
    tmp_path: Path, database: str, kills: dict[Moment, float], after_s: float
) -> None:
    with store_place(database, tmp_path) as place, site(tmp_path, place.url) as work:
        work.kills = dict(kills)
        await post_request(work)
        await wait_until_answered(work)
        assert work.lives == len(kills)
        await work.approve(after_s)
        assert work.lives == len(kills) + 1
        work.assert_approved_once()
        assert len(work.answers()) == 1
        assert len(work.attached_files()) == 3


ENDLESS = {
    "data": ((use("execute_query", sql="SELECT count(*) FROM range(100000000000)"),),),
    "files": ((use("run_command", command="exec sleep 97", folder="files:book"),),),
    "web": ((use("rogue_hang"), use("run_python", code="while True: pass")),),
}


async def test_tool_processes_end_when_the_bot_is_killed(
    tmp_path: Path,
) -> None:
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


@pytest.mark.slow
async def test_sigterm_lets_running_work_finish_and_leaves_no_process(tmp_path: Path) -> None:
    with site(tmp_path) as work:
        await post_request(work)
        bot = work.bots.bots[0].process
        await until(lambda: len(work.bots.calls(of_children=True)) >= 4, 40)
        bot.send_signal(signal.SIGTERM)
        work.note_children()
        assert await asyncio.to_thread(bot.wait) == 0
        await work.assert_no_orphans()
        work.assert_answered_once()
