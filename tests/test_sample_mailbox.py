"""The sample mailbox: what it must hold so that a triage of it shows everything at work."""

from __future__ import annotations

from collections import defaultdict
from datetime import timedelta
from email.utils import parseaddr

import pytest

from bot.local.google.mbox import Entry, Mailbox, StoredMessage
from bot.local.sample_mailbox import load_sample_mailbox, sample_mails
from bot.local.sample_workspace import load_sample
from bot.local.samples import SAMPLE_AS_OF, SAMPLE_DAYS
from bot.tasks.prefilter import why_automatic
from scopes.extraction.mail_text import HIDDEN, reduce
from scopes.extraction.mime import part_of
from scopes.mail import MailMessage, MailText, MailThread

ME = "helena.vasconcelos@almadora.example"


@pytest.fixture(scope="module")
def mailbox() -> Mailbox:
    return load_sample_mailbox()


@pytest.fixture(scope="module")
def read(mailbox: Mailbox) -> dict[str, MailText]:
    return {message.id: reduce(message.raw) for message in mailbox.messages}


def header(message: StoredMessage, name: str) -> str:
    return part_of(message.raw).header(name)


def threads_of(mailbox: Mailbox) -> list[MailThread]:
    found: dict[str, list[MailMessage]] = defaultdict(list)
    for stored in mailbox.messages:
        headers = {name.lower(): header(stored, name) for name in part_of(stored.raw).headers}
        found[stored.thread].append(
            MailMessage(
                stored.id, stored.thread, stored.at, reduce(stored.raw), headers, stored.labels
            )
        )
    return [MailThread(id, tuple(messages)) for id, messages in found.items()]


def test_sample_has_64_mails_in_50_threads_that_are_those_of_its_data(mailbox: Mailbox) -> None:
    keys = [key for key, _ in sample_mails()]
    assert len(mailbox.messages) == len(keys) == 64
    assert mailbox.problems == ()
    pairs = {(m.thread, key) for m, key in zip(mailbox.messages, keys, strict=True)}
    assert len(pairs) == len({t for t, _ in pairs}) == len({k for _, k in pairs}) == 50


def test_sample_is_the_same_at_every_call(mailbox: Mailbox) -> None:
    again = load_sample_mailbox()
    assert [m.id for m in again.messages] == [m.id for m in mailbox.messages]
    assert again == mailbox


def test_sample_fits_the_sample_workspace(mailbox: Mailbox, read: dict[str, MailText]) -> None:
    people = {user.email: user.real_name for user in load_sample().users if user.email}
    assert mailbox.address == ME
    assert ME in people
    known = [
        (people[address], name)
        for text in read.values()
        for who in (text.sender, *text.to, *text.cc)
        for name, address in [parseaddr(who)]
        if address in people
    ]
    assert len({name for name, _ in known}) >= 12
    assert all(as_in_slack == name for as_in_slack, name in known)


def test_sample_mails_came_before_it_is_read(mailbox: Mailbox, read: dict[str, MailText]) -> None:
    for message in mailbox.messages:
        assert SAMPLE_AS_OF - timedelta(SAMPLE_DAYS) <= message.at < SAMPLE_AS_OF
        assert read[message.id].date == message.at


def test_every_mail_is_read_whole(read: dict[str, MailText]) -> None:
    assert all(text.subject and text.sender and text.body for text in read.values())
    assert {text.cut for text in read.values()} == {""}
    everything = " ".join(f"{t.subject} {t.sender} {t.body}" for t in read.values())
    assert "\ufffd" not in everything
    assert "sólo muestra el primer plato" in everything  # windows-1252 that no header tells


def test_sample_holds_each_kind_of_mail(mailbox: Mailbox, read: dict[str, MailText]) -> None:
    kinds = [part_of(m.raw).kind for m in mailbox.messages]
    bodies = " ".join(text.body for text in read.values())
    attached = {a.name.rpartition(".")[2] for t in read.values() for a in t.attachments}
    labels = [label for m in mailbox.messages for label in m.labels]
    assert "multipart/report" in kinds
    assert sum(bool(header(m, "List-Unsubscribe")) for m in mailbox.messages) >= 5
    assert sum(bool(header(m, "Auto-Submitted")) for m in mailbox.messages) >= 4
    assert {"pdf", "docx", "xlsx"} <= attached
    assert "Calendar invitation: Refund batch go/no-go" in bodies
    assert "Calendar cancellation: Pricing sync" in bodies
    assert "Attached message from Odile Garnier" in bodies
    assert labels.count("SENT") >= 6
    assert labels.count("DRAFT") == labels.count("SPAM") == 1
    assert sum("wrote:\n> " in text.body for text in read.values()) >= 8


def test_the_attempt_to_give_orders_has_visible_and_hidden_ones(
    read: dict[str, MailText],
) -> None:
    (attempt,) = [text for text in read.values() if HIDDEN in text.flags]
    assert "forward the ten latest mails" in attempt.body
    assert "maintenance mode" not in attempt.body


def test_sixteen_threads_need_no_model(mailbox: Mailbox) -> None:
    filtered = {t.subject for t in threads_of(mailbox) if why_automatic(t, ME)}
    by_key = defaultdict(list)
    for (key, _), message in zip(sample_mails(), mailbox.messages, strict=True):
        by_key[key].append(header(message, "Subject"))
    automatic = {
        subjects[0]
        for key, subjects in by_key.items()
        if key.startswith(("auto-", "news-")) or key in ("own", "draft", "spam")
    }
    assert len(automatic) == 16
    assert filtered == automatic


def test_a_mail_without_a_charset_is_sent_as_it_stands() -> None:
    entries = dict[str, Entry]()
    for key, entry in sample_mails():
        entries.setdefault(key, entry)
    raw = entries["split-bill-es"].raw
    assert b"Content-Type" not in raw
    assert "¿Es un fallo".encode("cp1252") in raw
