"""Schedules in words: when one runs, what it reads, where its reports go, what it may cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime

from bot.schedule.records import StoredSchedule
from config.schedules import Schedule

SHOWN = 3
"""Next runs that are told before somebody decides."""
NAMED = 20
"""Channels that are named; of more the number is told."""
DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
MONTHS = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


def moment(at: datetime) -> str:
    """`Mon 23 Nov 2026 09:00`, as the clock on that wall says; the same in every locale."""
    seconds = f":{at:%S}" if at.second else ""
    day = f"{DAYS[at.weekday()]} {at.day} {MONTHS[at.month - 1]} {at.year}"
    return f"{day} {at:%H:%M}{seconds}"


def next_runs(spec: Schedule, now: datetime, count: int = SHOWN) -> str:
    """The next times, in the schedule's own zone, which is named."""
    times = [moment(at) for at in spec.timetable.next(count, now)]
    return f"{'; '.join(times) or 'never'} ({spec.zone})"


def reads(spec: Schedule, named: Sequence[str], unnamed: int) -> str:
    """What a report is made of; `named` are the channels that may be named here, `unnamed` counts
    the private ones that may not."""
    if spec.kind == "triage":
        return "the mailbox of who asks for it"
    shown = [f"#{name}" for name in named[:NAMED]]
    more = len(named) - len(shown)
    shown += [f"{more:,} more"] if more > 0 else []
    shown += [f"{unnamed:,} private {'channel' if unnamed == 1 else 'channels'}"] if unnamed else []
    total = len(named) + unnamed
    count = f"{total:,} {'channel' if total == 1 else 'channels'} now"
    later = [f"{p!r}" for p in spec.channels if set(p) & set("*?[")]
    grows = f"; new ones that match {', '.join(later)} are read, too" if later else ""
    tracker = f"; the tracker {spec.tracker}" if spec.tracker else ""
    return f"{', '.join(shown)} ({count}{grows}){tracker}"


def destination(spec: Schedule, names: Mapping[str, str]) -> str:
    """Where its reports go; `names` of channels by id."""
    if spec.is_private:
        return "a direct message to who asks for it"
    if "@" in spec.to:
        return f"{spec.to}, by mail"
    name = names.get(spec.to)
    return f"{spec.to} (#{name})" if name else spec.to


def budget(spec: Schedule) -> str:
    month = "no limit a month" if spec.month_usd is None else f"${spec.month_usd:.2f} a month"
    return f"at most ${spec.budget_usd:.2f} a run, {month}"


def missed(spec: Schedule) -> str:
    """What becomes of runs that cannot begin at their time."""
    which = "the latest one is" if spec.missed == "latest" else "each one is"
    late = f"of runs missed while I was away {which} caught up, up to {spec.missed_hours:g} h later"
    skips = "is left out" if spec.overlap == "skip" else "waits"
    return f"{late}; a run whose time comes while the one before is at work {skips}"


def line(
    stored: StoredSchedule,
    now: datetime,
    *,
    reading: str = "",
    whose: str = "",
    names: Mapping[str, str] | None = None,
) -> str:
    """A schedule in one line: `markets: sweep of ..., at '0 9 * * 1' (UTC), next ..., to ...`."""
    spec = stored.spec
    what = f"{spec.kind} of {reading}" if reading else spec.kind
    goes = "a direct message" if spec.is_private else destination(spec, names or {})
    when = f"at '{' '.join(spec.cron.split())}' ({spec.zone})"
    whose = f", with {whose}" if whose else ""
    return f"{stored.id}: {what}, {when}, to {goes}{whose}; {state(stored, now)}"


def state(stored: StoredSchedule, now: datetime) -> str:
    """`next run ...`, or why there is none."""
    if stored.state == "active":
        failing = "; it fails at present" if stored.trouble else ""
        return f"next run {next_runs(stored.spec, now, 1)}{failing}"
    why = f": {stored.why.rstrip('.')}" if stored.why else ""
    return f"{'cannot run' if stored.state == 'refused' else stored.state}{why}"
