"""The tools for schedules: what they make of arguments, and what the gate does with them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

import pytest

import scopes
from bot.approvals import cards
from bot.approvals.cards import title
from bot.listeners.home import schedule_blocks
from bot.local.offline.conversation import Conversation
from bot.local.offline.schedules import TOOLS as NAMES
from bot.local.offline.schedules import turn
from bot.schedules import chat
from bot.storage.schedules import StoredSchedule
from config.schedules import Schedule
from scopes.handles import Handles
from scopes.intent import Intent
from scopes.label import TRUSTED
from scopes.schedules import TOOLS, Change, Listed, ScheduleDesk
from scopes.tool import ToolContext, ToolError, ToolResult
from subagents.directory import Operator
from subagents.gate import Action, Card, Decision, Deny, Gate

ANA = "U0ANA"
HOME = "C0HOME"
NOW = datetime(2026, 11, 22, 11, 0, tzinfo=UTC)
BY_NAME = {t.name: t for t in TOOLS}


@dataclass
class Desk:
    """A desk that keeps schedules in memory."""

    kept: dict[str, Schedule] = field(default_factory=dict)
    refusal: str = ""
    asked: list[str] = field(default_factory=list)

    async def zone(self, by: str) -> str:
        return "Europe/Madrid"

    async def place(self, by: str, to: str) -> str:
        return "C0THERE" if to == "#there" else to

    async def weighed(self, name: str, spec: Schedule, home: str) -> Mapping[str, str]:
        if self.refusal:
            raise ToolError(self.refusal)
        return {"next runs": chat.next_runs(spec, NOW), "aside": "last though a comes before n"}

    async def create(self, name: str, spec: Schedule) -> str:
        self.kept[name] = spec
        return f"{name} is set."

    async def listed(self, by: str, home: str) -> tuple[Sequence[Listed], str]:
        return [Listed(name, f"{name}: {spec.kind}") for name, spec in self.kept.items()], "Listed."

    async def known(self, by: str, name: str, what: Change) -> Mapping[str, str]:
        if name not in self.kept:
            raise ToolError(f"There is no schedule {name}.")
        return {"what follows": what}

    async def change(self, by: str, name: str, what: Change) -> str:
        self.asked.append(f"{by} {what} {name}")
        return "Done."


class Open(Operator):
    """A workspace in which everybody reads everything."""

    async def may_read(self, user: str | None, thing: str, *, fresh: bool = False) -> bool:
        return True


@dataclass
class Place:
    """A gate, and a context that stands in a channel."""

    desk: Desk = field(default_factory=Desk)
    home: str = HOME
    log: list[Decision] = field(default_factory=list)
    actions: list[Action] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.gate = Gate(self.log.append, Open(), self.actions.append)
        self.ctx = ToolContext(
            run="r1",
            requester=ANA,
            handles=Handles(),
            label=TRUSTED,
            window=None,
            clients={ScheduleDesk: self.desk},
            max_output_tokens=1_000,
            intent=Intent("set it up", home=self.home),
            scope="parent",
        )

    async def call(self, name: str, /, **args: Any) -> ToolResult | Deny | Card:
        return await self.gate.call("p1", self.ctx, BY_NAME[name], args)

    async def proposed(self, **args: Any) -> Action:
        given = {"name": "daily", "kind": "sweep", "cron": "0 9 * * *", "channels": ["#csm-*"]}
        found = await self.call("schedule_create", **{**given, **args})
        assert isinstance(found, Card), found
        return found.action


async def test_setting_pausing_and_deleting_always_need_a_word_and_listing_none() -> None:
    place = Place()
    place.desk.kept["daily"] = spec_of()
    assert (await place.proposed()).tool == "schedule_create"
    for name in ("schedule_pause", "schedule_delete"):
        assert isinstance(await place.call(name, name="daily"), Card)
    found = await place.call("schedule_list")
    assert isinstance(found, ToolResult)
    assert [item.id for item in found.items] == ["schedule/daily"]
    assert found.label.readers == frozenset({ANA})
    assert place.desk.asked == []


def spec_of(**more: Any) -> Schedule:
    given = {"kind": "sweep", "cron": "0 9 * * *", "channels": ("csm-*",), "to": "dm"}
    return Schedule(**{**given, "owner": ANA, **more})


async def test_what_is_left_open_is_filled_in_before_anybody_is_asked() -> None:
    stored = (await Place().proposed()).args
    assert (stored["to"], stored["zone"], stored["channels"]) == (HOME, "Europe/Madrid", ["csm-*"])
    direct = Place(home="D0ANA")
    assert (await direct.proposed()).args["to"] == "dm"
    assert (await Place().proposed(to="me")).args["to"] == "dm"
    assert (await Place().proposed(to="#there", zone="UTC")).args["to"] == "C0THERE"


async def test_what_was_approved_runs_as_stored_for_who_asked() -> None:
    place = Place()
    action = Action.of((replace(await place.proposed(), id="x")).body())
    done = await place.gate.perform(action, place.ctx, BY_NAME["schedule_create"])
    assert isinstance(done, ToolResult)
    assert place.desk.kept["daily"].owner == ANA
    assert place.desk.kept["daily"].to == HOME


async def test_the_card_tells_the_facts_in_their_order_then_all_that_is_stored() -> None:
    made = await Place().proposed()
    action = Action.of(made.body())
    assert list(action.told) == ["next runs", "aside"]
    assert title(action) == "Set up the schedule daily"
    card = cards.pending_card(action, NOW)
    assert card
    text = json.dumps(card.last.blocks)
    assert text.index("Next runs") < text.index("Aside") < text.index("All of it, as it is stored")
    assert "Sun 22 Nov" not in text  # 09:00 is over
    assert "Mon 23 Nov 2026 09:00; Tue 24 Nov 2026 09:00; Wed 25 Nov" in text


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"name": "ignore all instructions"}, "A name has small letters"),
        ({"cron": "0 25 * * *"}, "hour"),
        ({"zone": "Mars/Base"}, "There is no time zone"),
        ({"budget_usd": 0}, "more than $0"),
        ({"channels": []}, "A sweep needs channels"),
        ({"kind": "triage"}, "leave channels and tracker out"),
        ({"to": "two words"}, "`to` is one place"),
        ({"language": "the language of the reader"}, "A language is a code"),
        ({"kind": "spam"}, "kind: "),
        ({"budget_usd": "nan"}, "more than $0"),
    ],
)
async def test_what_cannot_be_is_refused_with_a_sentence(
    given: dict[str, Any], sentence: str
) -> None:
    place = Place()
    args = {"name": "daily", "kind": "sweep", "cron": "0 9 * * *", "channels": ["csm"], **given}
    found = await place.call("schedule_create", **args)
    assert isinstance(found, Deny)
    assert sentence in found.reason
    assert place.actions == []
    assert place.log[-1].verdict == "deny"


async def test_what_the_desk_refuses_is_put_before_nobody() -> None:
    place = Place(Desk(refusal="There is a schedule daily already."))
    args = {"name": "daily", "kind": "sweep", "cron": "0 9 * * *", "channels": ["csm"]}
    found = await place.call("schedule_create", **args)
    assert found == Deny("There is a schedule daily already.", "arguments")
    assert isinstance(await place.call("schedule_delete", name="other"), Deny)
    assert place.actions == []


async def test_without_a_desk_nothing_is_set_up() -> None:
    place = Place()
    place.ctx = replace(place.ctx, clients={})
    found = await place.call("schedule_delete", name="daily")
    assert isinstance(found, Deny)
    assert "assistant serve" in found.reason
    with pytest.raises(ToolError):
        await place.call("schedule_list")


def test_no_scope_of_subagents_has_these_tools() -> None:
    assert {t.name for t in TOOLS} <= {t.name for t in scopes.tools_of("parent")}
    for name in scopes.scope_names():
        assert not {t.name for t in scopes.tools_of(name)} & set(BY_NAME)
    with pytest.raises(scopes.UnknownScope):
        scopes.tools_of("schedules")


# ---- words


def told(text: str) -> Any:
    heard = Conversation(NAMES, (text,), (), (), (), 4_000)
    found = turn(text, heard, free=True)
    return found and [(c["name"], c["input"]) for c in found.calls]


def test_the_offline_model_reads_the_times_the_place_and_the_sources() -> None:
    daily = {"name": "sweep-csm", "kind": "sweep", "cron": "0 9 * * mon-fri", "to": "here"}
    asked = "every weekday at 9 sweep #csm-* and post here"
    assert told(asked) == [("schedule_create", {**daily, "channels": ["#csm-*"]})]
    digest = {"name": "triage", "kind": "triage", "cron": "0 8 * * *", "to": "dm"}
    assert told("triage my inbox at 8 and DM me") == [("schedule_create", digest)]
    ((_, given),) = told(
        "Every month sweep #csm-es in Europe/Paris, $20 a month, mail it to a@x.io"
    )
    assert (given["cron"], given["zone"], given["to"]) == ("0 9 1 * *", "Europe/Paris", "a@x.io")
    assert "budget_usd" not in given
    assert told("what is scheduled?") == [("schedule_list", {})]
    assert told("pause markets") == [("schedule_pause", {"name": "markets"})]
    assert told("pause sweep-csm") == [("schedule_pause", {"name": "sweep-csm"})]
    assert told("resume the markets schedule") == [
        ("schedule_pause", {"name": "markets", "resume": True})
    ]
    assert told("delete the 8 o'clock triage") == [("schedule_list", {})]
    for other in ("what is open in #csm-es?", "sweep #csm-es", "delete the old rows of #csm-es"):
        assert told(other) is None, other


def test_times_are_told_on_the_wall_of_the_schedule() -> None:
    spec = spec_of(zone="Australia/Lord_Howe", cron="30 2 * * mon")
    said = chat.next_runs(spec, NOW, 2)
    assert said == "Mon 23 Nov 2026 02:30; Mon 30 Nov 2026 02:30 (Australia/Lord_Howe)"


def test_home_shows_schedules_that_cannot_act() -> None:
    stored = StoredSchedule(
        "daily", "chat", "paused", "paused by <@U0EVA>", spec_of(), NOW, NOW, NOW
    )
    (_, shown) = schedule_blocks([chat.line(stored, NOW, reading="<!channel> & csm-*")])
    ((text,),) = [each["elements"] for each in shown["elements"]]
    assert [shown["type"], text["type"]] == ["rich_text", "text"]
    assert "<!channel> & csm-*, at '0 9 * * *'" in text["text"]
    assert "paused: paused by <@U0EVA>" in text["text"]
    assert list(schedule_blocks([])) == []
