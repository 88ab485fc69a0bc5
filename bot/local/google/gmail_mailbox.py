"""The methods of the local Gmail, and its messages, threads and labels as JSON of the API.

Bodies are not checked here; tests/standins/google_gmail.py refuses those that Gmail refuses.
"""

from base64 import urlsafe_b64decode
from collections.abc import Callable, Sequence
from typing import Any

from bot.local.google.api import Call, GoogleRefused, MethodHandler
from bot.local.google.gmail_mime import attachment_id, base64url, every, split_headers
from bot.local.google.gmail_search import Query, parse_query
from bot.local.google.gmail_state import SYSTEM_LABELS, Arrival, GmailState, MailboxMessage
from bot.local.google.mbox import addresses

Json = dict[str, Any]


def reference_json(held: MailboxMessage) -> Json:
    """Return a message by its ids only."""
    return {"id": held.id, "threadId": held.thread}


def labelled_json(held: MailboxMessage) -> Json:
    """Return a message by its ids and labels."""
    return reference_json(held) | _labels(held)


def message_json(held: MailboxMessage, form: str, headers: Sequence[str] = ()) -> Json:
    """Return a message in this `form`: "full" or "metadata".

    `headers` are the ones to include in `metadata`; none = all.
    """
    body = labelled_json(held) | {
        "snippet": held.snippet,
        "historyId": str(held.history),
        "internalDate": str(held.ms),
    }
    payload = held.root.json(held.id)
    if form == "metadata":
        wanted = {name.lower() for name in headers}
        shown = [h for h in payload["headers"] if not wanted or h["name"].lower() in wanted]
        payload = {"mimeType": payload["mimeType"], "headers": shown}
    return body | {"payload": payload}


def thread_json(state: GmailState, id: str, form: str, headers: Sequence[str] = ()) -> Json:
    """Return a thread with its messages, oldest first."""
    return {
        "id": id,
        "historyId": str(state.thread_history(id)),
        "messages": [message_json(held, form, headers) for held in state.of_thread(id)],
    }


def label_json(state: GmailState, id: str) -> Json:
    """Return a label in the form of the list of labels."""
    kind = "system" if id in SYSTEM_LABELS else "user"
    return {"id": id, "name": state.labels[id], "type": kind}


def arrival_json(change: Arrival) -> Json:
    """Return the history record of a message that arrived."""
    message: Json = {"id": change.message, "threadId": change.thread}
    message |= {"labelIds": list(change.labels)} if change.labels else {}
    return {"id": str(change.id), "messagesAdded": [{"message": message}]}


def _labels(held: MailboxMessage) -> Json:
    return {"labelIds": sorted(held.labels)} if held.labels else {}


GmailCall = Call[GmailState]


def message_of(call: GmailCall, name: str = "id") -> MailboxMessage:
    """Return the message that the path names."""
    held = call.state.messages.get(call.path[name])
    if held is None:
        raise GoogleRefused("notFound")
    return held


def thread_of(call: GmailCall) -> str:
    """Return the id of the thread that the path names."""
    if call.path["id"] not in call.state.threads:
        raise GoogleRefused("notFound")
    return call.path["id"]


def find_messages(call: GmailCall) -> list[MailboxMessage]:
    """Return the messages that match `q` and `labelIds` of a list request, unordered."""
    state, labels = call.state, set(call.many("labelIds"))
    query = parse_query(call.text("q"))
    hide = not (labels & {"SPAM", "TRASH"} or query.anywhere)
    return [held for held in state.messages.values() if _shows(held, state, labels, query, hide)]


def _shows(
    held: MailboxMessage, state: GmailState, labels: set[str], query: Query, hide: bool
) -> bool:
    if not labels <= held.labels or (hide and held.labels & {"SPAM", "TRASH"}):
        return False
    return query.holds(held, state)


def _list_page(
    call: GmailCall, kind: str, items: list[tuple[int, str]], row: Callable[[str], Json]
) -> Json:
    """Return a page of a list's results, newest first; `row` formats the result with an id."""
    items.sort(reverse=True)
    ids, token = call.page(items)
    body: Json = {kind: [row(id) for id in ids]} if ids else {}
    return body | ({"nextPageToken": token} if token else {})


def _list_messages(call: GmailCall) -> Json:
    messages = call.state.messages
    items = [(held.ms, held.id) for held in find_messages(call)]
    return _list_page(call, "messages", items, lambda id: reference_json(messages[id]))


def _list_threads(call: GmailCall) -> Json:
    """List threads with a matching message, sorted by their newest matching message."""
    newest: dict[str, int] = {}
    for held in find_messages(call):
        newest[held.thread] = max(held.ms, newest.get(held.thread, 0))
    items = [(ms, id) for id, ms in newest.items()]
    return _list_page(call, "threads", items, lambda id: _thread_row(call.state, id))


def _thread_row(state: GmailState, id: str) -> Json:
    last = state.of_thread(id)[-1]
    return {"id": id, "snippet": last.snippet, "historyId": str(state.thread_history(id))}


def _get_message(call: GmailCall) -> Json:
    form = call.text("format") or "full"
    return message_json(message_of(call), form, call.many("metadataHeaders"))


def _get_thread(call: GmailCall) -> Json:
    form = call.text("format") or "full"
    return thread_json(call.state, thread_of(call), form, call.many("metadataHeaders"))


def _get_attachment(call: GmailCall) -> Json:
    held = message_of(call, "messageId")
    for part in held.root.walk():
        if part.attached and attachment_id(held.id, part.id) == call.path["id"]:
            return {"size": len(part.content), "data": base64url(part.content)}
    raise GoogleRefused("invalidArgument", "Invalid attachment token")


def _modify_thread(call: GmailCall) -> Json:
    id = thread_of(call)
    add, remove = (call.body.get(name) or () for name in ("addLabelIds", "removeLabelIds"))
    call.state.relabel(call.state.threads[id], add, remove)
    return {"id": id, "messages": [labelled_json(held) for held in call.state.of_thread(id)]}


def _send(call: GmailCall) -> Json:
    """Send a message: it gets SENT, and also INBOX if it is to the mailbox's own address."""
    raw = urlsafe_b64decode(call.body["raw"])
    to = addresses(every(split_headers(raw)[0], "to", "cc", "bcc"))
    labels = {"SENT", "INBOX", "UNREAD"} if call.state.address in to else {"SENT"}
    return labelled_json(call.state.add(raw, labels, thread=call.body.get("threadId")))


def _profile(call: GmailCall) -> Json:
    return {"emailAddress": call.state.address, "historyId": str(call.state.history_id)}


def _list_labels(call: GmailCall) -> Json:
    return {"labels": [label_json(call.state, id) for id in call.state.labels]}


def _create_label(call: GmailCall) -> Json:
    return label_json(call.state, call.state.label(call.body["name"]))


def _create_draft(call: GmailCall) -> Json:
    message = call.body["message"]
    raw = urlsafe_b64decode(message["raw"])
    held = call.state.add(raw, {"DRAFT"}, thread=message.get("threadId"))
    return {"id": call.state.put_draft(held.id), "message": labelled_json(held)}


def _list_drafts(call: GmailCall) -> Json:
    found = {held.id: held for held in find_messages(call)}
    drafts = {message: id for id, message in call.state.drafts.items() if message in found}
    items = [(found[id].ms, id) for id in drafts]

    def row(id: str) -> Json:
        return {"id": drafts[id], "message": reference_json(found[id])}

    return _list_page(call, "drafts", items, row)


def _list_history(call: GmailCall) -> Json:
    """List the messages that were added after `startHistoryId`, oldest first."""
    state = call.state
    after = int(call.text("pageToken") or call.text("startHistoryId"))
    new = [each for each in state.history if each.id > after]
    page = new[: min(int(call.text("maxResults") or 100), 500)]
    body: Json = {"historyId": str(state.history_id)}
    if page:
        body["history"] = [arrival_json(change) for change in page]
    return body | ({"nextPageToken": str(page[-1].id)} if len(page) < len(new) else {})


METHODS: dict[str, MethodHandler] = {
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
