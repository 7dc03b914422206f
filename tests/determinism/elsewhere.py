"""Run the shipped experiments in another process, and compare what comes back."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from difflib import unified_diff
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from .runner import RECORDS_PER_MARK, Outcome, arithmetic

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
RUNNER: Final = Path(__file__).with_name("runner.py")
_TIMEOUT_S: Final = 300
_KEPT: Final = ("PYTHONDONTWRITEBYTECODE", "PYTHONPYCACHEPREFIX")
"""Where bytecode goes changes nothing of what is computed, but much of how long it takes."""


class Elsewhere(NamedTuple):
    """What another process said."""

    python: str
    platform: str
    package: Path
    specs: Path
    arithmetic: dict[str, str]
    outcomes: dict[str, Outcome]


def parsed(data: Mapping[str, Any]) -> Elsewhere:
    """What the runner said."""
    outcomes = {name: Outcome(**fields) for name, fields in data["outcomes"].items()}
    return Elsewhere(
        python=data["python"],
        platform=data["platform"],
        package=Path(data["package"]),
        specs=Path(data["specs"]),
        arithmetic=data["arithmetic"],
        outcomes=outcomes,
    )


def run_elsewhere(
    jobs: Path,
    python: Sequence[str] = (sys.executable,),
    *,
    environment: Mapping[str, str] | None = None,
    checkout: bool = True,
    runner: Path = RUNNER,
    cwd: Path | None = None,
) -> Elsewhere:
    """Run the runner with these jobs in a new process.

    Args:
        jobs: file with the jobs.
        python: the interpreter and its options.
        environment: variables to set; of this process's own only PATH, HOME and their like are handed on.
        checkout: whether to put this checkout on the path.
        runner: the script.
        cwd: where to run it; a folder that is not the checkout unless given.
    """
    ours = ("PYTHON", "COVERAGE", "PYTEST")
    kept = {key: value for key, value in os.environ.items() if key in _KEPT or not key.startswith(ours)}
    if checkout:
        kept["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(
        [*python, str(runner), str(jobs)],
        env={**kept, **(environment or {})},
        cwd=cwd or jobs.parent,
        capture_output=True,
        timeout=_TIMEOUT_S,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"{python[0]} exits with {done.returncode}:\n{done.stderr.decode(errors='replace')}")
    return parsed(json.loads(done.stdout))


def assert_same_elsewhere(expected: Mapping[str, Outcome], found: Elsewhere) -> None:
    """Another process has the same arithmetic and the same outcomes."""
    assert found.arithmetic == arithmetic()
    assert_same(expected, found.outcomes)


def assert_same(expected: Mapping[str, Outcome], got: Mapping[str, Outcome]) -> None:
    """Every experiment came out the same; if not, say where each differs first."""
    assert list(got) == list(expected)
    found = [text for name in expected for text in _differences(name, expected[name], got[name])]
    assert not found, "\n".join(found)


def _differences(name: str, expected: Outcome, got: Outcome) -> Iterator[str]:
    if got.report != expected.report:
        lines = unified_diff(expected.report.splitlines(), got.report.splitlines(), "here", "there", n=0, lineterm="")
        yield "\n".join([f"{name}: another report", *list(lines)[:20]])
    if got.requests != expected.requests:
        yield f"{name}: another request table"
    if got.records != expected.records:
        yield f"{name}: other records, the first one after record {_agreed(expected.marks, got.marks)}"
    if (got.events, got.state) != (expected.events, expected.state):
        yield f"{name}: another final state (events: {expected.events} here, {got.events} there)"


def _agreed(expected: list[str], got: list[str]) -> int:
    """Number of records up to which two streams agree, in steps of the marks."""
    agreed = 0
    for one, other in zip(expected, got, strict=False):
        if one != other:
            break
        agreed += RECORDS_PER_MARK
    return agreed
