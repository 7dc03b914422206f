"""Measure what a sweep costs, and check that killing it loses nothing.

    python benchmarks/sweep.py [--points 1000] [--requests 500] [--kills 5] [--seed 1]

Runs the same sweep with ``--jobs 1`` and ``--jobs 2`` to compare their speed, then a third time while killing all of
its processes at random moments and resuming. All results must be identical, byte for byte.
"""

from __future__ import annotations

import argparse
import os
import random
import resource
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class Cost(NamedTuple):
    """The time that a command took."""

    wall_s: float
    cpu_s: float
    peak_mib: float


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    options.add_argument("--points", type=int, default=1000)
    options.add_argument("--requests", type=int, default=500)
    options.add_argument("--kills", type=int, default=5)
    options.add_argument("--seed", type=int, default=1, help="of the moments to kill at")
    given = options.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        cost = sweep(Path(folder), "one", given, jobs=1)
        two = sweep(Path(folder), "two", given, jobs=2)
        print(f"--jobs 1: {cost.wall_s:.1f} s, {1e3 * cost.cpu_s / given.points:.1f} ms of CPU a point")
        print(f"--jobs 2: {two.wall_s:.1f} s, {1e3 * two.cpu_s / given.points:.1f} ms of CPU a point")
        most = 2 * cost.cpu_s / two.cpu_s
        print(f"{cost.wall_s / two.wall_s:.2f} times as fast; with two idle cores at most {most:.2f}")
        print(f"peak memory of a process: {max(cost.peak_mib, two.peak_mib):.0f} MiB")
        same = compare(Path(folder), "one", "two")
        moments = random.Random(given.seed)  # noqa: S311  (any moments will do)
        for _ in range(given.kills):
            results = moments.randint(1, max(1, given.points // (given.kills + 1)))
            kill_after(Path(folder), given, results, moments.uniform(0.0, 0.2))
        sweep(Path(folder), "killed", given, jobs=2)
        same &= compare(Path(folder), "one", "killed")
    sys.exit(0 if same else 1)


def command(folder: Path, name: str, given: argparse.Namespace, jobs: int) -> list[str]:
    tenth = max(1, given.points // 10)
    return [
        *(sys.executable, "-m", "blis_tui", "sweep", "quickstart", "--jobs", str(jobs), "--no-progress"),
        *("--set", "expect=[]", "--set", f"workload.requests={given.requests}"),
        *("--axis", "cluster.instances=1..10"),
        *("--axis", "workload.clients.0.input_tokens=[" + ",".join(str(100 + at) for at in range(tenth)) + "]"),
        *("-o", str(folder / f"{name}.csv"), "-o", str(folder / f"{name}.jsonl"), "--store", str(folder / name)),
    ]


def sweep(folder: Path, name: str, given: argparse.Namespace, jobs: int) -> Cost:
    before, start_s = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(command(folder, name, given, jobs), stdout=subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(time.perf_counter() - start_s, cpu_s, after.ru_maxrss / 1024)


def kill_after(folder: Path, given: argparse.Namespace, results: int, seconds: float) -> None:
    """Kill all processes of a sweep once it has that many more results, and some time has passed."""
    before = kept(folder)
    with subprocess.Popen(
        command(folder, "killed", given, jobs=2), stdout=subprocess.DEVNULL, start_new_session=True
    ) as going:
        while going.poll() is None and kept(folder) < before + results:
            time.sleep(0.05)
        time.sleep(seconds)
        with suppress(ProcessLookupError):
            os.killpg(going.pid, signal.SIGKILL)
    print(f"killed with {kept(folder):,} results kept")


def kept(folder: Path) -> int:
    return sum(path.is_file() for path in (folder / "killed").rglob("*"))


def compare(folder: Path, name: str, other: str) -> bool:
    same = True
    for ending in ("csv", "jsonl"):
        alike = (folder / f"{name}.{ending}").read_bytes() == (folder / f"{other}.{ending}").read_bytes()
        same &= alike
        print(f"{name} and {other}, {ending}: {'the same bytes' if alike else 'DIFFERENT'}")
    return same


if __name__ == "__main__":
    main()
