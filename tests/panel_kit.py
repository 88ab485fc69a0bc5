"""For tests of panels: a small material, scripted specialists, and the requests to them."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine_kit import (
    WINDOW,
    Engine,
    engine,
    line,
    opening,
    results,
    say,
    sentence,
    settings_for,
    store_at,
    use,
)

from bot.local.model.answer import Answer
from bot.reports.documents import PanelReport
from bot.tasks.base import Request
from bot.tasks.material import ReviewMaterial, sections_of
from bot.tasks.panel import Panel
from config.panels import load_profile
from config.settings import Settings
from subagents.brief import SUBMIT

Json = dict[str, Any]

LINES = [f"value_{n} = compute_{n}(first, second, third)  # step {n}" for n in range(1, 61)]
CODE = "\n".join(LINES)
SPECIALISTS = ("security", "performance", "quality", "correctness", "architecture")


def material(text: str = CODE) -> ReviewMaterial:
    return ReviewMaterial("app.py", "files", (sections_of("app.py", text),))


def point(number: int, category: str = "correctness", **fields: Any) -> Json:
    """A finding at a line of the material, in words of its own."""
    return {
        "id": str(number),
        "category": category,
        "severity": "high",
        "confidence": 0.8,
        "claim": f"Here {sentence(f'claim {number}', 9)} is wrong",
        "place": f"app.py:{number}",
        "quotes": [f"value_{number} = compute_{number}(first, second, third)"],
        "fix": f"Use {sentence(f'fix {number}', 4)} instead",
        **fields,
    }


def review(*points: Json) -> Answer:
    return Answer([use(SUBMIT, points=list(points))])


def verdict(finding: str, verdict: str = "confirm", **fields: Any) -> Json:
    return {"finding": finding, "verdict": verdict, **fields}


def verdicts(*each: Json) -> Answer:
    return Answer([use(SUBMIT, verdicts=list(each))])


# ---- requests to specialists


def contract(body: Json) -> str:
    return line(body, "CONTRACT")


def specialist(body: Json) -> str:
    found = re.search(r"(?:Yours is|the specialist for) (\w+)", opening(body))
    return found[1] if found else ""


def defends(body: Json) -> bool:
    return "Nothing is gained by insisting" in opening(body)


def to_judge(body: Json) -> dict[str, str]:
    """Id -> lines of each finding that a judge gets."""
    block = next(
        (
            b["text"]
            for b in body["messages"][0]["content"]
            if b["text"].startswith("FINDINGS TO JUDGE")
        ),
        "",
    )
    found: dict[str, str] = {}
    for each in block.splitlines()[1:]:
        if match := re.match(r"\[(F\d+\.\d+)\] ", each):
            found[match[1]] = each
        elif found:
            found[list(found)[-1]] += f"\n{each}"
    return found


def quote_of(shown: str) -> str:
    """The first quote of a finding as a judge reads it."""
    return str(json.loads(re.search(r'quotes: ("(?:[^"\\]|\\.)*")', shown)[1]))  # type: ignore[index]


def confirming_judge(body: Json) -> Answer:
    return verdicts(*(verdict(id, evidence=quote_of(text)) for id, text in to_judge(body).items()))


Voice = Callable[[Json], Answer]


@dataclass
class PanelModel:
    """A model that answers by a script for each specialist, or by one for all of them."""

    reads: Voice | Mapping[str, Voice] = field(default_factory=dict)
    judges: Voice | Mapping[str, Voice] = confirming_judge
    defence: Voice = confirming_judge
    lines: Voice = field(default=lambda body: say("NONE"))

    def __call__(self, body: Json) -> Answer:
        kind = contract(body)
        if kind == "review":
            return self._of(self.reads, body, lambda _: review())
        if kind == "verdicts":
            return (
                self.defence(body)
                if defends(body)
                else self._of(self.judges, body, confirming_judge)
            )
        return self.lines(body)

    def _of(self, voices: Voice | Mapping[str, Voice], body: Json, other: Voice) -> Answer:
        voice = voices.get(specialist(body), other) if isinstance(voices, Mapping) else voices
        return voice(body)


def finds(*points: Json) -> Voice:
    return lambda body: review(*points)


EACH = {name: finds(point(n, name)) for n, name in enumerate(SPECIALISTS, 1)}
"""Each specialist finds one point of its own."""


def count_contexts(body: Json, counts: dict[str, int]) -> int:
    """Count the contexts of this specialist so far, from 1, by the delimiters that they have."""
    key = f"{specialist(body)} {line(body, 'FENCE')[:40]}"
    if key not in counts:
        counts[key] = 1 + sum(k.startswith(f"{specialist(body)} ") for k in counts)
    return counts[key]


def was_refused(body: Json) -> bool:
    """Whether a result of this context was refused before."""
    return any("Not accepted" in str(r["content"]) for r in results(body))


# ---- running a panel


@dataclass
class Held:
    e: Engine
    task: Panel
    report: PanelReport

    @property
    def reads(self) -> list[Json]:
        return [b for b in self.e.requests if contract(b) == "review"]

    @property
    def judgements(self) -> list[Json]:
        return [b for b in self.e.requests if contract(b) == "verdicts"]


def write_profile(folder: Path, references: Mapping[str, list[str]] | None = None) -> Path:
    """A profile of three specialists, a, b and c, in a team's own folder."""
    home = folder / "own"
    home.mkdir(parents=True)
    rest = dict.fromkeys("abc", 0.3)
    specialists = {
        each: {
            "prompt": "prompt.md",
            "scope": f"what concerns {each}",
            "affinity": {**rest, each: 1.0},
            "references": (references or {}).get(each, []),
        }
        for each in "abc"
    }
    (home / "prompt.md").write_text("Look well.\n")
    (home / "short.md").write_text("<!-- version: 7 -->\nRule: always say please\n")
    profile = {"about": "A text.", "specialists": specialists}
    (home / "profile.yaml").write_text(json.dumps(profile))
    return home / "profile.yaml"


def panel_settings(settings: Settings | None = None, **panel: Any) -> Settings:
    base = settings or settings_for({"cost_usd": 20.0})
    return base.model_copy(
        update={"panel": base.panel.model_copy(update={"budget_usd": 20.0, **panel})}
    )


@asynccontextmanager
async def panel(
    model: Any,
    tmp_path: Path,
    of: ReviewMaterial | None = None,
    profile: str = "code",
    settings: Settings | None = None,
    **more: Any,
) -> AsyncIterator[tuple[Engine, Panel]]:
    settings = settings or panel_settings()
    async with engine(model, settings, **more) as e, store_at(tmp_path) as store:
        await store.start_run(e.run.id, "panel", "review", "claude", {})
        loaded = load_profile(profile, settings.panel.profiles)
        request = Request("review", WINDOW)
        yield e, Panel(e.app(store), e.run, request, of or material(), loaded, "app.py")


async def run_panel(model: Any, tmp_path: Path, **more: Any) -> Held:
    async with panel(model, tmp_path, **more) as (e, task):
        report = await task.work()
        assert e.run.budget.reserved.nanousd == 0
        return Held(e, task, report)
