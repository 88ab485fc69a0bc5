"""Databases for tests: small files of DuckDB and their like, and their tools called by the gate."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import tool_kit

from scopes.databases.duck import Duck, DuckPool
from scopes.databases.tables import Databases, SourceDatabase
from scopes.label import WORKSPACE, Label
from scopes.resources import NewFile, Resource, Resources
from scopes.tool import ToolContext, ToolResult

SHOP = """
CREATE TABLE orders (id INTEGER, customer VARCHAR, amount DECIMAL(10,2), placed DATE);
INSERT INTO orders VALUES (1, 'Ana', 12.50, '2024-01-01'), (2, 'Ben', 7.25, '2024-01-02'),
  (3, 'Ana', 100.00, NULL);
COMMENT ON COLUMN orders.amount IS 'in euros';
CREATE VIEW big AS SELECT * FROM orders WHERE amount > 10;
CREATE SCHEMA hr; CREATE TABLE hr.staff (name VARCHAR); CREATE TABLE hr."group" (a INTEGER)"""


def duck_file(path: Path, *statements: str) -> Path:
    """A DuckDB file made by these statements."""
    with duckdb.connect(str(path)) as connection:
        for statement in statements or (SHOP,):
            connection.execute(statement)
    return path


@asynccontextmanager
async def duck(
    path: Path, schema: str | None = None, query_s: float = 10, memory_mb: int = 512
) -> AsyncIterator[Duck]:
    """A database at a path, whose processes are closed afterwards."""
    pool = DuckPool(memory_mb)
    try:
        yield Duck(path, schema, pool, query_s, 5_000_000)
    finally:
        await pool.aclose()


@dataclass
class MemoryFiles:
    """Files of runs, in memory."""

    files: list[Resource] = field(default_factory=list)

    async def save(self, file: NewFile) -> Resource:
        about = (file.space, file.name, 1, file.kind, file.content, file.label)
        resource = Resource(*about, datetime.now(UTC), len(file.content))
        self.files.append(resource)
        return resource

    async def get(self, space: str, name: str, version: int | None = None) -> Resource | None:
        return next((each for each in self.files if each.name == name), None)

    async def list_files(self, space: str) -> Sequence[Resource]:
        return self.files


def context(databases: Mapping[str, SourceDatabase], **more: Any) -> ToolContext:
    """The context of a subagent that may query all of them, of a run without a requester."""
    labels = {h: Label(True, WORKSPACE, frozenset({h})) for h in databases}
    clients: dict[type, object] = {Databases: Databases(databases, labels, 1_000)}
    clients[Resources] = MemoryFiles()
    titles = {h: h.removeprefix("data:") for h in databases}
    return tool_kit.context("data", clients, titles, **{"requester": None, **more})


def texts(result: ToolResult) -> list[str]:
    return [item.text for item in result.items]
