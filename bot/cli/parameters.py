"""Options that several commands take."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

Export = Annotated[
    Path | None, typer.Option("--slack-export", help="Read this Slack export (zip) instead.")
]
Sample = Annotated[bool, typer.Option("--sample", help="Read the sample workspace instead.")]


def once(given: list[Path] | None) -> list[Path] | None:
    """Reject a repeated option, of which the command line would silently use only the last."""
    if given and len(given) > 1:
        raise typer.BadParameter(f"It is given {len(given)} times: give it once.")
    return given


def only(given: list[Path] | None) -> Path | None:
    return given[0] if given else None


Mbox = Annotated[
    list[Path] | None,
    typer.Option("--mbox", help="Read this mailbox file instead (mbox, Takeout).", callback=once),
]
Me = Annotated[
    str | None,
    typer.Option(
        *("--reader", "--me"),
        help="Whose mailbox --mbox is: an address (default: the likeliest, named on stderr).",
    ),
]
AsOf = Annotated[
    str | None, typer.Option(help="End of the window (UTC, exclusive): 2025-04-15 (default: now).")
]
Since = Annotated[str | None, typer.Option(help="Length of the window: 30d, 12h (default: 7d).")]
Model = Annotated[str, typer.Option(help="claude, or offline (fixed rules, no key, no cost).")]
AsUser = Annotated[str | None, typer.Option(help="Read with this user's rights (a user id).")]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
Limit = Annotated[int | None, typer.Option(min=1, help="Read at most this many channels.")]
