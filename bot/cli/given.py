"""What is typed behind a command, read into what it means."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from bot.app import EPOCH, Options
from bot.errors import SetupError
from bot.local.sample_sales import SALES
from scopes.databases.table_kinds import TABLES, is_duckdb


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class GivenAsk(Given):
    """The options of `assistant ask`: sources of every kind, together."""

    database: tuple[Path, ...] = ()
    folder: Path | None = None
    mbox: Path | None = None
    me: str | None = None

    def options(self) -> Options:
        if self.sample and self.mbox:
            raise SetupError("two_sources", "Two mailboxes.", "Give --sample or --mbox.")
        if self.sample and self.database:
            raise SetupError("two_sources", "Two databases.", "Give --sample or --database.")
        check_address(self.me)
        if self.me and not self.mbox:
            raise SetupError("me_of_what", "--me is your address in a file.", "Give --mbox FILE.")
        for each in self.database:
            _check_database(each)
        if self.folder and not self.folder.is_dir():
            hint = "Give a folder that exists, such as a checkout."
            raise SetupError("no_folder", f"No folder {self.folder}.", hint)
        return replace(
            super().options(),
            mbox=self.mbox,
            me=self.me,
            databases=self.database or ((SALES,) if self.sample else ()),
            folder=self.folder,
        )


def check_address(me: str | None) -> None:
    """Raises SetupError for what is no mail address."""
    if me is not None and not re.fullmatch(r"[^\s@]+@[^\s@]+", me.strip()):
        raise SetupError("bad_me", f"--me is {me!r}, no mail address.", "Write it as a@b.example.")


def _check_database(path: Path) -> None:
    """Raises SetupError where nothing there looks like tables."""
    hint = "Give a DuckDB file, or a folder of CSV, Parquet, SQLite or Excel files."
    try:
        if path.is_dir():
            found = any(each.suffix.lower() in TABLES for each in path.iterdir())
        else:
            found = is_duckdb(path) or path.suffix.lower() in TABLES
    except OSError as error:
        text = f"{path} cannot be read: {error.strerror}."
        raise SetupError("no_database", text, hint) from None
    if not found:
        raise SetupError("no_database", f"{path} holds no tables.", hint)


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
