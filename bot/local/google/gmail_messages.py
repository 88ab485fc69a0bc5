"""users.messages and users.threads of the local Gmail."""

from collections.abc import Iterable

from bot.local.google.call import Call, Method, invalid
from bot.local.google.errors import GoogleRefused
from bot.local.google.gmail_match import matches
from bot.local.google.gmail_mime import attachment_id, base64url
from bot.local.google.gmail_outgoing import outgoing, sent
from bot.local.google.gmail_query import Query, parsed
from bot.local.google.gmail_shapes import (
    FORMATS,
    Json,
    labelled_json,
    message_json,
    reference_json,
    thread_json,
)
from bot.local.google.gmail_state import GmailState, Held

READ = frozenset({"mail.google.com", "gmail.modify", "gmail.readonly"})
WRITE = frozenset({"mail.google.com", "gmail.modify"})
SEND = WRITE | {"gmail.compose", "gmail.send"}
_FIND = frozenset({"q", "labelIds", "includeSpamTrash", "maxResults", "pageToken"})
_SHOW = frozenset({"format", "metadataHeaders"})
_LABELS = frozenset({"addLabelIds", "removeLabelIds"})
_MESSAGE = frozenset({"raw", "threadId", "labelIds"})

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
    return matches(query, held, state)


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
    form = call.one_of("format", FORMATS[:3])
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
    return labelled_json(sent(call.state, outgoing(call.state, call.body)))


_USERS = "gmail/v1/users/{userId}/"
METHODS = {
    "gmail.users.messages.list": Method("GET", _USERS + "messages", _list_messages, 5, READ, _FIND),
    "gmail.users.messages.get": Method(
        "GET", _USERS + "messages/{id}", _get_message, 20, READ, _SHOW
    ),
    "gmail.users.messages.attachments.get": Method(
        "GET", _USERS + "messages/{messageId}/attachments/{id}", _get_attachment, 5, READ
    ),
    "gmail.users.messages.send": Method(
        "POST", _USERS + "messages/send", _send, 100, SEND, body=_MESSAGE
    ),
    "gmail.users.threads.list": Method("GET", _USERS + "threads", _list_threads, 10, READ, _FIND),
    "gmail.users.threads.get": Method("GET", _USERS + "threads/{id}", _get_thread, 40, READ, _SHOW),
    "gmail.users.threads.modify": Method(
        "POST", _USERS + "threads/{id}/modify", _modify_thread, 10, WRITE, body=_LABELS
    ),
}
"""Units as developers.google.com/gmail/api/reference/quota told in 2026: threads.get 40,
messages.get 20; for the others the table before that."""
