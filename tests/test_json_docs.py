"""The tables of fields in docs/json.md are those of the models."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest

from bot.reports import documents

PAGE = Path(__file__).parents[1] / "docs" / "json.md"
REWRITE = os.environ.get("GOLDEN") == "write"
MARK = re.compile(r"<!-- fields of (\w+) -->\n.*?<!-- end of fields -->", re.DOTALL)


def table(name: str) -> str:
    """Return the fields of a model with what they mean, as Markdown between its marks."""
    model = getattr(documents, name)
    properties = model.model_json_schema(mode="serialization")["properties"]
    rows = [
        f"| `{field}` | {_meaning(each['description'])} |" for field, each in properties.items()
    ]
    head = [f"<!-- fields of {name} -->", "| field | meaning |", "|---|---|"]
    return "\n".join([*head, *rows, "<!-- end of fields -->"])


def _meaning(description: str) -> str:
    text = " ".join(description.split()).removesuffix(".")
    return text[:1].lower() + text[1:]


def test_the_tables_of_fields_are_those_of_the_models() -> None:
    page = PAGE.read_text("utf-8")
    names = MARK.findall(page)
    assert len(names) == 11
    made = MARK.sub(lambda mark: table(mark[1]), page)
    if REWRITE:
        PAGE.write_text(made, "utf-8")
        return
    if made != page:
        pytest.fail("docs/json.md is not up to date. `make golden` writes its tables.")
