"""Connecting a mailbox to its own user, and attempts to connect it to somebody else."""

from __future__ import annotations

import asyncio
import html
import json
import logging
import re
import time
import urllib.request
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.error import HTTPError
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
import sqlalchemy as sa
from bot_kit import Shell, configure
from engine_kit import MUX, until
from fork_server import Fork, forked_command
from google_data_kit import key_file
from pg_kit import StorePlace
from policy_kit import Asking, scripted_slack, user
from pydantic import SecretStr
from serve_kit import Served, change_settings, free_port, serve, with_rules
from standins.google_oauth import CLIENT_ID, CLIENT_SECRET, LocalGoogleOauth
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from timing import WAIT_S, Patience

from bot.errors import SetupError
from bot.listeners.home import CODE, CONNECT, DISCONNECT
from bot.local.slack.views import home
from bot.log import Redactor, learn
from bot.mailbox.accounts import Credentials, mail_credentials
from bot.mailbox.oauth import MOST_TRIES, MailboxConnector, OauthStates
from bot.metrics import Metrics
from bot.privacy import tidy
from bot.serving.observability import Health
from bot.serving.web import connect_routes, serve_app, web_app
from bot.storage.database import Database
from bot.storage.tables import oauth_states
from config.settings import Settings, load_settings
from config.words import phrase
from scopes.google.auth import MailboxTokens
from scopes.google.errors import MODIFY, GoogleRevoked

Json = dict[str, Any]
TEAM = "T0ACME"
ANA, MAL = "U0ANA", "U0MAL"
MAILBOX = "ana@acme.example"
TIMEOUT = aiohttp.ClientTimeout(total=10)


@dataclass
class StandIn:
    """Google's accounts, and the part of Gmail that says whose mailbox a token opens."""

    accounts: LocalGoogleOauth = field(default_factory=LocalGoogleOauth)
    url: str = ""
    profile: Response | None = None
    """An answer instead of the right one."""

    @property
    def app(self) -> Starlette:
        profile = Route("/gmail/v1/users/me/profile", self._profile)
        return Starlette(routes=[*self.accounts.routes("/oauth"), profile])

    def requests_to(self, path: str) -> list[Json]:
        return [sent for at, sent in self.accounts.requests if at.endswith(path)]

    async def _profile(self, request: Request) -> Response:
        if self.profile is not None:
            return self.profile
        token = request.headers.get("authorization", "").removeprefix("Bearer ")
        address = self.accounts.whose(token)
        refusal = {"error": {"code": 401, "errors": [{"reason": "authError"}]}}
        return JSONResponse(
            {"emailAddress": address} if address else refusal, 200 if address else 401
        )


@contextmanager
def google_at() -> Iterator[StandIn]:
    google = StandIn()
    with MUX.served_app(google.app) as url:
        google.url = url
        yield google


def settings_at(
    google: StandIn, public_url: str | None = None, base: Settings | None = None, **more: Any
) -> Settings:
    """The defaults, or these settings, with an OAuth client of this Google."""
    return change_settings(
        base or load_settings(env={}),
        google={"client_id": CLIENT_ID, "timeout_s": 5.0, **more},
        serve={"public_url": public_url},
        secrets={"google_client_secret": SecretStr(CLIENT_SECRET)},
        endpoints={
            "google_oauth_endpoint": f"{google.url}/oauth",
            "gmail_api_endpoint": google.url,
        },
    )


def person(id: str) -> Json:
    names = {ANA: ("ana", "Ana Ruiz"), MAL: ("mal", "Mallory <b>Jones</b>")}
    name, real_name = names.get(id, (id.lower(), id))
    return user(id, name=name, real_name=real_name)


@dataclass
class Page:
    """The page that a browser ends on."""

    status: int
    raw: str
    url: str
    headers: Any

    @property
    def text(self) -> str:
        plain = re.sub(r"<style>.*?</style>|<[^>]+>", " ", self.raw)
        return " ".join(html.unescape(plain).split())

    @property
    def code(self) -> str:
        """The code on the page; empty if there is none."""
        found = re.search(r'class="code">([0-9 ]+)<', self.raw)
        return found[1] if found else ""


class Browser:
    """One person's browser, with its own cookies; it follows redirects."""

    def __init__(self) -> None:
        self._session = aiohttp.ClientSession(
            timeout=TIMEOUT, cookie_jar=aiohttp.CookieJar(unsafe=True)
        )

    async def get(self, url: str, **more: Any) -> Page:
        return await self._ask("GET", url, **more)

    async def press(self, url: str, **more: Any) -> Page:
        """Submit the form of the page at this address."""
        return await self._ask("POST", url, **more)

    async def through(self, link: str) -> Page:
        """Open a link, go on to Google, allow all, and come back."""
        await self.get(link)
        return await self.press(link)

    async def stop_at_google(self, link: str) -> str:
        """The address that Google would send this browser back to."""
        await self.get(link)
        away = await self.press(link, allow_redirects=False)
        back = await self.get(away.headers["location"], allow_redirects=False)
        return str(back.headers["location"])

    async def _ask(self, method: str, url: str, **more: Any) -> Page:
        async with self._session.request(method, url, **more) as response:
            text = await response.text()
            return Page(response.status, text, str(response.url), response.headers)

    async def aclose(self) -> None:
        await self._session.close()


@dataclass
class MailBot:
    """A bot that connects mailboxes."""

    connecting: MailboxConnector
    store: Credentials
    database: Database
    google: StandIn
    slack: Asking
    url: str
    browsers: list[Browser] = field(default_factory=list)

    def browser(self) -> Browser:
        self.browsers.append(Browser())
        return self.browsers[-1]

    async def link(self, user: str = ANA) -> str:
        """The link that a user gets by pressing the button."""
        return (await self.connecting.begin(user, TEAM)).link

    async def mailbox(self, user: str = ANA) -> str:
        """The address of a user's connected mailbox; empty if there is none."""
        tokens = await self.store.get(user)
        return tokens.address if tokens else ""


@asynccontextmanager
async def mail_bot(database: Database) -> AsyncIterator[MailBot]:
    people = {f"users.info {id}": person(id) for id in (ANA, MAL)}
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    with google_at() as google:
        async with scripted_slack({**people, "views.publish": {"ok": True, "view": {}}}) as slack:
            settings = settings_at(google, url)
            connecting = MailboxConnector(settings, database, slack.web, "https://acme.slack.com/")
            pages = connect_routes(lambda state: connecting)
            bot = MailBot(connecting, Credentials(database), database, google, slack, url)
            async with serve_app(web_app(Health(), Metrics(), pages=pages), "127.0.0.1", port):
                try:
                    yield bot
                finally:
                    for browser in bot.browsers:
                        await browser.aclose()


@pytest.fixture
async def bot(database_in_file: Database) -> AsyncIterator[MailBot]:
    async with mail_bot(database_in_file) as bot:
        yield bot


async def test_mailbox_is_connected_after_its_requester_enters_the_code(bot: MailBot) -> None:
    browser, link = bot.browser(), await bot.link()
    first = await browser.get(link)
    assert "Ana Ruiz (@ana, U0ANA) of acme.slack.com, and for nobody else" in first.text
    assert bot.google.accounts.requests == [], "Google got no request yet"

    last = await browser.press(link)
    assert MAILBOX in last.text
    assert await bot.mailbox() == "", "nothing is connected without the code"
    access = await bot.connecting.access(ANA)
    assert (access.state, access.address) == ("waiting", MAILBOX)

    connected = await bot.connecting.confirm(ANA, f" {last.code} ")
    assert (connected.state, connected.address) == ("connected", MAILBOX)
    tokens = await bot.store.get(ANA)
    assert tokens
    assert bot.google.accounts.whose(tokens.access_token.get_secret_value()) == MAILBOX
    assert tokens.refresh_token.get_secret_value() == bot.google.accounts.grants[0].refresh_token


async def test_link_sent_to_a_victim_connects_no_mailbox(bot: MailBot) -> None:
    link = await bot.link(MAL)
    victim = bot.browser()
    first = await victim.get(link)
    assert "Mallory <b>Jones</b> (@mal, U0MAL)" in first.text
    last = await victim.press(link)
    assert "do not give the code to anybody" in last.text

    assert (await bot.connecting.confirm(ANA, last.code)).state == "absent", "it is not hers"
    wrong = str((int(last.code.replace(" ", "")) + 1) % 10**8).zfill(8)
    for remaining in range(MOST_TRIES - 1, 0, -1):
        assert f"{remaining} more tr" in (await bot.connecting.confirm(MAL, wrong)).note
    assert (await bot.connecting.confirm(MAL, wrong)).state == "absent"
    assert (await bot.connecting.confirm(MAL, last.code)).state == "absent", "it is too late"
    assert await bot.database.read(sa.select(oauth_states.c.state)) == []
    assert await bot.store.accounts() == []


async def test_link_works_once_and_only_in_one_browser(bot: MailBot) -> None:
    link = await bot.link()
    own, other, blind = bot.browser(), bot.browser(), bot.browser()
    assert (await blind.press(link)).status == 410, "it has not seen the page"
    assert (await other.get(link)).status == 200, "opening the page uses nothing up"
    back = await own.stop_at_google(link)
    assert (await own.press(link, allow_redirects=False)).status == 303, "pressed a second time"
    for page in (await other.press(link), await other.get(back)):
        assert (page.status, page.text.endswith(phrase("connect.expired"))) == (410, True)
    assert bot.google.requests_to("/token") == []
    assert (await own.get(back)).code
    for spent in (back, link):
        assert (await own.get(spent)).status == 410
    assert len(bot.google.requests_to("/token")) == 1


async def test_attacker_cannot_connect_their_mailbox_to_a_victim(bot: MailBot) -> None:
    """The victim opens a callback link with Google's code for the attacker's mailbox."""
    own = bot.browser()
    link = await bot.link(ANA)
    await own.get(link)
    await own.press(link, allow_redirects=False)
    bot.google.accounts.address = "mallory@evil.example"
    callback = await bot.browser().stop_at_google(await bot.link(MAL))
    (code,) = parse_qs(urlsplit(callback).query)["code"]
    (state,) = parse_qs(urlsplit(link).query)["state"]
    assert (await bot.browser().get(callback)).status == 410
    assert (await own.get(callback)).status == 410
    mixed = await own.get(f"{bot.url}/google/callback?state={state}&code={code}")
    assert mixed.status == 400, "PKCE: the code belongs to another state"
    assert await bot.connecting.access(ANA) == await bot.connecting.access("U0EVA")


async def test_unfinished_connection_expires_after_ten_minutes_and_is_deleted(bot: MailBot) -> None:
    async def expire() -> None:
        past = datetime.now(UTC) - timedelta(seconds=1)
        await bot.database.write(sa.update(oauth_states).values(expires=past))

    link, browser = await bot.link(), bot.browser()
    back = await browser.stop_at_google(link)
    await expire()
    assert (await browser.get(back)).status == 410
    page = await browser.through(await bot.link())
    (row,) = await bot.database.read(sa.select(oauth_states.c.expires))
    assert timedelta(minutes=9) < row.expires - datetime.now(UTC) <= timedelta(minutes=10)
    await expire()
    assert (await bot.connecting.confirm(ANA, page.code)).state == "absent"
    await tidy(bot.database, load_settings(env={}).retention)
    assert await bot.database.read(sa.select(oauth_states.c.state)) == []


async def test_missing_scope_or_invalid_google_response_connects_nothing(bot: MailBot) -> None:
    async def failed_page_text() -> str:
        page = await bot.browser().through(await bot.link())
        assert page.status == 400
        assert (await bot.connecting.access(ANA)).state == "absent"
        return page.text

    google = bot.google
    google.accounts.scope = "https://www.googleapis.com/auth/gmail.readonly"
    assert "Access to the mail was left out" in await failed_page_text()
    google.accounts.scope = None
    disabled = {"error": {"code": 403, "errors": [{"reason": "accessNotConfigured"}]}}
    google.profile = JSONResponse(disabled, 403)
    assert "The Gmail API is not switched on" in await failed_page_text()
    google.profile = JSONResponse({"emailAddress": None})
    assert "Google could not answer" in await failed_page_text()


async def test_connect_pages_forbid_caching_framing_referrers_and_scripts(bot: MailBot) -> None:
    browser, link = bot.browser(), await bot.link(MAL)
    pages = [await browser.get(link), await browser.press(link), await browser.get(link)]
    pages.append(await browser.get(f"{bot.url}/google/callback"))
    assert [page.status for page in pages] == [200, 200, 410, 410]
    for page in pages:
        assert page.headers["cache-control"] == "no-store"
        assert page.headers["referrer-policy"] == "no-referrer"
        assert page.headers["x-frame-options"] == "DENY"
        policy = page.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "frame-ancestors 'none'" in policy
        assert "<b>" not in page.raw, "a name that people choose is text"
    assert "form-action 'self'" in pages[0].headers["content-security-policy"]


async def test_secrets_are_not_in_pages_logs_or_plain_in_the_database(
    bot: MailBot, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    link, browser = await bot.link(), bot.browser()
    page = await browser.through(link)
    (state,) = parse_qs(urlsplit(link).query)["state"]
    sent = bot.google.requests_to("/token")[0]
    grant = bot.google.accounts.grants[0]
    hidden = [grant.refresh_token, sent["client_secret"], sent["code_verifier"], "ya29."]
    raw = sa.type_coerce(oauth_states.c.body, sa.Text).label("raw")
    stored = str(await bot.database.read(sa.select(raw, oauth_states.c.state)))
    logged = "\n".join(r.getMessage() for r in caplog.records if r.name.startswith("bot"))
    for secret in hidden:
        assert secret not in page.raw + stored + logged
    assert state not in stored + logged
    assert page.code.replace(" ", "") not in stored
    assert grant.code not in logged


async def test_browser_is_redirected_only_to_google(bot: MailBot) -> None:
    link = await bot.link()
    browser = bot.browser()
    for more in ("&next=https://evil.example", "&redirect_uri=https://evil.example", ""):
        await browser.get(link + more)
        away = await browser.press(link + more, allow_redirects=False)
        assert away.status == 303
        location = away.headers["location"]
        assert location.startswith(f"{bot.google.url}/oauth/auth?")
        query = {name: value for name, (value,) in parse_qs(urlsplit(location).query).items()}
        assert query["redirect_uri"] == f"{bot.url}/google/callback"
        assert query["scope"] == MODIFY
        assert query["code_challenge_method"] == "S256"
    for odd in ("", "?code=1", "?state=", f"?state={'x' * 43}", f"?state={'x' * 9_000}"):
        assert (await browser.get(f"{bot.url}/google/connect{odd}")).status == 410
        assert (await browser.press(f"{bot.url}/google/connect{odd}")).status == 410
        assert (await browser.get(f"{bot.url}/google/callback{odd}")).status == 410


async def test_connect_cookie_is_host_bound_and_hidden_from_scripts(bot: MailBot) -> None:
    public = settings_at(bot.google, "https://bot.example.com/")
    https = MailboxConnector(public, bot.database, bot.slack.web, "https://acme.slack.com/")
    link = (await https.begin(ANA, TEAM)).link
    assert link.startswith("https://bot.example.com/google/connect?state=")
    app = web_app(Health(), Metrics(), pages=connect_routes(lambda state: https))
    async with serve_app(app, "127.0.0.1", 0) as url:
        page = await bot.browser().get(link.replace("https://bot.example.com", url))
    cookie = page.headers["set-cookie"]
    assert cookie.startswith("__Host-connect=")
    for part in ("HttpOnly", "Secure", "SameSite=lax", "Path=/"):
        assert part in cookie
    assert "Domain" not in cookie


# ---- disconnecting


async def connect(bot: MailBot, user: str = ANA) -> None:
    page = await bot.browser().through(await bot.link(user))
    assert (await bot.connecting.confirm(user, page.code)).state == "connected"


async def test_tokens_are_deleted_even_if_google_is_unreachable(bot: MailBot) -> None:
    await connect(bot)
    bot.google.accounts.revoke(MAILBOX)
    access = await bot.connecting.disconnect(ANA)
    assert "Google could not" not in access.note, "an earlier revocation is no error"
    await connect(bot)
    settings = settings_at(StandIn(url="http://127.0.0.1:9"), bot.url)
    unreachable = MailboxConnector(settings, bot.database, bot.slack.web, "https://acme.slack.com/")
    access = await unreachable.disconnect(ANA)
    assert "myaccount.google.com/permissions" in access.note
    assert await bot.mailbox() == ""


async def test_mailbox_connected_by_two_users_stays_connected_for_the_other(bot: MailBot) -> None:
    await connect(bot)
    await connect(bot, MAL)
    await bot.connecting.disconnect(MAL)
    assert not bot.google.accounts.grants[0].revoked
    assert await bot.mailbox(ANA) == MAILBOX
    await bot.connecting.disconnect(ANA)
    assert bot.google.accounts.grants[0].revoked


# ---- both databases, several replicas


async def test_oauth_state_is_used_once_across_replicas(place: StorePlace) -> None:
    async with place.stores(3) as stores:
        states = [OauthStates(store.database) for store in stores]
        state = await states[0].begin(ANA, TEAM)
        claimed = await asyncio.gather(
            *(s.claim(state, f"browser {n}") for n, s in enumerate(states))
        )
        (first,) = [n for n, attempt in enumerate(claimed) if attempt]
        attempts = await asyncio.gather(*(s.spend(state, f"browser {first}") for s in states * 2))
        (attempt,) = filter(None, attempts)
        assert (attempt.account, attempt.team) == (ANA, TEAM)
        tokens = MailboxTokens.model_validate({"access_token": "ya29.x", "refresh_token": "1//x"})
        code = await states[0].grant(state, attempt, tokens)
        results = await asyncio.gather(*(s.confirm(ANA, code) for s in states * 2))
        assert [each for each in results if isinstance(each, MailboxTokens)] == [tokens]


async def wait_for_home(bot: Served, *words: str) -> dict[str, Any]:
    """Wait until Ana's Home contains all of these words; return it."""

    def home_body() -> dict[str, Any]:
        view = home(bot.slack.state, ANA)
        return dict(view.body) if view else {}

    await until(lambda: all(word in str(home_body()) for word in words))
    return home_body()


def link_in(view: dict[str, Any]) -> str:
    buttons = [e for b in view["blocks"] for e in b.get("elements", ()) if "url" in e]
    return str(buttons[0]["url"])


async def test_a_mailbox_is_connected_and_disconnected_from_app_home(tmp_path: Path) -> None:
    port, browser = free_port(), Browser()
    with google_at() as google:

        def change(settings: Settings) -> Settings:
            changed = settings_at(google, f"http://127.0.0.1:{port}", settings)
            return with_rules(scopes=("slack", "email"))(changed)

        async with serve(tmp_path, port=port, change=change) as bot:
            people, store = bot.slack.people, Credentials(bot.store.database)
            people.open_home(ANA)
            await wait_for_home(bot, "Gmail is not connected")
            people.click_home(ANA, CONNECT)
            page = await browser.through(link_in(await wait_for_home(bot, "Open the page")))
            await wait_for_home(bot, f"{MAILBOX} waits for the code")
            people.click_home(ANA, CODE, "0000")
            await wait_for_home(bot, "That is not the code. You have 4 more tries.")
            people.click_home(ANA, CODE, page.code)
            await wait_for_home(bot, f"Gmail is connected as {MAILBOX}.")
            assert await store.accounts() == [ANA]
            people.click_home(ANA, DISCONNECT)
            await wait_for_home(
                bot, "is disconnected, and its tokens are deleted.", "Connect Gmail"
            )
            assert await store.accounts() == []
            assert google.accounts.grants[0].revoked
    await browser.aclose()


# ---- `assistant connect google`


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch) -> Iterator[StandIn]:
    """A Google that this process's commands, and those that it starts, take for the real one."""
    configure(f"google: {{client_id: {CLIENT_ID}}}\n")
    monkeypatch.setenv("GOOGLE_CLIENT_SECRET", CLIENT_SECRET)
    with google_at() as google:
        monkeypatch.setenv("GOOGLE_OAUTH_ENDPOINT", f"{google.url}/oauth")
        monkeypatch.setenv("GMAIL_API_ENDPOINT", google.url)
        yield google


def page_of(command: Fork) -> str:
    """The address that the command asks its user to open."""
    patience = Patience()
    while not (found := re.search(r"^http\S+$", command.read_output(), re.MULTILINE)):
        assert command.poll() is None, command.read_output()
        assert not patience.over, command.read_output()
        time.sleep(0.05)
    return found[0]


@pytest.mark.system
def test_operator_connects_a_mailbox_in_a_local_browser(google: StandIn, shell: Shell) -> None:
    with forked_command("connect", "google", "--port", "0", "--json") as command:
        page = page_of(command)
        (back,) = parse_qs(urlsplit(page).query)["redirect_uri"]
        assert back.startswith("http://127.0.0.1:")
        wrong = f"{back}?state=other&code=4/stolen"
        with pytest.raises(HTTPError, match="400"):
            urllib.request.urlopen(wrong, timeout=WAIT_S)
        with urllib.request.urlopen(page, timeout=WAIT_S) as answer:
            assert b"You may close this page" in answer.read()
        assert command.wait() == 0
        output = command.read_output()
    result = json.loads(output[output.index("{") :])
    assert result == {"account": "operator", "address": MAILBOX}
    assert "ya29." not in output
    assert google.accounts.grants[0].refresh_token not in output

    done = shell("connect", "google", "--disconnect")
    assert done.out == f"Disconnected: {MAILBOX}. Google has revoked its tokens.\n"
    assert google.accounts.grants[0].revoked


# ---- credentials of a mailbox


async def connect_with_expired_token(bot: MailBot) -> None:
    await connect(bot)
    tokens = await bot.store.get(ANA)
    assert tokens
    past = datetime.now(UTC) - timedelta(hours=1)
    await bot.store.put(ANA, tokens.model_copy(update={"expires_at": past}))


async def token_of(
    bot: MailBot, user: str, address: str | None = None, settings: Settings | None = None
) -> str:
    """Return a token of the mailbox that this user may open; empty = none."""
    settings = settings or settings_at(bot.google)
    access = await mail_credentials(settings, bot.store, user, address)
    return await access.token() if access else ""


async def test_connected_mailbox_opens_after_its_token_expired(bot: MailBot) -> None:
    await connect_with_expired_token(bot)
    assert bot.google.accounts.whose(await token_of(bot, ANA)) == MAILBOX
    assert await token_of(bot, "U0EVA") == ""
    bot.google.accounts.revoke(MAILBOX)
    with pytest.raises(GoogleRevoked, match="Connect it again"):
        await token_of(bot, ANA)
    with pytest.raises(SetupError, match=r"google\.client_id is not set"):
        await token_of(bot, ANA, settings=settings_at(bot.google, client_id=None))


async def test_fixed_token_is_only_for_the_operator(bot: MailBot) -> None:
    fixed = {"google_access_token": SecretStr("ya29.fix")}
    settings = change_settings(settings_at(bot.google), secrets=fixed)
    assert await token_of(bot, "operator", settings=settings) == "ya29.fix"
    assert await token_of(bot, ANA, "ana@acme.example", settings) == ""


async def test_a_service_account_opens_the_mailbox_of_the_users_own_address(
    bot: MailBot, tmp_path: Path
) -> None:
    settings = settings_at(bot.google, service_account=str(key_file(tmp_path)))
    eva = await token_of(bot, "U0EVA", "eva@acme.example", settings)
    assert bot.google.accounts.whose(eva) == "eva@acme.example"
    assert bot.google.accounts.grants[-1].scope == MODIFY
    assert await token_of(bot, "U0EVA", settings=settings) == ""
    await connect(bot)
    own = await token_of(bot, ANA, "other@acme.example", settings)
    assert bot.google.accounts.whose(own) == MAILBOX, "the connected one goes first"


# ---- secrets in the log


async def test_tokens_are_redacted_from_the_log_once_stored_or_loaded(bot: MailBot) -> None:
    redactor, odd = Redactor(), "a token of no known shape / 77"
    tokens = {"access_token": odd, "refresh_token": "1//refresh", "address": MAILBOX}
    await bot.store.put(ANA, MailboxTokens.model_validate(tokens))
    assert redactor.clean(f"it is {odd}") == "it is [removed]"
    learn(f"filler-{number:04}" for number in range(600))
    assert odd in redactor.clean(odd), "the number of redacted secrets is limited"
    await bot.store.get(ANA)
    assert redactor.clean(odd) == "[removed]"
