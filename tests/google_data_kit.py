"""BigQuery and Sheets as tests want them: stand-ins on loopback, held to Google's documents."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from google_contract import body_mismatches
from google_kit import Clock
from standins.bigquery import BigQueryState
from standins.bigquery_tables import bigquery_of
from standins.google import LocalGoogle
from standins.sheets import Book, SheetsState

from bot.local.google.server import TOKEN
from bot.local.server import LocalServer
from config.settings import load_settings
from scopes.databases.bigquery import BigQuery
from scopes.google.auth import token_credentials
from scopes.google.client import GoogleClient, Quota
from scopes.google.spreadsheet import Spreadsheet

PROJECT, DATASET = "local-project", "shop"
SHEET = "1AbC"
ACCOUNT = "bot@local.iam.gserviceaccount.com"
"""Of the service account of `key_file`."""
SHOP = """
CREATE SCHEMA shop; CREATE SCHEMA payroll;
CREATE TABLE shop.orders (id BIGINT, customer VARCHAR, amount DECIMAL(10,2), placed DATE,
    paid BOOLEAN);
INSERT INTO shop.orders VALUES (1, 'Ana', 12.50, '2024-06-30', true),
    (2, 'Bo', 7.25, '2024-07-01', false), (3, NULL, 100, '2024-07-02', true);
CREATE TABLE payroll.salaries (name VARCHAR, pay BIGINT);
INSERT INTO payroll.salaries VALUES ('Eva', 90000);
CREATE VIEW shop.pay_per_head AS SELECT avg(pay) AS pay FROM payroll.salaries;
"""


def shop(**more: Any) -> BigQueryState:
    """A project with two datasets, of which the tests may read one."""
    state = bigquery_of(project=PROJECT)
    state.tables.run(SHOP)
    for name, value in more.items():
        setattr(state, name, value)
    return state


def invalid_requests(google: LocalGoogle, name: str) -> list[str]:
    """Mismatches of all requests with the API's document."""
    assert all(each.method for each in google.requests)
    return [e for each in google.requests for e in body_mismatches(name, each.method, each.body)]


async def at_once(seconds: float) -> None:
    """Return at once, so that no test waits as long as Google asks."""


def client(url: str, **changes: Any) -> GoogleClient:
    limits = {"max_attempts": 3, "timeout_s": 5} | changes
    settings = load_settings(env={}).google.model_copy(update=limits)
    clock = Clock()
    quota = Quota(settings.units_per_minute, clock, clock.sleep)
    return GoogleClient(token_credentials(TOKEN), settings, url, quota, sleep=at_once)


@asynccontextmanager
async def bigquery(
    state: BigQueryState, **options: Any
) -> AsyncIterator[tuple[BigQuery, LocalGoogle]]:
    """The product's client of a dataset; its requests are checked against the document."""
    served = LocalGoogle(bigquery=state)
    try:
        with LocalServer(served.app, "google") as server:
            database = BigQuery(client(server.url), PROJECT, DATASET, **options)
            try:
                yield database, served
                assert invalid_requests(served, "bigquery.v2") == []
            finally:
                await database.aclose()
    finally:
        state.tables.close()  # nothing uses it any more


@asynccontextmanager
async def spreadsheet(book: Book, **options: Any) -> AsyncIterator[tuple[Spreadsheet, LocalGoogle]]:
    """The product's client of a spreadsheet; its requests are checked against the document."""
    served = LocalGoogle(sheets=SheetsState({SHEET: book}))
    with LocalServer(served.app, "google") as server:
        sheet = Spreadsheet(client(server.url, **options), SHEET)
        try:
            yield sheet, served
            assert invalid_requests(served, "sheets.v4") == []
        finally:
            await sheet.aclose()


def key_file(folder: Path) -> Path:
    """Write a service account's key file, as Google Cloud makes it."""
    key = rsa.generate_private_key(65537, 2048)
    pem = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    fields = {
        "type": "service_account",
        "client_email": ACCOUNT,
        "private_key_id": "1",
        "private_key": pem.decode(),
        "token_uri": "https://oauth2.googleapis.com/token",
    }
    path = folder / "google.json"
    path.write_text(json.dumps(fields), "utf-8")
    path.chmod(0o600)
    return path
