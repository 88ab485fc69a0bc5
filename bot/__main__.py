"""Define the command line. Function bodies import late, so that `--help` is instant."""

from __future__ import annotations

import gc
import io
import sys
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from typer.core import TyperGroup

from bot.options import Options, read_address, read_date, read_length, read_model

ExportOption = Annotated[
    Path | None, typer.Option("--slack-export", help="Read this Slack export (zip) instead.")
]
SampleOption = Annotated[bool, typer.Option("--sample", help="Read the sample workspace instead.")]
MboxOption = Annotated[
    Path | None, typer.Option("--mbox", help="Read this mailbox file instead (mbox, Takeout).")
]


def parsed_option(read: Callable[[str], Any], what: str, *names: str) -> Any:
    """Return an option whose text is parsed immediately."""
    return typer.Option(*names, parser=read, metavar="TEXT", help=what)


READER_HELP = "Whose mailbox --mbox is: an address (default: the likeliest, named on stderr)."
ReaderOption = Annotated[str | None, parsed_option(read_address, READER_HELP, "--reader", "--me")]
AS_OF_HELP = "End of the window (UTC, exclusive): 2025-04-15 (default: now)."
AsOfOption = Annotated[datetime | None, parsed_option(read_date, AS_OF_HELP)]
SINCE_HELP = "Length of the window: 30d, 12h (default: 7d)."
SinceOption = Annotated[timedelta | None, parsed_option(read_length, SINCE_HELP)]
ModelOption = Annotated[
    str, parsed_option(read_model, "claude, or offline (fixed rules, no key, no cost).")
]
AsUserOption = Annotated[str | None, typer.Option(help="Read with this user's rights (a user id).")]
JsonOption = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]
LimitOption = Annotated[int | None, typer.Option(min=1, help="Read at most this many channels.")]
MarkdownOption = Annotated[bool, typer.Option("--markdown", help="Print the report as Markdown.")]
ResumeOption = Annotated[str | None, typer.Option(help="Resume an interrupted run (its id).")]
UrlOption = Annotated[
    str | None, typer.Option(help="Public https address of the bot, for slack.mode http.")
]
ByOption = Annotated[str | None, typer.Option(help="Name shown to others.")]

FEW_FULL_COLLECTIONS = (2_000, 10, 1_000)
"""Thresholds of the garbage collector, for every command.

A full collection visits all objects of all runs and blocks the event loop for 60 to 240 ms while
1,000 subagents run (`make bench ARGS=delegation`).
"""


class CommandGroup(TyperGroup):
    """Runs a command and returns its exit code; an error of use or set-up is one sentence."""

    def invoke(self, ctx: Any) -> None:
        from bot.terminal import errors_reported

        with errors_reported("--json" in ctx.args):
            code = super().invoke(ctx)
        ctx.exit(code)


app = typer.Typer(
    name="assistant",
    cls=CommandGroup,
    help="A workspace assistant: isolated subagents, checked results.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def examples(*lines: str) -> str:
    """Return the end of a command's help, of one or two lines that work."""
    # typer joins lines, and keeps empty ones
    return "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])


def _print_version(value: bool) -> None:
    if value:
        from importlib.metadata import version

        typer.echo(version("workspace-assistant"))
        raise typer.Exit


@app.callback()
def assistant(
    version: Annotated[
        bool,
        typer.Option(
            "--version", callback=_print_version, is_eager=True, help="Print the version."
        ),
    ] = False,
    team: Annotated[
        str, typer.Option(help="Workspace to look at, if several are served (T...).")
    ] = "",
) -> None:
    """Answer questions from Slack, mail, databases, files and the web; check each claim."""
    from config.settings import TEAM

    TEAM.set(team)


@app.command(epilog=examples("assistant demo"))
def demo(json: JsonOption = False) -> int:
    """Sweep, triage and ask the samples: five markets, one mailbox, sales. No keys, no cost."""
    from bot.cli.reports import run_demo

    return run_demo(json)


@app.command(
    epilog=examples(
        'assistant ask "Which questions in #support-es are still unanswered?"',
        'assistant ask "How many orders were there in March?" --database sales.duckdb',
    )
)
def ask(
    question: str,
    database: Annotated[
        list[Path] | None,
        typer.Option(help="Database to ask: a DuckDB file, or a folder of tables. Repeatable."),
    ] = None,
    folder: Annotated[
        Path | None, typer.Option(help="Folder to work in, such as a checkout.")
    ] = None,
    mbox: MboxOption = None,
    me: ReaderOption = None,
    slack_export: ExportOption = None,
    sample: SampleOption = False,
    as_of: AsOfOption = None,
    since: Annotated[
        timedelta | None,
        parsed_option(
            read_length, "Length of the window in Slack: 30d (default: 7d; mail: everything)."
        ),
    ] = None,
    model: ModelOption = "claude",
    as_user: AsUserOption = None,
    json: JsonOption = False,
) -> int:
    """Answer one request from all given sources."""
    from bot.cli.ask import run_ask

    options = Options(model, slack_export, sample, as_of, since, as_user, mbox=mbox, me=me)
    options = replace(options, databases=tuple(database or ()), folder=folder)
    return run_ask(options, question, json)


@app.command(
    epilog=examples(
        "assistant sweep --channels 'support-*' --since 7d --markdown",
        "assistant sweep --channels '*' --slack-export export.zip --as-of 2025-04-15",
    )
)
def sweep(
    name: Annotated[str | None, typer.Argument(help="Sweep in assistant.yaml.")] = None,
    channels: Annotated[
        list[str] | None,
        typer.Option("--channels", help="Names or globs: 'support-*'. Repeatable."),
    ] = None,
    tracker: Annotated[
        str | None, typer.Option(help="Id of a Slack List that tracks bugs (F...).")
    ] = None,
    slack_export: ExportOption = None,
    sample: SampleOption = False,
    as_of: AsOfOption = None,
    since: SinceOption = None,
    limit: LimitOption = None,
    model: ModelOption = "claude",
    as_user: AsUserOption = None,
    markdown: MarkdownOption = False,
    json: JsonOption = False,
) -> int:
    """Sweep channels for customer issues: one subagent each, one report."""
    from bot.cli.reports import SweepOptions, run_sweep

    options = Options(model, slack_export, sample, as_of, since, as_user)
    sweep_options = SweepOptions(channels or (), tracker, limit, name or "")
    return run_sweep(options, sweep_options, json, markdown)


@app.command(
    epilog=examples("assistant triage --since 2d", "assistant triage --mbox mail.mbox --limit 50")
)
def triage(
    mbox: MboxOption = None,
    me: ReaderOption = None,
    sample: Annotated[bool, typer.Option("--sample", help="Read the sample mailbox.")] = False,
    as_of: AsOfOption = None,
    since: Annotated[
        timedelta | None,
        parsed_option(read_length, "Length of the window: 2d (default: 7d; a file: everything)."),
    ] = None,
    limit: Annotated[
        int | None, typer.Option(min=1, help="Read at most this many threads, newest first.")
    ] = None,
    model: ModelOption = "claude",
    resume: ResumeOption = None,
    json: JsonOption = False,
) -> int:
    """Triage a mailbox: one subagent a thread, one digest."""
    from bot.cli.triage import run_triage

    options = Options(model, None, sample, as_of, since, mail=True, mbox=mbox, me=me)
    return run_triage(options, limit, resume, json)


@app.command(
    epilog=examples(
        "assistant review change.diff", "assistant review plan.md --profile strategy --language de"
    )
)
def review(
    source: Annotated[
        str | None, typer.Argument(help="File, folder or address of a page.", metavar="SOURCE")
    ] = None,
    profile: Annotated[
        str, typer.Option(help="code, strategy, incident, or one of your own.")
    ] = "code",
    language: Annotated[
        str, typer.Option(help="Language of the report, such as de (default: English).")
    ] = "",
    model: ModelOption = "claude",
    resume: ResumeOption = None,
    markdown: MarkdownOption = False,
    json: JsonOption = False,
) -> int:
    """Have a panel of specialists review a file, a folder or a page."""
    from bot.cli.reports import ReviewArgs, run_review

    args = ReviewArgs(source=source, profile=profile, language=language) if source else None
    return run_review(Options(model, mail=True), args, resume, json, markdown)


@app.command(epilog=examples("assistant serve", "assistant serve --local --open"))
def serve(
    local: Annotated[
        bool, typer.Option("--local", help="Serve the sample workspace, with a page to try it on.")
    ] = False,
    model: Annotated[
        str | None, parsed_option(read_model, "claude, or offline (the default with --local).")
    ] = None,
    port: Annotated[
        int | None, typer.Option(min=0, max=65535, help="Port for /healthz (default: serve.port).")
    ] = None,
    page_port: Annotated[
        int, typer.Option(min=0, max=65535, help="With --local: port of the page.")
    ] = 8100,
    open: Annotated[
        bool, typer.Option("--open", help="With --local: open the page in your browser.")
    ] = False,
) -> int:
    """Answer in Slack until SIGTERM: mentions, direct messages, threads."""
    gc.disable()  # garbage collections during the imports, and repeated ones later, cost 0.5 s
    from bot.serving.serve import run_serve

    gc.freeze()
    gc.enable()
    return run_serve(model, port, page_port if local else None, open)


@app.command(epilog=examples("assistant pause --by Ana"))
def pause(by: ByOption = None, json: JsonOption = False) -> int:
    """Stop all new work of the bot in the whole workspace, at once."""
    from bot.cli.runs import run_pause

    return run_pause(json, by)


@app.command(epilog=examples("assistant resume"))
def resume(json: JsonOption = False) -> int:
    """Resume after `pause`; requests that waited are answered now."""
    from bot.cli.runs import run_resume

    return run_resume(json)


@app.command(epilog=examples("assistant runs --limit 5"))
def runs(
    limit: Annotated[int, typer.Option(min=1, help="Number of runs to list.")] = 20,
    json: JsonOption = False,
) -> int:
    """List the latest runs."""
    from bot.cli.runs import list_runs

    return list_runs(json, limit)


@app.command(epilog=examples("assistant feedback --bad"))
def feedback(
    limit: Annotated[int, typer.Option(min=1, help="Number of ratings to list.")] = 20,
    bad: Annotated[bool, typer.Option("--bad", help="Only bad answers.")] = False,
    json: JsonOption = False,
) -> int:
    """List the latest ratings of answers, with their runs and what people said."""
    from bot.cli.runs import list_feedback

    return list_feedback(json, limit, bad)


@app.command(
    epilog=examples("assistant show 3aed2eb7a726", "assistant show 3aed2eb7a726 --files results")
)
def show(
    run: str,
    files: Annotated[
        Path | None, typer.Option(help="Write the files of the run into this folder instead.")
    ] = None,
    thread: Annotated[
        int | None, typer.Option(min=1, help="Show only this thread of a digest, with its draft.")
    ] = None,
    json: JsonOption = False,
) -> int:
    """Show one run: its subagents, how they ended, its result."""
    from bot.cli.runs import show_run

    return show_run(json, run, files, thread)


@app.command(epilog=examples("assistant audit 3aed2eb7a726"))
def audit(run: str, json: JsonOption = False) -> int:
    """Prove that nothing leaked between the contexts of a run."""
    from bot.cli.runs import audit_run

    return audit_run(json, run)


@app.command(
    epilog=examples(
        "assistant replay 3aed2eb7a726", "assistant replay 3aed2eb7a726 --model claude --from s3"
    )
)
def replay(
    run: str,
    model: Annotated[
        str | None,
        parsed_option(read_model, "Ask this model again: claude, or offline (default: none)."),
    ] = None,
    start: Annotated[
        str | None,
        typer.Option("--from", help="With --model: the first context to ask again, such as s3."),
    ] = None,
    json: JsonOption = False,
) -> int:
    """Run a recorded run again with today's prompts and code; say where it departs."""
    from bot.cli.runs import run_replay

    return run_replay(json, run, model, start)


@app.command(epilog=examples("assistant decisions", "assistant decisions 3aed2eb7a726"))
def decisions(
    run: Annotated[str | None, typer.Argument(help="Only of this run (default: all runs).")] = None,
    json: JsonOption = False,
) -> int:
    """Show the decisions of the gate and their rules, latest last."""
    from bot.cli.runs import show_log

    return show_log(json, run)


@app.command(
    epilog=examples(
        "assistant forget --user U0123ABCD --dry-run", "assistant forget --source data:sales"
    )
)
def forget(
    user: Annotated[
        str | None, typer.Option(help="Forget what this person (id) wrote, asked for and stored.")
    ] = None,
    channel: Annotated[
        str | None, typer.Option(help="Forget everything that was read in this channel (id).")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="Forget a message, row, page, file or all of data:NAME, by id or link."),
    ] = None,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Only show what would be deleted.")
    ] = False,
    json: JsonOption = False,
) -> int:
    """Delete the stored data of a person, channel or source, with each run that saw it."""
    from bot.cli.runs import run_forget

    return run_forget(json, dry_run, user=user, channel=channel, source=source)


approvals = typer.Typer(help="Show and decide approvals.")
app.add_typer(approvals, name="approvals")


@approvals.callback(invoke_without_command=True)
def list_approvals(
    context: typer.Context,
    everything: Annotated[bool, typer.Option("--all", help="Include finished ones.")] = False,
    json: JsonOption = False,
) -> int:
    """List actions that wait for approval, and valid grants. Approve them in Slack."""
    from bot.cli.approvals import list_approvals

    return 0 if context.invoked_subcommand else list_approvals(json, everything)


@approvals.command(epilog=examples("assistant approvals deny a1b2c3d4"))
def deny(action: str, json: JsonOption = False) -> int:
    """Deny a waiting action."""
    from bot.cli.approvals import deny_action

    return deny_action(json, action)


@approvals.command(epilog=examples("assistant approvals revoke a1b2c3d4"))
def revoke(grant: str, json: JsonOption = False) -> int:
    """Revoke a standing grant."""
    from bot.cli.approvals import revoke_grant

    return revoke_grant(json, grant)


schedules = typer.Typer(help="Show and change scheduled reports.")
app.add_typer(schedules, name="schedules")


@schedules.callback(invoke_without_command=True)
def list_schedules(context: typer.Context, json: JsonOption = False) -> int:
    """List schedules: next run, last run, last delivery, cost. Nothing is read or sent."""
    from bot.cli.schedules import run_list

    return 0 if context.invoked_subcommand else run_list(json)


@schedules.command("run", epilog=examples("assistant schedules run markets --dry-run"))
def run_schedule(
    name: str,
    dry_run: Annotated[
        bool,
        typer.Option("--dry-run", help="Only show what it would read and where it would post."),
    ] = False,
    json: JsonOption = False,
) -> int:
    """Run a schedule now, in the process that serves."""
    from bot.cli.schedules import run_dry, run_now

    return run_dry(json, name) if dry_run else run_now(json, name)


@schedules.command("pause", epilog=examples("assistant schedules pause markets"))
def pause_schedule(name: str, by: ByOption = None, json: JsonOption = False) -> int:
    """Pause a schedule until it is resumed."""
    from bot.cli.schedules import run_pause

    return run_pause(json, name, by)


@schedules.command("resume", epilog=examples("assistant schedules resume markets"))
def resume_schedule(name: str, json: JsonOption = False) -> int:
    """Resume a schedule; runs that it missed while paused are not made up for."""
    from bot.cli.schedules import run_resume

    return run_resume(json, name)


@schedules.command("delete", epilog=examples("assistant schedules delete markets"))
def delete_schedule(name: str, json: JsonOption = False) -> int:
    """Delete a schedule that was set in chat."""
    from bot.cli.schedules import run_delete

    return run_delete(json, name)


mcp = typer.Typer(help="Show tool servers (MCP) and approve their tools.")
app.add_typer(mcp, name="mcp")


@mcp.callback(invoke_without_command=True)
def list_servers(context: typer.Context, json: JsonOption = False) -> int:
    """List servers, their tools, and why a tool is off. Each server is asked now."""
    from bot.cli.tools import list_servers

    return 0 if context.invoked_subcommand else list_servers(json)


@mcp.command(epilog=examples("assistant mcp confirm crm"))
def confirm(
    what: str = typer.Argument(metavar="SERVER[.TOOL]", help="One tool, or all tools of a server."),
    json: JsonOption = False,
) -> int:
    """Approve tools as they are described now, and print them."""
    from bot.cli.tools import confirm_tools

    return confirm_tools(json, what)


PORT = 3001
"""A fixed port, because a web client of Google names the address that it returns to."""


@app.command(epilog=examples("assistant connect google"))
def connect(
    provider: Annotated[Literal["google"], typer.Argument(help="google: a Gmail mailbox.")],
    disconnect: Annotated[
        bool, typer.Option("--disconnect", help="Revoke the access and delete the tokens.")
    ] = False,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1 to which Google returns.")
    ] = PORT,
    json: JsonOption = False,
) -> int:
    """Connect your own mailbox to the assistant, or disconnect it."""
    from bot.cli.setup import run_connect, run_disconnect

    return run_disconnect(json) if disconnect else run_connect(json, port)


@app.command(epilog=examples("assistant console", "assistant console --port 8123"))
def console(
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 takes a free one.")
    ] = 8200,
) -> int:
    """Show runs, costs and records in your browser, from the stored state."""
    from bot.cli.runs import run_console

    return run_console(False, port)


@app.command(
    "eval",
    epilog=examples(
        "assistant eval twins --model offline",
        "assistant eval FOLDER --compare before.json",
        "assistant eval add 3aed2eb7a726 --as good",
    ),
)
def evaluate(
    suite: Annotated[
        str,
        typer.Argument(
            help="states, triage, asked, filter, sql, twins, panel, or a folder of cases; "
            "add: write cases from a stored run."
        ),
    ],
    run: Annotated[
        str | None, typer.Argument(metavar="[RUN]", help="With add: id of the run.")
    ] = None,
    model: ModelOption = "claude",
    data: Annotated[
        Path | None, typer.Option(help="Folder of labelled data, for the first five suites.")
    ] = None,
    prompts: Annotated[
        Path | None, typer.Option(help="Folder of prompts to use in place of those of the program.")
    ] = None,
    compare: Annotated[Path | None, typer.Option(help="Earlier result (--save).")] = None,
    save: Annotated[Path | None, typer.Option(help="Write the result into this file.")] = None,
    limit: Annotated[int | None, typer.Option(min=1, help="Only so many cases.")] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Leave out the two baselines.")] = False,
    rating: Annotated[
        Literal["good", "bad"] | None,
        typer.Option("--as", help="With add: what the run was (default: as it was rated)."),
    ] = None,
    into: Annotated[Path, typer.Option(help="With add: folder of the cases.")] = Path("cases"),
    json: JsonOption = False,
) -> int:
    """Measure the assistant on cases whose right answers are known, and compare."""
    from bot.cli.evaluate import EvaluationOptions, add_case, run_evaluation

    if (suite == "add") != (run is not None):
        raise typer.BadParameter("`eval add` takes the id of a run, a suite takes none.")
    if run is not None:
        return add_case(json, run, rating, into)
    options = EvaluationOptions(suite, model, data, prompts, compare, save, limit, alone, json)
    return run_evaluation(options)


@app.command("review-briefs", epilog=examples("assistant review-briefs"))
def review_briefs(json: JsonOption = False) -> int:
    """List failed, partial and under-briefed subagents by version of their template."""
    from bot.cli.runs import review

    return review(json)


@app.command(epilog=examples("assistant scopes"))
def scopes(json: JsonOption = False) -> int:
    """List the scopes: their tools, why a tool is missing, their fixed tokens."""
    from bot.cli.tools import list_scopes

    return list_scopes(json)


@app.command(
    epilog=examples("assistant manifest", "assistant manifest --url https://bot.example.com")
)
def manifest(url: UrlOption = None, json: JsonOption = False) -> int:
    """Print the Slack app manifest for this configuration."""
    from bot.manifest import print_manifest

    return print_manifest(url, json)


@app.command(epilog=examples("assistant init"))
def init() -> int:
    """Write a commented assistant.yaml and .env.example into this folder."""
    from bot.cli.setup import run_init

    return run_init()


@app.command(epilog=examples("assistant setup"))
def setup(url: UrlOption = None) -> int:
    """Ask for the tokens, test each, and write them to .env."""
    from bot.cli.setup import run_setup

    return run_setup(url)


@app.command(epilog=examples("assistant doctor"))
def doctor(json: JsonOption = False) -> int:
    """Check tokens, scopes, events, channels, database and models; say what to fix."""
    from bot.doctor.doctor import diagnose

    return diagnose(json)


@app.command(epilog=examples("assistant backup monday.tar.gz"))
def backup(
    file: Annotated[Path, typer.Argument(help="File to write, such as monday.tar.gz.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite the file.")] = False,
) -> int:
    """Write all stored state into one file, also while the bot runs; the key is not inside."""
    from bot.cli.backup import run_backup

    return run_backup(file, force)


@app.command(epilog=examples("assistant restore monday.tar.gz --force"))
def restore(
    file: Annotated[Path, typer.Argument(help="File that `assistant backup` wrote.")],
    force: Annotated[
        bool, typer.Option("--force", help="Replace the state that is there.")
    ] = False,
) -> int:
    """Restore the state from a backup; the bot must not run."""
    from bot.cli.backup import run_restore

    return run_restore(file, force)


def main(args: list[str] | None = None) -> None:
    """Run the `assistant` command."""
    gc.set_threshold(*FEW_FULL_COLLECTIONS)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a `?` for what a terminal cannot show
    app(args if args is not None else sys.argv[1:])


if __name__ == "__main__":
    main()
