"""The local Gmail, Sheets and BigQuery match Google's own discovery documents.

The product's calls to them are in test_gmail.py, test_sheets.py and test_bigquery.py.
"""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from google.api_core.client_options import ClientOptions
from google.oauth2.credentials import Credentials
from google_contract import departures
from googleapiclient.discovery import build  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from standins.google import TOKEN, LocalGoogle

from bot.local.google.gmail_mime import parts_of, snippet
from bot.local.google.mbox import load_mbox
from bot.local.server import LocalServer


@given(st.binary(max_size=300), st.sampled_from(["base64", "quoted-printable", "8bit"]))
def test_any_bytes_are_parsed_into_a_valid_message_tree(noise: bytes, encoding: str) -> None:
    head = f"Content-Type: multipart/mixed; boundary=x\nContent-Transfer-Encoding: {encoding}\n"
    for content in (noise, head.encode() + b"\n--x\n" + noise, head.encode() + noise):
        root = parts_of(content)
        assert departures("gmail.v1", "gmail.users.messages.get", {"payload": root.json("1")}) == []
        assert len(snippet(root)) < 2_000


def test_every_message_of_the_dev_mailbox_matches_the_discovery_document(dev_data: Path) -> None:
    mailbox, count = load_mbox(dev_data / "mail.mbox"), 0
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
                count += len(body["messages"])
    assert count == len(mailbox.messages)
