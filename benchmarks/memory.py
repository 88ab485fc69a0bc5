"""Memory of fan-outs in a fresh process: `python -m benchmarks.memory ours|bare URL FOLDER`.

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

    Counted is the peak RSS of 200 at once less that of 50 just before, in the same process:
    connections, bodies, record and all. Two processes run at a time; speed is not measured here.
    """
    with TemporaryDirectory() as folder, ThreadPoolExecutor(2) as pool:
        _process(side, url, folder)
        found = list(pool.map(lambda _: _process(side, url, folder), range(runs)))
    extra = [(each["many_kb"] - each["few_kb"]) / (MANY - FEW) for each in found]
    return statistics.median(extra), statistics.median(each["now_kb"] / 1024 for each in found)


def _process(side: str, url: str, folder: str) -> dict[str, int]:
    command = [sys.executable, "-m", "benchmarks.memory", side, url, folder]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, timeout=120)
    found: dict[str, int] = json.loads(done.stdout)
    return found


async def _run(side: str, url: str, folder: str) -> dict[str, int]:
    """One warm-up of a single subagent, then 50 at once, then 200."""
    async with open_bare(url) if side == "bare" else open_ours(url, Path(folder)) as worker:
        await worker.sample(1)
        await worker.sample(FEW)
        few, now = _status("VmHWM"), _status("VmRSS")
        await worker.sample(MANY)
        return {"few_kb": few, "now_kb": now, "many_kb": _status("VmHWM")}


def _status(field: str) -> int:
    """A figure of this process in KB; VmHWM is the peak of VmRSS."""
    status = Path("/proc/self/status").read_text()
    return int(re.findall(rf"^{field}:\s+(\d+) kB$", status, re.MULTILINE)[0])


if __name__ == "__main__":
    print(json.dumps(asyncio.run(_run(*sys.argv[1:4]))))
