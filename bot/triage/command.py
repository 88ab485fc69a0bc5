"""`assistant triage`: a mailbox, a run, a digest, an exit code."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from bot.app import EPOCH, App
from bot.cli.commands import reading
from bot.cli.given import Given, check_address
from bot.cli.options import Options
from bot.cli.outcome import Document
from bot.errors import SetupError
from bot.mail.mailbox import OPERATOR, OpenMailbox, open_mailbox
from bot.mail.state import MailState
from bot.mail.sync import Sync, new_threads
from bot.requests.asked import Request
from bot.storage.store import Store
from bot.storage.tables import StoredRun
from bot.storage.vault import vault_of
from bot.triage.briefing import Reader
from bot.triage.digest_text import digest_text
from bot.triage.looked import FILE, INBOX, query_of
from bot.triage.triage import Triage, delivered
from config.settings import Limits, Settings, load_settings
from scopes.google.gmail import Gmail
from scopes.tool import Window
from subagents.child import number_of
from subagents.result import SubagentResult

KIND = "triage"
CLAUDE = "claude"
"""The model where --model is not given."""


def run_triage(given: TriageGiven) -> int:
    return reading(given.options, given.triage, given.json, told)


def told(document: Document) -> str:
    """The digest, its categories in the order of the settings."""
    return digest_text(document, load_settings().triage.categories)


@dataclass
class TriageGiven:
    """The options of `assistant triage`, as they were typed; those of a resumed run are its own."""

    mbox: Path | None
    me: str | None
    sample: bool
    as_of: str | None
    since: str | None
    limit: int | None
    model: str
    json: bool
    resume: str | None = None
    stored: StoredRun | None = None

    @classmethod
    def of_sample(cls) -> TriageGiven:
        """The sample mailbox, read by the rules that need no key."""
        return cls(None, None, True, None, None, None, "offline", False)

    def options(self) -> Options:
        """Raises SetupError."""
        if self.resume:
            self._refuse_others()
            self._go_on(asyncio.run(_run_to_resume(load_settings(), self.resume)))
        if self.sample and self.mbox:
            raise SetupError("two_sources", "Two mailboxes.", "Give --sample or --mbox.")
        if self.me and not self.mbox:
            raise SetupError("me_of_what", "--me is your address in a file.", "Give --mbox FILE.")
        check_address(self.me)
        plain = Given(None, self.sample, self.as_of, self.since, self.model, None, self.json)
        return replace(plain.options(), mail=True, mbox=self.mbox, me=self.me)

    def _refuse_others(self) -> None:
        """A resumed run has its own options; others would be silently of no use."""
        given = {
            **{"--mbox": self.mbox, "--me": self.me, "--sample": self.sample},
            **{"--as-of": self.as_of, "--since": self.since, "--limit": self.limit},
        }
        if named := [name for name, value in given.items() if value]:
            text = f"--resume goes on with the options that the run had, not with {named[0]}."
            raise SetupError("resume_alone", text, f"Leave out {', '.join(named)}.")

    def _go_on(self, stored: StoredRun) -> None:
        if self.model not in (CLAUDE, stored.model):
            text = f"The triage {stored.id} was begun with --model {stored.model}."
            raise SetupError("resume_alone", text, "Leave out --model.")
        args = stored.args
        self.stored, self.model = stored, stored.model
        self.mbox = Path(args["mbox"]) if args.get("mbox") else None
        self.me, self.sample = args.get("me"), bool(args.get("sample"))
        self.as_of, self.since, self.limit = args.get("until"), args.get("since"), args.get("limit")

    async def triage(self, app: App) -> Document:
        """The digest of the mailbox. Raises SetupError where there is none."""
        async with open_mailbox(app.settings, app.options, app.store.database) as box:
            app.as_of = app.options.as_of or box.as_of
            app.problems = box.problems
            app.clients[Gmail] = box.gmail
            resumed = self.stored.id if self.stored else None
            limits, args = _limits(app.settings), self._args(app)
            async with app.run(KIND, f"triage {box.address}", args, limits, resumed) as run:
                window, state = _window(app, box), MailState(app.store.database)
                triage = Triage(
                    app=app,
                    run=run,
                    request=Request(f"triage {box.address}", window),
                    gmail=box.gmail,
                    reader=Reader(box.address, box.address, app.as_of.date()),
                    listing=lambda: _listing(box, state, window),
                    limit=self.limit,
                    corrections=() if box.is_file else await state.corrections.all(OPERATOR),
                    **await _paid_for(app.store, resumed),
                )
                document = await triage.report()
                await app.finish(run, document)
                if not box.is_file:
                    await delivered(state, OPERATOR, triage)
                return document

    def _args(self, app: App) -> Mapping[str, Any]:
        """What `--resume` needs to look at the same again."""
        path = str(self.mbox.absolute()) if self.mbox else None
        given = {"mbox": path, "me": self.me, "sample": self.sample, "until": self.as_of}
        return {**given, "since": self.since, "limit": self.limit}


async def _listing(box: OpenMailbox, state: MailState, window: Window) -> Sync:
    """All of a file; of an account what came since the last triage."""
    if box.is_file:
        found = await box.gmail.find(query_of(FILE, window))
        return Sync(tuple(found), "", full=True, why="")
    return await new_threads(box.gmail, state, OPERATOR, INBOX, window)


async def _run_to_resume(settings: Settings, id: str) -> StoredRun:
    store = await Store.open(settings.data_dir, settings.database_url, vault_of(settings))
    try:
        stored = await store.run(id)
    finally:
        await store.aclose()
    if stored.kind != KIND:
        hint = "`assistant runs` lists them."
        raise SetupError("no_triage", f"The run {stored.id} is no triage.", hint)
    if stored.status == "complete":
        hint = f"`assistant show {stored.id}` shows it."
        raise SetupError("complete", f"The triage {stored.id} is complete.", hint)
    return stored


async def _paid_for(store: Store, run: str | None) -> dict[str, Any]:
    """What a run has already: verdicts by their threads' last messages, and what it had begun."""
    if run is None:
        return {}
    earlier = {}
    for each in await store.subagents(run):
        ids = [i for held in each.brief["expects"].values() for i in held]
        if ids and each.result and each.result.get("value") is not None:
            earlier[ids[-1]] = SubagentResult.model_validate(each.result)
    trajectory = await store.trajectory(run)
    subagents = [number_of(c.id) for c in trajectory.contexts if c.kind == "subagent"]
    asked = {r.context for r in trajectory.requests}
    parents = tuple(c.id for c in trajectory.contexts if c.kind == "parent" and c.id in asked)
    return {"earlier": earlier, "taken": max(subagents, default=0), "parents": parents}


def _limits(settings: Settings) -> Limits:
    triage = settings.triage
    return settings.limits.model_copy(
        update={"cost_usd": triage.budget_usd, "seconds": triage.time_s}
    )


def _window(app: App, box: OpenMailbox) -> Window:
    """The time that is looked at: as said; else all of a file, or the last days of an account."""
    whole = app.as_of - EPOCH
    default = whole if box.is_file else timedelta(days=app.settings.triage.since_days)
    return Window(app.as_of - min(app.options.since or default, whole), app.as_of)
