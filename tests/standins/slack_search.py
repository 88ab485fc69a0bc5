"""Slack's searches with the token of a user or of a message."""

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime

from bot.local.slack.json import permalink
from bot.local.slack.records import Json
from bot.local.slack.state import Call, SlackError
from bot.local.workspace import Channel, Message, micros
from standins.slack_scopes import require

_DAY = re.compile(r"(before|after):(\d{4}-\d\d-\d\d)")


def _search(call: Call) -> Json:
    """Return matches in the user's channels, newest first, of words, before: and after:."""
    if call.identity.bot_id:
        raise SlackError("not_allowed_token_type")
    require(call, "search:read")
    query = call.require("query")
    days = {key: date.fromisoformat(day) for key, day in _DAY.findall(query)}
    words = _DAY.sub("", query).casefold().split()
    found = [
        (channel, message)
        for channel, message in _messages(call, words)
        if call.state.may_see(call.identity.user, channel)
        and days.get("after", date.min) < _day(message) < days.get("before", date.max)
    ]
    size = int(call.text("count"))
    paging = {"count": size, "total": len(found), "page": 1, "pages": -(-len(found) // size)}
    matches = [_match_json(call, *each) for each in found[:size]]
    result = {"total": len(found), "paging": paging, "matches": matches}
    return {"query": query, "messages": result}


def _messages(call: Call, words: Sequence[str]) -> list[tuple[Channel, Message]]:
    """Return the messages that contain all words, newest first."""
    found = [
        (channel, message)
        for channel in call.state.channels.values()
        for message in call.state.timelines[channel.id].all()
        if message.subtype != "tombstone" and all(word in message.text.casefold() for word in words)
    ]
    return sorted(found, key=lambda hit: micros(hit[1].ts), reverse=True)


def _day(message: Message) -> date:
    return datetime.fromtimestamp(micros(message.ts) / 1_000_000, UTC).date()


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


def _search_context(call: Call) -> Json:
    """Return matches in public channels, with the token that came with a person's message."""
    if not call.identity.bot_id:
        raise SlackError("not_implemented")
    channel, _, rest = call.require("action_token").partition(".")
    origin = call.state.timelines[channel].get(micros(rest.removesuffix(".local")))
    if origin is None or call.text("channel_types") != "public_channel":
        raise SlackError("invalid_action_token")
    words = call.require("query").casefold().split()
    after, before = call.time("after", 0), call.time("before", 10**18)
    found = [
        (place, message)
        for place, message in _messages(call, words)
        if place.kind == "public_channel" and after <= micros(message.ts) <= before
    ]
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
    "search.messages": _search,
}
