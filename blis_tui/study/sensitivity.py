"""Sensitivity analysis: the effect of each tunable key on the tightest bound, separated from the noise of seeds.

Each key is set one step down and one step up (a choice: to each alternative), with everything else unchanged. Runs with
the same seeds are compared, so that with equal requests only the difference varies. Its mean has a 95 % interval by
Student's t, which assumes normal differences; a change is significant if the interval excludes zero.
"""

from __future__ import annotations

from dataclasses import replace
from math import fsum, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.source import as_list
from blis_tui.base.text import aligned
from blis_tui.base.units import number_text, plural, share_change_text
from blis_tui.spec.study.document import resolve_point
from blis_tui.spec.study.study_records import Point
from blis_tui.study.planning.driver import Driver, Run
from blis_tui.study.planning.search import margins, verdict_of
from blis_tui.study.point_summary import still_grows

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence

    from blis_tui.base.source import Document, Json
    from blis_tui.model import Expectation
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.runners import Runner
    from blis_tui.study.store import Store
    from blis_tui.study.study_rows import Row

_HALVES: Final = "halves"
_ONE: Final = "one"
_SHARE: Final = "share"
_SWITCH: Final = "switch"

_INSTANCES: Final = "cluster.instances"
PROCESSES: Final = "engine.front_end.processes"
KNOBS: Final[Mapping[str, str | tuple[Json, ...]]] = {
    _INSTANCES: _ONE,
    "cluster.tensor_parallel": _HALVES,
    "engine.max_num_batched_tokens": _HALVES,
    "engine.long_prefill_token_threshold": (0, 512, 2048),
    "engine.max_num_seqs": _HALVES,
    "engine.kv_blocks": _HALVES,
    "engine.gpu_memory_utilization": _SHARE,
    "engine.block_size_tokens": _HALVES,
    "engine.enable_prefix_caching": _SWITCH,
    "engine.enforce_eager": _SWITCH,
    PROCESSES: _HALVES,
    "policy.scheduling": ("fcfs", "sjf", "lof"),
    "policy.routing": ("round-robin", "least-loaded", "power-of-two", "least-estimated-ttft"),
    "policy.preemption.victim": ("tail", "cheapest-recompute"),
}
"""The tunable keys, and how: halve and double, by one, by 5 % of the whole, toggle, or the listed alternatives."""
_CHUNKS: Final[Mapping[str, str | tuple[Json, ...]]] = {
    "policy.batching.chunked_prefill_size": _HALVES,
    "policy.batching.enable_mixed_chunk": _SWITCH,
}
"""Tunable keys of a batching rule with a separate budget for prompts."""
_NOT_BESIDE_CHUNKS: Final = ("engine.max_num_batched_tokens", "engine.long_prefill_token_threshold")
"""Keys that such a rule ignores."""
_LEFT_OUT: Final[Mapping[str, Json]] = {"engine.enforce_eager": False, "engine.long_prefill_token_threshold": 0}
"""Values of keys that a resolved experiment may omit."""
OF_HALVES: Final = tuple(f"cluster.disaggregation.{half}_instances" for half in ("prefill", "decode"))
"""The numbers of instances of a cluster that is split without pools."""
_GROWING: Final = "? "
_LONGER: Final = (
    f"{_GROWING}in some of these runs ever more requests were in the system when the arrivals ended: longer runs have",
    "longer latencies. `blis-tui plan` runs until it is known what lasts; here more requests show it",
    "(workload.requests).",
)
_STEP: Final = 0.05
_MOST_SHARE: Final = 0.98
_T: Final = (12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131)
"""Student's t for 1, 2, … degrees of freedom (95 % two-sided). From 16 on, 2.12 is slightly conservative."""
_T_BEYOND: Final = 2.12


@dataclass(frozen=True, slots=True, kw_only=True)
class Effect:
    """The effect of one value of one key."""

    path: str
    now: Json
    value: Json
    figure: float | None = None
    """Mean over the seeds of the tightest bound's figure; None = it cannot be run."""
    change: float | None = None
    """Mean difference from the unchanged runs."""
    interval: float | None = None
    """Half of the 95 % interval of that mean; 0 if seeds make no difference."""
    holds: int = 0
    """Number of seeds with which all bounds hold."""
    growing: int = 0
    """Number of these with which ever more requests were in the system at the end, so that they may not in the long
    run."""
    why: str = ""
    """Why it cannot be run."""

    @property
    def counts(self) -> bool:
        """Whether the effect exceeds the noise of the seeds."""
        return self.change is not None and self.interval is not None and abs(self.change) > self.interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Sensitivity:
    """The effects of keys on the tightest bound, the best first."""

    metric: str
    bound: float
    upper: bool
    """Whether the bound is an upper one, so that less is better."""
    figure: float
    """Mean over the seeds, without changes."""
    holds: int
    growing: int
    """Number of these seeds with which ever more requests were in the system at the end."""
    seeds: tuple[int, ...]
    effects: tuple[Effect, ...]
    runs: int

    def gain(self, effect: Effect) -> float:
        """Return how much the effect improves the figure; negative if it gets worse."""
        change = effect.change or 0.0
        return -change if self.upper else change


def sensitivity(
    study: Study,
    runner: Runner,
    store: Store,
    on_run: Callable[[Row], None] = lambda _: None,
    warn: Callable[[str], None] | None = None,
) -> Sensitivity:
    """Measure the effect of small changes to a study's experiment.

    Args:
        study: a study without axes; its constraints are the bounds.
        runner: makes the runs.
        store: where results are looked up and kept.
        on_run: called with each row.
        warn: called for each problem that does not stop the work.

    Raises:
        InputError: there are fewer than two seeds, or the unchanged experiment cannot be run, or has no such figure.
        SimulationError: the runner cannot make runs any more.
    """
    if len(study.seeds) < 2:
        raise InputError("one seed says nothing about what seeds do", help="take two or more, such as --seeds 5")
    document = resolve_point(study, Point(0, ()), study.seeds[0]).document
    tried = tuple(_tried(document))
    values = [_assigned(document, path, value) for path, _, value in tried]
    with Driver(study, runner, store, on_run, warn) as driver:
        (rows,) = driver.answer([_search(study, values)])
    count = len(study.seeds)
    groups = [rows[at : at + count] for at in range(0, len(rows), count)]
    metric, bound, upper = _tightest(groups[0], study.constraints)
    base = [_figure(row, metric) for row in groups[0]]
    known = [row for row in base if row is not None]
    effects = [
        _effect(path, now, value, group, base, metric, study.constraints)
        for (path, now, value), group in zip(tried, groups[1:], strict=True)
    ]
    result = Sensitivity(
        metric=metric,
        bound=bound,
        upper=upper,
        figure=fsum(known) / len(known),
        holds=len(_holding(groups[0], study.constraints)),
        growing=len([row for row in _holding(groups[0], study.constraints) if still_grows(row)]),
        seeds=study.seeds,
        effects=(),
        runs=driver.runs or len(rows),
    )
    ordered = sorted(
        effects, key=lambda effect: (not effect.counts, effect.figure is None, -result.gain(effect), effect.path)
    )
    return replace(result, effects=tuple(ordered))


def _search(study: Study, values: Sequence[Mapping[str, object]]) -> Generator[list[Run], list[Row], list[Row]]:
    """Request all runs at once, those of the unchanged experiment first."""
    point = Point(0, ())
    rows = yield [Run(point=point, values=change, seed=seed) for change in ({}, *values) for seed in study.seeds]
    return rows


def _assigned(document: Document, path: str, value: Json) -> Mapping[str, object]:
    """Return what to assign for a value of a key: the instances of a half change those of the cluster."""
    if path not in OF_HALVES or not isinstance(value, int):
        return {path: value}
    now = document.whole(*path.split(".")) or 0
    return {path: value, _INSTANCES: (document.whole(*_INSTANCES.split(".")) or 0) + value - now}


def _tried(document: Document) -> list[tuple[str, Json, Json]]:
    """Return the tunable keys of an experiment: path, current value, value to try."""
    changes = []
    knobs: Mapping[str, str | tuple[Json, ...]] = KNOBS
    if document.get("policy", "batching", "chunked_prefill_size") is not None:
        knobs = {**{path: how for path, how in KNOBS.items() if path not in _NOT_BESIDE_CHUNKS}, **_CHUNKS}
    if pools := as_list(document.get("cluster", "pools")):  # the number of instances is their sum
        each: dict[str, str | tuple[Json, ...]] = {_instances_of(number): _ONE for number in range(len(pools))}
        knobs = {**each, **{path: how for path, how in knobs.items() if path != _INSTANCES}}
    elif document.get("cluster", "disaggregation") is not None:  # an instance more would belong to neither half
        knobs = {**dict.fromkeys(OF_HALVES, _ONE), **{path: how for path, how in knobs.items() if path != _INSTANCES}}
    for path, how in knobs.items():
        now = document.get(*(int(step) if step.isdecimal() else step for step in path.split(".")))
        if isinstance(now, dict):
            now = now.get("kind")
        elif now is None:
            now = _processes(document) if path == PROCESSES else _LEFT_OUT.get(path)
        changes += [(path, now, value) for value in _steps(now, how)]
    return changes


def _processes(document: Document) -> int | None:
    """Return the number of API server processes of a document that gives none; None = it has no front end."""
    there = document.get("engine", "front_end") is not None or document.get("latency", "kind") == "operators"
    return 1 if there else None


def _instances_of(pool: int) -> str:
    return f"cluster.pools.{pool}.instances"


def _steps(now: Json, how: str | tuple[Json, ...]) -> list[Json]:
    """Return the values next to the current one; none if its type does not allow it (`auto` depends on other keys)."""
    if isinstance(how, tuple):
        return [value for value in how if value != now] if now is not None else []
    if how == _SWITCH:
        return [not now] if isinstance(now, bool) else []
    if isinstance(now, bool) or not isinstance(now, int | float):
        return []
    if how == _SHARE:
        return [round(value, 3) for value in (now - _STEP, now + _STEP) if 0 < value <= _MOST_SHARE]
    number = int(now)
    values = (number - 1, number + 1) if how == _ONE else (number // 2, number * 2)
    return [value for value in values if value > 0 and value != number]


def _tightest(rows: Sequence[Row], bounds: tuple[Expectation, ...]) -> tuple[str, float, bool]:
    """Return the figure with the least margin, or exceeded most, by its mean over the seeds."""
    for row in rows:
        if row.status in ("invalid", "failed"):
            raise InputError(f"as it is, the experiment cannot be run: {row.why}")
    shares: dict[tuple[str, float], list[float]] = {}
    for row in rows:
        for margin in margins(row, bounds):
            shares.setdefault((margin.metric, margin.bound), []).append(margin.of_bound)
    if not shares:
        if all(expectation.max is None and expectation.min is None for expectation in bounds):
            raise InputError("there is no bound that a figure could come closer to", help="give one with <= or >=")
        raise InputError("no run has a figure that a bound is about")
    metric, bound = max(shares, key=lambda share: fsum(shares[share]) / len(shares[share]))
    upper = any(expectation.metric == metric and expectation.max == bound for expectation in bounds)
    return metric, bound, upper


def _effect(
    path: str,
    now: Json,
    value: Json,
    rows: Sequence[Row],
    base: Sequence[float | None],
    metric: str,
    bounds: tuple[Expectation, ...],
) -> Effect:
    troubled = next((row for row in rows if row.status in ("invalid", "failed")), None)
    pairs = [
        (before, after)
        for before, row in zip(base, rows, strict=True)
        if before is not None and (after := _figure(row, metric)) is not None
    ]
    if troubled is not None or len(pairs) < len(rows):
        why = "it has no such metric" if troubled is None else troubled.why
        return Effect(path=path, now=now, value=value, why=why)
    change, interval = mean_and_interval([after - before for before, after in pairs])
    holding = _holding(rows, bounds)
    return Effect(
        path=path,
        now=now,
        value=value,
        figure=fsum(after for _, after in pairs) / len(pairs),
        change=change,
        interval=interval,
        holds=len(holding),
        growing=len([row for row in holding if still_grows(row)]),
    )


def mean_and_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the mean of two or more values, and half of its 95 % interval."""
    count = len(values)
    mean = fsum(values) / count
    spread = sqrt(fsum((value - mean) ** 2 for value in values) / (count - 1))
    t = _T[count - 2] if count - 2 < len(_T) else _T_BEYOND
    return mean, t * spread / sqrt(count)


def _holding(rows: Sequence[Row], bounds: tuple[Expectation, ...]) -> list[Row]:
    return [row for row in rows if verdict_of(row, bounds).holds]


def _figure(row: Row, metric: str) -> float | None:
    value = row.figures.get(metric)
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def sensitivity_text(result: Sensitivity) -> str:
    """Return a summary: what helps, what harms, what does not exceed the noise, and what cannot be run."""
    count = len(result.seeds)
    sign = "<=" if result.upper else ">="
    head = (
        f"{result.metric} is {number_text(result.figure)} now ({sign} {result.bound:g};"
        f" {_GROWING if result.growing else ''}{result.holds} of {plural(count, 'seed')} pass)."
    )
    counting = [effect for effect in result.effects if effect.counts]
    rows = [("key", "now", "tried", "value", "change", "seeds ok")]
    for effect in counting:
        change = (
            f"{'+' if (effect.change or 0.0) > 0 else ''}{number_text(effect.change)} ± {number_text(effect.interval)}"
        )
        share = f" ({share_change_text((effect.change or 0.0) / result.figure, 0)})" if result.figure else ""
        holds = f"{_GROWING if effect.growing else ''}{effect.holds} of {count}"
        rows.append(
            (
                effect.path,
                _value(effect.now),
                _value(effect.value),
                number_text(effect.figure),
                f"{change}{share}",
                holds,
            )
        )
    lines = [head, ""]
    idle = [effect for effect in result.effects if effect.figure is not None and not effect.counts]
    lines += [*aligned(rows, (1, 2, 3))] if counting else ["No change has a clear effect on it."]
    if idle:
        lines += ["", f"No effect beyond the variation between {plural(count, 'seed')}:"]
        lines += [f"  {path}: {_value(now)} to {values}" for path, now, values in _by_path(idle)]
    lost = [effect for effect in result.effects if effect.figure is None]
    if lost:
        lines += ["", "Cannot be run:"]
        lines += [f"  {effect.path}: {_value(effect.value)}: {effect.why}" for effect in lost]
    lines += [
        "",
        "A seed passes if all bounds hold, nearly all requests are served, and no warning says `overload`.",
        f"{plural(result.runs, 'run')}; ± is half of a 95 % interval over the seeds; each seed has the same requests.",
    ]
    if result.growing or any(effect.growing for effect in counting):
        lines += _LONGER
    return "\n".join(lines) + "\n"


def _by_path(effects: Sequence[Effect]) -> list[tuple[str, Json, str]]:
    paths = dict.fromkeys(effect.path for effect in effects)
    return [
        (
            path,
            next(effect.now for effect in effects if effect.path == path),
            ", ".join(_value(effect.value) for effect in effects if effect.path == path),
        )
        for path in paths
    ]


def _value(value: Json) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return f"{value:,}" if isinstance(value, int) else str(value)
