"""Small studies for tests."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.base.source import Source
from blis_tui.spec.read import parse
from blis_tui.spec.study.document import read_study
from blis_tui.spec.user_plugins import load_plugins
from blis_tui.study.runners import Runner
from blis_tui.study.task import Outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.study_rows import StudyResult
    from blis_tui.study.task import Task

SMALL: Final[dict[str, object]] = {
    "workload.requests": 20,
    "workload.clients.0.input_tokens": 400,
    "expect": [],
    "latency": "roofline",
    "policy": "blis",
}
"""Enough for figures that differ, little enough for many runs."""
MISHAPS: Final = Path(__file__).with_name("mishaps.py")
TIGHT: Final = {"metric": "latency.ttft_ms.p99", "max": 25}
"""A bound that holds with two instances of SMALL, and not with one."""


def study_of(axes: dict[str, object], *, plugins: Iterable[Path] = (), **more: object) -> Study:
    """The quickstart, smaller, with these axes."""
    document = {
        "apiVersion": "blis/v1",
        "kind": "Study",
        "metadata": {"name": "tried"},
        "experiment": "quickstart",
        "axes": axes,
        "set": SMALL,
        **more,
    }
    return read_study(parse(Source("study.yaml", json.dumps(document))), plugins=load_plugins(plugins))


def study_with(*happenings: str, **more: object) -> Study:
    """A run for each: what happens in it, or "nothing"."""
    values = [{"kind": "mishap", "what": what, "which": at} for at, what in enumerate(happenings)]
    return study_of({"policy.routing": values}, plugins=[MISHAPS], **more)


def statuses(result: StudyResult) -> list[str]:
    return [row.status for row in result]


class NoRunner(Runner):
    """Counts tasks; gives each the same outcome, or that of a function."""

    name = "nowhere"
    busy = False
    room = True

    def __init__(self, outcome: Outcome | Callable[[Task], Outcome] | None = None) -> None:
        self.tasks: list[Task] = []
        self._outcome = outcome or Outcome(status="failed", why="nobody runs it")
        self._ended: list[tuple[Task, Outcome]] = []

    def start(self, task: Task) -> None:
        self.tasks.append(task)
        self._ended.append((task, self._outcome if isinstance(self._outcome, Outcome) else self._outcome(task)))

    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        ended, self._ended = self._ended, []
        return ended

    def cancel(self) -> None:
        self._ended = []
