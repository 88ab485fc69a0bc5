"""Words about schedules, as the offline model reads them, and how a home shows schedules."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import scopes
from bot.listeners.home import schedule_blocks
from bot.local.offline.conversation import Conversation
from bot.local.offline.schedules import TOOLS, turn
from bot.schedules import chat
from bot.storage.schedules import StoredSchedule
from config.schedules import Schedule

NOW = datetime(2026, 11, 22, 11, 0, tzinfo=UTC)


def told(text: str) -> Any:
    heard = Conversation(TOOLS, (text,), (), (), (), 4_000)
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
    assert told("pause sweep-csm") == [("schedule_pause", {"name": "sweep-csm"})]
    again = {"name": "markets", "resume": True}
    assert told("resume the markets schedule") == [("schedule_pause", again)]
    assert told("delete the 8 o'clock triage") == [("schedule_list", {})]
    for other in ("what is open in #csm-es?", "sweep #csm-es", "delete the old rows of #csm-es"):
        assert told(other) is None, other


def test_home_shows_schedules_that_cannot_act() -> None:
    spec = Schedule(kind="sweep", cron="0 9 * * *", channels=("csm-*",), to="dm", owner="U0ANA")
    stored = StoredSchedule("daily", "chat", "paused", "paused by <@U0EVA>", spec, NOW, NOW, NOW)
    (_, shown) = schedule_blocks([chat.line(stored, NOW, reading="<!channel> & csm-*")])
    ((text,),) = [each["elements"] for each in shown["elements"]]
    assert [shown["type"], text["type"]] == ["rich_text", "text"]
    assert "<!channel> & csm-*, at '0 9 * * *'" in text["text"]
    assert "paused: paused by <@U0EVA>" in text["text"]
    assert list(schedule_blocks([])) == []


def test_no_scope_of_subagents_has_the_tools_for_schedules() -> None:
    assert set(TOOLS) <= {t.name for t in scopes.tools_of("parent")}
    for name in scopes.scope_names():
        assert not {t.name for t in scopes.tools_of(name)} & set(TOOLS)
