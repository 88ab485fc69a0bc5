"""Local workspaces: a Slack export or the sample, served on loopback by simulators.

The simulators are imported on demand: a real workspace and a real model need none.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import AsyncExitStack, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import aiohttp

from bot.errors import SetupError
from bot.local.samples import SAMPLE_AS_OF, SAMPLE_DAYS
from bot.options import Options
from bot.policy.directory import Grants, SlackDirectory
from bot.runs.store import Store
from bot.slack.client import ReadTurns
from bot.slack.people import People
from config.settings import Settings
from scopes.label import Readers
from scopes.members import Members
from scopes.slack_client import connect
from scopes.slack_reader import SlackReader
from subagents.directory import Directory, Operator
from subagents.model import ModelClient
from subagents.providers import ProviderNotReady

if TYPE_CHECKING:
    from bot.local.workspace import Workspace


@contextmanager
def model_client(settings: Settings, name: str) -> Iterator[ModelClient]:
    """Yield the client of `claude`, or of the `offline` simulator, which runs meanwhile."""
    if name == "offline":
        from bot.local.model.server import ModelServer
        from bot.local.offline.model import answer as offline_model
        from bot.local.server import LocalServer

        with LocalServer(ModelServer(offline_model).app, "model") as server:
            models = settings.models.model_copy(update={"provider": "anthropic"})
            yield ModelClient(models, "offline", server.url)
        return
    key, base_url = settings.model_key, settings.endpoints.anthropic_base_url
    if settings.models.provider == "anthropic" and key is None and base_url is None:
        raise SetupError(
            "no_api_key",
            "No API key for --model claude.",
            "Set ANTHROPIC_API_KEY in the environment or in .env, or use --model offline.",
        )
    try:
        client = ModelClient(settings.models, key, base_url)
    except ProviderNotReady as error:
        raise SetupError(error.code, error.message, error.hint) from error
    yield client


DAY = timedelta(days=1)
SAMPLE_WINDOW = SAMPLE_DAYS * DAY


def load_workspace(options: Options) -> Workspace | None:
    """Load the workspace from the options; None for the real one."""
    if options.sample:
        from bot.local.sample_workspace import load_sample

        return load_sample()
    if options.slack_export is None:
        return None
    from bot.local.export import ExportError, load_export

    try:
        return load_export(options.slack_export)
    except ExportError as error:
        raise SetupError("bad_export", str(error), "") from error


def no_workspace() -> SetupError:
    return SetupError(
        "no_slack_token",
        "No Slack workspace to read.",
        "Set SLACK_BOT_TOKEN, or give --slack-export ZIP, or try `assistant demo`.",
    )


def reader_of(
    settings: Settings,
    session: aiohttp.ClientSession,
    workspace: Workspace | None,
    options: Options,
    stack: AsyncExitStack,
) -> SlackReader | None:
    """Return the reader of the workspace; None if there is none."""
    slack, secrets = settings.slack, settings.secrets
    url, search = settings.endpoints.slack_api_url, None
    if workspace is not None:
        from bot.local.server import LocalServer
        from bot.local.slack.server import API_PATH, BOT_TOKEN, LocalSlack

        server = stack.enter_context(LocalServer(LocalSlack(workspace).app, "slack"))
        url = server.url + API_PATH  # messages of a file are searched by reading them
        token = f"xoxp-{options.as_user}" if options.as_user else BOT_TOKEN
    elif options.as_user:
        why = "A real workspace is read with the bot's rights only."
        raise SetupError("as_user", why, "Leave --as-user out, or give --slack-export ZIP.")
    elif not secrets.slack_bot_token:
        return None
    else:
        token = secrets.slack_bot_token.get_secret_value()
        if user_token := secrets.slack_user_token:
            search = connect(session, user_token.get_secret_value(), url, slack)
    client = connect(session, token, url, slack, ReadTurns(slack))
    members = Members(client)
    stack.push_async_callback(members.aclose)
    return SlackReader(client, timedelta(days=slack.lookback_days), search, members=members)


def directory_of(
    store: Store,
    reader: SlackReader | None,
    workspace: Workspace | None,
    options: Options,
    things: Mapping[str, Readers],
) -> Directory:
    """Return a directory: the operator reads as the bot, a user of the files with their own token.

    `things` are the handles whose readers are in the settings.
    """
    if reader is None or workspace is None or options.as_user is None:
        return Operator()
    from bot.local.slack.state import BOT_USER

    assert reader.members
    members = reader.members
    people, grants = People(reader.web), Grants(store.database)
    directory = SlackDirectory(members, people, grants.sources_for, BOT_USER, workspace.team.id)
    directory.things = things
    return directory


def end_of(workspace: Workspace | None, options: Options) -> datetime:
    """Return the current time; for files, the midnight after their last message."""
    if options.sample and workspace:
        return SAMPLE_AS_OF
    stamps = [m.ts for c in workspace.channels for m in c.messages] if workspace else []
    if not stamps:
        return datetime.now(UTC)
    last = datetime.fromtimestamp(max(float(ts) for ts in stamps), UTC)
    return last.replace(hour=0, minute=0, second=0, microsecond=0) + DAY
