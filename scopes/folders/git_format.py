"""Format commits for the person who approves a push, as `git show` does, within a size."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from textwrap import indent

import pygit2
from pygit2.enums import DiffOption

from scopes.clean import unseen
from scopes.folders.git_trees import parent_of, tree_of
from scopes.tool import one_line

ROOM = 8_000
"""Characters of all commits of a push, as a card counts them: with what stands around them they
fit into one message, and as many pushes as may wait into the messages of one card."""
MAX_FILES = 3
"""Files of a commit that its heading names; what stands below it names all."""


def format_commits(
    repo: pygit2.Repository, commits: Sequence[pygit2.Commit], folder: str
) -> list[str]:
    """Of each commit a heading, and below it its message and its changed lines.

    Where all of it has no room, each message and each file is shown to the same length, so that
    none is out of sight behind another, with how much is left out and where it stands.
    """
    found = [_whole(repo, commit) for commit in commits]
    most = _level([_size(part) for _, parts in found for part in parts])
    told = []
    for commit, (heading, parts) in zip(commits, found, strict=True):
        where = f"git show {str(commit.id)[:12]} in the folder {folder}"
        kept = [_cut(part, most, where) for part in parts]
        less = "" if kept == parts else ", not shown in full"
        told.append("\n".join([f"{heading}{less}", *kept]))
    return told


def _whole(repo: pygit2.Repository, commit: pygit2.Commit) -> tuple[str, list[str]]:
    """Return a line on a commit; its message and the changed lines of each file."""
    files = list(_files(repo, commit))
    subject = one_line(commit.message.partition("\n")[0])[:100]
    named = ", ".join(name for name, _ in files[:MAX_FILES])
    more = f" and {len(files) - MAX_FILES} more files" if len(files) > MAX_FILES else ""
    message = indent(f"{commit.message.strip()}\n", "    ")
    return f"{subject} ({named}{more})", [message, *(lines for _, lines in files)]


def _files(repo: pygit2.Repository, commit: pygit2.Commit) -> Iterator[tuple[str, str]]:
    """Of each file its path with how much it changes, and the changed lines.

    A `.gitattributes` is not asked which files are binary: a commit may bring one with it, and
    would hide its own text by it.
    """
    before = tree_of(repo, parent_of(commit))
    diff = before.diff_to_tree(commit.tree, flags=DiffOption.FORCE_TEXT)
    for number, delta in enumerate(diff.deltas):
        path, patch = delta.new_file.path, diff[number]
        try:
            assert patch is not None  # it has changed
            lines = patch.data.decode()
        except UnicodeDecodeError:
            yield f"{path}, binary", f"Binary file {path} is not shown.\n"
        else:
            _, added, taken = patch.line_stats
            yield f"{path} +{added} -{taken}", lines


def _level(sizes: Sequence[int]) -> int:
    """Return how much each may take at most so that all together have room."""
    room = ROOM
    for left, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * left > room:
            return room // left
        room -= size
    return ROOM


def _cut(text: str, most: int, where: str) -> str:
    for at, letter in enumerate(text):
        most -= _cost(letter)
        if most < 0:
            return f"{text[:at]}\n… {len(text) - at:,} characters more: {where}\n"
    return text


def _size(text: str) -> int:
    """Return what a text costs, as far as that matters here."""
    return sum(map(_cost, text[: ROOM + 1]))


def _cost(letter: str) -> int:
    """Return how many characters stand for it: signs of markup are escaped, and what nobody sees is
    written out.
    """
    if letter in "&<>":
        return len("&amp;")
    if letter == "\n" or (letter.isprintable() and not unseen(letter)):
        return 1
    return len("\\u0000") if letter <= "\uffff" else len("\\U00000000")
