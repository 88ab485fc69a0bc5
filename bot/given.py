"""What is typed behind a command, read into what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.app import EPOCH, Options
from bot.errors import SetupError


@dataclass(frozen=True, slots=True)
class Given:
    """The options that reading commands share, as they were typed."""

    slack_export: Path | None
    sample: bool
    as_of: str | None
    since: str | None
    model: str
    as_user: str | None
    json: bool

    def options(self) -> Options:
        if self.model not in ("claude", "offline"):
            raise SetupError(
                "bad_model", f"No model {self.model!r}.", "Use --model claude or --model offline."
            )
        if self.sample and self.slack_export:
            raise SetupError("two_sources", "Two workspaces.", "Give --sample or --slack-export.")
        return Options(
            model=self.model,
            slack_export=self.slack_export,
            sample=self.sample,
            as_of=read_date(self.as_of) if self.as_of else None,
            since=read_length(self.since) if self.since else None,
            as_user=self.as_user,
        )


def read_date(text: str) -> datetime:
    """A day (00:00 UTC) or a time in ISO 8601. Raises SetupError."""
    try:
        at = datetime.fromisoformat(text.strip().replace("Z", "+00:00"))
        at = at.replace(tzinfo=at.tzinfo or UTC).astimezone(UTC)
    except (ValueError, OverflowError):
        raise SetupError(
            "bad_date", f"{text!r} is not a date.", "Write it as 2025-04-15."
        ) from None
    if at <= EPOCH:
        raise SetupError("bad_date", f"{text!r} is before 1970.", "Write it as 2025-04-15.")
    return at


def read_length(text: str) -> timedelta:
    """A length of time: `30d`, `12h`, `2w`. Raises SetupError."""
    found = re.fullmatch(r"\s*(\d{1,5})\s*([hdw])\s*", text)
    hours = {"h": 1, "d": 24, "w": 168}
    if not found or int(found[1]) == 0:
        raise SetupError("bad_length", f"{text!r} is not a length of time.", "Write it as 30d.")
    return timedelta(hours=int(found[1]) * hours[found[2]])
