"""Thinking blocks, signed with what came before them (platform.claude.com, "Preserved thinking").

The key is fixed, so that a conversation can go on after a restart; it protects nothing but the
tests' honesty.
"""

import base64
import binascii
import hmac
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any

from bot.local.model.usage import Json, as_blocks, render
from standins.model_errors import a_string, invalid

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


@dataclass
class Trail:
    """What has been sent so far, as far as thinking blocks are bound to it."""

    system: str = ""
    tools: str = ""
    messages: Any = field(default_factory=lambda: blake2b(digest_size=8))
    """The running hash of the conversation without its thinking blocks."""
    previous: str = FIRST
    """The fingerprint of the last thinking block's signature."""

    def bond(self, model: str, effort: str) -> Bond:
        """What a thinking block is bound to that comes here."""
        messages = self.messages.hexdigest()
        return Bond(model, effort, self.system, self.tools, messages, self.previous)

    def seal(self, content: list[Json], model: str, effort: str) -> None:
        """Sign the thinking blocks of an answer in place, bound to all that comes before them."""
        for block in content:
            if block["type"] == "thinking":
                block["signature"] = sign(self.bond(model, effort), block["thinking"])
                self.previous = fingerprint(block["signature"].encode())
            else:
                self.messages.update(render(block))


def read_trail(body: Json, effort: str) -> Trail:
    """Follow a checked request to its end.

    Raises `Refused` for thinking blocks that were not issued here, were edited, or come after
    something that has changed since.
    """
    trail = Trail()
    system = b"".join(render(part) for part in as_blocks(body.get("system") or []))
    tools = b"".join(render(tool) for tool in body.get("tools") or [])
    trail.system, trail.tools = fingerprint(system), fingerprint(tools)
    role = ""
    for n, message in enumerate(body["messages"]):
        if message["role"] != role:
            role = message["role"]
            trail.messages.update(role.encode())
        for k, block in enumerate(as_blocks(message["content"])):
            where = f"messages.{n}.content.{k}"
            if block["type"] == "thinking":
                _check(trail, block, body, effort, where)
            elif block["type"] == "redacted_thinking":
                invalid(f"{where}: Invalid `data` in `redacted_thinking` block")
            else:
                trail.messages.update(render(block))
    if role != "assistant":
        trail.messages.update(b"assistant")
    return trail


def _check(trail: Trail, block: Json, body: Json, effort: str, where: str) -> None:
    text = a_string(block["thinking"], f"{where}.thinking.thinking")
    signature = a_string(block["signature"], f"{where}.thinking.signature")
    refusal = f"{where}: Invalid `signature` in `thinking` block"
    issued = open_signature(signature, text)
    if issued is None:
        invalid(refusal)
    if issued.model != body["model"]:
        return  # the API drops blocks that the model cannot read, without an error
    if change := trail.bond(body["model"], effort).difference(issued):
        invalid(
            f"{refusal}. The block is bound to a different conversation. Remove the block, or "
            'set `thinking.block_binding.prefix_mismatch_behavior` to "drop_block". '
            f"{change}"
        )
    thinking = body.get("thinking") or {}
    if thinking.get("type") == "between_tools" and issued.effort != effort:
        invalid(
            "output_config.effort cannot change mid-conversation when thinking is set to "
            f'"between_tools" (was {issued.effort!r}, now {effort!r}).'
        )
    trail.previous = fingerprint(signature.encode())
