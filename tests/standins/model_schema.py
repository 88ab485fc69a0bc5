"""What the API refuses in a JSON schema of a tool, and of a strict tool."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from jsonschema import Draft202012Validator, SchemaError

from standins.model_errors import Json, invalid

PROPERTY_NAME = re.compile(r"[a-zA-Z0-9_.-]{1,64}")
FORMATS = frozenset("date-time time date duration email hostname uri ipv4 ipv6 uuid".split())
MAX_DEPTH = 64
# Limits of one request (platform.claude.com, strict tool use, "schema complexity limits").
MAX_STRICT_TOOLS = 20
MAX_OPTIONAL = 24
MAX_UNIONS = 16

_UNSUPPORTED = frozenset(
    """minimum maximum exclusiveMinimum exclusiveMaximum multipleOf minLength maxLength
    contentEncoding contentMediaType maxItems uniqueItems contains minContains maxContains
    prefixItems minProperties maxProperties patternProperties propertyNames dependentRequired
    dependentSchemas unevaluatedProperties oneOf not if then else""".split()
)
_LISTS = ("anyOf", "allOf", "oneOf")
_DEFINITIONS = ("$defs", "definitions")


@dataclass
class Complexity:
    """The sums of the strict schemas of one request."""

    optional: int = 0
    unions: int = 0


def check_input_schema(schema: Json, where: str) -> None:
    """Refuse a tool's input schema that is not a JSON schema of an object."""
    if "type" not in schema:
        invalid(f"{where}.type: Field required")
    if schema["type"] != "object":
        invalid(f"{where}.type: Input should be 'object'")
    if any(key in schema for key in _LISTS):
        invalid(f"{where}: input_schema does not support oneOf, allOf, or anyOf at the top level")
    try:
        Draft202012Validator.check_schema(schema)
    except (SchemaError, RecursionError):
        invalid(
            f"{where}: JSON schema is invalid. It must match JSON Schema draft 2020-12 "
            "(https://json-schema.org/draft/2020-12)."
        )
    for node in _nodes(schema, where):
        for name in node.get("properties", {}):
            if not PROPERTY_NAME.fullmatch(name):
                pattern = f"'^{PROPERTY_NAME.pattern}$'"
                invalid(f"{where}.properties: Property keys should match pattern {pattern}")


def check_strict_schema(schema: Json, where: str, total: Complexity) -> None:
    """Refuse what constrained decoding does not support, and add up the schema's complexity."""
    for node in _nodes(schema, where):
        _check_strict_node(node, where, total)


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
    """Yield every schema object in `schema`, itself first."""
    if depth > MAX_DEPTH:
        invalid(f"{where}: JSON schema is invalid. It is nested too deeply.")
    yield schema
    children = [
        each for key in ("properties", *_DEFINITIONS) for each in schema.get(key, {}).values()
    ]
    children += [each for key in _LISTS for each in schema.get(key, [])]
    children += [schema[key] for key in ("items", "additionalProperties") if key in schema]
    for child in children:
        if not isinstance(child, bool):
            yield from _nodes(child, where, depth + 1)


def _check_strict_node(node: Json, where: str, total: Complexity) -> None:
    kind = node.get("type")
    unsupported = sorted(_UNSUPPORTED.intersection(node))
    if node.get("minItems", 0) not in (0, 1):
        unsupported.append("minItems")
    if unsupported:
        what, verb = ("properties", "are") if len(unsupported) > 1 else ("property", "is")
        problem = f"{what} {', '.join(unsupported)} {verb} not supported"
        invalid(f"{where}: For '{kind or 'any'}' type, {problem}")
    if kind == "string" and node.get("format", "date") not in FORMATS:
        invalid(f"{where}: For 'string' type, format {node['format']!r} is not supported")
    if "anyOf" in node or isinstance(kind, list):
        total.unions += 1
    if kind != "object":
        return
    closed = node.get("additionalProperties")
    if closed is None:
        problem = "'additionalProperties' must be explicitly set to false"
        invalid(f"{where}: For 'object' type, {problem}")
    if closed is not False:
        invalid(
            f"{where}: For 'object' type, 'additionalProperties: {closed}' is not supported. "
            "Please set 'additionalProperties' to false"
        )
    total.optional += len(set(node.get("properties", {})) - set(node.get("required", [])))
