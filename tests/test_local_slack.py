"""The local Slack, driven by slack_sdk over HTTP as the product drives Slack."""

import asyncio
import json
import signal
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection, RemoteDisconnected
from typing import Any

import aiohttp
import pytest
import uvicorn
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import AsyncRateLimitErrorRetryHandler
from slack_sdk.web.async_client import AsyncWebClient

from bot.local.server import LocalServer
from bot.local.slack.faults import Fault
from bot.local.slack.limits import TIERS
from bot.local.slack.server import API_PATH, BOT_TOKEN, LocalSlack
from bot.local.slack.state import BOT_ID, BOT_USER, Identity, SlackState
from bot.local.workspace import (
    Channel,
    File,
    ListColumn,
    ListItem,
    Message,
    Reaction,
    SlackList,
    Team,
    User,
    Workspace,
)

ROOT = "1740000000.000100"
ALONE = "1740000100.000100"
BROADCAST = "1740000300.000100"
BOT_POST = "1740000350.000100"
LATE = "1740900000.000100"
GONE = "1739990000.000100"

SUPPORT = Channel(
    "C0SUPPORT",
    "support-es",
    (
        Message(LATE, "¿Alguna novedad?", "U0ANA", thread_ts=ROOT),
        Message(ROOT, "No puedo pagar con tarjeta", "U0ANA", thread_ts=ROOT),
        Message("1740000200.000100", "¿Qué error sale?", "U0LUIS", thread_ts=ROOT),
        Message(BROADCAST, "Lo miro", "U0LUIS", thread_ts=ROOT, subtype="thread_broadcast"),
        Message(
            ALONE,
            "Factura duplicada 🧾",
            "U0LUIS",
            edited="1740000101.000000",
            reactions=(Reaction("+1", 3, ("U0ANA",)),),
            files=(File("F0PDF", "factura.pdf", mimetype="application/pdf", size=2048),),
        ),
        Message(BOT_POST, "Build 17 ok", bot_id="B0CI", username="ci", subtype="bot_message"),
        Message("1739990500.000100", "¿Y esto?", "U0ANA", thread_ts=GONE),
    ),
    members=("U0ANA", "U0LUIS"),
    topic="Mercado español",
    creator="U0LUIS",
    created=1730000000,
)
SECRET = Channel(
    "G0SECRET", "board", (Message(ROOT, "tarjeta secreta", "U0LUIS"),), ("U0LUIS",), is_private=True
)
OLD = Channel("C0OLD", "old", (Message(ROOT, "tarjeta vieja", "U0ANA"),), is_archived=True)
DIRECT = Channel("D0TWO", "", (), ("U0ANA", "U0LUIS"), is_private=True, is_im=True)
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
    Team("T0ACME", "Acme", "acme"),
    (
        User("U0ANA", "ana.ruiz", "Ana Ruiz", "ana", email="ana@acme.example"),
        User("U0LUIS", "luis", "Luis Gil", "luis"),
        User("U0GONE", "gone", "Gone Away", deleted=True),
    ),
    (SUPPORT, SECRET, OLD, DIRECT),
    (BUGS,),
)
POSTER = {"xoxb-narrow": Identity(BOT_USER, BOT_ID, frozenset({"chat:write"}))}


def typed(kind: type, names: str) -> dict[str, Any]:
    return dict.fromkeys(names.split(), kind)


# The types that Slack's recorded answers have (slackapi/java-slack-sdk, json-logs/samples/api);
# `hidden` and `app_id` of messages and the cells of list items are from Slack's reference pages.
PROFILE = typed(
    str,
    "title real_name real_name_normalized display_name display_name_normalized status_text "
    "status_emoji team email bot_id api_app_id",
)
USER = {
    **typed(str, "id team_id name real_name tz"),
    **typed(
        bool,
        "deleted is_bot is_app_user is_admin is_owner is_restricted is_ultra_restricted "
        "is_stranger",
    ),
    "profile": PROFILE,
    "updated": int,
}
NOTE = {"value": str, "creator": str, "last_set": int}
CHANNEL = {
    **typed(str, "id name name_normalized creator user"),
    **typed(
        bool,
        "is_channel is_group is_im is_mpim is_private is_archived is_general is_member is_shared "
        "is_ext_shared is_org_shared",
    ),
    "created": int,
    "topic": NOTE,
    "purpose": NOTE,
    "num_members": int,
}
BOT_PROFILE = {
    **typed(str, "id app_id user_id name team_id"),
    "deleted": bool,
    "updated": int,
}
FILE = {
    **typed(
        str,
        "id name title mimetype filetype user mode permalink file_access url_private "
        "url_private_download",
    ),
    "created": int,
    "size": int,
    **typed(bool, "is_external is_public"),
}
MESSAGE: dict[str, Any] = {
    **typed(
        str,
        "type ts text team user subtype bot_id username app_id thread_ts parent_user_id "
        "latest_reply",
    ),
    "bot_profile": BOT_PROFILE,
    "edited": {"user": str, "ts": str},
    "reactions": [{"name": str, "users": [str], "count": int}],
    "files": [FILE],
    "attachments": [dict],
    "blocks": [dict],
    "reply_count": int,
    "reply_users_count": int,
    "reply_users": [str],
    "is_locked": bool,
    "subscribed": bool,
    "hidden": bool,
}
MESSAGE["root"] = dict(MESSAGE)
MORE = {"next_cursor": str}
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
HISTORY = {"messages": [MESSAGE], "has_more": bool, "pin_count": int, "response_metadata": MORE}
THREAD = {"messages": [MESSAGE], "has_more": bool, "response_metadata": MORE}
POSTED = {"channel": str, "ts": str, "text": str, "message": MESSAGE}
AUTH = {
    **typed(str, "url team user team_id user_id bot_id"),
    "is_enterprise_install": bool,
}
CALLS: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("auth_test", {}, AUTH),
    ("conversations_list", {"limit": 1}, {"channels": [CHANNEL], "response_metadata": MORE}),
    ("conversations_info", {"channel": "C0SUPPORT"}, {"channel": CHANNEL}),
    ("conversations_history", {"channel": "C0SUPPORT"}, HISTORY),
    ("conversations_history", {"channel": "C0SUPPORT", "limit": 1}, HISTORY),
    ("conversations_replies", {"channel": "C0SUPPORT", "ts": ROOT}, THREAD),
    ("conversations_replies", {"channel": "C0SUPPORT", "ts": ROOT, "limit": 2}, THREAD),
    (
        "conversations_members",
        {"channel": "C0SUPPORT"},
        {"members": [str], "response_metadata": MORE},
    ),
    ("users_info", {"user": "U0ANA"}, {"user": USER}),
    ("users_list", {}, {"members": [USER], "response_metadata": MORE}),
    (
        "chat_getPermalink",
        {"channel": "C0SUPPORT", "message_ts": ROOT},
        {"channel": str, "permalink": str},
    ),
    ("slackLists_items_list", {"list_id": "F0BUGS"}, {"items": [ITEM], "response_metadata": MORE}),
    ("chat_postMessage", {"channel": "C0SUPPORT", "text": "hola"}, POSTED),
    ("reactions_add", {"channel": "C0SUPPORT", "timestamp": ROOT, "name": "eyes"}, {}),
]


@pytest.fixture
def slack() -> LocalSlack:
    return LocalSlack(WORKSPACE, tokens=POSTER)


@pytest.fixture
def api(slack: LocalSlack) -> Iterator[str]:
    with LocalServer(slack.app, "slack") as server:
        yield server.url + API_PATH


@pytest.fixture
def bot(api: str) -> WebClient:
    return WebClient(BOT_TOKEN, api)


@pytest.fixture
def luis(api: str) -> WebClient:
    return WebClient("xoxp-U0LUIS", api)


def body(response: Any) -> dict[str, Any]:
    assert isinstance(response.data, dict)
    return response.data


def error(client: WebClient, method: str, **args: Any) -> str:
    with pytest.raises(SlackApiError) as caught:
        client.api_call(method, params=args)
    assert caught.value.response.status_code == 200
    return str(caught.value.response["error"])


def texts(response: Any) -> list[str]:
    return [message["text"] for message in body(response)["messages"]]


def assert_shape(value: Any, shape: Any, at: str = "") -> None:
    """Every field is one that Slack's recorded answers have, with the type it has there."""
    if isinstance(shape, Mapping):
        assert isinstance(value, dict), at
        for name, part in value.items():
            assert name in shape, f"{at}.{name} is not in Slack's answers"
            assert_shape(part, shape[name], f"{at}.{name}")
    elif isinstance(shape, list):
        assert isinstance(value, list), at
        for number, part in enumerate(value):
            assert_shape(part, shape[0], f"{at}[{number}]")
    else:
        assert type(value) is shape or shape is object, f"{at} is {type(value)}, not {shape}"


@pytest.mark.parametrize(("method", "args", "shape"), CALLS)
async def test_both_clients_get_answers_in_the_shape_slack_gives(
    api: str, slack: LocalSlack, method: str, args: dict[str, Any], shape: dict[str, Any]
) -> None:
    called = await getattr(AsyncWebClient(BOT_TOKEN, api), method)(**args)
    assert_shape(body(called), {"ok": bool, **shape}, method)
    slack.state = SlackState(WORKSPACE)
    again = await asyncio.to_thread(getattr(WebClient(BOT_TOKEN, api), method), **args)
    assert_shape(body(again), {"ok": bool, **shape}, method)
    assert body(again).keys() == body(called).keys()
    assert sum(slack.calls.values()) == 2


def test_search_and_update_answer_in_the_shape_slack_gives(luis: WebClient, bot: WebClient) -> None:
    found = luis.search_messages(query="tarjeta")
    assert_shape(body(found), {"ok": bool, "query": str, "messages": FOUND})
    posted = bot.chat_postMessage(channel="C0SUPPORT", text="hola")
    updated = bot.chat_update(channel="C0SUPPORT", ts=posted["ts"], text="adiós")
    assert_shape(body(updated), {"ok": bool, **POSTED})


def test_auth_test_says_whom_the_token_stands_for_and_its_scopes(
    bot: WebClient, luis: WebClient
) -> None:
    answer = bot.auth_test()
    assert (answer["user_id"], answer["bot_id"]) == (BOT_USER, BOT_ID)
    assert (answer["team_id"], answer["url"]) == ("T0ACME", "https://acme.slack.com/")
    assert "channels:history" in answer.headers["x-oauth-scopes"].split(",")
    mine = luis.auth_test()
    assert mine["user_id"] == "U0LUIS"
    assert "bot_id" not in body(mine)


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
def test_a_token_that_stands_for_nobody_is_refused(api: str, token: str, code: str) -> None:
    assert error(WebClient(token, api), "auth.test") == code


def test_arguments_come_as_query_form_or_json_and_unknown_ones_are_ignored(api: str) -> None:
    header = {"Authorization": f"Bearer {BOT_TOKEN}"}
    as_json = header | {"Content-Type": "application/json; charset=utf-8"}
    url = api + "users.info"
    asked = [
        urllib.request.Request(url + "?user=U0ANA&colour=red", headers=header),
        urllib.request.Request(url, b"user=U0ANA&colour=red", header),
        urllib.request.Request(url, b'{"user": "U0ANA", "colour": ["red"]}', as_json),
        urllib.request.Request(url, f"user=U0ANA&token={BOT_TOKEN}".encode()),
    ]
    for request in asked:
        with urllib.request.urlopen(request) as response:
            assert json.load(response)["user"]["real_name"] == "Ana Ruiz"
    for sent, code in ((b"{", "invalid_json"), (b"[]", "json_not_object")):
        with urllib.request.urlopen(urllib.request.Request(url, sent, as_json)) as response:
            assert json.load(response)["error"] == code


def test_wrong_calls_get_slacks_error_codes(bot: WebClient) -> None:
    channel = {"channel": "C0SUPPORT"}
    assert error(bot, "conversations.paint") == "unknown_method"
    assert error(bot, "conversations.history") == "invalid_arguments"
    assert error(bot, "conversations.history", channel="C0NONE") == "channel_not_found"
    assert error(bot, "conversations.history", **channel, limit=1000) == "invalid_limit"
    assert error(bot, "conversations.history", **channel, limit="ten") == "invalid_limit"
    assert error(bot, "conversations.history", **channel, cursor="%%%") == "invalid_cursor"
    assert error(bot, "conversations.history", **channel, cursor="dXNlcjpVMQ==") == "invalid_cursor"
    assert error(bot, "conversations.history", **channel, oldest="now") == "invalid_ts_oldest"
    assert error(bot, "conversations.replies", **channel, ts="1.1") == "thread_not_found"
    assert error(bot, "conversations.replies", **channel, ts="x") == "thread_not_found"
    assert error(bot, "conversations.list", types="public_channel,pub") == "invalid_types"
    assert error(bot, "users.info", user="U0NOBODY") == "user_not_found"
    assert error(bot, "chat.getPermalink", **channel, message_ts="1.1") == "message_not_found"
    assert error(bot, "slackLists.items.list", list_id="F0NONE") == "list_not_found"


def test_a_private_channel_does_not_exist_for_those_who_are_not_in_it(
    api: str, bot: WebClient, luis: WebClient
) -> None:
    kinds = "public_channel,private_channel,im"
    ana = WebClient("xoxp-U0ANA", api)
    assert [c["id"] for c in bot.conversations_list(types=kinds)["channels"]] == [
        "C0SUPPORT",
        "C0OLD",
    ]
    assert len(luis.conversations_list(types=kinds)["channels"]) == 4
    assert luis.conversations_list(types="im")["channels"][0]["user"] == "U0ANA"
    for client in (bot, ana):
        for method in ("history", "info", "members"):
            code = error(client, f"conversations.{method}", channel="G0SECRET")
            assert code == "channel_not_found"
        assert error(client, "conversations.replies", channel="G0SECRET", ts=ROOT) == (
            "channel_not_found"
        )
    assert texts(luis.conversations_history(channel="G0SECRET")) == ["tarjeta secreta"]


def test_a_bot_reads_only_channels_it_is_in_but_a_user_every_public_one() -> None:
    slack = LocalSlack(WORKSPACE, invite_bot=False)
    with LocalServer(slack.app, "slack") as server:
        bot = WebClient(BOT_TOKEN, server.url + API_PATH)
        ana = WebClient("xoxp-U0ANA", server.url + API_PATH)
        assert not bot.conversations_info(channel="C0SUPPORT")["channel"]["is_member"]
        assert error(bot, "conversations.history", channel="C0SUPPORT") == "not_in_channel"
        assert error(bot, "chat.postMessage", channel="C0SUPPORT", text="x") == "not_in_channel"
        assert texts(ana.conversations_history(channel="C0OLD")) == ["tarjeta vieja"]


def test_a_missing_scope_is_named_with_those_that_are_there(api: str, bot: WebClient) -> None:
    narrow = WebClient("xoxb-narrow", api)
    with pytest.raises(SlackApiError) as caught:
        narrow.conversations_history(channel="C0SUPPORT")
    answer = caught.value.response
    assert answer["error"] == "missing_scope"
    assert (answer["needed"], answer["provided"]) == ("channels:history", "chat:write")
    assert error(narrow, "users.list") == "missing_scope"
    assert error(narrow, "conversations.list", types="im") == "missing_scope"
    assert "email" not in bot.users_info(user="U0ANA")["user"]["profile"]


def test_archived_channels_can_be_left_out(bot: WebClient) -> None:
    listed = bot.conversations_list(exclude_archived=True)["channels"]
    assert [channel["name"] for channel in listed] == ["support-es"]
    assert listed[0]["topic"]["value"] == "Mercado español"
    assert listed[0]["num_members"] == 3


def test_history_is_newest_first_with_roots_and_broadcasts_only(bot: WebClient) -> None:
    answer = bot.conversations_history(channel="C0SUPPORT")
    assert texts(answer) == [
        "Build 17 ok",
        "Lo miro",
        "Factura duplicada 🧾",
        "No puedo pagar con tarjeta",
        "This message was deleted.",
    ]
    assert answer["has_more"] is False
    assert "response_metadata" not in body(answer)
    ci, broadcast, alone, root, _ = answer["messages"]
    assert (ci["bot_id"], ci["username"], ci["subtype"]) == ("B0CI", "ci", "bot_message")
    assert broadcast["root"]["ts"] == ROOT
    assert alone["edited"] == {"user": "U0LUIS", "ts": "1740000101.000000"}
    assert alone["reactions"] == [{"name": "+1", "users": ["U0ANA"], "count": 3}]
    assert alone["files"][0]["name"] == "factura.pdf"
    assert "thread_ts" not in alone
    assert (root["thread_ts"], root["reply_count"], root["latest_reply"]) == (ROOT, 3, LATE)
    assert (root["reply_users"], root["reply_users_count"]) == (["U0LUIS", "U0ANA"], 2)


@pytest.mark.parametrize("limit", [1, 2, 3, 4, 5, 999])
def test_pages_hold_every_message_once(bot: WebClient, limit: int) -> None:
    whole = texts(bot.conversations_history(channel="C0SUPPORT"))
    paged = bot.conversations_history(channel="C0SUPPORT", limit=limit)
    assert [text for page in paged for text in texts(page)] == whole
    thread = bot.conversations_replies(channel="C0SUPPORT", ts=ROOT, limit=limit)
    assert [text for page in thread for text in texts(page)] == [
        "No puedo pagar con tarjeta",
        "¿Qué error sale?",
        "Lo miro",
        "¿Alguna novedad?",
    ]
    people = bot.users_list(limit=limit)
    assert len([user["id"] for page in people for user in page["members"]]) == 5


def test_a_message_posted_between_two_pages_shifts_nothing(bot: WebClient) -> None:
    first = bot.conversations_history(channel="C0SUPPORT", limit=2)
    bot.chat_postMessage(channel="C0SUPPORT", text="nuevo")
    cursor = first["response_metadata"]["next_cursor"]
    second = bot.conversations_history(channel="C0SUPPORT", limit=2, cursor=cursor)
    assert texts(second) == ["Factura duplicada 🧾", "No puedo pagar con tarjeta"]


def test_the_ends_of_a_time_range_count_only_if_inclusive(bot: WebClient) -> None:
    ends: dict[str, Any] = {"channel": "C0SUPPORT", "oldest": ROOT, "latest": BROADCAST}
    assert texts(bot.conversations_history(**ends)) == ["Factura duplicada 🧾"]
    assert len(texts(bot.conversations_history(**ends, inclusive=True))) == 3
    assert len(texts(bot.conversations_history(channel="C0SUPPORT", oldest="1740000000"))) == 4
    before = bot.conversations_replies(channel="C0SUPPORT", ts=ROOT, latest=BROADCAST)
    assert texts(before) == ["No puedo pagar con tarjeta", "¿Qué error sale?"]
    after = bot.conversations_replies(channel="C0SUPPORT", ts=ROOT, oldest=BROADCAST)
    assert texts(after) == ["No puedo pagar con tarjeta", "¿Alguna novedad?"]
    assert before["messages"][0]["latest_reply"] == LATE


def test_a_timestamp_that_is_no_root_gives_that_message_alone(bot: WebClient) -> None:
    reply = bot.conversations_replies(channel="C0SUPPORT", ts=LATE)["messages"]
    assert [(m["ts"], m["thread_ts"], m["parent_user_id"]) for m in reply] == [
        (LATE, ROOT, "U0ANA")
    ]
    assert texts(bot.conversations_replies(channel="C0SUPPORT", ts=ALONE)) == [
        "Factura duplicada 🧾"
    ]


def test_a_deleted_root_leaves_a_tombstone_above_its_replies(bot: WebClient) -> None:
    tombstone, reply = bot.conversations_replies(channel="C0SUPPORT", ts=GONE)["messages"]
    assert (tombstone["subtype"], tombstone["user"]) == ("tombstone", "USLACKBOT")
    assert (tombstone["hidden"], tombstone["reply_count"]) == (True, 1)
    assert reply["text"] == "¿Y esto?"


def test_permalinks_of_replies_name_their_thread(bot: WebClient) -> None:
    root = bot.chat_getPermalink(channel="C0SUPPORT", message_ts=ROOT)["permalink"]
    assert root == "https://acme.slack.com/archives/C0SUPPORT/p1740000000000100"
    late = bot.chat_getPermalink(channel="C0SUPPORT", message_ts=LATE)["permalink"]
    assert late == (
        "https://acme.slack.com/archives/C0SUPPORT/p1740900000000100"
        f"?thread_ts={ROOT}&cid=C0SUPPORT"
    )


def test_search_is_for_users_and_finds_what_they_can_see(
    api: str, bot: WebClient, luis: WebClient
) -> None:
    assert error(bot, "search.messages", query="tarjeta") == "not_allowed_token_type"

    def found(client: WebClient, query: str, **args: Any) -> list[str]:
        matches = client.search_messages(query=query, **args)["messages"]["matches"]
        return [match["text"] for match in matches]

    ana = WebClient("xoxp-U0ANA", api)
    assert sorted(found(luis, "TARJETA")) == [
        "No puedo pagar con tarjeta",
        "tarjeta secreta",
        "tarjeta vieja",
    ]
    assert "tarjeta secreta" not in found(ana, "tarjeta")
    assert found(ana, "tarjeta in:#old") == ["tarjeta vieja"]
    assert found(ana, '"pagar con" -in:old') == ["No puedo pagar con tarjeta"]
    assert found(ana, "from:@luis after:2025-02-18 before:2025-02-20", sort_dir="asc") == [
        "Factura duplicada 🧾",
        "¿Qué error sale?",
        "Lo miro",
    ]
    assert found(ana, "from:me on:2025-03-02") == ["¿Alguna novedad?"]
    page = luis.search_messages(query="tarjeta", count=2, page=2)["messages"]
    assert (page["total"], page["paging"]["pages"], len(page["matches"])) == (3, 2, 1)


def test_list_items_come_with_typed_cells_and_on_request_the_columns(bot: WebClient) -> None:
    first = bot.slackLists_items_list(list_id="F0BUGS", limit=1)
    (card,) = first["items"]
    title, status = card["fields"]
    assert (title["key"], title["text"]) == ("title", "Card refused")
    assert (status["value"], status["select"]) == ("OptOpen", ["OptOpen"])
    cursor = first["response_metadata"]["next_cursor"]
    rest = bot.slackLists_items_list(list_id="F0BUGS", cursor=cursor)
    assert [item["id"] for item in rest["items"]] == ["Rec2"]
    assert rest["response_metadata"]["next_cursor"] == ""
    archived = bot.slackLists_items_list(list_id="F0BUGS", archived=True, include_list=True)
    assert [item["id"] for item in archived["items"]] == ["Rec3"]
    columns = archived["list"]["list_metadata"]["schema"]
    assert columns[1]["options"]["choices"][0] == {"value": "OptOpen", "label": "Open"}


def test_a_post_is_counted_and_shows_up_in_its_thread(slack: LocalSlack, bot: WebClient) -> None:
    posted = bot.chat_postMessage(
        channel="C0SUPPORT",
        thread_ts=LATE,
        text="Arreglado",
        blocks=[{"type": "section", "text": {"type": "mrkdwn", "text": "Arreglado"}}],
    )
    assert posted["message"]["bot_profile"]["id"] == BOT_ID
    thread = bot.conversations_replies(channel="C0SUPPORT", ts=ROOT)["messages"]
    assert (thread[-1]["ts"], thread[-1]["user"]) == (posted["ts"], BOT_USER)
    assert thread[-1]["blocks"][0]["type"] == "section"
    assert (thread[0]["reply_count"], thread[0]["latest_reply"]) == (4, posted["ts"])
    bot.chat_update(channel="C0SUPPORT", ts=posted["ts"], text="Arreglado hoy")
    thread = bot.conversations_replies(channel="C0SUPPORT", ts=ROOT)["messages"]
    assert (thread[-1]["text"], thread[-1]["edited"]["user"]) == ("Arreglado hoy", BOT_USER)
    assert [(e.method, e.channel, e.ts) for e in slack.effects] == [
        ("chat.postMessage", "C0SUPPORT", posted["ts"]),
        ("chat.update", "C0SUPPORT", posted["ts"]),
    ]
    assert slack.effects[0].args["text"] == "Arreglado"


def test_posts_of_one_instant_have_times_of_their_own() -> None:
    slack = LocalSlack(WORKSPACE, now=lambda: 1700000000.0)
    with LocalServer(slack.app, "slack") as server:
        bot = WebClient(BOT_TOKEN, server.url + API_PATH)
        sent = [bot.chat_postMessage(channel="C0SUPPORT", text=str(n))["ts"] for n in range(3)]
    assert sent == ["1740900000.000101", "1740900000.000102", "1740900000.000103"]


def test_a_broadcast_reply_is_in_the_thread_and_in_the_channel(bot: WebClient) -> None:
    bot.chat_postMessage(
        channel="C0SUPPORT", thread_ts=ROOT, reply_broadcast=True, markdown_text="**ya**"
    )
    assert texts(bot.conversations_history(channel="C0SUPPORT"))[0] == "**ya**"
    assert texts(bot.conversations_replies(channel="C0SUPPORT", ts=ROOT))[-1] == "**ya**"


def test_a_reaction_counts_once_a_user(slack: LocalSlack, bot: WebClient) -> None:
    target = {"channel": "C0SUPPORT", "timestamp": ALONE, "name": "+1"}
    bot.reactions_add(**target)
    assert error(bot, "reactions.add", **target) == "already_reacted"
    assert error(bot, "reactions.add", **target | {"name": "no way"}) == "invalid_name"
    alone = bot.conversations_replies(channel="C0SUPPORT", ts=ALONE)["messages"][0]
    assert alone["reactions"] == [{"name": "+1", "users": ["U0ANA", BOT_USER], "count": 4}]
    assert len(slack.effects) == 1


def test_a_write_that_slack_refuses_changes_nothing(slack: LocalSlack, bot: WebClient) -> None:
    here = {"channel": "C0SUPPORT"}
    post = "chat.postMessage"
    assert error(bot, post, **here) == "no_text"
    assert error(bot, post, channel="C0OLD", text="x") == "is_archived"
    assert error(bot, post, channel="G0SECRET", text="x") == "channel_not_found"
    assert error(bot, post, **here, text="x", thread_ts="1.1") == "thread_not_found"
    assert error(bot, post, **here, text="x", blocks="[1]") == "invalid_blocks_format"
    assert error(bot, post, **here, markdown_text="x" * 12_001) == "msg_too_long"
    assert error(bot, post, **here, markdown_text="x", text="x") == "markdown_text_conflict"
    assert error(bot, "chat.update", **here, ts=ALONE, text="mine") == "cant_update_message"
    assert error(bot, "chat.update", **here, ts="1.1", text="x") == "message_not_found"
    assert slack.effects == []
    assert len(texts(bot.conversations_history(channel="C0SUPPORT"))) == 5


def test_text_beyond_slacks_limit_is_cut(bot: WebClient) -> None:
    posted = bot.chat_postMessage(channel="C0SUPPORT", text="x" * 40_001)
    assert len(posted["message"]["text"]) == 40_000


async def test_scripted_faults_come_in_order_and_then_all_is_well(
    slack: LocalSlack, api: str
) -> None:
    client = AsyncWebClient(BOT_TOKEN, api, retry_handlers=[])
    kinds = ("429", "500", "malformed", "drop")
    slack.faults += [Fault("users.info", kind, 7) for kind in kinds]
    await client.auth_test()
    statuses = []
    for _ in range(3):
        with pytest.raises(SlackApiError) as caught:
            await client.users_info(user="U0ANA")
        answer = caught.value.response  # aiohttp's own where the body is no JSON
        statuses.append(getattr(answer, "status_code", None) or answer.status)
        if statuses == [429]:
            assert (answer["error"], answer.headers["Retry-After"]) == ("ratelimited", "7")
    assert statuses == [429, 500, 200]
    with pytest.raises(aiohttp.ClientConnectionError):  # by POST: aiohttp repeats a GET itself
        await client.api_call("users.info", params={"user": "U0ANA"})
    assert (await client.users_info(user="U0ANA"))["ok"]
    assert (slack.faults, slack.calls["users.info"]) == ([], 5)


async def test_a_slow_answer_runs_into_the_clients_timeout(slack: LocalSlack, api: str) -> None:
    slack.faults += [Fault("*", "slow", 1.5), Fault("*", "slow", 0.01)]
    hasty = AsyncWebClient(BOT_TOKEN, api, timeout=1, retry_handlers=[])
    with pytest.raises(asyncio.TimeoutError):
        await hasty.auth_test()
    assert (await hasty.auth_test())["ok"]


def test_a_dropped_write_was_not_carried_out(slack: LocalSlack, api: str) -> None:
    slack.faults.append(Fault("chat.postMessage", "drop"))
    with pytest.raises((RemoteDisconnected, ConnectionResetError)):
        WebClient(BOT_TOKEN, api, retry_handlers=[]).chat_postMessage(channel="C0SUPPORT", text="x")
    assert slack.effects == []


async def test_over_the_rate_limit_a_call_waits_as_long_as_it_is_told() -> None:
    slack = LocalSlack(WORKSPACE, limits={"users.info": 2})
    with LocalServer(slack.app, "slack") as server:
        url = server.url + API_PATH
        client = AsyncWebClient(BOT_TOKEN, url)
        for _ in range(2):
            await client.users_info(user="U0ANA")
        with pytest.raises(SlackApiError) as caught:
            await client.users_info(user="U0ANA")
        assert caught.value.response.status_code == 429
        assert 55 <= int(caught.value.response.headers["Retry-After"]) <= 60
        assert (await AsyncWebClient("xoxp-U0ANA", url).users_info(user="U0ANA"))["ok"]
        slack.faults.append(Fault("auth.test", "429", 0))
        patient = AsyncWebClient(BOT_TOKEN, url, retry_handlers=[AsyncRateLimitErrorRetryHandler()])
        assert (await patient.auth_test())["ok"]
    assert TIERS["conversations.history"] == 50


def test_the_server_leaves_no_thread_no_port_and_no_signal_handler_behind() -> None:
    before = signal.getsignal(signal.SIGINT), threading.active_count()
    server = LocalServer(LocalSlack(WORKSPACE).app, "slack")
    assert server.start() == server.url
    assert signal.getsignal(signal.SIGINT) is before[0]
    client = WebClient(BOT_TOKEN, server.url + API_PATH, retry_handlers=[])
    assert client.auth_test()["ok"]
    server.stop()
    server.stop()
    assert threading.active_count() == before[1]
    with pytest.raises(OSError, match="refused"):
        client.auth_test()
    LocalServer(LocalSlack(WORKSPACE).app, "never started").stop()


def test_a_stop_closes_what_is_idle_and_waits_for_nothing(
    slack: LocalSlack, monkeypatch: pytest.MonkeyPatch
) -> None:
    """uvicorn would sleep for a tenth of a second."""
    waited: list[uvicorn.Server] = []

    async def shutdown(server: uvicorn.Server, sockets: object = None) -> None:
        waited.append(server)

    monkeypatch.setattr(uvicorn.Server, "shutdown", shutdown)
    with LocalServer(slack.app, "slack") as server:
        idle = HTTPConnection(server.url.removeprefix("http://"))
        idle.request("GET", "/")
        idle.getresponse().read()
    assert not waited
    assert idle.sock.recv(1) == b""
    idle.close()


def test_a_stopping_server_ends_open_requests_without_a_word(
    slack: LocalSlack, caplog: pytest.LogCaptureFixture
) -> None:
    slack.faults.append(Fault("auth.test", "slow", 60))
    server = LocalServer(slack.app, "slack")
    client = WebClient(BOT_TOKEN, server.start() + API_PATH, retry_handlers=[])
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(client.auth_test)
        while not slack.calls["auth.test"]:
            time.sleep(0.01)
        server.stop()
        with pytest.raises((RemoteDisconnected, ConnectionResetError)):
            waiting.result(timeout=5)
    assert not [record for record in caplog.records if record.name.startswith("uvicorn")]


async def test_two_hundred_readers_at_once_are_all_served(api: str) -> None:
    client = AsyncWebClient(BOT_TOKEN, api)
    answers = await asyncio.gather(
        *(client.conversations_history(channel="C0SUPPORT") for _ in range(200))
    )
    assert {len(answer["messages"]) for answer in answers} == {5}
