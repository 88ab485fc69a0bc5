"""The local Gmail, driven by Google's own client and held to Google's own discovery document."""

import base64
import http.client
import json
import time
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
from googleapiclient.http import BatchHttpRequest  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st

from bot.local.google.errors import REASONS
from bot.local.google.faults import Fault
from bot.local.google.fields import selected
from bot.local.google.gmail_mailbox import METHODS
from bot.local.google.gmail_match import matches
from bot.local.google.gmail_mime import MAX_PARTS, parts_of, snippet
from bot.local.google.gmail_query import parsed
from bot.local.google.gmail_state import GmailState
from bot.local.google.mbox import Entry, Mailbox, load_mbox, mailbox_of
from bot.local.google.server import TOKEN, Grant, LocalGoogle
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


def box(*entries: Entry) -> Mailbox:
    return mailbox_of(entries, ME)


class World:
    """A local Google, and a client of it whose every answer is checked."""

    def __init__(self, google: LocalGoogle, url: str) -> None:
        self.google, self.gmail, self.url = google, google.gmail, url
        self.service = self.client(TOKEN)
        self.users = self.service.users()

    def client(self, token: str) -> Any:
        return build(
            "gmail",
            "v1",
            credentials=Credentials(token),  # type: ignore[no-untyped-call]
            client_options=ClientOptions(api_endpoint=self.url),
            static_discovery=True,
        )

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


@pytest.fixture
def serve() -> Iterator[Callable[..., World]]:
    """A function that serves a mailbox of these messages."""
    running: list[tuple[LocalServer, World]] = []

    def served(*entries: Entry, mailbox: Mailbox | None = None, **options: Any) -> World:
        google = LocalGoogle(mailbox or box(*entries), now=NOW.timestamp, **options)
        server = LocalServer(google.app, "google")
        running.append((server, World(google, server.start())))
        return running[-1][1]

    yield served
    for server, world in running:
        world.service.close()
        server.stop()


Serve = Callable[..., World]


def raw(message: Entry) -> str:
    return base64.urlsafe_b64encode(message.raw).decode()


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
        assert method.scopes == {s for s in scopes if s.split(".")[1] not in own}, name
        assert method.query == query, name
        assert method.body <= schema.get("properties", {}).keys(), name


def test_a_profile_counts_the_mailbox(serve: Serve) -> None:
    world = serve(mail(message_id="<a@x>"), mail(in_reply_to="<a@x>"), mail("Other"))
    profile = world.call(world.users.getProfile(userId="me"))
    assert profile["emailAddress"] == ME
    assert (profile["messagesTotal"], profile["threadsTotal"]) == (3, 2)


def test_a_thread_has_its_messages_oldest_first(serve: Serve) -> None:
    world = serve(
        mail("Re: Plan", "Second.", days=1, in_reply_to="<a@x>"),
        mail("Plan", "It's <first> & done.", days=2, message_id="<a@x>"),
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


def test_the_formats_of_a_message(serve: Serve) -> None:
    entry = mail("Plan", "Hello.", x_one="1", labels="")
    world = serve(entry)
    id = world.id("Plan")

    def got(**options: Any) -> Json:
        return world.call(world.users.messages().get(userId="me", id=id, **options))

    minimal = got(format="minimal")
    assert minimal.keys() == {
        "id",
        "threadId",
        "snippet",
        "historyId",
        "internalDate",
        "sizeEstimate",
    }
    assert base64.urlsafe_b64decode(got(format="raw")["raw"]) == world.gmail.messages[id].raw
    assert "payload" not in got(format="raw")
    some = got(format="metadata", metadataHeaders=["subject", "X-One"])["payload"]
    assert some == {
        "mimeType": "text/plain",
        "headers": [{"name": "Subject", "value": "Plan"}, {"name": "X-One", "value": "1"}],
    }
    assert len(got(format="metadata")["payload"]["headers"]) > 5
    assert got()["payload"]["partId"] == ""


def test_a_tree_of_parts_is_shown_as_gmail_shows_it(serve: Serve) -> None:
    inner = EmailMessage()
    inner["Subject"], inner["From"] = "Inside", "x@y.example"
    inner.set_content("Innermost.")
    outer = EmailMessage()
    outer["Subject"], outer["From"], outer["To"] = "Größe ≥ 3", "Zoë <z@y.example>", ME
    outer.set_content("Plain: ä€", charset="utf-8", cte="quoted-printable")
    outer.add_alternative("<p>Rich: é</p>", subtype="html", charset="iso-8859-1")
    outer.add_attachment(b"%PDF-1.7", maintype="application", subtype="pdf", filename="Löhne.pdf")
    outer.add_attachment(inner)
    world = serve(Entry(outer.as_bytes(), frozenset({"INBOX"})))
    (id,) = world.gmail.messages
    message = world.call(world.users.messages().get(userId="me", id=id))
    root = message["payload"]
    assert (root["mimeType"], root["body"]) == ("multipart/mixed", {"size": 0})
    headers = {header["name"]: header["value"] for header in root["headers"]}
    assert (headers["Subject"], headers["From"]) == ("Größe ≥ 3", "Zoë <z@y.example>")
    texts, pdf, nested = root["parts"]
    assert [part["partId"] for part in (texts, *texts["parts"], pdf, nested)] == [
        "0", "0.0", "0.1", "1", "2",
    ]  # fmt: skip
    assert [text_of(part).strip() for part in texts["parts"]] == ["Plain: ä€", "<p>Rich: é</p>"]
    assert (pdf["filename"], pdf["body"]["size"]) == ("Löhne.pdf", 8)
    assert "data" not in pdf["body"]
    got = world.call(
        world.users.messages()
        .attachments()
        .get(userId="me", messageId=id, id=pdf["body"]["attachmentId"])
    )
    assert base64.urlsafe_b64decode(got["data"]) == b"%PDF-1.7"
    assert nested["mimeType"] == "message/rfc822"
    assert nested["parts"][0]["partId"] == "2.0"
    assert text_of(nested["parts"][0]) == "Innermost.\r\n"
    assert {"name": "Subject", "value": "Inside"} in nested["parts"][0]["headers"]


def test_a_long_text_comes_as_an_attachment(serve: Serve) -> None:
    world = serve(mail("Long", "word " * 100), inline_bytes=200)
    id = world.id("Long")
    body = world.call(world.users.messages().get(userId="me", id=id))["payload"]["body"]
    attachments = world.users.messages().attachments()
    got = world.call(attachments.get(userId="me", messageId=id, id=body["attachmentId"]))
    assert got["size"] == body["size"] > 500
    assert base64.urlsafe_b64decode(got["data"]).startswith(b"word word")
    assert world.refused(attachments.get(userId="me", messageId=id, id="other"))[0] == 400


@pytest.mark.parametrize(
    ("content", "parts"),
    [
        (b"Content-Type: multipart/mixed; boundary=x\n\nno part at all", ["text/plain"]),
        (b"Content-Type: multipart/mixed\n\n--x\n\na\n--x--", ["text/plain"]),
        (b"Content-Type: nonsense\n\na", ["text/plain"]),
        (b"Content-Type: multipart/mixed; boundary=x\n\n--x\n\na\n--x\n\nb", [
            "multipart/mixed", "text/plain", "text/plain",
        ]),
        (b"Content-Type: multipart/digest; boundary=x\n\n--x\n\nSubject: a\n\nb\n--x--", [
            "multipart/digest", "message/rfc822", "text/plain",
        ]),
        (b"Content-Transfer-Encoding: base64\n\nQUJD*RA", ["text/plain"]),
        (b"", ["text/plain"]),
    ],
)  # fmt: skip
def test_broken_mime_is_read_as_text(content: bytes, parts: list[str]) -> None:
    assert [part.kind for part in parts_of(content).walk()] == parts


def test_parts_beyond_all_measure_are_left_out() -> None:
    many = b"Content-Type: multipart/mixed; boundary=x\n\n" + b"--x\n\na\n" * 10_000
    assert len(list(parts_of(many).walk())) == MAX_PARTS + 1
    deep = b"".join(
        b"Content-Type: multipart/a; boundary=b%d\n\n--b%d\n" % (n, n) for n in range(3_000)
    )
    assert len(list(parts_of(deep + b"\nend").walk())) < 50


@given(st.binary(max_size=300), st.sampled_from(["base64", "quoted-printable", "8bit"]))
def test_no_bytes_are_too_broken_for_a_tree(noise: bytes, encoding: str) -> None:
    head = f"Content-Type: multipart/mixed; boundary=x\nContent-Transfer-Encoding: {encoding}\n"
    for content in (noise, head.encode() + b"\n--x\n" + noise, head.encode() + noise):
        root = parts_of(content)
        assert departures("gmail.v1", "gmail.users.messages.get", {"payload": root.json("1")}) == []
        assert len(snippet(root)) < 2_000


@pytest.mark.parametrize(
    ("fields", "keys"),
    [
        ("id", {"id": "1"}),
        ("id,payload(mimeType,parts/partId)", {
            "id": "1", "payload": {"mimeType": "m", "parts": [{"partId": "0"}]},
        }),
        ("payload/*/partId", {"payload": {"mimeType": "m", "parts": [{"partId": "0"}]}}),
        ("none", {}),
    ],
)  # fmt: skip
def test_fields_leave_the_rest_of_an_answer_out(fields: str, keys: Json) -> None:
    part = {"partId": "0", "filename": ""}
    body = {"id": "1", "snippet": "s", "payload": {"mimeType": "m", "parts": [part]}}
    assert selected(body, fields) == keys
    assert selected(body, "") == body


def test_fields_are_taken_by_every_method_and_refused_where_they_are_none(serve: Serve) -> None:
    world = serve(mail())
    listed = world.call(world.users.threads().list(userId="me", fields="threads(id)"))
    assert listed == {"threads": [{"id": world.id("Plan")}]}
    for fields in ("id(", "a//b", "(", "a b)", "a,,b", "<x>", "a(" * 30 + "b" + ")" * 30):
        code, _, why = world.refused(world.users.threads().list(userId="me", fields=fields))
        assert (code, why.startswith("Invalid field selection")) == (400, True)


def test_the_contract_sees_what_no_document_promises() -> None:
    get = "gmail.users.messages.get"
    for body, why in [
        ({"colour": "red"}, "is in no document"),
        ({"internalDate": 17}, "not digits in a string"),
        ({"internalDate": "9" * 30}, "beyond int64"),
        ({"sizeEstimate": "17"}, "not a number"),
        ({"labelIds": "INBOX"}, "not array"),
        ({"payload": {"body": {"data": "a?"}}}, "no base64url"),
        ({"payload": []}, "not object"),
    ]:
        assert [why in each for each in departures("gmail.v1", get, body)] == [True]
    label = departures("gmail.v1", "gmail.users.labels.get", {"type": "mine"})
    assert "none of ['system', 'user']" in label[0]
    assert departures("gmail.v1", "gmail.users.stop", {"id": "1"}) != []


# ---- lists and the search language


def test_a_list_goes_on_over_pages_although_mail_comes_in_between(serve: Serve) -> None:
    world = serve(*(mail(f"Mail {n}", days=n) for n in range(1, 8)))
    seen: list[str] = []
    request = world.users.threads().list(userId="me", maxResults=3)
    while request is not None:
        page = world.call(request)
        seen += [world.subject(row["id"]) for row in page["threads"]]
        world.gmail.add(mail("New", days=0).raw, ["INBOX"])
        request = world.users.threads().list_next(request, page)
    assert seen == [f"Mail {n}" for n in range(1, 8)]
    assert world.refused(world.users.threads().list(userId="me", pageToken="?")) == (
        400,
        "invalidArgument",
        "Invalid pageToken",
    )


def test_an_empty_list_has_no_rows_and_a_long_one_is_cut_at_500(serve: Serve) -> None:
    world = serve(*(mail(f"Mail {n}") for n in range(501)))
    assert world.call(world.users.messages().list(userId="me", q="nothing")) == {
        "resultSizeEstimate": 0
    }
    assert len(world.call(world.users.messages().list(userId="me"))["messages"]) == 100
    page = world.call(world.users.messages().list(userId="me", maxResults=9_999))
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
        ("from:ana", "AB"),
        ("from:ana@a.example", "AB"),
        ("from:a.example", "ABD"),
        ("from:amse", ""),
        ("from:(cem OR dora)", "CD"),
        ("{from:cem from:dora}", "CD"),
        ("from:cem OR from:dora", "CD"),
        ("from:me", ""),
        ("to:me", "ABC"),
        ("cc:eva", "B"),
        ("-from:ana", "CD"),
        ("-{from:ana from:cem}", "D"),
        ("-(from:ana has:attachment)", "ACD"),
        ("--from:ana", "AB"),
        ("subject:report", "BD"),
        ('subject:"annual report"', "D"),
        ("subject:(annual report)", "D"),
        ("subject:{annual monthly}", "BD"),
        ("MÜNCHEN", "A"),
        ("munchen", "A"),
        ('"see you in munchen"', "A"),
        ('"you see"', ""),
        ("see munchen", "A"),
        ("munchen OR budget cem", "C"),
        ("東京", "C"),
        ("invoice.pdf", "B"),
        ("filename:pdf", "B"),
        ("filename:invoice", "B"),
        ("has:attachment", "B"),
        ("-has:attachment from:ana", "A"),
        ("in:inbox", "ABC"),
        ("label:inbox -is:unread", "C"),
        ("is:read", "CD"),
        ("is:starred", "C"),
        ("is:important", ""),
        ("label:key-accounts", "D"),
        ('label:"key accounts"', "D"),
        ("has:userlabels", "D"),
        ("has:nouserlabels", "ABC"),
        ("newer_than:3d", "AB"),
        ("older_than:3d", "CD"),
        ("older_than:1y", "D"),
        ("newer_than:soon", ""),
        ("after:2026/03/08", "A"),
        ("after:2026-03-08 before:2026-03-09", "A"),
        ("after:2026-03-09", ""),
        ("before:3/8/2026", "BCD"),
        ("after:1773000000", "A"),
        ("after:1772884800 before:1772884801", ""),
        ("before:never", ""),
        ("after:0", "ABCD"),
        ("after:2026", "ABC"),
        ("larger:10K", "B"),
        ("smaller:1M larger:10000", "B"),
        ("size:10k", "B"),
        ("rfc822msgid:c@x", "C"),
        ("rfc822msgid:<c@x>", "C"),
        ("list:talk.example", "D"),
        ("deliveredto:bo@b.example", "C"),
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
        "B": mail("B report monthly", days=2.5, files={"invoice.pdf": b"x" * 9_000},
                  cc="eva@x.example"),
        "C": mail("C", "The budget. 東京で会う", days=9, labels="INBOX,STARRED",
                  sender="Cem <cem@c.example>", message_id="<c@x>", delivered_to=ME),
        "D": mail("D annual report", days=900, labels="Key accounts",
                  sender="dora@a.example", to="talk@t.example", list_id="<talk.example>"),
    }  # fmt: skip
    state = GmailState(box(*entries.values()), now=NOW.timestamp)
    names = dict(zip(state.messages, entries, strict=True))
    assert (
        "".join(names[id] for id, m in state.messages.items() if matches(parsed(q), m, state))
        == subjects
    )


def test_a_query_that_is_nested_beyond_sense_is_refused(serve: Serve) -> None:
    world = serve(mail())
    for q in ("(" * 3_000, "-" * 3_000 + "a"):
        code, reason, _ = world.refused(world.users.threads().list(userId="me", q=q))
        assert (code, reason) == (400, "invalidArgument")


@given(st.text(alphabet='ab(){}":- ORfromin', max_size=40))
def test_no_query_raises(q: str) -> None:
    state = GmailState(box(mail()), now=NOW.timestamp)
    for held in state.messages.values():
        assert matches(parsed(q), held, state) in (True, False)


# ---- labels, drafts and sending


def test_labels_of_a_thread_change_on_all_its_messages_and_leave_a_trace(serve: Serve) -> None:
    answer = mail("Re: Plan", days=0.5, in_reply_to="<a@x>")
    world = serve(mail(message_id="<a@x>"), answer, mail("Other"))
    (thread,) = {world.gmail.messages[world.id(s)].thread for s in ("Plan", "Re: Plan")}
    before = world.call(world.users.getProfile(userId="me"))["historyId"]
    label = world.call(world.users.labels().create(userId="me", body={"name": "Key accounts"}))
    body = {"addLabelIds": [label["id"]], "removeLabelIds": ["UNREAD"]}
    for _ in range(2):
        changed = world.call(world.users.threads().modify(userId="me", id=thread, body=body))
        assert [m["labelIds"] for m in changed["messages"]] == [["INBOX", label["id"]]] * 2
    assert world.found("label:key-accounts -is:unread") == ["Re: Plan", "Plan"]
    history = world.call(world.users.history().list(userId="me", startHistoryId=before))["history"]
    assert [sorted(record.keys() - {"id", "messages"}) for record in history] == [
        ["labelsAdded"],
        ["labelsRemoved"],
    ] * 2
    counted = world.call(world.users.labels().get(userId="me", id=label["id"]))
    assert (counted["messagesTotal"], counted["threadsTotal"]) == (2, 1)


def test_labels_that_are_wrong_are_refused(serve: Serve) -> None:
    world = serve(mail())
    threads, labels = world.users.threads(), world.users.labels()
    id = world.id("Plan")
    assert world.call(labels.create(userId="me", body={"name": "One"}))["type"] == "user"
    assert world.refused(labels.create(userId="me", body={"name": "ONE"}))[:2] == (409, "aborted")
    for name in ("", "inbox", "x" * 226):
        assert (
            world.refused(labels.create(userId="me", body={"name": name}))[2]
            == "Invalid label name"
        )
    for body, why in [
        ({"addLabelIds": ["Label_99"]}, "Invalid label: Label_99"),
        ({"addLabelIds": ["SENT"]}, "Invalid label: SENT"),
        ({}, "No label add or removes specified"),
        ({"addLabelIds": ["STARRED"], "removeLabelIds": ["STARRED"]}, "Cannot both add and remove"),
        ({"add": ["STARRED"]}, 'Unknown name "add"'),
    ]:
        code, _, message = world.refused(threads.modify(userId="me", id=id, body=body))
        assert (code, why in message) == (400, True)
    assert (
        world.refused(threads.modify(userId="me", id="no", body={"addLabelIds": ["STARRED"]}))[0]
        == 404
    )
    assert [r["id"] for r in world.call(labels.list(userId="me"))["labels"]][-1] == "Label_1"


def test_messages_are_relabelled_and_trashed_one_by_one_and_in_batches(serve: Serve) -> None:
    world = serve(mail("A"), mail("B"), mail("C"))
    messages = world.users.messages()
    body = {"ids": [world.id("A"), world.id("B"), "gone"], "addLabelIds": ["STARRED"]}
    world.call(messages.batchModify(userId="me", body=body))
    assert sorted(world.found("is:starred")) == ["A", "B"]
    many = {"ids": ["x"] * 1001, "addLabelIds": ["STARRED"]}
    assert world.refused(messages.batchModify(userId="me", body=many))[2].startswith(
        "Number of ids"
    )
    one = messages.modify(userId="me", id=world.id("A"), body={"removeLabelIds": ["STARRED"]})
    assert world.call(one)["labelIds"] == ["INBOX", "UNREAD"]
    assert "TRASH" in world.call(messages.trash(userId="me", id=world.id("B")))["labelIds"]
    world.call(world.users.threads().trash(userId="me", id=world.id("C")))
    assert world.found("") == ["A"]


def reply(subject: str = "Re: Plan", answers: str = "<a@x>", to: str = "ana@a.example") -> str:
    return raw(mail(subject, "Yes.", sender=f"Bo <{ME}>", to=to, in_reply_to=answers, x_key="k7"))


def test_a_draft_waits_in_its_thread_until_it_is_changed_sent_or_deleted(serve: Serve) -> None:
    world = serve(mail(message_id="<a@x>"))
    drafts, thread = world.users.drafts(), world.gmail.messages[world.id("Plan")].thread
    message = {"raw": reply(), "threadId": thread}
    made = world.call(drafts.create(userId="me", body={"message": message}))
    assert made["message"]["labelIds"] == ["DRAFT"]
    assert made["message"]["threadId"] == thread
    changed = world.call(drafts.update(userId="me", id=made["id"], body={"message": message}))
    assert changed["id"] == made["id"]
    assert changed["message"]["id"] != made["message"]["id"]
    listed = world.call(drafts.list(userId="me"))["drafts"]
    assert [each["message"]["id"] for each in listed] == [changed["message"]["id"]]
    got = world.call(drafts.get(userId="me", id=made["id"], format="metadata"))["message"]
    assert {"name": "X-Key", "value": "k7"} in got["payload"]["headers"]
    sent = world.call(drafts.send(userId="me", body={"id": made["id"]}))
    assert (sent["labelIds"], sent["threadId"]) == (["SENT"], thread)
    assert world.gmail.sent == [sent["id"]]
    assert world.call(drafts.list(userId="me")) == {"resultSizeEstimate": 0}
    assert world.refused(drafts.send(userId="me", body={"id": made["id"]}))[0] == 404
    other = world.call(drafts.create(userId="me", body={"message": {"raw": reply()}}))
    world.call(drafts.delete(userId="me", id=other["id"]))
    assert world.gmail.drafts == {}
    assert len(world.gmail.threads) == 1


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
    forged = raw(
        mail("Hi", sender="Boss <boss@b.example>", to=ME, message_id="<mine@x>", x_key="k7")
    )
    sent = world.call(world.users.messages().send(userId="me", body={"raw": forged}))
    assert sent["labelIds"] == ["INBOX", "SENT", "UNREAD"]
    headers = dict(world.gmail.messages[sent["id"]].headers)
    assert headers["From"] == ME
    assert headers["Message-ID"].endswith("@mail.gmail.com>")
    assert headers["X-Key"] == "k7"
    assert "Date" in headers


@pytest.mark.parametrize(
    ("body", "code", "why"),
    [
        ({}, 400, "'raw' RFC822 payload message string is required"),
        ({"raw": "?"}, 400, "Invalid value at 'raw'"),
        ({"raw": raw(mail(to=""))}, 400, "Recipient address required"),
        ({"raw": raw(mail()), "threadId": "no"}, 404, "Requested entity was not found."),
    ],
)
def test_what_cannot_be_sent_is_refused(serve: Serve, body: Json, code: int, why: str) -> None:
    world = serve(mail())
    refused = world.refused(world.users.messages().send(userId="me", body=body))
    assert (refused[0], refused[2]) == (code, why)
    assert world.gmail.sent == []


# ---- history


def test_history_tells_what_came_and_went_in_pages(serve: Serve) -> None:
    world = serve(mail())
    since = world.call(world.users.getProfile(userId="me"))["historyId"]
    history = world.users.history()
    assert world.call(history.list(userId="me", startHistoryId=since)) == {"historyId": since}
    new = [world.gmail.add(mail(f"New {n}").raw, ["INBOX"]).id for n in range(3)]
    world.gmail.relabel(new[:1], ["STARRED"], [])
    world.gmail.remove(new[1])
    seen: list[Json] = []
    request = history.list(userId="me", startHistoryId=since, maxResults=2)
    while request is not None:
        page = world.call(request)
        seen += page["history"]
        request = history.list_next(request, page)
    assert [sorted(record.keys() - {"id", "messages"})[0] for record in seen] == [
        "messagesAdded", "messagesAdded", "messagesAdded", "labelsAdded", "messagesDeleted",
    ]  # fmt: skip
    assert page["historyId"] == seen[-1]["id"]
    added = history.list(userId="me", startHistoryId=since, historyTypes=["messageAdded"])
    assert [r["messages"][0]["id"] for r in world.call(added)["history"]] == new
    starred = history.list(userId="me", startHistoryId=since, labelId="STARRED")
    assert len(world.call(starred)["history"]) == 1


def test_history_that_is_too_old_is_not_found(serve: Serve) -> None:
    world = serve(mail())
    history = world.users.history()
    since = world.call(world.users.getProfile(userId="me"))["historyId"]
    world.gmail.add(mail("New").raw, ["INBOX"])
    world.gmail.forget_history()
    assert world.refused(history.list(userId="me", startHistoryId=since))[:2] == (404, "notFound")
    assert world.refused(history.list(userId="me", startHistoryId="9" * 15))[0] == 404
    assert world.refused(history.list(userId="me", startHistoryId="soon"))[0] == 400
    now = world.call(world.users.getProfile(userId="me"))["historyId"]
    assert world.call(history.list(userId="me", startHistoryId=now)) == {"historyId": now}


def test_a_delivered_answer_joins_the_thread_that_it_answers(serve: Serve) -> None:
    world = serve(mail(message_id="<a@x>"))
    answer = world.gmail.add(mail("Re: Plan", in_reply_to="<a@x>").raw, ["INBOX"])
    assert answer.thread == world.gmail.messages[world.id("Plan")].thread
    assert answer.at == NOW


# ---- tokens, quota, batches and failures


def test_tokens_that_are_unknown_revoked_or_expired_open_nothing(serve: Serve) -> None:
    world = serve(mail())
    world.google.tokens["old"] = Grant(ME, expires=NOW.timestamp())
    request = world.users.getProfile(userId="me")
    assert world.call(request)["emailAddress"] == ME
    for token in ("old", "none", ""):
        answer = ask(world, "profile", token=token)
        assert (answer.status, answer.body["error"]["errors"][0]["reason"]) == (401, "authError")
        assert "invalid_token" in answer.headers["www-authenticate"]
    del world.google.tokens[TOKEN]
    assert ask(world, "profile").status == 401


def test_a_token_opens_its_own_mailbox_only_and_within_its_scopes(serve: Serve) -> None:
    world = serve(mail("Of Bo"))
    world.google.join(mailbox_of([mail("Of Cem")], "cem@c.example"), "cems")
    world.google.tokens["reads"] = Grant(ME, frozenset({"gmail.readonly"}))
    assert ask(world, "profile", token="cems").body["emailAddress"] == "cem@c.example"
    assert ask(world, f"messages/{world.id('Of Bo')}", token="cems").status == 404
    assert ask(world, "profile", user=ME).status == 200
    foreign = ask(world, "profile", user="cem@c.example")
    assert (foreign.status, foreign.body["error"]["message"]) == (
        403,
        "Delegation denied for cem@c.example",
    )
    assert ask(world, "threads", token="reads").status == 200
    narrow = ask(world, "drafts", token="reads", body={"message": {"raw": reply()}})
    assert narrow.body["error"]["errors"][0]["reason"] == "insufficientPermissions"
    assert narrow.body["error"]["status"] == "PERMISSION_DENIED"


def test_another_authority_may_tell_whose_a_token_is(serve: Serve) -> None:
    world = serve(mail(), whose={"issued": ME, "stranger": "x@y.example"}.get)
    assert ask(world, "profile", token="issued").body["emailAddress"] == ME
    assert ask(world, "profile", token="stranger").status == 401


def ask(
    world: World,
    path: str,
    *,
    token: str = TOKEN,
    user: str = "me",
    body: Json | None = None,
    data: bytes | None = None,
    timeout_s: float = 20,
) -> SimpleNamespace:
    """One bare request, sent once: Google's client sends again when a connection drops."""
    connection = http.client.HTTPConnection(world.url.removeprefix("http://"), timeout=timeout_s)
    content = json.dumps(body).encode() if body is not None else data
    headers = {"authorization": f"Bearer {token}"}
    try:
        verb = "GET" if content is None else "POST"
        connection.request(verb, f"/gmail/v1/users/{user}/{path}", content, headers)
        answer = connection.getresponse()
        read = answer.read()
        return SimpleNamespace(status=answer.status, body=json.loads(read), headers=answer.headers)
    finally:
        connection.close()


def test_quota_is_counted_in_units_of_any_minute_for_each_user(serve: Serve) -> None:
    clock = [0.0]
    world = serve(mail(), units_per_minute=100, clock=lambda: clock[0])
    world.google.join(mailbox_of([mail()], "cem@c.example"), "cems")
    get = world.users.threads().get(userId="me", id=world.id("Plan"))
    world.call(get)
    clock[0] = 30
    world.call(get)
    assert world.refused(get) == (403, "rateLimitExceeded", REASONS["rateLimitExceeded"].message)
    assert ask(world, "labels", token="cems").status == 200
    world.call(world.users.messages().get(userId="me", id=world.id("Plan")))
    clock[0] = 59.9
    assert world.refused(get)[0] == 403
    clock[0] = 60
    world.call(get)
    assert world.google.units() == 40 * 3 + 20 + 1
    assert [made.units for made in world.google.requests][:3] == [40, 40, 0]


def test_a_batch_answers_each_call_and_counts_each(serve: Serve) -> None:
    world = serve(mail("A"), mail("B"))
    answers: dict[str, Any] = {}

    def keep(id: str, answer: Json, error: HttpError | None) -> None:
        answers[id] = answer if error is None else error.status_code

    batch = BatchHttpRequest(callback=keep, batch_uri=f"{world.url}/batch/gmail/v1")
    messages, labels = world.users.messages(), world.users.labels()
    get = messages.get(userId="me", id=world.id("A"), format="minimal")
    batch.add(get, request_id="a")
    batch.add(messages.get(userId="me", id="none"), request_id="none")
    batch.add(messages.trash(userId="me", id=world.id("B")), request_id="b")
    batch.add(labels.create(userId="me", body={"name": "New"}), request_id="label")
    batch.execute(http=get.http)
    assert (answers["a"]["snippet"], answers["none"]) == ("Hello.", 404)
    assert answers["b"]["labelIds"] == ["TRASH", "UNREAD"]
    assert answers["label"]["name"] == "New"
    for name, request in (("a", get), ("label", labels.create(userId="me", body={}))):
        assert departures("gmail.v1", request.methodId, answers[name]) == []
    assert world.google.units() == 20 + 20 + 5 + 5


def test_a_batch_without_parts_or_with_too_many_is_refused(serve: Serve) -> None:
    world = serve(mail())
    connection = http.client.HTTPConnection(world.url.removeprefix("http://"))
    part = b"--x\r\nContent-Type: application/http\r\n\r\nGET /gmail/v1/users/me/profile\r\n\r\n"
    for body in (b"", part * 101 + b"--x--", b"--x\r\n\r\n\r\n--x--"):
        headers = {"content-type": "multipart/mixed; boundary=x"}
        connection.request("POST", "/batch/gmail/v1", body, headers)
        answer = connection.getresponse()
        assert (answer.status, "error" in json.loads(answer.read())) == (400, True)
    connection.close()


@pytest.mark.parametrize(
    ("kind", "code", "reason"),
    [
        ("400", 400, "invalidArgument"),
        ("401", 401, "authError"),
        ("403", 403, "quotaExceeded"),
        ("userRateLimitExceeded", 403, "userRateLimitExceeded"),
        ("insufficientPermissions", 403, "insufficientPermissions"),
        ("404", 404, "notFound"),
        ("409", 409, "aborted"),
        ("429", 429, "rateLimitExceeded"),
        ("500", 500, "backendError"),
        ("503", 503, "unavailable"),
    ],
)
def test_a_fault_refuses_the_next_calls_of_its_method(
    serve: Serve, kind: str, code: int, reason: str
) -> None:
    world = serve(mail())
    world.google.faults.append(Fault("threads.get", kind, times=2, seconds=7))
    path = f"threads/{world.id('Plan')}"
    assert ask(world, "threads").status == 200
    for _ in range(2):
        answer = ask(world, path)
        error = answer.body["error"]
        assert (answer.status, error["code"], error["errors"][0]["reason"]) == (code, code, reason)
        assert answer.headers["retry-after"] == "7"
    assert ask(world, path).body["id"] == world.id("Plan")
    assert [made.status for made in world.google.requests] == [200, code, code, 200]
    world.google.faults.append(Fault("*", kind))
    assert "retry-after" not in ask(world, "profile").headers


def test_a_connection_drops_before_or_after_the_work_is_done(serve: Serve) -> None:
    world = serve(mail())
    body = {"message": {"raw": reply()}}
    for kind, drafts in (("drop", 0), ("lost", 1)):
        world.google.faults.append(Fault("gmail.users.drafts.create", kind))
        with pytest.raises(OSError):  # noqa: PT011 (which one it is, the system decides)
            ask(world, "drafts", body=body)
        assert len(world.gmail.drafts) == drafts
        assert world.google.requests[-1].status == 0


def test_a_client_that_gives_up_finds_the_work_done_when_the_answer_is_late(serve: Serve) -> None:
    world = serve(mail())
    world.google.faults.append(Fault("drafts.create", "late", seconds=2))
    with pytest.raises(TimeoutError):
        ask(world, "drafts", body={"message": {"raw": reply()}}, timeout_s=0.3)
    deadline = time.monotonic() + 20
    while not world.gmail.drafts and time.monotonic() < deadline:
        time.sleep(0.01)
    assert len(world.gmail.drafts) == 1


def test_an_answer_may_be_cut(serve: Serve) -> None:
    world = serve(mail())
    world.google.faults.append(Fault("getProfile", "malformed"))
    with pytest.raises(ValueError, match=r"Unterminated|Expecting"):
        ask(world, "profile")


@pytest.mark.parametrize(
    ("path", "data", "code"),
    [
        ("nothing", None, 404),
        ("threads?colour=red", None, 400),
        ("threads?maxResults=few", None, 400),
        ("threads?labelIds=none", None, 400),
        ("threads/no", None, 404),
        ("drafts", b"{", 400),
        ("drafts", b"[]", 400),
        ("drafts", b"{}", 400),
        ("labels/none", None, 404),
    ],
)
def test_what_google_would_refuse_is_refused_in_its_shape(
    serve: Serve, path: str, data: bytes | None, code: int
) -> None:
    answer = ask(serve(mail()), path, data=data)
    assert (answer.status, answer.body["error"]["code"]) == (code, code)


def test_the_log_keeps_method_user_units_and_status(serve: Serve) -> None:
    world = serve(mail())
    world.call(world.users.threads().get(userId="me", id=world.id("Plan")))
    made = world.google.requests[0]
    assert (made.method, made.user, made.units, made.status) == (
        "gmail.users.threads.get", ME, 40, 200,
    )  # fmt: skip
    assert made.path["id"] == world.id("Plan")
    assert made.at == NOW.timestamp()


def test_every_message_of_the_dev_mailbox_is_shown_as_the_document_promises(
    serve: Serve, dev_data: Path
) -> None:
    mailbox = load_mbox(dev_data / "mail.mbox")
    world = serve(mailbox=mailbox)
    threads, shown = world.users.threads(), 0
    for id in world.gmail.threads:
        shown += len(world.call(threads.get(userId="me", id=id))["messages"])
    assert shown == len(mailbox.messages)
