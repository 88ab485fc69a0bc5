"""Web API methods that look things up: people, lists, and messages by their words."""

from collections.abc import Callable, Mapping

from bot.local.slack.json import list_item_json, list_json, permalink, team_url, user_json
from bot.local.slack.records import Json
from bot.local.slack.state import Call, SlackError
from bot.local.workspace import Channel, Message, micros


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
    user = call.state.users.get(call.required("user"))
    if user is None:
        raise SlackError("user_not_found")
    locale = {"locale": user.locale} if call.flag("include_locale") else {}
    return {"user": user_json(call, user) | locale}


def _user_list(call: Call) -> Json:
    ids, cursor = call.page(list(call.state.users), "user", default=1000, most=1000)
    members = [user_json(call, call.state.users[id]) for id in ids]
    return {"members": members, "response_metadata": {"next_cursor": cursor}}


def _group_users(call: Call) -> Json:
    group = call.state.usergroups.get(call.required("usergroup"))
    if group is None:
        raise SlackError("no_such_subteam")
    if group.disabled:
        raise SlackError("subteam_disabled")
    return {"users": list(group.users)}


def _list_items(call: Call) -> Json:
    found = call.state.lists.get(call.required("list_id"))
    if found is None:
        raise SlackError("list_not_found")
    rows = {item.id: item for item in found.items if item.archived == call.flag("archived")}
    ids, cursor = call.page(list(rows), "id", default=100, most=1000)
    items = [list_item_json(found, rows[id]) for id in ids]
    body: Json = {"items": items, "response_metadata": {"next_cursor": cursor}}
    return body | ({"list": list_json(found, call.state)} if call.flag("include_list") else {})


def _search_context(call: Call) -> Json:
    """Matches in public channels, by the token that came with a person's message."""
    if not call.identity.bot_id:
        raise SlackError("not_implemented")
    channel, _, rest = call.required("action_token").partition(".")
    asked = call.state.timelines[channel].get(micros(rest.removesuffix(".local")))
    if asked is None or call.text("channel_types") != "public_channel":
        raise SlackError("invalid_action_token")
    words = call.required("query").casefold().split()
    after, before = call.time("after", 0), call.time("before", 10**18)
    found = [
        (place, message)
        for place in call.state.channels.values()
        if place.kind == "public_channel"
        for message in call.state.timelines[place.id].all()
        if message.subtype != "tombstone" and after <= micros(message.ts) <= before
        if all(word in message.text.casefold() for word in words)
    ]
    found.sort(key=lambda hit: micros(hit[1].ts), reverse=True)
    size = min(int(call.text("limit") or 20), 20)
    return {
        "results": {"messages": [_context_json(call, *hit) for hit in found[:size]]},
        "response_metadata": {"next_cursor": "more" if found[size:] else ""},
    }


def _context_json(call: Call, channel: Channel, message: Message) -> Json:
    return {
        "author_user_id": message.user,
        "team_id": call.state.team.id,
        "channel_id": channel.id,
        "channel_name": channel.name,
        "message_ts": message.ts,
        "content": message.text,
        "permalink": permalink(call.state, channel.id, message),
    }


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "auth.test": _auth_test,
    "users.info": _user_info,
    "users.list": _user_list,
    "usergroups.users.list": _group_users,
    "slackLists.items.list": _list_items,
    "assistant.search.context": _search_context,
}
