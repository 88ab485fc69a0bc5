"""A schedule that cannot work is refused when it is set, with a sentence that says what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from engine_kit import workspace
from serve_kit import ruled, serving
from standins.slack import LocalSlack
from standins.slack_faults import Fault

from bot.local.offline.model import answer as offline
from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, ListColumn, SlackList, User, UserGroup, Workspace
from bot.schedules.validation import CheckUnavailable, Origin, ScheduleValidator
from config.schedules import Schedule

ANA, LUIS, EVA, GUEST, OLD, APP = "U0ANA", "U0LUIS", "U0EVA", "U0GUEST", "U0OLD", "U0APP"
HR, OLD_CHANNEL, ELSEWHERE = "C0HR", "C0OLD", "C0ELSE"
LIST = "F0BUGS"


def world() -> Workspace:
    """Four support channels with the bot, a private one, one that is archived, one without it."""
    made = workspace(4, 1)
    people = (
        User(GUEST, "gus", "Gus", is_restricted=True),
        User(OLD, "old", "Old", deleted=True),
        User(APP, "app", "App", is_bot=True),
    )
    hidden = Channel(HR, "hr", members=(LUIS, BOT_USER), is_private=True)
    archived = Channel(OLD_CHANNEL, "old-reports", members=(ANA,), is_archived=True)
    other = Channel(ELSEWHERE, "elsewhere", members=(ANA,))
    inside = [replace(c, members=(*c.members, BOT_USER)) for c in made.channels]
    return replace(
        made,
        users=(*made.users, *people),
        channels=(*inside, hidden, archived, other),
        lists=(SlackList(LIST, "Bugs", (ListColumn("C1", "title", "Title"),)),),
        usergroups=(UserGroup("S0LEADS", "leads", (LUIS,)),),
    )


def sweep(**more: Any) -> Schedule:
    given = {"kind": "sweep", "cron": "0 9 * * *", "to": "dm", "owner": ANA}
    channels = () if more.get("kind") == "triage" else ("support-*",)
    return Schedule(**{**given, "channels": channels, **more})


@asynccontextmanager
async def checking(
    tmp_path: Path, space: Workspace | None = None, **policy: Any
) -> AsyncIterator[tuple[LocalSlack, ScheduleValidator]]:
    """The validator of a bot that serves this workspace."""
    slack = LocalSlack(space or world())
    slack.people.leave(BOT_USER, ELSEWHERE)
    rules = ruled(policy=policy)
    async with serving(tmp_path, offline, slack=slack, change=rules) as bot:
        yield slack, bot.bench.schedules.validator


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"channels": ("suport-*",)}, "No channel that <@U0ANA> may read matches 'suport-*'"),
    ({"channels": ("sales",)}, "There is no channel #sales that <@U0ANA> may read"),
    ({"channels": ("hr",)}, "There is no channel #hr that <@U0ANA> may read"),
    ({"to": "#nowhere"}, "I see no channel #nowhere to post to"),
    ({"to": "#old-reports"}, "I see no channel #old-reports to post to, or it is archived."),
    ({"to": OLD_CHANNEL}, "#old-reports is archived: name another channel"),
    ({"to": "#elsewhere"}, "I am not in #elsewhere: invite me there with /invite first"),
    ({"to": "#hr"}, "<@U0ANA> cannot read #hr"),
    ({"tracker": "F0NONE"}, "I cannot read the tracker F0NONE"),
    ({"owner": "U0NOBODY"}, "There is no member U0NOBODY here"),
    ({"owner": OLD}, "Its owner <@U0OLD> is deactivated"),
    ({"owner": GUEST}, "Guests may not own schedules here. Ask an admin"),
    ({"kind": "triage"}, "It reads the mailbox of <@U0ANA>, and none is connected"),
    ({"to": "ana@acme.example"}, "It is sent from the mailbox of <@U0ANA>, and none is"),
]
ORIGINS: tuple[Origin, ...] = ("chat", "config")


async def test_what_cannot_work_is_refused_with_a_sentence_that_helps(tmp_path: Path) -> None:
    async with checking(tmp_path) as (_, validator):
        for more, said in REFUSED:
            for origin in ORIGINS:
                why = await validator.objection(sweep(**more), origin)
                assert why.startswith(said)
                assert why.endswith((".", "?"))


async def test_a_pattern_reads_what_its_owner_may_read_and_names_nothing_else(
    tmp_path: Path,
) -> None:
    made = world()
    secret = Channel("C0SECRET", "support-secret", members=(LUIS, BOT_USER), is_private=True)
    space = replace(made, channels=(*made.channels, secret))
    async with checking(tmp_path, space) as (_, validator):
        reader = validator.reader.fresh()
        for owner, found in ((ANA, 4), (LUIS, 5)):
            channels = await validator.check(sweep(owner=owner), "chat", reader)
            assert len(channels) == found
        await reader.aclose()


async def test_policy_says_who_may_schedule_in_chat_and_the_operator_in_the_settings(
    tmp_path: Path,
) -> None:
    async with checking(tmp_path, schedulers=("S0LEADS", GUEST), admins=(EVA,)) as (_, check):
        why = await check.objection(sweep(owner=ANA), "chat")
        assert why == (
            "<@U0ANA> is not among those who may own schedules here. Ask an admin (<@U0EVA>) to "
            "change that."
        )
        assert await check.objection(sweep(owner=ANA), "config") == ""
        assert await check.objection(sweep(owner=LUIS), "chat") == ""
        guests = sweep(owner=GUEST, channels=("support-1",))
        assert "may own" not in await check.objection(guests, "chat")


@pytest.mark.parametrize("method", ["users.info", "conversations.list", "users.conversations"])
async def test_while_slack_does_not_answer_nothing_is_refused(tmp_path: Path, method: str) -> None:
    async with checking(tmp_path) as (slack, validator):
        slack.faults += [Fault(method, "error:internal_error") for _ in range(50)]
        with pytest.raises(CheckUnavailable, match="try again"):
            await validator.objection(sweep(owner=LUIS, channels=("hr",)), "chat")
