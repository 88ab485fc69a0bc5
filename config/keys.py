"""The encryption keys for stored data: from the environment, or else from a key file."""

from __future__ import annotations

import base64
import os
import secrets
import time
from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from config.settings import Environment, Settings, SettingsError, key_file_of

VARIABLE = "ASSISTANT_ENCRYPTION_KEY"
KEY_BYTES = 32
MAX_ATTEMPTS = 20
TRY_AGAIN_S = 0.05
NEW_KEY = "`openssl rand -base64 32 | tr +/ -_` makes one"


@dataclass(frozen=True, slots=True)
class Keys:
    """Fernet keys; the first one encrypts, all of them decrypt."""

    values: tuple[SecretStr, ...]
    place: str
    """Where they were read from."""
    warning: str = ""
    """A sentence on what is wrong with that place; empty = nothing."""


def keys_of(settings: Settings) -> Keys:
    """Return the keys that these settings name; create the key file if there is none.

    Raises SettingsError for an invalid key, and for a file that cannot be used.
    """
    secret = settings.secrets.assistant_encryption_key
    return _keys(secret, settings.key_file, settings.data_dir)


def keys_here(data_dir: Path) -> Keys:
    """Return the keys for this environment and that data directory."""
    outside = Environment()
    return _keys(outside.assistant_encryption_key, key_file_of(outside), data_dir)


def _keys(secret: SecretStr | None, file: Path, data_dir: Path) -> Keys:
    if secret:
        return Keys(_read(secret.get_secret_value(), VARIABLE), VARIABLE)
    if file.resolve().is_relative_to(data_dir.resolve()):
        raise SettingsError(
            f"The key file {file} is inside the data directory {data_dir}, where it protects "
            "nothing: set ASSISTANT_KEY_FILE to a file elsewhere."
        )
    try:
        if not file.exists():
            _make(file)
        open_to_others = file.stat().st_mode & 0o077
        values = _read(_text_of(file), str(file))
    except (OSError, UnicodeDecodeError) as error:
        why = (getattr(error, "strerror", None) or "it is not ASCII text").lower()
        raise SettingsError(
            f"The key file {file} cannot be used ({why}): fix that, set ASSISTANT_KEY_FILE to "
            f"another one, or set {VARIABLE} ({NEW_KEY})."
        ) from None
    warning = f"Other accounts may read the key file {file}: run `chmod 600 {file}`."
    return Keys(values, str(file), warning if open_to_others else "")


def _read(text: str, place: str) -> tuple[SecretStr, ...]:
    found = text.replace(",", " ").split()
    if not found:
        raise SettingsError(f"{place} holds no key: {NEW_KEY}, but data needs the key it had.")
    for key in found:
        if not _is_key(key):
            what = "something that is no Fernet key (32 bytes in URL-safe base64)"
            raise SettingsError(f"{place} holds {what}: {NEW_KEY}.")
    return tuple(map(SecretStr, found))


def _is_key(text: str) -> bool:
    try:
        return len(base64.b64decode(text, altchars=b"-_", validate=True)) == KEY_BYTES
    except ValueError:
        return False


def _make(file: Path) -> None:
    """Write a new key, unless another process has just created the file."""
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = base64.urlsafe_b64encode(secrets.token_bytes(KEY_BYTES)) + b"\n"
    try:
        descriptor = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return
    with os.fdopen(descriptor, "wb") as writing:
        writing.write(key)
        writing.flush()
        os.fsync(descriptor)  # before any data that is encrypted with it is written


def _text_of(file: Path) -> str:
    """Return the content of the file; wait a moment for a process that is writing it."""
    for _ in range(MAX_ATTEMPTS):
        if text := file.read_text("ascii"):
            return text
        time.sleep(TRY_AGAIN_S)
    return ""
