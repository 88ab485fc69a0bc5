"""The thread that a request stands in, rebuilt from Slack for each turn: nothing of it is kept."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Protocol

from bot.hearing.said import Message, dicts, has_words, people_in, words_of
from bot.requests.names import FAILURES, Names
from scopes.label import WORKSPACE, Label
from scopes.slack_client import Absent, SlackClient, SlackRefused
from scopes.slack_items import NOT_MESSAGES, Maker, plain, shown
from scopes.tool import Item, estimate_tokens, one_line, readable
from subagents.fence import shorten

log = logging.getLogger(__name__)

READ_S = 20.0
"""Seconds for reading a thread; what was read by then counts."""
HEAD_SHARE = 0.25
"""Share of the tokens for the root and the first replies; the last ones get the rest."""
MESSAGE_SHARE = 0.2
"""Share of the tokens that one message may take; the request itself may take half."""
OWN = "your own earlier answer"
"""The note of a message that the assistant wrote."""
ASSISTANT = "assistant"
BREAKS = re.compile(r"\s*\n\s*")
"""A message is one line: its own lines stand apart by slashes."""


class Asking(Protocol):
    """What is needed of `bot.requests.inbox.Incoming`."""

    @property
    def channel(self) -> str: ...
    @property
    def ts(self) -> str: ...
    @property
    def thread_ts(self) -> str: ...
    @property
    def user(self) -> str: ...
    @property
    def event(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class Thread:
    """A request with what was said before it."""

    text: str
    """One line a message, oldest first, the request last; never empty. Data, not instructions."""
    items: tuple[Item, ...]
    """The messages that `text` shows, the request last."""
    label: Label
    """Of what others said: a request that stands alone is its author's to pass on."""
    runs: tuple[str, ...]
    """Ids of the runs whose answers stand in the thread, oldest first."""
    request: str
    """The words of the request as people see them, without the mention; empty when there are none.
    As they are now: an edit counts."""
    said: str = ""
    """The request as Slack sent it, with its marks for channels and people; empty where it has no
    words of its own."""
    note: str = ""
    """What of the thread is missing and why, in a sentence; empty when nothing is."""
    others: tuple[Message, ...] = ()
    """The messages that it shows besides the request and earlier answers, as Slack has them."""
    attached: bool = False
    """Whether something is attached to the request or unfurled in it."""


async def rebuild(
    client: SlackClient,
    incoming: Asking,
    max_tokens: int,
    bot_user: str,
    names: Names,
    label_of: Callable[[str], Awaitable[Label]],
    url: str = "",
    answers: Mapping[str, str] = MappingProxyType({}),
) -> Thread:
    """The thread as it stands in Slack now, up to the request, in at most about `max_tokens`.

    `label_of` says who may read a channel (`SlackReader.label`), `url` is the workspace's address
    for links, `answers` holds the text of our own earlier answers by run, as it was written: with
    the ids of its findings instead of numbered links. A top-level message is its own thread and
    costs no call. A thread that cannot be read is the request alone, with a note. Raises nothing
    but cancellation.
    """
    asked = _request_of(incoming)
    if incoming.thread_ts == incoming.ts:
        told = _Told(
            incoming, bot_user, url, _closed(incoming), names.known(people_in([asked])), answers
        )
        return told.thread([], asked, max_tokens, "")
    said, note = await _read(client, incoming)
    asked = next((m for m in said if m["ts"] == incoming.ts), asked)
    before = [m for m in said if m["ts"] != incoming.ts]
    label = await _label(incoming, label_of)
    bare = _Told(incoming, bot_user, url, label, {}, answers)
    head, tail = bare.fitting(before, asked, max_tokens)
    ids = people_in([*before[:head], *before[len(before) - tail :], asked])
    people = await names.of(i for i in ids if i != bot_user)
    told = replace(bare, people=people)
    return told.thread(before, asked, max_tokens, note)


def _request_of(incoming: Asking) -> Message:
    event = readable(dict(incoming.event))
    text = event.get("text")
    return {
        **event,
        "ts": incoming.ts,
        "user": incoming.user,
        "text": text if isinstance(text, str) else "",
    }


async def _read(client: SlackClient, incoming: Asking) -> tuple[list[dict[str, Any]], str]:
    """What people and bots said in the thread up to the request, oldest first, and what failed."""
    said: list[dict[str, Any]] = []
    pages = client.pages(
        "conversations.replies",
        "messages",
        channel=incoming.channel,
        ts=incoming.thread_ts,
        latest=incoming.ts,
        inclusive="true",
        include_all_metadata="true",
    )
    note = ""
    try:
        async with asyncio.timeout(READ_S):
            async for message in pages:
                if _counts(message, incoming.ts):
                    said.append(message)
    except FAILURES as error:
        what = "The rest of the thread" if said else "The thread"
        if isinstance(error, Absent) and str(error) == "not_in_channel":
            error = SlackRefused("conversations.replies", str(error), "")
        why = str(error) or type(error).__name__
        note = f"{what} could not be read: {why}."
        log.warning("the thread %s/%s: %s", incoming.channel, incoming.thread_ts, note)
    return sorted(said, key=lambda m: _order(m["ts"])), note


def _counts(message: Any, latest: str) -> bool:
    if not isinstance(message, dict) or not isinstance(message.get("ts"), str):
        return False
    if not re.fullmatch(r"\d+\.\d+", message["ts"]):
        return False
    return message.get("subtype") not in NOT_MESSAGES and _order(message["ts"]) <= _order(latest)


def _order(ts: str) -> tuple[int, str]:
    seconds, _, rest = ts.partition(".")
    return int(seconds) if seconds.isdigit() else 0, rest.ljust(6, "0")


async def _label(incoming: Asking, label_of: Callable[[str], Awaitable[Label]]) -> Label:
    try:
        async with asyncio.timeout(READ_S):
            return await label_of(incoming.channel)
    except FAILURES as error:
        log.warning("who may read %s is not known: %s", incoming.channel, error)
        return _closed(incoming)


def _closed(incoming: Asking) -> Label:
    """A label made without a call: public where the event says so, else for the asker only."""
    public = incoming.event.get("channel_type") == "channel"
    readers = WORKSPACE if public else frozenset({incoming.user})
    return Label(untrusted=True, readers=readers, sources=frozenset({incoming.channel}))


@dataclass(frozen=True)
class _Told:
    """Turns the messages of one thread into lines."""

    incoming: Asking
    bot_user: str
    url: str
    label: Label
    people: Mapping[str, str]
    answers: Mapping[str, str]

    def item(self, message: Message, room: int) -> Item:
        channel, root = self.incoming.channel, self.incoming.thread_ts
        own = message.get("user") == self.bot_user
        people = {**self.people, self.bot_user: ASSISTANT}
        maker = Maker(channel, people, self.url, self.label, None)
        words = self.answers.get(self._run(message)) or words_of(message)
        said = {**message, "text": shorten(BREAKS.sub(" / ", words), room)}
        said |= {k: dicts(message.get(k)) for k in ("files", "reactions")}
        made = maker.item(said, root)
        if own:
            notes = [n for n in made.notes if n != "bot"]
            return replace(made, by=ASSISTANT, notes=(*notes, OWN))
        if made.by == ASSISTANT and made.author:
            return replace(made, by=f"{ASSISTANT} ({shown(made.author)})")
        return made

    def _is_known(self, message: Message) -> bool:
        """The requester's own, or an answer of ours whose label the caller knows and joins."""
        own = message.get("user") == self.incoming.user
        return own or self._run(message) in self.answers

    def request(self, message: Message) -> str:
        """The words of the request: the mention that calls the bot is no part of them."""
        bare = self._unaddressed(words_of(message))
        return plain(bare, {**self.people, self.bot_user: ASSISTANT}).strip()

    def own_words(self, message: Message) -> str:
        """What its author typed: not what a forwarded message or an unfurled link says."""
        return self._unaddressed(str(message["text"])) if has_words(message) else ""

    def _unaddressed(self, text: str) -> str:
        mention = rf"<@{re.escape(self.bot_user)}(?:\|[^<>]*)?>"
        return re.sub(rf"\A\s*{mention}[\s,:;]*|\s*{mention}\s*\Z", "", text).strip()

    def last(self, message: Message, room: int) -> tuple[Item, str]:
        item = replace(self.item(message, room), text=shorten(self.request(message), room))
        return item, f"REQUEST: {item.line().strip()}"

    def fitting(self, before: Sequence[Message], asked: Message, room: int) -> tuple[int, int]:
        """How many of the first and of the last messages fit beside the request."""
        left = room - estimate_tokens(self.last(asked, room // 2)[1]) - 20
        each = int(room * MESSAGE_SHARE)
        sizes = [estimate_tokens(self.item(m, each).line()) + 1 for m in before]
        if sum(sizes) <= left:
            return len(sizes), 0
        head = _fit(sizes, min(left, int(room * HEAD_SHARE)))
        tail = _fit(sizes[head:][::-1], left - sum(sizes[:head]))
        return head, tail

    def thread(self, before: Sequence[Message], asked: Message, room: int, note: str) -> Thread:
        head, tail = self.fitting(before, asked, room)
        each = int(room * MESSAGE_SHARE)
        told = [*before[:head], *(before[len(before) - tail :] if tail else ())]
        first = [self.item(m, each) for m in told[:head]]
        later = [self.item(m, each) for m in told[head:]]
        left_out = len(before) - head - tail
        item, line = self.last(asked, room // 2)
        lines = [i.line() for i in first]
        if left_out:
            lines.append(f"({left_out} message{'s' * (left_out > 1)} left out here)")
        lines += [i.line() for i in later]
        if note:
            lines.append(f"({one_line(note)})")
        return Thread(
            text="\n".join([*lines, line]),
            items=(*first, *later, item),
            label=self.said_label(before, asked),
            runs=tuple(dict.fromkeys(filter(None, map(self._run, before)))),
            request=self.request(asked),
            said=self.own_words(asked),
            note=note,
            others=tuple(m for m in told if self._run(m) not in self.answers),
            attached=bool(asked.get("attachments") or asked.get("files")),
        )

    def said_label(self, before: Sequence[Message], asked: Message) -> Label:
        """Nobody else's words: nobody's label. An answer of ours has that of its run; whatever
        else we wrote, a card or something sent for somebody, that of the conversation."""
        alone = all(has_words(m) and self._is_known(m) for m in before)
        direct = self.incoming.channel.startswith("D")
        if not has_words(asked) or not (alone and (direct or not before)):
            return self.label
        return Label(untrusted=bool(before))

    def _run(self, message: Message) -> str:
        """The run whose answer this message is: only what the bot itself wrote can say so."""
        metadata = message.get("metadata")
        if message.get("user") != self.bot_user or not isinstance(metadata, dict):
            return ""
        payload = metadata.get("event_payload")
        if metadata.get("event_type") != "assistant_reply" or not isinstance(payload, dict):
            return ""
        run = payload.get("run")
        return run if isinstance(run, str) else ""


def _fit(sizes: Sequence[int], room: int) -> int:
    """How many of these, from the first on, fit."""
    for count, size in enumerate(sizes):
        room -= size
        if room < 0:
            return count
    return len(sizes)
