"""Handle what users open and click: App Home, the agent pane, cards, answers, digests."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass

from slack_sdk.web.async_client import AsyncWebClient

from bot.approvals.cards import CardClicked, FormSubmitted
from bot.approvals.service import After, Approvals
from bot.listeners.digest import DigestActing
from bot.listeners.events import ButtonClicked, DigestAction, FeedbackGiven, HomeOpened
from bot.listeners.home import ACTIONS, DELETE, PAUSE, RESUME, Home
from bot.policy.policy import Admission, PolicyFault
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
    answers: AnswerButtons

    async def on_click(self, click: CardClicked | FormSubmitted) -> After:
        """Decide on a card, and store it before the ack."""
        return await self.approvals.on_click(click)

    async def follow(self, found: HomeOpened | ButtonClicked | DigestAction) -> None:
        """Handle, after the ack, an opened Home or pane, a button or field, or a digest's click."""
        if isinstance(found, DigestAction):
            with in_language(await self.language(found.click.user)):
                await self.digests.act(found)
        elif isinstance(found, ButtonClicked):
            if found.action == DETAILS:
                with in_language(await self.language(found.user)):
                    await self.answers.show_details(found.value, found.user, found.trigger)
            elif found.action in (PAUSE, RESUME, DELETE, *ACTIONS):
                await self.home.press(found.action, found.user, found.team, found.value)
        elif found.tab == HOME_TAB:
            await self.home.show(found.user, found.team)
        else:
            event = {**found.event, "channel": found.channel}
            with in_language(await self.language(found.user)):
                await assistant_pane.suggest(self.web, self.admission.people, event)

    async def ask_why(self, given: FeedbackGiven) -> bool:
        """Open the form that asks why an answer is bad; return whether it is open."""
        with in_language(await self.language(given.user, given.channel)):
            return await self.answers.ask_why(given)

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

    async def is_admin(self, user: str) -> bool:
        """Return whether the current policy names this user; False while the policy is invalid."""
        try:
            return user in (await self.admission.file.read()).admins
        except PolicyFault:
            return False
