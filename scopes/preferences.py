"""Standing preferences: the form of answers to a person, and of all answers in a channel.

A preference is its person's own; the instructions of a channel are set by one of its members. The
parent of a request reads both, the gate neither: they decide the form of an answer, never what may
be read or written. `ask_user` asks the requester to choose.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Protocol

from pydantic import Field

from config.words import phrase
from scopes.clean import printable
from scopes.effects import Access, Effect, PreparedCall, Said
from scopes.label import TRUSTED_LABEL, Label, is_conversation
from scopes.tool import ToolContext, ToolError, ToolResult, one_line, tool

MAX_PREFERENCES = 20
"""Maximum preferences of one person."""
MAX_PREFERENCE, MAX_INSTRUCTIONS = 200, 2_000
"""Characters."""
TOO_MANY_ERROR = (
    f"{MAX_PREFERENCES} preferences are kept already, which is the most. The requester deletes one "
    "in App Home or by forget_preference first."
)
NO_CHANNEL = (
    "A direct message has no channel instructions. Ask in the channel, or use remember_preference."
)


@dataclass(frozen=True, slots=True)
class Preference:
    id: int
    text: str


@dataclass(frozen=True, slots=True)
class Authorship:
    """The author of a text and its sources: `forget` deletes it with any of these."""

    by: str
    label: Label = TRUSTED_LABEL
    run: str | None = None
    """None if the words are the person's own."""


class Preferences(Protocol):
    """The preferences of this workspace. The methods raise ToolError for a forbidden text."""

    async def list_preferences(self, user: str) -> Sequence[Preference]:
        """Return a person's preferences, oldest first."""

    async def add(self, text: str, authorship: Authorship) -> None:
        """Store a preference of a person as the last one; it replaces one with the same words."""

    async def delete(self, user: str, id: int, key: str = "", run: str = "") -> None:
        """Delete a preference if it is this person's; `key` names the call of `run`."""

    async def has_deleted(self, key: str) -> bool:
        """Return whether the call of this key has deleted one, including before a restart."""

    async def instructions(self, channel: str) -> str:
        """Return the instructions of a channel; empty for none."""

    async def check_member(self, user: str, channel: str) -> None:
        """Raise ToolError unless this person is a full member, and in the channel now."""

    async def instruct(self, channel: str, text: str, authorship: Authorship) -> None:
        """Replace the instructions of a channel; an empty text removes them."""


async def _prepare_preference(ctx: ToolContext, text: str) -> PreparedCall:
    if len(await _preferences(ctx).list_preferences(_requester(ctx))) >= MAX_PREFERENCES:
        raise ToolError(TOO_MANY_ERROR)
    return PreparedCall({"text": _check_text(text, MAX_PREFERENCE, "A preference")})


@tool(Access.WRITE, Effect.PREFER, prepare=_prepare_preference, client=Preferences)
async def remember_preference(ctx: ToolContext, text: Said) -> ToolResult:
    """Keep how the requester wants to be answered from now on. `text`: the words of the REQUEST
    for it, word for word, at most 200 characters."""
    kept = _check_text(text, MAX_PREFERENCE, "A preference")
    await _preferences(ctx).add(kept, _authorship(ctx, text))
    return ToolResult(note=phrase("preference.kept"))


async def _prepare_forget(ctx: ToolContext, words: str) -> PreparedCall:
    return PreparedCall({"words": (await _find_preference(ctx, words)).text})


@tool(Access.WRITE, Effect.PREFER, prepare=_prepare_forget, client=Preferences)
async def forget_preference(ctx: ToolContext, words: str) -> ToolResult:
    """Delete one of PREFERENCES. `words`: such of it as stand in the REQUEST and in no other."""
    preferences, text = _preferences(ctx), words
    if not await preferences.has_deleted(ctx.key):  # otherwise the words may fit another one now
        preference = await _find_preference(ctx, words)
        await preferences.delete(_requester(ctx), preference.id, ctx.key, ctx.run)
        text = preference.text
    return ToolResult(note=phrase("preference.deleted", text=text))


async def _prepare_instruction(ctx: ToolContext, text: str) -> PreparedCall:
    preferences, channel = _preferences(ctx), _channel(ctx)
    await preferences.check_member(_requester(ctx), channel)
    text = _check_text(text, MAX_INSTRUCTIONS, "The text") if text.strip() else ""
    before = await preferences.instructions(channel)
    facts = {phrase("preference.holds_for"): phrase("preference.all_here")}
    if before:
        key = "preference.replaces" if text else "preference.removes"
        facts[phrase(key)] = f"{phrase('preference.set_now')}\n{before}"
    elif not text:
        raise ToolError("This channel has no instructions.")
    return PreparedCall({"text": text}, facts)


@tool(Access.EGRESS, Effect.INSTRUCT, prepare=_prepare_instruction, client=Preferences)
async def set_channel_instructions(ctx: ToolContext, text: Said = "") -> ToolResult:
    """Set how all who ask in the channel of the REQUEST are answered (tone, words, language, who
    owns what). `text` replaces all that is set there, at most 2,000 characters; empty removes
    it."""
    preferences, channel = _preferences(ctx), _channel(ctx)
    await preferences.check_member(_requester(ctx), channel)
    kept = _check_text(text, MAX_INSTRUCTIONS, "The text") if text.strip() else ""
    await preferences.instruct(channel, kept, _authorship(ctx, text))
    return ToolResult(note=phrase("preference.instructed" if kept else "preference.cleared"))


PREFERENCE_TOOLS = (remember_preference, forget_preference, set_channel_instructions)


def _preferences(ctx: ToolContext) -> Preferences:
    return ctx.client(Preferences)  # type: ignore[type-abstract]


def _requester(ctx: ToolContext) -> str:
    if not ctx.requester:
        raise ToolError("Preferences belong to people of Slack, and nobody of it asks here.")
    return ctx.requester


def _channel(ctx: ToolContext) -> str:
    home = ctx.intent.home
    if not is_conversation(home) or home.startswith("D"):
        raise ToolError(NO_CHANNEL)
    return home


def _authorship(ctx: ToolContext, text: str) -> Authorship:
    by = _requester(ctx)
    return Authorship(by) if ctx.intent.says_unquoted(text) else Authorship(by, ctx.label, ctx.run)


def _check_text(text: str, most: int, what: str) -> str:
    """Return the text on one line, with nothing invisible in it. Raises ToolError."""
    line = one_line(printable(text))
    if not line:
        raise ToolError(f"{what} needs words.")
    if len(line) > most:
        raise ToolError(f"{what} has at most {most:,} characters, this one {len(line):,}.")
    return line


async def _find_preference(ctx: ToolContext, words: str) -> Preference:
    """Return the one preference with these words. Raises ToolError."""
    wanted = _check_text(words, MAX_PREFERENCE, "A preference").casefold()
    listed = await _preferences(ctx).list_preferences(_requester(ctx))
    found = [each for each in listed if wanted in each.text.casefold()]
    exact = [each for each in found if each.text.casefold() == wanted]
    if len(exact or found) != 1:
        many = f"{len(found)} preferences have" if found else "No preference has (any more)"
        raise ToolError(f"{many} these words. Give words of exactly one of PREFERENCES.")
    return (exact or found)[0]


MAX_QUESTION = 300
MAX_OPTION = 75
"""Characters that a button of Slack takes (docs.slack.dev, button element)."""
OPTIONS = (2, 5)
"""Fewest and most answers to choose from."""

Option = Annotated[str, Field(min_length=1, max_length=MAX_OPTION)]


async def _prepare_question(ctx: ToolContext, question: str, options: list[str]) -> PreparedCall:
    options = list(dict.fromkeys(one_line(printable(option)) for option in options))
    question = one_line(printable(question))
    if not question or not all(options) or len(options) < OPTIONS[0]:
        raise ToolError("A question needs words, and at least two different options.")
    return PreparedCall({"question": question, "options": options})


@tool(Access.WRITE, Effect.CHOOSE, prepare=_prepare_question)
async def ask_user(
    ctx: ToolContext,
    question: Annotated[str, Field(max_length=MAX_QUESTION)],
    options: Annotated[list[Option], Field(min_length=OPTIONS[0], max_length=OPTIONS[1])],
) -> ToolResult:
    """Ask the requester to choose one of 2 to 5 options, where a wrong guess would cost. The
    request is answered again with their choice."""
    raise ToolError("Only the requester answers this.")  # the gate puts it on a card


TOOLS = (*PREFERENCE_TOOLS, ask_user)
