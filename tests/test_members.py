"""Members of conversations: fetched once, cached for seconds, complete or unknown."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest
from policy_kit import Json, channel, scripted_slack

from scopes import members as module
from scopes.members import MembersOf

ANA, BOT = "U0ANA", "U0BOT"


def inside(*users: str, **more: Any) -> Json:
    return {"ok": True, "members": list(users), **more}


def channels_reply(*channels: str, **more: Any) -> Json:
    return {"ok": True, "channels": [{"id": c, "is_private": False} for c in channels], **more}


def more(cursor: str) -> Json:
    return {"response_metadata": {"next_cursor": cursor}}


async def test_place_reflects_what_slack_reports() -> None:
    two = frozenset({ANA, BOT})
    people = inside(ANA, BOT)
    answers: dict[str, Json | int | str] = {
        "conversations.members": people,
        "conversations.info C1": channel("C1", name="general"),
        "conversations.info C2": channel("C2", name="board", is_private=True, is_archived=True),
        "conversations.info C4": channel("C4", name="soon", is_pending_ext_shared=True),
        "conversations.info C5": channel("C5", name="soon", pending_shared=["T2"]),
        "conversations.info C6": {"ok": True, "channel": {"id": "C6", "name": "unsaid"}},
        "conversations.info G1": channel("G1", name="mpdm-a", is_mpim=True, is_private=True),
    }
    async with scripted_slack(answers) as at:
        found = [await at.members.place(id) for id in "C1 C2 C4 C5 C6 G1".split()]
    assert found == [
        MembersOf("C1", "general", "public", False, False, None),
        MembersOf("C2", "board", "private", False, True, two),
        MembersOf("C4", "soon", "public", True, False, two),
        MembersOf("C5", "soon", "public", True, False, two),
        MembersOf("C6", "unsaid", "private", False, False, two),
        MembersOf("G1", "", "group", False, False, two),
    ]
    assert [p.title for p in found[:2] if p] == ["#general", "#board"]


@pytest.mark.parametrize(
    ("method", "answer"),
    [
        ("conversations.info", 500),
        ("conversations.members", inside()),
        ("conversations.members", {"ok": True, "members": [ANA, None]}),
        ("conversations.members", inside(ANA, **more("same"))),
    ],
)
async def test_failed_membership_check_is_unknown_logged_once_and_not_cached(
    method: str, answer: Json | int | str, caplog: pytest.LogCaptureFixture
) -> None:
    good: dict[str, Json | int | str] = {
        "conversations.info": channel("C1", is_private=True),
        "conversations.members": inside(ANA),
    }
    caplog.set_level(logging.WARNING, module.__name__)
    async with scripted_slack({**good, method: answer}) as at:
        both = await asyncio.gather(at.members.place("C1"), at.members.place("C1"))
        assert set(both) == {None}
        (message,) = [record.getMessage() for record in caplog.records]
        assert message.startswith("could not check the conversation C1: ")
        at.slack.answers = good
        assert await at.members.place("C1")


async def test_failed_refresh_discards_the_cached_membership() -> None:
    good: dict[str, Json | int | str] = {"users.conversations": channels_reply("C1")}
    async with scripted_slack(dict(good)) as at:
        assert await at.members.of_user(ANA) == frozenset({"C1"})
        at.slack.answers["users.conversations"] = 500
        assert await at.members.of_user(ANA) == frozenset({"C1"})
        assert await at.members.of_user(ANA, fresh=True) is None
        assert await at.members.of_user(ANA) is None


class Pages(dict[str, Any]):
    """Answers that return their pages one after the other."""

    def get(self, key: str, default: Any = None) -> Any:
        return self["pages"].pop(0) if key == "users.conversations" else default


async def test_membership_list_is_read_completely_or_not_at_all() -> None:
    """A list of members that ends early would let somebody read what is not for them."""
    answers = Pages()
    async with scripted_slack(answers) as at:
        for second, found in (
            (channels_reply("C2"), frozenset({"C1", "C2"})),
            ({"ok": True}, None),
            ({"ok": False, "error": "ratelimited"}, None),
            (500, None),
            (channels_reply("C2", **more("next")), None),
        ):
            answers["pages"] = [channels_reply("C1", **more("next")), second]
            assert await at.members.of_user(ANA, fresh=True) == found
        assert at.slack.sent_arguments("users.conversations")[1]["cursor"] == "next"
        assert at.slack.sent_arguments("users.conversations")[0]["types"] == module.ALL_KINDS


async def test_fresh_check_ignores_the_cached_membership() -> None:
    answers: dict[str, Json | int | str] = {
        "users.conversations": channels_reply("C2"),
        "conversations.info C2": channel("C2", name="board", is_private=True),
    }
    async with scripted_slack(answers) as at:
        assert await at.members.reads(ANA, "C2", full=True)
        at.slack.answers["users.conversations"] = channels_reply()
        assert await at.members.reads(ANA, "C2", full=True), "it is cached for some seconds"
        assert not await at.members.reads(ANA, "C2", full=True, fresh=True)
