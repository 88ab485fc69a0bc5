"""Access to the console: by administrators who signed in with Slack, until the session expires."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx2
import pytest
import pytest_asyncio
from card_kit import BOSS, EVA, GUEST
from console_kit import PUBLIC, Served, console, reason, signed_in_browser, to_slack
from pydantic import SecretStr
from serve_kit import change_settings, serve
from standins.slack_openid import CLIENT_ID, CLIENT_SECRET
from timing import Patience

from bot.console.app import NAVIGATION, PATH
from bot.console.signin import Session, SignInAttempt, SlackSignIn
from bot.errors import SetupError
from bot.storage.encryption import Cipher
from config.settings import Settings

COOKIE, ATTEMPT = "__Host-console", "__Host-console-sign-in"


@pytest_asyncio.fixture
async def served(tmp_path: Path) -> AsyncIterator[Served]:
    async with console(tmp_path) as served:
        yield served


def later(**span: float) -> datetime:
    return datetime.now(UTC) + timedelta(**span)


async def open_with_cookie(served: Served, sealed: str) -> httpx2.Response:
    async with served.browser(cookies={COOKIE: sealed}) as browser:
        return await browser.get(f"{PATH}/schedules")


async def test_an_administrator_signs_in_sees_every_page_and_signs_out(served: Served) -> None:
    browser = await signed_in_browser(served)
    for _, path in NAVIGATION:
        page = await browser.get(path)
        assert page.status_code == 200
        assert BOSS in page.text
    stolen = browser.cookies[COOKIE]
    out = await browser.post(f"{PATH}/sign-out")
    assert reason(out) == "You are signed out."
    assert COOKIE not in browser.cookies
    assert reason(await open_with_cookie(served, stolen)) == "You are not signed in any more."


async def test_sign_in_uses_a_new_state_and_host_bound_http_only_cookies(served: Served) -> None:
    browser = served.browser()
    away = await browser.get(f"{PATH}/sign-in")
    await to_slack(browser)
    welcome = await browser.get(await to_slack(browser))
    for cookie, name, seconds in (
        (away.headers["set-cookie"], ATTEMPT, 600),
        (welcome.headers.get_list("set-cookie")[-1], COOKIE, 43_200),
    ):
        assert cookie.startswith(f"{name}=")
        attributes = {part.strip().lower() for part in cookie.split(";")[1:]}
        assert {f"max-age={seconds}", "path=/", "secure", "httponly", "samesite=lax"} <= attributes
        assert not any(part.startswith("domain") for part in attributes)
        assert BOSS not in cookie
    one, two = served.sign_in.asked
    assert one["team"] == served.slack.state.team.id
    assert len(one["state"]) >= 43
    assert one["state"] != two["state"]


@pytest.mark.parametrize("user", [EVA, GUEST, "U0NOBODY"])
async def test_guests_and_non_administrators_see_no_console_page(served: Served, user: str) -> None:
    """The guest is refused although the list of administrators names them."""
    served.sign_in.user = user
    browser = served.browser()
    refused = await browser.get(await to_slack(browser))
    assert refused.status_code == 403
    who_to_ask = f"{user} is no administrator of the bot. Ask Ida Boss or Gus Guest."
    guest = "Only full members of the workspace may see the console."
    assert reason(refused) == (guest if user == GUEST else who_to_ask)
    assert COOKIE not in browser.cookies
    assert len(served.pages) > 10
    for method, path in served.pages:
        page = await browser.request(method, path, headers={"origin": PUBLIC})
        assert page.status_code in (401, 403)
        assert page.headers["cache-control"] == "no-store"
        if method != "HEAD":
            assert reason(page) == "Sign in to see the console."
            assert "<nav" not in page.text
    assert (await browser.get(f"{PATH}/static/console.css")).status_code == 200


async def test_removed_administrator_loses_access(served: Served) -> None:
    browser = await signed_in_browser(served)
    served.path.write_text(served.path.read_text().replace(BOSS, "U0OTHER"))
    ask = f"{BOSS} is no administrator of the bot. Ask Gus Guest."
    patience = Patience()
    while reason(page := await browser.get(f"{PATH}/schedules")) != ask:
        assert page.status_code == 200
        assert not patience.over
        await asyncio.sleep(0.05)


def session(served: Served, **more: Any) -> Session:
    defaults = {"expires": later(hours=1), "team": served.slack.state.team.id, "user": BOSS}
    return Session(**{**defaults, **more})


async def test_expired_forged_or_foreign_sessions_are_rejected(served: Served) -> None:
    seal = served.cipher.encrypt
    good = seal(session(served).model_dump_json())
    assert (await open_with_cookie(served, good)).status_code == 200
    attempt = SignInAttempt(expires=later(minutes=5))
    middle = len(good) // 2
    for sealed in (
        good[:middle] + ("A" if good[middle] != "A" else "B") + good[middle + 1 :],
        good[:-4],
        Cipher.generate().encrypt(session(served).model_dump_json()),
        session(served).model_dump_json().replace('"', "'").replace(",", "."),
        seal(session(served, expires=later(seconds=-1)).model_dump_json()),
        seal(session(served, team="T0OTHER").model_dump_json()),
        seal(attempt.model_dump_json()),
        seal("[]"),
        "x" * 5_000,
    ):
        refused = await open_with_cookie(served, sealed)
        assert refused.status_code == 401
        assert reason(refused) == "You are not signed in any more."


OVER = "This sign-in is over, or was not started in this browser."


async def test_sign_in_response_works_once_and_only_in_the_same_browser(served: Served) -> None:
    first, second = served.browser(), served.browser()
    answer = await to_slack(first)
    assert reason(await second.get(answer)) == OVER
    await second.get(f"{PATH}/sign-in")
    assert reason(await second.get(answer)) == OVER
    attempt = first.cookies[ATTEMPT]
    assert (await first.get(answer)).status_code == 303
    assert reason(await first.get(answer)) == OVER
    async with served.browser(cookies={ATTEMPT: attempt}) as replayed:
        assert reason(await replayed.get(answer)) == "This sign-in was used before."
        assert COOKIE not in replayed.cookies


async def test_account_of_another_workspace_cannot_sign_in(served: Served) -> None:
    served.sign_in.changed = {"https://slack.com/team_id": "T0OTHER"}
    browser = served.browser()
    refused = await browser.get(await to_slack(browser))
    why = "You signed in with an account of another workspace."
    assert (refused.status_code, reason(refused)) == (403, why)
    assert COOKIE not in browser.cookies


async def test_sign_in_refusal_by_slack_is_shown(served: Served) -> None:
    browser = served.browser()
    answer = await to_slack(browser)
    state = parse_qs(urlsplit(answer).query)["state"][0]
    denied = await browser.get(f"{PATH}/sign-in/back?state={state}&error=access_denied")
    assert reason(denied) == "Slack did not sign you in (access_denied)."
    served.sign_in.error = "invalid_client_id"
    refused = await browser.get(await to_slack(browser))
    assert reason(refused) == "Slack did not confirm who you are (invalid_client_id)."


async def test_sign_in_redirects_only_to_a_console_page(served: Served) -> None:
    wrong = ("https://evil.example/", "//evil.example", f"{PATH}/../x", f"{PATH}//evil")
    for page in (*wrong, f"{PATH}/runs/r.1"):
        browser = served.browser()
        welcome = await browser.get(await to_slack(browser, page))
        wanted = f"{PATH}/" if page in wrong else page
        assert welcome.headers["location"] == PUBLIC + wanted


async def test_console_pages_forbid_caching_and_framing_and_only_sign_out_accepts_posts(
    served: Served,
) -> None:
    posts = {path for method, path in served.pages if method not in ("GET", "HEAD")}
    assert posts == {f"{PATH}/sign-out"}, "nothing can be changed, so no other site can change it"
    browser = await signed_in_browser(served)
    for method, path in served.pages:
        if method == "GET":
            headers = (await browser.get(path)).headers
            assert headers["cache-control"] == "no-store"
            assert "script-src 'self'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]


async def test_sign_in_requires_an_oauth_client(served: Served) -> None:
    settings = change_settings(served.settings, secrets={"slack_client_secret": None})
    parts: Any = (served.store.database, served.cipher, lambda team: None)
    with pytest.raises(SetupError, match=r"console\.public_url needs the OAuth client"):
        SlackSignIn(settings, *parts)


def with_public_console(settings: Settings) -> Settings:
    client = {"public_url": PUBLIC, "client_id": CLIENT_ID}
    secret = {"slack_client_secret": SecretStr(CLIENT_SECRET)}
    return change_settings(settings, console=client, secrets=secret)


async def test_console_is_local_only_or_requires_sign_in_when_exposed(tmp_path: Path) -> None:
    """An exposed console makes browsers of its own machine sign in, too: proxies look like one."""
    page = f"{PATH}/schedules"
    async with httpx2.AsyncClient() as browser:
        async with serve(tmp_path / "here") as bot:
            assert (await browser.get(bot.bench.url + page)).status_code == 200
            named = await browser.get(bot.bench.url + page, headers={"host": "console.example"})
            assert named.status_code == 403
        async with serve(tmp_path / "there", change=with_public_console) as bot:
            refused = await browser.get(bot.bench.url + page)
            assert (refused.status_code, reason(refused)) == (401, "Sign in to see the console.")
            away = await browser.get(f"{bot.bench.url}{PATH}/sign-in")
            assert f"team={bot.slack.state.team.id}" in away.headers["location"]


async def test_server_in_http_mode_has_no_console_without_sign_in(tmp_path: Path) -> None:
    """A proxy such as nginx names itself, from this machine, as client and host."""
    async with httpx2.AsyncClient() as browser, serve(tmp_path, mode="http") as bot:
        for path in (PATH, f"{PATH}/runs", f"{PATH}/static/console.css"):
            assert (await browser.get(bot.bench.url + path)).status_code == 404
