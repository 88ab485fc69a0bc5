"""The file `.env`: lines changed one by one, written whole or not at all, for its owner only."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bot.errors import SetupError

_PLAIN = re.compile(r"[\w./:@%?=&+,~-]+")
_GIT_SECONDS = 10


def check_place(path: Path) -> str:
    """Raises SetupError where secrets must not be written; returns a warning, or nothing."""
    if path.is_symlink():
        hint = "Put a file in its place, or set the variables in the environment."
        raise SetupError("env_file", f"{path} is a link to another file.", hint)
    if path.exists() and not path.is_file():
        raise SetupError("env_file", f"{path} is no file.", "Move it away.")
    if _git(path, "ls-files", "--error-unmatch", "--", path.name) == 0:
        hint = f"Run `git rm --cached {path}` and add it to .gitignore; then try again."
        raise SetupError("env_file", f"{path} is tracked by git.", hint)
    if _git(path, "check-ignore", "-q", "--", path.name) == 1:
        return f"git does not ignore {path}: add it to .gitignore, so that no secret is committed."
    return ""


def _git(path: Path, *arguments: str) -> int | None:
    """Exit code of a git command in the file's folder; None where there is no git to ask."""
    try:
        command = ["git", "-C", str(path.absolute().parent), *arguments]
        ran = subprocess.run(command, capture_output=True, timeout=_GIT_SECONDS, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return ran.returncode


def storable(value: str) -> bool:
    """Whether a value can be written so that it is read back as it is."""
    return bool(value) and value.isprintable() and not re.search(r"['\\]|\$\{", value)


def write_env(path: Path, values: Mapping[str, str]) -> None:
    """Set these variables; every other line stays. Raises SetupError; then nothing has changed."""
    try:
        _replace(path, changed(_read(path), values))
    except (OSError, UnicodeDecodeError) as error:
        why = str(error.strerror).lower() if isinstance(error, OSError) else "it is not UTF-8 text"
        raise SetupError("env_file", f"{path} cannot be written: {why}.", "Mend that.") from error


def changed(text: str, values: Mapping[str, str]) -> str:
    """The text of an env file with these variables set, each once."""
    left = dict(values)
    lines = []
    for line in text.splitlines(keepends=True):
        name = re.match(r"\s*(?:export\s+)?(\w+)\s*=", line)
        if name is None or name[1] not in values:
            lines.append(line)
        elif name[1] in left:
            lines.append(_line(name[1], left.pop(name[1])))
    if lines and not lines[-1].endswith("\n"):
        lines[-1] += "\n"
    return "".join(lines) + "".join(_line(*each) for each in left.items())


def _line(name: str, value: str) -> str:
    return f"{name}={value}\n" if _PLAIN.fullmatch(value) else f"{name}='{value}'\n"


def _read(path: Path) -> str:
    return path.read_bytes().decode("utf-8") if path.exists() else ""


def _replace(path: Path, text: str) -> None:
    """A file of mode 0600 beside it takes its place when every byte is on the disk."""
    handle, name = tempfile.mkstemp(prefix=f"{path.name}.", dir=path.absolute().parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(text.encode())
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)  # noqa: PTH105
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
