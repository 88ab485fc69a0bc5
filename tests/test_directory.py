"""Who may read a source, and who may not see a text, by what Slack says; in doubt, nobody."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest
from policy_kit import TEAM, Clock, Json, SaidSlack, channel, scripted_slack, user

from bot.errors import StoreError
from bot.policy.directory import CHECKED_S, SlackDirectory
from config.words import phrase
from scopes.label import INTERNET, WORKSPACE, Label
from subagents.directory import Obstacle

ARCHIVED, COMPANIES, GUESTS, STRANGERS, UNCHECKED = (
    phrase(f"why.{why}") for why in ("archived", "companies", "guests", "strangers", "unchecked")
)

BOT, ANA, LUIS, EVA, GUEST, EXTERNAL, CI, OLD = (
    "UBOT", "UANA", "ULUIS", "UEVA", "UGUEST", "UEXT", "UCI", "UOLD",
)  # fmt: skip
PERSONS: dict[str, Json] = {
    ANA: {},
    LUIS: {},
    EVA: {},
    GUEST: {"is_restricted": True},
    EXTERNAL: {"team_id": "TOTHER"},
    CI: {"is_bot": True},
    OLD: {"deleted": True},
    BOT: {"is_bot": True},
}
Fact = tuple[str, str, bool]
NOT_THERE: Json = {"ok": False, "error": "channel_not_found"}


@dataclass
class World:
    """A workspace as conversations and their members."""

    slack: SaidSlack
    directory: SlackDirectory
    clock: Clock
    granted: dict[str, frozenset[str]] = field(default_factory=dict)
    inside: dict[str, tuple[str, ...]] = field(default_factory=dict)
    refuse: bool = False
    """The store cannot be read."""

    def put(self, id: str, *members: str, **facts: Any) -> None:
        """A private channel with these members and the bot; `is_private=False` for a public one."""
        answers, many = self.slack.answers, (*members, BOT)
        info = {"name": id.lower(), "is_private": True, **facts}
        answers[f"conversations.info {id}"] = channel(id, **info)
        answers[f"conversations.members {id}"] = {"ok": True, "members": list(many)}
        self.inside[id] = many
        for who in PERSONS:
            listed = [{"id": c} for c, people in self.inside.items() if who in people]
            answers[f"users.conversations {who}"] = {"ok": True, "channels": listed}

    async def may(self, who: str | None, *things: str) -> list[str]:
        return [t for t in things if await self.directory.may_read(who, t)]

    async def list_obstacles(
        self, destination: str, *sources: str, readers: Any = None
    ) -> list[Obstacle]:
        """What keeps a text for `readers`, made from these sources, out of the destination."""
        label = Label(True, frozenset({ANA}) if readers is None else readers, frozenset(sources))
        return list(await self.directory.obstacles(label, destination))

    async def facts(self, destination: str, *sources: str, readers: Any = None) -> list[Fact]:
        """The name, the reason and `grantable` of each obstacle."""
        found = await self.list_obstacles(destination, *sources, readers=readers)
        return [(o.name, o.why, o.grantable) for o in found]


@asynccontextmanager
async def world() -> AsyncIterator[World]:
    everyone = {id: user(id, **facts) for id, facts in PERSONS.items()}
    answers: dict[str, Json | int | str] = {
        **{f"users.info {id}": each for id, each in everyone.items()},
        "users.info": {"ok": False, "error": "user_not_found"},
        "users.list": {"ok": True, "members": [each["user"] for each in everyone.values()]},
        **dict.fromkeys(("conversations.info", "conversations.members"), NOT_THERE),
    }
    async with scripted_slack(answers) as there:
        workspace: World

        async def granted_sources(destination: str) -> frozenset[str]:
            if workspace.refuse:
                raise StoreError("here", "is locked", "Wait.")
            return workspace.granted.get(destination, frozenset())

        directory = SlackDirectory(
            there.members, there.people, granted_sources, BOT, TEAM, there.clock
        )
        workspace = World(there.slack, directory, there.clock)
        workspace.put("CGEN", ANA, LUIS, is_private=False)
        workspace.put("CBOARD", ANA, LUIS)
        workspace.put("CTEAM", ANA, LUIS, EVA)
        workspace.put("CMIXED", ANA, GUEST)
        workspace.put("CEXT", ANA, EXTERNAL, is_private=False, is_ext_shared=True)
        workspace.put("CPAST", ANA, OLD)
        workspace.put("DANA", ANA, is_im=True, user=ANA)
        workspace.put("DGUEST", GUEST, is_im=True, user=GUEST)
        yield workspace


@pytest.fixture
async def at() -> AsyncIterator[World]:
    async with world() as workspace:
        yield workspace


def not_all(source: str, place: str) -> Fact:
    return (source, f"not everyone in {place} is a member", True)


ALL = (
    *("CGEN", "CBOARD", "CTEAM", "CMIXED", "CEXT", "CPAST", "DANA"),
    *("CNONE", "F1", "q1", "", "UANA"),
)


@pytest.mark.parametrize(
    ("who", "readable"),
    [
        (None, ALL),
        (ANA, (*ALL[:7], "F1")),
        (EVA, ("CGEN", "CTEAM", "CEXT", "F1")),
        (GUEST, ("CMIXED",)),
        (EXTERNAL, ("CEXT",)),
        (CI, ()),
        (OLD, ()),
        ("UNOBODY", ()),
        ("", ()),
    ],
)
async def test_people_may_read_only_sources_they_could_open_in_slack(
    at: World, who: str | None, readable: tuple[str, ...]
) -> None:
    assert await at.may(who, *ALL) == list(readable)
    of_messages = [f"{id}/1740000000.000100" for id in readable if id.startswith(("C", "D"))]
    assert await at.may(who, *(f"{id}/1740000000.000100" for id in ALL[:8])) == of_messages[:8]


@pytest.mark.parametrize("method", ["users.info", "users.conversations", "conversations.info"])
@pytest.mark.parametrize("answer", [500, "no json", {"ok": True}, {"ok": False, "error": "fatal"}])
async def test_reading_is_denied_if_slack_cannot_confirm_access(
    at: World, method: str, answer: Any
) -> None:
    """ANA is in the channels that she asks for, EVA reads them because they are public."""
    who, things = (EVA, "CGEN CEXT") if method == "conversations.info" else (ANA, "CBOARD CTEAM")
    for key in list(at.slack.answers):
        if key.startswith(method):
            at.slack.answers[key] = answer
    assert await at.may(who, *things.split()) == []


async def test_all_readers_of_a_destination_must_be_members_of_each_source(at: World) -> None:
    assert await at.list_obstacles("CBOARD", "CTEAM", "CGEN") == []
    assert await at.list_obstacles("CTEAM", "CGEN") == []
    outside = not_all("#cboard", "#cteam")
    assert await at.facts("CTEAM", "CBOARD/1740000000.000100", "CTEAM") == [outside]
    assert await at.facts("CGEN", "CBOARD", "CTEAM") == [
        not_all("#cboard", "#cgen"),
        not_all("#cteam", "#cgen"),
    ]
    at.put("CTEAM", ANA, LUIS, CI)  # another app's bot reads it, too
    assert await at.facts("CTEAM", "CBOARD") == [outside]


async def test_folder_has_the_readers_named_in_the_settings(at: World) -> None:
    at.directory.things = {"files:book": frozenset({ANA, LUIS}), "files:all": WORKSPACE}
    assert await at.list_obstacles("files:book", "CBOARD", "files:book") == []
    assert await at.facts("files:all", "CBOARD") == [not_all("#cboard", "all")]
    (found,) = await at.list_obstacles("files:book", "notes:own", readers={ANA})
    assert (found.source, found.why) == ("notes:own", "not everyone in book may read it")
    assert await at.list_obstacles("files:gone", "CBOARD")


async def test_grants_do_not_apply_to_destinations_with_guests_or_other_companies(
    at: World,
) -> None:
    at.put("CPAIR", ANA, GUEST)
    at.put("CODD", ANA, "UNOBODY")
    at.put("CSHARED", ANA, is_ext_shared=True)
    at.put("COUT", ANA, EXTERNAL)
    companies = dict.fromkeys(("CSHARED", "CEXT", "COUT"), COMPANIES)
    for destination, why in {"CPAIR": GUESTS, "CODD": STRANGERS, **companies}.items():
        at.granted = {destination: frozenset({"CMIXED", "CBOARD"})}
        for source in ("CBOARD", "CMIXED"):
            found = await at.facts(destination, source)
            assert found == [(f"#{destination.lower()}", why, False)]
    assert await at.facts("CPAIR", "CTEAM") == [
        ("#cteam", "not everyone in #cpair is a member", False),
        ("#cpair", GUESTS, False),
    ]


async def test_sources_for_full_members_are_kept_from_guests_and_other_companies(at: World) -> None:
    at.put("CPAIR", ANA, GUEST)
    at.put("CSHARED", ANA, is_ext_shared=True)
    at.directory.things = {"data:shop": WORKSPACE, "mcp:clock": INTERNET}
    for source in ("data:shop", "notes:team"):
        for destination, why in (("CPAIR", GUESTS), ("CEXT", COMPANIES), ("CSHARED", COMPANIES)):
            found = await at.facts(destination, source, "CGEN", readers=WORKSPACE)
            assert found == [(f"#{destination.lower()}", why, False)]
        for destination in ("CTEAM", "CGEN", "notes:team", LUIS):
            assert await at.list_obstacles(destination, source, readers=WORKSPACE) == []
        for who, why in ((EXTERNAL, COMPANIES), (GUEST, GUESTS), ("DGUEST", GUESTS)):
            (of_one,) = await at.facts(who, source, readers=WORKSPACE)
            assert of_one[1:] == (why, False)
    for source in ("mcp:clock", "CGEN", "web:a.example"):
        assert await at.list_obstacles("CSHARED", source, readers=WORKSPACE) == []
    at.put("CGEN", ANA, GUEST, is_private=False)
    found = await at.facts("CGEN", "data:shop", readers=WORKSPACE)
    assert found == [("#cgen", GUESTS, False)]
    at.slack.answers["conversations.members CGEN"] = 500
    found = await at.facts("CGEN", "data:shop", readers=WORKSPACE)
    assert found == [("#cgen", UNCHECKED, False)]


async def test_grant_allows_its_sources_in_its_destination(at: World) -> None:
    at.granted = {"CTEAM": frozenset({"CBOARD", "mail/1"})}
    assert await at.list_obstacles("CTEAM", "CBOARD", "mail/1") == []
    assert (await at.facts("CTEAM", "CBOARD", "CMIXED"))[0][0] == "#cmixed"
    assert await at.list_obstacles("CGEN", "CBOARD")
    at.granted = {"CGEN": frozenset({"CBOARD"})}
    assert await at.list_obstacles("CGEN", "CBOARD") == []
    at.put("CGEN", ANA, GUEST, is_private=False)  # one of its guests would read it
    assert await at.facts("CGEN", "CBOARD") == [("#cgen", GUESTS, False)]
    at.slack.answers["conversations.members CGEN"] = 500
    assert await at.facts("CGEN", "CBOARD") == [("#cgen", UNCHECKED, False)]


async def test_a_broken_store_grants_nothing(at: World, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.ERROR)
    at.granted, at.refuse = {"CTEAM": frozenset({"CBOARD"})}, True
    assert await at.list_obstacles("CTEAM", "CBOARD")
    assert len(caplog.records) == 1


async def test_memberships_are_read_again_before_each_write(at: World) -> None:
    assert await at.list_obstacles("CBOARD", "CTEAM") == []
    at.put("CBOARD", ANA, LUIS, OLD)
    assert await at.list_obstacles("CBOARD", "CTEAM")
    at.put("CBOARD", ANA)
    assert await at.list_obstacles("CBOARD", "CTEAM") == []
    at.put("CTEAM", LUIS)
    assert await at.list_obstacles("CBOARD", "CTEAM")
    at.put("CTEAM", LUIS, is_private=False)  # it is public now: all may read it
    assert await at.list_obstacles("CBOARD", "CTEAM") == []


async def test_unknown_archived_and_invalid_destinations_are_blocked(at: World) -> None:
    at.granted = {"CNONE": frozenset({"CBOARD"}), "CSHUT": frozenset({"CBOARD"})}
    assert await at.facts("CNONE", "CBOARD") == [("CNONE", UNCHECKED, False)]
    at.put("CSHUT", ANA, LUIS, is_archived=True)
    assert await at.facts("CSHUT", "CBOARD") == [("#cshut", ARCHIVED, False)]
    for odd in ("", "X1", "C1/2", "#general"):
        assert await at.facts(odd, "CBOARD") == [(odd, UNCHECKED, False)]


@pytest.mark.parametrize("method", ["conversations.info", "conversations.members"])
@pytest.mark.parametrize("id", ["CBOARD", "CTEAM"])
@pytest.mark.parametrize("answer", [500, {"ok": True}, {"ok": True, "members": []}])
async def test_unknown_membership_of_source_or_destination_blocks_the_text(
    at: World, method: str, id: str, answer: Any
) -> None:
    at.slack.answers[f"{method} {id}"] = answer
    at.granted = {"CBOARD": frozenset()}
    (found,) = await at.facts("CBOARD", "CTEAM")
    assert found[1:] == (UNCHECKED, False)


async def test_sources_outside_slack_are_checked_against_the_readers_of_the_text(at: World) -> None:
    assert await at.list_obstacles("DANA", "mail/1") == []
    assert await at.list_obstacles("CBOARD", "mail/1", readers=frozenset({ANA, LUIS, EVA})) == []
    assert await at.facts("CBOARD", "mail/1") == [
        ("mail/1", "not everyone in #cboard may read it", True)
    ]
    assert await at.facts("CBOARD") == [
        ("its sources", "not everyone in #cboard may read it", False)
    ]
    assert await at.list_obstacles("CGEN", "mail/1", readers=frozenset({ANA, LUIS}))


async def test_mail_reaches_only_the_owner_of_its_mailbox_even_with_a_grant(at: World) -> None:
    two = ("mail:18c1", "mail:18c2")
    assert await at.list_obstacles("DANA", *two) == await at.list_obstacles(ANA, *two) == []
    at.granted = {"CBOARD": frozenset(two)}
    assert await at.facts("CBOARD", *two) == [
        ("your mailbox", "not everyone in #cboard may read it", False)
    ]
    assert await at.facts(LUIS, *two) == [
        ("your mailbox", "not everyone in a direct message may read it", False)
    ]
    assert await at.may(ANA, "mail:18c1") == []
    assert [o.name for o in await at.list_obstacles("CBOARD", "notes:UANA")] == ["your notes"]


OWN = ("notes:UANA", "notes:own", "user:UANA", "mail:18c1", "files:run", "DANA")
"""Sources of one person; the second and the fifth do not name whose they are."""


@pytest.mark.parametrize("source", OWN)
async def test_personal_sources_cannot_be_granted(at: World, source: str) -> None:
    for destination in ("CBOARD", "CGEN"):
        at.granted = {destination: frozenset({source, "mail:", "notes:own"})}
        found = await at.list_obstacles(destination, source)
        assert [(o.source.partition(":")[0], o.grantable) for o in found] == [
            (source.partition(":")[0], False)
        ]
    assert await at.list_obstacles(ANA, source) == []


async def test_only_blocking_sources_are_named_as_obstacles(at: World) -> None:
    """A web page, the request's own folder and what all members may open block nothing."""
    at.directory.things = {
        "data:hr": frozenset({ANA}),
        "data:crm": frozenset({ANA, LUIS}),
        "data:shop": WORKSPACE,
    }
    read = ("web:a.example", "files:run", "data:shop", "notes:team", "list:F1", "CGEN")
    found = await at.facts("CBOARD", "data:hr", "data:crm", *read)
    assert found == [("data:hr", "not everyone in #cboard may read it", True)]
    assert await at.facts("CGEN", "data:hr", "data:crm", *read) == [
        ("data:crm", "not everyone in #cgen may read it", True),
        ("data:hr", "not everyone in #cgen may read it", True),
    ]
    assert await at.facts("CTEAM", "CBOARD", "mail:1", *read) == [
        not_all("#cboard", "#cteam"),
        ("your mailbox", "not everyone in #cteam may read it", False),
    ]


@pytest.mark.parametrize("source", ["web:a.example", "files:run", "data:gone", "notes:team"])
async def test_restricted_label_blocks_others_even_if_no_source_explains_it(
    at: World, source: str
) -> None:
    """A label of an earlier version may be for one person without saying why."""
    assert await at.list_obstacles("CGEN", source)
    assert await at.list_obstacles("CBOARD", source)
    assert await at.list_obstacles(ANA, source) == []


async def test_member_turned_guest_is_recognised_within_seconds(at: World) -> None:
    at.put("CTWO", ANA, LUIS)
    assert await at.list_obstacles("CTWO", "CBOARD") == []
    at.slack.answers[f"users.info {LUIS}"] = user(LUIS, is_restricted=True)
    at.clock.now += CHECKED_S
    assert [o.why for o in await at.list_obstacles("CTWO", "CBOARD")] == [GUESTS]
