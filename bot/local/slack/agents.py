"""Web API methods of an agent: the state of its sessions, and what its pane shows.

docs.slack.dev/ai/agent-sessions; docs.slack.dev/reference/methods/assistant.threads.setTitle.
"""

from collections.abc import Callable, Mapping

from bot.local.slack.records import Json, Pane, Session
from bot.local.slack.state import Call, SlackState, root_of, writable
from bot.local.workspace import Message


def _set_status(call: Call) -> Json:
    """Makes the session if there is none; `processing` shows the Stop button until it is left."""
    call.need("assistant:write", "chat:write")
    channel = writable(call, "channel_id")
    status, title = call.required("status"), call.text("title")
    initiator = call.text("initiator_user_id")
    root = root_of(call, channel.id)
    session = set_session(call.state, channel.id, root.ts, status)
    session.title = title or session.title
    session.initiator = initiator or session.initiator
    call.did(channel.id, root)
    return {"status": status, "agent_status": status, "title": session.title}


def set_session(state: SlackState, channel: str, thread_ts: str, status: str) -> Session:
    """The session of a thread, made if there is none, in a new status."""
    session = state.sessions.setdefault((channel, thread_ts), Session(channel, thread_ts))
    session.status = status
    return session


def _thread_title(call: Call) -> Json:
    call.need("assistant:write")
    channel = writable(call, "channel_id")
    title, root = call.required("title"), root_of(call, channel.id)
    _pane(call.state, channel.id, root.ts).title = title
    call.did(channel.id, root)
    return {}


def _prompts(call: Call) -> Json:
    """Without a thread the prompts are those of the pane before anything is said in it."""
    call.need("assistant:write")
    channel = writable(call, "channel_id")
    prompts = call.objects("prompts")
    thread_ts = root_of(call, channel.id).ts if call.text("thread_ts") else ""
    pane = _pane(call.state, channel.id, thread_ts)
    pane.prompts = prompts
    call.did(channel.id, Message(thread_ts))
    return {}


def _pane(state: SlackState, channel: str, thread_ts: str) -> Pane:
    return state.panes.setdefault((channel, thread_ts), Pane())


METHODS: Mapping[str, Callable[[Call], Json]] = {
    "agents.sessions.setStatus": _set_status,
    "assistant.threads.setTitle": _thread_title,
    "assistant.threads.setSuggestedPrompts": _prompts,
}
