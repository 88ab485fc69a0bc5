"""`assistant demo`: a sweep, a triage and a question about data on the samples, without keys."""

from __future__ import annotations

from bot.app import App, Options
from bot.cli.commands import answered, ended, read, sample_options, sample_sweep
from bot.cli.outcome import INCOMPLETE, Document, dump, guarded, say, tell
from bot.cli.report import ask_text, sweep_text
from bot.errors import SetupError
from bot.local.sample_sales import SALES
from bot.local.sample_workspace import SAMPLE_AS_OF
from bot.triage.command import TriageGiven, told
from config.settings import Settings, load_settings

QUESTION = "Which market had the largest refunds in March, and how much?"


def run_demo(as_json: bool) -> int:
    """One after the other; as JSON the sweep's document with `triage` and `question` in it."""

    def run() -> int:
        settings = load_settings()
        sweep, fault = read(settings, sample_options(), sample_sweep)
        if not as_json:
            say(sweep_text(sweep) + "\n")
        given = TriageGiven.of_sample()
        triage, later = read(settings, given.options(), given.triage)
        if not as_json:
            say(told(triage) + "\n")
        answer, code = _asked(settings)
        if as_json:
            dump({**sweep, "triage": triage, "question": answer})
        elif answer:
            say(f"Asked of the sample sales database: {QUESTION}\n\n{ask_text(answer)}")
        return max(ended(sweep, fault), ended(triage, later), code)

    return guarded(run, as_json)


def _asked(settings: Settings) -> tuple[Document | None, int]:
    """The answer and its exit code; none where the store has become full before."""
    try:
        answer, fault = read(settings, _sales(), _ask)
    except SetupError as error:
        tell(f"error: {error.message} {error.hint}".strip())
        return None, INCOMPLETE
    return answer, ended(answer, fault)


def _sales() -> Options:
    """The sample sales database alone, as of the day of the samples."""
    return Options(model="offline", databases=(SALES,), as_of=SAMPLE_AS_OF)


async def _ask(app: App) -> Document:
    return await answered(app, QUESTION)
