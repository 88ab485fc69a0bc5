"""The prompts: files in `config/prompts/`, each beginning with its version."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from importlib.resources import files
from pathlib import Path

VERSION = re.compile(r"\A<!-- version: (\d+) -->\n")
_FOLDER: ContextVar[Path | None] = ContextVar("folder", default=None)


class BadPrompts(ValueError):
    """A folder of prompts that cannot be used; the text is a sentence that says why."""


def prompt(name: str) -> str:
    """Return the text of `config/prompts/<name>.md`, without its version line.

    Inside `prompts_from`, a file of that folder comes first. Raises FileNotFoundError for an
    unknown name and ValueError for a file without a version.
    """
    return _read(name, _FOLDER.get())


def prompt_folder() -> Path | None:
    """Return the folder whose files come first now; None = there is none."""
    return _FOLDER.get()


@contextmanager
def prompts_from(folder: Path | None) -> Iterator[None]:
    """Inside this context, prompts of the folder come first. Raises BadPrompts."""
    if folder:
        check_prompts(folder)
    token = _FOLDER.set(folder and folder.absolute())
    try:
        yield
    finally:
        _FOLDER.reset(token)
        _read.cache_clear()


def check_prompts(folder: Path) -> None:
    """Raise BadPrompts if a folder holds no prompts, or one unknown to the program."""
    found = sorted(folder.glob("*.md")) if folder.is_dir() else []
    if not found:
        raise BadPrompts(f"{folder} is no folder of prompts: it has no file such as subagent.md.")
    for path in found:
        if not files("config").joinpath("prompts", path.name).is_file():
            raise BadPrompts(f"There is no prompt {path.stem!r} to replace by {path}.")
        _of_file(path)


@cache
def _read(name: str, folder: Path | None) -> str:
    own = folder / f"{name}.md" if folder else None
    if own is not None and own.is_file():
        return _of_file(own)
    text = files("config").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    return _without_version(text, f"config/prompts/{name}.md")


def _of_file(path: Path) -> str:
    try:
        return _without_version(path.read_text("utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as error:
        raise BadPrompts(f"{path} cannot be read: {error}.") from None


def _without_version(text: str, name: str) -> str:
    found = VERSION.match(text)
    if not found:
        raise BadPrompts(f"{name} must begin with <!-- version: N -->.")
    return text[found.end() :].strip()
