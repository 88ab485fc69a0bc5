"""Reports of a sweep, as small as identity needs them, written by hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from scopes.tool import iso

Json = dict[str, Any]

START = datetime(2026, 3, 2, tzinfo=UTC)
ES, FR = "C0ES", "C0FR"
NAMES = {ES: "csm-es", FR: "csm-fr"}


def week(number: int) -> datetime:
    """End of the report of a week; the first one is week 1."""
    return START + timedelta(weeks=number)


def found(
    threads: str,
    state: str = "unsolved",
    *,
    claim: str = "The button does nothing",
    severity: str = "medium",
    owner: str = "",
    said: str = "",
    since: datetime | None = START,
    channel: str = ES,
) -> Json:
    """A finding that rests on threads (`"a b"`) and on messages of them."""
    roots = [f"{channel}/{name}" for name in threads.split()]
    return {
        "id": "",
        "claim": claim,
        "state": state,
        "severity": severity,
        "owner": owner,
        "evidence": [*roots, *(f"{channel}/{name}" for name in said.split())],
        "threads": roots,
        "links": [f"https://local.slack.com/archives/{root}" for root in roots],
        "since": iso(since) if since else None,
    }


def report(number: int, told: Mapping[str, Sequence[Json]] | Sequence[Json]) -> Json:
    """The report of a week: findings by channel, or all of one channel."""
    by_channel = told if isinstance(told, Mapping) else {ES: told}
    sections, children = [], []
    for k, (channel, findings) in enumerate(by_channel.items(), 1):
        named = [{**finding, "id": f"F{k}.{n}"} for n, finding in enumerate(findings, 1)]
        sections.append({"item": NAMES[channel], "channel": channel, "findings": named})
        children.append({"id": f"s{k}", "findings": [dict(finding) for finding in named]})
    window = {"oldest": iso(week(number - 1)), "latest": iso(week(number))}
    return {"window": window, "sections": sections, "subagents": children}


def findings(document: Mapping[str, Any]) -> list[Json]:
    return [finding for section in document["sections"] for finding in section["findings"]]
