"""Convert workspace values to the JSON of Slack's Web API, without unused fields."""

import itertools
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

from bot.local.slack.records import Json
from bot.local.slack.state import Call, SlackState
from bot.local.workspace import (
    Channel,
    File,
    ListColumn,
    ListItem,
    Message,
    SlackList,
    User,
    micros,
)


def number_blocks(blocks: Sequence[Mapping[str, Any]], letter: str = "b") -> tuple[Json, ...]:
    """Give blocks without an id the ids that Slack gives them; `letter` begins each."""
    ids = {block.get("block_id") for block in blocks}
    fresh = (id for n in itertools.count(1) if (id := f"{letter}{n}") not in ids)
    return tuple({**b, "block_id": b.get("block_id") or next(fresh)} for b in blocks)


def rich_text(text: str) -> Json:
    """Return plain text as a block."""
    section = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [section]}


def team_url(state: SlackState) -> str:
    return f"https://{state.team.domain}.slack.com/"


def permalink(state: SlackState, channel: str, message: Message) -> str:
    link = f"{team_url(state)}archives/{channel}/p{message.ts.replace('.', '')}"
    return f"{link}?thread_ts={message.thread_ts}&cid={channel}" if message.is_reply else link


def user_json(call: Call, user: User) -> Json:
    profile = {name: getattr(user, name) for name in ("title", "real_name", "display_name")}
    body = {
        "id": user.id,
        "team_id": user.team_id or call.state.team.id,
        "name": user.name,
        "deleted": user.deleted,
        "real_name": user.real_name,
        "tz": user.tz,
        "profile": profile,
        "is_bot": user.is_bot,
        "is_restricted": user.is_restricted or user.is_ultra_restricted,
        "is_ultra_restricted": user.is_ultra_restricted,
    }
    return body | ({"is_stranger": True} if user.is_stranger else {})


def channel_json(call: Call, channel: Channel) -> Json:
    members = call.state.members[channel.id]
    if channel.is_im:
        other = [user for user in members if user != call.identity.user]
        return {
            "id": channel.id,
            "is_im": True,
            "is_archived": channel.is_archived,
            "user": other[0] if other else call.identity.user,
        }
    return {
        "id": channel.id,
        "name": channel.name,
        "is_im": False,
        "is_mpim": channel.is_mpim,
        "is_private": channel.kind != "public_channel",
        "is_archived": channel.is_archived,
        "is_ext_shared": channel.is_ext_shared,
        "is_member": call.identity.user in members,
        "topic": {"value": channel.topic, "creator": channel.creator if channel.topic else ""},
    }


def message_json(
    state: SlackState, channel: str, message: Message, *, with_metadata: bool = False
) -> Json:
    """Return a message; the root of a thread carries Slack's counts over all its replies."""
    body: Json = {"type": "message", "ts": message.ts, "text": message.text, "team": state.team.id}
    for name in ("user", "subtype", "bot_id", "username", "attachments", "blocks"):
        if value := getattr(message, name):
            body[name] = value if isinstance(value, str) else list(value)
    if message.edited:
        body["edited"] = {"user": message.user, "ts": message.edited}
    if message.reactions:
        body["reactions"] = [
            {"name": r.name, "users": list(r.users), "count": r.count} for r in message.reactions
        ]
    if message.files:
        body["files"] = [file_json(state, file) for file in message.files]
    if message.metadata and with_metadata:
        body["metadata"] = message.metadata
    return body | _thread_json(state, channel, message)


def _thread_json(state: SlackState, channel: str, message: Message) -> Json:
    if message.is_reply:
        return {"thread_ts": message.thread_ts}
    timeline = state.timelines[channel]
    replies = timeline.replies(micros(message.ts))
    if not replies:
        return {}
    last = timeline[replies[-1]].ts
    body = {"thread_ts": message.ts, "reply_count": len(replies), "latest_reply": last}
    return body | ({"hidden": True} if message.subtype == "tombstone" else {})


def file_json(state: SlackState, file: File) -> Json:
    """Return a file as messages and files.info show it, with its download address."""
    if file.mode in ("tombstone", "hidden_by_limit"):
        return {"id": file.id, "mode": file.mode}
    place = f"{state.base_url}files-pri/{state.team.id}-{file.id}/"
    name = quote(file.name or file.id)
    return {
        "id": file.id,
        "name": file.name,
        "title": file.title or file.name,
        "mimetype": file.mimetype,
        "filetype": file.filetype,
        "size": file.size or len(file.content),
        "mode": file.mode,
        "is_external": False,
        "file_access": "visible",
        "url_private": f"{place}{name}",
        "url_private_download": f"{place}download/{name}",
    }


def list_json(each: SlackList, state: SlackState) -> Json:
    """Return a Slack List as the file object of Slack, with its columns."""
    return {
        "id": each.id,
        "permalink": f"{team_url(state)}lists/{state.team.id}/{each.id}",
        "list_metadata": {"schema": [_column_json(column) for column in each.columns]},
    }


def _column_json(column: ListColumn) -> Json:
    body: Json = {name: getattr(column, name) for name in ("id", "name", "key", "type")}
    if column.options:
        choices = [{"value": value, "label": label} for value, label in column.options.items()]
        body["options"] = {"choices": choices}
    return body


def list_item_json(each: SlackList, item: ListItem) -> Json:
    cells = [
        {
            "key": column.key,
            "column_id": column.id,
            "text" if column.type == "text" else "value": item.values[column.key],
        }
        for column in each.columns
        if column.key in item.values
    ]
    return {"id": item.id, "fields": cells}
