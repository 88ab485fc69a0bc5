"""What the API refuses in a JSON schema: of a tool, of a strict tool, of an output format."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from standins.model_errors import Json, an_object, invalid

PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
TYPES = frozenset({"object", "array", "string", "integer", "number", "boolean", "null"})
FORMATS = frozenset(
    {
        *("date-time", "time", "date", "duration", "email"),
        *("hostname", "uri", "ipv4", "ipv6", "uuid"),
    }
)
MAX_DEPTH = 64
# Limits of one request (platform.claude.com, strict tool use, "schema complexity limits").
MAX_STRICT_TOOLS = 20
MAX_OPTIONAL = 24
MAX_UNIONS = 16

_NUMBER = frozenset({"minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf"})
_STRING = frozenset({"minLength", "maxLength", "contentEncoding", "contentMediaType"})
_ARRAY = frozenset(
    {"maxItems", "uniqueItems", "contains", "minContains", "maxContains", "prefixItems"}
)
_OBJECT = frozenset(
    {
        "minProperties",
        "maxProperties",
        "patternProperties",
        "propertyNames",
        "dependentRequired",
        "dependentSchemas",
        "unevaluatedProperties",
    }
)
_ANY = frozenset({"oneOf", "not", "if", "then", "else"})
_UNSUPPORTED = _NUMBER | _STRING | _ARRAY | _OBJECT | _ANY
_SCHEMA_LISTS = ("anyOf", "allOf", "oneOf")
_DEFINITIONS = ("$defs", "definitions")
_SCHEMA_MAPS = ("properties", *_DEFINITIONS)


@dataclass
class Complexity:
    """What the strict schemas of one request add up to."""

    optional: int = 0
    unions: int = 0


def check_input_schema(schema: Any, where: str) -> None:
    """Refuse a tool's input schema that is not a JSON schema of an object."""
    schema = an_object(schema, where)
    if "type" not in schema:
        invalid(f"{where}.type: Field required")
    if schema["type"] != "object":
        invalid(f"{where}.type: Input should be 'object'")
    if any(key in schema for key in _SCHEMA_LISTS):
        invalid(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    check_schema(schema, where)


def check_schema(schema: Any, where: str) -> Json:
    """`schema` when it is a JSON schema as far as this looks, else a refusal."""
    found = an_object(schema, where)
    for node in _nodes(found, where):
        _check_node(node, where)
    return found


def check_strict_schema(schema: Json, where: str, total: Complexity) -> None:
    """Refuse what constrained decoding does not support, and add up the schema's complexity."""
    for node in _nodes(schema, where):
        _check_strict_node(node, where, total)
    _check_references(schema, where)


def check_complexity(total: Complexity, strict_tools: int) -> None:
    """Refuse more strict tools, optional parameters or unions than one request may have."""
    if strict_tools > MAX_STRICT_TOOLS:
        invalid(f"Too many strict tools ({strict_tools}). The maximum is {MAX_STRICT_TOOLS}.")
    for count, what, limit in (
        (total.optional, "optional parameters", MAX_OPTIONAL),
        (total.unions, "parameters with union types", MAX_UNIONS),
    ):
        if count > limit:
            invalid(
                f"Schemas contains too many {what} ({count}), which would make grammar compilation "
                f"inefficient. Reduce the number of {what} in your tool schemas (limit: {limit})."
            )


def _nodes(schema: Json, where: str, depth: int = 0) -> Iterator[Json]:
    """Every schema object in `schema`, itself first."""
    if depth > MAX_DEPTH:
        invalid(f"{where}: JSON schema is invalid. It is nested too deeply.")
    yield schema
    for child in _children(schema, where):
        if isinstance(child, bool):
            continue
        yield from _nodes(an_object(child, where), where, depth + 1)


def _children(schema: Json, where: str) -> Iterator[Any]:
    for key in _SCHEMA_MAPS:
        yield from an_object(schema.get(key, {}), f"{where}.{key}").values()
    for key in _SCHEMA_LISTS:
        branches = schema.get(key, [])
        if not isinstance(branches, list):
            _not_a_schema(where)
        yield from branches
    for key in ("items", "additionalProperties"):
        if key in schema:
            yield schema[key]


def _not_a_schema(where: str) -> None:
    invalid(
        f"{where}: JSON schema is invalid. It must match JSON Schema draft 2020-12 "
        "(https://json-schema.org/draft/2020-12)."
    )


def _check_node(node: Json, where: str) -> None:
    types = node.get("type", [])
    types = types if isinstance(types, list) else [types]
    required = node.get("required", [])
    sound = (
        all(isinstance(name, str) and name in TYPES for name in types)
        and isinstance(required, list)
        and all(isinstance(name, str) for name in required)
        and isinstance(node.get("enum", []), list)
        and isinstance(node.get("description", ""), str)
        and isinstance(node.get("properties", {}), dict)
    )
    if not sound:
        _not_a_schema(where)
    for name in node.get("properties", {}):
        if not PROPERTY_NAME.fullmatch(name):
            invalid(
                f"{where}.properties: Property keys should match pattern "
                f"'^{PROPERTY_NAME.pattern}$'"
            )


def _check_strict_node(node: Json, where: str, total: Complexity) -> None:
    kind = node.get("type")
    unsupported = sorted(_UNSUPPORTED.intersection(node))
    if node.get("minItems", 0) not in (0, 1):
        unsupported.append("minItems")
    if unsupported:
        what, verb = ("properties", "are") if len(unsupported) > 1 else ("property", "is")
        invalid(
            f"{where}: For '{kind or 'any'}' type, {what} {', '.join(unsupported)} "
            f"{verb} not supported"
        )
    if kind == "string" and node.get("format", "date") not in FORMATS:
        invalid(f"{where}: For 'string' type, format {node['format']!r} is not supported")
    if "anyOf" in node or isinstance(kind, list):
        total.unions += 1
    if kind == "object":
        _check_strict_object(node, where, total)


def _check_strict_object(node: Json, where: str, total: Complexity) -> None:
    closed = node.get("additionalProperties")
    if closed is None:
        invalid(
            f"{where}: For 'object' type, 'additionalProperties' must be explicitly set to false"
        )
    if closed is not False:
        invalid(
            f"{where}: For 'object' type, 'additionalProperties: {closed}' is not supported. "
            "Please set 'additionalProperties' to false"
        )
    total.optional += len(set(node.get("properties", {})) - set(node.get("required", [])))


def _check_references(schema: Json, where: str) -> None:
    """Refuse references that leave the schema, lead nowhere, or lead back to themselves."""
    uses = {
        f"#/{key}/{name}": _references(part, where)
        for key in _DEFINITIONS
        for name, part in schema.get(key, {}).items()
        if isinstance(part, dict)
    }
    body = {key: value for key, value in schema.items() if key not in _DEFINITIONS}
    done: set[str] = set()
    for reference in _references(body, where):
        _follow(reference, uses, (), done, where)


def _references(schema: Json, where: str) -> list[str]:
    return [str(node["$ref"]) for node in _nodes(schema, where) if "$ref" in node]


def _follow(
    reference: str, uses: dict[str, list[str]], path: tuple[str, ...], done: set[str], where: str
) -> None:
    if reference in path:
        invalid(f"{where}: Circular reference detected in schema definitions: {reference}")
    if reference not in uses:
        invalid(f"{where}: Reference {reference!r} cannot be resolved inside the schema")
    if reference in done:
        return
    for further in uses[reference]:
        _follow(further, uses, (*path, reference), done, where)
    done.add(reference)
