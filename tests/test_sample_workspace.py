import re
from collections import Counter, defaultdict
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest

from bot.local.sample_labels import ChannelLabels, Labels, labels
from bot.local.sample_workspace import load_sample
from bot.local.samples import SAMPLE_AS_OF, SAMPLE_DAYS
from bot.local.workspace import Channel, Message, Workspace, micros

BILLING = "billing-double-charge"
STATES = {"unanswered", "unsolved", "waiting", "solved"}


@pytest.fixture(scope="module")
def workspace() -> Workspace:
    return load_sample()


@pytest.fixture(scope="module")
def truth() -> Labels:
    return labels()


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


def test_sample_has_five_markets_of_everyday_size(workspace: Workspace) -> None:
    assert [c.name for c in workspace.channels] == [
        "csm-spain",
        "csm-france",
        "csm-italy",
        "csm-switzerland",
        "csm-germany",
    ]
    assert all(45 <= len(c.messages) <= 70 for c in workspace.channels)


def test_sample_is_the_same_at_every_load(workspace: Workspace) -> None:
    assert load_sample() == workspace


def test_messages_lie_inside_the_window_and_follow_each_other(workspace: Workspace) -> None:
    for channel in workspace.channels:
        times = [datetime.fromtimestamp(micros(m.ts) / 1e6, UTC) for m in channel.messages]
        assert len(set(times)) == len(times)
        assert min(times) >= SAMPLE_AS_OF - timedelta(days=SAMPLE_DAYS)
        assert max(times) < SAMPLE_AS_OF
        for read in threads(channel).values():
            assert [m.ts for m in read] == sorted(m.ts for m in read)
            assert not read[0].is_reply


def test_sample_holds_what_real_channels_hold(workspace: Workspace) -> None:
    for channel in workspace.channels:
        messages = channel.messages
        assert any(m.reactions for m in messages)
        assert any(m.edited for m in messages)
        assert any(m.bot_id for m in messages)
        assert any(m.subtype == "channel_join" for m in messages)
        assert any(m.is_reply for m in messages)
    everything = [m for c in workspace.channels for m in c.messages]
    assert any(m.subtype == "tombstone" for m in everything)
    assert any(m.files for m in everything)


def test_mentions_reactions_and_authors_are_known_people(workspace: Workspace) -> None:
    known = {user.id for user in workspace.users} | {"USLACKBOT"}
    channels = {f"{c.id}|{c.name}" for c in workspace.channels}
    for message in (m for c in workspace.channels for m in c.messages):
        assert message.user in known
        assert set(re.findall(r"<@([^>]+)>", message.text)) <= known
        assert set(re.findall(r"<#([^>]+)>", message.text)) <= channels
        assert {user for r in message.reactions for user in r.users} <= known


def test_every_thread_is_labelled_exactly_once(workspace: Workspace, truth: Labels) -> None:
    assert list(truth.channels) == [c.name for c in workspace.channels]
    for channel in workspace.channels:
        labelled = [thread.root for thread in truth.channels[channel.name].threads]
        assert sorted(labelled) == sorted(threads(channel))


def test_every_state_occurs_in_every_channel(truth: Labels) -> None:
    for known in truth.channels.values():
        assert {thread.state for thread in known.threads} == STATES | {"none"}


def test_labels_name_the_customers_in_the_messages(workspace: Workspace, truth: Labels) -> None:
    for channel in workspace.channels:
        read = threads(channel)
        for thread in truth.channels[channel.name].threads:
            assert list(thread.customers) == customers(read[thread.root])
            assert bool(thread.customers) == (thread.state != "none")
            assert bool(thread.severity) == (thread.state != "none")


def test_unanswered_means_that_only_the_asker_and_bots_wrote(
    workspace: Workspace, truth: Labels
) -> None:
    bots = {user.id for user in workspace.users if user.is_bot}
    for channel in workspace.channels:
        read = threads(channel)
        for thread in truth.channels[channel.name].threads:
            if thread.state != "none":
                here = read[thread.root]
                others = {m.user for m in here} - {here[0].user} - bots
                assert (thread.state == "unanswered") == (not others)


def test_billing_leads_three_markets_and_neither_of_the_others(
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
    assert len(found["csm-germany"]["tse-signature"][1]) >= 6


def test_all_markets_in_one_heap_would_put_billing_first(
    workspace: Workspace, truth: Labels
) -> None:
    messages: Counter[str] = Counter()
    names: dict[str, set[str]] = defaultdict(set)
    for channel in workspace.channels:
        for issue, (number, here) in counted(channel, truth.channels[channel.name]).items():
            messages[issue] += number
            names[issue] |= here
    assert messages[BILLING] > 2 * messages["tse-signature"]
    assert len(names[BILLING]) > 2 * len(names["tse-signature"])


def test_tracker_holds_forty_items_open_in_progress_and_closed(workspace: Workspace) -> None:
    (tracker,) = workspace.lists
    assert (tracker.id, tracker.name, len(tracker.items)) == ("F0BUGTRACK", "Bug tracker", 40)
    assert len({item.values["key"] for item in tracker.items}) == 40
    for item in tracker.items:
        assert (item.values["status"] == "closed") == ("closed" in item.values)
        for column in tracker.columns:
            assert not column.options or item.values[column.key] in column.options


def test_reported_issues_are_tracked_untracked_and_closed_too_early(
    workspace: Workspace, truth: Labels
) -> None:
    items = {item.values["key"]: item.values for item in workspace.lists[0].items}
    newest: dict[str, str] = {}
    for known in truth.channels.values():
        for thread in (t for t in known.threads if t.issue and t.state != "solved"):
            at = datetime.fromtimestamp(micros(thread.root.partition("/")[2]) / 1e6, UTC)
            newest[thread.issue] = max(newest.get(thread.issue, ""), f"{at:%Y-%m-%d}")
    trackers = {issue: truth.issues[issue].tracker for issue in newest}
    assert sum(tracker is None for tracker in trackers.values()) >= 3
    status = {issue: items[key]["status"] for issue, key in trackers.items() if key}
    assert {"open", "in progress", "closed"} == set(status.values())
    closed = {issue for issue, value in status.items() if value == "closed"}
    assert len(closed) >= 3
    assert all(newest[issue] > items[str(trackers[issue])]["closed"] for issue in closed)


def test_one_quoted_mail_tries_to_give_orders(workspace: Workspace) -> None:
    orders = [
        (c.name, m.text)
        for c in workspace.channels
        for m in c.messages
        if "ignore tes instructions" in m.text
    ]
    ((name, text),) = orders
    assert name == "csm-france"
    assert "\n> " in text
