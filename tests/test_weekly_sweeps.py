"""A weekly sweep, which reads each message once; and a sweep by its name on the command line."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path

from bot_kit import (
    Done,
    Json,
    Shell,
    channel_id,
    configure,
    export,
    export_message,
    refusal_text,
    ts,
)
from schedule_kit import ScheduledBot, scheduled_bot, sweep
from serve_kit import ASKER

from bot.local.export import load_export
from bot.local.offline.model import answer as offline
from bot.runs.store import Store

WEEKS = ("2025-03-08", "2025-03-15", "2025-03-22")
ES, FR = "support-es", "support-fr"


def schedule(**more: object) -> None:
    settings = {
        **{"kind": "sweep", "cron": "0 9 * * sat", "channels": ["support-*"], "to": "dm"},
        **{"owner": "U0ANA", "since_days": 7, **more},
    }
    configure(json.dumps({"schedules": {"support": settings}}))


async def weekly(s: ScheduledBot, as_of: str) -> Json:
    """Run the sweep of a week; return its report after the delivery."""
    occurrence = await s.fire("support", datetime.fromisoformat(as_of).replace(tzinfo=UTC))
    assert occurrence.state == "ran", occurrence
    assert (await s.wait_for_delivery(occurrence)).delivery == "delivered"
    return await s.document(occurrence)


def windows(document: Json) -> dict[str, tuple[str, str]]:
    """Return the first and the last day of each channel's window."""
    return {
        s["item"]: (s["window"]["oldest"][:10], s["window"]["latest"][:10])
        for s in document["sections"]
    }


def finding_on(document: Json, thread: str) -> Json:
    """Return the finding that cites a thread."""
    found: Json
    (found,) = [f for s in document["sections"] for f in s["findings"] if thread in f["threads"]]
    return found


async def read_in(store: Store, documents: Sequence[Json]) -> list[Counter[str]]:
    """Return the ids of the messages that the subagents of each report had to read, and did."""
    found = []
    for document in documents:
        subagents = {id for s in document["sections"] for id in s["subagents"]}
        stored = [s for s in await store.subagents(document["run_id"]) if s.id in subagents]
        assert all(s.result and s.result["coverage"]["complete"] for s in stored)
        briefs = [s.brief["brief"]["expects"] for s in stored]
        found.append(Counter(i for each in briefs for ids in each.values() for i in ids))
    return found


def three_weeks(folder: Path) -> Path:
    """A question that comes back, one that nobody answers, and one that is solved."""
    return export(
        folder,
        {
            ES: [
                export_message("03 09:00", "No puedo pagar con tarjeta, no funciona, ¿qué hago?"),
                export_message("06 09:00", "Lo miro", "U0LUIS", "03 09:00"),
                export_message("10 09:00", "Arreglado, prueba otra vez", "U0LUIS", "03 09:00"),
                export_message("10 10:00", "Funciona, muchas gracias", "U0ANA", "03 09:00"),
                export_message(
                    "17 10:00", "Vuelve a fallar, no funciona, ¿qué hago?", "U0ANA", "03 09:00"
                ),
            ],
            FR: [
                export_message("04 09:00", "Le bouton ne marche pas, que faire ?", "U0EVA"),
                export_message("15 00:00", "La facture est fausse, que faire ?", "U0TOM"),
            ],
        },
    )


PAYING, BUTTON, INVOICE = (
    f"{channel_id(ES)}/{ts('03 09:00')}",
    f"{channel_id(FR)}/{ts('04 09:00')}",
    f"{channel_id(FR)}/{ts('15 00:00')}",
)


# ---- consecutive reports


async def test_weekly_reports_are_contiguous_and_track_each_issue_across_weeks(
    tmp_path: Path,
) -> None:
    schedules = {"support": sweep(owner="U0ANA", since_days=5)}
    space = load_export(three_weeks(tmp_path))
    async with scheduled_bot(tmp_path, schedules, offline, space=space) as s:
        documents = [await weekly(s, day) for day in WEEKS]
        messages = sum(await read_in(s.bot.store, documents), Counter[str]())
        posts = s.bot.slack.visible(s.bot.slack.people.dm(ASKER))
        assert len([m for m in posts if m.thread_ts in (None, "", m.ts)]) == len(WEEKS)
    ends = ("2025-03-03", *WEEKS)  # the first one looks back five days
    for document, window in zip(documents, pairwise(ends), strict=True):
        assert set(windows(document).values()) == {window}
        assert document["channels_added"] == []
    assert messages == Counter(
        [PAYING, BUTTON, INVOICE]
        + [f"{channel_id(ES)}/{ts(at)}" for at in ("06 09:00", "10 09:00", "10 10:00", "17 10:00")]
    )

    first, second, third = documents
    paying = [finding_on(document, PAYING) for document in documents]
    assert len({f["issue"] for f in paying}) == 1
    assert [f["change"] for f in paying] == ["new", "solved", "reopened"]
    assert [f["age_days"] for f in paying] == [5, 12, 19]
    button = finding_on(first, BUTTON)["issue"]
    for document, days in ((second, 11), (third, 18)):
        (still,) = document["still_open"]
        assert (still["issue"], still["item"], still["age_days"]) == (button, FR, days)
    assert finding_on(third, INVOICE)["change"] == "new"
    assert first["compared"] is None
    assert third["compared"] == {"with": "2025-03-15T00:00:00Z", "reports": 2}
    assert third["counts"] == {
        **{"open": 3, "new": 1, "changed": 0, "solved": 0, "reopened": 1},
        **{name: third["counts"][name] for name in ("high", "urgent")},
    }


# ---- on the command line


def run_sweep(shell: Shell, file: Path, *more: str, name: str = "support") -> Done:
    when = ("--as-of", WEEKS[0], "--model", "offline", "--json")
    return shell("sweep", name, "--slack-export", file, *when, *more)


def test_named_sweep_uses_its_schedules_settings_without_a_comparison(
    shell: Shell, tmp_path: Path
) -> None:
    schedule(language="fr", budget_usd=0.0001)
    file = three_weeks(tmp_path)
    for day, begin in ((WEEKS[0], "2025-03-01"), (WEEKS[1], WEEKS[0])):
        document = run_sweep(shell, file, "--as-of", day).json
        assert set(windows(document).values()) == {(begin, day)}
        assert (document["compared"], document["title"]) == (None, "support")
    assert document["language"] == "fr"
    assert document["cost_usd"] <= 0.0001


def test_sweep_needs_either_a_schedule_name_or_channels(shell: Shell, tmp_path: Path) -> None:
    schedule()
    file = three_weeks(tmp_path)
    both = run_sweep(shell, file, "--channels", "support-*")
    assert "--channels" in refusal_text(both, "which_sweep")
    neither = shell("sweep", "--slack-export", file, "--json")
    assert "--channels" in refusal_text(neither, "which_sweep")
    unknown = run_sweep(shell, file, name="nope")
    assert "There are support." in refusal_text(unknown, unknown.json["error"]["code"])
    triage = {"kind": "triage", "cron": "0 8 * * *", "to": "dm", "owner": "U0ANA"}
    configure(json.dumps({"schedules": {"inbox": triage}}))
    other = run_sweep(shell, file, name="inbox")
    assert "is a triage" in refusal_text(other, other.json["error"]["code"])
