"""The commands that stop all new work, and let it go on. A running `serve` obeys at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from bot.cli.outcome import DONE, dump, guarded, say
from bot.requests.inbox import Inbox
from bot.storage.store import Store
from bot.storage.vault import vault_of
from config.settings import Settings, load_settings
from scopes.tool import one_line, readable

NOBODY = "the command line"
NAME_CHARS = 80


def run_pause(by: str | None, as_json: bool) -> int:
    """Pause the workspace; `by` is shown to who asks meanwhile."""
    name = one_line(readable(by or ""))[:NAME_CHARS] or NOBODY

    async def work(inbox: Inbox) -> int:
        before = await inbox.paused()
        await inbox.pause(name)
        who = await inbox.paused()
        if as_json:
            dump({"paused": True, "by": who, "changed": before is None})
        elif before is None:
            say(f"Paused by {who}. Requests at work are finished. New ones, and those that wait,")
            say("are kept and answered after `assistant resume`; nothing is lost.")
        else:
            say(f"It was paused before, by {who}; nothing changed.")
        return DONE

    return _on_inbox(work, as_json)


def run_resume(as_json: bool) -> int:
    async def work(inbox: Inbox) -> int:
        before = await inbox.paused()
        await inbox.resume()
        if as_json:
            dump({"paused": False, "by": before, "changed": before is not None})
        elif before is None:
            say("It was not paused; nothing changed.")
        else:
            say(f"Resumed (it was paused by {before}). Requests that waited are answered now, the")
            say("oldest first, as soon as `assistant serve` runs.")
        return DONE

    return _on_inbox(work, as_json)


def _on_inbox(work: Callable[[Inbox], Awaitable[int]], as_json: bool) -> int:
    async def go(settings: Settings) -> int:
        store = await Store.open(settings.data_dir, settings.database_url, vault_of(settings))
        try:
            return await work(Inbox(store.database))
        finally:
            await store.aclose()

    return guarded(lambda: asyncio.run(go(load_settings())), as_json)
