"""The whole bot and its rules: refusals, pause, startup errors, outages, App Home."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import httpx2
import pytest
from engine_kit import Json, come, scripted_parent, until, workspace
from fleet_kit import fleet
from serve_kit import ASKER, Served, echo, serve, with_rules, with_sections
from standins.slack import APP_TOKEN, BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault, LastingFaults
from timing import WAIT_S

from bot.__main__ import main
from bot.listeners.socket_mode import SocketRefused
from bot.local.slack.views import home
from bot.local.workspace import Channel, User, Workspace

LUIS, BOSS, GUEST, STRANGER = "U0LUIS", "U0BOSS", "U0GUEST", "U0OTHER"
OTHER, SHARED = "C00000002", "C0SHARED"


def mixed_workspace() -> Workspace:
    """A workspace with a guest, a stranger, an admin, and a channel shared with a company."""
    base = workspace(3)
    people = (
        User(BOSS, "boss", "Ida Boss"),
        User(GUEST, "guest", "Gus Guest", is_restricted=True),
        User(STRANGER, "other", "Olga Other", is_stranger=True, team_id="T0OTHER"),
        User("U0APP", "app", "Another app", is_bot=True),
    )
    shared = Channel(SHARED, "shared", (), (ASKER, STRANGER), is_ext_shared=True)
    return replace(base, users=(*base.users, *people), channels=(*base.channels, shared))


def home_text(bot: Served, user: str) -> str:
    """Return the content of the user's App Home."""
    shown = home(bot.slack.state, user)
    return str(shown.body) if shown else ""


async def test_refusal_reason_is_shown_only_to_the_refused_user(tmp_path: Path) -> None:
    async with serve(tmp_path, scripted_parent(echo), space=mixed_workspace()) as bot:
        for user, channel, reason in (
            (GUEST, "", "Guests may not ask me here."),
            (STRANGER, "", "People of other companies may not ask me here."),
            (ASKER, SHARED, "This channel is shared with another company"),
        ):
            bot.slack.state.members[channel or bot.channel][user] = None
            thread = bot.ask("Hello?", user=user, channel=channel)
            await until(lambda u=user: bot.whispers(u))  # type: ignore[misc]
            assert reason in bot.whispers(user)[0]
            assert bot.replies(thread, channel) == []
        dm = bot.slack.people.dm(GUEST)
        ts = bot.slack.people.say(GUEST, dm, "Hello?")
        await until(lambda: len(bot.slack.visible(dm)) == 2)
        assert "Guests may not ask me" in bot.slack.visible(dm)[1].text
        assert bot.slack.visible(dm)[0].ts == ts
        await until(lambda: not bot.bench.dispatch.at_work)
        assert {r.status for r in await bot.store.runs()} == {"refused"}
        assert bot.model.recorded == []
        assert bot.slack.calls["chat.startStream"] == 0


async def test_exhausted_daily_budget_is_reported_privately(tmp_path: Path) -> None:
    change = with_rules(policy={"user_daily_usd": 0.5})
    async with serve(tmp_path, space=mixed_workspace(), change=change) as bot:
        await bot.answer(bot.ask())
        (run,) = await bot.store.runs()
        await bot.store.finish_run(run.id, "complete", cost_usd=0.495)  # as if it had cost that
        thread = bot.ask()
        await until(bot.whispers)
        assert "You have spent $0.49 of the $0.50 for today." in bot.whispers()[0]
        assert "Please ask again in " in bot.whispers()[0]
        assert bot.replies(thread) == []
        assert "It is **open**" in (await bot.answer(bot.ask(user=LUIS))).text
        bot.slack.people.open_home(ASKER)
        await until(lambda: home_text(bot, ASKER))
        assert "You have spent $0.49 of $0.50 today." in home_text(bot, ASKER)


@pytest.mark.parametrize(
    ("scopes", "offered"), [(("web",), ["web"]), (("email",), None)], ids=["web", "no mailbox"]
)
async def test_parent_is_offered_only_the_scopes_that_a_rule_allows(
    tmp_path: Path, scopes: tuple[str, ...], offered: list[str] | None
) -> None:
    async with serve(tmp_path, scripted_parent(echo), change=with_rules(scopes=scopes)) as bot:
        await bot.answer(bot.ask())
        tools = {tool["name"]: tool["input_schema"] for tool in bot.parents()[0]["tools"]}
    found = tools.get("run_subagent", {}).get("properties", {}).get("scope", {}).get("enum")
    assert found == offered


# ---- pause


async def test_pause_by_an_admin_defers_new_requests_until_resume(tmp_path: Path) -> None:
    change = with_rules(policy={"admins": (BOSS,)})
    async with serve(
        tmp_path, scripted_parent(echo), space=mixed_workspace(), mode="http", change=change
    ) as bot:
        people = bot.slack.people
        people.slash(LUIS, bot.channel, "/assistant", "pause")
        await until(lambda: bot.whispers(LUIS))
        assert "Only an administrator" in bot.whispers(LUIS)[0]
        people.slash(BOSS, bot.channel, "/assistant", "pause")
        await until(lambda: bot.whispers(BOSS))
        assert bot.whispers(BOSS)[0] == f"All new work is paused by <@{BOSS}>."
        thread = bot.ask("Hello?")
        await bot.wait_until_stored(thread)
        await bot.bench.dispatch.look()
        assert bot.replies(thread) == []
        people.open_home(ASKER)
        await until(lambda: "Paused by" in home_text(bot, ASKER))
        people.slash(LUIS, bot.channel, "/assistant", "status")
        await until(lambda: len(bot.whispers(LUIS)) == 2)
        assert "paused by" in bot.whispers(LUIS)[1]
        people.slash(LUIS, bot.channel, "/assistant", "stop")
        await until(lambda: len(bot.whispers(LUIS)) == 3)
        assert bot.whispers(LUIS)[2].startswith("Use `/assistant pause`")
        people.slash(BOSS, bot.channel, "/assistant", "resume")
        assert "Hello?" in (await bot.answer(thread)).text
        assert bot.whispers(BOSS)[1] == "The assistant is running."


# ---- errors at the start


DEAD = "127.0.0.1:9"
AT_START: dict[str, tuple[dict[str, str], str, str]] = {
    "wrong bot token": ({"SLACK_BOT_TOKEN": "xoxb-wrong"}, "", "invalid_auth"),
    "no bot token": ({"SLACK_BOT_TOKEN": ""}, "", "SLACK_BOT_TOKEN"),
    "wrong app token": ({"SLACK_APP_TOKEN": "xapp-wrong"}, "", "SLACK_APP_TOKEN"),
    "no signing secret": (
        {"SLACK_SIGNING_SECRET": ""},
        "slack: {mode: http}",
        "SLACK_SIGNING_SECRET",
    ),
    "no Slack": (
        {"SLACK_API_URL": f"http://{DEAD}/api/"},
        "slack: {retry_attempts: 0, timeout_s: 2}",
        "Slack cannot be reached",
    ),
    "no database": ({"DATABASE_URL": f"postgresql://postgres@{DEAD}/x"}, "", "cannot be used"),
    "a port in use": ({}, "serve: {port: PORT_OF_THE_MODEL}", "cannot listen"),
}
"""Name -> variables, settings, and what the error says."""


@pytest.mark.parametrize("trouble", AT_START)
def test_startup_error_is_one_line_with_exit_code_2(
    trouble: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    env, config, expected = AT_START[trouble]
    with fleet(tmp_path, scripted_parent(echo), mode="socket") as bots:
        port = bots.env["ANTHROPIC_BASE_URL"].rpartition(":")[2]
        text = config.replace("PORT_OF_THE_MODEL", port) or "serve: {port: 0}"
        (bots.folder / "assistant.yaml").write_text(text)
        for name, value in {**bots.env, **env}.items():
            monkeypatch.setenv(name, value)
        with pytest.raises(SystemExit) as exit_info:
            main(["serve"])
    output = capsys.readouterr()
    errors = [line for line in output.err.splitlines() if line.startswith("error: ")]
    assert exit_info.value.code == 2, output.err
    assert len(errors) == 1, output.err
    assert expected in errors[0]
    assert "Traceback" not in output.err
    assert output.out == ""
    for secret in (BOT_TOKEN, APP_TOKEN):
        assert secret not in output.err


# ---- errors while it runs


async def read_readyz(bot: Served) -> httpx2.Response:
    async with httpx2.AsyncClient(timeout=WAIT_S) as client:
        return await client.get(f"{bot.bench.url}/readyz")


async def wait_for_trouble(bot: Served, part: str) -> str:
    """Wait until /readyz reports the part as not working; return the reason."""

    async def trouble() -> str:
        answer = await read_readyz(bot)
        reason = str(answer.json()["parts"].get(part, "ok"))
        return "" if reason == "ok" else f"{answer.status_code}: {reason}"

    code, _, reason = (await come(trouble)).partition(": ")
    assert code == "503"
    return reason


async def wait_until_ready(bot: Served) -> None:
    """Wait until /readyz answers 200."""

    async def is_ready() -> bool:
        return (await read_readyz(bot)).status_code == 200

    await come(is_ready)


def logged_tracebacks(caplog: pytest.LogCaptureFixture) -> list[str]:
    """Return the log records that have a traceback."""
    return [f"{r.name}: {r.getMessage()[:300]}" for r in caplog.records if r.exc_info]


async def once_each(bot: Served, threads: Iterable[str]) -> None:
    """Check that each thread has one answer."""
    for thread in threads:
        (shown,) = await bot.answers(thread, seconds=WAIT_S)
        assert "You asked" in shown.text
        assert len(bot.replies(thread)) == 1


async def test_revoked_token_is_reported_and_requests_are_answered_once_it_is_restored(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with serve(tmp_path, scripted_parent(echo), latency_s=0.3) as bot:
        token = bot.slack.tokens[BOT_TOKEN]
        first = bot.ask("Hello?")
        await until(lambda: bot.parents())
        del bot.slack.tokens[BOT_TOKEN]
        second = bot.ask("And now?")
        assert "invalid_auth" in await wait_for_trouble(bot, "token")
        assert not [m for m in bot.replies(first) if m.metadata]
        bot.slack.tokens[BOT_TOKEN] = token
        await once_each(bot, (first, second))
        await wait_until_ready(bot)
    assert logged_tracebacks(caplog) == []


async def test_revoked_app_token_ends_the_bot_when_a_new_socket_is_needed(tmp_path: Path) -> None:
    async def revoke() -> None:
        async with serve(tmp_path, scripted_parent(echo)) as bot:
            bot.slack.faults = LastingFaults(
                [Fault("apps.connections.open", "error:token_revoked")]
            )
            bot.slack.sockets.drop("link_disabled")
            await asyncio.sleep(WAIT_S)

    with pytest.raises(SocketRefused, match="token_revoked"):
        await revoke()


async def test_requests_are_answered_once_after_a_short_slack_outage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Some requests run, one has just arrived, some are sent during the outage."""
    slack = LocalSlack(workspace(3), retries_s=(0.0, 0.3, 1.0))
    unpaced = with_sections(slack={"paced": False})  # failed calls count for our own rate limits
    options: Json = {"latency_s": 0.5, "change": unpaced, "serve": {"outage_give_up_s": 120.0}}
    async with serve(tmp_path, scripted_parent(echo), slack=slack, **options) as bot:
        direct = slack.people.dm(ASKER)
        threads = [(bot.ask(f"At work {n}?"), bot.channel) for n in range(3)]
        await until(lambda: len(bot.parents()) == 3)
        threads += [(bot.ask("Just heard?", channel=OTHER, user="U0EVA"), OTHER)]
        await asyncio.sleep(0.05)
        slack.sockets.refuse(1.0)
        slack.faults = LastingFaults([Fault("*", "500")])
        slack.sockets.drop("abort")
        threads += [(bot.ask("Meanwhile?", user="U0LUIS"), bot.channel)]
        threads += [(slack.people.say(ASKER, direct, "And here?"), direct)]
        assert "No socket is connected" in await wait_for_trouble(bot, "slack")
        await asyncio.sleep(1.0)
        slack.faults = []
        for thread, channel in threads:
            (shown,) = await bot.answers(thread, channel=channel, seconds=90)
            assert "You asked" in shown.text
            assert len(bot.replies(thread, channel)) == 1
        assert bot.whispers() == bot.whispers("U0EVA") == bot.whispers("U0LUIS") == []
        await wait_until_ready(bot)
    assert logged_tracebacks(caplog) == []


async def test_invalid_policy_file_stops_all_answers_until_it_is_fixed(tmp_path: Path) -> None:
    path = tmp_path / "assistant.yaml"
    path.write_text("policy: {everywhere: {answer: true}, admins: [U0EVA]}")
    async with serve(tmp_path, scripted_parent(echo), policy_path=path) as bot:
        before = bot.ask("Before?")
        await once_each(bot, [before])
        path.write_text("policy: {everywhere: {answer: maybe}}")
        assert "answer" in await wait_for_trouble(bot, "policy")
        follow_up = bot.slack.people.say(ASKER, bot.channel, "And here?", before)
        await bot.wait_until_stored(follow_up)
        thread = bot.ask("Meanwhile?")
        await until(lambda: bot.whispers(), 20)
        (whisper,) = bot.whispers()
        assert "An admin has to fix them" in whisper
        assert str(tmp_path) not in whisper
        bot.slack.people.slash("U0EVA", bot.channel, "/assistant", "pause")
        await until(lambda: bot.whispers("U0EVA"))
        assert await bot.inbox.paused_by() is None
        path.write_text("policy: {everywhere: {answer: true, mention_needed: true}}")
        await wait_until_ready(bot)
        await once_each(bot, [bot.ask("After?")])
        assert bot.replies(thread) == []
        assert bot.whispers() == [whisper], "a message without a mention gets no whisper"
