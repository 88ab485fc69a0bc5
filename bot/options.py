"""The options of reading commands: sources, time, requester, model."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

from pydantic import BaseModel

from bot.errors import SetupError
from bot.local.samples import SALES
from scopes.tool import iso

EPOCH = datetime.fromtimestamp(0, UTC)


def read_date(text: str) -> datetime:
    """Parse a day (00:00 UTC) or a time in ISO 8601. Raises SetupError."""
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
    """Parse a duration: `30d`, `12h`, `2w`. Raises SetupError."""
    found = re.fullmatch(r"\s*(\d{1,5})\s*([hdw])\s*", text)
    hours = {"h": 1, "d": 24, "w": 168}
    if not found or int(found[1]) == 0:
        raise SetupError("bad_length", f"{text!r} is not a length of time.", "Write it as 30d.")
    return timedelta(hours=int(found[1]) * hours[found[2]])


def read_model(text: str) -> str:
    """Return a name of `--model`. Raises SetupError."""
    if text not in ("claude", "offline"):
        hint = "Use --model claude or --model offline."
        raise SetupError("bad_model", f"No model {text!r}.", hint)
    return text


def read_address(text: str) -> str:
    """Return the address of `--reader`. Raises SetupError."""
    if not re.fullmatch(r"[^\s@]+@[^\s@]+", text.strip()):
        what = f"--reader is {text!r}, no mail address."
        raise SetupError("bad_me", what, "Write it as a@b.example.")
    return text


class RunSources(BaseModel, frozen=True):
    """The sources of a command's run, stored in its row to continue or to repeat it."""

    slack_export: Path | None = None
    mbox: Path | None = None
    folder: Path | None = None
    databases: tuple[Path, ...] = ()
    me: str | None = None
    sample: bool = False
    since: str | None = None
    as_of: str = ""
    as_user: str | None = None


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a command; None = not given."""

    model: str = "claude"
    """`offline` or `claude`."""
    slack_export: Path | None = None
    sample: bool = False
    as_of: datetime | None = None
    """The end of the window, exclusive; None = now, or the end of a given export."""
    since: timedelta | None = None
    as_user: str | None = None
    mail: bool = False
    """Whether a mailbox is read instead of a Slack workspace."""
    mbox: Path | None = None
    me: str | None = None
    """Address of the reader of `mbox`."""
    databases: tuple[Path, ...] = ()
    """DuckDB files, or folders of tables."""
    folder: Path | None = None
    """A working folder."""

    def check(self) -> None:
        """Raise SetupError for sources that are missing or exclude each other."""
        rivals = {
            ("workspaces", "--slack-export"): self.slack_export,
            ("mailboxes", "--mbox"): self.mbox,
            ("databases", "--database"): self.databases,
        }
        for (things, option), is_given in rivals.items():
            if self.sample and is_given:
                raise SetupError("two_sources", f"Two {things}.", f"Give --sample or {option}.")
        if self.me and not self.mbox:
            raise SetupError("me_of_what", "--reader is for a file.", "Give --mbox FILE.")
        for each in self.databases:
            _check_database(each)
        if self.folder and not self.folder.is_dir():
            hint = "Give a folder that exists, such as a checkout."
            raise SetupError("no_folder", f"No folder {self.folder}.", hint)

    def with_sales(self) -> Options:
        """Return the options of a command that reads databases: the sample has one."""
        return replace(self, databases=(SALES,)) if self.sample else self

    def sources(self, as_of: datetime) -> RunSources:
        """Return the sources that replace the live systems, with the end of the window."""
        hours = round(self.since / timedelta(hours=1)) if self.since else 0
        return RunSources(
            slack_export=self.slack_export and self.slack_export.absolute(),
            mbox=self.mbox and self.mbox.absolute(),
            folder=self.folder and self.folder.absolute(),
            databases=tuple(path.absolute() for path in self.databases),
            me=self.me,
            sample=self.sample,
            since=f"{hours}h" if hours else None,
            as_of=iso(as_of),
            as_user=self.as_user,
        )

    @classmethod
    def of_run(cls, model: str, sources: RunSources, *, mail: bool) -> Options:
        """Return the options of a run with these sources. Raises SetupError."""
        return cls(
            model=model,
            slack_export=sources.slack_export,
            sample=sources.sample,
            as_of=read_date(sources.as_of) if sources.as_of else None,
            since=read_length(sources.since) if sources.since else None,
            as_user=sources.as_user,
            mail=mail,
            mbox=sources.mbox,
            me=read_address(sources.me) if sources.me else None,
            databases=sources.databases,
            folder=sources.folder,
        )


def _check_database(path: Path) -> None:
    """Raise SetupError if the path contains no tables."""
    from scopes.databases.table_kinds import TABLES, is_duckdb

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
