"""The load of a run: the rate and the number of its requests."""

from __future__ import annotations

from math import ceil, inf
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.errors import InputError
from blis_tui.base.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.base.source import Json
    from blis_tui.study.study_rows import Row

_TAIL: Final = 20
"""Required requests above the highest bounded percentile; a p99 of fewer than 2,000 requests is too random."""
MOST: Final = 200_000
"""Maximum number of requests of a run."""
LATEST_S: Final = 2**62 / 1e6
"""Half of the longest time in a simulation, because the last of many requests may arrive later than expected."""
_USUAL: Final = 200
_OFTEN: Final = 1000.0
"""Factor for a rate that is certainly more than is served, or that leaves a cluster idle."""


@dataclass(frozen=True, slots=True)
class Load:
    """What to assign to a workload so that requests arrive at a rate.

    Attributes:
        own_rate_per_s: the workload's own rate; None = it is not a single number.
        path: the path of the rate; empty = the rate cannot be changed.
        why_not: the reason in that case.
        scaled: whether the assigned value is a multiple of the own rate.
        of: what arrives at that rate: ``requests``, or ``sessions``.
        counted: the path of their number, with which runs can be made longer; empty = the workload has none.
        least: the minimum number for the bounds.
        duration_s: minimum time during which requests arrive.
        horizon: whether the experiment has a horizon.
    """

    own_rate_per_s: float | None
    path: str
    why_not: str
    scaled: bool
    of: str
    counted: str
    least: int
    duration_s: float
    horizon: bool = False

    def require_rate(self) -> None:
        """Raise InputError if the rate of the workload cannot be changed."""
        if not self.path:
            raise InputError(f"the rate of this workload cannot be varied: {self.why_not}")

    def impossible(self, rate_per_s: float | None) -> tuple[str, str] | None:
        """Return why no run at a rate (None = the workload's own) can last as long as required, and what to do."""
        rate = self.own_rate_per_s if rate_per_s is None else rate_per_s
        if not self.counted or rate is None:
            return None
        many, least = rate * self.duration_s, self.least / rate if rate else inf
        if many > MOST:
            count = f"{many:,.0f}" if many < 1e12 else f"{many:g}"
            message = f"{self.duration_s:g} s at {rate:g} {self.of}/s are {count}, and a run has at most {MOST:,}"
            return message, f"let them arrive for at most {MOST / rate:.4g} s: --duration"
        if least > LATEST_S:
            message = f"at {rate:g}/s the last of {self.least:,} {self.of} comes after more than 146,000 years"
            return message, "plan for a higher rate"
        return None

    def at(self, rate_per_s: float | None) -> dict[str, object]:
        """Return the assignments for a rate; None = the workload's own."""
        said: dict[str, object] = {}
        rate = self.own_rate_per_s if rate_per_s is None else rate_per_s
        if rate_per_s is not None:
            self.require_rate()
            said[self.path] = rate_per_s / self.own_rate_per_s if self.scaled and self.own_rate_per_s else rate_per_s
        if self.counted and rate is not None:
            said[self.counted] = min(max(self.least, ceil(rate * self.duration_s)), MOST)
        return said

    @property
    def endless(self) -> bool:
        """Whether requests may go on to arrive for as long as a run needs them."""
        return bool(self.counted) and not self.horizon

    def for_ever(self, rate_per_s: float | None) -> dict[str, object]:
        """Return the assignments for a rate at which requests arrive for as long as a run needs them."""
        return {**self.at(rate_per_s), **({self.counted: MOST} if self.counted else {})}

    def all_at_once(self, instances: int) -> dict[str, object]:
        """Return the assignments for arrivals much faster than ``instances`` instances can serve."""
        count = max(self.least, min(_USUAL * instances, MOST))
        return self._times(_OFTEN, 10.0 * count, count)

    def one_by_one(self) -> dict[str, object]:
        """Return the assignments for arrivals so rare that each finds an idle cluster."""
        ends = {"horizon_us": "none"} if self.horizon and self.counted else {}
        return {**self._times(1 / _OFTEN, 0.0, self.least), **ends}

    def _times(self, factor: float, least_rate: float, count: int) -> dict[str, object]:
        self.require_rate()
        rate = factor if self.scaled else max(factor * (self.own_rate_per_s or 1.0), least_rate)
        return {self.path: rate, self.counted: count} if self.counted else {self.path: rate}


def capacity_of(flooded: Row, of: str) -> float | None:
    """Estimate the highest rate that a cluster serves from a run in which all requests arrived at once.

    The estimate is the largest ratio of ended requests to elapsed time. The mean over the whole run would be too low,
    because the last requests run in half-empty batches.

    Args:
        flooded: the run.
        of: what is counted: ``requests``; ``sessions``, whose requests come one after the other; ``arrivals`` of both.
    """
    figures = flooded.figures
    rates = [_number(figures, "throughput.requests_per_s")]
    completed = _number(figures, "requests.completed")
    if of != "requests":
        calls, started = _number(figures, "sessions.calls"), _number(figures, "sessions.started")
        total = max(_number(figures, "requests.total"), calls)
        rates[0] *= (started + total - calls) / total if calls else 0.0
    else:
        times = [(share, _number(figures, f"latency.e2e_ms.p{share}")) for share in (50, 90, 95)]
        rates += [10 * share * completed / time for share, time in times if time]
    return max(rates) or None


def _number(figures: Mapping[str, object], name: str) -> float:
    value = figures.get(name)
    return float(value) if isinstance(value, int | float) else 0.0


def load_of(
    document: Mapping[str, Json], *, metrics: tuple[str, ...], duration_s: float, offered: float | None
) -> Load:
    """Return the load of a resolved experiment.

    Args:
        document: the experiment.
        metrics: the bounded metrics; high percentiles need many requests.
        duration_s: minimum time during which requests arrive.
        offered: for a recorded workload, requests per second that arrived in a run.
    """
    workload = as_map(document.get("workload"))
    tail = max((-(-100 * _TAIL // (100 - _percentile(metric))) for metric in metrics), default=_USUAL)
    sessions = isinstance(workload.get("sessions"), int)
    count = workload.get("sessions" if sessions else "requests")
    counted = isinstance(count, int) and not workload.get("stages") and not workload.get("trace")
    path, why, own = _rate_of(workload)
    return Load(
        own_rate_per_s=offered if path.startswith("workload.trace") else own,
        path=path,
        why_not=why,
        scaled=path == "workload.trace.scale_rate",
        of=_counted(workload),
        counted=("workload.sessions" if sessions else "workload.requests") if counted else "",
        least=max(count if isinstance(count, int) else 0, 0 if sessions else tail),
        duration_s=duration_s,
        horizon=document.get("horizon_us") != "none",
    )


def _counted(workload: Mapping[str, Json]) -> str:
    """Return what a rate counts: ``requests``, ``sessions``, or ``arrivals`` if some clients begin sessions only.

    Users of a closed loop have no rate.
    """
    clients = [as_map(one) for one in as_list(workload.get("clients"))]
    rated = [one for one in clients if as_map(one.get("arrivals")).get("kind") != "closed-loop"] or clients
    talk = ["session" in one for one in rated]
    return "sessions" if talk and all(talk) else "arrivals" if any(talk) else "requests"


def _rate_of(workload: Mapping[str, Json]) -> tuple[str, str, float | None]:
    """Return the path of the rate, why there is none, and the rate itself."""
    trace = workload.get("trace")
    if isinstance(trace, dict):
        return ("workload.trace.rate_per_s" if "rate_per_s" in trace else "workload.trace.scale_rate"), "", None
    if workload.get("stages"):
        return "", "it has `stages`, each with a rate of its own", None
    rate = workload.get("rate_per_s")
    if isinstance(rate, int | float):
        return "workload.rate_per_s", "", float(rate)
    return "", "its clients are users of a closed loop, who send as fast as they are answered", None


def _percentile(metric: str) -> int:
    """Return the percentile of a metric; 90 for means and the like."""
    last = metric.rsplit(".", 1)[-1]
    return int(last[1:]) if last[:1] == "p" and last[1:].isdecimal() and int(last[1:]) < 100 else 90
