"""Messages that are written bit by bit, with the real client against the local Slack."""

from collections.abc import Iterator
from typing import Any

import pytest
from engine_kit import MUX
from slack_sdk.errors import SlackApiError
from slack_sdk.models.blocks import Block, PlanBlock, TaskCardBlock
from slack_sdk.models.messages.chunk import (
    BlocksChunk,
    Chunk,
    MarkdownTextChunk,
    PlanUpdateChunk,
    TaskUpdateChunk,
)
from slack_sdk.web.async_client import AsyncWebClient

from bot.local.slack.faults import StreamsRefused
from bot.local.slack.records import Row
from bot.local.slack.server import API_PATH, BOT_TOKEN, LocalSlack
from bot.local.slack.state import BOT_USER
from bot.local.slack.streams import halt
from bot.local.workspace import Channel, Message, User, Workspace

ROOT = "1740000000.000100"
WORKSPACE = Workspace(
    users=(User("U0ANA", "ana"), User("U0LUIS", "luis")),
    channels=(
        Channel("C0OPS", "ops", (Message(ROOT, "What is open?", "U0ANA"),), ("U0ANA", "U0LUIS")),
        Channel("C0OLD", "old", (Message(ROOT, "x", "U0ANA"),), ("U0ANA",), is_archived=True),
        Channel(
            "D0ANA", "", (Message(ROOT, "Hi", "U0ANA"),), ("U0ANA", BOT_USER), is_private=True,
            is_im=True,
        ),
    ),
)  # fmt: skip
HERE: dict[str, Any] = {
    "channel": "C0OPS",
    "thread_ts": ROOT,
    "recipient_team_id": "T0LOCAL",
    "recipient_user_id": "U0ANA",
}
FOOTER = [{"type": "context", "elements": [{"type": "mrkdwn", "text": "2 sources"}]}]
METADATA = {"event_type": "assistant_reply", "event_payload": {"key": "T0LOCAL/C0OPS/1"}}


class Clock:
    """The time of the local Slack, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_740_000_100.0

    def __call__(self) -> float:
        return self.seconds


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def slack(clock: Clock) -> LocalSlack:
    return LocalSlack(WORKSPACE, now=clock)


@pytest.fixture
def url(slack: LocalSlack) -> Iterator[str]:
    with MUX.serving(slack.app) as base:
        yield base + API_PATH


@pytest.fixture
def web(url: str) -> AsyncWebClient:
    return AsyncWebClient(BOT_TOKEN, url, retry_handlers=[])


async def error(web: AsyncWebClient, method: str, **args: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        await web.api_call(method, json=args)
    return str(caught.value.response["error"])


async def opened(web: AsyncWebClient, **args: Any) -> dict[str, Any]:
    """Where the stream that was just started is: what append and stop need."""
    answer = await web.chat_startStream(**{**HERE, **args})
    return {"channel": answer["channel"], "ts": answer["ts"]}


def shown(slack: LocalSlack, channel: str = "C0OPS") -> Any:
    return slack.visible(channel, ROOT)[-1]


async def test_a_plan_and_then_the_answer_arrive_bit_by_bit(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    at = await opened(web, task_display_mode="plan", chunks=[PlanUpdateChunk(title="Reading")])
    await web.chat_appendStream(
        **at,
        chunks=[
            TaskUpdateChunk(id="a", title="#ops", status="in_progress", details="40 messages"),
            TaskUpdateChunk(id="b", title="#dev", status="pending"),
        ],
    )
    half = shown(slack)
    assert (half.streaming, half.text, half.plan_title) == (True, "", "Reading")
    assert [(row.id, row.status) for row in half.plan] == [("a", "in_progress"), ("b", "pending")]
    source = {"type": "url", "url": "https://local.slack.com/p1", "text": "one"}
    done: list[Chunk] = [
        TaskUpdateChunk(id="a", title="#ops", status="complete", output="3 open", sources=[source]),
        TaskUpdateChunk(id="b", title="#dev", status="complete"),
        MarkdownTextChunk(text="**Three** are "),
    ]
    await web.chat_appendStream(**at, chunks=done)
    await web.chat_appendStream(**at, chunks=[MarkdownTextChunk(text="open.")])
    stopped = await web.chat_stopStream(
        **at, blocks=FOOTER, metadata=METADATA, session_status="active"
    )
    assert stopped["message"]["streaming_state"] == "completed"
    whole = shown(slack)
    assert (whole.streaming, whole.user) == (False, BOT_USER)
    assert whole.text == "**Three** are open.\n2 sources"
    assert whole.plan[0] == Row("a", "#ops", "complete", "40 messages", "3 open", [source])
    assert whole.metadata == METADATA
    assert slack.state.sessions["C0OPS", ROOT].status == "active"
    assert [effect.method for effect in slack.effects] == [
        "chat.startStream", *["chat.appendStream"] * 3, "chat.stopStream",
    ]  # fmt: skip


async def test_what_is_streamed_can_be_read_in_the_thread_at_once(web: AsyncWebClient) -> None:
    at = await opened(web, markdown_text="Half an")
    thread = (await web.conversations_replies(channel="C0OPS", ts=ROOT))["messages"]
    assert (thread[-1]["ts"], thread[-1]["text"]) == (at["ts"], "Half an")
    assert thread[-1]["streaming_state"] == "in_progress"
    await web.chat_appendStream(**at, markdown_text=" answer")
    await web.chat_stopStream(**at, metadata=METADATA)
    read = await web.conversations_replies(channel="C0OPS", ts=ROOT, include_all_metadata=True)
    assert read["messages"][-1]["text"] == "Half an answer"
    assert read["messages"][-1]["metadata"] == METADATA
    assert read["messages"][-1]["thread_ts"] == ROOT


async def test_the_text_reads_back_as_mrkdwn_with_the_titles_of_the_tasks(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    markdown = "## Open\n- **Card** [refused](https://x/1)\n- Login"
    at = await opened(
        web,
        task_display_mode="plan",
        chunks=[
            PlanUpdateChunk(title="Read"),
            TaskUpdateChunk(id="a", title="#ops", status="complete"),
            MarkdownTextChunk(text=markdown),
        ],
    )
    message = (await web.chat_stopStream(**at))["message"]
    assert message["text"] == "Open\n• *Card* <https://x/1|refused>\n• Login Read #ops"
    assert shown(slack).text == markdown


@pytest.mark.parametrize("mode", ["plan", "timeline"])
async def test_blocks_of_a_stream_are_blocks_that_the_sdk_knows(
    web: AsyncWebClient, mode: str
) -> None:
    chunks: list[Chunk] = [
        TaskUpdateChunk(id="a", title="#ops", status="complete", output="done"),
        MarkdownTextChunk(text="Text"),
        BlocksChunk(blocks=[{"type": "divider"}]),
    ]
    at = await opened(web, task_display_mode=mode, chunks=chunks)
    message = (await web.chat_stopStream(**at, blocks=FOOTER))["message"]
    parsed = Block.parse_all(message["blocks"])
    for block in parsed:
        block.validate_json()
    assert len({block["block_id"] for block in message["blocks"]}) == len(message["blocks"])
    first = parsed[0]
    assert isinstance(first, PlanBlock if mode == "plan" else TaskCardBlock)
    tasks = first.tasks if isinstance(first, PlanBlock) else [message["blocks"][0]]
    for task in tasks or ():
        assert isinstance(task, dict)
        TaskCardBlock(**task).validate_json()


async def test_the_sdks_own_stream_writer_gets_its_text_through(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    stream = await web.chat_stream(**HERE, buffer_size=16, task_display_mode="plan")
    for word in ("One ", "two ", "three ", "four ", "five"):
        await stream.append(markdown_text=word)
    await stream.append(chunks=[TaskUpdateChunk(id="a", title="Read", status="complete")])
    await stream.stop(blocks=FOOTER, session_status="active")
    assert shown(slack).text == "One two three four five\n2 sources"


async def test_a_stream_in_a_channel_names_whom_it_is_for_and_its_thread(
    web: AsyncWebClient,
) -> None:
    start = "chat.startStream"
    whole = dict(HERE)
    for name, code in (
        ("recipient_team_id", "missing_recipient_team_id"),
        ("recipient_user_id", "missing_recipient_user_id"),
        ("thread_ts", "invalid_arguments"),
    ):
        assert await error(web, start, **{k: v for k, v in whole.items() if k != name}) == code
    assert await error(web, start, **whole | {"recipient_user_id": "U0NOBODY"}) == "user_not_found"
    other = whole | {"recipient_team_id": "T0OTHER"}
    assert await error(web, start, **other) == "user_not_found", "nobody of theirs has that id"
    assert await error(web, start, **whole | {"thread_ts": "1.1"}) == "thread_not_found"
    assert await error(web, start, **whole | {"channel": "C0NONE"}) == "channel_not_found"
    assert await error(web, start, **whole | {"task_display_mode": "list"}) == "invalid_arguments"
    assert await error(web, start, **whole | {"channel": "C0OLD"}) == "is_archived"
    direct = await web.chat_startStream(channel="D0ANA", thread_ts=ROOT)
    assert direct["channel"] == "D0ANA"


@pytest.mark.parametrize("code", ["unknown_method", "channel_type_not_supported"])
async def test_a_slack_that_refuses_streams_refuses_each_call_and_takes_messages(
    slack: LocalSlack, web: AsyncWebClient, code: StreamsRefused
) -> None:
    slack.streams_refused = code
    assert await error(web, "chat.startStream", **HERE) == code
    posted = await web.chat_postMessage(channel="C0OPS", thread_ts=ROOT, text="x")
    for method in ("chat.appendStream", "chat.stopStream"):
        assert await error(web, method, channel="C0OPS", ts=posted["ts"]) == code
    slack.streams_refused = "404"
    with pytest.raises(SlackApiError) as caught:
        await web.chat_startStream(**HERE)
    assert caught.value.response.status_code == 404


@pytest.mark.parametrize(
    "chunk",
    [
        {"type": "task_update", "id": "a", "title": "x", "status": "done"},
        {"type": "task_update", "id": "a", "status": "complete"},
        {"type": "task_update", "title": "x", "status": "complete"},
        {"type": "task_update", "id": "a", "title": "x" * 257, "status": "complete"},
        {"type": "task_update", "id": "a", "title": "x", "status": "error", "output": "y" * 257},
        {"type": "task_update", "id": "a", "title": "x", "status": "error", "sources": [{}]},
        {"type": "plan_update"},
        {"type": "plan_update", "title": ""},
        {"type": "markdown_text", "text": 7},
        {"type": "markdown"},
        {"text": "x"},
        "x",
    ],
)
async def test_a_chunk_of_another_shape_is_refused(web: AsyncWebClient, chunk: Any) -> None:
    assert await error(web, "chat.startStream", **HERE, chunks=[chunk]) == "invalid_chunks"


async def test_a_refused_append_leaves_the_stream_as_it_was(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    at = await opened(web, chunks=[MarkdownTextChunk(text="Good")])
    long = {"type": "markdown_text", "text": "x" * 12_001}
    fine = {"type": "markdown_text", "text": "fine"}
    append = "chat.appendStream"
    assert await error(web, append, **at, chunks=[fine, long]) == "msg_too_long"
    assert await error(web, append, **at, chunks=[fine, {"type": "no"}]) == "invalid_chunks"
    bad = {"type": "blocks", "blocks": [{"type": "section"}]}
    assert await error(web, append, **at, chunks=[fine, bad]) == "invalid_blocks"
    assert await error(web, append, **at) == "no_text"
    both = "cannot_provide_both_markdown_text_and_chunks"
    assert await error(web, append, **at, chunks=[fine], markdown_text="x") == both
    assert await error(web, "chat.stopStream", **at, blocks=[{"type": "no"}]) == "invalid_blocks"
    stop = "chat.stopStream"
    assert await error(web, stop, **at, session_status="dead") == "invalid_arguments"
    tasks = [{"type": "task_update", "id": str(n), "title": "x", "status": "pending"}
             for n in range(51)]  # fmt: skip
    assert await error(web, append, **at, chunks=tasks) == "invalid_chunks"
    assert (shown(slack).text, shown(slack).streaming) == ("Good", True)
    assert len(slack.effects) == 1


async def test_the_first_content_locks_a_stream_to_text_or_to_chunks(web: AsyncWebClient) -> None:
    text, chunk = {"markdown_text": "x"}, {"chunks": [{"type": "markdown_text", "text": "x"}]}
    for first, other in ((text, chunk), (chunk, text)):
        for at in (await opened(web, **first), await opened(web)):
            if at:
                await web.api_call("chat.appendStream", json={**at, **first})
            assert await error(web, "chat.appendStream", **at, **other) == "streaming_mode_mismatch"
            assert await error(web, "chat.stopStream", **at, **other) == "streaming_mode_mismatch"


async def test_while_it_streams_a_message_can_neither_be_changed_nor_deleted(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    at = await opened(web, markdown_text="Half")
    assert await error(web, "chat.update", **at, text="New") == "streaming_state_conflict"
    assert await error(web, "chat.delete", **at) == "cant_delete_message"
    await web.chat_stopStream(**at)
    await web.chat_update(**at, text="New", blocks=[])
    assert shown(slack).text == "New"
    assert await error(web, "chat.appendStream", **at, markdown_text="x") == (
        "message_not_in_streaming_state"
    )
    assert await error(web, "chat.stopStream", **at) == "message_not_in_streaming_state"
    await web.chat_delete(**at)
    assert len(slack.visible("C0OPS", ROOT)) == 1


async def test_a_stream_dies_of_age_even_if_it_is_written_to(
    slack: LocalSlack, web: AsyncWebClient, clock: Clock
) -> None:
    working = TaskUpdateChunk(id="a", title="Reading", status="in_progress")
    at = await opened(web, task_display_mode="plan", chunks=[working])
    for _ in range(2):
        clock.seconds += 149
        await web.chat_appendStream(**at, chunks=[MarkdownTextChunk(text="more ")])
    clock.seconds += 2
    assert (shown(slack).streaming, shown(slack).plan_title) == (False, "Something went wrong")
    gone = "message_not_in_streaming_state"
    assert await error(web, "chat.appendStream", **at, markdown_text="x") == gone
    assert await error(web, "chat.stopStream", **at, metadata=METADATA) == gone
    assert (shown(slack).text, shown(slack).metadata) == ("more more ", None)
    body = [{"type": "markdown", "text": "All of it"}]
    await web.chat_update(**at, text="All of it", blocks=body, metadata=METADATA)
    assert (shown(slack).text, shown(slack).metadata) == ("All of it", METADATA)
    assert shown(slack).plan == ()


async def test_the_life_of_a_stream_can_be_shortened(
    slack: LocalSlack, web: AsyncWebClient, clock: Clock
) -> None:
    slack.state.stream_ttl_s = 2.0
    at = await opened(web, markdown_text="x")
    clock.seconds += 2
    thread = (await web.conversations_replies(channel="C0OPS", ts=ROOT))["messages"]
    assert thread[-1]["streaming_state"] == "completed"
    assert await error(web, "chat.stopStream", **at) == "message_not_in_streaming_state"


async def test_a_person_can_stop_the_streams_of_a_thread(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    first, second = await opened(web, markdown_text="a"), await opened(web, markdown_text="b")
    direct = await opened(web, channel="D0ANA", markdown_text="c")
    assert halt(slack.state, "C0OPS", ROOT) == [first["ts"], second["ts"]]
    assert halt(slack.state, "C0OPS", ROOT) == []
    assert await error(web, "chat.appendStream", **first, markdown_text="x") == "stopped_by_user"
    assert await error(web, "chat.stopStream", **first) == "message_not_in_streaming_state"
    await web.chat_update(**first, text="Stopped.", blocks=[])
    await web.chat_appendStream(**direct, markdown_text="d")


async def test_a_stream_belongs_to_the_app_that_began_it(web: AsyncWebClient, url: str) -> None:
    root = {"channel": "C0OPS", "ts": ROOT}
    assert await error(web, "chat.appendStream", **root, markdown_text="x") == (
        "message_not_owned_by_app"
    )
    assert await error(web, "chat.stopStream", channel="C0OPS", ts="1.1") == "message_not_found"
    ana = AsyncWebClient("xoxp-U0ANA", url, retry_handlers=[])
    assert await error(ana, "chat.startStream", **HERE) == "missing_scope"
