"""Assemble the intake, the backfill and the sockets."""

from __future__ import annotations

from contextlib import AsyncExitStack

from slack_sdk.web.async_client import AsyncWebClient

from bot.errors import SetupError
from bot.listeners.backfill import Backfill
from bot.listeners.intake import Cursors, Intake
from bot.listeners.interactions import Interactions
from bot.listeners.socket_mode import Hear, Sockets
from bot.metrics import Metrics, time_calls
from bot.requests.worker import RequestWorker
from bot.slack.messages import Bot
from bot.slack.writer import MessageWriter
from bot.storage.requests import RequestQueue
from config.settings import Settings
from scopes.slack_client import SlackClient


def build_listeners(
    stack: AsyncExitStack,
    settings: Settings,
    inbox: RequestQueue,
    cursors: Cursors,
    writer: MessageWriter,
    client: SlackClient,
    web: AsyncWebClient,
    bot: Bot,
    interactions: Interactions,
    dispatch: RequestWorker,
    metrics: Metrics,
) -> tuple[Intake, Backfill, Sockets | None]:
    """Build the intake, the backfill, and the sockets in Socket Mode.

    Raises SetupError where a secret is not set.
    """
    secret = settings.secrets.slack_signing_secret
    intake = Intake(
        inbox,
        cursors,
        writer,
        web,
        bot,
        interactions,
        signing_secret=secret.get_secret_value() if secret else "",
        on_request=dispatch.wake,
        on_feedback=metrics.count_feedback,
        reactions=settings.slack.reactions,
    )
    stack.push_async_callback(intake.aclose)
    backfill = Backfill(intake, inbox, cursors, client, settings.slack)
    hear = time_calls(intake.from_socket, metrics.ack.observe)
    return intake, backfill, _sockets(settings, hear, backfill)


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
