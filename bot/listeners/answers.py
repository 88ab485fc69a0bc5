"""Handle the buttons below an answer: its details, and why it is bad."""

from __future__ import annotations

import logging

from slack_sdk.web.async_client import AsyncWebClient

from bot.listeners.events import FeedbackGiven
from bot.reports.documents import AnswerDocument, SweepReport, TriageAnswer, parse_document
from bot.reports.frame import feedback_form, message_view
from bot.reports.slack import details_view
from bot.runs.store import RunNotFound, Store
from bot.slack.assistant_pane import attempt
from bot.slack.blocks import Block
from config.sections import ReplySettings
from config.words import phrase
from scopes.label import Label
from subagents.directory import Directory

log = logging.getLogger(__name__)


class AnswerButtons:
    """Handles clicks below answers. Its methods raise StoreError."""

    def __init__(
        self, store: Store, web: AsyncWebClient, directory: Directory, settings: ReplySettings
    ) -> None:
        self._store, self._web = store, web
        self._directory, self._settings = directory, settings

    async def show_details(self, run: str, user: str, trigger: str) -> None:
        """Open the details of an answer for a user who may read what it rests on."""
        view = await self._details(run, user)
        await attempt("the details", self._web.views_open(trigger_id=trigger, view=view))

    async def ask_why(self, given: FeedbackGiven) -> bool:
        """Open the form that asks why an answer is bad; return whether it is open."""
        form = feedback_form(given.key)
        opened = self._web.views_open(trigger_id=given.trigger, view=form)
        return not await attempt("the form of a rating", opened)

    async def _details(self, run: str, user: str) -> Block:
        try:
            stored = await self._store.run(run)
        except RunNotFound:
            return message_view(phrase("answer.details_gone"))
        document = parse_document(stored.result) if stored.result else None
        if not isinstance(document, AnswerDocument | SweepReport | TriageAnswer) or not (
            document.label
        ):
            return message_view(phrase("answer.details_gone"))
        if await self._directory.obstacles(Label.of(document.label), user):
            return message_view(phrase("answer.details_hidden"))
        took = (stored.finished or stored.started) - stored.started
        return details_view(document, self._settings, took.total_seconds())
