"""The rules of the gate: each looks at one call and objects, or has nothing against it.

They assume that the model does whatever a text told it to: a rule reads what a tool declares, what
the context has read, what the requester wrote, and what the services say of memberships.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from scopes.effects import MAIL_THREAD, WHOLE, Access, Effect, Part
from scopes.hosts import is_public
from scopes.intent import UNASKED
from scopes.label import PUBLIC
from scopes.statement import is_one_read
from scopes.tool import Tool, ToolContext, not_found
from subagents.directory import Directory, Obstacle

ME = "me"
"""Whom a model may always address: who asked."""
MAX_FREE = 5
"""Messages and marks that one request may leave without a person's word for each."""
MAX_KEPT = 10
"""Notes, drafts and labels that one context may make."""
MAX_ASKED = 5
"""Addresses and searches outside of a run after private text was read: which of the request's own
words are sent, and how often, could spell something out."""
LEAVES = (Effect.POST, Effect.REACT)
ASKS = (Effect.FETCH, Effect.SEARCH)
ACTS = (*LEAVES, Effect.SEND, Effect.CHANGE)


def count_of(effect: Effect, context: str) -> str:
    """What a call counts towards: a run's messages and marks, its questions outside, or what one
    context has stored."""
    if effect is Effect.KEEP:
        return f"keep {context}"
    return "leave" if effect in LEAVES else "ask" if effect in ASKS else effect


@dataclass(frozen=True, slots=True)
class Objection:
    """Why a call may not run as it is."""

    reason: str
    """Shown to the model; for what is hidden the same as for what does not exist."""
    approvable: bool = False
    """It may run if a person approves of exactly this."""


@dataclass
class Call:
    """One call as the rules see it."""

    ctx: ToolContext
    tool: Tool
    values: dict[str, Any]
    """The validated arguments; names become ids by the rule of handles."""
    directory: Directory
    counts: Mapping[str, int] = field(default_factory=dict)
    """Calls that were allowed in this run so far, by `count_of`."""
    context: str = ""
    given: dict[str, str] = field(default_factory=dict)
    """What stood in the handle arguments, before it was resolved."""

    def __post_init__(self) -> None:
        fields = self.tool.input_model.model_fields
        for name in self.tool.handle_arguments:
            value = self.values.get(name)
            if value or fields[name].is_required():
                self.given[name] = str(value)

    @property
    def effect(self) -> Effect:
        return self.tool.effect

    @property
    def target(self) -> str:
        """The conversation, message or person that it is about; empty where it names none."""
        kinds = ("channel", "person", "thread")
        named = {k: self.values.get(n) for n, k in self.tool.handle_arguments.items()}
        return next((str(named[kind]) for kind in kinds if named.get(kind)), "")

    @property
    def destination(self) -> str:
        """The conversation or person that it reaches."""
        return self.target.partition("/")[0]

    def parts(self, part: Part) -> list[str]:
        """The texts of the arguments that play this part."""
        return [str(self.values[n]) for n, p in self.tool.parts.items() if p is part]

    def hidden(self, name: str) -> Objection:
        """The one answer for what is outside the handles, forbidden or absent."""
        return Objection(not_found(self.tool.handle_arguments[name], self.given[name]))


Check = Callable[[Call], Awaitable[Objection | None]]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    check: Check


async def handles(call: Call) -> Objection | None:
    """A tool touches only what its context was given or has listed."""
    held = call.ctx.handles
    if call.tool.needs and call.tool.needs not in held.titles:
        return Objection(not_found("such thing", call.tool.name))
    for name, value in call.given.items():
        kind = call.tool.handle_arguments[name]
        person = kind == "person"
        oneself = person and value in (ME, call.ctx.requester)
        named = held.exact(value) if person else held.resolve(value)
        if named is None and WHOLE.get(kind) in held.titles:  # it may find and read all of them
            named = value
        found = call.ctx.requester if oneself else named
        if found is None:
            return call.hidden(name)
        call.values[name] = found
    return None


async def entitlement(call: Call) -> Objection | None:
    """Nobody gets by the bot what they could not open themselves, as of now.

    A mail thread is asked of the requester's own mailbox, with the rights that they gave: another
    one's is not in it, and `email` reads and writes no other.
    """
    for name, kind in call.tool.handle_arguments.items():
        value = call.values.get(name)
        if not value or kind in ("person", MAIL_THREAD):
            continue
        leaves = call.tool.access is Access.EGRESS
        if not await call.directory.may_read(call.ctx.requester, str(value), fresh=leaves):
            return call.hidden(name)
    return None


async def statement(call: Call) -> Objection | None:
    """A statement reads, once; code runs where it can reach nothing."""
    if call.effect is Effect.CODE and not call.tool.sandboxed:
        return Objection(f"{call.tool.name} has no sandbox here, so it does not run.")
    for text in call.parts(Part.STATEMENT):
        if not is_one_read(text):
            return Objection("Only one SELECT statement may be run at a time, and nothing else.")
    return None


async def fetch(call: Call) -> Objection | None:
    """An address is asked that the request holds; a listed one only where nothing private was read.

    An address made by a model could carry what it read.
    """
    if call.effect is not Effect.FETCH:
        return None
    listed = call.ctx.handles.titles if call.ctx.label.readers == PUBLIC else {}
    for url in call.parts(Part.ADDRESS):
        if not _is_plain(url):
            return Objection("Only http and https addresses of named hosts can be read.")
        if url not in call.ctx.intent.addresses() and url not in listed:
            return Objection(
                "This address may not be read here: it stands neither in the request nor, word for "
                "word, in what you found before reading anything private."
            )
    return None


def _is_plain(url: str) -> bool:
    """An address that a browser's user could mean: no login, no port, a public host."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    named = is_public(parts.hostname or "")
    web = parts.scheme in ("http", "https") and port in (None, 80, 443)
    return bool(web and named and "@" not in parts.netloc and not set(url) & set("\\\r\n\t "))


async def search(call: Call) -> Objection | None:
    """What is asked outside is told outside: no words of a context that read something private."""
    if call.effect is not Effect.SEARCH or call.ctx.label.readers == PUBLIC:
        return None
    if all(call.ctx.intent.says(words) for words in call.parts(Part.WORDS)):
        return None
    return Objection(
        "No search outside after private text was read, unless in the words of the request. "
        "Search first, in a subagent of its own."
    )


async def audience(call: Call) -> Objection | None:
    """All who can read a destination must be readers of what goes there."""
    if call.effect not in (Effect.POST, Effect.REACT) or _is_literal(call):
        return None
    found = await call.directory.obstacles(call.ctx.label, call.destination)
    return Objection(in_the_way(found)) if found else None


def in_the_way(obstacles: tuple[Obstacle, ...]) -> str:
    """A sentence for the model on why a text may not go somewhere."""
    named = ", ".join(dict.fromkeys(f"{o.name} ({o.why})" for o in obstacles))
    ever = " An administrator can allow it for good." if all(o.grantable for o in obstacles) else ""
    return f"It may not be written there: {named}. Say it in your answer instead.{ever}"


async def consequence(call: Call) -> Objection | None:
    """What acts beyond the answer follows the requester's own words, or waits for approval."""
    if call.effect in ACTS and call.ctx.intent == UNASKED:  # no card of it would ever be seen
        return Objection("Nobody has asked for anything to be written or changed here.")
    if call.effect in (Effect.SEND, Effect.CHANGE):
        return Objection(f"{call.tool.name} always needs approval.", approvable=True)
    if call.effect is Effect.KEEP and call.ctx.intent == UNASKED:
        return Objection("Nobody has asked for anything to be stored here.")
    if call.effect not in (Effect.POST, Effect.REACT):
        return None
    ctx, intent = call.ctx, call.ctx.intent
    own = ctx.requester and call.destination == ctx.requester
    if call.effect is Effect.REACT:  # a mark on a message may stand for somebody's word
        own, free = False, {intent.own, *intent.named}
        reached = {call.target}
    else:
        free = {intent.thread, *intent.named} - {""}
        reached = {f"{call.destination}/{t.rpartition('/')[2]}" for t in call.parts(Part.THREAD)}
        reached |= {call.destination}
    if own or reached & free:
        return None
    return Objection("The request does not name this as a place to write to.", approvable=True)


async def flood(call: Call) -> Objection | None:
    """However often it is told to, a model does not fill a channel, or a drawer."""
    done = call.counts.get(count_of(call.effect, call.context), 0)
    if call.effect is Effect.KEEP and done >= MAX_KEPT:
        return Objection(f"{MAX_KEPT} things were stored here already. Sum up instead.")
    if call.effect in LEAVES and done >= MAX_FREE:
        return Objection(f"More than {MAX_FREE} messages in one request.", approvable=True)
    if call.effect in ASKS and call.ctx.label.readers != PUBLIC and done >= MAX_ASKED:
        return Objection(f"{MAX_ASKED} questions outside are enough after private text was read.")
    return None


def _is_literal(call: Call) -> bool:
    """It says nothing but words of the request."""
    said = call.parts(Part.SAID)
    return bool(said) and all(call.ctx.intent.says(text) for text in said)


async def _elsewhere(call: Call) -> Objection | None:
    """A rule that the gate applies where there is no call to look at: see its methods."""
    return None


RULES: tuple[Rule, ...] = (
    Rule("handles", handles),
    Rule("entitlement", entitlement),
    Rule("statement", statement),
    Rule("fetch", fetch),
    Rule("search", search),
    Rule("audience", audience),
    Rule("consequence", consequence),
    Rule("flood", flood),
    Rule("inherit", _elsewhere),
    Rule("arguments", _elsewhere),
)
"""All of them hold, always: nothing but a test passes fewer to the gate."""
