"""What the figures are held against: those of the last release, and how many times as much is an accident."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Final

from benchmarks.guard import inputs

if TYPE_CHECKING:
    from collections.abc import Mapping

HERE: Final = Path(__file__).parent
ROOT: Final = HERE.parents[1]
ANCHOR: Final = HERE / "anchor.json"
COARSE: Final = 1.15
"""Counts do not say what an operation costs, so smaller increases are left to CPU time in pairs (``pairs.py``)."""
COUNTED_WITH: Final = ("click", "PyYAML", "textual")
"""Dependencies whose calls and modules are counted, too."""


class CannotCountError(Exception):
    """An input cannot be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """A figure above what it may be."""

    name: str
    anchor: float
    now: float

    def __str__(self) -> str:
        return f"{self.name}: {self.now:,.0f}, {self.now / self.anchor:.2f} times the anchor of {self.anchor:,.0f}"


def python() -> str:
    """The Python that counts: its first two numbers, on which the counts of calls depend."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def anchor() -> dict[str, float]:
    """Each figure's anchor."""
    found: dict[str, float] = json.loads(ANCHOR.read_text(encoding="utf-8"))["figures"]
    return found


def anchor_python() -> str:
    """The Python with which the anchor was counted."""
    said: str = json.loads(ANCHOR.read_text(encoding="utf-8"))["python"]
    return said


def dependencies() -> dict[str, str]:
    """The dependencies whose work is counted, with their versions here."""
    return {name: version(name) for name in COUNTED_WITH}


def other_dependencies() -> str:
    """Which dependencies are not those of the anchor; empty = none."""
    counted: Mapping[str, str] = json.loads(ANCHOR.read_text(encoding="utf-8"))["dependencies"]
    return ", ".join(f"{name} {version(name)}, not {was}" for name, was in counted.items() if version(name) != was)


def over(figures: Mapping[str, float]) -> list[Over]:
    """Those of the figures that are far above their anchor."""
    anchors = anchor()
    return [
        Over(name=name, anchor=anchors[name], now=now) for name, now in figures.items() if now > anchors[name] * COARSE
    ]


def count(name: str, package: Path = ROOT) -> dict[str, float]:
    """Count one input, one of ``inputs.NAMES``, in a process of its own, with the ``blis_tui`` in a folder.

    Raises:
        CannotCountError: that version cannot run it, or no bytecode can be kept.
    """
    with tempfile.TemporaryDirectory() as made:
        folder = Path(made)
        work = _work(name, folder)
        figures = _counted(name, work, folder, package)
        # Importing takes other calls where a module has to be compiled first.
        if figures.pop("compiled"):
            figures = _counted(name, work, folder, package)
            if figures.pop("compiled"):
                raise CannotCountError(f"{name}: modules are compiled each time: let Python write its bytecode")
    return {f"{name}.{key}": figure for key, figure in figures.items()}


def _work(name: str, folder: Path) -> list[str]:
    """What ``count.py`` is asked to do."""
    if name in inputs.PHASED:
        return ["phases", str(inputs.PHASED[name](folder))]
    if name in inputs.COMMANDS:
        return ["command", *inputs.COMMANDS[name]]
    return ["plan", json.dumps(inputs.PLAN)] if name == "plan" else [name]


def _counted(name: str, work: list[str], folder: Path, package: Path) -> dict[str, float]:
    result = folder / "figures.json"
    command = [sys.executable, "-P", str(HERE / "count.py"), str(result), *work]
    done = subprocess.run(command, env=environment(package), cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode:
        raise CannotCountError(f"{name}: {' '.join(done.stderr.strip().splitlines()[-1:])[:200]}")
    figures: dict[str, float] = json.loads(result.read_text(encoding="utf-8"))
    return figures


def environment(package: Path) -> dict[str, str]:
    """That of processes that run the ``blis_tui`` in a folder: with the same hashes each time, and with bytecode."""
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return {**kept, "PYTHONPATH": str(package), "PYTHONHASHSEED": "0"}
