"""The LoRA adapters of one instance: those on its accelerators, those in host memory, and their costs."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.engine.events import Revocable, instance_order
from blis_tui.engine.plan import StepPart
from blis_tui.engine.records import AdapterEvicted, AdapterHeld, AdapterLoad, AdapterReady
from blis_tui.engine.request import WAITING

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Mapping, Sequence

    from blis_tui.engine.events import EventQueue
    from blis_tui.engine.latency.model import StepLoad
    from blis_tui.engine.options.draft_cohort import SpeculativeCohort
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.queue import WaitingQueue
    from blis_tui.engine.records import Observers
    from blis_tui.engine.request import Request
    from blis_tui.model import Hardware, Lora, Model


HOST: Final = "host"
STORAGE: Final = "storage"

_BYTES_PER_US: Final = 1000
"""Conversion factor from GB/s."""
_STEP_OVERHEADS: Final = ((8, 0.02), (16, 0.035), (32, 0.06))
"""Pairs of rank and step time share per adapter in the batch. Source: BLIS (``lora.step_overhead_tiers``)."""


def bytes_per_rank(model: Model) -> int:
    """Bytes per adapter rank, on all accelerators of an instance together.

    For a weight matrix of m rows and n columns, an adapter of rank r has r (m + n) numbers of the activations' type. It
    adapts all projections of attention and of dense MLPs (shared experts included), but not routed experts.
    """
    hidden = model.hidden_size
    query, key_value = model.num_attention_heads * model.head_dim, model.num_key_value_heads * model.head_dim
    attention = 2 * (hidden + query) + 2 * (hidden + key_value)
    sparse = model.num_hidden_layers - min(model.num_hidden_layers, model.first_k_dense_replace)
    dense = model.num_hidden_layers
    shared = 0
    if model.num_experts > 1:
        dense -= sparse
        shared = sparse * 3 * (hidden + model.shared_expert_intermediate_size)
        shared *= bool(model.shared_expert_intermediate_size)
    numbers = model.num_hidden_layers * attention + dense * 3 * (hidden + model.intermediate_size) + shared
    return int(numbers * model.activation_bytes)


def reserved_bytes(lora: Lora, model: Model) -> int:
    """Memory reserved for adapter slots, on all accelerators of an instance together."""
    return lora.max_loras * lora.max_lora_rank * (lora.bytes_per_rank or bytes_per_rank(model))


def step_overhead(lora: Lora) -> float:
    """Share by which each adapter of a batch lengthens its steps: that of the nearest known rank."""
    if lora.step_overhead is not None:
        return lora.step_overhead
    return min(_STEP_OVERHEADS, key=lambda overhead: (abs(overhead[0] - lora.max_lora_rank), overhead[0]))[1]


class LoadTimes:
    """Load times of adapters; each accelerator loads its share.

    Args:
        lora: the adapter settings.
        model: the model that they adapt.
        hardware: one of the accelerators.
        tensor_parallel: number of accelerators.
    """

    def __init__(self, lora: Lora, model: Model, hardware: Hardware, tensor_parallel: int) -> None:
        self._bytes_per_rank = lora.bytes_per_rank or bytes_per_rank(model)
        self._ranks: Mapping[str, int] = lora.ranks
        self._usual_rank = lora.max_lora_rank
        self._base_us = lora.base_latency_us
        self._gb_per_s = (lora.bandwidth_gb_per_s or hardware.host_link_gb_per_s) * tensor_parallel
        self._storage_us = lora.storage_latency_us
        self._storage_gb_per_s = lora.storage_gb_per_s

    def us(self, adapter: str, source: str) -> int:
        """Load time from host memory or, in addition, from storage to host memory; each part is rounded up."""
        size = self._bytes_per_rank * self._ranks.get(adapter, self._usual_rank)
        time = self._base_us + ceil(size / (self._gb_per_s * _BYTES_PER_US))
        if source == STORAGE:
            time += self._storage_us + ceil(size / (self._storage_gb_per_s * _BYTES_PER_US))
        return time


_ARRIVES: Final = 0
"""Priority at a tie with other events of the instance: its next step sees the adapter."""


class Loading(NamedTuple):
    """A load that runs concurrently with steps; ``number`` identifies it."""

    adapter: str
    load_us: int
    number: int


class Adapters(StepPart):
    """The adapters of an instance, and the requests that wait for them.

    An adapter in use by a running request stays. Of the others, the one whose last use ended first is evicted first.

    Attributes:
        beside: whether loads run concurrently with steps, so that a request waiting for one is not overtaken (BLIS).
            Otherwise the step that needs an adapter begins with its load, and requests whose adapter has no slot are
            skipped (vLLM).
        in_use: adapter -> number of running requests that use it, in the order in which the first of each was admitted.
        resident: adapter -> None, for those on the accelerators.
        loading: the concurrent load; None = there is none.
        wake: called with the time when an adapter has arrived, as a step may be possible now.
        reported: whether the latest plan has adapter records to emit.
        admitted: total of requests with an adapter that were scheduled. The following counts are totals, too.
        hits: those of them whose adapter was resident.
        loads: adapters loaded, by source.
        evictions: adapters evicted from the accelerators.
        load_us: time of all loads.
        holds: requests that were skipped or waited for a load, counted again after a preemption.
        held_us: how long they were held, if they were scheduled.
        loads_of: adapter -> how often it was loaded.
    """

    def __init__(
        self,
        lora: Lora,
        times: LoadTimes,
        load: StepLoad,
        events: EventQueue,
        observers: Observers,
        index: int,
        *,
        beside: bool,
        ending: Mapping[int, Request],
        drafting: SpeculativeCohort | None = None,
    ) -> None:
        self.beside = beside
        self._ending = ending
        self._drafting = drafting
        self.in_use: dict[str, int] = {}
        self.resident: dict[str, None] = {}
        self.loading: Loading | None = None
        self.reported = False
        self.admitted = self.hits = self.evictions = self.load_us = self.holds = self.held_us = 0
        self.loads = {HOST: 0, STORAGE: 0}
        self.loads_of: dict[str, int] = {}
        self._slots = lora.max_loras
        self._cpu_slots = lora.max_cpu_loras
        self._times = times
        self._load = load
        self._events = events
        self._observers = observers
        self._index = index
        self.wake: Callable[[int], None] | None = None
        self._now = 0
        self._idle: dict[str, None] = {}
        """Those of ``resident`` that are not in use, in the order in which their last use ended."""
        self._host: dict[str, None] = {}
        """Adapters in host memory only, in the order in which they left the accelerators."""
        self._held_us: dict[int, int] = {}
        """Request -> since when it has been held."""
        self._missed: dict[int, None] = {}
        """Waiting requests for which a concurrent load was started."""
        self._line: list[Request] | None = None
        self._place = 0
        self._number = 0

    # ---- planning ----

    def begin_plan(self, now: int) -> None:
        """Prepare for the planning of a step."""
        self._now = now
        self.reported = False

    def end_plan(self) -> None:
        """Finish the planning of a step."""
        self._line = None

    def next(self, waiting: WaitingQueue, passed: Container[int] = ()) -> Request | None:
        """Return the request to admit next, without those in ``passed`` (indices); None = none can be admitted.

        A request that is skipped in a plan cannot be admitted later in it, as admissions only add to the adapters in
        use.
        """
        if self.beside:
            return (
                next((candidate for candidate in waiting.ordered() if candidate.index not in passed), None)
                if passed
                else waiting.head()
            )
        if self._line is None:
            self._line, self._place = waiting.ordered(), 0
        while self._place < len(self._line):
            request = self._line[self._place]
            if request.state is WAITING and request.index not in passed:
                if self.has_place(request):
                    return request
                self._hold(request, "slots")
            self._place += 1
        return None

    def has_place(self, request: Request) -> bool:
        """Whether its adapter has a place beside those in use, and those of who is ending."""
        adapter = request.adapter
        if self.beside or not adapter or adapter in self.in_use:
            return True
        used = len(self.in_use)
        if self._ending:
            late = {
                ending.adapter: None
                for ending in self._ending.values()
                if ending.adapter and ending.adapter not in self.in_use and self._may_compute(ending)
            }
            if adapter in late:
                return True
            used += len(late)
        return used < self._slots

    def _may_compute(self, request: Request) -> bool:
        """Whether a request that is ending may be in the batch; with drafts, it may have no token left to compute."""
        return self._drafting is None or self._drafting.width(request) > 0

    def has(self, request: Request) -> bool:
        """Whether the request need not wait for its adapter."""
        return not self.beside or not request.adapter or request.adapter in self.resident

    def ready(self, request: Request) -> bool:
        """Whether the next request can be admitted; with concurrent loads, its adapter's load may start."""
        adapter = request.adapter
        if self.has(request):
            return True
        starts = self.loading is None and (len(self.resident) < self._slots or bool(self._idle))
        self._hold(request, "load" if starts or self.loading is not None else "slots")
        if starts:
            took = self._start_load(request)
            self._missed[request.index] = None
            self._number += 1
            self.loading = loading = Loading(adapter, took, self._number)
            order = instance_order(_ARRIVES, self._index)
            is_off = partial(self._is_abandoned, loading)
            end = Revocable("adapter-ready", is_off, self.arrive, instance_index=self._index)
            self._events.push(self._now + took, order, end)
        return False

    @property
    def slots(self) -> int:
        """Number of adapter slots in a batch."""
        return self._slots

    def hold(self, request: Request) -> None:
        """Record that a request is skipped because its adapter has no slot."""
        self._hold(request, "slots")

    def _hold(self, request: Request, reason: str) -> None:
        if request.index in self._held_us:
            return
        self._held_us[request.index] = self._now
        self.holds += 1
        self.reported = True
        facts = (self._index, request.adapter, reason, tuple(self.in_use))
        self._observers.tell(AdapterHeld, self._now, request.request_id, *facts)

    def _start_load(self, request: Request) -> int:
        """Make room for an adapter and start to load it; return how long that takes."""
        adapter, observers = request.adapter, self._observers
        source = HOST if adapter in self._host else STORAGE
        self._host.pop(adapter, None)
        if len(self.resident) == self._slots:
            gone = next(iter(self._idle))
            del self._idle[gone], self.resident[gone]
            self._host[gone] = None
            self.evictions += 1
            observers.tell(AdapterEvicted, self._now, self._index, gone, adapter)
        while len(self.resident) + 1 + len(self._host) > self._cpu_slots:
            del self._host[next(iter(self._host))]
        took = self._times.us(adapter, source)
        self.load_us += took
        self.loads[source] += 1
        self.loads_of[adapter] = self.loads_of.get(adapter, 0) + 1
        self.reported = True
        observers.tell(AdapterLoad, self._now, request.request_id, self._index, adapter, source, took)
        return took

    def entered(self, request: Request) -> None:
        """Count the adapter of an admitted request as in use."""
        adapter = request.adapter
        if not adapter:
            return
        self.in_use[adapter] = self.in_use.get(adapter, 0) + 1
        self._idle.pop(adapter, None)
        since = self._held_us.pop(request.index, -1)
        if since >= 0:
            self.held_us += self._now - since
        self._load.adapters = len(self.in_use)

    def left(self, request: Request) -> None:
        """Release the adapter of a request that no longer runs."""
        adapter = request.adapter
        if not adapter:
            return
        self.in_use[adapter] -= 1
        if not self.in_use[adapter]:
            del self.in_use[adapter]
            if adapter in self.resident:
                self._idle[adapter] = None
        self._load.adapters = len(self.in_use)

    def taken_out(self, request: Request) -> None:
        """Release the adapter of a request that has left without a result."""
        self.left(request)

    def unqueued(self, request: Request) -> None:
        """Forget a request that no longer waits."""
        for by_request in (self._held_us, self._missed):
            by_request.pop(request.index, None)

    # ---- execution ----

    def lasting_us(self, plan: Plan, now: int, duration_us: int) -> int:
        """Return the step's duration including loads of non-resident adapters that admitted requests need."""
        self._now = now
        for request in plan.admitted:
            adapter = request.adapter
            if not adapter:
                continue
            self.admitted += 1
            if adapter in self.resident:
                self.hits += request.index not in self._missed
                self._missed.pop(request.index, None)
            else:
                duration_us += self._start_load(request)
                self.resident[adapter] = None
                if adapter not in self.in_use:  # the request has left since the step was planned
                    self._idle[adapter] = None
        return duration_us

    def _is_abandoned(self, loading: Loading) -> bool:
        """Whether a load was abandoned, because the instance is gone."""
        return self.loading != loading

    def arrive(self, now: int) -> None:
        """Finish the concurrent load."""
        loading = self.loading
        if loading is None:
            return
        self.loading = None
        self.resident[loading.adapter] = self._idle[loading.adapter] = None
        self._observers.tell(AdapterReady, now, self._index, loading.adapter, loading.load_us)
        if self.wake is not None:
            self.wake(now)

    def reset(self) -> None:
        """Reset everything; the instance is gone and all requests have been taken out."""
        self.resident.clear()
        self._idle.clear()
        self._host.clear()
        self._held_us.clear()
        self._missed.clear()
        self.loading = self._line = None

    # ---- queries ----

    def held_since_us(self, request: Request) -> int:
        """Time since when a waiting request has been held; -1 = it is not held."""
        return self._held_us.get(request.index, -1)

    def state(self) -> tuple[object, ...]:
        """Return the whole state as plain values (for digests)."""
        places = (tuple(self.in_use.items()), tuple(self.resident), tuple(self._idle), tuple(self._host), self.loading)
        return (*places, tuple(self._held_us.items()), tuple(self._missed), *self.books())

    def books(self) -> tuple[int, ...]:
        """Return all counters."""
        counts = (self.admitted, self.hits, *self.loads.values(), self.evictions, self.load_us)
        return (*counts, self.holds, self.held_us)

    def audit(self, running: Sequence[Request]) -> str:
        """Check the books against the running requests; return what is wrong, or an empty string."""
        counts: dict[str, int] = {}
        for request in running:
            if request.adapter:
                counts[request.adapter] = counts.get(request.adapter, 0) + 1
        if counts != self.in_use:
            return f"adapters in use are {counts}, the books have {self.in_use}"
        if len(self.resident) > self._slots or len(self.in_use) > self._slots:
            return f"{len(self.resident)} adapters in {self._slots} places, {len(self.in_use)} in use"
        if sorted(self._idle) != sorted(name for name in self.resident if name not in self.in_use):
            return f"idle adapters are {[*self._idle]}, resident {[*self.resident]}"
        return ""
