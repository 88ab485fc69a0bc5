"""Encryption of OAuth tokens and recorded model traffic: Fernet, with one or several keys."""

from __future__ import annotations

import json
import logging
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from cryptography.fernet import Fernet, InvalidToken, MultiFernet

from bot.errors import SetupError, StoreError
from config.keys import Keys, keys_here, keys_of
from config.settings import Settings
from scopes.tool import compact_json

log = logging.getLogger(__name__)


class WrongKey(StoreError):
    """The data was encrypted with a key that is not among ours."""

    def __init__(self, place: str) -> None:
        self.where = place
        SetupError.__init__(
            self,
            "store",
            f"The key in {place} is not the one that this data was written with.",
            "Put that key back, or where several processes share the database give all of them "
            "the same ASSISTANT_ENCRYPTION_KEY.",
        )


class Cipher:
    """Encrypts texts with the first key, and decrypts what any of the keys encrypted."""

    def __init__(self, keys: Sequence[str], place: str) -> None:
        """Create a cipher; `place` names the source of the keys. Raises ValueError."""
        self.place = place
        self._first = Fernet(keys[0])
        self._all = MultiFernet([Fernet(key) for key in keys])

    @classmethod
    def generate(cls) -> Cipher:
        """Return a cipher with a new key that is stored nowhere."""
        return cls([Fernet.generate_key().decode()], "memory")

    def __repr__(self) -> str:
        return f"Cipher({self.place})"

    def encrypt(self, text: str) -> str:
        """Compress and encrypt a text."""
        data = text.encode("utf-8", "surrogatepass")
        return self._all.encrypt(zlib.compress(data, 1)).decode()

    def decrypt(self, token: str) -> str:
        """Return the text. Raises WrongKey if none of the keys encrypted it."""
        try:
            data = self._all.decrypt(token)
        except InvalidToken:
            raise WrongKey(self.place) from None
        return zlib.decompress(data).decode("utf-8", "surrogatepass")

    def is_current(self, token: str) -> bool:
        """Return whether the first key encrypted it."""
        try:
            self._first.decrypt(token)
        except InvalidToken:
            return False
        return True


def cipher_of_dialect(dialect: Any) -> Cipher:
    """Return the cipher that was passed to `Database.open`."""
    cipher: Cipher = dialect.cipher
    return cipher


def cipher_of(settings: Settings) -> Cipher:
    """Return a cipher with the keys that the settings name. Raises SettingsError."""
    return _cipher(keys_of(settings))


def cipher_here(data_dir: Path) -> Cipher:
    """Return a cipher with the keys of this account and environment. Raises SettingsError."""
    return _cipher(keys_here(data_dir))


def _cipher(keys: Keys) -> Cipher:
    if keys.warning:
        log.warning("%s", keys.warning)
    return Cipher([key.get_secret_value() for key in keys.values], keys.place)


class EncryptedText(sa.types.TypeDecorator[str]):
    """Text that is encrypted in the database, by the cipher passed to `Database.open`."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else cipher_of_dialect(dialect).encrypt(value)

    def process_result_value(self, value: str | None, dialect: Any) -> str | None:
        return None if value is None else cipher_of_dialect(dialect).decrypt(value)


class JsonText(str):
    """A value that is already JSON."""


class EncryptedJson(sa.types.TypeDecorator[Any]):
    """JSON that is encrypted in the same way."""

    impl = EncryptedText
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Any) -> str | None:
        if value is None or isinstance(value, JsonText):
            return value
        return compact_json(value)

    def process_result_value(self, value: str | None, dialect: Any) -> Any:
        return None if value is None else json.loads(value)
