"""The rules of the gate: each looks at one call and objects, or has nothing against it.

They assume that the model does whatever a text told it to: a rule reads what a tool declares, what
the context has read, what the requester wrote, and what the services say of memberships.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from dataclasses import dataclass

from scopes.databases.machine import TELLS, tells_of_machine
from scopes.databases.statement import refusal
from scopes.effects import (
    FILES,
    MAIL_THREAD,
    NOTES,
    OPEN_NOTES,
    WHOLE,
    Access,
    Effect,
    Part,
)
from scopes.intent import UNASKED
from scopes.pages.hosts import is_plain
from scopes.tool import not_found
from subagents.call import Call as Call
from subagents.call import Objection as Objection
from subagents.call import is_literal
from subagents.directory import Obstacle
from subagents.stored import for_others, shared

ME = "me"
"""Whom a model may always address: who asked."""
MAX_FREE = 5
"""Messages and marks that one request may leave without a person's word for each."""
MAX_KEPT = 10
"""Notes and labels that one context may make, and drafts as many."""
MAX_FILED = 100
"""Changes of files that one context may make."""
MAX_ASKED = 5
"""Addresses and searches outside of a run after private text was read: which of the request's own
words are sent, and how often, could spell something out."""
MAX_GUARDED = 10
"""The same where the workspace's text was read and something that an outsider wrote."""
MAX_PAGES, MAX_PAGES_RUN = 100, 2_000
"""Addresses and searches outside of one context, and of a request, whatever was read."""
LEAVES = (Effect.POST, Effect.REACT)
STORES = (Effect.KEEP, Effect.DRAFT, *FILES)
ASKS = (Effect.FETCH, Effect.SEARCH)
ACTS = (*LEAVES, Effect.SEND, Effect.CHANGE)


def counts_of(effect: Effect, context: str, *, guarded: bool = False) -> tuple[str, ...]:
    """Return what a call counts towards: a run's messages and marks, its questions outside and
    those of one context, or what one context has stored."""
    if effect in STORES:
        return (f"{effect} {context}",)
    if effect in ASKS:
        return ("ask", f"ask {context}", *(("ask guarded",) if guarded else ()))
    return ("leave",) if effect in LEAVES else (effect,)


Check = Callable[[Call], Awaitable[Objection | None]]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    check: Check


async def calls(call: Call) -> Objection | None:
    """Whatever it is told, a model does not call tools without end."""
    return Objection(call.over) if call.over else None


async def handles(call: Call) -> Objection | None:
    """A tool touches only what its context was given or has listed."""
    held = call.ctx.handles
    if call.tool.needs and call.tool.needs not in held.titles:
        return Objection(not_found("such thing", call.tool.name))
    for name, value in call.given.items():
        kind = call.tool.handle_arguments[name]
        person = kind == "person"
        oneself = person and value in (ME, call.ctx.requester)
        named = held.exact(value) if person or kind == NOTES else held.resolve(value)
        if kind == NOTES and named and not named.startswith(f"{NOTES}:"):
            named = None  # it is held, and is no space
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
        if not value or value == OPEN_NOTES or kind in ("person", MAIL_THREAD):
            continue
        writes = call.tool.access is not Access.READ
        if not await call.directory.may_read(call.ctx.requester, str(value), fresh=writes):
            return call.hidden(name)
    return None


async def statement(call: Call) -> Objection | None:
    """A statement reads, once; code runs where it can reach nothing."""
    if call.effect is Effect.CODE and not call.tool.sandboxed:
        return Objection(f"{call.tool.name} has no sandbox here, so it does not run.")
    for text in call.parts(Part.STATEMENT):
        if why := refusal(text):
            return Objection(why)
        if tells_of_machine(text):
            return Objection(TELLS)
    return None


async def fetch(call: Call) -> Objection | None:
    """An address is asked that the request holds. One that was listed is asked where nothing was
    read that the internet must not learn of, or where no outsider may have chosen it.

    An address made by a model, and a choice among many, could carry what it read.
    """
    if call.effect is not Effect.FETCH:
        return None
    for url in call.parts(Part.ADDRESS):
        if not is_plain(url):
            return Objection("Only http and https addresses of named hosts can be read.")
        if url in call.ctx.intent.addresses() or url in _listed(call):
            continue
        if url in call.ctx.handles.titles:
            return Objection(GUARDED, approvable=True)
        return Objection(
            "This address may not be read here: it stands neither in the request nor, word for "
            "word, in what you found before reading anything private."
        )
    return None


GUARDED = (
    "This address was listed after text of the workspace was read, or by somebody outside: it may "
    "be read only if the request names it. Say in your answer which addresses you would read."
)


def _listed(call: Call) -> Collection[str]:
    """The listed addresses that a context may follow."""
    label, held = call.ctx.label, call.ctx.handles
    if not label.is_open:
        return ()
    return held.early if label.is_guarded else held.titles


async def search(call: Call) -> Objection | None:
    """What is asked outside is told outside: no words of a context that read something private, or
    text of the workspace besides what an outsider wrote, but those that stand in the request."""
    label = call.ctx.label
    if call.effect is not Effect.SEARCH or not label.is_guarded:
        return None
    if call.is_approved or all(call.ctx.intent.says(words) for words in call.parts(Part.WORDS)):
        return None
    read = "text of the workspace and of outsiders" if label.is_open else "private text"
    return Objection(
        f"No search outside after {read} was read, unless in the words of the request. "
        "Search first, in a subagent of its own.",
        approvable=True,
    )


async def audience(call: Call) -> Objection | None:
    """All who can read a destination must be readers of what goes there."""
    if call.effect is Effect.KEEP:
        return await shared(call)
    if call.effect not in (Effect.POST, Effect.REACT, Effect.BRING):
        return None
    if call.effect is Effect.POST and is_literal(call):
        return None
    if call.effect is Effect.BRING and call.ctx.requester is None:  # the operator's own machine
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
    if call.effect in STORES and call.ctx.intent == UNASKED:
        return Objection("Nobody has asked for anything to be stored here.")
    if call.effect in STORES:
        return for_others(call) if call.ctx.requester else None
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


async def draft(call: Call) -> Objection | None:
    """A draft leaves with one click of its requester, who may not read it closely: it holds what
    its own thread and the request say, or a card shows it first."""
    if call.effect is not Effect.DRAFT or is_literal(call):
        return None
    kinds = call.tool.handle_arguments.items()
    threads = {str(call.values.get(name)) for name, kind in kinds if kind == MAIL_THREAD}
    own = {f"mail:{thread.partition('/')[0]}" for thread in threads}
    if call.ctx.label.sources <= own:
        return None
    return Objection("It may hold more than the thread that it answers.", approvable=True)


async def flood(call: Call) -> Objection | None:
    """However often it is told to, a model does not fill a channel, or a drawer."""
    counted = counts_of(call.effect, call.context)
    done = call.counts.get(counted[0], 0)
    if call.effect in (Effect.KEEP, Effect.DRAFT) and done >= MAX_KEPT:
        return Objection(f"{MAX_KEPT} things were stored here already. Sum up instead.")
    if call.effect is Effect.FILE and done >= MAX_FILED:
        return Objection(f"{MAX_FILED} changes of files were made here. Hand in what you have.")
    if call.effect in LEAVES and done >= MAX_FREE:
        return Objection(f"More than {MAX_FREE} messages in one request.", approvable=True)
    return _too_many(call) if call.effect in ASKS else None


def _too_many(call: Call) -> Objection | None:
    """Bound what a run asks outside: more where it can tell nothing."""
    label, done = call.ctx.label, call.counts
    run, context = counts_of(call.effect, call.context)
    if done.get(context, 0) >= MAX_PAGES or done.get(run, 0) >= MAX_PAGES_RUN:
        return Objection("So many pages and searches are enough. Hand in what you have.")
    most = MAX_GUARDED if label.is_open else MAX_ASKED
    if label.is_guarded and not call.is_approved and done.get("ask guarded", 0) >= most:
        read = "text of the workspace and of outsiders" if label.is_open else "private text"
        more = f"{most} questions outside are enough after {read} was read."
        return Objection(more, approvable=True)
    return None


async def _elsewhere(call: Call) -> Objection | None:
    """A rule that the gate applies where there is no call to look at: see its methods."""
    return None


RULES: tuple[Rule, ...] = (
    Rule("calls", calls),
    Rule("handles", handles),
    Rule("entitlement", entitlement),
    Rule("statement", statement),
    Rule("fetch", fetch),
    Rule("search", search),
    Rule("audience", audience),
    Rule("consequence", consequence),
    Rule("draft", draft),
    Rule("flood", flood),
    Rule("inherit", _elsewhere),
    Rule("arguments", _elsewhere),
)
"""All of them hold, always: nothing but a test passes fewer to the gate."""
