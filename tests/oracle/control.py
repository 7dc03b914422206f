"""Decisions, written as plainly as possible: signals, admission, routers and scorers.

Each decision looks everything up again, over all instances; what policies remember are lists of token lists.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from blis_tui.base.streams import Stream, stream_key
from blis_tui.model import PluginConfig
from tests.builders import number_of

from .instance import segment_tokens

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.model import Experiment, Policy, Signals

    from .instance import Instance, Job, Token


@dataclass
class Seen:
    """An instance as policies see it."""

    number: int
    total: int
    waiting: int = 0
    running: int = 0
    used: int = 0
    in_flight: int = 0

    @property
    def load(self) -> int:
        return self.waiting + self.running + self.in_flight


class Board:
    """The signals of all instances, possibly stale."""

    def __init__(self, settings: Signals, instances: Sequence[Instance], jobs: Sequence[Job]) -> None:
        self.early = settings.results == "step-start"
        self._interval_us = settings.refresh_interval_us
        self._delay_us = settings.cache_signal_delay_us
        self._instances = instances
        self._jobs = jobs
        self._refreshed_us = self._cached_us = 0
        self.seen = [Seen(instance.number, len(instance.pool.blocks)) for instance in instances]
        self._caches: list[set[tuple[Token, ...]]] = [set() for _ in instances]
        self._adapters: list[list[str]] = [[] for _ in instances]
        self.now = 0

    def add(self, instance: Instance) -> None:
        """Add an instance; the list of instances is the cluster's."""
        self.seen.append(Seen(instance.number, len(instance.pool.blocks)))
        self._caches.append(set())
        self._adapters.append([])

    def used_now(self, instance: Instance) -> int:
        """KV blocks in use as policies see them; blocks of requests that have left may be in use again."""
        leaving = [] if self.early else instance.leaving
        used = len(instance.pool.blocks) - len(instance.pool.free) + sum(blocks for _, blocks in leaving)
        return min(used, len(instance.pool.blocks))

    def in_flight(self, number: int) -> int:
        return sum(job.counted.count(number) for job in self._jobs)

    def read(self, now: int) -> None:
        """Update the signals before a decision."""
        self.now = now
        renews = now - self._refreshed_us >= self._interval_us
        for instance, seen in zip(self._instances, self.seen, strict=True):
            seen.in_flight = self.in_flight(instance.number)
            if not renews:
                continue
            leaving = [] if self.early else instance.leaving
            seen.waiting = len(instance.waiting)
            seen.running = len(instance.running) + len(leaving)
            seen.used = self.used_now(instance)
        if renews:
            self._refreshed_us = now
        if self._delay_us and now - self._cached_us >= self._delay_us:
            self._cached_us = now
            self._caches = [instance.pool.all_visible(self._results_until) for instance in self._instances]
            self._adapters = [
                [] if instance.shelf is None else list(instance.shelf.there) for instance in self._instances
            ]

    def adapters(self, number: int) -> list[str]:
        """The LoRA adapters on an instance."""
        shelf = self._instances[number].shelf
        if self._delay_us or shelf is None:
            return self._adapters[number]
        return shelf.there

    def cached(self, number: int, job: Job) -> int:
        """Number of leading full blocks of a prompt's shareable part in this instance's cache."""
        instance, tokens = self._instances[number], job.tokens[: len(segment_tokens(job.request.segments))]
        size, found = instance.pool.size, 0
        while (found + 1) * size + instance.pool.ahead <= len(tokens):
            content = instance.pool.content(tokens, found)
            there = content in self._caches[number] if self._delay_us else self._has(instance, content)
            if not there:
                break
            found += 1
        return found

    def cached_now(self, number: int, job: Job, now: int) -> int:
        """The same with the current cache instead of a stale view."""
        instance, tokens = self._instances[number], job.tokens[: len(segment_tokens(job.request.segments))]
        size, found = instance.pool.size, 0
        while (found + 1) * size + instance.pool.ahead <= len(tokens) and instance.pool.visible(
            instance.pool.content(tokens, found), 1 << 100 if self.early else now
        ):
            found += 1
        return found

    def _has(self, instance: Instance, content: tuple[Token, ...]) -> bool:
        return instance.pool.visible(content, self._results_until)

    @property
    def _results_until(self) -> int:
        """Steps that have ended by then are visible."""
        return 1 << 100 if self.early else self.now


# Admission.


class Admission:
    """The admission policy and the tenants' budgets."""

    def __init__(self, experiment: Experiment, board: Board, jobs: Sequence[Job]) -> None:
        self.policy = experiment.policy
        self._config = experiment.policy.admission
        self._board = board
        self._jobs = jobs
        self._slots = sum(pool.instances * pool.engine.max_num_seqs for pool in experiment.pools)
        self._level = number_of(self._config, "capacity_tokens") if self._config.kind == "token-bucket" else 0.0
        self._filled_us = 0

    def refusal(self, job: Job, now: int) -> tuple[str, str]:
        budgets = self.policy.tenant_budgets
        if budgets is not None and budgets.checked == "before-admission" and (over := self._over_budget(job)):
            return "tenant-budget", over
        if reason := self._by_policy(job, now):
            return self._config.kind, reason
        if budgets is not None and budgets.checked == "after-admission" and (over := self._over_budget(job)):
            return "tenant-budget", over
        return "", ""

    def _over_budget(self, job: Job) -> str:
        budgets, tenant = self.policy.tenant_budgets, job.request.tenant
        assert budgets is not None
        if tenant not in budgets.fractions or urgency(self.policy, job) >= budgets.shed_below_priority:
            return ""
        there = sum(len(other.counted) for other in self._jobs if other.request.tenant == tenant)
        limit = budgets.fractions[tenant] * self._slots
        return f"{there} in flight, the budget of {tenant} is {limit:g}" if there > limit else ""

    def _by_policy(self, job: Job, now: int) -> str:
        config, kind = self._config, self._config.kind
        if kind == "reject-all":
            return "reject-all"
        if kind == "token-bucket":
            rate = number_of(config, "refill_tokens_per_s")
            self._level = min(number_of(config, "capacity_tokens"), self._level + (now - self._filled_us) * rate / 1e6)
            self._filled_us = now
            if job.request.input_tokens > self._level:
                return "insufficient tokens"
            self._level -= job.request.input_tokens
        if kind == "tier-shed":
            busiest = max(seen.load for seen in self._board.seen)
            spared = urgency(self.policy, job) >= number_of(config, "min_priority")
            return "tier shed" if busiest > number_of(config, "overload_threshold") and not spared else ""
        if kind == "gaie-legacy" and urgency(self.policy, job) < 0:
            return "saturated" if saturation(config, self._board.seen) >= 1 else ""
        return ""


def urgency(policy: Policy, job: Job) -> int:
    return policy.slo_priorities.get(job.request.slo_class, 3)


def saturation(config: PluginConfig, fleet: Sequence[Seen]) -> float:
    """Saturation of the instances; for ``gaie-legacy`` and ``utilization`` the mean of the worse of two ratios."""
    if config.kind == "never":
        return 0.0
    if config.kind == "concurrency":
        return sum(instance.in_flight for instance in fleet) / (len(fleet) * number_of(config, "max_concurrency"))
    queue, kv = number_of(config, "queue_depth_threshold"), number_of(config, "kv_utilization_threshold")
    level = 0.0
    for instance in fleet:
        level += max(instance.waiting / queue, instance.used / instance.total / kv)
    return level / len(fleet)


# Routing.


class Memory:
    """The blocks that were sent to an instance most recently; lookups do not refresh them."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._blocks: list[tuple[Token, ...]] = []

    def leading(self, job: Job, size: int) -> int:
        found = 0
        for content in _blocks(job, size):
            if content not in self._blocks:
                break
            found += 1
        return found

    def record(self, job: Job, size: int) -> None:
        for content in _blocks(job, size):
            if content in self._blocks:
                self._blocks.remove(content)
            self._blocks.append(content)
            if len(self._blocks) > self._capacity:
                self._blocks.pop(0)


def _blocks(job: Job, size: int) -> list[tuple[Token, ...]]:
    """Contents of the full blocks of a prompt, each with everything before it."""
    return [tuple(job.tokens[: end * size]) for end in range(1, job.request.input_tokens // size + 1)]


@dataclass
class Scorer:
    """One scorer with its memory."""

    config: PluginConfig
    memories: dict[int, Memory] = field(default_factory=dict)
    cold: list[int] = field(default_factory=list)


class Router:
    """Chooses one of several instances."""

    def __init__(
        self, config: PluginConfig, members: Sequence[int], board: Board, *, seed: int, path: str, size: int
    ) -> None:
        self.kind = config.kind
        self.members = members
        self.size = size
        self._config = config
        self._board = board
        self._stream = Stream(stream_key(seed, path))
        self._turns = 0
        self._homes: dict[str, int] = {}
        listed = config.settings.get("scorers", ())
        assert isinstance(listed, tuple)
        self._scorers = [Scorer(one) for one in listed if isinstance(one, PluginConfig)]

    def choose(self, job: Job) -> tuple[int, str]:
        fleet = [self._board.seen[number] for number in self.members]
        if self.kind == "round-robin":
            self._turns += 1
            return self.members[(self._turns - 1) % len(fleet)], f"turn {self._turns - 1}"
        if self.kind == "always-busiest":
            busiest = max(fleet, key=lambda instance: instance.load)
            return busiest.number, f"load {busiest.load}"
        if self.kind == "power-of-two":
            return self._of_some(fleet)
        if self.kind == "weighted":
            return self._by_scores(job, fleet)
        session = job.request.session_id if self.kind == "session-affinity" else ""
        if self._homes.get(session) in self.members:
            return self._homes[session], f"session {session}"
        least = min(instance.load for instance in fleet)
        chosen = self._draw([instance.number for instance in fleet if instance.load == least])
        if session:
            self._homes[session] = chosen
        return chosen, f"load {least}"

    def forget(self, number: int) -> None:
        """An instance is gone, with its cache."""
        self._homes = {session: home for session, home in self._homes.items() if home != number}
        for scorer in self._scorers:
            scorer.memories.pop(number, None)
            scorer.cold = [other for other in scorer.cold if other != number]

    def _draw(self, equals: Sequence[int]) -> int:
        """Break a tie by a draw; without a tie nothing is drawn."""
        return equals[0] if len(equals) == 1 else equals[self._stream.below(len(equals))]

    def _of_some(self, fleet: Sequence[Seen]) -> tuple[int, str]:
        """The least loaded of the first few instances of a shuffle; of equals the first drawn."""
        order = list(fleet)
        count = min(int(number_of(self._config, "choices")), len(order))
        for at in range(count):
            other = at + self._stream.below(len(order) - at)
            order[at], order[other] = order[other], order[at]
        best = min(order[:count], key=lambda seen: seen.load)
        return best.number, f"load {best.load} of {count} drawn"

    def _by_scores(self, job: Job, fleet: Sequence[Seen]) -> tuple[int, str]:
        weights = [number_of(one.config, "weight") for one in self._scorers]
        sums = dict.fromkeys(self.members, 0.0)
        for scorer, weight in zip(self._scorers, weights, strict=True):
            for instance, score in zip(fleet, self._scores(scorer, job, fleet), strict=True):
                sums[instance.number] += weight / sum(weights) * min(max(score, 0.0), 1.0)
        best = max(sums.values())
        chosen = self._draw([number for number, score in sums.items() if score == best])
        hit = any(self._board.cached(instance.number, job) for instance in fleet)
        for scorer in self._scorers:
            if scorer.config.kind == "prefix-affinity":
                capacity = int(number_of(scorer.config, "capacity_blocks"))
                scorer.memories.setdefault(chosen, Memory(capacity)).record(job, self.size)
            if scorer.config.kind == "no-hit-lru" and not hit:
                scorer.cold = [number for number in scorer.cold if number != chosen] + [chosen]
        return chosen, f"score {best:.6f}"

    def _scores(self, scorer: Scorer, job: Job, fleet: Sequence[Seen]) -> list[float]:
        """The table of scorers."""
        kind, config = scorer.config.kind, scorer.config
        cached = [self._board.cached(instance.number, job) for instance in fleet]
        most = max(instance.in_flight for instance in fleet)
        if kind == "prefix-affinity":
            blocks = job.request.input_tokens // self.size
            known = [scorer.memories.get(instance.number, Memory(1)).leading(job, self.size) for instance in fleet]
            return [count / blocks if blocks else 0.0 for count in known]
        if kind == "precise-prefix-cache":
            if min(cached) == max(cached):
                return [1.0 if max(cached) else number_of(config, "nobody_has_it")] * len(fleet)
            return [(count - min(cached)) / (max(cached) - min(cached)) for count in cached]
        if kind == "no-hit-lru":
            return _cold_ranks(scorer.cold, [instance.number for instance in fleet], hit=any(cached))
        if kind == "queue-depth":
            by_load = config.settings["signal"] == "effective-load"
            return _least_first([instance.load if by_load else instance.waiting for instance in fleet])
        if kind == "lora-affinity":
            return [
                float(not job.adapter or job.adapter in self._board.adapters(instance.number)) for instance in fleet
            ]
        if kind == "running-requests":
            return _least_first([instance.running for instance in fleet])
        if kind == "vllm-dp":
            return _least_first([4 * instance.waiting + instance.running for instance in fleet])
        return [
            {
                "kv-utilization": 1 - instance.used / instance.total,
                "load-balance": 1 / (1 + instance.load),
                "active-requests": (most - instance.in_flight) / most if most else 1.0,
                "load-aware": 0.5 * (1 - min(instance.waiting, 128) / 128),
            }[kind]
            for instance in fleet
        ]


def _least_first(values: Sequence[int]) -> list[float]:
    low, high = min(values), max(values)
    return [1.0 if low == high else (high - value) / (high - low) for value in values]


def _cold_ranks(cold: Sequence[int], numbers: Sequence[int], *, hit: bool) -> list[float]:
    """Unused instances first, then the one that got a cold prompt least recently."""
    if hit:
        return [0.5] * len(numbers)
    if len(numbers) == 1:
        return [1.0]
    order = [number for number in numbers if number not in cold] + [number for number in cold if number in numbers]
    return [1 - order.index(number) / (len(numbers) - 1) for number in numbers]
