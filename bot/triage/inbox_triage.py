"""A triage asked for in Slack: the same run as on the command line, told as an answer."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from bot.mail.corrections import Correction
from bot.mail.state import MailState
from bot.mail.sync import new_threads
from bot.parent import Workplace
from bot.replies.cite import statements
from bot.requests.answered import ANSWERED, links_of, sentence, writing
from bot.requests.asked import Request
from bot.requests.sentences import NOT_CONNECTED
from bot.schedule.recurring import recurs
from bot.triage.briefing import Reader
from bot.triage.digest_answer import digest_answer
from bot.triage.looked import INBOX
from bot.triage.triage import Triage, delivered
from scopes.google.client import GoogleBusy, GoogleError
from scopes.google.gmail import Gmail
from scopes.label import Label
from scopes.tool import ToolContext, Window
from subagents.events import ContextGrew
from subagents.result import joined
from subagents.run import Run
from subagents.toolbox import crash_text

log = logging.getLogger(__name__)

_MAIL = r"(?:in-?box|e-?mails?|mails?|mailbox|posteingang|correos?|bandeja|courriels?|posta)"
_FIRST = r"(?:(?:hi|hello|hey|please|pls|could you|can you|would you|bitte|por favor)\W+)*"
_ASKED = re.compile(
    rf"\W*{_FIRST}(?:triage\s+(?:all\s+)?(?:of\s+)?(?:my|the)\s+(?:new\s+|unread\s+)?{_MAIL}\b"
    rf"|{_MAIL}\s+triage\W*(?:please\W*)?$)",
    re.IGNORECASE,
)


def wants_triage(text: str) -> bool:
    """Whether a request asks for a triage of the requester's own mail now, in so many words."""
    return _ASKED.match(text) is not None and not recurs(text)


@dataclass
class InboxTriage:
    """One request for a triage at work; it stands where `bot.parent.Ask` stands for a question."""

    app: Workplace
    run: Run
    request: Request
    state: MailState

    def __post_init__(self) -> None:
        self.work: Triage | None = None
        self.passing = False
        """It failed, and might not at another time."""

    async def answer(self) -> dict[str, Any]:
        """The document of `triage --json`, with the fields that an answer has."""
        try:
            document = await self._triage()
        except GoogleError as error:
            self.passing = isinstance(error, GoogleBusy)
            return self._told(str(error), "failed")
        except Exception as error:  # the seam: one request
            self.passing = True
            log.exception("the triage of %s crashed", self.run.id)
            return self._told(crash_text("the triage", error), "failed")
        return document or self._told(NOT_CONNECTED, "complete")

    async def _triage(self) -> dict[str, Any] | None:
        gmail = self.run.clients.get(Gmail)
        if not isinstance(gmail, Gmail):
            return None

        async def look() -> dict[str, Any]:
            return {"address": await gmail.address()}

        address = (await self.run.checkpoint.step(f"{self.run.id}/mailbox", look))["address"]
        settings, latest = self.app.settings.triage, self.request.window.latest
        window = Window(latest - timedelta(days=settings.since_days), latest)
        reader = Reader(self.run.requester or address, address, latest.date())
        request = replace(self.request, window=window)
        # Before any row of the plan: its subjects are for those who may read the mailbox.
        self.run.emit(ContextGrew("p1", self._own(reader.owner)))
        account, step = reader.owner, self.run.checkpoint.step
        known = await step(f"{self.run.id}/corrections", lambda: self._corrections(account))
        self.work = Triage(
            *(self.app, self.run, request, gmail, reader),
            listing=lambda: new_threads(gmail, self.state, account, INBOX, window),
            corrections=[Correction.of(each) for each in known["corrections"]],
        )
        document = await self.work.report()
        text = digest_answer(document, settings.categories)
        said = statements(text, self.links())
        label = self.request.label.join(joined(list(self.work.fanout.results.values())))
        return {
            **document,
            **ANSWERED,
            "question": self.request.text,
            "answer": text,
            "statements": [{"text": s.text, "findings": list(s.findings)} for s in said],
            "cited": sum(bool(s.findings) for s in said),
            "links": {id: found for id, found in self.links().items() if found},
            "label": label.join(self._own(reader.owner)).to_json(),
        }

    def _own(self, owner: str) -> Label:
        """Of the mailbox itself: that it holds nothing new is a fact for its owner."""
        return Label(True, frozenset({owner}), frozenset({"mail:inbox"}), outside=True)

    async def _corrections(self, account: str) -> dict[str, Any]:
        found = await self.state.corrections.all(account)
        return {"corrections": [each.to_json() for each in found]}

    async def delivered(self) -> None:
        """The digest stands where it belongs: what it is done with is not listed again."""
        if self.work:
            await delivered(self.state, self.work.reader.owner, self.work)

    def _told(self, text: str, status: str) -> dict[str, Any]:
        """An answer of one sentence, for which no model was asked."""
        missing = [text] if status == "failed" else []
        return sentence(self.app, self.run, self.request, "triage", text, status, missing)

    def links(self) -> dict[str, list[str]]:
        results = self.work.fanout.results.values() if self.work else ()
        return links_of(results)

    def writing(self, document: Mapping[str, Any]) -> ToolContext:
        """The context of the finished answer, for the gate."""
        return writing(self.run, self.request, document)
