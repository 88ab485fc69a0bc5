"""What the bot was asked and answered, as rows: sealed, with their words hidden in an index.

One row a finished run, stored as the run ends and gone with what the run was asked and told.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import sqlalchemy as sa

from bot.memory.word_index import WordIndex
from bot.storage.database import Database
from bot.storage.serve_tables import inbox
from bot.storage.tables import runs
from bot.storage.tool_tables import conversations
from scopes.conversations import Talk
from scopes.effects import OPEN_NOTES
from scopes.label import Label
from scopes.spaces import OPERATOR, space_of

USER = "user:"
"""How the place of what only who asked has seen begins."""
ANYWHERE = "conversation"
"""What the index calls all places of Slack that several people read."""
WORDS = WordIndex("talk_words", "talk", "place")

FOUND = sa.select(conversations, inbox.c.channel, inbox.c.ts, inbox.c.thread_ts).select_from(
    conversations.outerjoin(runs, runs.c.id == conversations.c.run).outerjoin(
        inbox, inbox.c.key == runs.c.request
    )
)
"""With the message that asked, where it is still known."""


class TalkShelf:
    """The conversations of one database: `scopes.conversations.Conversations`."""

    def __init__(self, database: Database) -> None:
        self._database = database

    async def search(
        self, owner: str | None, query: str, limit: int, closed: Collection[str]
    ) -> Sequence[Talk]:
        """What holds words of the query, best first; without one the newest. Raises StoreError."""
        own = space_of(OPEN_NOTES, owner)
        spaces = [own, ANYWHERE] if owner else [own]
        if query.strip():
            ids = await WORDS.find(self._database, spaces, query, limit, closed)
        else:
            ids = await self._newest(own, owner is not None, limit, closed)
        rows = await self._database.read(FOUND.where(conversations.c.id.in_(ids)))
        found = {row["id"]: _talk(row, spaces) for row in rows}
        return [talk for id in ids if (talk := found.get(id))]

    async def _newest(
        self, own: str, elsewhere: bool, limit: int, closed: Collection[str]
    ) -> list[int]:
        place = conversations.c.place
        there = place.not_in([OPERATOR, *closed]) & ~place.startswith(USER)
        mine = (place == own) | there if elsewhere else place == own
        query = sa.select(conversations.c.id).where(mine).order_by(conversations.c.id.desc())
        return [row["id"] for row in await self._database.read(query.limit(limit))]


def keep(connection: sa.Connection, key: bytes, run: str, *, private: bool) -> None:
    """Keep what a finished run was asked and answered, in place of what was kept of it.

    `private`: the answer went to who asked alone. `key` hides the words.
    """
    without(connection, conversations.c.run == run)
    row = dict(connection.execute(sa.select(runs).where(runs.c.id == run)).mappings().one())
    place, told = _place(row, private), row["result"] or {}
    answer, label = told.get("answer"), told.get("label")
    if not place or not answer or not label or row["status"] == "failed":
        return
    body = {"place": place, "run": run, "question": row["question"], "answer": answer}
    values = {"run": run, "place": place, "requester": row["requester"], "at": row["started"]}
    made = sa.insert(conversations).values(body=json.dumps({**body, "label": label}), **values)
    id = int(connection.execute(made.returning(conversations.c.id)).scalar_one())
    text = f"{answer} {row['question']}"  # of a very long text the first words are indexed
    WORDS.put(connection, id, _spaces(place), text, key)


def kept_again(connection: sa.Connection, key: bytes, run: str) -> None:
    """The same, where it was kept, of a run of which something was taken out since."""
    mine = sa.select(conversations.c.place).where(conversations.c.run == run)
    if place := connection.execute(mine).scalar():
        keep(connection, key, run, private=place.startswith(USER))


async def made_public(database: Database, run: str) -> None:
    """Note that an answer stands where it was asked for by now. Raises StoreError."""
    key = database.digest_key
    await database.change(lambda connection: keep(connection, key, run, private=False))


def without(connection: sa.Connection, mine: sa.ColumnElement[bool]) -> int:
    """Delete these conversations and what is indexed of them; how many they were."""
    ids = list(connection.execute(sa.select(conversations.c.id).where(mine)).scalars())
    WORDS.drop(connection, ids)
    connection.execute(sa.delete(conversations).where(conversations.c.id.in_(ids)))
    return len(ids)


def _place(row: Mapping[str, Any], private: bool) -> str:
    """Where a run was asked for and answered; empty where nobody asked.

    Asked for are requests in Slack, and `assistant ask` as the operator: not as a user of an
    export, who may be somebody else here.
    """
    if row["request"]:
        channel = str(row["request"]).partition("/")[2].partition("/")[0]
        alone = private or channel.startswith("D")
        return space_of(OPEN_NOTES, row["requester"]) if alone else channel
    by_operator = row["kind"] == "ask" and not (row["requester"] or row["args"].get("as_user"))
    return OPERATOR if by_operator else ""


def _spaces(place: str) -> list[str]:
    """What it is found under, the first; and left out by, each."""
    return [place] if place == OPERATOR or place.startswith(USER) else [ANYWHERE, place]


def _talk(row: Mapping[str, Any], spaces: Sequence[str]) -> Talk | None:
    """The conversation of a row; None where the row is not what was sealed."""
    body = json.loads(row["body"])
    same = body["place"] == row["place"] and body["run"] == row["run"]
    if not same or _spaces(body["place"])[0] not in spaces:
        return None
    place = "" if body["place"] == spaces[0] else body["place"]
    label = Label.of(body["label"])
    message = (row["channel"], row["ts"], row["thread_ts"]) if row["channel"] else None
    return Talk(body["run"], place, body["question"], body["answer"], label, row["at"], message)
