"""Several workspaces on one process: one never reads, sees or spends what is of another.

People and channels have the same ids in both on purpose.
"""

from __future__ import annotations

from pathlib import Path

import pytest
import sqlalchemy as sa
from engine_kit import come, until
from serve_kit import ASKER, request_in
from teams_kit import ACME, BETA, Place, Two, served, token_of, two_slacks, two_teams
from timing import WAIT_S

from bot.errors import SetupError
from bot.serving.serve import Server
from bot.storage.tables import METADATA, installations

pytestmark = pytest.mark.system


def server_of(two: Two, team: str) -> Server:
    assert two.serving
    return two.serving.servers[team]


async def rows(server: Server) -> dict[str, int]:
    """How many rows each table of a workspace has."""
    database = server.dispatch.inbox.database
    counted = {}
    for table in METADATA.sorted_tables:
        found = await database.read(sa.select(sa.func.count()).select_from(table))
        counted[table.name] = found[0][0]
    return counted


async def installed(two: Two) -> list[str]:
    assert two.serving
    return [str(each.team_id) for each in await two.serving.installations.all()]


def everything_in(folder: Path) -> bytes:
    return b"".join(f.read_bytes() for f in folder.rglob("*") if f.is_file())


async def asked(place: Place, text: str) -> str:
    return (await place.answer(place.ask(text))).text


async def test_each_workspace_is_answered_with_its_own_data_alone(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        untouched = await rows(server_of(two, BETA))
        assert "red-apple" in await asked(two.acme, "What of the red-apple?")
        assert await rows(server_of(two, BETA)) == untouched
        assert "blue-pear" in await asked(two.beta, "What of the blue-pear?")
        assert "red-apple" not in two.beta.texts()
        assert "blue-pear" not in two.acme.texts()
        asks = [request_in(body) for body in two.model.recorded]
        assert all(("red-apple" in ask) != ("blue-pear" in ask) for ask in asks)
        for team, own in ((ACME, "red-apple"), (BETA, "blue-pear")):
            runs = await server_of(two, team).dispatch.runs.store.runs(10)
            assert [own in run.question for run in runs] == [True]
        assert {team for team, _ in two.router.calls} == {ACME, BETA}


async def test_tokens_are_encrypted_where_they_lie(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        assert await installed(two) == [ACME, BETA]
    kept = everything_in(tmp_path)
    assert ACME.encode() in kept
    assert token_of(ACME).encode() not in kept


async def test_an_installation_with_a_state_of_another_kind_stores_nothing(tmp_path: Path) -> None:
    with two_slacks(tmp_path) as two:
        async with served(two):
            state, cookie = await two.state()
            back = f"/slack/oauth_redirect?code=code-of-{ACME}&state="
            other, _ = await two.state()
            forged = (
                (back + "forged", "slack-app-oauth-state=forged"),
                (back + other, cookie),
                (back + state, ""),
                ("/slack/oauth_redirect?error=access_denied", cookie),
                (f"/slack/oauth_redirect?code=code-of-{ACME}", cookie),
            )
            for path, with_cookie in forged:
                status, text, _ = await two.visit(path, with_cookie)
                assert status == 400
                assert "Nothing was installed" in text
                assert await installed(two) == []
            assert (await two.visit(back + state, cookie))[0] == 200
            status, text, _ = await two.visit(back + state, cookie)
            assert (status, "Nothing was installed" in text) == (400, True)
            assert await installed(two) == [ACME]


async def test_a_workspace_that_removes_the_app_is_served_no_more_and_keeps_its_data(
    tmp_path: Path,
) -> None:
    async with two_teams(tmp_path) as two:
        assert two.serving
        await asked(two.acme, "What of the red-apple?")
        two.acme.slack.send({"type": "tokens_revoked", "tokens": {"oauth": [ASKER]}})
        two.acme.slack.send({"type": "app_uninstalled"})
        await until(lambda: two.serving and set(two.serving.opened) == {BETA}, WAIT_S)
        thread = two.acme.ask("Who hears this?")
        assert "blue-pear" in await asked(two.beta, "What of the blue-pear?")
        assert two.acme.replies(thread) == []
        assert await installed(two) == [BETA]
        await two.install(ACME)
        runs = await server_of(two, ACME).dispatch.runs.store.runs(10)
        assert ["red-apple" in run.question for run in runs][-1:] == [True]
        late = {"type": "app_uninstalled"}
        body = {"type": "event_callback", "team_id": ACME, "event": late, "event_time": 1}
        assert (await two.serving.answer(body)).status == 200
        assert await installed(two) == [ACME, BETA]


async def test_a_daily_limit_and_a_pause_are_of_one_workspace(tmp_path: Path) -> None:
    acme = {"policy": {"daily_usd": 0.000001, "admins": [ASKER]}}
    async with two_teams(tmp_path, teams={ACME: acme}) as two:
        await asked(two.acme, "What of the red-apple?")
        spent = two.acme.ask("And once more?")
        await until(lambda: two.acme.slack.state.whispers, WAIT_S)
        assert two.acme.replies(spent) == []
        two.acme.slack.people.slash(ASKER, two.acme.channel, "/assistant", "pause")
        two.beta.slack.people.slash(ASKER, two.beta.channel, "/assistant", "pause")
        inbox = server_of(two, ACME).dispatch.inbox
        await come(inbox.paused_by)
        assert "blue-pear" in await asked(two.beta, "What of the blue-pear?")
        assert not await server_of(two, BETA).dispatch.inbox.paused_by()


async def test_an_event_for_nobody_is_taken_and_dropped(tmp_path: Path) -> None:
    with two_slacks(tmp_path) as two:
        async with served(two):
            await two.install(ACME)
            thread = two.beta.ask("Who hears this?")
            deliveries = two.beta.slack.deliveries
            await until(lambda: deliveries and all(d.acked_at for d in deliveries), WAIT_S)
            assert two.beta.replies(thread) == []
            assert "red-apple" in await asked(two.acme, "What of the red-apple?")


@pytest.mark.parametrize(
    "section",
    [{"policy": {"admins": (ASKER,)}}, {"slack": {"lists": {"F0": "Bugs"}}}],
)
async def test_what_is_of_one_workspace_may_not_be_set_for_all(
    tmp_path: Path, section: dict[str, dict[str, object]]
) -> None:
    with two_slacks(tmp_path, **section) as two, pytest.raises(SetupError, match="one workspace"):
        await served(two).__aenter__()


async def test_the_home_database_of_several_holds_no_data_of_people(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        assert two.serving
        await asked(two.acme, "What of the red-apple?")
        database = two.serving.installations._database
        for table in METADATA.sorted_tables:
            if table.name in (installations.name, "flags", "alembic_version"):
                continue
            found = await database.read(sa.select(sa.func.count()).select_from(table))
            assert (table.name, found[0][0]) == (table.name, 0)
