"""Cases from stored runs: what people rated, and what they corrected in a digest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from bot.citations import CITED
from bot.errors import SetupError
from bot.evaluation.cases import Case, Expected, Job, Sources
from bot.evaluation.observation import cited_items
from bot.mailbox.accounts import OPERATOR
from bot.mailbox.actions import Correction, Corrections
from bot.reports.documents import (
    AnswerDocument,
    PanelReport,
    SweepReport,
    TriageReport,
    parse_document,
)
from bot.runs.store import Store
from bot.storage.database import Database
from bot.storage.requests import Rating, RequestQueue
from bot.storage.tables import StoredRun

GOOD, BAD = "good", "bad"
RATINGS = 10_000
"""Latest ratings among which those of the run are looked for."""


async def cases_of_run(database: Database, run_id: str, rating: str | None) -> list[Case]:
    """Return cases with what was right or wrong in a run. Raises SetupError if nothing tells."""
    run = await Store(database).run(run_id)
    if run.result is None:
        raise SetupError("no_result", f"The run {run.id} has no result.", "Take another run.")
    ratings = [r for r in await RequestQueue(database).ratings(RATINGS) if r.run == run.id]
    document = parse_document(run.result)
    rating = rating or _rating(ratings)
    if isinstance(document, TriageReport):
        corrections = await Corrections(database).all(run.requester or OPERATOR)
        cases = list(_triage_cases(run, document, corrections, rating))
    elif rating is None:
        hint = "Say whether it was: --as good, or --as bad."
        raise SetupError("not_rated", f"Nobody has rated the run {run.id}.", hint)
    elif isinstance(document, SweepReport):
        cases = list(_sweep_cases(run, document)) if rating == GOOD else []
    elif isinstance(document, PanelReport):
        cases = list(_panel_cases(run, document)) if rating == GOOD else []
    else:
        cases = list(_answer_cases(run, document, rating, _note(ratings)))
    if not cases:
        what = f"Nothing in the run {run.id} says what would have been right."
        raise SetupError("no_case", what, "Write the case by hand: docs/evaluation.md.")
    return cases


def _rating(ratings: Sequence[Rating]) -> str | None:
    """Return what most people say; None if nobody does, or as many say the other."""
    votes = Counter(each.value for each in ratings)
    if votes[GOOD] == votes[BAD]:
        return None
    return GOOD if votes[GOOD] > votes[BAD] else BAD


def _note(ratings: Sequence[Rating]) -> str:
    """Return the reasons that people gave."""
    given = [": ".join(filter(None, (each.reason, each.comment))) for each in ratings]
    return "; ".join(dict.fromkeys(filter(None, given)))


def _answer_cases(
    run: StoredRun, document: AnswerDocument, rating: str, note: str
) -> Iterator[Case]:
    """Yield the question: a good answer's sources must be cited, a bad one's words not said."""
    items = cited_items(document)
    expected = Expected(cites=tuple(items))
    if rating == BAD:
        said = [CITED.sub("", each.text).strip() for each in document.statements]
        expected = Expected(omits=tuple(said) or (document.answer,))
    if rating == BAD or items:
        job = Job(question=run.question, sources=_sources(run))
        yield _case(run, job, run.id, "", expected, note)


def _sweep_cases(run: StoredRun, document: SweepReport) -> Iterator[Case]:
    """Yield each thread with its state."""
    channels = tuple(run.args.get("channels") or [s.item for s in document.sections])
    job = Job(task="sweep", channels=channels, sources=_sources(run))
    for section in document.sections:
        for finding in section.findings:
            for thread in finding.threads or finding.evidence[:1]:
                item = f"{section.item}/{thread.partition('/')[2]}"
                yield _case(run, job, item, item, Expected(state=finding.state))


def _panel_cases(run: StoredRun, document: PanelReport) -> Iterator[Case]:
    """Yield each confirmed finding, which is known again by its quote."""
    material = Path(str(run.args["source"]))
    job = Job(task="review", material=material, profile=document.profile)
    for each in document.findings:
        if each.outcome == "confirmed" and each.quotes:
            expected = Expected(says=(each.quotes[0],))
            yield _case(run, job, f"{run.id}/{each.id}", "", expected, each.claim)


def _triage_cases(
    run: StoredRun, document: TriageReport, corrections: Sequence[Correction], rating: str | None
) -> Iterator[Case]:
    """Yield the threads that were corrected; of a good digest also all others."""
    job = Job(task="triage", sources=_sources(run))
    for verdict in document.verdicts:
        fixed = {c.field: c.value for c in reversed(corrections) if c.thread == verdict.thread_id}
        right: dict[str, Any] = dict(fixed)
        if rating == GOOD:
            right = {"asked_of_me": verdict.asked_of_me, "priority": verdict.priority} | right
        if "asked_of_me" in right:
            right["asked"] = str(right.pop("asked_of_me")).lower() == "true"
        if right:
            id = verdict.thread_id
            yield _case(run, job, id, id, Expected(**right), verdict.subject)


def _case(run: StoredRun, job: Job, id: str, item: str, expected: Expected, note: str = "") -> Case:
    note = note or f"from the run {run.id}"
    return Case(**dict(job), id=id, item=item, expected=expected, note=note)


def _sources(run: StoredRun) -> Sources:
    """Return what the run read; nothing but its day if it read the live workspace."""
    args = run.args
    of_files = args.get("sample") or args.get("slack_export")
    return Sources(
        sample=bool(args.get("sample")),
        slack_export=args.get("slack_export"),
        mbox=args.get("mbox"),
        reader=args.get("me"),
        database=args.get("databases", ()),
        folder=args.get("folder"),
        as_user=args.get("as_user") if of_files else None,
        as_of=args.get("as_of") or run.started.isoformat(),
        since=args.get("since"),
    )
