"""Web API methods that write a message bit by bit: chat.startStream, appendStream, stopStream.

docs.slack.dev/reference/methods/chat.startStream. What no page says was measured by others: a
stream ends 5 minutes after its start (github.com/slackapi/python-slack-sdk/issues/1859), its
first content locks it to text or chunks (`streaming_mode_mismatch`), chat.update is refused while
it runs (`streaming_state_conflict`), the details and output of a task are added to, `text` reads
back as mrkdwn with the titles of the tasks behind it.
"""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from bot.local.slack.agents import session_status, set_session
from bot.local.slack.blocks import STATUSES, checked, refusal
from bot.local.slack.json import message_json
from bot.local.slack.places import new_message, own_message, placed, writable
from bot.local.slack.records import Json, Row, Stream
from bot.local.slack.shapes import Misfit, choice, items, string
from bot.local.slack.state import Call, SlackError, SlackState
from bot.local.workspace import Channel, Message, micros

MAX_MARKDOWN = 12_000
MAX_TASK_TEXT = 256
MAX_TASKS = 50
"""As many as a plan block may have."""

_AS_MRKDWN = (
    (re.compile(r"\[([^\]]*)\]\(([^)]*)\)"), r"<\2|\1>"),
    (re.compile(r"\*\*([^\n]+?)\*\*"), r"*\1*"),
    (re.compile(r"^#+ ", re.MULTILINE), ""),
    (re.compile(r"^[-*] ", re.MULTILINE), "• "),
)


def _start(call: Call) -> Json:
    call.need("chat:write")
    channel = writable(call)
    call.required("thread_ts")
    if channel.kind != "im":
        _check_recipient(call)
    display = call.text("task_display_mode") or "timeline"
    if display not in ("timeline", "plan"):
        raise SlackError("invalid_arguments")
    message = placed(call, channel, new_message(call, channel))
    stream = Stream(channel.id, message.ts, display, call.state.now())
    _write(call, stream)
    call.state.streams[channel.id, message.ts] = stream
    call.state.timelines[channel.id].add(_shown(message, stream))
    call.did(channel.id, message)
    return {"channel": channel.id, "ts": message.ts}


def _append(call: Call) -> Json:
    channel, message, stream = _open_stream(call)
    if not (call.text("markdown_text") or call.args.get("chunks")):
        raise SlackError("no_text")
    _write(call, stream)
    call.state.timelines[channel.id].replace(_shown(message, stream))
    call.did(channel.id, message)
    return {"channel": channel.id, "ts": message.ts}


def _stop(call: Call) -> Json:
    """The blocks go below what was streamed."""
    channel, message, stream = _open_stream(call)
    blocks, metadata = checked(call.objects("blocks")), call.metadata()
    status = session_status(call, "session_status") if call.text("session_status") else ""
    _write(call, stream)
    if status:
        set_session(call.state, channel.id, message.thread_ts, status)
    stream.ended = "stopped"
    _settle_plan(stream)
    done = _shown(replace(message, metadata=metadata), stream)
    done = replace(done, blocks=_numbered((*done.blocks, *blocks)))
    call.state.timelines[channel.id].replace(done)
    call.did(channel.id, done)
    body = message_json(call.state, channel.id, done)
    return {"channel": channel.id, "ts": done.ts, "message": body}


def halt(state: SlackState, channel: str, thread_ts: str) -> list[str]:
    """End the streams of a thread as Slack's Stop button does; the timestamps of those it ended."""
    with state.lock:
        ended = []
        for stream in list(state.streams.values()):
            message = state.timelines[channel].get(micros(stream.ts))
            if stream.channel != channel or not message or message.thread_ts != thread_ts:
                continue
            if is_open(state, channel, stream.ts):
                _end(state, stream, message, "stopped_by_user")
                ended.append(stream.ts)
        return ended


def is_open(state: SlackState, channel: str, ts: str) -> bool:
    """Whether a message is being streamed; one whose time is over is ended by this question."""
    stream = state.streams.get((channel, ts))
    if stream is None or stream.ended:
        return False
    message = state.timelines[channel].get(micros(ts))
    if message and state.now() - stream.started < state.stream_ttl_s:
        return True
    if message:
        _end(state, stream, message, "expired")
    return False


def expire(state: SlackState) -> None:
    """End every stream whose time is over, before somebody looks."""
    for channel, ts in list(state.streams):
        is_open(state, channel, ts)


def _end(state: SlackState, stream: Stream, message: Message, why: Any) -> None:
    stream.ended = why
    _settle_plan(stream)
    state.timelines[stream.channel].replace(_shown(message, stream))


def _settle_plan(stream: Stream) -> None:
    """A plan that ends under a running task says so, whatever its title was."""
    if any(row.status == "in_progress" for row in stream.rows.values()):
        stream.title = "Something went wrong"


def _check_recipient(call: Call) -> None:
    """The recipient is found by the workspace that they belong to, and their id there."""
    team, id = call.text("recipient_team_id"), call.text("recipient_user_id")
    if not team:
        raise SlackError("missing_recipient_team_id")
    if not id:
        raise SlackError("missing_recipient_user_id")
    user = call.state.users.get(id)
    if user is None or team != (user.team_id or call.state.team.id):
        raise SlackError("user_not_found")


def _open_stream(call: Call) -> tuple[Channel, Message, Stream]:
    call.need("chat:write")
    channel = writable(call)
    message = own_message(call, channel, "message_not_owned_by_app")
    if not is_open(call.state, channel.id, message.ts):
        stream = call.state.streams.get((channel.id, message.ts))
        if stream and stream.ended == "stopped_by_user" and call.method == "chat.appendStream":
            raise SlackError("stopped_by_user")
        raise SlackError("message_not_in_streaming_state")
    return channel, message, call.state.streams[channel.id, message.ts]


def _write(call: Call, stream: Stream) -> None:
    """Add what the call brings, all of it or nothing."""
    markdown, chunks = call.text("markdown_text"), _chunks(call)
    if markdown and chunks:
        raise SlackError("cannot_provide_both_markdown_text_and_chunks")
    if len(markdown) > MAX_MARKDOWN:
        raise SlackError("msg_too_long")
    mode = "text" if markdown else "chunks" if chunks else stream.mode
    if stream.mode and mode != stream.mode:
        raise SlackError("streaming_mode_mismatch")
    known = {chunk["id"] for chunk in chunks if chunk["type"] == "task_update"}
    if len(known | stream.rows.keys()) > MAX_TASKS:
        raise SlackError("invalid_chunks")
    stream.mode = mode
    stream.text += markdown
    for chunk in chunks:
        _add(stream, chunk)


def _chunks(call: Call) -> list[Json]:
    value = call.args.get("chunks") or []
    try:
        value = json.loads(value) if isinstance(value, str) else value
        for number, chunk in enumerate(items({"chunks": value}, "chunks", "", None, least=0)):
            _check_chunk(chunk, f"/chunks/{number}")
    except ValueError:
        raise SlackError("invalid_chunks") from None
    except Misfit as misfit:
        raise refusal("invalid_chunks", misfit) from None
    return list(value)


def _check_chunk(chunk: Json, at: str) -> None:
    kinds = ("markdown_text", "task_update", "plan_update", "blocks")
    match choice(chunk, "type", at, kinds):
        case "markdown_text":
            if len(string(chunk, "text", at, 10**9)) > MAX_MARKDOWN:
                raise SlackError("msg_too_long")
        case "plan_update":
            string(chunk, "title", at, MAX_TASK_TEXT)
        case "blocks":
            checked(items(chunk, "blocks", at, None))
        case _:
            string(chunk, "id", at, 255)
            string(chunk, "title", at, MAX_TASK_TEXT)
            choice(chunk, "status", at, STATUSES)
            string(chunk, "details", at, MAX_TASK_TEXT, required=False)
            string(chunk, "output", at, MAX_TASK_TEXT, required=False)
            for number, source in enumerate(items(chunk, "sources", at, None, required=False)):
                choice(source, "type", f"{at}/sources/{number}", ("url",))
                string(source, "url", f"{at}/sources/{number}", 3000)


def _add(stream: Stream, chunk: Json) -> None:
    match chunk["type"]:
        case "markdown_text":
            stream.text += chunk["text"]
        case "plan_update":
            stream.title = chunk["title"]
        case "blocks":
            stream.blocks += chunk["blocks"]
        case _:
            row = stream.rows.setdefault(chunk["id"], Row(chunk["id"]))
            row.title, row.status = chunk["title"], chunk["status"]
            row.details += chunk.get("details") or ""
            row.output += chunk.get("output") or ""
            row.sources += chunk.get("sources") or []


def _shown(message: Message, stream: Stream) -> Message:
    """The message as it reads now."""
    return replace(
        message,
        text=_fallback(stream),
        blocks=_numbered((*_tasks(stream), *_prose(stream), *stream.blocks)),
        streaming="completed" if stream.ended else "in_progress",
    )


def _fallback(stream: Stream) -> str:
    """What the message's `text` reads: mrkdwn, and behind it the titles of plan and tasks."""
    text = stream.text
    for pattern, into in _AS_MRKDWN:
        text = pattern.sub(into, text)
    titles = [row.title for row in stream.rows.values()]
    if stream.display == "plan" and stream.title:
        titles.insert(0, stream.title)
    return " ".join(filter(None, [text.strip(), *titles]))


def _numbered(blocks: tuple[Mapping[str, Any], ...]) -> tuple[Mapping[str, Any], ...]:
    return tuple({"block_id": f"s{n}", **block} for n, block in enumerate(blocks, 1))


def _prose(stream: Stream) -> list[Json]:
    return [_rich(stream.text)] if stream.text else []


def _tasks(stream: Stream) -> list[Json]:
    cards = [_card(row) for row in stream.rows.values()]
    if stream.display == "timeline" or not (cards or stream.title):
        return cards
    return [{"type": "plan", "title": stream.title or "Thinking completed", "tasks": cards}]


def _card(row: Row) -> Json:
    card: Json = {"type": "task_card", "task_id": row.id, "title": row.title, "status": row.status}
    if row.details:
        card["details"] = _rich(row.details)
    if row.output:
        card["output"] = _rich(row.output)
    return card | ({"sources": row.sources} if row.sources else {})


def _rich(text: str) -> Json:
    section = {"type": "rich_text_section", "elements": [{"type": "text", "text": text}]}
    return {"type": "rich_text", "elements": [section]}


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "chat.startStream": _start,
    "chat.appendStream": _append,
    "chat.stopStream": _stop,
}
