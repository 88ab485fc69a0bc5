"""Where the offline mind looks: the database or schema that a question names, else what fits it."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from bot.local.mind.schema import Table, stems

_INSIDE = ("in", "from", "within", "inside")
"""Words before a place; the others stand before much else."""
_PREPOSITION = rf"\b(?:{'|'.join(_INSIDE)}|of|for|at|on)"
_END = re.compile(r"\s+(?=[.?!,;])|^[\s,:;]+")


@dataclass(frozen=True)
class Placed:
    """A question without the words that name a place, and the places that it names."""

    question: str
    names: tuple[str, ...] = ()
    doubtful: str = ""
    """A name that stands where a place may, and that may be any other word."""


def placed(question: str, words: Mapping[str, Collection[str]], noun: str) -> Placed:
    """What a question names of some places.

    `words`: name of each place -> stems of the words that mean something else outside it; `noun`:
    what people call such a place, as an expression.
    """
    names: list[str] = []
    for name in sorted(words, key=len, reverse=True):
        own = rf"(?<![\w.])[\"'`]?{_spelled(name)}(?!\w)[\"'`]?"
        sure = (
            rf"(?:{_PREPOSITION} )?(?:the )?(?:{noun}) (?:called |named )?{own}(?:[:,]|(?!\.\w))",
            rf"(?:{_PREPOSITION} )?(?:the )?{own} (?:{noun})\b[:,]?",
            rf"^(?:(?:{_PREPOSITION}) )?(?:the )?{own}:",
            rf"{own}\.(?=[^\W\d]|\")",
        )
        for pattern in sure:
            found = re.sub(pattern, " ", question, flags=re.IGNORECASE)
            names += [name] if found != question else []
            question = found
        alone = re.search(
            rf"(?P<how>{_PREPOSITION}) (?:the )?{own}(?!\.\w)(?: *,)?", question, re.IGNORECASE
        )
        if not alone or name in names:
            continue
        if stems(name).isdisjoint(words[name]):
            question = f"{question[: alone.start()]} {question[alone.end() :]}"
            names.append(name)
        elif alone["how"].lower() in _INSIDE:
            return Placed(question, tuple(names), name)
    return Placed(_END.sub("", " ".join(question.split())), tuple(dict.fromkeys(names)))


def _spelled(name: str) -> str:
    """`car_dealership` may be said with a space."""
    return "[ _-]".join(map(re.escape, re.split(r"[\W_]+", name.strip('"'))))


def schema_of(table: str) -> str:
    """What stands before the name of a table; empty where it needs none."""
    return table.rpartition(".")[0]


def schemas_in(question: str, tables: Sequence[Table]) -> Placed:
    """The schemas that a question names, of those of these tables."""
    groups = by_schema(tables)
    words = {
        name: {w for other, group in groups.items() if other != name for w in words_of(group)}
        for name in groups
        if name
    }
    return placed(question, words, "schema|database|db")


def by_schema(tables: Sequence[Table]) -> dict[str, list[Table]]:
    """Schema -> its tables."""
    groups: dict[str, list[Table]] = {}
    for table in tables:
        groups.setdefault(schema_of(table.name), []).append(table)
    return groups


def words_of(tables: Sequence[Table]) -> set[str]:
    """The stems of all names in them."""
    columns = {word for table in tables for column in table.columns for word in column.words}
    return columns | {word for table in tables for word in table.words}


def fitting(question: str, tables: Sequence[Table]) -> list[list[Table]]:
    """The tables by schema, without a schema that knows fewer of the question's words than another
    and no word more; best first."""
    said = stems(question)
    groups = list(by_schema(tables).values())
    known = [said & words_of(group) for group in groups]
    kept = [n for n, own in enumerate(known) if not any(own < other for other in known)]
    return [groups[n] for n in sorted(kept, key=lambda n: -len(known[n]))]
