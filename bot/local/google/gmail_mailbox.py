"""The methods of the local Gmail, and its messages, threads and labels as JSON of the API.

Bodies are not checked here; tests/standins/google_gmail.py refuses those that Gmail refuses.
"""

from base64 import urlsafe_b64decode
from collections.abc import Callable

from bot.local.google.api import Call, GoogleRefused, Json, MethodHandler
from bot.local.google.gmail_mime import attachment_id, base64url, every, split_headers
from bot.local.google.gmail_search import parse_query
from bot.local.google.gmail_state import SYSTEM_LABELS, GmailState, MailboxMessage
from bot.local.google.mbox import addresses

GmailCall = Call[GmailState]

_HIDDEN = frozenset({"SPAM", "TRASH"})
"""Labels of messages that a list leaves out unless it is asked for them."""


def message_json(held: MailboxMessage, call: GmailCall) -> Json:
    """Return a message in the requested format: "full", or "metadata" with the named headers."""
    body = held.labelled_json() | {
        "snippet": held.snippet,
        "historyId": str(held.history),
        "internalDate": str(held.ms),
    }
    payload = held.root.json(held.id)
    if call.text("format") == "metadata":
        wanted = {name.lower() for name in call.many("metadataHeaders")}
        shown = [h for h in payload["headers"] if not wanted or h["name"].lower() in wanted]
        payload = {"mimeType": payload["mimeType"], "headers": shown}
    return body | {"payload": payload}


def label_json(state: GmailState, id: str) -> Json:
    """Return a label in the form of the list of labels."""
    kind = "system" if id in SYSTEM_LABELS else "user"
    return {"id": id, "name": state.labels[id], "type": kind}


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
    labels, query = set(call.many("labelIds")), parse_query(call.text("q"))
    hidden = frozenset() if labels & _HIDDEN or query.anywhere else _HIDDEN
    return [
        held
        for held in call.state.messages.values()
        if labels <= held.labels and not hidden & held.labels and query.holds(held, call.state)
    ]


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
    return _list_page(call, "messages", items, lambda id: messages[id].reference_json())


def _list_threads(call: GmailCall) -> Json:
    """List threads with a matching message, sorted by their newest matching message."""
    newest: dict[str, int] = {}
    for held in find_messages(call):
        newest[held.thread] = max(held.ms, newest.get(held.thread, 0))
    items, state = [(ms, id) for id, ms in newest.items()], call.state

    def row(id: str) -> Json:
        snippet = state.of_thread(id)[-1].snippet
        return {"id": id, "snippet": snippet, "historyId": str(state.thread_history(id))}

    return _list_page(call, "threads", items, row)


def _get_message(call: GmailCall) -> Json:
    return message_json(message_of(call), call)


def _get_thread(call: GmailCall) -> Json:
    """Return a thread with its messages, oldest first."""
    id, state = thread_of(call), call.state
    messages = [message_json(held, call) for held in state.of_thread(id)]
    return {"id": id, "historyId": str(state.thread_history(id)), "messages": messages}


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
    return {"id": id, "messages": [held.labelled_json() for held in call.state.of_thread(id)]}


def _send(call: GmailCall) -> Json:
    """Send a message: it gets SENT, and also INBOX if it is to the mailbox's own address."""
    raw = urlsafe_b64decode(call.body["raw"])
    to = addresses(every(split_headers(raw)[0], "to", "cc", "bcc"))
    labels = {"SENT", "INBOX", "UNREAD"} if call.state.address in to else {"SENT"}
    return call.state.add(raw, labels, thread=call.body.get("threadId")).labelled_json()


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
    return {"id": f"r-{held.id}", "message": held.labelled_json()}


def _list_drafts(call: GmailCall) -> Json:
    found = {held.id: held for held in find_messages(call)}
    items = [(found[id].ms, id) for id in call.state.drafts.values() if id in found]

    def row(id: str) -> Json:
        return {"id": f"r-{id}", "message": found[id].reference_json()}

    return _list_page(call, "drafts", items, row)


def _list_history(call: GmailCall) -> Json:
    """List the messages that were added after `startHistoryId`, oldest first."""
    state = call.state
    after = int(call.text("pageToken") or call.text("startHistoryId"))
    new = [(id, message) for id, message in state.history if id > after]
    page = new[: min(int(call.text("maxResults") or 100), 500)]
    body: Json = {"historyId": str(state.history_id)}
    if page:
        body["history"] = [
            {"id": str(id), "messagesAdded": [{"message": message}]} for id, message in page
        ]
    return body | ({"nextPageToken": str(page[-1][0])} if len(page) < len(new) else {})


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
