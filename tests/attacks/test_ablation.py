"""No rule or defence is decoration: without it, and with all others, one attack gets through.

The rules of a click are ablated in tests/test_approvals.py.
"""

from __future__ import annotations

import ast
import asyncio
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ablated import GATE, Through
from benign_kit import Ask, Office, at_work
from defences import DEFENCES, PAGE
from serve_kit import serving
from test_one_click import ATTACKS
from world import SITE, World

from bot.approvals.service import CLICK_RULES
from config.settings import Settings
from scopes.extraction import visible
from subagents.rules import RULES

ROOT = Path(__file__).resolve().parents[2]
NAMES = [rule.name for rule in RULES]
Outcomes = dict[str, tuple[bool, bool]]
"""By name: whether the attack got through with all of them, and without this one."""


def test_each_rule_has_an_attack_of_its_own() -> None:
    assert set(GATE) | {each.without for each in ATTACKS.values()} >= set(NAMES)
    assert set(GATE) <= set(NAMES)


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """Each attack twice, on one bot."""

    async def work() -> Outcomes:
        async with at_work(tmp_path_factory.mktemp("ablation")) as office:
            office.world.pages[f"{SITE}/hidden"] = PAGE
            reduce_pages(office.world)
            return {**await by_rule(office), **await by_defence(office)}

    return asyncio.run(work())


async def by_rule(office: Office) -> Outcomes:
    runs, found = office.bot.bench.dispatch.runs, Outcomes()
    for name, (asked, through) in GATE.items():
        stopped = await got_through(office, asked, through)
        runs.rules = [rule for rule in RULES if rule.name != name]
        found[name] = (stopped, await got_through(office, asked, through))
        runs.rules = RULES
    return found


async def by_defence(office: Office) -> Outcomes:
    found = Outcomes()
    for name, defence in DEFENCES.items():
        stopped = await got_through(office, defence.ask, defence.through)
        with pytest.MonkeyPatch.context() as patch:
            defence.remove(patch)
            found[name] = (stopped, await got_through(office, defence.ask, defence.through))
    return found


async def got_through(office: Office, asked: Ask, through: Through) -> bool:
    (came,) = await office.run(asked)
    return through(came, office)


def reduce_pages(world: World) -> None:
    """The web of this world hands out what a person sees of a page, as a tool of ours has to."""
    asked = world.ask

    async def ask(path: str, **sent: Any) -> Any:
        found = await asked(path, **sent)
        return visible.visible_text(found).text if path == "web/page" else found

    world.ask = ask  # type: ignore[method-assign]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", [*GATE, *DEFENCES])
def test_an_attack_gets_through_only_without_what_stops_it(outcomes: Outcomes, name: str) -> None:
    assert outcomes[name] == (False, True)


MAKERS = {"Gate": 3, "Runs": 8, "Approvals": 7}
"""What takes rules, and at which position."""
PASSED_ON = {"self.rules", "rules"}
"""What may stand there: what a test has passed further out."""


def calls_of(package: str) -> Iterator[ast.Call]:
    for path in sorted((ROOT / package).rglob("*.py")):
        tree = ast.parse(path.read_text())
        yield from (node for node in ast.walk(tree) if isinstance(node, ast.Call))


def test_nothing_in_the_product_passes_rules() -> None:
    """They are defaults of constructors, and handed on: no setting or variable is asked."""
    made = 0
    for package in ("bot", "subagents", "scopes", "config"):
        for call in calls_of(package):
            assert not [k for k in call.keywords if k.arg == "rules"], ast.unparse(call)
            name = ast.unparse(call.func).rpartition(".")[2]
            at = MAKERS.get(name, 99)
            made += name in MAKERS
            given = [ast.unparse(each) for each in call.args[at : at + 1]]
            assert set(given) <= PASSED_ON, ast.unparse(call)
    assert made >= len(MAKERS), "what takes rules is called otherwise now: look anew"


def test_no_setting_names_a_rule() -> None:
    keys = set(names_in(Settings.model_json_schema()))
    told = {word for key in keys for word in re.split(r"\W|_", key.lower())}
    assert not told & {"gate", "unsafe", "bypass", "skip", "trust", "yolo", "autoapprove"}
    ours = {*NAMES, *CLICK_RULES} - {"search", "fetch"}
    assert not {key for key in keys if key.split(".")[-1] in ours}


def names_in(schema: Any) -> Iterator[str]:
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        yield from (name for each in schema.values() for name in names_in(each))


async def test_the_served_bot_has_all_rules(tmp_path: Path) -> None:
    async with serving(tmp_path) as bot:
        assert bot.bench.dispatch.runs.rules is RULES
        assert bot.bench.approvals.rules is CLICK_RULES
