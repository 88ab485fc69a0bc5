"""An answer as Slack shows it, whatever it is: a text with citations, or a digest with buttons."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot import render
from bot.digest_blocks import digest_parts
from bot.render import Rendered
from bot.requests import StoredRequest
from config.settings import Settings


def rendered(
    document: Mapping[str, Any], request: StoredRequest, settings: Settings, seconds: float
) -> Rendered:
    """The document of an answer or of a triage; `seconds` is what it took."""
    if "verdicts" not in document:
        return render.answer(document, request.key, settings.reply, seconds, request.user)
    first, *rest = digest_parts(document, settings.triage.categories)
    below = (render.feedback(request.key),)
    parts = [first, *rest]
    parts[-1] = replace(parts[-1], blocks=(*parts[-1].blocks, *below))
    return Rendered(tuple(parts), first.text)
