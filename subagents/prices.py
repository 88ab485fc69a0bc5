"""The cost of a call, expected and actual, by the prices of genai-prices (bundled, offline)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from genai_prices import Usage as PricedUsage
from genai_prices import calc_price
from genai_prices.types import ModelPrice, calc_unit_price

from subagents.budget import NANOUSD_PER_USD, Amount

PRICE_LISTS = {
    "anthropic": ("anthropic", 1.0),
    "bedrock": ("aws", 1.0),
    "vertex": ("google", 1.0),
    "vertex-regional": ("google", 1.1),
}
"""Price list -> its provider in genai-prices, and a factor for what is not listed there.

Vertex asks 10 % more outside of its global endpoint (platform.claude.com, Pricing).
"""


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of calls as the API reports them: `input` is what was neither read nor written."""

    input: int = 0
    output: int = 0
    cache_read: int = 0
    cache_write: int = 0

    @property
    def total(self) -> int:
        return self.prompt + self.output

    @property
    def prompt(self) -> int:
        """Return the tokens of the whole prompt, cached or not."""
        return self.input + self.cache_read + self.cache_write

    def __add__(self, other: Usage) -> Usage:
        return Usage(*(getattr(self, n) + getattr(other, n) for n in self.__slots__))

    def to_json(self) -> dict[str, int]:
        return {name: getattr(self, name) for name in (*self.__slots__, "total")}

    @classmethod
    def of(cls, reported: Mapping[str, Any]) -> Usage:
        """Return the `usage` of a Messages API reply; 0 where a compatible server leaves it out."""
        names = ("input", "output", "cache_read_input", "cache_creation_input")
        return cls(*(max(0, int(reported.get(f"{name}_tokens") or 0)) for name in names))


@cache
def _price_of(model: str, provider: str) -> ModelPrice | None:
    """Return the listed price of a model: finding it takes longer than all else here."""
    try:
        return calc_price(PricedUsage(input_tokens=1), model, provider_id=provider).model_price
    except LookupError:
        return None


def cost_nanousd(model: str, usage: Usage, prices: str = "anthropic") -> int | None:
    """Return the cost of one call; None if unknown. Prices have tiers: never sum usage first.

    `prices` is one of PRICE_LISTS. A prompt over a threshold pays the higher rate for all of its
    tokens. Where no price of cached tokens is listed, they cost as much as others.
    """
    provider, factor = PRICE_LISTS[prices]
    if (listed := _price_of(model, provider)) is None:
        return None
    rates = {name: getattr(listed, f"{name}_mtok") or listed.input_mtok for name in usage.__slots__}
    usd = sum(
        calc_unit_price(rate, getattr(usage, name), usage.prompt, per=1_000_000)
        for name, rate in rates.items()
    )
    return round(float(usd) * NANOUSD_PER_USD * factor)


def sum_usd(one: float | None, other: float | None) -> float | None:
    """Return the sum of two costs; None if either is unknown."""
    return None if one is None or other is None else one + other


def worst_case(
    model: str, prompt_tokens: int, max_tokens: int, prices: str = "anthropic"
) -> Amount:
    """Return the maximum cost of one call: the whole prompt written to the cache, full output."""
    return actual(model, Usage(cache_write=prompt_tokens, output=max_tokens), prices)


def actual(model: str, usage: Usage, prices: str = "anthropic") -> Amount:
    return Amount(cost_nanousd(model, usage, prices) or 0, usage.total, 1)
