"""How a request to the local Google becomes a call of one of the methods that it serves."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request

from bot.local.google.batch import Sent
from bot.local.google.call import EVERYWHERE, Json, Method
from bot.local.google.errors import GoogleRefused
from bot.local.google.fields import selected

_NAME = re.compile(r"\{(\w+)\}")


def sent_in(request: Request, body: bytes) -> Sent:
    """The request; a GET too long for its address comes as a POST with the query as its body."""
    http, query = request.method, request.url.query
    if override := request.headers.get("x-http-method-override"):
        http, query, body = override, body.decode("ascii", "replace"), b""
    path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    target = path.decode("ascii", "replace").lstrip("/") + (f"?{query}" if query else "")
    return Sent(http, target, request.headers.get("authorization", ""), body)


class Router:
    """Finds the method that a verb and a path mean; paths without names in them come first."""

    def __init__(self, methods: Mapping[str, Method]) -> None:
        rows = sorted(methods.items(), key=lambda item: item[1].path.count("{"))
        self._patterns = [
            (m.http, re.compile(_NAME.sub(r"(?P<\1>[^/]+)", m.path)), name) for name, m in rows
        ]

    def method_at(self, http: str, path: str) -> tuple[str, dict[str, str]]:
        """Return the method's name and what its path names; GoogleRefused if there is none."""
        for verb, pattern, name in self._patterns:
            if verb == http and (found := pattern.fullmatch(path)):
                return name, {key: unquote(value) for key, value in found.groupdict().items()}
        raise GoogleRefused("notFound", "Method not found.")


def arguments_of(method: Method, query: Mapping[str, list[str]]) -> Mapping[str, list[str]]:
    for name in query.keys() - method.query - EVERYWHERE:
        raise GoogleRefused(
            "invalidArgument",
            f'Invalid JSON payload received. Unknown name "{name}": Cannot bind query parameter.',
        )
    selected({}, "".join(query.get("fields", ())))  # a wrong selection is refused at once
    return query


def body_of(method: Method, raw: bytes) -> Json:
    try:
        body: Any = json.loads(raw or b"{}")
    except ValueError:
        raise GoogleRefused("parseError") from None
    if not isinstance(body, dict):
        raise GoogleRefused("parseError")
    for name in body.keys() - method.body:
        message = f'Invalid JSON payload received. Unknown name "{name}": Cannot find field.'
        raise GoogleRefused("invalidArgument", message)
    return body
