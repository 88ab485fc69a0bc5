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
from schedule_kit import Scheduled, scheduled_bot, sweep
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
"""Commands that have this form, too."""


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
"""Left out after a day where it is the year in which it is read."""


def stable(text: str) -> str:
    """The text without random ids, delimiters, figures of cost, and times of now."""
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
    """A document for comparison: figures of cost left out, a text of several lines as its lines."""
    if isinstance(value, Mapping):
        spent = ("cost_usd", "usage")
        return {k: "SPENT" if k in spent else plain(v) for k, v in value.items()}
    if isinstance(value, str):
        return value.split("\n") if "\n" in value else value
    if isinstance(value, Sequence):
        return [plain(each) for each in value]
    return value


def as_text(shown: object) -> str:
    if isinstance(shown, str):
        return stable(shown)
    dumped = json.dumps(plain(shown), indent=1, ensure_ascii=False, sort_keys=True)
    return stable(dumped) + "\n"


@pytest.fixture
def check() -> Check:
    """Compares with the golden file of this name, or writes it."""

    def compare(name: str, shown: object) -> None:
        path, text = GOLDEN / name, as_text(shown)
        if REWRITE:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, "utf-8")
        kept = path.read_text("utf-8") if path.exists() else ""
        differs = difflib.unified_diff(
            kept.splitlines(), text.splitlines(), f"golden/{name}", "now", lineterm="", n=2
        )
        if lines := list(differs):
            told = f"{len(lines)} lines differ. `make golden` writes the file anew."
            pytest.fail("\n".join([*lines[:200], told]), pytrace=False)

    return compare


# ---- commands


def command_output(shell: Shell, *args: object) -> str:
    """All that a command prints; what it says of its progress comes in any order."""
    done = shell(*args)
    progress = "\n".join(sorted(done.err.splitlines()))
    return f"{done.out}\n---- stderr, sorted\n{progress}\n---- exit {done.code}\n"


def stored_document(shell: Shell) -> Json:
    """The document of the only run, which `--json` prints, too."""
    (run,) = shell("runs", "--json").json
    result: Json = shell("show", run["id"], "--json").json["result"]
    return result


def markdown(document: Json) -> str:
    report = SweepReport.model_validate(document)
    return report_markdown(report, place="assistant sweep --json") + "\n"


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
    """What the requests of one context have in common: they only grow."""
    return as_text([body.get("system"), body["messages"][0]])


@pytest.mark.parametrize("name", COMMANDS)
def test_model_requests_match_golden_files(
    shell: Shell, check: Check, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    with model_at(monkeypatch) as server:
        assert shell(*COMMANDS[name], "--sample", "--json").code == 0
    check(f"model-{name}.json", group_by_context(server.recorded))


def group_by_context(bodies: Sequence[Json]) -> Json:
    """The last request of each context, parents first, and how many there were of it. What several
    send word for word (system prompts, tools) is given once."""
    contexts: dict[str, list[Json]] = {}
    for body in bodies:
        contexts.setdefault(context_of(body), []).append(body)
    shared: dict[str, str] = {}
    told = []
    for _, sent in sorted(contexts.items(), key=lambda each: (is_child(each[1][0]), each[0])):
        last = dict(max(sent, key=lambda body: len(body["messages"])))
        for part in ("system", "tools"):
            if part in last:
                value = last[part]
                last[part] = shared.setdefault(as_text(value), f"{part} {len(shared) + 1}")
        told.append({"requests": len(sent), **last})
    return {"contexts": told, "shared": {name: json.loads(text) for text, name in shared.items()}}


# ---- Slack


@asynccontextmanager
async def sample_served(tmp_path: Path) -> AsyncIterator[tuple[Scheduled, LocalGoogle]]:
    """A bot as `serve --local` has it, with the mailbox of its owner connected."""
    google = LocalGoogle(load_sample_mailbox())
    with MUX.served_app(google.app) as url, MUX.served_app(LocalGoogleOauth().app) as oauth:

        def change(settings: Settings) -> Settings:
            there = {"gmail_api_endpoint": url, "google_oauth_endpoint": oauth}
            secret = {"google_client_secret": SecretStr(CLIENT_SECRET)}
            return with_tracker(change_settings(settings, endpoints=there, secrets=secret))

        long = {"since_days": (datetime.now(UTC) - SAMPLE_AS_OF).days + SAMPLE_DAYS + 1}
        sections: Json = {"sweep": long, "triage": long, "google": {"client_id": CLIENT_ID}}
        slack = LocalSlack(load_sample())
        async with scheduled_bot(
            tmp_path, {}, offline, slack=slack, change=change, **sections
        ) as s:
            tokens = {"access_token": TOKEN, "refresh_token": "r", "address": google.gmail.address}
            given = MailboxTokens.model_validate(tokens)
            await Credentials(s.bot.store.database).put(SAMPLE_OWNER, given)
            yield s, google


def posted_messages(bot: Served, channel: str, messages: Sequence[Shown]) -> list[Json]:
    """Messages as Slack has them: text of the notification, blocks, attached files."""
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
            asked = s.bot.slack.people.say(SAMPLE_OWNER, home, text)
            await s.bot.answers(asked, channel=home, seconds=60)
            check(f"slack-{name}.json", posted_messages(s.bot, home, s.bot.replies(asked, home)))
        before = {message.ts for message in s.bot.slack.visible(home)}
        given: Json = {"tracker": "F0BUGTRACK", "owner": SAMPLE_OWNER, "since_days": SAMPLE_DAYS}
        for name, to in (("posted", "dm"), ("mailed", google.gmail.address)):
            await s.set(name, sweep(channels=("csm-*",), to=to, **given))
            delivery = await s.wait_for_delivery(await s.fire(name, SAMPLE_AS_OF))
            assert delivery.delivery == "delivered", delivery.why
        delivered = [m for m in s.bot.slack.visible(home) if m.ts not in before]
        check("schedule-posted.json", posted_messages(s.bot, home, delivered))
        (sent,) = (google.gmail.messages[id].raw for id in google.gmail.sent)
    mail = message_from_bytes(sent, EmailMessage, policy=default)
    parts = {p.get_content_type(): p.get_content() for p in mail.walk() if not p.is_multipart()}
    parts["text/html"] = parts["text/html"].replace("><", ">\n<")
    check("schedule-mail.json", {"Subject": mail["Subject"], **parts})
