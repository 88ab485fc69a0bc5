"""The command line. Bodies import late, so that `--help` is instant."""

from __future__ import annotations

import gc
import sys
from pathlib import Path
from typing import Annotated

import typer

from bot.accounts.connect_cli import connect
from bot.approval.cli import approvals
from bot.cli.mcp_cli import mcp
from bot.cli.streams import streams
from bot.cli.typed import AsJson, AsOf, AsUser, Export, Mbox, Me, Model, Sample, once, only
from bot.schedule.cli import schedules
from bot.sweep.cli import sweep

app = typer.Typer(
    name="assistant",
    help="A workspace assistant: isolated subagents, checked results.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.command()
def demo(json: AsJson = False) -> None:
    """Sweep, triage and ask the samples: five markets, one mailbox, sales. No keys, no cost."""
    from bot.cli.demo import run_demo

    raise typer.Exit(run_demo(json))


@app.command()
def ask(
    question: str,
    database: Annotated[
        list[Path] | None,
        typer.Option(help="A database to ask: a DuckDB file, or a folder of tables. Or several."),
    ] = None,
    folder: Annotated[
        list[Path] | None,
        typer.Option(help="A folder to work in, such as a checkout.", callback=once),
    ] = None,
    mbox: Mbox = None,
    me: Me = None,
    slack_export: Export = None,
    sample: Sample = False,
    as_of: AsOf = None,
    since: Annotated[
        str | None,
        typer.Option(help="Length of the window in Slack: 30d, 12h. Default: 7d; of mail all."),
    ] = None,
    model: Model = "claude",
    as_user: AsUser = None,
    json: AsJson = False,
) -> None:
    """Answer one request, from all sources that are given."""
    from bot.cli.commands import run_ask
    from bot.cli.given import GivenAsk

    shared = (slack_export, sample, as_of, since, model, as_user, json)
    sources = (tuple(database or ()), only(folder), only(mbox), me)
    raise typer.Exit(run_ask(GivenAsk(*shared, *sources), question))


app.command()(sweep)


@app.command()
def triage(
    mbox: Mbox = None,
    me: Me = None,
    sample: Annotated[bool, typer.Option("--sample", help="Read the sample mailbox.")] = False,
    as_of: AsOf = None,
    since: Annotated[
        str | None, typer.Option(help="Length of the window: 2d. Default: 7d; of a file all.")
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Most threads that are read, the newest first.")
    ] = None,
    model: Model = "claude",
    resume: Annotated[
        str | None, typer.Option(help="Go on with a triage (a run id) that was cut off.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Triage a mailbox: one subagent a thread, one digest."""
    from bot.triage.command import TriageGiven, run_triage

    raise typer.Exit(
        run_triage(TriageGiven(only(mbox), me, sample, as_of, since, limit, model, json, resume))
    )


@app.command()
def serve(
    local: Annotated[
        bool, typer.Option("--local", help="Serve the sample workspace, with a page to try it on.")
    ] = False,
    model: Annotated[
        str | None, typer.Option(help="claude, or offline (the default with --local).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Of /healthz; default: serve.port.")
    ] = None,
) -> None:
    """Answer in Slack until SIGTERM: mentions, direct messages, threads."""
    gc.disable()  # collecting while all that is imported, and again and again later, costs 0.5 s
    from bot.serving.command import run_serve
    from bot.serving.upkeep import FEW_FULL_COLLECTIONS

    gc.freeze()
    gc.set_threshold(*FEW_FULL_COLLECTIONS)
    gc.enable()
    raise typer.Exit(run_serve(local, model, port))


@app.command()
def pause(
    by: Annotated[str | None, typer.Option(help="Who does it, for those who look.")] = None,
    json: AsJson = False,
) -> None:
    """Stop all new work of the bot, workspace-wide, at once."""
    from bot.cli.paused import run_pause

    raise typer.Exit(run_pause(by, json))


@app.command()
def resume(json: AsJson = False) -> None:
    """Go on after `pause`; what was asked meanwhile is answered now."""
    from bot.cli.paused import run_resume

    raise typer.Exit(run_resume(json))


@app.command()
def runs(
    limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20, json: AsJson = False
) -> None:
    """List the latest runs."""
    from bot.cli.lookups import list_runs

    raise typer.Exit(list_runs(limit, json))


@app.command()
def show(
    run: str,
    files: Annotated[
        Path | None, typer.Option(help="Write the files of the run into this folder instead.")
    ] = None,
    json: AsJson = False,
) -> None:
    """Show one run: its subagents, how they ended, its result."""
    from bot.cli.lookups import show_run

    raise typer.Exit(show_run(run, json, files))


@app.command()
def audit(run: str, json: AsJson = False) -> None:
    """Prove that nothing leaked between the contexts of a run."""
    from bot.cli.lookups import audit_run

    raise typer.Exit(audit_run(run, json))


@app.command()
def decisions(
    run: Annotated[str | None, typer.Argument(help="Of one run; default: of all.")] = None,
    since: Annotated[str | None, typer.Option(help="Of the last: 7d, 12h.")] = None,
    tool: Annotated[str | None, typer.Option(help="About this tool.")] = None,
    verdict: Annotated[
        str | None, typer.Option(help="allow, card, deny, approved, refused, ...")
    ] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="The latest so many.")] = None,
    json: AsJson = False,
) -> None:
    """Show what the gate decided, and by which rule; with --json all of it."""
    from bot.storage.decisions import show_log

    raise typer.Exit(show_log(run, since, tool, verdict, limit, json))


@app.command()
def forget(
    user: Annotated[
        str | None, typer.Option(help="What this person (id) wrote, asked for and left here.")
    ] = None,
    channel: Annotated[str | None, typer.Option(help="All that was read in it (id).")] = None,
    source: Annotated[
        str | None,
        typer.Option(help="A message, row, page, file, or all of data:NAME: its id or link."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what would go.")] = False,
    json: AsJson = False,
) -> None:
    """Delete what is stored of a person, a channel or a source, quotes in answers, too."""
    from bot.erasure.command import run_forget

    raise typer.Exit(run_forget(user, channel, source, dry_run, json))


app.add_typer(approvals, name="approvals")


app.add_typer(schedules, name="schedules")


app.add_typer(mcp, name="mcp")


app.command()(connect)


@app.command("review-briefs")
def review_briefs(json: AsJson = False) -> None:
    """List failed, partial and under-briefed subagents by version of their template."""
    from bot.cli.lookups import review

    raise typer.Exit(review(json))


@app.command()
def scopes(json: AsJson = False) -> None:
    """List the scopes: what each offers now, why a tool is missing, its fixed tokens."""
    from bot.tooling.offers import list_scopes

    raise typer.Exit(list_scopes(json))


@app.command()
def manifest(
    url: Annotated[
        str | None, typer.Option(help="Public https address of the bot, where slack.mode is http.")
    ] = None,
    reasons: Annotated[
        bool, typer.Option("--reasons", help="Print why each OAuth scope is asked for, only.")
    ] = False,
    json: AsJson = False,
) -> None:
    """Print the Slack app manifest for what the configuration uses."""
    from bot.manifest import print_manifest

    raise typer.Exit(print_manifest(url, json, reasons))


@app.command()
def setup(
    from_env: Annotated[
        bool, typer.Option("--from-env", help="Ask nothing: take what the environment holds.")
    ] = False,
    url: Annotated[
        str | None, typer.Option(help="Public https address of the bot, where slack.mode is http.")
    ] = None,
) -> None:
    """Ask for the tokens, try each, and write them to .env."""
    from bot.cli.setup import run_setup

    raise typer.Exit(run_setup(from_env, url))


@app.command()
def doctor(json: AsJson = False) -> None:
    """Check tokens, scopes, events, channels, database and models; say what to mend."""
    from bot.checks.doctor import diagnose

    raise typer.Exit(diagnose(json))


def main(args: list[str] | None = None) -> None:
    """Entry point of the `assistant` command."""
    with streams():
        app(args if args is not None else sys.argv[1:])


if __name__ == "__main__":
    main()
