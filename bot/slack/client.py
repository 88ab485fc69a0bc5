"""Call the Slack Web API: rate limits, retries, errors, and lookup of our own messages."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import aiohttp
from slack_sdk.errors import SlackClientError
from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SetupError
from bot.slack.messages import Bot, dicts, mark_of
from config.sections import SlackSettings
from config.settings import Settings
from scopes.slack_client import SlackClient, SlackRefused, connect, web_client
from scopes.slack_items import SlackMessage
from scopes.tool import readable

log = logging.getLogger(__name__)

MINUTE_S = 60.5
"""Slack counts a call on arrival, which may be a little later than we send it."""


@dataclass(frozen=True, slots=True)
class Tier:
    """Number of calls that Slack allows in a period of so many seconds."""

    calls: int
    seconds: float = MINUTE_S
    per_channel: bool = False
    live: float = 1.0
    """Share of the calls that live progress may use; the rest is kept for final answers."""
    burst: int = 1
    """Live calls that may follow each other at once."""


TIERS: Mapping[str, Tier] = {
    "chat.postMessage": Tier(10, 10.0, per_channel=True),
    "chat.postEphemeral": Tier(100),
    "chat.update": Tier(50, live=0.5),
    "chat.delete": Tier(50),
    "chat.startStream": Tier(20),
    "chat.appendStream": Tier(100, live=0.9),
    "chat.stopStream": Tier(20),
    "agents.sessions.setStatus": Tier(50, live=0.5, burst=25),
    "files.getUploadURLExternal": Tier(100),
    "files.completeUploadExternal": Tier(100),
    "conversations.history": Tier(50),
    "conversations.replies": Tier(50),
    "conversations.info": Tier(50),
    "conversations.members": Tier(100),
    "conversations.list": Tier(20),
    "slackLists.items.list": Tier(20),
    "search.messages": Tier(20),
    "assistant.search.context": Tier(20),
    "users.conversations": Tier(50),
    "users.info": Tier(100),
    "users.list": Tier(20),
}
"""docs.slack.dev/apis/web-api/rate-limits: one message per second in a channel with short bursts,
tiers 2 to 4 (20, 50, 100 calls per minute) for the others."""
COMMERCIAL_TIERS: Mapping[str, Tier] = {
    **TIERS,
    "conversations.history": Tier(1),
    "conversations.replies": Tier(1),
}
"""Limits for an app that is sold outside Slack's Marketplace."""

RESERVED_SHARE = 0.1
"""Share of the calls that patient work, such as a sweep, leaves to interactive requests."""


@dataclass(slots=True)
class _Window:
    """The calls of one method (in one channel) that still count."""

    tier: Tier
    times: deque[float] = field(default_factory=deque)
    held_until: float = 0.0

    def wait(self, now: float, reserved: float = 0.0) -> float:
        """Return the seconds until another call is allowed; a share `reserved` stays for others."""
        while self.times and now - self.times[0] >= self.tier.seconds:
            self.times.popleft()
        most = max(1, self.tier.calls - int(self.tier.calls * reserved))
        full = len(self.times) >= most
        free = self.times[-most] + self.tier.seconds - now if full else 0.0
        return max(free, self.held_until - now, 0.0)

    def is_dense(self, now: float) -> bool:
        """Return whether live calls would use more than their share with one more call now."""
        tier, times = self.tier, self.times
        spread = tier.seconds / tier.calls / tier.live
        return len(times) >= tier.burst and now - times[-tier.burst] < spread * tier.burst


class RateLimit:
    """Limits our own calls, so that Slack rarely has to."""

    def __init__(self, tiers: Mapping[str, Tier] | None = TIERS) -> None:
        """`tiers` None = only wait when Slack answers 429."""
        self._tiers = tiers or {}
        self._windows: dict[tuple[str, str], _Window] = {}

    async def take(self, method: str, channel: str, reserved: float = 0.0) -> None:
        """Wait until the method may be called; a share `reserved` of its calls stays for others."""
        window = self._window(method, channel)
        while True:
            wait = window.wait(time.monotonic(), reserved)
            if not wait:
                break
            await asyncio.sleep(wait)
        window.times.append(time.monotonic())

    def take_now(self, method: str, *, live: bool = False) -> bool:
        """Return whether the method may be called at once; False = skip it for now.

        `live` calls are progress updates: they are spread out, and leave room for final answers.
        """
        window, now = self._window(method, ""), time.monotonic()
        if window.wait(now) or (live and window.is_dense(now)):
            return False
        window.times.append(now)
        return True

    def note(self, method: str) -> None:
        """Record a call of the method, regardless of its limit."""
        window, now = self._window(method, ""), time.monotonic()
        window.wait(now)  # drops the calls that no longer count
        window.times.append(now)

    def hold(self, method: str, channel: str, seconds: float) -> None:
        """Block the method for so long, because Slack asked to wait."""
        window = self._window(method, channel)
        window.held_until = max(window.held_until, time.monotonic() + seconds)

    def _window(self, method: str, channel: str) -> _Window:
        tier = self._tiers.get(method) or Tier(1_000_000, 1.0)
        key = (method, channel if tier.per_channel else "")
        if key not in self._windows:
            self._windows[key] = _Window(tier)
        return self._windows[key]


class ReadTurns:
    """Limits read calls: a method runs freely until its first refusal, and at its limit afterwards.

    So a few channels are read without a pause, and hundreds without further refusals. Patient calls
    queue behind each other and let all other calls go first.
    """

    def __init__(self, settings: SlackSettings, reserved: float = 0.0) -> None:
        """`reserved` is the share of a method's calls that patient callers leave to others."""
        sold = settings.app_distribution == "distributed"
        self._pace = RateLimit((COMMERCIAL_TIERS if sold else TIERS) if settings.paced else None)
        self._refused_methods: set[str] = set()
        self._reserved = reserved
        self._lines: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)

    async def take(self, method: str, *, patient: bool = False) -> None:
        """Wait until the method may be called."""
        if method not in self._refused_methods:
            self._pace.note(method)
        elif patient:
            async with self._lines[method]:
                await self._pace.take(method, "", self._reserved)
        else:
            await self._pace.take(method, "")

    def record_refusal(self, method: str, seconds: float) -> None:
        """Record that Slack asked to wait so long before the next call of this method."""
        self._refused_methods.add(method)
        self._pace.hold(method, "", seconds)


T = TypeVar("T")

AGAIN_S = (2.0, 30.0)
"""First and longest pause before a failed write of a reply is retried."""
MAX_WAIT_S = 60.0
"""Longest Retry-After that is obeyed; after this time we try again."""


class WriteFailed(Exception):
    """A write was given up; `code` is Slack's error code or our own."""

    def __init__(self, method: str, code: str) -> None:
        self.method, self.code = method, code
        super().__init__(f"{method} failed: {code}")


class OutcomeUnknown(WriteFailed):
    """It is not known whether the write took effect."""


class Unsent(WriteFailed):
    """The request was never sent: there is no connection to Slack."""


class ChannelClosed(WriteFailed):
    """We cannot write in this channel: archived, deleted, not a member, or read-only."""


class TokenRefused(WriteFailed):
    """The token is wrong, revoked, or lacks a scope."""


class MessageGone(WriteFailed):
    """The message to change does not exist or is not ours."""


class WriteRefused(WriteFailed):
    """Slack refused this write, and nothing was done; another form or call may succeed."""


class ContentRefused(WriteRefused):
    """Slack does not accept this text or these blocks."""


class RefusedForNow(WriteRefused):
    """Slack refused for now, and nothing was done."""


class StreamEnded(WriteFailed):
    """The message is not being streamed (any more)."""


class RateLimited(WriteFailed):
    """Slack asked us to wait, and the write could not wait."""


MESSAGE_NOT_FOUND = "message_not_found"
"""The message does not exist (any more); with other codes of `MessageGone` it still exists."""
_CHANNEL_CODES = """is_archived not_in_channel channel_not_found channel_is_archived
    thread_not_found restricted_action restricted_action_read_only_channel
    restricted_action_thread_only_channel cannot_reply_to_message messages_tab_disabled"""
_TOKEN = """invalid_auth account_inactive token_revoked token_expired not_authed no_permission
    missing_scope org_login_required ekm_access_denied not_allowed_token_type access_denied"""
_MESSAGE_CODES = """message_not_found cant_update_message cant_delete_message edit_window_closed
    message_not_owned_by_app"""
_CONTENT = """msg_too_long msg_blocks_too_long invalid_blocks invalid_blocks_format no_text
    invalid_chunks too_many_attachments markdown_text_conflict block_mismatch
    metadata_too_large invalid_arguments invalid_arg_name"""
_FOR_NOW = "update_failed external_channel_migrating messaging_processing_failed team_added_to_org"
_STREAM = """message_not_in_streaming_state stopped_by_user streaming_mode_mismatch
    streaming_state_conflict cannot_provide_both_markdown_text_and_chunks"""
_ERROR_CLASSES: Mapping[str, type[WriteFailed]] = {
    code: kind
    for kind, codes in (
        (ChannelClosed, _CHANNEL_CODES),
        (TokenRefused, _TOKEN),
        (MessageGone, _MESSAGE_CODES),
        (ContentRefused, _CONTENT),
        (RefusedForNow, _FOR_NOW),
        (StreamEnded, _STREAM),
    )
    for code in codes.split()
}
_UNKNOWN = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})
"""The call may have taken effect: docs.slack.dev/reference/methods/chat.postMessage#errors."""
NO_JSON = frozenset({"files.getUploadURLExternal"})
"""Methods that accept no JSON, according to docs.slack.dev/reference/methods."""
_RATE_LIMIT_CODES = frozenset({"ratelimited", "rate_limited", "message_limit_exceeded"})


@dataclass(frozen=True, slots=True)
class WriteTimes:
    """Limits and waits of writes, in seconds."""

    deadline_s: float = 240.0
    """For all tries of a write."""
    quick_s: float = 15.0
    """For a write that shows progress: Slack's slowest answers must not block anything."""
    backoff_s: float = 0.5
    """Before the first retry."""
    settle_s: float = 2.0
    """Until a write of unknown outcome has appeared."""


CallCounter = Callable[[str, str], object]
"""Called after each call with its method and outcome: ok, ratelimited, skipped, unsent, unknown,
or Slack's code."""


class ApiCalls:
    """Makes API calls: rate limited, counted, and retried only where that is safe."""

    def __init__(
        self, web: AsyncWebClient, slack: SlackSettings, pace: RateLimit, times: WriteTimes
    ) -> None:
        web.retry_handlers = []  # the SDK's default repeats a message whose answer was lost
        self.web, self.pace, self.times = web, pace, times
        self.count: CallCounter = lambda method, outcome: None
        self.timeout_s, self.attempts = slack.timeout_s, slack.retry_attempts + 1
        self.page_size = slack.page_size

    async def call(
        self, method: str, args: Mapping[str, Any], *, repeatable: bool, channel: str = ""
    ) -> dict[str, Any]:
        """Call a method and return the answer; wait out rate limits and retry temporary errors.

        A call of unknown outcome (OutcomeUnknown) is retried only if `repeatable`. Raises
        WriteFailed. While Slack says to wait, only the deadline ends it.
        """
        failures = 0
        async with self.within_deadline(method):
            while True:
                await self.pace.take(method, channel)
                try:
                    return await self._once(method, args, channel)
                except RateLimited:
                    continue
                except (Unsent, RefusedForNow, OutcomeUnknown) as error:
                    failures += 1
                    is_definite = not isinstance(error, OutcomeUnknown)
                    if failures >= self.attempts or not (is_definite or repeatable):
                        raise
                    log.info("%s; it is tried again", error)
                await self.pause(failures)

    async def call_now(
        self, method: str, args: Mapping[str, Any], *, live: bool = False
    ) -> dict[str, Any] | None:
        """Try a call once and return the answer; None = not allowed now. Raises WriteFailed."""
        if not self.pace.take_now(method, live=live):
            self.count(method, "skipped")
            return None
        try:
            async with _within(self.times.quick_s, method):
                return await self._once(method, args, "")
        except RateLimited:
            return None

    def within_deadline(self, method: str) -> AbstractAsyncContextManager[None]:
        """Set the deadline of all tries. Raises OutcomeUnknown: the last one may have arrived."""
        return _within(self.times.deadline_s, method)

    async def pause(self, failures: int) -> None:
        seconds = min(self.times.backoff_s * 2 ** (failures - 1), 10.0)
        await asyncio.sleep(seconds * (0.75 + random.random() / 2))

    async def _once(self, method: str, args: Mapping[str, Any], channel: str) -> dict[str, Any]:
        outcome = "unknown"
        try:
            async with asyncio.timeout(self.timeout_s):
                response = await self._request(method, args)
            if not isinstance(response.data, dict):
                raise OutcomeUnknown(method, "malformed_answer")
            outcome = "ok"
            return dict(readable(response.data))
        except SlackClientError as error:
            failed = _refusal(method, error)
            outcome = "unknown" if isinstance(failed, OutcomeUnknown) else failed.code
            if isinstance(failed, RateLimited):
                outcome = "ratelimited"
                wait = _retry_after(error)
                self.pace.hold(method, channel, wait * (1 + random.random() / 20))
            raise failed from error
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError) as error:
            outcome = "unsent"
            raise Unsent(method, "no_connection") from error
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise OutcomeUnknown(method, type(error).__name__) from error
        except (AttributeError, ValueError, TypeError) as error:  # the SDK's, for other JSON
            raise OutcomeUnknown(method, "malformed_answer") from error
        finally:
            self.count(method, outcome)

    async def _request(self, method: str, args: Mapping[str, Any]) -> Any:
        if method.startswith("conversations.") or method in NO_JSON:
            return await self.web.api_call(method, http_verb="GET", params=dict(args))
        return await self.web.api_call(method, json=dict(args))


def _refusal(method: str, error: SlackClientError) -> WriteFailed:
    response = getattr(error, "response", None)
    data = getattr(response, "data", None)
    code = data.get("error") if isinstance(data, dict) else None
    status = _status(response)
    if status == 429 or code in _RATE_LIMIT_CODES:
        return RateLimited(method, "ratelimited")
    if status < 500 and isinstance(code, str) and code not in _UNKNOWN:
        return _ERROR_CLASSES.get(code, WriteRefused)(method, code)
    if 400 <= status < 500 and status != 408:
        return WriteRefused(method, f"http_{status}")
    return OutcomeUnknown(method, code if isinstance(code, str) else f"http_{status}")


def _status(response: Any) -> int:
    """Return the status of the SDK's response, or of aiohttp's if the body was unreadable."""
    status = getattr(response, "status_code", None) or getattr(response, "status", None)
    return status if isinstance(status, int) else 0


def _retry_after(error: SlackClientError) -> float:
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return min(max(float(headers.get("Retry-After", 1.0)), 0.01), MAX_WAIT_S)
    except ValueError:
        return 1.0


def is_away(error: WriteFailed) -> bool:
    """Return whether Slack did not refuse the write, so that it may succeed later."""
    return isinstance(error, OutcomeUnknown | Unsent | RateLimited)


async def retry_until(write: Callable[[], Awaitable[T]], give_up_s: float) -> T:
    """Call `write` and return its result; repeat it while Slack is down or refuses our token.

    `write` must detect its own earlier writes. Raises WriteFailed if Slack rejects the write, and
    after `give_up_s` seconds.
    """
    clock = asyncio.get_running_loop().time
    started, pause = clock(), AGAIN_S[0]
    while True:
        try:
            return await write()
        except WriteFailed as error:
            if not (is_away(error) or isinstance(error, TokenRefused | RefusedForNow)):
                raise
            if clock() - started + pause > give_up_s:
                raise
            log.warning("%s; it is tried again in %.0f s", error, pause)
        await asyncio.sleep(pause)
        pause = min(2 * pause, AGAIN_S[1])


@asynccontextmanager
async def _within(seconds: float, method: str) -> AsyncIterator[None]:
    try:
        async with asyncio.timeout(seconds):
            yield
    except TimeoutError as error:
        raise OutcomeUnknown(method, "deadline") from error


def ts_of(body: Mapping[str, Any], method: str) -> str:
    """Return the ts of the written message. Raises OutcomeUnknown if the answer has none."""
    ts = body.get("ts")
    if not isinstance(ts, str) or not ts:
        raise OutcomeUnknown(method, "malformed_answer")
    return ts


MOST_PAGES = 20
"""Maximum pages of a channel's history searched for a message of ours."""


@dataclass(frozen=True, slots=True)
class ReplyMessages:
    """The messages that we wrote in a thread."""

    parts: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Messages of a reply by part number, from 1; more than one = written twice."""
    final: Mapping[str, int] = field(default_factory=dict)
    """Messages with a part of a finished answer, and the number of parts of that answer."""
    unmarked: tuple[str, ...] = ()
    """Messages without metadata or files, newest first: unfinished streams."""


class PostedMessages:
    """Finds messages of ours. Raises WriteFailed."""

    def __init__(self, writes: ApiCalls) -> None:
        self._writes = writes
        self._me: frozenset[str] = frozenset()

    async def find(
        self,
        channel: str,
        thread_ts: str | None,
        key: str,
        after: str = "",
        besides: Collection[str] = (),
    ) -> str | None:
        """Return our first message with this key; other apps may use the same metadata.

        Messages in `besides` do not count.
        """
        async for message in self._ours(channel, thread_ts, after):
            if mark_of(message).key == key and message.ts not in besides:
                return message.ts
        return None

    async def find_file(self, channel: str, thread_ts: str, id: str) -> str | None:
        """Return our first message in a thread that shows this file."""
        async for message in self._ours(channel, thread_ts, ""):
            if any(file.get("id") == id for file in dicts(message.files)):
                return message.ts
        return None

    async def of(self, channel: str, thread_ts: str, key: str, after: str) -> ReplyMessages:
        """Return the messages of a reply, and unfinished ones, that are newer than `after`."""
        parts: dict[int, tuple[str, ...]] = {}
        final: dict[str, int] = {}
        unmarked: list[str] = []
        async for message in self._ours(channel, thread_ts, after):
            ts, mark = message.ts, mark_of(message)
            if ts <= after:
                continue
            if mark.key.partition("#")[0] == key:
                parts[mark.part] = (*parts.get(mark.part, ()), ts)
                final |= {ts: mark.of} if mark.of else {}
            elif not message.raw.get("metadata") and not message.files:
                unmarked.append(ts)
        return ReplyMessages(parts, final, tuple(reversed(unmarked)))

    async def _ours(
        self, channel: str, thread_ts: str | None, after: str
    ) -> AsyncIterator[SlackMessage]:
        """Yield our messages in a thread, from its root on, or in a channel.

        In a channel: since `after`, up to MOST_PAGES, or among the newest.
        """
        me = await self._identity()
        method = "conversations.replies" if thread_ts else "conversations.history"
        args: dict[str, Any] = {"channel": channel, "limit": self._writes.page_size}
        args |= {"include_all_metadata": "true"}
        args |= {"ts": thread_ts} if thread_ts else {}
        args |= {"oldest": after} if after else {}
        cursors = {""}
        while len(cursors) <= MOST_PAGES or thread_ts:
            body = await self._writes.call(method, args, repeatable=True)
            for message in dicts(body.get("messages")):
                if {message.get("user"), message.get("bot_id")} & me and message.get("ts"):
                    yield SlackMessage(message)
            cursor = (body.get("response_metadata") or {}).get("next_cursor") or ""
            if cursor in cursors or not (thread_ts or after):
                return
            cursors.add(cursor)
            args |= {"cursor": cursor}

    async def _identity(self) -> frozenset[str]:
        """Return our ids as an author."""
        if not self._me:
            body = await self._writes.call("auth.test", {}, repeatable=True)
            ids = (body.get("user_id"), body.get("bot_id"))
            self._me = frozenset(each for each in ids if isinstance(each, str) and each)
        return self._me


def clients(
    settings: Settings, session: aiohttp.ClientSession
) -> tuple[SlackClient, AsyncWebClient]:
    """Return the client that reads, and the one that writes, which never retries blindly."""
    secret = settings.secrets.slack_bot_token
    if not secret:
        hint = "Set SLACK_BOT_TOKEN (xoxb-...); `assistant setup` helps. Or try `serve --local`."
        raise SetupError("no_slack_token", "There is no Slack workspace to serve.", hint)
    token, url = secret.get_secret_value(), settings.endpoints.slack_api_url
    web = web_client(
        url, token=token, timeout=settings.slack.timeout_s, session=session, retry_handlers=[]
    )
    client = connect(session, token, url, settings.slack, ReadTurns(settings.slack, RESERVED_SHARE))
    if settings.is_company_token:  # each call names one of the token's workspaces
        for each in (web, client.web):
            each.default_params["team_id"] = settings.team
    return client, web


async def who_am_i(client: SlackClient, settings: Settings) -> tuple[Bot, str]:
    """Return our identity in this workspace, and the workspace's address. Raises SetupError."""
    try:
        identity = await client.call("auth.test")
    except SlackRefused as error:
        raise SetupError("slack", f"{error}.", "`assistant doctor` lists what to fix.") from error
    except (aiohttp.ClientError, TimeoutError) as error:
        why = f"Slack cannot be reached ({type(error).__name__})."
        raise SetupError("slack", why, "Check the network and SLACK_API_URL.") from error
    team = settings.team if settings.is_company_token else str(identity["team_id"])
    if settings.team not in ("", team):
        raise SetupError(
            "slack", f"The token of {settings.team} is of {team}.", "Install it again."
        )
    bot = Bot(str(identity["user_id"]), str(identity.get("bot_id") or ""), team)
    return bot, str(identity.get("url") or "")
