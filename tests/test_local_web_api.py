"""What a serious bot calls besides streams, with the real client against the local Slack."""

import asyncio
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from engine_kit import MUX
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.local.slack.blocks import MAX_CHARACTERS
from bot.local.slack.limits import DISTRIBUTED, TIERS
from bot.local.slack.records import Whisper
from bot.local.slack.server import API_PATH, BOT_TOKEN, METHODS, LocalSlack
from bot.local.slack.state import BOT_ID, BOT_SCOPES, BOT_USER, Identity
from bot.local.slack.views import home, new_trigger
from bot.local.workspace import Channel, File, Message, User, UserGroup, Workspace

ROOT = "1740000000.000100"
WITH_FILE = "1740000050.000100"
OPS: dict[str, Any] = {"channel": "C0OPS"}
THREAD: dict[str, Any] = {"channel_id": "C0OPS", "thread_ts": ROOT}
NOTES = File("F0NOTES", "notas de José.txt", mimetype="text/plain", content=b"caf\xc3\xa9")
SECRET = File("F0SECRET", "plan.txt", content=b"secret")
WORKSPACE = Workspace(
    users=(
        User("U0ANA", "ana"),
        User("U0GUEST", "guest", is_ultra_restricted=True),
        User("U0ELSE", "else", is_stranger=True, team_id="T0OTHER"),
        User("U0GONE", "gone", deleted=True),
    ),
    channels=(
        Channel(
            "C0OPS",
            "ops",
            (
                Message(ROOT, "What is open?", "U0ANA"),
                Message(WITH_FILE, "my notes", "U0ANA", files=(NOTES,)),
            ),
            ("U0ANA", "U0GUEST"),
        ),
        Channel("C0SHARED", "partners", members=("U0ANA", "U0ELSE"), is_ext_shared=True),
        Channel("C0OLD", "old", (Message(ROOT, "x", "U0ANA"),), is_archived=True),
        Channel(
            "G0BOARD",
            "board",
            (Message(ROOT, "secret", "U0ANA", files=(SECRET,)),),
            ("U0ANA",),
            is_private=True,
        ),
    ),
    usergroups=(
        UserGroup("S0SUPPORT", "support", ("U0ANA",)),
        UserGroup("S0OLD", "old-team", ("U0GONE",), disabled=True),
    ),
)


@pytest.fixture
def slack() -> LocalSlack:
    return LocalSlack(WORKSPACE)


@pytest.fixture
def url(slack: LocalSlack) -> Iterator[str]:
    with MUX.serving(slack.app) as base:
        yield base + API_PATH


@pytest.fixture
def web(url: str) -> AsyncWebClient:
    return AsyncWebClient(BOT_TOKEN, url, retry_handlers=[])


async def refusal(web: AsyncWebClient, method: str, **args: Any) -> Any:
    with pytest.raises(SlackApiError) as caught:
        await web.api_call(method, json=args)
    return caught.value.response


async def error(web: AsyncWebClient, method: str, **args: Any) -> str:
    return str((await refusal(web, method, **args))["error"])


def section(text: str, **more: Any) -> dict[str, Any]:
    return {"type": "section", "text": {"type": "mrkdwn", "text": text}, **more}


def button(**more: Any) -> dict[str, Any]:
    return {"type": "button", "text": {"type": "plain_text", "text": "Go"}, **more}


# ---- messages


async def test_metadata_is_shown_to_those_who_ask_for_it(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    metadata = {"event_type": "assistant_reply", "event_payload": {"key": "a/b/c"}}
    posted = await web.chat_postMessage(**OPS, thread_ts=ROOT, text="x", metadata=metadata)
    for found in (
        await web.conversations_replies(**OPS, ts=ROOT, include_all_metadata=True),
        await web.conversations_history(**OPS, oldest="1", include_all_metadata=True),
    ):
        with_metadata = [m["metadata"] for m in found["messages"] if "metadata" in m]
        assert with_metadata in ([metadata], [])
    assert "metadata" not in (await web.conversations_replies(**OPS, ts=ROOT))["messages"][-1]
    await web.chat_update(**OPS, ts=posted["ts"], text="y")
    assert slack.visible("C0OPS", ROOT)[-1].metadata == metadata
    other = {"event_type": "other", "event_payload": {}}
    await web.chat_update(**OPS, ts=posted["ts"], text="y", metadata=other)
    assert slack.visible("C0OPS", ROOT)[-1].metadata == other
    post = "chat.postMessage"
    for bad in ("{", {"event_type": "x"}, {"event_type": 1, "event_payload": {}}, [1]):
        assert await error(web, post, **OPS, text="x", metadata=bad) == "invalid_metadata_format"
    large = {"event_type": "x", "event_payload": {"a": "x" * 8_001}}
    assert await error(web, post, **OPS, text="x", metadata=large) == "metadata_too_large"


async def test_what_was_asked_of_unfurling_stays_with_the_effect(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    await web.chat_postMessage(**OPS, text="x", unfurl_links=False, unfurl_media=False)
    sent = slack.effects[0].args
    assert [str(sent[name]) for name in ("unfurl_links", "unfurl_media")] == ["False", "False"]


async def test_an_update_keeps_the_blocks_that_it_does_not_send(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    posted = await web.chat_postMessage(**OPS, text="x", blocks=[section("Old")])
    at = {**OPS, "ts": posted["ts"]}
    await web.api_call("chat.update", json={**at, "text": "new"})
    assert slack.visible("C0OPS")[-1].text == "Old"
    await web.api_call("chat.update", json={**at, "text": "new", "blocks": []})
    assert slack.visible("C0OPS")[-1].text == "new"
    assert await error(web, "chat.update", **at, text="x" * 4_001) == "msg_too_long"
    assert await error(web, "chat.update", **OPS, ts=ROOT, text="x") == "cant_update_message"


async def test_a_deleted_message_is_gone_and_a_deleted_root_leaves_a_tombstone(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    first = (await web.chat_postMessage(**OPS, text="a"))["ts"]
    reply = (await web.chat_postMessage(**OPS, text="b", thread_ts=first))["ts"]
    await web.chat_delete(**OPS, ts=first)
    root, answer = (await web.conversations_replies(**OPS, ts=first))["messages"]
    assert (root["subtype"], answer["text"]) == ("tombstone", "b")
    await web.chat_delete(**OPS, ts=reply)
    assert await error(web, "chat.delete", **OPS, ts=reply) == "message_not_found"
    assert await error(web, "chat.delete", **OPS, ts=ROOT) == "cant_delete_message"
    assert [shown.text for shown in slack.visible("C0OPS")][:2] == ["What is open?", "my notes"]


async def test_a_whisper_is_seen_by_one_person_and_kept_nowhere(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    sent = await web.chat_postEphemeral(**OPS, user="U0ANA", text="psst", thread_ts=ROOT)
    assert slack.state.whispers == [Whisper("C0OPS", "U0ANA", sent["message_ts"], "psst", ROOT)]
    assert len(slack.visible("C0OPS")) == 2
    whisper = "chat.postEphemeral"
    assert await error(web, whisper, **OPS, user="U0ELSE", text="x") == "user_not_in_channel"


async def test_a_message_to_a_person_goes_to_their_direct_message(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    posted = await web.chat_postMessage(channel="U0ANA", text="hi")
    opened = await web.conversations_open(users="U0ANA")
    assert posted["channel"] == opened["channel"]["id"]
    assert opened["already_open"] is True
    (channel,) = (await web.conversations_list(types="im"))["channels"]
    assert (channel["id"], channel["user"]) == (posted["channel"], "U0ANA")
    assert [shown.text for shown in slack.visible(posted["channel"])] == ["hi"]
    group = await web.conversations_open(users=["U0ANA", "U0GUEST"], return_im=True)
    assert group["channel"]["is_mpim"] is True
    open_ = "conversations.open"
    assert await error(web, open_, users="U0NOBODY") == "user_not_found"
    assert await error(web, open_, users="U0GONE") == "user_disabled"
    assert await error(web, open_, users="USLACKBOT") == "cannot_dm_bot"


# ---- blocks

TABLE_CELL = {"type": "raw_text", "text": "x"}
GOOD_BLOCKS: list[dict[str, Any]] = [
    section("x" * 3000, accessory=button(action_id="a")),
    {"type": "header", "text": {"type": "plain_text", "text": "x" * 150}},
    {"type": "markdown", "text": "x" * 12_000},
    {"type": "divider"},
    {"type": "context", "elements": [{"type": "mrkdwn", "text": "x"}] * 10},
    {"type": "actions", "elements": [button(action_id=str(n)) for n in range(25)]},
    {
        "type": "context_actions",
        "elements": [
            {
                "type": "feedback_buttons",
                "action_id": "feedback",
                "positive_button": {**button(), "value": "good"},
                "negative_button": {**button(), "value": "bad"},
            }
        ],
    },
    {"type": "table", "rows": [[TABLE_CELL] * 20] * 100},
    {"type": "image", "image_url": "https://local/x.png", "alt_text": "x"},
    {"type": "task_card", "task_id": "a", "title": "x", "status": "pending"},
    {"type": "plan", "title": "x", "tasks": []},
    {"type": "card", "title": {"type": "plain_text", "text": "x"}},
    {
        "type": "container",
        "title": {"type": "plain_text", "text": "x"},
        "child_blocks": [{"type": "divider"}] * 10,
    },
    {"type": "alert", "text": {"type": "mrkdwn", "text": "x"}},
]


@pytest.mark.parametrize("block", GOOD_BLOCKS, ids=lambda block: block["type"])
async def test_a_block_at_its_limit_is_taken(web: AsyncWebClient, block: dict[str, Any]) -> None:
    sent = block if block["type"] != "plan" else {**block, "tasks": [GOOD_BLOCKS[9]] * 50}
    posted = await web.chat_postMessage(**OPS, text="x", blocks=[sent])
    assert posted["message"]["blocks"] == [{**sent, "block_id": "b1"}]


@pytest.mark.parametrize(
    ("blocks", "pointer"),
    [
        ([section("")], "/blocks/0/text/text"),
        ([section("x" * 3001)], "/blocks/0/text/text"),
        ([{"type": "section"}], "/blocks/0"),
        ([{"type": "section", "fields": [{"type": "mrkdwn", "text": "x"}] * 11}], "fields"),
        ([{"type": "header", "text": {"type": "mrkdwn", "text": "x"}}], "/blocks/0/text/type"),
        ([{"type": "header", "text": {"type": "plain_text", "text": "x" * 151}}], "text"),
        ([{"type": "markdown", "text": "x" * 12_001}], "/blocks/0/text"),
        ([{"type": "markdown", "text": "x" * 7_000}] * 2, "/blocks"),
        ([{"type": "context", "elements": [{"type": "mrkdwn", "text": "x"}] * 11}], "elements"),
        ([{"type": "context", "elements": []}], "/blocks/0/elements"),
        ([{"type": "actions", "elements": [button() for _ in range(26)]}], "elements"),
        ([{"type": "actions", "elements": [button(action_id="a")] * 2}], "action_id"),
        ([{"type": "actions", "elements": [button(value="x" * 2001)]}], "value"),
        ([{"type": "context_actions", "elements": [button()]}], "elements/0/type"),
        ([{"type": "table", "rows": [[TABLE_CELL]] * 101}], "/blocks/0/rows"),
        ([{"type": "table", "rows": [[TABLE_CELL] * 21]}], "/blocks/0/rows/0"),
        ([{"type": "table", "rows": [[{"type": "raw_text", "text": ""}]]}], "rows/0/0/text"),
        ([{"type": "table", "rows": [[{**TABLE_CELL, "text": "x" * 10_001}]]}], "/blocks"),
        ([{**GOOD_BLOCKS[9], "status": "done"}], "/blocks/0/status"),
        ([{"type": "container", "child_blocks": [{"type": "divider"}]}], "/blocks/0"),
        ([{**GOOD_BLOCKS[12], "child_blocks": [{"type": "divider"}] * 11}], "child_blocks"),
        ([{**GOOD_BLOCKS[11], "body": {"type": "mrkdwn", "text": "x" * 201}}], "body/text"),
        ([{"type": "image", "image_url": "https://x"}], "/blocks/0"),
        ([{"type": "unheard_of"}], "/blocks/0/type"),
        ([{"text": "x"}], "/blocks/0/type"),
        ([{"type": "divider"}] * 51, "/blocks"),
        ([{"type": "divider", "block_id": "a"}] * 2, "/blocks"),
        ([{"type": "divider", "block_id": "x" * 256}], "/blocks/0/block_id"),
    ],
)
async def test_a_block_beyond_a_limit_is_refused_with_a_pointer(
    slack: LocalSlack, web: AsyncWebClient, blocks: list[dict[str, Any]], pointer: str
) -> None:
    answer = await refusal(web, "chat.postMessage", **OPS, text="x", blocks=blocks)
    assert answer["error"] == "invalid_blocks"
    (sentence,) = answer["response_metadata"]["messages"]
    assert sentence.startswith("[ERROR] ")
    assert sentence.endswith(f"{pointer}]")
    assert slack.effects == []


async def test_the_characters_of_all_blocks_together_are_limited(web: AsyncWebClient) -> None:
    full = [section("x" * 3000)] * 4 + [section("x" * (MAX_CHARACTERS - 12_000))]
    await web.chat_postMessage(**OPS, text="x", blocks=full)
    more = [*full, section("x")]
    assert await error(web, "chat.postMessage", **OPS, text="x", blocks=more) == (
        "msg_blocks_too_long"
    )


# ---- agents


async def test_a_session_is_made_renamed_and_left(slack: LocalSlack, web: AsyncWebClient) -> None:
    rename = "agents.sessions.rename"
    assert await error(web, rename, **THREAD, title="x") == "session_not_found"
    answer = await web.agents_sessions_setStatus(
        **THREAD, status="processing", title="Open bugs", initiator_user_id="U0ANA"
    )
    assert (answer["status"], answer["title"]) == ("processing", "Open bugs")
    await web.agents_sessions_rename(**THREAD, title="Bugs")
    await web.agents_sessions_setStatus(**THREAD, status="active")
    session = slack.state.sessions["C0OPS", ROOT]
    assert (session.status, session.title, session.initiator) == ("active", "Bugs", "U0ANA")
    status = "agents.sessions.setStatus"
    assert await error(web, status, **THREAD, status="done") == "invalid_arguments"
    assert await error(web, rename, **THREAD, title="x" * 201) == "invalid_arguments"
    nowhere = {**THREAD, "thread_ts": "1.1"}
    assert await error(web, status, **nowhere, status="active") == "thread_not_found"


async def test_the_line_that_says_thinking_goes_with_the_next_message(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    status = {**THREAD, "status": "is thinking"}
    await web.assistant_threads_setStatus(**status, loading_messages=["Reading"] * 10)
    pane = slack.state.panes["C0OPS", ROOT]
    assert (pane.status, len(pane.loading_messages)) == ("is thinking", 10)
    await web.chat_postMessage(**OPS, thread_ts=ROOT, text="done")
    assert pane.status == ""
    await web.assistant_threads_setStatus(**status)
    await web.assistant_threads_setStatus(**THREAD, status="")
    assert pane.status == ""
    many = ["x"] * 11
    method = "assistant.threads.setStatus"
    assert await error(web, method, **status, loading_messages=many) == "invalid_arguments"


async def test_the_pane_has_a_title_and_up_to_four_prompts(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    await web.assistant_threads_setTitle(**THREAD, title="Bugs")
    prompt = {"title": "Open", "message": "What is open?"}
    await web.assistant_threads_setSuggestedPrompts(**THREAD, prompts=[prompt] * 4, title="Try")
    pane = slack.state.panes["C0OPS", ROOT]
    assert (pane.title, pane.prompts_title, pane.prompts) == ("Bugs", "Try", (prompt,) * 4)
    await web.assistant_threads_setSuggestedPrompts(channel_id="C0OPS", prompts=[prompt])
    assert slack.state.panes["C0OPS", ""].prompts == (prompt,)
    for bad in ([], [prompt] * 5, [{"title": "x"}], "x"):
        answer = await error(web, "assistant.threads.setSuggestedPrompts", **THREAD, prompts=bad)
        assert answer == "invalid_arguments"


# ---- views

HOME = {"type": "home", "blocks": [section("Hello")]}
MODAL = {"type": "modal", "title": {"type": "plain_text", "text": "Ask"}, "blocks": []}


async def test_the_app_home_is_published_and_an_old_hash_is_refused(
    slack: LocalSlack, web: AsyncWebClient
) -> None:
    first = (await web.views_publish(user_id="U0ANA", view=HOME))["view"]
    second = (await web.views_publish(user_id="U0ANA", view=HOME, hash=first["hash"]))["view"]
    assert (second["id"], second["hash"] != first["hash"]) == (first["id"], True)
    old = {"user_id": "U0ANA", "view": HOME, "hash": first["hash"]}
    assert await error(web, "views.publish", **old) == "hash_conflict"
    seen = home(slack.state, "U0ANA")
    assert seen
    assert seen.body["blocks"][0]["text"]["text"] == "Hello"
    assert home(slack.state, "U0GUEST") is None
    publish = "views.publish"
    assert await error(web, publish, user_id="U0NO", view=HOME) == "user_not_found"
    for bad in (MODAL, {"type": "home"}, {**HOME, "blocks": [section("")]}, "{"):
        assert await error(web, publish, user_id="U0ANA", view=bad) == "invalid_arguments"
    many = {"type": "home", "blocks": [{"type": "divider"}] * 101}
    assert await error(web, publish, user_id="U0ANA", view=many) == "invalid_arguments"


async def test_a_modal_opens_once_for_each_trigger(slack: LocalSlack, web: AsyncWebClient) -> None:
    trigger = new_trigger(slack.state, "U0ANA")
    opened = (await web.views_open(trigger_id=trigger, view=MODAL))["view"]
    blocks = [section("Done")]
    changed = await web.views_update(view_id=opened["id"], view={**MODAL, "blocks": blocks})
    assert slack.state.views[opened["id"]].user == "U0ANA"
    assert changed["view"]["blocks"][0]["type"] == "section"
    assert await error(web, "views.open", trigger_id=trigger, view=MODAL) == "exchanged_trigger_id"
    assert await error(web, "views.open", trigger_id="x", view=MODAL) == "invalid_trigger_id"
    assert await error(web, "views.update", view_id="V0NO", view=MODAL) == "not_found"
    long = {**MODAL, "title": {"type": "plain_text", "text": "x" * 25}}
    again = new_trigger(slack.state, "U0ANA")
    assert await error(web, "views.open", trigger_id=again, view=long) == "invalid_arguments"


# ---- people and places


async def test_a_person_is_described_as_guest_stranger_or_gone(web: AsyncWebClient) -> None:
    async def about(id: str) -> Any:
        return (await web.users_info(user=id))["user"]

    ana, guest, other = await about("U0ANA"), await about("U0GUEST"), await about("U0ELSE")
    assert (ana["is_restricted"], ana["is_ultra_restricted"]) == (False, False)
    assert (guest["is_restricted"], guest["is_ultra_restricted"]) == (True, True)
    assert (other["is_stranger"], other["team_id"]) == (True, "T0OTHER")
    assert (await about("U0GONE"))["deleted"] is True
    assert (await about(BOT_USER))["profile"]["bot_id"] == BOT_ID


async def test_user_groups_name_their_members(web: AsyncWebClient) -> None:
    assert (await web.usergroups_users_list(usergroup="S0SUPPORT"))["users"] == ["U0ANA"]
    listed = await web.usergroups_list(include_users=True)
    assert [(group["handle"], group["users"]) for group in listed["usergroups"]] == [
        ("support", ["U0ANA"])
    ]
    users = "usergroups.users.list"
    assert await error(web, users, usergroup="S0NONE") == "no_such_subteam"
    assert await error(web, users, usergroup="S0OLD") == "subteam_disabled"


async def test_the_bot_learns_who_and_where_it_is(web: AsyncWebClient) -> None:
    me = await web.auth_test()
    assert (me["team_id"], me["user_id"], me["bot_id"]) == ("T0LOCAL", BOT_USER, BOT_ID)
    assert me["url"] == "https://local.slack.com/"
    assert set(me.headers["x-oauth-scopes"].split(",")) == BOT_SCOPES
    assert (await web.bots_info(bot=BOT_ID))["bot"]["user_id"] == BOT_USER
    assert (await web.team_info())["team"]["domain"] == "local"
    mine = (await web.users_conversations())["channels"]
    assert {channel["id"] for channel in mine} == {"C0OPS", "C0SHARED", "C0OLD"}
    hers = (await web.users_conversations(user="U0ANA"))["channels"]
    assert {channel["id"] for channel in hers} == {"C0OPS", "C0SHARED"}


async def test_a_bot_joins_a_public_channel_before_it_reads_or_writes(url: str) -> None:
    slack = LocalSlack(WORKSPACE, invite_bot=False)
    with MUX.serving(slack.app) as base:
        web = AsyncWebClient(BOT_TOKEN, base + API_PATH, retry_handlers=[])
        info = (await web.conversations_info(channel="C0SHARED"))["channel"]
        assert (info["is_member"], info["is_ext_shared"]) == (False, True)
        assert await error(web, "chat.postMessage", **OPS, text="x") == "not_in_channel"
        joined = await web.conversations_join(**OPS)
        assert joined["channel"]["is_member"] is True
        assert (await web.conversations_join(**OPS))["warning"] == "already_in_channel"
        await web.chat_postMessage(**OPS, text="x")
        assert await error(web, "conversations.join", channel="C0OLD") == "is_archived"
        assert await error(web, "conversations.join", channel="G0BOARD") == "channel_not_found"


async def test_a_missing_scope_is_named(slack: LocalSlack) -> None:
    methods = {
        "chat.startStream": "chat:write",
        "agents.sessions.setStatus": "assistant:write,chat:write",
        "usergroups.users.list": "usergroups:read",
        "files.info": "files:read",
        "files.getUploadURLExternal": "files:write",
        "files.completeUploadExternal": "files:write",
        "team.info": "team:read",
        "conversations.join": "channels:join",
    }
    poor = LocalSlack(WORKSPACE, tokens={"xoxb-poor": Identity(BOT_USER, BOT_ID, frozenset("x"))})
    with MUX.serving(poor.app) as base:
        web = AsyncWebClient("xoxb-poor", base + API_PATH, retry_handlers=[])
        for method, needed in methods.items():
            answer = await refusal(web, method, **OPS, **THREAD)
            assert (answer["error"], answer["needed"]) == ("missing_scope", needed)
            assert answer["provided"] == "x"


# ---- files


def fetched(address: str, token: str = "") -> tuple[int, str, bytes]:
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
        return answer.status, answer.headers["content-type"], answer.read()


async def test_a_file_is_had_with_the_token_and_a_login_page_without(web: AsyncWebClient) -> None:
    message = (await web.conversations_history(**OPS))["messages"][0]
    (file,) = message["files"]
    assert (file["name"], file["size"]) == (NOTES.name, 5)
    info = (await web.files_info(file="F0NOTES"))["file"]
    assert (info["url_private"], info["channels"]) == (file["url_private"], ["C0OPS"])
    for address in (file["url_private"], file["url_private_download"]):
        status, kind, content = await asyncio.to_thread(fetched, address, BOT_TOKEN)
        assert (status, kind, content) == (200, "text/plain; charset=utf-8", NOTES.content)
        for token in ("", "xoxb-wrong"):
            status, kind, content = await asyncio.to_thread(fetched, address, token)
            assert (status, kind) == (200, "text/html; charset=utf-8")
            assert b"Sign in to local" in content


async def test_a_file_in_a_channel_that_one_may_not_see_is_not_had(
    web: AsyncWebClient, url: str
) -> None:
    assert await error(web, "files.info", file="F0SECRET") == "file_not_found"
    assert await error(web, "files.info", file="F0NONE") == "file_not_found"
    address = url.removesuffix(API_PATH) + "/files-pri/T0LOCAL-F0SECRET/plan.txt"
    _, kind, content = await asyncio.to_thread(fetched, address, BOT_TOKEN)
    assert kind == "text/html; charset=utf-8"
    assert SECRET.content not in content


async def test_a_deleted_file_is_gone() -> None:
    gone = replace(NOTES, mode="tombstone")
    channel = Channel("C0OPS", "ops", (Message(ROOT, "x", "U0ANA", files=(gone,)),))
    slack = LocalSlack(Workspace(users=(User("U0ANA", "ana"),), channels=(channel,)))
    with MUX.serving(slack.app) as base:
        web = AsyncWebClient(BOT_TOKEN, base + API_PATH, retry_handlers=[])
        (file,) = (await web.conversations_history(**OPS))["messages"][0]["files"]
        assert file == {"id": "F0NOTES", "mode": "tombstone"}
        assert await error(web, "files.info", file="F0NOTES") == "file_deleted"


# ---- limits


async def test_each_channel_takes_a_message_a_second_in_short_bursts() -> None:
    slack = LocalSlack(WORKSPACE, limits=TIERS)
    with MUX.serving(slack.app) as base:
        web = AsyncWebClient(BOT_TOKEN, base + API_PATH, retry_handlers=[])
        for _ in range(5):
            await web.chat_postMessage(**OPS, text="x")
        answer = await refusal(web, "chat.postMessage", **OPS, text="x")
        assert (answer.status_code, answer["error"]) == (429, "ratelimited")
        assert 1 <= int(answer.headers["Retry-After"]) <= 5
        await web.chat_postMessage(channel="C0SHARED", text="x")
        stream: dict[str, Any] = {
            "thread_ts": ROOT,
            "recipient_team_id": "T0LOCAL",
            "recipient_user_id": "U0ANA",
        }
        for _ in range(20):
            await web.chat_startStream(**OPS, **stream)
        assert await error(web, "chat.startStream", **OPS, **stream) == "ratelimited"


async def test_an_app_sold_elsewhere_reads_one_short_page_a_minute() -> None:
    messages = tuple(Message(f"17400000{n}.000100", str(n), "U0ANA") for n in range(10, 30))
    channel = Channel("C0OPS", "ops", messages, ("U0ANA",))
    slack = LocalSlack(Workspace(channels=(channel,)), limits=DISTRIBUTED)
    with MUX.serving(slack.app) as base:
        web = AsyncWebClient(BOT_TOKEN, base + API_PATH, retry_handlers=[])
        page = await web.conversations_history(**OPS, limit=200)
        assert (len(page["messages"]), page["has_more"]) == (15, True)
        assert await error(web, "conversations.history", **OPS) == "ratelimited"


def test_every_method_has_its_limit() -> None:
    assert METHODS.keys() - TIERS.keys() == {"auth.test"}
