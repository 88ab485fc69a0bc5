"""The tools of the `slack` scope, called through the gate as a subagent calls them."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import timedelta

import pytest
from engine_kit import MUX, no_grants
from hypothesis import given, settings
from hypothesis import strategies as st
from standins.slack import API_PATH, BOT_TOKEN, LocalSlack
from standins.slack_faults import Fault
from tool_kit import Caller, context

from bot.local.slack.state import BOT_USER
from bot.local.workspace import (
    Channel,
    Message,
    Team,
    User,
    Workspace,
)
from bot.policy.directory import SlackDirectory
from bot.slack.people import People
from config.settings import load_settings
from scopes.intent import EMPTY_INTENT, find_named
from scopes.label import TRUSTED_LABEL, Label
from scopes.members import Members
from scopes.slack import OPEN_SEARCH, page
from scopes.slack_client import SlackRefused, connect, open_session
from scopes.slack_items import at_of
from scopes.slack_reader import SlackConversation, SlackReader
from scopes.tool import (
    BEFORE_WINDOW,
    Item,
    ToolResult,
    Window,
    estimate_tokens,
    most_tokens_of,
    tokens_of,
)
from subagents.delimiter import new_delimiter, render
from subagents.evidence import SourceLog

DAY = 86_400
START = 1_741_564_800
WINDOW = Window(at_of(f"{START}.0"), at_of(f"{START + 5 * DAY}.0"))


def ts(day: float) -> str:
    return f"{int(START + day * DAY)}.000001"


def message(day: float, text: str, user: str = "U0ANA", root: float | None = None) -> Message:
    return Message(ts(day), text, user, thread_ts="" if root is None else ts(root))


SUPPORT = Channel(
    "C0SUPPORT",
    "support-es",
    (
        message(-1, "before the window: card"),
        message(1, "My CARD is refused"),
        message(1.1, "Which card?", "U0LUIS", 1),
        message(2, "Invoice twice", "U0ANA"),
        message(6, "a reply from the future", "U0LUIS", 1),
        message(9, "a card from the future"),
    ),
    ("U0ANA", "U0LUIS"),
)
OTHER = Channel("C0OTHER", "random", (message(1, "card tricks"),), ("U0LUIS",))
SECRET = Channel("G0SECRET", "board", (message(1, "secret card"),), ("U0LUIS",), is_private=True)
WORKSPACE = Workspace(
    Team("T0ACME", "Acme", "acme"),
    (
        User("U0ANA", "ana", "Ana Ruiz"),
        User("U0LUIS", "luis", "Luis Gil"),
    ),
    (SUPPORT, OTHER, SECRET),
)
HELD = {"C0SUPPORT": "#support-es"}


class SlackCaller(Caller):
    """A context that reads Slack."""

    slack: LocalSlack
    reader: SlackReader


@asynccontextmanager
async def slack_caller(
    titles: dict[str, str] | None = None,
    own: str = "xoxp-U0ANA",
    requester: str | None = None,
    channels: Sequence[Channel] = (SUPPORT, OTHER, SECRET),
    token: str = BOT_TOKEN,
    **more: int,
) -> AsyncIterator[SlackCaller]:
    """Without a requester the operator calls. `more` are settings of Slack."""
    slack = LocalSlack(replace(WORKSPACE, channels=tuple(channels)))
    limits = load_settings(env={}).slack.model_copy(update={"retry_attempts": 0, **more})
    with MUX.served_app(slack.app) as served:
        url = served + API_PATH
        async with open_session(limits) as session:
            web = connect(session, token, url, limits)
            reader = SlackReader(web, timedelta(days=365), connect(session, own, url, limits))
            people, members = People(web), Members(web)
            directory = SlackDirectory(members, people, no_grants, BOT_USER, WORKSPACE.team.id)
            options = {"requester": requester, "window": WINDOW, "intent": EMPTY_INTENT}
            held = HELD if titles is None else titles
            ctx = context("slack", {SlackReader: reader}, held, **options)
            call = SlackCaller(ctx, directory if requester else None)
            call.slack, call.reader = slack, reader
            yield call
            await members.aclose()


def ids(result: ToolResult) -> list[str]:
    return [item.id for item in result.items]


async def test_channel_history_returns_only_messages_in_the_window() -> None:
    async with slack_caller() as call:
        for name in ("C0SUPPORT", "#support-es", "support-es"):
            found = await call("read_channel_history", channel=name)
            expected = ["My CARD is refused", "Which card?", "Invoice twice"]
            assert [i.text for i in found.items] == expected
            assert found.holds == {"C0SUPPORT": tuple(ids(found))}
            assert found.note == "2 threads, 3 messages in window. Last page."
            assert found.truncated == ""


async def test_thread_is_read_by_any_of_its_messages_up_to_the_window_end() -> None:
    async with slack_caller() as call:
        for day in (1, 1.1):
            found = await call("read_thread", thread=f"C0SUPPORT/{ts(day)}")
            assert ids(found) == [f"C0SUPPORT/{ts(1)}", f"C0SUPPORT/{ts(1.1)}"]
            assert found.holds == {}
        link = await call("get_permalink", message=f"C0SUPPORT/{ts(1)}")
        assert link.note == found.items[0].link
        old = await call("read_thread", thread=f"C0SUPPORT/{ts(-1)}")
        assert old.items[0].notes == ("before window",)
        late = f"C0SUPPORT/{ts(9)}"
        assert (await call.refusal_reason("read_thread", thread=late)).startswith("No ")


async def test_search_matches_all_words_in_granted_channels_only() -> None:
    async with slack_caller() as call:
        found = await call("search_messages", query="card")
        assert [i.text for i in found.items] == ["Which card?", "My CARD is refused"]
        assert found.note.startswith("Messages found: 2;")
        assert ids(await call("search_messages", query="card refused")) == [f"C0SUPPORT/{ts(1)}"]
        assert ids(await call("search_messages", query="luis which")) == [f"C0SUPPORT/{ts(1.1)}"]
        assert (await call("search_messages", query="elephant")).items == ()
        assert "no word" in await call.refusal_reason("search_messages", query="?!")
        assert not call.slack.calls["search.messages"]
    async with slack_caller({**HELD, f"C0SUPPORT/{ts(1)}": "a thread"}) as call:
        assert await call("search_messages", query="card") == found


async def test_workspace_search_covers_other_channels_and_respects_the_window() -> None:
    async with slack_caller({**HELD, OPEN_SEARCH: ""}) as call:
        found = await call("search_messages", query="card")
        expected = ["My CARD is refused", "Which card?", "card tricks"]
        assert sorted(i.text for i in found.items) == expected
        assert all(i.link for i in found.items)
        assert found.handles == {}


async def test_private_search_results_are_labelled_for_their_readers_only() -> None:
    async with slack_caller({OPEN_SEARCH: ""}, own="xoxp-U0LUIS") as call:
        found = await call("search_messages", query="secret card")
        assert [i.text for i in found.items] == ["secret card"]
        assert found.items[0].label.readers == frozenset({"U0LUIS"})


async def test_search_neither_returns_nor_counts_what_its_requester_may_not_read() -> None:
    async with slack_caller({OPEN_SEARCH: ""}, own="xoxp-U0LUIS", requester="U0ANA") as call:
        found = await call("search_messages", query="card")
        assert {each.id.partition("/")[0] for each in found.items} == {"C0SUPPORT", "C0OTHER"}
        assert found.note.startswith("Messages found: 3;"), "the hidden one is not counted"


BOARD = frozenset({"U0LUIS", BOT_USER})


async def test_results_from_a_private_channel_are_labelled_for_its_members_even_if_empty() -> None:
    held, board = {"G0SECRET": "#board"}, replace(SECRET, members=tuple(BOARD))
    async with slack_caller(held, requester="U0LUIS", channels=(board,)) as call:
        found = await call("get_permalink", message=f"G0SECRET/{ts(1)}")
        assert found.label.readers == BOARD
        found = await call("read_thread", thread=f"G0SECRET/{ts(1)}")
        assert found.label.readers == BOARD
    empty = replace(board, messages=())
    async with slack_caller(held, requester="U0LUIS", channels=(empty,)) as call:
        for name, arguments in (
            ("read_channel_history", {"channel": "#board"}),
            ("search_messages", {"query": "card"}),
        ):
            found = await call(name, **arguments)
            assert found.items == ()
            assert found.label.readers == BOARD
            assert found.label.sources == frozenset({"G0SECRET"})


async def test_writes_by_the_command_line_operator_are_denied() -> None:
    async with slack_caller() as call:
        for name, arguments in (
            ("post_message", {"channel": "C0SUPPORT", "text": "hi"}),
            ("add_reaction", {"message": f"C0SUPPORT/{ts(1)}", "name": "eyes"}),
        ):
            assert "the command line writes nowhere" in await call.refusal_reason(name, **arguments)
        assert [d.verdict for d in call.decisions] == ["deny", "deny"]
        assert not call.slack.effects


LINES = st.lists(
    st.tuples(st.integers(1, 900), st.lists(st.integers(1, 900), max_size=6)), max_size=12
)


def conversations(shape: list[tuple[int, list[int]]]) -> list[SlackConversation]:
    found = []
    for n, sizes in enumerate([letters, *replies] for letters, replies in shape):
        stamps = [f"{START + 1000 * n + k}.000001" for k in range(len(sizes))]
        root, *rest = [
            Item(f"C1/{at}", "x" * size, None, Label(True), "U1", at_of(at), "Ana")
            for at, size in zip(stamps, sizes, strict=True)
        ]
        replies = tuple(replace(each, thread=root.id) for each in rest)
        found.append(SlackConversation(root, replies))
    return found


@settings(max_examples=100)
@given(LINES, st.integers(180, 1500))
def test_pages_show_every_message_once(shape: list[tuple[int, list[int]]], max_tokens: int) -> None:
    found, delimiter = conversations(shape), new_delimiter()
    cursor, shown, log = "", list[str](), SourceLog()
    for _ in range(500):
        result = page(found, "C1", cursor, max_tokens)
        text, count = render(result, delimiter, max_tokens + 120)
        assert count == len(result.items), "a line was cut that no later page shows"
        assert estimate_tokens(text) <= max_tokens + 240
        rows = [r for r in text.splitlines() if r.lstrip().startswith("[")]
        assert not rows or not rows[0].startswith(" "), "a reply appears without its root"
        roots = {i.id for i in log.items.values()}
        shown += [i.id for i in result.items if i.id not in roots]
        repeated = [i.id for i in result.items if i.id in roots]
        assert len(repeated) <= 1
        log.add(result.items, result.holds)
        more = re.search(r'cursor="(\S+)"', result.truncated)
        if not more:
            break
        cursor = more[1]
    else:
        raise AssertionError("the pages never end")
    assert shown == [i.id for c in found for i in c.items]
    assert log.coverage().complete


@given(st.text(), st.text(), st.none() | st.text(), st.lists(st.text(), max_size=4), st.booleans())
def test_item_never_exceeds_its_estimated_token_maximum(
    id: str, text: str, by: str | None, notes: list[str], replies: bool
) -> None:
    root = "C1/1.0" if replies else None
    item = Item(id, text, None, TRUSTED_LABEL, None, at_of("1.0"), by, root, tuple(notes))
    assert tokens_of(item) <= most_tokens_of(item)


CHANNELS = [("C0SUPPORT0", "support-es"), ("C0RANDOM00", "Zufall-ä"), ("G0SECRET00", "board")]


@pytest.mark.parametrize(
    ("request_text", "named"),
    [
        ("What is open in #support-es?", ["C0SUPPORT0"]),
        ("(#support-es), #zufall-ä.", ["C0SUPPORT0", "C0RANDOM00"]),
        ("<#C0SUPPORT0|support-es> and <#C0RANDOM00>", ["C0SUPPORT0", "C0RANDOM00"]),
        ("C0SUPPORT0 please", ["C0SUPPORT0"]),
        (
            "https://acme.slack.com/archives/C0SUPPORT0/p1741564800000001",
            ["C0SUPPORT0", "C0SUPPORT0/1741564800.000001"],
        ),
        ("see a&#support-es or x#support-es or #9", []),
    ],
)
def test_channels_named_in_a_request_are_found(request_text: str, named: list[str]) -> None:
    assert sorted(find_named(request_text, CHANNELS)) == sorted(named)


# ---- the reader: pages, threads, the window


def channel(*messages: Message) -> Channel:
    return Channel("C0SUPPORT", "support", messages, ("U0ANA", "U0LUIS"))


async def read(
    *messages: Message, page_size: int = 200, token: str = BOT_TOKEN
) -> list[SlackConversation]:
    channels = (channel(*messages),)
    async with slack_caller(channels=channels, page_size=page_size, token=token) as call:
        return await call.reader.conversations("C0SUPPORT", WINDOW)


def texts(found: Sequence[SlackConversation]) -> list[list[str]]:
    return [[i.text for i in c.items] for c in found]


THREADS = (
    message(-3, "old question"),
    message(-2, "old answer", "U0LUIS", -3),
    message(1, "new answer", "U0LUIS", -3),
    message(-1, "old and over"),
    message(-0.5, "old reply", "U0LUIS", -1),
    message(2, "question"),
    message(3, "answer", "U0LUIS", 2),
    message(6, "answer after the end", "U0LUIS", 2),
    message(4, "alone"),
    message(7, "question after the end"),
)


@pytest.mark.parametrize("page_size", [1, 2, 3, 200])
async def test_window_includes_its_threads_and_older_ones_with_new_replies(page_size: int) -> None:
    found = await read(*THREADS, page_size=page_size)
    assert texts(found) == [
        ["old question", "old answer", "new answer"],
        ["question", "answer"],
        ["alone"],
    ]
    assert [c.in_window for c in found] == [1, 2, 1]
    before = [i.text for c in found for i in c.items if BEFORE_WINDOW in i.notes]
    assert before == ["old question", "old answer"]
    old = Channel("C0OLD", "old", THREADS, ("U0ANA",))
    async with slack_caller({"C0OLD": "#old"}, channels=(old,)) as call:
        shown = await call("read_channel_history", channel="C0OLD")
    assert [i.text for i in shown.items if i.id not in shown.holds["C0OLD"]] == before


async def test_unanswered_bot_posts_are_skipped_but_conversations_with_it_are_read() -> None:
    found = await read(
        *(message(1, "a report of mine", BOT_USER), message(1.1, "its table", BOT_USER, 1)),
        *(message(2, "another one", BOT_USER), message(2.1, "TWINT works again", root=2)),
        *(message(3, "what is open?"), message(3.1, "two things", BOT_USER, 3)),
    )
    assert texts(found) == [["another one", "TWINT works again"], ["what is open?", "two things"]]


async def test_replies_of_a_deleted_root_stay_in_one_thread() -> None:
    root = Message(ts(1), "This message was deleted.", "USLACKBOT", thread_ts=ts(1))
    found = await read(
        replace(root, subtype="tombstone"),
        message(1.1, "still here", "U0LUIS", 1),
        message(1.2, "me too", "U0ANA", 1),
    )
    assert texts(found) == [["still here", "me too"]]
    first = found[0].root
    assert first.thread is None
    assert found[0].replies[0].thread == first.id
    stamp = ts(1.1).replace(".", "")
    assert first.link == f"https://acme.slack.com/archives/C0SUPPORT/p{stamp}"


async def test_own_messages_are_read_with_a_user_token() -> None:
    messages = message(1, "nobody has answered me"), message(2, "anybody?", "U0LUIS")
    found = await read(*messages, token="xoxp-U0ANA")
    assert texts(found) == [["nobody has answered me"], ["anybody?"]]


async def test_each_source_is_fetched_once_for_several_readers() -> None:
    async with slack_caller(channels=(channel(*THREADS),)) as call:
        patient = call.reader.patient()
        for each in (patient, call.reader, call.reader):
            await each.conversations("C0SUPPORT", WINDOW)
        assert (patient.web.is_patient, call.reader.web.is_patient) == (True, False)
    for method in ("conversations.history", "users.list", "auth.test"):
        assert call.slack.calls[method] == 1


@pytest.mark.parametrize(
    ("method", "kind"), [("conversations.history", "500"), ("conversations.replies", "malformed")]
)
async def test_malformed_slack_response_is_reported_in_one_sentence_and_not_cached(
    method: str, kind: str
) -> None:
    async with slack_caller(channels=(channel(*THREADS),)) as call:
        call.slack.faults += [Fault(method, kind)] * 9
        with pytest.raises(SlackRefused, match=rf"^Slack refused {method}: no proper answer$"):
            await call.reader.conversations("C0SUPPORT", WINDOW)
        call.slack.faults.clear()
        found = await call.reader.conversations("C0SUPPORT", WINDOW)
        assert len(found) == 3, "a failure was cached"


@pytest.mark.parametrize("kind", ["500", "error:internal_error"])
async def test_read_that_slack_could_not_complete_is_repeated(kind: str) -> None:
    async with slack_caller(channels=(channel(*THREADS),), retry_attempts=1) as call:
        call.slack.faults.append(Fault("conversations.history", kind))
        assert len(await call.reader.conversations("C0SUPPORT", WINDOW)) == 3
