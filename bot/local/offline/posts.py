"""Post words in quotes to a channel or a person, as a plain order says."""

import re
from dataclasses import dataclass
from typing import Any

from bot.local.offline.calls import use
from bot.local.offline.conversation import Conversation

_ORDER = re.compile(
    r"""^\s*(?:please\s+|can\s+you\s+|could\s+you\s+)?(?:post|send|write|announce|tell|dm|message)\b
    [^"“„«]*["“„«](?P<said>[^"“”„«»]+)["“”»]""",
    re.IGNORECASE | re.VERBOSE,
)
_ASKS = re.compile(r"\b(?:what|which|who|how|why|whether|if)\b", re.IGNORECASE)
_NAMED = re.compile(r"([CGDUW][A-Z0-9]{2,})(?:/[\d.]+)?(?: \(([^()]*)\))?")
_PLACE = re.compile(r"#[\w-]+|@[\w.-]+")


@dataclass(frozen=True)
class Order:
    """Words to be said somewhere else."""

    said: str
    place: str
    """As the request names it: `#general`, `@Ana`; empty where it names none."""


def order_in(request: str) -> Order | None:
    """Return the order that a request is, if it is one with its words in quotes."""
    found = _ORDER.match(request)
    if not found or _ASKS.search(request[: found.start("said")]):
        return None
    rest = request[: found.start("said")] + request[found.end("said") :]
    place = _PLACE.search(rest)
    return Order(found["said"].strip(), place[0] if place else "") if place else None


def calls(wanted: Order, talk: Conversation) -> list[dict[str, Any]]:
    """Return the tool call that carries it out, if the place is known and the tool offered."""
    named = {m[2] or m[1]: m[1] for m in _NAMED.finditer(talk.section("NAMED SOURCES") or "")}
    name = wanted.place.lower()
    ids = {f"{name[0]}{i}".lower(): i for i in named.values()}
    id = ids.get(name) or next((i for t, i in named.items() if t.lower().startswith(name)), "")
    person = wanted.place.startswith("@")
    tool = "send_direct_message" if person else "post_message"
    if tool not in talk.tools or not id:
        return []
    where = {"user": id} if person else {"channel": id}
    return [use(tool, **where, text=wanted.said)]


def outcome(talk: Conversation) -> str:
    """Return what came of it, in the tool's own words."""
    if not talk.exchanges:
        return "I cannot write there: I do not know that place, or may not write from here."
    return " ".join(exchange.text.strip() for exchange in talk.exchanges)
