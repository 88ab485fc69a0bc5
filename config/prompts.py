"""The prompts: files in `config/prompts/`, each beginning with its version."""

from __future__ import annotations

import re
from functools import cache
from importlib.resources import files

VERSION = re.compile(r"\A<!-- version: (\d+) -->\n")


@cache
def prompt(name: str) -> str:
    """Return the text of `config/prompts/<name>.md`, without its version line.

    Raises FileNotFoundError for an unknown name and ValueError for a file without a version.
    """
    text = files("config").joinpath("prompts", f"{name}.md").read_text(encoding="utf-8")
    found = VERSION.match(text)
    if not found:
        raise ValueError(f"config/prompts/{name}.md must begin with <!-- version: N -->")
    return text[found.end() :].strip()
