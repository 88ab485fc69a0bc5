"""robots.txt: what a host asks of programs that read it (RFC 9309)."""

from __future__ import annotations

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from urllib.parse import quote, unquote, urlsplit

from scopes.pages.fetcher import AGENT, Fetcher, NotFetched

MAX_BYTES = 500_000
"""A longer file is read as far as this (RFC 9309, 2.5)."""
MAX_RULES = 2000
KEPT_S, FAILED_S = 24 * 3600.0, 600.0
"""How long what a host said is heeded, and that it said nothing."""
MAX_HOSTS = 500


@dataclass(frozen=True, slots=True)
class RobotsRule:
    """A beginning of paths; `*` in it stands for anything, `$` behind it for their end."""

    pattern: str
    allows: bool

    def fits(self, path: str) -> bool:
        """Piece by piece, each as early as it occurs: no pattern takes more than one pass."""
        pattern, whole = self.pattern.removesuffix("$"), self.pattern.endswith("$")
        first, *rest = pattern.split("*")
        if not path.startswith(first):
            return False
        at = len(first)
        for piece in rest:
            found = path.find(piece, at)
            if found < 0:
                return False
            at = found + len(piece)
        return not whole or (path.endswith(rest[-1]) if rest else at == len(path))


def rules_of(text: str) -> tuple[RobotsRule, ...]:
    """Return the rules for us: of the groups that name us, else of those for all."""
    found: dict[str, list[RobotsRule]] = {}
    agents: set[str] = set()
    ended = True
    for line in text.splitlines():
        name, _, value = (part.strip() for part in line.partition("#")[0].partition(":"))
        name = name.lower()
        if name == "user-agent":
            agents = set() if ended else agents
            ended = False
            if value.lower() in (AGENT, "*"):
                agents.add(value.lower())
                found.setdefault(value.lower(), [])
        elif name in ("allow", "disallow"):
            ended = True
            for agent in agents if value else ():
                if len(found[agent]) < MAX_RULES:
                    found[agent].append(RobotsRule(_spelled(value), name == "allow"))
    return tuple(found.get(AGENT, found.get("*", [])))


def allows(rules: tuple[RobotsRule, ...], url: str) -> bool:
    """Decide by the longest rule that fits, of two as long by the one that allows."""
    parts = urlsplit(url)
    path = _spelled((parts.path or "/") + (f"?{parts.query}" if parts.query else ""))
    fitting = [rule for rule in rules if rule.fits(path)]
    return max(((len(r.pattern), r.allows) for r in fitting), default=(0, True))[1]


def _spelled(path: str) -> str:
    """Spelled in one way, so that two spellings of a path are one."""
    kept = re.sub(r"%(2[aAfF]|24|3[fF])", lambda each: f"%25{each[1].upper()}", path)
    return quote(unquote(kept), safe="/?*$=&%:;,+@!~'()")


class Robots:
    """What the hosts said, kept for a day."""

    def __init__(self, fetcher: Fetcher, clock: Callable[[], float] = time.monotonic) -> None:
        self._fetcher, self._clock = fetcher, clock
        self._kept: OrderedDict[str, tuple[float, tuple[RobotsRule, ...] | str]] = OrderedDict()

    async def check(self, url: str) -> None:
        """Raises NotFetched where its host asks us not to read it, and where it could not say."""
        parts = urlsplit(url)
        site = f"{parts.scheme}://{parts.netloc.lower()}"
        until, said = self._kept.get(site, (0.0, ""))
        if self._clock() >= until:
            said = await self._ask(site)
            until = self._clock() + (FAILED_S if isinstance(said, str) else KEPT_S)
            self._kept[site] = until, said
            if len(self._kept) > MAX_HOSTS:
                self._kept.popitem(last=False)
        if isinstance(said, str):
            raise NotFetched(said)
        if not allows(said, url):
            raise NotFetched("Its host asks programs not to read it (robots.txt).")

    async def _ask(self, site: str) -> tuple[RobotsRule, ...] | str:
        """Return the rules of a site, or why it could not say."""
        try:
            found = await self._fetcher.get(f"{site}/robots.txt", MAX_BYTES)
        except NotFetched as error:
            return str(error)
        if found.status >= 500 or found.status == 429:
            return f"Its host is in trouble (status {found.status} for its robots.txt)."
        if found.status != 200:
            return ()
        text = found.body.decode("utf-8", "replace").removeprefix("\ufeff")
        return await asyncio.to_thread(rules_of, text)
