"""What a digest tells about its own run: the days, what was read, what it cost."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from bot.mail.words import count, day, said

Json = Mapping[str, Any]


def period(document: Json) -> str:
    """The days that a digest is about; empty where there is no window."""
    window = document["window"]
    if not window:
        return ""
    start, end = (datetime.fromisoformat(window[k]).date() for k in ("oldest", "latest"))
    until = day(end, year=True)
    if start.year <= 1970:  # all that the mailbox holds
        return f"up to {until}"
    return f"{day(start, year=start.year != end.year)} to {until}"


def coverage(document: Json) -> str:
    """How the threads ended that a model was given."""
    cover = document["coverage"]
    ends = ("complete", "partial", "failed", "cancelled", "refused")
    ended = [f"{cover[end]:,} {end}" for end in ends if cover[end]]
    dropped = document["unsupported"]
    told = [count(cover["items"], "thread") + f" given to a model{': ' if ended else ''}"]
    told[0] += ", ".join(ended)
    told += [f"{count(dropped, 'statement')} dropped because no mail carries it"] if dropped else []
    return "; ".join(told)


def cost(document: Json) -> str:
    """What the run cost, and its id."""
    paid, usage = document["cost_usd"], document["usage"]
    price = "price unknown" if paid is None else f"${paid:.4f}"
    if document["model"] == "offline":
        price += " at list prices, nothing was paid"
    return f"{price} · {usage['total']:,} tokens · run {said(document['run_id'], 80)}"
