"""What a parent is told of the handles that it holds from the start."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from scopes.effects import OPEN_MAIL

KINDS = {
    "slack:search": "SEARCH: the handle {} lets a subagent search the workspace",
    OPEN_MAIL: "MAIL: the handle {} lets a subagent of the scope email search and read the "
    "requester's own mailbox",
    "notes:": "NOTES: {}: with it a subagent of the scope notes (or of email, data or files) keeps "
    "and finds notes there; with notes:own it also finds what was asked and answered before",
    "data:": "DATA: {}: with it a subagent of the scope data queries that database",
    "sheet:": "SHEETS: {}: with it a subagent of the scope data reads that sheet",
    "web:search": "WEB: the handle {} lets a subagent of the scope web search the web and read "
    "what it finds",
    "web:read": "WEB: there is no search; the handle {} lets a subagent of the scope web compute, "
    "and read the addresses of the REQUEST",
    "files:": "FILES: {}: with it a subagent of the scope files works in that folder; files:run is "
    "this request's own, empty at first",
    "mcp:": "SERVERS OF TOOLS: {}: with it a subagent of that scope calls the tools of that server",
}
"""How a handle begins -> the line on all of that kind."""
NO_PROGRAM = "; no program or test can be run in a folder"


def is_open(handle: str) -> bool:
    """Whether a handle is of a kind that is told in a line of its own, and no named source."""
    return any(handle.startswith(kind) for kind in (*KINDS, "slack:"))


def facts(handles: Mapping[str, str], *, runs_programs: bool = True) -> Iterator[str]:
    """One line a kind that is held."""
    for kind, line in KINDS.items():
        held = [f"{h} ({t})" if t else h for h, t in handles.items() if h.startswith(kind)]
        if held:
            less = "" if runs_programs or kind != "files:" else NO_PROGRAM
            yield line.format(", ".join(held)) + less
