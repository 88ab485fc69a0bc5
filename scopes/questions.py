"""The parent's question to its requester, with answers to choose from."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from scopes.clean import printable
from scopes.effects import Access, Effect, Prepared
from scopes.tool import ToolContext, ToolError, ToolResult, one_line, tool

MAX_QUESTION = 300
MAX_OPTION = 75
"""Characters that a button of Slack takes (docs.slack.dev, button element)."""
OPTIONS = (2, 5)
"""Fewest and most answers to choose from."""

Option = Annotated[str, Field(min_length=1, max_length=MAX_OPTION)]


async def _asked(ctx: ToolContext, **given: Any) -> Prepared:
    options = list(dict.fromkeys(_line(option) for option in given["options"]))
    question = _line(given["question"])
    if not question or not all(options) or len(options) < OPTIONS[0]:
        raise ToolError("A question needs words, and at least two different options.")
    return Prepared({"question": question, "options": options})


@tool(Access.WRITE, Effect.CHOOSE, prepare=_asked)
async def ask_user(
    ctx: ToolContext,
    question: Annotated[str, Field(max_length=MAX_QUESTION)],
    options: Annotated[list[Option], Field(min_length=OPTIONS[0], max_length=OPTIONS[1])],
) -> ToolResult:
    """Ask the requester to choose one of 2 to 5 options, where a wrong guess would cost. The
    request is answered again with their choice."""
    raise ToolError("Only the requester answers this.")  # the gate puts it on a card


TOOLS = (ask_user,)


def _line(text: str) -> str:
    return one_line(printable(text)).strip()
