"""The samples: what they must hold so that the demo and a triage show everything at work."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import parseaddr

import pytest

from bot.local.google.mbox import Mailbox, StoredMessage
from bot.local.sample_labels import ChannelLabels, Labels, labels
from bot.local.sample_mailbox import load_sample_mailbox, sample_mails
from bot.local.sample_workspace import load_sample
from bot.local.samples import SAMPLE_AS_OF, SAMPLE_DAYS
from bot.local.workspace import Channel, Message, Workspace, micros
from bot.tasks.prefilter import why_automatic
from scopes.extraction.mail_text import HIDDEN, reduce
from scopes.extraction.mime import part_of
from scopes.mail import MailMessage, MailText, MailThread

BEGINS = SAMPLE_AS_OF - timedelta(days=SAMPLE_DAYS)
BILLING = "billing-double-charge"
STATES = {"unanswered", "unsolved", "waiting", "solved"}
ME = "helena.vasconcelos@almadora.example"


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return load_sample()


@pytest.fixture(scope="module")
def truth() -> Labels:
    return labels()


@pytest.fixture(scope="module")
def mailbox() -> Mailbox:
    return load_sample_mailbox()


@pytest.fixture(scope="module")
def read(mailbox: Mailbox) -> dict[str, MailText]:
    return {message.id: reduce(message.raw) for message in mailbox.messages}


def test_samples_are_the_same_at_every_load(workspace: Workspace, mailbox: Mailbox) -> None:
    assert load_sample() == workspace
    assert load_sample_mailbox() == mailbox


# ---- the workspace and its labels


def threads(channel: Channel) -> dict[str, list[Message]]:
    """Messages of each thread by the item id of its root."""
    found: dict[str, list[Message]] = defaultdict(list)
    for message in channel.messages:
        found[f"{channel.id}/{message.thread_ts or message.ts}"].append(message)
    return found


def customers(messages: list[Message]) -> list[str]:
    named = (name for m in messages for name in re.findall(r"\[([^\]]+)\]", m.text))
    return list(dict.fromkeys(named))


def counted(channel: Channel, known: ChannelLabels) -> dict[str, tuple[int, set[str]]]:
    """Messages and customers of each issue, counted in the channel itself."""
    read = threads(channel)
    found: dict[str, tuple[int, set[str]]] = {}
    for thread in known.threads:
        if thread.issue:
            number, names = found.get(thread.issue, (0, set()))
            here = read[thread.root]
            found[thread.issue] = (number + len(here), names | set(customers(here)))
    return found


def leaders(found: Mapping[str, tuple[int, set[str]]]) -> tuple[str, str]:
    """The issue with the most messages, and the one with the most customers."""
    return (
        max(found, key=lambda issue: found[issue][0]),
        max(found, key=lambda issue: len(found[issue][1])),
    )


def moment(ts: str) -> datetime:
    return datetime.fromtimestamp(micros(ts) / 1e6, UTC)


def test_five_markets_hold_what_real_channels_hold_within_the_window(workspace: Workspace) -> None:
    names = ["csm-spain", "csm-france", "csm-italy", "csm-switzerland", "csm-germany"]
    assert [channel.name for channel in workspace.channels] == names
    known = {user.id for user in workspace.users} | {"USLACKBOT"}
    places = {f"{channel.id}|{channel.name}" for channel in workspace.channels}
    for channel in workspace.channels:
        messages = channel.messages
        assert 45 <= len(messages) <= 70
        assert any(m.reactions for m in messages)
        assert any(m.edited for m in messages)
        assert any(m.bot_id for m in messages)
        assert any(m.subtype == "channel_join" for m in messages)
        times = [moment(m.ts) for m in messages]
        assert len(set(times)) == len(times)
        assert BEGINS <= min(times) <= max(times) < SAMPLE_AS_OF
        for thread in threads(channel).values():
            assert [m.ts for m in thread] == sorted(m.ts for m in thread)
            assert not thread[0].is_reply
        for message in messages:
            reacted = {user for r in message.reactions for user in r.users}
            assert {message.user, *re.findall(r"<@([^>]+)>", message.text), *reacted} <= known
            assert set(re.findall(r"<#([^>]+)>", message.text)) <= places
    everything = [m for channel in workspace.channels for m in channel.messages]
    assert any(m.subtype == "tombstone" for m in everything)
    assert any(m.files for m in everything)
    (order,) = (m.text for m in everything if "ignore tes instructions" in m.text)
    assert "\n> " in order


def test_every_thread_is_labelled_once_with_its_customers_and_state(
    workspace: Workspace, truth: Labels
) -> None:
    assert list(truth.channels) == [channel.name for channel in workspace.channels]
    bots = {user.id for user in workspace.users if user.is_bot}
    for channel in workspace.channels:
        read, labelled = threads(channel), truth.channels[channel.name].threads
        assert sorted(thread.root for thread in labelled) == sorted(read)
        assert {thread.state for thread in labelled} == STATES | {"none"}
        for thread in labelled:
            here, stated = read[thread.root], thread.state != "none"
            assert list(thread.customers) == customers(here)
            assert bool(thread.customers) == bool(thread.severity) == stated
            others = {m.user for m in here} - {here[0].user} - bots
            assert not stated or (thread.state == "unanswered") == (not others)


def test_billing_leads_three_markets_and_all_in_one_heap_but_neither_of_the_others(
    workspace: Workspace, truth: Labels
) -> None:
    found = {c.name: counted(c, truth.channels[c.name]) for c in workspace.channels}
    tops = {name: leaders(issues) for name, issues in found.items()}
    assert tops["csm-spain"] == tops["csm-france"] == tops["csm-italy"] == (BILLING, BILLING)
    assert tops["csm-germany"] == ("tse-signature", "tse-signature")
    assert tops["csm-switzerland"] == ("twint-timeout", "twint-timeout")
    assert all(truth.channels[name].top_issue == top for name, (top, _) in tops.items())
    germany = truth.channels["csm-germany"].threads
    assert sorted(t.state for t in germany if t.issue == BILLING) == ["solved", "unsolved"]
    heap = {
        issue: (
            sum(issues[issue][0] for issues in found.values() if issue in issues),
            set[str]().union(*(issues[issue][1] for issues in found.values() if issue in issues)),
        )
        for issue in (BILLING, "tse-signature")
    }
    assert heap[BILLING][0] > 2 * heap["tse-signature"][0]
    assert len(heap[BILLING][1]) > 2 * len(heap["tse-signature"][1])


def test_reported_issues_are_tracked_untracked_and_closed_too_early(
    workspace: Workspace, truth: Labels
) -> None:
    (tracker,) = workspace.lists
    items = {item.values["key"]: item.values for item in tracker.items}
    assert len(items) == len(tracker.items) == 40
    for values in items.values():
        assert (values["status"] == "closed") == ("closed" in values)
        assert all(values[c.key] in c.options for c in tracker.columns if c.options)
    newest: dict[str, str] = {}
    for known in truth.channels.values():
        for thread in (t for t in known.threads if t.issue and t.state != "solved"):
            at = moment(thread.root.partition("/")[2])
            newest[thread.issue] = max(newest.get(thread.issue, ""), f"{at:%Y-%m-%d}")
    keys = {issue: truth.issues[issue].tracker for issue in newest}
    assert sum(key is None for key in keys.values()) >= 3
    status = {issue: items[key]["status"] for issue, key in keys.items() if key}
    assert {"open", "in progress", "closed"} == set(status.values())
    closed = {issue for issue, value in status.items() if value == "closed"}
    assert len(closed) >= 3
    assert all(newest[issue] > items[str(keys[issue])]["closed"] for issue in closed)


# ---- the mailbox


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


def test_64_mails_in_50_threads_fit_the_workspace_and_its_window(
    mailbox: Mailbox, read: dict[str, MailText], workspace: Workspace
) -> None:
    keys = [key for key, _ in sample_mails()]
    assert len(mailbox.messages) == len(keys) == 64
    assert mailbox.problems == ()
    pairs = {(m.thread, key) for m, key in zip(mailbox.messages, keys, strict=True)}
    assert len(pairs) == len({t for t, _ in pairs}) == len({k for _, k in pairs}) == 50
    for message in mailbox.messages:
        assert BEGINS <= message.at < SAMPLE_AS_OF
        assert read[message.id].date == message.at
    people = {user.email: user.real_name for user in workspace.users if user.email}
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


def test_every_mail_is_read_whole_and_each_kind_is_there(
    mailbox: Mailbox, read: dict[str, MailText]
) -> None:
    assert all(text.subject and text.sender and text.body for text in read.values())
    assert {text.cut for text in read.values()} == {""}
    bodies = " ".join(text.body for text in read.values())
    assert "\ufffd" not in bodies
    entry = next(entry for key, entry in sample_mails() if key == "split-bill-es")
    assert b"Content-Type" not in entry.raw  # windows-1252 that no header tells
    assert "¿Es un fallo".encode("cp1252") in entry.raw
    assert "sólo muestra el primer plato" in bodies
    attached = {a.name.rpartition(".")[2] for t in read.values() for a in t.attachments}
    labelled = [label for m in mailbox.messages for label in m.labels]
    assert "multipart/report" in [part_of(m.raw).kind for m in mailbox.messages]
    assert sum(bool(header(m, "List-Unsubscribe")) for m in mailbox.messages) >= 5
    assert sum(bool(header(m, "Auto-Submitted")) for m in mailbox.messages) >= 4
    assert {"pdf", "docx", "xlsx"} <= attached
    assert "Calendar invitation: Refund batch go/no-go" in bodies
    assert "Calendar cancellation: Pricing sync" in bodies
    assert "Attached message from Odile Garnier" in bodies
    assert labelled.count("SENT") >= 6
    assert labelled.count("DRAFT") == labelled.count("SPAM") == 1
    assert sum("wrote:\n> " in text.body for text in read.values()) >= 8
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
