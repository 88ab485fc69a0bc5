"""One console for several workspaces: each administrator sees their own, and nothing of another."""

from __future__ import annotations

import asyncio
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx2
import pytest
import pytest_asyncio
from console_kit import reason, to_slack
from fork_server import Fork
from runs_kit import wide_run
from serve_kit import ASKER, change_settings
from standins.slack_openid import SignIn
from standins.slack_teams import CLIENT_SECRET
from starlette.routing import Mount, Route
from teams_kit import ACME, BETA, TwoWorkspaces, environment, served_workspaces, two_slacks
from timing import WAIT_S

from bot.console.app import NAVIGATION, PATH
from bot.console.signin import Session
from bot.runs.store import Store
from bot.storage.encryption import Cipher, cipher_of

WORDS = {ACME: "red-apple", BETA: "blue-plum"}
RUNS = {ACME: "acmerun1", BETA: "betarun1"}
COOKIE = "console"


@asynccontextmanager
async def with_console(folder: Path, admins: dict[str, list[str]]) -> AsyncIterator[Console]:
    """Both workspaces, with a run of each, in one process with one console."""
    teams = {team: {"policy": {"admins": users}} for team, users in admins.items()}
    with two_slacks(folder, teams=teams) as two:
        two.settings = change_settings(two.settings, console={"public_url": two.url})
        back = f"{two.url}{PATH}/sign-in/back"
        sign_in = SignIn(two.acme.slack, back, ASKER, client_secret=CLIENT_SECRET)
        async with served_workspaces(two):
            for team in (ACME, BETA):
                await two.install(team)
                await wide_run(Store(database_of(two, team)), RUNS[team], 2, words=WORDS[team])
            yield Console(two, sign_in)


def database_of(two: TwoWorkspaces, team: str) -> Any:
    assert two.serving
    return two.serving.servers[team].dispatch.inbox.database


class Console:
    def __init__(self, two: TwoWorkspaces, sign_in: SignIn) -> None:
        self.two, self._sign_in = two, sign_in

    def browser(self, **more: Any) -> httpx2.AsyncClient:
        return httpx2.AsyncClient(base_url=self.two.url, **more)

    @asynccontextmanager
    async def back(self, team: str) -> AsyncIterator[tuple[httpx2.AsyncClient, httpx2.Response]]:
        """A browser that returns from Slack with an account of a workspace, and the answer."""
        self._sign_in.changed = {"https://slack.com/team_id": team}
        async with self.browser() as browser:
            yield browser, await browser.get(await to_slack(browser))

    async def open_with_session(self, **changed: Any) -> httpx2.Response:
        """Open the list of runs with a session that is made here."""
        cipher = changed.pop("cipher", None) or cipher_of(self.two.settings)
        defaults = {"expires": datetime.now(UTC) + timedelta(hours=1), "team": ACME, "user": ASKER}
        cookie = cipher.encrypt(Session(**{**defaults, **changed}).model_dump_json())
        async with self.browser(cookies={COOKIE: cookie}) as browser:
            return await browser.get(f"{PATH}/runs")

    def paths(self, team: str, run: str) -> list[str]:
        """All pages of a workspace, and those of a run."""
        assert self.two.serving
        routes = self.two.serving.servers[team].console
        mount = next(each for each in routes if isinstance(each, Mount))
        pages = [r for r in mount.routes if isinstance(r, Route) and "GET" in (r.methods or ())]
        paths = [r.path for r in pages if not r.path.startswith("/sign-in")]
        values = {"{run}": run, "{context}": "s1", "{subagent}": "s1"}
        return [PATH + re.sub(r"{\w+}", lambda m: values[m[0]], path) for path in paths]


@pytest_asyncio.fixture
async def both(tmp_path: Path) -> AsyncIterator[Console]:
    """The same id administrates both workspaces: it is another person in each."""
    async with with_console(tmp_path, {ACME: [ASKER], BETA: [ASKER]}) as console:
        yield console


async def test_administrator_sees_only_their_own_workspace(both: Console) -> None:
    for team, other in ((ACME, BETA), (BETA, ACME)):
        async with both.back(team) as (browser, welcome):
            assert welcome.status_code == 303
            mine = await browser.get(f"{PATH}/runs/{RUNS[team]}/subagents/s1")
            assert (mine.status_code, WORDS[team] in mine.text) == (200, True)
            paths = both.paths(team, RUNS[other])
            assert len(paths) > len(NAVIGATION) + 4
            for path in (*paths, f"{PATH}/runs?text={WORDS[other]}", f"{PATH}/runs?team={other}"):
                page = await browser.get(path)
                assert page.status_code in ((404,) if RUNS[other] in path else (200, 303)), path
                shown = page.text.replace(f'value="{WORDS[other]}"', "")  # what was asked for
                assert WORDS[other] not in shown
                assert other not in shown


async def test_forged_and_expired_sessions_and_unknown_workspaces_are_rejected(
    both: Console,
) -> None:
    assert (await both.open_with_session()).status_code == 200
    over = datetime.now(UTC) - timedelta(seconds=1)
    for wrong in ({"cipher": Cipher.generate()}, {"expires": over}):
        refused = await both.open_with_session(**wrong)
        assert (refused.status_code, reason(refused)) == (401, "You are not signed in any more.")
    for team in ("T0GONE", "", "../T0BETA"):
        refused = await both.open_with_session(team=team)
        not_served = (503, "This workspace is not served at the moment.")
        assert (refused.status_code, reason(refused)) == not_served
    async with both.browser() as browser:
        stranger = await browser.get(f"{PATH}/runs")
        assert (stranger.status_code, reason(stranger)) == (401, "Sign in to see the console.")


async def test_administrator_of_one_workspace_has_no_access_to_another(tmp_path: Path) -> None:
    async with with_console(tmp_path, {ACME: [ASKER], BETA: ["U0OTHER"]}) as console:
        for team, why in (
            (BETA, f"{ASKER} is no administrator of the bot."),
            ("T0GAMMA", "The bot does not serve the workspace that you signed in with."),
        ):
            async with console.back(team) as (browser, refused):
                assert (refused.status_code, reason(refused).startswith(why)) == (403, True)
                assert COOKIE not in browser.cookies
        assert (await console.open_with_session(team=BETA)).status_code == 403
        async with console.back(ACME) as (_, welcome):
            assert welcome.status_code == 303


@pytest.mark.system
async def test_console_command_shows_only_the_given_workspace(both: Console) -> None:
    words, folder = ("--team", BETA, "console", "--port", "0"), both.two.folder
    env = environment(both.two)
    process = Fork("bot", *words, env=env, folder=folder, log=folder / "console.log")
    address = (await asyncio.to_thread(process.wait_for_output)).splitlines()[0]
    async with httpx2.AsyncClient(timeout=WAIT_S) as browser:
        runs = await browser.get(f"{address}/runs")
        policy = await browser.get(f"{address}/policy")
    process.send_signal(signal.SIGINT)
    assert await asyncio.to_thread(process.wait) == 0
    assert (RUNS[BETA] in runs.text, RUNS[ACME] in runs.text) == (True, False)
    assert "teams/T0BETA.yaml" in policy.text
    assert "timeout_s" not in policy.text  # that is the operator's
