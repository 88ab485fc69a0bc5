"""In which language the readers of a report read: most of them, by what they set in Slack."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence

from config.schedules import Schedule
from scopes.slack_client import Absent
from scopes.slack_reader import SlackReader

MOST = 40
"""Members of a destination that are asked about."""


async def language_of(spec: Schedule, reader: SlackReader) -> str | None:
    """The language of the report's readers, as a code such as `es`; None = Slack does not say.

    Those of a direct message or a mail are its owner. Raises SlackRefused, aiohttp.ClientError and
    TimeoutError.
    """
    readers = [spec.owner]
    if channel := await _channel(spec.to, reader):
        pages = reader.web.pages("conversations.members", "members", channel=channel)
        readers = [str(member) async for member in pages]
    codes = await asyncio.gather(*(_language(user, reader) for user in _some(readers)))
    told = Counter(code for code in codes if code)
    return min(told, key=lambda code: (-told[code], code)) if told else None


async def _channel(to: str, reader: SlackReader) -> str | None:
    if to.startswith("#"):
        named = [c.id for c in await reader.channels() if c.name == to[1:]]
        return named[0] if named else None
    return to if to[0] in "CG" and "@" not in to else None


def _some(users: Sequence[str]) -> list[str]:
    """As many as are asked, from everywhere in the list."""
    step = max(1, -(-len(users) // MOST))
    return sorted(users)[::step]


async def _language(user: str, reader: SlackReader) -> str | None:
    """What Slack shows itself in to this user; None for a bot and where it is not said."""
    try:
        body = await reader.web.call("users.info", user=user, include_locale="true")
    except Absent:
        return None
    person = body["user"]
    locale = None if person.get("is_bot") else person.get("locale")
    return str(locale).partition("-")[0].lower() if locale else None
