"""`assistant sweep`. Its body imports late, so that `--help` is instant."""

from __future__ import annotations

from typing import Annotated

import typer

from bot.cli.typed import AsJson, AsOf, AsUser, Export, Limit, Model, Sample, Since


def sweep(
    name: Annotated[
        str | None, typer.Argument(help="A sweep of assistant.yaml; it goes on from its last one.")
    ] = None,
    channels: Annotated[
        list[str] | None,
        typer.Option("--channels", help="Names or globs: 'support-*'. Repeatable."),
    ] = None,
    tracker: Annotated[
        str | None, typer.Option(help="Id of a Slack List that tracks bugs (F...).")
    ] = None,
    slack_export: Export = None,
    sample: Sample = False,
    as_of: AsOf = None,
    since: Since = None,
    limit: Limit = None,
    model: Model = "claude",
    as_user: AsUser = None,
    now: Annotated[
        bool, typer.Option("--now", help="Have the process that serves run NAME now.")
    ] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only say what serve would read and post for NAME.")
    ] = False,
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the report as Markdown.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Sweep channels for customer issues: one subagent each, one report."""
    from bot.cli.commands import run_sweep
    from bot.cli.given import Given

    if now or dry_run:
        alone = not (channels or sample or slack_export)
        raise typer.Exit(_of_serve(name if alone else None, dry_run, json))
    given = Given(slack_export, sample, as_of, since, model, as_user, json)
    raise typer.Exit(run_sweep(given, name, channels or (), tracker, limit, markdown=markdown))


def _of_serve(name: str | None, dry_run: bool, json: bool) -> int:
    """What concerns the schedule of this name, rather than a sweep on the terminal."""
    from bot.schedule.command import run_now, which_schedule
    from bot.schedule.trying import run_dry

    if not name:
        return which_schedule(json)
    return run_dry(name, json) if dry_run else run_now(name, json)
