"""Fill the agent pane: suggested prompts, conversation titles, and the view the user is looking at.

It needs `features.agent_view` in the manifest. All calls are optional: if Slack refuses one, we log
that and the request continues.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Mapping
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from bot.slack.messages import dicts, mapping
from bot.slack.people import ChannelFacts, People
from config.words import phrase
from scopes.slack_items import plain
from scopes.tool import one_line

log = logging.getLogger(__name__)

TITLE_CHARS = 60

_CHANNEL = re.compile(r"[CG][A-Z0-9]{2,20}")
_USER = re.compile(r"<@[UW][A-Z0-9]+(\|[^<>]*)?>")

Prompt = dict[str, str]


async def attempt(what: str, call: Awaitable[Any]) -> str:
    """Wait for a call that may fail; return Slack's reason if it failed, else an empty string."""
    try:
        await call
    except SlackApiError as error:
        body = mapping(getattr(error.response, "data", None))
        code = str(body.get("error") or "no proper answer")
    except (aiohttp.ClientError, TimeoutError) as error:
        code = type(error).__name__
    else:
        return ""
    log.warning("Slack refused %s: %s", what, code)
    return code


def prompts(looking_at: ChannelFacts | None = None) -> list[Prompt]:
    """Return suggested prompts, first those about the public channel open next to the pane.

    Slack takes four: docs.slack.dev/reference/methods/assistant.threads.setSuggestedPrompts.
    """
    general = [_prompt("abilities"), _prompt("channels")]
    if looking_at and not looking_at.private:
        channel = f"<#{looking_at.id}>"
        return [_prompt("unanswered", here=channel), _prompt("catch_up", here=channel), *general]
    return general


def _prompt(key: str, **values: str) -> Prompt:
    return {"title": phrase(f"pane.{key}"), "message": phrase(f"pane.{key}_ask", **values)}


async def suggest(web: AsyncWebClient, people: People, event: Mapping[str, Any]) -> None:
    """Show suggested prompts in the pane when it is opened or its context changes.

    No `thread_ts` is sent: with agent_view a call with one is dropped without an error (same page).
    """
    channel = event.get("channel")
    if not isinstance(channel, str) or not channel:
        return
    looking_at = channel_in(event.get("context"))
    facts = await people.channel(looking_at) if looking_at else None
    call = web.assistant_threads_setSuggestedPrompts(
        channel_id=channel, title=phrase("pane.try"), prompts=prompts(facts)
    )
    await attempt("suggested prompts", call)


async def set_title(web: AsyncWebClient, channel: str, thread_ts: str, text: str) -> None:
    """Set the title of a pane conversation after its first request."""
    if title := title_of(text):
        call = web.assistant_threads_setTitle(channel_id=channel, thread_ts=thread_ts, title=title)
        await attempt("a title", call)


def title_of(text: str) -> str:
    """Return the first words of a request, without the mentions at its start."""
    words = one_line(plain(_USER.sub(" ", text, count=1), {})).split()
    title = ""
    for word in words:
        longer = f"{title} {word}".strip()
        if len(longer) > TITLE_CHARS:
            return f"{title or longer[:TITLE_CHARS]}…"
        title = longer
    return title


def hint(event: Mapping[str, Any]) -> str:
    """Return a hint for the model about the user's current view; empty if it is not known.

    Slack sends it with each direct message (docs.slack.dev/changelog/2026/07/02/app-context).
    """
    channel = channel_in(event.get("app_context"))
    if not channel:
        return ""
    return (
        f"While asking, the user has the channel {channel} open; «this channel» may mean that one."
    )


def channel_in(context: Any) -> str:
    """Return the first channel in an `app_context`; empty if there is none.

    https://docs.slack.dev/reference/events/app_context_changed
    """
    for entity in dicts(mapping(context).get("entities")):
        value = entity.get("value")
        if entity.get("type") == "slack#/types/message_context":
            value = mapping(value).get("channel_id")
        elif entity.get("type") != "slack#/types/channel_id":
            continue
        if isinstance(value, str) and _CHANNEL.fullmatch(value):
            return value
    return ""
