"""Build what surrounds an answer in Slack: how it ended, one line below it, and its details."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from bot.reports.documents import (
    AnswerDocument,
    Document,
    Gap,
    Report,
    SweepReport,
    TriageReport,
)
from bot.reports.formats import capital, clean_text, periods
from bot.reports.sources import numbers_of, sources_of
from bot.reports.view import ReportView
from bot.slack.blocks import (
    MAX_SECTION,
    Block,
    button,
    context_block,
    escape_mrkdwn,
    field,
    modal,
    plain_section,
    plain_text_block,
    pre,
    rich,
    section,
)
from bot.slack.markdown import Numbers, Prose
from config.sections import ReplySettings
from config.words import current, phrase
from scopes.clean import printable, redact

DETAILS = "answer_details"
"""Action id of the button that opens the details; its value is the id of the run."""
SMALL_TALK = 300
"""Maximum characters of an answer that is small talk if nothing was looked up for it."""
MAX_GAP_CHARS = 200
"""Maximum characters of the gap in the line below an answer."""
MAX_QUERY_CHARS = 10_000
"""Maximum characters of a statement that are shown."""
MAX_VIEW = 98
"""Blocks of a view; Slack allows 100 (docs.slack.dev, views). A notice of a cut comes below."""

FEEDBACK_FORM = "answer_feedback_why"
"""Callback id of the form that asks why an answer is bad; it contains the key of the request."""
REASON, COMMENT = "reason", "comment"
"""Ids of its fields, as blocks and as elements."""
MAX_COMMENT = 1_000
WHY_BAD = ("wrong", "missing", "off_topic")
"""Reasons that the form offers."""
REASONS = (
    *("cost", "time", "tokens", "steps", "rate_limit", "model_error", "tool_error"),
    *("invalid_output", "needs_context", "injection", "user"),
)
"""Reasons why a request or a subagent ended for which there is a text."""


def stopped_line(document: Document) -> str:
    """Return the progress of a stopped request, in one sentence."""
    done, total, noun = _progress(document)
    things = phrase(f"count.{noun}", n=total)
    if not total:
        return phrase("answer.stopped_at_once")
    if done == total:
        return phrase("answer.stopped_all", n=total, things=things)
    return phrase("answer.stopped", n=total - done, done=current().number(done), things=things)


def incomplete_reason(document: Report) -> str:
    """Return why a report is not complete; empty if it is."""
    if document.status == "cancelled":
        return stopped_line(document)
    return "" if document.status == "complete" else phrase(f"ended_{document.status}")


def _progress(document: Document) -> tuple[int, int, str]:
    """Return how much was read, the total, and the noun for it."""
    cover = document.coverage
    if isinstance(document, SweepReport):
        return cover.complete + cover.partial, cover.items, "channel"
    if isinstance(document, TriageReport):
        done = len(document.verdicts) + len(document.filtered)
        return done, done + len(document.unreadable) + (cover.unreached or 0), "thread"
    listing = [r for r in document.subagents if r.read.sources_listed]
    if not listing:
        return cover.complete + cover.partial, cover.items, "question"
    units = {{"email": "thread", "files": "file"}.get(r.scope, "source") for r in listing}
    total = sum(r.read.sources_listed for r in listing)
    done = sum(min(r.read.sources_read, r.read.sources_listed) for r in listing)
    return done, total, units.pop() if len(units) == 1 else "source"


def ending(document: AnswerDocument) -> str:
    """Return why an answer is not complete; empty if it is."""
    if document.status == "complete":
        return ""
    if document.status == "cancelled":
        return stopped_line(document)
    how = phrase("answer.failed" if document.status == "failed" else "answer.incomplete")
    return f"{how} {why_sentence(document.stopped_by)}".rstrip()


def is_small_talk(document: AnswerDocument) -> bool:
    """Return whether it is a short text for which nothing was looked up."""
    cover = document.coverage
    has_lookups = cover.items or cover.looked_up or cover.not_covered or document.links
    is_whole = document.status == "complete" and not (document.files or document.unsupported)
    return is_whole and not has_lookups and len(document.answer) <= SMALL_TALK


def gaps(document: Document) -> list[str]:
    """Return what was not covered, in sentences for a user."""
    over = document.status == "cancelled"  # then the answer says that it was stopped
    reported = [g for g in document.coverage.not_covered if not (over and g.stopped_by == "user")]
    return list(dict.fromkeys(map(gap_text, reported)))


def gap_text(gap: Gap) -> str:
    """Return a gap as a sentence for a user, with our own text for how a subagent was stopped."""
    if gap.stopped_by is None:
        return f"{gap.source}: {gap.reason}" if gap.source else gap.reason
    why = why_ended(gap.stopped_by)
    return f"{gap.source}: {why}" if gap.source else phrase("answer.unfinished", why=why)


def why_ended(stopped_by: str) -> str:
    """Return why a subagent stopped, in words for a user."""
    return phrase(f"ended.{stopped_by if stopped_by in REASONS else 'none'}")


def why_sentence(stopped_by: str) -> str:
    """Return the same as a sentence; empty if there is no text for it."""
    return f"{capital(why_ended(stopped_by))}." if stopped_by in REASONS else ""


def footer(document: Document, sources: int) -> Block:
    """Return the line below a document: sources, window, gaps, cost; and the button for details.

    `sources`: number of sources that an answer cites.
    """
    details = button(DETAILS, phrase("answer.details"), value=document.run_id)
    return {**section(" · ".join(_line(document, sources))), "accessory": details}


def _line(document: Document, sources: int) -> Iterator[str]:
    if isinstance(document, SweepReport):
        yield phrase("count.channel", n=len(document.sections))
    elif isinstance(document, TriageReport):
        yield phrase("count.thread", n=_progress(document)[1])
    elif sources:
        yield phrase("count.source", n=sources)
    if days := messages_of(document):
        yield days
    if missing := gaps(document):
        more = f" {phrase('more', n=len(missing) - 1)}" if len(missing) > 1 else ""
        gap = _clean(missing[0], MAX_GAP_CHARS).rstrip(".")
        yield phrase("answer.not_covered", gap=f"{gap}{more}")
    yield price(document)


def price(document: Document, digits: int = 3) -> str:
    """Return the cost of its run."""
    cost = document.cost_usd
    usd = phrase("no_price") if cost is None else current().usd(cost, digits)
    return phrase("answer.listed", price=usd) if document.model == "offline" else usd


def cost_line(document: Report) -> str:
    """Return the cost, tokens and id of its run."""
    tokens = phrase("tokens", n=document.usage.total)
    run = phrase("run", id=clean_text(document.run_id, 80))
    return f"{price(document, 4)} · {tokens} · {run}"


def messages_of(document: Document) -> str:
    """Return the days from which messages were read; empty if none were."""
    windows, zone = [], "UTC"
    if isinstance(document, AnswerDocument):
        windows, zone = document.windows, document.zone
    elif document.window:
        windows = [document.window]
        zone = document.zone if isinstance(document, TriageReport) else zone
    return phrase("answer.messages_of", days=periods(windows, zone)) if windows else ""


def details_view(document: AnswerDocument, settings: ReplySettings, seconds: float) -> Block:
    """Return the modal with the details of an answer; `seconds` is how long it took."""
    blocks = list(_details(document, settings, seconds))
    if len(blocks) > MAX_VIEW:
        rest = context_block(phrase("answer.left_out", run=escape_mrkdwn(document.run_id)))
        blocks = [*blocks[:MAX_VIEW], rest, blocks[-1]]
    return _modal(blocks)


def report_details_view(document: Report, view: ReportView) -> Block:
    """Return the modal with the details of a report: what was read, all gaps, and the cost."""
    blocks = [*_titled_list("sources", view.sources), *_titled_list("gaps", gaps(document))]
    return _modal([*blocks[:MAX_VIEW], context_block("\n".join(map(escape_mrkdwn, view.foot)))])


def message_view(text: str) -> Block:
    """Return the same modal with a sentence instead of the details."""
    return _modal([plain_section(text)])


def _modal(blocks: Sequence[Block]) -> Block:
    return modal(phrase("answer.details"), phrase("button.close"), blocks)


def feedback_form(key: str) -> Block:
    """Return the form that asks why the answer to this request is bad; both fields are optional."""
    options = [
        {"text": plain_text_block(phrase(f"feedback.{reason}")), "value": reason}
        for reason in WHY_BAD
    ]
    text_input = {"type": "plain_text_input", "multiline": True, "max_length": MAX_COMMENT}
    choice = {"type": "radio_buttons", "options": options}
    fields = [
        field(REASON, phrase("feedback.why"), choice, optional=True),
        field(COMMENT, phrase("feedback.comment"), text_input, optional=True),
    ]
    return modal(
        phrase("feedback.title"),
        phrase("button.skip"),
        fields,
        callback_id=FEEDBACK_FORM,
        private_metadata=key,
        submit=plain_text_block(phrase("button.send")),
    )


def _details(document: AnswerDocument, settings: ReplySettings, seconds: float) -> Iterator[Block]:
    numbers = numbers_of(document)
    prose = Prose(document.links, settings, document.question)
    prose.link_citations(document.answer.strip(), numbers)
    if numbers.by_source:
        yield from _sections([f"*{phrase('sources')}*", *_sources(document, numbers)])
        yield from _statements(document, numbers)
    yield from _titled_list("gaps", gaps(document))
    dropped = document.unsupported
    notes = [phrase("answer.unsupported", n=dropped)] if dropped else []
    notes += [phrase("answer.together")] if document.degraded else []
    yield from _sections(notes)
    yield context_block(_cost(document, seconds))


def _titled_list(title: str, rows: Sequence[str]) -> Iterator[Block]:
    if rows:
        yield from _sections([f"*{phrase(title)}*", *(f"• {_clean(each, 500)}" for each in rows)])


def _sections(lines: Sequence[str]) -> Iterator[Block]:
    """Yield the lines as sections, with as many lines in each as fit."""
    text = ""
    for line in (each[:MAX_SECTION] for each in lines):
        if text and len(text) + len(line) >= MAX_SECTION:
            yield section(text)
            text = ""
        text = f"{text}\n{line}" if text else line
    if text:
        yield section(text)


def _sources(document: AnswerDocument, numbers: Numbers) -> Iterator[str]:
    """Yield each source with its number: the claim found in it, or its tables."""
    claims = {f.id: f.claim for r in document.subagents for f in r.findings}
    cited = {number: id for id, own in reversed(numbers.cited.items()) for number in own}
    for number, source in sources_of(document, numbers).items():
        finding = cited[number]
        url = source.link
        mark = f"<{url.replace('&', '&amp;')}|[{number}]>" if url else f"[{number}]"
        is_first = url == numbers.url(finding)  # else a list or a statement next to its messages
        more = len(numbers.links.get(finding) or ()) - 1 if url and is_first else 0
        others = f" ({phrase('more', n=more)})" if more > 0 else ""
        title = source.title if source.statement or finding in document.looked_up else ""
        title = title or ("" if is_first else source.place)
        text = title or claims.get(finding, phrase("answer.earlier"))
        yield f"{mark} {_clean(text, 200)}{others}".rstrip()


def _statements(document: AnswerDocument, numbers: Numbers) -> Iterator[Block]:
    """Yield each whole SQL statement, below the number of its source."""
    for number, source in sources_of(document, numbers).items():
        if source.statement:
            yield section(f"*{phrase('answer.found_with')}* [{number}]")
            text = redact(printable(source.statement))[:MAX_QUERY_CHARS]
            yield from (rich(pre(each)) for each in re.findall(rf"(?s).{{1,{MAX_SECTION}}}", text))


def _cost(document: AnswerDocument, seconds: float) -> str:
    minutes, rest = divmod(max(0, round(seconds)), 60)
    parts = [(minutes, "minute")] if minutes else []
    took = " ".join(current().duration(n, unit) for n, unit in [*parts, (rest, "second")])
    questions, own = document.coverage.items, document.coverage.looked_up
    read = [phrase("count.question", n=questions)] if questions else []
    read += [phrase("count.looked_up", n=own)] if own else []
    when = messages_of(document)
    totals = ", ".join([*read, price(document), took])
    reference = phrase("answer.reference", id=escape_mrkdwn(document.run_id))
    return " · ".join(filter(None, (capital(when), totals, reference)))


def _clean(text: str, length: int) -> str:
    return escape_mrkdwn(clean_text(text, length))
