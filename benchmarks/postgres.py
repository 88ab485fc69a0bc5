"""Databases of our own on a Postgres server."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import sqlalchemy as sa


@contextmanager
def own_database(server: str) -> Iterator[str]:
    """Create a database on the server of this address, and drop it in the end.

    Raises psycopg.OperationalError if no server answers.
    """
    name = f"bench_{uuid.uuid4().hex[:8]}"
    with psycopg.connect(server, autocommit=True, connect_timeout=5) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        try:
            yield sa.make_url(server).set(database=name).render_as_string(hide_password=False)
        finally:
            connection.execute(f"DROP DATABASE {name} WITH (FORCE)")
