"""What requests show of bounds while a run goes on: samples of ratios, such as the share of requests beyond a bound.

``latency.ttft_ms.p95 <= 300`` is the same as "at most 5 % of the requests have more than 300 ms". A share has a
standard error by batch means, which a percentile has not, and late requests count before they have their first token.
"""

from __future__ import annotations

from math import copysign, inf, sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.units import number_text
from blis_tui.engine.request import RequestState
from blis_tui.model.latencies import LATENCIES, SAMPLED
from blis_tui.results.stationary import Batches, Ratio, Sample, exceeded_by, lasting, ratio
from blis_tui.study.bounds import PERCENTS, is_good, range_of, scope_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.request import Request
    from blis_tui.model import Expectation, SloTarget
    from blis_tui.results.request_log import RequestNumbers
    from blis_tui.runs.simulation import Simulation
    from blis_tui.study.bounds import Group, Scope

    Latency = Callable[[RequestNumbers], float | None]

MARGIN: Final = 0.85
"""A bound has room if it would hold at this share of it, too."""
_LEAST_ROOM: Final = 0.95
_SURE_OF_ROOM: Final = 4.0
"""Or at this share, and by so many standard errors of the percentile. With ten batches these follow Student's t with
nine degrees of freedom, of which 0.16 % are beyond four; of a load that lasts for a fifth to two batches, 1 %; if
latencies differ by a factor of five, so that percentiles of batches are skewed, 3 to 5 %. That is at the bound itself,
and the share of 95 % comes on top."""
_ALL_LASTS: Final = 3.0
"""What a load that lasts adds to the variance of a percentile, in full (see :func:`lasting`): nothing of what makes a
batch large, and so a step long, is forgotten at once. With a third of it, a TPOT p95 of 0.93 of its bound was believed
after 12 stays; after 20 more, 12 % of the requests were beyond the bound."""
FAR: Final = 0.5
"""A bound that would hold at this share of it is far from being broken. Waiting times have tails that are exponential
or lighter (Asmussen 2003, "Applied probability and queues", XIII.5): where 1 % exceed half of a bound, about 0.01 % do
the bound."""
MIN_SERVED_SHARE: Final = 0.99
"""Minimum share of requests that must be served, because latencies cover only those."""
_WORDS: Final = {latency.field: latency.short for latency in LATENCIES}


class BoundSamples:
    """What is known of one bound.

    Attributes:
        metric: the bounded metric; empty = what every bound needs.
        limit: the largest ratio that is allowed.
    """

    def __init__(self, metric: str, limit: float) -> None:
        self.metric = metric
        self.limit = limit

    def tick(self, now_us: int) -> None:
        """Note what is only known at regular moments."""

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """Add requests that have ended; ``groups`` are indexed by the rows' group numbers."""

    def sentence(self, estimate: Ratio) -> str:
        """Return an estimate and its limit as a sentence."""
        raise NotImplementedError

    def estimate(self, start_us: int, now_us: int, memory: float = 0.0) -> Ratio:
        """Return the ratio in a stretch.

        Args:
            start_us: begin of the stretch.
            now_us: its end.
            memory: how long a load lasts, relative to the stretch (see :func:`lasting`).
        """
        raise NotImplementedError

    def has_room(self, start_us: int, now_us: int, memory: float) -> bool:  # noqa: ARG002  (common signature)
        """Return whether a tighter bound would hold in a stretch; for ``memory`` see :meth:`estimate`."""
        return True

    def is_far(self, start_us: int, now_us: int) -> bool:  # noqa: ARG002  (common signature)
        """Return whether the bound is known to be far from broken in a stretch."""
        return False

    def beyond(self, estimate: Ratio) -> float:
        """Return by how many standard errors an estimate is beyond its limit."""
        beyond = estimate.value - self.limit
        if not estimate.weight or not beyond:
            return -inf
        return beyond / estimate.error if estimate.error else copysign(inf, beyond)


class Latencies(BoundSamples):
    """An upper bound of a percentile, or of the mean, of the requests' latencies.

    Args:
        metric: the metric.
        bound_ms: the bound.
        percent: the percentile; None = the mean.
        latency: returns a request's latency in microseconds; None = it has none.
        scope: the requests that count.
        cluster: the live cluster, whose late requests count before they end; None = their latencies do not grow as they
            wait.
    """

    def __init__(
        self, metric: str, bound_ms: float, percent: int | None, latency: Latency, scope: Scope, cluster: Cluster | None
    ) -> None:
        super().__init__(metric, bound_ms if percent is None else (100 - percent) / 100)
        self._bound_us = 1000 * bound_ms
        self._percent = percent
        self._latency = latency
        self._scope = scope
        self._cluster = cluster
        self._first_tokens = ".ttft_ms." in metric
        self._ended: list[tuple[int, float]] = []
        """When each request was known, and its latency."""

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """See :meth:`BoundSamples.ended`."""
        for row in rows:
            us = self._latency(row) if self._scope.holds(row.arrival_us, groups[row.group]) else None
            if us is not None:
                self._ended.append((row.first_token_us if self._first_tokens else row.completed_us, us))

    def estimate(self, start_us: int, now_us: int, memory: float = 0.0) -> Ratio:
        """See :meth:`BoundSamples.estimate`.

        A share that is far below its limit is based on few late requests, which come in bursts, so its own standard
        error is too small. The error is therefore at least that of independent requests, and that of the share above
        the latency that as many requests exceed as may exceed the bound, or above ``MARGIN`` of the bound if that is
        more: how often requests are far below the bound says nothing of it.

        That share, however, swings widely where latencies differ little: with a TPOT p95 of 23 ± 0.2 ms, it is 30 % in
        one batch and none in the next, and still none is above 25 ms. Such a percentile is ten of its own standard
        errors within the bound, so its share is as surely within its limit, and the error is as small as that makes it.
        """
        known = self._known(start_us, now_us, self._bound_us)
        if self._percent is None:
            return lasting(ratio([Sample(at, us / 1000, 1.0) for at, us in known], start_us, now_us), memory)
        batches = Batches(known, start_us, now_us)
        share = batches.share_above(self._bound_us)
        if not known or not self.limit:
            return lasting(share, memory)
        independent = sqrt(self.limit * (1 - self.limit) / share.weight)
        least = lasting(share._replace(error=max(share.error, independent)), memory).error
        allowed = exceeded_by(batches.values, self.limit)
        error = lasting(batches.share_above(max(allowed, MARGIN * self._bound_us)), memory).error
        percentile = self._percentile_of(batches, memory)
        if percentile.value < self._bound_us and share.value < self.limit:
            of_bound = (self.limit - share.value) / (self._bound_us - percentile.value)
            error = min(error, of_bound * percentile.error)
        return share._replace(error=max(least, error))

    def has_room(self, start_us: int, now_us: int, memory: float) -> bool:
        """See :meth:`BoundSamples.has_room`."""
        if self._percent is None:
            return self.estimate(start_us, now_us).value <= MARGIN * self.limit
        if self._holds_at(MARGIN, start_us, now_us):
            return True
        known = self._known(start_us, now_us, self._bound_us)
        percentile = self._percentile_of(Batches(known, start_us, now_us), memory)
        most_us = percentile.value + _SURE_OF_ROOM * percentile.error
        return percentile.value <= _LEAST_ROOM * self._bound_us and most_us <= self._bound_us

    def _percentile_of(self, batches: Batches, memory: float) -> Ratio:
        """Return the bounded percentile, with a standard error for a load all of which lasts."""
        return lasting(batches.percentile(self.limit), _ALL_LASTS * memory)

    def is_far(self, start_us: int, now_us: int) -> bool:
        """See :meth:`BoundSamples.is_far`."""
        return self._percent is not None and self._holds_at(FAR, start_us, now_us)

    def _holds_at(self, factor: float, start_us: int, now_us: int) -> bool:
        """Return whether this share of the bound would hold in a stretch."""
        bound_us = factor * self._bound_us
        known = self._known(start_us, now_us, bound_us)
        above = len([1 for _, us in known if us > bound_us])
        return not known or above / len(known) <= self.limit

    def _known(self, start_us: int, now_us: int, bound_us: float) -> list[tuple[int, float]]:
        """Return when latencies became known in a stretch, and the latencies.

        First tokens count when they come, and requests that have waited for longer than the bound do so already.
        """
        known = [sample for sample in self._ended if start_us < sample[0] <= now_us]
        for request in () if self._cluster is None or self._percent is None else _present(self._cluster):
            if not self._scope.holds(request.arrival_us, (request.slo_class, request.tenant)):
                continue
            if self._first_tokens and request.first_token_us >= 0:
                sample = (request.first_token_us, float(request.first_token_us - request.arrival_us))
            else:
                sample = (int(request.arrival_us + bound_us), inf)
            if start_us < sample[0] <= now_us:
                known.append(sample)
        return known

    def sentence(self, estimate: Ratio) -> str:
        """See :meth:`BoundSamples.sentence`."""
        bound = f"{self._bound_us / 1000:g} ms"
        if self._percent is None:
            return _mean_sentence(self.metric, estimate, bound)
        what = _name(self.metric)
        what = f"{'an' if what[0] in 'AEIO' else 'a'} {what}"
        return f"{_share(estimate)} of the requests have {what} above {bound}, {_percent(self.limit)} may"


class Gaps(BoundSamples):
    """An upper bound of a percentile, or of the mean, of the gaps between tokens.

    Args:
        metric: the metric.
        bound_ms: the bound.
        percent: the percentile; None = the mean.
        cluster: the live cluster.
    """

    def __init__(self, metric: str, bound_ms: float, percent: int | None, cluster: Cluster) -> None:
        super().__init__(metric, bound_ms if percent is None else (100 - percent) / 100)
        self._bound_us = 1000 * bound_ms
        self._percent = percent
        self._cluster = cluster
        self._samples: list[Sample] = []
        self._tighter: list[Sample] = []
        self._before = (0.0, 0.0, 0.0)

    def estimate(self, start_us: int, now_us: int, memory: float = 0.0) -> Ratio:
        """See :meth:`BoundSamples.estimate`."""
        return lasting(ratio(self._samples, start_us, now_us), memory)

    def has_room(self, start_us: int, now_us: int, memory: float) -> bool:  # noqa: ARG002  (common signature)
        """See :meth:`BoundSamples.has_room`."""
        share = ratio(self._tighter, start_us, now_us).value
        return share <= (MARGIN * self.limit if self._percent is None else self.limit)

    def tick(self, now_us: int) -> None:
        """See :meth:`BoundSamples.tick`."""
        above = tighter = count = 0.0
        for instance in self._cluster.instances:
            overhead_us = instance.latency.output_token_overhead_us
            for gap, many in instance.tallies.itl_us.items():
                us = gap + overhead_us
                count += many
                if self._percent is None:
                    above += many * us / 1000
                else:
                    above += many if us > self._bound_us else 0
                    tighter += many if us > MARGIN * self._bound_us else 0
        if self._percent is None:
            tighter = above
        now = (above, tighter, count)
        above, tighter, count = (new - old for new, old in zip(now, self._before, strict=True))
        self._samples.append(Sample(now_us, above, count))
        self._tighter.append(Sample(now_us, tighter, count))
        self._before = now

    def sentence(self, estimate: Ratio) -> str:
        """See :meth:`BoundSamples.sentence`."""
        bound = f"{self._bound_us / 1000:g} ms"
        if self._percent is None:
            return _mean_sentence(self.metric, estimate, bound)
        return f"{_share(estimate)} of the gaps between tokens are above {bound}, {_percent(self.limit)} may be"


class Missed(BoundSamples):
    """A lower bound of the share of requests for which something holds, as an upper bound of the share of the others.

    Args:
        metric: the metric; empty = the share of served requests.
        least: the smallest share.
        missed: returns whether a request missed it; None = it does not count.
        what: what the others miss, in words.
    """

    def __init__(
        self, metric: str, least: float, missed: Callable[[RequestNumbers, Group], bool | None], what: str
    ) -> None:
        super().__init__(metric, 1 - least)
        self._missed = missed
        self._what = what
        self._samples: list[Sample] = []

    def estimate(self, start_us: int, now_us: int, memory: float = 0.0) -> Ratio:
        """See :meth:`BoundSamples.estimate`. That all are served is certain, that all meet their targets is chance."""
        share = ratio(self._samples, start_us, now_us)
        if self.metric and share.weight:
            share = share._replace(error=max(share.error, sqrt(self.limit * (1 - self.limit) / share.weight)))
        return lasting(share, memory)

    def ended(self, rows: Sequence[RequestNumbers], groups: Sequence[Group]) -> None:
        """See :meth:`BoundSamples.ended`."""
        for row in rows:
            missed = self._missed(row, groups[row.group])
            if missed is not None:
                self._samples.append(Sample(max(row.arrival_us, row.completed_us), float(missed), 1.0))

    def sentence(self, estimate: Ratio) -> str:
        """See :meth:`BoundSamples.sentence`."""
        return f"{_share(estimate)} of the requests {self._what}, {_percent(self.limit)} may"


def samples_of(simulation: Simulation, bounds: Sequence[Expectation]) -> list[BoundSamples]:
    """Return what to follow: every bound that requests show something of, and that nearly all are served."""
    samples: list[BoundSamples] = []
    for bound in bounds:
        wanted = range_of(bound)
        samples += _upper(simulation, wanted.metric, wanted.high) if wanted.high is not None else ()
        samples += _lower(simulation, wanted.metric, wanted.low) if wanted.low is not None else ()
    return [*samples, Missed("", MIN_SERVED_SHARE, _unserved, "are not served")]


def _upper(simulation: Simulation, metric: str, bound: float) -> Iterator[BoundSamples]:
    """Yield the samples of an upper bound, if it is one of a latency."""
    names = metric.split(".")
    percent = PERCENTS.get(names[-1])
    if len(names) < 3 or not (percent or names[-1] == "mean"):
        return
    if names[:2] == ["latency", "itl_ms"]:
        yield Gaps(metric, bound, percent, simulation.cluster)
    elif names[0] in ("latency", "slo_classes", "tenants") and names[-2] in SAMPLED:
        cluster = simulation.cluster if names[-2] in ("ttft_ms", "e2e_ms") else None
        yield Latencies(metric, bound, percent, SAMPLED[names[-2]].of, scope_of(names), cluster)


def _lower(simulation: Simulation, metric: str, bound: float) -> Iterator[BoundSamples]:
    """Yield the samples of a lower bound, if it is one of an attainment."""
    targets: Mapping[str, SloTarget] = dict(simulation.experiment.slo_targets)
    match metric.split("."):
        case ["slo", "attainment"]:
            pass
        case ["slo", "classes", name, "attainment"]:
            targets = {key: target for key, target in targets.items() if key == name}
        case _:
            return
    if not any(slo_target.ttfat_ms is not None for slo_target in targets.values()):

        def missed(row: RequestNumbers, group: Group) -> bool | None:
            target = targets.get(group[0] or "standard")
            return None if target is None or row.state == RequestState.REJECTED else not is_good(row, target)

        yield Missed(metric, bound, missed, "miss their targets")


def _unserved(row: RequestNumbers, group: Group) -> bool:  # noqa: ARG001  (the protocol's signature)
    return row.state != RequestState.COMPLETED


def _present(cluster: Cluster) -> Iterator[Request]:
    """Yield the clients' requests that have arrived and not ended."""
    for instance in cluster.instances:
        yield from instance.batch.of_clients(instance.batch.running.values())
        yield from instance.batch.of_clients(instance.waiting.ordered())
    yield from cluster.in_transit()


def _name(metric: str) -> str:
    latency = metric.split(".")[-2]
    return _WORDS.get(latency, latency.removesuffix("_ms").replace("_", " "))


def _percent(share: float) -> str:
    return f"{round(100 * share, 6):g} %"


def _share(estimate: Ratio) -> str:
    """Return a share with its standard error, such as ``3.12 ± 0.4 %``."""
    digits = 1 if estimate.error >= 0.01 else 2
    error = "" if estimate.error in (0.0, inf) else f" ± {100 * estimate.error:.{digits}f}"
    return f"{100 * estimate.value:.{digits}f}{error} %"


def _mean_sentence(metric: str, estimate: Ratio, bound: str) -> str:
    within = "" if estimate.error in (0.0, inf) else f" ± {number_text(estimate.error)}"
    return f"{metric} is {number_text(estimate.value)}{within} ms, at most {bound} is allowed"
