"""Connecting a mailbox as its owner sees it: App Home, from the button to the code, in a bot."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from connect_kit import ANA, MAILBOX, Browser, StandIn, google_at, settings_at
from engine_kit import until
from serve_kit import Served, free_port, ruled, serving
from slack_sdk.models.views import View

from bot.listeners.home import CANCEL, CODE, CONNECT, DISCONNECT, FORGET, LINK, HomeFacts, view
from bot.local.slack.views import home
from bot.mailbox.credentials import Credentials
from bot.mailbox.oauth import MailAccess
from bot.mailbox.sync import MailState
from bot.storage.tables import oauth_states
from config.settings import Settings

ALL = [CONNECT, DISCONNECT, FORGET]
LONG = f"{'a' * 250}@{'b' * 300}.example"


def elements(made: dict[str, Any]) -> list[str]:
    """The action ids of what can be pressed or filled in, by Slack's own models a valid view."""
    parsed = View(**made)
    parsed.validate_json()
    assert parsed.to_dict()["blocks"] == json.loads(json.dumps(made["blocks"]))
    found = [e for b in made["blocks"] for e in (*b.get("elements", ()), b.get("element", {}))]
    return [e["action_id"] for e in found if "action_id" in e]


@pytest.mark.parametrize(
    ("mail", "offered"),
    [
        (None, []),
        (MailAccess("delegated"), []),
        (MailAccess("absent", note="That is over."), [CONNECT]),
        (MailAccess("offered", link="https://bot.example.com/google/connect"), [LINK, CANCEL]),
        (MailAccess("waiting", MAILBOX), [CODE, CANCEL]),
        (MailAccess("connected", LONG), [CONNECT, DISCONNECT]),
        (MailAccess("connected", MAILBOX, corrected=(LONG * 50,) * 500), ALL),
    ],
)
def test_home_offers_what_can_be_done_next_and_nothing_else(
    mail: MailAccess | None, offered: list[str]
) -> None:
    made = view(HomeFacts(mail=mail))
    assert elements(made) == offered
    assert ("Your mail" in str(made)) is (mail is not None)


def test_an_address_that_looks_like_markup_is_text() -> None:
    made = view(HomeFacts(mail=MailAccess("connected", "<!here>_*@x.example")))
    (block,) = [b for b in made["blocks"] if "<!here>" in str(b.get("text"))]
    assert block["text"]["type"] == "plain_text"


def set_up(google: StandIn, url: str | None) -> Any:
    """Settings with Google, where everybody may ask about mail."""

    def change(settings: Settings) -> Settings:
        made = settings_at(google, url)
        serve = settings.serve.model_copy(update={"public_url": url})
        secrets = settings.secrets.model_copy(
            update={"google_client_secret": made.secrets.google_client_secret}
        )
        ends = {
            name: getattr(made.endpoints, name)
            for name in ("google_oauth_endpoint", "gmail_api_endpoint")
        }
        changed = {"google": made.google, "serve": serve, "secrets": secrets}
        changed["endpoints"] = settings.endpoints.model_copy(update=ends)
        return ruled(scopes=("slack", "email"))(settings.model_copy(update=changed))

    return change


async def seen(bot: Served, *words: str) -> dict[str, Any]:
    """Ana's Home, when it says all of this."""

    def shown() -> dict[str, Any]:
        found = home(bot.slack.state, ANA)
        return dict(found.body) if found else {}

    await until(lambda: all(word in str(shown()) for word in words))
    return shown()


def link_in(made: dict[str, Any]) -> str:
    buttons = [e for b in made["blocks"] for e in b.get("elements", ()) if "url" in e]
    return str(buttons[0]["url"])


async def test_a_mailbox_is_connected_and_disconnected_from_app_home(tmp_path: Path) -> None:
    port, browser = free_port(), Browser()
    with google_at() as google:
        change = set_up(google, f"http://127.0.0.1:{port}")
        async with serving(tmp_path, port=port, change=change) as bot:
            people, store = bot.slack.people, Credentials(bot.store.database)
            people.open_home(ANA)
            await seen(bot, "Gmail is not connected")
            people.click_home(ANA, CONNECT)
            page = await browser.through(link_in(await seen(bot, "Open the page")))
            await seen(bot, f"{MAILBOX} waits for the code")
            people.click_home(ANA, CODE, "0000")
            await seen(bot, "That is not the code. You have 4 more tries.")
            people.click_home(ANA, CODE, page.code)
            made = await seen(bot, f"Gmail is connected as {MAILBOX}.")
            elements(made)
            assert await store.accounts("google") == [ANA]
            people.click_home(ANA, DISCONNECT)
            await seen(bot, "is disconnected, and its tokens are deleted.", "Connect Gmail")
            assert await store.accounts("google") == []
            assert google.accounts.grants[0].revoked
    await browser.aclose()


async def test_what_was_set_right_is_shown_to_who_said_so_and_forgotten_at_their_word(
    tmp_path: Path,
) -> None:
    with google_at() as google:
        async with serving(tmp_path, change=set_up(google, "https://bot.example.com")) as bot:
            kept = MailState(bot.store.database).corrections
            await kept.add(ANA, "t1", "Bo <bo@acme.example>", "priority", "high")
            await kept.add(ANA, "t2", "Bo <bo@acme.example>", "priority", "low")
            await kept.add(ANA, "t2", "Bo <bo@acme.example>", "category", "tender")
            await kept.add("U0EVE", "t1", "Kim <kim@x.example>", "asked_of_me", "false")
            bot.slack.people.open_home(ANA)
            made = await seen(bot, "mails from bo@acme.example are not urgent", '"tender"')
            assert "are urgent" not in str(made), "the last word holds"
            assert "kim@x.example" not in str(made)
            assert FORGET in elements(made)
            bot.slack.people.click_home(ANA, FORGET)
            made = await seen(bot, "corrections are deleted")
            assert "bo@acme.example" not in str(made)
            assert await kept.all(ANA) == []
            assert len(await kept.all("U0EVE")) == 1


async def test_who_may_not_ask_about_mail_is_offered_nothing(tmp_path: Path) -> None:
    with google_at() as google:
        change = set_up(google, "https://bot.example.com")

        def without_mail(settings: Settings) -> Settings:
            return ruled(scopes=("slack",))(change(settings))

        async with serving(tmp_path, change=without_mail) as bot:
            bot.slack.people.open_home(ANA)
            made = await seen(bot, "Slack is connected.")
            assert "mail" not in str(made).lower()
            with pytest.raises(KeyError):
                bot.slack.people.click_home(ANA, CONNECT)
            before = home(bot.slack.state, ANA)
            pressed = {"type": "button", "action_id": CONNECT}  # a button that was there earlier
            click = {"type": "block_actions", "user": {"id": ANA}, "actions": [pressed]}
            assert (await bot.bench.intake.answer(click)).status == 200
            await until(lambda: home(bot.slack.state, ANA) is not before)
            assert "mail" not in str(home(bot.slack.state, ANA)).lower()
            assert await bot.store.database.read(sa.select(oauth_states.c.state)) == []


async def test_without_a_public_address_home_says_what_an_administrator_has_to_do(
    tmp_path: Path,
) -> None:
    browser = Browser()
    with google_at() as google:
        async with serving(tmp_path, change=set_up(google, None)) as bot:
            bot.slack.people.open_home(ANA)
            made = await seen(bot, "serve.public_url")
            assert elements(made) == []
            assert (await browser.get(f"{bot.bench.url}/google/connect?state=x")).status == 404
    await browser.aclose()
