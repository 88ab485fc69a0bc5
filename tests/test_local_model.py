"""The offline model's protocol, checked with the real SDK and its types."""

import json
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import Message, RawMessageStreamEvent
from pydantic import TypeAdapter
from standins.model import ModelServer, Responder
from standins.model_errors import Json
from standins.model_faults import KINDS, Fault, Faults
from timing import WAIT_S

from bot.local.model.answer import Answer
from bot.local.server import LocalServer

MESSAGE: TypeAdapter[Message] = TypeAdapter(Message)
EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)
SONNET, HAIKU, OPUS = "claude-sonnet-5-5", "claude-haiku-5-5", "claude-opus-5-5"
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


@contextmanager
def model_url(server: ModelServer) -> Iterator[str]:
    with LocalServer(server.app, "model") as local:
        yield local.url


@asynccontextmanager
async def sdk(server: ModelServer) -> AsyncIterator[anthropic.AsyncAnthropic]:
    with model_url(server) as url:
        async with anthropic.AsyncAnthropic(
            api_key="k",
            base_url=url,
            max_retries=0,
            http_client=anthropic.DefaultAioHttpClient(),
        ) as client:
            yield client


@asynccontextmanager
async def raw(server: ModelServer) -> AsyncIterator[Callable[..., Any]]:
    """Yield a function that posts a body to /v1/messages as it is."""
    with model_url(server) as url:
        async with httpx2.AsyncClient(base_url=url, headers=HEADERS, timeout=WAIT_S) as client:

            async def post(body: Json) -> httpx2.Response:
                return await client.post("/v1/messages", json=body)

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
    async with sdk(server) as client, client.messages.stream(**ask(**fields)) as stream:
        message: Json = (await stream.get_final_message()).to_dict(mode="json")
    for block in [*message["content"], *plain["content"]]:
        block.pop("id", None)
    for key in ("content", "usage", "stop_reason"):
        assert message[key] == plain[key]


BETWEEN = {"type": "between_tools"}
MARK = {"type": "ephemeral"}
OPEN = {"properties": {}, "additionalProperties": False}
REFUSED: list[tuple[Json, str]] = [
    (ask(thinking={"type": "disabled"}), '{"type": "between_tools"}'),
    (ask(model=OPUS, thinking={"type": "disabled"}), "thinking.type.adaptive"),
    (ask(model=OPUS, thinking=BETWEEN), "thinking.type.adaptive"),
    (ask(thinking={"type": "enabled", "budget_tokens": 2000}), "thinking.type.enabled"),
    (ask(thinking=BETWEEN, output_config={"effort": "max"}), "'max' is not supported"),
    (
        ask(model=HAIKU, thinking={"type": "disabled"}, output_config={"effort": "xhigh"}),
        "'xhigh' is not supported when thinking is disabled",
    ),
    (talk(assistant(text("Sure"))), "does not support assistant message prefill"),
    (ask(temperature=1), "temperature: Extra inputs"),
    ({"model": SONNET, "messages": [user(text("a"))]}, "max_tokens: Field required"),
    (ask(max_tokens="9"), "max_tokens: Input should be a valid integer"),
    (ask(max_tokens=-1), "max_tokens: Input should be greater"),
    (ask(max_tokens=128_001), "128001 > 128000, which is the maximum"),
    (ask(model="claude-haiku-4-5", max_tokens=64_001), "64001 > 64000, which is the maximum"),
    (ask(model="claude-haiku-4-5", thinking={"type": "adaptive"}), "thinking.type.adaptive"),
    (ask(max_tokens=200_000), "200000 > 128000"),
    (ask(messages=[]), "at least one message is required"),
    (ask(messages=[assistant(text("a")), user(text("b"))]), "first message must use"),
    (ask(""), "non-empty content"),
    (ask(messages=[user()]), "non-empty content"),
    (ask(messages=[user(text(""))]), "text content blocks must be non-empty"),
    (ask(messages=[user(text(" \n"))]), "must contain non-whitespace text"),
    (ask(messages=[user(text("", cache_control=MARK))]), "cannot be set for empty text blocks"),
    (ask(messages=[{"role": "user", "content": "a", "name": "x"}]), "name: Extra inputs"),
    (ask(messages=[user({"type": "video"})]), "Input tag 'video'"),
    (ask(messages=[user(text("a", citations=[{"type": "char_location"}]))]), "citations"),
    (ask(messages=[user(call())]), "`tool_use` blocks are not allowed in user messages"),
    (ask(messages=[{"role": "system", "content": "b"}]), "role: Input should be 'user' or"),
    (ask(system=[text("")]), "system: text content blocks must be non-empty"),
    (talk(assistant({"type": "image", "source": {}})), "not allowed in assistant messages"),
    (talk(assistant(call())), "without `tool_result` blocks immediately after: t1"),
    (talk(assistant(call()), user(text("a"), result())), "without `tool_result` blocks"),
    (talk(assistant(call(), call("t2")), user(result("t2"))), "immediately after: t1"),
    (talk(assistant(text("a")), user(result())), "messages.2.content.0: unexpected `tool_use_id`"),
    (talk(assistant(call()), user(result(), result())), "must have a single result"),
    (talk(assistant(call(), call()), user(result())), "`tool_use` ids must be unique"),
    (talk(assistant(call("a b")), user(result("a b"))), "tool_use.id: String should match pattern"),
    (talk(assistant(call(input="x")), user(result())), "input: Input should be a valid dictionary"),
    (ask(tools=[TOOL, TOOL]), "Tool names must be unique"),
    (ask(tools=[tool(name="a.b")]), "tools.0.custom.name: String should match pattern"),
    (ask(tools=[tool(colour="red")]), "tools.0.custom.colour: Extra inputs"),
    (ask(tools=[{"name": "look"}]), "input_schema: Field required"),
    (ask(tools=[tool(input_schema={})]), "input_schema.type: Field required"),
    (ask(tools=[tool(input_schema={"type": "string"})]), "Input should be 'object'"),
    (ask(tools=[tool(input_schema={"type": "object", "anyOf": []})]), "at the top level"),
    (
        ask(tools=[tool(input_schema={"type": "object", "properties": {"a": {"type": "str"}}})]),
        "JSON schema is invalid",
    ),
    (strict({}), "'additionalProperties' must be explicitly set to false"),
    (strict({"additionalProperties": True}), "'additionalProperties: True' is not supported"),
    (
        strict({**OPEN, "properties": {"a": {"type": "integer", "minimum": 1, "maximum": 2}}}),
        "For 'integer' type, properties maximum, minimum are not supported",
    ),
    (strict({**OPEN, "properties": {"a": {"type": "object"}}}), "explicitly set to false"),
    (
        strict({**OPEN, "properties": {"a": {"type": "array", "minItems": 2}}}),
        "property minItems is not supported",
    ),
    (strict({**OPEN, "properties": {f"p{n}": {} for n in range(25)}}), "(limit: 24)"),
    (
        strict(
            {**OPEN, "$defs": {"n": {"items": {"$ref": "#/$defs/n"}}}}
            | {"properties": {"a": {"$ref": "#/$defs/n"}}}
        ),
        "Circular reference",
    ),
    (ask(output_config={"effort": "huge"}), "output_config.effort: Input should be"),
    (ask(system=[text(str(n), cache_control=MARK) for n in range(5)]), "A maximum of 4 blocks"),
    (ask(system=[text("a", cache_control={"type": "forever"})]), "Input should be 'ephemeral'"),
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


ACCEPTED = [
    ask(messages=[user(text("a")), user(text("b"))]),
    talk(assistant(text("a")), assistant(call()), user(result()), user(text("next"))),
    talk(assistant(call(), call("t2")), user(result("t2")), user(result(content=[text("a")]))),
    talk(assistant(text("a"), {**call("s1"), "type": "server_tool_use", "name": "web_search"})),
    ask(model=HAIKU, thinking={"type": "disabled"}, tools=[TOOL], system=""),
    ask(thinking=BETWEEN, output_config={"effort": "high"}),
    *(ask(model=f"claude-{name}") for name in ("sonnet-5", "opus-5", "haiku-4-5")),
    strict(
        {**OPEN, "$defs": {"n": {"enum": [1, None]}}, "required": ["a"]}
        | {"properties": {"a": {"$ref": "#/$defs/n"}, "b": {"anyOf": [{"type": "null"}]}}}
    ),
    ask(tools=[{"type": "web_search_20260318", "name": "web_search"}]),
]


async def test_valid_requests_are_accepted() -> None:
    async with raw(ModelServer(say("ok"))) as post:
        for body in ACCEPTED:
            response = await post(body)
            assert response.status_code == 200, response.text


THOUGHT = Answer(
    [
        {"type": "thinking", "thinking": "Which tool?"},
        {"type": "tool_use", "name": "look", "input": {"q": "a"}},
    ]
)


async def _two_turns(post: Callable[..., Any], **fields: Any) -> Json:
    """Return a conversation whose two replies begin with thinking blocks."""
    body = talk(**{"system": "Be brief.", **fields})
    for _ in range(2):
        reply = (await post(body)).json()["content"]
        results = [result(b["id"]) for b in reply if b["type"] == "tool_use"]
        body["messages"] += [assistant(*reply), user(*results)]
    return body


Change = Callable[[Json], object]


CHANGES: dict[str, tuple[Change, str]] = {
    "edited": (
        lambda b: b["messages"][1]["content"][0].update(thinking="x"),
        "Invalid `signature`",
    ),
    "forged": (
        lambda b: b["messages"][1]["content"][0].update(signature="x"),
        "Invalid `signature`",
    ),
    "system": (lambda b: b.update(system="Be long."), "different conversation"),
    "tools": (lambda b: b.update(tools=[tool(description="new")]), "different conversation"),
    "question": (lambda b: b["messages"][0].update(content="Bye"), "different conversation"),
    "result": (
        lambda b: b["messages"][2]["content"][0].update(content="x"),
        "different conversation",
    ),
    "middle": (lambda b: b["messages"].insert(3, user(text("x"))), "different conversation"),
}


@pytest.mark.parametrize(("change", "fragment"), CHANGES.values(), ids=CHANGES)
async def test_history_under_thinking_blocks_is_append_only(change: Change, fragment: str) -> None:
    async with raw(ModelServer(lambda request: THOUGHT)) as post:
        body = await _two_turns(post)
        change(body)
        response = await post(body)
    assert response.status_code == 400
    assert fragment in response.json()["error"]["message"]


RAISES: dict[str, type[Exception]] = {
    "http_429": anthropic.RateLimitError,
    "http_529": anthropic.OverloadedError,
    "http_500": anthropic.InternalServerError,
    "drop": anthropic.APIConnectionError,
    "slow": anthropic.APIConnectionError,
    "sse_error": anthropic.APIStatusError,
    "drop_stream": httpx2.ReadError,
    "malformed": json.JSONDecodeError,
}
RAISES_WHOLE = {
    **RAISES,
    "sse_error": anthropic.OverloadedError,
    "drop_stream": anthropic.APIConnectionError,
}
"""The same where nothing is streamed."""
STOPS = {
    "empty": "end_turn",
    "max_tokens": "max_tokens",
    "refusal": "refusal",
    "pause_turn": "pause_turn",
    "context_window": "model_context_window_exceeded",
}


@pytest.mark.parametrize("streams", [True, False], ids=["stream", "whole"])
@pytest.mark.parametrize("kind", KINDS)
async def test_injected_faults_reach_the_sdk_like_real_ones(kind: str, streams: bool) -> None:
    faults = Faults([None, Fault(kind, seconds=0.2), None])
    server = ModelServer(lambda request: RICH, faults=faults)
    async with sdk(server) as client:

        async def once() -> Message:
            if not streams:
                return await client.messages.create(**ask(tools=[TOOL]))
            async with client.messages.stream(**ask(tools=[TOOL])) as stream:
                return await stream.get_final_message()

        await once()
        if raises := (RAISES if streams else RAISES_WHOLE).get(kind):
            with pytest.raises(raises) as failed:
                await once()
            assert type(failed.value) is raises
            if streams and kind == "sse_error":
                assert isinstance(failed.value, anthropic.APIStatusError)
                assert (failed.value.status_code, failed.value.type) == (200, "overloaded_error")
        else:
            message = await once()
            assert message.stop_reason == STOPS[kind]
            assert (message.content == []) == (kind in ("empty", "refusal"))
        assert (await once()).stop_reason == "tool_use"
