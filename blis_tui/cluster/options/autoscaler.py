"""The autoscaler: compares KV demand with the instances' capacity, as BLIS' analyzer does.

    supply   = sum over instances of KV capacity x kv_utilization_threshold
    demand   = sum over instances of KV tokens in use + waiting requests x avg_input_tokens
    required = demand / scale_up_threshold - (supply + that of instances being started)
    spare    = supply - demand / scale_down_boundary

All figures are tokens. It adds instances to the cheapest pool, and removes the latest ones of the most expensive pool.
Each model is scaled separately, and under disaggregation each role: only pools of the same model and role can replace
each other. A rule, such as that of Kubernetes' HorizontalPodAutoscaler, may say instead how many there should be.

Of the GPUs that all pools may hold together (``max_gpus``), those whose demand is largest for their supply get theirs
first.
"""

from __future__ import annotations

from functools import partial
from math import ceil, inf
from operator import index
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import SimulationError
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum
from blis_tui.cluster.options.placement import draw
from blis_tui.cluster.policy import SCALING, InstanceLoad, ScaledGroup
from blis_tui.cluster.records import Scaled, ScalingDecided
from blis_tui.cluster.routed_request import LIFECYCLE, BackgroundEvent
from blis_tui.cluster.stages import CANDIDATES, DRAINING, FAILED, STARTING, NoAutoscaler, accelerators
from blis_tui.engine.events import Revocable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from blis_tui.base.streams import Streams
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.cluster.policy import ScalingRule
    from blis_tui.cluster.routed_request import RoutedRequest
    from blis_tui.cluster.stages import InstanceLife, Lives
    from blis_tui.engine.instance import Instance
    from blis_tui.model import Autoscaler, Pool
    from blis_tui.model.plug_ins import Registry

_NO_ROOM: Final = "every pool is at its maximum"
_NO_GPU: Final = "the other GPUs are in use (max_gpus)"
ENOUGH: Final = "enough and not too much"
"""Reason to change nothing: no supply is missing, and not too much of it is spare."""
_HOLDING: Final = CANDIDATES | STARTING | {DRAINING}
"""States in which an instance holds its GPUs, or waits for them."""
_NEVER: Final = -1
_ANSWER_LENGTH: Final = 2
"""Length of a rule's answer."""
_MAX_FUTILE_DECISIONS: Final = 10
"""Number of decisions it may take while all requests wait for an instance that only it could add."""
_MAX_DELAY_SIGMAS: Final = 6
"""Delays are expected to stay within this number of standard deviations."""


class _Balance(NamedTuple):
    """Demand and supply in KV tokens."""

    demand: int
    supply: float
    pending: float
    required: float
    spare: float


class _Arrivals(Picklable):
    """Counts arriving requests by the model that they name, on their way to the first stage."""

    def __init__(self, entrance: Callable[[RoutedRequest, int], int]) -> None:
        self.by_model: dict[str, int] = {}
        self._entrance = entrance

    def enter(self, routed: RoutedRequest, now: int) -> int:
        """Count a request, and pass it on."""
        model = routed.incoming.model
        self.by_model[model] = self.by_model.get(model, 0) + 1
        return self._entrance(routed, now)


class AutoscalerControl(NoAutoscaler):
    """Examines the cluster every ``interval_us`` and decides; a decision takes effect after the scrape delay."""

    scales = True

    def __init__(
        self,
        settings: Autoscaler,
        pools: tuple[Pool, ...],
        plugins: Registry,
        lifecycle: Lives,
        pipeline: Pipeline,
        streams: Streams,
    ) -> None:
        super().__init__()
        self._settings = settings
        self._pools = pools
        self._lifecycle = lifecycle
        self._pipeline = pipeline
        self._stream = streams.stream("autoscaler/scrape-delay")
        self._ordered = [0] * len(pools)
        """Instances by pool that a decision adds (or, negative, removes) but that has not taken effect yet."""
        self._groups: dict[tuple[str, str], list[int]] = {}
        """The pools of each role and model."""
        for at, pool in enumerate(pools):
            self._groups.setdefault((pool.role, pool.model.name), []).append(at)
        self._models = dict.fromkeys(model for _, model in self._groups)
        self._up_since_us = [_NEVER] * len(self._groups)
        self._down_since_us = [_NEVER] * len(self._groups)
        delay = settings.scrape_delay
        self._patience_us = _MAX_FUTILE_DECISIONS * (
            settings.interval_us
            + settings.scale_up_window_us
            + settings.scale_down_window_us
            + delay.mean_us
            + _MAX_DELAY_SIGMAS * delay.std_dev_us
        )
        self._seen = self._progress()
        self._seen_us = 0
        """When it last saw progress."""
        self._gave_up = False
        self._rule = (
            None
            if settings.rule is None
            else plugins.create(SCALING, settings.rule.kind, settings.rule.settings, settings)
        )
        self._arrivals: _Arrivals | None = None
        """What has arrived for each of several models, if a rule asks."""

    def begin(self) -> None:
        """Schedule the first evaluation."""
        self._schedule_evaluation(self._settings.interval_us)

    def counted(self, entrance: Callable[[RoutedRequest, int], int]) -> Callable[[RoutedRequest, int], int]:
        """Count requests by model where a rule has several; those of one model are counted anyway."""
        if self._rule is None or len(self._models) == 1:
            return entrance
        self._arrivals = _Arrivals(entrance)
        return self._arrivals.enter

    def state(self) -> tuple[object, ...]:
        """Return what it remembers, as plain values (for digests)."""
        return (
            tuple(self._ordered),
            (tuple(self._up_since_us), tuple(self._down_since_us)),
            self._stream.state(),
            tuple(self.scaled),
            (self._seen, self._seen_us, self._gave_up),
            *(() if self._rule is None else self._rule.state()),
            *(() if self._arrivals is None else sorted(self._arrivals.by_model.items())),
        )

    def may_add(self, pool: int) -> bool:
        """Whether it may still add an instance to a pool."""
        return self._count(pool) < self._bounds(pool)[1]

    @property
    def gave_up(self) -> bool:
        """Whether it has failed for long enough to bring an instance to any request, and nothing has changed since."""
        return self._gave_up and self._seen == self._progress()

    # ---- evaluation ----

    def _schedule_evaluation(self, time_us: int) -> None:
        self._pipeline.queue.push(
            time_us, LIFECYCLE, BackgroundEvent("autoscaler", self._pipeline, None, self._evaluate)
        )

    def _evaluate(self, event: BackgroundEvent, now: int) -> bool:  # noqa: ARG002
        for group, (role, model) in self._in_turn():
            self._decide(group, role, model, now)
        self._note_progress(now)
        # If nothing else will ever happen, the evaluation does not change, unless a window is still running.
        waiting = any(since != _NEVER for since in (*self._up_since_us, *self._down_since_us))
        if waiting or any(not entry[3].stale for entry in self._pipeline.queue.entries()):
            self._schedule_evaluation(now + self._settings.interval_us)
        return True

    def _in_turn(self) -> list[tuple[int, tuple[str, str]]]:
        """Return the roles and models in the order of decisions: where GPUs are limited, the fullest first."""
        groups = list(enumerate(self._groups))
        if self._settings.max_gpus is None or len(groups) == 1:
            return groups

        def fullness(group: tuple[int, tuple[str, str]]) -> float:
            balance = self._measure_balance(self._groups[group[1]], group[1][1])
            supply = balance.supply + balance.pending
            return balance.demand / supply if supply else inf if balance.demand else 0.0

        return sorted(groups, key=fullness, reverse=True)  # stable: equal ones in the order of their pools

    def _note_progress(self, now: int) -> None:
        """Give up after a while without progress, as instances that fail and return could go on like that for ever."""
        seen = self._progress()
        if seen != self._seen:
            self._seen, self._seen_us = seen, now
        self._gave_up = now - self._seen_us >= self._patience_us

    def _progress(self) -> tuple[int, int, int]:
        """Return the numbers of requests that arrived, that ended, and that were sent to an instance."""
        routed = whole_sum([instance.routed for instance in self._pipeline.registry.instances])
        return self._pipeline.arrived, self._pipeline.closed(), routed

    def _decide(self, group: int, role: str, model: str, now: int) -> None:
        pools = self._groups[role, model]
        balance = self._measure_balance(pools, model)
        if self._rule is None:
            verdict, pool, count, reason = self._judge(group, pools, balance, now)
        else:
            balance = balance._replace(required=0.0, spare=0.0)
            verdict, pool, count, reason = self._follow(self._rule, self._group(role, model, pools), pools, now)
        if len(self._groups) > 1:
            reason = f"{self._label(role, model)}: {reason}"
        self._pipeline.observers.tell(
            ScalingDecided,
            now,
            verdict,
            "" if pool is None else self._pools[pool].name,
            count,
            balance.demand,
            int(balance.supply),
            int(balance.pending),
            ceil(max(balance.required, 0.0)),
            int(max(balance.spare, 0.0)),
            reason,
        )
        if pool is not None and verdict.startswith("scale"):
            change = count if verdict == "scale-up" else -count
            self._ordered[pool] += change
            delay = draw(self._settings.scrape_delay, self._stream)
            order = Revocable("scaling", self._is_late, partial(self.act, pool, change, reason))
            self._pipeline.queue.push(now + delay, LIFECYCLE, order)

    def _measure_balance(self, pools: Sequence[int], model: str) -> _Balance:
        settings, pipeline, lives = self._settings, self._pipeline, self._lifecycle.lives
        demand = 0
        supply = pending = 0.0
        waiting = self._waiting(model)
        for life, instance in zip(lives, pipeline.registry.instances, strict=True):
            if life.pool not in pools:
                continue
            if life.state in CANDIDATES:
                supply += self._capacity(life.pool)
                demand += instance.seen.kv_used * instance.pool.block_size_tokens
                waiting += len(instance.waiting.items)
            elif life.state in STARTING:
                pending += self._capacity(life.pool)
        for pool in pools:
            pending += max(self._ordered[pool], 0) * self._capacity(pool)
        demand += waiting * settings.avg_input_tokens
        required = demand / settings.scale_up_threshold - (supply + pending)
        return _Balance(demand, supply, pending, required, supply - demand / settings.scale_down_boundary)

    def _label(self, role: str, model: str) -> str:
        """Return what tells a role and model from the others."""
        if len(self._models) == 1:
            return role
        roles = dict.fromkeys(role for role, _ in self._groups)
        return model if len(roles) == 1 else f"{role} of {model}"

    def _waiting(self, model: str) -> int:
        """Number of requests outside all instances that could run on those of a model."""
        parked, gateway = self._lifecycle.parked, self._pipeline.gateway
        if len(self._models) == 1:
            return len(parked) + gateway.waiting
        return whole_sum([routed.incoming.model in ("", model) for routed in (*parked.values(), *gateway.held())])

    def _capacity(self, pool: int) -> float:
        engine = self._pools[pool].engine
        return engine.kv_blocks * engine.block_size_tokens * self._settings.kv_utilization_threshold

    # ---- decisions by a rule ----

    def _group(self, role: str, model: str, pools: Sequence[int]) -> ScaledGroup:
        """Return the figures of the instances of a role and model."""
        loads = [
            load_of(instance)
            for life, instance in zip(self._lifecycle.lives, self._pipeline.registry.instances, strict=True)
            if life.pool in pools and life.state in CANDIDATES
        ]
        kv = 0.0
        for load in loads:
            kv += load.kv_utilization
        bounds = [self._bounds(pool) for pool in pools]
        return ScaledGroup(
            name=self._label(role, model) if len(self._groups) > 1 else "default",
            instances=whole_sum([self._count(pool) for pool in pools]),
            serving=len(loads),
            running=whole_sum([load.running for load in loads]),
            waiting=whole_sum([load.waiting for load in loads]),
            outside=self._waiting(model),
            kv_utilization=kv,
            role=role,
            least=whole_sum([least for least, _ in bounds]),
            most=whole_sum([most for _, most in bounds]),
            arrived=self._arrived(model),
            loads=tuple(loads),
        )

    def _arrived(self, model: str) -> int:
        """Number of requests that have arrived and could run on instances of a model."""
        if self._arrivals is None:
            return self._pipeline.arrived
        counts = self._arrivals.by_model
        return counts.get(model, 0) + counts.get("", 0)

    def _follow(
        self, rule: ScalingRule, group: ScaledGroup, pools: Sequence[int], now: int
    ) -> tuple[str, int | None, int, str]:
        """Return verdict, pool, number of instances, and reason: what a rule wants, as far as a pool has room."""
        wanted, reason = self._wanted(rule, group, now)
        counts = {pool: self._count(pool) for pool in pools}
        if (refill := self._refill(counts)) is not None:
            return refill
        if wanted > group.instances:
            for pool in self._by_cost(counts):
                if (room := self._room(pool, counts[pool])) > 0:
                    return "scale-up", pool, min(room, wanted - group.instances), reason
            return "hold", None, 0, f"{reason}, but {self._why_no_room(counts)}"
        if wanted < group.instances:
            for pool in reversed(self._by_cost(counts)):
                if (spare := counts[pool] - self._bounds(pool)[0]) > 0:
                    return "scale-down", pool, min(spare, group.instances - wanted), reason
            return "hold", None, 0, f"{reason}, but every pool is at its minimum"
        return "hold", None, 0, reason

    def _wanted(self, rule: ScalingRule, group: ScaledGroup, now: int) -> tuple[int, str]:
        """Return the answer of a rule.

        Raises:
            SimulationError: it is not a pair of a number of instances and a reason.
        """
        asked: Callable[..., object] = rule.wanted  # a plug-in may answer anything
        answer = asked(group, now)
        if isinstance(answer, tuple | list) and len(answer) == _ANSWER_LENGTH:
            wanted, why = answer
            if hasattr(wanted, "__index__") and isinstance(why, str):  # accepts NumPy integers, too
                return max(0, index(wanted)), why
        kind = "" if self._settings.rule is None else self._settings.rule.kind
        raise SimulationError(
            f"the scaling rule `{kind}` answers {answer!r} at {now} us",
            help="`wanted` returns the number of instances that there should be, and a reason",
        )

    # ---- decisions by KV tokens ----

    def _refill(self, counts: Mapping[int, int]) -> tuple[str, int | None, int, str] | None:
        """Return the decision to bring a pool to its minimum; None = all have it."""
        for pool, count in counts.items():
            least = self._bounds(pool)[0]
            if count < least and (room := self._room(pool, count)) > 0:
                reason = f"{count} of at least {least} in {self._pools[pool].name}"
                return "scale-up", pool, min(room, least - count), reason
        return None

    def _judge(self, group: int, pools: Sequence[int], balance: _Balance, now: int) -> tuple[str, int | None, int, str]:
        """Return verdict, pool, number of instances, and reason."""
        counts = {pool: self._count(pool) for pool in pools}
        if (refill := self._refill(counts)) is not None:
            return refill
        figures = f"demand {balance.demand:,}, supply {int(balance.supply + balance.pending):,} tokens"
        if balance.required > 0.0:
            self._down_since_us[group] = _NEVER
            return self._judge_scale_up(
                group, balance, counts, now, f"{ceil(balance.required):,} tokens missing ({figures})"
            )
        self._up_since_us[group] = _NEVER
        choice = self._spare_instances(balance, counts)
        reason = f"{int(balance.spare):,} tokens to spare ({figures})"
        if isinstance(choice, str):
            self._down_since_us[group] = _NEVER
            return "hold", None, 0, f"{reason}, but {choice}" if choice else f"{ENOUGH} ({figures})"
        pool, count = choice
        if self._down_since_us[group] == _NEVER:
            self._down_since_us[group] = now
        if now - self._down_since_us[group] < self._settings.scale_down_window_us:
            return "wait", pool, count, f"{reason}, within the stabilization window"
        self._down_since_us[group] = _NEVER
        return "scale-down", pool, count, reason

    def _judge_scale_up(
        self, group: int, balance: _Balance, counts: Mapping[int, int], now: int, reason: str
    ) -> tuple[str, int | None, int, str]:
        for pool in self._by_cost(counts):
            room = self._room(pool, counts[pool])
            if room > 0:
                break
        else:
            self._up_since_us[group] = _NEVER
            return "hold", None, 0, f"{reason}, but {self._why_no_room(counts)}"
        count = min(room, ceil(balance.required / self._capacity(pool)))
        if self._up_since_us[group] == _NEVER:
            self._up_since_us[group] = now
        if now - self._up_since_us[group] < self._settings.scale_up_window_us:
            return "wait", pool, count, f"{reason}, within the stabilization window"
        self._up_since_us[group] = _NEVER
        return "scale-up", pool, count, reason

    def _spare_instances(self, balance: _Balance, counts: Mapping[int, int]) -> tuple[int, int] | str:
        """Return the most expensive pool with spare instances, and how many of them can go.

        If none can go, return what speaks against it; empty = the supply is not too large.
        """
        total = whole_sum(counts.values())
        idle = self._pipeline.arrived == self._pipeline.closed()
        largest = max((self._capacity(pool) for pool, count in counts.items() if count), default=0.0)
        # Scale to zero: the last instance goes only when there is no work at all.
        keep = 0 if idle and not balance.demand else 1
        if not (balance.spare > largest or (total == 1 and not keep)):
            return ""
        if min(self._ordered[pool] for pool in counts) < 0:
            return "a removal is pending"
        for pool in reversed(self._by_cost(counts)):
            spare = min(counts[pool] - self._bounds(pool)[0], total - keep)
            if spare > 0:
                return pool, min(spare, max(1, int(balance.spare / self._capacity(pool))))
        return "every pool is at its minimum" if total > keep else "the last instance stays while there is work"

    def _by_cost(self, numbers: Iterable[int]) -> list[int]:
        """Sort pools by cost, the cheapest first; if any cost is unknown, by accelerators per instance."""
        costs = [self._lifecycle.cost_per_hour(pool) for pool in self._pools]
        known = [cost for cost in costs if cost is not None]
        keys = known if len(known) == len(costs) else [float(accelerators(pool)) for pool in self._pools]
        return sorted(numbers, key=keys.__getitem__)

    def _bounds(self, pool: int) -> tuple[int, int]:
        return self._settings.bounds[self._pools[pool].name]

    def _room(self, pool: int, count: int) -> int:
        """Return how many instances a pool of ``count`` may get: up to its maximum, and with the GPUs that are left."""
        room = self._bounds(pool)[1] - count
        if self._settings.max_gpus is None:
            return room
        return min(room, (self._settings.max_gpus - self._gpus()) // accelerators(self._pools[pool]))

    def _gpus(self) -> int:
        """Number of GPUs that instances hold, or will: those that are drained still do."""
        there = [life.pool for life in self._lifecycle.lives if life.state in _HOLDING or self._comes_back(life)]
        ordered = [pool for pool, count in enumerate(self._ordered) for _ in range(count)]
        return whole_sum([accelerators(self._pools[pool]) for pool in (*there, *ordered)])

    def _why_no_room(self, counts: Mapping[int, int]) -> str:
        """Return why pools of these numbers of instances get no more."""
        return _NO_ROOM if all(count >= self._bounds(pool)[1] for pool, count in counts.items()) else _NO_GPU

    @staticmethod
    def _comes_back(life: InstanceLife) -> bool:
        return life.state == FAILED and life.returns

    def _count(self, pool: int) -> int:
        """Number of instances of a pool that are up, starting, ordered, or under repair."""
        count = self._ordered[pool]
        for life in self._lifecycle.lives:
            if life.pool == pool:
                count += life.state in CANDIDATES or life.state in STARTING or self._comes_back(life)
        return count

    # ---- actions ----

    def _is_late(self) -> bool:
        """Whether no request is left for which a decision could matter."""
        return self._pipeline.finished

    def act(self, pool: int, change: int, reason: str, now: int) -> None:
        """Let a decision take effect."""
        self._ordered[pool] -= change
        lifecycle, name = self._lifecycle, self._pools[pool].name
        if change < 0:
            there = lifecycle.of_pool(pool, CANDIDATES | STARTING)
            leaving = max(0, min(-change, self._count(pool) - self._bounds(pool)[0], len(there)))
            change = -leaving
        self.scaled.append((now, name, change, reason))
        self._pipeline.observers.tell(Scaled, now, name, change, reason)
        if change < 0:
            for index in there[: change - 1 : -1]:
                lifecycle.drain(index, now, "scaled down")
        for _ in range(change):
            lifecycle.add(pool, now, "scaled up")


def load_of(instance: Instance) -> InstanceLoad:
    """Return what an instance holds."""
    batch, used = instance.batch, instance.seen.kv_used
    queue = batch.waiting.first(None)
    fresh = [request for request in queue if not request.preemptions and not request.computed_tokens]
    begun = {request.index: request for request in queue if request.preemptions or request.computed_tokens}
    begun |= batch.reserved  # those whose blocks are on their way; with theirs there, they are in the queue, too
    return InstanceLoad(
        running=instance.seen.running,
        waiting=len(queue),
        kv_utilization=used / instance.pool.total,
        kv_tokens=instance.pool.total * instance.pool.block_size_tokens,
        decode_tokens=batch.load.decode_context_tokens,
        waiting_prompt_tokens=whole_sum([request.input_tokens for request in fresh]),
        waiting_decode_tokens=whole_sum([request.computed_tokens for request in begun.values()]),
        max_model_len=batch.limits.max_model_len or 0,
    )
