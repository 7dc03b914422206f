"""Whether more requests arrive than are served, and at which stage of their way they pile up."""

from __future__ import annotations

from collections import defaultdict
from operator import add
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.base.classes import NamedTuple
from blis_tui.base.units import span_text
from blis_tui.engine.request import RequestState
from blis_tui.results.lints.finding import MIN_REQUESTS, Finding, load_keys, longer_keys
from blis_tui.results.sections.offered_load import Occupancy
from blis_tui.results.stationary import drift, mean, trend
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from blis_tui.results.lints.finding import LintContext
    from blis_tui.results.request_log import RequestNumbers

_SLICES: Final = 40
"""Slices of the arrivals in which queues are looked at."""
_HALF: Final = _SLICES // 2
_QUARTER: Final = _SLICES // 4
_GROWTH: Final = 0.5
"""Minimum growth of a queue from the second quarter of the arrivals to the last; in proportion to time it is 4/3."""
_FILLS: Final = 0.25
_SURE_FILLS: Final = 2.0
"""The same for the number of requests in the system, and its minimum growth in standard errors."""
_SURE: Final = 2.5
"""Minimum growth in standard errors."""
_LEAST: Final = 8
"""Minimum mean length of a queue that grows, per instance."""
_STANDING: Final = 16
"""A backlog stands if, per instance, it is never shorter than ``_LEAST`` plus this many times the dispersion of the
load. Under a share r of what can be served, a queue is on average r / (1 - r) / 2 times the dispersion long (Kingman
1961): 4.5 times if r = 0.9."""
_RUNS: Final = 2
"""Requests wait behind such a backlog at least this many times as long as they run."""
_LONG: Final = 128
_LONG_RUNS: Final = 4
"""A backlog of so many requests per instance, behind which they wait so many times as long as they run, stands
whatever the dispersion: a few long prompts among many short ones make it large."""
_DECODE_WAITS: Final = 25
"""Minimum percentage of the step time of decode instances during which some of their requests wait. Before that, there
are ever more of them only because batches fill."""
_ALONE: Final = 50
"""An instance is considered neglected by the router if it is busy less than this percentage of the busiest one's time.
"""

_MOSTLY: Final = 75
"""Minimum percentage of the waiting requests that are at one pool for it to be named."""
_HELD_BACK: Final = 1.05
"""Ratio of the requests that sessions were due to send and those that arrived from which it is mentioned."""
_FRONT_END: Final = "engine.front_end.processes"
_GATEWAY: Final = "policy.gateway.saturation"
_COUNTED: Final = frozenset((RequestState.CREATED, RequestState.WAITING, RequestState.RUNNING, RequestState.COMPLETED))

_Kind = Literal["gateway", "front end", "way", "queue", "transfer", "decode"]


class _Stage(NamedTuple):
    """A stage of requests' way at which they may pile up."""

    kind: _Kind
    pool: str = ""
    """The name of the pool whose it is; empty = there is only one, or it is none's."""

    @property
    def queue(self) -> str:
        """What piles up, as part of a sentence."""
        of = f" of pool {self.pool}" if self.pool else ""
        return {
            "gateway": "the queue of the gateway",
            "front end": f"the queue in front of the API server{of}",
            "way": "the number of requests on their way to an instance",
            "queue": f"the queue{of}",
            "transfer": "the number of requests whose KV blocks are in transfer",
            "decode": f"the number of requests on instances{of}",
        }[self.kind]


class _Moments(NamedTuple):
    """When requests came to a stage, and when those that have left it did; in no particular order."""

    came_us: list[int]
    left_us: list[int]

    def occupancy(self) -> Occupancy:
        """Return how many were there at a time."""
        return Occupancy(sorted(self.came_us), sorted(self.left_us))


class _Jam(NamedTuple):
    """A stage at which requests pile up."""

    stage: _Stage
    means: list[float]
    """Mean number of requests there in each slice of the arrivals."""
    grows: bool
    """Whether it keeps growing; otherwise it stands."""


def overload(seen: LintContext) -> Finding | str:
    """More requests arrive than are served: a queue keeps growing, or a backlog stands that is never worked off.

    It counts requests that have arrived and never run yet, wherever they wait: at the gateway, in front of the API
    server, in an instance's queue; under disaggregation also those in transfer and on decode instances. These grow if
    their mean number in the last quarter of the arrivals is at least 8 per instance and 1.5 times that of the second
    quarter, and their growth is 2.5 standard errors above none. A backlog stands if throughout the second half of the
    arrivals at least 8 requests per instance wait, plus 16 times the load's index of dispersion, twice as long as they
    run on average; or 128 per instance, four times as long. Either is rare where the load is at most 0.9 of what can be
    served. A load of 1.15 times what can be served is found once batches are full and 3,000 requests have arrived, or
    5,000 if they come in bursts or in sessions.
    """
    if "overload" not in seen.found:
        seen.found["overload"] = _overload(seen)
    return seen.found["overload"]


def _overload(seen: LintContext) -> Finding | str:
    span = seen.flow.arrivals()
    if seen.flow.total < MIN_REQUESTS or span is None:
        return "too few requests have arrived so far"
    first, last = span
    sessions = seen.cluster.sessions
    if sessions is not None and sessions.due_calls_per_s is not None:
        last = min(last, sessions.last_us)  # after the last session has started, only calls that are left arrive
    if last - first < _SLICES:
        return "all requests arrived at once"
    clients = seen.experiment.workload.clients
    if clients and all(client.arrivals.kind == CLOSED_LOOP for client in clients):
        return "every user waits for an answer before the next request"
    cuts = [first + (last - first) * at // _SLICES for at in range(_SLICES + 1)]
    jam = _before_running(seen, cuts) or _behind_prefill(seen, cuts)
    return "" if jam is None else _finding(seen, jam, last)


def unsettled(seen: LintContext) -> Finding | str:
    """The number of requests in the system still grew when arrivals ended, though no queue of them did.

    Batches fill up and steps become longer, until they are full and requests wait: a longer run has other latencies.
    Relative to arrivals, the mean number in their last quarter is at least 1.25 times that of the second quarter, and
    what it gained since the first quarter is two standard errors above none.
    """
    span = seen.flow.arrivals()
    if seen.flow.total < MIN_REQUESTS or span is None:
        return "too few requests have arrived so far"
    if not seen.done:
        return "the run has not ended yet"
    first, last = span
    if last - first < _SLICES:
        return "all requests arrived at once"
    there = seen.flow.in_system()
    quarters = [first + (last - first) * at // 4 for at in range(1, 5)]
    (before, _, after), (came, _, comes) = there.means(quarters), there.fluxes(quarters)
    if after * came.came <= (1 + _FILLS) * before * comes.came or after < _LEAST:
        return ""  # which spares looking at each slice
    cuts = [first + (last - first) * at // _SLICES for at in range(_SLICES + 1)]
    if drift(there.fluxes(cuts[_QUARTER:])).z <= _SURE_FILLS:
        return ""
    jammed = overload(seen)
    if isinstance(jammed, Finding):
        return "under overload there is no steady state"
    if jammed:
        return jammed
    second, fourth = (  # in batches of two, as `trend` has them
        mean([mean(slices[at : at + 2]) for at in range(0, _QUARTER, 2)])
        for slices in (there.means(cuts[_QUARTER : _HALF + 1]), there.means(cuts[-_QUARTER - 1 :]))
    )
    longer = longer_keys(seen)
    return Finding(
        id="unsettled",
        message=(
            f"The number of requests in the system was still growing at the last arrival: from an average of"
            f" {second:,.1f} in the second quarter of the arrivals to {fourth:,.1f} in the last. A longer"
            " run has longer latencies."
        ),
        figures={"second_quarter": second, "last_quarter": fourth},
        advice=f"Simulate longer ({longer[0]}); `blis-tui plan` goes on until it is known what lasts.",
        keys=longer,
    )


# ---- whether requests pile up ----


def _before_running(seen: LintContext, cuts: Sequence[int]) -> _Jam | None:
    """Return where requests that have never run pile up."""
    # Deferred requests wait on purpose, until the cluster is idle.
    waiting = seen.flow.waiting(since="arrived" if seen.experiment.policy.deferral == "none" else "queued")
    instances = len([pool for pool in seen.cluster.pools if pool.role != "decode"])
    if waiting.means((cuts[-1 - _QUARTER], cuts[-1]))[0] < _LEAST * instances:  # which rules out both
        return None
    grows = _grows(waiting, cuts, instances)
    if not grows and not _stands(seen, waiting, cuts, instances):
        return None
    return _fullest(_stages(seen), cuts, grows=grows)


def _fullest(stages: Mapping[_Stage, _Moments], cuts: Sequence[int], *, grows: bool) -> _Jam:
    """Return the kind of stage that holds most requests, and its pool if hardly any are at others of that kind."""
    since = 3 * _QUARTER if grows else _HALF
    by_stage = {stage: moments.occupancy().means(cuts) for stage, moments in stages.items()}
    kinds: dict[_Kind, list[float]] = {}
    for stage, means in by_stage.items():
        kinds[stage.kind] = [*map(add, kinds.get(stage.kind, [0.0] * _SLICES), means)]
    kind = max(kinds, key=lambda each: mean(kinds[each][since:]))
    whole = kinds[kind]
    for stage, means in by_stage.items():
        if stage.kind == kind and 100 * mean(means[since:]) >= _MOSTLY * mean(whole[since:]):
            return _Jam(stage, means, grows)
    return _Jam(_Stage(kind), whole, grows)


def _behind_prefill(seen: LintContext, cuts: Sequence[int]) -> _Jam | None:
    """Return where requests pile up whose prompts are computed: in transfer, or on the instances of a decode pool."""
    if seen.experiment.cluster.disaggregation is None:
        return None
    if trend(seen.flow.running().means(cuts)).growth <= _GROWTH / 2:  # spares looking at each request
        return None
    for stage, moments in _later_stages(seen).items():
        there = moments.occupancy()
        instances = len([pool for pool in seen.cluster.pools if stage.pool in {"", pool.name}])
        if _grows(there, cuts, instances) and (stage.kind == "transfer" or _waits(seen, stage.pool)):
            return _Jam(stage, there.means(cuts), grows=True)
    return None


def _grows(queue: Occupancy, cuts: Sequence[int], instances: int) -> bool:
    """Return whether a queue kept growing while requests arrived."""
    change = trend(queue.means(cuts))
    if change.growth <= _GROWTH or change.after < _LEAST * instances:
        return False
    return drift(queue.fluxes(cuts)[_QUARTER:]).z > _SURE


def _stands(seen: LintContext, waiting: Occupancy, cuts: Sequence[int], instances: int) -> bool:
    """Return whether requests wait behind a backlog that was not worked off in the second half of the arrivals."""
    now = seen.cluster.now
    wait_us, run_us = waiting.total_us(now) // seen.flow.total, seen.flow.mean_run_us(now)
    least = min(waiting.means(cuts)[_HALF:]) / instances
    if wait_us < _RUNS * run_us:
        return False
    if wait_us >= _LONG_RUNS * run_us and least >= _LONG:
        return True
    return least >= _LEAST + _STANDING * drift(waiting.fluxes(cuts)[_QUARTER:]).dispersion


def _waits(seen: LintContext, pool: str) -> bool:
    """Return whether requests often wait for a place in the batches of a pool, or for KV blocks."""
    waited_us = busy_us = 0
    for instance, of in zip(seen.cluster.instances, seen.cluster.pools, strict=True):
        if of.name == pool:
            waited_us += instance.tallies.seqs_wait_us + instance.tallies.kv_wait_us
            busy_us += instance.tallies.busy_us
    return 100 * waited_us > _DECODE_WAITS * busy_us


# ---- where they pile up ----


def _stages(seen: LintContext) -> dict[_Stage, _Moments]:
    """Return when requests came to each stage before their first step, and when they left it."""
    cluster = seen.cluster
    names, holds = [pool.name for pool in cluster.pools], cluster.gateway.holds
    several, deferred = len({*names}) > 1, seen.experiment.policy.deferral != "none"
    fronts = [instance.front_end is not None for instance in cluster.instances]
    noted: list[tuple[_Kind, str, int, int]] = []
    for row in _counted(seen):
        index = row.prefill_instance if row.prefill_instance >= 0 else row.instance
        pool = names[index] if several and index >= 0 else ""
        released_us = row.arrival_us if not holds else row.arrival_us + row.gateway_us if row.gateway_us >= 0 else -1
        if holds:
            noted.append(("gateway", "", row.arrival_us, released_us))
        if not deferred and index >= 0 and fronts[index]:
            noted.append(("front end", pool, released_us, row.queued_us))
        elif not deferred:
            noted.append(("way", "", released_us, row.queued_us))
        noted.append(("queue", pool, row.queued_us, row.scheduled_us))
    return _by_stage(noted)


def _later_stages(seen: LintContext) -> dict[_Stage, _Moments]:
    """Return when requests that two instances share came to each stage after prefill, and when they left it."""
    names = [pool.name for pool in seen.cluster.pools]
    noted: list[tuple[_Kind, str, int, int]] = []
    for row in _counted(seen):
        if row.transfer_start_us >= 0:
            arrived_us = row.transfer_start_us + row.transfer_us if row.transfer_us >= 0 else -1
            noted.append(("transfer", "", row.transfer_start_us, arrived_us))
            noted.append(("decode", names[row.instance], arrived_us, row.completed_us))
    return _by_stage(noted)


def _counted(seen: LintContext) -> Iterator[RequestNumbers]:
    """Iterate over the requests that wait, run or have completed."""
    return (row for row in seen.table.plain() if row.state in _COUNTED)


def _by_stage(noted: Iterable[tuple[_Kind, str, int, int]]) -> dict[_Stage, _Moments]:
    """Collect moments by stage, given kind, pool, and when a request came and left; negative = it has not."""
    stages: defaultdict[tuple[_Kind, str], tuple[list[int], list[int]]] = defaultdict(lambda: ([], []))
    for kind, pool, came_us, left_us in noted:
        if came_us >= 0:
            came, left = stages[kind, pool]
            came.append(came_us)
            if left_us >= 0:
                left.append(left_us)
    return {_Stage(*stage): _Moments(*moments) for stage, moments in stages.items()}


# ---- what is said about it ----


def _finding(seen: LintContext, jam: _Jam, last_us: int) -> Finding:
    steady = seen.flow.steady(last_us)
    arriving, completing = steady.offered_requests_per_s or 0.0, steady.requests_per_s or 0.0
    lighter = load_keys(seen.experiment)
    uneven = _left_alone(seen) if jam.stage.kind in {"front end", "queue"} else ""
    more = "More requests arrived than were served" if arriving > completing else "Requests wait longer and longer"
    if not jam.grows:
        more = "Requests wait behind a backlog that is never worked off"
    keys, remedy = (("policy.routing",), "Review policy.routing") if uneven else _remedy(seen, jam.stage)
    figures = {
        "offered_requests_per_s": arriving,
        "completed_requests_per_s": completing,
        "waiting_second_quarter": mean(jam.means[_QUARTER:_HALF]),
        "waiting_last_quarter": mean(jam.means[-_QUARTER:]),
        "waiting_least": min(jam.means[_HALF:]),
    }
    return Finding(
        id="overload",
        message=(
            f"{uneven or more}: in the second half of {_arrivals(seen)}, {arriving:,.1f} requests/s arrived and"
            f" {completing:,.1f} completed, and {_course(seen, jam, figures)}.{_due(seen, arriving)}"
        ),
        figures=figures,
        advice=(
            f"Latencies depend on how long the run is; a longer one ({longer_keys(seen)[0]}) distinguishes overload "
            f"from a burst. {remedy}, lower {' and '.join(lighter)}, or find out what keeps requests waiting."
        ),
        keys=(*keys, *lighter),
    )


def _course(seen: LintContext, jam: _Jam, figures: Mapping[str, float]) -> str:
    """Return how the queue changed."""
    if jam.grows:
        return (
            f"{jam.stage.queue} kept growing, from an average of {figures['waiting_second_quarter']:,.1f} requests in"
            f" the second quarter of {_arrivals(seen)} to {figures['waiting_last_quarter']:,.1f} in the last"
        )
    now = seen.cluster.now
    wait_us = seen.flow.waiting().total_us(now) // seen.flow.total
    return (
        f"{jam.stage.queue} never fell below {figures['waiting_least']:,.1f} requests: they waited for"
        f" {span_text(wait_us)} and ran for {span_text(seen.flow.mean_run_us(now))} on average"
    )


def _arrivals(seen: LintContext) -> str:
    """Return what lasts as long as queues are looked at."""
    sessions = seen.cluster.sessions
    return "the arrivals" if sessions is None or sessions.due_calls_per_s is None else "the session starts"


def _due(seen: LintContext, arriving: float) -> str:
    """Return what sessions would have sent by themselves, if much less came because their users wait for answers."""
    sessions = seen.cluster.sessions
    due = None if sessions is None else sessions.due_calls_per_s
    if due is None or due < _HELD_BACK * arriving:
        return ""
    return f" The sessions that began were due to send {due:,.1f} requests/s; they are waiting for answers."


def _remedy(seen: LintContext, stage: _Stage) -> tuple[tuple[str, ...], str]:
    """Return the keys that help at a stage, and what to do with them."""
    if stage.kind == "transfer":
        key = "cluster.disaggregation.transfer.bandwidth_gb_per_s"
        return (key,), f"Raise {key}"
    instances = _instances_key(seen, stage.pool)
    more = f"{'Add' if stage.kind in {'queue', 'decode', 'way'} else 'add'} instances ({instances})"
    if stage.kind == "gateway":
        return (instances, _GATEWAY), f"If instances are not busy, raise the limit of {_GATEWAY}; otherwise {more}"
    if stage.kind == "front end":
        return (_FRONT_END, instances), f"Run more API server processes ({_FRONT_END}), {more}"
    return (instances,), more


def _instances_key(seen: LintContext, pool: str) -> str:
    """Return the key of the number of a pool's instances; of pools that are listed, ``cluster.instances``."""
    role = next((other.role for other in seen.experiment.pools if other.name == pool), "any")
    cluster = seen.experiment.document.get("cluster")
    split = cluster.get("disaggregation") if isinstance(cluster, dict) else None
    key = f"{role}_instances"
    return f"cluster.disaggregation.{key}" if isinstance(split, dict) and key in split else "cluster.instances"


def _left_alone(seen: LintContext) -> str:
    """Return how the router, instead of the load, overloads some instances; empty if the load is the cause."""
    if seen.experiment.cluster.varies or seen.cluster.gateway.holds:  # the gateway holds the queue in that case
        return ""
    busiest = max(seen.cluster.instances, key=lambda instance: instance.tallies.busy_us)
    pool = next(group for group in seen.by_pool() if busiest in group.instances)
    others = [
        instance for instance in pool.instances if 100 * instance.tallies.busy_us < _ALONE * busiest.tallies.busy_us
    ]
    if not others:
        return ""
    many = f"{len(others):,} of {len(pool.instances):,} instances{pool.of}"
    busy = f"{many} were busy for less than half as long"
    return f"The router sends more to instance {busiest.index} than it can serve, while {busy}"
