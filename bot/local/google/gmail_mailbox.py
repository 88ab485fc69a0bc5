"""users.getProfile, labels, drafts and history of the local Gmail."""

from bot.local.google import gmail_messages
from bot.local.google.call import Method, invalid
from bot.local.google.errors import GoogleRefused
from bot.local.google.gmail_messages import READ, WRITE, GmailCall, found
from bot.local.google.gmail_outgoing import drafted, outgoing
from bot.local.google.gmail_shapes import (
    FORMATS,
    Json,
    change_json,
    label_json,
    labelled_json,
    message_json,
    reference_json,
)
from bot.local.google.gmail_state import SYSTEM_LABELS, Change, Draft

KINDS = {
    "messageAdded": "messagesAdded",
    "messageDeleted": "messagesDeleted",
    "labelAdded": "labelsAdded",
    "labelRemoved": "labelsRemoved",
}
"""`historyTypes` -> the field of a record."""
MAX_LABEL = 225

_COMPOSE = WRITE | {"gmail.compose"}
_NAMING = WRITE | {"gmail.labels"}
_DRAFT = frozenset({"id", "message"})


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


def _draft_json(call: GmailCall, draft: Draft) -> Json:
    return {"id": draft.id, "message": labelled_json(call.state.messages[draft.message])}


def _create_draft(call: GmailCall) -> Json:
    return _draft_json(call, drafted(call.state, outgoing(call.state, call.body.get("message"))))


def _get_draft(call: GmailCall) -> Json:
    draft, form = call.state.drafts.get(call.path["id"]), call.one_of("format", FORMATS)
    if draft is None:
        raise GoogleRefused("notFound")
    return {"id": draft.id, "message": message_json(call.state.messages[draft.message], form)}


def _list_drafts(call: GmailCall) -> Json:
    shown = {held.id: held for held in found(call)}
    drafts = {d.message: d for d in call.state.drafts.values() if d.message in shown}
    items = sorted(((shown[id].ms, id) for id in drafts), reverse=True)
    ids, token = call.page(items)
    rows = [{"id": drafts[id].id, "message": reference_json(shown[id])} for id in ids]
    body: Json = {"resultSizeEstimate": len(items)} | ({"drafts": rows} if rows else {})
    return body | ({"nextPageToken": token} if token else {})


def _list_history(call: GmailCall) -> Json:
    """What happened after `startHistoryId`, oldest first; 404 when that is too long ago."""
    state, start = call.state, call.text("startHistoryId")
    if not start.isdecimal():
        invalid("Invalid value at 'start_history_id'")
    if not state.oldest_history <= int(start) <= state.history_id:
        raise GoogleRefused("notFound")
    after = int(start)
    if token := call.text("pageToken"):
        after = int(token) if token.isdecimal() else -1
        if after < int(start):
            invalid("Invalid pageToken")
    kinds, label = _kinds(call), call.text("labelId")
    changes = [c for c in state.history if c.id > after and c.kind in kinds and _bears(c, label)]
    page = changes[: min(int(call.text("maxResults") or 100), 500)]
    body: Json = {"historyId": str(state.history_id)}
    if page:
        body["history"] = [change_json(change) for change in page]
    return body | ({"nextPageToken": str(page[-1].id)} if len(page) < len(changes) else {})


def _kinds(call: GmailCall) -> set[str]:
    asked = call.many("historyTypes") or tuple(KINDS)
    for kind in asked:
        if kind not in KINDS:
            invalid(f"Invalid value at 'history_types': {kind!r}")
    return {KINDS[kind] for kind in asked}


def _bears(change: Change, label: str) -> bool:
    return not label or label in change.labels + change.changed


_USERS = "gmail/v1/users/{userId}/"
_LIST = frozenset({"q", "includeSpamTrash", "maxResults", "pageToken"})
_HISTORY = frozenset({"startHistoryId", "historyTypes", "labelId", "maxResults", "pageToken"})
_LABEL = frozenset({"id", "name", "type", "color", "messageListVisibility", "labelListVisibility"})
METHODS = gmail_messages.METHODS | {
    "gmail.users.getProfile": Method("GET", _USERS + "profile", _profile, 1, READ | _COMPOSE),
    "gmail.users.history.list": Method("GET", _USERS + "history", _list_history, 2, READ, _HISTORY),
    "gmail.users.labels.list": Method("GET", _USERS + "labels", _list_labels, 1, READ | _NAMING),
    "gmail.users.labels.create": Method(
        "POST", _USERS + "labels", _create_label, 5, _NAMING, body=_LABEL
    ),
    "gmail.users.drafts.list": Method(
        "GET", _USERS + "drafts", _list_drafts, 5, READ | _COMPOSE, _LIST
    ),
    "gmail.users.drafts.get": Method(
        "GET", _USERS + "drafts/{id}", _get_draft, 5, READ | _COMPOSE, frozenset({"format"})
    ),
    "gmail.users.drafts.create": Method(
        "POST", _USERS + "drafts", _create_draft, 10, _COMPOSE, body=_DRAFT
    ),
}
