"""An answer as Slack shows it, whatever it is: a text, a digest with buttons, a sweep's report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from bot.replies import render
from bot.replies.render import Part, Rendered
from bot.reports.sweep_blocks import sweep_parts
from bot.requests.requests import StoredRequest
from bot.triage.digest_blocks import digest_parts
from config.settings import Settings


def rendered(
    document: Mapping[str, Any], request: StoredRequest, settings: Settings, seconds: float
) -> Rendered:
    """The document of an answer, a triage or a sweep; `seconds` is what it took."""
    parts = _parts(document, settings)
    if not parts:
        return render.answer(document, request.key, settings.reply, seconds, request.user)
    below = (render.feedback(request.key),)
    *before, last = parts
    last = replace(last, blocks=(*last.blocks, *below))
    return Rendered((*before, last), parts[0].text)


def _parts(document: Mapping[str, Any], settings: Settings) -> tuple[Part, ...]:
    """The messages of what is more than a text; none for an answer."""
    if "verdicts" in document:
        return digest_parts(document, settings.triage.categories)
    if document.get("sections"):
        return sweep_parts(document, f"assistant show {document['run_id']} --json")
    return ()
