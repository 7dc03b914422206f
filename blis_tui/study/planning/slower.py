"""What a plan's configurations would do on a server with slower steps, as some of the measured ones were."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.errors import SpecError
from blis_tui.metrics.expected_error import slower_steps
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.study.document import experiment_of
from blis_tui.spec.study.model import Point
from blis_tui.workload.factory import create_source

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model import Experiment
    from blis_tui.spec.study.model import Study


_LOOKED_AT: Final = 1000
"""Prompts of which the mean is taken."""


def mean_prompt(experiment: Experiment) -> float:
    """How long its first prompts are in the mean, before anything runs; of sessions, those of the first calls."""
    source = create_source(experiment.workload, experiment.seed, experiment.plugins)
    requests = islice(iter(source.next_request, None), _LOOKED_AT)
    lengths = [request.input_tokens for request in requests if request is not None]
    return sum(lengths) / max(1, len(lengths))


@dataclass(frozen=True, slots=True)
class Slower:
    """Steps that take longer."""

    times: float
    """How many times as long."""
    values: Mapping[str, object]
    """What to assign for that."""


def slower(study: Study, point: Point, confidence: float) -> Slower | str:
    """What makes the steps of a configuration as slow as ``1 - confidence`` of the measured servers exceeded.

    Returns:
        A text where that is not known: why.

    Raises:
        SpecError: the point is no experiment.
    """
    experiment = experiment_of(study, point, study.seeds[0])
    prompt = mean_prompt(experiment)
    known = [slower_steps(experiment, pool, prompt, confidence) for pool in experiment.pools]
    times = [one for one in known if not isinstance(one, str)]
    if len(times) < len(known):
        return next(one for one in known if isinstance(one, str))
    own = experiment.document.get("latency")
    found = Slower(max(times), {"latency": {**(own if isinstance(own, dict) else {}), "steps": max(times)}})
    more = parse_overrides(found.values)
    try:
        pools = experiment_of(study, Point(point.number, (*point.overrides, *more)), study.seeds[0]).pools
    except SpecError as error:
        return error.diagnostics[0].message
    if any(pool.latency.settings.get("steps") != found.times for pool in pools):
        return "pools have step times of their own"
    return found
