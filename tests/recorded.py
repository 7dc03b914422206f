"""What the code of a folder gave when somebody last looked at it: digests of many random inputs' results.

Other tests say what is right. These say that nothing has changed: they run far more combinations of options than a
person would write down, and compare a digest of each kind of result with the one on file. A fault in a branch that no
hand-made case takes shows up here. If a change is meant, ``pytest tests/FOLDER/test_recorded.py --force-regen`` writes
the digests anew; those that did not have to move should not have.
"""

from __future__ import annotations

import hashlib
import re
from functools import cache
from gzip import decompress
from typing import TYPE_CHECKING, ParamSpec, TypeVar

from click.testing import CliRunner

from blis_tui.base.errors import BlisError
from blis_tui.cli.main import cli
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from blis_tui.spec.shipped import shipped_specs
from tests.wheels import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from pytest_regressions.file_regression import FileRegressionFixture

    from blis_tui.engine.records import Record

_P = ParamSpec("_P")
_T = TypeVar("_T")

SHIPPED = tuple(path.name.removesuffix(".blis.yaml") for path in sorted((shipped_specs() / "experiments").glob("*")))
REQUESTS = 40
"""Enough for each shipped experiment to do what it is about at least once, in the time of a unit test."""


class Digests:
    """By kind of result: how many there were, and a digest of all."""

    def __init__(self) -> None:
        self._counts: dict[str, int] = {}
        self._hashes: dict[str, hashlib._Hash] = {}

    def add(self, kind: str, *results: object) -> None:
        """Take further results of a kind; each is what its ``repr`` says, and text as it is."""
        digest = self._hashes.setdefault(kind, hashlib.sha256())
        self._counts[kind] = self._counts.get(kind, 0) + len(results)
        for result in results:
            digest.update(
                (result if isinstance(result, str) else repr(result)).encode("utf-8", "surrogatepass") + b"\0"
            )

    def check(self, file_regression: FileRegressionFixture) -> None:
        """Compare with what is on file."""
        lines = (f"{kind}: {self._counts[kind]} {digest.hexdigest()[:12]}\n" for kind, digest in self._hashes.items())
        file_regression.check("".join(lines), encoding="utf-8")


def outcome(function: Callable[_P, _T], *arguments: _P.args, **named: _P.kwargs) -> _T | str:
    """What a call returns, or the error that a user would see."""
    try:
        return function(*arguments, **named)
    except BlisError as error:
        return f"{type(error).__name__}: {error}"


@cache
def shipped_run(name: str) -> tuple[Simulation, tuple[Record, ...]]:
    """A shipped experiment with few requests, run to its end, and what it recorded."""
    simulation = Simulation(load(name, overrides={"workload.requests": REQUESTS}), check="end")
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    simulation.run()
    return simulation, tuple(records)


def commands(digests: Digests, folder: Path, *lines: str, kind: str = "") -> None:
    """Run lines of the command line in a folder, and take what they print and the files that they leave there."""
    known = {one for one in folder.rglob("*") if one.is_file()}
    for line in lines:
        done = CliRunner(env={"COLUMNS": "100"}).invoke(cli, line.split())
        assert done.exception is None or isinstance(done.exception, SystemExit), line
        name = kind or line.split()[0]
        digests.add(name, str(done.exit_code), lasting(done.output, folder))
        for file in sorted({one for one in folder.rglob("*") if one.is_file()} - known):
            known.add(file)
            digests.add(f"{name} {file.suffix}", lasting(_content(file), folder))


def _content(file: Path) -> str:
    """What is in a file, not how it is compressed: that differs from machine to machine."""
    written = file.read_bytes()
    return (decompress(written) if file.suffix == ".gz" else written).decode("utf-8", "replace")


def lasting(text: str, folder: Path) -> str:
    """Text without what differs from run to run and from machine to machine: folders, times, versions, schemas."""
    lasting = text.replace(str(folder), "FOLDER").replace(str(ROOT), "ROOT")
    lasting = re.sub(r"ROOT(\S*) +#", r"ROOT\1  #", lasting)  # a comment stands where the longest path leaves it
    lasting = re.sub(r"\b[0-9.]+ s(?= \(|\b of wall| in all)|in [0-9.]+ s\b", "", lasting)
    lasting = re.sub(r'"schemas_sha256": "[0-9a-f]+"', "", lasting)
    return re.sub(r"blis-tui [0-9][0-9.a-z+]*", "blis-tui", lasting)
