"""CPU time of whole processes, in turns with another checkout: what counts of calls cannot see.

Machines differ, and so do their moments: what counts is the ratio of the two, best against best, on one machine.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
import tempfile
from datetime import datetime
from importlib.util import find_spec
from itertools import count, islice
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Final

from benchmarks.guard import inputs
from benchmarks.guard.figures import HERE, environment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_AZURE_HOUR: Final = 19_366
_DYNOSIM_ENGINE: Final = {
    "block_size": 64,
    "num_gpu_blocks": 8192,
    "max_num_seqs": 256,
    "max_num_batched_tokens": 2048,
}
NAMES: Final = ("azure-hour", "saturated-10k", "quickstart", "cluster-32", "debugger", "dynosim")


def compare(ours_at: Path, other: Path, names: list[str], rounds: int, azure: Path | None) -> None:
    """Run each input in turns with the ``blis_tui`` in two folders, and print both times and their ratio."""
    print(f"CPU seconds: {ours_at}, {other}, their ratio (best of {rounds}; of the pairs: median, range)")
    ours, theirs = environment(ours_at.resolve()), environment(other.resolve())
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        for name in names:
            if name == "dynosim":
                _against_dynosim(ours, folder, rounds, azure)
            else:
                command = _command(name, folder, azure)
                _show(name, _pairs((command, ours), (command, theirs), folder, rounds))


def _command(name: str, folder: Path, azure: Path | None) -> list[str]:
    if name == "debugger":
        return [sys.executable, "-P", str(HERE / "count.py"), os.devnull, "plain-debugger"]
    run = [sys.executable, "-P", "-m", "blis_tui", "run"]
    if name == "quickstart":
        return [*run, "quickstart"]
    if name == "azure-hour":
        spec = inputs.write(folder, "azure", _azure(azure), inputs.LARGE)
    elif name == "saturated-10k":
        spec = inputs.saturated(folder, 10_000)
    else:
        spec = inputs.weighted32(folder, 20_000)
    return [*run, str(spec), "--requests", os.devnull]


def _azure(file: Path | None) -> Iterator[inputs.Row]:
    """The published trace, or one like it."""
    if file is None:
        yield from inputs.azure_like(_AZURE_HOUR)
        return
    with file.open(encoding="utf-8", newline="") as text:
        rows = list(csv.DictReader(text))
    times = [datetime.fromisoformat(row["TIMESTAMP"][:26]) for row in rows]
    for time, row in zip(times, rows, strict=True):
        yield round((time - times[0]).total_seconds() * 1e6), int(row["ContextTokens"]), int(row["GeneratedTokens"])


def _against_dynosim(environ: Mapping[str, str], folder: Path, rounds: int, azure: Path | None) -> None:
    """The Azure trace, in turns with DynoSim, where ai-dynamo is installed beside this package."""
    if find_spec("dynamo") is None:
        print("dynosim: not installed (pip install --no-deps ai-dynamo==1.3.1 ai-dynamo-runtime==1.3.1)")
        return
    trace = folder / "azure.jsonl"
    blocks = count()  # none that two prompts share
    with trace.open("w", encoding="utf-8") as file:
        for arrival, prompt, output in _azure(azure):
            hashes = [*islice(blocks, -(-prompt // _DYNOSIM_ENGINE["block_size"]))]
            row = {"timestamp": arrival / 1000, "input_length": prompt, "output_length": output, "hash_ids": hashes}
            file.write(json.dumps(row) + "\n")
    options = [
        "--trace-block-size",
        str(_DYNOSIM_ENGINE["block_size"]),
        "--num-workers",
        "1",
        "--extra-engine-args",
        json.dumps(_DYNOSIM_ENGINE),
    ]
    theirs = [sys.executable, "-m", "dynamo.replay", str(trace), *options]
    ours = _command("azure-hour", folder, azure)
    _show("dynosim", _pairs((ours, environ), (theirs, dict(os.environ)), folder, rounds))


def _pairs(
    ours: tuple[list[str], Mapping[str, str]],
    theirs: tuple[list[str], Mapping[str, str]],
    folder: Path,
    rounds: int,
) -> list[tuple[float, float]]:
    """CPU seconds of both commands, one after the other; the first of each, which may compile, is not counted."""
    pairs = [(_cpu_s(*ours, folder), _cpu_s(*theirs, folder)) for _ in range(rounds + 1)]
    return pairs[1:]


def _cpu_s(command: list[str], environ: Mapping[str, str], folder: Path) -> float:
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environ, cwd=folder)
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0:
        sys.exit(f"exit code {process.returncode}: {' '.join(command)}")
    return usage.ru_utime + usage.ru_stime


def _show(name: str, pairs: list[tuple[float, float]]) -> None:
    ours, theirs = (min(pair[side] for pair in pairs) for side in (0, 1))
    ratios = sorted(now / then for now, then in pairs)
    print(
        f"{name:<14} {ours:7.3f} {theirs:7.3f}  {ours / theirs:5.2f} "
        f"({median(ratios):.2f}, {ratios[0]:.2f} .. {ratios[-1]:.2f})",
        flush=True,
    )
