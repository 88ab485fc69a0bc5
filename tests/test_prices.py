"""What a call costs is what genai-prices says, for every model of the settings and every size."""

from __future__ import annotations

from engine_kit import (
    Lax,
    call,
    engine,
    listed_nanousd,
    run_agent,
    settings_for,
    submitted,
    turn,
    turns,
    use,
)
from hypothesis import given, settings
from hypothesis import strategies as st

from config.settings import load_settings
from subagents.budget import Amount
from subagents.pricing import Usage, cost_nanousd, worst_case

MODELS = load_settings(env={}).models
NAMES = (MODELS.main, MODELS.fast)
COUNT = st.integers(0, 400_000)
CLIFF = 100_000
"""Tokens of prompt above which the fast model's price is five times as high."""


def assert_listed(model: str, usage: Usage) -> None:
    counts = {
        "input_tokens": usage.input,
        "output_tokens": usage.output,
        "cache_read_input_tokens": usage.cache_read,
        "cache_creation_input_tokens": usage.cache_write,
    }
    cost = cost_nanousd(model, usage)
    assert cost is not None
    assert abs(cost - listed_nanousd(model, counts)) <= 1  # a nanodollar of rounding


@settings(max_examples=300, deadline=None, database=None)
@given(st.sampled_from(NAMES), st.builds(Usage, COUNT, COUNT, COUNT, COUNT))
def test_any_usage_costs_what_the_price_list_says(model: str, usage: Usage) -> None:
    assert_listed(model, usage)


@settings(max_examples=100, deadline=None, database=None)
@given(
    st.sampled_from(NAMES),
    st.integers(CLIFF - 3, CLIFF + 3),
    st.integers(0, 1000),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_the_cliff_between_price_tiers_is_where_the_list_has_it(
    model: str, prompt: int, output: int, read: int, written: int
) -> None:
    assert_listed(model, Usage(prompt - read - written, output, read, written))


@settings(max_examples=200, deadline=None, database=None)
@given(st.sampled_from(NAMES), st.integers(0, 300_000), st.integers(1, 64_000), st.data())
def test_no_call_costs_more_than_its_worst_case(
    model: str, prompt: int, most: int, data: st.DataObject
) -> None:
    read = data.draw(st.integers(0, prompt))
    written = data.draw(st.integers(0, prompt - read))
    usage = Usage(prompt - read - written, data.draw(st.integers(0, most)), read, written)
    worst, cost = worst_case(model, prompt, most), cost_nanousd(model, usage)
    assert cost is not None
    assert cost <= worst.nanousd
    assert usage.total <= worst.tokens
    assert worst.steps == 1


def test_an_unknown_model_has_no_price_and_still_counts_its_tokens() -> None:
    assert cost_nanousd("llama-of-the-house", Usage(1000, 1000)) is None
    assert worst_case("llama-of-the-house", 1000, 500) == Amount(0, 1500, 1)


def test_usage_that_a_compatible_server_leaves_out_is_zero() -> None:
    assert Usage.of({"input_tokens": 3, "cache_read_input_tokens": None}) == Usage(input=3)
    assert (Usage(1, 2, 3, 4) + Usage(1, 1, 1, 1)).to_json() == {
        "input": 2, "output": 3, "cache_read": 4, "cache_write": 5, "total": 14,
    }  # fmt: skip


async def test_without_a_price_the_token_cap_still_holds() -> None:
    models = {"fast": "llama-of-the-house", "strict_tools": False}
    lax = Lax(lambda body: [{**use("look", word="tea"), "id": f"t{turn(body)}"}])
    limits = {"tokens": 50_000, "cost_usd": 0.0}

    async with engine(turns(), settings_for(limits, models), lax=lax) as e:
        agent = e.agent()
        ending = await run_agent(agent)

    assert (ending.stopped_by, agent.cost_usd) == ("tokens", None)
    assert 0 < e.run.budget.spent.tokens <= 50_000
    assert agent.usage.total == e.run.budget.spent.tokens


async def test_the_reported_cost_is_the_sum_of_its_calls() -> None:
    script = turns(*[call("look", word=f"w{n}") for n in range(5)], submitted())
    async with engine(script) as e:
        agent = e.agent()
        await run_agent(agent)

    assert agent.cost_usd is not None
    assert round(agent.cost_usd * 10**9) == e.served.cost_nanousd() == e.run.budget.spent.nanousd
