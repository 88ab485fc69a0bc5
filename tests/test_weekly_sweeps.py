"""A sweep by its name, week after week: nothing is read twice, nothing between two is missed."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
import sys
import zipfile
from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Json, Shell, channel_id, configure, export, model_at, refused, said, ts

from bot.cli.commands import read
from bot.cli.options import Options
from bot.local.model.server import Faults
from bot.schedule.series import NamedSweep, named_sweep
from bot.storage.store import Store
from config.settings import load_settings

WEEKS = ("2025-03-08", "2025-03-15", "2025-03-22")
ES, FR = "support-es", "support-fr"


@pytest.fixture
def shell(capsys: pytest.CaptureFixture[str]) -> Shell:
    return Shell(capsys)


def schedule(channels: str = "support-*", **more: object) -> None:
    told = {
        **{"kind": "sweep", "cron": "0 9 * * sat", "channels": [channels], "to": "dm"},
        **{"owner": "U0ANA", "since_days": 7, **more},
    }
    configure(json.dumps({"schedules": {"support": told}}))


def weekly(shell: Shell, file: Path, as_of: str, *more: object) -> Json:
    """The report of a week, printed."""
    done = shell(
        *("sweep", "support", "--slack-export", file, "--as-of", as_of),
        *("--model", "offline", "--json", *more),
    )
    assert done.code in (0, 1), done.err
    document: Json = done.json
    return document


def windows(document: Json) -> dict[str, tuple[str, str]]:
    """By channel: the days at which its window begins and ends."""
    return {
        s["item"]: (s["window"]["oldest"][:10], s["window"]["latest"][:10])
        for s in document["sections"]
    }


def findings(document: Json) -> list[Json]:
    return [f for s in document["sections"] for f in s["findings"]]


def told(document: Json, thread: str) -> Json:
    """The finding that rests on a thread."""
    (found,) = [f for f in findings(document) if thread in f["threads"]]
    return found


async def _read_in(folder: Path, documents: Sequence[Json]) -> list[Counter[str]]:
    """Ids of the messages that each report's subagents were to read, and did."""
    store = await Store.open(folder)
    try:
        found = []
        for document in documents:
            whole = {id for s in document["sections"] for id in s["subagents"]}
            stored = [s for s in await store.subagents(document["run_id"]) if s.id in whole]
            assert all(s.result and s.result["coverage"]["complete"] for s in stored)
            briefs = [s.brief["expects"] for s in stored]
            found.append(Counter(i for each in briefs for ids in each.values() for i in ids))
        return found
    finally:
        await store.aclose()


def read_in(folder: Path, documents: Sequence[Json]) -> list[Counter[str]]:
    return asyncio.run(_read_in(folder, documents))


def three_weeks(folder: Path, more: Mapping[str, Sequence[Json]] | None = None) -> Path:
    """A question that comes back, one that nobody answers, and one that is solved."""
    return export(
        folder,
        {
            ES: [
                said("03 09:00", "No puedo pagar con tarjeta, no funciona, ¿qué hago?"),
                said("06 09:00", "Lo miro", "U0LUIS", "03 09:00"),
                said("10 09:00", "Arreglado, prueba otra vez", "U0LUIS", "03 09:00"),
                said("10 10:00", "Funciona, muchas gracias", "U0ANA", "03 09:00"),
                said("17 10:00", "Vuelve a fallar, no funciona, ¿qué hago?", "U0ANA", "03 09:00"),
            ],
            FR: [
                said("04 09:00", "Le bouton ne marche pas, que faire ?", "U0EVA"),
                said("15 00:00", "La facture est fausse, que faire ?", "U0TOM"),
            ],
            **(more or {}),
        },
    )


PAYING, BUTTON, INVOICE = (
    f"{channel_id(ES)}/{ts('03 09:00')}",
    f"{channel_id(FR)}/{ts('04 09:00')}",
    f"{channel_id(FR)}/{ts('15 00:00')}",
)


# ---- one report after the other


def test_each_report_begins_where_the_last_one_ended(
    shell: Shell, tmp_path: Path, data_dir: Path
) -> None:
    schedule()
    file = three_weeks(tmp_path)
    documents = [weekly(shell, file, day) for day in WEEKS]
    ends = ("2025-03-01", *WEEKS)
    for document, window in zip(documents, pairwise(ends), strict=True):
        assert set(windows(document).values()) == {window}
    every = sum(read_in(data_dir, documents), Counter())
    assert every == Counter(
        [PAYING, BUTTON, INVOICE]
        + [f"{channel_id(ES)}/{ts(at)}" for at in ("06 09:00", "10 09:00", "10 10:00", "17 10:00")]
    )


def test_an_issue_is_one_issue_through_all_weeks(shell: Shell, tmp_path: Path) -> None:
    schedule()
    file = three_weeks(tmp_path)
    first, second, third = (weekly(shell, file, day) for day in WEEKS)
    lives = [told(document, PAYING) for document in (first, second, third)]
    assert len({f["issue"] for f in lives}) == 1
    assert [f["change"] for f in lives] == ["new", "solved", "reopened"]
    assert [f["age_days"] for f in lives] == [4, 11, 18]
    button = told(first, BUTTON)["issue"]
    for document, days in ((second, 10), (third, 17)):
        (still,) = document["still_open"]
        assert (still["issue"], still["item"], still["age_days"]) == (button, FR, days)
    assert told(third, INVOICE)["change"] == "new"
    assert first["compared"] is None
    assert third["compared"] == {"with": "2025-03-15T00:00:00Z", "reports": 2}
    assert third["counts"] == {
        **{"open": 3, "new": 1, "changed": 0, "solved": 0, "reopened": 1},
        "high": third["counts"]["high"],
    }
    assert third["title"] == "support"


def test_a_report_of_a_day_that_was_told_is_a_look_back(shell: Shell, tmp_path: Path) -> None:
    schedule()
    file = three_weeks(tmp_path)
    weekly(shell, file, WEEKS[0])
    second = weekly(shell, file, WEEKS[1])
    for day in WEEKS[:2]:
        again = weekly(shell, file, day)
        assert again["compared"] is None
        assert all(f["issue"] is None for f in findings(again))
        assert "A look back" in " ".join(again["notes"])
    assert told(again, PAYING)["claim"] == told(second, PAYING)["claim"]
    third = weekly(shell, file, WEEKS[2])
    assert set(windows(third).values()) == {(WEEKS[1], WEEKS[2])}
    assert third["compared"]["reports"] == 2


def test_a_shorter_window_leaves_no_gap_behind(shell: Shell, tmp_path: Path) -> None:
    schedule()
    file = three_weeks(tmp_path)
    weekly(shell, file, WEEKS[0])
    short = weekly(shell, file, WEEKS[1], "--since", "2d")
    assert set(windows(short).values()) == {("2025-03-13", WEEKS[1])}
    assert WEEKS[0] in " ".join(short["notes"])
    third = weekly(shell, file, WEEKS[2])
    assert set(windows(third).values()) == {(WEEKS[0], WEEKS[2])}
    assert told(third, PAYING)["change"] in ("open", "changed")


def test_a_longer_window_counts_as_the_report(shell: Shell, tmp_path: Path) -> None:
    schedule()
    file = three_weeks(tmp_path)
    weekly(shell, file, WEEKS[0])
    long = weekly(shell, file, WEEKS[1], "--since", "14d")
    assert long["notes"] == []
    assert set(windows(weekly(shell, file, WEEKS[2])).values()) == {(WEEKS[1], WEEKS[2])}


def test_a_channel_that_was_left_out_is_read_from_where_it_was_left(
    shell: Shell, tmp_path: Path
) -> None:
    schedule()
    file = three_weeks(tmp_path)
    weekly(shell, file, WEEKS[0], "--limit", "1")
    second = weekly(shell, file, WEEKS[1])
    assert windows(second) == {ES: (WEEKS[0], WEEKS[1]), FR: ("2025-03-01", WEEKS[1])}
    assert told(second, BUTTON)["change"] == "new"
    assert second["channels_added"] == []


def test_a_named_sweep_with_a_limit_that_the_user_gave_is_done(
    shell: Shell, tmp_path: Path
) -> None:
    schedule()
    when = ("--as-of", WEEKS[0], "--model", "offline", "--limit", "1")
    done = shell("sweep", "support", "--slack-export", three_weeks(tmp_path), *when, "--json")
    assert done.json["coverage"]["not_covered"] == ["support-fr: left out by --limit 1"]
    assert done.code == 0


def test_channels_that_come_and_go_are_named(shell: Shell, tmp_path: Path) -> None:
    schedule()
    weekly(shell, three_weeks(tmp_path), WEEKS[0])
    more = {"support-it": [said("12 09:00", "Il pulsante non funziona, che faccio?", "U0TOM")]}
    second = weekly(shell, three_weeks(tmp_path, more), WEEKS[1])
    assert (second["channels_added"], second["channels_gone"]) == (["support-it"], [])
    assert windows(second)["support-it"] == (WEEKS[0], WEEKS[1])
    third = weekly(shell, three_weeks(tmp_path), WEEKS[2])
    assert (third["channels_added"], third["channels_gone"]) == ([], ["support-it"])


# ---- whose report it is


def test_what_another_reader_another_export_and_the_channels_saw_is_not_the_last_report(
    shell: Shell, tmp_path: Path
) -> None:
    schedule()
    file = three_weeks(tmp_path)
    weekly(shell, file, WEEKS[0])
    assert weekly(shell, file, WEEKS[1], "--as-user", "U0LUIS")["compared"] is None
    (tmp_path / "other").mkdir()
    assert weekly(shell, three_weeks(tmp_path / "other"), WEEKS[1])["compared"] is None
    plain = shell.sweep(file, "support-*")
    assert (plain["compared"], plain["title"]) == (None, "")
    assert weekly(shell, file, WEEKS[1])["compared"]["reports"] == 1


def test_a_report_that_failed_moves_nothing(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    schedule()
    file = three_weeks(tmp_path)
    args = ("sweep", "support", "--slack-export", file, "--json", "--as-of")
    with model_at(monkeypatch, faults=Faults(lambda index, body: "refusal")):
        assert shell(*args, WEEKS[0]).json["status"] == "failed"
    with model_at(monkeypatch):
        assert shell(*args, WEEKS[1]).json["compared"] is None
        assert shell(*args, WEEKS[2]).json["compared"]["reports"] == 1


def test_a_report_that_could_not_be_printed_is_told_by_the_next_one(
    shell: Shell, tmp_path: Path
) -> None:
    schedule()
    file = three_weeks(tmp_path)
    args = ("--slack-export", str(file), "--as-of", WEEKS[0], "--model", "offline")
    with Path("/dev/full").open("w") as full:
        command = [sys.executable, "-m", "bot", "sweep", "support", *args]
        env = {**os.environ, "PYTHONPATH": str(Path(__file__).parent.parent)}
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, env=env, check=False)
    assert done.returncode != 0
    assert b"Read #support-es" in done.stderr
    assert weekly(shell, file, WEEKS[1])["compared"] is None


def test_of_two_reports_at_once_the_one_that_is_printed_first_counts(
    shell: Shell, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    schedule()
    file, settings = three_weeks(tmp_path), load_settings()
    slower = NamedSweep("support", named_sweep(settings, "support"), None, None)
    as_of = datetime.fromisoformat(WEEKS[1]).replace(tzinfo=UTC)
    document, _ = read(settings, Options("offline", file, as_of=as_of), slower.report)
    weekly(shell, file, WEEKS[0])
    asyncio.run(slower.delivered(settings, document))
    assert "another report of support was printed meanwhile" in capsys.readouterr().err
    second = weekly(shell, file, WEEKS[1])
    assert second["compared"] == {"with": "2025-03-08T00:00:00Z", "reports": 1}


def test_its_own_language_and_budget_count_and_too_little_is_said_first(
    shell: Shell, tmp_path: Path
) -> None:
    schedule(language="fr", budget_usd=0.0001)
    file = three_weeks(tmp_path)
    args = ("--slack-export", file, "--as-of", WEEKS[0], "--model", "offline", "--json")
    done = shell("sweep", "support", *args)
    assert done.json["language"] == "fr"
    assert done.json["cost_usd"] <= 0.0001
    (note,) = done.json["notes"]
    assert "may not cover everything" in note
    assert note in done.err.partition(" s1 ")[0]


def test_a_month_that_is_spent_is_said_before_anything_is_read(
    shell: Shell, tmp_path: Path
) -> None:
    schedule()
    file = three_weeks(tmp_path)
    half = weekly(shell, file, WEEKS[0])["cost_usd"] / 2
    schedule(budget_usd=half, month_usd=half)
    args = ("--slack-export", file, "--model", "offline", "--json")
    done = shell("sweep", "support", "--as-of", WEEKS[1], *args)
    assert "are spent for this month" in refused(done, "budget_spent")
    later = weekly(shell, file, "2025-04-02")
    assert later["cost_usd"] <= half
    assert later["compared"]["reports"] == 1


# ---- wrong use


def test_a_sweep_is_named_or_given_by_channels(shell: Shell, tmp_path: Path) -> None:
    schedule()
    file = three_weeks(tmp_path)
    both = shell("sweep", "support", "--channels", "support-*", "--slack-export", file, "--json")
    assert "--channels" in refused(both, "which_sweep")
    neither = shell("sweep", "--slack-export", file, "--json")
    assert "--channels" in refused(neither, "which_sweep")


def test_an_unknown_name_is_answered_with_those_there_are(shell: Shell, tmp_path: Path) -> None:
    triage = {"kind": "triage", "cron": "0 8 * * *", "to": "dm", "owner": "U0ANA"}
    configure(json.dumps({"schedules": {"inbox": triage}}))
    file = three_weeks(tmp_path)
    assert "schedules" in refused(shell("sweep", "nope", "--slack-export", file), "-")
    assert "is a triage" in refused(shell("sweep", "inbox", "--slack-export", file), "-")
    schedule()
    assert "There are support." in refused(shell("sweep", "nope", "--slack-export", file), "-")


# ---- real traffic

DEV_WEEKS = ("2025-04-01", "2025-04-08", "2025-04-15")


@pytest.mark.slow
def test_three_weeks_of_real_traffic(shell: Shell, data_dir: Path, dev_data: Path) -> None:
    schedule(budget_usd=3)
    file = dev_data / "slack_export.zip"
    documents = [weekly(shell, file, day) for day in DEV_WEEKS]
    ends = ("2025-03-25", *DEV_WEEKS)
    for document, window in zip(documents, pairwise(ends), strict=True):
        assert document["status"] == "complete"
        assert set(windows(document).values()) == {window}
    covered = read_in(data_dir, documents)
    assert sum(covered, Counter()) == Counter(said_in(file, *ends[:1], *ends[-1:]))
    assert all(sum(c.values()) for c in covered)
    lives = issues_by_thread(documents)
    again = {thread: ids for thread, ids in lives.items() if len(ids) > 1}
    assert len(again) == 16
    assert all(len(set(ids)) == 1 for ids in again.values())
    assert len({ids[0] for ids in lives.values()}) == len(lives)
    agree_with_labels(documents[-1], dev_data)


def said_in(file: Path, begin: str, end: str) -> list[str]:
    """Ids of the messages of support channels inside the days."""
    first, last = (datetime.fromisoformat(day).replace(tzinfo=UTC) for day in (begin, end))
    with zipfile.ZipFile(file) as archive:
        channels = {c["name"]: c["id"] for c in json.loads(archive.read("channels.json"))}
        found = []
        for name in archive.namelist():
            folder = re.match(r"(support-\w+)/[\d-]+\.json", name)
            for message in json.loads(archive.read(name)) if folder else ():
                if first <= datetime.fromtimestamp(float(message["ts"]), UTC) < last:
                    assert folder
                    found.append(f"{channels[folder[1]]}/{message['ts']}")
        return found


def issues_by_thread(documents: Sequence[Json]) -> dict[str, list[str]]:
    """Thread -> the ids under which the reports tell it, one a report."""
    found: dict[str, list[str]] = {}
    for document in documents:
        for finding in findings(document):
            for thread in finding["threads"]:
                found.setdefault(thread, []).append(finding["issue"])
    return found


def agree_with_labels(document: Json, dev_data: Path) -> None:
    """What the report says is still open is open by those who read it with care."""
    labels = json.loads((dev_data / "labels" / "support_states.json").read_text("utf-8"))
    states = {label["id"]: label["state"] for label in labels}
    for still in document["still_open"]:
        at = re.search(r"/p(\d{10})(\d{6})", still["links"][0])
        assert at
        state: Any = states.get(f"{still['item']}/{at[1]}.{at[2]}")
        assert state in ("unanswered", "unsolved", None), still
