"""What a request of Slack is worked on as: a question, a triage of the mailbox, or a sweep."""

from __future__ import annotations

from collections.abc import Collection

from bot.mail.state import MailState
from bot.parent import Ask, Workplace
from bot.requests.asked import Request
from bot.storage.database import Database
from bot.sweep.channel_sweep import ChannelSweep
from bot.sweep.words import sweep_asked
from bot.triage.inbox_triage import InboxTriage, wants_triage
from config.settings import Limits, Settings
from scopes import ALL
from subagents.run import Run

Errand = Ask | InboxTriage | ChannelSweep


def errand(
    app: Workplace, run: Run, request: Request, scopes: Collection[str], database: Database
) -> Errand:
    """The work that a request asks for; `scopes` are those that its requester may use."""
    if wants_triage(request.intent.text) and {"email", ALL} & set(scopes):
        return InboxTriage(app, run, request, MailState(database))
    asked = sweep_asked(request.said or request.text)
    if asked and {"slack", ALL} & set(scopes):
        return ChannelSweep(app, run, request, asked)
    return Ask(app, run, request)


def usual_usd(text: str, settings: Settings) -> float:
    """What such a request may cost where the policy does not say."""
    return settings.triage.budget_usd if wants_triage(text) else settings.limits.cost_usd


def limits_of(text: str, limits: Limits, settings: Settings) -> Limits:
    """The limits with the time that such a request gets."""
    seconds = limits.seconds
    if wants_triage(text):
        seconds = settings.triage.time_s
    elif sweep_asked(text):
        seconds = settings.sweep.time_s
    return limits.model_copy(update={"seconds": seconds})
