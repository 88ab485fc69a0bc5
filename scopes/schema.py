"""JSON schemas of tools, as small as the Messages API takes them."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any

from pydantic import BaseModel


@cache  # pydantic takes a millisecond for each
def tool_schema(
    name: str, description: str, model: type[BaseModel], *, strict: bool = False
) -> dict[str, Any]:
    """Return the tool as the Messages API takes it; the same object each time, not to be changed.

    Titles and defaults are left out to save tokens; `strict` makes the API hold to the schema
    (unknown arguments of other tools are refused by the gate).
    """
    raw = model.model_json_schema()
    schema = _compact(raw, raw.get("$defs", {}), strict)
    schema.setdefault("properties", {})
    schema.pop("description", None)
    head = {"name": name, "description": description, "input_schema": schema}
    return {**head, "strict": True} if strict else head


DROPPED = frozenset(
    {"title", "default", "$defs", "minLength", "maxLength", "maxItems", "minItems"}
    | {"additionalProperties"}
)
"""Keywords that cost tokens or that strict schemas refuse; pydantic still enforces them."""

UNSTRICT = frozenset({"minimum", "maximum"})
"""Keywords that only strict schemas refuse."""


def _compact(node: Any, defs: Mapping[str, Any], strict: bool) -> Any:
    if isinstance(node, list):
        return [_compact(child, defs, strict) for child in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _compact(defs[node["$ref"].rsplit("/", 1)[1]], defs, strict)
    dropped = DROPPED | UNSTRICT if strict else DROPPED
    kept = {k: _compact(v, defs, strict) for k, v in node.items() if k not in dropped}
    if "properties" in node:
        properties = node["properties"].items()
        kept["properties"] = {name: _compact(child, defs, strict) for name, child in properties}
    if strict and kept.get("type") == "object":
        kept["additionalProperties"] = False
    return kept
