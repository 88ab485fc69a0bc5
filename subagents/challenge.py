"""The challenge: others judge findings, code counts the verdicts and finds contradictions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from pydantic import BaseModel, ConfigDict

import scopes
from config.prompts import prompt
from config.words import phrase
from subagents.brief import BriefDraft
from subagents.contracts import (
    NEEDS_ACTION,
    Grade,
    OpinionDraft,
    ReviewFinding,
    Verdict,
)
from subagents.errors import BriefRefused
from subagents.evidence import MIN_FOUND, normal
from subagents.overlap import shingles
from subagents.result import Finding
from subagents.sanitizer import CleanFinding, Material, quotable, sanitize, source_of

GRADES: Final[tuple[Grade, ...]] = get_args(Grade)
"""Severities, the worst first."""


class Opinion(OpinionDraft):
    """The opinion of one judge on one finding; code adds its author and where its evidence is."""

    judge: str
    place: str = ""


JUDGES_PER_FINDING: Final = 2
"""Judges of a finding; a profile has at least so many specialists in addition to its author."""


def route(
    findings: Iterable[ReviewFinding],
    authors: Mapping[str, str],
    affinities: Mapping[str, Mapping[str, float]],
    found_by: Mapping[str, Collection[str]] = MappingProxyType({}),
) -> dict[str, list[str]]:
    """Map each specialist to the ids of the findings that it judges.

    `authors`: id of a finding -> its author, who never judges it. `affinities`: specialist ->
    category -> 0 to 1, an advice: a specialist with more than its share of findings gets no more
    as long as others can judge. `found_by`: id -> all who found it, who judge it only if nobody
    else can.
    """
    ranked = sorted(findings, key=lambda f: (GRADES.index(f.severity), -f.confidence, f.id))
    routed: dict[str, list[str]] = {name: [] for name in affinities}
    share = -(-JUDGES_PER_FINDING * len(ranked) // max(1, len(routed)))
    for finding in ranked:
        able = [name for name in routed if name != authors[finding.id]]

        def order(name: str, finding: ReviewFinding = finding) -> tuple[float, ...]:
            held, affinity = len(routed[name]), affinities[name].get(finding.category, 0.0)
            shared = name in found_by.get(finding.id, ())
            return (shared, max(0, held - share + 1), -affinity, held)

        for name in sorted(able, key=order)[:JUDGES_PER_FINDING]:
            routed[name].append(finding.id)
    return routed


MAX_LINE_DISTANCE: Final = 3
"""Lines that a finding may move without a common quote."""
ALIKE, RELATED = 0.5, 0.15
"""Minimum share of words that two claims have in common: anywhere in one source; near, or with
one common quote in two categories."""


@dataclass(frozen=True, slots=True)
class FindingChanges:
    """The changes to the findings of an earlier review, by id."""

    new: tuple[str, ...]
    fixed: tuple[str, ...]
    remaining: tuple[tuple[str, str], ...]
    """Id now, id before."""


def compare(
    now: Sequence[ReviewFinding], before: Sequence[ReviewFinding], *, reworded: bool = True
) -> FindingChanges:
    """Match findings by place and claim, not by wording; each to one at most.

    In one category a common quote is enough if claims may be `reworded`, as by a later review:
    where one review joins findings, a fault that it takes for another one is lost. In two
    categories they have one line and share most quotes.
    """
    left = [_Trace.of(finding) for finding in now]
    right = [_Trace.of(finding) for finding in before]
    likeness = {
        (k, n): a.likeness(b, reworded) for k, a in enumerate(left) for n, b in enumerate(right)
    }
    pairs: dict[int, int] = {}
    for k, n in sorted(likeness, key=lambda pair: (-likeness[pair], pair)):
        if likeness[k, n] and k not in pairs and n not in pairs.values():
            pairs[k] = n
    return FindingChanges(
        tuple(f.id for k, f in enumerate(now) if k not in pairs),
        tuple(f.id for n, f in enumerate(before) if n not in pairs.values()),
        tuple((now[k].id, before[n].id) for k, n in sorted(pairs.items())),
    )


def is_stable(now: Sequence[ReviewFinding], before: Sequence[ReviewFinding]) -> bool:
    """Return whether two rounds found the same, with the same severities."""
    changes = compare(now, before)
    grades = {("now", f.id): f.severity for f in now} | {("was", f.id): f.severity for f in before}
    same = all(grades["now", k] == grades["was", n] for k, n in changes.remaining)
    return same and not (changes.new or changes.fixed)


@dataclass(frozen=True, slots=True)
class _Trace:
    """The features that identify a finding."""

    source: str
    line: int | None
    category: str
    quotes: tuple[str, ...]
    words: frozenset[int]

    @classmethod
    def of(cls, finding: ReviewFinding) -> _Trace:
        source, line = source_of(normal(finding.place))
        quotes = tuple(filter(None, map(normal, finding.quotes)))
        words = frozenset(shingles(finding.claim, words=1))
        return cls(source, line, finding.category, quotes, words)

    def likeness(self, other: _Trace, reworded: bool) -> float:
        """Return how much two findings are the same; 0 = they are not."""
        if self.source != other.source:
            return 0.0
        shared = len(self.words & other.words) / max(1, len(self.words | other.words))
        if self.category == other.category:
            quoted = any(_overlap(a, b) for a in self.quotes for b in other.quotes)
            if quoted and (reworded or shared >= RELATED):
                return 2 + shared
            if self._is_near(other) and shared >= RELATED:
                return 1 + shared
        if self.line == other.line and self._quotes_most_of(other):
            several = min(len(self.quotes), len(other.quotes)) > 1
            if several or shared >= RELATED:  # two faults may share one sentence
                return 1 + shared
        return shared if shared >= ALIKE else 0.0

    def _quotes_most_of(self, other: _Trace) -> bool:
        """Return whether most quotes of each are also in the other."""
        return all(
            2 * sum(any(_overlap(q, o) for o in theirs) for q in own) > len(own) > 0
            for own, theirs in ((self.quotes, other.quotes), (other.quotes, self.quotes))
        )

    def _is_near(self, other: _Trace) -> bool:
        if self.line is None or other.line is None:
            return self.line == other.line
        return abs(self.line - other.line) <= MAX_LINE_DISTANCE


def _overlap(one: str, other: str) -> bool:
    short, long = sorted((one, other), key=len)
    return one == other or (len(short) >= MIN_FOUND and short in long)


Outcome = Literal["confirmed", "disputed", "dropped", "merged", "unjudged"]


class JudgedFinding(BaseModel):
    """A finding after the challenge."""

    model_config = ConfigDict(frozen=True)

    finding: str
    outcome: Outcome
    severity: Grade
    """One grade lower where most of those who uphold it weaken it."""
    into: str = ""
    """Finding that it is a duplicate of."""
    opinions: tuple[Opinion, ...] = ()
    """The last of each judge, of those that count; the author's defence is among them."""


class Agreement(BaseModel):
    """The degree to which the judges agree."""

    model_config = ConfigDict(frozen=True)

    findings: int = 0
    """Findings with at least two verdicts."""
    unanimous: int = 0
    """How many of these have one verdict only."""
    verdicts: dict[Verdict, int] = {}
    """How often each was given."""
    alpha: float | None = None
    """Krippendorff's alpha of the verdicts; None where they do not differ."""


Alarm = tuple[str, str]
"""A kind of behaviour that is no review, and the specialist."""
MIN_OPINIONS: Final = 5
"""Minimum opinions of a judge for an alarm that it confirms everything."""


@dataclass
class Challenge:
    """The opinions on the findings of a panel, over all rounds."""

    findings: Mapping[str, ReviewFinding]
    authors: Mapping[str, str]
    material: Material
    opinions: dict[tuple[str, str], Opinion] = field(default_factory=dict)
    """Finding and judge -> the last opinion that counts; an author's one is its defence."""
    without_evidence: list[Opinion] = field(default_factory=list)

    def record(self, opinions: Iterable[Opinion]) -> set[str]:
        """Add a round's opinions; return the findings whose verdicts changed.

        An opinion counts if it quotes the material, or names a known finding as the same;
        `out_of_scope` needs neither. An author defends once.
        """
        changed = set()
        for draft in opinions:
            key = (draft.finding, draft.judge)
            defends = self.authors.get(draft.finding) == draft.judge
            if draft.finding not in self.findings or (defends and key in self.opinions):
                continue
            if (opinion := self._with_span(draft)) is None:
                self.without_evidence.append(draft)
                continue
            before = self.opinions.get(key)
            if before is None or _vote(before) != _vote(opinion):
                changed.add(draft.finding)
            self.opinions[key] = opinion
        return changed

    def _with_span(self, opinion: Opinion) -> Opinion | None:
        """Return an opinion with the span that it quotes; None if nothing supports it."""
        if opinion.verdict == "duplicate":
            is_known = opinion.duplicate_of in self.findings.keys() - {opinion.finding}
            return opinion.model_copy(update={"evidence": "", "place": ""}) if is_known else None
        span = self.material.find(opinion.evidence, self.findings[opinion.finding].place)
        if span is None and opinion.verdict != "out_of_scope":
            return None
        text, place = (quotable(span, self.material), span.place) if span else ("", "")
        return opinion.model_copy(update={"evidence": text, "place": place, "duplicate_of": ""})

    def objections(self, finding: str) -> list[str]:
        """Return the objections to a finding, for its author, without the names of the judges."""
        against = [o for o in self._on(finding) if o.verdict not in ("confirm", "out_of_scope")]
        parts = [(o.verdict, o.duplicate_of, o.place, o.evidence) for o in against]
        return sorted(" | ".join(filter(None, each)) for each in parts)

    def same_as(self, finding: str) -> set[str]:
        """Return the findings that judges call the same as this one."""
        return {o.duplicate_of for o in self._on(finding) if o.duplicate_of}

    def open(self, changed: Collection[str]) -> set[str]:
        """Return the findings that another round may change: too few have judged them, or
        somebody objects, unless all who judged them and their author weaken them, or no verdict
        on them `changed` in this round: their judges would be asked the same again."""
        undecided = set()
        for id, author in self.authors.items():
            opinions, defence = self._on(id), self.opinions.get((id, author))
            every = [*opinions, defence] if defence else []
            weakened = bool(every) and all(o.verdict == "weaken" for o in every)
            contested = id in changed and self.objections(id) and not weakened
            if len(opinions) < JUDGES_PER_FINDING or contested:
                undecided.add(id)
        return undecided

    def list_judged(self) -> list[JudgedFinding]:
        """Return the outcome of each finding, in order."""
        twins = self._twins()
        return [self._judge(id, twins) for id in self.findings]

    def _judge(self, id: str, twins: Mapping[str, str]) -> JudgedFinding:
        finding, opinions = self.findings[id], self._on(id)
        defence = self.opinions.get((id, self.authors[id]))
        every = (*opinions, defence) if defence else tuple(opinions)
        votes: list[str] = [opinion.verdict for opinion in opinions]
        weakened, refuted, aside = map(votes.count, ("weaken", "refute", "out_of_scope"))
        upheld = len(votes) - refuted - aside  # a duplicate is true, too
        withdrawn = defence is not None and defence.verdict in ("refute", "out_of_scope")
        defended = upheld or (defence is not None and not withdrawn)
        outcome: Outcome = "disputed"
        if id in twins:
            outcome = "merged"
        elif not upheld and not refuted:
            outcome = "dropped" if aside >= JUDGES_PER_FINDING else "unjudged"
        elif not refuted:
            outcome = "confirmed"
        elif not defended and refuted + withdrawn >= JUDGES_PER_FINDING:
            outcome = "dropped"
        lower = GRADES.index(finding.severity) + (2 * weakened > upheld)
        grade = GRADES[min(lower, len(GRADES) - 1)]
        return JudgedFinding(
            finding=id, outcome=outcome, severity=grade, into=twins.get(id, ""), opinions=every
        )

    def _twins(self) -> dict[str, str]:
        """Map each finding that most of its judges call a duplicate to the one that is kept."""
        duplicates: dict[str, str] = {}
        for id in self.findings:
            opinions = [o for o in self._on(id) if o.verdict != "out_of_scope"]
            targets = Counter(o.duplicate_of for o in opinions if o.verdict == "duplicate")
            if 2 * targets.total() > len(opinions):
                duplicates[id] = targets.most_common(1)[0][0]
        found: dict[str, str] = {}
        for id in sorted(duplicates, key=self._rank, reverse=True):  # of a circle the worst is kept
            if _last(found, duplicates[id]) != id:
                found[id] = duplicates[id]
        return {id: _last(found, target) for id, target in found.items()}

    def _rank(self, id: str) -> tuple[int, float, str]:
        finding = self.findings[id]
        return (GRADES.index(finding.severity), -finding.confidence, id)

    def _on(self, finding: str) -> list[Opinion]:
        """Return the opinions of judges that count on a finding."""
        author = self.authors[finding]
        return [o for (id, judge), o in self.opinions.items() if id == finding and judge != author]

    def agreement(self) -> Agreement:
        """Return how much the judges agree."""
        by_finding = {id: self._on(id) for id in self.findings}
        compared = {id: opinions for id, opinions in by_finding.items() if len(opinions) > 1}
        triples = [(o.judge, id, o.verdict) for id, each in compared.items() for o in each]
        verdicts = Counter(o.verdict for each in by_finding.values() for o in each)
        return Agreement(
            findings=len(compared),
            unanimous=sum(len({o.verdict for o in each}) == 1 for each in compared.values()),
            verdicts=dict(verdicts),
            alpha=_alpha(triples),
        )

    def alarms(self) -> Counter[Alarm]:
        """Return judges whose verdicts lack evidence, and those that confirm everything."""
        found = Counter(("no_evidence", opinion.judge) for opinion in self.without_evidence)
        by_judge: dict[str, list[Verdict]] = {}
        for (id, judge), opinion in self.opinions.items():
            if judge != self.authors[id]:
                by_judge.setdefault(judge, []).append(opinion.verdict)
        for judge, verdicts in by_judge.items():
            if len(verdicts) >= MIN_OPINIONS and set(verdicts) == {"confirm"}:
                found["yes_to_all", judge] = len(verdicts)
        return found


def _vote(opinion: Opinion) -> tuple[Verdict, str]:
    return opinion.verdict, opinion.duplicate_of


def _last(chain: Mapping[str, str], id: str) -> str:
    while id in chain:
        id = chain[id]
    return id


def _alpha(triples: Sequence[tuple[str, str, Verdict]]) -> float | None:
    if len({verdict for _, _, verdict in triples}) < 2:
        return None
    from nltk.metrics.agreement import AnnotationTask  # imported when a panel ends: it is large

    task: Any = AnnotationTask
    return float(task(data=triples).alpha())


MAX_CONTRADICTIONS = 5
"""Maximum contradictions that one call checks."""
Pair = tuple[Finding, Finding]


def share_evidence(one: Finding, other: Finding) -> bool:
    """Return whether two findings rest on one message or thread."""
    return not {*one.threads, *one.evidence}.isdisjoint([*other.threads, *other.evidence])


def contradictions(
    findings: Sequence[Finding], same: Callable[[Finding, Finding], bool] = share_evidence
) -> list[Pair]:
    """Return pairs of findings about the same thing whose states cannot both hold.

    Each finding is in one pair at most.
    """
    pairs: list[Pair] = []
    for one, other in combinations(findings, 2):
        is_paired = any(one in pair or other in pair for pair in pairs)
        if not is_paired and _contradict(one, other) and same(one, other):
            pairs.append((one, other))
    return pairs


def _contradict(one: Finding, other: Finding) -> bool:
    states = {one.state, other.state}
    apart = one.id.partition(".")[0] != other.id.partition(".")[0]
    return apart and len(states) == 2 and "none" not in states and not states <= {*NEEDS_ACTION}


def check_draft(pair: Pair) -> BriefDraft:
    """Return the brief of a new context that checks a contradiction; raise BriefRefused."""
    sources = tuple(dict.fromkeys(source for finding in pair for source in finding.sources))
    if not sources:
        ids = " and ".join(finding.id for finding in pair)
        raise BriefRefused("results", f"{ids} rest on nothing that can be read again")
    kinds = {scopes.scope_of(source) for source in sources}
    return BriefDraft(
        task=prompt("challenge_task"),
        description=phrase("plan.check"),
        scope=kinds.pop() if len(kinds) == 1 else scopes.ALL,
        handles=sources,
        model_preference="main",
    )


def claims(pair: Pair) -> tuple[str, ...]:
    """Return both claims with their quotes, sanitized; raise BriefRefused if one is withheld."""
    found = []
    for name, finding in zip("AB", pair, strict=True):
        place = finding.evidence[0]
        draft = ReviewFinding(
            id=name,
            category=finding.state,
            severity=finding.severity,
            confidence=1.0,
            claim=finding.claim,
            place=place,
            quotes=finding.quotes[:5],
        )
        # Its quotes were found in what it read: here they are the material.
        material = Material({place: "\n".join(finding.quotes)})
        clean = sanitize(draft, material, [finding.state])
        if not isinstance(clean, CleanFinding):
            raise BriefRefused("results", f"{finding.id} is not handed on ({clean})")
        found.append(clean.line())
    return tuple(found)
