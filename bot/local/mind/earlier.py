"""A request about an earlier answer in its thread: which of its findings, and what they tell."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.local.mind.cues import fold, spoken, topics_of, without
from bot.local.mind.hearing import Heard
from bot.local.mind.phrases import OFFLINE, phrase
from bot.local.mind.request import CHANNEL, OWN, Asked
from bot.local.mind.search import keywords, prefixes
from bot.local.mind.talk import say
from bot.local.mind.threads import Line, parse_threads
from bot.local.mind.views import ViewFinding, listed_findings, standing

MAX_OTHERS = 3
"""Most findings named as what else may be meant."""
MAX_SAID = 5
"""Most messages of a thread that an answer tells."""
SAID_CHARS = 160
_FEW = 8
"""Most words of a request in which "the second" alone is one of the points before."""
_OWN_LINE = re.compile(r"^\s*\[[^\]]+\] \S+ \S+ assistant: (.*?)(?: \{[^{}]*\})?$")
_POINT = re.compile(r"^(?:[-•*]|\d{1,2}[.)])\s")
_NUMBER = re.compile(
    r"\[(\d{1,2})\]|^\W*(\d{1,2})\W*$"
    r"|\b(?:number|no\.?|nr\.?|point|issue|item|nummer|punkt|numero|punto) ?(\d{1,2})\b"
)
_CITED = re.compile(r"F\d+\.\d+")
_FORGED = re.compile(r"\[(?=F\d+\.\d)")
_NOTES = re.compile(r"\s*\{[^{}]*\}$")


@dataclass(frozen=True)
class Pick:
    """What a request about an earlier answer means."""

    finding: ViewFinding | None = None
    """The likeliest; None where `points` says why there is none."""
    others: tuple[ViewFinding, ...] = ()
    """What was told in the same point, or may be meant as well."""
    points: int = 0
    """How many points the last answer has, where the one asked for is not among them."""


def pick(asked: Asked, heard: Heard) -> Pick | None:
    """The earlier findings that a request asks about; None where it asks for something else."""
    known = {f.id: f for f in listed_findings(heard.block("FINDINGS OF EARLIER ANSWERS"))}
    folded = fold(asked.text)
    if not known or CHANNEL.search(asked.text) or any(q.every for q in asked.questions):
        return None
    number, more = number_in(asked.text), spoken("more", folded)
    if number and (more or len(folded.split()) <= _FEW):
        return _nth(number, _answers(heard, known))
    if not more or spoken("thread", folded):
        return None
    points = next((points for points in _answers(heard, known) if points), [])
    told = [finding for point in points for finding in point] or list(known.values())
    words = keywords(without("filler", without("more", folded)))
    if not any(words):
        return Pick(told[0], tuple(told[1:]))
    rest = [finding for finding in known.values() if finding not in told]
    return _closest(words, [*told, *rest])


def number_in(text: str) -> int:
    """Which point a request names: 1, 2, ...; -1 is the last; 0 is none."""
    if found := _NUMBER.search(text.casefold()):
        return int(next(group for group in found.groups() if group))
    return int(spoken("ordinal", fold(text)) or 0)


def _nth(number: int, answers: Sequence[list[list[ViewFinding]]]) -> Pick | None:
    """The point of that number in the last answer that lists several, or else any."""
    listing = [points for points in answers if len(points) > 1] or [p for p in answers if p]
    if not listing:
        return None
    points = listing[0]
    if number > len(points):
        return Pick(points=len(points))
    first, *others = points[number - 1 if number > 0 else -1]
    return Pick(first, tuple(others))


def _answers(heard: Heard, known: dict[str, ViewFinding]) -> list[list[list[ViewFinding]]]:
    """The findings of each point of each own earlier answer, the last answer first."""
    lines = heard.block("CONVERSATION").splitlines()
    own = [found[1] for line in lines if OWN in line and (found := _OWN_LINE.match(line))]
    return [_points(text.split(" / "), known) for text in reversed(own)]


def _points(lines: Sequence[str], known: dict[str, ViewFinding]) -> list[list[ViewFinding]]:
    marked = [line for line in lines if _POINT.match(line)]
    cited = [_of(line, known) for line in marked or lines]
    return [findings for findings in cited if findings]


def _of(line: str, known: dict[str, ViewFinding]) -> list[ViewFinding]:
    """The findings that a line cites, the one that it repeats first; or all that it repeats."""
    cited = [known[id] for id in dict.fromkeys(_CITED.findall(line)) if id in known]
    told = [finding for finding in known.values() if finding.claim in line]
    return sorted(cited, key=lambda finding: finding not in told) or told


def _closest(
    wanted: tuple[frozenset[str], frozenset[str]], findings: Sequence[ViewFinding]
) -> Pick | None:
    words, topics = wanted
    scores: dict[ViewFinding, float] = {}
    for finding in findings:
        said = fold(f"{finding.claim} {finding.names} {finding.owner}")
        scores[finding] = len(words & prefixes(said)) + 1.5 * len(topics & topics_of(said))
    best = max(scores.values(), default=0)
    if best < 1:
        return None
    first, *others = [finding for finding, score in scores.items() if score == best]
    return Pick(first, tuple(others))


def told(found: Pick, heard: Heard, language: str) -> str:
    """What there is to say of what was picked, with who said what if the thread was read."""
    if found.finding is None:
        return say(language, "points", found.points)
    lines = [_telling(found.finding, language)]
    for exchange in heard.exchanges:
        if exchange.name == "read_thread" and not exchange.is_error:
            lines += said_in(exchange.text, language)
    if found.others:
        lines.append(say(language, "others"))
        lines += [f"- «{other.claim}» [{other.id}]" for other in found.others[:MAX_OTHERS]]
    if left := len(found.others[MAX_OTHERS:]):
        lines.append(phrase(language, "more", left))
    return "\n".join(lines)


def _telling(finding: ViewFinding, language: str) -> str:
    """All that a finding's line tells, in one statement."""
    facts = standing(finding, language)
    if facts and finding.since:
        facts[0] += f", {say(language, 'since', finding.since)}"
    more = [("size", finding.messages), ("who", finding.names), ("owner", finding.owner)]
    parts = [*facts[:1], *(say(language, name, value) for name, value in more if value)]
    parts += [say(language, "next", step.rstrip(".")) for step in facts[1:]]
    return f"«{finding.claim}»: {'; '.join(parts)} [{finding.id}]".replace("»:  [", "» [")


def said_in(text: str, language: str) -> list[str]:
    """A thread as a few lines of who said what, the first message and the last ones."""
    lines = [line for thread in parse_threads(text) for line in thread.lines]
    head = [say(language, "said")] if lines else []
    told = [_said(line) for line in lines]
    if len(told) > MAX_SAID:
        left = say(language, "between", len(told) - MAX_SAID)
        told[1 : 1 - MAX_SAID] = [left]
    return head + told


def _said(line: Line) -> str:
    """One message, cut at a word; nothing in it passes for a citation."""
    text = " ".join(_FORGED.sub("", _NOTES.sub("", line.text)).replace(OFFLINE, "").split()).strip(
        " /"
    )
    if len(text) > SAID_CHARS:
        text = text[:SAID_CHARS].rsplit(" ", 1)[0] + "…"
    return f"- {line.author}, {line.at:%Y-%m-%d %H:%M}: {text}"
