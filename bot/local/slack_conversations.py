"""Web API methods that read channels and their messages."""

from collections.abc import Callable, Mapping, Sequence

from bot.local.slack_json import Json, channel_json, message_json
from bot.local.slack_state import Call, SlackError
from bot.local.workspace import Channel, micros

FOREVER = 10**18
"""Later than any message, in microseconds."""

_UNTHREADED = ("channel_join", "channel_leave")


def _list(call: Call) -> Json:
    kinds = call.kinds()
    hidden = call.flag("exclude_archived")
    channels = [
        channel.id
        for channel in call.state.channels.values()
        if channel.kind in kinds
        and call.state.may_see(call.identity.user, channel)
        and not (hidden and channel.is_archived)
    ]
    ids, cursor = call.page(channels, "team", default=100, most=1000)
    found = [channel_json(call, call.state.channels[id]) for id in ids]
    return {"channels": found, "response_metadata": {"next_cursor": cursor}}


def _info(call: Call) -> Json:
    channel = channel_json(call, call.channel("read"))
    if not call.flag("include_num_members"):
        channel.pop("num_members", None)
    return {"channel": channel}


def _members(call: Call) -> Json:
    channel = call.channel("read")
    ids, cursor = call.page(list(call.state.members[channel.id]), "user", default=100, most=1000)
    return {"members": list(ids), "response_metadata": {"next_cursor": cursor}}


def _history(call: Call) -> Json:
    channel = _readable(call)
    oldest, latest = _range(call)
    top = call.state.timelines[channel.id].top(oldest, latest)
    times, cursor = call.page(top[::-1], "next_ts", default=100, most=999)
    return _messages(call, channel, times, cursor) | {"pin_count": 0}


def _replies(call: Call) -> Json:
    """The thread of a root; any other timestamp gives that message alone, as Slack does."""
    channel = _readable(call)
    timeline = call.state.timelines[channel.id]
    try:
        root = micros(call.required("ts"))
    except ValueError:
        raise SlackError("thread_not_found") from None
    message = timeline.get(root)
    if message is None or message.subtype in _UNTHREADED:
        raise SlackError("thread_not_found")
    oldest, latest = _range(call)
    thread = [root, *(at for at in timeline.replies(root) if oldest <= at <= latest)]
    times, cursor = call.page(thread, "next_ts", default=1000, most=1000)
    return _messages(call, channel, times, cursor)


def _readable(call: Call) -> Channel:
    """The channel, if its messages may be read: a bot has to be in it, a user has to see it."""
    channel = call.channel("history")
    if call.identity.bot_id and not call.is_member(channel):
        raise SlackError("not_in_channel")
    return channel


def _range(call: Call) -> tuple[int, int]:
    """The times asked for, in microseconds, both inclusive."""
    oldest, latest = call.time("oldest", 0), call.time("latest", FOREVER)
    return (oldest, latest) if call.flag("inclusive") else (oldest + 1, latest - 1)


def _messages(call: Call, channel: Channel, times: Sequence[int], cursor: str) -> Json:
    """A page; like Slack's, the last one has no response_metadata."""
    timeline = call.state.timelines[channel.id]
    found = [message_json(call.state, channel.id, timeline[at]) for at in times]
    more: Json = {"response_metadata": {"next_cursor": cursor}} if cursor else {}
    return {"messages": found, "has_more": bool(cursor)} | more


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "conversations.list": _list,
    "conversations.info": _info,
    "conversations.members": _members,
    "conversations.history": _history,
    "conversations.replies": _replies,
}
