"""Checks of the simulator itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.engine.request import RequestState
from blis_tui.metrics.lints.finding import Finding

if TYPE_CHECKING:
    from blis_tui.metrics.lints.finding import Seen

_DEFECT: Final = "This is a defect of the simulator: please report it with the experiment."


def littles_law(seen: Seen) -> Finding | str:
    """The mean number present, counted as requests come and go, must be arrival rate times mean stay."""
    if seen.flow.states[RequestState.TIMED_OUT]:
        return "it is not known when requests that timed out left"
    now = seen.cluster.now
    stays = seen.flow.present().total_us(now)
    if not now or not stays:
        return "no request has stayed in an instance for any time yet"
    present = seen.cluster.present_us()
    if 100 * abs(present - stays) <= stays:
        return ""
    mean, expected = present / now, stays / now
    return Finding(
        id="littles-law",
        severity="error",
        message=(
            f"On average {mean:,.2f} requests were in the instances, counted as they came and went,"
            f" but {expected:,.2f} by the requests' own times."
        ),
        figures={"mean_present": mean, "arrival_rate_times_mean_stay": expected, "residual": mean - expected},
        advice=f"Little's law does not hold. {_DEFECT}",
        keys=(),
    )
