"""Make the recordings of the sample from answers of readers in place of the model.

Start a Messages API server whose answers readers write, run `assistant serve --local
--model claude` on it, and ask. Each request and answer is a file of the given folder:
NUMBER.claimed and NUMBER.answer. `python -m benchmarks.record FOLDER` adds them to the recordings.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from bot.local.offline.conversation import Conversation, read_conversation
from bot.local.offline.recordings import as_recorded, key_of
from bot.local.sample_workspace import read_data
from bot.local.samples import SAMPLE_FOLDER

FILE = SAMPLE_FOLDER / "recordings.yaml"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    contexts = {(opening, turns[0]["seen"]): turns for opening, turns in recordings()}
    for talk, content in answered(parser.parse_args().folder):
        opening, _, first = key_of(replace(talk, exchanges=(), turn=0))
        _, turn, seen = key_of(talk)
        turns = contexts.get((opening, first), [])[:turn]
        if len(turns) == turn:
            recorded = {"seen": seen, "content": [*as_recorded(talk, content)]}
            contexts[opening, first] = [*turns, recorded]
    head = [line for line in FILE.read_text("utf-8").splitlines() if line.startswith("#")]
    stored = [{"opening": opening, "turns": turns} for (opening, _), turns in contexts.items()]
    text = yaml.safe_dump(stored, allow_unicode=True, sort_keys=False, width=110)
    FILE.write_text("\n".join([*head, text]), "utf-8")
    print(f"{len(contexts)} contexts, {sum(map(len, contexts.values()))} turns")


def recordings() -> Iterator[tuple[str, list[Any]]]:
    """Yield the opening and the turns of each context that is recorded."""
    for each in read_data("recordings"):
        yield each["opening"], each["turns"]


def answered(folder: Path) -> Iterator[tuple[Conversation, list[Any]]]:
    """Yield each request and its answer's content, in the order of the requests."""
    for file in sorted(folder.glob("*.answer")):
        request = json.loads(file.with_suffix(".claimed").read_text("utf-8"))
        yield read_conversation(request), content_of(file.read_text("utf-8"))


def content_of(answer: str) -> list[Any]:
    """Return the blocks of an answer, which is plain text or JSON with its content."""
    try:
        data = json.loads(answer)
    except ValueError:
        return [{"type": "text", "text": answer.strip()}]
    blocks = data["content"] if isinstance(data, dict) else data
    return [{name: value for name, value in block.items() if name != "id"} for block in blocks]


if __name__ == "__main__":
    main()
