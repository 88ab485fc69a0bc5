"""run_python computes, reaches nothing, and is stopped at its limits."""

from __future__ import annotations

import asyncio
import resource
from collections.abc import AsyncIterator, Callable, Coroutine
from concurrent.futures import ProcessPoolExecutor
from contextlib import asynccontextmanager, suppress
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pytest
import tool_kit
import web_kit
from timing import patient

from scopes.label import Label
from scopes.sandbox import ProgramFailed, Sandbox
from scopes.tool import ToolError

MOST_MB = 512
LIMIT_MB = 64
"""Of a program; its process may take as much again."""


@asynccontextmanager
async def sandbox(seconds: float = 1.0) -> AsyncIterator[Sandbox]:
    python = Sandbox(seconds, LIMIT_MB)
    try:
        yield python
    finally:
        await python.aclose()


async def error(python: Sandbox, code: str) -> str:
    with pytest.raises(ProgramFailed) as caught:
        await python.run(code, "")
    return str(caught.value)


CODE = """
import csv, json, math, re
from collections import Counter
from datetime import date
from decimal import Decimal
from itertools import groupby

rows = [line.split(",") for line in data.splitlines()[1:]]
total = sum(Decimal(amount) for _, amount in rows)
print("total", total, Counter(name for name, _ in rows).most_common(1))
print((date(2026, 3, 1) - date(2026, 2, 1)).days)
"""
ERRORS = {
    "a = 1\nb = 0\na / b": "line 3: ZeroDivisionError: division by zero",
    "a = (": "line 1: unexpected EOF while parsing",
    "def f():\n    raise ValueError('no')\nf()": "line 2: ValueError: no",
}


async def test_program_returns_its_output_or_the_line_of_its_error() -> None:
    async with sandbox() as python:
        found = await python.run(CODE, "name,amount\nAna,1.10\nBen,2.20\nAna,0.05")
        assert found == "total 3.35 [('Ana', 2)]\n28\n"
        for code, message in ERRORS.items():
            assert message in await error(python, code)


ENDLESS = {
    "loop": "while True: pass",
    "list": "x = [1]\nwhile True: x = x + x",
    "string": "x = 'a'\nwhile True: x = x + x",
    "power": "9 ** 9 ** 9",
    "range": "sum(range(10 ** 12))",
    "sleep": "import time\nwhile True: time.sleep(3600)",
    "waiting": "import asyncio as a\nasync def f():\n  while True: await a.sleep(9)\na.run(f())",
    "flood": "while True: print('x' * 100000)",
    "recursion": "def f(): return f()\nf()",
    "replace": "('a' * 10 ** 6).replace('a', 'b' * 10 ** 6)",
    "pad": "'%1000000000d' % 1",
    "parser": "eval('(' * 100000)",
    "sorting": "x = list(range(10 ** 6))\nwhile True: x.sort(key=lambda n: -n)",
    "json": "import json\njson.loads('[' * 10 ** 6)",
}


def peaks_mb(work: Callable[[], Coroutine[Any, Any, None]]) -> tuple[int, int]:
    """Peak memory of a fresh process that does this, and of the largest of its children.

    The process is fresh because a peak never falls: another test's would hide this one.
    """
    with ProcessPoolExecutor(1, get_context("spawn")) as process:
        return process.submit(_peaks_mb, work).result()


def _peaks_mb(work: Callable[[], Coroutine[Any, Any, None]]) -> tuple[int, int]:
    asyncio.run(work())
    status = Path("/proc/self/status").read_text()  # ru_maxrss holds the parent's peak from exec on
    children_kb = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of those that have ended
    return int(status.partition("VmHWM:")[2].split()[0]) // 1024, children_kb // 1024


async def stop_endless_programs() -> None:
    async with sandbox(0.3) as python:
        for name, code in ENDLESS.items():
            async with patient():
                assert await error(python, code), name
            assert await python.run("print(1 + 1)", "") == "2\n", name


def test_program_over_its_limits_is_stopped_and_the_next_one_runs() -> None:
    _, programs_mb = peaks_mb(stop_endless_programs)
    assert programs_mb < 2 * LIMIT_MB


REACHING = {
    "open('/etc/passwd').read()": "PermissionError",
    "import pathlib\npathlib.Path('/etc/passwd').read_text()": "PermissionError",
    "import os\nos.listdir('/')": "PermissionError",
    "import os\nos.environ['HOME']": "not supported",
    "import os\nos.system('id')": "has no attribute",
    "import socket": "No module named",
    "import subprocess": "No module named",
    "import urllib.request": "No module named",
    "import ctypes": "No module named",
    "__import__('os').system('id')": "not defined",
    "().__class__.__bases__[0].__subclasses__()": "has no attribute",
    "import sys\nsys.modules": "has no attribute",
    "open('/tmp/left', 'w').write('x')": "PermissionError",
}


async def test_a_program_reaches_no_file_no_network_and_no_secret() -> None:
    async with sandbox() as python:
        for code, message in REACHING.items():
            assert message in await error(python, code), code


SPREADING = {
    "strings": "x = ['x' * 1000] * 1000000\nx",
    "lists": "[[0] * 1000] * 100000",
    "doubled": "x = ['a' * 100000]\nfor i in range(30): x = [x, x]\nx",
    "circle": "x = []\nx.append(x)\nx",
    "digits": "2 ** 100000",
    "raised": "raise ValueError('x' * 10000000)",
    "halves": "'\ud800'",
}


async def spread() -> None:
    async with sandbox(0.5) as python:
        for name, code in SPREADING.items():
            with suppress(ProgramFailed):
                assert len(await python.run(code, "")) <= 100_000
            assert await python.run("print(1 + 1)", "") == "2\n", name
        with pytest.raises(ProgramFailed):
            await python.run("data", "\ud800")


def test_expanding_result_values_use_little_memory_outside_the_sandbox() -> None:
    bot_mb, programs_mb = peaks_mb(spread)
    assert bot_mb < MOST_MB // 2
    assert programs_mb < 2 * LIMIT_MB


async def test_run_python_returns_its_output_with_the_label_of_its_context() -> None:
    label = Label(readers=frozenset({"U0ANA"}), sources=frozenset({"data:sales"}))
    async with sandbox() as python:
        ctx = web_kit.context({Sandbox: python}, label=label)
        found = await tool_kit.done(ctx, "run_python", code="print(len(data))", data="abc")
        (item,) = found.items
        assert item.id.startswith("python-")
        assert item.text == "3"
        assert item.label == Label(True, frozenset({"U0ANA"}), frozenset({"data:sales"}))
        again = await tool_kit.done(ctx, "run_python", code="print(len(data))", data="abc")
        assert again.items[0].id == item.id
        other = await tool_kit.done(ctx, "run_python", code="print(len(data))", data="abd")
        assert other.items[0].id != item.id
        with pytest.raises(ToolError, match="line 1: NameError"):
            await tool_kit.use(ctx, "run_python", code="total")
        with pytest.raises(ToolError, match="Print what you want to know"):
            await tool_kit.use(ctx, "run_python", code="x = 1")
