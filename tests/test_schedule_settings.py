"""Schedules in assistant.yaml: what they say, and what is said where they cannot be."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import ValidationError

from config.schedules import Schedule
from config.settings import SettingsError, load_settings

WHOLE: dict[str, Any] = {
    "kind": "sweep",
    "cron": "0 9 * * mon-fri",
    "zone": "Europe/Madrid",
    "channels": ["csm-*"],
    "to": "#reports",
    "owner": "U0ANA",
}


def loaded(tmp_path: Path, schedules: Any) -> dict[str, Schedule]:
    path = tmp_path / "assistant.yaml"
    path.write_text(yaml.safe_dump({"schedules": schedules}), "utf-8")
    return load_settings(path, env={}).schedules


def complaint(tmp_path: Path, schedules: Any) -> list[str]:
    with pytest.raises(SettingsError) as refused:
        loaded(tmp_path, schedules)
    return [line.partition(": ")[2] for line in str(refused.value).splitlines()]


def test_a_schedule_says_what_it_reads_when_and_where_it_goes(tmp_path: Path) -> None:
    found = loaded(tmp_path, {"markets": WHOLE})["markets"]
    assert (found.channels, found.to, found.is_private) == (("csm-*",), "#reports", False)
    assert (found.quiet, found.budget_usd, found.missed_hours) == (False, 1.0, 48)
    assert (found.timetable.cron, found.timetable.zone) == ("0 9 * * mon-fri", "Europe/Madrid")


def test_a_triage_needs_no_channels(tmp_path: Path) -> None:
    mine = {"kind": "triage", "cron": "0  8 * * *", "to": "dm", "owner": "U0ANA"}
    found = loaded(tmp_path, {"mail": mine})["mail"]
    assert (found.is_private, found.zone, found.timetable.cron) == (True, "UTC", "0 8 * * *")


@pytest.mark.parametrize("to", ["dm", "#reports", "C0123", "G0123", "ana@example.com"])
def test_a_report_goes_to_a_person_a_channel_or_an_address(tmp_path: Path, to: str) -> None:
    assert loaded(tmp_path, {"markets": {**WHOLE, "to": to}})["markets"].to == to


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"cron": "61 * * * *"}, "'schedules.m': the first field of '61 * * * *' (minute)"),
        ({"cron": "0 9 30 2 *"}, "'schedules.m': '0 9 30 2 *' never comes up"),
        ({"zone": "Mars/Phobos"}, "'schedules.m': there is no time zone 'Mars/Phobos'"),
        ({"to": "rep"}, "'schedules.m.to' is 'rep', but it must be dm (to its owner), #channel"),
        ({"tracker": "C0123"}, "'schedules.m.tracker' is 'C0123', but it must be the id of a Sl"),
        ({"owner": "ana"}, "'schedules.m.owner' is 'ana', but it must be a Slack user id"),
        ({"budget_usd": 0}, "'schedules.m.budget_usd' is 0, but it must be greater than 0"),
        ({"since_days": 36_501}, "'schedules.m.since_days' is 36501, but it must be"),
        ({"missed_hours": 0}, "'schedules.m.missed_hours' is 0, but it must be greater than 0"),
        ({"channels": []}, "'schedules.m': a sweep needs channels"),
        ({"kind": "triage"}, "'schedules.m': a triage reads its owner's mailbox: leave channels"),
        ({"ownr": "U0ANA"}, "'schedules.m.ownr'. Did you mean 'schedules.m.owner'?"),
    ],
)
def test_what_cannot_be_is_refused_with_the_sentence_that_helps(
    tmp_path: Path, changed: dict[str, Any], words: str
) -> None:
    (sentence,) = complaint(tmp_path, {"m": {**WHOLE, **changed}})
    assert words in sentence


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    assert complaint(tmp_path, {"m": {"kind": "sweep", "channels": ["csm-*"]}}) == [
        "'schedules.m.cron' is missing.",
        "'schedules.m.to' is missing.",
        "'schedules.m.owner' is missing.",
    ]


@pytest.mark.parametrize("name", ["Markets", "two words", "-x", "a/b", "x" * 41, ""])
def test_a_name_is_one_that_can_be_typed(tmp_path: Path, name: str) -> None:
    (said,) = complaint(tmp_path, {name: WHOLE})
    assert "small letters, digits and hyphens, 40 at most, such as markets" in said


@pytest.mark.parametrize(
    ("schedules", "key"),
    [(["a"], "schedules"), ({"m": 3}, "schedules.m"), ({"m": None}, "schedules.m")],
)
def test_a_schedule_is_a_section(tmp_path: Path, schedules: Any, key: str) -> None:
    (said,) = complaint(tmp_path, schedules)
    assert said.startswith(f"'{key}' is ")
    assert said.endswith("but it must be a section with keys below it.")


def test_one_that_is_set_in_chat_is_checked_alike() -> None:
    with pytest.raises(ValidationError, match="never comes up"):
        Schedule(**{**WHOLE, "channels": ("csm-*",), "cron": "0 9 31 4 *"})
