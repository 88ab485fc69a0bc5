"""The local Slack, driven by slack_sdk: as Slack's SDK and its recorded answers know Slack.

The shapes are written after slackapi/java-slack-sdk (json-logs/samples/api, MIT): the type of each
field; they say which fields Slack has, not which it always sends.
"""

import asyncio
import urllib.request
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from engine_kit import MUX
from slack_sdk.errors import SlackApiError, SlackObjectFormationError
from slack_sdk.models.basic_objects import JsonObject
from slack_sdk.models.blocks import (
    ActionsBlock,
    Block,
    ButtonElement,
    ContextActionsBlock,
    ContextBlock,
    DividerBlock,
    FeedbackButtonObject,
    FeedbackButtonsElement,
    HeaderBlock,
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
    TaskUpdateChunk,
)
from slack_sdk.models.views import View
from slack_sdk.web.async_client import AsyncWebClient
from standins.slack import API_PATH, BOT_TOKEN, METHODS, LocalSlack
from standins.slack_blocks import MAX_CHARACTERS, checked
from standins.slack_limits import TIERS

from bot.local.slack.state import APP_ID, BOT_ID, BOT_USER, Identity, SlackError
from bot.local.slack.views import home, new_trigger
from bot.local.workspace import (
    Channel,
    File,
    ListColumn,
    ListItem,
    Message,
    Reaction,
    SlackList,
    User,
    UserGroup,
    Workspace,
)

ROOT = "1740000000.000100"
ALONE = "1740000100.000100"
BROADCAST = "1740000300.000100"
LATE = "1740900000.000100"
GONE = "1739990000.000100"
NOTES = File("F0NOTES", "notas de José.txt", mimetype="text/plain", content=b"caf\xc3\xa9")
SECRET = File("F0SECRET", "plan.txt", content=b"secret")
LOST = File("F0LOST", "lost.txt", mode="tombstone")
OPS = Channel(
    "C0OPS",
    "ops",
    (
        Message(LATE, "Any news?", "U0ANA", thread_ts=ROOT),
        Message(ROOT, "The card is refused", "U0ANA", thread_ts=ROOT, files=(LOST,)),
        Message("1740000200.000100", "Which error?", "U0LUIS", thread_ts=ROOT),
        Message(BROADCAST, "I look at it", "U0LUIS", thread_ts=ROOT, subtype="thread_broadcast"),
        Message(
            ALONE,
            "Double invoice 🧾",
            "U0LUIS",
            edited="1740000101.000000",
            reactions=(Reaction("+1", 3, ("U0ANA",)),),
            files=(NOTES,),
        ),
        Message(
            "1740000350.000100", "Build 17", bot_id="B0CI", username="ci", subtype="bot_message"
        ),
        Message("1739990500.000100", "And this?", "U0ANA", thread_ts=GONE),
    ),
    members=("U0ANA", "U0LUIS"),
    topic="Operations",
    creator="U0LUIS",
    created=1730000000,
)
SECRETS = Message(ROOT, "a secret card", "U0LUIS", files=(SECRET,))
BUGS = SlackList(
    "F0BUGS",
    "Bug tracker",
    (
        ListColumn("Col1", "title", "Title"),
        ListColumn("Col2", "status", "Status", "select", {"OptOpen": "Open", "OptDone": "Done"}),
        ListColumn("Col3", "votes", "Votes", "number"),
    ),
    (
        ListItem("Rec1", {"title": "Card refused", "status": "OptOpen"}, 1740000000, "U0ANA"),
        ListItem("Rec2", {"title": "Slow login", "votes": 4}, 1740000001, "U0ANA"),
        ListItem("Rec3", {"title": "Old one"}, 1740000002, "U0LUIS", archived=True),
    ),
)
WORKSPACE = Workspace(
    users=(
        User("U0ANA", "ana.ruiz", "Ana Ruiz", "ana", email="ana@local.example"),
        User("U0LUIS", "luis", "Luis Gil", "luis"),
        User("U0GONE", "gone", deleted=True),
        User("U0GUEST", "guest", is_ultra_restricted=True),
        User("U0ELSE", "else", is_stranger=True, team_id="T0OTHER"),
    ),
    channels=(
        OPS,
        Channel("G0SECRET", "board", (SECRETS,), ("U0LUIS",), is_private=True),
        Channel("C0OLD", "old", (Message(ROOT, "an old card", "U0ANA"),), is_archived=True),
        Channel("D0TWO", "", (), ("U0ANA", "U0LUIS"), is_private=True, is_im=True),
    ),
    lists=(BUGS,),
    usergroups=(UserGroup("S0OPS", "ops", ("U0ANA",)), UserGroup("S0OLD", "old", disabled=True)),
)
HERE: dict[str, Any] = {"channel": "C0OPS"}
THREAD: dict[str, Any] = {"channel_id": "C0OPS", "thread_ts": ROOT}
STREAM: dict[str, Any] = {
    **HERE,
    "thread_ts": ROOT,
    "recipient_team_id": "T0LOCAL",
    "recipient_user_id": "U0ANA",
}
METADATA: dict[str, Any] = {"event_type": "assistant_reply", "event_payload": {"key": "a/b/c"}}


class Clock:
    """The time of the local Slack, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1_740_900_100.0

    def __call__(self) -> float:
        return self.seconds


class World:
    """A local Slack, and clients of it that never try again."""

    def __init__(self, slack: LocalSlack, url: str, clock: Clock) -> None:
        self.slack, self.url, self.clock = slack, url, clock
        self.bot = self.client(BOT_TOKEN)
        self.ana, self.luis = self.client("xoxp-U0ANA"), self.client("xoxp-U0LUIS")

    def client(self, token: str) -> AsyncWebClient:
        return AsyncWebClient(token, self.url + API_PATH, retry_handlers=[])

    async def call(self, method: str, **args: Any) -> Any:
        return (await self.bot.api_call(method, json=args)).data

    async def refusal(self, method: str, web: AsyncWebClient | None = None, **args: Any) -> Any:
        with pytest.raises(SlackApiError) as caught:
            await (web or self.bot).api_call(method, json=args)
        return caught.value.response

    async def error(self, method: str, web: AsyncWebClient | None = None, **args: Any) -> str:
        return str((await self.refusal(method, web, **args))["error"])

    async def start(self, **args: Any) -> dict[str, Any]:
        """Start a stream; where it is, as append and stop need it."""
        answer = await self.bot.chat_startStream(**{**STREAM, **args})
        return {"channel": answer["channel"], "ts": answer["ts"]}

    def shown(self) -> Any:
        """The last message of the thread."""
        return self.slack.visible("C0OPS", ROOT)[-1]


@pytest.fixture
def world() -> Any:
    clock = Clock()
    poor = {"xoxb-poor": Identity(BOT_USER, BOT_ID, frozenset({"chat:write"}))}
    slack = LocalSlack(WORKSPACE, tokens=poor, now=clock)
    with MUX.serving(slack.app) as url:
        yield World(slack, url, clock)


def texts(answer: Any) -> list[str]:
    return [message["text"] for message in answer["messages"]]


# ---- blocks: what the SDK builds is taken, what it refuses is refused


def button(**more: Any) -> ButtonElement:
    return ButtonElement(text="Go", action_id=more.pop("action_id", "go"), **more)


def text(size: int) -> str:
    return "x" * size


def task(**more: Any) -> TaskCardBlock:
    return TaskCardBlock(**{"task_id": "a", "title": "Read", "status": "pending", **more})


def rows(down: int, across: int, text: str = "x") -> list[list[dict[str, str]]]:
    return [[{"type": "raw_text", "text": text}] * across] * down


FEEDBACK = FeedbackButtonsElement(
    action_id="feedback",
    positive_button=FeedbackButtonObject(text="Good", value="good"),
    negative_button=FeedbackButtonObject(text="Bad", value="bad"),
)
RICH = RichTextBlock(
    elements=[{"type": "rich_text_section", "elements": [{"type": "text", "text": "x"}]}]
)
MRKDWN = MarkdownTextObject(text="x")
SIZED: list[tuple[Callable[[int], Block], int]] = [
    (lambda n: SectionBlock(text=text(n), accessory=button()), SectionBlock.text_max_length),
    (lambda n: SectionBlock(fields=[MRKDWN] * n), SectionBlock.fields_max_length),
    (lambda n: HeaderBlock(text=PlainTextObject(text=text(n))), HeaderBlock.text_max_length),
    (lambda n: MarkdownBlock(text=text(n)), MarkdownBlock.text_max_length),
    (lambda n: DividerBlock(block_id=text(n)), Block.block_id_max_length),
    (lambda n: ContextBlock(elements=[MRKDWN] * n), ContextBlock.elements_max_length),
    (lambda n: ActionsBlock(elements=[button(action_id=str(k)) for k in range(n)]), 25),
    (lambda n: ActionsBlock(elements=[button(value=text(n))]), ButtonElement.value_max_length),
    (lambda n: ActionsBlock(elements=[button(url=text(n))]), ButtonElement.url_max_length),
    (
        lambda n: ActionsBlock(elements=[button(action_id=text(n))]),
        ButtonElement.action_id_max_length,
    ),
]
"""Blocks by a size, and the largest that the SDK builds."""
TAKEN: list[Block] = [
    *(make(most) for make, most in SIZED),
    ContextActionsBlock(elements=[FEEDBACK]),
    RICH,
    TableBlock(rows=rows(100, 20), column_settings=[{"align": "right"}, {"is_wrapped": True}]),
    task(details=RICH, output=RICH, sources=[{"type": "url", "url": "https://x", "text": "x"}]),
    PlanBlock(title="Plan", tasks=[task().to_dict()]),
]
REFUSED: list[Block] = [
    *(make(most + 1) for make, most in SIZED),
    ContextActionsBlock(elements=[FEEDBACK] * (ContextActionsBlock.elements_max_length + 1)),
    ActionsBlock(elements=[button(style="loud")]),
    TableBlock(rows=[]),
    task(status="done"),
]


def name(block: Block) -> str:
    return str(block.type)


def as_sent(part: Any) -> Any:
    """A model as JSON; its own `to_dict` would check it first."""
    if isinstance(part, JsonObject):
        values = {key: part.get_object_attribute(key) for key in part.attributes}
        return {key: as_sent(value) for key, value in values.items() if value is not None}
    return [as_sent(each) for each in part] if isinstance(part, list) else part


@pytest.mark.parametrize("block", TAKEN, ids=name)
def test_what_the_sdk_builds_at_its_limits_is_taken(block: Block) -> None:
    (taken,) = checked([block.to_dict()])
    Block.parse_all([taken])[0].validate_json()


@pytest.mark.parametrize("block", REFUSED, ids=name)
def test_what_the_sdk_refuses_is_refused(block: Block) -> None:
    with pytest.raises(SlackObjectFormationError):
        block.to_dict()
    with pytest.raises(SlackError, match="invalid_blocks"):
        checked([as_sent(block)])


def section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


GO = {"type": "button", "text": {"type": "plain_text", "text": "Go"}, "action_id": "go"}
REFUSED_BLOCKS: list[tuple[list[dict[str, Any]], str]] = [
    ([section("")], "/blocks/0/text/text"),
    ([{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}], "/blocks/0/text/type"),
    ([{"type": "markdown", "text": "x" * 7_000}] * 2, "/blocks"),
    ([{"type": "context", "elements": []}], "/blocks/0/elements"),
    ([{"type": "actions", "elements": [GO, GO]}], "action_id"),
    ([{"type": "context_actions", "elements": [GO]}], "elements/0/type"),
    ([{"type": "table", "rows": rows(101, 1)}], "/blocks/0/rows"),
    ([{"type": "table", "rows": rows(1, 21)}], "/blocks/0/rows/0"),
    ([{"type": "table", "rows": rows(1, 1, "")}], "rows/0/0/text"),
    ([{"type": "table", "rows": rows(1, 1, "x" * 10_001)}], "/blocks"),
    ([{"type": "unheard_of"}], "/blocks/0/type"),
    ([{"type": "divider"}] * 51, "/blocks"),
    ([{"type": "divider", "block_id": "a"}] * 2, "/blocks"),
    ([{"type": "rich_text", "elements": [{"type": "rich_text_list"}]}], "elements/0/style"),
]


async def test_refused_blocks_are_pointed_at_and_nothing_is_written(world: World) -> None:
    for blocks, pointer in REFUSED_BLOCKS:
        answer = await world.refusal("chat.postMessage", **HERE, text="x", blocks=blocks)
        assert answer["error"] == "invalid_blocks"
        (sentence,) = answer["response_metadata"]["messages"]
        assert sentence.endswith(f"{pointer}]")
    full = [section("x" * 3000)] * 4 + [section("x" * (MAX_CHARACTERS - 12_000))]
    more = [*full, section("x")]
    assert world.slack.effects == []
    await world.call("chat.postMessage", **HERE, text="x", blocks=full)
    assert await world.error("chat.postMessage", **HERE, blocks=more) == "msg_blocks_too_long"


# ---- answers: every field is one that Slack's recorded answers have, of the type it has there


def typed(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


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
PROFILE = typed(
    str,
    "title real_name real_name_normalized display_name display_name_normalized status_text "
    "status_emoji team email bot_id api_app_id",
)
USER = {
    **typed(str, "id team_id name real_name tz locale"),
    **typed(
        bool,
        "deleted is_bot is_app_user is_admin is_owner is_restricted is_ultra_restricted "
        "is_stranger",
    ),
    "profile": PROFILE,
    "updated": int,
}
BOT = {**typed(str, "id name app_id user_id team_id"), "deleted": bool, "updated": int}
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
MESSAGE: dict[str, Any] = {
    **typed(
        str,
        "user type ts bot_id app_id text team thread_ts parent_user_id streaming_state "
        "latest_reply subtype username",
    ),
    **typed(int, "reply_count reply_users_count"),
    **typed(bool, "is_locked subscribed hidden"),
    "reply_users": [str],
    "bot_profile": BOT,
    "edited": {"user": str, "ts": str},
    "reactions": [{"name": str, "users": [str], "count": int}],
    "blocks": [dict],
    "files": [FILE],
    "metadata": {"event_type": str, "event_payload": dict},
}
MESSAGE["root"] = dict(MESSAGE)
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
MORE = {"response_metadata": {"next_cursor": str}}
POSTED = {"channel": str, "ts": str, "text": str, "message": MESSAGE}
READ = {"messages": [MESSAGE], "has_more": bool, "pin_count": int, **MORE}
AUTH = {**typed(str, "url team user team_id user_id bot_id"), "is_enterprise_install": bool}
CELL = {
    **typed(str, "key column_id text"),
    "value": object,
    "rich_text": [dict],
    "select": [str],
    "number": [int],
}
ITEM = {
    **typed(str, "id list_id created_by updated_by updated_timestamp"),
    "date_created": int,
    "fields": [CELL],
}
MATCH = {
    **typed(str, "type team user username ts text permalink"),
    "channel": {"id": str, "name": str, "is_private": bool, "is_mpim": bool, "is_im": bool},
}
FOUND = {
    "total": int,
    "paging": typed(int, "count total page pages"),
    "pagination": typed(int, "total_count page per_page page_count first last"),
    "matches": [MATCH],
}
HOME: dict[str, Any] = {"type": "home", "blocks": [section("Hello")]}
MODAL = {"type": "modal", "title": {"type": "plain_text", "text": "Ask"}, "blocks": []}
PROMPT = {"title": "x", "message": "y"}
ALL = {"include_all_metadata": True}
PROBES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("auth.test", {}, AUTH),
    ("bots.info", {"bot": BOT_ID}, {"bot": BOT}),
    ("usergroups.users.list", {"usergroup": "S0OPS"}, {"users": [str]}),
    ("users.conversations", {}, {"channels": [CHANNEL], **MORE}),
    ("users.info", {"user": "U0ANA", "include_locale": True}, {"user": USER}),
    ("users.list", {}, {"members": [USER], **MORE}),
    ("conversations.list", {"limit": 1}, {"channels": [CHANNEL], **MORE}),
    ("conversations.info", HERE, {"channel": CHANNEL}),
    ("conversations.members", HERE, {"members": [str], **MORE}),
    (
        "conversations.open",
        {"users": "U0ANA"},
        {"channel": CHANNEL, "no_op": bool, "already_open": bool},
    ),
    (
        "chat.postMessage",
        {**HERE, "text": "x", "metadata": METADATA, "blocks": [section("x")]},
        POSTED,
    ),
    ("chat.postEphemeral", {**HERE, "user": "U0ANA", "text": "x"}, {"message_ts": str}),
    (
        "chat.getPermalink",
        {**HERE, "message_ts": ROOT},
        {"channel": str, "permalink": str},
    ),
    ("reactions.add", {**HERE, "timestamp": ROOT, "name": "eyes"}, {}),
    ("conversations.history", {**HERE, **ALL}, READ),
    ("conversations.history", {**HERE, "limit": 1}, READ),
    ("conversations.replies", {**HERE, **ALL, "ts": ROOT, "limit": 2}, READ),
    ("files.info", {"file": "F0NOTES"}, {"file": FILE, "comments": [dict], **MORE}),
    ("slackLists.items.list", {"list_id": "F0BUGS"}, {"items": [ITEM], **MORE}),
    ("views.publish", {"user_id": "U0ANA", "view": HOME}, {"view": VIEW}),
    (
        "agents.sessions.setStatus",
        {**THREAD, "status": "processing", "title": "x"},
        typed(str, "status agent_status title"),
    ),
    ("assistant.threads.setTitle", {**THREAD, "title": "x"}, {}),
    ("assistant.threads.setSuggestedPrompts", {**THREAD, "prompts": [PROMPT]}, {}),
    ("chat.startStream", {**STREAM, "markdown_text": "x"}, {"channel": str, "ts": str}),
]
"""In this order; what they write is there for the next."""


def assert_shape(value: Any, shape: Any, at: str) -> None:
    if value is None or shape is object:
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


async def test_answers_have_the_shape_of_slacks_own(world: World) -> None:
    assert METHODS.keys() - TIERS.keys() == {"auth.test"}, "every other method has its limit"
    for method, args, shape in PROBES:
        answer = await world.call(method, **args)
        assert_shape(answer, {"ok": bool, **shape}, method)
    at = {**HERE, "ts": answer["ts"]}
    for method, args, shape in (
        ("chat.appendStream", {"markdown_text": "y"}, typed(str, "channel ts")),
        ("chat.stopStream", {"metadata": METADATA}, POSTED),
        ("chat.update", {"text": "z", "blocks": [section("z")]}, POSTED),
        ("chat.delete", {}, typed(str, "channel ts")),
    ):
        assert_shape(await world.call(method, **at, **args), {"ok": bool, **shape}, method)
    found = await world.ana.search_messages(query="card")
    assert_shape(found.data, {"ok": bool, "query": str, "messages": FOUND}, "search")
    refused = await world.refusal("chat.postMessage", **HERE, blocks=[{"type": "no"}])
    said = {"errors": [str], "response_metadata": {"messages": [str]}}
    assert_shape(refused.data, {"ok": bool, "error": str, **said}, "refusal")


# ---- tokens, rights and arguments


@pytest.mark.parametrize(
    ("token", "code"),
    [
        ("", "not_authed"),
        ("xoxb-stolen", "invalid_auth"),
        ("xoxp-U0NOBODY", "invalid_auth"),
        (f"xoxp-{BOT_USER}", "invalid_auth"),
        ("xoxp-U0GONE", "account_inactive"),
    ],
)
async def test_a_token_that_stands_for_nobody_is_refused(
    world: World, token: str, code: str
) -> None:
    assert await world.error("auth.test", world.client(token)) == code


async def test_auth_test_says_whom_the_token_stands_for_and_its_scopes(world: World) -> None:
    answer = await world.bot.auth_test()
    assert (answer["user_id"], answer["bot_id"], answer["team_id"]) == (BOT_USER, BOT_ID, "T0LOCAL")
    assert "channels:history" in answer.headers["x-oauth-scopes"].split(",")
    assert "bot_id" not in (await world.luis.auth_test()).data
    poor = world.client("xoxb-poor")
    refused = await world.refusal("conversations.history", poor, **HERE)
    said = (refused["error"], refused["needed"], refused["provided"])
    assert said == ("missing_scope", "channels:history", "chat:write")
    for method in ("users.list", "files.info", "files.getUploadURLExternal"):
        assert await world.error(method, poor) == "missing_scope"
    profile = (await world.call("users.info", user="U0ANA"))["user"]["profile"]
    assert "email" not in profile


async def test_wrong_calls_get_slacks_error_codes(world: World) -> None:
    history = ("conversations.history", HERE)
    for (method, at), args, code in (
        (("conversations.paint", {}), {}, "unknown_method"),
        (("conversations.history", {}), {}, "invalid_arguments"),
        (history, {"channel": "C0NONE"}, "channel_not_found"),
        (history, {"limit": 1000}, "invalid_limit"),
        (history, {"limit": "ten"}, "invalid_limit"),
        (history, {"cursor": "%%%"}, "invalid_cursor"),
        (history, {"cursor": "dXNlcjpVMQ=="}, "invalid_cursor"),
        (history, {"oldest": "now"}, "invalid_ts_oldest"),
        (("conversations.replies", HERE), {"ts": "1.1"}, "thread_not_found"),
        (("conversations.replies", HERE), {"ts": "x"}, "thread_not_found"),
        (("conversations.list", {}), {"types": "public_channel,pub"}, "invalid_types"),
        (("conversations.open", {}), {"users": "U0NOBODY"}, "user_not_found"),
        (("conversations.open", {}), {"users": "U0GONE"}, "user_disabled"),
        (("conversations.open", {}), {"users": "USLACKBOT"}, "cannot_dm_bot"),
        (("users.info", {}), {"user": "U0NOBODY"}, "user_not_found"),
        (("usergroups.users.list", {}), {"usergroup": "S0NONE"}, "no_such_subteam"),
        (("usergroups.users.list", {}), {"usergroup": "S0OLD"}, "subteam_disabled"),
        (("chat.getPermalink", HERE), {"message_ts": "1.1"}, "message_not_found"),
        (("slackLists.items.list", {}), {"list_id": "F0NONE"}, "list_not_found"),
        (("files.info", {}), {"file": "F0SECRET"}, "file_not_found"),
        (("files.info", {}), {"file": "F0LOST"}, "file_deleted"),
        (("search.messages", {}), {"query": "card"}, "not_allowed_token_type"),
    ):
        assert await world.error(method, **{**at, **args}) == code, (method, args)


async def test_a_private_channel_does_not_exist_for_those_who_are_not_in_it(world: World) -> None:
    kinds = "public_channel,private_channel,im"
    listed = (await world.bot.conversations_list(types=kinds))["channels"]
    assert [each["id"] for each in listed] == ["C0OPS", "C0OLD"]
    open_ = (await world.bot.conversations_list(exclude_archived=True))["channels"]
    assert [each["id"] for each in open_] == ["C0OPS"]
    assert len((await world.luis.conversations_list(types=kinds))["channels"]) == 4
    for client in (world.bot, world.ana):
        for method in ("history", "info", "members", "replies"):
            args = {"channel": "G0SECRET", "ts": ROOT}
            assert await world.error(f"conversations.{method}", client, **args) == (
                "channel_not_found"
            )
    assert texts(await world.luis.conversations_history(channel="G0SECRET")) == ["a secret card"]
    mine = (await world.bot.users_conversations(user="U0LUIS"))["channels"]
    assert [each["id"] for each in mine] == ["C0OPS"]


async def test_a_bot_reads_and_writes_only_where_it_is_but_a_user_reads_every_public_one() -> None:
    slack = LocalSlack(WORKSPACE, invite_bot=False)
    with MUX.serving(slack.app) as url:
        world = World(slack, url, Clock())
        assert not (await world.call("conversations.info", **HERE))["channel"]["is_member"]
        assert await world.error("conversations.history", **HERE) == "not_in_channel"
        assert await world.error("chat.postMessage", **HERE, text="x") == "not_in_channel"
        assert texts(await world.ana.conversations_history(channel="C0OLD")) == ["an old card"]


# ---- reading


async def test_history_is_newest_first_with_roots_and_broadcasts_only(world: World) -> None:
    answer = await world.bot.conversations_history(**HERE)
    assert texts(answer) == [
        "Build 17",
        "I look at it",
        "Double invoice 🧾",
        "The card is refused",
        "This message was deleted.",
    ]
    assert (answer["has_more"], "response_metadata" in answer.data) == (False, False)
    ci, broadcast, alone, root, _ = answer["messages"]
    assert (ci["bot_id"], ci["username"], ci["subtype"]) == ("B0CI", "ci", "bot_message")
    assert broadcast["root"]["ts"] == ROOT
    assert alone["edited"] == {"user": "U0LUIS", "ts": "1740000101.000000"}
    assert alone["reactions"] == [{"name": "+1", "users": ["U0ANA"], "count": 3}]
    assert "thread_ts" not in alone
    assert (root["thread_ts"], root["reply_count"], root["latest_reply"]) == (ROOT, 3, LATE)
    assert root["files"] == [{"id": "F0LOST", "mode": "tombstone"}]
    tombstone, reply = (await world.bot.conversations_replies(**HERE, ts=GONE))["messages"]
    assert (tombstone["subtype"], tombstone["hidden"], reply["text"]) == (
        "tombstone",
        True,
        "And this?",
    )
    (alone,) = (await world.bot.conversations_replies(**HERE, ts=LATE))["messages"]
    assert (alone["thread_ts"], alone["parent_user_id"]) == (ROOT, "U0ANA")
    link = await world.bot.chat_getPermalink(**HERE, message_ts=LATE)
    assert link["permalink"] == (
        f"https://local.slack.com/archives/C0OPS/p1740900000000100?thread_ts={ROOT}&cid=C0OPS"
    )


async def test_search_finds_what_the_user_can_see(world: World) -> None:
    async def found(client: AsyncWebClient, query: str, **args: Any) -> list[str]:
        matches = (await client.search_messages(query=query, **args))["messages"]["matches"]
        return [match["text"] for match in matches]

    everything = ["The card is refused", "a secret card", "an old card"]
    assert sorted(await found(world.luis, "CARD")) == everything
    assert "a secret card" not in await found(world.ana, "card")
    assert await found(world.ana, "card in:#old") == ["an old card"]
    assert await found(world.ana, '"card is" -in:old') == ["The card is refused"]
    dated = "from:@luis after:2025-02-18 before:2025-02-20"
    assert await found(world.ana, dated, sort_dir="asc") == [
        "Double invoice 🧾",
        "Which error?",
        "I look at it",
    ]
    assert await found(world.ana, "from:me on:2025-03-02") == ["Any news?"]
    page = (await world.luis.search_messages(query="card", count=2, page=2))["messages"]
    assert (page["total"], page["paging"]["pages"], len(page["matches"])) == (3, 2, 1)


def fetched(
    address: str, headers: Mapping[str, str] | None = None, body: bytes | None = None
) -> tuple[int, str, bytes]:
    request = urllib.request.Request(address, body, dict(headers or {}))
    with urllib.request.urlopen(request) as answer:
        return answer.status, answer.headers["content-type"], answer.read()


async def test_a_file_is_had_with_the_right_token_and_a_login_page_without(world: World) -> None:
    info = (await world.call("files.info", file="F0NOTES"))["file"]
    assert info["channels"] == ["C0OPS"]
    secret = f"{world.url}/files-pri/T0LOCAL-F0SECRET/plan.txt"
    for address, token, kind in (
        (info["url_private"], BOT_TOKEN, "text/plain"),
        (info["url_private_download"], BOT_TOKEN, "text/plain"),
        (info["url_private"], "", "text/html"),
        (info["url_private"], "xoxb-wrong", "text/html"),
        (secret, BOT_TOKEN, "text/html"),
    ):
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        status, found, content = await asyncio.to_thread(fetched, address, headers)
        assert (status, found) == (200, f"{kind}; charset=utf-8")
        assert (content == NOTES.content) == (kind == "text/plain")
        assert SECRET.content not in content


# ---- writing


Rows = list[tuple[tuple[str, dict[str, Any]], dict[str, Any], str]]


async def test_a_write_that_slack_refuses_changes_nothing(world: World) -> None:
    post, update = ("chat.postMessage", HERE), ("chat.update", HERE)
    status = ("agents.sessions.setStatus", THREAD)
    prompts = ("assistant.threads.setSuggestedPrompts", THREAD)
    large = {"event_type": "x", "event_payload": {"a": "x" * 8_001}}
    rows: Rows = [
        (post, {}, "no_text"),
        (post, {"channel": "C0OLD", "text": "x"}, "is_archived"),
        (post, {"channel": "G0SECRET", "text": "x"}, "channel_not_found"),
        (post, {"text": "x", "thread_ts": "1.1"}, "thread_not_found"),
        (post, {"text": "x", "blocks": "[1]"}, "invalid_blocks_format"),
        (post, {"markdown_text": "x" * 12_001}, "msg_too_long"),
        (post, {"markdown_text": "x", "text": "x"}, "markdown_text_conflict"),
        (post, {"text": "x", "metadata": "{"}, "invalid_metadata_format"),
        (post, {"text": "x", "metadata": {"event_type": "x"}}, "invalid_metadata_format"),
        (post, {"text": "x", "metadata": large}, "metadata_too_large"),
        (update, {"ts": ALONE, "text": "mine"}, "cant_update_message"),
        (update, {"ts": "1.1", "text": "x"}, "message_not_found"),
        (("chat.delete", HERE), {"ts": ROOT}, "cant_delete_message"),
        (("chat.postEphemeral", HERE), {"user": "U0GUEST", "text": "x"}, "user_not_in_channel"),
        (("reactions.add", HERE), {"timestamp": ALONE, "name": "no way"}, "invalid_name"),
        (status, {"status": "done"}, "invalid_arguments"),
        (status, {"status": "active", "thread_ts": "1.1"}, "thread_not_found"),
        (prompts, {"prompts": []}, "invalid_arguments"),
        (prompts, {"prompts": [PROMPT] * 5}, "invalid_arguments"),
        (prompts, {"prompts": [{"title": "x"}]}, "invalid_arguments"),
    ]
    for (method, at), args, code in rows:
        assert await world.error(method, **{**at, **args}) == code, (method, args)
    assert world.slack.effects == []
    assert len(texts(await world.bot.conversations_history(**HERE))) == 5
    mine = await world.call("chat.postMessage", **HERE, text="x")
    long = {"ts": mine["ts"], "text": "x" * 4_001}
    assert await world.error("chat.update", **HERE, **long) == "msg_too_long"
    reaction: dict[str, Any] = {"timestamp": ALONE, "name": "+1"}
    await world.call("reactions.add", **HERE, **reaction)
    assert await world.error("reactions.add", **HERE, **reaction) == "already_reacted"


async def test_views_are_views_that_the_sdk_knows_and_old_or_wrong_ones_are_refused(
    world: World,
) -> None:
    publish, state = "views.publish", world.slack.state
    first = (await world.call(publish, user_id="U0ANA", view=HOME))["view"]
    second = (await world.call(publish, user_id="U0ANA", view=HOME, hash=first["hash"]))["view"]
    assert (second["id"], second["hash"] != first["hash"]) == (first["id"], True)
    old = {"user_id": "U0ANA", "view": HOME, "hash": first["hash"]}
    assert await world.error(publish, **old) == "hash_conflict"
    seen = home(state, "U0ANA")
    assert seen
    assert seen.body["blocks"][0]["text"]["text"] == "Hello"
    assert home(state, "U0GUEST") is None
    many = {"type": "home", "blocks": [{"type": "divider"}] * 101}
    for bad in (MODAL, {"type": "home"}, {**HOME, "blocks": [section("")]}, "{", many):
        assert await world.error(publish, user_id="U0ANA", view=bad) == "invalid_arguments"
    trigger, more = new_trigger(state, "U0ANA"), new_trigger(state, "U0ANA")
    opened = (await world.call("views.open", trigger_id=trigger, view=MODAL))["view"]
    for view in (second, opened):
        parsed = View(**{key: part for key, part in view.items() if part is not None})
        assert parsed.app_id == APP_ID
    long = {**MODAL, "title": {"type": "plain_text", "text": "x" * 25}}
    for id, view, code in (
        (trigger, MODAL, "exchanged_trigger_id"),
        ("x", MODAL, "invalid_trigger_id"),
        (more, long, "invalid_arguments"),
    ):
        assert await world.error("views.open", trigger_id=id, view=view) == code


# ---- streams


@pytest.mark.parametrize("mode", ["plan", "timeline"])
async def test_blocks_of_a_stream_are_blocks_that_the_sdk_knows(world: World, mode: str) -> None:
    chunks: list[Chunk] = [
        TaskUpdateChunk(id="a", title="#ops", status="complete", output="done"),
        MarkdownTextChunk(text="Text"),
        BlocksChunk(blocks=[DividerBlock()]),
    ]
    at = await world.start(task_display_mode=mode, chunks=chunks)
    actions = [ContextActionsBlock(elements=[FEEDBACK])]
    message = (await world.bot.chat_stopStream(**at, blocks=actions))["message"]
    parsed = Block.parse_all(message["blocks"])
    for block in parsed:
        block.validate_json()
    assert len({block["block_id"] for block in message["blocks"]}) == len(message["blocks"])
    first = parsed[0]
    assert isinstance(first, PlanBlock if mode == "plan" else TaskCardBlock)
    for each in (first.tasks or ()) if isinstance(first, PlanBlock) else [message["blocks"][0]]:
        assert isinstance(each, dict)
        TaskCardBlock(**each).validate_json()


async def test_a_stream_in_a_channel_names_whom_it_is_for_and_its_thread(world: World) -> None:
    for changes, code in (
        ({"recipient_team_id": None}, "missing_recipient_team_id"),
        ({"recipient_user_id": None}, "missing_recipient_user_id"),
        ({"thread_ts": None}, "invalid_arguments"),
        ({"recipient_user_id": "U0NOBODY"}, "user_not_found"),
        ({"recipient_team_id": "T0OTHER"}, "user_not_found"),
        ({"thread_ts": "1.1"}, "thread_not_found"),
        ({"channel": "C0NONE"}, "channel_not_found"),
        ({"channel": "C0OLD"}, "is_archived"),
        ({"task_display_mode": "list"}, "invalid_arguments"),
    ):
        assert await world.error("chat.startStream", **{**STREAM, **changes}) == code, changes
    ana = await world.bot.chat_postMessage(channel="U0ANA", text="x")
    await world.bot.chat_startStream(channel=ana["channel"], thread_ts=ana["ts"])


TASK = {"type": "task_update", "id": "a", "title": "x", "status": "complete"}


@pytest.mark.parametrize(
    "chunk",
    [
        {**TASK, "status": "done"},
        {"type": "task_update", "id": "a", "status": "complete"},
        {"type": "task_update", "title": "x", "status": "complete"},
        {**TASK, "title": "x" * 257},
        {**TASK, "output": "y" * 257},
        {**TASK, "sources": [{}]},
        {"type": "plan_update", "title": ""},
        {"type": "markdown_text", "text": 7},
        {"type": "markdown"},
        {"text": "x"},
        "x",
    ],
)
async def test_a_chunk_of_another_shape_is_refused(world: World, chunk: Any) -> None:
    assert await world.error("chat.startStream", **STREAM, chunks=[chunk]) == "invalid_chunks"


async def test_a_refused_append_leaves_the_stream_as_it_was(world: World) -> None:
    at = await world.start(chunks=[MarkdownTextChunk(text="Good")])
    fine = {"type": "markdown_text", "text": "fine"}
    tasks = [{**TASK, "id": str(number)} for number in range(51)]
    both = "cannot_provide_both_markdown_text_and_chunks"
    bad = {"type": "blocks", "blocks": [{"type": "section"}]}
    rows: list[tuple[dict[str, Any], str]] = [
        ({"chunks": [fine, {**fine, "text": "x" * 12_001}]}, "msg_too_long"),
        ({"chunks": [fine, {"type": "no"}]}, "invalid_chunks"),
        ({"chunks": [fine, bad]}, "invalid_blocks"),
        ({"chunks": tasks}, "invalid_chunks"),
        ({}, "no_text"),
        ({"chunks": [fine], "markdown_text": "x"}, both),
    ]
    for args, code in rows:
        assert await world.error("chat.appendStream", **at, **args) == code
    stop = "chat.stopStream"
    assert await world.error(stop, **at, blocks=[{"type": "no"}]) == "invalid_blocks"
    assert await world.error(stop, **at, session_status="dead") == "invalid_arguments"
    assert (world.shown().text, world.shown().streaming) == ("Good", True)
    assert len(world.slack.effects) == 1


async def test_the_first_content_locks_a_stream_to_text_or_to_chunks(world: World) -> None:
    text: dict[str, Any] = {"markdown_text": "x"}
    chunk: dict[str, Any] = {"chunks": [{"type": "markdown_text", "text": "x"}]}
    for first, other in ((text, chunk), (chunk, text)):
        at = await world.start()
        await world.call("chat.appendStream", **at, **first)
        for method in ("chat.appendStream", "chat.stopStream"):
            assert await world.error(method, **at, **other) == "streaming_mode_mismatch"


async def test_while_it_streams_a_message_can_neither_be_changed_nor_deleted(
    world: World,
) -> None:
    at = await world.start(markdown_text="Half")
    assert await world.error("chat.update", **at, text="New") == "streaming_state_conflict"
    assert await world.error("chat.delete", **at) == "cant_delete_message"
    await world.call("chat.stopStream", **at)
    await world.call("chat.update", **at, text="New", blocks=[])
    assert world.shown().text == "New"
    over = "message_not_in_streaming_state"
    assert await world.error("chat.appendStream", **at, markdown_text="x") == over
    root = {**HERE, "ts": ROOT, "markdown_text": "x"}
    assert await world.error("chat.appendStream", **root) == "message_not_owned_by_app"
    await world.call("chat.delete", **at)
