"""The write tools of the `slack` scope. The gate has decided when one of them runs."""

from __future__ import annotations

import re
from typing import Annotated, Protocol

from config.words import phrase
from scopes.effects import Access, Channel, Effect, Part, Person, Said, Thread
from scopes.slack_reader import SlackReader
from scopes.tool import ToolContext, ToolError, ToolResult, tool

TS = re.compile(r"\d{10}\.\d{6}")
EMOJI = re.compile(r"[a-z0-9_+'-]{1,80}")


class SlackWriter(Protocol):
    """Writes to Slack, once for each key whatever fails; texts are cleaned and never parsed.

    Its methods raise ToolError where Slack will not have it, with a sentence that says why.
    """

    async def post(
        self, key: str, channel: str, thread_ts: str, text: str, request: str, by: str = ""
    ) -> str:
        """Post in a conversation, or in a thread of it; the message's id `<channel>/<ts>`.

        Below it stands for whom (`by`). Addresses in the text become links only where they stand
        in `request`, too.
        """

    async def message(self, key: str, user: str, text: str, request: str, by: str = "") -> str:
        """Send a direct message; its id."""

    async def react(self, channel: str, ts: str, name: str) -> None:
        """Add a reaction; one that stands there already is fine."""


@tool(Access.EGRESS, Effect.POST, client=SlackReader)
async def post_message(
    ctx: ToolContext,
    channel: Channel,
    text: Said,
    thread: Annotated[str, Part.THREAD] = "",
) -> ToolResult:
    """Post `text` where the request says. `thread`: id of the message that it replies to."""
    ts = thread.rpartition("/")[2]
    if thread and not (TS.fullmatch(ts) and thread in (ts, f"{channel}/{ts}")):
        raise ToolError(f"No thread {thread[:60]!r} in this channel. Leave it out, or give its id.")
    _something(text)
    sent = await _writer(ctx).post(ctx.key, channel, ts, text, ctx.intent.text, ctx.requester or "")
    return ToolResult(note=phrase("done.posted", id=sent))


@tool(Access.EGRESS, Effect.POST, client=SlackReader)
async def send_direct_message(ctx: ToolContext, user: Person, text: Said) -> ToolResult:
    """Send `text` to one person, by id, or to who asked (`me`). It says for whom."""
    _something(text)
    sent = await _writer(ctx).message(ctx.key, user, text, ctx.intent.text, ctx.requester or "")
    return ToolResult(note=phrase("done.sent", id=sent))


@tool(Access.EGRESS, Effect.REACT, client=SlackReader)
async def add_reaction(ctx: ToolContext, message: Thread, name: str) -> ToolResult:
    """Add a reaction to a message. `name`: of the emoji, without colons."""
    channel, _, ts = message.partition("/")
    name = name.strip(": ").lower()
    if not EMOJI.fullmatch(name) or not TS.fullmatch(ts):
        raise ToolError("Give a message's id and the name of an emoji, like white_check_mark.")
    await _writer(ctx).react(channel, ts, name)
    return ToolResult(note=phrase("done.added"))


TOOLS = (post_message, send_direct_message, add_reaction)


def _something(text: str) -> None:
    if not text.strip():
        raise ToolError("The text is empty. Write what is to be said.")


def _writer(ctx: ToolContext) -> SlackWriter:
    try:
        return ctx.client(SlackWriter)  # type: ignore[type-abstract]
    except KeyError:
        raise ToolError(
            "Nothing can be written from here; put the text into your answer."
        ) from None
