"""Rebuild the thread of a request from Slack for each turn; no part of it is stored."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import aiohttp

from bot.slack.messages import (
    dicts,
    has_words,
    mapping,
    mark_of,
    people_in,
    ts_of,
    words_of,
)
from bot.slack.people import People
from bot.storage.requests import IncomingMessage
from config.words import phrase
from scopes.label import Label
from scopes.slack_client import Absent, SlackClient, SlackRefused
from scopes.slack_items import Maker, SlackMessage, clean_name, plain
from scopes.slack_reader import SlackReader
from scopes.tool import Item, SourceFailed, estimate_tokens, one_line, readable
from subagents.delimiter import shorten

log = logging.getLogger(__name__)

SLACK_ERRORS = (Absent, SourceFailed, aiohttp.ClientError, TimeoutError, OSError)
"""Exceptions that a call to Slack may raise."""
READ_S = 20.0
"""Seconds for reading a thread; messages read by then are used."""
HEAD_SHARE = 0.25
"""Share of the tokens for the root and the first replies; the last ones get the rest."""
MESSAGE_SHARE = 0.2
"""Share of the tokens for one message; the request itself may take half."""
OWN_ANSWER_NOTE = "your own earlier answer"
"""The note on a message that the assistant wrote."""
ASSISTANT = "assistant"
BREAKS = re.compile(r"\s*\n\s*")
"""Line breaks in a message, which are replaced by slashes: a message is one line."""


@dataclass(frozen=True, slots=True)
class Thread:
    """A request with the messages before it."""

    text: str
    """One line a message, oldest first, the request last; never empty. Data, not instructions."""
    items: tuple[Item, ...]
    """The messages in `text`, the request last."""
    label: Label
    """Label of what others said; a request without context belongs to its author."""
    request: str
    """The current words of the request as people see them, without the mention; an edit counts.
    Empty if there are none."""
    raw_text: str = ""
    """The request as Slack sent it, with its marks for channels and people.

    It is empty if the request itself has no words.
    """
    note: str = ""
    """The missing part of the thread and the reason, in a sentence; empty if it is complete."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Time -> text, as Slack sent it, of the requester's earlier messages, oldest first."""
    others: tuple[SlackMessage, ...] = ()
    """The messages besides the request and earlier answers, as Slack has them."""
    attached: bool = False
    """Whether a file or link preview is attached to the request."""


async def read_thread(
    client: SlackClient,
    people: People,
    lines: ThreadLines,
    max_tokens: int,
    asked_before: Sequence[str] = (),
) -> Thread:
    """Return the current thread in Slack, up to the request of `lines`, in about `max_tokens`.

    A top-level message is its own thread; in a direct message it follows the same person's requests
    of the times `asked_before`, without their answers: the sources of these would decide who may
    read all later answers. For a thread that cannot be read, return the request alone, with a note.
    Raises only cancellation.
    """
    incoming, messages, note = lines.incoming, list[SlackMessage](), ""
    request = _request_of(incoming)
    if asked_before:
        found, note = await _read(client, incoming, asked_before[0])
        messages = [m for m in found if m.ts in asked_before and has_words(m)]
    elif incoming.thread_ts != incoming.ts:
        messages, note = await _read(client, incoming)
        request = next((m for m in messages if m.ts == incoming.ts), request)
    before = [m for m in messages if m.ts != incoming.ts]
    head, tail = lines.fit_messages(before, request, max_tokens)
    first, later = before[:head], before[len(before) - tail :]
    others = (id for id in people_in([*first, *later, request]) if id != lines.bot_user)
    named = replace(lines, people=await people.names(others, incoming.team))
    return named.thread(before, (first, later), request, max_tokens, note)


def _request_of(incoming: IncomingMessage) -> SlackMessage:
    event = readable(dict(incoming.event))
    text = event.get("text")
    own = {"ts": incoming.ts, "user": incoming.user, "text": text if isinstance(text, str) else ""}
    return SlackMessage({**event, **own})


async def _read(
    client: SlackClient, incoming: IncomingMessage, since: str = ""
) -> tuple[list[SlackMessage], str]:
    """Return the messages of the thread up to the request, oldest first, and what failed.

    `since` is the time of the first message to read outside of threads instead.
    """
    messages: list[SlackMessage] = []
    where = {"oldest": since} if since else {"ts": incoming.thread_ts}
    pages = client.pages(
        "conversations.history" if since else "conversations.replies",
        "messages",
        channel=incoming.channel,
        latest=incoming.ts,
        inclusive="true",
        include_all_metadata="true",
        **where,
    )
    note = ""
    try:
        async with asyncio.timeout(READ_S):
            async for message in pages:
                if _counts(message, incoming.ts):
                    messages.append(SlackMessage(message))
    except SLACK_ERRORS as error:
        if isinstance(error, Absent) and str(error) == "not_in_channel":
            error = SlackRefused("conversations.replies", str(error), "")
        why = str(error) or type(error).__name__
        note = phrase("thread.rest_unread" if messages else "thread.unread", why=why)
        log.warning("the thread %s/%s: %s", incoming.channel, incoming.thread_ts, note)
    return sorted(messages, key=lambda m: m.ts), note


def _counts(message: Any, latest: str) -> bool:
    ts = ts_of(mapping(message).get("ts"))
    return bool(ts) and ts <= latest and SlackMessage(message).is_said


async def channel_label(reader: SlackReader, channel: str, unless: frozenset[str]) -> Label:
    """Return who may read a channel, or `unless` if that cannot be found out."""
    try:
        return await reader.label(channel)
    except SLACK_ERRORS as error:
        log.warning("who may read %s is not known: %s", channel, error)
        return Label(True, unless, frozenset({channel}), outside=True)


@dataclass(frozen=True)
class ThreadLines:
    """Turns the messages of one thread into lines."""

    incoming: IncomingMessage
    """The request."""
    bot_user: str
    url: str
    """The workspace's address, for links."""
    label: Label
    """The label of the channel."""
    answers: Mapping[str, str]
    """Run -> the text of our own earlier answer, as it was written: with the ids of its findings
    instead of numbered links."""
    people: Mapping[str, str] = field(default_factory=dict)

    def item(self, message: SlackMessage, max_tokens: int) -> Item:
        channel, root = self.incoming.channel, self.incoming.thread_ts
        own = message.user == self.bot_user
        people = {**self.people, self.bot_user: ASSISTANT}
        maker = Maker(channel, people, self.url, self.label, None)
        words = self.answers.get(self._run(message)) or words_of(message)
        content = {**message.raw, "text": shorten(BREAKS.sub(" / ", words), max_tokens)}
        content |= {"files": dicts(message.files), "reactions": dicts(message.reactions)}
        line_item = maker.item(SlackMessage(content), root)
        if own:
            notes = [n for n in line_item.notes if n != "bot"]
            return replace(line_item, by=ASSISTANT, notes=(*notes, OWN_ANSWER_NOTE))
        if line_item.by == ASSISTANT and line_item.author:
            return replace(line_item, by=f"{ASSISTANT} ({clean_name(line_item.author)})")
        return line_item

    def _is_known(self, message: SlackMessage) -> bool:
        """Return whether a message is the requester's, or our answer with a known label."""
        own = message.user == self.incoming.user
        return own or self._run(message) in self.answers

    def request(self, message: SlackMessage) -> str:
        """Return the text of the request, without the mention of the bot."""
        text = self._strip_mention(words_of(message))
        return plain(text, {**self.people, self.bot_user: ASSISTANT}).strip()

    def own_words(self, message: SlackMessage) -> str:
        """Return the author's own text, without forwarded messages and link previews."""
        return self._strip_mention(message.text) if has_words(message) else ""

    def _strip_mention(self, text: str) -> str:
        mention = rf"<@{re.escape(self.bot_user)}(?:\|[^<>]*)?>"
        return re.sub(rf"\A\s*{mention}[\s,:;]*|\s*{mention}\s*\Z", "", text).strip()

    def last(self, message: SlackMessage, max_tokens: int) -> tuple[Item, str]:
        item = replace(
            self.item(message, max_tokens), text=shorten(self.request(message), max_tokens)
        )
        return item, f"REQUEST: {item.line().strip()}"

    def fit_messages(
        self, before: Sequence[SlackMessage], request: SlackMessage, max_tokens: int
    ) -> tuple[int, int]:
        """Return how many of the first and of the last messages fit next to the request."""
        available = max_tokens - estimate_tokens(self.last(request, max_tokens // 2)[1]) - 20
        each = int(max_tokens * MESSAGE_SHARE)
        sizes = [estimate_tokens(self.item(m, each).line()) + 1 for m in before]
        head = _fit(sizes, min(available, int(max_tokens * HEAD_SHARE)))
        tail = _fit(sizes[head:][::-1], available - sum(sizes[:head]))
        return head, tail

    def thread(
        self,
        before: Sequence[SlackMessage],
        ends: tuple[Sequence[SlackMessage], Sequence[SlackMessage]],
        request: SlackMessage,
        max_tokens: int,
        note: str,
    ) -> Thread:
        """Return the thread, of which only the messages of `ends` are shown."""
        each = int(max_tokens * MESSAGE_SHARE)
        shown = [*ends[0], *ends[1]]
        first, later = ([self.item(m, each) for m in end] for end in ends)
        left_out = len(before) - len(shown)
        item, line = self.last(request, max_tokens // 2)
        user = self.incoming.user
        lines = [i.line() for i in first]
        if left_out:
            lines.append(f"({left_out} message{'s' * (left_out > 1)} left out here)")
        lines += [i.line() for i in later]
        if note:
            lines.append(f"({one_line(note)})")
        return Thread(
            text="\n".join([*lines, line]),
            items=(*first, *later, item),
            label=self.said_label(before, request),
            request=self.request(request),
            raw_text=self.own_words(request),
            note=note,
            own={m.ts: self.own_words(m) for m in shown if m.user == user},
            others=tuple(m for m in shown if self._run(m) not in self.answers),
            attached=request.has_attachments,
        )

    def said_label(self, before: Sequence[SlackMessage], request: SlackMessage) -> Label:
        """Return the label of what others wrote; the requester's words add nothing to it, but the
        names of attached files and links do, as others may have chosen those.

        Our answers have the label of their run; our other messages, such as a card or something
        sent for somebody, have that of the conversation.
        """
        alone = all(has_words(m) and self._is_known(m) for m in before)
        direct = self.incoming.channel.startswith("D")
        if not has_words(request) or not (alone and (direct or not before)):
            return self.label
        return Label(untrusted=not all(map(self._is_own_text, before)))

    def _is_own_text(self, message: SlackMessage) -> bool:
        """Return whether a message contains only words of the requester."""
        return message.user == self.incoming.user and not message.has_attachments

    def _run(self, message: SlackMessage) -> str:
        """Return the run whose answer this message is; only the bot's own messages can be one."""
        return mark_of(message).run if message.user == self.bot_user else ""


def _fit(sizes: Sequence[int], available: int) -> int:
    """Count how many of these fit, from the first on."""
    for count, size in enumerate(sizes):
        available -= size
        if available < 0:
            return count
    return len(sizes)
