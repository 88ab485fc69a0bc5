"""The delimiter around what a subagent reads: 128 random bits, fixed when it is spawned."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterable, Sequence

from scopes.tool import ToolResult, estimate_tokens

PATTERN = re.compile(r"items-[0-9a-f]{32}")
RESERVED_TOKENS = 120
"""Tokens of a result reserved for the delimiters and for the lines that code adds."""


def new_delimiter() -> str:
    """Return a name that nobody can have written into what will be read."""
    return f"items-{secrets.token_hex(16)}"


def wrap(delimiter: str, lines: Iterable[str]) -> str:
    return "\n".join([f"<{delimiter}>", *lines, f"</{delimiter}>"])


def render(result: ToolResult, delimiter: str, max_tokens: int) -> tuple[str, int]:
    """Return a tool result for the model, one line an item, and the number of items shown.

    What does not fit is cut, with a note on how much was left out.
    """
    lines, room = [item.line() for item in result.items], max_tokens - RESERVED_TOKENS
    shown = fitting_lines(lines, room) or [shorten(each, room) for each in lines[:1]]
    parts = [wrap(delimiter, shown)] if lines else []
    if left_out := len(lines) - len(shown):
        parts.append(f"Cut: {left_out} of {len(lines)} items do not fit and were left out.")
    footer = " ".join(filter(None, (result.note, result.truncated)))
    if not parts and not footer:
        footer = "Nothing found."
    return "\n".join([*parts, footer] if footer else parts), len(shown)


def fitting_lines(lines: Iterable[str], max_tokens: int) -> list[str]:
    """Return the first lines that together fit into so many tokens."""
    kept = []
    for line in lines:
        max_tokens -= estimate_tokens(line) + 1
        if max_tokens < 0:
            break
        kept.append(line)
    return kept


def clip(text: str, most: int) -> str:
    """Return a text, or its beginning within so many characters, marked as cut."""
    return text if len(text) <= most else f"{text[: most - 1].rstrip()}…"


MAX_NAMED = 20
"""Names that one sentence lists; the rest is counted."""


def first_of(names: Sequence[str], between: str = ", ") -> str:
    """Return the first names of a list, and how many more there are."""
    more = f" and {len(names) - MAX_NAMED} more" if len(names) > MAX_NAMED else ""
    return between.join(names[:MAX_NAMED]) + more


def shorten(text: str, max_tokens: int) -> str:
    """Return the beginning of a text within so many tokens, marked as cut."""
    if estimate_tokens(text) <= max_tokens:
        return text
    kept = text.encode()[: max(0, max_tokens - 4) * 3].decode(errors="ignore")
    return f"{kept} [cut]"


def delimiters_in(text: str) -> list[str]:
    """Return the delimiters that a text contains."""
    return PATTERN.findall(text)


def leaks_delimiter(text: str) -> bool:
    """Return whether a text contains a delimiter; no text that is read or written may do so."""
    return PATTERN.search(text) is not None
