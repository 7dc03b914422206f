"""``blis_tui.sweep`` and ``blis_tui.plan``: run a study or the planner with one call."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.base.source import Source, as_map
from blis_tui.model import Experiment
from blis_tui.spec.overrides import as_json, as_text
from blis_tui.spec.read import parse
from blis_tui.spec.study.arguments import study_of_arguments
from blis_tui.spec.study.document import open_study_or_experiment, read_study
from blis_tui.spec.user_plugins import load_plugins, require_several
from blis_tui.study.figures import require_figures
from blis_tui.study.planning.answer import DURATION_S, Question
from blis_tui.study.planning.plan import plan as answer
from blis_tui.study.runners import InProcessRunner, ProcessRunner
from blis_tui.study.store import FolderStore
from blis_tui.study.sweep import Sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.planning.answer import Plan
    from blis_tui.study.runners import Runner
    from blis_tui.study.study_rows import Row, StudyResult
    from blis_tui.study.sweep import Progress


def sweep(
    source: str | Path | Mapping[str, object],
    *,
    axes: Mapping[str, object] | None = None,
    seeds: int | Sequence[int] | None = None,
    set: Mapping[str, object] | None = None,  # noqa: A002  (the command line's word for it)
    slos: Sequence[str] = (),
    objectives: Sequence[str] = (),
    prices: Mapping[str, float] | None = None,
    plugins: Sequence[str | Path] = (),
    jobs: int = 1,
    dask: str | None = None,
    store: str | Path | None = None,
    early_stop: bool = False,
    on_progress: Callable[[Progress], None] | None = None,
) -> StudyResult:
    """Run an experiment with many settings.

    Args:
        source: a study or an experiment: its name, the path of its file, or the document itself as plain data (what
            :func:`blis_tui.load` takes, instead of what it returns).
        axes: what varies, by dotted path: ``{"cluster.instances": range(1, 9)}``; every value of one axis is combined
            with every value of the others. An axis replaces the study's axis of the same path.
        seeds: the seeds of each point, or their number; None = those of the study, or of the experiment.
        set: values for all runs, by dotted path.
        slos: constraints, such as ``"latency.ttft_ms.p99<=300"``.
        objectives: what to minimise (``"cost.gpus"``) or maximise (``"max:throughput.output_tokens_per_s"``).
        prices: price of an accelerator in US dollars an hour, by hardware: ``{"h100": 2.5}``.
        plugins: as in :func:`blis_tui.load`.
        jobs: number of simultaneous runs; more than one use separate processes, which a script must allow with ``if
            __name__ == "__main__":``.
        dask: address of a Dask scheduler whose workers make the runs instead (extra ``distributed``).
        store: a folder for results, so that no run is repeated; None = results are not kept.
        early_stop: whether to end a run as soon as a bound can no longer hold; its row says ``stopped``.
        on_progress: called after each new row.

    Returns:
        A row for each run, whatever its outcome.

    Raises:
        SpecError: with every problem of the study, each with its place and a hint.
        PolicyError: plug-ins cannot be used.
        InputError: a file cannot be read, results cannot be kept in ``store``, or the cluster cannot be used.
        SimulationError: processes cannot be started, or the cluster is lost.
    """
    if jobs < 1:
        raise ValueError(f"jobs must be at least 1, not {jobs}")
    study = study_from(source, axes or {}, seeds, set or {}, slos, objectives, plugins, prices or {})
    kept = None if store is None else FolderStore(Path(store))
    if kept is not None:
        kept.require_writable()
    with ExitStack() as opened:
        runs = Sweep(study, store=kept, early_stop=early_stop, warn=warn)
        for progress in runs.run(opened.enter_context(runner_from(min(jobs, study.runs), dask))):
            if on_progress is not None:
                on_progress(progress)
    return runs.result()


def study_from(
    source: str | Path | Mapping[str, object],
    axes: Mapping[str, object],
    seeds: int | Sequence[int] | None,
    given: Mapping[str, object],
    slos: Sequence[str],
    objectives: Sequence[str],
    plugins: Sequence[str | Path],
    prices: Mapping[str, float],
) -> Study:
    """Return the study that the arguments of :func:`sweep` describe, with the same exceptions."""
    for name, texts in (("slos", slos), ("objectives", objectives)):
        require_several(name, texts)
    if isinstance(source, Mapping):
        document, base = open_study_or_experiment("-", as_json(source))
    elif isinstance(source, str | Path):
        document, base = open_study_or_experiment(str(source.absolute()) if isinstance(source, Path) else source)
    else:
        raise _no_source(source)
    data = as_map(document.data)
    for path, values in axes.items():
        if not isinstance(data.get("axes"), dict):
            data["axes"] = {}
        document.graft(("axes", path), parse(Source(f"axes: {path}", as_json(values))))
    study_of_arguments(
        document,
        slos=slos,
        objectives=objectives,
        seeds="" if seeds is None else as_json(seeds),
        prices=[f"{name}={price}" for name, price in prices.items()],
    )
    known = load_plugins(plugins) if plugins else None
    study = read_study(document, base=base, given=[as_text(*pair) for pair in given.items()], plugins=known)
    require_figures(study)
    return study


def _no_source(source: object) -> TypeError:
    kind = f"a study or an experiment is a name, a path or a mapping, not {type(source).__name__}"
    loaded = "; pass what blis_tui.load() was given, with the same `set` and `plugins`"
    return TypeError(kind + (loaded if isinstance(source, Experiment) else ""))


def runner_from(jobs: int, dask: str | None) -> Runner:
    """Return the runner for the arguments. Raises as :func:`sweep` does."""
    if dask is not None:
        from blis_tui.study.dask_runner import DaskRunner  # noqa: PLC0415  (an extra that may be missing)

        return DaskRunner(dask)
    return InProcessRunner() if jobs == 1 else ProcessRunner(jobs, warn)


def warn(message: str) -> None:
    """Warn of a problem that does not stop the work."""
    warnings.warn(message, RuntimeWarning, stacklevel=2)


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
    precision: float = 0.075,
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
