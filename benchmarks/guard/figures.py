"""What the figures are held against: an anchor that never moves, and a budget whose raises have reasons."""

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
BUDGET: Final = HERE / "budget.json"
COUNTED_WITH: Final = ("click", "PyYAML", "jsonschema", "referencing", "textual")
"""Dependencies whose calls and modules are counted, too."""


class CannotCountError(Exception):
    """An input cannot be counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Version:
    """A version that was counted once, and stays as it was."""

    commit: str
    figures: Mapping[str, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Raise:
    """A figure that may be above its anchor."""

    times: float
    """The anchor, so many times."""
    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Over:
    """A figure above what it may be."""

    name: str
    anchor: float
    now: float
    allowed: float

    def __str__(self) -> str:
        return (
            f"{self.name}: {self.now:,.0f}, {self.now / self.anchor:.3f} times the anchor of {self.anchor:,.0f} "
            f"(allowed: {self.allowed:g} times)"
        )


def python() -> str:
    """The Python that counts: its first two numbers, on which the counts of calls depend."""
    return f"{sys.version_info[0]}.{sys.version_info[1]}"


def versions() -> list[Version]:
    """The versions that the anchor was counted with; an earlier one counts where both could run an input."""
    said = json.loads(ANCHOR.read_text(encoding="utf-8"))["versions"]
    return [Version(commit=one["commit"], figures=one["figures"]) for one in said]


def anchor() -> dict[str, float]:
    """Each figure's anchor."""
    found: dict[str, float] = {}
    for one in versions():
        found = {**one.figures, **found}
    return found


def anchor_python() -> str:
    """The Python with which the anchor was counted."""
    said: str = json.loads(ANCHOR.read_text(encoding="utf-8"))["python"]
    return said


def other_dependencies() -> str:
    """Which dependencies are not those of the anchor; empty = none."""
    counted: Mapping[str, str] = json.loads(ANCHOR.read_text(encoding="utf-8"))["dependencies"]
    return ", ".join(f"{name} {version(name)}, not {was}" for name, was in counted.items() if version(name) != was)


def tolerance() -> float:
    """How many times its anchor a figure may be without a raise."""
    said: float = json.loads(BUDGET.read_text(encoding="utf-8"))["tolerance"]
    return said


def raises() -> dict[str, Raise]:
    """The figures that may be more."""
    return {name: Raise(**one) for name, one in json.loads(BUDGET.read_text(encoding="utf-8"))["raises"].items()}


def over(figures: Mapping[str, float]) -> list[Over]:
    """Those of the figures that are above what they may be."""
    anchors, raised, usual = anchor(), raises(), tolerance()
    allowed = {name: raised[name].times if name in raised else usual for name in figures}
    return [
        Over(name=name, anchor=anchors[name], now=now, allowed=allowed[name])
        for name, now in figures.items()
        if now > anchors[name] * allowed[name]
    ]


def unneeded(figures: Mapping[str, float]) -> list[str]:
    """The raises that figures no longer need."""
    anchors, usual = anchor(), tolerance()
    return [name for name in raises() if name in figures and figures[name] <= anchors[name] * usual]


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
