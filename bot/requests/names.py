"""Names of the people who occur in threads, each looked up once, by id: never the whole list."""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field

import aiohttp

from scopes.slack_client import Absent, SlackClient
from scopes.slack_items import name_of
from scopes.tool import SourceFailed

log = logging.getLogger(__name__)

CONCURRENT_NAMES = 8
MAX_NAMES = 5_000
"""Names kept; the ones looked up longest ago go first."""
FAILURES = (Absent, SourceFailed, aiohttp.ClientError, TimeoutError, OSError)
"""What a call to Slack may come to."""


@dataclass
class Names:
    """Names of the people who occur, each looked up once; shared by all turns of a process."""

    client: SlackClient
    _kept: OrderedDict[str, str] = field(default_factory=OrderedDict)

    def known(self, ids: Iterable[str]) -> dict[str, str]:
        """The names that need no call, two people of one name told apart by their ids."""
        found = {i: self._kept[i] for i in dict.fromkeys(ids) if i in self._kept}
        names = list(found.values())
        return {i: f"{n} ({i})" if names.count(n) > 1 else n for i, n in found.items()}

    async def of(self, ids: Iterable[str]) -> dict[str, str]:
        """The names of these users; one that cannot be had is left out."""
        gate = asyncio.Semaphore(CONCURRENT_NAMES)
        wanted = list(dict.fromkeys(ids))
        async with asyncio.TaskGroup() as group:
            for each in wanted:
                if each not in self._kept:
                    group.create_task(self._fetch(each, gate))
        return self.known(wanted)

    async def _fetch(self, user: str, gate: asyncio.Semaphore) -> None:
        try:
            async with gate:
                found = (await self.client.call("users.info", user=user)).get("user")
        except Absent:
            found = {"id": user}
        except FAILURES as error:
            log.info("the name of %s cannot be read: %s", user, error)
            return
        if isinstance(found, dict):
            self.keep(user, name_of({"id": user, **found}))

    def keep(self, user: str, name: str) -> None:
        self._kept[user] = name
        while len(self._kept) > MAX_NAMES:
            self._kept.popitem(last=False)
