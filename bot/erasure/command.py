"""The command that forgets a person, a channel or a source."""

from __future__ import annotations

from dataclasses import asdict

from bot.cli.lookups import stored
from bot.cli.outcome import DONE, INCOMPLETE, dump, say, tell
from bot.erasure.forget import Forget, Forgotten, at_work
from bot.erasure.targets import Target, forget_later
from bot.errors import SetupError
from bot.storage.store import Store
from config.settings import load_settings

WORDS = {
    "items": "messages, rows and files",
    "runs": "runs that held them, with what was recorded",
    "findings": "findings that lost their quotes",
    "blocks": "recorded blocks",
    "requests": "requests",
    "actions": "actions that waited for approval",
    "feedback": "feedback",
    "credentials": "connected accounts",
    "schedules": "schedules, and issues that their reports told of",
    "notes": "notes",
    "files": "files that were kept",
    "conversations": "conversations that could be found again",
    "mail": "mailboxes, handled threads, corrections, clicks in digests",
}
LATER = "Runs at work that hold it: {}. `assistant serve` forgets them when they have ended."


def run_forget(
    user: str | None, channel: str | None, source: str | None, dry_run: bool, as_json: bool
) -> int:
    """`assistant forget`."""

    async def work(store: Store) -> int:
        target = chosen(user, channel, source)
        done = await Forget(store.database, dry_run, load_settings().data_dir)(target)
        if not dry_run and await at_work(store.database):
            await forget_later(store.database, target)  # who reads it now stores it afterwards
        if as_json:
            dump({target.kind: target.id, "dry_run": dry_run, **asdict(done)})
        else:
            say(told(target, done, dry_run))
        if done.later:
            tell(LATER.format(done.later))
        return INCOMPLETE if done.later and not dry_run else DONE

    return stored(work, as_json)


def chosen(user: str | None, channel: str | None, source: str | None) -> Target:
    """What is to be forgotten. Raises SetupError unless it is exactly one thing."""
    given = {"user": user, "channel": channel, "source": source}
    named = {kind: id.strip() for kind, id in given.items() if id and id.strip()}
    if len(named) != 1:
        hint = "Give one of --user U..., --channel C..., --source ID (or a permalink)."
        raise SetupError("forget_what", "Exactly one thing is forgotten at a time.", hint)
    ((kind, id),) = named.items()
    return Target.source(id) if kind == "source" else Target(kind, id)


def told(target: Target, done: Forgotten, dry_run: bool) -> str:
    """What went, in words."""
    counts = [(n, WORDS[name]) for name, n in asdict(done).items() if n and name in WORDS]
    if not counts:
        return f"Nothing is stored of the {target.kind} {target.id}."
    head = "Would be forgotten" if dry_run else "Forgotten"
    listed = "\n".join(f"  {what}: {n}" for n, what in counts)
    return f"{head} of the {target.kind} {target.id}:\n{listed}"
