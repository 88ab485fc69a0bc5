"""The local Gmail, driven by Google's own client and held to Google's own discovery document."""

import base64
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
from standins.google import TOKEN, Grant, LocalGoogle
from standins.google_rules import RULES

from bot.local.google.gmail_mailbox import METHODS
from bot.local.google.gmail_mime import parts_of, snippet
from bot.local.google.gmail_search import matches, parsed
from bot.local.google.gmail_state import GmailState
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


def raw(message: Entry) -> str:
    return base64.urlsafe_b64encode(message.raw).decode()


def reply(subject: str = "Re: Plan", answers: str = "<a@x>", to: str = "ana@a.example") -> str:
    return raw(mail(subject, "Yes.", sender=f"Bo <{ME}>", to=to, in_reply_to=answers, x_key="k7"))


def text_of(part: Json) -> str:
    return base64.urlsafe_b64decode(part["body"]["data"]).decode()


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


def test_a_thread_has_its_messages_oldest_first(serve: Serve) -> None:
    world = serve(
        mail("Re: Plan", "Second.", days=1, in_reply_to="<a@x>"),
        mail("Plan", "It's <first> & done.", days=2, message_id="<a@x>"),
        mail("Other"),
    )
    profile = world.call(world.users.getProfile(userId="me"))
    assert (profile["emailAddress"], profile["messagesTotal"], profile["threadsTotal"]) == (
        ME,
        3,
        2,
    )
    id = world.gmail.messages[world.id("Plan")].thread
    thread = world.call(world.users.threads().get(userId="me", id=id))
    first, second = thread["messages"]
    assert (first["id"], first["threadId"], thread["id"]) == (id, id, id)
    assert first["snippet"] == "It&#39;s &lt;first&gt; &amp; done."
    assert first["internalDate"] == str(int((NOW - timedelta(days=2)).timestamp() * 1000))
    assert first["labelIds"] == ["INBOX", "UNREAD"]
    assert text_of(second["payload"]) == "Second.\r\n"
    assert thread["historyId"] == max(first["historyId"], second["historyId"])


def test_a_tree_of_parts_is_shown_as_gmail_shows_it(serve: Serve) -> None:
    inner = EmailMessage()
    inner["Subject"], inner["From"] = "Inside", "x@y.example"
    inner.set_content("Innermost.")
    outer = EmailMessage()
    outer["Subject"], outer["From"], outer["To"] = "Größe ≥ 3", "Zoë <z@y.example>", ME
    outer.set_content("Plain: ä€", charset="utf-8", cte="quoted-printable")
    outer.add_alternative(f"<p>Rich: é {'x' * 200}</p>", subtype="html", charset="iso-8859-1")
    outer.add_attachment(b"%PDF-1.7", maintype="application", subtype="pdf", filename="Löhne.pdf")
    outer.add_attachment(inner)
    world = serve(Entry(outer.as_bytes(), frozenset({"INBOX"})), inline_bytes=200)
    (id,) = world.gmail.messages
    attachments = world.users.messages().attachments()

    def fetched(part: Json) -> bytes:
        named = part["body"]["attachmentId"]
        got = world.call(attachments.get(userId="me", messageId=id, id=named))
        assert got["size"] == part["body"]["size"]
        return base64.urlsafe_b64decode(got["data"])

    root = world.call(world.users.messages().get(userId="me", id=id))["payload"]
    assert (root["mimeType"], root["body"]) == ("multipart/mixed", {"size": 0})
    headers = {header["name"]: header["value"] for header in root["headers"]}
    assert (headers["Subject"], headers["From"]) == ("Größe ≥ 3", "Zoë <z@y.example>")
    texts, pdf, nested = root["parts"]
    plain, rich = texts["parts"]
    ids = [part["partId"] for part in (texts, plain, rich, pdf, nested)]
    assert ids == ["0", "0.0", "0.1", "1", "2"]
    assert text_of(plain).strip() == "Plain: ä€"
    assert fetched(rich).decode().startswith("<p>Rich: é")  # too long to stand in the message
    assert (pdf["filename"], "data" in pdf["body"]) == ("Löhne.pdf", False)
    assert fetched(pdf) == b"%PDF-1.7"
    assert (nested["mimeType"], nested["parts"][0]["partId"]) == ("message/rfc822", "2.0")
    assert text_of(nested["parts"][0]) == "Innermost.\r\n"
    other = attachments.get(userId="me", messageId=id, id="other")
    assert world.refused(other)[0] == 400


@given(st.binary(max_size=300), st.sampled_from(["base64", "quoted-printable", "8bit"]))
def test_no_bytes_are_too_broken_for_a_tree(noise: bytes, encoding: str) -> None:
    head = f"Content-Type: multipart/mixed; boundary=x\nContent-Transfer-Encoding: {encoding}\n"
    for content in (noise, head.encode() + b"\n--x\n" + noise, head.encode() + noise):
        root = parts_of(content)
        assert departures("gmail.v1", "gmail.users.messages.get", {"payload": root.json("1")}) == []
        assert len(snippet(root)) < 2_000


# ---- lists and the search language


def test_an_empty_list_has_no_rows_and_a_long_one_is_cut_at_500(serve: Serve) -> None:
    world = serve(*(mail(f"Mail {n}") for n in range(501)))
    listing = world.users.messages().list
    assert world.call(listing(userId="me", q="nothing")) == {"resultSizeEstimate": 0}
    assert len(world.call(listing(userId="me"))["messages"]) == 100
    page = world.call(listing(userId="me", maxResults=9_999))
    assert (len(page["messages"]), page["resultSizeEstimate"]) == (500, 501)


def test_spam_and_trash_are_shown_when_they_are_asked_for(serve: Serve) -> None:
    world = serve(mail("Good"), mail("Bad", labels="SPAM"), mail("Gone", labels="TRASH"))
    assert world.found("") == world.found("-in:spam") == ["Good"]
    assert world.found("in:spam") == world.found("", labelIds=["SPAM"]) == ["Bad"]
    assert sorted(world.found("in:anywhere")) == ["Bad", "Gone", "Good"]
    assert len(world.found("", includeSpamTrash=True)) == 3


@pytest.mark.parametrize(
    ("q", "subjects"),
    [
        ("", "ABCD"),
        ("from:ana@a.example", "AB"),
        ("from:a.example", "ABD"),
        ("from:amse", ""),
        ("from:(cem OR dora)", "CD"),
        ("{from:cem from:dora}", "CD"),
        ("from:cem OR from:dora", "CD"),
        ("to:me", "ABC"),
        ("cc:eva", "B"),
        ("-{from:ana from:cem}", "D"),
        ("-(from:ana has:attachment)", "ACD"),
        ("--from:ana", "AB"),
        ('subject:"annual report"', "D"),
        ("subject:{annual monthly}", "BD"),
        ("munchen", "A"),
        ('"see you in munchen"', "A"),
        ('"you see"', ""),
        ("munchen OR budget cem", "C"),
        ('munchen OR "the budget" OR annual', "ACD"),
        ('(nothing OR "monthly" OR "the budget") after:2026', "BC"),
        ('see budget OR "in munchen"', "A"),
        ("東京", "C"),
        ("invoice.pdf", "B"),
        ("filename:pdf", "B"),
        ("has:attachment", "B"),
        ("in:inbox", "ABC"),
        ("label:inbox -is:unread", "C"),
        ("is:read", "CD"),
        ("is:starred", "C"),
        ("label:key-accounts", "D"),
        ("has:userlabels", "D"),
        ("newer_than:3d", "AB"),
        ("older_than:1y", "D"),
        ("newer_than:soon", ""),
        ("after:2026-03-08 before:2026-03-09", "A"),
        ("before:3/8/2026", "BCD"),
        ("after:1772884800 before:1772884801", ""),
        ("after:1773000000", "A"),
        ("before:never", ""),
        ("after:2026", "ABC"),
        ("OR", "ABCD"),
        ("( from:ana", "AB"),
        ("from:ana )", "AB"),
        ("nosuch:operator", ""),
        ("AND from:ana AND has:attachment", "B"),
    ],
)
def test_the_search_language(q: str, subjects: str) -> None:
    entries = {
        "A": mail("A", "See you in München!", days=1.5),
        "B": mail("B report monthly", days=2.5, files={"invoice.pdf": b"x"}, cc="eva@x.example"),
        "C": mail("C", "The budget. 東京で会う", days=9, labels="INBOX,STARRED",
                  sender="Cem <cem@c.example>"),
        "D": mail("D annual report", days=900, labels="Key accounts",
                  sender="dora@a.example", to="talk@t.example"),
    }  # fmt: skip
    state = GmailState(mailbox_of(entries.values(), ME), now=NOW.timestamp)
    names = dict(zip(state.messages, entries, strict=True))
    found = [names[id] for id, m in state.messages.items() if matches(parsed(q), m, state)]
    assert "".join(found) == subjects


# ---- labels, drafts and sending


def test_other_methods_answer_what_the_document_promises(serve: Serve) -> None:
    world = serve(mail(message_id="<a@x>", x_one="1"))
    drafts, threads, messages = (
        getattr(world.users, name)() for name in ("drafts", "threads", "messages")
    )
    id = world.id("Plan")
    message = {"raw": reply(), "threadId": id}
    made = world.call(drafts.create(userId="me", body={"message": message}))
    assert (made["message"]["labelIds"], made["message"]["threadId"]) == (["DRAFT"], id)
    listed = world.call(drafts.list(userId="me"))["drafts"]
    assert [each["message"]["id"] for each in listed] == [made["message"]["id"]]
    got = world.call(drafts.get(userId="me", id=made["id"], format="metadata"))["message"]
    assert {"name": "X-Key", "value": "k7"} in got["payload"]["headers"]
    assert world.refused(drafts.get(userId="me", id="none"))[0] == 404
    starred = {"addLabelIds": ["STARRED"], "removeLabelIds": ["UNREAD", "INBOX"]}
    changed = world.call(threads.modify(userId="me", id=id, body=starred))
    assert [each["labelIds"] for each in changed["messages"]] == [["STARRED"], ["DRAFT", "STARRED"]]
    shown = {
        form: world.call(messages.get(userId="me", id=id, format=form, metadataHeaders=["x-one"]))
        for form in ("minimal", "raw", "metadata")
    }
    assert base64.urlsafe_b64decode(shown["raw"]["raw"]) == world.gmail.messages[id].raw
    headers = [{"name": "X-One", "value": "1"}]
    assert shown["metadata"]["payload"] == {"mimeType": "text/plain", "headers": headers}
    assert "payload" not in shown["minimal"]


@pytest.mark.parametrize(
    ("subject", "answers", "joins"),
    [("Re: Plan", "<a@x>", True), ("Other", "<a@x>", False), ("Re: Plan", "<b@x>", False)],
)
def test_a_reply_joins_its_thread_by_reference_and_subject_only(
    serve: Serve, subject: str, answers: str, joins: bool
) -> None:
    world = serve(mail(message_id="<a@x>"))
    thread = world.gmail.messages[world.id("Plan")].thread
    body = {"raw": reply(subject, answers), "threadId": thread}
    sent = world.call(world.users.messages().send(userId="me", body=body))
    assert (sent["threadId"] == thread) is joins


def test_what_is_sent_comes_from_this_mailbox_with_a_message_id_of_gmails(serve: Serve) -> None:
    world = serve(mail())
    boss = mail("Hi", sender="Boss <boss@b.example>", to=ME, message_id="<mine@x>", x_key="k7")
    sent = world.call(world.users.messages().send(userId="me", body={"raw": raw(boss)}))
    assert sent["labelIds"] == ["INBOX", "SENT", "UNREAD"]
    headers = dict(world.gmail.messages[sent["id"]].headers)
    assert headers["From"] == ME
    assert headers["Message-ID"].endswith("@mail.gmail.com>")
    assert (headers["X-Key"], "Date" in headers) == ("k7", True)


# ---- history


def test_history_tells_what_came_and_went_in_pages_until_it_is_forgotten(serve: Serve) -> None:
    world = serve(mail(message_id="<a@x>"))
    since, history = world.history(), world.users.history()
    assert world.call(history.list(userId="me", startHistoryId=since)) == {"historyId": since}
    answer = world.gmail.add(mail("Re: Plan", in_reply_to="<a@x>").raw, ["INBOX"])
    assert answer.thread == world.gmail.messages[world.id("Plan")].thread
    new = [answer.id, *(world.gmail.add(mail(f"New {n}").raw, ["INBOX"]).id for n in range(2))]
    world.gmail.relabel(new[:1], ["STARRED"], [])
    world.gmail.remove(new[1])
    seen: list[Json] = []
    request = history.list(userId="me", startHistoryId=since, maxResults=2)
    while request is not None:
        page = world.call(request)
        seen += page["history"]
        request = history.list_next(request, page)
    kinds = [sorted(record.keys() - {"id", "messages"})[0] for record in seen]
    assert kinds == [*["messagesAdded"] * 3, "labelsAdded", "messagesDeleted"]
    assert page["historyId"] == seen[-1]["id"]
    added = history.list(userId="me", startHistoryId=since, historyTypes=["messageAdded"])
    assert [r["messages"][0]["id"] for r in world.call(added)["history"]] == new
    world.gmail.forget_history()
    for start, refusal in ((since, 404), ("9" * 15, 404), ("soon", 400)):
        assert world.refused(history.list(userId="me", startHistoryId=start))[0] == refusal
    now = world.history()
    assert world.call(history.list(userId="me", startHistoryId=now)) == {"historyId": now}


# ---- tokens and failures


def test_a_token_opens_its_own_mailbox_only_and_within_its_scopes_and_time(serve: Serve) -> None:
    other = {"issued": ME, "stranger": "x@y.example"}
    world = serve(mail("Of Bo"), whose=other.get)
    world.google.join(mailbox_of([mail("Of Cem")], "cem@c.example"), "cems")
    world.google.tokens["reads"] = Grant(ME, frozenset({"gmail.readonly"}))
    world.google.tokens["old"] = Grant(ME, expires=NOW.timestamp())
    for token in ("old", "none", "", "stranger"):
        answer = world.ask("profile", token=token)
        assert (answer.status, answer.body["error"]["errors"][0]["reason"]) == (401, "authError")
        assert "invalid_token" in answer.headers["www-authenticate"]
    assert world.ask("profile", token="cems").body["emailAddress"] == "cem@c.example"
    assert world.ask("profile", token="issued").body["emailAddress"] == ME
    assert world.ask(f"messages/{world.id('Of Bo')}", token="cems").status == 404
    assert world.ask("profile", user=ME).status == 200
    foreign = world.ask("profile", user="cem@c.example")
    assert (foreign.status, foreign.body["error"]["message"]) == (
        403,
        "Delegation denied for cem@c.example",
    )
    assert world.ask("threads", token="reads").status == 200
    narrow = world.ask("drafts", token="reads", body={"message": {"raw": reply()}})
    assert narrow.body["error"]["errors"][0]["reason"] == "insufficientPermissions"
    assert narrow.body["error"]["status"] == "PERMISSION_DENIED"
    del world.google.tokens[TOKEN]
    assert world.ask("profile").status == 401


def test_what_google_would_refuse_is_refused_in_its_shape(serve: Serve) -> None:
    world = serve(mail())
    rows: list[tuple[str, bytes | None, int]] = [
        ("nothing", None, 404),
        ("threads?colour=red", None, 400),
        ("threads?maxResults=few", None, 400),
        ("threads?labelIds=none", None, 400),
        ("threads/no", None, 404),
        ("drafts", b"{", 400),
        ("drafts", b"[]", 400),
        ("drafts", b"{}", 400),
    ]
    for path, data, code in rows:
        answer = world.ask(path, data=data)
        assert (answer.status, answer.body["error"]["code"]) == (code, code)


def test_every_message_of_the_dev_mailbox_is_shown_as_the_document_promises(
    serve: Serve, dev_data: Path
) -> None:
    mailbox = load_mbox(dev_data / "mail.mbox")
    world = serve(mailbox=mailbox)
    threads, shown = world.users.threads(), 0
    for id in world.gmail.threads:
        shown += len(world.call(threads.get(userId="me", id=id))["messages"])
    assert shown == len(mailbox.messages)
