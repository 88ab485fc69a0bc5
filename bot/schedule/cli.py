"""`assistant schedules`: its commands. Bodies import late, so that `--help` is instant."""

from __future__ import annotations

from typing import Annotated

import typer

AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
By = Annotated[str | None, typer.Option(help="Who does it, for those who look.")]

schedules = typer.Typer(help="Reports that come by themselves: how each of them stands.")


@schedules.callback(invoke_without_command=True)
def list_schedules(
    context: typer.Context,
    dry_run: Annotated[
        str | None,
        typer.Option("--dry-run", metavar="NAME", help="Say what one would read and post now."),
    ] = None,
    json: AsJson = False,
) -> None:
    """List them: next run, last run, last delivery, cost. Nothing is read or sent."""
    from bot.schedule.command import run_list
    from bot.schedule.trying import run_dry

    if context.invoked_subcommand is None:
        raise typer.Exit(run_dry(dry_run, json) if dry_run else run_list(json))


@schedules.command()
def now(name: str, json: AsJson = False) -> None:
    """Have one run now, besides its times, by the process that serves."""
    from bot.schedule.command import run_now

    raise typer.Exit(run_now(name, json))


@schedules.command()
def pause(name: str, by: By = None, json: AsJson = False) -> None:
    """Begin nothing for one until it is resumed."""
    from bot.schedule.command import run_pause

    raise typer.Exit(run_pause(name, by, json))


@schedules.command()
def resume(name: str, json: AsJson = False) -> None:
    """Let one go on; what came due while it was paused is not caught up."""
    from bot.schedule.command import run_resume

    raise typer.Exit(run_resume(name, json))


@schedules.command()
def delete(name: str, json: AsJson = False) -> None:
    """Delete one that was set in chat."""
    from bot.schedule.command import run_delete

    raise typer.Exit(run_delete(name, json))
