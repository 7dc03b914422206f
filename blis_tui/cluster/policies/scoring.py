"""Scorers: how good is each instance for a request? ``weighted`` routing adds the scores up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.cluster.policy import SCORING
from blis_tui.model.keys import SMALLEST
from blis_tui.model.plug_ins import Stateless, setting

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.cluster.signals import Fleet, IncomingRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class Weight:
    """The setting that all scorers share; settings of scorers with more of them inherit from it."""

    weight: float = setting("How much it counts, relative to the others.", default=1.0, minimum=SMALLEST, maximum=1e6)


class FigureScorer(Stateless):
    """A stateless scorer that depends on one figure of each instance: the smaller the better.

    ``weighted`` need not call it for every instance: among equal figures one suffices. A class that overrides
    ``scores`` is called for those.

    Attributes:
        figure: its name in ``signals.FIGURES``.
    """

    figure: str

    def __init__(self, settings: Weight) -> None:
        self.weight = settings.weight

    def grades(self, values: Sequence[float]) -> list[float]:
        """Return the scores for these values; the larger a value, the lower its score.

        All values that occur are given, but not how many instances have each, so scores must not depend on that.
        """
        raise NotImplementedError

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:  # noqa: ARG002
        """Return the grade of each instance's figure."""
        return self.grades(fleet.column(self.figure))

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Do nothing, as it has no memory."""


class SparseScorer(Stateless):
    """A scorer that gives most instances the same score.

    ``weighted`` handles the other instances one by one. A class that overrides ``scores`` is called for those.
    """

    def __init__(self, settings: Weight) -> None:
        self.weight = settings.weight

    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        """Return the usual score, and the places with a different one."""
        raise NotImplementedError

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        """Return each place's own score, or the usual one."""
        usual, others = self.sparse(request, fleet)
        return [others.get(place, usual) for place in range(len(fleet))]

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Do nothing, as it has no memory."""


def least_first(values: Sequence[float]) -> list[float]:
    """Scale linearly: 1 for the smallest value, 0 for the largest; 1 for all if they are equal."""
    low, high = min(values), max(values)
    if low == high:
        return [1.0] * len(values)
    span = high - low
    return [(high - value) / span for value in values]


@SCORING.plugin("active-requests", "In flight, relative to the instance that has most.", Weight)
class ActiveRequests(FigureScorer):
    """Scores by requests in flight, relative to the instance with most."""

    figure = "in_flight"

    def grades(self, values: Sequence[float]) -> list[float]:
        """Return 0 for the instances with most in flight, 1 for those with none."""
        most = max(values)
        return [(most - value) / most for value in values] if most else [1.0] * len(values)


@SCORING.plugin("kv-utilization", "The share of KV blocks that is free.", Weight)
class KvUtilization(FigureScorer):
    """Scores by the share of KV blocks that is free."""

    figure = "kv_utilization"

    def grades(self, values: Sequence[float]) -> list[float]:
        """Return 1 - the share in use."""
        return [1.0 - value for value in values]


_FULL: Final = 128


@SCORING.plugin("load-aware", "Half of what is left of a queue of 128.", Weight)
class LoadAware(FigureScorer):
    """Scores by half of what is left of a queue of 128."""

    figure = "waiting"

    def grades(self, values: Sequence[float]) -> list[float]:
        """Return 0.5 for an empty queue, 0 for one of 128 requests or more."""
        return [0.5 * (1.0 - min(value, _FULL) / _FULL) for value in values]


@SCORING.plugin("load-balance", "1 / (1 + queue + batch + in flight).", Weight)
class LoadBalance(FigureScorer):
    """Scores by 1 / (1 + queue + batch + in flight)."""

    figure = "load"

    def grades(self, values: Sequence[float]) -> list[float]:
        """Return 1 for an idle instance, decreasing with its load."""
        return [1.0 / (1.0 + value) for value in values]


@SCORING.plugin("lora-affinity", "1 where the request's LoRA adapter is on the accelerators, else 0.", Weight)
class LoraAffinity(SparseScorer):
    """Scores 1 where instances report the request's adapter; 1 everywhere for requests without an adapter."""

    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        """Return 0, and 1 for the places that have the adapter."""
        if not request.adapter:
            return 1.0, {}
        return 0.0, dict.fromkeys(fleet.with_adapter(request.adapter), 1.0)


@SCORING.plugin(
    "no-hit-lru", "Prompts that no cache holds spread over the instances that had one least recently.", Weight
)
class NoHitLru:
    """Ranks instances by when they last got a prompt that no cache held; those that never did come first."""

    def __init__(self, settings: Weight) -> None:
        self.weight = settings.weight
        self._cold: dict[int, None] = {}

    def scores(self, request: IncomingRequest, fleet: Fleet) -> Sequence[float]:
        """Return 0.5 for all if any cache has a block of the prompt, otherwise by rank from 1 (first) to 0 (last)."""
        count = len(fleet)
        if _hit(request, fleet):
            return [0.5] * count
        if count == 1:
            return [1.0]
        used = {instance: at for at, instance in enumerate(self._cold)}
        ranked = sorted(range(count), key=lambda place: (used.get(fleet.members[place], -1), place))
        scores = [0.0] * count
        for rank, place in enumerate(ranked):
            scores[place] = 1.0 - rank / (count - 1)
        return scores

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Remember which instance got a prompt that no cache held."""
        if not _hit(request, fleet):
            instance = fleet.members[place]
            self._cold.pop(instance, None)
            self._cold[instance] = None

    def forget(self, instance: int) -> None:
        """Forget an instance that is gone."""
        self._cold.pop(instance, None)

    def state(self) -> tuple[object, ...]:
        """Return the instances that ever got one, the latest last."""
        return tuple(self._cold)


def _hit(request: IncomingRequest, fleet: Fleet) -> bool:
    return bool(request.segments) and any(fleet.cached_blocks(request.segments))


@dataclass(frozen=True, slots=True, kw_only=True)
class PrecisePrefixCacheSettings(Weight):
    """Settings: the score if no instance has any block cached."""

    nobody_has_it: float = setting(
        "Score of all instances if none has any of the prompt.", default=1.0, minimum=0, maximum=1
    )


@SCORING.plugin(
    "precise-prefix-cache", "Cached blocks of the prompt, between the fewest and the most.", PrecisePrefixCacheSettings
)
class PrecisePrefixCache(SparseScorer):
    """Scores by the cached blocks of the prompt that instances report, scaled between the fewest and the most."""

    def __init__(self, settings: PrecisePrefixCacheSettings) -> None:
        super().__init__(settings)
        self._cold_score = settings.nobody_has_it

    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        """Return 1 for the most cached blocks, 0 for the fewest; 1 for all if they have equally many."""
        if not request.segments:
            return self._cold_score, {}
        blocks = fleet.cached_blocks(request.segments)
        low, high = min(blocks), max(blocks)
        if low == high:
            return (1.0 if high else self._cold_score), {}
        span = high - low
        return 0.0, {place: (count - low) / span for place, count in enumerate(blocks) if count > low}


@dataclass(frozen=True, slots=True, kw_only=True)
class PrefixAffinitySettings(Weight):
    """Settings of the router's memory."""

    capacity_blocks: int = setting(
        "Prompt blocks to remember for each instance.", default=10_000, minimum=1, maximum=10**9
    )


@SCORING.plugin(
    "prefix-affinity",
    "The share of the prompt that the router has sent to the instance before.",
    PrefixAffinitySettings,
)
class PrefixAffinity(SparseScorer):
    """Scores by the share of the prompt's full blocks, counted from the first, that were sent to the instance.

    It does not ask what the instance has cached: the router remembers the latest blocks that it sent there.
    """

    def __init__(self, settings: PrefixAffinitySettings) -> None:
        super().__init__(settings)
        self._capacity = settings.capacity_blocks
        self._memories: dict[int, BlockLru] = {}

    def sparse(self, request: IncomingRequest, fleet: Fleet) -> tuple[float, Mapping[int, float]]:
        """Return matched leading blocks / full blocks; 0 for a prompt without a full block."""
        shares: dict[int, float] = {}
        keys = fleet.prompt_keys(request)
        if keys:
            blocks = request.input_tokens // fleet.block_size_tokens
            for place, instance in enumerate(fleet.members):
                memory = self._memories.get(instance)
                if memory is not None and (there := memory.leading(keys)):
                    shares[place] = there / blocks
        return 0.0, shares

    def routed(self, request: IncomingRequest, fleet: Fleet, place: int) -> None:
        """Remember the request's blocks, the first one first."""
        instance = fleet.members[place]
        memory = self._memories.get(instance)
        if memory is None:
            memory = self._memories[instance] = BlockLru(self._capacity)
        keys = fleet.prompt_keys(request)
        memory.record(keys, request.input_tokens // fleet.block_size_tokens - len(keys))

    def forget(self, instance: int) -> None:
        """Forget an instance that is gone with its cache."""
        self._memories.pop(instance, None)

    def state(self) -> tuple[object, ...]:
        """Return what it remembers of each instance."""
        return tuple((instance, *self._memories[instance].state()) for instance in sorted(self._memories))


class BlockLru:
    """The latest blocks that were sent somewhere, up to a maximum number.

    Blocks that no other prompt can share are only counted: they take room, but are never looked up.
    """

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._size = 0
        self._entries: dict[int, int] = {}
        """Oldest first: a block's key or, for a run of unshared blocks, a negative number -> number of blocks."""
        self._runs = 0

    def leading(self, keys: Sequence[int]) -> int:
        """Number of these keys, from the first on, that are remembered."""
        entries = self._entries
        for count, key in enumerate(keys):
            if key not in entries:
                return count
        return len(keys)

    def record(self, keys: Sequence[int], own: int) -> None:
        """Make these blocks, followed by ``own`` unshared ones, the latest."""
        entries = self._entries
        for key in keys:
            if key in entries:
                del entries[key]
                self._size -= 1
            self._add(key, 1)
        if own > 0:
            self._runs += 1
            self._add(-self._runs, own)

    def _add(self, key: int, count: int) -> None:
        self._entries[key] = count
        self._size += count
        over = self._size - self._capacity
        while over > 0:
            oldest = next(iter(self._entries))
            there = self._entries[oldest]
            gone = min(there, over)
            if gone == there:
                del self._entries[oldest]
            else:
                self._entries[oldest] = there - gone
            self._size -= gone
            over -= gone

    def state(self) -> tuple[object, ...]:
        """Return everything, oldest first."""
        return tuple(self._entries.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueDepthSettings(Weight):
    """Settings: which queue is meant."""

    signal: str = setting(
        "What is compared: the waiting queue, or (as in older BLIS versions) queue + batch + in flight.",
        default="queue-depth",
        enum=("queue-depth", "effective-load"),
    )


@SCORING.plugin("queue-depth", "The length of the queue, between the shortest and the longest.", QueueDepthSettings)
class QueueDepth(FigureScorer):
    """Scores by the length of the queue, scaled between the shortest and the longest."""

    def __init__(self, settings: QueueDepthSettings) -> None:
        super().__init__(settings)
        self.figure = "load" if settings.signal == "effective-load" else "waiting"

    def grades(self, values: Sequence[float]) -> list[float]:
        """Return 1 for the shortest queue, 0 for the longest."""
        return least_first(values)


@SCORING.plugin("running-requests", "Requests in the batch, between the smallest and the largest.", Weight)
class RunningRequests(FigureScorer):
    """Scores by the requests in the batch, scaled between the smallest and the largest."""

    figure = "running"

    def grades(self, values: Sequence[float]) -> list[float]:
        """Return 1 for the smallest batch, 0 for the largest."""
        return least_first(values)


@SCORING.plugin("vllm-dp", "4 x queue + batch, between the smallest and the largest.", Weight)
class VllmDp(FigureScorer):
    """Scores by 4 x queue + batch, scaled between the smallest and the largest."""

    figure = "vllm_dp"

    def grades(self, values: Sequence[float]) -> list[float]:
        """Return 1 for the least loaded instance, 0 for the most."""
        return least_first(values)
