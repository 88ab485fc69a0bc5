"""A schedule that cannot work is refused when it is set, with a sentence that says what to do."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from engine_kit import MUX, workspace
from pg_kit import with_store
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault

from bot.local.slack.state import BOT_USER
from bot.local.workspace import Channel, ListColumn, SlackList, User, UserGroup, Workspace
from bot.mailbox.accounts import Credentials, Mailboxes
from bot.policy.directory import SlackDirectory
from bot.policy.policy import PolicyFile
from bot.runs.store import Store
from bot.schedules.validation import CheckUnavailable, Origin, ScheduleValidator
from bot.slack.people import People
from config.schedules import Schedule
from config.settings import load_settings
from scopes.members import Members
from scopes.slack_client import connect, open_session
from scopes.slack_reader import SlackReader

TEAM = "T0ACME"
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


@dataclass
class Desk:
    slack: LocalSlack
    validator: ScheduleValidator
    store: Store

    async def why(self, origin: Origin = "chat", **more: Any) -> str:
        return await self.validator.objection(sweep(**more), origin)


def sweep(**more: Any) -> Schedule:
    given = {"kind": "sweep", "cron": "0 9 * * *", "to": "dm", "owner": ANA}
    channels = () if more.get("kind") == "triage" else ("support-*",)
    return Schedule(**{**given, "channels": channels, **more})


@asynccontextmanager
async def desk(
    tmp_path: Path, space: Workspace | None = None, **policy: Any
) -> AsyncIterator[Desk]:
    settings = load_settings(env={})
    limits = settings.slack.model_copy(update={"retry_attempts": 0, "timeout_s": 5})
    rules = settings.policy.model_copy(update=policy)
    with_store(tmp_path / "data")
    slack, store = LocalSlack(space or world()), await Store.open(tmp_path / "data")
    slack.people.leave(BOT_USER, ELSEWHERE)
    with MUX.serving(slack.app) as url:
        async with open_session(limits) as session:
            client = connect(session, BOT_TOKEN, url + API_PATH, limits)
            people, members = People(client), Members(client)

            async def granted(destination: str) -> frozenset[str]:
                return frozenset()

            directory = SlackDirectory(members, people, granted, BOT_USER, TEAM)
            mail = Mailboxes(settings, Credentials(store.database), people.address)
            reader = SlackReader(client, timedelta(days=30))
            made = ScheduleValidator(reader, directory, PolicyFile(None, rules), mail)
            yield Desk(slack, made, store)
            await members.aclose()
            await store.aclose()


@pytest.mark.parametrize(
    ("more", "said"),
    [
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
    ],
)
async def test_what_cannot_work_is_refused_with_a_sentence_that_helps(
    tmp_path: Path, more: dict[str, Any], said: str
) -> None:
    async with desk(tmp_path) as d:
        for origin in ("chat", "config"):
            why = await d.why(origin, **more)
            assert why.startswith(said)
            assert why.endswith((".", "?"))


async def test_a_pattern_reads_what_its_owner_may_read_and_names_nothing_else(
    tmp_path: Path,
) -> None:
    made = world()
    secret = Channel("C0SECRET", "support-secret", members=(LUIS, BOT_USER), is_private=True)
    async with desk(tmp_path, replace(made, channels=(*made.channels, secret))) as d:
        reader = d.validator.reader.fresh()
        for owner, found in ((ANA, 4), (LUIS, 5)):
            channels = await d.validator.check(sweep(owner=owner), "chat", reader)
            assert len(channels) == found
        await reader.aclose()


async def test_policy_says_who_may_schedule_in_chat_and_the_operator_in_the_settings(
    tmp_path: Path,
) -> None:
    async with desk(tmp_path, schedulers=("S0LEADS", GUEST), admins=(EVA,)) as d:
        why = await d.why(owner=ANA)
        assert why == (
            "<@U0ANA> is not among those who may own schedules here. Ask an admin (<@U0EVA>) to "
            "change that."
        )
        assert await d.why("config", owner=ANA) == ""
        assert await d.why(owner=LUIS) == ""
        assert "may own" not in await d.why(owner=GUEST, channels=("support-1",))


@pytest.mark.parametrize("method", ["users.info", "conversations.list", "users.conversations"])
async def test_while_slack_does_not_answer_nothing_is_refused(tmp_path: Path, method: str) -> None:
    async with desk(tmp_path) as d:
        d.slack.faults += [Fault(method, "error:internal_error") for _ in range(50)]
        with pytest.raises(CheckUnavailable, match="try again"):
            await d.why(owner=LUIS, channels=("hr",))
