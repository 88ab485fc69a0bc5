"""Calls of Google's APIs, and refusals in the common form of these APIs."""

import base64
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any, Generic, NamedTuple, TypeVar

Json = dict[str, Any]


class Reason(NamedTuple):
    """The status and the message of one `reason`."""

    code: int
    status: str
    message: str


REASONS = {
    "invalidArgument": Reason(400, "INVALID_ARGUMENT", "Request contains an invalid argument."),
    "authError": Reason(
        401,
        "UNAUTHENTICATED",
        "Request had invalid authentication credentials. Expected OAuth 2 access token, login "
        "cookie or other valid authentication credential.",
    ),
    "notFound": Reason(404, "NOT_FOUND", "Requested entity was not found."),
}
"""Refusals as Gmail sends them."""


class GoogleRefused(Exception):
    """A call that Google's API refuses."""

    def __init__(
        self,
        reason: str,
        message: str = "",
        *,
        code: int = 0,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        """Build a refusal. `reason` is one of REASONS; `message` and `code` override its own."""
        defaults = REASONS[reason]
        super().__init__(message or defaults.message)
        self.reason = reason
        self.message = message or defaults.message
        self.code = code or defaults.code
        self.headers = dict(headers or {})

    @property
    def json(self) -> Json:
        """Return the body of the answer."""
        about = {"code": self.code, "message": self.message, "status": REASONS[self.reason].status}
        return {"error": {**about, "errors": [{"message": self.message, "reason": self.reason}]}}


State = TypeVar("State")

_MAX_RESULTS = 500


@dataclass(frozen=True, slots=True)
class Call(Generic[State]):
    """One call of a method: its state and its arguments."""

    state: State
    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    body: Json

    def text(self, name: str) -> str:
        """Return a query parameter; empty if it was not sent."""
        return next(iter(self.query.get(name, ())), "")

    def many(self, name: str) -> tuple[str, ...]:
        """Return all values of a query parameter that may be repeated."""
        return tuple(self.query.get(name, ()))

    def page(self, items: Sequence[tuple[int, str]]) -> tuple[list[str], str]:
        """Return the ids of the requested page, and the next token (empty at the end).

        `items` are sort keys with ids, the greatest first. Items that arrive between two pages do
        not move the others.
        """
        if token := self.text("pageToken"):
            key, _, id = base64.urlsafe_b64decode(token).decode().partition(":")
            items = [item for item in items if item < (int(key), id)]
        limit = min(int(self.text("maxResults") or 0) or 100, _MAX_RESULTS)
        page, more = items[:limit], len(items) > limit
        token = f"{page[-1][0]}:{page[-1][1]}" if more else ""
        return [id for _, id in page], base64.urlsafe_b64encode(token.encode()).decode()


MethodHandler = Callable[[Call[Any]], Json]


@cache
def discovery(name: str) -> Json:
    """Return the document of an API, such as `gmail.v1`, from the client library."""
    folder = files("googleapiclient") / "discovery_cache" / "documents"
    document: Json = json.loads((folder / f"{name}.json").read_text("utf-8"))
    return document


@cache
def methods_of(name: str) -> Mapping[str, Json]:
    """Return the methods in an API's document by their id, such as `gmail.users.threads.get`."""
    found: dict[str, Json] = {}
    resources = [discovery(name)]
    while resources:
        one = resources.pop()
        resources += one.get("resources", {}).values()
        found |= {method["id"]: method for method in one.get("methods", {}).values()}
    return found
