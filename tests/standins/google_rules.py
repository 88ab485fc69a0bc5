"""What each method of Gmail costs, who may call it, and the parameters that it knows.

Units as developers.google.com/gmail/api/reference/quota told in 2026: threads.get 40, messages.get
20; for the others the table before that.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from bot.local.google import api
from bot.local.google.api import Call, Json

EVERYWHERE = frozenset({"alt", "fields", "prettyPrint", "quotaUser", "key", "$.xgafv"})
"""Query parameters that every method takes."""


class Rule(NamedTuple):
    """What a call of a method costs and may have."""

    units: int
    """Of the quota."""
    scopes: frozenset[str]
    """OAuth scopes of which any one suffices, the last part of their names."""
    query: frozenset[str] = frozenset()
    body: frozenset[str] = frozenset()
    """Top-level fields that a body may have."""


class Method(NamedTuple):
    """A method with its rule."""

    http: str
    path: str
    run: Callable[[Call[Any]], Json | None]
    units: int
    scopes: frozenset[str]
    query: frozenset[str] = frozenset()
    body: frozenset[str] = frozenset()

    @property
    def rule(self) -> Rule:
        return Rule(self.units, self.scopes, self.query, self.body)

    @property
    def method(self) -> api.Method:
        return api.Method(self.http, self.path, self.run)


READ = frozenset({"mail.google.com", "gmail.modify", "gmail.readonly"})
WRITE = frozenset({"mail.google.com", "gmail.modify"})
SEND = WRITE | {"gmail.compose", "gmail.send"}
_COMPOSE = WRITE | {"gmail.compose"}
_NAMING = WRITE | {"gmail.labels"}
_FIND = frozenset({"q", "labelIds", "includeSpamTrash", "maxResults", "pageToken"})
_SHOW = frozenset({"format", "metadataHeaders"})
_LABELS = frozenset({"addLabelIds", "removeLabelIds"})
_MESSAGE = frozenset({"raw", "threadId", "labelIds"})
_DRAFT = frozenset({"id", "message"})
_DRAFTS = frozenset({"q", "includeSpamTrash", "maxResults", "pageToken"})
_HISTORY = frozenset({"startHistoryId", "historyTypes", "labelId", "maxResults", "pageToken"})
_LABEL = frozenset({"id", "name", "type", "color", "messageListVisibility", "labelListVisibility"})
RULES = {
    "gmail.users.messages.list": Rule(5, READ, _FIND),
    "gmail.users.messages.get": Rule(20, READ, _SHOW),
    "gmail.users.messages.attachments.get": Rule(5, READ),
    "gmail.users.messages.send": Rule(100, SEND, body=_MESSAGE),
    "gmail.users.threads.list": Rule(10, READ, _FIND),
    "gmail.users.threads.get": Rule(40, READ, _SHOW),
    "gmail.users.threads.modify": Rule(10, WRITE, body=_LABELS),
    "gmail.users.getProfile": Rule(1, READ | _COMPOSE),
    "gmail.users.history.list": Rule(2, READ, _HISTORY),
    "gmail.users.labels.list": Rule(1, READ | _NAMING),
    "gmail.users.labels.create": Rule(5, _NAMING, body=_LABEL),
    "gmail.users.drafts.list": Rule(5, READ | _COMPOSE, _DRAFTS),
    "gmail.users.drafts.create": Rule(10, _COMPOSE, body=_DRAFT),
}
