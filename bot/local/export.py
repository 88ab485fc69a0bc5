"""Read a standard Slack export (a zip of JSON files) into the values of a workspace."""

import json
import lzma
import re
import struct
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn

from pydantic import TypeAdapter, ValidationError

from bot.local.workspace import (
    Channel,
    Message,
    OptionalTs,
    Timeline,
    User,
    Workspace,
    micros,
)

Json = Mapping[str, Any]
_USER, _CHANNEL, _MESSAGE = TypeAdapter(User), TypeAdapter(Channel), TypeAdapter(Message)
_TS: TypeAdapter[str] = TypeAdapter(OptionalTs)


class ExportEntry(NamedTuple):
    """A message of a day, or the record of an edit or of a deletion."""

    message: Message
    changed: Message | None
    """The message after an edit."""
    deleted: str
    """Timestamp of the message that was deleted."""


def _take(entry: Any, names: str) -> dict[str, Any]:
    """Return these members of an object without empty ones; none if it is no object."""
    found = entry if isinstance(entry, dict) else {}
    return {name: found[name] for name in names.split() if found.get(name)}


def _user(entry: Any) -> User:
    (profile,) = _take(entry, "profile").values() or ({},)
    names = _take(profile, "real_name display_name title")
    return _with_name(names | _take(entry, "id name real_name tz is_bot deleted"))


def _with_name(fields: dict[str, Any]) -> User:
    return _USER.validate_python({"name": fields.get("id"), **fields})


def _channel(entry: Any, kind: Mapping[str, bool]) -> Channel:
    topic = _take(_take(entry, "topic").get("topic"), "value").get("value", "")
    named = _take(entry, "id name creator members is_archived")
    return _CHANNEL.validate_python({"name": "", **named, "topic": topic, **kind})


def _message(entry: Any) -> Message:
    fields = _take(
        entry,
        "ts text user bot_id username thread_ts subtype reactions files attachments blocks",
    )
    if isinstance(files := fields.get("files"), list):
        fields["files"] = [file for file in files if file]
    edited = _take(_take(entry, "edited").get("edited"), "ts").get("ts", "")
    return _MESSAGE.validate_python({**fields, "edited": edited})


def _entry(entry: Any) -> ExportEntry:
    more = _take(entry, "message deleted_ts")
    changed = _message(more["message"]) if "message" in more else None
    return ExportEntry(_message(entry), changed, _TS.validate_python(more.get("deleted_ts", "")))


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
        return Workspace(
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
        for entry in self._require_entries("users.json"):
            try:
                yield _user(entry)
            except ValidationError as error:
                self._skip("users.json", f"one user is not usable ({_reason(error)})")

    def _conversations(self) -> Iterator[tuple[str, Channel]]:
        """Yield each conversation with the name of its folder."""
        for file, flags in _CONVERSATIONS:
            for entry in self._list_entries(file):
                try:
                    channel = _channel(entry, flags)
                except ValidationError as error:
                    self._skip(file, f"one conversation is not usable ({_reason(error)})")
                else:
                    yield channel.name or channel.id, channel

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
        found: list[ExportEntry] = []
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

    def _day(self, file: str) -> Iterator[ExportEntry]:
        try:
            entries = self._entries(file)
        except _DamagedError as error:
            self._skip(file, f"{error}; its messages are missing")
            return
        damaged: list[str] = []
        for number, entry in enumerate(entries, 1):
            try:
                yield _entry(entry)
            except ValidationError as error:
                damaged.append(f"message {number}: {_reason(error)}")
            else:
                self._note_people(entry)
        if damaged:
            self._skip(file, f"{len(damaged)} message(s) not usable and missing ({damaged[0]})")

    def _note_people(self, entry: Json) -> None:
        id, profile = entry.get("user"), entry.get("user_profile")
        if id and profile and id not in self.profiles:
            with suppress(ValidationError):
                names = _take(profile, "name real_name display_name")
                self.profiles[id] = _with_name({**names, "id": id})

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


def _apply_changes(entries: Iterable[ExportEntry]) -> tuple[dict[int, Message], set[str]]:
    """Apply edits and deletions; return the messages by time, and the deleted timestamps."""
    messages: dict[int, Message] = {}
    deleted: set[str] = set()
    for message, changed, gone in sorted(entries, key=lambda entry: micros(entry.message.ts)):
        if message.subtype == "message_changed" and changed:
            messages[micros(changed.ts)] = replace(changed, edited=changed.edited or message.ts)
        elif message.subtype == "message_deleted" and gone:
            messages.pop(micros(gone), None)
            deleted.add(gone)
        elif message.subtype != "message_replied":
            messages[micros(message.ts)] = message
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
