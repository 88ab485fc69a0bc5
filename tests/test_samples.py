"""The samples: what they must hold so that the demo and a triage show everything at work."""

from __future__ import annotations

from collections import defaultdict

import pytest
from gmail_kit import gmail_message

from bot.local.google.mbox import Mailbox, StoredMessage
from bot.local.sample_workspace import load_sample, load_sample_mailbox
from bot.local.workspace import Workspace
from bot.tasks.prefilter import why_automatic
from scopes.mail import MailMessage, MailThread

ME = "helena.vasconcelos@almadora.example"


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return load_sample()


@pytest.fixture(scope="module")
def mailbox() -> Mailbox:
    return load_sample_mailbox()


def test_samples_are_the_same_at_every_load(workspace: Workspace, mailbox: Mailbox) -> None:
    assert load_sample() == workspace
    assert load_sample_mailbox() == mailbox


# ---- the mailbox


def header(mail: StoredMessage, name: str) -> str:
    return gmail_message(mail.raw).headers.get(name.lower(), "")


def threads_of(mailbox: Mailbox) -> list[MailThread]:
    found: dict[str, list[MailMessage]] = defaultdict(list)
    for stored in mailbox.messages:
        found[stored.thread].append(gmail_message(stored.raw, stored.id, stored.labels))
    return [MailThread(id, tuple(messages)) for id, messages in found.items()]


def test_sixteen_threads_need_no_model(mailbox: Mailbox) -> None:
    filtered = {t.subject for t in threads_of(mailbox) if why_automatic(t, ME)}
    subjects: dict[str, str] = {}
    for message in mailbox.messages:
        key = header(message, "Message-ID").removeprefix("<").partition(".")[0]
        subjects.setdefault(key, header(message, "Subject"))
    automatic = {
        subject
        for key, subject in subjects.items()
        if key.startswith(("auto-", "news-")) or key in ("own", "draft", "spam")
    }
    assert len(automatic) == 16
    assert filtered == automatic
