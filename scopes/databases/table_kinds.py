"""Kinds of files of tables, by the ends of their names and the beginning of a DuckDB file."""

from __future__ import annotations

from pathlib import Path

CSV, PARQUET = (".csv", ".tsv"), (".parquet",)
SQLITE, EXCEL = (".sqlite", ".sqlite3", ".db"), (".xlsx", ".xlsm")
TABLES = (*CSV, *PARQUET, *SQLITE, *EXCEL)


def is_duckdb(path: Path) -> bool:
    """Return whether `DUCK` is at the ninth byte. Raises OSError."""
    with path.open("rb") as file:
        return file.read(12)[8:] == b"DUCK"
