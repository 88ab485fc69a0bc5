"""The tables of the gate: what waits for approval, what was granted, whose text is kept."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from bot.storage.sealed import Author, OnlySealed, SealedJson
from bot.storage.tables import JSON, METADATA, UtcTime, of_run, text_column
from scopes.tool import iso
from subagents.action import Action

actions = sa.Table(
    "actions",
    METADATA,
    text_column("id", primary_key=True),
    of_run(index=True),
    text_column("tool"),
    text_column("requester"),
    text_column("digest"),
    sa.Column("body", OnlySealed("actions.body"), nullable=False),
    text_column("state"),
    sa.Column("made", UtcTime, nullable=False),
    sa.Column("expires", UtcTime),
    sa.Column("card", JSON),
    sa.Column("decided_by", sa.String),
    sa.Column("decided_at", UtcTime),
    sa.Column("decision", OnlySealed("actions.decision")),
    sa.Column("instead_of", sa.String),
    sa.Column("owner", sa.String),
    sa.Column("outcome", SealedJson),
    sa.Index("actions_by_state", "state", "made"),
)
"""`subagents.action.Action` by id. `state`: proposed, asked (its card is shown at `card`, a
`bot.approval.actions.Place`), then approved, denied, expired or edited (the action that is
`instead_of` it stands for it); an approved one ends as done or failed, `outcome` says how.
`owner` is the process that executes.

`body` names its id, and `decision` all that was decided: see `signed`. Who writes here without
the key can delete, delay and have a card shown anew, but has nothing executed that was not
approved. What was approved is put back at most as it stood: dbos keeps that it was executed,
the tools look for what they wrote under its id, and after a day it counts for nothing.
"""

grants = sa.Table(
    "grants",
    METADATA,
    text_column("id", primary_key=True),
    sa.Column("sources", JSON, nullable=False),
    text_column("destination", index=True),
    text_column("by"),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("signed", OnlySealed("grants.signed")),
    sa.Column("revoked_by", sa.String),
    sa.Column("revoked_at", UtcTime),
)
"""Sources whose text may stand in a destination although not all there may read them, signed once
by an administrator. It holds by what is `signed`, which goes when it is revoked: who writes here
without the key can end a grant and make none, unless they kept the bytes of one from before that
was revoked since."""

quoted = sa.Table(
    "quoted",
    METADATA,
    text_column("item", primary_key=True),
    of_run(primary_key=True),
    text_column("channel"),
    sa.Column("author", Author),
    sa.Index("quoted_by_run", "run"),
)
"""Which run holds text of which item; ids only. A row is written for each item that is read: more
indexes would cost twice as much, and to look through all rows takes a second for millions."""

credentials = sa.Table(
    "credentials",
    METADATA,
    text_column("provider", primary_key=True),
    text_column("account", primary_key=True),
    sa.Column("body", OnlySealed("credentials.body"), nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)
"""OAuth tokens."""

oauth_states = sa.Table(
    "oauth_states",
    METADATA,
    text_column("state", primary_key=True),
    text_column("account", index=True),
    text_column("phase"),
    sa.Column("tries", sa.Integer, nullable=False),
    sa.Column("expires", UtcTime, nullable=False, index=True),
    sa.Column("body", OnlySealed("oauth_states.body"), nullable=False),
)
"""Accounts that are being connected, for minutes: `state` is the hash of what the browser carries.
`phase`: `asked`, `begun` in one browser, `spent`, then `granted` until the person has said the code
that this browser shows. `body` names its row, and holds what may be known to nobody else."""


def signed(**fields: Any) -> str:
    """What was decided or granted, as it is sealed beside its row; the same for the same fields."""
    return json.dumps(fields, sort_keys=True, default=iso)


def proposal(action: Action) -> dict[str, Any]:
    """The row of an action that was just proposed."""
    return {
        **{n: getattr(action, n) for n in ("id", "run", "tool", "requester", "digest", "made")},
        "body": action.body(),
        "state": "proposed",
    }
