"""The policy as its file says it now: read again when that changes, closed while it is wrong."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from bot.errors import SetupError
from config.settings import Policy, Rules, SettingsError, load_policy
from scopes import scope_names

log = logging.getLogger(__name__)

POLL_S = 1.0
"""Least seconds between two looks at the file."""
SETTLED_S = 0.1
"""A file younger than this is looked at again: it may be half written."""
LOOKS = 20

Signature = tuple[int, int, int, int]


class PolicyFault(SetupError):
    """The file cannot be used now; `fault` says what is wrong with it."""

    def __init__(self, path: Path, fault: str) -> None:
        self.path, self.fault = path, fault
        super().__init__("policy", f"Nobody is answered until {path} is mended: {fault}", "")

    @property
    def reason(self) -> str:
        """What a user is told: the first fault, and no path of this machine."""
        name = self.path.name
        fault = self.fault.splitlines()[0].replace(str(self.path), name).removeprefix(name)
        return (
            f"I answer nobody until my settings file {name} is mended: "
            f"{fault.lstrip(':, ')[:300]} Please tell an admin."
        )


class PolicyFile:
    """Holds the policy of one file; `read` it for every decision."""

    def __init__(
        self,
        path: Path | None,
        policy: Policy,
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`policy` holds where there is no file: `path` None, or not there yet."""
        self._path = path
        self._clock = clock
        self._looking = asyncio.Lock()
        self._looked = float("-inf")
        self._signature: Signature | None = None
        self._now: Policy | PolicyFault = policy

    async def read(self) -> Policy:
        """The policy of now. Raises PolicyFault while the file is wrong or gone."""
        if self._path is not None:
            async with self._looking:
                if self._clock() - self._looked >= POLL_S:
                    await asyncio.to_thread(self._look, self._path)
                    self._looked = self._clock()
        if isinstance(self._now, PolicyFault):
            raise PolicyFault(self._now.path, self._now.fault)
        return self._now

    def _look(self, path: Path) -> None:
        """Read the file if it is not the one that was read last."""
        before = self._now
        signature = _signature(path)
        if signature is None and self._signature is None and isinstance(before, Policy):
            return  # there never was one
        if signature == self._signature:
            return
        self._signature, self._now = _read(path)
        if isinstance(self._now, PolicyFault):
            if str(self._now) != str(before):
                log.error("%s", self._now)
        else:
            log.info("the policy of %s holds", path)


def _signature(path: Path) -> Signature | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_mtime_ns, found.st_ctime_ns, found.st_size, found.st_ino


def _read(path: Path) -> tuple[Signature | None, Policy | PolicyFault]:
    """What the file holds, and the signature that it had before and after it was read."""
    for _ in range(LOOKS):
        before = _signature(path)
        if before and abs(time.time() - before[0] / 1e9) < SETTLED_S:
            time.sleep(SETTLED_S)
            if before != _signature(path):
                continue
        held = _parsed(path)
        if before == _signature(path):
            return before, held
    return None, PolicyFault(path, "It changes all the time.")


def _parsed(path: Path) -> Policy | PolicyFault:
    try:
        policy = load_policy(path)
    except SettingsError as error:
        return PolicyFault(path, str(error))
    if fault := unknown_scope(policy):
        return PolicyFault(path, fault)
    return policy


def unknown_scope(policy: Policy) -> str:
    """What is wrong with the scopes that a policy names; empty = nothing."""
    known = scope_names()
    places: list[tuple[str, Rules]] = [
        ("everywhere", policy.everywhere),
        ("direct", policy.direct),
        *((f"channels.{name}", rules) for name, rules in policy.channels.items()),
        *((f"users.{name}", rules) for name, rules in policy.users.items()),
    ]
    for place, rules in places:
        for name in rules.scopes or ():
            if name not in known:
                return f"'policy.{place}.scopes' names {name!r}; scopes are {', '.join(known)}."
    return ""
