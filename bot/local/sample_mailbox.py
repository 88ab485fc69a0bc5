"""The sample mailbox: fifty threads of Helena Vasconcelos, who owns billing at the sample company.

The data is `bot/local/sample/mailbox.yaml`. Mails are built as RFC 5322 bytes, the same at every
call: dates, message ids and boundaries follow from the data alone.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from email.headerregistry import Address
from email.message import EmailMessage
from email.policy import SMTP
from email.utils import format_datetime, parseaddr
from typing import Annotated, Literal

from pydantic import Field

from bot.local.google.mbox import Entry, Mailbox, mailbox_of
from bot.local.sample_workspace import SampleData, load_sample, moment, read_data
from bot.local.samples import OWNER

_KINDS = {
    "pdf": "application/pdf",
    "docx": "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
    "xlsx": "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
}
_PARTS = "multipart/mixed multipart/alternative multipart/report".split()

At = Annotated[str, Field(pattern=r"^\d\d? \d\d:\d\d$")]


class _Invite(SampleData):
    method: Literal["REQUEST", "REPLY", "CANCEL"]
    summary: str
    start: str
    end: str
    location: str = ""
    attendees: tuple[str, ...] = ()


class _Forwarded(SampleData):
    sender: Annotated[str, Field(alias="from")]
    to: str
    subject: str
    at: At
    text: str


class _Mail(SampleData):
    at: At
    sender: Annotated[str, Field(alias="from")]
    to: tuple[str, ...] = ("me",)
    cc: tuple[str, ...] = ()
    labels: str = "INBOX"
    text: str
    html: str = ""
    quotes: bool = False
    charset: str = ""
    headers: Mapping[str, str] = {}
    attach: Mapping[str, int] = {}
    invite: _Invite | None = None
    forwards: _Forwarded | None = None
    bounce: str = ""


class _Thread(SampleData):
    key: str
    subject: str
    mails: tuple[_Mail, ...]


class _File(SampleData):
    threads: tuple[_Thread, ...]


def load_sample_mailbox() -> Mailbox:
    """The sample as a local mailbox; the same values, ids and times at every call."""
    return mailbox_of((entry for _, entry in sample_mails()), _people()[OWNER][1])


def sample_mails() -> Iterator[tuple[str, Entry]]:
    """Each mail with the key of its thread in the data, in the order of time."""
    people = _people()
    threads = _File.model_validate(read_data("mailbox")).threads
    mails = [(t, n, mail) for t in threads for n, mail in enumerate(t.mails)]
    for thread, number, mail in sorted(mails, key=lambda each: moment(each[2].at)):
        built = _built(thread, number, mail, people)
        yield thread.key, Entry(_raw(built, mail), frozenset(mail.labels.split()))


def _people() -> dict[str, tuple[str, str]]:
    """Key of a person in the data -> name and address."""
    users = load_sample().users
    return {user.id.removeprefix("U0").lower(): (user.real_name, user.email) for user in users}


def _address(who: str, people: Mapping[str, tuple[str, str]]) -> Address:
    if who == "me" or who.startswith("@"):
        name, address = people[OWNER if who == "me" else who.removeprefix("@")]
    else:
        name, address = parseaddr(who)
    return Address(name, addr_spec=address)


def _message_id(thread: _Thread, number: int) -> str:
    return f"<{thread.key}.{number + 1}@sample.example>"


def _built(
    thread: _Thread, number: int, mail: _Mail, people: Mapping[str, tuple[str, str]]
) -> EmailMessage:
    message = EmailMessage(SMTP)
    replies = number > 0 and not thread.subject.lower().startswith("re:")
    message["From"] = _address(mail.sender, people)
    message["To"] = [_address(who, people) for who in mail.to]
    if mail.cc:
        message["Cc"] = [_address(who, people) for who in mail.cc]
    message["Subject"] = f"Re: {thread.subject}" if replies else thread.subject
    message["Date"] = moment(mail.at)
    message["Message-ID"] = _message_id(thread, number)
    if number:
        before = [_message_id(thread, n) for n in range(number)]
        message["In-Reply-To"], message["References"] = before[-1], " ".join(before)
    for name, value in mail.headers.items():
        message[name] = value
    quoted = _quoted(thread.mails[number - 1], people) if mail.quotes else ""
    message.set_content(f"{mail.text.rstrip()}\n{quoted}", cte="quoted-printable")
    _add_parts(message, mail, people)
    for depth, part in enumerate(message.walk()):
        if part.get_content_type() in _PARTS:
            part.set_boundary(f"=-{thread.key}-{number + 1}-{depth}")
    return message


def _add_parts(message: EmailMessage, mail: _Mail, people: Mapping[str, tuple[str, str]]) -> None:
    if mail.html:
        message.add_alternative(mail.html, subtype="html", cte="quoted-printable")
    if mail.invite:
        message.add_alternative(
            _calendar(mail.invite, mail.sender, people), subtype="calendar", cte="quoted-printable"
        )
        *_, event = message.iter_parts()
        event.set_param("method", mail.invite.method)
    for name, size in mail.attach.items():
        main, _, sub = _KINDS[name.rpartition(".")[2]].partition("/")
        content = (b"%PDF-1.7\n" if sub == "pdf" else b"PK\x03\x04").ljust(size, b"\0")
        message.add_attachment(content, maintype=main, subtype=sub, filename=name)
    if mail.forwards:
        message.add_attachment(_forwarded(mail.forwards))
    if mail.bounce:
        message.make_mixed()
        message.attach(_status(mail.bounce))
        message.set_type("multipart/report")
        message.set_param("report-type", "delivery-status")


def _raw(message: EmailMessage, mail: _Mail) -> bytes:
    """The bytes of a mail; with `charset`, its text in that charset and no word of it."""
    if not mail.charset:
        return message.as_bytes()
    for name in ("Content-Type", "Content-Transfer-Encoding", "MIME-Version"):
        del message[name]
    message.set_payload("")
    text = mail.text.replace("\n", "\r\n").encode(mail.charset)
    return message.as_bytes().rstrip(b"\r\n") + b"\r\n\r\n" + text


def _quoted(mail: _Mail, people: Mapping[str, tuple[str, str]]) -> str:
    by = _address(mail.sender, people)
    lines = [f"> {line}".rstrip() for line in mail.text.rstrip().splitlines()]
    head = f"On {format_datetime(moment(mail.at))}, {by.display_name} <{by.addr_spec}> wrote:"
    return "\n".join(["", head, *lines, ""])


def _calendar(invite: _Invite, sender: str, people: Mapping[str, tuple[str, str]]) -> str:
    """An event as RFC 5545 spells it."""
    uid = re.sub(r"\W+", "-", invite.summary.lower())
    organizer = sender if invite.method != "REPLY" else "@nils"
    lines = [
        "BEGIN:VCALENDAR",
        "VERSION:2.0",
        "PRODID:-//Almadora//Calendar//EN",
        f"METHOD:{invite.method}",
        "BEGIN:VEVENT",
        f"UID:{uid}@sample.example",
        "DTSTAMP:20260301T000000Z",
        f"DTSTART:{invite.start}",
        f"DTEND:{invite.end}",
        f"SUMMARY:{invite.summary}",
        *([f"LOCATION:{invite.location}"] if invite.location else []),
        _person("ORGANIZER", organizer, people),
        *_attendees(invite, people),
        *(["STATUS:CANCELLED"] if invite.method == "CANCEL" else []),
        "END:VEVENT",
        "END:VCALENDAR",
    ]
    return "\n".join(lines) + "\n"


def _attendees(invite: _Invite, people: Mapping[str, tuple[str, str]]) -> Sequence[str]:
    state = "ACCEPTED" if invite.method == "REPLY" else "NEEDS-ACTION"
    return [_person(f"ATTENDEE;PARTSTAT={state}", who, people) for who in invite.attendees]


def _person(role: str, who: str, people: Mapping[str, tuple[str, str]]) -> str:
    by = _address(who, people)
    return f"{role};CN={by.display_name}:mailto:{by.addr_spec}"


def _forwarded(inner: _Forwarded) -> EmailMessage:
    message = EmailMessage(SMTP)
    message["From"], message["To"], message["Subject"] = inner.sender, inner.to, inner.subject
    message["Date"] = moment(inner.at)
    message.set_content(inner.text, cte="quoted-printable")
    return message


def _status(recipient: str) -> EmailMessage:
    """The part of a bounce that machines read (RFC 3464): the server's fields, then the mail's."""
    server, failed, part = (EmailMessage(SMTP) for _ in range(3))
    server["Reporting-MTA"] = "dns; mx.almadora.example"
    failed["Final-Recipient"] = f"rfc822; {recipient}"
    failed["Action"], failed["Status"] = "failed", "5.1.1"
    part["Content-Type"] = "message/delivery-status"
    part.set_payload([server, failed])
    return part
