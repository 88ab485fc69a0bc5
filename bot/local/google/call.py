"""A method of a Google API, and one call of it with its arguments."""

import base64
import binascii
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

from bot.local.google.errors import GoogleRefused

Json = dict[str, Any]
State = TypeVar("State")

_MOST = 500


@dataclass(frozen=True, slots=True)
class Call(Generic[State]):
    """One call: whose state, and with which arguments."""

    state: State
    path: Mapping[str, str]
    query: Mapping[str, Sequence[str]]
    body: Json

    def text(self, name: str) -> str:
        """A query parameter; empty when it was not sent."""
        return next(iter(self.query.get(name, ())), "")

    def many(self, name: str) -> tuple[str, ...]:
        """A query parameter that may be repeated."""
        return tuple(self.query.get(name, ()))

    def flag(self, name: str) -> bool:
        return self.text(name).lower() == "true"

    def one_of(self, name: str, values: Sequence[str]) -> str:
        """A query parameter that takes some values only; the first one is its default."""
        value = self.text(name).lower() or values[0]
        if value not in values:
            invalid(f"Invalid value at '{name}': {value!r}")
        return value

    def names(self, name: str) -> tuple[str, ...]:
        """A list of strings in the body."""
        value = self.body.get(name) or []
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            invalid(f"Invalid value at '{name}'")
        return tuple(value)

    def page(self, items: Sequence[tuple[int, str]]) -> tuple[list[str], str]:
        """The ids of the page asked for, and the token of the next one (empty at the end).

        `items` are sort keys with ids, the greatest first; what comes in between two pages moves
        none of them.
        """
        if token := self.text("pageToken"):
            after = _position(token)
            items = [item for item in items if item < after]
        limit = self._limit()
        page, more = items[:limit], len(items) > limit
        token = f"{page[-1][0]}:{page[-1][1]}" if more else ""
        return [id for _, id in page], base64.urlsafe_b64encode(token.encode()).decode()

    def _limit(self) -> int:
        try:
            limit = int(self.text("maxResults") or 100)
        except ValueError:
            limit = -1
        if limit < 0:
            invalid("Invalid value at 'max_results'")
        return min(limit, _MOST) or 100


def _position(token: str) -> tuple[int, str]:
    try:
        key, _, id = base64.urlsafe_b64decode(token).decode().partition(":")
        return int(key), id
    except (binascii.Error, ValueError):
        raise GoogleRefused("invalidArgument", "Invalid pageToken") from None


def invalid(message: str) -> None:
    raise GoogleRefused("invalidArgument", message)


class Method(NamedTuple):
    """How a method is called."""

    http: str
    path: str
    """Below the server's root, with `{names}`."""
    run: Callable[[Call[Any]], Json | None]
    """None = an empty answer with status 204."""
