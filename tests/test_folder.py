"""No path leads out of a folder: not through links, special files or concurrent changes."""

from __future__ import annotations

import ctypes
import os
import socket
import stat
import time
from contextlib import suppress
from pathlib import Path
from threading import Event, Thread

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from timing import WAIT_S

from scopes.folders.commands import copy_files
from scopes.folders.folder import MAX_ENTRIES, Folder, UnreadableFile, lock_file, parts_of
from scopes.folders.search import MAX_LISTED, listing, may_not, pieces, search_folder
from scopes.label import TRUSTED_LABEL
from scopes.tool import Item, ToolError

SECRET = "the secret outside"


@pytest.fixture
def folder(tmp_path: Path) -> Folder:
    root = tmp_path / "root"
    (root / "in").mkdir(parents=True)
    (root / "in/a.txt").write_text("inside\n")
    (tmp_path / "outside").mkdir()
    (tmp_path / "outside/a.txt").write_text(SECRET)
    return Folder(root, 10_000, tmp_path / "lock")


ESCAPES = [
    *("in/../../outside/a.txt", "in/..", "/etc/passwd", "//etc/passwd", "in\0/a.txt", "in\\a.txt"),
    *(".git/config", ".GIT/config", "in/.git/hooks/x", "GIT~2", ".git./config", ".git /config"),
    *(".git::$INDEX_ALLOCATION/config", ".g\u200cit/config", "\u2024git/config", "in/\x07"),
    *("in/\u202egpj.exe", "\ud800", "x" * 201, "a/" * 41 + "b", "link/a.txt", "deep/link/a.txt"),
]


def put(folder: Folder, path: str, data: bytes) -> None:
    """Write a file, also over an existing one."""
    with folder.change_file(path, data) as (_, write):
        write()


@pytest.mark.parametrize("path", ESCAPES)
def test_no_path_escapes_the_folder(folder: Folder, tmp_path: Path, path: str) -> None:
    (folder.root / "link").symlink_to(tmp_path / "outside")
    (folder.root / "deep").mkdir()
    (folder.root / "deep/link").symlink_to("../../outside")
    with suppress(ToolError):
        assert folder.read(path) is None
    with pytest.raises(ToolError):
        put(folder, path, b"overwritten")
    with suppress(ToolError):
        assert folder.list_folder(path) is None
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["a.txt"]
    assert (tmp_path / "outside/a.txt").read_text() == SECRET
    assert not (folder.root / ".git").exists()


@pytest.mark.parametrize("target", ["../outside/a.txt", "in/a.txt", "nowhere"])
def test_links_are_listed_and_never_followed(folder: Folder, tmp_path: Path, target: str) -> None:
    link = folder.root / "link.txt"
    link.symlink_to(target)
    with pytest.raises(ToolError, match="is a link"):
        folder.read("link.txt")
    with pytest.raises(ToolError, match="is a link"):
        put(folder, "link.txt", b"overwritten")
    listed = [(e.path, e.kind) for e in folder.list_folder() or ()]
    assert listed == [("in", "folder"), ("link.txt", "link")]
    assert link.is_symlink()
    assert (tmp_path / "outside/a.txt").read_text() == SECRET
    assert search_folder(folder, "secret", "").found == []


def test_pipes_and_sockets_are_refused_without_blocking(folder: Folder) -> None:
    os.mkfifo(folder.root / "pipe")
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("root/socket")  # from here, as a path of over a hundred bytes cannot be bound
    for name in ("pipe", "socket"):
        with pytest.raises(ToolError, match="no file that can be opened"):
            folder.read(name)
        with pytest.raises(ToolError, match="no file that can be opened"):
            put(folder, name, b"x")
    with pytest.raises(ToolError, match="is a folder"):
        folder.read("in")
    assert stat.S_ISFIFO((folder.root / "pipe").stat().st_mode)
    assert {e.kind for e in folder.list_folder() or ()} == {"folder", "special"}


def test_a_large_file_is_neither_read_nor_written(folder: Folder) -> None:
    with (folder.root / "big").open("wb") as file:
        file.truncate(1 << 40)  # takes no room on the disk
    with pytest.raises(ToolError, match="larger than 9 kB"):
        folder.read("big")
    with pytest.raises(ToolError, match="9 kB"):
        put(folder, "b", b"x" * 10_001)


def test_written_file_keeps_its_permissions_and_leaves_no_temporary_files(folder: Folder) -> None:
    path = folder.root / "in/a.txt"
    path.chmod(0o750)
    with folder.change_file("in/a.txt", b"mine") as (found, write):
        assert found
        assert found.data == b"inside\n"
        write()
    assert path.read_text() == "mine"
    assert stat.S_IMODE(path.stat().st_mode) == 0o750
    put(folder, "new/deep/b.txt", b"new")
    assert sorted(p.name for p in folder.root.rglob("*")) == ["a.txt", "b.txt", "deep", "in", "new"]


def test_writing_a_hard_linked_file_leaves_the_outside_file_unchanged(
    folder: Folder, tmp_path: Path
) -> None:
    (folder.root / "hard.txt").hardlink_to(tmp_path / "outside/a.txt")
    put(folder, "hard.txt", b"mine")
    assert (tmp_path / "outside/a.txt").read_text() == SECRET


def test_race_with_links_does_not_escape_the_folder(folder: Folder, tmp_path: Path) -> None:
    """A thread swaps `in` between a folder and a link to the outside."""
    stop, root = Event(), folder.root
    (root / "link").symlink_to(tmp_path / "outside")
    names = -100, bytes(root / "in"), -100, bytes(root / "link"), 2  # AT_FDCWD, RENAME_EXCHANGE
    exchange = ctypes.CDLL(None).renameat2

    def swap() -> None:
        while not stop.is_set():
            exchange(*names)

    seen = set[object]()
    swapper = Thread(target=swap)
    swapper.start()
    try:
        until = time.monotonic() + 10
        for number in range(300):
            while len(seen) < 4 and time.monotonic() < until:
                found = folder.read("in/a.txt")
                seen.add(found.data if found else None)
                try:
                    put(folder, "in/b.txt", b"mine")
                except ToolError:
                    seen.add(ToolError)
                else:
                    seen.add("written")
            with suppress(ToolError):
                put(folder, f"in/{number}.txt", b"mine")
    finally:
        stop.set()
        swapper.join()
    # Reads and writes met both sides of the race.
    assert seen == {None, b"inside\n", ToolError, "written"}
    assert [p.name for p in (tmp_path / "outside").iterdir()] == ["a.txt"]
    assert (tmp_path / "outside/a.txt").read_text() == SECRET


@settings(max_examples=300, deadline=None, database=None)
@given(st.text(max_size=60))
def test_any_text_is_a_path_inside_the_folder_or_rejected(path: str) -> None:
    with suppress(ToolError):
        inside = os.path.normpath(Path("/root", *parts_of(path)))
        assert inside == "/root" or inside.startswith("/root/")


@settings(max_examples=200, deadline=None, database=None)
@given(
    st.text(alphabet=st.sampled_from("ab\n\t []|é\u2028\x0c\r}"), max_size=3000), st.integers(1, 5)
)
def test_pieces_of_a_file_cover_all_of_its_text(text: str, first: int) -> None:
    lines = text.removesuffix("\n").split("\n") if text else []
    parts = list(pieces(text, first))
    joined = "".join("\n" * ("~" not in p.at) + p.text for p in parts)
    assert joined == "".join(f"\n{line}" for line in lines[first - 1 :])
    assert len({p.at for p in parts}) == len(parts)
    for each in parts:
        output = (
            Item(f"x:{each.at}", each.text, None, TRUSTED_LABEL, verbatim=True).line().split("\n")
        )
        assert output[0] == f"[x:{each.at}]"
        assert all(line.startswith("|") for line in output[1:])
        assert len(" ".join(output).splitlines()) <= 1


def test_listing_and_search_of_too_many_entries_say_they_are_incomplete(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopes.folders.search.SEARCH_S", WAIT_S)
    for number in range(MAX_ENTRIES + 100):
        os.close(os.open(folder.root / f"in/{number}.txt", os.O_CREAT | os.O_WRONLY, 0o600))
    assert len(folder.list_folder("in") or ()) == MAX_ENTRIES
    for path in ("in", ""):
        found, more, _ = listing(folder, path)
        assert len(found[path]) == (MAX_LISTED if path else 1)
        assert "The rest was not looked at" in more
    assert "The rest was not looked at" in search_folder(folder, "nowhere", "*.py").cut
    with pytest.raises(ToolError, match="No folder nowhere"):
        listing(folder, "nowhere")
    with pytest.raises(ToolError, match="no command runs"):
        copy_files(folder, folder.root.parent / "outside", 1_000)


def test_unreadable_file_is_named_and_does_not_stop_a_search(tmp_path: Path) -> None:
    own = Folder(Path("/proc/self"), 1_000_000, tmp_path / "lock")
    with pytest.raises(UnreadableFile, match="mem cannot be read"):
        own.read("mem")
    hits = search_folder(own, "needle", "mem")
    assert "mem" in hits.closed
    assert may_not(list("abcdefg")) == "These may not be read: a, b, c, d, e and 2 more"


def test_a_search_begins_in_the_folder_of_its_glob(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("scopes.folders.search.SEARCH_S", WAIT_S)
    large = folder.root / "large"
    for number in range(101):
        (large / f"{number}").mkdir(parents=True)
        for name in range(MAX_ENTRIES // 100):
            (large / f"{number}/{name}").symlink_to("nowhere")
    (folder.root / "z").mkdir()
    (folder.root / "z/a.py").write_text("the needle\n")
    assert "Name a folder in glob" in search_folder(folder, "needle", "*.py").cut
    inside = search_folder(folder, "needle", "z/*.py")
    assert ([h.path for h in inside.found], inside.cut) == (["z/a.py"], "")
    with pytest.raises(ToolError, match="No folder y"):
        search_folder(folder, "needle", "y/*.py")


def test_waiting_for_a_held_lock_times_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def take() -> None:
        with lock_file(tmp_path / "lock"):
            pass

    monkeypatch.setattr("scopes.folders.folder.PATIENCE_S", 0.05)
    with lock_file(tmp_path / "lock"), pytest.raises(ToolError, match="Try again"):
        take()
    take()
