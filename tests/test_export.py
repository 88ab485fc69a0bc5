"""Loading Slack exports, valid and damaged, which the tests write themselves."""

import json
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bot.local.export import ExportError, load_export
from bot.local.workspace import Workspace

ROOT = "1740000000.000100"
USERS = [
    {"id": "U1", "name": "ana", "profile": {"display_name": "anita"}},
    {"id": "U2", "name": "luis", "profile": None},
]
CHANNELS = [{"id": "C1", "name": "support-es", "members": ["U1", "U2"]}]


def export_message(ts: str, text: str = "hola", **more: Any) -> dict[str, Any]:
    return {"type": "message", "ts": ts, "user": "U1", "text": text, **more}


def write_export(folder: Path, files: dict[str, Any], under: str = "") -> Path:
    """A zip with these members; bytes as they are, everything else as JSON."""
    path = folder / "export.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            raw = content if isinstance(content, bytes) else json.dumps(content).encode()
            archive.writestr(under + name, raw)
    return path


def with_days(folder: Path, **days: Any) -> Workspace:
    """An export with one channel, whose days are given as `d14=[...]` (of March 2025)."""
    files = {f"support-es/2025-03-{name[1:]}.json": content for name, content in days.items()}
    return load_export(
        write_export(folder, {"users.json": USERS, "channels.json": CHANNELS, **files})
    )


def forge_size(path: Path, member: str, size: int) -> Path:
    """Make the directory of the zip claim that a member unpacks to `size` bytes."""
    raw = bytearray(path.read_bytes())
    entry = raw.rindex(member.encode()) - 46
    struct.pack_into("<I", raw, entry + 24, size)
    path.write_bytes(raw)
    return path


def load_error(path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        load_export(path)
    return str(caught.value)


def message_count(workspace: Workspace) -> int:
    return sum(len(channel.messages) for channel in workspace.channels)


@pytest.mark.parametrize(
    ("day", "why"),
    [
        (b'[\n{"ts": "1740000000.000100"},\n{"ts', "not valid JSON at line 3"),
        (b'["\xff"]', "not valid JSON in UTF-8"),
        (b"[" * 100_000, "not valid JSON in UTF-8"),
        (b'[{"ts": "1740000000.000100", "n": NaN}]', "not valid JSON in UTF-8"),
        ({"messages": []}, "not a JSON list"),
    ],
)
def test_a_damaged_day_is_named_and_all_others_are_loaded(
    tmp_path: Path, day: Any, why: str
) -> None:
    workspace = with_days(
        tmp_path, d13=[export_message("1739990000.000100")], d14=day, d15=[export_message(ROOT)]
    )
    assert message_count(workspace) == 2
    assert workspace.problems == (f"support-es/2025-03-14.json: {why}; its messages are missing",)


def test_invalid_exports_are_refused_with_a_clear_reason(tmp_path: Path) -> None:
    assert "Check the path" in load_error(tmp_path / "none.zip")
    assert "is a folder" in load_error(tmp_path)
    text = tmp_path / "notes.zip"
    text.write_text("hello")
    assert "not a zip file" in load_error(text)
    whole = write_export(tmp_path, {"users.json": USERS, "channels.json": CHANNELS}).read_bytes()
    text.write_bytes(whole[: len(whole) // 2])
    assert "not a zip file, or only part of one" in load_error(text)
    assert "not a Slack export" in load_error(
        write_export(tmp_path, {"a/b/channels.json": CHANNELS})
    )
    empty = write_export(tmp_path, {"users.json": [], "channels.json": []})
    assert "holds no channels" in load_error(empty)
    broken = load_error(write_export(tmp_path, {"users.json": USERS, "channels.json": b"[\n{]"}))
    assert broken == (
        "channels.json in export.zip is damaged (not valid JSON at line 2). "
        "Download the Slack export again."
    )
    broken = load_error(write_export(tmp_path, {"users.json": {}, "channels.json": CHANNELS}))
    assert "users.json in export.zip is damaged (not a JSON list)" in broken


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = "support-es/2025-03-15.json"
    files = {
        "users.json": USERS,
        "channels.json": CHANNELS,
        "support-es/2025-03-14.json": [export_message(ROOT)],
        bomb: b" " * 5_000_000 + b"[]",
    }
    for size, why in (
        (201 * 1024**2, "larger than 200 MB"),
        (10, "its bytes in the zip are damaged or encrypted"),
    ):
        workspace = load_export(forge_size(write_export(tmp_path, files), bomb, size))
        assert message_count(workspace) == 1
        assert workspace.problems == (f"{bomb}: {why}; its messages are missing",)
    assert "more than 2 GB" in load_error(
        forge_size(write_export(tmp_path, files), bomb, 2**32 - 16)
    )


def test_messages_lost_to_damaged_bytes_are_reported(tmp_path: Path) -> None:
    days = {
        f"support-es/2025-03-{n}.json": [export_message(f"17400{n}00.000100")]
        for n in range(10, 20)
    }
    path = write_export(tmp_path, {"users.json": USERS, "channels.json": CHANNELS, **days})
    whole = path.read_bytes()
    directory = whole.index(b"PK\1\2")
    dice = random.Random(7)
    for attempt in range(400):
        raw = bytearray(whole)
        end = len(raw) if attempt % 2 else directory
        for _ in range(dice.randint(1, 6)):
            raw[dice.randrange(end)] = dice.randrange(256)
        path.write_bytes(raw)
        try:
            workspace = load_export(path)
        except ExportError:
            continue
        if end == directory:  # else a damaged list of the files may hide some: nothing crashes
            assert len(workspace.problems) >= 10 - message_count(workspace)
