"""A thin client of Slack's Web API: retries and pages reads, and raises our own errors."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.http_retry.builtin_async_handlers import (
    AsyncConnectionErrorRetryHandler,
    AsyncRateLimitErrorRetryHandler,
    AsyncServerErrorRetryHandler,
)
from slack_sdk.http_retry.request import HttpRequest
from slack_sdk.http_retry.response import HttpResponse
from slack_sdk.http_retry.state import RetryState
from slack_sdk.web.async_client import AsyncWebClient

from config.sections import SlackSettings
from scopes.pages.hosts import is_here
from scopes.tool import SourceFailed, readable

NOT_FOUND_ERRORS = frozenset(
    """channel_not_found not_in_channel thread_not_found message_not_found user_not_found
    list_not_found file_not_found no_permission access_denied""".split()
)
"""Errors that mean: for this caller it is not there. All get the same answer."""


NO_SENSE = "no proper answer"
TRANSIENT_ERRORS = frozenset(
    """ratelimited internal_error fatal_error service_unavailable request_timeout
    team_added_to_org external_channel_migrating""".split()
) | {NO_SENSE}
"""Refusals that do not depend on the request: the same call may work in a minute."""
TOKEN_FAULTS = frozenset(
    """invalid_auth not_authed account_inactive token_revoked token_expired
    not_allowed_token_type""".split()
)
METHOD_ACTIONS: Mapping[str, str] = {
    "users.info": "look up users",
    "users.list": "look up users",
    "usergroups.users.list": "look up user groups",
    "conversations.info": "look up channels",
    "assistant.search.context": "search the workspace",
    "conversations.list": "list channels",
    "conversations.members": "see who is in a channel",
    "users.conversations": "see which channels somebody is in",
    "conversations.history": "read messages",
    "conversations.replies": "read messages",
    "slackLists.items.list": "read Slack Lists",
    "search.messages": "search messages",
}
"""Method -> what it does, in words for people."""

LARGEST_PAGE = 999
"""Maximum objects that Slack returns in one call."""


class Absent(LookupError):
    """Slack says that it does not exist, or that this token may not see it."""


def scopes_in(needed: str) -> list[str]:
    """Return the scopes that Slack lists as needed."""
    return [scope.strip() for scope in needed.split(",") if scope.strip()]


def lacks(scopes: Sequence[str]) -> str:
    """Return the clause that names the scopes which the app lacks."""
    *first, last = scopes or ["that it needs"]
    named = f"scopes {', '.join(first)} and {last}" if first else f"scope {last}"
    return f"the app lacks the {named}"


def why_refused(method: str, code: str, needed: str = "") -> tuple[str, str]:
    """Return why Slack refuses a call, and who can change it and how; both without a full stop.

    The second is empty for a cause that passes by itself.
    """
    able = METHOD_ACTIONS.get(method, f"call {method}")
    if code in TRANSIENT_ERRORS:
        return f"Slack refused {method}: {code}", ""
    if code == "missing_scope":
        scopes = scopes_in(needed)
        it = "them" if len(scopes) > 1 else "it"
        add = f"An administrator can add {it} under OAuth & Permissions and reinstall the app"
        return f"I may not {able}: {lacks(scopes)}", add
    if code == "not_in_channel":
        return "I am not in that channel", "Somebody in it can invite me with /invite"
    if code in TOKEN_FAULTS:
        token = (
            "An administrator can reinstall the app and set SLACK_BOT_TOKEN with `assistant setup`"
        )
        return f"Slack does not accept my token ({code})", token
    look = "An administrator can look it up at docs.slack.dev/reference/methods"
    return f"I may not {able}: Slack says {code}", look


class SlackRefused(SourceFailed):
    """Slack refused a call, or its answer made no sense; `code` is Slack's error code."""

    def __init__(self, method: str, code: str, needed: str) -> None:
        self.method, self.code, self.needed = method, code, needed
        self.why, self.remedy = why_refused(method, code, needed)
        super().__init__(". ".join(filter(None, (self.why, self.remedy))))


class Turns(Protocol):
    """Counts calls, so that few exceed Slack's rate limits."""

    async def take(self, method: str, *, patient: bool = False) -> None:
        """Wait until the method may be called; `patient` lets others go first."""

    def record_refusal(self, method: str, seconds: float) -> None:
        """Record that Slack asked to wait so many seconds before the next call of this method."""


class _Waiting(AsyncRateLimitErrorRetryHandler):
    """Retries rate-limited calls one by one: all at once would be refused again."""

    def __init__(self, max_retry_count: int, turns: Turns) -> None:
        super().__init__(max_retry_count=max_retry_count)
        self._turns = turns

    async def prepare_for_next_attempt_async(
        self,
        *,
        state: RetryState,
        request: HttpRequest,
        response: HttpResponse | None = None,
        error: Exception | None = None,
    ) -> None:
        method = request.url.rpartition("/")[2].partition("?")[0]
        headers = {k.lower(): v for k, v in response.headers.items()} if response else {}
        self._turns.record_refusal(method, float(headers.get("retry-after", ["1"])[0]))
        await super().prepare_for_next_attempt_async(
            state=state, request=request, response=response, error=error
        )
        await self._turns.take(method)


class _Repeating(AsyncServerErrorRetryHandler):
    """Repeats reads that Slack could not complete; the SDK's handler knows two statuses only."""

    async def _can_retry_async(
        self,
        *,
        state: RetryState,
        request: HttpRequest,
        response: HttpResponse | None = None,
        error: Exception | None = None,
    ) -> bool:
        if response is None:
            return False
        body = response.body if isinstance(response.body, dict) else {}
        return response.status_code >= 500 or body.get("error") in TRANSIENT_ERRORS


@dataclass(frozen=True, slots=True)
class SlackClient:
    """One token's calls."""

    web: AsyncWebClient
    page_size: int
    """Objects asked for in one call of a paged method."""
    turns: Turns | None = None
    """None = calls are not counted."""
    is_patient: bool = False

    def patient(self) -> SlackClient:
        """Return a copy whose calls let those of others go first."""
        return replace(self, is_patient=True)

    async def call(self, method: str, **arguments: Any) -> Mapping[str, Any]:
        """Make one Web API call. Raises Absent, or SlackRefused for anything else."""
        if self.turns:
            await self.turns.take(method, patient=self.is_patient)
        try:
            response = await self.web.api_call(method, params=arguments)
        except SlackApiError as error:
            data = getattr(error.response, "data", None)  # a garbled answer has none
            body = data if isinstance(data, dict) else {}
            code = str(body.get("error") or NO_SENSE)
            if code in NOT_FOUND_ERRORS:
                raise Absent(code) from error
            raise SlackRefused(method, code, str(body.get("needed") or "")) from error
        return dict(readable(response.data)) if isinstance(response.data, dict) else {}

    async def pages(
        self, method: str, key: str, grow: int = 1, whole: bool = False, /, **arguments: Any
    ) -> AsyncIterator[Any]:
        """Yield every object of a paged method, to the end, each once.

        Each page is `grow` times as long as the one before, up to Slack's maximum. `whole`: raise
        SlackRefused if a page is missing or makes no sense.
        """
        cursor, cursors, seen, size = "", {""}, set(), self.page_size
        while True:
            more = {"cursor": cursor} if cursor else {}
            body = await self.call(method, limit=size, **arguments, **more)
            page, metadata = body.get(key), body.get("response_metadata")
            cursor = str(metadata.get("next_cursor") or "") if isinstance(metadata, dict) else ""
            if whole and (not isinstance(page, list) or (cursor and cursor in cursors)):
                raise SlackRefused(method, NO_SENSE, "")
            for each in page or ():
                mark = each.get("ts") or each.get("id") if isinstance(each, dict) else each
                if str(mark) not in seen:  # some methods repeat a thread's root on each page
                    seen.add(str(mark))
                    yield each
            if cursor in cursors:
                return
            cursors.add(cursor)
            size = min(size * grow, LARGEST_PAGE)


def open_session(limits: SlackSettings) -> aiohttp.ClientSession:
    """Return a session with a time limit for calls; the SDK sets none for a given session."""
    return aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=limits.timeout_s))


def web_client(base_url: str | None, **how: Any) -> AsyncWebClient:
    """Return the SDK's client for Slack (None) or its stand-in, which no proxy leads to."""
    client = AsyncWebClient(**how)
    if base_url:
        client.base_url = base_url if base_url.endswith("/") else base_url + "/"
        if is_here(base_url):
            client.proxy = None
    return client


def connect(
    session: aiohttp.ClientSession,
    token: str,
    base_url: str | None,
    limits: SlackSettings,
    turns: Turns | None = None,
) -> SlackClient:
    """Return a client that waits out 429s and repeats failed reads: never for writes."""
    limited = AsyncRateLimitErrorRetryHandler(max_retry_count=limits.retry_attempts)
    client = web_client(
        base_url,
        token=token,
        timeout=limits.timeout_s,
        session=session,
        retry_handlers=[
            _Waiting(limits.retry_attempts, turns) if turns else limited,
            AsyncConnectionErrorRetryHandler(
                max_retry_count=limits.retry_attempts,
                error_types=[aiohttp.ServerConnectionError, aiohttp.ClientOSError, TimeoutError],
            ),
            _Repeating(limits.retry_attempts),
        ],
    )
    return SlackClient(client, limits.page_size, turns)
