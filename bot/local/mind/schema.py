"""What the offline mind makes of a database's names: words of tables and columns, and joins.

Joins are guessed from names: a column `customer_id` leads to the table `customers`.
"""

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache

LETTERS = re.compile(r"[^\W\d_]+")
_SHORT = {
    "cust": "customer", "tx": "transaction", "dp": "price", "qty": "quantity", "amt": "amount",
    "ccy": "currency", "prod": "product", "crtd": "created", "num": "number", "desc": "description",
}  # fmt: skip
_ALIKE = {
    "revenue": ("amount", "price", "total"), "spent": ("amount", "total"), "money": ("amount",),
    "bought": ("buy",), "sold": ("sale", "sell"), "client": ("customer",), "signup": ("customer",),
    "signed": ("join",), "representative": ("salesperson",), "rep": ("salesperson",),
    "purchase": ("sale", "order"), "cost": ("price",), "much": ("amount", "total"),
    "sales": ("amount", "price", "total"), "user": ("customer",), "spending": ("amount", "total"),
    "signups": ("customer",),
}  # fmt: skip
_LABELS = ("name", "title", "symbol", "model", "description")
"""Words of a column that says what a row of its table is called."""


@lru_cache(maxsize=10_000)
def stem(word: str) -> str:
    """A word without its ending, so that `prices`, `price` and `pricing` are the same."""
    word = "id" if word.lower() == "ids" else re.sub(r"ies$", "y", word.lower())
    word = re.sub(r"(?<=s|x|z)es$|(?<=ch|sh)es$", "", word) if len(word) > 5 else word
    word = re.sub(r"(?<![su])s$", "", word) if len(word) > 3 else word
    word = re.sub(r"(?:ing|ed|est)$", "", word) if len(word) > 5 else word
    return re.sub(r"e$", "", word) if len(word) > 3 else word


def stems(text: str) -> frozenset[str]:
    """The stems of the words of a text, with those that mean about the same."""
    words = LETTERS.findall(unicodedata.normalize("NFC", text).lower())
    alike = [other for word in words for other in _ALIKE.get(word.rstrip("s"), ())]
    alike += [other for word in words for other in _ALIKE.get(word, ())]
    return frozenset(map(stem, [*words, *alike]))


def name_parts(name: str) -> list[str]:
    """The words that a name is made of: `sbCustId` -> sb, customer, id."""
    words = LETTERS.findall(unicodedata.normalize("NFC", name))
    parts = [part.lower() for word in words for part in _humps(word)]
    return [_SHORT.get(part, part) for part in parts]


def _humps(word: str) -> Iterator[str]:
    """The parts of a word that begin with a capital: `HTMLPage` -> HTML, Page."""
    start = 0
    for at in range(1, len(word)):
        ends = not word[at - 1].isupper() or word[at + 1 : at + 2].islower()
        if word[at].isupper() and ends:
            yield word[start:at]
            start = at
    yield word[start:]


@dataclass(frozen=True)
class Column:
    name: str
    type: str
    words: frozenset[str]
    """Stems of its name without those that all columns of its table have."""

    @property
    def is_number(self) -> bool:
        return bool(re.match(r"(?i)dec|num|float|doub|real|.*int(?!erval)", self.type))

    @property
    def is_date(self) -> bool:
        return bool(re.match(r"(?i)date|timestamp", self.type))

    @property
    def is_text(self) -> bool:
        return bool(re.match(r"(?i)varchar|text|string|char|enum", self.type))

    @property
    def is_id(self) -> bool:
        return "id" in self.words


@dataclass(frozen=True)
class Table:
    name: str
    """As a query names it."""
    columns: tuple[Column, ...]
    words: frozenset[str] = field(default=frozenset())

    @classmethod
    def of(cls, name: str, columns: Sequence[tuple[str, str]]) -> "Table":
        parts = [name_parts(column) for column, _ in columns]
        shared = set.intersection(*map(set, parts)) if len(parts) > 1 else set()
        made = [
            Column(c, t, frozenset(map(stem, [w for w in p if w not in shared] or p)))
            for (c, t), p in zip(columns, parts, strict=True)
        ]
        own = [part for part in name_parts(name.rpartition(".")[2]) if part not in shared or
               len(name_parts(name.rpartition(".")[2])) == 1]  # fmt: skip
        own += [part for part in shared if len(part) > 2]
        return cls(name, tuple(made), frozenset(map(stem, own)))

    @property
    def alias(self) -> str:
        """What a query calls its columns by."""
        own = self.name.rpartition(".")[2]
        return own if own.startswith('"') else quoted(own)

    @property
    def key(self) -> Column:
        return self.own_key or self.columns[0]

    @property
    def own_key(self) -> Column | None:
        """The id of its rows, not that of another table's; None where it has none."""
        own = ({"id"}, self.words | {"id"})
        return next((c for c in self.columns if c.words in own), None)

    @property
    def labels(self) -> tuple[Column, ...]:
        """What a row is called: its name, or its first and last name; else its key."""
        named = [c for c in self.columns if "nam" in c.words and c.is_text]
        whole = [c for c in named if not c.words & {"first", "last", "middl"}]
        found = whole[:1] or named[:2]
        rest = (c for word in _LABELS for c in self.columns if word in c.words)
        return tuple(found) or ((label,) if (label := next(rest, None)) else (self.key,))


@dataclass(frozen=True)
class Place:
    """A column and the table that it is in."""

    table: Table
    column: Column

    def sql(self) -> str:
        return f"{self.table.alias}.{quoted(self.column.name)}"


def quoted(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else '"' + name.replace('"', '""') + '"'


def link(one: Table, two: Table) -> str:
    """The condition that joins two tables, guessed from names; empty where there is none."""
    for left, right in ((one, two), (two, one)):
        key = right.own_key
        for column in left.columns if key else ():
            if not key or not column.is_id or column == left.own_key:
                continue
            same = column.name.lower() == key.name.lower()
            tail = name_parts(column.name)[-2:] == name_parts(key.name)[-2:]
            named = key.words == {"id"} and column.words - {"id"} <= right.words
            if (
                same
                or (tail and len(name_parts(key.name)) > 1)
                or (named and len(column.words) > 1)
            ):
                return f"{Place(left, column).sql()} = {Place(right, key).sql()}"
    return ""


def path(start: Table, wanted: Iterable[Table], tables: Sequence[Table]) -> list[str] | None:
    """The JOIN clauses from a table to others, through as few as can be; None where none lead."""
    came: dict[str, Table | None] = {start.name: None}
    queue = [start]
    for here in queue:
        for other in tables:
            if other.name not in came and link(here, other):
                came[other.name] = here
                queue.append(other)
    joins: dict[str, str] = {}
    for table in wanted:
        if table.name not in came:
            return None
        chain: list[Table] = []
        at: Table | None = table
        while at is not None and at.name != start.name:
            chain.append(at)
            at = came[at.name]
        for each in reversed(chain):
            before = came[each.name]
            assert before is not None
            joins[each.name] = f"JOIN {each.name} ON {link(before, each)}"
    return list(joins.values())


Values = Mapping[tuple[str, str], Sequence[str]]
"""Table and column -> some of the texts that stand in it."""
