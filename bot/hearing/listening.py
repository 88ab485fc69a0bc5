"""How the bot hears: events over sockets or as signed posts, and what was missed meanwhile."""

from __future__ import annotations

from contextlib import AsyncExitStack

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SetupError
from bot.faces.faces import Faces
from bot.hearing.backfill import Backfill
from bot.hearing.connection import Hear
from bot.hearing.cursors import Cursors
from bot.hearing.heard import Bot
from bot.hearing.intake import Intake
from bot.hearing.sockets import Sockets
from bot.replies.outbox import Outbox
from bot.requests.dispatch import Dispatch
from bot.requests.inbox import Inbox
from bot.serving.metrics import Metrics
from bot.serving.watch import timed
from config.settings import Settings
from scopes.slack_client import SlackClient


def listening(
    stack: AsyncExitStack,
    settings: Settings,
    inbox: Inbox,
    cursors: Cursors,
    outbox: Outbox,
    client: SlackClient,
    web: AsyncWebClient,
    bot: Bot,
    face: Faces,
    dispatch: Dispatch,
    metrics: Metrics,
) -> tuple[Intake, Backfill, Sockets | None]:
    """What hears, what looks for missed requests, and the sockets where there are any.

    Raises SetupError where a secret is not set.
    """
    intake = _intake(stack, settings, inbox, cursors, outbox, web, bot, face, dispatch)
    backfill = Backfill(intake, inbox, cursors, client, settings.slack)
    return intake, backfill, _sockets(settings, timed(intake.from_socket, metrics.acked), backfill)


def _intake(
    stack: AsyncExitStack,
    settings: Settings,
    inbox: Inbox,
    cursors: Cursors,
    outbox: Outbox,
    web: AsyncWebClient,
    bot: Bot,
    face: Faces,
    dispatch: Dispatch,
) -> Intake:
    secret = settings.secrets.slack_signing_secret
    intake = Intake(
        inbox,
        cursors,
        outbox,
        web,
        bot,
        signing_secret=secret.get_secret_value() if secret else None,
        on_request=dispatch.wake,
        face=face,
    )
    stack.push_async_callback(intake.aclose)
    return intake


def _sockets(settings: Settings, hear: Hear, backfill: Backfill) -> Sockets | None:
    if settings.slack.mode == "http":
        if not settings.secrets.slack_signing_secret:
            hint = "Set SLACK_SIGNING_SECRET, or slack.mode: socket."
            raise SetupError("no_secret", "Slack's events cannot be checked.", hint)
        return None
    token = settings.secrets.slack_app_token
    if not token:
        hint = "Set SLACK_APP_TOKEN (xapp-...), or slack.mode: http. `assistant setup` helps."
        raise SetupError("no_app_token", "There is no token for Socket Mode.", hint)
    return Sockets(
        hear,
        token.get_secret_value(),
        settings.slack,
        base_url=settings.endpoints.slack_api_url,
        on_gap=backfill.ask,
    )
