"""An mbox as a mailbox: no message is lost or raises; ids and threads are like Gmail's."""

import io
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from google_contract import departures
from hypothesis import given
from hypothesis import strategies as st

from bot.local.google.gmail_mailbox import thread_json
from bot.local.google.gmail_mime import parts_of, snippet
from bot.local.google.gmail_search import parse_query
from bot.local.google.gmail_state import GmailState
from bot.local.google.mbox import Entry, Mailbox, MboxError, load_mbox, mailbox_of, read_mbox
from bot.local.sample_workspace import load_sample_mailbox

FROM = "From - Mon Mar 02 09:00:00 +0000 2026\n"
_numbers = count(1)

Load = Callable[..., Mailbox]


def mail(body: str = "Hello.", separator: str = FROM, **headers: str) -> str:
    """Return a message of an mbox; `in_reply_to=` sets `In-Reply-To:`, an empty one is omitted."""
    fields = {
        "message_id": f"<{next(_numbers)}@a.example>",
        "date": "Mon, 02 Mar 2026 10:00:00 +0100",
        "from": "Ana <ana@a.example>",
        "to": "Bo <bo@b.example>",
        "subject": "Plan",
    } | headers
    lines = [
        f"{name.title().replace('_', '-')}: {value}" for name, value in fields.items() if value
    ]
    return separator + "\n".join(lines) + f"\n\n{body}\n\n"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """Return a function that loads messages from a file."""

    def load_mails(*mails: str | bytes) -> Mailbox:
        parts = [each.encode() if isinstance(each, str) else each for each in mails]
        path = tmp_path / "mail.mbox"
        path.write_bytes(b"".join(parts))
        return load_mbox(path)

    return load_mails


def test_message_has_bytes_time_and_a_gmail_like_id(load: Load) -> None:
    message = load(mail("Hello.\nBye.", subject="Plan")).messages[0]
    assert message.raw.endswith(b"Subject: Plan\r\n\r\nHello.\r\nBye.\r\n")
    assert message.at == datetime(2026, 3, 2, 9, tzinfo=UTC)
    assert len(message.id) == 16
    assert message.thread == message.id
    assert message.labels == {"INBOX", "UNREAD"}


def test_ids_are_stable_and_differ_for_copies_of_one_message(load: Load) -> None:
    text = mail("One.", message_id="<a@x>") + mail("Two.", message_id="<b@x>")
    assert load(text.replace("\n", "\r\n")) == load(text)
    one = mail(message_id="<same@a.example>")
    first, second = load(one, one), load(one, one)
    assert [m.id for m in first.messages] == [m.id for m in second.messages]
    assert len({m.id for m in first.messages}) == 2
    assert len({m.thread for m in first.messages}) == 1


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
    load: Load, content: bytes, why: str
) -> None:
    with pytest.raises(MboxError) as refused:
        load(content)
    assert why in str(refused.value)


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


@given(st.binary(max_size=400), st.lists(st.sampled_from([FROM.encode(), b"\n", b"To: a@b\n"])))
def test_any_bytes_are_read_without_errors_or_lost_lines(noise: bytes, pieces: list[bytes]) -> None:
    marked = noise.replace(b"\r", b"") + b"\nmark7of9\n"
    mailbox = mailbox_of(read_mbox(io.BytesIO(b"".join(pieces) + marked)))
    assert sum(m.raw.count(b"mark7of9") for m in mailbox.messages) == 1
    for message in mailbox.messages:
        snippet(parts_of(message.raw))


def test_every_sample_thread_matches_googles_discovery_document() -> None:
    state = GmailState(load_sample_mailbox())
    for id in state.threads:
        body = thread_json(state, id, "full")
        assert departures("gmail.v1", "gmail.users.threads.get", body) == []
