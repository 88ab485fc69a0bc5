"""The files of a stored run, written into a folder of whoever asks for them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import count
from pathlib import Path

from bot.errors import SetupError
from bot.memory.resources import ResourceShelf
from scopes.resources import Resource, space_of_run


async def write_files(shelf: ResourceShelf, run: str, folder: Path) -> list[Path]:
    """Write the newest version of each; what is there already stays, under its own name.

    Raises SetupError where nothing can be written there, StoreError.
    """
    space = space_of_run(run)
    found = [await shelf.get(space, f.name, f.version) for f in await shelf.listed(space)]
    return await asyncio.to_thread(_all_written, [f for f in found if f], folder)


def _all_written(files: Sequence[Resource], folder: Path) -> list[Path]:
    if not files:
        return []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        return [_written(folder / each.name, each.shown) for each in files]
    except OSError as error:
        why = f"Nothing can be written to {folder} ({error.strerror})."
        raise SetupError("folder", why, "Name another folder.") from error


def _written(wanted: Path, content: bytes) -> Path:
    """Where it was written: under another name where there is one of this name already."""
    for path in _names(wanted):
        try:
            with path.open("xb") as file:
                file.write(content)
        except FileExistsError:
            if path.is_file() and path.read_bytes() == content:
                return path  # by an earlier call
            continue
        return path
    raise AssertionError("numbers do not end")


def _names(wanted: Path) -> Iterator[Path]:
    yield wanted
    yield from (wanted.with_stem(f"{wanted.stem}-{n}") for n in count(2))
