"""Implement `assistant demo`: a sweep, a triage and a question on the samples."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from bot.cli.ask import SweepOptions, answer_question, read, report_outcome, sweep
from bot.cli.output import result_text
from bot.cli.triage import triage_mailbox
from bot.context import SAMPLE_LISTS
from bot.errors import SetupError
from bot.local.samples import SALES, SAMPLE_AS_OF
from bot.options import Options
from bot.reports.documents import Answer
from bot.terminal import INCOMPLETE, dump, say, tell
from config.settings import Settings, load_settings

TOP_LINES = 24
"""Lines of a report that are printed: two screens hold all three reports."""
QUESTION = "Which market had the largest refunds in March, and how much?"


def run_demo(as_json: bool) -> int:
    """Run sweep, triage and ask; as JSON, the sweep's document includes `triage` and `question`."""
    settings, sample = load_settings(), Options("offline", sample=True)
    wanted = SweepOptions(["csm-*"], next(iter(SAMPLE_LISTS)))
    report, fault = read(settings, sample, partial(sweep, wanted=wanted))
    if not as_json:
        _show("A sweep of five channels", result_text(report), report.run_id)
    digest, later = read(settings, replace(sample, mail=True), triage_mailbox)
    if not as_json:
        _show("A triage of one mailbox", result_text(digest), digest.run_id)
    answer, code = _ask_sample(settings)
    if as_json:
        question = answer.to_json() if answer else None
        dump({**report.to_json(), "triage": digest.to_json(), "question": question})
    elif answer:
        _show(f"A question to a database: {QUESTION}", result_text(answer), answer.run_id)
        say("Next: `assistant serve --local --open` opens the sample workspace in a browser.")
    return max(report_outcome(report, fault), report_outcome(digest, later), code)


def _show(title: str, text: str, run: str) -> None:
    """Print the top of a report, and where the rest is."""
    lines = text.splitlines()
    say(f"=== {title} ===\n")
    say("\n".join(lines[:TOP_LINES]))
    if len(lines) > TOP_LINES:
        say(f"... {len(lines) - TOP_LINES} more lines: assistant show {run}")
    say("")


def _ask_sample(settings: Settings) -> tuple[Answer | None, int]:
    """Return the answer and its exit code; no answer if the store has become full before."""
    options = Options(model="offline", databases=(SALES,), as_of=SAMPLE_AS_OF)
    try:
        answer, fault = read(settings, options, lambda app: answer_question(app, QUESTION))
    except SetupError as error:
        tell(f"error: {error.message} {error.hint}".strip())
        return None, INCOMPLETE
    return answer, report_outcome(answer, fault)
