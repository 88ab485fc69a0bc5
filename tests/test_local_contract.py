"""The local Slack against what others know of Slack: the SDK's models, its recorded answers.

The shapes are written after slackapi/java-slack-sdk (json-logs/samples/api, MIT): the type of each
field; they say which fields Slack has, not which it always sends.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from engine_kit import MUX
from slack_sdk.errors import SlackApiError, SlackObjectFormationError
from slack_sdk.models.basic_objects import JsonObject
from slack_sdk.models.blocks import (
    ActionsBlock,
    AlertBlock,
    Block,
    ButtonElement,
    CardBlock,
    CarouselBlock,
    ContainerBlock,
    ContextActionsBlock,
    ContextBlock,
    DividerBlock,
    FeedbackButtonObject,
    FeedbackButtonsElement,
    HeaderBlock,
    IconButtonElement,
    ImageBlock,
    MarkdownBlock,
    MarkdownTextObject,
    PlainTextObject,
    PlanBlock,
    RichTextBlock,
    SectionBlock,
    TableBlock,
    TaskCardBlock,
)
from slack_sdk.models.messages.chunk import (
    BlocksChunk,
    Chunk,
    MarkdownTextChunk,
    PlanUpdateChunk,
    TaskUpdateChunk,
)
from slack_sdk.models.metadata import Metadata
from slack_sdk.models.views import View
from slack_sdk.web.async_client import AsyncWebClient

from bot.local.slack.blocks import checked
from bot.local.slack.server import API_PATH, BOT_TOKEN, LocalSlack
from bot.local.slack.state import APP_ID, BOT_ID, SlackError
from bot.local.slack.views import new_trigger
from bot.local.workspace import Channel, File, Message, User, UserGroup, Workspace

ROOT = "1740000000.000100"
OPS: dict[str, Any] = {"channel": "C0OPS"}
THREAD: dict[str, Any] = {"channel_id": "C0OPS", "thread_ts": ROOT}
STREAM: dict[str, Any] = {
    "thread_ts": ROOT,
    "recipient_team_id": "T0LOCAL",
    "recipient_user_id": "U0ANA",
}
WORKSPACE = Workspace(
    users=(User("U0ANA", "ana", "Ana Ruiz", email="ana@local.example"),),
    channels=(
        Channel(
            "C0OPS",
            "ops",
            (Message(ROOT, "x", "U0ANA", files=(File("F0NOTES", "notes.txt", content=b"x"),)),),
            ("U0ANA",),
        ),
    ),
    usergroups=(UserGroup("S0OPS", "ops", ("U0ANA",)),),
)

# ---- blocks: what the SDK builds is taken, what it refuses is refused


def button(**more: Any) -> ButtonElement:
    return ButtonElement(text="Go", action_id=more.pop("action_id", "go"), **more)


def plain(size: int) -> PlainTextObject:
    return PlainTextObject(text="x" * size)


def card(size: int = 150) -> CardBlock:
    return CardBlock(title=plain(size))


def task(**more: Any) -> TaskCardBlock:
    return TaskCardBlock(**{"task_id": "a", "title": "Read", "status": "pending", **more})


def rows(down: int, across: int) -> list[list[dict[str, str]]]:
    return [[{"type": "raw_text", "text": "x"}] * across] * down


FEEDBACK = FeedbackButtonsElement(
    action_id="feedback",
    positive_button=FeedbackButtonObject(text="Good", value="good"),
    negative_button=FeedbackButtonObject(text="Bad", value="bad"),
)
RICH = RichTextBlock(
    elements=[{"type": "rich_text_section", "elements": [{"type": "text", "text": "x"}]}]
)
AT_THE_LIMIT: list[Block] = [
    SectionBlock(text="x" * SectionBlock.text_max_length, accessory=button()),
    SectionBlock(fields=[MarkdownTextObject(text="x")] * SectionBlock.fields_max_length),
    HeaderBlock(text=plain(HeaderBlock.text_max_length)),
    MarkdownBlock(text="x" * MarkdownBlock.text_max_length),
    DividerBlock(block_id="x" * Block.block_id_max_length),
    ContextBlock(elements=[MarkdownTextObject(text="x")] * ContextBlock.elements_max_length),
    ActionsBlock(elements=[button(action_id=str(n)) for n in range(25)]),
    ActionsBlock(
        elements=[
            button(
                value="x" * ButtonElement.value_max_length, url="x" * ButtonElement.url_max_length
            )
        ]
    ),
    ContextActionsBlock(
        elements=[FEEDBACK, IconButtonElement(icon="trash", text="Remove", action_id="remove")]
    ),
    ImageBlock(image_url="https://local/x.png", alt_text="x" * ImageBlock.alt_text_max_length),
    RICH,
    TableBlock(rows=rows(100, 20), column_settings=[{"align": "right"}, {"is_wrapped": True}]),
    task(details=RICH, output=RICH, sources=[{"type": "url", "url": "https://x", "text": "x"}]),
    PlanBlock(title="Plan", tasks=[task().to_dict()]),
    AlertBlock(text="x", level="warning"),
    card(CardBlock.title_max_length),
    CarouselBlock(elements=[card(1) for _ in range(CarouselBlock.elements_max_length)]),
    ContainerBlock(
        title=plain(ContainerBlock.title_max_length),
        child_blocks=[DividerBlock()] * ContainerBlock.child_blocks_max_length,
        is_collapsible=True,
    ),
]
BEYOND: list[Block] = [
    SectionBlock(text="x" * (SectionBlock.text_max_length + 1)),
    SectionBlock(fields=[MarkdownTextObject(text="x")] * (SectionBlock.fields_max_length + 1)),
    HeaderBlock(text=plain(HeaderBlock.text_max_length + 1)),
    MarkdownBlock(text="x" * (MarkdownBlock.text_max_length + 1)),
    DividerBlock(block_id="x" * (Block.block_id_max_length + 1)),
    ContextBlock(elements=[MarkdownTextObject(text="x")] * (ContextBlock.elements_max_length + 1)),
    ActionsBlock(elements=[button(action_id=str(n)) for n in range(26)]),
    ActionsBlock(elements=[button(action_id="x" * (ButtonElement.action_id_max_length + 1))]),
    ActionsBlock(elements=[button(style="loud")]),
    ContextActionsBlock(elements=[FEEDBACK] * (ContextActionsBlock.elements_max_length + 1)),
    ImageBlock(image_url="https://x", alt_text="x" * (ImageBlock.alt_text_max_length + 1)),
    TableBlock(rows=[]),
    task(status="done"),
    card(CardBlock.title_max_length + 1),
    CarouselBlock(elements=[card(1) for _ in range(CarouselBlock.elements_max_length + 1)]),
    ContainerBlock(
        title=plain(1), child_blocks=[DividerBlock()] * (ContainerBlock.child_blocks_max_length + 1)
    ),
    ContainerBlock(child_blocks=[DividerBlock()]),
]


def name(block: Block) -> str:
    return str(block.type)


def as_sent(part: Any) -> Any:
    """A model as JSON; its own `to_dict` would check it first."""
    if isinstance(part, JsonObject):
        values = {key: part.get_object_attribute(key) for key in part.attributes}
        return {key: as_sent(value) for key, value in values.items() if value is not None}
    return [as_sent(each) for each in part] if isinstance(part, list) else part


@pytest.mark.parametrize("block", AT_THE_LIMIT, ids=name)
def test_what_the_sdk_builds_at_its_limits_is_taken(block: Block) -> None:
    (taken,) = checked([block.to_dict()])
    Block.parse_all([taken])[0].validate_json()


@pytest.mark.parametrize("block", BEYOND, ids=name)
def test_what_the_sdk_refuses_is_refused(block: Block) -> None:
    with pytest.raises(SlackObjectFormationError):
        block.to_dict()
    with pytest.raises(SlackError, match="invalid_blocks"):
        checked([as_sent(block)])


# ---- answers: every field is one that Slack's recorded answers have, of the type it has there


def typed(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


BOT_PROFILE = {**typed(str, "id app_id user_id name team_id"), "deleted": bool, "updated": int}
MESSAGE = {
    **typed(
        str,
        "user type ts bot_id app_id text team thread_ts parent_user_id streaming_state "
        "latest_reply subtype username",
    ),
    **typed(int, "reply_count reply_users_count"),
    **typed(bool, "is_locked subscribed hidden"),
    "reply_users": [str],
    "bot_profile": BOT_PROFILE,
    "edited": {"user": str, "ts": str},
    "blocks": [dict],
    "files": [dict],
    "metadata": {"event_type": str, "event_payload": dict},
}
NOTE = {"value": str, "creator": str, "last_set": int}
CHANNEL = {
    **typed(str, "id name name_normalized creator user"),
    **typed(
        bool,
        "is_channel is_group is_im is_mpim is_private is_archived is_general is_member "
        "is_shared is_ext_shared is_org_shared",
    ),
    **typed(int, "created num_members"),
    "topic": NOTE,
    "purpose": NOTE,
}
FILE = {
    **typed(
        str,
        "id name title mimetype filetype user mode file_access permalink url_private "
        "url_private_download",
    ),
    **typed(int, "created size"),
    **typed(bool, "is_external is_public"),
    **typed([str], "channels groups ims"),
}
VIEW = {
    **typed(
        str,
        "id team_id type private_metadata callback_id external_id hash root_view_id "
        "previous_view_id app_id app_installed_team_id bot_id",
    ),
    **typed(bool, "clear_on_close notify_on_close"),
    **typed({"type": str, "text": str, "emoji": bool}, "title submit close"),
    "state": dict,
    "blocks": [dict],
}
POSTED = {"channel": str, "ts": str, "message": MESSAGE}
GROUP = {
    **typed(str, "id team_id name handle"),
    **typed(int, "user_count date_delete"),
    "is_usergroup": bool,
    "users": [str],
}
BOT = {**typed(str, "id name app_id user_id"), "deleted": bool, "updated": int}
CURSOR = {"next_cursor": str}
READ = {"messages": [MESSAGE], "has_more": bool, "pin_count": int}
AUTH = {
    **typed(str, "url team user team_id user_id bot_id"),
    "is_enterprise_install": bool,
}
TEXT_BLOCK = [{"type": "section", "text": {"type": "mrkdwn", "text": "x"}}]
METADATA: dict[str, Any] = {"event_type": "assistant_reply", "event_payload": {"key": "a/b/c"}}
HOME: dict[str, Any] = {"type": "home", "blocks": TEXT_BLOCK}
PROMPT = {"title": "x", "message": "y"}
ALL = {"include_all_metadata": True}

PROBES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("auth.test", {}, AUTH),
    ("team.info", {}, {"team": typed(str, "id name domain url")}),
    ("bots.info", {"bot": BOT_ID}, {"bot": BOT}),
    ("usergroups.list", {"include_users": True}, {"usergroups": [GROUP]}),
    ("usergroups.users.list", {"usergroup": "S0OPS"}, {"users": [str]}),
    ("users.conversations", {}, {"channels": [CHANNEL], "response_metadata": CURSOR}),
    (
        "conversations.open",
        {"users": "U0ANA", "return_im": True},
        {"channel": CHANNEL, "no_op": bool, "already_open": bool},
    ),
    (
        "conversations.join",
        OPS,
        {"channel": CHANNEL, "warning": str, "response_metadata": {"warnings": [str]}},
    ),
    ("chat.postMessage", {**OPS, "text": "x", "metadata": METADATA, "blocks": TEXT_BLOCK}, POSTED),
    ("chat.postEphemeral", {**OPS, "user": "U0ANA", "text": "x"}, {"message_ts": str}),
    ("conversations.history", {**OPS, **ALL}, READ),
    ("conversations.replies", {**OPS, **ALL, "ts": ROOT}, READ),
    (
        "files.info",
        {"file": "F0NOTES"},
        {"file": FILE, "comments": [dict], "response_metadata": CURSOR},
    ),
    ("views.publish", {"user_id": "U0ANA", "view": HOME}, {"view": VIEW}),
    (
        "agents.sessions.setStatus",
        {**THREAD, "status": "processing", "title": "x"},
        typed(str, "status agent_status title"),
    ),
    ("agents.sessions.rename", {**THREAD, "title": "y"}, {"title": str}),
    ("assistant.threads.setStatus", {**THREAD, "status": "x"}, {}),
    ("assistant.threads.setTitle", {**THREAD, "title": "x"}, {}),
    ("assistant.threads.setSuggestedPrompts", {**THREAD, "prompts": [PROMPT]}, {}),
    ("chat.startStream", {**OPS, **STREAM, "markdown_text": "x"}, {"channel": str, "ts": str}),
]
"""In this order; what they write is there for the next."""


def assert_shape(value: Any, shape: Any, at: str) -> None:
    if value is None:
        return
    if isinstance(shape, Mapping):
        assert isinstance(value, dict), at
        for key, part in value.items():
            assert key in shape, f"{at}.{key} is not in Slack's answers"
            assert_shape(part, shape[key], f"{at}.{key}")
    elif isinstance(shape, list):
        assert isinstance(value, list), at
        for part in value:
            assert_shape(part, shape[0], f"{at}[]")
    else:
        assert type(value) is shape, f"{at}: {value!r}"


async def test_answers_have_the_shape_of_slacks_own() -> None:
    slack = LocalSlack(WORKSPACE)
    with MUX.serving(slack.app) as base:
        web = AsyncWebClient(BOT_TOKEN, base + API_PATH, retry_handlers=[])
        for method, args, shape in PROBES:
            answer = await web.api_call(method, json=args)
            assert isinstance(answer.data, dict)
            assert_shape(answer.data, {"ok": bool, **shape}, method)
        at = {**OPS, "ts": answer["ts"]}
        appended = await web.api_call("chat.appendStream", json={**at, "markdown_text": "y"})
        assert_shape(appended.data, {"ok": bool, "channel": str, "ts": str}, "append")
        stopped = await web.api_call("chat.stopStream", json={**at, "metadata": METADATA})
        assert_shape(stopped.data, {"ok": bool, **POSTED}, "stop")
        updated = await web.api_call("chat.update", json={**at, "text": "z", "blocks": TEXT_BLOCK})
        assert_shape(updated.data, {"ok": bool, "text": str, **POSTED}, "update")
        deleted = await web.api_call("chat.delete", json=at)
        assert_shape(deleted.data, {"ok": bool, "channel": str, "ts": str}, "delete")


async def test_views_are_views_that_the_sdk_knows() -> None:
    slack = LocalSlack(WORKSPACE)
    modal = View(type="modal", title=plain(24), blocks=[SectionBlock(text="x")])
    with MUX.serving(slack.app) as base:
        web = AsyncWebClient(BOT_TOKEN, base + API_PATH, retry_handlers=[])
        published = await web.views_publish(user_id="U0ANA", view=View(**HOME))
        trigger = new_trigger(slack.state, "U0ANA")
        opened = await web.views_open(trigger_id=trigger, view=modal)
    for view in (published["view"], opened["view"]):
        parsed = View(**{key: part for key, part in view.items() if part is not None})
        assert (parsed.app_id, parsed.blocks and parsed.blocks[0].type) == (APP_ID, "section")


async def test_the_sdks_chunks_and_metadata_are_taken_and_come_back() -> None:
    slack = LocalSlack(WORKSPACE)
    chunks: list[Chunk] = [
        PlanUpdateChunk(title="Plan"),
        TaskUpdateChunk(
            id="a",
            title="Read",
            status="complete",
            details="40 messages",
            output="3",
            sources=[{"type": "url", "url": "https://local.slack.com/p1", "text": "one"}],
        ),
        MarkdownTextChunk(text="**Three** are open."),
        BlocksChunk(blocks=[DividerBlock()]),
    ]
    with MUX.serving(slack.app) as base:
        web = AsyncWebClient(BOT_TOKEN, base + API_PATH, retry_handlers=[])
        begun = await web.chat_startStream(
            channel="C0OPS", **STREAM, task_display_mode="plan", chunks=chunks
        )
        stopped = await web.chat_stopStream(
            channel="C0OPS",
            ts=begun["ts"],
            blocks=[ContextActionsBlock(elements=[FEEDBACK])],
            metadata=Metadata(**METADATA),
        )
    kinds = [block["type"] for block in stopped["message"]["blocks"]]
    assert kinds == ["plan", "rich_text", "divider", "context_actions"]
    assert slack.visible("C0OPS", ROOT)[-1].metadata == METADATA


async def test_a_refusal_reads_as_slacks_own_does() -> None:
    slack = LocalSlack(WORKSPACE)
    with MUX.serving(slack.app) as base:
        web = AsyncWebClient(BOT_TOKEN, base + API_PATH, retry_handlers=[])
        with pytest.raises(SlackApiError) as caught:
            await web.chat_postMessage(channel="C0OPS", text="x", blocks=[{"type": "no"}])
    shape = {
        "ok": bool,
        "error": str,
        "errors": [str],
        "response_metadata": {"messages": [str]},
    }
    assert_shape(caught.value.response.data, shape, "refusal")
