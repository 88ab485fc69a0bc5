"""Precision and recall of "needs action" over real channels, against labels made by readers; and
what each channel costs.

`python -m benchmarks.states EXPORT.zip LABELS.json --as-of 2025-04-15 --since 30d 'support-*'`

Labels: a list of `{id: "<channel>/<ts of the first message>", state, agreed}`; only agreed ones
count. "Needs action" is `unanswered` or `unsolved`.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

NEEDS_ACTION = ("unanswered", "unsolved")


def main() -> None:
    """Sweep, compare, print a line a channel and one for all."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("export", type=Path)
    parser.add_argument("labels", type=Path)
    parser.add_argument("channels")
    parser.add_argument("--as-of", required=True)
    parser.add_argument("--since", default="30d")
    parser.add_argument("--model", default="offline")
    given = parser.parse_args()
    labels = [label for label in json.loads(given.labels.read_text("utf-8")) if label["agreed"]]
    totals = [0, 0, 0]
    document = swept(given)
    for section in document["sections"]:
        name = section["item"]
        ours = [label for label in labels if label["id"].startswith(f"{name}/")]
        counts = compared(section, ours)
        totals = [a + b for a, b in zip(totals, counts, strict=True)]
        print(line(name, counts), cost(document, section["subagents"]), sep="  ")
    print(line("all", totals), cost(document), sep="  ")


def swept(given: argparse.Namespace) -> Mapping[str, Any]:
    """The document of the sweep."""
    command = [sys.executable, "-m", "bot", "sweep", "--json", "--channels", given.channels]
    command += ["--slack-export", str(given.export), "--as-of", given.as_of]
    command += ["--since", given.since, "--model", given.model]
    done = subprocess.run(command, stdout=subprocess.PIPE, check=False, text=True)
    document = json.loads(done.stdout)
    if "sections" not in document:
        sys.exit(2)
    return dict(document)


def compared(section: Mapping[str, Any], labels: Iterable[Mapping[str, Any]]) -> list[int]:
    """Right, wrongly found, and missed."""
    found = {
        evidence.partition("/")[2]
        for finding in section["findings"]
        if finding["state"] in NEEDS_ACTION
        for evidence in finding["evidence"]
    }
    counts = [0, 0, 0]
    for label in labels:
        needed = label["state"] in NEEDS_ACTION
        given = label["id"].partition("/")[2] in found
        counts[0] += needed and given
        counts[1] += given and not needed
        counts[2] += needed and not given
    return counts


def cost(document: Mapping[str, Any], ids: Iterable[str] | None = None) -> str:
    """What these subagents have used; without ids, the whole sweep with its parent."""
    parts = [document]
    if ids is not None:
        parts = [each for each in document["subagents"] if each["id"] in ids]
    spent = [part["usage"] for part in parts]
    tokens = sum(u["input"] + u["cache_read"] + u["cache_write"] for u in spent)
    return f"{tokens:>9,} input tokens  ${sum(part['cost_usd'] for part in parts):.4f}"


def line(name: str, counts: list[int]) -> str:
    right, wrong, missed = counts
    precision = right / (right + wrong) if right + wrong else 1.0
    recall = right / (right + missed) if right + missed else 1.0
    return (
        f"{name:14} precision {precision:.3f}  recall {recall:.3f}  "
        f"({right} right, {wrong} wrong, {missed} missed)"
    )


if __name__ == "__main__":
    main()
