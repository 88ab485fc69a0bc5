"""The database as workflows use it: they wait until a disk is emptied, or a server is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

import sqlalchemy as sa

from bot.errors import StoreError
from bot.storage.database import Database
from bot.storage.vault import WrongKey

T = TypeVar("T")

log = logging.getLogger(__name__)

RETRY_S = 2.0


class Patient(Database):
    """The same database. What cannot be done now is tried again, for ever. Raises WrongKey only.

    What was read and paid for is not given up for a fault that somebody can mend.
    """

    def __init__(self, database: Database) -> None:
        self.where, self.shared, self.vault = database.where, database.shared, database.vault
        self._database = database
        self._upserts = {}

    @property
    def digest_key(self) -> bytes:
        return self._database.digest_key

    async def aclose(self) -> None:
        """Nothing to do: it is closed by who opened it."""

    async def read(self, query: sa.Select[Any], **values: Any) -> list[dict[str, Any]]:
        return await self._patiently(lambda: self._database.read(query, **values))

    async def change(self, work: Callable[[sa.Connection], T]) -> T:
        return await self._patiently(lambda: self._database.change(work))

    async def _patiently(self, ask: Callable[[], Awaitable[T]]) -> T:
        while True:
            try:
                return await ask()
            except WrongKey:  # one value was changed, and waiting does not mend that
                raise
            except StoreError as error:
                log.error("%s It is tried again every %.0f s.", error, RETRY_S)
                await asyncio.sleep(RETRY_S)
