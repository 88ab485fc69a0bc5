"""The local Slack, driven by slack_sdk, answers like Slack.

The shapes follow slackapi/java-slack-sdk (json-logs/samples/api, MIT): the type of each field.
They list the fields that Slack has, not those that it always sends.
"""

from collections.abc import Mapping
from typing import Any

import pytest
from engine_kit import MUX
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from standins.slack import API_PATH, BOT_TOKEN, METHODS, LocalSlack
from standins.slack_blocks import MAX_CHARACTERS
from standins.slack_limits import TIERS

from bot.local.slack.state import BOT_USER
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
    ),
    members=("U0ANA", "U0LUIS"),
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
        ListItem("Rec1", {"title": "Card refused", "status": "OptOpen"}),
        ListItem("Rec2", {"title": "Slow login", "votes": 4}),
    ),
)
WORKSPACE = Workspace(
    users=(
        User("U0ANA", "ana.ruiz", "Ana Ruiz", "ana"),
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
    "task_display_mode": "plan",
}
TASK = {"type": "task_update", "id": "a", "title": "x", "status": "complete"}
TEXT = {"type": "markdown_text", "text": "y"}
METADATA: dict[str, Any] = {"event_type": "assistant_reply", "event_payload": {"key": "a/b/c"}}


class World:
    """A local Slack and its clients, which never retry."""

    def __init__(self, slack: LocalSlack, url: str) -> None:
        self.slack, self.url = slack, url
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


@pytest.fixture
def world() -> Any:
    slack = LocalSlack(WORKSPACE, now=lambda: 1_740_900_100.0)
    with MUX.served_app(slack.app) as url:
        yield World(slack, url)


# ---- blocks


def rows(down: int, across: int, text: str = "x") -> list[list[dict[str, str]]]:
    return [[{"type": "raw_text", "text": text}] * across] * down


def section(text: str) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}}


GO = {"type": "button", "text": {"type": "plain_text", "text": "Go"}, "action_id": "go"}
REFUSED_BLOCKS: list[tuple[list[dict[str, Any]], str]] = [
    ([section("")], "/blocks/0/text/text"),
    ([{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}], "/blocks/0/text/type"),
    ([{"type": "markdown", "text": "x" * 7_000}] * 2, "/blocks"),
    ([{"type": "actions", "elements": [GO, GO]}], "action_id"),
    ([{"type": "context_actions", "elements": [GO]}], "elements/0/type"),
    ([{"type": "table", "rows": rows(101, 1)}], "/blocks/0/rows"),
    ([{"type": "table", "rows": rows(1, 1, "x" * 10_001)}], "/blocks"),
    ([{"type": "unheard_of"}], "/blocks/0/type"),
    ([{"type": "divider"}] * 51, "/blocks"),
    ([{"type": "rich_text", "elements": [{"type": "rich_text_list"}]}], "elements/0/style"),
]


async def test_error_for_invalid_blocks_points_at_them_and_nothing_is_written(world: World) -> None:
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


# ---- answers: every field is in Slack's recorded answers, with the same type


def typed_fields(kind: Any, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


CHANNEL = {
    **typed_fields(str, "id name creator user"),
    **typed_fields(bool, "is_im is_mpim is_private is_archived is_member is_shared is_ext_shared"),
    "created": int,
    "topic": typed_fields(str, "value creator"),
}
USER = {
    **typed_fields(str, "id team_id name real_name tz locale"),
    **typed_fields(bool, "deleted is_bot is_restricted is_ultra_restricted is_stranger"),
    "profile": typed_fields(str, "title real_name display_name team bot_id api_app_id"),
}
FILE = {
    **typed_fields(
        str,
        "id name title mimetype filetype user mode file_access permalink url_private "
        "url_private_download",
    ),
    **typed_fields(int, "created size"),
    "is_external": bool,
    **typed_fields([str], "channels groups ims"),
}
MESSAGE: dict[str, Any] = {
    **typed_fields(
        str,
        "user type ts bot_id app_id text team thread_ts parent_user_id latest_reply subtype "
        "username",
    ),
    "reply_count": int,
    "hidden": bool,
    "edited": {"user": str, "ts": str},
    "reactions": [{"name": str, "users": [str], "count": int}],
    "blocks": [dict],
    "files": [FILE],
    "metadata": {"event_type": str, "event_payload": dict},
}
MESSAGE["root"] = dict(MESSAGE)
VIEW = {
    **typed_fields(
        str,
        "id team_id type private_metadata callback_id hash app_id app_installed_team_id bot_id",
    ),
    **typed_fields({"type": str, "text": str, "emoji": bool}, "title submit close"),
    "state": dict,
    "blocks": [dict],
}
MORE = {"response_metadata": {"next_cursor": str}}
POSTED = {"channel": str, "ts": str, "text": str, "message": MESSAGE}
READ = {"messages": [MESSAGE], "has_more": bool, **MORE}
AUTH = {**typed_fields(str, "url team user team_id user_id bot_id"), "is_enterprise_install": bool}
CELL = {
    **typed_fields(str, "key column_id text"),
    "value": object,
    "rich_text": [dict],
    "select": [str],
    "number": [int],
}
ITEM = {"id": str, "fields": [CELL]}
MATCH = {
    **typed_fields(str, "type team user username ts text permalink"),
    "channel": {"id": str, "name": str, "is_private": bool, "is_mpim": bool, "is_im": bool},
}
FOUND = {
    "total": int,
    "paging": typed_fields(int, "count total page pages"),
    "matches": [MATCH],
}
HOME: dict[str, Any] = {"type": "home", "blocks": [section("Hello")]}
PROMPT = {"title": "x", "message": "y"}
ALL = {"include_all_metadata": True}
PROBES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("auth.test", {}, AUTH),
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
        {"channel": CHANNEL},
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
        typed_fields(str, "status agent_status title"),
    ),
    ("assistant.threads.setTitle", {**THREAD, "title": "x"}, {}),
    ("assistant.threads.setSuggestedPrompts", {**THREAD, "prompts": [PROMPT]}, {}),
    ("chat.startStream", {**STREAM, "chunks": [TASK]}, {"channel": str, "ts": str}),
]
"""In this order: later ones read what earlier ones write."""


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


async def test_answers_match_the_shape_of_slacks_own(world: World) -> None:
    assert METHODS.keys() - TIERS.keys() == {"auth.test"}, "every other method has its limit"
    for method, args, shape in PROBES:
        answer = await world.call(method, **args)
        assert_shape(answer, {"ok": bool, **shape}, method)
    at = {**HERE, "ts": answer["ts"]}
    for method, args, shape in (
        ("chat.appendStream", {"chunks": [TEXT]}, typed_fields(str, "channel ts")),
        ("chat.stopStream", {"metadata": METADATA}, POSTED),
        ("chat.update", {"text": "z", "blocks": [section("z")]}, POSTED),
        ("chat.delete", {}, typed_fields(str, "channel ts")),
    ):
        assert_shape(await world.call(method, **at, **args), {"ok": bool, **shape}, method)
    found = await world.ana.search_messages(query="card", count=20)
    assert_shape(found.data, {"ok": bool, "query": str, "messages": FOUND}, "search")
    refused = await world.refusal("chat.postMessage", **HERE, blocks=[{"type": "no"}])
    extra = {"errors": [str], "response_metadata": {"messages": [str]}}
    assert_shape(refused.data, {"ok": bool, "error": str, **extra}, "refusal")


# ---- refusals


async def test_missing_unknown_and_deactivated_tokens_are_rejected(world: World) -> None:
    for token, code in (
        ("", "not_authed"),
        ("xoxb-stolen", "invalid_auth"),
        (f"xoxp-{BOT_USER}", "invalid_auth"),
        ("xoxp-U0GONE", "account_inactive"),
    ):
        assert await world.error("auth.test", world.client(token)) == code, token


async def test_wrong_calls_get_slacks_error_codes_and_change_nothing(world: World) -> None:
    history, post, status = "conversations.history", "chat.postMessage", "agents.sessions.setStatus"
    large = {"event_type": "x", "event_payload": {"a": "x" * 8_001}}
    for method, args, code in (
        ("conversations.paint", {}, "unknown_method"),
        (history, {}, "invalid_arguments"),
        (history, {"channel": "C0NONE"}, "channel_not_found"),
        (history, {**HERE, "limit": 1000}, "invalid_limit"),
        (history, {**HERE, "cursor": "%%%"}, "invalid_cursor"),
        (history, {**HERE, "oldest": "now"}, "invalid_ts_oldest"),
        ("conversations.replies", {**HERE, "ts": "1.1"}, "thread_not_found"),
        ("conversations.list", {"types": "public_channel,pub"}, "invalid_types"),
        ("conversations.open", {"users": "U0GONE"}, "user_disabled"),
        ("users.info", {"user": "U0NOBODY"}, "user_not_found"),
        ("usergroups.users.list", {"usergroup": "S0NONE"}, "no_such_subteam"),
        ("usergroups.users.list", {"usergroup": "S0OLD"}, "subteam_disabled"),
        ("chat.getPermalink", {**HERE, "message_ts": "1.1"}, "message_not_found"),
        ("slackLists.items.list", {"list_id": "F0NONE"}, "list_not_found"),
        ("files.info", {"file": "F0SECRET"}, "file_not_found"),
        ("files.info", {"file": "F0LOST"}, "file_deleted"),
        ("search.messages", {"query": "card"}, "not_allowed_token_type"),
        (post, HERE, "no_text"),
        (post, {"channel": "C0OLD", "text": "x"}, "is_archived"),
        (post, {"channel": "G0SECRET", "text": "x"}, "channel_not_found"),
        (post, {**HERE, "text": "x", "thread_ts": "1.1"}, "thread_not_found"),
        (post, {**HERE, "markdown_text": "x" * 12_001}, "msg_too_long"),
        (post, {**HERE, "markdown_text": "x", "text": "x"}, "markdown_text_conflict"),
        (post, {**HERE, "text": "x", "metadata": large}, "metadata_too_large"),
        ("chat.update", {**HERE, "ts": ALONE, "text": "mine"}, "cant_update_message"),
        ("chat.update", {**HERE, "ts": "1.1", "text": "x"}, "message_not_found"),
        ("chat.delete", {**HERE, "ts": ROOT}, "cant_delete_message"),
        ("chat.postEphemeral", {**HERE, "user": "U0GUEST", "text": "x"}, "user_not_in_channel"),
        ("reactions.add", {**HERE, "timestamp": ALONE, "name": "no way"}, "invalid_name"),
        (status, {**THREAD, "status": "done"}, "invalid_arguments"),
        (status, {**THREAD, "status": "active", "thread_ts": "1.1"}, "thread_not_found"),
        ("chat.startStream", {**STREAM, "chunks": [{**TASK, "status": "done"}]}, "invalid_chunks"),
        ("chat.startStream", {**STREAM, "chunks": [{**TASK, "output": "y"}]}, "invalid_chunks"),
        ("chat.startStream", {**STREAM, "chunks": [{"text": "x"}]}, "invalid_chunks"),
    ):
        assert await world.error(method, **args) == code, (method, args)
    assert world.slack.effects == []
    mine = await world.call(post, **HERE, text="x")
    long = {"ts": mine["ts"], "text": "x" * 4_001}
    assert await world.error("chat.update", **HERE, **long) == "msg_too_long"


async def test_private_channel_is_not_found_for_nonmembers(world: World) -> None:
    kinds = "public_channel,private_channel,im"
    listed = (await world.bot.conversations_list(types=kinds))["channels"]
    assert [each["id"] for each in listed] == ["C0OPS", "C0OLD"]
    assert len((await world.luis.conversations_list(types=kinds))["channels"]) == 4
    for client in (world.bot, world.ana):
        for method in ("history", "info", "members", "replies"):
            args = {"channel": "G0SECRET", "ts": ROOT}
            assert await world.error(f"conversations.{method}", client, **args) == (
                "channel_not_found"
            )
    answer = await world.luis.conversations_history(channel="G0SECRET")
    assert [message["text"] for message in answer["messages"]] == ["a secret card"]
