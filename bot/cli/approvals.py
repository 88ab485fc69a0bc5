"""Implement `assistant approvals`: list what waits for approval, and standing approvals."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from itertools import chain
from typing import Any, TypeVar

from bot.approvals.cards import arguments, title
from bot.approvals.store import BATCH, GRANT, STATES, UNDECIDED_STATES, Actions, StoredAction
from bot.cli.output import DEFAULT_PERSON, CommandContext, on_database
from bot.errors import SetupError
from bot.policy.directory import Grant, Grants
from bot.slack.blocks import show_invisible

T = TypeVar("T", StoredAction, Grant)
CLICK = "To approve one, press the button of its card in Slack."


@on_database
async def list_approvals(context: CommandContext, everything: bool) -> None:
    """List what waits and the valid grants; with `everything`, finished ones, too."""
    rows = await Actions(context.database).in_state(*(STATES if everything else UNDECIDED_STATES))
    rows = [row for row in rows if row.tool != BATCH]
    grants = await Grants(context.database).all()
    standing = [g for g in grants if everything or g.revoked_at is None]
    lines = [*chain(*map(_lines, rows)), *map(_grant_line, standing)]
    if not rows:
        lines.append("Nothing was proposed." if everything else "Nothing waits for approval.")
    elif any(row.state in UNDECIDED_STATES for row in rows):
        lines.append(CLICK)
    found = {"actions": [*map(_document, rows)], "grants": [asdict(each) for each in standing]}
    context.show(found, *lines)


@on_database
async def deny_action(context: CommandContext, id: str) -> None:
    """Deny a waiting action; its card shows this when `serve` has noticed it."""
    actions = Actions(context.database)
    row = _find("action", id, await actions.in_state(*STATES))
    if row.state not in UNDECIDED_STATES:
        raise SetupError("decided", f"{row.id} is {row.state} already.", "")
    if not await actions.deny(row, DEFAULT_PERSON, "command line"):
        raise SetupError("decided", f"{row.id} was decided on just now.", "")
    context.show({"id": row.id, "state": "denied"}, f"Denied: {row.id}.")


@on_database
async def revoke_grant(context: CommandContext, id: str) -> None:
    """Revoke a grant from now on; what was already posted in Slack stays."""
    grants = Grants(context.database)
    grant = _find("grant", id, await grants.all()).id
    changed = await grants.revoke(grant, DEFAULT_PERSON)
    text = f"Revoked: {grant}." if changed else f"{grant} was revoked before."
    context.show({"id": grant, "revoked": True, "changed": changed}, text)


def _find(kind: str, id: str, known: Sequence[T]) -> T:
    """Return the one whose id equals `id` or begins with it. Raises SetupError."""
    found = [each for each in known if id and each.id.startswith(id)]
    if len(found) == 1:
        return found[0]
    what = f"Several {kind}s begin with {id!r}." if found else f"There is no {kind} {id!r}."
    raise SetupError(f"no_{kind}", what, "`assistant approvals` lists them.")


def _document(row: StoredAction) -> dict[str, Any]:
    """Return all details of an action, with its exact arguments."""
    action = row.action
    return {
        "id": row.id,
        "run": row.run,
        "state": row.state,
        "what": title(action) if row.tool != GRANT else "Standing grant",
        "tool": row.tool,
        "args": dict(action.args),
        "requester": row.requester,
        "rule": action.rule,
        "made": row.made,
        "expires": row.expires,
        "decided_by": row.decided_by,
        "decided_at": row.decided_at,
        "instead_of": row.instead_of,
        "outcome": row.said or None,
    }


def _lines(row: StoredAction) -> Iterator[str]:
    action = row.action
    until = f", until {row.expires:%Y-%m-%d %H:%M} UTC" if row.expires else ""
    what = title(action) if row.tool != GRANT else "Standing grant"
    yield f"{row.id}  {row.state}{until}  {what}"
    yield f"  asked for by {row.requester} in run {row.run}, rule {show_invisible(action.rule)}"
    for name, value, _ in arguments(action):
        yield "\n".join(f"  {each}" for each in f"{show_invisible(name)}: {value}".splitlines())
    if row.said:
        yield f"  {show_invisible(row.said)}"


def _grant_line(grant: Grant) -> str:
    revoked = f", revoked by {grant.revoked_by}" if grant.revoked_at else ""
    sources = ", ".join(grant.sources)
    return (
        f"grant {grant.id}: {sources} -> {grant.destination}, by {grant.by} "
        f"at {grant.at:%Y-%m-%d %H:%M} UTC{revoked}"
    )
