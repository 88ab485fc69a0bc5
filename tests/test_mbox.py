"""An mbox as a mailbox: no message is lost or raises; ids and threads are like Gmail's."""

import io
from datetime import timedelta
from pathlib import Path

import httpx2
import pytest
from google_contract import departures
from hypothesis import given
from hypothesis import strategies as st
from mail_kit import START, mail, mbox

from bot.local.google.gmail_mime import parts_of, snippet
from bot.local.google.gmail_search import parse_query
from bot.local.google.gmail_state import GmailState
from bot.local.google.mbox import Entry, MboxError, load_mbox, mailbox_of, read_mbox
from bot.local.google.server import TOKEN, LocalGoogle
from bot.local.sample_workspace import load_sample_mailbox

FROM = b"From - Mon Mar 02 09:00:00 +0000 2026\n"


def test_message_has_bytes_time_and_a_gmail_like_id(tmp_path: Path) -> None:
    (message,) = load_mbox(mbox(tmp_path / "m.mbox", mail(1, "Hello.\nBye."))).messages
    assert message.raw.endswith(b"\r\n\r\nHello.\r\nBye.\r\n")
    assert message.at == START + timedelta(minutes=1)
    assert len(message.id) == 16
    assert message.thread == message.id
    assert message.labels == {"INBOX", "UNREAD"}


@pytest.mark.parametrize(
    ("envelope", "day"), [("From 1583290388308606088@xxx", "2026-03-04"), ("From -", "2038-01-19")]
)
def test_arrival_is_the_time_of_takeout_else_that_of_the_sender(envelope: str, day: str) -> None:
    raw = f"{envelope} Wed Mar 04 09:00:00 +0000 2026\nDate: Tue, 19 Jan 2038 03:14:07 GMT\n\nHi\n"
    (message,) = mailbox_of(read_mbox(io.BytesIO(raw.encode()))).messages
    assert f"{message.at:%Y-%m-%d}" == day


@pytest.mark.parametrize(("status", "label"), [("0001", "INBOX"), ("8009", "TRASH")])
def test_mail_that_thunderbird_deleted_is_in_the_trash(status: str, label: str) -> None:
    (message,) = mailbox_of([Entry(f"X-Mozilla-Status: {status}\n\nHi".encode())]).messages
    assert label in message.labels


def test_ids_are_stable_and_differ_for_copies_of_one_message(tmp_path: Path) -> None:
    file = mbox(tmp_path / "m.mbox", mail(1, "One."), mail(2, "Two."), mail(2, "Two."))
    mailbox = load_mbox(file)
    file.write_bytes(file.read_bytes().replace(b"\n", b"\r\n"))
    assert load_mbox(file) == mailbox
    assert len({m.id for m in mailbox.messages}) == 3
    assert len({m.thread for m in mailbox.messages}) == 2


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "mail.mbox is empty: it holds no message."),
        (b"name,age\nAna,7\n", "is not an mbox: no line of it begins a message with 'From '."),
        (b"PK\x03\x04\0\0\xff\xfe", "mail.mbox is packed: unpack it first."),
        (b"From the start it was clear.\nSo it went on.\n", "is not an mbox"),
        (b"Subject: one mail, no mbox\n\nHello.\n", "is not an mbox"),
    ],
)
def test_file_that_is_not_an_mbox_is_rejected_with_a_reason(
    tmp_path: Path, content: bytes, why: str
) -> None:
    file = tmp_path / "mail.mbox"
    file.write_bytes(content)
    with pytest.raises(MboxError, match=why):
        load_mbox(file)


def test_unreadable_mbox_file_is_rejected_with_a_reason(tmp_path: Path) -> None:
    with pytest.raises(MboxError, match=r"^gone\.mbox cannot be read: No such file"):
        load_mbox(tmp_path / "gone.mbox")
    with pytest.raises(MboxError, match=r"is a folder\. Give an mbox file\.$"):
        load_mbox(tmp_path)


HUGE = 200_000


@pytest.mark.parametrize(
    "content",
    [
        b"To: " + b"(" * HUGE,
        b"Subject: " + b"=?a?q?" * HUGE,
        b"Content-Type: text/plain; " + b'a="' * HUGE,
        b"Content-Type: text/html\n\n" + b"<!--" * HUGE,
        b"Content-Type: multipart/mixed; boundary=x\n\n" + b"--x\n" * HUGE,
        b"References: " + b"<a" * HUGE,
        b"a:\n " * HUGE,
        b"\0" * HUGE,
    ],
    ids=range(8),
)
def test_huge_and_hostile_messages_are_read_before_the_test_timeout(content: bytes) -> None:
    """None is timed: quadratic time would exceed the test's time limit."""
    mailbox = mailbox_of([Entry(content), Entry(b"References: <a@b>\n\nhi")])
    state = GmailState(mailbox)
    for held in state.messages.values():
        assert len(held.snippet) < 2_000
        assert not parse_query("nowhere from:nobody has:attachment").holds(held, state)


@given(st.binary(max_size=400), st.lists(st.sampled_from([FROM, b"\n", b"To: a@b\n"])))
def test_any_bytes_are_read_without_errors_or_lost_lines(noise: bytes, pieces: list[bytes]) -> None:
    marked = noise.replace(b"\r", b"") + b"\nmark7of9\n"
    mailbox = mailbox_of(read_mbox(io.BytesIO(b"".join(pieces) + marked)))
    assert sum(m.raw.count(b"mark7of9") for m in mailbox.messages) == 1
    for message in mailbox.messages:
        snippet(parts_of(message.raw))


async def test_every_sample_thread_matches_googles_discovery_document() -> None:
    app = httpx2.ASGITransport(LocalGoogle(load_sample_mailbox()).app)
    auth = {"Authorization": f"Bearer {TOKEN}"}
    async with httpx2.AsyncClient(transport=app, base_url="http://google", headers=auth) as client:
        found = await client.get("/gmail/v1/users/me/threads", params={"maxResults": 500})
        threads = found.json()["threads"]
        assert len(threads) > 20
        for each in threads:
            body = (await client.get(f"/gmail/v1/users/me/threads/{each['id']}")).json()
            assert departures("gmail.v1", "gmail.users.threads.get", body) == []
