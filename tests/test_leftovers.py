"""The failure of one test is no failure of another."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

TWO = """
import gc, socket

def test_first():
    left = socket.socket()
    assert left is None

def test_second():
    gc.collect()
"""


def test_what_a_failed_test_left_open_is_warned_of_with_it(tmp_path: Path) -> None:
    (tmp_path / "test_two.py").write_text(TWO, "utf-8")
    command = "-m pytest -q -W error -p leftovers -p no:cacheprovider test_two.py"
    alone = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1", "PYTHONPATH": str(Path(__file__).parent)}
    done = subprocess.run(
        [sys.executable, *command.split()],
        cwd=tmp_path,
        env={**os.environ, **alone},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=60,
    )
    assert "1 failed, 1 passed, 1 error" in done.stdout, done.stdout
    assert "ERROR test_two.py::test_first" in done.stdout
