"""What a plan's configurations would do on a server with slower steps, as some of the measured ones were."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.errors import SpecError
from blis_tui.metrics.expected_error import slower_steps
from blis_tui.spec.overrides import parse_overrides
from blis_tui.spec.study.document import experiment_of
from blis_tui.spec.study.model import Point

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.study.model import Study


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
    known = [slower_steps(experiment, pool, confidence) for pool in experiment.pools]
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
