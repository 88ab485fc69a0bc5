"""Google on loopback with BigQuery and Sheets beside Gmail."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from bot.local.google.call import Api, Json
from bot.local.google.mbox import Mailbox
from bot.local.google.server import NOBODY, LocalGoogle, Progress, Sent
from standins import bigquery as google_bigquery
from standins import sheets as google_sheets
from standins.bigquery_jobs import BigQueryState
from standins.fields import selected
from standins.sheets_state import SheetsState


class FullGoogle(LocalGoogle):
    """A local Google whose projects and spreadsheets are there for all accounts."""

    def __init__(
        self,
        mailbox: Mailbox = NOBODY,
        *,
        bigquery: BigQueryState | None = None,
        sheets: SheetsState | None = None,
        **more: Any,
    ) -> None:
        """Serve these beside Gmail; `more` goes to LocalGoogle."""
        self.bigquery = bigquery
        self.sheets = sheets or SheetsState()
        apis = [Api(google_sheets.METHODS, self.sheets)]
        if bigquery:
            apis.append(Api(google_bigquery.METHODS, bigquery, self._hold))
        super().__init__(mailbox, apis=apis, **more)

    def carry_out(
        self, sent: Sent, progress: Progress, query: Mapping[str, list[str]]
    ) -> Json | None:
        """Leave out of an answer what `fields` does not name."""
        rest = {name: values for name, values in query.items() if name != "fields"}
        body = super().carry_out(sent, progress, rest)
        return body if body is None else dict(selected(body, "".join(query.get("fields", ()))))

    async def _hold(
        self, method: str, path: Mapping[str, str], query: Mapping[str, list[str]]
    ) -> None:
        """Wait with the results of a job that still runs."""
        if method == google_bigquery.RESULTS and self.bigquery:
            await self.bigquery.held(path, query)
