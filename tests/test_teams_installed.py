"""How workspaces install the app, and how they are heard: OAuth, Socket Mode, Enterprise Grid."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Literal

import pytest
import sqlalchemy as sa
from engine_kit import until
from serve_kit import ASKER
from standins.slack_teams import COMPANY
from teams_kit import ACME, BETA, Place, Two, served, two_slacks, two_teams
from timing import WAIT_S

from bot.storage.tables import oauth_states

pytestmark = pytest.mark.system


async def answered(place: Place, word: str) -> str:
    return (await place.answer(place.ask(f"What of the {word}?"))).text


async def each_is_answered_alone(two: Two) -> None:
    """Ask both at once: each answer stands in its own workspace, and in its own database."""
    texts = await asyncio.gather(answered(two.acme, "red-apple"), answered(two.beta, "blue-pear"))
    assert ["red-apple" in texts[0], "blue-pear" in texts[1]] == [True, True]
    assert "blue-pear" not in two.acme.texts()
    assert "red-apple" not in two.beta.texts()
    assert two.serving
    for team, own in ((ACME, "red-apple"), (BETA, "blue-pear")):
        runs = await two.serving.servers[team].dispatch.runs.store.runs(10)
        assert [own in run.question for run in runs] == [True]


async def test_one_app_token_hears_of_both_workspaces(tmp_path: Path) -> None:
    async with two_teams(tmp_path, mode="socket") as two:
        assert two.acme.slack.sockets is two.beta.slack.sockets
        await each_is_answered_alone(two)
        for place in (two.acme, two.beta):
            place.slack.people.slash(ASKER, place.channel, "/assistant", "status")
        await until(lambda: all(p.slack.state.whispers for p in (two.acme, two.beta)), WAIT_S)
        two.acme.slack.sockets.drop("abort")
        await until(lambda: two.acme.slack.sockets.count == 2, WAIT_S)
        assert "green-fig" in await answered(two.beta, "green-fig")
        assert "green-fig" not in two.acme.texts()


@pytest.mark.parametrize("mode", ["http", "socket"])
async def test_each_workspace_of_an_organization_has_its_own_database(
    tmp_path: Path, mode: Literal["http", "socket"]
) -> None:
    with two_slacks(tmp_path, mode=mode, company=COMPANY) as two:
        two.router.approved += [ACME, BETA]
        async with served(two) as serving:
            await two.install(COMPANY)
            await until(lambda: set(serving.servers) == {ACME, BETA}, WAIT_S)
            (installation,) = await serving.installations.all()
            assert installation.team_id is None
            assert (installation.enterprise_id, installation.is_enterprise_install) == (
                COMPANY,
                True,
            )
            await each_is_answered_alone(two)
            for team in (ACME, BETA):
                assert (two.settings.data_dir / "teams" / team / "assistant.sqlite").exists()
            assert two.router.refused == [], "each call names the workspace"
            assert {team for team, _ in two.router.calls} >= {ACME, BETA}
            for place in (two.acme, two.beta):
                place.slack.state.whispers.clear()
            two.beta.slack.people.slash(ASKER, two.beta.channel, "/assistant", "status")
            await until(lambda: two.beta.slack.state.whispers, WAIT_S)
            assert not two.acme.slack.state.whispers


async def test_a_workspace_that_the_organization_approves_no_more_is_ended(tmp_path: Path) -> None:
    with two_slacks(tmp_path, company=COMPANY) as two:
        two.router.approved += [ACME]
        async with served(two) as serving:
            await two.install(COMPANY)
            await until(lambda: set(serving.servers) == {ACME}, WAIT_S)
            two.router.approved[:] = [BETA]
            serving.wake()
            await until(lambda: set(serving.servers) == {BETA}, WAIT_S)
            assert "blue-pear" in await answered(two.beta, "blue-pear")
            two.beta.slack.send({"type": "app_uninstalled"})
            await until(lambda: not serving.opened, WAIT_S)
            assert await serving.installations.all() == []


async def test_a_state_that_expired_and_a_denied_install_change_nothing(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        assert two.serving
        before = [each.to_dict() for each in await two.serving.installations.all()]
        state, cookie = await two.state()
        database = two.serving.installations._database
        past = datetime.now(UTC) - timedelta(seconds=1)
        await database.write(sa.update(oauth_states).values(expires=past))
        fresh, other = await two.state()
        for path, with_cookie in (
            (f"?code=code-of-{BETA}&state={state}", cookie),
            (f"?error=access_denied&state={fresh}", other),
        ):
            status, text, _ = await two.visit(f"/slack/oauth_redirect{path}", with_cookie)
            assert (status, "Nothing was installed" in text) == (400, True)
            assert "access_denied" not in text
        assert [each.to_dict() for each in await two.serving.installations.all()] == before
        assert "blue-pear" in await answered(two.beta, "blue-pear")
