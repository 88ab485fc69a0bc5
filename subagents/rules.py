"""The rules of the gate: each looks at one call and returns an objection or None.

They assume that the model does whatever a text tells it to: a rule reads what a tool declares, what
the context has read, what the requester wrote, and what the services say about memberships.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from scopes.databases.tables import Databases
from scopes.effects import (
    MAIL_THREAD,
    NOTES,
    OPEN_HANDLES,
    OPEN_NOTES,
    RUN_FOLDER,
    THREAD,
    Access,
    Effect,
    Part,
)
from scopes.intent import EMPTY_INTENT, Intent
from scopes.label import is_conversation
from scopes.pages.hosts import is_plain
from scopes.tool import Tool, ToolContext, not_found
from subagents.delimiter import first_of
from subagents.directory import Directory, Obstacle


@dataclass(frozen=True, slots=True)
class Objection:
    """The reason why a call may not run, or not without approval."""

    reason: str
    """Shown to the model; the same for what is hidden as for what does not exist."""
    approvable: bool = False
    """True if it may run after a person approves exactly this call."""


@dataclass
class Call:
    """One call as the rules see it."""

    ctx: ToolContext
    tool: Tool
    values: dict[str, Any]
    """The validated arguments; the rule `handles` resolves names to ids."""
    directory: Directory
    counts: Mapping[str, int] = field(default_factory=dict)
    """Calls that were allowed in this run so far, by `counts_of`."""
    over: str = ""
    """Why it is one call too many; empty if it is not."""
    note: str = ""
    """Text that a rule adds to the result."""

    def __post_init__(self) -> None:
        fields = self.tool.input_model.model_fields
        self.given = {
            name: str(self.values.get(name))
            for name in self.tool.handle_arguments
            if self.values.get(name) or fields[name].is_required()
        }
        """The handle arguments as given, before they were resolved."""

    @property
    def effect(self) -> Effect:
        """Return its effect: a query whose result is stored follows the rules of storing."""
        return Effect.KEEP if any(self.parts(Part.KEPT)) else self.tool.effect

    @property
    def target(self) -> str:
        """Return the conversation, message, person or folder that it is about; empty for none."""
        kinds = ("channel", "person", "thread", "folder")
        named = {k: self.values.get(n) for n, k in self.tool.handle_arguments.items()}
        return next((str(named[kind]) for kind in kinds if named.get(kind)), "")

    @property
    def destination(self) -> str:
        """Return the conversation, person or folder that it reaches."""
        here = self.effect is Effect.INSTRUCT
        return self.ctx.intent.home if here else self.target.partition("/")[0]

    def parts(self, part: Part) -> list[str]:
        """Return the texts of the given arguments that are this part of the call."""
        values = self.values
        return [str(values[n]) for n, p in self.tool.parts.items() if p is part and n in values]

    def texts(self) -> list[str]:
        """Return all text of the model in this call: every string in any argument at any depth,
        except in those that the tool declares as a handle, a message, or one of a few words."""
        declared = {*self.tool.handle_arguments, *self.tool.choices}
        declared |= {name for name, part in self.tool.parts.items() if part is Part.THREAD}
        fields = self.tool.input_model.model_fields
        arguments = {
            name: value
            for name, value in self.values.items()
            if name not in declared and not (name in fields and value == fields[name].default)
        }
        return [text for value in arguments.values() for text in _texts(value)]

    @property
    def asks(self) -> tuple[str, ...]:
        """Return what it discloses to the internet: addresses, or words of a search."""
        if self.effect not in (Effect.FETCH, Effect.SEARCH):
            return ()
        return (*self.parts(Part.ADDRESS), *self.parts(Part.WORDS))

    @property
    def is_approved(self) -> bool:
        """Return whether the requester has approved all that it discloses to the internet."""
        return bool(self.asks) and self.ctx.intent.lookups.issuperset(self.asks)

    def not_found(self, name: str) -> Objection:
        """Return the one answer for what is outside the handles, forbidden or absent."""
        return Objection(not_found(self.tool.handle_arguments[name], self.given[name]))


def is_literal(call: Call) -> bool:
    """Return whether it says only words of the request."""
    texts = call.texts()
    return bool(texts) and all(call.ctx.intent.says(text) for text in texts)


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, each in value.items():
            yield str(key)
            yield from _texts(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from _texts(each)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


_FILES = "files:"
"""Prefix of the handle of a folder."""


async def shared_space(call: Call) -> Objection | None:
    """Keep in a shared space only what all its members may read."""
    label = call.ctx.label
    if label.is_open and (call.ctx.requester is None or not label.sources):
        return None  # it is the operator's own, or rests on nothing that was read
    for space in _spaces(call):
        place = space.partition(":")[2]
        place = place if is_conversation(place) else space
        if found := await call.directory.obstacles(label, place):
            named = ", ".join(dict.fromkeys(f"{o.name} ({o.why})" for o in found))
            return Objection(f"It may not be kept there: {named}. Keep it in {OPEN_NOTES}.")
    return None


def for_others(call: Call) -> Objection | None:
    """Write to a shared folder only if the request names it.

    What strangers wrote is kept for others only after approval.
    """
    ctx = call.ctx
    if call.effect is Effect.FILE:
        targets = [str(call.values.get(n) or "") for n in call.tool.handle_arguments]
        if not any(targets):
            targets = [ctx.handles.in_front(str(call.values.get("path") or ""), _FILES)[0]]
        held = [h for h in ctx.handles.titles if h.startswith(_FILES)]
        projects = [h for h in (targets if any(targets) else held) if h and h != RUN_FOLDER]
        if not projects or any(_is_named(call, h) for h in projects):
            return None
        name = projects[0].partition(":")[2]
        return Objection(
            f"The request does not name {name} as a place to write to. Write into {RUN_FOLDER}, if "
            "you hold it, or say in your result what would have to be written."
        )
    several = call.tool.shared or _spaces(call)
    if not ctx.label.untrusted or not several or is_literal(call):
        return None
    return Objection("What others wrote is kept for several people.", approvable=True)


def _is_named(call: Call, handle: str) -> bool:
    """Return whether the requester's own words name the thing of a handle.

    The words of a schedule name no place to write to.
    """
    if call.ctx.intent.scheduled:
        return False
    name = handle.partition(":")[2].casefold()
    request = Intent(call.ctx.intent.text.casefold())
    return request.says(name) or request.says(re.sub("[-_]+", " ", name))


def _spaces(call: Call) -> set[str]:
    """Return the shared spaces that a call writes to."""
    kinds = call.tool.handle_arguments.items()
    spaces = {str(call.values.get(name) or OPEN_NOTES) for name, kind in kinds if kind == NOTES}
    return spaces - {OPEN_NOTES}


REQUESTER_ALIAS = "me"
"""The person whom a model may always address: the requester."""
MAX_FREE = 5
"""Maximum messages and reactions that one request may leave without approval of each."""
MAX_KEPT = 10
"""Maximum notes and labels that one context may make, and the same number of drafts and of
reminders."""
MAX_FILED = 100
"""Maximum file changes that one context may make."""
MAX_ASKED = 5
"""Maximum outside addresses and searches of a run after private text was read: the choice among
the request's own words, and the number of look-ups, could encode something."""
MAX_GUARDED = 10
"""The same after the workspace's text and text of an outsider were read."""
MAX_PAGES, MAX_PAGES_RUN = 100, 2_000
"""Maximum outside addresses and searches of one context, and of a request, after any reading."""
POST_EFFECTS = (Effect.POST, Effect.REACT)
STORES = (Effect.KEEP, Effect.DRAFT, Effect.REMIND, Effect.FILE)
LOOKUP_EFFECTS = (Effect.FETCH, Effect.SEARCH)
REQUESTER_EFFECTS = (Effect.PREFER, Effect.REMIND, Effect.CHOOSE)
"""Effects that concern the requester alone."""
ACTION_EFFECTS = (*POST_EFFECTS, Effect.SEND, Effect.INSTRUCT, Effect.CHANGE)


def counts_of(effect: Effect, context: str, *, guarded: bool = False) -> tuple[str, ...]:
    """Return the counters of a call: a run's messages and reactions, its outside look-ups and
    those of one context, or what one context has stored."""
    if effect in STORES:
        return (f"{effect} {context}",)
    if effect in LOOKUP_EFFECTS:
        return ("ask", f"ask {context}", *(("ask guarded",) if guarded else ()))
    return ("leave",) if effect in POST_EFFECTS else (effect,)


Check = Callable[[Call], Awaitable[Objection | None]]


@dataclass(frozen=True, slots=True)
class Rule:
    name: str
    check: Check


async def calls(call: Call) -> Objection | None:
    """Limit the number of tool calls, even if a text tells the model to make more."""
    return Objection(call.over) if call.over else None


async def handles(call: Call) -> Objection | None:
    """Restrict a tool to what its context was given or has listed."""
    held = call.ctx.handles
    if call.tool.needs and call.tool.needs not in held.titles:
        return Objection(not_found("such thing", call.tool.name))
    for name, value in call.given.items():
        kind = call.tool.handle_arguments[name]
        reads = kind == THREAD and call.tool.access is Access.READ
        if reads and (threads := _threads(call.ctx, value)):
            if others := threads[1:]:
                call.note = f"{value} rests on {len(threads)} threads; others: {first_of(others)}."
            value = threads[0]
        person = kind == "person"
        oneself = person and value in (REQUESTER_ALIAS, call.ctx.requester)
        resolved = held.exact(value) if person or kind == NOTES else held.resolve(value)
        if kind == NOTES and not (resolved or "").startswith(f"{NOTES}:"):
            resolved = held.exact(f"{NOTES}:{value}")  # `team` is `notes:team`
        if (
            resolved is None and OPEN_HANDLES.get(kind) in held.titles
        ):  # it may find and read all of them
            resolved = value
        found = call.ctx.requester if oneself else resolved
        if found is None:
            return call.not_found(name)
        call.values[name] = found
    return None


def _threads(ctx: ToolContext, finding: str) -> list[str]:
    """Return the threads that the finding with this id rests on, of those in its handles."""
    return [t for t in ctx.findings.get(finding.strip("[]"), ()) if ctx.handles.resolve(t)]


async def entitlement(call: Call) -> Objection | None:
    """Deny what the requester could not open themselves now.

    A mail thread is looked up in the requester's own mailbox, with the rights that they gave:
    threads of other mailboxes are not in it, and `email` reads and writes no other.
    """
    for name, kind in call.tool.handle_arguments.items():
        value = call.values.get(name)
        if not value or value == OPEN_NOTES or kind in ("person", MAIL_THREAD):
            continue
        writes = call.tool.access is not Access.READ
        if not await call.directory.may_read(call.ctx.requester, str(value), fresh=writes):
            return call.not_found(name)
    return None


async def statement(call: Call) -> Objection | None:
    """Allow a single reading statement; run code only in a sandbox."""
    if call.effect is Effect.CODE and not call.tool.sandboxed:
        return Objection(f"{call.tool.name} has no sandbox here, so it does not run.")
    for text in call.parts(Part.STATEMENT):
        from scopes.databases.statement import refusal  # loads sqlglot

        if why := refusal(text, _dialect(call)):
            return Objection(why)
    return None


def _dialect(call: Call) -> str:
    """Return the dialect of the database that it is about; "" if unknown."""
    databases = call.ctx.clients.get(Databases)
    if not isinstance(databases, Databases):
        return ""
    named = [str(call.values.get(name) or "") for name in call.tool.handle_arguments]
    found = [databases.by_handle[h] for h in named if h in databases.by_handle]
    all_of_them = found or databases.by_handle.values()
    return next((each.dialect for each in all_of_them), "")


async def fetch(call: Call) -> Objection | None:
    """Fetch only an address that the request contains, or a listed one that is safe to follow.

    A listed address is safe if nothing private was read, or if no outsider may have chosen it.

    An address made by a model, and a choice among many, could disclose what it read.
    """
    if call.effect is not Effect.FETCH:
        return None
    for url in call.parts(Part.ADDRESS):
        if not is_plain(url):
            return Objection(
                "Only public http and https addresses without a login or a port can be read."
            )
        if url in call.ctx.intent.addresses() or url in _listed_addresses(call):
            continue
        if url in call.ctx.handles.titles:
            return Objection(GUARDED_ADDRESS_ERROR, approvable=True)
        return Objection(
            "This address may not be read here: it stands neither in the request nor, word for "
            "word, in what you found before reading anything private."
        )
    return None


GUARDED_ADDRESS_ERROR = (
    "This address was listed after text of the workspace was read, or by somebody outside: it may "
    "be read only if the request names it. Say in your answer which addresses you would read."
)


def _listed_addresses(call: Call) -> Collection[str]:
    """Return the listed addresses that a context may follow."""
    label, held = call.ctx.label, call.ctx.handles
    if not label.is_open:
        return ()
    return held.early if label.is_guarded else held.titles


async def search(call: Call) -> Objection | None:
    """Keep searches from disclosing text: a context that read something private, or text of the
    workspace in addition to an outsider's, may only search for words of the request."""
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
    """Require that all who can read a destination may read what goes there."""
    if call.effect is Effect.KEEP:
        return await shared_space(call)
    if call.effect not in (Effect.POST, Effect.REACT, Effect.INSTRUCT):
        return None
    if call.effect is Effect.POST and is_literal(call):
        return None
    found = await call.directory.obstacles(call.ctx.label, call.destination)
    return Objection(in_the_way(found)) if found else None


def in_the_way(obstacles: tuple[Obstacle, ...]) -> str:
    """Return a sentence for the model on why a text may not go somewhere."""
    named = ", ".join(dict.fromkeys(f"{o.name} ({o.why})" for o in obstacles))
    hint = " An administrator can allow it for good." if all(o.grantable for o in obstacles) else ""
    return f"It may not be written there: {named}. Say it in your answer instead.{hint}"


UNATTENDED_ERROR = (
    "A scheduled question only reads: nobody is there to approve of what is written or changed. "
    "Say in your answer what would have to be done."
)


async def consequence(call: Call) -> Objection | None:
    """Require that an act beyond the answer follows the requester's own words, or is approved."""
    intent = call.ctx.intent
    if call.effect in ACTION_EFFECTS and intent == EMPTY_INTENT:  # nobody would ever see its card
        return Objection("Nobody has asked for anything to be written or changed here.")
    if call.effect in (*STORES, *REQUESTER_EFFECTS) and intent == EMPTY_INTENT:
        return Objection("Nobody has asked for anything to be stored here.")
    if call.effect in (*ACTION_EFFECTS, *REQUESTER_EFFECTS) and intent.scheduled:
        return Objection(UNATTENDED_ERROR)
    if call.effect in (Effect.SEND, Effect.INSTRUCT, Effect.CHANGE):
        return Objection(f"{call.tool.name} always needs approval.", approvable=True)
    if call.effect in REQUESTER_EFFECTS:
        return _check_own(call)
    if call.effect in STORES:
        return for_others(call) if call.ctx.requester else None
    return _check_place(call) if call.effect in POST_EFFECTS else None


def _check_own(call: Call) -> Objection | None:
    """Check what concerns the requester alone."""
    if call.effect is Effect.CHOOSE:
        return Objection("Only the requester can choose.", approvable=True)
    if call.effect is Effect.PREFER and not all(map(call.ctx.intent.says_unquoted, call.texts())):
        return Objection("The request does not say it in words of its own.", approvable=True)
    if call.effect is Effect.REMIND and call.ctx.label.untrusted:
        return Objection("What others wrote may come back as a reminder.", approvable=True)
    return None


def _check_place(call: Call) -> Objection | None:
    """Check that the request names the place where something is said or marked."""
    ctx, intent = call.ctx, call.ctx.intent
    own = ctx.requester and call.destination == ctx.requester
    if call.effect is Effect.REACT:  # a mark on a message may pass for approval
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
    """Check a draft, which leaves with one click of its requester, who may not read it closely:
    it contains only what its own thread and the request say, or a card shows it first."""
    if call.effect is not Effect.DRAFT or is_literal(call):
        return None
    kinds = call.tool.handle_arguments.items()
    threads = {str(call.values.get(name)) for name, kind in kinds if kind == MAIL_THREAD}
    own = {f"mail:{thread.partition('/')[0]}" for thread in threads}
    if call.ctx.label.sources <= own:
        return None
    return Objection("It may hold more than the thread that it answers.", approvable=True)


async def flood(call: Call) -> Objection | None:
    """Keep a model from flooding a channel or a store, however often it is told to."""
    counted = counts_of(call.effect, call.ctx.context)
    done = call.counts.get(counted[0], 0)
    if call.effect in (Effect.KEEP, Effect.DRAFT, Effect.REMIND) and done >= MAX_KEPT:
        return Objection(f"{MAX_KEPT} things were stored here already. Sum up instead.")
    if call.effect is Effect.FILE and done >= MAX_FILED:
        return Objection(f"{MAX_FILED} changes of files were made here. Hand in what you have.")
    if call.effect in POST_EFFECTS and done >= MAX_FREE:
        return Objection(f"More than {MAX_FREE} messages in one request.", approvable=True)
    return _too_many(call) if call.effect in LOOKUP_EFFECTS else None


def _too_many(call: Call) -> Objection | None:
    """Limit the outside look-ups of a run: more are allowed if it can disclose nothing."""
    label, done = call.ctx.label, call.counts
    run, context = counts_of(call.effect, call.ctx.context)
    if done.get(context, 0) >= MAX_PAGES or done.get(run, 0) >= MAX_PAGES_RUN:
        return Objection("So many pages and searches are enough. Hand in what you have.")
    most = MAX_GUARDED if label.is_open else MAX_ASKED
    if label.is_guarded and not call.is_approved and done.get("ask guarded", 0) >= most:
        read = "text of the workspace and of outsiders" if label.is_open else "private text"
        more = f"{most} questions outside are enough after {read} was read."
        return Objection(more, approvable=True)
    return None


async def _elsewhere(call: Call) -> Objection | None:
    """Object to nothing: the gate applies this rule where there is no call."""
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
"""All rules; they always apply: only tests pass fewer to the gate."""
