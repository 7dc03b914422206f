"""``blis_tui.sweep``: run a study with one call."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from blis_tui.spec.loader import parse
from blis_tui.spec.model import Experiment
from blis_tui.spec.overrides import as_json, as_text
from blis_tui.spec.source import Source, as_map
from blis_tui.spec.study.arguments import study_of_arguments
from blis_tui.spec.study.document import read_study
from blis_tui.spec.study.opening import open_study_or_experiment
from blis_tui.study.figures import require_figures
from blis_tui.study.runners import InProcessRunner, ProcessRunner
from blis_tui.study.store import FolderStore
from blis_tui.study.sweep import Sweep
from blis_tui.user_plugins import load_plugins, require_several

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.spec.study.model import Study
    from blis_tui.study.rows import StudyResult
    from blis_tui.study.runners import Runner
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
    study = read_study(document, base=base, given=[as_text(*one) for one in given.items()], plugins=known)
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
