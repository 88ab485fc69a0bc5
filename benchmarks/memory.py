"""Memory of one fan-out in a fresh process: `python -m benchmarks.memory ours|bare N URL FOLDER`.

The store in the folder exists already: making one imports Alembic, 13 MB more in that process.
"""

from __future__ import annotations

import asyncio
import json
import re
import statistics
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.bare import open_bare
from benchmarks.ours import open_ours

FEW, MANY = 50, 200
RUNS = 5


def per_subagent_kb(side: str, url: str, runs: int = RUNS) -> tuple[float, float]:
    """KB that each subagent beyond 50 adds, and MB held after 50: medians over fresh processes.

    Counted is the peak RSS of 200 at once less that of 50: connections, bodies, record and all.
    Two processes run at a time: what is measured does not depend on speed.
    """
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        _process(side, 1, url, folder)
        sizes = [FEW, MANY] * runs
        found = list(pool.map(lambda size: _process(side, size, url, folder), sizes))
    few, many = found[::2], found[1::2]
    extra = [(b["peak_kb"] - a["peak_kb"]) / (MANY - FEW) for a, b in zip(few, many, strict=True)]
    return statistics.median(extra), statistics.median(a["now_kb"] / 1024 for a in few)


def _process(side: str, number: int, url: str, folder: str) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.memory", side, str(number), url, folder]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=60)
    found: dict[str, int] = json.loads(done.stdout)
    return found


async def _run(side: str, number: int, url: str, folder: str) -> dict[str, int]:
    """One warm-up of a single subagent, then all at once."""
    async with open_bare(url) if side == "bare" else open_ours(url, Path(folder)) as worker:
        await worker.sample(1)
        await worker.sample(number)
        return _status()


def _status() -> dict[str, int]:
    status = Path("/proc/self/status").read_text()
    return {
        name: int(re.findall(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)[0])
        for name, field in (("now_kb", "VmRSS"), ("peak_kb", "VmHWM"))
    }


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run(sys.argv[1], int(sys.argv[2]), *sys.argv[3:5]))))
