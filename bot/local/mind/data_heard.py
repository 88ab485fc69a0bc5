"""What the offline mind has been shown of a database: its tables, and some of what is in them."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from bot.local.mind.hearing import Exchange, Heard
from bot.local.mind.schema import Place, Table, Values, stems
from bot.local.mind.sql import composed
from bot.local.mind.sql_place import Placed, fitting, placed, schema_of, schemas_in, words_of

MAX_TABLES = 12
"""Most tables that are looked into; those that the question names come first."""
MAX_VALUES = 40
"""Most different texts of a column that are looked at for those that the question names."""
MAX_LOOK = 18_000
"""Characters of the query that looks at them; a longer one is refused."""
LOOK = "SELECT c, v FROM ("
"""How that query begins."""
UNREADABLE = ": not readable: "
ROW = re.compile(r"^\[(?P<id>q-\w+#row\d+)\] (?P<text>.*)$", re.MULTILINE)
TABLE = re.compile(r"^\[t-\w+\] (?P<name>(?:\"(?:[^\"]|\"\")+\"|[^\s(:\"])+)")
_COLUMN = re.compile(
    r"^\[t-\w+#\d+\] (?P<name>.+?) (?P<type>[A-Z][A-Z0-9_ ]*(?:\(.*\))?)(?:: .*)?$"
)
_VALUE = re.compile(r"^c: (?P<place>[^;]*); v: (?P<value>.*)$")
_HANDLE = re.compile(r"\bdata:[\w.-]+")
_DATABASE = "database|db|file|folder"


@dataclass(frozen=True)
class Asked:
    """A question to a database, with what has been shown of that up to now."""

    heard: Heard
    said: str
    """The question as it was asked."""
    handle: str
    """The database that is asked; empty where none is held."""
    others: tuple[str, ...]
    """Those that nobody looks at then: of those that the question names, else of all."""
    where: Placed
    """The question without the words that say where, and the schemas that it names."""
    listed: tuple[str, ...]
    """Tables to look into, those whose names the question says first."""
    tables: tuple[Table, ...]
    """Those that were described."""

    @property
    def question(self) -> str:
        return self.where.question

    @property
    def groups(self) -> list[list[Table]]:
        """The tables that fit the question, by schema."""
        return fitting(self.question, self.tables)

    @property
    def best(self) -> list[Table]:
        return next(iter(self.groups), [])

    @property
    def made(self) -> dict[str, tuple[str, list[str]]]:
        """Schema -> a query, and what of the question it leaves out."""
        today = days[-1] if (days := _days(self.heard.section("NOW"))) else "1970-01-01"
        values = self.values
        return {
            schema_of(group[0].name): composed(self.question, group, values, today)
            for group in self.groups
        }

    @property
    def selects(self) -> dict[str, str]:
        """Schema -> query, of those that have an answer; which is meant is not known of several."""
        return {schema: sql for schema, (sql, left) in self.made.items() if sql and not left}

    @property
    def texts(self) -> list[Place]:
        """The columns whose texts a question may name."""
        tables = (table for group in self.groups for table in group)
        return [Place(t, c) for t in tables for c in t.columns if c.is_text and not c.is_id]

    @property
    def values(self) -> Values:
        """Table and column -> the texts in it, as far as the look showed them."""
        places = self.texts
        found: dict[tuple[str, str], list[str]] = {}
        looks = (e for e in self.heard.exchanges if str(e.input.get("sql", "")).startswith(LOOK))
        for exchange in looks:
            for _, text in ROW.findall(exchange.text):
                if (cell := _VALUE.match(text)) and cell["place"].isdigit():
                    place = places[int(cell["place"])]
                    key = (place.table.name, place.column.name)
                    found.setdefault(key, []).append(cell["value"])
        return found


def _days(text: str) -> list[str]:
    """When the request was made comes last."""
    return re.findall(r"\d{4}-\d\d-\d\d", text)


def asked_of(heard: Heard, question: str) -> Asked:
    """What has been shown for a question."""
    handle, others = _chosen(heard, question)
    names = _listed(heard)
    described = _described(heard)
    seen = {table.name: table for table in described}
    known = [seen.get(name) or Table.of(name, []) for name in names]
    rest = placed(question, {_title(handle): words_of(known)} if handle else {}, _DATABASE).question
    where = schemas_in(rest, known)
    if where.names:
        names = [name for name in names if schema_of(name) in where.names]
        described = [table for table in described if schema_of(table.name) in where.names]
    said = stems(where.question)
    names.sort(key=lambda name: -len(said & Table.of(name, []).words))
    listed = tuple(names[:MAX_TABLES])
    return Asked(heard, question, handle, tuple(others), where, listed, tuple(described))


def _title(handle: str) -> str:
    return handle.removeprefix("data:")


def _chosen(heard: Heard, question: str) -> tuple[str, list[str]]:
    """The database that is asked, and the others of those that are meant."""
    held = list(dict.fromkeys(_HANDLE.findall(heard.section("MAY READ"))))
    named = placed(question, {_title(h): stems(_title(h)) for h in held}, _DATABASE).names
    sure = [h for h in held if _title(h) in named]
    said = stems(question)
    meant = sure or [h for h in held if stems(_title(h)) & said] or held
    return next(iter(meant), ""), meant[1:]


def _listed(heard: Heard) -> list[str]:
    """The tables that can be read, as a query names them."""
    shown = [line for e in heard.exchanges if e.name == "list_tables" for line in lines_of(e)]
    readable = [line for line in shown if UNREADABLE not in line]
    return [found["name"] for line in readable if (found := TABLE.match(line))]


def lines_of(exchange: Exchange) -> list[str]:
    return [line.strip() for line in exchange.text.splitlines()]


def _described(heard: Heard) -> list[Table]:
    found: list[Table] = []
    for exchange in heard.exchanges:
        if exchange.name == "describe_table" and not exchange.is_error:
            columns = [c for line in lines_of(exchange) if (c := _COLUMN.match(line))]
            pairs = [(c["name"], c["type"]) for c in columns]
            found.append(Table.of(str(exchange.input["table"]), pairs))
    return found


def look(places: Sequence[Place]) -> str:
    """One query for what stands in columns that hold few different texts."""
    parts: list[str] = []
    for n, p in enumerate(places):
        part = (
            f"SELECT '{n}' AS c, v FROM (SELECT DISTINCT {p.sql()} AS v FROM {p.table.name}) "
            f"AS t{n} WHERE v IS NOT NULL AND "
            f"(SELECT COUNT(DISTINCT {p.sql()}) FROM {p.table.name}) <= {MAX_VALUES}"
        )
        if sum(map(len, parts)) + len(part) + 11 * n > MAX_LOOK:
            break
        parts.append(part)
    return f"{LOOK}{' UNION ALL '.join(parts)}) AS found ORDER BY c, v"
