"""What waits for a person's approval: fixed to the byte when it is proposed, executed as stored."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import Any

from scopes.intent import Intent
from scopes.label import Label
from scopes.tool import Handles, iso


@dataclass(frozen=True, slots=True)
class Action:
    """One call of a tool that needs approval, with all that the gate looks at."""

    id: str
    """Random, 128 bits: the only thing that a button carries."""
    run: str
    context: str
    tool: str
    scope: str
    args: Mapping[str, Any]
    """Validated, with names resolved to ids."""
    requester: str
    label: Label
    """Of the context when it asked."""
    handles: Mapping[str, str]
    intent: Intent
    rule: str
    """The rule that wants a person's word."""
    made: datetime
    told: Mapping[str, str] = field(default_factory=dict)
    """What the arguments come to, found out by code when it was proposed; shown beside them."""
    asks: tuple[str, ...] = ()
    """Addresses, or words of a search, of a look-up outside: once approved, the request is answered
    again with them. Empty for what is executed itself."""

    def body(self) -> str:
        """The stored bytes: canonical JSON."""
        fields = {
            "id": self.id,
            "run": self.run,
            "context": self.context,
            "tool": self.tool,
            "scope": self.scope,
            "args": dict(self.args),
            "requester": self.requester,
            "label": self.label.to_json(),
            "handles": dict(self.handles),
            "intent": self.intent.to_json(),
            "rule": self.rule,
            "made": iso(self.made),
            "told": [list(each) for each in self.told.items()],  # in their order
            **({"asks": list(self.asks)} if self.asks else {}),
        }
        return json.dumps(fields, sort_keys=True, separators=(",", ":"), ensure_ascii=False)

    @property
    def digest(self) -> str:
        return digest_of(self.body())

    @property
    def held(self) -> Handles:
        return Handles(self.handles)

    def edited(self, args: Mapping[str, Any]) -> Action:
        """The same with other arguments, under an id of its own."""
        return replace(self, id=new_id(), args={**self.args, **args})

    @classmethod
    def of(cls, id: str, body: str) -> Action:
        """The action that `body` holds. A ValueError where that is another one than `id`."""
        stored = json.loads(body)
        if stored["id"] != id:
            raise ValueError(f"these are the bytes of {stored['id']}")
        return cls(
            **{
                **stored,
                "label": Label.of(stored["label"]),
                "intent": Intent.of(stored["intent"]),
                "made": datetime.fromisoformat(stored["made"]).astimezone(UTC),
                "told": dict(stored.get("told", ())),
                "asks": tuple(stored.get("asks", ())),
            }
        )


def new_id() -> str:
    return secrets.token_hex(16)


def digest_of(body: str) -> str:
    return hashlib.sha256(body.encode(errors="replace")).hexdigest()
