"""`assistant sweep NAME`: a sweep of assistant.yaml by hand; each report goes on from the last.

What stands on the terminal is delivered. Its rows are its own: what `serve` sweeps and posts
under the same name goes on from what it posted.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import Any

import aiohttp

from bot.app import EPOCH, App
from bot.cli.outcome import tell
from bot.errors import SetupError
from bot.local.workspace import Team
from bot.requests.asked import Request
from bot.schedule.compared import compared
from bot.schedule.issues import IssueBook
from bot.schedule.planning import Plan, estimated_usd, too_little
from bot.schedule.ticks import Ticks
from bot.schedule.windows import Windows, changes, covered_after, windows
from bot.storage.store import Store
from bot.storage.vault import vault_of
from bot.sweep.sources import chosen
from bot.sweep.sweep import Sweep
from config.schedules import Schedule
from config.settings import Limits, Settings
from scopes.slack_client import SlackRefused
from scopes.slack_reader import ChannelInfo, SlackReader
from scopes.tool import Window, iso
from subagents.run import Run

Json = dict[str, Any]

LOOK_BACK = (
    "A look back: the last report ends at {last}. Nothing is compared, and the next report "
    "begins where it would have begun."
)
GAP = (
    "This report begins after the last one ended, at {last}. The next one begins there, too, so "
    "that nothing falls between them."
)
OVERTAKEN = "warning: another report of {name} was printed meanwhile; the next one goes on from it"


def named_sweep(settings: Settings, name: str) -> Schedule:
    """The sweep of this name in assistant.yaml. Raises SetupError."""
    spec = settings.schedules.get(name)
    if spec and spec.kind == "sweep":
        return spec
    sweeps = sorted(n for n, s in settings.schedules.items() if s.kind == "sweep")
    known = f"There are {', '.join(sweeps)}." if sweeps else "Name one under `schedules`."
    what = f"{name!r} is a {spec.kind}" if spec else f"There is no sweep {name!r}"
    hint = f"{known} Or give --channels 'support-*'."
    raise SetupError("unknown_schedule", f"{what} in assistant.yaml.", hint)


@dataclass(frozen=True)
class Before:
    """What the last report of a series left behind."""

    series: str
    """Under which its rows are kept."""
    last: datetime | None = None
    """Where it ended; None before the first."""
    reports: int = 0
    covered: Mapping[str, str] | None = None
    channels: Mapping[str, str] | None = None


@dataclass
class NamedSweep:
    """One report of a sweep by its name."""

    name: str
    spec: Schedule
    tracker: str | None
    limit: int | None
    before: Before = Before("")
    channels: Sequence[ChannelInfo] = ()
    """All that its patterns name now."""
    plan: Windows = field(default_factory=lambda: Windows({}, EPOCH))
    moves: bool = False
    """Whether the next report goes on from this one."""

    # ---- the report

    async def report(self, app: App) -> Json:
        """The document of `sweep NAME --json`. Raises SetupError."""
        self.channels = chosen(await app.channels(), self.spec.channels)
        self.before = await self._before(app)
        self.plan = self._plan(app)
        limits = await self._limits(app)
        async with app.run("sweep", f"sweep {self.name}", limits=limits) as run:
            await self._warn(app, run)
            sweep = Sweep(
                app,
                run,
                Request(f"sweep {self.name}", Window(self.plan.oldest, app.as_of)),
                self.channels[: self.limit],
                self.tracker or self.spec.tracker,
                since=self.plan.since,
                title=self.name,
                language=self.spec.language,
            )
            document = await self._told(app, await sweep.report())
            await app.finish(run, document)
            return document

    def _plan(self, app: App) -> Windows:
        """Where each channel's window begins, and whether the next report goes on from this one."""
        days = self.spec.since_days or app.settings.sweep.since_days
        first, last = app.window(timedelta(days=days)), self.before.last
        names, covered = self._names(), self.before.covered or {}
        if last and app.as_of <= last:
            note = LOOK_BACK.format(last=iso(last))
            return Windows(dict.fromkeys(names, first.oldest), first.oldest, (note,))
        if app.options.since is None:
            self.moves = True
            return windows(names, covered, app.as_of, app.as_of - first.oldest)
        reached = [datetime.fromisoformat(covered[id]) for id in names if id in covered]
        self.moves = first.oldest <= min(reached, default=app.as_of)
        notes = () if self.moves else (GAP.format(last=iso(min(reached))),)
        return Windows(dict.fromkeys(names, first.oldest), first.oldest, notes)

    async def _warn(self, app: App, run: Run) -> None:
        """Say before it begins where its budget will not do."""
        reader, read = run.clients[SlackReader], self.channels[: self.limit]
        assert isinstance(reader, SlackReader)
        ends = (self.plan.oldest, app.as_of)
        plan = Plan(
            self.name, run.id, self.spec, *ends, (), channels=tuple(read), since=self.plan.since
        )
        notes = too_little(await estimated_usd(run, reader, plan), run.limits.cost_usd)
        for said in notes:
            tell(said)
        self.plan = replace(self.plan, notes=(*self.plan.notes, *notes))

    async def _told(self, app: App, document: Json) -> Json:
        """The document with what the series knows."""
        left_out = self.channels[self.limit :] if self.limit else []
        missing = [f"{c.name}: left out by --limit {self.limit}" for c in left_out]
        document["coverage"]["not_covered"] += missing
        document["coverage"]["left_out"] = len(missing)
        document["notes"] += self.plan.notes
        before = self.before
        if before.last and app.as_of <= before.last:
            return document
        came, went = changes(self._names(), before.channels)
        document |= {"channels_added": list(came), "channels_gone": list(went)}
        known = await IssueBook(app.store.database).known(before.series)
        return compared(document, known, before.last, before.reports)

    def _names(self) -> dict[str, str]:
        return {channel.id: channel.name for channel in self.channels}

    async def _before(self, app: App) -> Before:
        series, ticks = await self._series(app), Ticks(app.store.database)
        found = await ticks.last_delivered(series)
        if found is None:
            return Before(series)
        extra = found[0].extra or {}
        told = {name: extra[name] for name in ("reports", "covered", "channels")}
        return Before(series, found[0].latest, **told)

    async def _series(self, app: App) -> str:
        """The same for one name, one workspace, one reader and one model: what is read elsewhere
        or by fixed rules is no report before."""
        parts = ["cli", self.name, await _workspace(app)]
        parts += [f"as-{app.options.as_user}"] if app.options.as_user else []
        return "/".join([*parts, *(["offline"] if app.options.model == "offline" else [])])

    async def _limits(self, app: App) -> Limits:
        """Its own budget, or what is left of that of its month. Raises SetupError."""
        usd, month = self.spec.budget_usd, self.spec.month_usd
        if month is not None:
            begun = _month(app.as_of, self.spec)
            usd = min(usd, month - await Ticks(app.store.database).cost(self.before.series, begun))
        if usd <= 0:
            why = f"The ${month:.2f} of {self.name} are spent for this month."
            raise SetupError("budget_spent", why, "Raise month_usd, or wait for the next month.")
        own = {"cost_usd": usd, "seconds": app.settings.sweep.time_s}
        return app.settings.limits.model_copy(update=own)

    # ---- what stands on the terminal is delivered

    async def delivered(self, settings: Settings, document: Json) -> None:
        """Note that a report was printed: the next one goes on from it. Raises StoreError."""
        if not self.moves or document["status"] == "failed":
            return
        store = await Store.open(settings.data_dir, settings.database_url, vault_of(settings))
        try:
            await self._note(store, document)
        finally:
            await store.aclose()

    async def _note(self, store: Store, document: Json) -> None:
        ticks, book = Ticks(store.database), IssueBook(store.database)
        series, at = self.before.series, datetime.fromisoformat(document["window"]["latest"])
        found = await ticks.last_delivered(series)
        if found and found[0].latest != self.before.last:
            tell(OVERTAKEN.format(name=self.name))
            return
        unread = {id: iso(begin) for id, begin in self.plan.since.items()}
        covered = covered_after(document, {**unread, **(self.before.covered or {})})
        await ticks.begin(await ticks.ask_now(series, at), document["run_id"])
        await ticks.ran(
            series,
            at,
            cost=document["cost_usd"],
            oldest=datetime.fromisoformat(document["window"]["oldest"]),
            latest=at,
            extra={
                "covered": covered,
                "channels": self._names(),
                "reports": self.before.reports + 1,  # rows of days long past are not kept
            },
            figures=document["counts"],
        )
        now = datetime.now(UTC)  # of the issues: they are kept by when they were told
        await ticks.delivered(
            series,
            at,
            place={"terminal": True},
            noted=lambda c: book.noted(c, series, document, now),
        )


def _month(at: datetime, spec: Schedule) -> datetime:
    """The beginning of the calendar month, as the sweep's own zone has it."""
    local = at.astimezone(spec.timetable.info)
    return local.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)


async def _workspace(app: App) -> str:
    """Where it reads: the sample, an export, or the workspace of the token. Raises SetupError."""
    export = app.options.slack_export
    if app.options.sample:
        return "sample"
    team = await _team(app)
    if export is None:
        return team
    if team in ("", Team().id):  # an export that does not say of which workspace it is
        team = hashlib.sha256(str(export.resolve()).encode()).hexdigest()[:8]
    return f"export-{team}"


async def _team(app: App) -> str:
    reader = app.reader
    assert isinstance(reader, SlackReader)
    try:
        return str((await reader.web.call("auth.test"))["team_id"])
    except (SlackRefused, aiohttp.ClientError, TimeoutError) as error:
        raise SetupError(
            "slack", f"Slack does not say who we are: {error}.", "Try again."
        ) from error
