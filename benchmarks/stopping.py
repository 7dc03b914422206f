"""Savings of early stopping: calls and CPU time of sweeps with and without it.

    python -m benchmarks.stopping [WORD...]

With words, only the questions whose line contains all of them.

Every question is answered twice in this process, without any cache: once like `sweep --early-stop`, and once with every
run to its end. The answers must be the same. Each line has the number of calls (of Python and C functions, the same on
every machine), the CPU seconds while they were counted, the ratios of both, and how many runs were stopped.
"""

from __future__ import annotations

import cProfile
import sys
from dataclasses import replace
from functools import partial
from time import process_time
from typing import TYPE_CHECKING

from blis_tui.spec.study.arguments import study_of_arguments
from blis_tui.spec.study.document import open_study_or_experiment, read_study
from blis_tui.study.runners import InProcessRunner
from blis_tui.study.store import MemoryStore
from blis_tui.study.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable

    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.task import Outcome, Task

_LONG = ("cluster.instances=1..4", "workload.rate_per_s=40..200..40", "workload.requests=5000")
_SWEEPS: tuple[tuple[str, tuple[str, ...], tuple[str, ...]], ...] = (
    ("quickstart", _LONG, ("latency.ttft_ms.p99<=200",)),
    ("quickstart", _LONG, ("latency.e2e_ms.mean<=4000",)),
    ("quickstart", _LONG, ("throughput.requests_per_s>=100",)),
    ("quickstart", _LONG, ("latency.itl_ms.p99<=20",)),
    ("quickstart", ("cluster.instances=1..4", "workload.rate_per_s=10..60..10"), ("latency.ttft_ms.p99<=200",)),
    ("quickstart", ("cluster.instances=1..4", "workload.rate_per_s=10..60..10"), ("throughput.requests_per_s>=20",)),
    ("kv-pressure", ("engine.max_num_seqs=16,64,256", "workload.rate_per_s=2..20..3"), ("kv.preemptions<=10",)),
)
"""Questions: experiment, axes, bounds."""


class _Timed(InProcessRunner):
    """Runs tasks in this process, and sums up their cost."""

    def __init__(self, *, stops: bool) -> None:
        super().__init__()
        self._stops = stops
        self.cpu_s = 0.0
        self.calls = 0
        self.runs = self.stopped = 0
        self._asked: dict[str, Task] = {}

    def start(self, task: Task) -> None:
        """Take a task; without early stopping, remove the bounds that would stop it."""
        made = task if self._stops else replace(task, stop_at=())
        self._asked[task.key] = task
        super().start(made)

    def collect(self, *, block: bool) -> list[tuple[Task, Outcome]]:
        """The finished runs, under the tasks that were submitted."""
        before, profile = process_time(), cProfile.Profile()
        found = profile.runcall(super().collect, block=block)
        self.cpu_s += process_time() - before
        self.calls += sum(entry.callcount for entry in profile.getstats())
        self.runs += len(found)
        self.stopped += sum(outcome.status == "stopped" for _, outcome in found)
        return [(self._asked[task.key], outcome) for task, outcome in found]


def _study(source: str, axes: tuple[str, ...], slos: tuple[str, ...]) -> Study:
    document, base = open_study_or_experiment(source, None)
    study_of_arguments(document, axes=axes, slos=slos, objectives=(), seeds="2", case=None, prices=())
    return read_study(document, base=base, given=(), plugins=None)


def _sweep(runner: _Timed, source: str, axes: tuple[str, ...], slos: tuple[str, ...]) -> list[bool | None]:
    runs = Sweep(_study(source, axes, slos), store=MemoryStore(), early_stop=True)
    for _ in runs.run(runner):
        pass
    return [row.ok for row in runs.result().rows]


def _tell(name: str, ask: Callable[[_Timed], object]) -> None:
    if not all(word in name for word in sys.argv[1:]):
        return
    stopping, whole = _Timed(stops=True), _Timed(stops=False)
    same = ask(stopping) == ask(whole)
    print(
        f"{name:<78} {whole.calls / 1e6:8.1f} M {stopping.calls / 1e6:8.1f} M {stopping.calls / whole.calls:6.2f}"
        f" {whole.cpu_s:7.1f} s {stopping.cpu_s:7.1f} s {stopping.cpu_s / whole.cpu_s:6.2f}"
        f"  {stopping.stopped} of {stopping.runs} stopped{'' if same else '; OTHER ANSWERS'}",
        flush=True,
    )


def main() -> None:
    """Answer every question twice and print the comparison."""
    print(f"{'':<78} {'whole':>10} {'stopped':>10}  ratio {'whole':>9} {'stopped':>9}  ratio")
    for source, axes, slos in _SWEEPS:
        _tell(f"sweep {source} {' '.join((*axes, *slos))}", partial(_sweep, source=source, axes=axes, slos=slos))


if __name__ == "__main__":
    main()
