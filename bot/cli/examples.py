"""The examples at the end of each command's --help."""

from __future__ import annotations

from collections.abc import Iterator

import typer
from typer.models import CommandInfo

EXAMPLES = {
    "demo": ("assistant demo",),
    "ask": (
        'assistant ask "Which questions in #support-es are still unanswered?"',
        'assistant ask "How many orders were there in March?" --database sales.duckdb',
    ),
    "sweep": (
        "assistant sweep --channels 'support-*' --since 7d --markdown",
        "assistant sweep --channels '*' --slack-export export.zip --as-of 2025-04-15",
    ),
    "triage": ("assistant triage --since 2d", "assistant triage --mbox mail.mbox --limit 50"),
    "review": (
        "assistant review change.diff",
        "assistant review plan.md --profile strategy --language de",
    ),
    "serve": ("assistant serve", "assistant serve --local --open"),
    "pause": ("assistant pause --by Ana",),
    "resume": ("assistant resume",),
    "runs": ("assistant runs --limit 5",),
    "feedback": ("assistant feedback --bad",),
    "show": ("assistant show 3aed2eb7a726", "assistant show 3aed2eb7a726 --files results"),
    "audit": ("assistant audit 3aed2eb7a726",),
    "replay": (
        "assistant replay 3aed2eb7a726",
        "assistant replay 3aed2eb7a726 --model claude --from s3",
    ),
    "console": (
        "assistant console",
        "assistant console --port 8123",
        "assistant console --team T0123ABCD",
    ),
    "decisions": ("assistant decisions --since 7d --verdict deny",),
    "forget": (
        "assistant forget --user U0123ABCD --dry-run",
        "assistant forget --source data:sales",
    ),
    "connect": ("assistant connect google",),
    "eval": (
        "assistant eval twins --model offline",
        "assistant eval FOLDER --compare before.json",
        "assistant eval add 3aed2eb7a726 --as good",
    ),
    "review-briefs": ("assistant review-briefs",),
    "scopes": ("assistant scopes",),
    "manifest": ("assistant manifest", "assistant manifest --url https://bot.example.com"),
    "init": ("assistant init",),
    "setup": ("assistant setup", "assistant setup --from-env"),
    "doctor": ("assistant doctor",),
    "backup": ("assistant backup monday.tar.gz",),
    "restore": ("assistant restore monday.tar.gz --force",),
    "approvals deny": ("assistant approvals deny a1b2c3d4",),
    "approvals revoke": ("assistant approvals revoke a1b2c3d4",),
    "mcp confirm": ("assistant mcp confirm crm",),
    "schedules run": ("assistant schedules run markets --dry-run",),
    "schedules pause": ("assistant schedules pause markets",),
    "schedules resume": ("assistant schedules resume markets",),
    "schedules delete": ("assistant schedules delete markets",),
}
"""Command -> one or two lines that work."""


def commands_of(app: typer.Typer) -> Iterator[tuple[str, CommandInfo]]:
    """Yield each command of the app and of its groups, with its name."""
    yield from ((_name(each), each) for each in app.registered_commands)
    for group in app.registered_groups:
        if group.typer_instance:
            for each in group.typer_instance.registered_commands:
                yield f"{group.name} {_name(each)}", each


def _name(command: CommandInfo) -> str:
    assert command.callback
    return command.name or command.callback.__name__.replace("_", "-")


def add_examples(app: typer.Typer) -> None:
    for name, command in commands_of(app):
        if lines := EXAMPLES.get(name):
            # typer joins lines, and keeps empty ones
            command.epilog = "\n\n".join(["Examples:", *(f"  {line}" for line in lines)])
