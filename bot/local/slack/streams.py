"""Web API methods of an agent: streamed messages, the state of its sessions, its pane.

docs.slack.dev/reference/methods/chat.startStream; docs.slack.dev/ai/agent-sessions;
docs.slack.dev/reference/methods/assistant.threads.setTitle. Undocumented facts were measured by
others: a stream ends 5 minutes after its start (github.com/slackapi/python-slack-sdk/issues/1859),
chat.update is refused while it runs (`streaming_state_conflict`), `text` reads back as mrkdwn,
followed by the titles of the tasks. It accepts only the chunks that the product sends: text, a
plan's title and its tasks.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace

from bot.local.slack.json import message_json, number_blocks, rich_text
from bot.local.slack.records import Json, Row, Stream, StreamEnd
from bot.local.slack.state import (
    Call,
    SlackError,
    SlackState,
    message_of,
    new_message,
    own_message,
    root_of,
    writable,
)
from bot.local.workspace import Channel, Message, micros

STREAMED_ID_PREFIX = "s"
"""First letter of the ids of streamed blocks; it shows the page that their text is markdown."""
_AS_MRKDWN = (
    (re.compile(r"\[([^\]]*)\]\(([^)]*)\)"), r"<\2|\1>"),
    (re.compile(r"\*\*([^\n]+?)\*\*"), r"*\1*"),
    (re.compile(r"^#+ ", re.MULTILINE), ""),
    (re.compile(r"^[-*] ", re.MULTILINE), "• "),
)


def _start(call: Call) -> Json:
    channel = writable(call)
    call.require("thread_ts")
    message = new_message(call, channel)
    stream = Stream(channel.id, message.ts, call.state.now())
    call.state.streams[channel.id, message.ts] = stream
    return _write(call, channel, message, stream)


def _append(call: Call) -> Json:
    return _write(call, *_open_stream(call))


def _stop(call: Call) -> Json:
    channel, message, stream = _open_stream(call)
    stream.ended = "stopped"
    answer = _write(call, channel, replace(message, metadata=call.value("metadata")), stream)
    body = message_json(call.state, channel.id, message_of(call, channel, "ts"))
    return answer | {"message": body}


def halt(state: SlackState, channel: str, thread_ts: str) -> list[str]:
    """End the streams of a thread as Slack's Stop button does; return their timestamps."""
    with state.lock:
        ended = []
        for (place, ts), stream in list(state.streams.items()):
            message = state.timelines[place].get(micros(ts))
            if stream.ended or place != channel:
                continue
            if message and message.thread_ts == thread_ts:
                end(state, stream, message, "stopped_by_user")
                ended.append(ts)
        return ended


def is_open(state: SlackState, channel: str, ts: str) -> bool:
    """Return whether a message is being streamed."""
    stream = state.streams.get((channel, ts))
    return stream is not None and not stream.ended


def end(state: SlackState, stream: Stream, message: Message, why: StreamEnd) -> None:
    """End a stream that its writer did not stop."""
    stream.ended = why
    state.timelines[stream.channel].replace(_render(message, stream))


def _open_stream(call: Call) -> tuple[Channel, Message, Stream]:
    channel = writable(call)
    message = own_message(call, channel, "message_not_owned_by_app")
    if not is_open(call.state, channel.id, message.ts):
        stream = call.state.streams.get((channel.id, message.ts))
        if stream and stream.ended == "stopped_by_user" and call.method == "chat.appendStream":
            raise SlackError("stopped_by_user")
        raise SlackError("message_not_in_streaming_state")
    return channel, message, call.state.streams[channel.id, message.ts]


def _write(call: Call, channel: Channel, message: Message, stream: Stream) -> Json:
    """Add the chunks of the call to a message."""
    for chunk in call.objects("chunks"):
        match chunk["type"]:
            case "markdown_text":
                stream.text += chunk["text"]
            case "plan_update":
                stream.title = chunk["title"]
            case _:
                stream.rows[chunk["id"]] = Row(chunk["id"], chunk["title"], chunk["status"])
    call.keep(channel, _render(message, stream))
    return {"channel": channel.id, "ts": message.ts}


def _render(message: Message, stream: Stream) -> Message:
    """Return the message with its current content."""
    if stream.ended and any(row.status == "in_progress" for row in stream.rows.values()):
        stream = replace(stream, title="Something went wrong")
    prose = [rich_text(stream.text)] if stream.text else []
    return replace(
        message,
        text=_fallback(stream),
        blocks=number_blocks((*_plan(stream), *prose), STREAMED_ID_PREFIX),
        streaming="completed" if stream.ended else "in_progress",
    )


def _fallback(stream: Stream) -> str:
    """Return the message's `text`: mrkdwn, then the titles of the plan and its tasks."""
    text = stream.text
    for pattern, into in _AS_MRKDWN:
        text = pattern.sub(into, text)
    titles = [stream.title, *(row.title for row in stream.rows.values())]
    return " ".join(filter(None, [text.strip(), *titles]))


def _plan(stream: Stream) -> list[Json]:
    if not (stream.rows or stream.title):
        return []
    cards = [
        {"type": "task_card", "task_id": row.id, "title": row.title, "status": row.status}
        for row in stream.rows.values()
    ]
    return [{"type": "plan", "title": stream.title, "tasks": cards}]


# ---- sessions, and the pane


def _set_status(call: Call) -> Json:
    """Set a session's status: "processing" (with Slack's Stop button), "active", "suspended" or
    "closed"."""
    channel = writable(call, "channel_id")
    status = call.require("status")
    call.state.sessions[channel.id, root_of(call, channel).ts] = status
    return {"status": status, "agent_status": status, "title": call.text("title")}


def _thread_title(call: Call) -> Json:
    """Accept the title of a thread, which the page does not show."""
    root_of(call, writable(call, "channel_id"))
    call.require("title")
    return {}


def _prompts(call: Call) -> Json:
    """Set the prompts of a thread or, without a thread, of the empty pane."""
    channel = writable(call, "channel_id")
    thread_ts = root_of(call, channel).ts if call.text("thread_ts") else ""
    call.state.prompts[channel.id, thread_ts] = call.objects("prompts")
    return {}


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "agents.sessions.setStatus": _set_status,
    "assistant.threads.setTitle": _thread_title,
    "assistant.threads.setSuggestedPrompts": _prompts,
    "chat.startStream": _start,
    "chat.appendStream": _append,
    "chat.stopStream": _stop,
}
