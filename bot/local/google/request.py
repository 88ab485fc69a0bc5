"""How a request to the local Google becomes a call of one of the methods that it serves."""

import json
import re
from collections.abc import Mapping
from typing import Any
from urllib.parse import unquote

from starlette.requests import Request

from bot.local.google import bigquery as google_bigquery
from bot.local.google import gmail_mailbox
from bot.local.google import sheets as google_sheets
from bot.local.google.batch import Sent
from bot.local.google.call import EVERYWHERE, Json, Method
from bot.local.google.errors import GoogleRefused
from bot.local.google.fields import selected

METHODS: Mapping[str, Method] = {**gmail_mailbox.METHODS}
"""Of Gmail."""
SERVED: Mapping[str, Method] = {
    **METHODS,
    **google_bigquery.METHODS,
    **google_sheets.METHODS,
}
"""All that are served. A service that joins brings its methods, and its state to LocalGoogle."""

_NAME = re.compile(r"\{(\w+)\}")


def sent_in(request: Request, body: bytes) -> Sent:
    """The request; a GET too long for its address comes as a POST with the query as its body."""
    http, query = request.method, request.url.query
    if override := request.headers.get("x-http-method-override"):
        http, query, body = override, body.decode("ascii", "replace"), b""
    path: bytes = request.scope.get("raw_path") or request.url.path.encode()
    target = path.decode("ascii", "replace").lstrip("/") + (f"?{query}" if query else "")
    return Sent(http, target, request.headers.get("authorization", ""), body)


def _patterns() -> list[tuple[str, re.Pattern[str], str]]:
    """Of every method its verb and how its path is told, those without names in it first."""
    rows = sorted(SERVED.items(), key=lambda item: item[1].path.count("{"))
    return [(m.http, re.compile(_NAME.sub(r"(?P<\1>[^/]+)", m.path)), name) for name, m in rows]


_PATTERNS = _patterns()


def method_at(http: str, path: str) -> tuple[str, dict[str, str]]:
    for verb, pattern, name in _PATTERNS:
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
