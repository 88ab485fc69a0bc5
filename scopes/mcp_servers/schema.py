"""What a server says of a tool's arguments, made small, plain and safe to check by."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from copy import deepcopy
from itertools import islice
from typing import Any, ClassVar

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from pydantic import BaseModel, ConfigDict, create_model, model_validator
from pydantic_core import PydanticCustomError

from scopes.clean import printable
from scopes.tool import one_line, readable

MAX_BYTES = 6_000
"""Of one schema as JSON: every subagent of its scope is sent it."""
MAX_NODES, MAX_DEPTH = 200, 8
MAX_CHOICES, CHOICE_CHARS = 50, 80
TEXT_CHARS = 160
"""Of the description of one argument."""
MAX_FAULTS, FAULT_CHARS = 5, 300
ARGUMENT = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
"""A name as the Messages API takes it."""
TYPES = ("object", "array", "string", "integer", "number", "boolean", "null")
FORMATS = ("date-time", "date", "time", "email", "uri", "uuid")
BOUNDS = ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")
LENGTHS = ("minLength", "maxLength", "minItems", "maxItems")
_BRACKETS = str.maketrans("<>", "()")


class Unfit(Exception):
    """A tool that cannot be offered; the text says why, in words of ours alone."""


def plain(text: object, limit: int) -> str:
    """Return a stranger's text on one line, cut at `limit`, with nothing hidden and no markup."""
    said = one_line(printable(readable(str(text)[: limit * 8]))).translate(_BRACKETS)
    return said if len(said) <= limit else f"{said[: limit - 1]}…"


def taken_over(schema: Any) -> dict[str, Any]:
    """Return the schema with what we know and nothing else: references put in place, no patterns
    (they can take for ever), no arguments but the named ones. Raises Unfit.
    """
    if not isinstance(schema, Mapping):
        raise Unfit("the schema of its arguments is far too large, or none")
    made = _Reader(schema).node(schema)
    made = {"type": "object", "properties": made.get("properties", {})} | {
        key: made[key] for key in ("required",) if key in made
    }
    if len(json.dumps(made)) > MAX_BYTES:
        raise Unfit(f"the schema of its arguments takes more than {MAX_BYTES:,} bytes")
    return made | {"additionalProperties": False}


class _Reader:
    """Goes through one schema once; what it refers to lies in it."""

    def __init__(self, root: Any) -> None:
        self._root = root
        self._left = MAX_NODES

    def node(self, node: Any, depth: int = 0) -> dict[str, Any]:
        self._left -= 1
        if self._left < 0 or depth > MAX_DEPTH:
            raise Unfit("the schema of its arguments is too large, or refers to itself")
        if isinstance(node, bool):
            return {}
        if not isinstance(node, Mapping):
            raise Unfit("the schema of its arguments is no JSON schema")
        said = {"description": plain(node["description"], TEXT_CHARS)} if _said(node) else {}
        if "$ref" in node:
            return self.node(self._target(node["$ref"]), depth + 1) | said
        alike = node.get("allOf")
        if isinstance(alike, list) and len(alike) == 1:
            return self.node(alike[0], depth + 1) | said
        branches = node.get("anyOf") or node.get("oneOf")
        if isinstance(branches, list) and "properties" not in node:
            return {"anyOf": [self.node(each, depth + 1) for each in branches]} | said
        return _values(node) | self._parts(node, depth) | said

    def _parts(self, node: Mapping[str, Any], depth: int) -> dict[str, Any]:
        """Return what is said of the members of an object, or of a list."""
        made: dict[str, Any] = {}
        if isinstance(node.get("items"), Mapping):
            made["items"] = self.node(node["items"], depth + 1)
        members = node.get("properties")
        if isinstance(members, Mapping):
            made["type"] = "object"
            required = [name for name in _list(node, "required") if isinstance(name, str)]
            kept = {n: m for n, m in members.items() if ARGUMENT.fullmatch(n)}
            if not set(required) <= set(kept):
                raise Unfit("it needs an argument that is not described, or not named plainly")
            made["properties"] = {n: self.node(m, depth + 1) for n, m in kept.items()}
            if required:
                made["required"] = required
            if node.get("additionalProperties") in (None, False):
                made["additionalProperties"] = False
        return made

    def _target(self, reference: Any) -> Any:
        """Return what a reference within the schema names."""
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise Unfit("the schema of its arguments refers to another document")
        found = self._root
        for part in reference[2:].split("/"):
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, Mapping) or name not in found:
                raise Unfit("the schema of its arguments refers to what is not there")
            found = found[name]
        return found


def _said(node: Mapping[str, Any]) -> bool:
    return isinstance(node.get("description"), str) and bool(node["description"].strip())


def _list(node: Mapping[str, Any], name: str) -> list[Any]:
    found = node.get(name)
    return found if isinstance(found, list) else []


def _values(node: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is said of the value itself, as far as it is understood."""
    made: dict[str, Any] = {}
    kind = node.get("type")
    kinds = [k for k in (kind if isinstance(kind, list) else [kind]) if k in TYPES]
    if kinds:
        made["type"] = kinds[0] if len(kinds) == 1 else kinds
    choices = [node["const"]] if "const" in node else _list(node, "enum")
    if choices and len(choices) <= MAX_CHOICES and all(map(_is_choice, choices)):
        made["enum"] = choices
    if node.get("format") in FORMATS:
        made["format"] = node["format"]
    made |= {key: node[key] for key in BOUNDS if _is_number(node.get(key))}
    return made | {key: node[key] for key in LENGTHS if _is_length(node.get(key))}


def _is_choice(value: Any) -> bool:
    if isinstance(value, str):
        return plain(value, CHOICE_CHARS) == value
    return value is None or isinstance(value, bool) or _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_length(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class Arguments(BaseModel):
    """The arguments of a tool from outside: checked by its own schema, and given on as they are."""

    model_config = ConfigDict(extra="allow")

    declared: ClassVar[dict[str, Any]]
    checks: ClassVar[Draft202012Validator]

    @model_validator(mode="before")
    @classmethod
    def _fits(cls, given: Any) -> Any:
        faults = [_fault(each) for each in islice(cls.checks.iter_errors(given), MAX_FAULTS)]
        if faults:
            raise PydanticCustomError("unfit", "{why}", {"why": "; ".join(faults)})
        return given

    @classmethod
    def model_json_schema(cls, *_: Any, **__: Any) -> dict[str, Any]:
        return deepcopy(cls.declared)


def arguments_of(name: str, schema: dict[str, Any]) -> type[Arguments]:
    """Return the class for a schema that was taken over."""
    made = create_model(f"{name}_input", __base__=Arguments)
    made.declared = schema
    made.checks = Draft202012Validator(schema)
    return made


def _fault(error: ValidationError) -> str:
    """Return what is wrong, for who gave it."""
    place = ".".join(map(str, error.absolute_path)) or "the arguments"
    return f"{place}: {error.message[:FAULT_CHARS]}"
