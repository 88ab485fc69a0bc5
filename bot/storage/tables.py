"""The product's own tables. A change needs a migration in `bot/migrations/`."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import chain
from operator import methodcaller
from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from bot.storage.encryption import EncryptedJson, EncryptedText
from bot.storage.schedules import Failure
from config.schedules import Schedule
from scopes.label import Label
from subagents.gate import Action

REVISIONS = ("0019",)
"""Schema revisions that this program knows, oldest first."""

METADATA = sa.MetaData()


class UtcTime(sa.types.TypeDecorator[datetime]):
    """A UTC-aware datetime, stored as ISO 8601 text: sortable and readable."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Any) -> str | None:
        return value.astimezone(UTC).isoformat(timespec="microseconds") if value else None

    def process_result_value(self, value: str | None, dialect: Any) -> datetime | None:
        return datetime.fromisoformat(value) if value else None


class PlainText(sa.types.TypeDecorator[str]):
    """Text without characters that PostgreSQL refuses: NUL and halves of surrogate pairs."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        if value is None:
            return None
        return value.encode("utf-8", "replace").decode().replace("\0", "")


class Value(sa.types.TypeDecorator[Any]):
    """An object that is stored as JSON."""

    impl = sa.JSON
    cache_ok = True

    def __init__(self, dump: Callable[[Any], Any], load: Callable[[Any], Any]) -> None:
        self.dump, self.load = dump, load
        super().__init__(none_as_null=True)

    def process_bind_param(self, value: Any, dialect: Any) -> Any:
        return None if value is None else self.dump(value)

    def process_result_value(self, value: Any, dialect: Any) -> Any:
        return None if value is None else self.load(value)


def model(kind: type[BaseModel]) -> Value:
    """Return the type of a column that holds a pydantic model."""
    return Value(methodcaller("model_dump", mode="json"), kind.model_validate)


JSON = sa.JSON(none_as_null=True)
LABEL = Value(Label.to_json, Label.of)


Columns = list[sa.Column[Any]]


def columns(type: Any, *names: str, **options: Any) -> Columns:
    """Return columns of one type, which are not null."""
    return [sa.Column(name, type, **{"nullable": False, **options}) for name in names]


def optional(type: Any, *names: str, **options: Any) -> Columns:
    """Return columns of one type, which may be null."""
    return columns(type, *names, nullable=True, **options)


def of_run(**options: Any) -> Columns:
    """Return a column for the run that a row belongs to; the row is deleted with the run."""
    return columns(sa.ForeignKey("runs.id", ondelete="CASCADE"), "run", **options)


def table(name: str, *parts: Columns | sa.schema.SchemaItem, **options: Any) -> sa.Table:
    """Declare a table."""
    items = [part if isinstance(part, list) else [part] for part in parts]
    return sa.Table(name, METADATA, *chain.from_iterable(items), **options)


runs = table(
    "runs",
    columns(sa.String, "id", primary_key=True),
    columns(sa.String, "kind", "status", "model"),
    columns(PlainText, "question"),
    columns(JSON, "args"),
    columns(UtcTime, "started"),
    optional(UtcTime, "finished"),
    optional(JSON, "result", "error"),
    optional(sa.Float, "cost_usd"),
    optional(sa.String, "requester", "request", index=True),
    sa.Index("runs_listed", "started", "id", "kind", "status", "requester", "request", "cost_usd"),
)
"""The index holds all columns by which runs are listed, filtered and added up: SQLite would
otherwise read past each result to reach the columns after it."""

questions = table(
    "questions",
    of_run(primary_key=True),
    columns(PlainText, "text"),
    sqlite_with_rowid=False,
)
"""The questions of runs for searches, see `bot.storage.run_index`: the rows of runs are wide, and
PostgreSQL takes longer to fold the case of a row than to read it."""

model_costs = table(
    "model_costs",
    of_run(primary_key=True),
    columns(sa.String, "model", primary_key=True),
    columns(UtcTime, "started"),
    columns(sa.Float, "usd"),
    sa.Index("model_costs_listed", "started", "model", "usd"),
    sqlite_with_rowid=False,
)
"""Cost of each finished run by model; empty model = it was not recorded. `started` is the run's.
Its contexts, which name the models, are deleted earlier."""

subagents = table(
    "subagents",
    of_run(primary_key=True),
    columns(sa.String, "id", primary_key=True),
    columns(sa.Integer, "position"),
    columns(JSON, "brief"),
    columns(sa.String, "template", index=True),
    optional(JSON, "result"),
    columns(sa.String, "status", "stopped_by"),
    optional(sa.Float, "cost_usd"),
)

decisions = table(
    "decisions",
    columns(sa.Integer, "seq", primary_key=True),
    columns(sa.String, "run", index=True),
    columns(sa.String, "context", "tool", "args_hash", "verdict", "rule"),
    columns(UtcTime, "at"),
    optional(sa.String, "requester"),
    optional(JSON, "label"),
    sa.UniqueConstraint(
        "run", "context", "tool", "args_hash", "at", "verdict", name="decisions_once"
    ),
    sqlite_autoincrement=True,
)
"""Append-only by triggers, and without a reference to the runs: its rows outlive them."""

contexts = table(
    "contexts",
    columns(sa.Integer, "seq", primary_key=True),
    of_run(),
    columns(sa.String, "id", "kind", "scope", "model", "template"),
    optional(sa.String, "parent"),
    columns(JSON, "tools"),
    columns(UtcTime, "created"),
    sa.UniqueConstraint("run", "id"),
)

blocks = table(
    "blocks",
    columns(sa.String, "hash", primary_key=True),
    columns(EncryptedText, "body"),
)

ledger = table(
    "ledger",
    columns(sa.Integer, "seq", primary_key=True),
    of_run(),
    columns(sa.String, "context", "origin", "ref"),
    columns(sa.ForeignKey("blocks.hash"), "hash", index=True),
    sa.UniqueConstraint("run", "context", "origin", "hash", "ref"),
)

requests = table(
    "requests",
    columns(sa.Integer, "number", primary_key=True),
    of_run(),
    columns(sa.String, "context"),
    columns(sa.Integer, "seq", "attempt"),
    columns(JSON, "parts"),
    optional(UtcTime, "at"),
    sa.UniqueConstraint("run", "context", "seq", "attempt"),
)

replies = table(
    "replies",
    columns(sa.Integer, "number", primary_key=True),
    of_run(),
    columns(sa.String, "context"),
    columns(sa.Integer, "seq", "attempt"),
    columns(JSON, "blocks"),
    columns(EncryptedJson, "outcome"),
    optional(UtcTime, "at"),
    sa.UniqueConstraint("run", "context", "seq", "attempt"),
)


@dataclass(frozen=True, slots=True)
class StoredRun:
    """One request, sweep or digest."""

    id: str
    kind: str
    """`ask`, `sweep`, `triage` or `panel`."""
    status: str
    """`running` until it is finished; a killed run keeps this status."""
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
    """The requester; None on the command line without --as-user."""
    request: str | None = None
    """Key of the Slack message that requested it; None = it was not requested in Slack."""


@dataclass(frozen=True, slots=True)
class StoredSubagent:
    """One subagent with its frozen brief and its checked result."""

    run: str
    id: str
    position: int
    """Position in call order."""
    brief: Mapping[str, Any]
    template: str
    result: Mapping[str, Any] | None
    status: str
    stopped_by: str
    cost_usd: float | None

    @property
    def dropped(self) -> Sequence[str]:
        """Return the claims and quotes of its result that no source supports."""
        return (self.result or {}).get("unsupported") or ()

    @property
    def troubled(self) -> bool:
        return self.status in ("failed", "partial") or self.stopped_by == "needs_context"


inbox = table(
    "inbox",
    columns(sa.String, "key", primary_key=True),
    columns(sa.String, "team", "channel", "ts", "thread_ts", "user", "kind", "state"),
    columns(JSON, "event"),
    optional(sa.String, "run", "stopped_by"),
    columns(sa.Integer, "attempt"),
    columns(UtcTime, "received"),
    optional(UtcTime, "not_before"),
    optional(JSON, "reply"),
    sa.Index("inbox_by_thread", "team", "channel", "thread_ts"),
    sa.Index("inbox_by_state", "state", "received"),
)
"""Messages that ask for something, by (team, channel, ts). `stopped_by` is the user who stopped
it."""

cursors = table(
    "cursors",
    columns(sa.String, "team", "channel", primary_key=True),
    columns(sa.String, "ts"),
)
"""The newest message of each channel that was received."""

flags = table(
    "flags",
    columns(sa.String, "name", primary_key=True),
    optional(JSON, "value"),
    columns(UtcTime, "at"),
)

names = table(
    "names",
    columns(sa.String, "id", primary_key=True),
    columns(PlainText, "name", "folded"),
    columns(UtcTime, "at"),
)
"""Names of people and channels (`#support`) in Slack, as last received: for pages, which send no
request to Slack. `folded` is searched, see `bot.storage.run_index`."""

feedback = table(
    "feedback",
    columns(sa.String, "request", "user", primary_key=True),
    columns(sa.String, "value"),
    columns(UtcTime, "at"),
    optional(sa.String, "reason"),
    optional(PlainText, "comment"),
)
"""Ratings of answers; `reason` and `comment` tell why one was bad."""

steps = table(
    "steps",
    of_run(primary_key=True),
    columns(sa.String, "key", primary_key=True),
    columns(EncryptedJson, "body"),
)
"""Results of the steps of a run; they are returned again after a crash and in a replay."""

templates = table(
    "templates",
    columns(sa.String, "version", primary_key=True),
    columns(JSON, "body"),
)
"""Prompt and schemas of a template version, so that a subagent that started before an update keeps
its texts until it ends."""

budgets = table(
    "budgets",
    of_run(primary_key=True),
    columns(sa.BigInteger, "cap_nanousd", "cap_tokens", "cap_steps"),
    columns(sa.BigInteger, "spent_nanousd", "spent_tokens", "spent_steps"),
    columns(sa.BigInteger, "reserved_nanousd", "reserved_tokens", "reserved_steps"),
)

reservations = table(
    "reservations",
    of_run(primary_key=True),
    columns(sa.String, "key", primary_key=True),
    columns(sa.BigInteger, "nanousd", "tokens", "steps"),
    columns(sa.String, "state"),
    columns(sa.String, "owner", index=True),
)
"""State: `held` for a possible call, `waits` for the same while its context waits for budget,
`kept` for the call that reads the results of others, `sent` for one in progress, `settled`
with its actual cost; `owner` is the process that makes the call."""

_ADDRESS = re.compile(r"<([^<>\s]++)>\s*$")


def address_of(sender: str) -> str:
    """Return the address in `Name <address>`, or the address itself, in lower case."""
    found = _ADDRESS.search(sender)
    address = found[1] if found and "@" in found[1][1:-1] else sender.strip()
    return address.lower()


class Author(sa.types.TypeDecorator[str]):
    """Id of an author; a mail address is stored without its name, in lower case."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return address_of(value) if value and "@" in value else value


actions = table(
    "actions",
    columns(sa.String, "id", primary_key=True),
    of_run(index=True),
    columns(sa.String, "tool", "requester", "digest", "state"),
    columns(PlainText, "body"),
    columns(UtcTime, "made"),
    optional(UtcTime, "expires", "decided_at"),
    optional(JSON, "card", "outcome"),
    optional(sa.String, "decided_by", "instead_of"),
    sa.Index("actions_by_state", "state", "made"),
)
"""`subagents.gate.Action` by id. `state`: proposed, asked (its card is shown at `card`, a
`bot.approvals.store.CardPlace`), then approved, denied, expired or edited (replaced by the
action whose `instead_of` names it); an approved one ends as done or failed, as `outcome`
describes."""

grants = table(
    "grants",
    columns(sa.String, "id", primary_key=True),
    columns(JSON, "sources"),
    columns(sa.String, "destination", index=True),
    columns(sa.String, "by"),
    columns(UtcTime, "at"),
    optional(sa.String, "revoked_by"),
    optional(UtcTime, "revoked_at"),
)
"""Sources whose text may appear in a destination although not everyone there may read them; an
administrator has allowed each once."""

quoted = table(
    "quoted",
    columns(sa.String, "item", primary_key=True),
    of_run(primary_key=True),
    columns(sa.String, "channel"),
    optional(Author, "author"),
    sa.Index("quoted_by_run", "run"),
)
"""Which run holds text of which item; ids only. It gets a row for each item that is read: more
indexes would double the cost, and scanning all rows takes a second for millions."""

credentials = table(
    "credentials",
    columns(sa.String, "provider", "account", primary_key=True),
    columns(EncryptedText, "body"),
    columns(UtcTime, "at"),
)
"""OAuth tokens."""

oauth_states = table(
    "oauth_states",
    columns(sa.String, "state", primary_key=True),
    columns(sa.String, "account", index=True),
    columns(sa.String, "phase"),
    columns(sa.Integer, "tries"),
    columns(UtcTime, "expires", index=True),
    columns(EncryptedText, "body"),
)
"""Accounts that are being connected; rows live for minutes. `state` is the hash of the browser's
state parameter. `phase`: `asked`, `begun` in one browser, `spent`, then `granted` until the person
has entered the code that this browser shows. `body` holds secrets."""

installations = table(
    "installations",
    columns(sa.String, "id", primary_key=True),
    columns(UtcTime, "at"),
    columns(EncryptedJson, "body"),
)
"""Slack workspaces that installed the app, if several are served: `id` names a workspace or, for
all workspaces of a company, the company. `body` is slack_sdk's Installation, with its token."""


def proposal(action: Action) -> dict[str, Any]:
    """Return the row of an action that was just proposed."""
    return {
        **{n: getattr(action, n) for n in ("id", "run", "tool", "requester", "digest", "made")},
        "body": action.body(),
        "state": "proposed",
    }


mail_cursors = table(
    "mail_cursors",
    columns(sa.String, "account", primary_key=True),
    columns(sa.Text, "cursor"),
    columns(sa.String, "run"),
    columns(UtcTime, "at"),
)
"""Start of the next triage: `bot.mailbox.sync.Cursor`; `run` is the last run that moved it."""

mail_threads = table(
    "mail_threads",
    columns(sa.String, "account", "thread", primary_key=True),
    columns(sa.String, "state", "history"),
    columns(JSON, "messages"),
    optional(sa.String, "run"),
    columns(UtcTime, "at"),
    optional(UtcTime, "until"),
    sa.Index("mail_threads_by_state", "account", "state"),
    sa.Index("mail_threads_by_time", "at"),
)
"""Handled threads; ids only. `state`: handled, or owed (a triage left it to the next one).
`messages`: ids of the messages that were read, including all that the thread had at `history`.
`until`: time when the user wants to see it again."""

mail_corrections = table(
    "mail_corrections",
    columns(sa.String, "account", "thread", "field", primary_key=True),
    columns(PlainText, "sender", "value"),
    columns(UtcTime, "at"),
)
"""A user's correction: the field of a thread's verdict, for mails of this sender."""

notes = table(
    "notes",
    columns(sa.Integer, "id", primary_key=True, autoincrement=True),
    columns(sa.String, "space", index=True),
    columns(sa.String, "key", unique=True),
    columns(PlainText, "title", "text"),
    columns(JSON, "label"),
    columns(sa.String, "context"),
    columns(sa.Text, "title_words", "words"),
    optional(sa.String, "run", index=True),
    columns(UtcTime, "at"),
    sqlite_autoincrement=True,  # the id of a deleted note is never reused
)
"""`space`: owner of the note, see `scopes.spaces`. `title_words` and `words` are searched: see
`bot.memory`."""

preferences = table(
    "preferences",
    columns(sa.Integer, "id", primary_key=True, autoincrement=True),
    columns(sa.String, "space", index=True),
    columns(EncryptedText, "text"),
    columns(sa.String, "by"),
    columns(JSON, "label"),
    optional(sa.String, "run", index=True),
    columns(UtcTime, "at"),
    sqlite_autoincrement=True,  # the button of a deleted row must not delete another
)
"""Preferences of a person (several rows), or the instructions of a channel (one row). `space`: the
owner, as for notes; `label` and `run`: possible sources of the text, see
`scopes.preferences.Authorship`."""

resources = table(
    "resources",
    columns(sa.Integer, "id", primary_key=True, autoincrement=True),
    columns(sa.String, "space", index=True),
    columns(PlainText, "name"),
    columns(sa.Integer, "version", "size"),
    columns(sa.String, "key", unique=True),
    columns(sa.String, "kind"),
    columns(JSON, "label"),
    columns(sa.LargeBinary, "body"),
    optional(sa.String, "run", index=True),
    columns(UtcTime, "at"),
    sa.UniqueConstraint("space", "name", "version", name="resources_versions"),
)
"""Named files. `space`: `run:<id>`, or the owner, as for notes. `kind` is the media type, `size`
in bytes, `body` the compressed content."""

conversations = table(
    "conversations",
    columns(sa.Integer, "id", primary_key=True, autoincrement=True),
    columns(sa.String, "run", unique=True),
    columns(sa.String, "place", index=True),
    optional(sa.String, "requester"),
    columns(PlainText, "question", "answer"),
    columns(JSON, "label"),
    columns(sa.Text, "words"),
    columns(UtcTime, "at", index=True),
)
"""Questions and answers of the bot. `place`: their Slack conversation, else the owner, as for
notes. `words` is searched."""

outside_tools = table(
    "outside_tools",
    columns(sa.String, "server", "tool", primary_key=True),
    columns(sa.String, "approved", "seen"),
    columns(UtcTime, "at"),
)
"""Digests of the description of an outside tool: the one that was approved (empty = none), and
the one that was seen last."""

outside_calls = table(
    "outside_calls",
    columns(sa.String, "key", primary_key=True),
    columns(sa.String, "run"),
    columns(UtcTime, "at", index=True),
)
"""Calls that leave no other trace: calls of outside tools that change something, once started, and
deletions of preferences, once done. None is made twice."""

schedules = table(
    "schedules",
    columns(sa.String, "id", primary_key=True),
    columns(sa.String, "origin", "state"),
    columns(PlainText, "why"),
    columns(model(Schedule), "spec"),
    columns(LABEL, "label"),
    columns(UtcTime, "made", "changed", "watermark"),
    optional(sa.String, "at_work"),
    optional(model(Failure), "trouble"),
)
"""`origin`: config or chat. `state`: active, paused, refused (`why` tells what its owner has to
fix), done (its only time has passed) or deleted. `label` is that of the context in which it was
requested. `watermark`: its occurrences up to this time
are rows. `at_work`: the workflow that works for it; there is one at a time. `trouble`: the start
of its failure, and whether its owner was notified."""

schedule_runs = table(
    "schedule_runs",
    columns(sa.String, "schedule", primary_key=True),
    columns(UtcTime, "at", primary_key=True),
    columns(sa.String, "state"),
    columns(PlainText, "why", default=""),
    optional(sa.String, "run"),
    optional(UtcTime, "oldest", "latest", "not_before", "begun", "ended", "delivered"),
    optional(sa.Float, "cost_usd"),
    columns(sa.Integer, "tries", "delivery_tries", default=0),
    optional(sa.String, "delivery"),
    optional(JSON, "extra", "place", "figures"),
    sa.Index("schedule_runs_by_state", "state", "schedule"),
    sa.Index("schedule_runs_by_delivery", "delivery", "schedule"),
)
"""`state`: due, running, then ran, failed or skipped. A run that failed for a temporary reason is
due again, not before `not_before`; `tries` counts those. `run`, `begun` and `ended` belong to the
latest try, `cost_usd` to all of them. Its report covers `[oldest, latest)`. `extra`: data to be
recorded when the report is delivered. `figures`: counts by which reports are compared.

`delivery`, once it ran: waiting, then delivered, quiet (nothing was new, so nothing was sent),
superseded (a later report covers its window too) or failed (no further try).
`delivery_tries` counts its tries. `place`: where the message is. `why` and `not_before` belong to
the run, then to its delivery."""

issues = table(
    "issues",
    columns(sa.String, "schedule", "id", primary_key=True),
    columns(sa.String, "state"),
    columns(JSON, "body"),
    columns(UtcTime, "first", "last"),
    sa.Index("issues_by_state", "schedule", "state"),
)
"""The issues in a schedule's delivered reports, each with one id even if its wording changes.
`state` comes from its last report; `body` holds its evidence (ids of messages) and its text."""
