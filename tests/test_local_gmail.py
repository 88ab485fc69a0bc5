"""The local Gmail, driven by Google's own client and held to Google's own discovery document."""

import http.client
import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from email.message import EmailMessage
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from google.api_core.client_options import ClientOptions
from google.oauth2.credentials import Credentials
from google_contract import departures, discovery, methods
from googleapiclient.discovery import build  # type: ignore[import-untyped]
from googleapiclient.errors import HttpError  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from standins.google import TOKEN, LocalGoogle
from standins.google_rules import RULES

from bot.local.google.gmail_mailbox import METHODS
from bot.local.google.gmail_mime import parts_of, snippet
from bot.local.google.mbox import Entry, Mailbox, load_mbox, mailbox_of
from bot.local.server import LocalServer

Json = dict[str, Any]
ME = "bo@b.example"
NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)


def mail(
    subject: str = "Plan",
    body: str = "Hello.",
    *,
    days: float = 1,
    labels: str = "INBOX,UNREAD",
    sender: str = "Ana Amsel <ana@a.example>",
    to: str = f"Bo <{ME}>",
    files: dict[str, bytes] | None = None,
    **headers: str,
) -> Entry:
    """A message that came some days before NOW."""
    message = EmailMessage()
    message["From"], message["To"], message["Subject"] = sender, to, subject
    message["Date"] = NOW - timedelta(days=days)
    for name, value in headers.items():
        message[name.title().replace("_", "-")] = value
    message.set_content(body)
    for name, content in (files or {}).items():
        message.add_attachment(content, maintype="application", subtype="pdf", filename=name)
    return Entry(message.as_bytes(), frozenset(labels.split(",")) - {""})


class World:
    """A local Google, and a client of it whose every answer is checked."""

    def __init__(self, google: LocalGoogle, url: str) -> None:
        self.google, self.gmail, self.url = google, google.gmail, url
        self.service = build(
            "gmail",
            "v1",
            credentials=Credentials(TOKEN),  # type: ignore[no-untyped-call]
            client_options=ClientOptions(api_endpoint=url),
            static_discovery=True,
        )
        self.users = self.service.users()

    def call(self, request: Any) -> Json:
        """The answer to a request, as its discovery document promises it."""
        body = request.execute()
        assert departures("gmail.v1", request.methodId, body) == []
        return dict(body or {})

    def refused(self, request: Any) -> tuple[int, str, str]:
        """Status, reason and message of a refusal."""
        with pytest.raises(HttpError) as error:
            request.execute()
        body = json.loads(error.value.content)["error"]
        assert body["code"] == error.value.status_code
        assert body["status"].isupper()
        return body["code"], body["errors"][0]["reason"], body["message"]

    def found(self, q: str, **more: Any) -> list[str]:
        """Subjects of the messages that a search finds, newest first."""
        rows = self.call(self.users.messages().list(userId="me", q=q, **more)).get("messages", [])
        return [self.subject(row["id"]) for row in rows]

    def subject(self, id: str) -> str:
        headers = self.gmail.messages[id].headers
        return next(value for name, value in headers if name == "Subject")

    def id(self, subject: str) -> str:
        return next(id for id in self.gmail.messages if self.subject(id) == subject)

    def history(self) -> str:
        return str(self.call(self.users.getProfile(userId="me"))["historyId"])

    def ask(
        self,
        path: str,
        *,
        token: str = TOKEN,
        user: str = "me",
        body: Json | None = None,
        data: bytes | None = None,
        timeout_s: float = 20,
    ) -> SimpleNamespace:
        """One bare request, sent once: Google's client sends again when a connection drops."""
        place = self.url.removeprefix("http://")
        connection = http.client.HTTPConnection(place, timeout=timeout_s)
        content = json.dumps(body).encode() if body is not None else data
        headers = {"authorization": f"Bearer {token}"}
        try:
            verb = "GET" if content is None else "POST"
            connection.request(verb, f"/gmail/v1/users/{user}/{path}", content, headers)
            answer = connection.getresponse()
            read = json.loads(answer.read())
            return SimpleNamespace(status=answer.status, body=read, headers=answer.headers)
        finally:
            connection.close()


Serve = Callable[..., World]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """A function that serves a mailbox of these messages."""
    running: list[tuple[LocalServer, World]] = []

    def served(*entries: Entry, mailbox: Mailbox | None = None, **options: Any) -> World:
        google = LocalGoogle(mailbox or mailbox_of(entries, ME), now=NOW.timestamp, **options)
        server = LocalServer(google.app, "google")
        running.append((server, World(google, server.start())))
        return running[-1][1]

    yield served
    for server, world in running:
        world.service.close()
        server.stop()


# ---- what is served


def test_every_method_is_the_one_of_googles_document() -> None:
    known = methods("gmail.v1")
    own = {"addons", "metadata"}
    for name, method in METHODS.items():
        told = known[name]
        scopes = {scope.removesuffix("/").rpartition("/")[2] for scope in told["scopes"]}
        query = {n for n, p in told["parameters"].items() if p["location"] == "query"}
        schema = discovery("gmail.v1")["schemas"].get(told.get("request", {}).get("$ref"), {})
        assert (method.http, method.path) == (told["httpMethod"], told["path"])
        rule = RULES[name]
        assert rule.scopes == {s for s in scopes if s.split(".")[1] not in own}, name
        assert rule.query == query, name
        assert rule.body <= schema.get("properties", {}).keys(), name


@given(st.binary(max_size=300), st.sampled_from(["base64", "quoted-printable", "8bit"]))
def test_no_bytes_are_too_broken_for_a_tree(noise: bytes, encoding: str) -> None:
    head = f"Content-Type: multipart/mixed; boundary=x\nContent-Transfer-Encoding: {encoding}\n"
    for content in (noise, head.encode() + b"\n--x\n" + noise, head.encode() + noise):
        root = parts_of(content)
        assert departures("gmail.v1", "gmail.users.messages.get", {"payload": root.json("1")}) == []
        assert len(snippet(root)) < 2_000


# ---- tokens and failures


def test_every_message_of_the_dev_mailbox_is_shown_as_the_document_promises(
    serve: Serve, dev_data: Path
) -> None:
    mailbox = load_mbox(dev_data / "mail.mbox")
    world = serve(mailbox=mailbox)
    threads, shown = world.users.threads(), 0
    for id in world.gmail.threads:
        shown += len(world.call(threads.get(userId="me", id=id))["messages"])
    assert shown == len(mailbox.messages)
