"""Web API methods that read: channels and their messages, people, lists."""

from collections.abc import Callable, Mapping, Sequence

from bot.local.slack.json import (
    channel_json,
    list_item_json,
    list_json,
    message_json,
    team_url,
    user_json,
)
from bot.local.slack.records import Json
from bot.local.slack.state import Call, SlackError, message_of, visible
from bot.local.workspace import Channel, micros

END_OF_TIME_US = 10**18
"""Later than any message, in microseconds."""

_UNTHREADED_SUBTYPES = ("channel_join", "channel_leave")


def _list(call: Call) -> Json:
    return _channels(call)


def _of_user(call: Call) -> Json:
    """List the conversations of the caller, or those of `user` that the caller can also see."""
    user = call.text("user") or call.identity.user
    if user not in call.state.users:
        raise SlackError("user_not_found")
    return _channels(call, user)


def _channels(call: Call, member: str = "") -> Json:
    state, kinds, hidden = call.state, call.kinds(), call.flag("exclude_archived")
    channels = [
        channel.id
        for channel in state.channels.values()
        if channel.kind in kinds and state.may_see(call.identity.user, channel)
        if not (hidden and channel.is_archived)
        if not member or member in state.members[channel.id]
    ]
    ids, cursor = call.page(channels, "team", default=100, most=1000)
    found = [channel_json(call, call.state.channels[id]) for id in ids]
    return {"channels": found, "response_metadata": {"next_cursor": cursor}}


def _open(call: Call) -> Json:
    """Return the direct message with the one person in `users`; create it if there is none."""
    if (user := call.require("users")) not in call.state.users:
        raise SlackError("user_not_found")
    return {"channel": {"id": call.state.direct(call.identity.user, user).id}}


def _info(call: Call) -> Json:
    return {"channel": channel_json(call, visible(call))}


def _members(call: Call) -> Json:
    channel = visible(call)
    ids, cursor = call.page(list(call.state.members[channel.id]), "user", default=100, most=1000)
    return {"members": list(ids), "response_metadata": {"next_cursor": cursor}}


def _history(call: Call) -> Json:
    channel = _readable(call)
    oldest, latest = _range(call)
    top = call.state.timelines[channel.id].top(oldest, latest)
    times, cursor = call.page(top[::-1], "next_ts", default=100, most=999)
    return _messages(call, channel, times, cursor)


def _replies(call: Call) -> Json:
    """Return the thread of a root; for any other timestamp only that message, as in Slack."""
    channel = _readable(call)
    message = message_of(call, channel, "ts", "thread_not_found")
    if message.subtype in _UNTHREADED_SUBTYPES:
        raise SlackError("thread_not_found")
    root, (oldest, latest) = micros(message.ts), _range(call)
    replies = call.state.timelines[channel.id].replies(root)
    thread = [root, *(at for at in replies if oldest <= at <= latest)]
    times, cursor = call.page(thread, "next_ts", default=1000, most=1000)
    return _messages(call, channel, times, cursor)


def _readable(call: Call) -> Channel:
    """Return the channel if its messages may be read: a bot must be in it, a user must see it."""
    channel = visible(call)
    if call.identity.bot_id and not call.is_member(channel):
        raise SlackError("not_in_channel")
    return channel


def _range(call: Call) -> tuple[int, int]:
    """Return the requested times in microseconds, both inclusive."""
    oldest, latest = call.time("oldest", 0), call.time("latest", END_OF_TIME_US)
    return (oldest, latest) if call.flag("inclusive") else (oldest + 1, latest - 1)


def _messages(call: Call, channel: Channel, times: Sequence[int], cursor: str) -> Json:
    """Return a page of messages; like Slack's, the last one has no response_metadata."""
    timeline = call.state.timelines[channel.id]
    shown = call.flag("include_all_metadata")
    found = [
        message_json(call.state, channel.id, timeline[at], with_metadata=shown) for at in times
    ]
    more: Json = {"response_metadata": {"next_cursor": cursor}} if cursor else {}
    return {"messages": found, "has_more": bool(cursor)} | more


# ---- people and lists


def _auth_test(call: Call) -> Json:
    body = {
        "url": team_url(call.state),
        "team": call.state.team.name,
        "user": call.state.users[call.identity.user].name,
        "team_id": call.state.team.id,
        "user_id": call.identity.user,
        "is_enterprise_install": False,
    }
    return body | ({"bot_id": call.identity.bot_id} if call.identity.bot_id else {})


def _user_info(call: Call) -> Json:
    user = call.state.users.get(call.require("user"))
    if user is None:
        raise SlackError("user_not_found")
    locale = {"locale": user.locale} if call.flag("include_locale") else {}
    return {"user": user_json(call, user) | locale}


def _user_list(call: Call) -> Json:
    ids, cursor = call.page(list(call.state.users), "user", default=1000, most=1000)
    members = [user_json(call, call.state.users[id]) for id in ids]
    return {"members": members, "response_metadata": {"next_cursor": cursor}}


def _group_users(call: Call) -> Json:
    group = call.state.usergroups.get(call.require("usergroup"))
    if group is None:
        raise SlackError("no_such_subteam")
    return {"users": list(group.users)}


def _list_items(call: Call) -> Json:
    found = call.state.lists.get(call.require("list_id"))
    if found is None:
        raise SlackError("list_not_found")
    rows = {item.id: item for item in found.items if item.archived == call.flag("archived")}
    ids, cursor = call.page(list(rows), "id", default=100, most=1000)
    items = [list_item_json(found, rows[id]) for id in ids]
    body: Json = {"items": items, "response_metadata": {"next_cursor": cursor}}
    return body | ({"list": list_json(found, call.state)} if call.flag("include_list") else {})


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "conversations.list": _list,
    "conversations.info": _info,
    "conversations.members": _members,
    "conversations.open": _open,
    "users.conversations": _of_user,
    "conversations.history": _history,
    "conversations.replies": _replies,
    "auth.test": _auth_test,
    "users.info": _user_info,
    "users.list": _user_list,
    "usergroups.users.list": _group_users,
    "slackLists.items.list": _list_items,
}
