"""The command `connect`. Its body imports late, so that `--help` is instant."""

from __future__ import annotations

from typing import Annotated, Literal

import typer

PORT = 3001
"""The same each time: a web client of Google's names the address that it comes back to."""


def connect(
    provider: Annotated[Literal["google"], typer.Argument(help="google: a Gmail mailbox.")],
    disconnect: Annotated[
        bool, typer.Option("--disconnect", help="Revoke the access and delete the tokens.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Of 127.0.0.1, to come back to from Google.")
    ] = PORT,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Connect your own mailbox to the assistant, or disconnect it."""
    from bot.accounts.connect import run_connect, run_disconnect

    raise typer.Exit(run_disconnect(json) if disconnect else run_connect(port, json))
