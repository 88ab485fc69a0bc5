"""Charts of stored tables: what is recognised, what is refused, and the picture."""

from __future__ import annotations

import os
import struct
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pg_kit import database_in_file, in_file
from tool_kit import context, use

from bot.memory import ResourceStore
from bot.storage.database import Database
from scopes.chart_model import Chart
from scopes.charts import chart_of, render_chart, table_of
from scopes.label import TRUSTED_LABEL, Label
from scopes.resources import NewFile, Resources, space_of_run
from scopes.tool import ToolError, ToolResult

__all__ = ["database_in_file", "in_file"]

RUN = space_of_run("r1")
SHOP = Label(True, frozenset({"U0ANA"}), frozenset({"data:shop"}))


@pytest.fixture
def shelf(database_in_file: Database) -> ResourceStore:
    return ResourceStore(database_in_file)


async def draw(shelf: ResourceStore, label: Label = TRUSTED_LABEL, **arguments: Any) -> object:
    ctx = context("data", {Resources: shelf}, {}, label=label)
    return await use(ctx, "make_chart", **arguments)


async def keep(shelf: ResourceStore, text: str) -> None:
    content = text.encode()
    await shelf.save(NewFile(RUN, f"k{len(text)}", "sales.csv", "text/csv", content, SHOP, "r1"))


def chart(text: str, kind: Any = "bar", x: str = "x", *y: str, title: str = "") -> Chart:
    return chart_of(table_of(text.encode()), kind, x, y or ("y",), title)


async def test_chart_of_a_stored_table_is_saved_as_a_png_of_the_run(
    shelf: ResourceStore,
) -> None:
    await keep(shelf, "market,refunds\nSpain,1200.50\nFrance,-8\n$\\frac{1}{0}$,\n東京,'-3e2\n")
    spec: dict[str, Any] = {"file": "sales.csv", "kind": "bar", "x": "Market", "y": ["refunds"]}
    found = await draw(shelf, Label(sources=frozenset({"C1"})), **spec, title="Refunds: $x^{$")
    assert isinstance(found, ToolResult)
    (item,) = found.items
    assert item.id == "file/refunds-x.png@1"
    assert item.label == SHOP.join(Label(sources=frozenset({"C1"})))
    picture = await shelf.get(RUN, "refunds-x.png")
    assert picture
    assert (picture.kind, picture.label) == ("image/png", item.label)
    assert picture.content.startswith(b"\x89PNG\r\n\x1a\n")
    assert struct.unpack(">II", picture.content[16:24]) == (1_200, 630)
    again = await draw(shelf, Label(sources=frozenset({"C1"})), **spec, title="Refunds: $x^{$")
    assert again == found, "a replay draws no second version"
    await shelf.save(
        NewFile(RUN, "k1", "odd.csv", "text/csv", b"\xff\xfe\x00", TRUSTED_LABEL, "r1")
    )
    for file, why in {
        "file/sales.csv@7": r"There is no sales\.csv",
        "none.csv": r"There is no none\.csv",
        "../etc/passwd": r"ends with \.csv",
        "odd.csv": "no CSV in UTF-8",
    }.items():
        with pytest.raises(ToolError, match=why):
            await draw(shelf, **{**spec, "file": file})


@pytest.mark.parametrize("kind", ["line", "scatter", "across"])
async def test_every_chart_kind_renders_unusual_text(kind: Any) -> None:
    rows = "\n".join(f"{'א' if n % 2 else 'x'}{n},{n % 7},{-n or ''}" for n in range(30))
    wide = chart(f"x,y,$z_\n{rows}\n", "bar", "x", "y", "$z_", title="\u202e$\\alpha$ עברית")
    assert wide.kind == "across"
    picture = await render_chart(replace(wide, kind=kind), "It")
    assert struct.unpack(">I", picture[16:20]) == (1_200,)
    assert len(picture) < 400_000


@pytest.mark.system
def test_bot_process_does_not_import_matplotlib() -> None:
    code = "import sys, bot.serving.serve, bot.reports.files; print('matplotlib' in sys.modules)"
    root, env = Path(__file__).parent.parent, {**os.environ, "PYTHONPATH": ""}
    output = subprocess.check_output([sys.executable, "-c", code], text=True, cwd=root, env=env)
    assert output.strip() == "False"
