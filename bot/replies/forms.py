"""A message in the forms that Slack may take: as blocks, else as markdown, else as text."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from bot.replies.writes import Passing, Refused

log = logging.getLogger(__name__)

Block = Mapping[str, Any]

MAX_TEXT = 3_900
"""Characters of `text`; chat.update refuses more than 4,000."""
MAX_MARKDOWN = 12_000
LITERAL: Mapping[str, Any] = {"parse": "none", "link_names": False}
"""Slack looks for no addresses or names in `text`; chat.update would else (`client`)."""
NO_UNFURLING: Mapping[str, Any] = {"unfurl_links": False, "unfurl_media": False}
"""chat.postMessage only: no other method that we write with has them, or shows previews."""


async def in_some_form(
    send: Callable[[dict[str, Any]], Awaitable[str]], text: str, blocks: Sequence[Block]
) -> str:
    """Send blocks; where Slack refuses them the text alone, so that no answer is lost."""
    plain = _plain(text)
    forms: list[dict[str, Any]] = [in_blocks(text, blocks)] if blocks else []
    if blocks or len(text) > MAX_TEXT:
        forms.append({"markdown_text": text[:MAX_MARKDOWN]})
    forms.append(plain)
    for form in forms[:-1]:
        try:
            return await send(form)
        except Passing:
            raise
        except Refused as error:
            log.warning("Slack did not take a message as it was (%s); sent as text", error)
    return await send(forms[-1])


def in_blocks(text: str, blocks: Sequence[Block]) -> dict[str, Any]:
    """The one form of a message that says what it says in its blocks, or nothing."""
    return {**_plain(text), "blocks": list(blocks)}


def _plain(text: str) -> dict[str, Any]:
    return {"text": text[:MAX_TEXT] or " ", **LITERAL}


def emptied(form: dict[str, Any]) -> dict[str, Any]:
    """A chat.update that sends no blocks leaves those that are there."""
    return form if "markdown_text" in form else {"blocks": [], **form}
