"""The local Gmail, Sheets and BigQuery, held to Google's own discovery documents.

What the product asks of them is in test_gmail.py, test_sheets.py and test_bigquery.py.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from google.api_core.client_options import ClientOptions
from google.oauth2.credentials import Credentials
from google_contract import departures, discovery, methods
from googleapiclient.discovery import build  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from standins.bigquery import METHODS as BIGQUERY
from standins.google import TOKEN, LocalGoogle
from standins.google_rules import RULES, Method
from standins.sheets import METHODS as SHEETS

from bot.local.google.gmail_mailbox import METHODS
from bot.local.google.gmail_mime import parts_of, snippet
from bot.local.google.mbox import load_mbox
from bot.local.server import LocalServer

GMAIL = {
    name: Method(*method, rule.units, rule.scopes, rule.query, rule.body)
    for name, method in METHODS.items()
    for rule in (RULES[name],)
}
UNUSED = ("gmail.addons", "gmail.metadata")
"""Beginnings of the scopes that are for apps of another kind."""


@pytest.mark.parametrize(
    ("name", "served"), [("gmail.v1", GMAIL), ("sheets.v4", SHEETS), ("bigquery.v2", BIGQUERY)]
)
def test_every_method_is_the_one_of_googles_document(name: str, served: dict[str, Method]) -> None:
    document = discovery(name)
    for id, method in served.items():
        told = methods(name)[id]
        scopes = {scope.removesuffix("/").rpartition("/")[2] for scope in told["scopes"]}
        query = {n for n, p in told["parameters"].items() if p["location"] == "query"}
        schema = document["schemas"].get(told.get("request", {}).get("$ref"), {})
        path = document["servicePath"] + told["path"].replace("{+", "{")
        assert (method.http, method.path) == (told["httpMethod"], path)
        assert method.scopes == {s for s in scopes if not s.startswith(UNUSED)}, id
        assert method.query == query, id
        assert method.body <= schema.get("properties", {}).keys(), id


@given(st.binary(max_size=300), st.sampled_from(["base64", "quoted-printable", "8bit"]))
def test_no_bytes_are_too_broken_for_a_tree(noise: bytes, encoding: str) -> None:
    head = f"Content-Type: multipart/mixed; boundary=x\nContent-Transfer-Encoding: {encoding}\n"
    for content in (noise, head.encode() + b"\n--x\n" + noise, head.encode() + noise):
        root = parts_of(content)
        assert departures("gmail.v1", "gmail.users.messages.get", {"payload": root.json("1")}) == []
        assert len(snippet(root)) < 2_000


def test_every_message_of_the_dev_mailbox_is_shown_as_the_document_promises(dev_data: Path) -> None:
    mailbox, shown = load_mbox(dev_data / "mail.mbox"), 0
    google = LocalGoogle(mailbox)
    with LocalServer(google.app, "google") as server:
        service = build(
            "gmail",
            "v1",
            credentials=Credentials(TOKEN),  # type: ignore[no-untyped-call]
            client_options=ClientOptions(api_endpoint=server.url),
            static_discovery=True,
        )
        with closing(service):
            for id in google.gmail.threads:
                request = service.users().threads().get(userId="me", id=id)
                body = request.execute()
                assert departures("gmail.v1", request.methodId, body) == []
                shown += len(body["messages"])
    assert shown == len(mailbox.messages)
