"""Thinking blocks, signed with what came before them (platform.claude.com, "Preserved thinking").

The key is fixed, so that a conversation can go on after a restart; it protects nothing but the
tests' honesty.
"""

import base64
from hashlib import blake2b

from bot.local.model.usage import Json, as_blocks, render
from standins.model_errors import a_string, invalid

_FIRST = "-"
_KEY = b"offline stand-in"


def _mac(text: str) -> str:
    return blake2b(text.encode(), key=_KEY, digest_size=8).hexdigest()


class Trail:
    """What has been sent so far, as far as thinking blocks are bound to it."""

    def __init__(self, body: Json, effort: str) -> None:
        """Follow a checked request to its end; `Refused` for a thinking block that was not issued
        here, was edited, or comes after something that has changed since."""
        self._model, self._effort = body["model"], effort
        self._between = (body.get("thinking") or {}).get("type") == "between_tools"
        self._sent = blake2b(digest_size=8)
        self._previous = _FIRST
        for part in (*(body.get("tools") or ()), *as_blocks(body.get("system") or [])):
            self._sent.update(render(part))
        role = ""
        for n, message in enumerate(body["messages"]):
            if message["role"] != role:
                role = message["role"]
                self._sent.update(role.encode())
            for k, block in enumerate(as_blocks(message["content"])):
                self._add(block, f"messages.{n}.content.{k}")
        if role != "assistant":
            self._sent.update(b"assistant")

    def seal(self, content: list[Json]) -> None:
        """Sign the thinking blocks of an answer in place."""
        for block in content:
            if block["type"] == "thinking":
                bond = f"{self._model} {self._effort} {self._sent.hexdigest()} {self._previous}"
                signed = f"{bond} {_mac(bond + block['thinking'])}"
                block["signature"] = base64.b64encode(signed.encode()).decode()
                self._previous = _mac(block["signature"])
            else:
                self._sent.update(render(block))

    def _add(self, block: Json, where: str) -> None:
        if block["type"] == "redacted_thinking":
            invalid(f"{where}: Invalid `data` in `redacted_thinking` block")
        if block["type"] != "thinking":
            self._sent.update(render(block))
            return
        text = a_string(block["thinking"], f"{where}.thinking.thinking")
        signature = a_string(block["signature"], f"{where}.thinking.signature")
        refusal = f"{where}: Invalid `signature` in `thinking` block"
        try:
            bond, _, mac = base64.b64decode(signature, validate=True).decode().rpartition(" ")
        except ValueError:
            bond = mac = ""
        if mac != _mac(bond + text):
            invalid(refusal)
        model, effort, sent, previous = bond.split(" ")
        if model != self._model:
            return  # the API drops blocks that the model cannot read, without an error
        # blocks may be left out from the start of a history, but not from its middle
        if sent != self._sent.hexdigest() or self._previous not in (_FIRST, previous):
            invalid(f"{refusal}. The block is bound to a different conversation.")
        if self._between and effort != self._effort:
            invalid(
                "output_config.effort cannot change mid-conversation when thinking is set to "
                f'"between_tools" (was {effort!r}, now {self._effort!r}).'
            )
        self._previous = _mac(signature)
