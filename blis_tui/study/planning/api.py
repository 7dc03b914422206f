"""``blis_tui.plan``: run the planner with one call."""

from __future__ import annotations

from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.study.api import runner_from, study_from, warn
from blis_tui.study.planning.plan import DURATION_S, Question
from blis_tui.study.planning.plan import plan as answer
from blis_tui.study.store import FolderStore

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from blis_tui.study.planning.plan import Plan
    from blis_tui.study.rows import Row


def plan(
    source: str | Path | Mapping[str, object],
    *,
    slos: Sequence[str] = (),
    rate_per_s: float | None = None,
    max_rate: bool = False,
    axes: Mapping[str, object] | None = None,
    sizes: tuple[str, int, int] = ("cluster.instances", 1, 64),
    seeds: int | Sequence[int] = 1,
    duration_s: float = DURATION_S,
    headroom: float = 0.0,
    spare: int = 0,
    precision: float = 0.1,
    confidence: float | None = None,
    prices: Mapping[str, float] | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002  (the command line's word for it)
    plugins: Sequence[str | Path] = (),
    jobs: int = 1,
    dask: str | None = None,
    store: str | Path | None = None,
    on_run: Callable[[Row], None] = lambda _: None,
) -> Plan:
    """Find the cheapest cluster that meets all bounds, or the highest rate at which one does.

    Args:
        source: an experiment: its name, the path of its file, or the document itself as plain data (what
            :func:`blis_tui.load` takes, instead of what it returns).
        slos: the bounds, at least one, such as ``"latency.ttft_ms.p99<=300"``.
        rate_per_s: the load to plan for; None = the experiment's own.
        max_rate: whether to find the highest rate of the given cluster instead.
        axes: the configurations to choose from, by dotted path: ``{"hardware": ["h100", "l40s"]}``.
        sizes: the path of the size to search, its minimum and its maximum.
        seeds: the number of runs that must agree, or their seeds.
        duration_s: minimum simulated time before bounds are said to hold.
        headroom: share by which the load may be higher without breaking a bound; not with ``max_rate``.
        spare: number of instances that may be down without breaking a bound; not with ``max_rate``.
        precision: with ``max_rate``, maximum ratio minus 1 of the failing to the holding rate, if seeds agree.
        confidence: the share of measured servers with no slower steps than the answer allows for; None = the answer
            holds with the expected step times.
        prices: as in :func:`blis_tui.sweep`; configurations are compared by them.
        set: values for all runs, by dotted path.
        plugins: as in :func:`blis_tui.load`.
        jobs: as in :func:`blis_tui.sweep`, like ``dask`` and ``store``.
        dask: the address of a Dask scheduler.
        store: a folder for results.
        on_run: called after each run.

    Returns:
        The answer (``best``; None = nothing holds), and every run behind it.

    Raises:
        SpecError: with every problem of the experiment and the arguments; or no run can have the requested rate.
        PolicyError: plug-ins cannot be used.
        InputError: there are no bounds, the workload's rate cannot be varied, arguments contradict each other, a file
            cannot be read or written.
        SimulationError: processes cannot be started, or the cluster is lost.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    if rate_per_s is not None and not 0 < rate_per_s < inf:
        raise ValueError(f"rate_per_s must be above 0 and finite, not {rate_per_s}")
    if max_rate and rate_per_s is not None:
        raise ValueError("max_rate and rate_per_s cannot be combined: max_rate finds the rate")
    if not 0 < duration_s < inf:
        raise ValueError(f"duration_s must be above 0 and finite, not {duration_s}")
    if not 0 <= headroom < inf or spare < 0:
        raise ValueError(f"headroom and spare must not be negative, not {headroom} and {spare}")
    if not 0.01 <= precision <= 1.0:
        raise ValueError(f"precision must be from 0.01 to 1, not {precision}")
    if confidence is not None and not 0.5 <= confidence < 1.0:
        raise ValueError(f"confidence must be at least 0.5 and below 1, not {confidence}")
    size_path, least, most = sizes
    if not 1 <= least <= most:
        raise ValueError(f"sizes must be a path, the least, 1 or more, and the most, not {sizes}")
    question = Question(
        study=study_from(source, axes or {}, seeds, set or {}, slos, (), plugins, prices or {}),
        rate_per_s=rate_per_s,
        max_rate=max_rate,
        size_path=size_path,
        least=least,
        most=most,
        duration_s=duration_s,
        headroom=headroom,
        spare=spare,
        precision=precision,
        confidence=confidence,
    )
    kept = None if store is None else FolderStore(Path(store))
    if kept is not None:
        kept.require_writable()
    with ExitStack() as opened:
        return answer(question, opened.enter_context(runner_from(jobs, dask)), kept, on_run, warn)
