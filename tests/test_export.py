"""Slack exports, good and damaged, that the tests write themselves."""

import json
import random
import struct
import zipfile
from pathlib import Path
from typing import Any

import pytest

from bot.local.export import ExportError, load_export
from bot.local.workspace import Message, Workspace

ROOT = "1740000000.000100"
USERS = [
    {
        "id": "U1",
        "team_id": "T9",
        "name": "ana",
        "real_name": "Ana Ruiz",
        "is_bot": False,
        "deleted": True,
        "profile": {"display_name": "anita", "email": "ana@acme.example", "title": "CSM"},
    },
    {"id": "U2", "name": "luis", "profile": None},
]
CHANNELS = [
    {
        "id": "C1",
        "name": "support-es",
        "created": 1730000000,
        "creator": "U1",
        "is_archived": False,
        "members": ["U1", "U2"],
        "topic": {"value": "Mercado español"},
    }
]


def said(ts: str, text: str = "hola", **more: Any) -> dict[str, Any]:
    return {"type": "message", "ts": ts, "user": "U1", "text": text, **more}


def written(folder: Path, files: dict[str, Any], under: str = "") -> Path:
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
    return load_export(written(folder, {"users.json": USERS, "channels.json": CHANNELS, **files}))


def only(workspace: Workspace) -> tuple[Message, ...]:
    (channel,) = workspace.channels
    return tuple(sorted(channel.messages, key=lambda message: message.ts))


def claiming(path: Path, member: str, size: int) -> Path:
    """The zip, its directory changed to say that a member unpacks to `size` bytes."""
    raw = bytearray(path.read_bytes())
    entry = raw.rindex(member.encode()) - 46
    struct.pack_into("<I", raw, entry + 24, size)
    path.write_bytes(raw)
    return path


def refused(path: Path) -> str:
    with pytest.raises(ExportError) as caught:
        load_export(path)
    return str(caught.value)


def test_users_channels_and_messages_are_loaded(tmp_path: Path) -> None:
    message = said(
        ROOT,
        "No puedo pagar 🧾",
        edited={"user": "U1", "ts": "1740000001.000000"},
        reactions=[{"name": "+1", "users": [], "count": 2}, {"name": "eyes", "users": ["U2"]}],
        files=[
            {"id": "F1", "name": "log.txt", "size": 12},
            None,
            {"id": "F2", "mode": "tombstone"},
        ],
        attachments=None,
        unknown={"kept": False},
    )
    bot = {"ts": "1740000002.000100", "subtype": "bot_message", "bot_id": "B1", "username": "ci"}
    workspace = with_days(tmp_path, d14=[message, bot])
    ana, luis = workspace.users
    assert (ana.real_name, ana.display_name, ana.title, ana.deleted) == (
        "Ana Ruiz",
        "anita",
        "CSM",
        True,
    )
    assert (luis.name, luis.real_name) == ("luis", "")
    assert workspace.team.id == "T9"
    assert workspace.problems == ()
    (channel,) = workspace.channels
    assert (channel.topic, channel.members, channel.kind) == (
        "Mercado español",
        ("U1", "U2"),
        "public_channel",
    )
    root, post = only(workspace)
    assert (root.text, root.edited, root.edited_by) == (
        "No puedo pagar 🧾",
        "1740000001.000000",
        "U1",
    )
    assert [(r.name, r.count, r.users) for r in root.reactions] == [
        ("+1", 2, ()),
        ("eyes", 1, ("U2",)),
    ]
    assert [(f.name, f.mode) for f in root.files] == [("log.txt", "hosted"), ("", "tombstone")]
    assert (post.user, post.bot_id, post.username, post.text) == ("", "B1", "ci", "")


def test_private_group_and_direct_conversations_are_loaded_as_such(tmp_path: Path) -> None:
    day = "2025-03-14.json"
    files = {
        "users.json": USERS,
        "channels.json": CHANNELS,
        "groups.json": [{"id": "G1", "name": "board", "members": ["U2"]}],
        "mpims.json": [{"id": "G2", "name": "mpdm-a--b-1", "members": ["U1", "U2"]}],
        "dms.json": [{"id": "D1", "members": ["U1", "U2"]}],
        f"board/{day}": [said(ROOT, "secret")],
        f"mpdm-a--b-1/{day}": [said(ROOT, "three")],
        f"D1/{day}": [said(ROOT, "two")],
    }
    files["support-es/canvas.json"] = {}
    channels = load_export(written(tmp_path, files, under="Acme export/")).channels
    assert [(c.id, c.kind, [m.text for m in c.messages]) for c in channels] == [
        ("C1", "public_channel", []),
        ("G1", "private_channel", ["secret"]),
        ("G2", "mpim", ["three"]),
        ("D1", "im", ["two"]),
    ]


def test_edits_and_deletions_listed_as_events_are_applied(tmp_path: Path) -> None:
    changed = {
        "ts": "1740000500.000100",
        "subtype": "message_changed",
        "message": said(ROOT, "corrected"),
    }
    deleted = {
        "ts": "1740000600.000100",
        "subtype": "message_deleted",
        "deleted_ts": "1740000100.000100",
    }
    replied = {"ts": "1740000700.000100", "subtype": "message_replied", "message": said(ROOT)}
    workspace = with_days(
        tmp_path,
        d15=[changed, deleted, replied],
        d14=[said(ROOT, "original"), said("1740000100.000100"), said("1740000200.000100", "kept")],
    )
    assert [(m.text, m.edited) for m in only(workspace)] == [
        ("corrected", "1740000500.000100"),
        ("kept", ""),
    ]
    assert workspace.problems == ()


def test_a_deleted_root_leaves_a_tombstone_and_a_missing_one_is_reported(tmp_path: Path) -> None:
    reply = said("1740000100.000100", "reply", thread_ts=ROOT)
    gone = {"ts": "1740000600.000100", "subtype": "message_deleted", "deleted_ts": ROOT}
    deleted = with_days(tmp_path, d14=[said(ROOT), reply, gone])
    assert [(m.subtype, m.text) for m in only(deleted)] == [
        ("tombstone", "This message was deleted."),
        ("", "reply"),
    ]
    assert deleted.problems == ()
    missing = with_days(tmp_path, d14=[reply])
    assert only(missing) == only(deleted)
    assert missing.problems == (
        "support-es: the first message of 1 thread(s) is not in the export; it is shown as deleted",
    )


def test_no_message_is_lost_to_an_odd_thread(tmp_path: Path) -> None:
    workspace = with_days(
        tmp_path,
        d14=[
            said(ROOT, "root"),
            said("1740000100.000100", "reply", thread_ts=ROOT),
            said("1740000200.000100", "reply to a reply", thread_ts="1740000100.000100"),
            said("1740000300.000100", "reply to the future", thread_ts="1740009999.000100"),
        ],
    )
    assert [(m.text, m.thread_ts) for m in only(workspace)] == [
        ("root", ""),
        ("reply", ROOT),
        ("reply to a reply", ROOT),
        ("reply to the future", ""),
    ]


def test_people_missing_from_users_json_are_known_by_the_profile_in_their_messages(
    tmp_path: Path,
) -> None:
    guest = {"name": "guest", "real_name": "Gil Guest", "display_name": "gil"}
    workspace = with_days(
        tmp_path,
        d14=[
            said(ROOT, user="U7", user_profile=guest),
            said("1740000100.000100", user="U8"),
            said("1740000200.000100", user="U1", user_profile=guest),
        ],
    )
    people = {user.id: user.real_name for user in workspace.users}
    assert people == {"U7": "Gil Guest", "U1": "Ana Ruiz", "U2": ""}
    assert [m.user for m in only(workspace)] == ["U7", "U8", "U1"]


@pytest.mark.parametrize(
    ("day", "why"),
    [
        (b'[\n{"ts": "1740000000.000100"},\n{"ts', "not valid JSON at line 3"),
        (b"", "not valid JSON at line 1"),
        (b'["\xff"]', "not valid JSON in UTF-8"),
        (b"[" * 100_000, "not valid JSON in UTF-8"),
        (b'[{"ts": "1740000000.000100", "n": NaN}]', "not valid JSON in UTF-8"),
        ({"messages": []}, "not a JSON list"),
        (b"null", "not a JSON list"),
    ],
)
def test_a_damaged_day_is_named_and_all_others_are_loaded(
    tmp_path: Path, day: Any, why: str
) -> None:
    workspace = with_days(tmp_path, d13=[said("1739990000.000100")], d14=day, d15=[said(ROOT)])
    assert workspace.message_count == 2
    assert workspace.problems == (f"support-es/2025-03-14.json: {why}; its messages are missing",)


def test_unusable_messages_are_counted_and_the_rest_of_the_day_is_loaded(tmp_path: Path) -> None:
    nested: list[Any] = []
    for _ in range(60):
        nested = [nested]
    odd: list[Any] = [
        {"text": "no time"},
        said("soon"),
        said("1740000000.000100\n"),
        {**said(ROOT), "ts": 1740000000.0001},
        said("1740000100.000100", text=["not text"]),  # type: ignore[arg-type]
        said("1740000100.000100", reactions=["+1"]),
        said("1740000100.000100", blocks=[{"type": nested}]),
        "not a message",
        None,
    ]
    half = said("1740000800.000100", "bad \ud83d, good 🧾")
    workspace = with_days(tmp_path, d14=[said(ROOT), *odd, half, said("1740000900.000100", None)])  # type: ignore[arg-type]
    assert [m.text for m in only(workspace)] == ["hola", "bad ?, good 🧾", ""]
    assert workspace.problems == (
        "support-es/2025-03-14.json: 9 message(s) not usable and missing "
        "(message 2: ts: Field required)",
    )


def test_days_of_no_listed_channel_are_reported_with_a_harmless_name(tmp_path: Path) -> None:
    files = {
        "users.json": USERS,
        "channels.json": CHANNELS,
        "old\x1b[2Jname/2025-03-14.json": [said(ROOT)],
        "attachments/F1.bin": b"\0",
    }
    workspace = load_export(written(tmp_path, files))
    assert workspace.problems == (
        "old?[2Jname: belongs to no listed channel; 1 day(s) are not read",
    )


def test_a_channel_list_other_than_the_main_one_may_be_damaged(tmp_path: Path) -> None:
    files = {"channels.json": [*CHANNELS, {"name": "no id"}, 7], "groups.json": b"{"}
    workspace = load_export(written(tmp_path, files))
    assert [channel.name for channel in workspace.channels] == ["support-es"]
    assert workspace.problems == (
        "users.json: not in the export; people are shown by their ids",
        "channels.json: one conversation is not usable (id: Field required)",
        "channels.json: one conversation is not usable (Input should be a valid dictionary "
        "or instance of ExportChannel)",
        "groups.json: not valid JSON at line 1; its conversations are missing",
    )


def test_what_is_no_export_is_refused_with_what_to_do(tmp_path: Path) -> None:
    assert "Check the path" in refused(tmp_path / "none.zip")
    assert "is a folder" in refused(tmp_path)
    text = tmp_path / "notes.zip"
    text.write_text("hello")
    assert "not a zip file" in refused(text)
    whole = written(tmp_path, {"users.json": USERS, "channels.json": CHANNELS}).read_bytes()
    text.write_bytes(whole[: len(whole) // 2])
    assert "not a zip file, or only part of one" in refused(text)
    assert "not a Slack export" in refused(written(tmp_path, {"a/b/channels.json": CHANNELS}))
    empty = written(tmp_path, {"users.json": [], "channels.json": []})
    assert "holds no channels" in refused(empty)
    broken = refused(written(tmp_path, {"users.json": USERS, "channels.json": b"[\n{]"}))
    assert broken == (
        "channels.json in export.zip is damaged (not valid JSON at line 2). "
        "Download the Slack export again."
    )
    broken = refused(written(tmp_path, {"users.json": {}, "channels.json": CHANNELS}))
    assert "users.json in export.zip is damaged (not a JSON list)" in broken


def test_a_zip_bomb_is_not_unpacked(tmp_path: Path) -> None:
    bomb = "support-es/2025-03-15.json"
    files = {
        "users.json": USERS,
        "channels.json": CHANNELS,
        "support-es/2025-03-14.json": [said(ROOT)],
        bomb: b" " * 5_000_000 + b"[]",
    }
    for size, why in (
        (201 * 1024**2, "larger than 200 MB"),
        (10, "its bytes in the zip are damaged or encrypted"),
    ):
        workspace = load_export(claiming(written(tmp_path, files), bomb, size))
        assert workspace.message_count == 1
        assert workspace.problems == (f"{bomb}: {why}; its messages are missing",)
    assert "more than 2 GB" in refused(claiming(written(tmp_path, files), bomb, 2**32 - 16))


def test_damaged_bytes_lose_nothing_in_silence(tmp_path: Path) -> None:
    days = {f"support-es/2025-03-{n}.json": [said(f"17400{n}00.000100")] for n in range(10, 20)}
    path = written(tmp_path, {"users.json": USERS, "channels.json": CHANNELS, **days})
    whole = path.read_bytes()
    directory = whole.index(b"PK\1\2")
    dice = random.Random(7)
    for attempt in range(400):
        raw = bytearray(whole)
        end = directory if attempt % 2 else len(raw)
        for _ in range(dice.randint(1, 6)):
            raw[dice.randrange(end)] = dice.randrange(256)
        path.write_bytes(raw)
        try:
            workspace = load_export(path)
        except ExportError:
            continue
        lost = 10 - workspace.message_count
        assert len(workspace.problems) >= lost or end > directory


def test_the_development_export_is_loaded_whole(dev_data: Path) -> None:
    workspace = load_export(dev_data / "slack_export.zip")
    assert (len(workspace.channels), workspace.message_count) == (7, 2636)
    assert (len(workspace.users), workspace.problems) == (603, ())
    assert sum(m.is_reply for channel in workspace.channels for m in channel.messages) == 1669
