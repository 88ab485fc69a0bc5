"""A panel: specialists review a material alone, then judge each other's findings through code."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import AsyncIterator, Collection, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Literal

from bot.citations import CitedStatement, statements
from bot.reports.documents import (
    Gap,
    PanelAlarm,
    PanelFinding,
    PanelMaterial,
    PanelPhase,
    PanelReport,
    PanelSpecialist,
    PanelVerdict,
    RunCoverage,
)
from bot.reports.frame import why_ended
from bot.reports.issues import (
    KnownFindings,
    compare_panel,
    known_findings,
    panel_key,
    save_findings,
)
from bot.tasks.base import Opening, ReportTask, coverage_of, label_of, total
from bot.tasks.material import MaterialRefused, ReviewMaterial, read_through_gate, reading_context
from bot.tasks.overview import MAX_FIRST
from bot.tasks.sources import PART_SHARE
from config.panels import Profile, Specialist
from config.prompts import prompt
from config.words import phrase
from scopes.clean import printable
from scopes.effects import Handles
from scopes.label import TRUSTED_LABEL, Label
from scopes.notes import Notes, read_note
from scopes.tool import Item, estimate_tokens, tokens_of
from subagents.brief import Brief, BriefDraft, PanelBrief, Passage, fixed_tokens
from subagents.budget import NANOUSD_PER_USD, Amount
from subagents.challenge import (
    GRADES,
    Agreement,
    Alarm,
    Challenge,
    JudgedFinding,
    Opinion,
    compare,
    is_stable,
    route,
)
from subagents.contracts import DEFAULT_MODEL, ReviewContract, ReviewFinding, VerdictsContract
from subagents.errors import BudgetExceeded
from subagents.evidence import normal
from subagents.prices import Usage
from subagents.result import SubagentResult
from subagents.sanitizer import (
    CleanFinding,
    Material,
    Reason,
    is_instruction,
    sanitize,
    without_markup,
)
from subagents.trajectory import Origin

MAX_SPENT_SHARE = 0.9
"""Share of a phase's budget after which no further round begins."""
SINGLE_ROUND_FACTOR = 0.5
"""Factor of the confidence of a finding that only one round found."""
CHALLENGE_ROUNDS = 3
"""Maximum rounds of verdicts; a round without a change is the last."""
REFERENCE_TOKENS = 4_000
"""Tokens of all references of one specialist; further ones are left out."""
MOST_JUDGED = 12
"""Maximum findings that one context judges."""
SURROUNDING_TOKENS = 800
"""Tokens of the material that a judge sees before a finding's place, and after it."""
ALL_SPECIALISTS = "all"
"""Name of the one context that plays all specialists."""
Phase = Literal["read", "challenge", "report"]
SHARES: dict[Phase, float] = {"read": 0.6, "challenge": 0.3, "report": 0.1}
"""Phase -> share of the budget; a phase that has spent its share ends with its results."""
OUTCOMES = ("confirmed", "disputed", "unjudged", "dropped", "merged", "withheld")


@dataclass
class SpecialistFinding:
    """A finding of one specialist, over all its rounds."""

    finding: ReviewFinding
    shown: CleanFinding | Reason
    """The finding as others read it, or why they do not."""
    sources: list[str]
    """Ids of the contexts that found it."""
    links: list[str]
    found_by: list[str]
    """Specialists, its author first."""
    judged_in: list[str] = field(default_factory=list)
    """Ids of the contexts that judged or defended it."""
    joined: list[SpecialistFinding] = field(default_factory=list)
    """The same finding by other specialists."""

    @property
    def clean(self) -> CleanFinding:
        """Return the finding as others read it, if it is not withheld."""
        assert isinstance(self.shown, CleanFinding)
        return self.shown

    @property
    def confidence(self) -> float:
        """Return the highest confidence, raised for each other specialist who found it."""
        is_single = len(self.sources) < 2
        own = self.finding.confidence * (SINGLE_ROUND_FACTOR if is_single else 1.0)
        highest = max([own, *(each.confidence for each in self.joined)])
        return 1 - (1 - highest) / len(self.found_by)


@dataclass
class SpecialistReading:
    """The findings of one specialist so far."""

    specialist: Specialist
    references: tuple[Item, ...] = ()
    rounds: list[list[ReviewFinding]] = field(default_factory=list)
    """Findings of each round in which it read all material."""
    found: list[SpecialistFinding] = field(default_factory=list)
    silent: int = 0
    """Contexts without a valid result."""
    left_out: list[str] = field(default_factory=list)
    """References that did not fit or could not be read."""
    reasons: dict[str, None] = field(default_factory=dict)
    """Reasons for contexts without a result."""
    gaps: list[str] = field(default_factory=list)
    """Parts that it could not read or decide, by its own account in its last round."""
    read: set[int] = field(default_factory=set)
    """Parts of the material that it has read."""

    @property
    def is_stable(self) -> bool:
        return len(self.rounds) > 1 and is_stable(self.rounds[-1], self.rounds[-2])

    def add_round(
        self, results: Sequence[SubagentResult], texts: Material, categories: Collection[str]
    ) -> None:
        """Add the results of one round, one for each part of the material; the place of a finding
        is the line of its first quote."""
        points: list[ReviewFinding] = []
        silent = self.silent
        origins: dict[str, tuple[str, list[str]]] = {}
        for part, result in enumerate(results):
            needs = result.stopped_by == "needs_context"
            if result.value is None or needs:
                self.silent += 1
                self.reasons[result.reason if needs else why_ended(result.stopped_by)] = None
                continue
            self.read.add(part)
            part_points = ReviewContract.model_validate(result.value).points
            for point, checked in zip(part_points, result.findings, strict=True):
                span = texts.find(point.quotes[0], point.place)
                place = span.place if span else point.place
                points.append(point.model_copy(update={"id": checked.id, "place": place}))
                origins[checked.id] = (result.id, checked.links)
        earlier = [each.finding for each in self.found]
        before = dict(compare(points, earlier, reworded=False).remaining)
        by_id = {each.finding.id: each for each in self.found}
        for point in points:
            source, links = origins[point.id]
            if match := by_id.get(before.get(point.id, "")):
                match.sources += [] if source in match.sources else [source]
            else:
                shown, author = sanitize(point, texts, categories), self.specialist.name
                self.found.append(SpecialistFinding(point, shown, [source], links, [author]))
        if self.silent == silent:
            self.rounds.append(points)
            self.gaps = [gap for result in results for gap in result.not_covered]


@dataclass(frozen=True, slots=True)
class PanelStart:
    """The choices at the start of a panel, so that it continues with them after a restart."""

    budget: Amount
    profile: Profile
    notes: Mapping[str, Item]
    known: KnownFindings


@dataclass
class Panel(ReportTask[PanelReport]):
    """One running panel."""

    kind = "panel"
    prompt = "panel_lines"
    material: ReviewMaterial
    profile: Profile
    place: str
    """The same for a later panel on this material, which then knows these findings."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.settings = self.app.settings.panel
        self.readings: list[SpecialistReading] = []
        self.parts: list[tuple[Item, ...]] = []
        self.texts = Material.of(self.material.items)
        self.found: dict[str, SpecialistFinding] = {}
        self.challenge: Challenge | None = None
        self.phases: list[PanelPhase] = []
        self.used: dict[str, list[SubagentResult]] = {}
        """Name of a phase -> the results of its contexts."""
        self.alarms: Counter[Alarm] = Counter()
        self.budget = Amount()
        self.degraded = False
        self.lines: list[CitedStatement] = []

    def _fit_references(
        self, specialist: Specialist, notes: Mapping[str, Item]
    ) -> SpecialistReading:
        """Return a specialist with its references, in order, as far as they fit."""
        reading, available = SpecialistReading(specialist), REFERENCE_TOKENS
        for each in specialist.references:
            note = notes.get(each.name)
            text, label = (note.text, note.label) if note else (each.text, TRUSTED_LABEL)
            version = replace(each, text=text).version
            item = Item(f"{each.name}@{version}", text, None, label, verbatim=True)
            if text and (size := tokens_of(item)) <= available:
                reading.references += (item,)
                available -= size
            else:
                reading.left_out.append(item.id if text else each.name)
        return reading

    async def _notes(self) -> dict[str, Item]:
        """Return the notes for the specialists, as far as the requester may read them."""
        names = {r.name for s in self.profile.specialists for r in s.references if not r.text}
        found: dict[str, Item] = {}
        for name in sorted(names if Notes in self.run.clients else ()):
            ctx = reading_context(self.run, self.request.intent, self.context)
            with suppress(MaterialRefused):
                (found[name],) = (
                    await read_through_gate(self.run, ctx, read_note, note=name)
                ).items
        return found

    async def make(self) -> PanelReport:
        """Have specialists read the material and judge findings, and the first lines written."""
        key = f"{self.run.id}/{self.context}/start"
        start = await self.run.once(key, PanelStart, self._start)
        self._plan(start)
        async with self._phase("read") as phase:
            await self._read(phase)
        if not self.degraded:
            async with self._phase("challenge") as phase:
                await self._judge(phase)
        async with self._phase("report") as phase, self.reserve():
            await self._overview(phase)
        return compare_panel(self._document(), start.known, self.texts)

    @property
    def _key(self) -> str:
        return panel_key(self.run.requester, self.profile.name, self.place)

    async def record_delivery(self, report: PanelReport) -> None:
        """Store the findings for the next panel on this material."""
        await save_findings(self.app.database, self._key, report)

    async def _start(self) -> PanelStart:
        """Return the choices at the start; the panel may spend the rest of the run's budget."""
        caps, spent = self.run.budget.caps, self.run.budget.spent
        usd = min(round(self.settings.budget_usd * NANOUSD_PER_USD), caps.nanousd - spent.nanousd)
        budget = Amount(usd, caps.tokens - spent.tokens)
        earlier = await known_findings(self.app.database, self._key)
        return PanelStart(budget, self.profile, await self._notes(), earlier)

    def _plan(self, start: PanelStart) -> None:
        """Split the material, and decide whether the budget allows more than one context."""
        run, limits = self.run, self.run.limits
        self.budget, self.profile = start.budget, start.profile
        self.readings = [
            self._fit_references(each, start.notes) for each in self.profile.specialists
        ]
        max_tokens = int(PART_SHARE * limits.child_context)
        self.parts = self.material.parts(min(max_tokens, limits.max_material_tokens))
        largest = max(sum(map(tokens_of, part)) for part in self.parts)
        fixed = fixed_tokens(self.material.scope, (), "review") + REFERENCE_TOKENS
        role = f"subagent_{DEFAULT_MODEL['review']}"
        one = run.model.worst(role, largest + fixed)
        too_dear = self._share(SHARES["read"]).nanousd < 2 * one.nanousd
        self.degraded = not limits.max_subagents or too_dear

    def _share(self, share: float) -> Amount:
        return Amount(int(self.budget.nanousd * share), int(self.budget.tokens * share))

    @asynccontextmanager
    async def _phase(self, name: Phase) -> AsyncIterator[PanelPhase]:
        """Reserve the shares of later phases during this one; count its usage."""
        started = [phase.name for phase in self.phases] + [name]
        later = sum(share for each, share in SHARES.items() if each not in started)
        usd = self._share(1.0 if self.degraded and name == "read" else SHARES[name]).usd
        phase, used = PanelPhase(name=name, share_usd=usd), self.used.setdefault(name, [])
        self.phases.append(phase)
        key = f"{self.run.id}/{self.context}/after-{name}"
        if not self.degraded:
            with suppress(BudgetExceeded):  # then the caps of the run apply
                await self.run.budget.keep(key, self._share(later))
        try:
            yield phase
        finally:
            await self.run.budget.settle(key, Amount())
        if name != "report":
            usage, phase.cost_usd = total(used, Usage(), 0.0)
            phase.contexts, phase.tokens = len(used), usage.total

    async def _wave(self, phase: PanelPhase, briefs: Sequence[Brief]) -> list[SubagentResult]:
        """Run subagents of a phase together."""
        results = await self.fanout.run_all(briefs)
        self.used[phase.name] += results
        for brief, result in zip(briefs, results, strict=True):
            assert brief.panel
            self.alarms.update((kind, brief.panel.name) for kind in result.alarms)
        if any(result.stopped_by == "cost" for result in results):
            phase.stopped = "budget"
        return results

    def _may_go_on(self, phase: PanelPhase, most: int) -> bool:
        """Return whether another round of a phase may begin; else record why not."""
        done = self.used[phase.name]
        if self.run.stop or any(result.stopped_by == "user" for result in done):
            phase.stopped = "user"
        elif not phase.stopped and phase.rounds >= most:
            phase.stopped = "rounds"
        elif (total(done, Usage(), 0.0)[1] or 0.0) > MAX_SPENT_SHARE * phase.share_usd > 0:
            phase.stopped = "budget"
        return not phase.stopped

    async def _read(self, phase: PanelPhase) -> None:
        """Have each specialist read until two rounds find the same; as two are needed, the first
        two run in parallel."""
        if self.degraded:
            await self._read_in_one(phase)
            return
        waiting, draw = self.readings, 0
        while waiting and self._may_go_on(phase, self.settings.rounds - (draw == 0)):
            draws = (1, 2) if draw == 0 else (draw + 1,)
            plan = [(reading, n) for n in draws for reading in waiting]
            briefs = [
                self._brief("review", reading, part, PanelBrief("", n))
                for reading, n in plan
                for part in self.parts
            ]
            results = iter(await self._wave(phase, briefs))
            for reading, _ in plan:
                own = list(islice(results, len(self.parts)))
                reading.add_round(own, self.texts, self.profile.categories)
            draw = phase.rounds = draws[-1]
            waiting = [each for each in waiting if not each.is_stable]
        if not waiting:
            phase.stopped = ""
        self._join()

    async def _read_in_one(self, phase: PanelPhase) -> None:
        """Have one context play all specialists, one after another, as far as it can read."""
        parts = "\n\n".join(
            f"{n}. As the specialist for {r.specialist.name} ({r.specialist.scope}): "
            f"{r.specialist.prompt}"
            for n, r in enumerate(self.readings, 1)
        )
        task = f"{self.profile.about}\nRead it once for each of these, one after another.\n{parts}"
        reading = SpecialistReading(Specialist(ALL_SPECIALISTS, "", "", {}, ()))
        brief = self._brief("review", reading, self.parts[0], PanelBrief(""), task)
        reading.add_round(await self._wave(phase, [brief]), self.texts, self.profile.categories)
        self.readings, phase.rounds = [reading], 1
        self._join()

    def _join(self) -> None:
        """Withhold findings that no other context may read, and join equal ones of specialists."""
        groups: dict[str, list[SpecialistFinding]] = {}
        for reading in self.readings:
            claims = (f.finding.claim for f in reading.found)  # a fix is an order by its form
            if orders := sum(is_instruction(printable(claim)) for claim in claims):
                self.alarms["instruction", reading.specialist.name] += orders
            own = [each for each in reading.found if isinstance(each.shown, CleanFinding)]
            others = [group[0].finding for group in groups.values()]
            found = [each.finding for each in own]
            same = dict(compare(found, others, reworded=False).remaining)
            for each in own:
                groups.setdefault(same.get(each.finding.id, each.finding.id), []).append(each)
            withheld = (each for each in reading.found if not isinstance(each.shown, CleanFinding))
            self.found |= {each.finding.id: each for each in withheld}
        merged = (self._merge(group) for group in groups.values())
        self.found |= {each.finding.id: each for each in merged}

    def _merge(self, group: Sequence[SpecialistFinding]) -> SpecialistFinding:
        """Return equal findings as one: in the words of the specialist with the best affinity to
        its category, else the surest, else the briefest; with the highest severity."""
        affinity = {r.specialist.name: r.specialist.affinity for r in self.readings}

        def clear(each: SpecialistFinding) -> tuple[float, float, int]:
            own_affinity = affinity[each.found_by[0]].get(each.finding.category, 0.0)
            return own_affinity, each.confidence, -len(each.finding.claim)

        best = max(group, key=clear)
        best.joined = [each for each in group if each is not best]
        best.found_by += [name for each in best.joined for name in each.found_by]
        severity = min((each.finding.severity for each in group), key=GRADES.index)
        best.finding = best.finding.model_copy(update={"severity": severity})
        best.shown = replace(best.clean, severity=severity)
        return best

    async def _judge(self, phase: PanelPhase) -> None:
        """Have findings judged until no verdict changes; authors defend contested ones once."""
        shown = {id: f for id, f in self.found.items() if isinstance(f.shown, CleanFinding)}
        findings = {id: each.finding for id, each in shown.items()}
        found_by = {id: each.found_by for id, each in shown.items()}
        authors = {id: names[0] for id, names in found_by.items()}
        self.challenge = challenge = Challenge(findings, authors, self.texts)
        affinities = {each.name: each.affinity for each in self.profile.specialists}
        routed = route(findings.values(), authors, affinities, found_by=found_by)
        unresolved = changed = set(findings)
        while unresolved and changed and self._may_go_on(phase, CHALLENGE_ROUNDS):
            phase.rounds += 1
            assignments = {
                name: [id for id in ids if id in unresolved] for name, ids in routed.items()
            }
            opinions = await self._opinions(phase, assignments, phase.rounds)
            changed = challenge.record(opinions)
            unresolved = challenge.open(changed)
            if phase.rounds == 1 and unresolved:
                await self._defend(phase, unresolved)
                unresolved = challenge.open(changed)
        if not unresolved or not changed:
            phase.stopped = ""
        self.alarms += challenge.alarms()

    async def _defend(self, phase: PanelPhase, contested: set[str]) -> None:
        """Have each author review its own findings again, with the objections of others."""
        assert self.challenge
        assignments: dict[str, list[str]] = {}
        for id, author in self.challenge.authors.items():
            if id in contested and self.challenge.objections(id):
                assignments.setdefault(author, []).append(id)
        self.challenge.record(await self._opinions(phase, assignments, 1, defends=True))

    async def _opinions(
        self,
        phase: PanelPhase,
        assignments: dict[str, list[str]],
        draw: int,
        *,
        defends: bool = False,
    ) -> list[Opinion]:
        """Have specialists judge the findings with these ids, each in fresh contexts."""
        readings = {reading.specialist.name: reading for reading in self.readings}
        briefs = []
        for name, ids in assignments.items():
            for some, shown in self._batches(ids):
                passages = tuple(self._passage(id) for id in some)
                panel = PanelBrief(name, draw, passages=passages, defends=defends)
                briefs.append(self._brief("verdicts", readings[name], shown, panel))
        opinions = []
        for brief, result in zip(briefs, await self._wave(phase, briefs), strict=True):
            assert brief.panel
            value = VerdictsContract.model_validate(result.value or {"verdicts": []})
            for each in value.verdicts:
                if each.finding in brief.panel.ids:
                    opinions.append(Opinion(**each.model_dump(), judge=brief.panel.name))
                    self.found[each.finding].judged_in.append(result.id)
        return opinions

    def _batches(self, ids: Sequence[str]) -> Iterator[tuple[list[str], tuple[Item, ...]]]:
        """Yield findings that one context judges, with the material around them."""
        places = {id: self._places(id) for id in ids}
        some: list[str] = []
        shown: tuple[Item, ...] = ()
        for id in ids:
            more = self.material.around(
                (i for each in (*some, id) for i in places[each]), SURROUNDING_TOKENS
            )
            too_much = sum(map(tokens_of, more)) > self.run.limits.max_material_tokens
            if some and (too_much or len(some) >= MOST_JUDGED):
                yield some, shown
                some, more = [], self.material.around(places[id], SURROUNDING_TOKENS)
            some, shown = [*some, id], more
        if some:
            yield some, shown

    def _places(self, id: str) -> list[str]:
        """Return the ids of the items that a finding points at or quotes."""
        finding = self.found[id].finding
        spans = (self.texts.find(quote, finding.place) for quote in finding.quotes)
        places = [finding.place, *(span.place for span in spans if span)]
        return list(filter(None, map(self.texts.holder, places)))

    def _passage(self, id: str) -> Passage:
        """Return a finding as others read it, with objections and defence; without names."""
        assert self.challenge
        found = self.found[id]
        author, lines = found.found_by[0], [found.clean.line()]
        lines += [f"  objection: {each}" for each in self.challenge.objections(id)]
        same = [self.found[each] for each in sorted(self.challenge.same_as(id))]
        lines += [f"  called the same: {each.clean.line()}" for each in same]
        if defence := self.challenge.opinions.get((id, author)):
            evidence = json.dumps(defence.evidence, ensure_ascii=False)
            lines.append(f"  defence: {defence.verdict} | {defence.place} | {evidence}")
        made_from = [source for each in same for source in each.sources]
        sources = [*found.sources, *found.judged_in, *made_from]
        return Passage.of(id, "\n".join(lines), author, sources)

    def _brief(
        self,
        contract: str,
        reading: SpecialistReading,
        material: Sequence[Item],
        panel: PanelBrief,
        task: str = "",
    ) -> Brief:
        specialist = reading.specialist
        file = "review_task" if contract == "review" else "judge_task"
        task = task or prompt("defence_task" if panel.defends else file)
        for name, text in (
            ("about", self.profile.about),
            ("name", specialist.name),
            ("scope", specialist.scope),
            ("prompt", specialist.prompt),
        ):
            task = task.replace(f"{{{name}}}", text)
        categories = self.profile.categories if contract == "review" else ()
        label = label_of(material, self.run.gate.inherited_label(self.request.label))
        what = "defence" if panel.defends else contract
        draft = BriefDraft(
            task=task,
            description=phrase(f"panel.row_{what}", name=specialist.name, number=panel.draw),
            scope=self.material.scope,
            contract=contract,
        )
        models = self.request.allowed.models
        if models and DEFAULT_MODEL[contract] not in models:
            draft = draft.model_copy(update={"model_preference": models[0]})
        return Brief(
            draft,
            Handles(),
            None,
            label,
            self.language,
            material=tuple(material),
            requester=self.run.requester,
            panel=replace(
                panel, name=specialist.name, categories=categories, references=reading.references
            ),
        )

    async def _overview(self, phase: PanelPhase) -> None:
        """Write the first repairs: by the model as far as it cites findings, else by code."""
        ranked = [f for f in self._findings() if f.outcome in ("confirmed", "disputed", "unjudged")]
        by_id = {f.id: f for f in ranked}
        if ranked:
            text = await self.write(list(self._opening_parts(ranked)), self.fanout.own)
            self.lines = [s for s in statements(text, by_id) if s.findings][:MAX_FIRST]
        first = [f for f in ranked if f.outcome == "confirmed"] or ranked
        self.lines = self.lines or [
            CitedStatement(text=f.claim, findings=[f.id]) for f in first[:MAX_FIRST]
        ]
        usage, phase.cost_usd = self.spent
        phase.tokens = usage.total
        phase.contexts = phase.rounds = int(self.agent is not None)

    def _opening_parts(self, ranked: Sequence[PanelFinding]) -> Iterator[Opening]:
        yield f"REVIEW of one material.\nLANGUAGE: {self.language}", Origin.REQUEST, ""
        available = self.run.limits.max_fanout_tokens
        for each in ranked:
            found = self.found[each.id]
            clean = replace(found.clean, severity=each.severity)
            text = f"{each.outcome.upper()}: {clean.line()}"
            if (available := available - estimate_tokens(text)) < 0:
                break
            yield text, Origin.VIEW, " ".join(found.sources)
        yield "WRITE: first lines", Origin.REQUEST, ""

    def _findings(self) -> list[PanelFinding]:
        judgements = {j.finding: j for j in self.challenge.list_judged()} if self.challenge else {}
        found = [self._make_finding(id, judgements.get(id)) for id in self.found]
        return sorted(
            found,
            key=lambda f: (OUTCOMES.index(f.outcome), GRADES.index(f.severity), -f.confidence),
        )

    def _make_finding(self, id: str, judgement: JudgedFinding | None) -> PanelFinding:
        found, finding = self.found[id], self.found[id].finding
        clean = found.shown if isinstance(found.shown, CleanFinding) else None
        withheld = "" if isinstance(found.shown, CleanFinding) else found.shown
        opinions = [
            PanelVerdict(
                specialist=o.judge,
                same_as=o.duplicate_of,
                **o.model_dump(include={"verdict", "evidence", "place"}),
            )
            for o in (judgement.opinions if judgement else ())
        ]
        return PanelFinding(
            id=id,
            outcome="withheld" if withheld else judgement.outcome if judgement else "unjudged",
            reason=withheld or (judgement.into if judgement else ""),
            category=finding.category,
            severity=judgement.severity if judgement else finding.severity,
            confidence=round(found.confidence, 2),
            claim=without_markup(printable(finding.claim)) if clean else "",
            place=clean.place if clean else finding.place,
            quotes=list(clean.quotes) if clean else [],
            fix=finding.fix if clean else "",
            links=found.links,
            found_by=found.found_by,
            rounds=len(found.sources),
            verdicts=[o for o in opinions if o.specialist != found.found_by[0]],
            defence=next((o for o in opinions if o.specialist == found.found_by[0]), None),
        )

    def _document(self) -> PanelReport:
        results = self.fanout.own
        coverage = self._coverage(results)
        some = any(reading.read for reading in self.readings)
        is_incomplete = self.degraded or any(phase.is_cut for phase in self.phases)
        return PanelReport(
            **self.shared_fields(),
            status=self.status(some and not is_incomplete, some, coverage),
            profile=self.profile.name,
            profile_version=self.profile.version,
            material=self._material(),
            degraded=self.degraded,
            coverage=coverage,
            top_lines=self.lines,
            findings=self._findings(),
            specialists=[self._specialist(reading) for reading in self.readings],
            agreement=self.challenge.agreement() if self.challenge else Agreement(),
            alarms=[
                PanelAlarm(kind=kind, specialist=name, count=n)
                for (kind, name), n in self.alarms.items()
            ],
            phases=self.phases,
            label=self.label.to_json(),
        )

    @property
    def label(self) -> Label:
        return label_of(self.material.items, super().label)

    def _specialist(self, reading: SpecialistReading) -> PanelSpecialist:
        return PanelSpecialist(
            name=reading.specialist.name,
            rounds=len(reading.rounds),
            stable=reading.is_stable,
            findings=len(reading.found),
            silent=reading.silent,
            references=[item.id for item in reading.references],
        )

    def _material(self) -> PanelMaterial:
        by_all = set.intersection(*(reading.read for reading in self.readings))
        read = sum(tokens_of(i) for n in by_all for i in self.parts[n])
        return PanelMaterial(
            name=self.material.name,
            version=self.material.version,
            files=len(self.material.files),
            items=len(self.material.items),
            tokens=self.material.tokens,
            parts=len(self.parts),
            read=round(read / max(1, self.material.tokens), 3),
        )

    def _unread(self, reading: SpecialistReading) -> str:
        """Return how many parts of the material a specialist has not read, and why."""
        unread_parts, of = len(self.parts) - len(reading.read), len(self.parts)
        why = f" ({'; '.join(reading.reasons)})" if reading.reasons else ""
        return phrase("panel.unread", left=unread_parts, of=of) + why if unread_parts else ""

    def _coverage(self, results: Sequence[SubagentResult]) -> RunCoverage:
        cover = coverage_of(results)
        missing = [*(Gap(reason=each) for each in self.material.missing), *self.problems()]
        for reading in self.readings:
            left_out = (phrase("panel.reference", name=each) for each in reading.left_out)
            missing += [Gap(source=reading.specialist.name, reason=each) for each in left_out]
        unread = [(self._unread(each), each) for each in self.readings if self._unread(each)]
        undecided = [(gap, each) for each in self.readings for gap in dict.fromkeys(each.gaps)]
        by_reason: dict[str, tuple[str, dict[str, None]]] = {}
        for reason, reading in (*unread, *undecided):  # report a common reason once
            by_reason.setdefault(normal(reason), (reason, {}))[1][reading.specialist.name] = None
        missing += [
            Gap(source=", ".join(names), reason=reason) for reason, names in by_reason.values()
        ]
        return cover.model_copy(update={"not_covered": missing, "read": None})
