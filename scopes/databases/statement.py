"""Whether a SQL statement only reads: a first look, before a read-only connection runs it."""

from __future__ import annotations

import re

STRINGS = re.compile(
    r"""(?P<literal>'(?:[^']|'')*')|(?P<name>"(?:[^"]|"")*"|`[^`]*`)|--[^\n]*
    |/\*.*?(?:\*/|(?P<open>\Z))""",
    re.DOTALL | re.VERBOSE,
)
"""Text of a statement that is no statement: literals, quoted names, comments."""
NAME, LITERAL = "\1", "\2"
"""What stands for a quoted name and a literal while the rest is looked at."""
AMBIGUOUS = re.compile(r"""[\0-\2]|\\['"`]|/\*M?!|\[[^\[\]]*['"`]""")
"""Where quotes and comments end depends on the database."""
DOLLARS = re.compile(r"\$\w*\$")
READS = re.compile(r"\s*\(*\s*(select|with|values|describe|show|summarize|from)\b", re.IGNORECASE)
ACTS = re.compile(
    r"""\b(insert|update|delete|merge|replace|create|alter|drop|truncate|grant|revoke|copy|attach
    |detach|install|load|pragma(?:_database_list)?|call|execute|prepare|vacuum|set|reset|begin
    |commit|export|import|lock|listen|notify|do|into|use|for\s+(?:key\s+)?share)\b""",
    re.IGNORECASE | re.VERBOSE,
)
NAMED = re.compile(
    r"\b(?:replace|set|load|use|show|call|do)\s*\(|\b[^\W\d]\w*\s*\.\s*\w+", re.IGNORECASE
)
"""A function or a column that is called like a statement."""
CALLED = re.compile(rf"[{NAME}{LITERAL}]\s*\(")
"""A quoted name that is called may be any function."""
TOKENS = re.compile(rf"\d[\d_]*(?:e[+-]?\d+)?|[^\W\d]\w*|[()\[\]{{}},.:{NAME}{LITERAL}]")
"""`1from` is a number and a word."""
ONE_TABLE = frozenset(
    """join table desc describe summarize show pivot pivot_wider pivot_longer unpivot""".split()
)
"""Words before a table; `from` stands before a list of them."""
CLAUSES = frozenset("where group order having limit select union".split())
"""Words that end such a list; each is reserved, but for a column behind a point."""
PATH = re.compile(r"[./\\:*]")
HARMLESS = r"pg_(?:typeof|size_\w+|column_\w+|relation_size|total_relation_size|table_size|get_\w+)"
EFFECTS = re.compile(
    rf"""\b(?!{HARMLESS}\b)(?:
      pg_\w+|lo_\w+|loread|lowrite|dblink\w*|crosstab\w*|connectby|setval|nextval|set_config|txid_\w+|brin_\w+|gin_\w+
    | (?:query|cursor|table|schema|database)_to_\w+|ts_stat|ts_rewrite        # PostgreSQL
    | load_extension|readfile|writefile|edit|fts\d\w*|sqlite_\w+|pragma_\w+|fsdir|lsdir|zipfile
    | eval|sqlar_\w+|csv                                                            # SQLite
    | read_\w+|write_\w+|parquet_\w+|sniff_\w+|glob|\w+_scan|scan_\w+|\w+_query|\w+_execute|query
    | query_table|getenv|duckdb_\w+|which_secret|st_read\w*|http\w*|from_substrait\w*|\w*checkpoint
    | json_execute\w*|json_serialize_plan|load_\w+|histogram_values                 # DuckDB
    | sleep|benchmark|get_lock|release_\w+|xp_\w+|sp_\w+|open(?:rowset|query|datasource)|sys_\w+
    )\s*\(""",
    re.IGNORECASE | re.VERBOSE,
)
"""Functions that read files, run text as SQL, hold locks, change something or ask a network."""


MOST = 20_000
"""Characters of a statement."""
REFUSED = "Only one SELECT may be run at a time, and nothing else."
"""What a model is told of a statement that is none such."""


def refusal(text: str) -> str:
    """Return why this is not, beyond doubt, a single statement that only reads.

    Empty where it is one.

    A sentence that a model can fix its statement by.
    """
    if len(text) > MOST:
        return f"A statement has at most {MOST:,} characters."
    bare = STRINGS.sub(_stand_in, text)
    if AMBIGUOUS.search(text) or any(mark in bare for mark in MARKS) or DOLLARS.search(bare):
        return UNENDING
    bare = bare.strip().removesuffix(";")
    if ";" in bare or not READS.match(bare):
        return REFUSED
    if CALLED.search(bare):
        return "A name in quotes may not be called: write the function without them."
    if found := EFFECTS.search(bare):
        return f"{_word(found)}() may not be called here. {CATALOGS}"
    if found := ACTS.search(NAMED.sub(" ", bare)):
        word = _word(found)
        return f"{REFUSED} A column that is named {word} needs its table before it: t.{word}."
    return FILE if _names_file(bare.lower()) else ""


MARKS = ("'", '"', "`", "/*", "*/")
UNENDING = (
    "Where its quotes or comments end cannot be told: double a quote within quotes, and leave out "
    "comments, backslashes before quotes, quotes in square brackets and dollar quotes."
)
CATALOGS = (
    "information_schema, list_tables and describe_table tell what tables and columns there are."
)
FILE = "A path in quotes or backticks is no table here: list_tables shows their names."


def _word(found: re.Match[str]) -> str:
    """Return the word that was found, without what stands around it."""
    return re.sub(r"\W+", " ", found[0]).strip()[:60]


def _names_file(bare: str) -> bool:
    """Return whether a literal stands where a table does, which is a file (DuckDB).

    A comma counts only in the brackets of its list.
    """
    outer: list[bool] = []
    in_list = due = False  # within a list of tables; a table is what comes next
    before = ""
    for token in TOKENS.findall(bare):
        if token == LITERAL and due:
            return True
        if token in "([{":
            outer.append(in_list)
            in_list = due
        elif token in ")]}":
            if not outer:
                return True
            in_list, due = outer.pop(), False
        elif token in ",:":  # FROM alias: 'file'
            due = in_list
        elif token == "from" or token in ONE_TABLE:
            in_list, due = in_list or token == "from", True
        else:
            rows = (before, token) == ("(", "values")
            ends = token in CLAUSES and before not in (".", "within")
            in_list, due = in_list and not (rows or ends), False
        before = token
    return False


def _stand_in(found: re.Match[str]) -> str:
    if found["open"] is not None:
        return "/*"
    if name := found["name"]:
        return f" {LITERAL if PATH.search(name) else NAME} "
    return f" {LITERAL} " if found["literal"] else " "
