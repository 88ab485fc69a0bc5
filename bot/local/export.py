"""Read a standard Slack export (a zip of JSON files, modelled by pydantic) into a workspace."""

import json
import lzma
import re
import struct
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn, TypeVar

from pydantic import AliasPath, BaseModel, ConfigDict, Field, ValidationError

from bot.local.workspace import (
    Channel,
    File,
    Message,
    Reaction,
    Team,
    Timeline,
    User,
    Workspace,
    micros,
)

# ---- the JSON of an export; `value` converts each model to a value of the workspace


Ts = Annotated[str, Field(pattern=r"^\d{1,12}\.\d{1,6}$")]
OptionalTs = Annotated[str, Field(pattern=r"^(\d{1,12}\.\d{1,6})?$")]


class _Model(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class ExportProfile(_Model):
    name: str = ""
    real_name: str = ""
    display_name: str = ""
    title: str = ""

    def user(self, id: str) -> User:
        return User(id, self.name or id, self.real_name, self.display_name)


class ExportUser(_Model):
    id: str = Field(min_length=1)
    name: str = ""
    real_name: str = ""
    team_id: str = ""
    tz: str = "Etc/UTC"
    is_bot: bool = False
    deleted: bool = False
    profile: ExportProfile = ExportProfile()

    def value(self) -> User:
        names = self.profile.model_dump() | {
            "name": self.name or self.id,
            "real_name": self.real_name or self.profile.real_name,
        }
        return User(**self.model_dump(exclude={"profile", "team_id"}) | names)


class ExportChannel(_Model):
    id: str = Field(min_length=1)
    name: str = ""
    creator: str = ""
    members: tuple[str, ...] = ()
    topic: str = Field("", validation_alias=AliasPath("topic", "value"))
    is_archived: bool = False

    def value(self, **kind: Any) -> Channel:
        return Channel(**self.model_dump(), **kind)


class ExportMessage(_Model):
    """A message, or the record of an edit (`message`) or of a deletion (`deleted_ts`)."""

    ts: Ts
    text: str = ""
    user: str = ""
    bot_id: str = ""
    username: str = ""
    team: str = ""
    thread_ts: OptionalTs = ""
    subtype: str = ""
    edited: OptionalTs = Field("", validation_alias=AliasPath("edited", "ts"))
    reactions: tuple[Reaction, ...] = ()
    files: tuple[File | None, ...] = ()
    attachments: tuple[dict[str, Any], ...] = ()
    blocks: tuple[dict[str, Any], ...] = ()
    user_profile: ExportProfile | None = None
    message: "ExportMessage | None" = None
    deleted_ts: OptionalTs = ""

    def value(self) -> Message:
        return Message(
            self.ts,
            self.text,
            self.user,
            self.bot_id,
            self.username,
            self.thread_ts,
            self.subtype,
            self.edited,
            reactions=self.reactions,
            files=tuple(filter(None, self.files)),
            attachments=self.attachments,
            blocks=self.blocks,
        )


Entry = TypeVar("Entry", ExportUser, ExportChannel)
MAX_TOTAL_BYTES = 2 * 1024**3
MAX_MEMBER_BYTES = 200 * 1024**2

_DAY = re.compile(r"\d{4}-\d{2}-\d{2}\.json")
_ZIP_ERRORS = (
    zipfile.BadZipFile,
    zlib.error,
    lzma.LZMAError,
    struct.error,
    EOFError,
    RuntimeError,
    ValueError,
)
"""Errors of zipfile for damaged, encrypted or unknown content (observed with damaged zips)."""
_CONVERSATIONS: tuple[tuple[str, dict[str, bool]], ...] = (
    ("channels.json", {}),
    ("groups.json", {"is_private": True}),
    ("mpims.json", {"is_private": True, "is_mpim": True}),
    ("dms.json", {"is_private": True, "is_im": True}),
)


class ExportError(ValueError):
    """An export that cannot be used at all; the text says what to do."""


class _DamagedError(ValueError):
    """One file of the export that cannot be used; the text says why."""


def load_export(path: Path) -> Workspace:
    """Load a Slack export zip; `Workspace.problems` names its damaged parts.

    Edits and deletions that the export lists as events are applied. Raises ExportError when the
    file is not a Slack export or its list of channels or users cannot be read.
    """
    with _open_zip(path) as archive:
        return _Reader(archive, _printable(path.name)).workspace()


def _open_zip(path: Path) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(path)
    except FileNotFoundError:
        raise ExportError(f"There is no file {path}. Check the path of the Slack export.") from None
    except IsADirectoryError:
        raise ExportError(f"{path} is a folder. Give the zip file that Slack exported.") from None
    except OSError as error:
        raise ExportError(f"{path} cannot be read: {error.strerror or error}.") from None
    except _ZIP_ERRORS:
        raise ExportError(
            f"{path} is not a zip file, or only part of one. Download the Slack export again."
        ) from None


class _Reader:
    """One pass over an open export; collects the problems on the way."""

    def __init__(self, archive: zipfile.ZipFile, name: str) -> None:
        self.archive = archive
        self.name = name
        self.problems: list[str] = []
        self.profiles: dict[str, User] = {}
        self.teams: Counter[str] = Counter()
        self.members = {i.filename: i for i in archive.infolist() if i.filename}
        if sum(info.file_size for info in self.members.values()) > MAX_TOTAL_BYTES:
            raise ExportError(f"{name} unpacks to more than 2 GB. Export a shorter time range.")
        self.root = self._root()
        self.days = self._days()

    def workspace(self) -> Workspace:
        users = {user.id: user for user in self._users()}
        conversations = {channel.id: (folder, channel) for folder, channel in self._conversations()}
        if not conversations:
            raise ExportError(
                f"{self.name} holds no channels. Export the workspace again with its channels."
            )
        channels = tuple(self._channel(*found) for found in conversations.values())
        self._report_unread({folder for folder, _ in conversations.values()})
        team = self.teams.most_common(1)[0][0] if self.teams else Team().id
        return Workspace(
            team=Team(id=team),
            users=tuple((self.profiles | users).values()),
            channels=channels,
            problems=tuple(self.problems),
        )

    def _root(self) -> str:
        """Return the folder inside the zip that holds channels.json: none, or one at the top."""
        folders = [
            name.removesuffix("channels.json")
            for name in self.members
            if re.fullmatch(r"([^/]+/)?channels\.json", name) and not name.startswith("__MACOSX/")
        ]
        if not folders:
            raise ExportError(
                f"{self.name} has no channels.json, so it is not a Slack export. "
                "Give the zip file that Slack made, as it is."
            )
        return min(folders, key=len)

    def _days(self) -> dict[str, list[str]]:
        """Return the sorted names of the day files of each folder."""
        days: dict[str, list[str]] = {}
        for name in sorted(self.members):
            folder, _, day = name.removeprefix(self.root).rpartition("/")
            if name.startswith(self.root) and folder and _DAY.fullmatch(day):
                days.setdefault(folder, []).append(day)
        return days

    def _users(self) -> Iterator[User]:
        if self.root + "users.json" not in self.members:
            self.problems.append("users.json: not in the export; people are shown by their ids")
            return
        for user in self._valid("users.json", ExportUser, self._require_entries("users.json")):
            self.teams[user.team_id] += bool(user.team_id)
            yield user.value()

    def _conversations(self) -> Iterator[tuple[str, Channel]]:
        """Yield each conversation with the name of its folder."""
        for file, flags in _CONVERSATIONS:
            for conversation in self._valid(file, ExportChannel, self._list_entries(file)):
                yield conversation.name or conversation.id, conversation.value(**flags)

    def _valid(self, file: str, kind: type[Entry], entries: Iterable[Any]) -> Iterator[Entry]:
        """Yield the usable entries of a list."""
        noun = "user" if kind is ExportUser else "conversation"
        for entry in entries:
            try:
                yield kind.model_validate(entry)
            except ValidationError as error:
                self._skip(file, f"one {noun} is not usable ({_reason(error)})")

    def _list_entries(self, file: str) -> list[Any]:
        if file == "channels.json":
            return self._require_entries(file)
        if self.root + file not in self.members:
            return []
        try:
            return self._entries(file)
        except _DamagedError as error:
            self._skip(file, f"{error}; its conversations are missing")
            return []

    def _require_entries(self, file: str) -> list[Any]:
        try:
            return self._entries(file)
        except _DamagedError as error:
            raise ExportError(
                f"{file} in {self.name} is damaged ({error}). Download the Slack export again."
            ) from None

    def _channel(self, folder: str, channel: Channel) -> Channel:
        found: list[ExportMessage] = []
        for day in self.days.get(folder, []):
            found.extend(self._day(f"{folder}/{day}"))
        messages, deleted = _apply_changes(found)
        messages = _assign_threads(messages)
        timeline = Timeline(messages.values())
        lost = sum(micros(m.ts) not in messages and m.ts not in deleted for m in timeline.all())
        if lost:
            self._skip(
                folder,
                f"the first message of {lost} thread(s) is not in the export; "
                "it is shown as deleted",
            )
        return replace(channel, messages=tuple(timeline.all()))

    def _day(self, file: str) -> Iterator[ExportMessage]:
        try:
            entries = self._entries(file)
        except _DamagedError as error:
            self._skip(file, f"{error}; its messages are missing")
            return
        damaged: list[str] = []
        for number, entry in enumerate(entries, 1):
            try:
                message = ExportMessage.model_validate(entry)
            except ValidationError as error:
                damaged.append(f"message {number}: {_reason(error)}")
            else:
                self._note_people(message)
                yield message
        if damaged:
            self._skip(file, f"{len(damaged)} message(s) not usable and missing ({damaged[0]})")

    def _note_people(self, message: ExportMessage) -> None:
        self.teams[message.team] += bool(message.team)
        if message.user and message.user_profile and message.user not in self.profiles:
            self.profiles[message.user] = message.user_profile.user(message.user)

    def _entries(self, file: str) -> list[Any]:
        """Return the JSON list in a file of the export. Raises _DamagedError with the reason."""
        info = self.members[self.root + file]
        if info.file_size > MAX_MEMBER_BYTES:
            raise _DamagedError("larger than 200 MB")
        try:
            raw = self.archive.read(info)
        except (OSError, *_ZIP_ERRORS):
            raise _DamagedError("its bytes in the zip are damaged or encrypted") from None
        value = _parse_json(raw)
        if not isinstance(value, list):
            raise _DamagedError("not a JSON list")
        return value

    def _report_unread(self, folders: set[str]) -> None:
        for folder, days in self.days.items():
            if folder not in folders:
                self._skip(folder, f"belongs to no listed channel; {len(days)} day(s) are not read")

    def _skip(self, place: str, why: str) -> None:
        self.problems.append(f"{_printable(place)}: {why}")


def _parse_json(raw: bytes) -> Any:
    try:
        value = json.loads(raw, object_hook=_drop_nulls, parse_constant=_refuse)
        if b"\\ud" in raw.lower():  # lone surrogates cannot be sent on as UTF-8
            text = json.dumps(value, ensure_ascii=False)
            value = json.loads(text.encode("utf-8", "replace"))
    except json.JSONDecodeError as error:
        raise _DamagedError(f"not valid JSON at line {error.lineno}") from None
    except (ValueError, RecursionError):
        raise _DamagedError("not valid JSON in UTF-8") from None
    return value


def _drop_nulls(fields: dict[str, Any]) -> dict[str, Any]:
    """Leave out nulls: in an export they mean the same as missing fields."""
    return {name: value for name, value in fields.items() if value is not None}


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _apply_changes(entries: Iterable[ExportMessage]) -> tuple[dict[int, Message], set[str]]:
    """Apply edits and deletions; return the messages by time, and the deleted timestamps."""
    messages: dict[int, Message] = {}
    deleted: set[str] = set()
    for entry in sorted(entries, key=lambda entry: micros(entry.ts)):
        if entry.subtype == "message_changed" and entry.message:
            changed = entry.message.value()
            messages[micros(changed.ts)] = replace(changed, edited=changed.edited or entry.ts)
        elif entry.subtype == "message_deleted" and entry.deleted_ts:
            messages.pop(micros(entry.deleted_ts), None)
            deleted.add(entry.deleted_ts)
        elif entry.subtype != "message_replied":
            messages[micros(entry.ts)] = entry.value()
    return messages, deleted


def _assign_threads(messages: Mapping[int, Message]) -> dict[int, Message]:
    """Return messages whose thread_ts is an earlier top-level message (or a missing one)."""
    result: dict[int, Message] = {}
    for at in sorted(messages):
        message = messages[at]
        if message.is_reply and micros(message.thread_ts) > at:
            message = replace(message, thread_ts="")
        root = result.get(micros(message.thread_ts)) if message.is_reply else None
        if root and root.is_reply:
            message = replace(message, thread_ts=root.thread_ts)
        result[at] = message
    return result


def _reason(error: ValidationError) -> str:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where}: {first['msg']}" if where else str(first["msg"])


def _printable(text: str) -> str:
    """Return a name from the export without the control characters of a terminal."""
    return "".join(c if c.isprintable() else "?" for c in text)
