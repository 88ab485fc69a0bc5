"""Schedules of the settings that cannot work as they are set: refused, told, and taken up again."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from bot.errors import StoreError
from bot.schedule.book import ScheduleBook
from bot.schedule.checking import Checking, NotChecked
from bot.schedule.running import Alarm

log = logging.getLogger(__name__)

LOOK_EVERY_S = 600.0


@dataclass(frozen=True)
class Refusing:
    """Checks the schedules of the settings; one for the process."""

    book: ScheduleBook
    checking: Checking
    alarm: Alarm
    accepted: Callable[[], None]
    """Called when one can run again."""
    every_s: float = LOOK_EVERY_S

    async def run(self) -> None:
        """Now and every ten minutes, until cancelled."""
        while True:
            try:
                await self.look()
            except StoreError as error:
                log.error("%s", error)
            except Exception:  # the seam: one look
                log.exception("the schedules could not be checked")
            await asyncio.sleep(self.every_s)

    async def look(self) -> None:
        """One such look: what is wrong is refused, what was mended runs. Raises StoreError."""
        for stored in await self.book.all():
            if stored.origin != "config" or stored.state not in ("active", "refused"):
                continue
            try:
                why = await self.checking.objection(stored.spec, stored.origin)
            except NotChecked as unknown:
                log.warning("the schedule %s is not checked: %s", stored.id, unknown)
                continue
            if why:
                if await self.book.refuse(stored.id, why):
                    log.error("the schedule %s is refused: %s", stored.id, why)
                await self.alarm.began(stored.id, why)  # told once, also where this process dies
            elif await self.book.accept(stored.id):
                log.info("the schedule %s is mended", stored.id)
                self.accepted()
