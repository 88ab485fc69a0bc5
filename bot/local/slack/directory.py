"""Web API methods that look up people and lists."""

from collections.abc import Callable, Mapping

from bot.local.slack.json import list_item_json, list_json, team_url, user_json
from bot.local.slack.records import Json
from bot.local.slack.state import Call, SlackError


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
    "auth.test": _auth_test,
    "users.info": _user_info,
    "users.list": _user_list,
    "usergroups.users.list": _group_users,
    "slackLists.items.list": _list_items,
}
