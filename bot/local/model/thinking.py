"""Signatures of thinking blocks: who made a block, and what came before it.

Source: platform.claude.com, "Preserved thinking". The key is fixed, so that a conversation can go
on after a restart; it protects nothing but the tests' honesty.
"""

import base64
import binascii
import hmac
from dataclasses import dataclass
from hashlib import blake2b

FIRST = "-"
_KEY = b"offline stand-in"


def fingerprint(data: bytes) -> str:
    """Eight bytes that stand for `data`, in hex."""
    return blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True)
class Bond:
    """All that a thinking block is bound to; each field after the first two is a fingerprint."""

    model: str
    effort: str
    system: str
    tools: str
    messages: str
    previous: str
    """The thinking block before it; `FIRST` for the first of a conversation."""

    def difference(self, issued: "Bond") -> str:
        """What has changed since `issued`, as the API says it; empty when nothing has.

        Thinking blocks may be left out from the start of a history, but not from its middle.
        """
        if self.system != issued.system:
            return "The `system` prompt differs from the one this block was created with."
        if self.tools != issued.tools:
            return "The `tools` differ from the ones this block was created with."
        if self.messages != issued.messages:
            return "The `messages` before this block differ from the ones it was created with."
        if self.previous not in (FIRST, issued.previous):
            return "A `thinking` block before this one was left out or moved."
        return ""

    def text(self) -> str:
        """What is signed."""
        parts = (self.model, self.effort, self.system, self.tools, self.messages, self.previous)
        return " ".join(parts)


def sign(bond: Bond, thinking: str) -> str:
    """The signature of a block with this text."""
    text = bond.text()
    return base64.b64encode(f"{text} {_mac(text, thinking)}".encode()).decode()


def open_signature(signature: str, thinking: str) -> Bond | None:
    """What the block was bound to; None when it was not made here or its text was edited."""
    try:
        text, mac = base64.b64decode(signature, validate=True).decode().rsplit(" ", 1)
    except (binascii.Error, ValueError):
        return None
    if not hmac.compare_digest(mac.encode(), _mac(text, thinking).encode()):
        return None
    return Bond(*text.split(" "))


def _mac(text: str, thinking: str) -> str:
    return blake2b(f"{text}\n{thinking}".encode(), key=_KEY, digest_size=8).hexdigest()
