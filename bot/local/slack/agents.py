"""Web API methods of an agent: the state of its sessions, and what its pane shows.

docs.slack.dev/ai/agent-sessions; docs.slack.dev/reference/methods/assistant.threads.setTitle.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any

from bot.local.slack.places import writable
from bot.local.slack.records import Json, Pane, Session
from bot.local.slack.state import Call, SlackError, SlackState
from bot.local.workspace import Message, micros

STATUSES = ("processing", "active", "suspended", "closed")
MAX_TITLE = 200
MAX_PROMPTS = 4


def _set_status(call: Call) -> Json:
    """Makes the session if there is none; `processing` shows the Stop button until it is left."""
    call.need("assistant:write", "chat:write")
    channel = writable(call, "channel_id")
    status, title = session_status(call, "status"), _title(call)
    initiator = call.text("initiator_user_id")
    if initiator and initiator not in call.state.users:
        raise SlackError("user_not_found")
    root = _root(call, channel.id)
    session = set_session(call.state, channel.id, root.ts, status)
    session.title = title or session.title
    session.initiator = initiator or session.initiator
    call.did(channel.id, root)
    return {"status": status, "agent_status": status, "title": session.title}


def session_status(call: Call, argument: str) -> str:
    """The status of a session that a call sends."""
    status = call.required(argument)
    if status not in STATUSES:
        raise SlackError("invalid_arguments")
    return status


def set_session(state: SlackState, channel: str, thread_ts: str, status: str) -> Session:
    """The session of a thread, made if there is none, in a new status."""
    session = state.sessions.setdefault((channel, thread_ts), Session(channel, thread_ts))
    session.status = status
    return session


def _thread_title(call: Call) -> Json:
    call.need("assistant:write")
    channel = writable(call, "channel_id")
    title, root = call.required("title"), _root(call, channel.id)
    _pane(call.state, channel.id, root.ts).title = title
    call.did(channel.id, root)
    return {}


def _prompts(call: Call) -> Json:
    """Without a thread the prompts are those of the pane before anything is said in it."""
    call.need("assistant:write")
    channel = writable(call, "channel_id")
    prompts = _list(call, "prompts")
    if not 1 <= len(prompts) <= MAX_PROMPTS or not all(map(_is_prompt, prompts)):
        raise SlackError("invalid_arguments")
    thread_ts = _root(call, channel.id).ts if call.text("thread_ts") else ""
    pane = _pane(call.state, channel.id, thread_ts)
    pane.prompts, pane.prompts_title = tuple(prompts), call.text("title")
    call.did(channel.id, Message(thread_ts))
    return {}


def _pane(state: SlackState, channel: str, thread_ts: str) -> Pane:
    return state.panes.setdefault((channel, thread_ts), Pane())


def _is_prompt(prompt: Any) -> bool:
    return isinstance(prompt, dict) and all(
        isinstance(prompt.get(key), str) and prompt[key] for key in ("title", "message")
    )


def _title(call: Call) -> str:
    title = call.text("title")
    if len(title) > MAX_TITLE:
        raise SlackError("invalid_arguments")
    return title


def _root(call: Call, channel: str) -> Message:
    timeline = call.state.timelines[channel]
    try:
        message = timeline.get(micros(call.required("thread_ts")))
    except ValueError:
        message = None
    if message is None:
        raise SlackError("thread_not_found")
    return timeline[micros(message.thread_ts)] if message.is_reply else message


def _list(call: Call, name: str) -> list[Any]:
    value = call.args.get(name) or []
    try:
        value = json.loads(value) if isinstance(value, str) else value
    except ValueError:
        value = None
    if not isinstance(value, list):
        raise SlackError("invalid_arguments")
    return value


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "agents.sessions.setStatus": _set_status,
    "assistant.threads.setTitle": _thread_title,
    "assistant.threads.setSuggestedPrompts": _prompts,
}
