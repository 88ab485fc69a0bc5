"""What the local Gmail holds, as the API's JSON shows it."""

from collections.abc import Sequence
from typing import Any

from bot.local.google.gmail_mime import base64url
from bot.local.google.gmail_state import SYSTEM_LABELS, Change, GmailState, Held

Json = dict[str, Any]

FORMATS = ("full", "metadata", "minimal", "raw")
_HIDDEN = ("CHAT", "DRAFT", "IMPORTANT", "INBOX", "SENT", "STARRED", "UNREAD")
"""System labels that the list of labels tells no visibility of."""


def reference_json(held: Held) -> Json:
    """A message by its ids only."""
    return {"id": held.id, "threadId": held.thread}


def labelled_json(held: Held) -> Json:
    """A message by its ids and labels."""
    return reference_json(held) | _labels(held)


def message_json(held: Held, form: str, headers: Sequence[str] = ()) -> Json:
    """A message in one of FORMATS; `headers` are those that `metadata` shows, none = all."""
    body = labelled_json(held) | {
        "snippet": held.snippet,
        "historyId": str(held.history),
        "internalDate": str(held.ms),
        "sizeEstimate": len(held.raw),
    }
    if form == "raw":
        return body | {"raw": base64url(held.raw)}
    if form == "minimal":
        return body
    payload = held.root.json(held.id)
    if form == "metadata":
        wanted = {name.lower() for name in headers}
        named = [h for h in payload["headers"] if not wanted or h["name"].lower() in wanted]
        payload = {"mimeType": payload["mimeType"], "headers": named}
    return body | {"payload": payload}


def thread_json(state: GmailState, id: str, form: str, headers: Sequence[str] = ()) -> Json:
    """A thread with its messages, oldest first."""
    return {
        "id": id,
        "historyId": str(state.thread_history(id)),
        "messages": [message_json(held, form, headers) for held in state.of_thread(id)],
    }


def label_json(state: GmailState, id: str) -> Json:
    """A label as the list of labels shows it."""
    own = id not in SYSTEM_LABELS
    body: Json = {"id": id, "name": state.labels[id], "type": "user" if own else "system"}
    if id not in _HIDDEN:
        shown = own or id.startswith("CATEGORY")
        body["messageListVisibility"] = "show" if own else "hide"
        body["labelListVisibility"] = "labelShow" if shown else "labelHide"
    return body


def change_json(change: Change) -> Json:
    """One record of the history."""
    ids = {"id": change.message, "threadId": change.thread}
    message = ids | ({"labelIds": list(change.labels)} if change.labels else {})
    item: Json = {"message": message}
    if change.changed:
        item["labelIds"] = list(change.changed)
    return {"id": str(change.id), "messages": [ids], change.kind: [item]}


def _labels(held: Held) -> Json:
    return {"labelIds": sorted(held.labels)} if held.labels else {}
