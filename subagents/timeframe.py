"""The time that a brief reads of messages and mails, as far as its request may look back."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, tzinfo

from scopes.tool import Window
from subagents.errors import BriefRefused

FORMS = "write YYYY-MM-DD, or YYYY-MM-DDTHH:MM"


@dataclass(frozen=True, slots=True)
class TimeFrame:
    """The times that a request may choose from."""

    usual: Window
    """What is read where a brief gives no time; it ends now."""
    earliest: datetime
    """No window begins before."""
    zone: tzinfo = UTC
    """Time zone of days and times without one."""

    def of_days(self, days: int) -> TimeFrame:
        """Return the same where so many days are usual."""
        oldest = self.usual.latest - timedelta(days=days)
        usual = Window(oldest, self.usual.latest)
        return TimeFrame(usual, min(oldest, self.earliest), self.zone)

    def window(self, since: str, until: str) -> Window:
        """Return the window that a brief asks for; an empty text = as usual.

        `until` is a day that is still read, or the time before which is read; what lies in the
        future is not there yet. A `since` in the minute of `earliest` stands for `earliest`.
        Raises BriefRefused.
        """
        now = self.usual.latest
        latest = min(self._at("until", until, timedelta(days=1)), now) if until else now
        length = self.usual.latest - self.usual.oldest
        oldest = self._at("since", since) if since else max(latest - length, self.earliest)
        if self._told(oldest) == self._told(self.earliest):  # models are told minutes
            oldest = max(oldest, self.earliest)
        if oldest >= now:
            told = f"it is now {self._told(now)}, and nothing was said from {since} on"
            raise BriefRefused("since", told)
        if oldest >= latest:
            raise BriefRefused("until", f"{until} ends before {since or 'the time that is read'}")
        if oldest < self.earliest:
            raise BriefRefused(
                "since",
                f"this request may look back to {self._told(self.earliest)}. Give that, and say "
                "so in the answer",
            )
        return Window(oldest, latest)

    def _at(self, field: str, text: str, more: timedelta = timedelta()) -> datetime:
        """Return a time in UTC; of a day its beginning, and `more`."""
        try:
            if len(text) == len("YYYY-MM-DD"):
                day = date.fromisoformat(text) + more
                at = datetime.combine(day, time(), self.zone)
            else:
                at = datetime.fromisoformat(text)
            return (at if at.tzinfo else at.replace(tzinfo=self.zone)).astimezone(UTC)
        except (ValueError, OverflowError):
            raise BriefRefused(field, f"{text[:40]!r} is no time: {FORMS}") from None

    def _told(self, at: datetime) -> str:
        return f"{at.astimezone(self.zone):%Y-%m-%dT%H:%M}"
