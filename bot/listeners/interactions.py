"""Handle what users open and click: App Home, the agent pane, cards, answers, digests."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from slack_sdk.web.async_client import AsyncWebClient

from bot.approvals.service import Approvals
from bot.listeners.digest import DigestActing
from bot.listeners.events import ButtonClicked, DigestAction, FeedbackGiven, HomeOpened
from bot.listeners.home import Home
from bot.policy.policy import Admission
from bot.reports.documents import AnswerDocument, SweepReport, TriageAnswer, parse_document
from bot.reports.frame import DETAILS, feedback_form, message_view
from bot.reports.slack import details_view
from bot.runs.store import RunNotFound, Store
from bot.slack import assistant_pane
from bot.slack.assistant_pane import attempt
from bot.slack.blocks import Block
from bot.storage.requests import Incoming
from config.sections import ReplySettings
from config.words import in_language, phrase
from scopes.label import Label

HOME_TAB = "home"
LANGUAGE_S = 2.0
"""Seconds for asking Slack in which language to answer a command; it waits for three."""


@dataclass
class Interactions:
    """Handles what users open, click or look at. Its methods raise StoreError."""

    web: AsyncWebClient
    admission: Admission
    approvals: Approvals
    digests: DigestActing
    home: Home
    store: Store
    settings: ReplySettings

    async def follow(self, found: HomeOpened | ButtonClicked | DigestAction) -> None:
        """Handle, after the ack, an opened Home or pane, a button or field, or a digest's click."""
        user = found.click.user if isinstance(found, DigestAction) else found.user
        with in_language(await self.language(user)):
            match found:
                case DigestAction():
                    await self.digests.act(found)
                case ButtonClicked(action=action) if action == DETAILS:
                    view = await self._details(found.value, user)
                    opened = self.web.views_open(trigger_id=found.trigger, view=view)
                    await attempt("the details", opened)
                case ButtonClicked():
                    await self.home.press(found.action, user, found.team, found.value)
                case HomeOpened(tab=tab) if tab == HOME_TAB:
                    await self.home.show(user, found.team)
                case HomeOpened():
                    event = {**found.event, "channel": found.channel}
                    await assistant_pane.suggest(self.web, self.admission.people, event)

    async def _details(self, run: str, user: str) -> Block:
        """Return the details of an answer, for a user who may read what it rests on."""
        try:
            stored = await self.store.run(run)
        except RunNotFound:
            return message_view(phrase("answer.details_gone"))
        document = parse_document(stored.result) if stored.result else None
        if not isinstance(document, AnswerDocument | SweepReport | TriageAnswer) or not (
            document.label
        ):
            return message_view(phrase("answer.details_gone"))
        if await self.approvals.cards.directory.obstacles(Label.of(document.label), user):
            return message_view(phrase("answer.details_hidden"))
        took = (stored.finished or stored.started) - stored.started
        return details_view(document, self.settings, took.total_seconds())

    async def ask_why(self, given: FeedbackGiven) -> bool:
        """Open the form that asks why an answer is bad; return whether it is open."""
        with in_language(await self.language(given.user, given.channel)):
            form = feedback_form(given.key)
            opened = self.web.views_open(trigger_id=given.trigger, view=form)
            return not await attempt("the form of a rating", opened)

    async def entitle(self, request: Incoming) -> None:
        """Name a conversation after the direct message that starts it, after the ack."""
        if request.thread_ts == request.ts:
            await assistant_pane.set_title(self.web, request.channel, request.ts, request.text)

    async def language(self, user: str, channel: str = "") -> str:
        """Return the language of what this user is told; empty if Slack does not tell in time."""
        try:
            async with asyncio.timeout(LANGUAGE_S):
                return await self.admission.people.language(user, channel)
        except TimeoutError:
            return ""
