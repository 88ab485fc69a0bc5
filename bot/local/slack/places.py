"""Where a call writes: the channel, the message and the thread that its arguments name."""

from dataclasses import replace

from bot.local.slack.state import Call, SlackError
from bot.local.workspace import Channel, Message, micros, timestamp


def visible(call: Call, argument: str = "channel") -> Channel:
    """The channel named, if it may be seen; a person's id names the direct message with them."""
    id = call.required(argument)
    if id in call.state.users and id != call.identity.user:
        return call.state.direct(call.identity.user, id)
    channel = call.state.channels.get(id)
    if channel is None or not call.state.may_see(call.identity.user, channel):
        raise SlackError("channel_not_found")
    return channel


def writable(call: Call, argument: str = "channel") -> Channel:
    """The channel named, if the caller may write there."""
    channel = visible(call, argument)
    is_open = channel.kind == "public_channel" and "chat:write.public" in call.identity.scopes
    if not is_open and not call.is_member(channel):
        raise SlackError("not_in_channel")
    if channel.is_archived:
        raise SlackError("is_archived")
    return channel


def message_of(call: Call, channel: Channel, argument: str) -> Message:
    try:
        message = call.state.timelines[channel.id].get(micros(call.required(argument)))
    except ValueError:
        message = None
    if message is None:
        raise SlackError("message_not_found")
    return message


def own_message(call: Call, channel: Channel, error: str) -> Message:
    """The message at `ts`, which has to be the caller's; `error` is what Slack says if not."""
    message = message_of(call, channel, "ts")
    if message.user != call.identity.user or message.subtype == "tombstone":
        raise SlackError(error)
    return message


def new_message(call: Call, channel: Channel) -> Message:
    """A message of the caller at this moment, still empty."""
    at = call.state.new_ts(channel.id)
    return Message(timestamp(at), user=call.identity.user, bot_id=call.identity.bot_id)


def placed(call: Call, channel: Channel, message: Message) -> Message:
    """The new message in the thread that `thread_ts` names, if it names one."""
    if not call.text("thread_ts"):
        return message
    timeline = call.state.timelines[channel.id]
    try:
        root = timeline.get(micros(call.text("thread_ts")))
    except ValueError:
        root = None
    if root is None:
        raise SlackError("thread_not_found")
    subtype = "thread_broadcast" if call.flag("reply_broadcast") else ""
    return replace(message, thread_ts=root.thread_ts or root.ts, subtype=subtype)
