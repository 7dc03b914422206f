"""The life cycles of instances, their failures, and what happens to the requests of an instance that goes.

scheduling (no room on a node yet) -> loading -> warming-up -> active -> draining -> terminated; and failed, from which
a repair leads back to loading. Only warming and active instances are candidates for admission, gateway and router.

Steps are atomic: an instance that fails within a step counts as failed at once, and stops at the step's end.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from blis_tui import model as spec
from blis_tui.cluster.records import InstanceChanged, InstanceStopped, Lost, Retried, Stranded
from blis_tui.cluster.routed_request import LIFECYCLE, BackgroundEvent, RoutedRequest
from blis_tui.cluster.stages import (
    ACTIVE,
    CAN_FAIL,
    CANDIDATES,
    DRAINING,
    FAILED,
    LOADING,
    SCHEDULING,
    STARTING,
    TERMINATED,
    WARMING,
    InstanceLife,
    NoAutoscaler,
    NoLifecycle,
    UnlimitedPlacement,
)
from blis_tui.engine.client_times import client_ttft_us
from blis_tui.engine.events import Revocable
from blis_tui.engine.latency.wrappers import scaled_step_times
from blis_tui.engine.request import RequestState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.base.streams import Stream, Streams
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.cluster.router import Router
    from blis_tui.cluster.stages import Lives
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request
    from blis_tui.model import Failure


class Failures:
    """Schedules failures and executes them.

    A random failure is drawn when its instance comes up, from the stream ``failures/<entry>/<instance>``.
    """

    def __init__(self, settings: tuple[Failure, ...], lifecycle: Lives, pipeline: Pipeline, streams: Streams) -> None:
        self._settings = settings
        self._lifecycle = lifecycle
        self._pipeline = pipeline
        self._all_streams = streams
        self._streams: dict[tuple[int, int], Stream] = {}
        self.due: dict[tuple[int, int], int] = {}
        """(Entry, instance) -> time of the failure drawn last."""

    def plan(self) -> None:
        """Schedule the failures at given times."""
        for number, failure in enumerate(self._settings):
            if failure.at_us is not None:
                event = _PlannedFailure(self._pipeline, self._lifecycle, number, failure)
                self._pipeline.queue.push(failure.at_us, LIFECYCLE, event)

    def watch(self, index: int, now: int) -> None:
        """Draw when an instance that has come up will fail."""
        for number, failure in enumerate(self._settings):
            if failure.mean_time_between_us is None or not self._applies_to(failure, index):
                continue
            key = (number, index)
            if key not in self._streams:
                self._streams[key] = self._all_streams.stream(f"failures/{number}/{index}")
            time = now + max(1, int(self._streams[key].exponential() * failure.mean_time_between_us))
            self.due[key] = time
            is_off, strike = partial(self._is_off, key, time), partial(self.fail_at_random, number, index)
            self._pipeline.queue.push(time, LIFECYCLE, Revocable("failure", is_off, strike, instance_index=index))

    def _is_off(self, key: tuple[int, int], time_us: int) -> bool:
        """Whether an instance is gone before the failure drawn for it, or no request is left."""
        return self._pipeline.finished or self.due[key] != time_us or not self.alive(key[1])

    def fail_at_random(self, number: int, index: int, now: int) -> None:
        """Fail an instance at random."""
        self._lifecycle.fail(index, now, self._settings[number], "at random")

    def alive(self, index: int) -> bool:
        """Whether an instance can fail now."""
        return self._lifecycle.can_fail(index)

    def may_end(self, index: int) -> bool:
        """Whether an instance may still fail for good."""
        return self._lifecycle.can_fail(index) and any(
            failure.repair_us is None
            and self._applies_to(failure, index)
            and (failure.at_us is None or failure.at_us >= self._pipeline.now)
            for failure in self._settings
        )

    def state(self) -> tuple[object, ...]:
        """Return what has been drawn, as plain values (for digests)."""
        drawn = tuple((key, self._streams[key].state()) for key in sorted(self._streams))
        return (drawn, tuple(sorted(self.due.items())))

    def _applies_to(self, failure: Failure, index: int) -> bool:
        if failure.instance is not None:
            return failure.instance == index
        return failure.pool is None or failure.pool == self._lifecycle.pool_of(index).name


class _PlannedFailure(BackgroundEvent):
    """A failure at a given time."""

    def __init__(self, pipeline: Pipeline, lifecycle: Lives, number: int, failure: Failure) -> None:
        super().__init__("failure", pipeline, failure.instance, self._strike)
        self._lifecycle = lifecycle
        self._number = number
        self._failure = failure

    def _strike(self, event: BackgroundEvent, now: int) -> bool:  # noqa: ARG002
        failure, lifecycle = self._failure, self._lifecycle
        if failure.instance is not None:
            there = [failure.instance] if failure.instance < len(lifecycle.lives) else []
        else:
            there = [index for index in range(len(lifecycle.lives)) if lifecycle.can_fail(index)]
            there = [index for index in there if failure.pool in (None, lifecycle.pool_of(index).name)]
        for index in there:
            lifecycle.fail(index, now, failure, "as planned")
        return bool(there)


NAME: Final = "lifecycle"
"""Origin of rejections because no instance came up, in place of a policy's name."""


class LifecycleControl(NoLifecycle):
    """Manages the life cycles of all instances.

    Args:
        experiment: sets when instances come and go, and on which nodes.
        pipeline: the pipeline that it belongs to.
        streams: source of random streams.

    Attributes:
        placement: puts instances on nodes.
        autoscaler: adds and removes instances.
    """

    def __init__(self, experiment: spec.Experiment, pipeline: Pipeline, streams: Streams) -> None:
        super().__init__()
        settings = experiment.cluster
        self._wanted: dict[int, tuple[frozenset[str], str]] = {}
        """Roles and model of the instance that each parked request waits for."""
        self._settings = settings.lifecycle or spec.Lifecycle()
        self._pools = experiment.pools
        self._pipeline = pipeline
        self._registry = pipeline.registry
        self._hits: dict[int, int] = {}
        """Request index -> number of instances that have failed under it."""
        self._failures = Failures(settings.failures, self, pipeline, streams)
        self.placement = UnlimitedPlacement()
        if settings.nodes:
            from blis_tui.cluster.options.placement import Placement  # noqa: PLC0415  (imported only if configured)

            self.placement = Placement(settings.nodes, pipeline, streams, self._placed)
        self.autoscaler = NoAutoscaler()
        if settings.autoscaler is not None:
            from blis_tui.cluster.options.autoscaler import AutoscalerControl  # noqa: PLC0415  (as above)

            self.autoscaler = AutoscalerControl(
                settings.autoscaler, experiment.pools, experiment.plugins, self, pipeline, streams
            )

    def begin(self) -> None:
        """Start the initial instances warm, as far as there is room for them."""
        number = 0
        for pool, group in enumerate(self._pools):
            for _ in range(group.instances):
                self.lives.append(InstanceLife(pool))
                if self.placement.place(number, group):
                    self.lives[number].held_since_us = 0
                else:
                    self.lives[number].state = SCHEDULING
                number += 1
        for index, life in enumerate(self.lives):
            if life.state == ACTIVE:
                self._failures.watch(index, 0)
            else:
                self._registry.exclude(index)
        self.placement.provision(0)
        self._failures.plan()
        self.autoscaler.begin()

    def counted(self, entrance: Callable[[RoutedRequest, int], int]) -> Callable[[RoutedRequest, int], int]:
        """Let the autoscaler count the requests."""
        return self.autoscaler.counted(entrance)

    # ---- queries ----

    def pool_of(self, index: int) -> spec.Pool:
        """The pool of an instance."""
        return self._pools[self.lives[index].pool]

    def of_pool(self, pool: int, states: frozenset[str]) -> list[int]:
        """Return the instances of a pool that are in one of these states."""
        return [index for index, life in enumerate(self.lives) if life.pool == pool and life.state in states]

    def state_of(self, index: int) -> str:
        """Life-cycle state of an instance."""
        return self.lives[index].state

    @property
    def ready_nodes(self) -> int:
        """Number of nodes that are ready."""
        return self.placement.ready_nodes

    @property
    def scaled(self) -> tuple[tuple[int, str, int, str], ...]:
        """The autoscaler's actions: time, pool, change, reason."""
        return tuple(self.autoscaler.scaled)

    def node_us(self, now: int) -> list[int]:
        """Total time that the nodes of each pool have existed until now."""
        return self.placement.node_us(now)

    def can_fail(self, index: int) -> bool:
        """Whether an instance exists and can fail."""
        return self.lives[index].state in CAN_FAIL

    def cost_per_hour(self, pool: spec.Pool) -> float | None:
        """Cost of an instance of a pool; None = unknown."""
        return self.placement.cost_per_hour(pool)

    def held_us(self, index: int, now: int) -> int:
        """How long an instance has held its accelerators until now."""
        life = self.lives[index]
        return life.held_us + (now - life.held_since_us if life.held_since_us >= 0 else 0)

    def state(self) -> tuple[object, ...]:
        """Return everything as plain values (for digests)."""
        parts = [state for part in (self.placement, self.autoscaler) if (state := part.state())]
        return (
            tuple(life.values() for life in self.lives),
            tuple(self.parked),
            (self.forfeited_us, self.retried, self.failed, tuple(self._hits.items())),
            self._failures.state(),
            *parts,
        )

    # ---- start ----

    def add(self, pool: int, now: int, reason: str) -> None:
        """Add an instance to a pool; it starts when there is room for it."""
        instance = self._registry.create(self._pools[pool])
        self.lives.append(InstanceLife(pool, SCHEDULING))
        self._tell(instance.index, "", now, f"scheduled, {reason}")
        if self.placement.place(instance.index, self._pools[pool]):
            self._placed(instance.index, now)
        else:
            self.placement.provision(now)

    def _placed(self, index: int, now: int) -> None:
        """Start an instance for which there is room now."""
        self.lives[index].held_since_us = now
        self._load(index, now, "placed")

    def _load(self, index: int, now: int, reason: str) -> None:
        delay = self._settings.loading_delay_us
        if not delay:
            self._loaded(index, now, reason)
            return
        self.lives[index].loaded_us = now + delay
        self._set_state(index, LOADING, now, f"loading, {reason}")
        self.schedule_background(now + delay, "instance-loaded", index, self._load_ended)

    def _load_ended(self, event: BackgroundEvent, now: int) -> bool:
        index = _index(event)
        life = self.lives[index]
        if life.state != LOADING or life.loaded_us != now:  # it failed meanwhile, and may be loading again
            return False
        self._loaded(index, now, "loaded")
        return True

    def _loaded(self, index: int, now: int, reason: str) -> None:
        settings, life = self._settings, self.lives[index]
        if settings.warm_up_requests and settings.warm_up_factor > 1.0:
            life.served = 0
            self._slow_down(index, settings.warm_up_factor)
            self._set_state(index, WARMING, now, f"warming up, {reason}")
        else:
            self._set_state(index, ACTIVE, now, f"active, {reason}")
        self._failures.watch(index, now)
        self._resume_waiting(index, now)

    def _resume_waiting(self, index: int, now: int) -> None:
        """Resume requests that waited, because an instance has come up."""
        pipeline = self._pipeline
        parked, self.parked = self.parked, {}
        self._wanted.clear()
        for routed in parked.values():
            pipeline.dispatcher.go_on(routed, now)
        pipeline.gateway.wake(self._registry.instances[index].batch.limits.max_num_seqs, now)

    # ---- end ----

    def fail(self, index: int, now: int, failure: spec.Failure, reason: str) -> None:
        """Fail an instance."""
        life = self.lives[index]
        if life.state not in CAN_FAIL:
            self._tell(index, life.state, now, f"cannot fail {reason}: it is {life.state}")
            return
        life.returns = failure.repair_us is not None and life.state != DRAINING
        life.failure = failure
        self.failed += 1
        self._set_state(index, FAILED, now, f"failed, {reason}")
        self._stop_after_step(index, now)

    def drain(self, index: int, now: int, reason: str) -> None:
        """Send an instance no more requests; ``cluster.lifecycle.drain`` decides about its current ones."""
        life = self.lives[index]
        if life.state in STARTING:
            self._end(index, now, reason)
            return
        how = self._settings.drain
        self._set_state(index, DRAINING, now, f"draining, {reason}")
        instance = self._registry.instances[index]
        if how == "immediate":
            self._stop_after_step(index, now)
            return
        if how == "redirect":
            for request in list(instance.batch.of_clients(instance.waiting.ordered())):
                self._give_up(instance, request, now)
                self._retry(request, index, now)
        self.end_if_empty(index, now)

    def departed(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:  # noqa: ARG002
        """React to requests that no longer count as in flight."""
        requests = tuple(departed)
        for request in requests:
            index = request.instance
            if index < 0 or self.lives[index].state != WARMING:
                continue
            life = self.lives[index]
            life.served += 1
            if life.served >= self._settings.warm_up_requests:
                self._slow_down(index, 1.0)
                self._set_state(index, ACTIVE, now, f"active, warm after {life.served} requests")
        for request in requests:
            if request.instance >= 0:
                self.end_if_empty(request.instance, now)

    def end_if_empty(self, index: int, now: int) -> None:
        """End a draining instance when no request needs it or the KV blocks that it holds or expects."""
        if self.lives[index].state != DRAINING or self._registry.instances[index].seen.in_flight:
            return
        if not self._pipeline.dispatcher.is_transferring(index):
            self._registry.instances[index].forget_given_up(now)
            self._end(index, now, "drained")

    def _stop_after_step(self, index: int, now: int) -> None:
        """Stop an instance at the end of its step in flight, if any; in a pipeline, of the last one."""
        halted_us = self._registry.instances[index].halt()
        step_us = self._last_of(index, "step") if halted_us is None else halted_us
        end = max(step_us, self._last_of(index, "request-left"))
        if end <= now:
            self._stop(index, now)
        else:
            self.schedule_background(end, "instance-stopped", index, self._step_ended)

    def _step_ended(self, event: BackgroundEvent, now: int) -> bool:
        self._stop(_index(event), now)
        return True

    def _last_of(self, index: int, kind: str) -> int:
        """Time of an instance's last pending event of a kind; -1 = none is pending."""
        ends = [
            time
            for time, _, _, event in self._pipeline.queue.entries()
            if event.instance_index == index and event.kind == kind
        ]
        return max(ends, default=-1)

    def _stop(self, index: int, now: int) -> None:
        """Stop an instance; its requests and its cache are gone."""
        pipeline, life = self._pipeline, self.lives[index]
        instance = self._registry.instances[index]
        if instance.pool.tiers is not None:
            instance.pool.tiers.die(now)
        instance.forget_given_up(now)
        requests = [*instance.batch.running.values(), *instance.waiting.ordered()]
        pipeline.observers.tell(InstanceStopped, now, index, len(requests))
        for request in requests:
            self._give_up(instance, request, now)
            self._decide(request, index, now)
        pipeline.dispatcher.break_off(index, now)
        instance.abandon()
        self._registry.forget(index)
        if life.failure is not None and life.returns:
            self.schedule_background(now + (life.failure.repair_us or 0), "instance-repaired", index, self._repaired)
        elif life.state == FAILED:
            self._free(index, now)
        else:
            self.end_if_empty(index, now)

    def _repaired(self, event: BackgroundEvent, now: int) -> bool:
        self.lives[_index(event)].returns = False
        self._load(_index(event), now, "repaired")
        return True

    def _end(self, index: int, now: int, reason: str) -> None:
        self._set_state(index, TERMINATED, now, f"terminated, {reason}")
        self._registry.forget(index)
        self._free(index, now)

    def _free(self, index: int, now: int) -> None:
        """Free the accelerators of an instance for others."""
        life = self.lives[index]
        life.held_us, life.held_since_us = self.held_us(index, now), -1
        self.placement.free(index, now)

    # ---- requests ----

    def never_progresses(self, left: int) -> bool:
        """Whether all remaining requests wait for instances that will never come up."""
        if not self.needs_autoscaler(left):
            return False
        scaler = self.autoscaler
        return scaler.gave_up or not any(self._may_add(pool, scaler) for pool in self._wanted_pools())

    def needs_autoscaler(self, left: int) -> bool:
        """Whether all remaining requests wait for instances that only the autoscaler could add."""
        if len(self.parked) != left:
            return False
        wanted = self._wanted_pools()
        return not any(life.pool in wanted and self._will_serve(life) for life in self.lives)

    def _wanted_pools(self) -> list[int]:
        """Return the pools whose instances could serve one of the waiting requests."""
        wanted = dict.fromkeys(self._wanted.values())
        return [
            at
            for at, pool in enumerate(self._pools)
            if any(pool.role in roles and model in ("", pool.model.name) for roles, model in wanted)
        ]

    def _will_serve(self, life: InstanceLife) -> bool:
        """Whether an instance gets requests, or will without the autoscaler."""
        if life.state == SCHEDULING:
            return self._will_get_room(self._pools[life.pool])
        return life.state in CANDIDATES or life.state == LOADING or (life.state == FAILED and life.returns)

    def _will_get_room(self, pool: spec.Pool) -> bool:
        if self.placement.will_have_room(pool):
            return True
        # An instance that fails for good makes room, but an autoscaler may fill it with others again and again.
        return not self.autoscaler.scales and any(self._failures.may_end(index) for index in range(len(self.lives)))

    def _may_add(self, pool: int, scaler: NoAutoscaler) -> bool:
        """Whether the autoscaler may add an instance to a pool, or make room for one."""
        return scaler.may_add(pool) or bool(self.of_pool(pool, STARTING))

    def park_if_stranded(self, routed: RoutedRequest, router: Router, now: int) -> bool:
        """Whether no instance that this router could choose is up; if so, the request waits for one."""
        if router.of(routed.incoming).fleet.members:
            return False
        roles = next(roles for fleet, roles in self._registry.fleets if fleet is router.fleet)
        self._park(routed, roles, now)
        return True

    def _park(self, routed: RoutedRequest, roles: frozenset[str], now: int) -> None:
        """Park a request until there is an instance of these roles for it."""
        routed.kind = "stranded"
        pipeline, request = self._pipeline, routed.request
        self._wanted[request.index] = (roles, routed.incoming.model)
        self.parked[request.index] = routed
        pipeline.observers.tell(Stranded, now, request.request_id, len(self.parked))
        if request.deadline_us > 0:
            is_off, expire = partial(self._has_left, routed), partial(self.expire, request)
            deadline = Revocable("stranded-timeout", is_off, expire, request=request)
            pipeline.queue.push(max(now, request.deadline_us), LIFECYCLE, deadline)

    def _has_left(self, routed: RoutedRequest) -> bool:
        """Whether a request no longer waits for an instance."""
        return self.parked.get(routed.request.index) is not routed

    def expire(self, request: Request, now: int) -> None:
        """Reject a request whose deadline has come while it waits for an instance."""
        del self.parked[request.index], self._wanted[request.index]
        self._pipeline.dispatcher.forget(request, now)
        self._pipeline.reject(request, NAME, "no instance came up before its deadline", now)

    def may_enqueue(self, request: Request, now: int) -> bool:
        """Whether a request may enter its instance's queue; if not, it is handled here."""
        index = request.instance
        life = self.lives[index]
        if life.state in CANDIDATES or (life.state == DRAINING and self._settings.drain == "wait"):
            return True
        instance = self._registry.instances[index]
        instance.give_back(request, now)
        instance.seen.depart(request)
        if request.queued_us >= 0:  # its prompt was computed elsewhere
            self.forfeited_us += now - request.queued_us
        if life.state == DRAINING and self._settings.drain == "redirect":
            self._retry(request, index, now)
        else:
            self._decide(request, index, now)
        self.end_if_empty(index, now)
        return False

    def handle_broken_handover(self, request: Request, index: int, now: int, *, down: bool) -> None:
        """Handle a request that cannot continue between two instances; ``down``: because instance ``index`` is gone."""
        self.forfeited_us += now - request.queued_us
        if down:
            self._decide(request, index, now)
        else:
            self._retry(request, index, now)

    def _decide(self, request: Request, index: int, now: int) -> None:
        """Decide whether a request that went down with an instance starts over."""
        life = self.lives[index]
        failure = None if life.state == DRAINING else life.failure
        if failure is None:
            self._lose(request, index, now, "its instance had to go at once")
        elif failure.requests == "lose":
            self._lose(request, index, now, "its instance died")
        else:
            hits = self._hits[request.index] = self._hits.get(request.index, 0) + 1
            if hits > failure.max_retries:
                self._lose(request, index, now, f"{hits} instance{'s' * (hits > 1)} died under it")
            else:
                self._retry(request, index, now)

    def _give_up(self, instance: Instance, request: Request, now: int) -> None:
        self.forfeited_us += now - request.queued_us
        self._registry.board.touched[instance.index] = None
        instance.withdraw(request, now)
        instance.seen.depart(request)

    def _retry(self, request: Request, index: int, now: int) -> None:
        self.retried += 1
        self._pipeline.dispatcher.undo_split(request, now)
        request.restart()
        hits = self._hits.get(request.index, 0)
        self._pipeline.observers.tell(Retried, now, request.request_id, index, hits)
        self._pipeline.dispatcher.dispatch_again(request, now)

    def _lose(self, request: Request, index: int, now: int, reason: str) -> None:
        self._pipeline.dispatcher.forget(request, now)
        request.state = RequestState.LOST
        self._pipeline.observers.tell(Lost, now, request.request_id, index, reason)
        latency = self._registry.instances[index].latency
        self._pipeline.ledger.close(request, client_ttft_us(request, latency) if request.first_token_us >= 0 else -1)

    # ---- helpers ----

    def schedule_background(
        self, time_us: int, kind: str, instance: int | None, handler: Callable[[BackgroundEvent, int], bool]
    ) -> None:
        """Schedule a background event, which happens only if there are requests then."""
        self._pipeline.queue.push(time_us, LIFECYCLE, BackgroundEvent(kind, self._pipeline, instance, handler))

    def _slow_down(self, index: int, factor: float) -> None:
        instance = self._registry.instances[index]
        instance.latency = scaled_step_times(instance.latency, factor)

    def _set_state(self, index: int, state: str, now: int, reason: str) -> None:
        life = self.lives[index]
        before, life.state = life.state, state
        self._tell(index, before, now, reason)
        if state in CANDIDATES and before not in CANDIDATES:
            self._registry.include(index)
        elif before in CANDIDATES and state not in CANDIDATES:
            self._registry.exclude(index)

    def _tell(self, index: int, before: str, now: int, reason: str) -> None:
        pool, state = self.pool_of(index).name, self.lives[index].state
        self._pipeline.observers.tell(InstanceChanged, now, index, pool, state, before, reason)


def _index(event: BackgroundEvent) -> int:
    index = event.instance_index
    if index is None:
        raise TypeError(f"{event.kind} is about no instance")
    return index
