"""The product's own tables and their rows. A change needs a migration in `bot/migrations/`."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from bot.storage.sealed import Sealed, SealedJson
from subagents.gate import Decision
from subagents.trajectory import Context, Entry, Origin, Recording, Reply, Request, Trajectory

REVISIONS = ("0001", "0002", "0003", "0004", "0005", "0006", "0007", "0008", "0009")
"""Schema revisions that this program knows, oldest first."""

METADATA = sa.MetaData()


class UtcTime(sa.types.TypeDecorator[datetime]):
    """A UTC-aware datetime, stored as ISO 8601 text: it sorts, and a person can read it."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> str | None:
        return value.astimezone(UTC).isoformat(timespec="microseconds") if value else None

    def process_result_value(self, value: str | None, dialect: Any) -> datetime | None:
        return datetime.fromisoformat(value) if value else None


JSON = sa.JSON(none_as_null=True)


def of_run(**options: Any) -> sa.Column[str]:
    """The run that a row belongs to; it goes with it."""
    return sa.Column("run", sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, **options)


def text_column(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, **options)


runs = sa.Table(
    "runs",
    METADATA,
    sa.Column("id", sa.String, primary_key=True),
    text_column("kind"),
    text_column("status"),
    sa.Column("question", Sealed, nullable=False),
    text_column("model"),
    sa.Column("args", JSON, nullable=False),
    sa.Column("started", UtcTime, nullable=False, index=True),
    sa.Column("finished", UtcTime),
    sa.Column("result", SealedJson),
    sa.Column("cost_usd", sa.Float),
    sa.Column("error", SealedJson),
    sa.Column("requester", sa.String, index=True),
    sa.Column("request", sa.String, index=True),
)

subagents = sa.Table(
    "subagents",
    METADATA,
    of_run(primary_key=True),
    text_column("id", primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("brief", SealedJson, nullable=False),
    text_column("template", index=True),
    sa.Column("result", SealedJson),
    text_column("status"),
    text_column("stopped_by"),
    sa.Column("cost_usd", sa.Float),
)

decisions = sa.Table(
    "decisions",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True),
    text_column("run", index=True),
    text_column("context"),
    text_column("tool"),
    text_column("args_hash"),
    text_column("verdict"),
    text_column("rule"),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("requester", sa.String),
    sa.Column("label", JSON),
    sa.UniqueConstraint(
        "run", "context", "tool", "args_hash", "at", "verdict", name="decisions_once"
    ),
    sqlite_autoincrement=True,
)
"""Append-only by triggers, and without a reference to its runs: it outlives them."""

contexts = sa.Table(
    "contexts",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True),
    of_run(),
    text_column("id"),
    sa.Column("parent", sa.String),
    text_column("kind"),
    text_column("scope"),
    text_column("model"),
    text_column("template"),
    sa.Column("tools", JSON, nullable=False),
    sa.Column("created", UtcTime, nullable=False),
    sa.UniqueConstraint("run", "id"),
)

blocks = sa.Table(
    "blocks",
    METADATA,
    sa.Column("hash", sa.String, primary_key=True),
    sa.Column("body", Sealed, nullable=False),
)

ledger = sa.Table(
    "ledger",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True),
    of_run(),
    text_column("context"),
    text_column("origin"),
    sa.Column("hash", sa.ForeignKey("blocks.hash"), nullable=False, index=True),
    text_column("ref"),
    sa.UniqueConstraint("run", "context", "origin", "hash", "ref"),
)

requests = sa.Table(
    "requests",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    of_run(),
    text_column("context"),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("parts", JSON, nullable=False),
    sa.UniqueConstraint("run", "context", "seq", "attempt"),
)

replies = sa.Table(
    "replies",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    of_run(),
    text_column("context"),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("blocks", JSON, nullable=False),
    sa.Column("outcome", SealedJson, nullable=False),
    sa.UniqueConstraint("run", "context", "seq", "attempt"),
)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One request, sweep or digest."""

    id: str
    kind: str
    """`ask` or `sweep`."""
    status: str
    """`running` until it is finished; a run that was killed stays so."""
    question: str
    """The question, or the sweep's name."""
    model: str
    args: Mapping[str, Any]
    started: datetime
    finished: datetime | None = None
    result: Mapping[str, Any] | None = None
    cost_usd: float | None = None
    error: Mapping[str, Any] | None = None
    requester: str | None = None
    """Who asked; None on the command line without --as-user."""
    request: str | None = None
    """Key of the message in Slack that asked; None = it was not asked there."""


@dataclass(frozen=True, slots=True)
class StoredSubagent:
    """One subagent with its frozen brief and its checked result."""

    run: str
    id: str
    position: int
    """Place in call order."""
    brief: Mapping[str, Any]
    template: str
    result: Mapping[str, Any] | None
    status: str
    stopped_by: str
    cost_usd: float | None

    @property
    def troubled(self) -> bool:
        return self.status in ("failed", "partial") or self.stopped_by == "needs_context"


@dataclass(frozen=True, slots=True)
class Review:
    """How the subagents of one template version ended."""

    template: str
    total: int
    troubled: tuple[StoredSubagent, ...]
    """Those that failed, stayed partial or lacked something in their brief; newest first."""


WAITING = {"status": "waiting", "stopped_by": "none", "cost_usd": 0.0}
"""What stands for the result of a subagent that no process has begun, or ended, yet."""


def row_of(run: str, brief: Mapping[str, Any], result: Mapping[str, Any]) -> dict[str, Any]:
    """The row of a subagent; its id ends in its number, which is its place in call order."""
    digits = re.search(r"\d*$", result["id"])
    return {
        "run": run,
        "position": int((digits and digits[0]) or 0),
        "brief": brief,
        "template": brief["template"],
        "result": result,
        **{name: result[name] for name in ("id", "status", "stopped_by", "cost_usd")},
    }


def rows_of(
    recording: Recording, log: Sequence[Decision]
) -> list[tuple[sa.Table, list[dict[str, Any]]]]:
    """The rows of a recording, in an order in which everything referred to comes first."""
    return [
        (blocks, [{"hash": h, "body": body} for h, body in recording.blocks.items()]),
        (contexts, [_plain(c) for c in recording.contexts]),
        (ledger, [_plain(e) for e in recording.entries]),
        (requests, [_plain(r) for r in recording.requests]),
        (replies, [_plain(r) for r in recording.replies]),
        (decisions, [_plain(d) for d in log]),
    ]


def trajectory_of(
    run: str,
    contexts: Sequence[Mapping[str, Any]],
    ledger: Sequence[Mapping[str, Any]],
    requests: Sequence[Mapping[str, Any]],
    replies: Sequence[Mapping[str, Any]],
    blocks: Mapping[str, str],
) -> Trajectory:
    """The trajectory that these rows hold: JSON gives lists and names where values were."""
    return Trajectory(
        run,
        tuple(Context(**{**row, "tools": tuple(row["tools"])}) for row in contexts),
        tuple(Entry(**{**row, "origin": Origin(row["origin"])}) for row in ledger),
        tuple(Request(**{**row, "parts": tuple(map(tuple, row["parts"]))}) for row in requests),
        tuple(Reply(**{**row, "blocks": tuple(row["blocks"])}) for row in replies),
        blocks,
    )


def _plain(value: Any) -> dict[str, Any]:
    """The fields of a slotted dataclass; `asdict` copies deeply and takes ten times as long."""
    return {name: getattr(value, name) for name in value.__slots__}
