"""Invariants: what each says, as one table, and the checks of those that hold after every event.

A check returns what is wrong, or an empty string. Checks take time in proportion to the size of the simulation's
state, so a run verifies them once at its end, unless told to do so after every event.

Invariants under disaggregation in addition to the general ones: INV-PD-1 to INV-PD-6.

The identifiers are those of the BLIS simulator. BLIS checks finished runs; these checks apply to every state.
"""

from __future__ import annotations

import io
import pickle
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Generic, Protocol, TypeVar

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.cluster.instance_registry import shared_stores
from blis_tui.engine.instance import Instance
from blis_tui.engine.options.handover import awaits_blocks
from blis_tui.engine.request import Request, RequestState, handover_of
from blis_tui.workload.source import awaits_answers

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from blis_tui.cluster.cluster import Cluster
    from blis_tui.engine.counts import Ledger
    from blis_tui.engine.request import Handover


class Auditable(Protocol):
    """The state that a check may read."""

    clock_went_back: int

    @property
    def now(self) -> int:
        """Time of the latest event."""

    @property
    def arrived(self) -> int:
        """Requests that have arrived."""

    @property
    def rejected(self) -> int:
        """Number of arrived requests that were rejected."""

    @property
    def instances(self) -> Sequence[Instance]:
        """All instances."""

    @property
    def ledger(self) -> Ledger:
        """The books of ended requests."""

    def policies(self) -> Sequence[object]:
        """The admission and routing policies."""

    def in_transit(self) -> list[Request]:
        """Requests on their way to a queue."""

    def closed(self) -> int:
        """Requests in a terminal state, rejected ones included."""

    def counts(self) -> Sequence[tuple[str, int, int]]:
        """Kept counts, each as its description, the kept value, and the value found by recounting."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What an invariant says."""

    identifier: str
    """BLIS's, such as ``INV-4``."""
    name: str
    sentence: str


STATEMENTS: Final = MappingProxyType(
    {
        invariant.identifier: invariant
        for invariant in (
            Statement(
                "INV-1", "request conservation", "every request that arrived is in exactly one place or has ended"
            ),
            Statement("INV-2", "request life cycle", "a request's state agrees with where it is kept"),
            Statement("INV-3", "clock monotonicity", "the clock never goes back"),
            Statement(
                "INV-4",
                "KV cache conservation",
                "used and free KV blocks add up, on the host and in tiers, too, and every reference is counted",
            ),
            Statement("INV-5", "causality", "arrival <= queued <= scheduled <= first token <= completion"),
            Statement("INV-6", "determinism", "same experiment and seed, same bytes"),
            Statement(
                "INV-7",
                "signal freshness",
                "the control plane sees each instance as it was when its figures were last renewed, never older than"
                " `refresh_interval_us`",
            ),
            Statement(
                "INV-8",
                "work conservation",
                "an instance with work has a step pending, unless it can only wait for KV blocks on their way to it"
                " or between it and the host, or for a LoRA adapter",
            ),
            Statement("INV-9", "oracle boundary", "admission and routing keep nothing that knows output lengths"),
            Statement(
                "INV-10",
                "session causality",
                "a call of a session is sent no earlier than the answers that it waits for, and its think time after"
                " them",
            ),
            Statement(
                "INV-11",
                "session completeness",
                "every session that began is unfinished, with a call that is sent or will be, or has ended in"
                " exactly one way",
            ),
            Statement("INV-PD-1", "transfer before decode", "no request is decoded before its KV blocks have arrived"),
            Statement("INV-PD-2", "pool exclusivity", "each half of a request runs on an instance of that role"),
            Statement("INV-PD-3", "transfer conservation", "transfers started = arrived + broken off + under way"),
            Statement(
                "INV-PD-4", "phase causality", "arrival <= queued <= prefilled <= transfer start <= transfer end <= now"
            ),
            Statement(
                "INV-PD-5", "pool stability", "instances stay in their pools, and only their roles are asked of them"
            ),
            Statement("INV-PD-6", "request unity", "a request is one, however many instances it runs on"),
        )
    }
)
"""Every invariant by its identifier. INV-6 and INV-10 are about whole runs: tests verify them, runs do not."""


_State = TypeVar("_State")


@dataclass(frozen=True, slots=True)
class Invariant(Generic[_State]):
    """One statement about every reachable state."""

    identifier: str
    check: Callable[[_State], str]

    def verdict(self, state: _State) -> str:
        """Return its name and what is wrong; empty = it holds."""
        wrong = self.check(state)
        return f"{STATEMENTS[self.identifier].name}: {wrong}" if wrong else ""


def _conservation(state: Auditable) -> str:
    live = len(state.in_transit()) + whole_sum([instance.batch.live for instance in state.instances])
    if live + state.closed() != state.arrived:
        return f"{state.arrived} arrived, but {live} are alive and {state.closed()} have ended"
    for what, kept, actual in state.counts():
        if kept != actual:
            return f"{what}: {kept} are counted, there are {actual}"
    return ""


def _lifecycle(state: Auditable) -> str:
    for request in state.in_transit():
        if request.state is not RequestState.CREATED:
            return f"request {request.request_id} is on its way to a queue, but {request.state.name.lower()}"
    for instance in state.instances:
        for request in instance.waiting.ordered():
            if request.state is not RequestState.WAITING:
                return f"request {request.request_id} is in a queue, but is {request.state.name.lower()}"
            if request.held_blocks and request.index not in instance.batch.reserved:
                return f"request {request.request_id} is waiting, but holds {request.held_blocks} KV blocks"
        for slot, request in instance.batch.running.items():
            if request.state is not RequestState.RUNNING or request.batch_slot != slot:
                return f"request {request.request_id} is in the batch, but {request.state.name.lower()}"
            places = (slot in instance.batch.prefills) + (slot in instance.batch.stalled) + (request.joined_clock >= 0)
            if places != 1:
                return f"request {request.request_id} is in {places} of prefill, cohort and stalled; it must be in one"
    return ""


def _clock(state: Auditable) -> str:
    return f"the clock went back {state.clock_went_back} times" if state.clock_went_back else ""


def _kv_conservation(state: Auditable) -> str:
    for instance in state.instances:
        held_blocks = instance.batch.cohort.held_blocks
        batch = instance.batch
        wrong = instance.pool.audit([(request, held_blocks(request)) for request in batch.holders()])
        if not wrong and batch.host is not None:
            wrong = batch.host.audit([request.index for request in batch.waiting.ordered()])
        if not wrong and instance.pool.tiers is not None:
            wrong = instance.pool.tiers.audit()
        if not wrong and batch.adapters is not None:
            wrong = batch.adapters.audit(list(batch.running.values()))
        if not wrong and batch.encoder is not None:
            wrong = batch.encoder.audit()
        if wrong:
            return f"instance {instance.index}: {wrong}"
    audits = [store.audit(stored) for store, stored in shared_stores(state.instances).items()]
    return next((wrong for wrong in audits if wrong), "")


def _causality(state: Auditable) -> str:
    if state.ledger.contradictions:
        return state.ledger.contradictions[0]
    for instance in state.instances:
        for request in instance.batch.running.values():
            times = [request.arrival_us, request.queued_us, request.scheduled_us]
            if request.first_token_us >= 0:
                times.append(request.first_token_us)
            if times != sorted(times):
                return f"request {request.request_id}: arrival, queued, scheduled, first token are {times}"
    return ""


def _work_conservation(state: Auditable) -> str:
    for instance in state.instances:
        batch = instance.batch
        waits = awaits_blocks(batch) or batch.awaits_adapter() or batch.awaits_transfers()
        if instance.loop.has_work and not instance.loop.step_pending and not waits:
            return f"instance {instance.index} has work and no step is pending"
    return ""


_SHOWN: Final = "blis_tui.cluster.signals"
"""Module of the fleet and context that policies are shown; objects from it reveal no output lengths."""


class _ReferenceCollector(pickle.Pickler):
    """Traverses everything an object holds and notes engine objects in it."""

    def __init__(self) -> None:
        super().__init__(io.BytesIO(), protocol=5)
        self.found = ""

    def reducer_override(self, item: object) -> tuple[type[str], tuple[str]]:
        """Inspect an object; pickle calls this for every object that is not a plain value."""
        if isinstance(item, Request | Instance):
            self.found = item.request_id if isinstance(item, Request) else f"instance {item.index}"
            return str, ("",)
        if type(item).__module__ == _SHOWN:
            return str, ("",)
        return NotImplemented  # type: ignore[no-any-return]  # tells pickle to proceed as usual


def _oracle_boundary(state: Auditable) -> str:
    # Policies get frozen values that do not tell the future; it remains to check that they keep nothing else.
    for policy in state.policies():
        finder = _ReferenceCollector()
        try:
            finder.dump(policy)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            return f"{type(policy).__name__} keeps what no checkpoint can hold: {error}"
        if finder.found:
            return f"{type(policy).__name__} keeps {finder.found}, which knows output lengths"
    return ""


INVARIANTS: Final = (
    Invariant("INV-1", _conservation),
    Invariant("INV-2", _lifecycle),
    Invariant("INV-3", _clock),
    Invariant("INV-4", _kv_conservation),
    Invariant("INV-5", _causality),
    Invariant("INV-8", _work_conservation),
    Invariant("INV-9", _oracle_boundary),
)
"""The statements that must hold after every event."""


# Invariants of the control plane and of clients: INV-7 and INV-11 of the BLIS simulator.
#
# ``tests/determinism`` and the goldens check INV-6, the oracle's sessions and ``tests/workload`` check INV-10.


def _board_is_current(cluster: Cluster) -> str:
    return cluster.registry.board.audit(cluster.now) if cluster.registry.watched else ""


def _all_accounted_for(cluster: Cluster) -> str:
    source = cluster.source
    return source.audit() if awaits_answers(source) else ""


CONTROL_INVARIANTS: Final = (
    Invariant("INV-7", _board_is_current),
    Invariant("INV-11", _all_accounted_for),
)
"""The statements that must hold after every event."""


_PREFILL: Final = frozenset({"any", "prefill"})
_DECODE: Final = frozenset({"any", "decode"})


def _on_instances(cluster: Cluster) -> Iterator[tuple[int, Request, Handover]]:
    """Iterate over split requests in queues and batches."""
    for instance in cluster.instances:
        for request in (*instance.waiting.ordered(), *instance.batch.running.values()):
            if request.handover is not None:
                yield instance.index, request, request.handover


def _completeness(cluster: Cluster) -> str:
    for _, request, way in _on_instances(cluster):
        if way.prefilled and way.transfer_us < 0:
            return f"request {request.request_id} is decoded before its KV blocks have arrived"
    return ""


def _exclusivity(cluster: Cluster) -> str:
    for index, request, way in _on_instances(cluster):
        what, roles = ("decoded", _DECODE) if way.prefilled else ("prefilled", _PREFILL)
        role = cluster.pools[index].role
        if role not in roles:
            return f"request {request.request_id} is {what} on instance {index}, whose role is {role}"
    return ""


def _transfer_conservation(cluster: Cluster) -> str:
    dispatcher = cluster.dispatcher
    link, under_way = dispatcher.link, 0
    for routed in dispatcher.split_requests.values():
        way = handover_of(routed.request)
        under_way += way.transfer_start_us >= 0 and way.transfer_us < 0
    if under_way != link.active:
        return f"{link.active} transfers are counted as under way, {under_way} are"
    if link.started != dispatcher.arrived + dispatcher.broken_off + under_way:
        return (
            f"{link.started} transfers were started, but {dispatcher.arrived} have arrived, {dispatcher.broken_off} "
            f"were broken off and {under_way} are under way"
        )
    return ""


def _phases(cluster: Cluster) -> str:
    if not cluster.dispatcher.splits:
        return ""
    for request in cluster.dispatcher.transferring():
        if wrong := _timing_violation(request, request.first_token_us, cluster.now):
            return wrong
    for _, request, way in _on_instances(cluster):
        # After a preemption, a request that has arrived may have got another first token.
        if way.prefilled and (wrong := _timing_violation(request, request.queued_us, cluster.now)):
            return wrong
    return ""


def _timing_violation(request: Request, prefilled_us: int, now: int) -> str:
    """Return what is wrong with the times of a request whose prompt is computed."""
    way = handover_of(request)
    times = [request.arrival_us, request.queued_us, prefilled_us]
    early = 0 <= way.transfer_start_us < prefilled_us
    # A transfer that starts with the step completing the prefill may end before that step.
    times = times[:2] if early else times
    if way.transfer_start_us >= 0:
        times.append(way.transfer_start_us)
        if way.transfer_us >= 0:
            times.append(way.transfer_start_us + way.transfer_us)
        times.append(now)
    return f"request {request.request_id}: its phases are at {times}" if times != sorted(times) else ""


def _stability(cluster: Cluster) -> str:
    for index, (pool, instance) in enumerate(zip(cluster.pools, cluster.instances, strict=True)):
        if instance.index != index or instance.pool.total != pool.engine.kv_blocks:
            return f"instance {index} is no longer one of pool {pool.name}"
    for fleet, roles in cluster.registry.fleets:
        for index in fleet.members:
            role = cluster.pools[index].role
            if role not in roles:
                return f"instance {index}, whose role is {role}, may be chosen as one of {', '.join(sorted(roles))}"
    return ""


def _granularity(cluster: Cluster) -> str:
    if not cluster.dispatcher.splits:
        return ""
    there = [request for _, request, _ in _on_instances(cluster)] + cluster.in_transit()
    seen: dict[int, None] = {}
    for request in there:
        if request.index in seen:
            return f"request {request.request_id} is in two places"
        seen[request.index] = None
    for index, routed in cluster.dispatcher.split_requests.items():
        if routed.request.index != index:
            return f"request {routed.request.request_id} is kept as number {index}"
    return ""


SPLIT_INVARIANTS: Final = (
    Invariant("INV-PD-1", _completeness),
    Invariant("INV-PD-2", _exclusivity),
    Invariant("INV-PD-3", _transfer_conservation),
    Invariant("INV-PD-4", _phases),
    Invariant("INV-PD-5", _stability),
    Invariant("INV-PD-6", _granularity),
)
"""The statements that must hold after every event."""

CLUSTER_INVARIANTS: Final = (*CONTROL_INVARIANTS, *SPLIT_INVARIANTS)
"""The invariants besides ``INVARIANTS``, wherever they apply."""


def outcomes(cluster: Cluster, *, verify: bool) -> dict[str, str]:
    """Return a report's text for each invariant; those of clusters are listed only if violated."""
    if not verify:
        return {invariant.identifier: "not checked" for invariant in INVARIANTS}
    verdicts = {invariant.identifier: invariant.verdict(cluster) or "ok" for invariant in INVARIANTS}
    return verdicts | {
        invariant.identifier: wrong for invariant in CLUSTER_INVARIANTS if (wrong := invariant.verdict(cluster))
    }
