"""How much of a workload a run gets: its rate, and for how long."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.errors import InputError
from blis_tui.spec.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.source import Json

_TAIL: Final = 20
"""Requests beyond the highest percentile that a bound is on: a p99 of fewer than 2,000 requests is luck."""
_MOST_REQUESTS: Final = 200_000
_USUAL: Final = 200


@dataclass(frozen=True, slots=True)
class Load:
    """What to assign to a workload so that requests arrive at a rate.

    Attributes:
        own_rate_per_s: the rate that the workload has by itself; None = it is not one number.
        path: what to assign the rate to; empty = its rate cannot be changed.
        why_not: why not, then.
        scaled: whether what is assigned is a multiple of the own rate.
        counted: whether the workload says how many requests there are, so that runs can be made longer.
        least_requests: the fewest that the bounds need.
        duration_s: for how long requests arrive, at least.
    """

    own_rate_per_s: float | None
    path: str
    why_not: str
    scaled: bool
    counted: bool
    least_requests: int
    duration_s: float

    def require_rate(self) -> None:
        """Raises InputError where the rate of the workload cannot be changed."""
        if not self.path:
            raise InputError(f"the rate of this workload cannot be varied: {self.why_not}")

    def at(self, rate_per_s: float | None) -> dict[str, object]:
        """What to assign for a rate; None = the workload's own."""
        said: dict[str, object] = {}
        rate = self.own_rate_per_s if rate_per_s is None else rate_per_s
        if rate_per_s is not None:
            self.require_rate()
            said[self.path] = rate_per_s / self.own_rate_per_s if self.scaled and self.own_rate_per_s else rate_per_s
        if self.counted and rate is not None:
            said["workload.requests"] = min(max(self.least_requests, ceil(rate * self.duration_s)), _MOST_REQUESTS)
        return said

    def all_at_once(self, instances: int) -> dict[str, object]:
        """What to assign so that requests come much faster than so many instances can serve them."""
        self.require_rate()
        own = self.own_rate_per_s or 1.0
        count = max(self.least_requests, min(_USUAL * instances, _MOST_REQUESTS))
        said: dict[str, object] = {self.path: 1000.0 if self.scaled else max(1000 * own, 10.0 * count)}
        return {**said, "workload.requests": count} if self.counted else said


def load_of(
    document: Mapping[str, Json], *, metrics: tuple[str, ...], duration_s: float, offered: float | None
) -> Load:
    """The load of a resolved experiment.

    Args:
        document: the experiment.
        metrics: what is bounded: high percentiles need many requests.
        duration_s: for how long requests arrive, at least.
        offered: requests per second that arrived in a run of it, for a recorded workload.
    """
    workload = as_map(document.get("workload"))
    tail = max((ceil(_TAIL / (1 - _quantile(metric))) for metric in metrics), default=_USUAL)
    requests = workload.get("requests")
    counted = isinstance(requests, int) and "stages" not in workload and not workload.get("trace")
    least = max(requests if isinstance(requests, int) else 0, tail)
    path, why, own = _rate_of(workload)
    return Load(
        own_rate_per_s=offered if path.startswith("workload.trace") else own,
        path=path,
        why_not=why,
        scaled=path == "workload.trace.scale_rate",
        counted=counted,
        least_requests=least,
        duration_s=duration_s,
    )


def _rate_of(workload: Mapping[str, Json]) -> tuple[str, str, float | None]:
    """Path of the rate, why there is none, and the rate itself."""
    trace = workload.get("trace")
    if isinstance(trace, dict):
        return ("workload.trace.rate_per_s" if "rate_per_s" in trace else "workload.trace.scale_rate"), "", None
    if workload.get("stages"):
        return "", "it has `stages`, each with a rate of its own", None
    rate = workload.get("rate_per_s")
    if isinstance(rate, int | float):
        return "workload.rate_per_s", "", float(rate)
    if any("concurrency" in as_map(client) or _is_closed(client) for client in as_list(workload.get("clients"))):
        return "", "its clients are users of a closed loop: they send as fast as they are answered", None
    return "", "its clients have rates of their own; give the workload a `rate_per_s` and the clients a `share`", None


def _is_closed(client: Json) -> bool:
    return as_map(as_map(client).get("arrivals")).get("kind") == "closed-loop"


def _quantile(metric: str) -> float:
    last = metric.rsplit(".", 1)[-1]
    return int(last[1:]) / 100 if last[:1] == "p" and last[1:].isdecimal() and int(last[1:]) < 100 else 0.9
