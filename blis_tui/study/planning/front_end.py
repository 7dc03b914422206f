"""Whether more API server processes would do instead of one more instance."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.engine.client_times import ServiceTimes
from blis_tui.study.planning.driver import Run
from blis_tui.study.planning.search import verdict_of
from blis_tui.study.sensitivity import PROCESSES

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from blis_tui.model import Expectation, Experiment
    from blis_tui.study.steady import Steady
    from blis_tui.study.study_rows import Row


_BUSY: Final = 0.5
"""Share of its time from which on an API server may be what limits an instance."""


class MoreProcesses(NamedTuple):
    """A smaller size that would do with more API server processes on each instance."""

    size: int
    processes: int


def busy_processes(experiment: Experiment, rate_per_s: float, size: int) -> int | None:
    """Return the number of API server processes of instances whose processes would be busy; None = they would not."""
    engine = experiment.pools[0].engine
    if engine.front_end is None and experiment.pools[0].latency.kind != "operators":
        return None
    times = ServiceTimes().given(engine.front_end)
    share = rate_per_s / size * times.request_us / 1e6 / times.processes
    return times.processes if share > _BUSY else None


def more_processes(
    rows: Sequence[Row], steady: Steady | None, bounds: tuple[Expectation, ...], tried: MoreProcesses
) -> Generator[list[Run], list[Row], MoreProcesses | None]:
    """Repeat the runs of a size that was not enough, with more processes; None = that is not enough, either."""
    values = {PROCESSES: tried.processes}
    again = yield [Run(point=row.point, values=values, seed=row.seed, steady=steady) for row in rows]
    return tried if all(verdict_of(row, bounds).holds for row in again) else None
