"""What the control plane may know: frozen values, never an instance or a request's future (INV-9).

Admission, gateway and router decide by a request as its client declared it and by what instances report about
themselves. Neither type contains the length of an answer, so no policy can read it by mistake.

A board holds the figures of all instances, as fresh as ``cluster.signals`` says; a fleet is the part of it that one
decision may choose from.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Concatenate, Final, ParamSpec, overload

from blis_tui.base.classes import NamedTuple, mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.engine.latency.model import Chunk, StepLoad
from blis_tui.engine.request import Request

if TYPE_CHECKING:
    from blis_tui.base.streams import Stream
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.kv.keys import PromptKeys
    from blis_tui.engine.records import Observers, Record
    from blis_tui.engine.request import Segments
    from blis_tui.model import Signals


P = ParamSpec("P")

UNKNOWN_CLASS_PRIORITY: Final = 3
"""Priority of unknown classes, as of `standard`."""


_EMPTY_REQUEST: Final = Request(-1, "", 0, 1, 0)
"""A dummy request for chunks in step-time estimates; models do not depend on which request it is."""


class IncomingRequest(NamedTuple):
    """A request as its client declared it. Times in microseconds."""

    request_id: str
    arrival_us: int
    input_tokens: int
    max_output_tokens: int
    """The declared budget; 0 = undeclared. Clients without ``max_output_tokens`` declare exactly what they will get."""
    segments: Segments
    """The shareable head of the prompt: ``(segment id, tokens)`` pairs."""
    slo_class: str
    tenant_id: str
    session_id: str
    round_index: int
    model: str
    """Name of the requested model; empty = any."""
    adapter: str = ""
    """Name of the requested LoRA adapter; empty = the base model."""


@mypyc_attr(allow_interpreted_subclasses=True)
class CacheView(Picklable):
    """What a router may ask about an instance's prefix cache: about prompts, never about requests.

    Attributes:
        keys: the blocks in its prefix cache; None = look them up in the current state.
        adapters: the LoRA adapters on its accelerators.
    """

    def __init__(
        self,
        board: SignalBoard,
        instance: Instance,
        keys: frozenset[int] | None = None,
        adapters: Collection[str] = frozenset(),
    ) -> None:
        self._board = board
        self._index = instance.index
        self._pool = instance.pool
        self.keys = keys
        self.adapters = adapters
        self._seen_rate = 0.0 if keys is None else self._rate()

    def _rate(self) -> float:
        hits = self._pool.hits
        return hits / (hits + self._pool.misses) if hits else 0.0

    @property
    def hit_rate(self) -> float:
        """Blocks hit so far, as a share of those and all blocks allocated; as old as what is known of the cache."""
        if self.keys is not None:
            return self._seen_rate
        self._board.catch_up(self._index)
        return self._rate()

    def cached_blocks(self, segments: Segments) -> int:
        """Number of leading whole blocks of a prompt in the cache."""
        if not segments:
            return 0
        if self.keys is None:
            self._board.catch_up(self._index)
            return self._pool.visible_head(segments, self._board.now_us)
        count = 0
        for key in self._pool.prompts.shareable(segments):
            if key not in self.keys:
                break
            count += 1
        return count

    def cached_tokens(self, segments: Segments) -> int:
        """Number of tokens in these blocks."""
        return self.cached_blocks(segments) * self._pool.block_size_tokens


class InstanceSignals(NamedTuple):
    """What an instance reports about itself."""

    instance: int
    """Its index."""
    waiting: int
    """Requests in its queue."""
    running: int
    """Requests in its batch."""
    in_flight: int
    """Requests sent there that have not ended, including those on the way to its queue; always up to date."""
    kv_used_blocks: int
    kv_total_blocks: int
    cache: CacheView
    age_us: int
    """Age of these figures."""

    @property
    def load(self) -> int:
        """BLIS' effective load: queue + batch + in flight. Waiting and running requests count twice."""
        return self.waiting + self.running + self.in_flight

    @property
    def kv_utilization(self) -> float:
        """Share of the KV blocks in use."""
        return self.kv_used_blocks / self.kv_total_blocks


def _load(board: SignalBoard, index: int) -> int:
    return board.waiting[index] + board.running[index] + board.in_flight[index]


FIGURES: Final[Mapping[str, Callable[[SignalBoard, int], float]]] = {
    "waiting": lambda board, index: board.waiting[index],
    "running": lambda board, index: board.running[index],
    "in_flight": lambda board, index: board.in_flight[index],
    "load": _load,
    "vllm_dp": lambda board, index: 4 * board.waiting[index] + board.running[index],
    "kv_utilization": lambda board, index: board.kv_used(index) / board.kv_total[index],
}
"""The comparable figures of instances, by name."""


@mypyc_attr(allow_interpreted_subclasses=True)
class SignalBoard(Picklable):
    """The figures of all instances by index, as the control plane sees them.

    Attributes:
        waiting: requests in queues.
        running: requests in batches.
        in_flight: requests sent there that have not ended.
        kv_total: total number of blocks.
        deferring: whether instances defer plain decodes; then their blocks in use are looked up when read, otherwise
            recorded like the other figures.
        ages: whether figures may be out of date, so that it matters when they are read.
        refreshed_us: when all figures except the in-flight counts were last refreshed.
        now_us: when the board was last read.
        touched: instances to which something has happened since.
    """

    def __init__(self, settings: Signals) -> None:
        self.waiting: list[int] = []
        self.running: list[int] = []
        self.in_flight: list[int] = []
        self.kv_total: list[int] = []
        self.refreshed_us = 0
        self.now_us = 0
        self._instances: list[Instance] = []
        self.touched: dict[int, None] = {}
        self._stale: dict[int, None] = {}
        self.deferring = False
        self._kv_used: list[int] = []
        """Blocks in use at the last refresh."""
        self._interval_us = settings.refresh_interval_us
        self._cache_delay_us = settings.cache_signal_delay_us
        self._early = settings.results == "step-start"
        self.ages = bool(self._interval_us or self._cache_delay_us)
        self._caches_us = 0
        self._views: list[CacheView] = []
        self._listeners: list[dict[int, None]] = []

    def __getstate__(self) -> tuple[None, dict[str, object]]:
        return None, {**super().__getstate__()[1], "_listeners": []}  # indexes over the figures are rebuilt

    def listen(self) -> dict[int, None]:
        """Return a dictionary that collects instances whose figures or fleets may have changed; callers clear it."""
        changed: dict[int, None] = {}
        self._listeners.append(changed)
        return changed

    def notify_listeners(self, index: int) -> None:
        """Tell listeners that an instance has joined or left a fleet."""
        for listener in self._listeners:
            listener[index] = None

    def add(self, instance: Instance) -> None:
        """Add an empty instance."""
        self._instances.append(instance)
        for column in (self.waiting, self.running, self.in_flight, self._kv_used):
            column.append(0)
        self.kv_total.append(instance.pool.total)
        view = CacheView(self, instance, frozenset() if self._cache_delay_us else None)
        if instance.batch.adapters is not None and not self._cache_delay_us:
            view.adapters = instance.batch.adapters.resident
        self._views.append(view)

    def read(self, now: int) -> None:
        """Refresh all figures that have reached their maximum age, for all instances at once, before a decision."""
        if now == self.refreshed_us and now == self.now_us and not self.touched and not self._stale:
            return  # most requests need more than one decision
        self.now_us = now
        due = now - self.refreshed_us >= self._interval_us
        if self.touched:
            if self._interval_us:
                for index in self.touched:
                    self.in_flight[index] = self._instances[index].seen.in_flight
                self._stale.update(self.touched)
            else:
                self._refresh(self.touched)
            for listener in self._listeners:
                listener.update(self.touched)
            self.touched.clear()
        if due and self._stale:
            self._refresh(self._stale)
            for listener in self._listeners:
                listener.update(self._stale)
            self._stale.clear()
        if due:
            if self.deferring and self._interval_us:
                self._note_blocks()
            self.refreshed_us = now
        if self._cache_delay_us and now - self._caches_us >= self._cache_delay_us:
            self._caches_us = now
            for index, instance in enumerate(self._instances):
                adapters = (
                    frozenset() if instance.batch.adapters is None else frozenset(instance.batch.adapters.resident)
                )
                self.catch_up(index)
                self._views[index] = CacheView(self, instance, instance.pool.visible_keys(now), adapters)

    def _refresh(self, indices: dict[int, None]) -> None:
        waiting, running, in_flight, instances = self.waiting, self.running, self.in_flight, self._instances
        for index in indices:
            instance = instances[index]
            seen = instance.seen
            in_flight[index] = seen.in_flight
            waiting[index] = queued = len(instance.waiting.items)
            running[index] = seen.running if self._early else seen.present - queued  # (without the property's call)
            if not self.deferring:
                self._kv_used[index] = seen.kv_used

    def _note_blocks(self) -> None:
        for index, instance in enumerate(self._instances):
            self.catch_up(index)
            used = instance.seen.kv_used
            if used != self._kv_used[index]:
                self._kv_used[index] = used
                self.notify_listeners(index)

    def catch_up(self, index: int) -> None:
        """Let an instance run deferred steps, so that its blocks and cache are current."""
        loop = self._instances[index].loop
        if loop.next_us < loop.due_us:
            loop.catch_up(self.now_us)

    def kv_used(self, index: int) -> int:
        """Number of KV blocks in use on an instance, which can only grow between two touches."""
        if not self.deferring or self._interval_us:
            return self._kv_used[index]
        instance = self._instances[index]
        loop = instance.loop
        if loop.next_us < loop.due_us:
            loop.catch_up(self.now_us)
        return instance.seen.kv_used

    def least_kv_utilization(self, index: int) -> float:
        """Lower bound on an instance's KV utilization; decodes that it defers take more."""
        at_once = not self.deferring or self._interval_us
        used = self._kv_used[index] if at_once else self._instances[index].seen.kv_used
        return used / self.kv_total[index]

    def audit(self, now: int) -> str:
        """Check the figures; return what is wrong, or an empty string.

        They must not exceed their maximum age when read, and those of instances untouched since the last refresh must
        be current.
        """
        age = self.now_us - self.refreshed_us
        if not 0 <= self.refreshed_us <= self.now_us <= now or (age >= self._interval_us and age):
            return f"figures read at {self.now_us} are those of {self.refreshed_us}, {self._interval_us} us at most"
        for index, instance in enumerate(self._instances):
            if index in self.touched:
                continue
            shown, actual = [self.in_flight[index]], [instance.seen.in_flight]
            if index not in self._stale:
                shown += [self.waiting[index], self.running[index], self.kv_used(index)]
                actual += [len(instance.waiting.items), instance.seen.running, instance.seen.kv_used]
            if shown != actual:
                return f"instance {index} is seen as {shown}, and is {actual}, though nothing happened to it meanwhile"
        return ""

    def of(self, index: int, now: int) -> InstanceSignals:
        """Return the figures of one instance."""
        return InstanceSignals(
            index,
            self.waiting[index],
            self.running[index],
            self.in_flight[index],
            self.kv_used(index),
            self.kv_total[index],
            self._views[index],
            now - self.refreshed_us,
        )

    def prefill_us(self, index: int, tokens: int) -> int:
        """See ``Fleet.prefill_us``."""
        instance = self._instances[index]
        decodes = self.running[index]
        context = instance.pool.tokens_held(self.kv_used(index), decodes) if decodes else 0
        drafts = instance.batch.speculative
        width = 1 if drafts is None else 1 + drafts.acceptance_sampler.draft_tokens
        room = max(1, instance.batch.limits.max_num_batched_tokens - decodes * width)
        full, rest = divmod(tokens, room)
        total = 0
        for chunk, times in ((room, full), (rest, 1 if rest else 0)):
            if times:
                load = StepLoad([Chunk(_EMPTY_REQUEST, 0, chunk, chunk)], decodes, context)
                total += times * instance.latency.step_time_us(load)
        return total

    def model(self, index: int) -> str:
        """The name of the model that an instance serves."""
        return self._instances[index].batch.limits.model

    def cache(self, index: int) -> CacheView:
        """The prefix cache of one instance."""
        return self._views[index]

    def state(self) -> tuple[object, ...]:
        """Return what is shown, as plain values (for digests)."""
        views: list[object] = [(sorted(view.keys), view.hit_rate) for view in self._views if view.keys is not None]
        views += [(index, sorted(view.adapters)) for index, view in enumerate(self._views) if view.adapters]
        return (
            *(tuple(column) for column in (self.waiting, self.running, self.in_flight, self._kv_used)),
            (self.refreshed_us, self._caches_us),
            views,
        )


@mypyc_attr(allow_interpreted_subclasses=True)
class Fleet(Picklable, Sequence[InstanceSignals]):
    """The signals of all instances that a request may be sent to, by place; read on access.

    Attributes:
        members: the index of the instance at each place.
        board: where the figures are stored.
        block_size_tokens: tokens per block of ``prompt_keys``.
    """

    def __init__(self, board: SignalBoard, members: Sequence[int], prompts: PromptKeys) -> None:
        self.board = board
        self.members = members
        self.block_size_tokens = prompts.block_size_tokens
        self._prompts = prompts
        self._parts: list[tuple[str, Fleet]] = []

    def place(self, index: int) -> int:
        """The place of an instance."""
        return bisect_left(self.members, index)

    def include(self, index: int) -> None:
        """Add an instance."""
        self.board.notify_listeners(index)
        members = [*self.members]
        insort(members, index)
        self.members = members
        for model, part in self._parts:
            if self.board.model(index) == model:
                part.include(index)

    def exclude(self, index: int) -> None:
        """Remove an instance."""
        self.board.notify_listeners(index)
        members = [*self.members]
        del members[bisect_left(members, index)]
        self.members = members
        for model, part in self._parts:
            if self.board.model(index) == model:
                part.exclude(index)

    def __len__(self) -> int:
        return len(self.members)

    @overload
    def __getitem__(self, place: int) -> InstanceSignals: ...

    @overload
    def __getitem__(self, place: slice) -> Sequence[InstanceSignals]: ...

    def __getitem__(self, place: int | slice) -> InstanceSignals | Sequence[InstanceSignals]:
        if isinstance(place, slice):
            return [self.board.of(index, self.board.now_us) for index in self.members[place]]
        return self.board.of(self.members[place], self.board.now_us)

    def by_model(self) -> dict[str, Fleet]:
        """Return a fleet for each model; these fleets change with this one."""
        indices: dict[str, list[int]] = {}
        for index in self.members:
            indices.setdefault(self.board.model(index), []).append(index)
        parts = {model: Fleet(self.board, members, self._prompts) for model, members in indices.items()}
        self._parts = list(parts.items())
        return parts

    def on(self, board: SignalBoard) -> Fleet:
        """Return a fleet of the same instances with the figures of another board."""
        return Fleet(board, self.members, self._prompts)

    def loads(self) -> list[int]:
        """Return the effective load at all places: queue + batch + in flight."""
        board = self.board
        waiting, running, in_flight = board.waiting, board.running, board.in_flight
        return [waiting[index] + running[index] + in_flight[index] for index in self.members]

    def prompt_keys(self, request: IncomingRequest) -> Sequence[int]:
        """Return the keys of the full blocks in the shareable head of its prompt: equal keys, equal content."""
        return self._prompts.shareable(request.segments) if request.segments else ()

    def cached_blocks(self, segments: Segments) -> list[int]:
        """Return the number of leading blocks of a prompt in the prefix cache at each place."""
        return [self.board.cache(index).cached_blocks(segments) for index in self.members]

    def with_adapter(self, adapter: str) -> list[int]:
        """Return the places with a LoRA adapter on their accelerators."""
        return [place for place, index in enumerate(self.members) if adapter in self.board.cache(index).adapters]

    def prefill_us(self, place: int, tokens: int) -> int:
        """Return the step-time model's estimate for ``tokens`` prompt tokens together with the current batch.

        The prompt tokens fill steps of ``max_num_batched_tokens`` minus one token per decode (and its drafts, if any);
        the contexts of the decodes are what the KV cache holds.
        """
        return self.board.prefill_us(self.members[place], tokens)

    def column(self, name: str) -> list[float]:
        """Return one of the ``FIGURES``, such as ``waiting``, for all places; fast for many instances."""
        figure, board = FIGURES[name], self.board
        return [figure(board, index) for index in self.members]


@mypyc_attr(allow_interpreted_subclasses=True)
class Context(Picklable):
    """What a decision may depend on besides the request and the signals.

    Attributes:
        now_us: simulated time.
        stream: the policy's own random stream, ``policy/<plug point>``; its position is part of every digest.
        told: whether anybody reads the reason of the decision; if not, it may be empty.
    """

    def __init__(self, stream: Stream, slo_priorities: Mapping[str, int], observers: Observers) -> None:
        self.now_us = 0
        self.told = True
        self.stream = stream
        self._slo_priorities = slo_priorities
        self._observers = observers

    def emit(self, kind: Callable[Concatenate[int, int, P], Record], *args: P.args, **fields: P.kwargs) -> None:
        """Emit a record of ``kind`` with these fields, at the current event and time.

        The record is created only while the kind has a subscriber, so a decision must not depend on it. A kind that
        only accompanies decisions has ``own_event=False`` in its description: the event remains that of the decision.
        """
        self._observers.tell(kind, self.now_us, *args, **fields)

    def priority(self, request: IncomingRequest) -> int:
        """Return the priority of its SLO class (``slo_priorities``); larger is more urgent, below 0 may be shed."""
        return self._slo_priorities.get(request.slo_class, UNKNOWN_CLASS_PRIORITY)


def declared(request: Request) -> IncomingRequest:
    """Return a request as the control plane sees it."""
    values = (
        request.request_id,
        request.arrival_us,
        request.input_tokens,
        request.max_output_tokens,
        request.segments,
        request.slo_class,
        request.tenant,
        request.session_id,
        request.round_index,
        request.model,
        request.adapter,
    )
    return tuple.__new__(IncomingRequest, values)  # half the cost of the constructor
