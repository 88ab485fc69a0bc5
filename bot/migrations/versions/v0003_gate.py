"""What the gate keeps: actions that wait for approval, grants, sources of runs, sealed columns."""

from __future__ import annotations

import re
from typing import Any

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"

SEALED = (
    ("runs", "result"),
    ("runs", "error"),
    ("subagents", "brief"),
    ("subagents", "result"),
    ("replies", "outcome"),
    ("inbox", "event"),
    ("steps", "body"),
)
"""Columns that were JSON: what is written from now on is encrypted, and so it is text."""
REFUSAL = "the log of decisions is append-only"
ITEM = re.compile(r"""[\["]([A-Z][A-Z0-9]{2,}/[\w.]+)[\]"]""")
"""A message or list row, as it stands in front of its line or in the evidence of a finding."""
ROWS = 1_000


def upgrade() -> None:
    if op.get_bind().dialect.name == "postgresql":
        for table, column in SEALED:
            op.execute(f"ALTER TABLE {table} ALTER COLUMN {column} TYPE text USING {column}::text")
    _decisions()
    _actions()
    _sources()


def _text(name: str, **options: Any) -> sa.Column[str]:
    return sa.Column(name, sa.String, nullable=False, **options)


def _json(name: str, **options: Any) -> sa.Column[Any]:
    return sa.Column(name, sa.JSON, **options)


def _of_run() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["run"], ["runs.id"], ondelete="CASCADE")


def _decisions() -> None:
    """The log outlives its runs: it is made anew without the reference to them."""
    sqlite = op.get_bind().dialect.name == "sqlite"
    op.execute("DROP TRIGGER decisions_are_append_only" + ("" if sqlite else " ON decisions"))
    op.execute("DROP INDEX ix_decisions_run")
    op.execute("ALTER TABLE decisions RENAME TO decisions_before")
    columns = ("run", "context", "tool", "args_hash", "verdict", "rule", "at")
    op.create_table(
        "decisions",
        sa.Column("seq", sa.Integer, primary_key=True),
        *(_text(name) for name in columns),
        sa.Column("requester", sa.String),
        _json("label"),
        sa.UniqueConstraint(
            "run", "context", "tool", "args_hash", "at", "verdict", name="decisions_once"
        ),
        sqlite_autoincrement=True,
    )
    op.create_index("ix_decisions_run", "decisions", ["run"])
    named = ", ".join(columns)
    copied = f"SELECT {named} FROM decisions_before ORDER BY seq"
    op.execute(f"INSERT INTO decisions ({named}) {copied}")
    op.drop_table("decisions_before")
    for event in ("UPDATE", "DELETE"):
        trigger = f"CREATE TRIGGER decisions_no_{event.lower()} BEFORE {event} ON decisions "
        if sqlite:
            op.execute(f"{trigger} BEGIN SELECT RAISE(ABORT, '{REFUSAL}'); END")
        else:
            op.execute(f"{trigger} FOR EACH ROW EXECUTE FUNCTION append_only()")
    if not sqlite:
        truncate = "CREATE TRIGGER decisions_no_truncate BEFORE TRUNCATE ON decisions"
        op.execute(f"{truncate} FOR EACH STATEMENT EXECUTE FUNCTION append_only()")


def _actions() -> None:
    op.create_table(
        "actions",
        _text("id", primary_key=True),
        _text("run", index=True),
        _text("tool"),
        _text("requester"),
        _text("digest"),
        sa.Column("body", sa.Text, nullable=False),
        _text("state"),
        _text("made"),
        sa.Column("expires", sa.String),
        _json("card"),
        sa.Column("decided_by", sa.String),
        sa.Column("decided_at", sa.String),
        sa.Column("decision", sa.Text),
        sa.Column("instead_of", sa.String),
        sa.Column("owner", sa.String),
        sa.Column("outcome", sa.Text),
        _of_run(),
    )
    op.create_index("actions_by_state", "actions", ["state", "made"])
    op.create_table(
        "grants",
        _text("id", primary_key=True),
        _json("sources", nullable=False),
        _text("destination", index=True),
        _text("by"),
        _text("at"),
        sa.Column("signed", sa.Text),
        sa.Column("revoked_by", sa.String),
        sa.Column("revoked_at", sa.String),
    )


def _sources() -> None:
    op.create_table(
        "quoted",
        _text("item", primary_key=True),
        _text("run", primary_key=True),
        _text("channel"),
        sa.Column("author", sa.String),
        _of_run(),
    )
    op.create_index("quoted_by_run", "quoted", ["run"])
    _seen_before()
    op.create_table(
        "credentials",
        _text("provider", primary_key=True),
        _text("account", primary_key=True),
        sa.Column("body", sa.Text, nullable=False),
        _text("at"),
    )


def _seen_before() -> None:
    """Of runs that are stored: which items were shown to them. Who wrote those is not stored."""
    read = (
        "SELECT l.run, b.body, NULL FROM ledger l JOIN blocks b ON b.hash = l.hash "
        "WHERE l.origin IN ('tool_result', 'request', 'material')",
        "SELECT run, result, NULL FROM subagents WHERE result IS NOT NULL",
        "SELECT id, '\"' || substr(request, strpos(request, '/') + 1) || '\"', requester FROM runs "
        "WHERE request IS NOT NULL",
    )
    bind = op.get_bind()
    find = "instr" if bind.dialect.name == "sqlite" else "strpos"
    seen: dict[tuple[str, str], str | None] = {}
    few = {"stream_results": True, "yield_per": 100}  # a month of records may be gigabytes
    for query in read:
        told = bind.exec_driver_sql(query.replace("strpos", find), execution_options=few)
        for run, text, author in told:
            seen |= {(item, run): author for item in ITEM.findall(text)}
    rows = [
        {"item": item, "run": run, "channel": item.partition("/")[0], "author": author}
        for (item, run), author in seen.items()
    ]
    insert = sa.text("INSERT INTO quoted VALUES (:item, :run, :channel, :author)")
    for start in range(0, len(rows), ROWS):
        bind.execute(insert, rows[start : start + ROWS])
