"""Build the view of a panel: findings by outcome, both sides of disputes, and how it was made."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from bot.reports.documents import (
    PanelFinding,
    PanelReport,
    PanelVerdict,
)
from bot.reports.formats import clean_text
from bot.reports.frame import cost_line, gaps, incomplete_reason
from bot.reports.view import (
    DOTS,
    Bold,
    Code,
    Entry,
    Group,
    Highlight,
    Line,
    Reference,
    ReportSection,
    ReportView,
    entries_of,
)
from bot.slack.markdown import address
from config.words import current, phrase
from subagents.contracts import MAX_SHORT_TEXT_CHARS

NAME, CLAIM, QUOTE, FIX, SENTENCE = 100, 2 * MAX_SHORT_TEXT_CHARS, 260, 400, 300
"""Maximum characters of each; no claim of a specialist is that long, even after cleaning."""
MOST_QUOTES = 3
MOST_SHOWN = 200
"""Maximum number of findings shown of one outcome."""
MARKS = {"critical": "◉", **DOTS}
DROPPED_OUTCOMES = ("dropped", "merged", "withheld")
OUTCOMES = ("confirmed", "disputed", "unjudged")


def panel_view(document: PanelReport) -> ReportView:
    """Return the view of a panel, with its findings numbered in reading order."""
    numbers = {finding.id: n for n, finding in enumerate(document.findings, 1)}
    words = current()
    counts = _counts(document)
    dropped = [words("dropped", n=document.unsupported)] if document.unsupported else []
    return ReportView(
        words=words,
        name=phrase("panel.name"),
        notification=f"{phrase('panel.name')}. {counts}",
        title=phrase("panel.title", material=clean_text(document.material.name, NAME)),
        counts=counts,
        lead=tuple(_lead(document)),
        first=tuple(_first(document, numbers)),
        gaps=tuple(clean_text(each, SENTENCE) for each in gaps(document)),
        sections=tuple(_sections(document, numbers)),
        foot=(*dropped, cost_line(document)),
    )


def _of(document: PanelReport, *outcomes: str) -> list[PanelFinding]:
    return [each for each in document.findings if each.outcome in outcomes]


def _counts(document: PanelReport) -> str:
    """Return the number of findings by outcome, numbers only; empty if the panel failed."""
    if document.status == "failed":
        return ""
    counts = [(name, len(_of(document, name))) for name in OUTCOMES]
    counts.append(("dropped", len(_of(document, *DROPPED_OUTCOMES))))
    texts = [phrase(f"panel.n_{name}", n=n) for name, n in counts if n]
    return " · ".join(texts) or phrase("panel.none")


def _lead(document: PanelReport) -> Iterator[str]:
    if document.degraded:
        yield phrase("panel.degraded")
    yield phrase(
        "panel.read",
        profile=clean_text(document.profile, NAME),
        n=len(document.specialists),
        share=f"{document.material.read:.0%}",
    )
    if document.compared:
        changes = [finding.change for finding in document.findings]
        yield phrase(
            "panel.compared",
            day=current().day(document.compared),
            new=changes.count("new"),
            fixed=sum(not each.quoted for each in document.fixed),
            remaining=changes.count("remaining"),
        )
    if document.status == "partial" and not gaps(document):
        if any(each.is_cut for each in document.phases):
            yield phrase("panel.ended_early")
    elif document.status == "partial":
        yield incomplete_reason(document)
    elif document.status != "complete":
        yield phrase(f"panel.ended_{document.status}")
    if document.model == "offline":
        yield phrase("offline")


def _first(document: PanelReport, numbers: Mapping[str, int]) -> Iterator[Highlight]:
    links = {finding.id: _link(finding) for finding in document.findings}
    for line in document.top_lines:
        known = sorted(line.findings, key=numbers.__getitem__)
        references = tuple(Reference(str(numbers[id]), links[id]) for id in known)
        yield Highlight(clean_text(line.text, CLAIM), references)


def _link(finding: PanelFinding) -> str:
    return address(finding.links[0]) if finding.links else ""


def _sections(document: PanelReport, numbers: Mapping[str, int]) -> Iterator[ReportSection]:
    for outcome in OUTCOMES:
        if found := _of(document, outcome):
            shown = found[:MOST_SHOWN]
            group = Group(_entries(shown, numbers), is_full=True)
            more = len(found) - len(shown)
            rest = phrase("more", n=more) if more else ""
            title = f"{phrase(f'panel.{outcome}')} ({len(found):,})"
            yield ReportSection(title, (group,), more=rest, is_apart=outcome == "disputed")
    fixed = document.fixed
    for title, rows in (
        (
            "panel.dropped",
            [_reason_dropped(each, numbers) for each in _of(document, *DROPPED_OUTCOMES)],
        ),
        ("panel.fixed", [_row(f.severity, f.claim, f.place) for f in fixed if not f.quoted]),
        ("panel.missed", [_row(f.severity, f.claim, f.place) for f in fixed if f.quoted]),
    ):
        if rows:
            yield ReportSection(
                f"{phrase(title)} ({len(rows):,})", (Group(entries_of(rows[:MOST_SHOWN])),)
            )
    yield ReportSection(phrase("panel.how"), (Group(entries_of(list(_how(document)))),))


def _entries(findings: Sequence[PanelFinding], numbers: Mapping[str, int]) -> tuple[Entry, ...]:
    return tuple(_entry(each, numbers[each.id]) for each in findings)


def _row(severity: str, claim: str, place: str) -> str:
    return f"{MARKS[severity]} {clean_text(claim, CLAIM)} ({clean_text(place, NAME)})"


def _reason_dropped(finding: PanelFinding, numbers: Mapping[str, int]) -> str:
    number = str(numbers.get(finding.reason, ""))
    why = phrase(f"panel.why_{finding.outcome}", **({"number": number} if number else {}))
    if finding.outcome == "withheld":
        return f"{MARKS[finding.severity]} {clean_text(finding.place, NAME)}: {why}"
    return f"{_row(finding.severity, finding.claim, finding.place)}: {why}"


def _entry(finding: PanelFinding, number: int) -> Entry:
    facts = [phrase(f"panel.{finding.severity}"), clean_text(finding.category, NAME)]
    facts += [phrase(f"panel.{finding.change}")] if finding.change else []
    title: Line = (
        Bold(f"{MARKS[finding.severity]} {clean_text(finding.claim, CLAIM)}"),
        f" · {', '.join(facts)} · ",
        Code(clean_text(finding.place, NAME)),
    )
    return Entry(
        id=finding.id,
        number=number,
        url=_link(finding),
        title=title,
        quotes=tuple(clean_text(each, QUOTE) for each in finding.quotes[:MOST_QUOTES]),
        details=tuple(part for text, *rest in _details(finding) for part in (f"\n{text}", *rest)),
    )


def _details(finding: PanelFinding) -> Iterator[Sequence[str | Code]]:
    if finding.fix:
        yield [phrase("panel.fix", fix=clean_text(finding.fix, FIX))]
    names = current().list([clean_text(each, NAME) for each in finding.found_by])
    found_by = "panel.found_by_several" if len(finding.found_by) > 1 else "panel.found_by"
    yield [phrase(found_by, names=names, share=f"{finding.confidence:.0%}")]
    yield from (
        _verdict_words(each, clean_text(each.specialist, NAME)) for each in finding.verdicts
    )
    if finding.defence:
        author = phrase("panel.author", name=clean_text(finding.defence.specialist, NAME))
        yield _verdict_words(finding.defence, author)


def _verdict_words(verdict: PanelVerdict, name: str) -> Sequence[str | Code]:
    text = phrase(f"panel.says_{verdict.verdict}", name=name)
    words, place = clean_text(verdict.evidence, QUOTE), clean_text(verdict.place, NAME)
    return [f"{text}: «{words}» (", Code(place), ")"] if words else [f"{text}."]


def _how(document: PanelReport) -> Iterator[str]:
    words, agreement = current(), document.agreement
    if agreement.findings:
        yield phrase("panel.agreement", unanimous=agreement.unanimous, judged=agreement.findings)
    if agreement.alpha is not None:
        yield phrase("panel.alpha", alpha=f"{agreement.alpha:.2f}")
    for phase in document.phases:
        cost = words("no_price") if phase.cost_usd is None else words.usd(phase.cost_usd, 4)
        text = phrase(
            "panel.phase",
            name=phrase(f"panel.phase_{phase.name}"),
            cost=cost,
            share=words.usd(phase.share_usd, 2),
            tokens=words("tokens", n=phase.tokens),
            rounds=phase.rounds,
        )
        yield f"{text} ({phrase(f'panel.stopped_{phase.stopped}')})" if phase.stopped else text
    for alarm in document.alarms:
        name = clean_text(alarm.specialist, NAME)
        yield phrase(f"panel.alarm_{alarm.kind}", n=alarm.count, name=name)
