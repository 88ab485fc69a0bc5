"""Who may ask what, and where: closest rules, closed when in doubt, read again when changed."""

from __future__ import annotations

import os
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
from policy_kit import TEAM, Clock, channel, policy, scripted_slack, user

from bot.policy import policy as policy_module
from bot.policy.policy import (
    POLL_S,
    AdmissionDecision,
    AdmissionFacts,
    Later,
    NotPermitted,
    Permitted,
    PolicyFault,
    PolicyFile,
    Silent,
    decide,
)
from bot.slack.people import ChannelFacts, People, Person, person_of
from config.settings import load_settings, settings_file
from scopes.slack_items import UserKind

KINDS = ("mention", "dm", "follow_up")
NOW = datetime(2026, 11, 22, 20, 15, tzinfo=UTC)
OWN = ChannelFacts("C0OWN", "csm-spain", shared=False, private=False)
EXT = ChannelFacts("C0EXT", "ext-globex", shared=True, private=False)


def ask(
    text: str = "",
    kind: str = "mention",
    who: UserKind | None = "member",
    facts: ChannelFacts | None = OWN,
    user: str = "U0ANA",
    **more: Any,
) -> AdmissionDecision:
    person = Person(user, who) if who else None
    where = facts.id if facts else "D0ANA" if kind == "dm" else "C0OWN"
    request = AdmissionFacts(user, where, kind, person, facts, **{"now": NOW, **more})
    return decide(policy(text), request, 1.0)


def permitted(text: str = "", **how: Any) -> Permitted:
    decision = ask(text, **how)
    assert isinstance(decision, Permitted)
    return decision


# ---- who, and where


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_may_ask_by_default_within_the_limits_of_the_settings(kind: str) -> None:
    scopes = ("slack", "email", "data", "web", "notes", "files")
    assert ask(kind=kind) == Permitted(scopes, ("fast", "main"), 1.0)


ALL_IN = "  everywhere: {ask: [members, guests, external, U0ANA]}\n  users: {U0ANA: {answer: true}}"
BOTH = "  everywhere: {ask: [guests, external]}"
NAMED = "  everywhere: {ask: [U0ANA]}"
GROUP = "  everywhere: {ask: [S0CSM]}"
IN_GROUP = {"S0CSM": frozenset({"U0ANA"})}
OFF_HERE = "  channels: {'#csm-*': {answer: false}}"
OFF = f"{OFF_HERE}\n  direct: {{answer: false}}\n  admins: [U0BOSS, U0EVA, U0TOM]"
MENTION = "  channels: {C0OWN: {mention_needed: true}}"
SHARED = "  channels: {ext-*: {shared: true}}"
DIRECT: dict[str, Any] = {"kind": "dm", "facts": None}

MAY: list[tuple[str, dict[str, Any]]] = [
    (BOTH, {"who": "guest"}),
    (BOTH, {"who": "external"}),
    *((NAMED, {"who": who}) for who in ("member", "guest", "external")),
    (GROUP, {"groups": IN_GROUP}),
    ("  everywhere: {ask: [S0CSM, members]}", {"groups": {"S0CSM": None}}),
    (OFF_HERE, DIRECT),
    (f"{OFF_HERE}\n  users: {{U0ANA: {{answer: true}}}}", {}),
    (MENTION, {}),
    (SHARED, {"facts": EXT}),
]
SILENCE: list[tuple[str, dict[str, Any]]] = [
    *((ALL_IN, {"who": who, "kind": kind}) for who in ("bot", "deleted") for kind in KINDS),
    (OFF_HERE, {"kind": "follow_up"}),
    (MENTION, {"kind": "follow_up"}),
    # people who talk in a thread without a mention are not told that they may not ask
    ("", {"kind": "follow_up", "who": "guest"}),
    ("", {"kind": "follow_up", "who": "external"}),
    ("", {"kind": "follow_up", "facts": EXT}),
]
REFUSAL: list[tuple[str, dict[str, Any], str]] = [
    ("", {"who": "guest"}, "Guests may not ask me here. Ask an admin to add you"),
    ("", {"who": "external", **DIRECT}, "People of other companies"),
    (BOTH, {}, "not among those"),
    (NAMED, {"user": "U0LUIS"}, "Ask an admin to add you"),
    (GROUP, {"groups": IN_GROUP, "who": "guest"}, "Guests"),
    (GROUP, {"groups": IN_GROUP, "user": "U0LUIS"}, "not among those"),
    ("", {"who": None}, "I could not check it with Slack"),
    ("", {"who": None, "kind": "follow_up"}, "I could not check it with Slack"),
    ("", {"facts": None}, "I could not check it with Slack"),
    (GROUP, {"groups": {"S0CSM": None}}, "I could not check it with Slack"),
    (OFF_HERE, {}, "Send me a direct message"),
    (OFF, {}, "Ask an admin (<@U0BOSS> or <@U0EVA>) where I do"),
    (OFF, DIRECT, "do not answer direct messages"),
    ("  users: {U0ANA: {answer: false}}", {}, "switched off for you"),
    ("", {"facts": EXT}, "This channel is shared with another company"),
    (SHARED, {"facts": EXT, "who": "external"}, "other companies"),
]


@pytest.mark.parametrize(("rules", "how"), MAY)
def test_requester_matched_by_a_rule_is_permitted(rules: str, how: dict[str, Any]) -> None:
    permitted(rules, **how)


@pytest.mark.parametrize(("rules", "how"), SILENCE)
def test_bots_deleted_users_and_ineligible_follow_ups_are_ignored(
    rules: str, how: dict[str, Any]
) -> None:
    assert isinstance(ask(rules, **how), Silent)


@pytest.mark.parametrize(("rules", "how", "reason"), REFUSAL)
def test_refused_requester_gets_the_reason(rules: str, how: dict[str, Any], reason: str) -> None:
    decision = ask(rules, **how)
    assert isinstance(decision, NotPermitted)
    assert reason in decision.reason


def test_the_closest_rule_wins_key_by_key() -> None:
    rules = """
  everywhere: {cost_usd: 0.1, models: [fast], scopes: []}
  direct: {cost_usd: 0.2}
  channels:
    csm-*: {cost_usd: 0.3, scopes: [slack]}
    "*-spain": {cost_usd: 0.4, models: [main]}
    C0BYID: {cost_usd: 0.5}
  users: {U0ANA: {cost_usd: 0.6}}
"""

    by_id = ChannelFacts("C0BYID", "csm-spain", shared=False, private=False)
    other = ChannelFacts("C0OTHER", "general", shared=False, private=False)
    for how, expected in (
        ({"user": "U0LUIS", "facts": other}, Permitted((), ("fast",), 0.1, fixed=True)),
        ({"user": "U0LUIS", **DIRECT}, Permitted((), ("fast",), 0.2, fixed=True)),
        ({"user": "U0LUIS"}, Permitted(("slack",), ("main",), 0.3, fixed=True)),
        ({"user": "U0LUIS", "facts": by_id}, Permitted(("slack",), ("main",), 0.5, fixed=True)),
        ({"facts": by_id}, Permitted(("slack",), ("main",), 0.6, fixed=True)),
    ):
        assert permitted(rules, **how) == expected


def test_every_combination_is_decided_and_unknown_facts_never_permit() -> None:
    flags = (True, False)
    for answer, needed, shared in product(flags, flags, flags):
        rules = (
            f"  everywhere: {{answer: {answer}, mention_needed: {needed}, shared: {shared}}}"
        ).lower()
        parsed = policy(rules)
        for kind, who, facts in product(KINDS, (None, *get_args(UserKind)), (None, OWN, EXT)):
            person = Person("U0ANA", who) if who else None
            asked = AdmissionFacts("U0ANA", "C", kind, person, facts, now=NOW)
            decision = decide(parsed, asked, 1.0)
            place = kind == "dm" or facts is not None
            assert not isinstance(decision, Permitted) or (who == "member" and place and answer)


# ---- budget


def test_request_waits_while_running_ones_reserve_the_daily_budget() -> None:
    rules = "  user_daily_usd: 2.0"
    assert isinstance(ask(rules, user_usd=0.5, user_open_usd=1.5), Later)
    assert permitted(rules, user_usd=0.5, user_open_usd=1.0).cost_usd == 0.5
    assert isinstance(ask(rules, user_usd=2.0, user_open_usd=1.0), NotPermitted)
    permitted("  user_daily_usd: null", user_open_usd=9.0)


def test_request_budget_is_capped_by_the_remaining_daily_budget() -> None:
    assert permitted("  user_daily_usd: 2.0", user_usd=1.75).cost_usd == 0.25
    assert permitted("  daily_usd: 8.0", all_usd=7.5).cost_usd == 0.5
    assert permitted("  everywhere: {cost_usd: 3.0}", user_usd=1.0).cost_usd == 3.0
    none = "  everywhere: {cost_usd: 0.0}\n  user_daily_usd: null\n  daily_usd: null"
    assert permitted(none, user_usd=1e6, all_usd=1e6).cost_usd == 0.0


# ---- the file


FILE = Path("assistant.yaml")


def write(text: str) -> None:
    """Replace the file by a new one, as some editors do."""
    new = FILE.with_suffix(".new")
    new.write_text(text, "utf-8")
    os.utime(new, (1, 1))  # long ago: nobody is writing it any more
    new.replace(FILE)


def fill(text: str) -> None:
    """Write over the same file, as other editors do."""
    FILE.write_text(text, "utf-8")


def open_policy_file() -> tuple[PolicyFile, Clock]:
    clock = Clock()
    return PolicyFile(settings_file(), load_settings().policy, clock=clock), clock


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (lambda: write("policy: {channels: {a: {scopes: [x]}}}"), "a.scopes' names 'x'"),
        (lambda: FILE.unlink(), "cannot be read: no such file"),
    ],
    ids=["invalid", "absent"],
)
async def test_invalid_settings_file_blocks_all_answers_until_it_is_fixed(
    change: Callable[[], None], error: str, caplog: pytest.LogCaptureFixture
) -> None:
    write("policy: {admins: [U0BOSS]}")
    file, clock = open_policy_file()
    assert (await file.read()).admins == ("U0BOSS",)
    change()
    for _ in range(3):
        clock.now += POLL_S
        with pytest.raises(PolicyFault):
            await file.read()
    (logged,) = [r.getMessage() for r in caplog.records if r.levelname == "ERROR"]
    assert error in logged
    write("policy: {admins: [U0EVA]}")
    clock.now += POLL_S
    assert (await file.read()).admins == ("U0EVA",)


async def test_half_written_settings_file_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    closed = "policy: {everywhere: {answer: false}}"
    write(closed)
    file, clock = open_policy_file()
    await file.read()
    monkeypatch.setattr(policy_module, "SETTLED_S", 60.0)
    monkeypatch.setattr("time.sleep", lambda seconds: fill(closed))
    fill("")  # an editor has emptied it, and writes on in a moment
    clock.now += POLL_S
    assert not (await file.read()).everywhere.answer


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({}, "member"),
        ({"is_restricted": True}, "guest"),
        ({"is_ultra_restricted": True}, "guest"),
        ({"is_stranger": True}, "external"),
        ({"team_id": "T0OTHER"}, "external"),
        ({"team_id": "T0OTHER", "enterprise_user": {"teams": [TEAM]}}, "member"),
        ({"is_stranger": True, "enterprise_user": {"teams": [TEAM]}}, "external"),
        ({"is_bot": True}, "bot"),
        ({"is_workflow_bot": True}, "bot"),
        ({"id": "USLACKBOT"}, "bot"),
        ({"deleted": True}, "deleted"),
    ],
)
def test_user_kind_follows_the_slack_profile(facts: dict[str, Any], kind: str) -> None:
    found = person_of(user("U0ANA")["user"] | facts, TEAM)
    assert found
    assert found.kind == kind


async def test_names_read_from_slack_are_remembered() -> None:
    names = dict[str, str]()

    async def remember(id: str, name: str) -> None:
        names[id] = name

    async with scripted_slack(
        {"users.info": user("U0ANA"), "conversations.info": channel("C0OWN")}
    ) as at:
        people = People(at.people.client, remember=remember)
        person, place = await people.person("U0ANA", TEAM), await people.channel("C0OWN")
        await people.aclose()
    assert person
    assert place
    assert names == {"U0ANA": person.name, "C0OWN": f"#{place.name}"}


@pytest.mark.parametrize(
    "fault",
    [
        {"ok": False, "error": "user_not_found"},
        {"ok": True},
        {"ok": True, "user": "U0ANA", "channel": 1, "users": {}},
        500,
    ],
)
async def test_failed_lookups_return_unknown_and_are_retried(fault: Any) -> None:
    methods = ("users.info", "conversations.info", "usergroups.users.list")
    async with scripted_slack(dict.fromkeys(methods, fault)) as at:
        assert await at.people.person("U0ANA", TEAM) is None
        assert await at.people.channel("C0OWN") is None
        assert await at.people.group("S0CSM") is None
        at.slack.answers |= {
            "users.info": user("U0ANA"),
            "conversations.info": channel("C0OWN"),
            "usergroups.users.list": {"ok": True, "users": ["U0ANA"]},
        }
        assert await at.people.person("U0ANA", TEAM)
        assert await at.people.channel("C0OWN")
        assert await at.people.group("S0CSM") == frozenset({"U0ANA"})
