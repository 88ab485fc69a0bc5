"""The protocol of the local model: its answers fit the SDK, its refusals those of the API."""

import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import anthropic
import httpx2
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter
from standins.model import ModelServer, Responder
from standins.model_errors import Json
from timing import WAIT_S

from bot.local.model.answer import Answer
from bot.local.server import LocalServer

MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
SONNET, OPUS = "claude-sonnet-5-5", "claude-opus-5-5"
HEADERS = {"authorization": "Bearer k", "anthropic-version": "2026-10-21"}
TOOL = {
    "name": "look",
    "input_schema": {"type": "object", "properties": {"q": {"type": "string"}}},
}
RICH = Answer(
    [
        {"type": "thinking", "thinking": "Let me see what there is."},
        {"type": "text", "text": "I look at both. " * 10},
        {"type": "tool_use", "name": "look", "input": {"q": "señal", "n": 1}},
        {"type": "tool_use", "name": "look", "input": {}},
    ]
)


def say(text: str) -> Responder:
    return lambda request: Answer([{"type": "text", "text": text}])


def ask(question: str = "Hello", /, **fields: Any) -> Json:
    messages = [{"role": "user", "content": question}]
    return {"model": SONNET, "max_tokens": 1000, "messages": messages, **fields}


def user(*blocks: Json) -> Json:
    return {"role": "user", "content": list(blocks)}


def assistant(*blocks: Json) -> Json:
    return {"role": "assistant", "content": list(blocks)}


def text(value: str, **fields: Any) -> Json:
    return {"type": "text", "text": value, **fields}


def call(name: str = "t1", **fields: Any) -> Json:
    return {"type": "tool_use", "id": name, "name": "look", "input": {}, **fields}


def result(name: str = "t1", **fields: Any) -> Json:
    return {"type": "tool_result", "tool_use_id": name, "content": "seen", **fields}


def tool(**fields: Any) -> Json:
    return {**TOOL, **fields}


def strict(schema: Json) -> Json:
    return ask(tools=[tool(strict=True, input_schema={"type": "object", **schema})])


def talk(*messages: Json, **fields: Any) -> Json:
    opening = {"role": "user", "content": "Hello"}
    return ask(**{"tools": [TOOL], **fields}) | {"messages": [opening, *messages]}


@asynccontextmanager
async def raw(server: ModelServer) -> AsyncIterator[Callable[..., Any]]:
    """Yield a function that posts a body to /v1/messages as it is."""
    with LocalServer(server.app, "model") as local:
        async with httpx2.AsyncClient(base_url=local.url, headers=HEADERS, timeout=WAIT_S) as http:

            async def post(body: Json) -> httpx2.Response:
                return await http.post("/v1/messages", json=body)

            yield post


def events_of(response: httpx2.Response) -> list[Json]:
    lines = response.text.split("\n")
    data = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [line[7:] for line in lines if line.startswith("event: ")] == [d["type"] for d in data]
    return data


async def test_answers_match_the_sdk_types_streamed_and_unstreamed() -> None:
    server = ModelServer(lambda request: RICH)
    fields: Json = {"thinking": {"type": "adaptive", "display": "summarized"}, "tools": [TOOL]}
    async with raw(server) as post:
        hidden = (await post(ask(tools=[TOOL]))).json()
        plain = (await post(ask(**fields))).json()
        events = events_of(await post(ask(stream=True, **fields)))
    assert MESSAGE.validate_python(plain, strict=True).stop_reason == "tool_use"
    kinds = [block["type"] for block in plain["content"]]
    assert kinds == ["thinking", "text", "tool_use", "tool_use"]
    assert hidden["content"][0]["thinking"] == ""  # omitted unless asked for
    assert len({block["id"] for block in plain["content"] if "id" in block}) == 2
    for event in events:
        if event["type"] != "ping":
            EVENT.validate_python(event, strict=True)
    kinds = [event["type"] for event in events]
    assert kinds[:3] == ["message_start", "content_block_start", "ping"]
    assert kinds[-2:] == ["message_delta", "message_stop"]
    opened = [e["index"] for e in events if e["type"] == "content_block_start"]
    closed = [e["index"] for e in events if e["type"] == "content_block_stop"]
    assert opened == closed == [0, 1, 2, 3]
    with LocalServer(server.app, "model") as local:
        http = anthropic.DefaultAioHttpClient()
        async with (
            anthropic.AsyncAnthropic(api_key="k", base_url=local.url, http_client=http) as client,
            client.messages.stream(**ask(**fields)) as stream,
        ):
            message: Json = (await stream.get_final_message()).to_dict(mode="json")
    for block in [*message["content"], *plain["content"]]:
        block.pop("id", None)
    for key in ("content", "usage", "stop_reason"):
        assert message[key] == plain[key]


MARK = {"type": "ephemeral"}
OPEN = {"properties": {}, "additionalProperties": False}
REFUSED: list[tuple[Json, str]] = [
    (ask(thinking={"type": "disabled"}), '{"type": "between_tools"}'),
    (ask(model=OPUS, thinking={"type": "disabled"}), "thinking.type.adaptive"),
    (ask(output_config={"effort": "huge"}), "output_config.effort: Input should be"),
    (ask(temperature=1), "temperature: Extra inputs"),
    (ask(max_tokens=128_001), "128001 > 128000, which is the maximum"),
    (ask(messages=[assistant(text("a")), user(text("b"))]), "first message must use"),
    (talk(assistant(text("Sure"))), "does not support assistant message prefill"),
    (ask(messages=[user()]), "non-empty content"),
    (ask(messages=[user(text(" \n"))]), "must contain non-whitespace text"),
    (talk(assistant(call())), "without `tool_result` blocks immediately after: t1"),
    (talk(assistant(call()), user(text("a"), result())), "without `tool_result` blocks"),
    (talk(assistant(text("a")), user(result())), "messages.2.content.0: unexpected `tool_use_id`"),
    (talk(assistant(call()), user(result(), result())), "must have a single result"),
    (talk(assistant(call(), call()), user(result())), "`tool_use` ids must be unique"),
    (ask(tools=[TOOL, TOOL]), "Tool names must be unique"),
    (ask(tools=[tool(name="a.b")]), "tools.0.custom.name: String should match pattern"),
    (ask(tools=[tool(input_schema={"type": "object", "anyOf": []})]), "at the top level"),
    (strict({}), "'additionalProperties' must be explicitly set to false"),
    (
        strict({**OPEN, "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 2}}}),
        "For 'integer' type, properties maximum, minimum are not supported",
    ),
    (strict({**OPEN, "properties": {f"p{n}": {} for n in range(25)}}), "(limit: 24)"),
    (ask(system=[text(str(n), cache_control=MARK) for n in range(5)]), "A maximum of 4 blocks"),
    (ask("word " * 700_000), "prompt is too long"),
]


async def test_invalid_requests_are_rejected_with_the_api_status_and_type() -> None:
    server = ModelServer(say("ok"))
    async with raw(server) as post:
        for body, fragment in REFUSED:
            response = await post(body)
            error = response.json()
            assert response.status_code == 400, (fragment, error)
            assert error["type"] == "error"
            assert error["error"]["type"] == "invalid_request_error"
            assert fragment in error["error"]["message"]
            assert error["request_id"] == response.headers["request-id"]
