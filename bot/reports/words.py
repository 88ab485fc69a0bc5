"""The fixed words of a report in the language of its readers."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import lru_cache
from pathlib import Path
from typing import Any

import yaml

WORDS = Path(__file__).with_name("words.yaml")
ENGLISH = "en"
FEW = range(2, 5)
"""Numbers that have a form of their own where a language has three."""


@dataclass(frozen=True, slots=True)
class Words:
    """What code says in a report, in one language."""

    language: str
    table: Mapping[str, Any]

    def __call__(self, key: str, **values: object) -> str:
        """The words of that key, in the form that their number `n` needs."""
        told = self.table[key]
        number = values.get("n")
        if isinstance(number, int):
            values["n"] = self.number(number)
            told = told if isinstance(told, str) else told[self._form(number, len(told))]
        return str(told).format_map(values)

    @staticmethod
    def _form(number: int, forms: int) -> int:
        if number == 1:
            return 0
        return 1 if forms == 3 and number in FEW else forms - 1

    def number(self, value: int) -> str:
        """With its thousands apart; a comma would be a point elsewhere."""
        told = f"{value:,}"
        return told if self.language == ENGLISH else told.replace(",", "\N{NARROW NO-BREAK SPACE}")

    def day(self, at: str) -> str:
        """The day of a time in ISO 8601, in UTC."""
        day = datetime.fromisoformat(at).astimezone(UTC).date()
        month = self.table["months"][day.month - 1]
        return str(self.table["date"]).format(d=day.day, m=month, y=day.year)

    def minute(self, at: str) -> str:
        """The day and the time on it, in UTC."""
        return f"{self.day(at)} {datetime.fromisoformat(at).astimezone(UTC):%H:%M} UTC"


@lru_cache(maxsize=1)
def languages() -> Mapping[str, Mapping[str, Any]]:
    """The table of all languages that there are words for."""
    table: dict[str, Mapping[str, Any]] = yaml.safe_load(WORDS.read_text("utf-8"))
    return table


def words_of(language: object) -> Words:
    """The words of a language code such as `pt-BR`; English where there are none."""
    code = str(language or ENGLISH).replace("_", "-").partition("-")[0].lower()
    known = languages()
    code = code if code in known else ENGLISH
    return Words(code, known[code])
