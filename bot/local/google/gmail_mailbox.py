"""The methods of the local Gmail: mail that leaves, and what it holds as JSON of the API."""

import base64
import binascii
import re
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from email.utils import format_datetime
from typing import Any

from bot.local.google.api import Answering, Call, GoogleRefused, invalid
from bot.local.google.gmail_mime import (
    attachment_id,
    base64url,
    every,
    first,
    references,
    split_headers,
)
from bot.local.google.gmail_search import Query, parsed
from bot.local.google.gmail_state import (
    SYSTEM_LABELS,
    Change,
    GmailState,
    Held,
    refers,
    subject_of,
)
from bot.local.google.mbox import addresses, new_id

MAX_BYTES = 36_700_160
"""Of one message (35 MiB), as the discovery document says of its upload."""


def outgoing(state: GmailState, message: object) -> tuple[bytes, str]:
    """The `Message` of a request body: what its `raw` holds, and the thread that it joins.

    It joins the one that it names only if it refers to a message of that thread and has the same
    subject: the rule of `Message.threadId` in the API's reference. Else it begins its own.
    """
    if not isinstance(message, dict) or not message.get("raw"):
        raise GoogleRefused("invalidArgument", "'raw' RFC822 payload message string is required")
    raw = _bytes(str(message["raw"]))
    if len(raw) > MAX_BYTES:
        invalid("Message too large")
    raw = re.sub(rb"\r?\n", b"\r\n", raw)
    wanted = message.get("threadId")
    if wanted and wanted not in state.threads:
        raise GoogleRefused("notFound")
    if wanted and _belongs(state, raw, wanted):
        return raw, wanted
    return raw, new_id(f"thread {state.history_id}".encode() + raw)


def _bytes(raw: str) -> bytes:
    try:
        return base64.b64decode(raw + "=" * (-len(raw) % 4), altchars=b"-_", validate=True)
    except (binascii.Error, ValueError):
        raise GoogleRefused("invalidArgument", "Invalid value at 'raw'") from None


def _belongs(state: GmailState, raw: bytes, thread: str) -> bool:
    headers, _ = split_headers(raw)
    followed, held = set(references(headers)), state.of_thread(thread)
    return any(refers(each, followed) for each in held) and any(
        subject_of(each.headers) == subject_of(headers) for each in held
    )


def _stamped(state: GmailState, raw: bytes) -> bytes:
    """The message as it leaves: from this mailbox, dated, with a Message-ID of Gmail's own.

    The API replaces a Message-ID and keeps it nowhere (FlowCrypt/flowcrypt-browser issue 4273).
    """
    headers, body = split_headers(raw)
    head = raw[: len(raw) - len(body)] if headers else b""
    drop = [b"Message-ID"]
    added = f"Message-ID: <CA+{new_id(raw + str(state.history_id).encode())}@mail.gmail.com>\r\n"
    if state.address not in addresses(every(headers, "from")):
        drop.append(b"From")
        added += f"From: {state.address}\r\n"
    if not first(headers, "date"):
        at = datetime.fromtimestamp(state.now(), UTC)
        added += f"Date: {format_datetime(at)}\r\n"
    names = b"|".join(drop)
    kept = re.sub(
        rb"(?:(?<=\n)|\A)(?:" + names + rb")[ \t]*:[^\n]*\n(?:[ \t][^\n]*\n)*",
        b"",
        head,
        flags=re.IGNORECASE,
    )
    return added.encode() + (kept or b"\r\n") + body


Json = dict[str, Any]

FORMATS = ("full", "metadata")
"""Those that the product asks for."""


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
    kind = "system" if id in SYSTEM_LABELS else "user"
    return {"id": id, "name": state.labels[id], "type": kind}


def arrival_json(change: Change) -> Json:
    """The record in the history of a message that came."""
    ids = {"id": change.message, "threadId": change.thread}
    message = ids | ({"labelIds": list(change.labels)} if change.labels else {})
    return {"id": str(change.id), "messages": [ids], "messagesAdded": [{"message": message}]}


def _labels(held: Held) -> Json:
    return {"labelIds": sorted(held.labels)} if held.labels else {}


GmailCall = Call[GmailState]
_NOT_TO_ADD = ("CHAT", "DRAFT", "SENT")
"""Labels that only Gmail itself gives and takes."""


def message_of(call: GmailCall, name: str = "id") -> Held:
    """The message that the path names."""
    held = call.state.messages.get(call.path[name])
    if held is None:
        raise GoogleRefused("notFound")
    return held


def thread_of(call: GmailCall) -> str:
    """The id of the thread that the path names."""
    if call.path["id"] not in call.state.threads:
        raise GoogleRefused("notFound")
    return call.path["id"]


def found(call: GmailCall) -> list[Held]:
    """The messages that a list asks for by `q` and `labelIds`, in no order."""
    state, labels = call.state, set(call.many("labelIds"))
    _check_labels(state, labels)
    query = parsed(call.text("q"))
    hides = not (call.flag("includeSpamTrash") or labels & {"SPAM", "TRASH"} or query.anywhere)
    return [held for held in state.messages.values() if _shows(held, state, labels, query, hides)]


def _shows(held: Held, state: GmailState, labels: set[str], query: Query, hides: bool) -> bool:
    if not labels <= held.labels or (hides and held.labels & {"SPAM", "TRASH"}):
        return False
    return query.holds(held, state)


def _listed(call: GmailCall, kind: str, items: list[tuple[int, str]]) -> Json:
    items.sort(reverse=True)
    ids, token = call.page(items)
    body: Json = {"resultSizeEstimate": len(items)}
    if ids and kind == "messages":
        body[kind] = [reference_json(call.state.messages[id]) for id in ids]
    elif ids:
        body[kind] = [_thread_row(call.state, id) for id in ids]
    return body | ({"nextPageToken": token} if token else {})


def _thread_row(state: GmailState, id: str) -> Json:
    last = state.of_thread(id)[-1]
    return {"id": id, "snippet": last.snippet, "historyId": str(state.thread_history(id))}


def _list_messages(call: GmailCall) -> Json:
    return _listed(call, "messages", [(held.ms, held.id) for held in found(call)])


def _list_threads(call: GmailCall) -> Json:
    """Threads of which a message is found; the newest message that is tells where they stand."""
    newest: dict[str, int] = {}
    for held in found(call):
        newest[held.thread] = max(held.ms, newest.get(held.thread, 0))
    return _listed(call, "threads", [(ms, id) for id, ms in newest.items()])


def _get_message(call: GmailCall) -> Json:
    form = call.one_of("format", FORMATS)
    return message_json(message_of(call), form, call.many("metadataHeaders"))


def _get_thread(call: GmailCall) -> Json:
    form = call.one_of("format", FORMATS)
    return thread_json(call.state, thread_of(call), form, call.many("metadataHeaders"))


def _get_attachment(call: GmailCall) -> Json:
    held = message_of(call, "messageId")
    for part in held.root.walk():
        if part.attached and attachment_id(held.id, part.id) == call.path["id"]:
            return {"size": len(part.content), "data": base64url(part.content)}
    raise GoogleRefused("invalidArgument", "Invalid attachment token")


def _relabel(call: GmailCall, ids: Iterable[str]) -> None:
    add, remove = set(call.names("addLabelIds")), set(call.names("removeLabelIds"))
    if not add | remove:
        invalid("No label add or removes specified")
    if add & remove:
        invalid("Cannot both add and remove the same label")
    _check_labels(call.state, add | remove)
    for label in (add | remove) & set(_NOT_TO_ADD):
        invalid(f"Invalid label: {label}")
    call.state.relabel(ids, add, remove)


def _check_labels(state: GmailState, labels: set[str]) -> None:
    for label in sorted(labels - state.labels.keys()):
        invalid(f"Invalid label: {label}")


def _modify_thread(call: GmailCall) -> Json:
    id = thread_of(call)
    _relabel(call, call.state.threads[id])
    return {"id": id, "messages": [labelled_json(held) for held in call.state.of_thread(id)]}


def _send(call: GmailCall) -> Json:
    """Send a message: it stands in SENT, and in the inbox too where it goes to oneself."""
    raw, thread = outgoing(call.state, call.body)
    to = addresses(every(split_headers(raw)[0], "to", "cc", "bcc"))
    if not to:
        invalid("Recipient address required")
    labels = {"SENT", "INBOX", "UNREAD"} if call.state.address in to else {"SENT"}
    held = call.state.add(_stamped(call.state, raw), labels, thread=thread)
    call.state.sent.append(held.id)
    return labelled_json(held)


MAX_LABEL = 225


def _profile(call: GmailCall) -> Json:
    state = call.state
    return {
        "emailAddress": state.address,
        "messagesTotal": len(state.messages),
        "threadsTotal": len(state.threads),
        "historyId": str(state.history_id),
    }


def _list_labels(call: GmailCall) -> Json:
    return {"labels": [label_json(call.state, id) for id in call.state.labels]}


def _create_label(call: GmailCall) -> Json:
    name = " ".join(str(call.body.get("name") or "").split())
    taken = {known.casefold(): id for id, known in call.state.labels.items()}
    if not name or len(name) > MAX_LABEL or taken.get(name.casefold()) in SYSTEM_LABELS:
        invalid("Invalid label name")
    if name.casefold() in taken:
        raise GoogleRefused("aborted")
    return label_json(call.state, call.state.label(name))


def _create_draft(call: GmailCall) -> Json:
    raw, thread = outgoing(call.state, call.body.get("message"))
    held = call.state.add(raw, {"DRAFT"}, thread=thread)
    return {"id": call.state.put_draft(held.id).id, "message": labelled_json(held)}


def _list_drafts(call: GmailCall) -> Json:
    shown = {held.id: held for held in found(call)}
    drafts = {d.message: d for d in call.state.drafts.values() if d.message in shown}
    items = sorted(((shown[id].ms, id) for id in drafts), reverse=True)
    ids, token = call.page(items)
    rows = [{"id": drafts[id].id, "message": reference_json(shown[id])} for id in ids]
    body: Json = {"resultSizeEstimate": len(items)} | ({"drafts": rows} if rows else {})
    return body | ({"nextPageToken": token} if token else {})


def _list_history(call: GmailCall) -> Json:
    """What came after `startHistoryId`, oldest first; 404 when that is too long ago."""
    state, start = call.state, call.text("startHistoryId")
    if call.many("historyTypes") != ("messageAdded",) or not start.isdecimal():
        invalid("Only the messages that were added after a history id are told here")
    if not state.oldest_history <= int(start) <= state.history_id:
        raise GoogleRefused("notFound")
    after = int(call.text("pageToken") or start)
    arrived = [c for c in state.history if c.id > after and c.kind == "messagesAdded"]
    page = arrived[: min(int(call.text("maxResults") or 100), 500)]
    body: Json = {"historyId": str(state.history_id)}
    if page:
        body["history"] = [arrival_json(change) for change in page]
    return body | ({"nextPageToken": str(page[-1].id)} if len(page) < len(arrived) else {})


METHODS: dict[str, Answering] = {
    "gmail.users.messages.list": _list_messages,
    "gmail.users.messages.get": _get_message,
    "gmail.users.messages.attachments.get": _get_attachment,
    "gmail.users.messages.send": _send,
    "gmail.users.threads.list": _list_threads,
    "gmail.users.threads.get": _get_thread,
    "gmail.users.threads.modify": _modify_thread,
    "gmail.users.getProfile": _profile,
    "gmail.users.history.list": _list_history,
    "gmail.users.labels.list": _list_labels,
    "gmail.users.labels.create": _create_label,
    "gmail.users.drafts.list": _list_drafts,
    "gmail.users.drafts.create": _create_draft,
}
