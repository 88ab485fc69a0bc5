"""The product's own tables and their rows. A change needs a migration in `bot/migrations/`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import sqlalchemy as sa

from subagents.gate import Decision
from subagents.trajectory import Context, Entry, Origin, Recording, Reply, Request, Trajectory

REVISIONS = ("0001",)
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


_JSON = sa.JSON(none_as_null=True)


def _run(**options: Any) -> sa.Column[str]:
    """The run that a row belongs to; it goes with it."""
    return sa.Column("run", sa.ForeignKey("runs.id", ondelete="CASCADE"), nullable=False, **options)


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, **options)


runs = sa.Table(
    "runs",
    METADATA,
    sa.Column("id", sa.String, primary_key=True),
    _text("kind"),
    _text("status"),
    _text("question"),
    _text("model"),
    sa.Column("args", _JSON, nullable=False),
    sa.Column("started", UtcTime, nullable=False, index=True),
    sa.Column("finished", UtcTime),
    sa.Column("result", _JSON),
    sa.Column("cost_usd", sa.Float),
    sa.Column("error", _JSON),
)

subagents = sa.Table(
    "subagents",
    METADATA,
    _run(primary_key=True),
    _text("id", primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("brief", _JSON, nullable=False),
    _text("template", index=True),
    sa.Column("result", _JSON),
    _text("status"),
    _text("stopped_by"),
    sa.Column("cost_usd", sa.Float),
)

decisions = sa.Table(
    "decisions",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True),
    _run(index=True),
    _text("context"),
    _text("tool"),
    _text("args_hash"),
    _text("verdict"),
    _text("rule"),
    sa.Column("at", UtcTime, nullable=False),
    sa.UniqueConstraint("run", "context", "tool", "args_hash", "at"),
    sqlite_autoincrement=True,
)

contexts = sa.Table(
    "contexts",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True),
    _run(),
    _text("id"),
    sa.Column("parent", sa.String),
    _text("kind"),
    _text("scope"),
    _text("model"),
    _text("template"),
    sa.Column("tools", _JSON, nullable=False),
    sa.Column("created", UtcTime, nullable=False),
    sa.UniqueConstraint("run", "id"),
)

blocks = sa.Table(
    "blocks",
    METADATA,
    sa.Column("hash", sa.String, primary_key=True),
    _text("body"),
)

ledger = sa.Table(
    "ledger",
    METADATA,
    sa.Column("seq", sa.Integer, primary_key=True),
    _run(),
    _text("context"),
    _text("origin"),
    sa.Column("hash", sa.ForeignKey("blocks.hash"), nullable=False, index=True),
    _text("ref"),
    sa.UniqueConstraint("run", "context", "origin", "hash", "ref"),
)

requests = sa.Table(
    "requests",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    _run(),
    _text("context"),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("parts", _JSON, nullable=False),
    sa.UniqueConstraint("run", "context", "seq", "attempt"),
)

replies = sa.Table(
    "replies",
    METADATA,
    sa.Column("number", sa.Integer, primary_key=True),
    _run(),
    _text("context"),
    sa.Column("seq", sa.Integer, nullable=False),
    sa.Column("attempt", sa.Integer, nullable=False),
    sa.Column("blocks", _JSON, nullable=False),
    sa.Column("outcome", _JSON, nullable=False),
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
