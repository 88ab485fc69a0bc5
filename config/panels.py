"""The profiles of panels: `config/panels/` and a team's own folder, checked whole."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import yaml
from pydantic import Field, ValidationError

from config.prompts import VERSION
from config.sections import Name, Section, SourceName
from config.settings import SettingsError, explain, read_yaml

FOLDER = Path(__file__).parent / "panels"
PROFILE = "profile.yaml"
NOTE = re.compile(r"note/\d+")
"""A reference that is a note."""
MIN_SPECIALISTS = 3
"""Each finding is judged by two specialists other than its author."""

Affinity = Annotated[float, Field(ge=0, le=1, strict=False)]


class SpecialistSettings(Section):
    """One specialist of a profile."""

    prompt: Name
    scope: Name
    references: tuple[Name, ...] = Field(default=(), strict=False)
    affinity: dict[SourceName, Affinity] = Field(min_length=1)


class ProfileSettings(Section):
    """The content of a profile's `profile.yaml`."""

    about: Name
    specialists: dict[SourceName, SpecialistSettings] = Field(min_length=MIN_SPECIALISTS)


@dataclass(frozen=True, slots=True)
class GuideFile:
    """A file or a note that a specialist judges by."""

    name: str
    text: str
    """Empty for a note: it is read with the requester's rights."""

    @property
    def version(self) -> str:
        """Return the number in its first line, else the beginning of its hash."""
        found = VERSION.match(self.text)
        return found[1] if found else hashlib.sha256(self.text.encode()).hexdigest()[:8]


@dataclass(frozen=True, slots=True)
class Specialist:
    """A specialist with the texts of its files."""

    name: str
    prompt: str
    scope: str
    affinity: dict[str, float]
    references: tuple[GuideFile, ...]


@dataclass(frozen=True, slots=True)
class Profile:
    """A set of specialists that review one kind of material."""

    name: str
    about: str
    specialists: tuple[Specialist, ...]
    version: str
    """Hash of all its texts."""

    @property
    def categories(self) -> tuple[str, ...]:
        """Return all categories, in the order in which the specialists name them."""
        return tuple(dict.fromkeys(name for each in self.specialists for name in each.affinity))


def profile_names(own: Path | None = None) -> list[str]:
    """Return the names of all profiles; those of a team's own folder come last."""
    folders = [FOLDER, *([own] if own else [])]
    return list(dict.fromkeys(name for folder in folders for name in _names(folder)))


def _names(folder: Path) -> Iterator[str]:
    try:
        yield from sorted(each.parent.name for each in folder.glob(f"*/{PROFILE}"))
    except OSError as error:
        raise SettingsError(f"{folder} cannot be read: {error.strerror}.") from None


def load_profile(name: str, own: Path | None = None) -> Profile:
    """Load a profile; one of a team's own folder wins. Raises SettingsError, which names the
    fault."""
    names = profile_names(own)
    if name not in names:
        raise SettingsError(f"There is no profile {name[:40]!r}. There are {', '.join(names)}.")
    folder = own / name if own and (own / name / PROFILE).is_file() else FOLDER / name
    path = folder / PROFILE
    try:
        values = ProfileSettings.model_validate(read_yaml(path))
    except ValidationError as error:
        lines = (f"{path}: {explain(each, ProfileSettings)}" for each in error.errors())
        raise SettingsError("\n".join(lines)) from None
    specialists = tuple(_specialist(folder, *each) for each in values.specialists.items())
    texts = yaml.safe_dump(values.model_dump(mode="json")) + "".join(map(repr, specialists))
    return Profile(name, values.about, specialists, hashlib.sha256(texts.encode()).hexdigest()[:8])


def _specialist(folder: Path, name: str, values: SpecialistSettings) -> Specialist:
    prompt = VERSION.sub("", _text(folder, values.prompt)).strip()
    references = tuple(
        GuideFile(each, "" if NOTE.fullmatch(each) else _text(folder, each))
        for each in values.references
    )
    return Specialist(name, prompt, values.scope, dict(values.affinity), references)


def _text(folder: Path, name: str) -> str:
    """Return the text of a file in the folder of a profile. Raises SettingsError."""
    path = folder / name
    if not path.resolve().is_relative_to(folder.resolve()):
        raise SettingsError(f"{folder / PROFILE}: {name!r} is not in this folder.")
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise SettingsError(f"{path} cannot be read: {error.strerror}.") from None
    except ValueError:
        raise SettingsError(f"{path} is no UTF-8 text.") from None
    if not VERSION.sub("", text).strip():
        raise SettingsError(f"{path} is empty.")
    return text
