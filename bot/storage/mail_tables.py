"""The tables of mailboxes: how far each was read, what was handled, corrected and done in it.

`account` is a Slack user id, or `operator` at the command line, as in the credentials. Ids and
times are plain; an address, a subject or the name of a label is not.
"""

from __future__ import annotations

import sqlalchemy as sa

from bot.storage.sealed import OnlySealed, SealedJson
from bot.storage.tables import JSON, METADATA, UtcTime, text_column

mail_cursors = sa.Table(
    "mail_cursors",
    METADATA,
    text_column("account", primary_key=True),
    sa.Column("cursor", OnlySealed("mail_cursors.cursor"), nullable=False),
    text_column("run"),
    sa.Column("at", UtcTime, nullable=False),
)
"""Where the next triage begins: `bot.mail.state.Cursor`; `run` is the triage that got so far."""

mail_threads = sa.Table(
    "mail_threads",
    METADATA,
    text_column("account", primary_key=True),
    text_column("thread", primary_key=True),
    text_column("state"),
    sa.Column("messages", JSON, nullable=False),
    text_column("history"),
    sa.Column("run", sa.String),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("until", UtcTime),
    sa.Index("mail_threads_by_state", "account", "state"),
    sa.Index("mail_threads_by_time", "at"),
)
"""What was handled; ids only. `state`: handled, or owed (a triage left it to the next one).
`messages`: ids of those that were read, among them all that the thread had at `history`. `until`:
the user wants to see it again then."""

mail_polls = sa.Table(
    "mail_polls",
    METADATA,
    text_column("account", primary_key=True),
    text_column("line"),
    text_column("history"),
    text_column("lost"),
    sa.Column("threads", JSON, nullable=False),
    sa.Column("at", UtcTime),
    sa.Column("taken", UtcTime),
    sa.Column("not_before", UtcTime, nullable=False),
    sa.Column("failures", sa.Integer, nullable=False),
    sa.Column("revoked", sa.Text),
    sa.Column("since", UtcTime),
    sa.Column("told", UtcTime),
    sa.Column("watched_until", UtcTime),
    sa.Column("watch_again", UtcTime),
    sa.Column("watch_failures", sa.Integer, nullable=False),
    sa.Column("watch_why", sa.Text),
    sa.Index("mail_polls_by_time", "not_before"),
)
"""What was noticed between triages: `bot.mail.polls.Poll`. Ids, times and sentences of ours."""

mail_corrections = sa.Table(
    "mail_corrections",
    METADATA,
    text_column("account", primary_key=True),
    text_column("thread", primary_key=True),
    text_column("field", primary_key=True),
    sa.Column("body", OnlySealed("mail_corrections.body"), nullable=False),
    sa.Column("at", UtcTime, nullable=False),
)
"""What a user set right. `body` names its row, the sender and the value: it is told to a model as
ours, so who writes here without the key cannot have it say anything."""

mail_acts = sa.Table(
    "mail_acts",
    METADATA,
    text_column("account", primary_key=True),
    text_column("key", primary_key=True),
    text_column("thread"),
    sa.Column("outcome", SealedJson),
    sa.Column("at", UtcTime, nullable=False),
)
"""What a button has done, once: without an outcome it is being done since `at`."""
