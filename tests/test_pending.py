"""`assistant approvals` lists, denies and revokes pending actions and grants."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta

from bot_kit import Shell, refusal_text

from bot.approvals.store import Actions, CardDecision, CardPlace
from bot.policy.directory import Grants
from bot.runs.store import Store
from bot.storage.encryption import cipher_of
from config.settings import load_settings
from scopes.intent import Intent
from scopes.label import TRUSTED_LABEL
from subagents.gate import Action

NOW = datetime.now(UTC)
TEXT = "Line one \u202e\n<!channel> line two"


def action(id: str) -> Action:
    return Action(
        id=id * 32,
        run="r1",
        context="p1",
        tool="post_message",
        scope="parent",
        args={"channel": "C0GENERAL", "text": TEXT, "thread": ""},
        requester="U0ANA",
        label=TRUSTED_LABEL,
        handles={"C0GENERAL": "#general"},
        intent=Intent(),
        rule="consequence",
        made=NOW,
    )


def fill_store(*work: Callable[[Store], Awaitable[object]]) -> None:
    async def go() -> None:
        settings = load_settings()
        store = await Store.open(settings.data_dir, None, cipher_of(settings))
        await store.start_run("r1", "mention", "What?", "claude", {})
        for each in work:
            await each(store)
        await store.aclose()

    asyncio.run(go())


async def add_actions(store: Store) -> None:
    """Add an action whose card is shown, one that has none yet, and a denied one."""
    actions = Actions(store.database)
    for id in "abc":
        await actions.add(action(id))
    until = NOW + timedelta(minutes=15)
    await actions.ask(
        {"a" * 32: CardPlace(messages=(("C1", "1.2"),)), "c" * 32: CardPlace()}, until
    )
    row = await actions.get("c" * 32)
    assert row
    await actions.decide(row, CardDecision("denied", "U0ANA"))


async def add_grants(store: Store) -> None:
    grants = Grants(store.database)
    await grants.add(["C0A", "C0B"], "C0GENERAL", "U0BOSS", "g1")
    await grants.add(["C0A"], "C0OTHER", "U0BOSS", "h1")
    await grants.revoke("h1", "U0BOSS")


def test_pending_actions_and_grants_are_listed_as_stored(shell: Shell) -> None:
    fill_store(add_actions, add_grants)
    listing = shell("approvals")
    assert listing.code == 0
    assert "Send a message to C0GENERAL (#general)" in listing.out
    assert "Line one \\u202e" in listing.out
    assert "grant g1: C0A, C0B -> C0GENERAL, by U0BOSS" in listing.out
    assert "h1" not in listing.out
    found = shell("approvals", "--json").json
    assert [each["id"][0] + each["state"] for each in found["actions"]] == ["aasked", "bproposed"]
    assert found["actions"][0]["args"]["text"] == TEXT
    assert found["grants"][0]["sources"] == ["C0A", "C0B"]
    every = shell("approvals", "--all", "--json").json
    assert [each["state"] for each in every["actions"]] == ["asked", "proposed", "denied"]
    assert [each["revoked_by"] for each in every["grants"]] == [None, "U0BOSS"]


def test_pending_action_can_be_denied_once(shell: Shell) -> None:
    fill_store(add_actions)
    assert shell("approvals", "deny", "aaa", "--json").json == {"id": "a" * 32, "state": "denied"}
    assert "denied already" in refusal_text(shell("approvals", "deny", "aaa"), "decided")
    assert "no action 'zz'" in refusal_text(shell("approvals", "deny", "zz"), "no_action")
    (other,) = shell("approvals", "--json").json["actions"]
    assert other["id"] == "b" * 32
    log = shell("decisions", "--json").json
    assert [(each["verdict"], each["rule"]) for each in log] == [("denied", "command line")]


def test_a_grant_can_be_revoked(shell: Shell) -> None:
    fill_store(add_grants)
    assert shell("approvals", "revoke", "g").out == "Revoked: g1.\n"
    assert "revoked before" in shell("approvals", "revoke", "g1").out
    assert shell("approvals", "--json").json["grants"] == []
    assert "no grant 'x'" in refusal_text(shell("approvals", "revoke", "x"), "no_grant")
