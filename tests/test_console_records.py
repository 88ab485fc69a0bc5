"""The console's pages of records: what they show and change, and how a browser takes them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest_asyncio
import sqlalchemy as sa
from axe_playwright_python.async_playwright import Axe
from browser_kit import browser
from card_kit import BOSS, EVA
from console_kit import Served, console, press, token
from playwright.async_api import Browser, Page, expect
from pydantic import SecretStr
from serve_kit import free_port
from timing import Patience

from bot.approvals.store import Actions
from bot.console.app import PATH
from bot.console.records import MENU, policy_lines
from bot.mailbox.accounts import Credentials, MailboxTokens
from bot.policy.directory import Grants
from bot.schedules.store import ScheduleStore
from bot.serving.web import serve_app
from bot.storage.requests import RequestQueue
from bot.storage.tables import decisions
from config.schedules import Schedule
from config.settings import load_policy
from scopes.intent import UNASKED
from scopes.label import TRUSTED
from subagents.gate import Action

__all__ = ["browser"]

NASTY = '<img src=x onerror="window.hacked = 1"><script>window.hacked = 1</script>"\'&'
KEY = "T1/C1/1.000001"
LOOPBACK = "http://127.0.0.1:8200"
NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)
REFRESH = "refresh-token-of-ana"


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with console(tmp_path, LOOPBACK, local=True) as made:
        await fill(made)
        yield made


async def fill(served: Served) -> None:
    """Store a record of each kind, with text that would run if a page took it for its own."""
    database = served.store.database
    question = Schedule(
        kind="ask", cron="0 9 * * 1", to="dm", owner=EVA, request=f"What of {NASTY}?"
    )
    await ScheduleStore(database).create("monday", question, "chat", NOW)
    await served.store.start_run("r1", "mention", NASTY, "offline", {}, request=KEY)
    args = {"to": ["ana@acme.example"], "subject": NASTY, "text": f"Dear {NASTY}"}
    for id in ("a" * 32, "b" * 32):
        what = (id, "r1", "p1", "send_mail", "parent")
        made = datetime.now(UTC)
        action = Action(*what, args, EVA, TRUSTED, {}, UNASKED, "consequence", made)
        await Actions(database).add(action)
    queue = RequestQueue(database)
    await queue.feedback(KEY, EVA, "bad")
    await queue.explain(KEY, EVA, "wrong", NASTY)
    await queue.pause(NASTY)
    await Grants(database).add(["C0AAA"], "C0BBB", BOSS, "g1")
    tokens = MailboxTokens(
        access_token=SecretStr("access-token-of-ana"),
        refresh_token=SecretStr(REFRESH),
        address=f"eva{NASTY}@acme.example",
    )
    await Credentials(database).put(EVA, tokens)
    with served.path.open("a", encoding="utf-8") as file:
        file.write(f"# {NASTY}\n")


async def text_of(served: Served, name: str) -> str:
    async with served.browser(LOOPBACK) as browser:
        page = await browser.get(f"{PATH}/{name}")
    assert page.status_code == 200
    assert "<img src=x" not in page.text
    assert "window.hacked = 1</script>" not in page.text
    return " ".join(re.sub(r"<[^>]+>", " ", page.text).split())


async def test_a_schedule_is_told_with_its_owner_times_and_outcome(served: Served) -> None:
    text = await text_of(served, "schedules")
    for part in ("monday", "active", "Every Monday at 09:00 (UTC)", f"Owner {EVA}", "To dm"):
        assert part in text
    assert "Next run Mon, " in text
    assert "Last run none" in text
    assert "Set in chat" in text


async def test_what_waits_is_shown_with_its_exact_arguments(served: Served) -> None:
    text = await text_of(served, "approvals")
    assert text.count("&lt;img src=x onerror=") == 4  # subject and text of two mails
    assert "ana@acme.example" in text
    assert f"Asked for by {EVA} in r1" in text
    assert "Nothing was decided." in text
    assert "C0AAA may appear in C0BBB" in text
    assert "assistant approvals revoke g1" in text


async def test_a_connection_is_shown_without_its_tokens(served: Served) -> None:
    async with served.browser(LOOPBACK) as browser:
        raw = (await browser.get(f"{PATH}/connections")).text
    assert "acme.example" in raw
    for secret in (REFRESH, "access-token-of-ana", "slack-client-secret"):
        assert secret not in raw
    assert f"{datetime.now(UTC):%Y-%m-%d}" in await text_of(served, "connections")


async def test_feedback_links_to_its_run(served: Served) -> None:
    async with served.browser(LOOPBACK) as browser:
        raw = (await browser.get(f"{PATH}/feedback")).text
    assert f'<a href="{PATH}/runs/r1">r1</a>' in raw
    assert "wrong: &lt;img" in raw


async def test_the_policy_says_which_file_each_value_is_from(served: Served) -> None:
    text = await text_of(served, "policy")
    assert f"Administrators {BOSS}, U0GUEST policy.admins assistant.yaml" in text
    assert "Who may ask members policy.everywhere.ask default.yaml" in text
    assert "client_id: &#34;1.2&#34;" in text
    served.path.write_text("policy: {admins: 3}\n")
    patience = Patience()
    while "Nobody is answered until" not in (text := await text_of(served, "policy")):
        assert not patience.over
        await asyncio.sleep(0.05)
    assert "Administrators" not in text


def test_each_rule_of_the_policy_is_told_with_its_origin(tmp_path: Path) -> None:
    path = tmp_path / "assistant.yaml"
    path.write_text(
        "policy:\n  channels: {'csm-*': {cost_usd: 2.0}}\n  users: {U0EVA: {answer: false}}\n"
        "  daily_usd: null\n  everywhere: {models: [fast]}\n"
    )
    given = {
        "channels": {"csm-*": {"cost_usd": 2.0}},
        "users": {"U0EVA": {"answer": False}},
        "daily_usd": None,
        "everywhere": {"models": ["fast"]},
    }
    told = {each.key: (each.value, each.origin) for each in policy_lines(load_policy(path), given)}
    assert told["policy.channels.csm-*.cost_usd"] == ("2", "assistant.yaml")
    assert told["policy.users.U0EVA.answer"] == ("no", "assistant.yaml")
    assert told["policy.daily_usd"] == ("no limit", "assistant.yaml")
    assert told["policy.everywhere.models"] == ("fast", "assistant.yaml")
    assert told["policy.everywhere.cost_usd"] == ("limits.cost_usd", "default.yaml")
    assert told["policy.everywhere.scopes"][1] == "default.yaml"
    assert told["policy.approvers"] == ("nobody", "default.yaml")
    assert "policy.users.U0EVA.ask" not in told


async def pressed(served: Served, page: str, path: str) -> int:
    """Press the button of a page that leads to this path, on the bot's own machine."""
    async with served.browser(LOOPBACK) as browser:
        shown = await browser.get(f"{PATH}/{page}")
        assert f'action="{PATH}/{path}"' in shown.text
        answer = await press(browser, f"{PATH}/{path}", token(shown), LOOPBACK)
        return answer.status_code


async def test_the_operator_denies_pauses_and_resumes_by_name(served: Served) -> None:
    database = served.store.database
    id = "a" * 32
    assert await pressed(served, "approvals", f"approvals/{id}/deny") == 303
    denied = await Actions(database).get(id)
    assert denied
    assert (denied.state, denied.decided_by) == ("denied", "the console")
    lines = await database.read(sa.select(decisions).where(decisions.c.context == id))
    assert [(line.verdict, line.rule) for line in lines] == [("denied", "console")]
    assert "denied by the console" in await text_of(served, "approvals")
    schedules = ScheduleStore(database)
    assert await pressed(served, "schedules", "schedules/monday/pause") == 303
    paused = await schedules.get("monday")
    assert paused
    assert (paused.state, paused.why) == ("paused", "paused by the console")
    assert await pressed(served, "schedules", "schedules/monday/resume") == 303
    resumed = await schedules.get("monday")
    assert resumed
    assert resumed.state == "active"
    assert await pressed(served, "pause", "resume") == 303
    assert await RequestQueue(database).paused_by() is None
    assert await pressed(served, "pause", "pause") == 303
    assert await RequestQueue(database).paused_by() == "the console"


async def test_what_was_decided_meanwhile_is_told(served: Served) -> None:
    async with served.browser(LOOPBACK) as browser:
        sent = token(await browser.get(f"{PATH}/approvals"))
        path = f"{PATH}/approvals/{'a' * 32}/deny"
        assert (await press(browser, path, sent, LOOPBACK)).status_code == 303
        again = await press(browser, path, sent, LOOPBACK)
        assert again.status_code == 409
        assert "does not wait for approval any more" in again.text
        gone = await press(browser, f"{PATH}/schedules/tuesday/pause", sent, LOOPBACK)
        assert gone.status_code == 409
        assert "There is no schedule" in gone.text


async def test_a_page_that_is_only_opened_changes_nothing(served: Served) -> None:
    before = await stored(served)
    async with served.browser(LOOPBACK) as browser:
        for method, path in served.pages:
            if method == "GET":
                assert (await browser.get(path)).status_code in (200, 303, 404)
            if method == "POST":
                assert (await browser.get(path)).status_code in (200, 404, 405)
    assert await stored(served) == before


async def stored(served: Served) -> list[Any]:
    database = served.store.database
    actions = await Actions(database).in_state("proposed", "denied")
    return [
        [(row.id, row.state) for row in actions],
        [(row.id, row.state) for row in await ScheduleStore(database).all()],
        await RequestQueue(database).paused_by(),
    ]


# ---- a browser


async def test_a_browser_signs_in_and_works_every_page_by_keyboard(
    tmp_path: Path, browser: Browser
) -> None:
    """Nothing of a record runs; axe finds no fault, in light and in dark."""
    port = free_port()
    public = f"http://127.0.0.1:{port}"
    async with console(tmp_path, public) as made, serve_app(made.app, "127.0.0.1", port):
        await fill(made)
        page = await (await browser.new_context()).new_page()
        page.set_default_timeout(30_000)
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.goto(f"{public}{PATH}/schedules")
        await expect(page.get_by_text("Sign in to see the console.")).to_be_visible()
        assert await violations(page) == []
        await page.get_by_role("link", name="Sign in with Slack").focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Allow").press("Enter")
        await page.wait_for_url(f"{public}{PATH}/schedules")
        for title, path in MENU:
            await page.get_by_role("link", name=title, exact=True).press("Enter")
            await page.wait_for_url(public + path)
            await expect(page.get_by_role("heading", level=1)).to_have_text(title)
            await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                assert await violations(page) == [], (title, scheme)
            assert await page.evaluate("window.hacked") is None
        await page.get_by_role("button", name="Resume", exact=True).press("Enter")
        await expect(page.get_by_text("The bot is not paused.")).to_be_visible()
        await page.get_by_role("button", name="Sign out").press("Enter")
        await expect(page.get_by_text("You are signed out.")).to_be_visible()
        await page.goto(f"{public}{PATH}/schedules")
        await expect(page.get_by_text("Sign in to see the console.")).to_be_visible()
        assert faults == []


async def violations(page: Page) -> Sequence[str]:
    found = (await Axe().run(page)).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]
