"""Several workspaces on one process: none reads, shows or spends anything of another.

People and channels have the same ids in both on purpose.
"""

from __future__ import annotations

import asyncio
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal

import pytest
import sqlalchemy as sa
from bot_kit import Shell
from card_kit import buttons, cards_in
from engine_kit import Json, come, say, turn, until, use
from fork_server import Fork
from serve_kit import ASKER, request_in
from standins.model_faults import Fault, Faults
from standins.slack_teams import COMPANY, token_of
from teams_kit import (
    ACME,
    BETA,
    Place,
    TwoWorkspaces,
    environment,
    served_workspaces,
    two_slacks,
    two_teams,
)
from timing import WAIT_S

from bot.errors import SetupError
from bot.local.model.answer import Answer
from bot.local.slack.events import block_actions
from bot.reports.frame import DETAILS
from bot.runs.store import RunNotFound
from bot.serving.serve import Server
from bot.slack.blocks import FEEDBACK
from bot.storage.database import Database
from bot.storage.tables import METADATA, installations, oauth_states

pytestmark = pytest.mark.system


def server_of(two: TwoWorkspaces, team: str) -> Server:
    assert two.serving
    return two.serving.servers[team]


async def rows(database: Database) -> dict[str, int]:
    """Return the number of rows of each table."""
    counts = {}
    for table in METADATA.sorted_tables:
        found = await database.read(sa.select(sa.func.count()).select_from(table))
        counts[table.name] = found[0][0]
    return counts


async def installed_teams(two: TwoWorkspaces) -> list[str]:
    assert two.serving
    return [str(each.team_id) for each in await two.serving.installations.all()]


def read_all_files(folder: Path) -> bytes:
    return b"".join(f.read_bytes() for f in folder.rglob("*") if f.is_file())


async def ask_about(place: Place, word: str) -> str:
    return (await place.answer(place.ask(f"What of the {word}?"))).text


async def each_is_answered_alone(two: TwoWorkspaces) -> None:
    """Ask both at once, and check that each has its own answer alone."""
    texts = await asyncio.gather(ask_about(two.acme, "red-apple"), ask_about(two.beta, "blue-pear"))
    assert ["red-apple" in texts[0], "blue-pear" in texts[1]] == [True, True]
    await assert_answers_are_separate(two)


async def assert_answers_are_separate(two: TwoWorkspaces) -> None:
    """Check that each answer is in its own workspace and database alone."""
    assert "blue-pear" not in two.acme.texts()
    assert "red-apple" not in two.beta.texts()
    for team, own in ((ACME, "red-apple"), (BETA, "blue-pear")):
        runs = await server_of(two, team).dispatch.runs.store.runs(10)
        assert [own in run.question for run in runs] == [True]


async def test_each_workspace_is_answered_only_from_its_own_data(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        untouched = await rows(server_of(two, BETA).dispatch.inbox.database)
        assert "red-apple" in await ask_about(two.acme, "red-apple")
        assert await rows(server_of(two, BETA).dispatch.inbox.database) == untouched
        assert "blue-pear" in await ask_about(two.beta, "blue-pear")
        await assert_answers_are_separate(two)
        asks = [request_in(body) for body in two.model.recorded]
        assert all(("red-apple" in ask) != ("blue-pear" in ask) for ask in asks)
        assert {team for team, _ in two.router.calls} == {ACME, BETA}
        status, metrics, _ = await two.visit("/metrics")
        assert (status, "assistant_" in metrics) == (200, True)
        for hidden in (ACME, BETA, "red-apple", "blue-pear", ASKER):
            assert hidden not in metrics
        assert await installed_teams(two) == [ACME, BETA]
        assert two.serving
        shared = await rows(two.serving.installations._database)
        of_the_server = {installations.name: 2, "flags": shared["flags"]}
        assert {name: count for name, count in shared.items() if count} == of_the_server
    stored = read_all_files(tmp_path)
    assert ACME.encode() in stored
    assert token_of(ACME).encode() not in stored


async def test_installation_with_an_invalid_state_stores_nothing(tmp_path: Path) -> None:
    with two_slacks(tmp_path) as two:
        async with served_workspaces(two):
            state, cookie = await two.state()
            redirect = f"/slack/oauth_redirect?code=code-of-{ACME}&state="
            other_state, other_cookie = await two.state()
            forged = (
                (redirect + "forged", "slack-app-oauth-state=forged"),
                (redirect + other_state, cookie),
                (redirect + state, ""),
                ("/slack/oauth_redirect?error=access_denied", cookie),
                (f"/slack/oauth_redirect?error=access_denied&state={other_state}", other_cookie),
                (f"/slack/oauth_redirect?code=code-of-{ACME}", cookie),
            )
            for path, with_cookie in forged:
                status, text, _ = await two.visit(path, with_cookie)
                assert status == 400
                assert "Nothing was installed" in text
                assert "access_denied" not in text
                assert await installed_teams(two) == []
            assert (await two.visit(redirect + state, cookie))[0] == 200
            status, text, _ = await two.visit(redirect + state, cookie)
            assert (status, "Nothing was installed" in text) == (400, True)
            late_state, late_cookie = await two.state()
            past = sa.update(oauth_states).values(expires=datetime.now(UTC) - timedelta(seconds=1))
            assert two.serving
            await two.serving.installations._database.write(past)
            assert (await two.visit(redirect + late_state, late_cookie))[0] == 400
            assert await installed_teams(two) == [ACME]


async def test_workspace_that_uninstalls_the_app_is_not_served_but_its_data_is_kept(
    tmp_path: Path,
) -> None:
    async with two_teams(tmp_path) as two:
        assert two.serving
        other = server_of(two, BETA)
        await ask_about(two.acme, "red-apple")
        two.acme.slack.send({"type": "tokens_revoked", "tokens": {"oauth": [ASKER]}})
        two.acme.slack.send({"type": "app_uninstalled"})
        await until(lambda: two.serving and set(two.serving.opened) == {BETA}, WAIT_S)
        thread = two.acme.ask("Who hears this?")
        assert "blue-pear" in await ask_about(two.beta, "blue-pear")
        assert two.acme.replies(thread) == []
        assert await installed_teams(two) == [BETA]
        assert server_of(two, BETA) is other, "its connections stay open"
        await two.install(ACME)
        runs = await server_of(two, ACME).dispatch.runs.store.runs(10)
        assert ["red-apple" in run.question for run in runs][-1:] == [True]
        late = {"type": "app_uninstalled"}
        body = {"type": "event_callback", "team_id": ACME, "event": late, "event_time": 1}
        assert (await two.serving.answer(body)).status == 200
        assert await installed_teams(two) == [ACME, BETA]


async def test_request_at_work_while_the_app_is_uninstalled_is_answered_when_it_is_back(
    tmp_path: Path,
) -> None:
    async with two_teams(tmp_path, faults=Faults([Fault("slow")])) as two:
        assert two.serving
        thread = two.acme.ask("What of the red-apple?")
        await until(lambda: two.model.recorded, WAIT_S)
        two.acme.slack.send({"type": "app_uninstalled"})
        await until(lambda: two.serving and set(two.serving.opened) == {BETA}, WAIT_S)
        await two.install(ACME)
        await until(lambda: two.acme.is_whole(thread), WAIT_S)
        assert "red-apple" in (await two.acme.answer(thread)).text


async def test_daily_limit_and_pause_apply_to_one_workspace_only(tmp_path: Path) -> None:
    acme = {"policy": {"daily_usd": 0.000001, "admins": [ASKER]}}
    async with two_teams(tmp_path, teams={ACME: acme}) as two:
        two.acme.ask("What of the red-apple?")
        assert "blue-pear" in await ask_about(two.beta, "blue-pear")
        await until(lambda: two.acme.replies() or two.acme.slack.state.whispers, WAIT_S)
        assert "You asked" not in two.acme.texts()
        for place in (two.acme, two.beta):  # an administrator of the first alone
            place.slack.people.slash(ASKER, place.channel, "/assistant", "pause")
        await come(server_of(two, ACME).dispatch.inbox.paused_by)
        assert "green-fig" in await ask_about(two.beta, "green-fig")
        assert not await server_of(two, BETA).dispatch.inbox.paused_by()


async def test_ids_of_another_workspace_are_unknown(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        thread = two.acme.ask("What of the red-apple?")
        await two.acme.answer(thread)
        acme, beta = (server_of(two, team) for team in (ACME, BETA))
        (run,) = await acme.dispatch.runs.store.runs(10)
        state = await acme.connecting.states.begin(ASKER, ACME)
        await until(acme.is_idle, WAIT_S)
        database = acme.dispatch.inbox.database
        before = await rows(database)

        with pytest.raises(RunNotFound):
            await beta.dispatch.runs.store.run(run.id)
        forged = state.replace(ACME, BETA)
        assert two.serving
        assert two.serving.find_connecting(forged) is beta.connecting
        assert await acme.connecting.owner(state)
        assert await beta.connecting.owner(forged) is None
        assert (await two.visit(f"/google/connect?state={forged}"))[0] == 410
        key = f"{ACME}/{two.acme.channel}/{thread}"
        for action, value in ((FEEDBACK, f"good:{key}"), (DETAILS, run.id)):
            click = {"type": "button", "action_id": action, "value": value, "action_ts": "1.0"}
            body = block_actions(two.beta.slack.state, ASKER, click)
            two.beta.slack.put("interactive", body)
        text = await ask_about(two.beta, f"run {run.id}, and of {key}")
        assert "red-apple" not in text + two.beta.texts()
        assert {**await rows(acme.dispatch.inbox.database), "cursors": 0} == {
            **before,
            "cursors": 0,
        }  # written late


@pytest.mark.parametrize(
    "section",
    [{"policy": {"admins": (ASKER,)}}, {"slack": {"lists": {"F0": "Bugs"}}}],
)
async def test_workspace_specific_settings_are_rejected_for_all_workspaces(
    tmp_path: Path, section: dict[str, Any]
) -> None:
    with two_slacks(tmp_path, **section) as two, pytest.raises(SetupError, match="one workspace"):
        await served_workspaces(two).__aenter__()


def model(body: Json) -> Answer:
    """Ask back about a report, or repeat the request."""
    request = request_in(body)
    if "which report" in request and turn(body) == 0:
        return Answer([use("ask_user", question="Which one?", options=["weekly", "monthly"])])
    return say(f"You asked: {request}")


async def test_click_from_another_workspace_has_no_effect_on_a_card(tmp_path: Path) -> None:
    async with two_teams(tmp_path, model) as two:
        acme = two.acme.slack
        two.acme.ask("Send me which report?")
        await until(lambda: cards_in(acme, two.acme.channel), WAIT_S)
        (card,) = cards_in(acme, two.acme.channel)
        action = "action_choose_1"
        value = buttons(card)[action]
        click = {"type": "button", "action_id": action, "value": value, "action_ts": "1.0"}
        two.beta.slack.put("interactive", block_actions(two.beta.slack.state, ASKER, click))
        deliveries = two.beta.slack.deliveries
        await until(lambda: deliveries and deliveries[-1].acked_at, WAIT_S)
        assert "blue-pear" in await ask_about(two.beta, "blue-pear")
        assert cards_in(acme, two.acme.channel) == [card], "the card still waits"
        acme.people.click(ASKER, two.acme.channel, card.ts, action)
        await until(lambda: not cards_in(acme, two.acme.channel), WAIT_S)


LIST_COMMANDS = (
    ("runs",),
    ("runs", "--json"),
    ("feedback", "--json"),
    ("approvals", "--json"),
    ("schedules", "--json"),
    ("review-briefs", "--json"),
)
RUN_COMMANDS = ("show", "audit", "replay", "decisions")


def command(two: TwoWorkspaces, *words: str) -> tuple[int | None, str]:
    """Return the exit code and all output of a command on the stored state."""
    log = two.folder / "output"
    log.write_text("")
    process = Fork("bot", *words, env=environment(two), folder=two.folder, log=log)
    return process.wait(), process.read_output()


async def test_commands_for_one_workspace_show_nothing_of_another(tmp_path: Path) -> None:
    async with two_teams(tmp_path) as two:
        await ask_about(two.acme, "red-apple")
        await ask_about(two.beta, "blue-pear")
    _, runs = command(two, "--team", ACME, "runs", "--json")
    (run,) = [each["id"] for each in json.loads(runs)]

    assert "red-apple" in runs
    for words in LIST_COMMANDS:
        code, out = command(two, "--team", BETA, *words)
        assert (code, "red-apple" in out, run in out) == (0, False, False), out
    for name in RUN_COMMANDS:
        code, out = command(two, "--team", BETA, name, run)
        assert (code != 0, "red-apple" in out) == (True, False), out
    _, own = command(two, "--team", BETA, "runs")
    assert "blue-pear" in own
    code, out = command(two, "--team", "T0TYPO", "runs")
    assert (code, "Nothing is stored for workspace T0TYPO" in out) == (2, True), out


def test_a_team_where_only_one_workspace_is_served_is_refused(shell: Shell) -> None:
    assert "Only one workspace is served here" in shell("--team", "T0TYPO", "runs").err


async def test_one_app_token_receives_events_of_both_workspaces(tmp_path: Path) -> None:
    async with two_teams(tmp_path, mode="socket") as two:
        assert two.acme.slack.sockets is two.beta.slack.sockets
        await each_is_answered_alone(two)
        for place in (two.acme, two.beta):
            place.slack.people.slash(ASKER, place.channel, "/assistant", "status")
        await until(lambda: all(p.slack.state.whispers for p in (two.acme, two.beta)), WAIT_S)
        two.acme.slack.sockets.drop("abort")
        await until(lambda: two.acme.slack.sockets.count == 2, WAIT_S)
        assert "green-fig" in await ask_about(two.beta, "green-fig")
        assert "green-fig" not in two.acme.texts()


@pytest.mark.parametrize("mode", ["http", "socket"])
async def test_each_workspace_of_an_organization_has_its_own_database(
    tmp_path: Path, mode: Literal["http", "socket"]
) -> None:
    with two_slacks(tmp_path, mode=mode, company=COMPANY) as two:
        two.router.approved += [ACME, BETA]
        async with served_workspaces(two) as serving:
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


async def test_workspace_no_longer_approved_by_its_organization_is_not_served(
    tmp_path: Path,
) -> None:
    with two_slacks(tmp_path, company=COMPANY) as two:
        two.router.approved += [ACME]
        async with served_workspaces(two) as serving:
            await two.install(COMPANY)
            await until(lambda: set(serving.servers) == {ACME}, WAIT_S)
            two.router.approved[:] = [BETA]
            serving.wake()
            await until(lambda: set(serving.servers) == {BETA}, WAIT_S)
            assert "blue-pear" in await ask_about(two.beta, "blue-pear")
            two.beta.slack.send({"type": "app_uninstalled"})
            await until(lambda: not serving.opened, WAIT_S)
            assert await serving.installations.all() == []
