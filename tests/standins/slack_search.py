"""What Slack looks up for the token of a user or a message, or for a check of an installation."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime

from bot.local.slack.json import permalink
from bot.local.slack.records import Json
from bot.local.slack.state import APP_ID, BOT_ID, BOT_USER, Call, SlackError
from bot.local.workspace import Channel, Message, micros
from standins.slack_scopes import require

_TERM = re.compile(
    r'(?P<not>-?)(?:(?P<key>in|from|before|after|on):)?(?:"(?P<phrase>[^"]*)"|(?P<word>\S+))'
)


def _bot_info(call: Call) -> Json:
    if call.text("bot") not in ("", BOT_ID):
        raise SlackError("bot_not_found")
    bot = {"id": BOT_ID, "deleted": False, "name": "Assistant", "updated": 0, "app_id": APP_ID}
    return {"bot": bot | {"user_id": BOT_USER}}


Terms = Sequence[tuple[bool, str, str]]
"""What a search asks for: (wanted, key or "", value)."""


def _terms(query: str) -> Terms:
    """Read a search: words, "phrases", in:, from:, before:, after:, on:, - before any of them."""
    found = _TERM.finditer(query)
    return [(not m["not"], m["key"] or "", m["phrase"] or m["word"] or "") for m in found]


def _holds(call: Call, key: str, value: str, channel: Channel, message: Message) -> bool:
    if key == "in":
        return value.strip("<#>").split("|")[0] in (channel.name, channel.id)
    if key == "from":
        user = call.state.users.get(message.user)
        name = value.strip("<@>").split("|")[0]
        me = call.identity.user if name == "me" else name
        return me in (message.user, user.name if user else "")
    if key:
        return _in_days(key, value, micros(message.ts))
    return value.casefold() in message.text.casefold()


def _search(call: Call) -> Json:
    """Matches in the channels that the user can see, newest first (Slack's score is not known)."""
    if call.identity.bot_id:
        raise SlackError("not_allowed_token_type")
    require(call, "search:read")
    query = call.required("query")
    found = _matches(call, _terms(query))
    if call.text("sort_dir") == "asc":
        found.reverse()
    return {"query": query, "messages": _result(call, found)}


def _matches(call: Call, terms: Terms) -> list[tuple[Channel, Message]]:
    """The messages that a search finds in what the caller sees, newest first."""
    found = [
        (channel, message)
        for channel in call.state.channels.values()
        if call.state.may_see(call.identity.user, channel)
        for message in call.state.timelines[channel.id].all()
        if message.subtype != "tombstone"
        and all(_holds(call, key, v, channel, message) == wanted for wanted, key, v in terms)
    ]
    return sorted(found, key=lambda hit: micros(hit[1].ts), reverse=True)


def _result(call: Call, found: list[tuple[Channel, Message]]) -> Json:
    size, page = min(_positive(call, "count", 20), 100), _positive(call, "page", 1)
    pages = -(-len(found) // size)
    shown = found[(page - 1) * size : page * size]
    return {
        "total": len(found),
        "paging": {"count": size, "total": len(found), "page": page, "pages": pages},
        "matches": [_match_json(call, channel, message) for channel, message in shown],
    }


def _match_json(call: Call, channel: Channel, message: Message) -> Json:
    user = call.state.users.get(message.user)
    return {
        "type": "message",
        "team": call.state.team.id,
        "channel": {
            "id": channel.id,
            "name": channel.name,
            "is_private": channel.kind != "public_channel",
            "is_mpim": channel.is_mpim,
            "is_im": channel.is_im,
        },
        "user": message.user,
        "username": message.username or (user.name if user else ""),
        "ts": message.ts,
        "text": message.text,
        "permalink": permalink(call.state, channel.id, message),
    }


def _in_days(key: str, value: str, at: int) -> bool:
    """Whether a time lies before, after or on a day (UTC); never if it is not a day."""
    try:
        day = date.fromisoformat(value)
    except ValueError:
        return False
    then = datetime.fromtimestamp(at / 1_000_000, UTC).date()
    return then < day if key == "before" else then > day if key == "after" else then == day


def _positive(call: Call, name: str, default: int) -> int:
    try:
        return max(1, int(call.text(name) or default))
    except ValueError:
        raise SlackError("invalid_arguments") from None


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
    "assistant.search.context": _search_context,
    "bots.info": _bot_info,
    "search.messages": _search,
}
