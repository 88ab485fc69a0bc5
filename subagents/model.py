"""The Messages API: routing, request shapes, retries by error type, recording, exact cost."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import anthropic
import httpx2
from anthropic import APIConnectionError, APIStatusError

from config.sections import Models, Role
from scopes.tool import compact_json, estimate_tokens, readable
from subagents.brief import Block
from subagents.budget import NANOUSD_PER_USD, Amount
from subagents.conversation import Spec
from subagents.errors import ModelFailed, ModelMisconfigured
from subagents.prices import Usage, actual, cost_nanousd, worst_case
from subagents.providers import NO_CREDENTIALS, explicit_marks, open_client

if TYPE_CHECKING:
    from subagents.run import Run

RETRIED_ERROR_TYPES = frozenset(
    {
        *("rate_limit_error", "overloaded_error", "api_error", "timeout_error"),
        *("internalServerException", "modelStreamErrorException", "modelTimeoutException"),
        "serviceUnavailableException",
    }
)
"""Error types worth a retry, Bedrock's included. By type: an error in a stream has status 200."""
RATE_LIMITED = frozenset({"rate_limit_error", "overloaded_error", "throttlingException"})
SETUP_ERROR_TYPES = frozenset({"authentication_error", "permission_error", "not_found_error"})
INTERRUPTION_ERRORS = (
    APIConnectionError,
    httpx2.TransportError,
    json.JSONDecodeError,
    UnicodeDecodeError,
)
"""Errors after which it is unknown whether the call was paid for."""


@dataclass(frozen=True, slots=True)
class ModelFault:
    """The reason why one attempt failed, whether it may have been paid, and whether to retry."""

    reason: str
    kind: str
    retry: bool
    paid: bool
    """True if it may have been paid for although nothing usable came back."""
    retry_after: float | None = None


class Unusable(Exception):
    """A reply that ended before it was complete."""


CALL_ERRORS: tuple[type[Exception], ...] = (
    anthropic.AnthropicError,
    Unusable,
    *INTERRUPTION_ERRORS,
    *NO_CREDENTIALS,
)
"""Every error that a call may end with instead of a usable reply."""


def fault_of(error: Exception) -> ModelFault:
    """Return what an exception of the SDK, or of a layer below it, means for this call."""
    if isinstance(error, APIStatusError):
        kind = str(error.type or "")
        reason = f"{kind or 'error'} {error.status_code}: {_message(error)}"
        if kind in SETUP_ERROR_TYPES or error.status_code in (401, 403, 404):
            return ModelFault(reason, "misconfigured", retry=False, paid=False)
        limited = kind in RATE_LIMITED or error.status_code in (429, 529)
        retry = limited or kind in RETRIED_ERROR_TYPES or error.status_code in (408, 409, 424)
        retry = retry or error.status_code >= 500
        what = "rate_limit" if limited else "model_error"
        in_stream = error.status_code == 200  # what came before the error was paid for
        return ModelFault(reason, what, retry, paid=in_stream, retry_after=_retry_after(error))
    if isinstance(error, NO_CREDENTIALS):
        reason = f"the credentials cannot be used: {error}"[:300]
        return ModelFault(reason, "model_error", retry=True, paid=False)
    if isinstance(error, Unusable):
        return ModelFault(str(error), "model_error", retry=True, paid=True)
    if isinstance(error, INTERRUPTION_ERRORS):
        reason = f"connection lost ({type(error).__name__})"
        return ModelFault(reason, "model_error", retry=True, paid=True)
    return ModelFault(
        f"{type(error).__name__}: {error}"[:300], "model_error", retry=False, paid=False
    )


def _message(error: APIStatusError) -> str:
    body = error.body if isinstance(error.body, dict) else {}
    inner = body.get("error")
    text = inner.get("message") if isinstance(inner, dict) else body.get("message")
    return str(text or error.message)[:300]


def _retry_after(error: APIStatusError) -> float | None:
    try:
        return max(0.0, float(error.response.headers["retry-after"]))
    except (KeyError, ValueError):
        return None


@dataclass(frozen=True, slots=True)
class ModelCall:
    """One model call of one context."""

    spec: Spec
    seq: int
    messages: Sequence[Mapping[str, Any]]
    prompt_tokens: int
    """Estimate of the whole prompt, for the reservation."""
    reservation: str | None = None
    """Key of an earlier reservation, which the first attempt uses up."""
    later: Mapping[str, Amount] = field(default_factory=dict)
    """Amounts reserved together with it, for later calls of the context."""
    own_keys: Collection[str] = ()
    """Keys of the other reservations of the context, which it does not release while it waits."""

    @property
    def place(self) -> tuple[str, str, int]:
        """Return its run, its context and its number there."""
        return self.spec.run, self.spec.context, self.seq

    def key(self, attempt: int) -> str:
        """Return the key under which an attempt is reserved and settled."""
        return "/".join(map(str, (*self.place, attempt)))


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply; plain JSON inside, so that a checkpoint can store it."""

    content: list[Block]
    stop_reason: str
    """Empty where a compatible server leaves it out: then the reply is not usable."""
    usage: Usage
    cost_usd: float | None = None
    attempts: int = 1

    def to_json(self) -> dict[str, Any]:
        return {
            "content": self.content,
            "stop_reason": self.stop_reason,
            "usage": self.usage.to_json(),
            "cost_usd": self.cost_usd,
            "attempts": self.attempts,
        }


class ModelClient:
    """Calls the models of the settings. Create one for the process, and `aclose` it.

    Raises ProviderNotReady.
    """

    def __init__(self, models: Models, api_key: str | None, base_url: str | None) -> None:
        self.models = models
        self._prices = models.prices
        self._client = open_client(models, api_key, base_url)

    async def aclose(self) -> None:
        await self._client.close()

    def role(self, name: str) -> Role:
        found = getattr(self.models.roles, name)
        assert isinstance(found, Role)
        return found

    def name(self, role: str) -> str:
        """Return the model id of a role."""
        return self.models.main if self.role(role).model == "main" else self.models.fast

    def worst(self, role: str, prompt_tokens: int) -> Amount:
        """Return the most that a call of this role may cost."""
        most = self.role(role).max_tokens
        return worst_case(self.name(role), prompt_tokens, most, self._prices)

    def body(self, call: ModelCall) -> dict[str, Any]:
        """Return the request body; a cache mark ends the shared prefix, the API marks the rest."""
        spec, role = call.spec, self.role(call.spec.role)
        system = [dict(b) for b in spec.system]
        cache = {"cache_control": {"type": "ephemeral"}} if self.models.cache else {}
        system[-1] |= cache
        return {
            "model": self.name(spec.role),
            "max_tokens": role.max_tokens,
            "system": system,
            "messages": list(call.messages),
            **({"tools": list(spec.tools)} if spec.tools else {}),
            **({} if spec.single else cache),  # a cache write costs a quarter more than plain input
            **({"output_config": {"effort": spec.effort or role.effort}} if role.effort else {}),
            **({"thinking": {"type": role.thinking}} if role.thinking else {}),
        }

    async def complete(self, call: ModelCall, run: Run) -> ModelReply:
        """Return one reply, after as many attempts as the settings allow; the run pays for it.

        Waits before an attempt while reservations of others leave no room for it. Raises
        BudgetExceeded if the budget cannot pay for an attempt, ModelFailed if no attempt gave a
        usable reply, ModelMisconfigured if none ever will.
        """
        body, model = self.body(call), self.name(call.spec.role)
        worst = self.worst(call.spec.role, call.prompt_tokens)
        for attempt in range(1, self.models.max_attempts + 1):
            key = call.reservation if call.reservation and attempt == 1 else call.key(attempt)
            await run.budget.reserve(key, worst, later=call.later, own_keys=call.own_keys)
            try:  # an attempt that waits for budget takes no slot
                async with run.rate_limiter.slot(model):
                    outcome = await self._attempt(call, body, attempt, key, run)
            except BaseException:
                await run.budget.settle(key, Amount())  # in case the call was not made
                raise
            if isinstance(outcome, ModelReply):
                return outcome
            fault, wait = outcome, self._wait(outcome, attempt)
            if fault.kind == "rate_limit":
                pause = 1.0 if fault.retry_after is None else wait
                run.rate_limiter.record_refusal(model, pause)
            last = attempt == self.models.max_attempts or wait >= run.budget.seconds_left()
            if last or not fault.retry:
                break
            if call.spec.on_restart:
                call.spec.on_restart()
            await asyncio.sleep(wait)
        if fault.kind == "misconfigured":
            raise ModelMisconfigured(fault.reason)
        raise ModelFailed(fault.kind, fault.reason, attempt, passing=fault.retry)

    def _wait(self, fault: ModelFault, attempt: int) -> float:
        """Return the seconds before the next attempt: as the server asks (capped), or backoff."""
        if fault.retry_after is not None:
            return min(fault.retry_after, self.models.retry_after_cap_s)
        backoff = min(8.0, 0.5 * 2.0 ** (attempt - 1))
        return backoff * (1 - 0.25 * random.random())

    async def _attempt(
        self, call: ModelCall, body: dict[str, Any], attempt: int, key: str, run: Run
    ) -> ModelReply | ModelFault:
        model = self.name(call.spec.role)
        spent = self.worst(call.spec.role, call.prompt_tokens)
        # until a reply gives the cost: a call of unknown outcome counts as paid
        run.sink.request(*call.place, attempt, body)
        recorded: dict[str, Any] = {"error": "cancelled"}
        try:
            reply, headers = await self._send(body, call.spec.on_text)
            usage = _usage(reply, call)
            run.rate_limiter.record_reply(model, headers, usage)
            spent = actual(model, usage, self._prices)
            cost = cost_nanousd(model, usage, self._prices)
            if not reply.stop_reason:
                raise Unusable("the reply broke off")
            usd = None if cost is None else cost / NANOUSD_PER_USD
            reply = replace(reply, usage=usage, cost_usd=usd, attempts=attempt)
            recorded = reply.to_json()
            return reply
        except CALL_ERRORS as error:
            fault = fault_of(error)
            spent = spent if fault.paid else Amount()
            recorded = {"error": fault.reason}
            return fault
        finally:
            run.sink.reply(*call.place, attempt, recorded)
            await run.budget.settle(key, spent)

    async def _send(
        self, body: dict[str, Any], on_text: Callable[[str], None] | None
    ) -> tuple[ModelReply, Mapping[str, str]]:
        """Send the request; return the reply, without its cost, and the headers.

        JSON is written here for Anthropic's API, and parsed here for all: the SDK's copy of the
        body and its models double the CPU time. The other clients need the body itself.
        """
        is_anthropic = self.models.provider == "anthropic"
        body = body if is_anthropic else explicit_marks(body)
        if on_text is None:
            payload: dict[str, Any] = (
                {"content": compact_json(body).encode()} if is_anthropic else {"body": body}
            )
            raw = await self._client.post("/v1/messages", cast_to=httpx2.Response, **payload)
            message = json.loads(raw.content)
            # readable() walks the whole message; only an escape can write half of a pair
            clean = message if SURROGATE.search(raw.content) is None else readable(message)
            return _reply_of(clean), raw.headers
        try:
            async with self._client.messages.stream(**body) as stream:
                async for event in stream:
                    if event.type == "text":
                        on_text(readable(event.text))
                final = (await stream.get_final_message()).to_dict(mode="json")
                return _reply_of(readable(final)), stream.response.headers
        except ODD_STREAM as error:  # raised by the SDK if a server's events make no sense
            raise Unusable(f"the stream made no sense ({type(error).__name__})") from error


SURROGATE = re.compile(rb"\\u[dD][89a-fA-F]")
ODD_STREAM = (AssertionError, AttributeError, LookupError, TypeError, ValueError, RecursionError)


def _reply_of(sent: Any) -> ModelReply:
    """Return the reply if it has the shape of a message; a compatible server may send anything."""
    try:
        stop_reason, usage = str(sent.get("stop_reason") or ""), Usage.of(sent.get("usage") or {})
        reply = ModelReply(list(sent["content"]), stop_reason, usage)
        calls = [block["id"] for block in reply.content if block["type"] == "tool_use"]
        valid = all(map(_is_block, reply.content)) and len(calls) == len(set(calls))
    except (AttributeError, KeyError, TypeError, ValueError):
        valid = False
    if not valid:
        raise Unusable("the reply was not a message")
    return reply


def _is_block(block: Block) -> bool:
    match block:
        case {"type": "tool_use", "id": str(), "name": str(), "input": dict()}:
            return True
        case {"type": "text", "text": str()}:
            return True
    return block["type"] not in ("tool_use", "text")


def _usage(reply: ModelReply, call: ModelCall) -> Usage:
    """Return the usage; estimate what a compatible server does not report, so that caps hold."""
    usage = reply.usage
    if usage.prompt <= 0:
        usage = replace(usage, input=call.prompt_tokens, cache_read=0, cache_write=0)
    if usage.output <= 0 and reply.content:
        usage = replace(usage, output=estimate_tokens(str(reply.content)))
    return usage
