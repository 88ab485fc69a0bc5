"""Golden files: what a user, Slack and the model see, as `make golden` wrote it down.

Of the development data (`../shared/data/dev`) only a hash of each part is kept.
"""

from __future__ import annotations

import difflib
import hashlib
import json
import os
import re
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from email import message_from_bytes
from email.message import EmailMessage
from email.policy import default
from pathlib import Path
from typing import Any

import pytest
from bot_kit import Shell, model_at
from engine_kit import MUX, is_child
from pydantic import SecretStr
from schedule_kit import ScheduledBot, scheduled_bot, sweep
from serve_kit import Served, change_settings
from standins.google import TOKEN, LocalGoogle
from standins.google_oauth import CLIENT_ID, CLIENT_SECRET, LocalGoogleOauth
from standins.slack import LocalSlack
from standins.slack_shown import Shown
from test_channel_sweep import with_tracker

from bot.local.offline.model import answer as offline
from bot.local.sample_workspace import load_sample, load_sample_mailbox
from bot.local.samples import SAMPLE_AS_OF, SAMPLE_DAYS, SAMPLE_OWNER
from bot.local.workspace import micros
from bot.mailbox.accounts import Credentials
from bot.reports.documents import SweepReport
from bot.reports.markdown import report_markdown
from config.settings import Settings
from scopes.google.auth import MailboxTokens

Json = dict[str, Any]
Check = Callable[[str, object], None]

DAY = timedelta(days=1)
GOLDEN = Path(__file__).parent / "golden"
REWRITE = os.environ.get("GOLDEN") == "write"

QUESTION = "Which questions in #csm-spain are still unanswered?"
FIGURES = "Which market had the largest refunds in March, and how much?"
TABLES = "Which tables are there?"
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "ask": ("ask", QUESTION),
    "ask-figures": ("ask", FIGURES),
    "sweep": ("sweep", "--channels", "csm-*", "--tracker", "F0BUGTRACK"),
    "triage": ("triage",),
}
MENTIONS = {"ask": QUESTION, "sweep": "sweep csm-*", "triage": "triage my inbox"}
MARKDOWN = ("sweep",)
"""Commands with a report in Markdown, too."""


# ---- what differs from one run to the next

NOW = "…now"
VARYING = (
    (re.compile(r"(?<![\w-])[0-9a-f]{12}(?![\w-])"), "RUN"),
    (re.compile(r"\bitems-[0-9a-f]{32}\b"), "items-DELIMITER"),
    (re.compile(r"\bq-[0-9a-f]{6}\b"), "q-QUERY"),
    (re.compile(r"\btoolu_[0-9a-f]{24}\b"), "toolu_CALL"),
    (re.compile(r"\$0\.0\d+|[\d,]+ tokens(?= · run )|\b\d+ s(?= · run )"), "SPENT"),
    (re.compile(r"\b\d{3,} days\b"), "AGE days"),  # since the samples, on the day of this run
)
EPOCH = re.compile(r"(?<![\da-f])(\d{10})(?:\.?\d{6})?(?![\da-f])")
THIS_YEAR = re.compile(rf"(?<=\d [A-Z][a-z]{{2}}) {SAMPLE_AS_OF.year}\b")
"""Dates leave the year out where it is the current one."""


def stable(text: str) -> str:
    """Return the text without random ids, delimiters, costs and current times."""
    for pattern, name in VARYING:
        text = pattern.sub(name, text)
    today = datetime.now(UTC)
    for day in (today - DAY, today, today + DAY):
        for written in (f"{day:%Y-%m-%d}", f"{day.day} {day:%b %Y}", f"{day.day} {day:%B %Y}"):
            text = re.sub(rf"\b{written}(?:T[\d:.]+Z?| \d\d:\d\d)?", NOW, text)
    text = THIS_YEAR.sub("", text)
    recent = (today - 2 * DAY).timestamp()
    return EPOCH.sub(lambda found: NOW if int(found[1]) > recent else found[0], text)


def plain(value: object) -> object:
    """Return a document for comparison: without costs, texts of several lines as lists."""
    if isinstance(value, Mapping):
        spent = ("cost_usd", "usage")
        return {k: "SPENT" if k in spent else plain(v) for k, v in value.items()}
    if isinstance(value, str):
        return value.split("\n") if "\n" in value else value
    if isinstance(value, Sequence):
        return [plain(each) for each in value]
    return value


def as_text(value: object) -> str:
    if isinstance(value, str):
        return stable(value)
    dumped = json.dumps(plain(value), indent=1, ensure_ascii=False, sort_keys=True)
    return stable(dumped) + "\n"


@pytest.fixture
def check() -> Check:
    """Return a function that compares with the golden file of a name, or writes it."""

    def compare(name: str, value: object) -> None:
        path, text = GOLDEN / name, as_text(value)
        if REWRITE:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        expected = path.read_text("utf-8") if path.exists() else ""
        diff = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=2
        )
        if lines := list(diff):
            summary = f"{len(lines)} lines differ. `make golden` rewrites the file."
            pytest.fail("\n".join([*lines[:200], summary]), pytrace=False)

    return compare


# ---- commands


def command_output(shell: Shell, *args: object) -> str:
    """Return all that a command prints; lines of progress come in any order."""
    result = shell(*args)
    progress = "\n".join(sorted(result.err.splitlines()))
    return f"{result.out}\n---- stderr, sorted\n{progress}\n---- exit {result.code}\n"


def stored_document(shell: Shell) -> Json:
    """Return the document of the only run; `--json` prints it, too."""
    (run,) = shell("runs", "--json").json
    result: Json = shell("show", run["id"], "--json").json["result"]
    return result


def markdown(document: Json) -> str:
    report = SweepReport.model_validate(document)
    return report_markdown(report) + "\n"


@pytest.mark.parametrize("name", COMMANDS)
def test_command_output_for_the_sample_matches_golden_files(
    shell: Shell, check: Check, name: str
) -> None:
    check(f"{name}.txt", command_output(shell, *COMMANDS[name], "--sample", "--model", "offline"))
    document = stored_document(shell)
    check(f"{name}.json", document)
    if name in MARKDOWN:
        check(f"{name}.md", markdown(document))


EXPORT = ("--slack-export", "slack_export.zip", "--as-of", "2025-04-15", "--since", "7d")
DEV: Mapping[str, tuple[str, ...]] = {
    "ask": ("ask", "Which questions in #support-es are still unanswered?", *EXPORT),
    "ask-figures": ("ask", TABLES, "--database", "business.duckdb", "--as-of", "2024-07-01"),
    "sweep": ("sweep", "--channels", "support-*", *EXPORT),
    "triage": ("triage", "--mbox", "mail.mbox", "--limit", "50"),
}


@pytest.mark.parametrize("name", DEV)
def test_command_output_for_development_data_matches_golden_hashes(
    shell: Shell, check: Check, dev_data: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.chdir(dev_data)
    printed = command_output(shell, *DEV[name], "--model", "offline")
    document = stored_document(shell)
    parts: dict[str, object] = {f"json {key}": value for key, value in document.items()}
    parts["txt"] = printed
    if name in MARKDOWN:
        parts["md"] = markdown(document)
    hashes = {k: hashlib.sha256(as_text({k: v}).encode()).hexdigest() for k, v in parts.items()}
    check(f"dev-{name}.json", hashes)


# ---- the model


def context_of(body: Json) -> str:
    """Return the beginning that all requests of one context share."""
    return as_text([body.get("system"), body["messages"][0]])


@pytest.mark.parametrize("name", COMMANDS)
def test_model_requests_match_golden_files(
    shell: Shell, check: Check, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with model_at(monkeypatch) as server:
        assert shell(*COMMANDS[name], "--sample", "--json").code == 0
    check(f"model-{name}.json", group_by_context(server.recorded))


def group_by_context(bodies: Sequence[Json]) -> Json:
    """Return the last request of each context, parents first, with the number of its requests.

    System prompts and tools that several contexts send are listed once.
    """
    contexts: dict[str, list[Json]] = {}
    for body in bodies:
        contexts.setdefault(context_of(body), []).append(body)
    shared: dict[str, str] = {}
    entries = []
    for _, sent in sorted(contexts.items(), key=lambda each: (is_child(each[1][0]), each[0])):
        last = dict(max(sent, key=lambda body: len(body["messages"])))
        for part in ("system", "tools"):
            if part in last:
                value = last[part]
                last[part] = shared.setdefault(as_text(value), f"{part} {len(shared) + 1}")
        entries.append({"requests": len(sent), **last})
    return {
        "contexts": entries,
        "shared": {name: json.loads(text) for text, name in shared.items()},
    }


# ---- Slack


@asynccontextmanager
async def sample_served(tmp_path: Path) -> AsyncIterator[tuple[ScheduledBot, LocalGoogle]]:
    """Serve a bot like `serve --local`, with the mailbox of its owner connected."""
    google = LocalGoogle(load_sample_mailbox())
    with MUX.served_app(google.app) as url, MUX.served_app(LocalGoogleOauth().app) as oauth:

        def change(settings: Settings) -> Settings:
            endpoints = {"gmail_api_endpoint": url, "google_oauth_endpoint": oauth}
            secret = {"google_client_secret": SecretStr(CLIENT_SECRET)}
            return with_tracker(change_settings(settings, endpoints=endpoints, secrets=secret))

        long = {"since_days": (datetime.now(UTC) - SAMPLE_AS_OF).days + SAMPLE_DAYS + 1}
        sections: Json = {"sweep": long, "triage": long, "google": {"client_id": CLIENT_ID}}
        slack = LocalSlack(load_sample())
        async with scheduled_bot(
            tmp_path, {}, offline, slack=slack, change=change, **sections
        ) as s:
            tokens = {"access_token": TOKEN, "refresh_token": "r", "address": google.gmail.address}
            mailbox = MailboxTokens.model_validate(tokens)
            await Credentials(s.bot.store.database).put(SAMPLE_OWNER, mailbox)
            yield s, google


def posted_messages(bot: Served, channel: str, messages: Sequence[Shown]) -> list[Json]:
    """Return messages as Slack has them: text of the notification, blocks, attached files."""
    timeline = bot.slack.state.timelines[channel]
    return [
        {
            "text": timeline[micros(m.ts)].text,
            "blocks": m.blocks,
            "event": (m.metadata or {}).get("event_type"),
            "thread": bool(m.thread_ts),
            "files": {f.name: f.content.decode("utf-8", "replace") for f in m.files},
        }
        for m in messages
    ]


async def test_slack_posts_and_schedule_deliveries_match_golden_files(
    tmp_path: Path, check: Check
) -> None:
    async with sample_served(tmp_path) as (s, google):
        home = s.bot.slack.people.dm(SAMPLE_OWNER)
        for name, text in MENTIONS.items():
            question = s.bot.slack.people.say(SAMPLE_OWNER, home, text)
            await s.bot.answers(question, channel=home, seconds=60)
            check(f"slack-{name}.json", posted_messages(s.bot, home, s.bot.replies(question, home)))
        before = {message.ts for message in s.bot.slack.visible(home)}
        options: Json = {"tracker": "F0BUGTRACK", "owner": SAMPLE_OWNER, "since_days": SAMPLE_DAYS}
        for name, to in (("posted", "dm"), ("mailed", google.gmail.address)):
            await s.set(name, sweep(channels=("csm-*",), to=to, **options))
            delivery = await s.wait_for_delivery(await s.fire(name, SAMPLE_AS_OF))
            assert delivery.delivery == "delivered", delivery.why
        delivered = [m for m in s.bot.slack.visible(home) if m.ts not in before]
        check("schedule-posted.json", posted_messages(s.bot, home, delivered))
        (sent,) = (google.gmail.messages[id].raw for id in google.gmail.sent)
    mail = message_from_bytes(sent, EmailMessage, policy=default)
    parts = {p.get_content_type(): p.get_content() for p in mail.walk() if not p.is_multipart()}
    parts["text/html"] = parts["text/html"].replace("><", ">\n<")
    check("schedule-mail.json", {"Subject": mail["Subject"], **parts})
