"""Comparison of bodies with the discovery documents in google-api-python-client."""

from functools import cache
from typing import Any

from jsonschema import Draft4Validator

from bot.local.google.api import Json, discovery, methods_of

_FORMATS: dict[str, Json] = {
    "int32": {"minimum": -(2**31), "maximum": 2**31 - 1},
    "uint32": {"minimum": 0, "maximum": 2**32 - 1},
    "int64": {"pattern": "^-?[0-9]{1,19}$"},  # 64-bit numbers are strings
    "uint64": {"pattern": "^[0-9]{1,20}$"},
    "byte": {"pattern": "^[A-Za-z0-9_-]*={0,2}$"},
}


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
    whole = {"allOf": [_schema(schema)], "definitions": _definitions(name)}
    errors = Draft4Validator(whole).iter_errors(body)
    return [f"{method}{error.json_path[1:]}: {error.message[:200]}" for error in errors]


@cache
def _definitions(name: str) -> Json:
    return {each: _schema(schema) for each, schema in discovery(name)["schemas"].items()}


def _schema(part: Json) -> Json:
    """Return a schema of a discovery document as JSON schema; no field may be unknown."""
    if "$ref" in part:
        return {"$ref": f"#/definitions/{part['$ref']}"}
    kind = part.get("type", "object")
    if kind == "any":
        return {}
    schema: Json = {"type": kind, **_FORMATS.get(part.get("format", ""), {})}
    if kind == "object":
        fields = part.get("properties", {}).items()
        schema["properties"] = {name: _schema(each) for name, each in fields}
        others = part.get("additionalProperties")
        schema["additionalProperties"] = _schema(others) if others else False
    schema |= {"items": _schema(part["items"])} if "items" in part else {}
    return schema | ({"enum": part["enum"]} if "enum" in part else {})
