"""Comparison of bodies with the discovery documents in google-api-python-client."""

import base64
import re
from typing import Any

from bot.local.google.api import Json, discovery, methods_of

_RANGES = {
    "int32": (-(2**31), 2**31 - 1),
    "uint32": (0, 2**32 - 1),
    "int64": (-(2**63), 2**63 - 1),
    "uint64": (0, 2**64 - 1),
}
_JSON_TYPES = {"string": str, "boolean": bool, "array": list, "object": dict, "number": float}


def departures(name: str, method: str, body: Any) -> list[str]:
    """Return the differences of a body from the documented answer of a method."""
    return _compared(name, method, "response", body)


def body_mismatches(name: str, method: str, body: Any) -> list[str]:
    """Return the differences of a body from the documented request of a method."""
    return _compared(name, method, "request", body)


def _compared(name: str, method: str, side: str, body: Any) -> list[str]:
    schema = methods_of(name)[method].get(side)
    if schema is None:
        return [f"{method} has no {side}, not {body!r}"] if body else []
    return list(_unlike(discovery(name)["schemas"], schema, body, method))


def _unlike(schemas: Json, schema: Json, value: Any, at: str) -> list[str]:
    schema = schemas[schema["$ref"]] if "$ref" in schema else schema
    kind = schema.get("type", "object")
    if kind == "any" or (kind == "number" and type(value) is int):
        return []
    if kind in ("integer", "string") and schema.get("format") in _RANGES:
        return _number(schema, value, at)
    if type(value) is not _JSON_TYPES.get(kind, dict):
        return [f"{at} is a {value.__class__.__name__}, not {kind}"]
    match value:
        case list():
            items = enumerate(value)
            return [e for n, v in items for e in _unlike(schemas, schema["items"], v, f"{at}[{n}]")]
        case dict():
            return _fields(schemas, schema, value, at)
        case str():
            return _text(schema, value, at)
    return []


def _fields(schemas: Json, schema: Json, value: Json, at: str) -> list[str]:
    known = schema.get("properties", {})
    if other := schema.get("additionalProperties"):
        known = dict.fromkeys(value, other) | known
    unknown = [f"{at}.{name} is in no document" for name in value.keys() - known.keys()]
    inner = ((known[name], each, f"{at}.{name}") for name, each in value.items() if name in known)
    return unknown + [
        e for field, each, place in inner for e in _unlike(schemas, field, each, place)
    ]


def _number(schema: Json, value: Any, at: str) -> list[str]:
    """64-bit numbers are strings, smaller ones are numbers."""
    low, high = _RANGES[schema["format"]]
    if schema["type"] == "string":
        if not isinstance(value, str) or not re.fullmatch(r"-?[0-9]+", value):
            return [f"{at} is {value!r}, not digits in a string"]
    elif type(value) is not int:
        return [f"{at} is {value!r}, not a number"]
    return [] if low <= int(value) <= high else [f"{at} is {value}, beyond {schema['format']}"]


def _text(schema: Json, value: str, at: str) -> list[str]:
    if "enum" in schema and value not in schema["enum"]:
        return [f"{at} is {value!r}, none of {schema['enum']}"]
    if schema.get("format") == "byte":
        try:
            base64.b64decode(value, altchars=b"-_", validate=True)
        except ValueError:
            return [f"{at} is no base64url"]
    return []
