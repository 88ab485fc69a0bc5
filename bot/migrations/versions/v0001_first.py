"""Runs, subagents, the gate's log, and the trajectory."""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    _runs()
    _decisions()
    _trajectory()
    _calls()


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, **options)


def _whole(name: str, **options: Any) -> sa.Column[int]:
    return sa.Column(name, sa.Integer, nullable=False, **options)


def _json(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON, **options)


def _run(**options: Any) -> sa.Column[str]:
    return _text("run", **options)


def _of_run() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE")


def _runs() -> None:
    op.create_table(
        "runs",
        _text("id", primary_key=True),
        _text("kind"),
        _text("status"),
        _text("question"),
        _text("model"),
        _json("args", nullable=False),
        _text("started", index=True),
        sa.Column("finished", sa.String),
        _json("result"),
        sa.Column("cost_usd", sa.Float),
        _json("error"),
    )
    op.create_table(
        "subagents",
        _run(primary_key=True),
        _text("id", primary_key=True),
        _whole("position"),
        _json("brief", nullable=False),
        _text("template", index=True),
        _json("result"),
        _text("status"),
        _text("stopped_by"),
        sa.Column("cost_usd", sa.Float),
        _of_run(),
    )


def _decisions() -> None:
    op.create_table(
        "decisions",
        _whole("seq", primary_key=True),
        _run(index=True),
        _text("context"),
        _text("tool"),
        _text("args_hash"),
        _text("verdict"),
        _text("rule"),
        _text("at"),
        _of_run(),
        sa.UniqueConstraint("run", "context", "tool", "args_hash", "at"),
        sqlite_autoincrement=True,
    )
    refusal = "the log of decisions is append-only"
    trigger = "CREATE TRIGGER decisions_are_append_only BEFORE UPDATE ON decisions "
    if op.get_bind().dialect.name == "sqlite":
        op.execute(f"{trigger} BEGIN SELECT RAISE(ABORT, '{refusal}'); END")
        return
    op.execute(
        "CREATE FUNCTION append_only() RETURNS trigger LANGUAGE plpgsql "
        f"AS $$ BEGIN RAISE EXCEPTION '{refusal}'; END $$"
    )
    op.execute(f"{trigger} FOR EACH ROW EXECUTE FUNCTION append_only()")


def _trajectory() -> None:
    op.create_table(
        "contexts",
        _whole("seq", primary_key=True),
        _run(),
        _text("id"),
        sa.Column("parent", sa.String),
        _text("kind"),
        _text("scope"),
        _text("model"),
        _text("template"),
        _json("tools", nullable=False),
        _text("created"),
        _of_run(),
        sa.UniqueConstraint("run", "id"),
    )
    op.create_table("blocks", _text("hash", primary_key=True), _text("body"))
    op.create_table(
        "ledger",
        _whole("seq", primary_key=True),
        _run(),
        _text("context"),
        _text("origin"),
        _text("hash", index=True),
        _text("ref"),
        _of_run(),
        sa.ForeignKeyConstraint(["hash"], ["blocks.hash"]),
        sa.UniqueConstraint("run", "context", "origin", "hash", "ref"),
    )


def _calls() -> None:
    one_attempt = ("run", "context", "seq", "attempt")
    for table, columns in (("requests", ("parts",)), ("replies", ("blocks", "outcome"))):
        op.create_table(
            table,
            _whole("number", primary_key=True),
            _run(),
            _text("context"),
            _whole("seq"),
            _whole("attempt"),
            *(_json(name, nullable=False) for name in columns),
            _of_run(),
            sa.UniqueConstraint(*one_attempt),
        )
