"""Encryption of what is stored: Fernet, with the first of some keys; the others still open."""

from __future__ import annotations

import hashlib
import logging
import re
import zlib
from collections.abc import Sequence
from pathlib import Path

from cryptography.fernet import Fernet, InvalidToken

from bot.errors import SetupError, StoreError
from config.keys import Keys, keys_here, keys_of
from config.settings import Settings

log = logging.getLogger(__name__)

WORTH_PACKING = 200
"""Bytes below which a text is not compressed."""
_BEGINNING = re.compile(r"sealed:[0-9a-f]{8}:gAAAA")  # as all tokens of Fernet begin


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


class Vault:
    """Seals texts with the first key, and opens what any of the keys has sealed.

    Sealing takes about 10 us and 10 us more for each KB, opening a little less; a text of 1 KB
    takes as much room as before, a longer one less.
    """

    def __init__(self, keys: Sequence[str], place: str) -> None:
        """`place` says where the keys come from. A ValueError for one that is no Fernet key."""
        self.place = place
        self._keys = {_id(key): Fernet(key) for key in keys}
        self.current = _id(keys[0])
        """Id of the key that seals; it stands in each value, and tells nothing of the key."""

    @classmethod
    def new(cls) -> Vault:
        """A vault with a key of its own that nobody keeps."""
        return cls([Fernet.generate_key().decode()], "memory")

    def __repr__(self) -> str:
        return f"Vault({self.place}, {self.current})"

    def seal(self, text: str, column: str = "") -> str:
        """The text encrypted: `sealed:ID OF THE KEY:TOKEN`. With the name of a column it opens as
        one of that column alone: a text that somebody had us store elsewhere is none."""
        data = text.encode("utf-8", "surrogatepass")
        packed = zlib.compress(data, 1) if len(data) >= WORTH_PACKING else data
        body = b"z" + packed if len(packed) < len(data) else b"t" + data
        return self._sealed(_of(column) + body)

    def open(self, sealed: str, column: str = "") -> str:
        """What was sealed. Raises WrongKey where none of the keys did it for this column, or it was
        changed."""
        whole, start = self._opened(sealed), _of(column)
        body = whole[len(start) :]
        if not whole.startswith(start) or body[:1] not in (b"z", b"t"):
            raise WrongKey(self.place)
        data = zlib.decompress(body[1:]) if body[:1] == b"z" else body[1:]
        return data.decode("utf-8", "surrogatepass")

    def again(self, sealed: str) -> str:
        """The same, sealed with the first key. Raises WrongKey."""
        return self._sealed(self._opened(sealed))

    def _sealed(self, body: bytes) -> str:
        return f"sealed:{self.current}:{self._keys[self.current].encrypt(body).decode()}"

    def _opened(self, sealed: str) -> bytes:
        if not is_sealed(sealed):
            raise WrongKey(self.place)
        _, id, token = sealed.split(":", 2)
        try:
            return self._keys[id].decrypt(token)
        except (KeyError, InvalidToken):
            raise WrongKey(self.place) from None


def is_sealed(stored: str) -> bool:
    """Whether a stored value is one of ours; others were written before anything was encrypted."""
    return _BEGINNING.match(stored) is not None


def vault_of(settings: Settings) -> Vault:
    """With the keys that the settings name. Raises SettingsError."""
    return _made(keys_of(settings))


def vault_here(data_dir: Path) -> Vault:
    """With the keys of this account and environment. Raises SettingsError."""
    return _made(keys_here(data_dir))


def _made(keys: Keys) -> Vault:
    if keys.warning:
        log.warning("%s", keys.warning)
    return Vault([key.get_secret_value() for key in keys.values], keys.place)


def _of(column: str) -> bytes:
    """How what is sealed for a column begins; other texts begin with `z` or `t`."""
    return f"c{column}:".encode() if column else b""


def _id(key: str) -> str:
    return hashlib.sha256(b"assistant key id:" + key.encode()).hexdigest()[:8]
