"""One context that reviews until it has used the tokens of a panel: what independence is worth.

    python -m benchmarks.panel_alone FILE PROFILE TOKENS

Talks to the Messages API that `ANTHROPIC_BASE_URL` names, without any code of the engine. Prints a
JSON document: the findings, in which reading each was found, and the tokens.
"""

from __future__ import annotations

import asyncio
import json
import sys
from pathlib import Path
from typing import Any

import anthropic

from bot.tasks.material import ReviewMaterial, material_of_path
from config.panels import Profile, load_profile
from config.settings import prompt
from subagents.contracts import ReviewContract

MODEL = "claude-sonnet-5-5"
MAX_OUTPUT = 16_000
TIMEOUT_S = 2_900
TOOL = "submit_result"
AGAIN = """\
Read all of the material again, for each specialist in turn, as if for the first time. Hand in only
what you have not handed in yet: defects that you missed. An empty list if there is none."""


def first_message(material: ReviewMaterial, profile: Profile) -> str:
    """Return what the context is asked: all specialists' prompts and the material."""
    parts = "\n\n".join(
        f"{n}. As the specialist for {each.name} ({each.scope}): {each.prompt}"
        for n, each in enumerate(profile.specialists, 1)
    )
    items = "\n".join(f"[{item.id}]\n{item.text}" for item in material.items)
    return (
        f"{profile.about}\nRead it once for each of these, one after another.\n{parts}\n\n"
        f"CATEGORIES: {', '.join(profile.categories)}\n"
        f"{prompt('contract_review')}\n\nMATERIAL\n{items}"
    )


def review(material: ReviewMaterial, profile: Profile, tokens: int) -> dict[str, Any]:
    """Ask until the tokens are spent; return the findings of each reading."""
    client = anthropic.Anthropic(timeout=TIMEOUT_S, max_retries=0)
    messages: list[Any] = [{"role": "user", "content": first_message(material, profile)}]
    tool: Any = {"name": TOOL, "input_schema": ReviewContract.model_json_schema()}
    used, readings = 0, list[list[dict[str, Any]]]()
    while used < tokens:
        answer = client.messages.create(
            model=MODEL,
            max_tokens=MAX_OUTPUT,
            messages=messages,
            tools=[tool],
            tool_choice={"type": "tool", "name": TOOL},
        )
        used += answer.usage.input_tokens + answer.usage.output_tokens
        (call,) = [block for block in answer.content if block.type == "tool_use"]
        found = ReviewContract.model_validate(call.input)
        readings.append([point.model_dump() for point in found.points])
        done = {"type": "tool_result", "tool_use_id": call.id, "content": "Stored."}
        messages += [
            {"role": "assistant", "content": answer.content},
            {"role": "user", "content": [done, {"type": "text", "text": AGAIN}]},
        ]
    return {"tokens": used, "found": [len(each) for each in readings], "readings": readings}


def main(file: str, profile: str, tokens: str) -> None:
    """Review a file and print the document."""
    material = asyncio.run(material_of_path(Path(file)))
    document = review(material, load_profile(profile), int(tokens))
    json.dump(document, sys.stdout, indent=1, ensure_ascii=False)


if __name__ == "__main__":
    main(*sys.argv[1:])
