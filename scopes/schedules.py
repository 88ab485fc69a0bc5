"""The parent's tools for schedules of reports, answers and reminders.

No subagent has them. A change of a schedule is checked, then shown to a person for approval with
what would run, and checked again before it is made. A reminder to the requester alone, in their own
words, needs no approval.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Protocol

from pydantic import TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

from config.schedules import OWN_DESTINATION, Schedule, ScheduleKind, ScheduleName
from scopes.effects import Access, Effect, PreparedCall
from scopes.label import Label
from scopes.tool import Item, ToolContext, ToolError, ToolResult, one_line, tool

HERE = "here"
NAME = TypeAdapter[str](ScheduleName)
ARGUMENT_ERRORS: Mapping[str, str] = {
    "name": "A name has small letters, digits and dashes, at most 40, such as csm-weekly.",
    "kind": "A schedule is a sweep (of channels), a triage (of the requester's mailbox), an ask or "
    "a reminder.",
    "to": "`to` is one place: here, dm, a channel such as #reports, the id of a person (of a "
    "reminder), or a mail address (of a report).",
    "request": "A request has at most 2,000 characters: say less in it.",
    "text": "The text of a reminder has at most 2,000 characters: say less in it.",
    "tracker": "A tracker is the id of a Slack List (F...).",
    "budget_usd": "The budget of a run must be more than $0.",
    "language": "A language is a code, such as es.",
    "owner": "A schedule belongs to a person of this workspace.",
}
"""Argument -> the error for a wrong value."""
ScheduleChange = Literal["pause", "resume", "delete"]


class ScheduleSetup(Protocol):
    """The set-up of schedules. The requester is always `by`.

    Its methods raise ToolError with a sentence that helps, also for forbidden things: a schedule of
    somebody else seems not to exist.
    """

    async def zone(self, by: str) -> str:
        """Return the time zone that this person has set in Slack; UTC if none is known."""

    async def place(self, by: str, to: str) -> str:
        """Return the id of a channel that is given by name; any other destination unchanged."""

    async def preview_schedule(
        self, name: str, spec: Schedule, label: Label, home: str
    ) -> Mapping[str, str]:
        """Return what a schedule requested in `home` would do, for the person who decides on it.

        `label` is that of the context that requests it.
        """

    async def create(self, name: str, spec: Schedule, label: Label) -> str:
        """Set it up, only once if repeated; return a sentence."""

    async def list_schedules(self, by: str, home: str) -> tuple[Mapping[str, str], str]:
        """Return name -> line of the schedules that this person may see in this conversation, and a
        note on the others."""

    async def preview_change(self, by: str, name: str, what: ScheduleChange) -> Mapping[str, str]:
        """Return what a change would do, for the person who decides on it."""

    async def change(self, by: str, name: str, what: ScheduleChange) -> str:
        """Make the change, only once if repeated; return a sentence."""


def _schedule(owner: str, name: str, **arguments: Any) -> tuple[str, Schedule]:
    """Return the name and the schedule that arguments of a model describe. Raises ToolError."""
    # The answer has the language of their words.
    in_own_language = arguments["kind"] in ("ask", "reminder")
    arguments |= {"owner": owner, "channels": arguments.get("channels") or ()}
    arguments |= {"tracker": arguments.get("tracker") or None}
    arguments |= {"language": None if in_own_language else arguments.get("language") or None}
    name = name.strip().casefold()
    try:
        NAME.validate_python(name)
    except ValidationError:
        raise ToolError(ARGUMENT_ERRORS["name"]) from None
    try:
        return name, Schedule.model_validate(arguments)
    except ValidationError as error:
        raise ToolError(" ".join(dict.fromkeys(map(_sentence, error.errors())))) from None


async def _prepare_create(
    ctx: ToolContext, to: str, zone: str, channels: list[str] | None, **arguments: Any
) -> PreparedCall:
    setup, by = _setup(ctx)
    to = to.strip()
    if to.casefold() in (HERE, ""):
        to = OWN_DESTINATION if ctx.intent.home.startswith("D") else ctx.intent.home
    elif to.casefold() in (OWN_DESTINATION, "me", by.casefold()):
        to = OWN_DESTINATION
    arguments |= {"to": await setup.place(by, to), "zone": zone.strip() or await setup.zone(by)}
    arguments |= {"channels": [name.strip().lstrip("#") for name in channels or ()] or None}
    name, spec = _schedule(by, **arguments)
    preview = await setup.preview_schedule(name, spec, ctx.label, ctx.intent.home)
    return PreparedCall(arguments, preview)


@tool(Access.EGRESS, Effect.CHANGE, prepare=_prepare_create)
async def schedule_create(
    ctx: ToolContext,
    name: str,
    kind: ScheduleKind,
    cron: str = "",
    at: str = "",
    to: str = HERE,
    request: str = "",
    text: str = "",
    channels: list[str] | None = None,
    zone: str = "",
    tracker: str = "",
    quiet: bool = False,
    budget_usd: float = 1.0,
    language: str = "",
) -> ToolResult:
    """Set up what comes by itself: a sweep of `channels` (names or patterns), a triage of the
    requester's mailbox, an ask (`request` is answered anew each time: complete in itself, in the
    requester's words, without the time) or a reminder for others (`text`, word for word).
    `name`: such as csm-weekly. `cron`: again and again, '0 9 * * mon-fri', at most every 15
    minutes; or `at`: once, '2026-11-30T15:00'. `to`: here, dm, #channel, of a reminder a person's
    id, of a sweep or triage a mail address. `zone`: default the requester's. `language`: of a
    sweep or triage, that of the request, as a code (es). `tracker`: of a sweep, the bug list among
    NAMED SOURCES. `quiet`: of a sweep or triage, nothing is sent where nothing is new."""
    setup, by = _setup(ctx)
    schedule = _schedule(
        by,
        name,
        kind=kind,
        cron=cron,
        at=at,
        to=to,
        request=request,
        text=text,
        channels=channels,
        zone=zone,
        tracker=tracker,
        quiet=quiet,
        budget_usd=budget_usd,
        language=language,
    )
    return ToolResult(note=await setup.create(*schedule, ctx.label))


async def _reminder(
    ctx: ToolContext, name: str, text: str, at: str, cron: str, zone: str
) -> tuple[str, Schedule]:
    """Return the reminder that these arguments describe, to the requester. Raises ToolError."""
    setup, by = _setup(ctx)
    zone = zone.strip() or await setup.zone(by)
    return _schedule(
        by, name, kind="reminder", cron=cron, at=at, to=OWN_DESTINATION, text=text, zone=zone
    )


async def _prepare_reminder(ctx: ToolContext, **arguments: Any) -> PreparedCall:
    setup, _ = _setup(ctx)
    name, spec = await _reminder(ctx, **arguments)
    preview = await setup.preview_schedule(name, spec, ctx.label, ctx.intent.home)
    return PreparedCall({**arguments, "zone": spec.zone}, preview)


@tool(Access.WRITE, Effect.REMIND, prepare=_prepare_reminder)
async def remind_me(
    ctx: ToolContext, name: str, text: str, at: str = "", cron: str = "", zone: str = ""
) -> ToolResult:
    """Remind the requester, in a direct message: `text` is posted word for word, once `at`
    '2026-11-30T15:00' or again and again by `cron` '0 9 * * mon-fri', at most every 15 minutes.
    `name`: such as call-ana. `zone`: default the requester's."""
    setup, _ = _setup(ctx)
    schedule = await _reminder(ctx, name, text, at, cron, zone)
    return ToolResult(note=await setup.create(*schedule, ctx.label))


@tool()
async def schedule_list(ctx: ToolContext) -> ToolResult:
    """List the schedules that the requester may see here."""
    setup, by = _setup(ctx)
    found, note = await setup.list_schedules(by, ctx.intent.home)
    home = ctx.intent.home
    label = Label(
        untrusted=True, readers=frozenset({by}), sources=frozenset({home or f"user:{by}"})
    )
    items = tuple(Item(f"schedule/{name}", line, None, label) for name, line in found.items())
    return ToolResult(items, note=note, label=label)


async def _prepare_pause(ctx: ToolContext, name: str, resume: bool) -> PreparedCall:
    setup, by = _setup(ctx)
    preview = await setup.preview_change(by, _fold_name(name), "resume" if resume else "pause")
    return PreparedCall({"name": _fold_name(name), "resume": resume}, preview)


@tool(Access.EGRESS, Effect.CHANGE, prepare=_prepare_pause)
async def schedule_pause(ctx: ToolContext, name: str, resume: bool = False) -> ToolResult:
    """Pause a schedule, or let it go on (`resume`)."""
    setup, by = _setup(ctx)
    return ToolResult(
        note=await setup.change(by, _fold_name(name), "resume" if resume else "pause")
    )


async def _prepare_delete(ctx: ToolContext, name: str) -> PreparedCall:
    setup, by = _setup(ctx)
    return PreparedCall(
        {"name": _fold_name(name)}, await setup.preview_change(by, _fold_name(name), "delete")
    )


@tool(Access.EGRESS, Effect.CHANGE, prepare=_prepare_delete)
async def schedule_delete(ctx: ToolContext, name: str) -> ToolResult:
    """Delete a schedule for good."""
    setup, by = _setup(ctx)
    return ToolResult(note=await setup.change(by, _fold_name(name), "delete"))


TOOLS = (schedule_create, remind_me, schedule_list, schedule_pause, schedule_delete)


def _setup(ctx: ToolContext) -> tuple[ScheduleSetup, str]:
    """Return the set-up and the requester: a model can name nobody else."""
    if ScheduleSetup not in ctx.clients or not ctx.requester:
        raise ToolError("Schedules are set up in Slack, with `assistant serve` running.")
    return ctx.client(ScheduleSetup), ctx.requester  # type: ignore[type-abstract]


def _fold_name(name: str) -> str:
    return one_line(name).casefold()[:80]


def _sentence(fault: ErrorDetails) -> str:
    """Return the error of one argument in words, for its author."""
    match fault:
        case {"ctx": {"error": error}}:
            text = str(error)
            return f"{text[:1].upper()}{text[1:].rstrip('.')}."
        case {"loc": (key, *_), "msg": why}:
            return ARGUMENT_ERRORS.get(str(key), f"{key} cannot be used: {why}.")
    return f"It cannot be used: {fault['msg']}."
