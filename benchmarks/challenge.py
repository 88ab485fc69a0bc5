"""The `challenge` table: tokens of a panel's second phase by routing, and CPU a finding."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path

from benchmarks.table import Row
from scopes.tool import estimate_tokens
from subagents.brief import fixed_tokens
from subagents.challenge import JUDGES_PER_FINDING, route
from subagents.contracts import ReviewFinding
from subagents.sanitizer import CleanFinding, Material, sanitize, source_of

AFFINITIES: Mapping[str, Mapping[str, float]] = {
    "security": {"security": 1.0, "correctness": 0.5, "architecture": 0.4, "quality": 0.2},
    "performance": {"performance": 1.0, "architecture": 0.5, "correctness": 0.4},
    "quality": {"quality": 1.0, "architecture": 0.6, "correctness": 0.4},
    "correctness": {"correctness": 1.0, "security": 0.6, "performance": 0.6, "quality": 0.5},
    "architecture": {"architecture": 1.0, "quality": 0.7, "security": 0.5, "performance": 0.4},
}
FINDINGS = 8
"""Findings of each specialist."""
TOGETHER = 12
"""Findings that one context judges."""
AROUND = 40
"""Lines of the material that it sees before a finding's line, and after it."""
OPINION = 60
"""Tokens of an opinion."""
CPU_MS = 10.0
"""Maximum CPU time of a finding (issue 23)."""
SOURCES = Path(__file__).resolve().parent.parent / "subagents"
NOTES = f"""\
{len(AFFINITIES)} specialists, {FINDINGS} findings each, on lines of subagents/. Tokens of the
second phase, one round: prompts and schemas of each context, the findings, {AROUND} lines around
each, {OPINION} tokens an opinion. A context judges {TOGETHER} findings."""


def challenge() -> list[Row]:
    """Route 40 findings by affinity and to everybody else."""
    texts = {path.name: path.read_text("utf-8") for path in sorted(SOURCES.glob("*.py"))}
    material = Material({f"{name}:1": text for name, text in texts.items()})
    findings = {finding.id: finding for finding in _findings(texts)}
    authors = {id: id.partition("-")[0] for id in findings}
    everybody = {name: [id for id in findings if authors[id] != name] for name in AFFINITIES}
    start = time.process_time()
    clean = [sanitize(f, material, AFFINITIES.keys()) for f in findings.values()]
    routed = route(findings.values(), authors, AFFINITIES)
    cpu_ms = (time.process_time() - start) * 1_000 / len(findings)
    by_id = {each.id: each for each in clean if isinstance(each, CleanFinding)}
    ours, theirs = _tokens(routed, by_id, texts), _tokens(everybody, by_id, texts)
    counts = [sum(id in ids for ids in routed.values()) for id in findings]
    loads = [len(ids) for ids in routed.values()]
    return [
        Row("tokens to everybody else", theirs, ""),
        Row(
            "tokens by affinity", ours, "", 0.6 * theirs, f"{100 - 100 * ours / theirs:.0f} % less"
        ),
        Row("findings withheld", len(findings) - len(by_id), "", 0),
        Row("findings with too few judges", sum(n < JUDGES_PER_FINDING for n in counts), "", 0),
        Row("findings of a judge", max(loads), "", None, f"{min(loads)} at least"),
        Row("CPU of a finding", cpu_ms, " ms", CPU_MS),
    ]


def _findings(texts: Mapping[str, str]) -> Iterator[ReviewFinding]:
    """Yield findings spread over the files: most in the category of their author."""
    places = [
        (name, number, line.strip())
        for name, text in texts.items()
        for number, line in enumerate(text.splitlines(), 1)
        if line.strip().startswith(("def ", "async def ", "return ", "for ", "if "))
    ]
    names = list(AFFINITIES)
    step = len(places) // (len(names) * FINDINGS)
    for number in range(len(names) * FINDINGS):
        author = names[number % len(names)]
        file, line, quote = places[number * step]
        other = names[(number + number // 15) % len(names)]
        yield ReviewFinding(
            id=f"{author}-{number}",
            category=author if number % 4 else other,
            severity=("high", "medium", "low")[number % 3],
            confidence=0.7,
            claim=f"The result of line {line} is used without a check that it is complete, so a "
            "caller that was cancelled before goes on with a part of it",
            place=f"{file}:{line}",
            quotes=[quote[:200]],
        )


def _tokens(
    judged: Mapping[str, Sequence[str]],
    by_id: Mapping[str, CleanFinding],
    texts: Mapping[str, str],
) -> int:
    """Return the tokens of all contexts that judge these findings."""
    total = 0
    for ids in judged.values():
        own = sorted((by_id[id] for id in ids if id in by_id), key=lambda f: source_of(f.place))
        remaining = iter(own)
        while some := list(islice(remaining, TOGETHER)):
            total += fixed_tokens("files", (), "answer")
            total += estimate_tokens("\n".join(each.line() for each in some))
            total += estimate_tokens(_around([each.place for each in some], texts))
            total += OPINION * len(some)
    return total


def _around(places: Sequence[str], texts: Mapping[str, str]) -> str:
    """Return the lines around these places, each once."""
    wanted: dict[str, set[int]] = {}
    for place in places:
        name, line = source_of(place)
        at = line or 1
        wanted.setdefault(name, set()).update(range(at - AROUND - 1, at + AROUND))
    return "\n".join(
        line
        for name, numbers in wanted.items()
        for number, line in enumerate(texts[name].splitlines())
        if number in numbers
    )
