"""The autoscaler, written as plainly as possible."""

from __future__ import annotations

from math import ceil
from typing import TYPE_CHECKING

from blis_tui.base.streams import Stream, stream_key
from blis_tui.cluster.records import Scaled, ScalingDecided
from blis_tui.engine.request import RequestState

from .nodes import delay_us, gpus_of

if TYPE_CHECKING:
    from blis_tui.model import Autoscaler

    from .mortal import MortalOracle

UP = ("warming-up", "active")
COMING = ("scheduling", "loading")
_UNENDED = (RequestState.CREATED, RequestState.WAITING, RequestState.RUNNING)


class Scaler:
    """Checks the cluster periodically; all instances are interchangeable."""

    def __init__(self, oracle: MortalOracle, settings: Autoscaler) -> None:
        self.oracle = oracle
        self.settings = settings
        self.specs = oracle.experiment.pools
        self.stream = Stream(stream_key(oracle.experiment.seed, "autoscaler/scrape-delay"))
        self.orders: list[tuple[int, int, str]] = []
        """Pool, change and reason of each decision that has not taken effect."""
        self.missing_since: int | None = None
        self.spare_since: int | None = None
        self.seen = self.progress()
        self.seen_us = 0
        self.impatient = False

    def ordered(self, pool: int) -> int:
        return sum(change for of, change, _ in self.orders if of == pool)

    def count(self, pool: int) -> int:
        """Instances that are up, on their way, ordered, or under repair."""
        oracle = self.oracle
        there = [
            number
            for number, state in enumerate(oracle.states)
            if oracle.homes[number] == pool and (state in (*UP, *COMING) or oracle.returns(number))
        ]
        return len(there) + self.ordered(pool)

    def bounds(self, pool: int) -> tuple[int, int]:
        return self.settings.bounds[self.specs[pool].name]

    def room(self, pool: int) -> int:
        """How many instances more it may have: by its own limit, and with the GPUs that nobody holds or will hold."""
        own = self.bounds(pool)[1] - self.count(pool)
        if self.settings.max_gpus is None:
            return own
        oracle, free = self.oracle, self.settings.max_gpus
        for number, state in enumerate(oracle.states):
            if state in (*UP, *COMING, "draining") or oracle.returns(number):
                free -= gpus_of(self.specs[oracle.homes[number]])
        for of, change, _ in self.orders:
            free -= max(change, 0) * gpus_of(self.specs[of])
        return min(own, free // gpus_of(self.specs[pool]))

    def one_supplies(self, pool: int) -> float:
        engine = self.specs[pool].engine
        return engine.kv_blocks * engine.block_size_tokens * self.settings.kv_utilization_threshold

    def look(self, now: int) -> bool:
        verdict, pool, count, reason = self._decide(now)
        if verdict.startswith("scale"):
            change = count if verdict == "scale-up" else -count
            order = (pool, change, reason)
            self.orders.append(order)
            delay = delay_us(self.settings.scrape_delay, self.stream)
            self.oracle.later(now + delay, lambda now: self._act(order, now))
        if self.progress() != self.seen:
            self.seen, self.seen_us = self.progress(), now
        scrape = self.settings.scrape_delay
        windows = self.settings.scale_up_window_us + self.settings.scale_down_window_us
        longest = self.settings.interval_us + windows + scrape.mean_us + 6 * scrape.std_dev_us
        self.impatient = now - self.seen_us >= 10 * longest
        undecided = self.missing_since is not None or self.spare_since is not None
        if undecided or self.oracle.anything_to_come():
            self.oracle.later(now + self.settings.interval_us, self.look)
        return True

    def progress(self) -> tuple[int, int, int]:
        """Numbers of arrived and finished requests, and of routings."""
        arrived = self.oracle.arrived
        ended = len([job for job in arrived if job.state not in _UNENDED])
        return len(arrived), ended, sum(instance.routed for instance in self.oracle.instances)

    def gave_up(self) -> bool:
        return self.impatient and self.seen == self.progress()

    def may_help(self) -> bool:
        """Whether it could still add an instance."""
        oracle = self.oracle
        pools = range(len(self.specs))
        return not self.gave_up() and any(
            self.count(pool) < self.bounds(pool)[1]
            or any(state in COMING for home, state in zip(oracle.homes, oracle.states, strict=True) if home == pool)
            for pool in pools
        )

    def _decide(self, now: int) -> tuple[str, int, int, str]:
        oracle, settings = self.oracle, self.settings
        demand = 0
        supply = coming = 0.0
        waiting = len(oracle.stranded)
        for number, (instance, state) in enumerate(zip(oracle.instances, oracle.states, strict=True)):
            one = self.one_supplies(oracle.homes[number])
            if state in UP:
                supply += one
                demand += oracle.board.used_now(instance) * instance.pool.size
                waiting += len(instance.waiting)
            elif state in COMING:
                coming += one
        for pool in range(len(self.specs)):
            coming += max(self.ordered(pool), 0) * self.one_supplies(pool)
        demand += waiting * settings.avg_input_tokens
        missing = demand / settings.scale_up_threshold - (supply + coming)
        spare = supply - demand / settings.scale_down_boundary
        counts = f"demand {demand:,}, supply {int(supply + coming):,} tokens"
        verdict, pool, count, reason = self._judge(now, demand, missing, spare, counts)
        figures = (demand, int(supply), int(coming), ceil(max(missing, 0.0)), int(max(spare, 0.0)))
        name = "" if pool < 0 else self.specs[pool].name
        self.oracle.records.append(ScalingDecided(oracle.events, now, verdict, name, count, *figures, reason))
        return verdict, pool, count, reason

    def _judge(self, now: int, demand: int, missing: float, spare: float, figures: str) -> tuple[str, int, int, str]:
        for pool, spec in enumerate(self.specs):
            count, least = self.count(pool), self.bounds(pool)[0]
            if count < least and self.room(pool) > 0:
                more = min(least - count, self.room(pool))
                return "scale-up", pool, more, f"{count} of at least {least} in {spec.name}"
        if missing > 0:
            self.spare_since = None
            reason = f"{ceil(missing):,} tokens missing ({figures})"
            able = [pool for pool in self._cheapest_first() if self.room(pool) > 0]
            if not able:
                self.missing_since = None
                below = any(self.count(pool) < self.bounds(pool)[1] for pool in range(len(self.specs)))
                why = "the other GPUs are in use (max_gpus)" if below else "every pool is at its maximum"
                return "hold", -1, 0, f"{reason}, but {why}"
            pool = able[0]
            count = min(self.room(pool), ceil(missing / self.one_supplies(pool)))
            if self.missing_since is None:
                self.missing_since = now
            if now - self.missing_since < self.settings.scale_up_window_us:
                return "wait", pool, count, f"{reason}, within the stabilization window"
            self.missing_since = None
            return "scale-up", pool, count, reason
        self.missing_since = None
        pool, count, but = self._too_many(demand, spare)
        reason = f"{int(spare):,} tokens to spare ({figures})"
        if not count:
            self.spare_since = None
            return "hold", -1, 0, f"{reason}, but {but}" if but else f"enough and not too much ({figures})"
        if self.spare_since is None:
            self.spare_since = now
        if now - self.spare_since < self.settings.scale_down_window_us:
            return "wait", pool, count, f"{reason}, within the stabilization window"
        self.spare_since = None
        return "scale-down", pool, count, reason

    def _too_many(self, demand: int, spare: float) -> tuple[int, int, str]:
        """The most expensive pool that can do with fewer instances, and how many can go; else what keeps them."""
        pools = range(len(self.specs))
        everybody = sum(self.count(pool) for pool in pools)
        nothing_to_do = not demand and all(job.state not in _UNENDED for job in self.oracle.arrived)
        last = everybody == 1 and nothing_to_do
        largest = max((self.one_supplies(pool) for pool in pools if self.count(pool)), default=0.0)
        if spare <= largest and not last:
            return -1, 0, ""
        if any(self.ordered(pool) < 0 for pool in pools):  # one order at a time
            return -1, 0, "a removal is pending"
        stay = 0 if nothing_to_do else 1
        if everybody <= stay:
            return -1, 0, "the last instance stays while there is work"
        for pool in reversed(self._cheapest_first()):
            can_go = min(self.count(pool) - self.bounds(pool)[0], everybody - stay)
            if can_go > 0:
                return pool, min(can_go, max(1, int(spare / self.one_supplies(pool)))), ""
        return -1, 0, "every pool is at its minimum"

    def _cheapest_first(self) -> list[int]:
        nodes = self.oracle.nodes
        costs = [None if nodes is None else nodes.cost(spec) for spec in self.specs]
        if None in costs:
            costs = [float(gpus_of(spec)) for spec in self.specs]
        return sorted(range(len(self.specs)), key=lambda pool: (costs[pool] or 0.0, pool))

    def _act(self, order: tuple[int, int, str], now: int) -> bool:
        self.orders.remove(order)
        pool, change, reason = order
        oracle = self.oracle
        there = [
            number
            for number, state in enumerate(oracle.states)
            if oracle.homes[number] == pool and state in (*UP, *COMING)
        ]
        if change < 0:
            change = -max(0, min(-change, self.count(pool) - self.bounds(pool)[0], len(there)))
        oracle.records.append(Scaled(oracle.events, now, self.specs[pool].name, change, reason))
        for number in reversed(there[len(there) + change :] if change < 0 else []):
            oracle.drain(number, now)
        for _ in range(change):
            oracle.add(pool, now)
        return True
