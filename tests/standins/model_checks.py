"""What the Messages API refuses in a request's fields, tools and settings, and how it says so.

Sources: the API reference and the models' migration guides on platform.claude.com, and the exact
messages as users of the API quote them.
"""

import json
import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

from standins.model_errors import Json, Refused, a_list, a_string, an_object, invalid, one_of, only
from standins.model_schema import (
    Complexity,
    check_complexity,
    check_input_schema,
    check_strict_schema,
)
from standins.model_turns import check_cache_control, check_messages, check_texts

EFFORTS = ("low", "medium", "high", "xhigh", "max")
THINKING = ("adaptive", "between_tools", "disabled", "enabled")
TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,128}")
SERVER_TOOL = re.compile(r"[a-z0-9_]+_\d{8}")


@dataclass(frozen=True)
class Rules:
    """What one model accepts; source: the models' migration guides on platform.claude.com."""

    thinking: frozenset[str]
    """The accepted values of `thinking.type`."""
    default_effort: str = "high"
    max_output_tokens: int = 128_000
    context_tokens: int = 1_000_000


MODELS = {
    "claude-sonnet-5-5": Rules(frozenset({"adaptive", "between_tools"})),
    "claude-opus-5-5": Rules(frozenset({"adaptive"}), "medium"),
    "claude-haiku-5-5": Rules(frozenset({"adaptive", "disabled"}), "medium"),
    "claude-sonnet-5": Rules(frozenset({"adaptive", "disabled"})),
    "claude-opus-5": Rules(frozenset({"adaptive", "disabled"})),
    "claude-haiku-4-5": Rules(
        frozenset({"disabled"}), max_output_tokens=64_000, context_tokens=200_000
    ),
}
"""What `models` in assistant.yaml may name: an offline run takes the same settings."""
_FIELDS = frozenset(
    {
        *("cache_control", "max_tokens", "messages", "model", "output_config", "stream"),
        *("system", "thinking", "tools"),
    }
)
"""What the product sends; other fields of the API are refused, too."""
_TOOL_FIELDS = frozenset(
    {
        *("allowed_callers", "cache_control", "defer_loading", "description"),
        *("eager_input_streaming", "input_examples", "input_schema", "name", "strict", "type"),
    }
)
_THINKING_FIELDS = frozenset({"type", "display"})


def check_message_request(body: Any) -> Rules:
    """The rules of the request's model; raises `Refused` when the API would not take `body`."""
    body = an_object(body, "body")
    only(body, _FIELDS, "")
    if "max_tokens" not in body:
        invalid("max_tokens: Field required")
    rules = _check_model(body)
    _check_system(body.get("system"))
    _check_tools(body)
    _check_effort(body.get("output_config"))
    _check_thinking(body, rules)
    check_cache_control(body, "")
    if "messages" not in body:
        invalid("messages: Field required")
    check_messages(body["messages"])
    _check_output_fields(body, rules)
    return rules


def effort_of(body: Json, rules: Rules) -> str:
    """The effort that the request asks for, or its model's default."""
    config = body.get("output_config") or {}
    return str(config.get("effort") or rules.default_effort)


def _check_model(body: Json) -> Rules:
    if "model" not in body:
        invalid("model: Field required")
    name = a_string(body["model"], "model")
    rules = MODELS.get(name)
    if rules is None:
        raise Refused(404, "not_found_error", f"model: {name}")
    return rules


def _check_output_fields(body: Json, rules: Rules) -> None:
    limit = body["max_tokens"]
    if not _is_int(limit):
        invalid("max_tokens: Input should be a valid integer")
    if limit < 0:
        invalid("max_tokens: Input should be greater than or equal to 0")
    if limit > rules.max_output_tokens:
        invalid(
            f"max_tokens: {limit} > {rules.max_output_tokens}, which is the maximum allowed "
            f"number of output tokens for {body['model']}"
        )
    if not isinstance(body.get("stream", False), bool):
        invalid("stream: Input should be a valid boolean")


def _check_system(system: Any) -> None:
    if system is not None and not isinstance(system, str):
        check_texts(system, "system")


def _check_tools(body: Json) -> None:
    if tools := a_list(body.get("tools") or [], "tools"):
        _checked_tools(json.dumps(tools))


@lru_cache(maxsize=128)
def _checked_tools(tools: str) -> None:
    """Cached, because every request of a conversation repeats its tools."""
    names: set[str] = set()
    total, strict = Complexity(), 0
    for n, value in enumerate(json.loads(tools)):
        tool = an_object(value, f"tools.{n}")
        check_cache_control(tool, f"tools.{n}.")
        name = _check_tool(tool, f"tools.{n}", total)
        if name in names:
            invalid("tools: Tool names must be unique.")
        names.add(name)
        strict += tool.get("strict") is True
    check_complexity(total, strict)


def _check_tool(tool: Json, where: str, total: Complexity) -> str:
    """The tool's name; server tools are known by their dated type and taken as they are."""
    kind = tool.get("type") or "custom"
    if kind != "custom":
        if not SERVER_TOOL.fullmatch(a_string(kind, f"{where}.type")):
            invalid(f"{where}: Input tag {kind!r} found using 'type' does not match any tool type")
        return str(tool.get("name", kind))
    where += ".custom"
    only(tool, _TOOL_FIELDS, f"{where}.")
    for name in ("name", "input_schema"):
        if name not in tool:
            invalid(f"{where}.{name}: Field required")
    if not TOOL_NAME.fullmatch(a_string(tool["name"], f"{where}.name")):
        invalid(f"{where}.name: String should match pattern '^{TOOL_NAME.pattern}$'")
    a_string(tool.get("description", ""), f"{where}.description")
    check_input_schema(tool["input_schema"], f"{where}.input_schema")
    if not isinstance(tool.get("strict", False), bool):
        invalid(f"{where}.strict: Input should be a valid boolean")
    if tool.get("strict"):
        check_strict_schema(tool["input_schema"], where, total)
    return str(tool["name"])


def _check_effort(config: Any) -> None:
    if config is None:
        return
    config = an_object(config, "output_config")
    only(config, frozenset({"effort"}), "output_config.")
    if config.get("effort") is not None:
        one_of(config["effort"], EFFORTS, "output_config.effort")


def _check_thinking(body: Json, rules: Rules) -> None:
    if body.get("thinking") is None:
        return
    thinking = an_object(body["thinking"], "thinking")
    kind = one_of(thinking.get("type"), THINKING, "thinking.type")
    if kind not in rules.thinking:
        invalid(_unsupported_thinking(kind, rules))
    only(thinking, _THINKING_FIELDS, f"thinking.{kind}.")
    effort = effort_of(body, rules)
    if kind in ("disabled", "between_tools") and effort in ("xhigh", "max"):
        state = "disabled" if kind == "disabled" else 'set to "between_tools"'
        invalid(
            f"output_config.effort '{effort}' is not supported when thinking is {state} on this "
            "model. Use effort 'high' or below, or enable thinking."
        )


def _unsupported_thinking(kind: str, rules: Rules) -> str:
    if kind == "disabled" and "between_tools" in rules.thinking:
        return (
            '"thinking.type.disabled" is not supported for this model. To turn thinking off on '
            'this model, send "thinking": {"type": "between_tools"}.'
        )
    return (
        f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive" '
        'and "output_config.effort" to control thinking behavior.'
    )


def _is_int(value: Any) -> TypeGuard[int]:
    return isinstance(value, int) and not isinstance(value, bool)
