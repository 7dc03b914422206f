"""How a plan's configurations perform on a server that is slower than simulated, like some measured ones."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import SpecError
from blis_tui.results.expected_error import ObservedLoad, slower_server
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.study.document import experiment_of
from blis_tui.spec.study.study_records import Point
from blis_tui.workload.source import create_source

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blis_tui.model import Expectation as Bound
    from blis_tui.model import Experiment
    from blis_tui.spec.study.study_records import Study
    from blis_tui.study.study_rows import Row


_LOOKED_AT: Final = 1000
"""Number of prompts over which the mean is taken."""


_TTFT: Final = ("latency.ttft_ms.", "latency.scheduling_delay_ms.")


_E2E: Final = ("latency.e2e_ms.", "latency.ttfat_ms.", "slo.")


LATER: Final = "latency.ttft_ms."
"""Prefix of TTFT metrics."""


def mean_prompt(experiment: Experiment) -> float:
    """Return the mean length of the first prompts, before anything runs; for sessions, of their first calls."""
    source = create_source(experiment.workload, experiment.seed, experiment.plugins)
    requests = islice(iter(source.next_request, None), _LOOKED_AT)
    lengths = [request.input_tokens for request in requests if request is not None]
    return sum(lengths) / max(1, len(lengths))


@dataclass(frozen=True, slots=True)
class SlowServer:
    """A server that is slower than simulated."""

    times: float
    """Factor on its step times."""
    values: Mapping[str, object]
    """The assignments for that factor."""
    later: float = 1.0
    """Further factor on TTFT, on top of the effect of longer steps."""

    @property
    def matters(self) -> bool:
        """Whether it is slower at all."""
        return max(self.times, self.later) > 1.0

    def tightened(self, bounds: Iterable[Bound]) -> tuple[Bound, ...]:
        """Return bounds that a run with its step times meets if first tokens that are later still meet these."""
        return tuple(
            replace(bound, max=bound.max / self.later)
            if bound.metric.startswith(LATER) and bound.max is not None
            else bound
            for bound in bounds
        )

    def judged(self, row: Row, bounds: Iterable[Bound]) -> Row:
        """Return a run, which fails if TTFTs that are later by the factor violate a bound.

        The verdict on the long run is by bounds that are tightened.
        """
        if self.later == 1.0 or row.ok is not True or row.in_long_run:
            return row
        for bound in bounds:
            value = row.figures.get(bound.metric)
            if not bound.metric.startswith(LATER) or bound.max is None or not isinstance(value, int | float):
                continue
            if value * self.later > bound.max:
                why = f"with first tokens {self.later:.3g} times as late, {bound.metric} is {value * self.later:,.4g}"
                return replace(row, ok=False, why=why)
        return row


def metrics_bounded(bounds: Iterable[Bound]) -> tuple[str, ...]:
    """Return the means whose errors matter to the bounds."""
    names = [bound.metric for bound in bounds]
    metrics = [("ttft", any(name.startswith((*_TTFT, "slo.")) for name in names))]
    metrics.append(("e2e", any(name.startswith(_E2E) for name in names)))
    return ("itl", *(metric for metric, asked in metrics if asked))


def slower(study: Study, point: Point, confidence: float) -> SlowServer | str:
    """Return the slowdown that only ``1 - confidence`` of the measured servers exceed.

    Returns:
        The slowdown, or a text saying why it is not known.

    Raises:
        SpecError: the point is no valid experiment.
    """
    experiment = experiment_of(study, point, study.seeds[0])
    seen, metrics = ObservedLoad(mean_prompt(experiment)), metrics_bounded(study.constraints)
    steps = later = 1.0
    for pool in experiment.pools:
        known = slower_server(experiment, pool, seen, confidence, metrics)
        if isinstance(known, str):
            return known
        steps, later = max(steps, known.steps), max(later, known.first_tokens)
    own = experiment.document.get("latency")
    slow_server = SlowServer(steps, {"latency": {**(own if isinstance(own, dict) else {}), "steps": steps}}, later)
    more = parse_overrides(slow_server.values)
    try:
        pools = experiment_of(study, Point(point.number, (*point.overrides, *more)), study.seeds[0]).pools
    except SpecError as error:
        return error.diagnostics[0].message
    if any(pool.latency.settings.get("steps") != slow_server.times for pool in pools):
        return "pools have step times of their own"
    return slow_server
