"""Facts about users, groups and channels: asked once, believed briefly, unknown when in doubt."""

from __future__ import annotations

from typing import Any

import pytest
from policy_kit import TEAM, asking, channel, user

from bot.slack.people import person_of


@pytest.mark.parametrize(
    ("facts", "kind"),
    [
        ({}, "member"),
        ({"is_restricted": True}, "guest"),
        ({"is_ultra_restricted": True}, "guest"),
        ({"is_stranger": True}, "external"),
        ({"team_id": "T0OTHER"}, "external"),
        ({"team_id": "T0OTHER", "is_restricted": True}, "external"),
        ({"team_id": "T0OTHER", "enterprise_user": {"teams": [TEAM]}}, "member"),
        ({"team_id": "T0OTHER", "enterprise_user": {"teams": ["T0MORE"]}}, "external"),
        ({"is_stranger": True, "enterprise_user": {"teams": [TEAM]}}, "external"),
        ({"is_bot": True}, "bot"),
        ({"is_workflow_bot": True}, "bot"),
        ({"id": "USLACKBOT"}, "bot"),
        ({"deleted": True}, "deleted"),
    ],
)
def test_a_user_is_what_slack_says_of_them(facts: dict[str, Any], kind: str) -> None:
    found = person_of(user("U0ANA")["user"] | facts, TEAM)
    assert found
    assert found.kind == kind


async def test_the_names_that_slack_tells_are_remembered() -> None:
    answers: dict[str, Any] = {"users.info": user("U0ANA"), "conversations.info": channel("C0OWN")}
    async with asking(answers) as at:
        person = await at.people.person("U0ANA", TEAM)
        place = await at.people.channel("C0OWN")
        assert person
        assert place
        assert at.names == {"U0ANA": person.name, "C0OWN": f"#{place.name}"}


@pytest.mark.parametrize(
    "fault",
    [
        {"ok": False, "error": "user_not_found"},
        {"ok": True},
        {"ok": True, "user": "U0ANA", "channel": 1, "users": {}},
        500,
    ],
)
async def test_what_fails_is_unknown_and_asked_anew(
    fault: Any, caplog: pytest.LogCaptureFixture
) -> None:
    methods = ("users.info", "conversations.info", "usergroups.users.list")
    async with asking(dict.fromkeys(methods, fault)) as at:
        assert await at.people.person("U0ANA", TEAM) is None
        assert await at.people.channel("C0OWN") is None
        assert await at.people.group("S0CSM") is None
        said = [r.getMessage() for r in caplog.records if r.name == "bot.slack.people"]
        assert [line.split(":")[0] for line in said] == [
            "could not check the user U0ANA",
            "could not check the channel C0OWN",
            "could not check the group S0CSM",
        ]
        at.slack.answers |= {
            "users.info": user("U0ANA"),
            "conversations.info": channel("C0OWN"),
            "usergroups.users.list": {"ok": True, "users": ["U0ANA"]},
        }
        assert await at.people.person("U0ANA", TEAM)
        assert await at.people.channel("C0OWN")
        assert await at.people.group("S0CSM") == frozenset({"U0ANA"})
