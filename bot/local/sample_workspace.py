"""The sample workspace: five customer success channels of a fictional company and a bug tracker.

The data is YAML in `bot/local/sample/`: a file of people, one file a channel and the tracker.
Times in it are "DD HH:MM", UTC, in March 2026. No two messages of a channel share a minute, so an
id follows from its time alone and stays the same when other messages are edited. In texts
`<@name>` and `<#channel>` stand for the ids of people and channels.
"""

import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, date, datetime, time
from typing import Annotated, Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field

from bot.local.samples import DATA
from bot.local.workspace import (
    SLACKBOT,
    TOMBSTONE_TEXT,
    Channel,
    ColumnType,
    File,
    ListColumn,
    ListItem,
    Message,
    Reaction,
    SlackList,
    Team,
    User,
    Workspace,
)

_CHANNELS = ("csm-spain", "csm-france", "csm-italy", "csm-switzerland", "csm-germany")
_CREATED = datetime(2025, 1, 7, 9, tzinfo=UTC)
_MARKETS = {
    "ES": "Spain",
    "FR": "France",
    "IT": "Italy",
    "CH": "Switzerland",
    "DE": "Germany",
    "all": "All markets",
}
_STATUSES = {"open": "open", "in progress": "in progress", "closed": "closed"}
_MIMETYPES = {
    "png": "image/png",
    "pdf": "application/pdf",
    "xml": "application/xml",
    "log": "text/plain",
}
_MENTION = re.compile(r"<([@#])([a-z-]+)>")

At = Annotated[str, Field(pattern=r"^\d\d \d\d:\d\d$")]


class SampleData(BaseModel):
    """A part of a data file; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class _Person(SampleData):
    name: str
    title: str
    tz: str
    bot: bool = False


class _People(SampleData):
    team: Team
    users: dict[str, _Person]


class _Post(SampleData):
    at: At
    who: str
    text: str = ""
    subtype: Literal["", "channel_join"] = ""
    edited: At | None = None
    deleted: bool = False
    files: tuple[str, ...] = ()
    reactions: dict[str, tuple[str, ...]] = {}


class _Thread(_Post):
    replies: tuple[_Post, ...] = ()


class _ChannelFile(SampleData):
    id: str
    name: str
    topic: str
    language: str
    threads: tuple[_Thread, ...]


class _TrackerFile(SampleData):
    id: str
    name: str
    columns: tuple[str, ...]
    items: tuple[tuple[str | date | None, ...], ...]


def load_sample() -> Workspace:
    """The sample as a local workspace; the same values, ids and times at every call."""
    people = _People.model_validate(read_data("people"))
    channels = _channels()
    ids = {f"#{name}": f"<#{channel.id}|{name}>" for name, channel in channels.items()}
    ids |= {f"@{key}": f"<@{_user_id(key)}>" for key in people.users}
    return Workspace(
        people.team,
        tuple(_user(key, person) for key, person in people.users.items()),
        tuple(_channel(file, people.users, ids) for file in channels.values()),
        (_tracker(),),
    )


def read_data(name: str) -> Any:
    """What stands in one data file of the sample, not yet checked."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load((DATA / f"{name}.yaml").read_text(encoding="utf-8"), loader)


def _channels() -> dict[str, _ChannelFile]:
    return {name: _ChannelFile.model_validate(read_data(name)) for name in _CHANNELS}


def moment(at: str) -> datetime:
    """The time that a data file writes as "DD HH:MM"."""
    day, hour, minute = re.split("[ :]", at)
    return datetime(2026, 3, int(day), int(hour), int(minute), tzinfo=UTC)


def _seconds(moment: datetime | date) -> int:
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time(9), UTC)
    return int(moment.timestamp())


def ts_at(at: str) -> str:
    """The Slack timestamp of the message written at "DD HH:MM"."""
    return f"{_seconds(moment(at))}.000100"


def _user_id(key: str) -> str:
    return f"U0{key.upper()}"


def _user(key: str, person: _Person) -> User:
    plain = unicodedata.normalize("NFKD", person.name).encode("ascii", "ignore").decode()
    handle = plain.lower().replace(" ", ".")
    return User(
        _user_id(key),
        handle,
        person.name,
        person.name,
        person.title,
        "" if person.bot else f"{handle}@almadora.example",
        person.tz,
        person.bot,
    )


def _channel(file: _ChannelFile, people: Mapping[str, _Person], ids: Mapping[str, str]) -> Channel:
    messages: list[Message] = []
    for thread in file.threads:
        root = ts_at(thread.at)
        messages.append(_message(file, thread, root if thread.replies else "", people, ids))
        messages.extend(_message(file, reply, root, people, ids) for reply in thread.replies)
    authors = dict.fromkeys(m.user for m in messages if m.user != SLACKBOT)
    return Channel(
        file.id,
        file.name,
        tuple(messages),
        members=tuple(authors),
        topic=file.topic,
        creator=_user_id("helena"),
        created=_seconds(_CREATED),
    )


def _message(
    file: _ChannelFile,
    post: _Post,
    root: str,
    people: Mapping[str, _Person],
    ids: Mapping[str, str],
) -> Message:
    if post.deleted:
        return Message(
            ts_at(post.at), TOMBSTONE_TEXT, SLACKBOT, thread_ts=root, subtype="tombstone"
        )
    author = people[post.who]
    text = post.text
    if post.subtype == "channel_join":
        text = f"<@{post.who}> has joined the channel"
    return Message(
        ts_at(post.at),
        _MENTION.sub(lambda found: ids[found[1] + found[2]], text),
        _user_id(post.who),
        bot_id=f"B0{post.who.upper()}" if author.bot else "",
        username=author.name if author.bot else "",
        thread_ts=root,
        subtype=post.subtype,
        edited=ts_at(post.edited) if post.edited else "",
        edited_by=_user_id(post.who) if post.edited else "",
        reactions=tuple(
            Reaction(emoji, len(who), tuple(map(_user_id, who)))
            for emoji, who in post.reactions.items()
        ),
        files=tuple(_file(file.id, post.at, name) for name in post.files),
    )


def _file(channel: str, at: str, name: str) -> File:
    kind = name.rpartition(".")[2]
    id = f"F0{channel[2:]}{re.sub('[ :]', '', at)}"
    return File(id, name, name, _MIMETYPES[kind], kind)


def _tracker() -> SlackList:
    file = _TrackerFile.model_validate(read_data("tracker"))
    kinds: dict[str, ColumnType] = {
        "status": "select",
        "market": "select",
        "owner": "user",
        "reported": "date",
        "closed": "date",
    }
    options = {"status": _STATUSES, "market": _MARKETS}
    columns = tuple(
        ListColumn(f"Col0{key.upper()}", key, key, kinds.get(key, "text"), options.get(key, {}))
        for key in file.columns
    )
    items = tuple(_tracker_item(dict(zip(file.columns, row, strict=True))) for row in file.items)
    return SlackList(file.id, file.name, columns, items, _seconds(_CREATED), _user_id("helena"))


def _tracker_item(row: Mapping[str, str | date | None]) -> ListItem:
    owner = _user_id(str(row["owner"]))
    reported, closed = row["reported"], row["closed"]
    values = {key: str(value) for key, value in row.items() if value is not None}
    return ListItem(
        "Rec0" + values["key"].replace("-", ""),
        values | {"owner": owner},
        created=_seconds(reported) if isinstance(reported, date) else 0,
        created_by=owner,
        updated=_seconds(closed) if isinstance(closed, date) else 0,
        updated_by=owner if closed else "",
    )
