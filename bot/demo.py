"""`assistant demo`: a sweep and a triage of the sample workspace, without keys."""

from __future__ import annotations

from bot.commands import ended, read, sample_options, sample_sweep
from bot.outcome import dump, guarded, say
from bot.report import sweep_text
from bot.triage_command import TriageGiven, told
from config.settings import load_settings


def run_demo(as_json: bool) -> int:
    """Both, one after the other; with `as_json` the sweep's document, with `triage` in it."""

    def run() -> int:
        settings = load_settings()
        sweep, fault = read(settings, sample_options(), sample_sweep)
        if not as_json:
            say(sweep_text(sweep) + "\n")
        given = TriageGiven.of_sample()
        triage, later = read(settings, given.options(), given.triage)
        if as_json:
            dump({**sweep, "triage": triage})
        else:
            say(told(triage))
        return max(ended(sweep, fault), ended(triage, later))

    return guarded(run, as_json)
