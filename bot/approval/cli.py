"""`assistant approvals`: its commands. Bodies import late, so that `--help` is instant."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]

approvals = typer.Typer(help="What waits for a person's word, and what was granted.")


@approvals.callback(invoke_without_command=True)
def list_approvals(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="What is over, too.")] = False,
    json: AsJson = False,
) -> None:
    """List what waits for a person's word, and the grants that hold. Approving needs Slack."""
    from bot.approval.command import list_approvals

    if context.invoked_subcommand is None:
        raise typer.Exit(list_approvals(everything, json))


@approvals.command()
def deny(action: str, json: AsJson = False) -> None:
    """Deny an action that waits."""
    from bot.approval.command import deny_action

    raise typer.Exit(deny_action(action, json))


@approvals.command()
def revoke(grant: str, json: AsJson = False) -> None:
    """Revoke a standing grant."""
    from bot.approval.command import revoke_grant

    raise typer.Exit(revoke_grant(grant, json))
