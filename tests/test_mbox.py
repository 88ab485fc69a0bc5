"""An mbox as a mailbox: nothing lost, nothing raised, ids and threads as Gmail would give them."""

import gzip
import io
from collections.abc import Callable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bot.local.google.gmail_headers import decoded
from bot.local.google.gmail_mime import parts_of, snippet
from bot.local.google.gmail_search import matches, parsed
from bot.local.google.gmail_state import GmailState
from bot.local.google.mbox import (
    Entry,
    Mailbox,
    MboxError,
    addresses,
    load_mbox,
    mailbox_of,
    read_mbox,
    takeout_labels,
)

FROM = "From - Mon Mar 02 09:00:00 +0000 2026\n"
_numbers = count(1)

Load = Callable[..., Mailbox]


def mail(body: str = "Hello.", separator: str = FROM, **headers: str) -> str:
    """One message of an mbox; `in_reply_to=` becomes `In-Reply-To:`, an empty one is left out."""
    told = {
        "message_id": f"<{next(_numbers)}@a.example>",
        "date": "Mon, 02 Mar 2026 10:00:00 +0100",
        "from": "Ana <ana@a.example>",
        "to": "Bo <bo@b.example>",
        "subject": "Plan",
    } | headers
    lines = [f"{name.title().replace('_', '-')}: {value}" for name, value in told.items() if value]
    return separator + "\n".join(lines) + f"\n\n{body}\n\n"


@pytest.fixture
def load(tmp_path: Path) -> Load:
    """A function that loads these messages from a file."""

    def loaded(*mails: str | bytes, me: str | None = None) -> Mailbox:
        parts = [each.encode() if isinstance(each, str) else each for each in mails]
        path = tmp_path / "mail.mbox"
        path.write_bytes(b"".join(parts))
        return load_mbox(path, me)

    return loaded


def bodies(mailbox: Mailbox) -> list[bytes]:
    return [message.raw.partition(b"\r\n\r\n")[2].rstrip() for message in mailbox.messages]


def test_a_message_has_its_bytes_its_time_and_an_id_like_gmails(load: Load) -> None:
    message = load(mail("Hello.\nBye.", subject="Plan")).messages[0]
    assert message.raw.endswith(b"Subject: Plan\r\n\r\nHello.\r\nBye.\r\n")
    assert message.at == datetime(2026, 3, 2, 9, tzinfo=UTC)
    assert len(message.id) == 16
    assert int(message.id, 16) < 2**63
    assert message.thread == message.id
    assert message.labels == {"INBOX", "UNREAD"}


@pytest.mark.parametrize("charset", ["utf-8", "windows-1252"])
def test_headers_in_bare_8_bit_are_read_in_either_charset(load: Load, charset: str) -> None:
    message = load(mail(subject="Größe – Übersicht").encode(charset)).messages[0]
    headers = dict(parts_of(message.raw).headers)
    assert headers["Subject"] == "Größe – Übersicht"


def test_ids_are_the_same_each_time_and_differ_for_copies_of_one_message(load: Load) -> None:
    text = mail("One.", message_id="<a@x>") + mail("Two.", message_id="<b@x>")
    assert load(text.replace("\n", "\r\n")) == load(text)
    one = mail(message_id="<same@a.example>")
    first, second = load(one, one), load(one, one)
    assert [m.id for m in first.messages] == [m.id for m in second.messages]
    assert len({m.id for m in first.messages}) == 2
    assert len({m.thread for m in first.messages}) == 1


@pytest.mark.parametrize(
    "line",
    [
        "From the start it was clear.",
        "From here:\nNote: this is no header, but looks like one",
        "From 9:30 on Monday we are closed",
        "Quoted:\nFrom ana@a.example Mon Mar  2 09:00:00 2026",
    ],
)
def test_a_line_of_text_that_begins_with_from_ends_no_message(load: Load, line: str) -> None:
    mailbox = load(mail(f"Dear all,\n\n{line}\nmore"), mail("Second."))
    assert len(mailbox.messages) == 2
    assert bodies(mailbox)[0] == f"Dear all,\n\n{line}\nmore".replace("\n", "\r\n").encode()


def test_quoted_from_lines_lose_one_mark(load: Load) -> None:
    mailbox = load(mail(">From the start.\n>>From before.\n> From afar."))
    assert bodies(mailbox) == [b"From the start.\r\n>From before.\r\n> From afar."]


@pytest.mark.parametrize(
    "separator",
    [
        "From ana@a.example Mon Mar  2 09:00:00 2026\n",
        "From 1234567890123456789@xxx Mon Mar 02 09:00:00 +0000 2026\n",
        "From MAILER-DAEMON Mon Mar  2 09:00:00 2026\n",
        "From - Mon Mar 02 09:00:00 2026\r\n",
        "From ana@a.example\n",
    ],
)
def test_every_manner_of_separator_begins_a_message(load: Load, separator: str) -> None:
    mailbox = load(mail("One."), mail("Two.", separator), mail("Three.", separator))
    assert bodies(mailbox) == [b"One.", b"Two.", b"Three."]


def test_a_separator_without_a_blank_line_above_it_is_seen_by_the_header_below(load: Load) -> None:
    assert bodies(load(mail("One.").rstrip("\n") + "\n", mail("Two."))) == [b"One.", b"Two."]


def test_messages_without_headers_or_text_are_kept_and_told(load: Load) -> None:
    mailbox = load(f"{FROM}\nJust text.\n\n", FROM, mail("Last."))
    assert len(mailbox.messages) == 3
    assert bodies(mailbox)[2] == b"Last."
    assert b"Just text." in mailbox.messages[0].raw
    assert mailbox.problems[0] == "Message 1 has no headers; all of it is its text."


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (b"", "mail.mbox is empty: it holds no message."),
        (b"\n\n \n", "mail.mbox is empty: it holds no message."),
        (b"name,age\nAna,7\n", "is not an mbox: no line of it begins a message with 'From '."),
        (b"PK\x03\x04\0\0\xff\xfe", "mail.mbox is packed: unpack it first."),
        (gzip.compress(b"From ana@a.example\n", mtime=0), "mail.mbox is packed: unpack it first."),
        (b"From the start it was clear.\nSo it went on.\n", "is not an mbox"),
        (b"Subject: one mail, no mbox\n\nHello.\n", "is not an mbox"),
    ],
)
def test_what_is_no_mbox_is_refused_in_a_sentence(load: Load, content: bytes, why: str) -> None:
    with pytest.raises(MboxError) as refused:
        load(content)
    assert why in str(refused.value)


def test_a_file_that_cannot_be_read_is_refused_in_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(MboxError, match=r"^gone\.mbox cannot be read: No such file"):
        load_mbox(tmp_path / "gone.mbox")
    with pytest.raises(MboxError, match=r"is a folder\. Give an mbox file\.$"):
        load_mbox(tmp_path)


def test_a_broken_date_is_replaced_by_the_separators_or_the_neighbours(load: Load) -> None:
    bare = "From ana@a.example\n"
    mailbox = load(
        mail(separator=bare, date="soon"),
        mail(separator="From - Tue Mar 03 10:00:00 +0200 2026\n", date="Mon, 99 Foo 2026"),
        mail(separator=bare, date=""),
        mail(separator=bare, date="Wed, 04 Mar 26 09:00:00 EST"),
        mail(separator=bare, date="Fri, 1 Jan 99999 99:99:99 +9999"),
    )
    third, fourth = datetime(2026, 3, 3, 8, tzinfo=UTC), datetime(2026, 3, 4, 14, tzinfo=UTC)
    assert [m.at for m in mailbox.messages] == [third, third, third, fourth, fourth]
    assert [p.split()[1] for p in mailbox.problems] == ["1", "3", "5"]


def test_takeouts_thread_message_id_and_labels_are_taken_over_and_its_headers_taken_out(
    load: Load,
) -> None:
    told = {"x_gm_thrid": "1146433448986542109", "x_gmail_labels": "Inbox,Opened,Kunden/ACME"}
    text = mail(separator="From 1146433448986542110@xxx Mon Mar 02 09:00:00 +0000 2026\n", **told)
    message = load(text, mail()).messages[0]
    assert message.thread == "1146433448986542109"
    assert message.id == f"{1146433448986542110:016x}"
    assert message.labels == {"INBOX", "Kunden/ACME"}
    assert b"X-G" not in message.raw.upper()
    quoted = load(mail("X-GM-THRID: 7\nit said")).messages[0]
    assert b"X-GM-THRID: 7" in quoted.raw


@pytest.mark.parametrize(
    ("header", "labels"),
    [
        ("Inbox,Unread", {"INBOX", "UNREAD"}),
        ("Sent,Opened,Category Updates", {"SENT", "CATEGORY_UPDATES"}),
        (
            "=?UTF-8?Q?Posteingang,Ge=C3=B6ffnet,Kategorie:_Pers=C3=B6nlich?=",
            {"INBOX", "CATEGORY_PERSONAL"},
        ),
        (
            "=?UTF-8?B?UmVjaWJpZG9zLE5vIGxlw61kb3MsRGVzdGFjYWRvcw==?=",
            {"INBOX", "UNREAD", "STARRED"},
        ),
        ('"Kunden, alt",Brouillons', {"Kunden, alt", "DRAFT"}),
        ('"never closed, Inbox', {"never closed, Inbox"}),
    ],
)
def test_labels_are_known_in_the_languages_of_takeout(header: str, labels: set[str]) -> None:
    assert takeout_labels(header) == labels


def test_without_takeouts_word_references_make_the_threads(load: Load) -> None:
    mailbox = load(
        mail(message_id="<a@x>", subject="Plan"),
        mail(message_id="<b@x>", in_reply_to="<a@x>", subject="Other words"),
        mail(message_id="<d@x>", references="<b@x> <lost@x>", subject="Re: Plan"),
        mail(message_id="<e@x>", references="<lost2@x>"),
        mail(message_id="", in_reply_to="<lost2@x>"),
        mail(message_id="<f@x>", subject="Re: Plan"),
        mail(message_id=""),
        mail(message_id=""),
    )
    threads = [m.thread for m in mailbox.messages]
    assert threads[0] == threads[1] == threads[2] == mailbox.messages[0].id
    assert threads[3] == threads[4] == mailbox.messages[3].id
    assert len(set(threads)) == 5


def test_a_thread_opens_with_its_oldest_message_wherever_that_stands(load: Load) -> None:
    mailbox = load(
        mail(message_id="<b@x>", in_reply_to="<a@x>", date="Tue, 03 Mar 2026 10:00:00 +0000"),
        mail(message_id="<a@x>", date="Mon, 02 Mar 2026 10:00:00 +0000"),
    )
    assert {m.thread for m in mailbox.messages} == {mailbox.messages[1].id}


def test_a_message_that_takeout_gave_no_thread_joins_the_one_it_answers(load: Load) -> None:
    mailbox = load(
        mail(message_id="<a@x>", x_gm_thrid="255"),
        mail(message_id="<b@x>", in_reply_to="<a@x>"),
        mail(message_id="<c@x>", in_reply_to="<a@x>", x_gm_thrid="254"),
    )
    assert [m.thread for m in mailbox.messages] == ["255", "255", "254"]


SENT = mail(**{"from": "Bo <bo@b.example>"}, x_gmail_labels="Gesendet")


@pytest.mark.parametrize(
    ("mails", "address"),
    [
        ([mail(to="bo@b.example")] * 2 + [mail(to="all@b.example")], "bo@b.example"),
        ([mail(to="all@b.example", delivered_to="Bo@b.example")] * 3, "bo@b.example"),
        ([mail(to="all@b.example")] * 3 + [SENT], "bo@b.example"),
        ([mail(to="undisclosed-recipients:;")], "me@localhost"),
    ],
)
def test_the_address_of_a_mailbox_is_whom_most_of_it_is_for(
    load: Load, mails: list[str], address: str
) -> None:
    assert load(*mails).address == address
    assert load(*mails, me="Me@Own.Example").address == "me@own.example"


def test_own_mail_without_labels_is_sent_mail_and_status_tells_what_was_read(load: Load) -> None:
    own = mail(**{"from": "Bo <bo@b.example>"}, to="x@y.example")
    forged = mail(**{"from": '"bo@b.example" <eve@e.example>'})
    mailbox = load(own, mail(status="RO"), mail(status="O"), forged, me="bo@b.example")
    labels = [set(m.labels) for m in mailbox.messages]
    assert labels == [{"SENT"}, {"INBOX"}, {"INBOX", "UNREAD"}, {"INBOX", "UNREAD"}]
    told = "No message is from or to nobody@b.example: --reader may be mistyped."
    assert load(own, me="Nobody@b.example").problems == (told,)


@pytest.mark.parametrize(
    ("value", "found"),
    [
        ("Ana <Ana@A.example>, bo@b.example (Bo)", ["ana@a.example", "bo@b.example"]),
        ('"Bell, Ana <x@y>" <ana@a.example>', ["ana@a.example"]),
        ("team: ana@a.example, bo@b.example;", ["ana@a.example", "bo@b.example"]),
        ("undisclosed-recipients:;", []),
        ("@ <@>", []),
        ("(" * 5_000 + "ana@a.example", ["ana@a.example"]),
    ],
)
def test_addresses_are_found_in_whatever_a_header_is(value: str, found: list[str]) -> None:
    assert addresses([value]) == found


HUGE = 200_000


@pytest.mark.parametrize(
    "content",
    [
        b"To: " + b"(" * HUGE,
        b"To: " + b"a" * HUGE,
        b"Subject: " + b"=?a?q?" * HUGE,
        b"Subject: ?=" + b" " * HUGE + b"\n\n",
        b"Content-Type: text/plain; " + b'a="' * HUGE,
        b"Content-Type: text/html\n\n" + b"<style" * HUGE,
        b"Content-Type: text/html\n\n" + b"<!--" * HUGE,
        b"Content-Type: multipart/mixed; boundary=x\n\n" + b"--x\n" * HUGE,
        b"References: " + b"<a" * HUGE,
        b"a:\n " * HUGE,
        b"\r" * HUGE,
        b"\0" * HUGE,
    ],
    ids=range(12),
)
def test_huge_and_hostile_messages_are_read_in_time_that_grows_with_their_size(
    content: bytes,
) -> None:
    """None is timed: what grows with the square of the size outlasts the test's time limit."""
    mailbox = mailbox_of([Entry(content), Entry(b"References: <a@b>\n\nhi")])
    state = GmailState(mailbox)
    for held in state.messages.values():
        assert len(held.snippet) < 2_000
        assert not matches(parsed("nowhere from:nobody has:attachment"), held, state)


@pytest.mark.parametrize(
    ("sent", "shown"),
    [
        ("=?iso-8859-1?Q?Caf=E9?= in =?utf-8?B?w4RwZmVs?=", "Café in Äpfel"),
        ("=?utf-8?B?w4Q=?= =?utf-8?B?cGZlbA==?=", "Äpfel"),
        ("=?utf-8?B?w?= =?utf-8?B?4Q=?=", "=?utf-8?B?w?=á"),
        ("=?utf-8*de?Q?=C3=A4?=", "ä"),
        ("=?no-such?Q?=E4?=", "ä"),
        ("=?unicode-escape?Q?=5Cx?=", "\\x"),
        ("1 =? 2", "1 =? 2"),
    ],
)
def test_encoded_words_are_decoded_and_broken_ones_stay(sent: str, shown: str) -> None:
    assert decoded(sent) == shown


@given(st.binary(max_size=400), st.lists(st.sampled_from([FROM.encode(), b"\n", b"To: a@b\n"])))
def test_no_bytes_raise_and_every_line_is_in_some_message(
    noise: bytes, pieces: list[bytes]
) -> None:
    marked = noise.replace(b"\r", b"") + b"\nmark7of9\n"
    mailbox = mailbox_of(read_mbox(io.BytesIO(b"".join(pieces) + marked)))
    assert sum(m.raw.count(b"mark7of9") for m in mailbox.messages) == 1
    for message in mailbox.messages:
        snippet(parts_of(message.raw))


def test_the_dev_mailbox_loads_whole(dev_data: Path) -> None:
    mailbox = load_mbox(dev_data / "mail.mbox")
    assert (len(mailbox.messages), len({m.thread for m in mailbox.messages})) == (279, 128)
    assert len({m.id for m in mailbox.messages}) == 279
    assert sum("SPAM" in m.labels for m in mailbox.messages) == 12
