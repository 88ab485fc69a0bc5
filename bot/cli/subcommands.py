"""Define the subcommands. Function bodies import late, so that `--help` is instant."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

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


By = Annotated[str | None, typer.Option(help="Name shown to others.")]

schedules = typer.Typer(help="Show and change scheduled reports.")


@schedules.callback(invoke_without_command=True)
def list_schedules(context: typer.Context, json: AsJson = False) -> None:
    """List schedules: next run, last run, last delivery, cost. Nothing is read or sent."""
    from bot.cli.schedules import run_list

    if context.invoked_subcommand is None:
        raise typer.Exit(run_list(json))


@schedules.command()
def run(
    name: str,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what it would read and where it would post."),
    ] = False,
    json: AsJson = False,
) -> None:
    """Run a schedule now, in the process that serves."""
    from bot.cli.schedules import run_dry, run_now

    raise typer.Exit(run_dry(json, name) if dry_run else run_now(json, name))


@schedules.command()
def pause(name: str, by: By = None, json: AsJson = False) -> None:
    """Pause a schedule until it is resumed."""
    from bot.cli.schedules import run_pause

    raise typer.Exit(run_pause(json, name, by))


@schedules.command()
def resume(name: str, json: AsJson = False) -> None:
    """Resume a schedule; runs that it missed while paused are not made up for."""
    from bot.cli.schedules import run_resume

    raise typer.Exit(run_resume(json, name))


@schedules.command()
def delete(name: str, json: AsJson = False) -> None:
    """Delete a schedule that was set in chat."""
    from bot.cli.schedules import run_delete

    raise typer.Exit(run_delete(json, name))


approvals = typer.Typer(help="Show and decide approvals.")


@approvals.callback(invoke_without_command=True)
def list_approvals(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Include finished ones.")] = False,
    json: AsJson = False,
) -> None:
    """List actions that wait for approval, and valid grants. Approve them in Slack."""
    from bot.cli.approvals import list_approvals

    if context.invoked_subcommand is None:
        raise typer.Exit(list_approvals(json, everything))


@approvals.command()
def deny(action: str, json: AsJson = False) -> None:
    """Deny a waiting action."""
    from bot.cli.approvals import deny_action

    raise typer.Exit(deny_action(json, action))


@approvals.command()
def revoke(grant: str, json: AsJson = False) -> None:
    """Revoke a standing grant."""
    from bot.cli.approvals import revoke_grant

    raise typer.Exit(revoke_grant(json, grant))


PORT = 3001
"""A fixed port, because a web client of Google names the address that it returns to."""


def connect(
    provider: Annotated[Literal["google"], typer.Argument(help="google: a Gmail mailbox.")],
    disconnect: Annotated[
        bool, typer.Option("--disconnect", help="Revoke the access and delete the tokens.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1 to which Google returns.")
    ] = PORT,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Connect your own mailbox to the assistant, or disconnect it."""
    from bot.cli.connect import run_connect, run_disconnect

    raise typer.Exit(run_disconnect(json) if disconnect else run_connect(json, port))


def console(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8200,
    team: Annotated[
        str, typer.Option(help="Workspace to show, if several are served (T...).")
    ] = "",
) -> None:
    """Show runs, costs and records in your browser, from the stored state."""
    from bot.cli.console import run_console
    from config.settings import TEAM

    if team:
        TEAM.set(team)

    raise typer.Exit(run_console(False, port))


mcp = typer.Typer(help="Show tool servers (MCP) and approve their tools.")


@mcp.callback(invoke_without_command=True)
def list_servers(context: typer.Context, json: AsJson = False) -> None:
    """List servers, their tools, and why a tool is off. Each server is asked now."""
    from bot.cli.mcp import run_list

    if context.invoked_subcommand is None:
        raise typer.Exit(run_list(json))


@mcp.command()
def confirm(
    what: str = typer.Argument(metavar="SERVER[.TOOL]", help="One tool, or all tools of a server."),
    json: AsJson = False,
) -> None:
    """Approve tools as they are described now, and print them."""
    from bot.cli.mcp import run_confirm

    raise typer.Exit(run_confirm(json, what))


def sweep(
    name: Annotated[str | None, typer.Argument(help="Sweep in assistant.yaml.")] = None,
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
    markdown: Annotated[
        bool, typer.Option("--markdown", help="Print the report as Markdown.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Sweep channels for customer issues: one subagent each, one report."""
    from bot.cli.ask import ReadingOptions, run_sweep

    given = ReadingOptions(slack_export, sample, as_of, since, model, as_user, json)
    raise typer.Exit(run_sweep(given, name, channels or (), tracker, limit, markdown=markdown))


def evaluate(
    suite: Annotated[
        str,
        typer.Argument(
            help="states, triage, asked, filter, sql, twins, panel, or a folder of cases; "
            "add: write cases from a stored run.",
        ),
    ],
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="With add: id of the run.")
    ] = None,
    model: Model = "claude",
    data: Annotated[
        Path | None, typer.Option(help="Folder of labelled data, for the first five suites.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Folder of prompts to use in place of those of the program.")
    ] = None,
    compare: Annotated[
        Path | None, typer.Option(help="Earlier result (--save), or a folder of prompts.")
    ] = None,
    save: Annotated[Path | None, typer.Option(help="Write the result into this file.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many cases.")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Leave out the two baselines.")] = False,
    rating: Annotated[
        Literal["good", "bad"] | None,
        typer.Option("--as", help="With add: what the run was (default: as it was rated)."),
    ] = None,
    into: Annotated[Path, typer.Option(help="With add: folder of the cases.")] = Path("cases"),
    json: AsJson = False,
) -> None:
    """Measure the assistant on cases whose right answers are known, and compare."""
    from bot.cli.evaluate import EvaluationOptions, add_case, run_evaluation

    if (suite == "add") != (run is not None):
        raise typer.BadParameter("`eval add` takes the id of a run, a suite takes none.")
    if run is not None:
        raise typer.Exit(add_case(json, run, rating, into))
    given = EvaluationOptions(suite, model, data, prompts, compare, save, limit, alone, json)
    raise typer.Exit(run_evaluation(given))
