"""System prompts: the lines that fit the tools and the sources of a context."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence

import scopes
from config.prompts import prompt
from scopes.tool import Tool

_LINE = re.compile(r"(?:\{(?P<tools>\w+(?:[ |]\w+)*)\} )?(?P<text>.+)")
"""A line of a scope's prompt, after the tools that it needs: all of `{a b}`, any of `{a|b}`."""


def system_prompt(name: str, tools: Sequence[Tool], held: Collection[str] | None = None) -> str:
    """Return the prompt of a scope for these tools.

    `all` has its own lines, then those of each scope in `held` (None = every one), and of tools
    that read no source. For the same `held` they are the same in the same order: a cached prefix is
    shared. Raises `UnknownScope`.
    """
    offered = {t.name for t in tools}
    told = list(_told(name, offered))
    if name == scopes.ALL:
        bare = {t.name for t in tools if t.sandboxed and not t.handle_arguments}
        for each in scopes.MODULES:
            told += _told(each, offered if held is None or each in held else bare)
    return "\n".join(told)


def parent_prompt(offered: Collection[str]) -> str:
    """Return the prompt of a parent that has these tools of its own."""
    told = "\n".join(_lines(prompt("parent"), offered))
    return re.sub(r"\n{3,}", "\n\n", told)


def _told(name: str, offered: Collection[str]) -> Iterator[str]:
    """Return the lines of a scope's prompt whose tools are offered."""
    return filter(None, _lines(prompt(scopes.scope(name).prompt), offered))


def _lines(text: str, offered: Collection[str]) -> Iterator[str]:
    """Return the lines of a prompt whose tools are offered, and the empty ones."""
    for line in text.splitlines():
        match = _LINE.fullmatch(line)
        marks = match["tools"] if match else None
        needed = (each.split("|") for each in (marks or "").split())
        if all(any(tool in offered for tool in each) for each in needed):
            yield match["text"] if match else line
