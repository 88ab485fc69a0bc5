"""The console's pages of stored records: their text, and how a browser shows them."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from axe_playwright_python.async_playwright import Axe
from browser_kit import browser
from card_kit import BOSS, EVA
from console_kit import Served, console
from playwright.async_api import Browser, Page, expect
from pydantic import SecretStr
from runs_kit import NASTY
from serve_kit import free_port
from timing import WAIT_S, Patience

from bot.approvals.store import Actions
from bot.console.app import NAVIGATION, PATH
from bot.mailbox.accounts import Credentials
from bot.policy.directory import Grants
from bot.schedules.store import ScheduleStore
from bot.serving.web import serve_app
from bot.storage.requests import RequestQueue
from config.schedules import Schedule
from scopes.google.auth import MailboxTokens
from scopes.intent import EMPTY_INTENT
from scopes.label import TRUSTED_LABEL
from subagents.gate import Action

__all__ = ["browser"]

KEY = "T1/C1/1.000001"
LOOPBACK = "http://127.0.0.1:8200"
NOW = datetime(2026, 11, 27, 9, tzinfo=UTC)
REFRESH = "refresh-token-of-ana"


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with console(tmp_path, LOOPBACK, local=True) as served:
        await fill(served)
        yield served


async def fill(served: Served) -> None:
    """Store a record of each kind, with text that would run in a page that does not escape it."""
    database = served.store.database
    question = Schedule(
        kind="ask", cron="0 9 * * 1", to="dm", owner=EVA, request=f"What of {NASTY}?"
    )
    await ScheduleStore(database).create("monday", question, "chat", NOW)
    await served.store.start_run("r1", "mention", NASTY, "offline", {}, request=KEY)
    args = {"to": ["ana@acme.example"], "subject": NASTY, "text": f"Dear {NASTY}"}
    for id in ("a" * 32, "b" * 32):
        fields = (id, "r1", "p1", "send_mail", "parent")
        created = datetime.now(UTC)
        action = Action(*fields, args, EVA, TRUSTED_LABEL, {}, EMPTY_INTENT, "consequence", created)
        await Actions(database).add(action)
    queue = RequestQueue(database)
    await queue.feedback(KEY, EVA, "bad")
    await queue.explain(KEY, EVA, "wrong", NASTY)
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


SHOWN = {
    "schedules": (
        *("monday", "active", "Every Monday at 09:00 (UTC)", f"Owner {EVA}", "To dm"),
        *("Next run Mon, ", "Last run none", "Set in chat"),
    ),
    "approvals": (
        *("ana@acme.example", f"Asked for by {EVA} in r1", "Nothing was decided."),
        *("C0AAA may appear in C0BBB", "assistant approvals revoke g1"),
    ),
}


@pytest.mark.parametrize("name", SHOWN)
async def test_a_page_shows_its_records_with_their_exact_arguments(
    served: Served, name: str
) -> None:
    text = await text_of(served, name)
    assert [part for part in SHOWN[name] if part not in text] == []
    if name == "approvals":  # subject and text of two mails
        assert text.count("&lt;img src=x onerror=") == 4


async def test_a_connection_is_shown_without_its_tokens(served: Served) -> None:
    async with served.browser(LOOPBACK) as browser:
        raw = (await browser.get(f"{PATH}/connections")).text
    assert "acme.example" in raw
    for secret in (REFRESH, "access-token-of-ana", "slack-client-secret"):
        assert secret not in raw
    assert f"{datetime.now(UTC):%Y-%m-%d}" in await text_of(served, "connections")


async def test_policy_page_shows_effective_policy_and_reports_an_invalid_file(
    served: Served,
) -> None:
    text = await text_of(served, "policy")
    assert f"admins: - {BOSS} - U0GUEST" in text
    assert "user_daily_usd: 10.0" in text, "a default, too"
    assert "client_id: &#34;1.2&#34;" in text
    served.path.write_text("policy: {admins: 3}\n")
    patience = Patience()
    while "Nobody is answered until" not in (text := await text_of(served, "policy")):
        assert not patience.over
        await asyncio.sleep(0.05)
    assert "user_daily_usd" not in text


# ---- a browser


async def test_console_is_accessible_and_usable_by_keyboard_in_a_browser(
    tmp_path: Path, browser: Browser
) -> None:
    """No text of a record runs; axe finds no violation in light and dark mode."""
    port = free_port()
    public = f"http://127.0.0.1:{port}"
    async with console(tmp_path, public) as served, serve_app(served.app, "127.0.0.1", port):
        await fill(served)
        page = await (await browser.new_context()).new_page()
        page.set_default_timeout(WAIT_S * 1000)
        faults: list[str] = []
        page.on("pageerror", lambda error: faults.append(str(error)))
        await page.goto(f"{public}{PATH}/schedules")
        await expect(page.get_by_text("Sign in to see the console.")).to_be_visible()
        assert await violations(page) == []
        await page.get_by_role("link", name="Sign in with Slack").focus()
        await page.keyboard.press("Enter")
        await page.get_by_role("button", name="Allow").press("Enter")
        await page.wait_for_url(f"{public}{PATH}/schedules")
        for title, path in NAVIGATION:
            await page.get_by_role("link", name=title, exact=True).press("Enter")
            await page.wait_for_url(public + path)
            await expect(page.get_by_role("heading", level=1)).to_have_text(title)
            await page.keyboard.press("Tab")
            await expect(page.get_by_role("link", name="Skip to the content")).to_be_focused()
            for scheme in ("light", "dark"):
                await page.emulate_media(color_scheme=scheme)
                assert await violations(page) == [], (title, scheme)
            assert await page.evaluate("window.hacked") is None
        await page.get_by_role("button", name="Sign out").press("Enter")
        await expect(page.get_by_text("You are signed out.")).to_be_visible()
        await page.goto(f"{public}{PATH}/schedules")
        await expect(page.get_by_text("Sign in to see the console.")).to_be_visible()
        assert faults == []


async def violations(page: Page) -> Sequence[str]:
    found = (await Axe().run(page)).response["violations"]
    return [f"{each['id']}: {node['html'][:200]}" for each in found for node in each["nodes"]]
