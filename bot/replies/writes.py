"""One call of Slack's Web API that must not be made twice: what came of it, and typed errors.

The classes say what to do next. Retry later: `Unsettled` (look it up first), `Unsent`,
`RateLimited`, `Passing`. Try a simpler way: `Refused`, which stands for every code that is not
listed here. There is nothing to write to: `MessageGone`, `ChannelClosed`. Our token is bad:
`TokenRefused`.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.replies.pace import Pace
from scopes.tool import readable

log = logging.getLogger(__name__)

T = TypeVar("T")

AGAIN_S = (2.0, 30.0)
"""First and longest pause before a reply that Slack could not take is written again."""
MAX_WAIT_S = 60.0
"""Longest wait for which a Retry-After is taken at its word; then we ask again."""


class WriteFailed(Exception):
    """A write was given up; `code` is Slack's word for why, or ours."""

    def __init__(self, method: str, code: str) -> None:
        self.method, self.code = method, code
        super().__init__(f"{method} failed: {code}")


class Unsettled(WriteFailed):
    """Nobody knows whether the write took effect."""


class Unsent(WriteFailed):
    """The request never left: there is no connection to Slack."""


class ChannelClosed(WriteFailed):
    """We cannot write in this channel: archived, gone, not a member, read-only."""


class TokenRefused(WriteFailed):
    """The token is wrong or revoked, or lacks a scope."""


class MessageGone(WriteFailed):
    """The message to change is not there, or not ours."""


class Refused(WriteFailed):
    """Slack said no to this write, and nothing was done; another form or call may go."""


class ContentRefused(Refused):
    """Slack does not take this text or these blocks."""


class Passing(Refused):
    """Slack said no for now, and nothing was done."""


class StreamEnded(WriteFailed):
    """The message is not being streamed (any more)."""


class RateLimited(WriteFailed):
    """Slack wants us to wait, and the write could not."""


GONE = "message_not_found"
"""The message is not there (any more); what other codes of `MessageGone` speak of is there."""
_CLOSED = """is_archived not_in_channel channel_not_found channel_is_archived thread_not_found
    restricted_action restricted_action_read_only_channel restricted_action_thread_only_channel
    cannot_reply_to_message messages_tab_disabled"""
_TOKEN = """invalid_auth account_inactive token_revoked token_expired not_authed no_permission
    missing_scope org_login_required ekm_access_denied not_allowed_token_type access_denied"""
_GONE = """message_not_found cant_update_message cant_delete_message edit_window_closed
    message_not_owned_by_app"""
_CONTENT = """msg_too_long msg_blocks_too_long invalid_blocks invalid_blocks_format no_text
    invalid_chunks too_many_attachments markdown_text_conflict block_mismatch
    metadata_too_large invalid_arguments invalid_arg_name"""
_PASSING = "update_failed external_channel_migrating messaging_processing_failed team_added_to_org"
_STREAM = """message_not_in_streaming_state stopped_by_user streaming_mode_mismatch
    streaming_state_conflict cannot_provide_both_markdown_text_and_chunks"""
_KINDS: Mapping[str, type[WriteFailed]] = {
    code: kind
    for kind, codes in (
        (ChannelClosed, _CLOSED),
        (TokenRefused, _TOKEN),
        (MessageGone, _GONE),
        (ContentRefused, _CONTENT),
        (Passing, _PASSING),
        (StreamEnded, _STREAM),
    )
    for code in codes.split()
}
_UNKNOWN = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
"""Some of it may have been done, says docs.slack.dev/reference/methods/chat.postMessage#errors."""
NO_JSON = frozenset({"files.getUploadURLExternal"})
"""Methods that take no JSON, says docs.slack.dev/reference/methods of them."""
_LIMITED = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})


class Writes:
    """Makes the calls; every one is waited for, counted, and repeated only where that is safe."""

    def __init__(
        self, web: AsyncWebClient, timeout_s: float, attempts: int, pace: Pace, backoff_s: float
    ) -> None:
        """`attempts` are tries of one call; `backoff_s` is the first pause between them."""
        web.retry_handlers = []  # the SDK's default repeats a message whose answer was lost
        self.web, self.pace = web, pace
        self.calls: Counter[tuple[str, str]] = Counter()
        self.timeout_s, self._attempts, self._backoff_s = timeout_s, attempts, backoff_s

    async def call(
        self, method: str, args: Mapping[str, Any], *, repeatable: bool, channel: str = ""
    ) -> dict[str, Any]:
        """The answer. Rate limits are waited out, and what passes is tried again; what is Unsettled
        only if `repeatable`.

        Raises WriteFailed. Ends only with the caller's deadline while Slack says to wait.
        """
        failures = 0
        while True:
            await self.pace.take(method, channel)
            try:
                return await self._once(method, args, channel)
            except RateLimited:
                continue
            except Unsent as error:
                last: WriteFailed = error
                log.warning("%s could not be sent: %s", method, error.__cause__)
            except Passing as error:
                last = error
            except Unsettled as error:
                last = error
                if not repeatable:
                    raise
            failures += 1
            if failures >= self._attempts:
                raise last
            await self.pause(failures)

    async def call_now(
        self, method: str, args: Mapping[str, Any], *, channel: str = "", live: bool = False
    ) -> dict[str, Any] | None:
        """The answer of one try; None = it is not the time for it. Raises WriteFailed."""
        if not self.pace.take_now(method, channel, live=live):
            self.calls[method, "skipped"] += 1
            return None
        try:
            return await self._once(method, args, channel)
        except RateLimited:
            return None

    async def pause(self, failures: int) -> None:
        seconds = min(self._backoff_s * 2 ** (failures - 1), 10.0)
        await asyncio.sleep(seconds * (0.75 + random.random() / 2))

    async def _once(self, method: str, args: Mapping[str, Any], channel: str) -> dict[str, Any]:
        outcome = "unknown"
        try:
            async with asyncio.timeout(self.timeout_s):
                response = await self._request(method, args)
            if not isinstance(response.data, dict):
                raise Unsettled(method, "malformed_answer")
            outcome = "ok"
            return dict(readable(response.data))
        except SlackClientError as error:
            failed = _refusal(method, error)
            outcome = "unknown" if isinstance(failed, Unsettled) else failed.code
            if isinstance(failed, RateLimited):
                outcome = "ratelimited"
                wait = _retry_after(error)
                self.pace.hold(method, channel, wait * (1 + random.random() / 20))
            raise failed from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            outcome = "unsent"
            raise Unsent(method, "no_connection") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise Unsettled(method, type(error).__name__) from error
        except (
            AttributeError,
            ValueError,
            TypeError,
        ) as error:  # the SDK, of JSON of a wrong shape
            raise Unsettled(method, "malformed_answer") from error
        finally:
            self.calls[method, outcome] += 1

    async def _request(self, method: str, args: Mapping[str, Any]) -> Any:
        if method.startswith("conversations.") or method in NO_JSON:
            return await self.web.api_call(method, http_verb="GET", params=dict(args))
        return await self.web.api_call(method, json=dict(args))


def _refusal(method: str, error: SlackClientError) -> WriteFailed:
    response = getattr(error, "response", None)
    data = getattr(response, "data", None)
    code = data.get("error") if isinstance(data, dict) else None
    status = _status(response)
    if status == 429 or code in _LIMITED:
        return RateLimited(method, "ratelimited")
    if status < 500 and isinstance(code, str) and code not in _UNKNOWN:
        return _KINDS.get(code, Refused)(method, code)
    if 400 <= status < 500 and status != 408:
        return Refused(method, f"http_{status}")
    return Unsettled(method, code if isinstance(code, str) else f"http_{status}")


def _status(response: Any) -> int:
    """The SDK hands out its own response, or aiohttp's when it could not read the body."""
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    return status if isinstance(status, int) else 0


def _retry_after(error: SlackClientError) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    for name, value in headers.items():
        if name.lower() == "retry-after":
            try:
                return min(max(float(value), 0.01), MAX_WAIT_S)
            except ValueError:
                break
    return 1.0


def is_away(error: WriteFailed) -> bool:
    """Whether Slack was not heard to say no: the same write may go later."""
    return isinstance(error, Unsettled | Unsent | RateLimited)


async def taken(write: Callable[[], Awaitable[T]], give_up_s: float) -> T:
    """What `write` returns; it is made again while Slack is down, or refuses our token.

    It must find out by itself what it has written already. Raises WriteFailed for what Slack does
    not want, and after `give_up_s` seconds.
    """
    clock = asyncio.get_running_loop().time
    began, pause = clock(), AGAIN_S[0]
    while True:
        try:
            return await write()
        except WriteFailed as error:
            if not (is_away(error) or isinstance(error, TokenRefused | Passing)):
                raise
            if clock() - began + pause > give_up_s:
                raise
            log.warning("%s; it is tried again in %.0f s", error, pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, AGAIN_S[1])


@asynccontextmanager
async def within(seconds: float, method: str) -> AsyncIterator[None]:
    """A deadline for all tries together. Raises Unsettled: the last one may have been heard."""
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise Unsettled(method, "deadline") from error


def ts_of(body: Mapping[str, Any], method: str) -> str:
    """The message that a call has written. Raises Unsettled where the answer names none."""
    ts = body.get("ts")
    if not isinstance(ts, str) or not ts:
        raise Unsettled(method, "malformed_answer")
    return ts
