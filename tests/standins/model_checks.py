"""Checks of a request as the Messages API makes them, with its error messages.

The shapes are pydantic models, as the API's own are; the rules between fields are functions.
Sources: the API reference and the models' migration guides on platform.claude.com, and the exact
messages as users of the API quote them.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    Tag,
    TypeAdapter,
    ValidationError,
)

from bot.local.model.usage import as_blocks
from standins.model_errors import ApiRefusal, Json, invalid
from standins.model_schema import (
    Complexity,
    check_complexity,
    check_input_schema,
    check_strict_schema,
)

MAX_CACHE_MARKS = 4


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


# ---- shapes


class Shape(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class CacheMark(Shape):
    """For five minutes."""

    type: Literal["ephemeral"]


class Marked(Shape):
    cache_control: CacheMark | None = None


class Text(Marked):
    type: Literal["text"]
    text: str
    citations: list[Any] | None = None


class Image(Marked):
    type: Literal["image"]
    source: dict[str, Any]


class Thinking(Shape):
    type: Literal["thinking"]
    thinking: str
    signature: str


class ToolUse(Marked):
    type: Literal["tool_use", "server_tool_use"]
    id: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]+$")]
    name: str
    input: dict[str, Any]
    caller: Any = None
    toolset_name: str | None = None


class ServerResult(BaseModel):
    """The result of a server tool, which is not checked."""

    type: str


class ToolResult(Marked):
    type: Literal["tool_result"]
    tool_use_id: str
    content: Annotated[
        list[Annotated[Text | Image, Discriminator("type")]] | None, BeforeValidator(as_blocks)
    ] = None
    is_error: bool | None = None
    toolset_name: str | None = None


def _kind(block: Any) -> str | None:
    kind = block.get("type") if isinstance(block, dict) else getattr(block, "type", None)
    is_server = isinstance(kind, str) and kind.endswith("_tool_result")
    return "server_result" if is_server else kind


Block = Annotated[
    Annotated[Text, Tag("text")]
    | Annotated[Image, Tag("image")]
    | Annotated[Thinking, Tag("thinking")]
    | Annotated[ToolUse, Tag("tool_use")]
    | Annotated[ToolUse, Tag("server_tool_use")]
    | Annotated[ToolResult, Tag("tool_result")]
    | Annotated[ServerResult, Tag("server_result")],
    Discriminator(_kind),
]


def _content(value: Any) -> Any:
    """The blocks of a message; of an empty string none."""
    return as_blocks(value) if value else []


class Turn(Shape):
    role: Literal["user", "assistant"]
    content: Annotated[list[Block], BeforeValidator(_content)]


class Tool(Marked):
    name: Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,128}$")]
    input_schema: dict[str, Any]
    description: str = ""
    strict: bool = False
    type: Literal["custom"] | None = None


class ServerTool(BaseModel):
    """A tool known by its dated type, and not checked further."""

    type: Annotated[str, Field(pattern=r"^[a-z0-9_]+_\d{8}$")]
    name: str = ""


def _tool(value: Any) -> str:
    return "custom" if (value.get("type") or "custom") == "custom" else "server"


Tools = TypeAdapter(
    list[
        Annotated[
            Annotated[Tool, Tag("custom")] | Annotated[ServerTool, Tag("server")],
            Discriminator(_tool),
        ]
    ]
)


class ThinkingConfig(Shape):
    type: Literal["adaptive", "between_tools", "disabled", "enabled"]
    display: str | None = None
    budget_tokens: int | None = None


class OutputConfig(Shape):
    effort: Literal["low", "medium", "high", "xhigh", "max"] | None = None


class MessageRequest(Shape):
    """What the product sends; other fields of the API are refused, too."""

    model: str
    max_tokens: Annotated[int, Field(ge=0)]
    messages: list[Turn]
    system: Annotated[list[Text] | None, BeforeValidator(_content)] = None
    tools: list[Any] | None = None
    thinking: ThinkingConfig | None = None
    output_config: OutputConfig | None = None
    cache_control: CacheMark | None = None
    stream: bool = False


def _refuse(error: ValidationError, *place: str) -> None:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in (*place, *first["loc"])) or "body"
    invalid(f"{where}: {first['msg']}")


# ---- rules


def check_message_request(body: Any) -> Rules:
    """The rules of the request's model; raises `ApiRefusal` when the API would not take `body`."""
    try:
        request = MessageRequest.model_validate(body)
    except ValidationError as error:
        _refuse(error)
        raise
    rules = MODELS.get(request.model)
    if rules is None:
        raise ApiRefusal(404, "not_found_error", f"model: {request.model}")
    for block in request.system or ():
        _check_text(block, "system")
    if request.tools:
        _check_tools(json.dumps(request.tools))
    if request.thinking:
        _check_thinking(request.thinking.type, effort_of(body, rules), rules)
    _Turns().check(request.messages)
    if request.max_tokens > rules.max_output_tokens:
        invalid(
            f"max_tokens: {request.max_tokens} > {rules.max_output_tokens}, which is the maximum "
            f"allowed number of output tokens for {request.model}"
        )
    return rules


def effort_of(body: Json, rules: Rules) -> str:
    """The effort that the request asks for, or its model's default."""
    config = body.get("output_config") or {}
    return str(config.get("effort") or rules.default_effort)


@lru_cache(maxsize=128)
def _check_tools(tools: str) -> None:
    """Cached, because every request of a conversation repeats its tools."""
    try:
        offered = Tools.validate_python(json.loads(tools))
    except ValidationError as error:
        _refuse(error, "tools")
        raise
    names = [tool.name or tool.type for tool in offered]
    if len(set(names)) < len(names):
        invalid("tools: Tool names must be unique.")
    total, strict = Complexity(), 0
    for n, tool in enumerate(offered):
        if isinstance(tool, Tool):
            where = f"tools.{n}.custom"
            check_input_schema(tool.input_schema, f"{where}.input_schema")
            if tool.strict:
                strict += 1
                check_strict_schema(tool.input_schema, where, total)
    check_complexity(total, strict)


def _check_thinking(kind: str, effort: str, rules: Rules) -> None:
    if kind == "disabled" and "between_tools" in rules.thinking:
        invalid(
            '"thinking.type.disabled" is not supported for this model. To turn thinking off on '
            'this model, send "thinking": {"type": "between_tools"}.'
        )
    if kind not in rules.thinking:
        invalid(
            f'"thinking.type.{kind}" is not supported for this model. Use "thinking.type.adaptive" '
            'and "output_config.effort" to control thinking behavior.'
        )
    if kind in ("disabled", "between_tools") and effort in ("xhigh", "max"):
        state = "disabled" if kind == "disabled" else 'set to "between_tools"'
        invalid(
            f"output_config.effort '{effort}' is not supported when thinking is {state} on this "
            "model. Use effort 'high' or below, or enable thinking."
        )


def _check_text(block: Text, where: str) -> None:
    if not block.text and block.cache_control:
        invalid(f"{where}.text: cache_control cannot be set for empty text blocks")
    if not block.text:
        invalid(f"{where}: text content blocks must be non-empty")
    if block.text.isspace():
        invalid(f"{where}: text content blocks must contain non-whitespace text")


@dataclass
class _Turns:
    """The conversation so far; consecutive messages of one role are one turn."""

    used: set[str] = field(default_factory=set)
    """Ids of all calls."""
    answered: set[str] = field(default_factory=set)
    turn: set[str] = field(default_factory=set)
    """Ids of the calls of the last assistant turn."""
    open: dict[str, None] = field(default_factory=dict)
    """Those of them that have no result yet."""
    place: str = ""
    """Their place in the request."""

    def check(self, messages: Sequence[Turn]) -> None:
        if not messages:
            invalid("messages: at least one message is required")
        if messages[0].role == "assistant":
            invalid('messages: first message must use the "user" role')
        role = ""
        for n, message in enumerate(messages):
            if not message.content:
                invalid(f"messages.{n}: all messages must have non-empty content")
            if message.role == "assistant" and role != "assistant":
                self._refuse_open_calls()
                self.turn = set()
            role = message.role
            for k, block in enumerate(message.content):
                where = f"messages.{n}.content.{k}"
                (self._reply if role == "assistant" else self._user)(block, where)
                if isinstance(block, Text):
                    _check_text(block, "messages")
        self._refuse_open_calls()
        paused = messages[-1].content[-1].type == "server_tool_use"  # sent back as it came
        if role == "assistant" and not paused:
            invalid(
                "This model does not support assistant message prefill. "
                "The conversation must end with a user message."
            )

    def _reply(self, block: Any, where: str) -> None:
        if isinstance(block, Image | ToolResult):
            invalid(f"{where}: `{block.type}` blocks are not allowed in assistant messages")
        if not isinstance(block, ToolUse):
            return
        if block.id in self.used:
            invalid(f"{where}: `tool_use` ids must be unique")
        self.used.add(block.id)
        if block.type == "tool_use":
            self.open[block.id] = None
            self.turn.add(block.id)
            self.place = where.rsplit(".content", 1)[0]

    def _user(self, block: Any, where: str) -> None:
        if not isinstance(block, Text | Image | ToolResult):
            invalid(f"{where}: `{block.type}` blocks are not allowed in user messages")
        if isinstance(block, Text) and block.citations:
            invalid(f"{where}.citations: citations are not allowed in user messages")
        if isinstance(block, ToolResult):
            self._result(block, where)
        else:
            self._refuse_open_calls()

    def _result(self, block: ToolResult, where: str) -> None:
        name = block.tool_use_id
        if name in self.answered:
            invalid(
                f"{where}: each tool_use must have a single result. "
                f"Found multiple `tool_result` blocks with id: {name}"
            )
        if name not in self.turn:
            invalid(
                f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {name}. Each "
                "`tool_result` block must have a corresponding `tool_use` block in the previous "
                "message."
            )
        self.answered.add(name)
        self.open.pop(name, None)
        for part in block.content or ():
            if isinstance(part, Text) and not part.text:
                invalid(f"{where}.tool_result: text content blocks must be non-empty")

    def _refuse_open_calls(self) -> None:
        """Refuse to go on while results are due."""
        if self.open:
            invalid(
                f"{self.place}: `tool_use` ids were found without `tool_result` blocks immediately "
                f"after: {', '.join(self.open)}. Each `tool_use` block must have a corresponding "
                "`tool_result` block in the next message."
            )
