"""`assistant mcp`: its commands. Bodies import late, so that `--help` is instant."""

from __future__ import annotations

import typer

from bot.cli.typed import AsJson

mcp = typer.Typer(help="Servers of tools: what they offer, and what an administrator confirms.")


@mcp.callback(invoke_without_command=True)
def list_servers(context: typer.Context, json: AsJson = False) -> None:
    """List them, their tools, and why a tool is off. Each server is asked now."""
    from bot.cli.mcp_command import run_list

    if context.invoked_subcommand is None:
        raise typer.Exit(run_list(json))


@mcp.command()
def confirm(
    what: str = typer.Argument(metavar="SERVER[.TOOL]", help="One tool, or all of a server."),
    json: AsJson = False,
) -> None:
    """Approve of tools as they are described now; prints what is approved."""
    from bot.cli.mcp_command import run_confirm

    raise typer.Exit(run_confirm(what, json))
