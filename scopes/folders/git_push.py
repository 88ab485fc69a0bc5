"""Push commits of one context, and no others, to a branch of a remote: after a person has seen and
approved them, never by force."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from textwrap import indent
from urllib.parse import urlsplit

import pygit2
from pygit2.enums import CredentialType, DiffOption

from scopes.folders.folder import lock_file
from scopes.folders.git import (
    BRANCH_PREFIX,
    Conflict,
    Repository,
    call_of,
    commit_at,
    drop,
    merge_trees,
    parent_of,
    recent,
    tip_of,
    tree_of,
)
from scopes.tool import ToolError, format_count, one_line

log = logging.getLogger(__name__)

MAX_ATTEMPTS = 3
PUSH_REF = "refs/assistant/push/head"
"""The reference that is sent; it exists only during a push."""
MAX_COMMITS_CHARS = 6_000
"""Maximum characters of all commits of a push: with the text around them they fit into one message,
and the maximum of waiting pushes fits into the messages of one card."""
MAX_FILES = 3
"""Maximum files of a commit in its heading; the text below it names all."""
TOKEN_USER = "x-access-token"
"""The login that goes with a token: GitHub requires this one, GitLab and others accept any."""


class GitPush:
    """Offered if a project of the settings may be pushed."""


@dataclass(frozen=True)
class Remote:
    """The remote that a project's commits go to. All methods block and raise ToolError."""

    repository: Repository
    name: str
    token: str | None
    """Only for https and for the remote's own host."""

    def address(self, repo: pygit2.Repository) -> str:
        """Return the remote's address without any login."""
        try:
            remote = repo.remotes[self.name]
        except KeyError:
            raise ToolError(f"This folder has no remote {self.name}; ask its owner.") from None
        return bare(remote.push_url or remote.url or "")

    def unsent(self, commits: Sequence[str]) -> list[pygit2.Commit]:
        """Return the ones of these commits that the remote did not have at the last request."""
        repo = self.repository.open()
        there = tip_of(repo, self._track(self.branch(repo)))
        return [c for c in (commit_at(repo, id) for id in commits) if not _is_in(repo, c, there)]

    def branch(self, repo: pygit2.Repository) -> str:
        return self.repository.ref(repo).removeprefix(BRANCH_PREFIX)

    def push(self, commits: Sequence[str]) -> str:
        """Put them on top of the remote's branch; return a sentence on the result. Commits that it
        already has are left out, so that this can be called again."""
        with lock_file(self.repository.lock):
            repo = self.repository.open()
            own = [commit_at(repo, id) for id in commits]
            branch, address = self.branch(repo), self.address(repo)
            drop(repo, PUSH_REF)
            for _ in range(MAX_ATTEMPTS):
                there = self._fetch(repo, branch)
                head, count = there, 0
                for commit in own:
                    if not _is_in(repo, commit, there):
                        head, count = _on_top(repo, commit, head), count + 1
                if head.id == there.id or self._push(repo, head, branch):
                    return f"{format_count(count, 'commit')} pushed to {branch} of {address}."
        raise ToolError("Others push to this branch all the time. Try again.")

    def _track(self, branch: str) -> str:
        return f"refs/remotes/{self.name}/{branch}"

    def _fetch(self, repo: pygit2.Repository, branch: str) -> pygit2.Commit:
        """Return the last commit of the remote's branch, asked for now."""
        track = self._track(branch)
        try:
            remote = repo.remotes[self.name]
            remote.fetch([f"+refs/heads/{branch}:{track}"], callbacks=self._callbacks(repo))
        except pygit2.GitError as error:
            log.warning("the remote %s cannot be read: %s", self.name, error)
            raise ToolError(f"The remote {self.name} cannot be read now. Try again.") from error
        found = tip_of(repo, track)
        if found is None:
            raise ToolError(f"The remote has no branch {branch}: its owner has to push it once.")
        return found

    def _push(self, repo: pygit2.Repository, head: pygit2.Commit, branch: str) -> bool:
        """Push one commit with its ancestors; False if the remote has moved meanwhile."""
        repo.references.create(PUSH_REF, head.id, force=True)
        answers = self._callbacks(repo)
        try:
            repo.remotes[self.name].push([f"{PUSH_REF}:{BRANCH_PREFIX}{branch}"], callbacks=answers)
        except pygit2.GitError as error:
            log.warning("the remote %s took no push: %s", self.name, error)
            return False
        finally:
            drop(repo, PUSH_REF)
        if answers.refused:
            raise ToolError(f"The remote refused it: {one_line(answers.refused)[:200]}.")
        repo.references.create(self._track(branch), head.id, force=True)
        return True

    def _callbacks(self, repo: pygit2.Repository) -> Answers:
        remote = repo.remotes[self.name]
        return Answers(self.token, https_host(remote.push_url or remote.url or ""))


class Answers(pygit2.RemoteCallbacks):
    """Callbacks of a remote: the login, and its answer."""

    def __init__(self, token: str | None, host: str) -> None:
        super().__init__()
        self.token, self.host, self.refused = token, host, ""
        self.asked = 0

    def credentials(
        self, url: str, username_from_url: str | None, allowed_types: CredentialType
    ) -> pygit2.UserPass:
        self.asked += 1
        if not self.token or self.asked > 1 or not self.host or https_host(url) != self.host:
            raise pygit2.GitError("no login for this remote")
        return pygit2.UserPass(TOKEN_USER, self.token)

    def push_update_reference(self, refname: str, message: str | None) -> None:
        self.refused = message or ""


def bare(address: str) -> str:
    """Return an address without login and query, safe to show."""
    parts = urlsplit(address)
    if not parts.scheme or not parts.netloc:
        return address
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"


def https_host(url: str) -> str:
    parts = urlsplit(url)
    return parts.netloc.rpartition("@")[2].lower() if parts.scheme == "https" else ""


def _is_in(repo: pygit2.Repository, commit: pygit2.Commit, there: pygit2.Commit | None) -> bool:
    """Return whether a commit is in a branch, by its id or by the call that made it."""
    if there is None:
        return False
    if commit.id == there.id or repo.descendant_of(there.id, commit.id):
        return True
    call = call_of(commit)
    return bool(call) and any(call_of(each) == call for each in recent(repo, there))


def _on_top(repo: pygit2.Repository, commit: pygit2.Commit, head: pygit2.Commit) -> pygit2.Commit:
    """Return the commit if `head` is its ancestor, else its change rebased on `head`."""
    parent = parent_of(commit)
    if parent is not None and parent.id == head.id:
        return commit
    try:
        tree = merge_trees(repo, tree_of(repo, parent), commit.tree, head.tree)
    except Conflict as error:
        raise ToolError(
            f"{error} On the remote, that is: the owner of the folder has to pull and merge them."
        ) from error
    who = (commit.author, commit.committer)
    commit_id = repo.create_commit(None, *who, commit.message, tree, [head.id])
    return commit_at(repo, commit_id)


def format_commits(
    repo: pygit2.Repository, commits: Sequence[pygit2.Commit], folder: str
) -> list[str]:
    """Return a heading for each commit, and below it its message and its changed lines.

    If not everything fits, each message and each file is cut to the same length, so that none hides
    another, with a note on how much is left out and where it is.
    """
    found = [_whole(repo, commit) for commit in commits]
    most = _level([len(part) for _, parts in found for part in parts])
    texts = []
    for commit, (heading, parts) in zip(commits, found, strict=True):
        where = f"git show {str(commit.id)[:12]} in the folder {folder}"
        kept = [_cut(part, most, where) for part in parts]
        less = "" if kept == parts else ", not shown in full"
        texts.append("\n".join([f"{heading}{less}", *kept]))
    return texts


def _whole(repo: pygit2.Repository, commit: pygit2.Commit) -> tuple[str, list[str]]:
    """Return a line on a commit; its message and the changed lines of each file."""
    files = list(_files(repo, commit))
    subject = one_line(commit.message.partition("\n")[0])[:100]
    named = ", ".join(name for name, _ in files[:MAX_FILES])
    more = f" and {len(files) - MAX_FILES} more files" if len(files) > MAX_FILES else ""
    message = indent(f"{commit.message.strip()}\n", "    ")
    return f"{subject} ({named}{more})", [message, *(lines for _, lines in files)]


def _files(repo: pygit2.Repository, commit: pygit2.Commit) -> Iterator[tuple[str, str]]:
    """Yield for each file its path with the size of the change, and the changed lines.

    A `.gitattributes` does not decide which files are binary: a commit could bring one that hides
    its own text.
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
            _, added, removed = patch.line_stats
            yield f"{path} +{added} -{removed}", lines


def _level(sizes: Sequence[int]) -> int:
    """Return the maximum size of each so that all fit together."""
    room = MAX_COMMITS_CHARS
    for count, size in zip(range(len(sizes), 0, -1), sorted(sizes), strict=True):
        if size * count > room:
            return room // count
        room -= size
    return MAX_COMMITS_CHARS


def _cut(text: str, most: int, where: str) -> str:
    if len(text) <= most:
        return text
    return f"{text[:most]}\n… {len(text) - most:,} characters more: {where}\n"
