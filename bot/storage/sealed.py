"""Columns whose text is encrypted: `Database.open` gives the dialect the vault that does it."""

from __future__ import annotations

import json
from typing import Any

import sqlalchemy as sa

from bot.mail.addresses import hidden
from bot.storage.vault import Vault, is_sealed


def dumps(value: Any) -> str:
    """Compact JSON that can be encoded as UTF-8."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    try:
        text.encode()
    except UnicodeEncodeError:  # half of a surrogate pair: JSON can spell it, UTF-8 cannot
        return json.dumps(value, separators=(",", ":"))
    return text


class Sealed(sa.types.TypeDecorator[str]):
    """Text that is encrypted where it is stored. It differs each time, so no query compares it."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else _vault(dialect).seal(value)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else _opened(value, dialect)


class OnlySealed(Sealed):
    """The same where nothing was ever stored plain: what was not sealed by us, and for a column of
    this name, is not read, but refused."""

    cache_ok = True

    def __init__(self, column: str) -> None:
        super().__init__()
        self.column = column

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else _vault(dialect).seal(value, self.column)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else _vault(dialect).open(value, self.column)


class Author(sa.types.TypeDecorator[str]):
    """Id of whoever wrote something. A mail address is hidden: rows can be looked for by it, and
    nobody reads it there."""

    impl = sa.String
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        if value is None or "@" not in value:
            return value
        key: bytes = dialect.digest_key
        return hidden(value, key)


class SealedJson(sa.types.TypeDecorator[Any]):
    """JSON that is encrypted where it is stored; None is NULL."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> str | None:
        return None if value is None else _vault(dialect).seal(dumps(value))

    def process_result_value(self, value: str | None, dialect: Any) -> Any:
        return None if value is None else json.loads(_opened(value, dialect))


def differs(context: Any, column: Any, wanted_column: Any, found: Any, wanted: Any) -> bool | None:
    """Alembic's `compare_type`: in SQLite a column made for JSON holds what is sealed, too."""
    if not isinstance(wanted, Sealed | SealedJson):
        return None  # as Alembic sees it
    kinds = (sa.String, sa.JSON) if context.dialect.name == "sqlite" else sa.String
    return not isinstance(found, kinds)


def _opened(stored: str, dialect: Any) -> str:
    return _vault(dialect).open(stored) if is_sealed(stored) else stored


def _vault(dialect: Any) -> Vault:
    vault: Vault = dialect.vault
    return vault
