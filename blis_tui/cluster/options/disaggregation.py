"""Prefill/decode disaggregation: which requests are split, where their halves run, and the link between them."""

from __future__ import annotations

from functools import partial
from math import ceil
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import NamedTuple
from blis_tui.base.errors import SimulationError
from blis_tui.base.portable_math import whole_sum
from blis_tui.cluster.pipeline import Dispatcher
from blis_tui.cluster.policy import DECIDER
from blis_tui.cluster.records import Split, TransferBrokenOff, TransferFinished, TransferStarted
from blis_tui.cluster.routed_request import DECODE_ROUTING, NO_NEXT_STAGE, PREFILL_ROUTING, TRANSFER_END, TRANSFER_START
from blis_tui.cluster.stages import Transfers
from blis_tui.engine.events import Revocable
from blis_tui.engine.kv.capacity import kv_bytes_per_token
from blis_tui.engine.request import Handover, RequestState, handover_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.cluster.decisions import Reroute
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.cluster.routed_request import RoutedRequest
    from blis_tui.cluster.router import Router
    from blis_tui.engine.request import Request
    from blis_tui.engine.stopped import Excess
    from blis_tui.model import Disaggregation, Experiment, Transfer


_BYTES_PER_US_OF_GB_PER_S: Final = 1000.0


class OverlappedStep(NamedTuple):
    """The last step of a prefill, during which the KV blocks of all layers but the last are sent."""

    step_us: int
    layers: int

    def bytes(self, size: int, bytes_per_us: float, base_latency_us: int) -> int:
        """Bytes sent during the step: all layers take equally long, and the last one's follow the step."""
        gone = int(max(0, self.step_us - base_latency_us) * bytes_per_us)
        return min(size, gone) * (self.layers - 1) // self.layers


class Link(Transfers):
    """Transfers over a link, and their durations.

    A transfer takes ``base latency + bytes / bandwidth``, rounded up, at least a microsecond. Under ``fair-share``, all
    transfers whose base latency is over share the bandwidth equally at any time, so the end of each moves whenever
    another one starts or ends.
    """

    def __init__(self, settings: Transfer) -> None:
        super().__init__()
        self._settings = settings
        self._bandwidth = settings.bandwidth_gb_per_s * _BYTES_PER_US_OF_GB_PER_S
        self._left: dict[int, float] = {}
        """Under fair share: remaining bytes by request, in the order in which the transfers started."""
        self._moves_us: dict[int, int] = {}
        """When their base latency is over."""
        self._earliest_us: dict[int, int] = {}
        """Earliest possible end: a transfer takes at least a microsecond."""
        self._since_us = 0

    def start(self, request: int, size: int, now: int, ahead: OverlappedStep | None = None) -> int | None:
        """Start a transfer; return its duration, or None if that depends on others.

        Args:
            request: index of the request.
            size: its bytes.
            now: the time.
            ahead: what is sent in advance, layer by layer; None = nothing.
        """
        self.active += 1
        self.peak = max(self.peak, self.active)
        self.started += 1
        self.bytes += size
        settings = self._settings
        bandwidth, latency_us = self._bandwidth, settings.base_latency_us
        share = bandwidth / self.active if settings.contention != "none" else bandwidth
        amount = float(size)
        if ahead is not None:
            amount -= ahead.bytes(size, share, latency_us)
            latency_us = max(0, latency_us - ahead.step_us)
        if settings.contention == "fair-share":
            self._advance(now)
            self._left[request] = amount
            self._moves_us[request] = now + latency_us
            self._earliest_us[request] = now + 1
            return None
        return max(1, ceil(latency_us + amount / share))

    def end(self, request: int, now: int) -> None:
        """Finish a transfer."""
        self.active -= 1
        if self._left:
            self._advance(now)
            del self._left[request], self._moves_us[request], self._earliest_us[request]

    def next_end(self, now: int) -> tuple[int, int] | None:
        """Under fair share, return the request whose transfer ends first if nothing changes, and when.

        Among equals, the transfer that started first.
        """
        self._advance(now)
        left, at = dict(self._left), now
        while left:
            moving, until = self._moving(left, at)
            if moving:
                us_per_byte = len(moving) / self._bandwidth
                rest_us = ceil(min(left[index] for index in moving) * us_per_byte - _ROUNDING_US)
                if until is None or at + rest_us <= until:
                    through = next(index for index in moving if left[index] * us_per_byte <= rest_us + _ROUNDING_US)
                    return through, max(at + rest_us, self._earliest_us[through])
            if until is None:
                break  # only if all transfers have nothing left
            at = self._send(left, moving, at, until)
        return None

    def state(self) -> tuple[object, ...]:
        """Return the transfers in flight as plain values (for digests)."""
        left, moves = tuple(self._left.items()), tuple(self._moves_us.values())
        return (self.active, self.peak, self.started, self.bytes, self._since_us, left, moves)

    def _advance(self, now: int) -> None:
        at = self._since_us
        while at < now and self._left:
            moving, until = self._moving(self._left, at)
            at = self._send(self._left, moving, at, now if until is None else min(until, now))
        self._since_us = now

    def _moving(self, left: dict[int, float], at: int) -> tuple[list[int], int | None]:
        """Return the requests whose base latency is over, and when that of another one will be."""
        later = [self._moves_us[index] for index in left if self._moves_us[index] > at]
        return [index for index in left if self._moves_us[index] <= at], min(later, default=None)

    def _send(self, left: dict[int, float], moving: list[int], at: int, until: int) -> int:
        """Send equal shares from ``at`` to ``until``, while the set of transfers stays the same; return ``until``."""
        for index in moving:
            left[index] = max(0.0, left[index] - (until - at) * self._bandwidth / len(moving))
        return until


_ROUNDING_US: Final = 1e-6
"""Rounding error that may be left of a finished transfer."""


_EXPECTED: Final = "expected"
"""Kind of a request that waits for room on its decode instance."""
_ANSWER_LENGTH: Final = 2
"""Length of a decider's answer."""


class Splitter(Dispatcher):
    """Sends the requests that the decider selects through two instances.

    Args:
        experiment: names the decider.
        settings: the disaggregation settings.
        pipeline: the pipeline that it belongs to.
        routers: choose instances for unsplit requests, for prefills, and for decodes.
        routes: routing decisions to override.

    Attributes:
        prefill: the router for prefills.
        decode: the router for decodes.
    """

    def __init__(
        self,
        experiment: Experiment,
        settings: Disaggregation,
        pipeline: Pipeline,
        routers: Sequence[Router],
        routes: dict[str, Reroute],
    ) -> None:
        router, self.prefill, self.decode = routers
        super().__init__(experiment, pipeline, router, routes)
        self.link = self._link = Link(settings.transfer)
        self._settings = settings.transfer
        self._decider_name = settings.decider.kind
        self._decider = experiment.plugins.create(DECIDER, settings.decider.kind, settings.decider.settings)
        self._planned_end: _PlannedEnd | None = None
        """The valid one of all end events planned under fair share."""
        self._void: dict[int, None] = {}
        """Requests whose prompt is computed but whose prefill instance was gone before the transfer started."""
        self._away_us = 0
        """Total time between prefill and decode instance, over all requests that have reached the latter."""
        self._prepares = pipeline.registry.instances[0].batch.traits.prepares_handovers
        """Whether there is room for a prompt on its decode instance before it is computed."""
        if self._prepares:
            pipeline.registry.watch.on_prepared = self._prepared
        self._early_us: list[int] = []
        """Prefill end times of requests that reached their decode instance earlier; may include past times."""

    # ---- decision ----

    @property
    def splits(self) -> bool:
        """Return True: requests may be split."""
        return True

    def decide(self, routed: RoutedRequest, now: int, place: int | None = None) -> bool:
        """Decide whether to split the request; ``place``: that of its decode instance, if already chosen."""
        request = routed.request
        split, reason = self._decided(routed, place)
        if not request.declared_tokens:
            split, reason = False, "no answer to decode"
        self._pipeline.observers.tell(Split, now, request.request_id, "split" if split else "whole", reason)
        if split:
            self.split += 1
            request.handover = Handover()
            self.split_requests[request.index] = routed
        return split

    def _decided(self, routed: RoutedRequest, place: int | None) -> tuple[bool, str]:
        """Return the decider's answer.

        Raises:
            SimulationError: it is not a pair of a boolean and a reason.
        """
        split: Callable[..., object] = self._decider.split  # a plug-in may answer anything
        answer = split(routed.incoming, self.decode.fleet, place)
        if isinstance(answer, tuple | list) and len(answer) == _ANSWER_LENGTH:
            whether, why = answer
            if whether in (True, False) and isinstance(why, str):  # accepts NumPy booleans, too
                return bool(whether), why
        raise SimulationError(
            f"the decider `{self._decider_name}` answers {answer!r} for {routed.request.request_id}",
            help="`split` returns whether the request is split, and a reason",
        )

    def go_on(self, routed: RoutedRequest, now: int) -> None:
        """Resume a request that waited for an instance to come up."""
        if routed.request.handover is None:
            super().go_on(routed, now)
        else:
            self._to_prefill(routed)
            self._pipeline.queue.push(now, PREFILL_ROUTING, routed)

    def _notify_decider(self, routed: RoutedRequest) -> None:
        """Tell the decider about a request that was sent to its prefill or only instance."""
        self._decider.sent(routed.incoming, self.decode.fleet)

    def _to_prefill(self, routed: RoutedRequest) -> None:
        """Make the choice of the prefill instance the next stage."""
        routed.kind = "prefill-routing"
        routed.handler = self._route_prefill
        routed.order = PREFILL_ROUTING

    def _route_prefill(self, routed: RoutedRequest, now: int) -> int:
        self._registry.board.read(now)
        if self._park_prefill_if_stranded(routed, now):
            return NO_NEXT_STAGE
        self._notify_decider(routed)
        index = self.choose(routed, self.prefill, now)
        there_us = self.deliver(routed, index, now)
        self._settle_model(routed, index)
        handover = handover_of(routed.request)
        handover.prefill_instance = index
        return there_us

    def _park_prefill_if_stranded(self, routed: RoutedRequest, now: int) -> bool:
        """Whether the request must wait for an instance before its prefill can begin."""
        return self._pipeline.lifecycle.park_if_stranded(routed, self.prefill, now)

    def _settle_model(self, routed: RoutedRequest, index: int) -> None:
        """If instances serve different models, let the first chosen one fix the model of a request that takes any."""
        if self.decode.by_model and not routed.incoming.model:
            routed.incoming = routed.incoming._replace(model=self._registry.board.model(index))

    # ---- transfer ----

    def departed(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:
        """React to requests that left their instances; the prompts of ``prefilled`` are computed."""
        for request in departed:
            if request.state > RequestState.RUNNING:  # dropped or timed out before its transfer
                routed = self.split_requests.pop(request.index, None)
                if routed is not None and self._prepares:
                    self._forget_expected(routed.request, now)
        for request in prefilled:
            self._prefilled(request, now)

    def _prefilled(self, request: Request, now: int) -> None:
        """Start to move a computed prompt's KV blocks to the decode instance."""
        routed = self.split_requests[request.index]
        routed.kind = "transfer-start"
        routed.handler = self._start
        routed.order = TRANSFER_START
        routed.instance_index = None
        self._pipeline.queue.push(now, TRANSFER_START, routed)

    def _start(self, routed: RoutedRequest, now: int) -> int:
        request = routed.request
        handover = handover_of(request)
        if self._void.pop(request.index, 0) is None:
            self._give_up(routed, handover.prefill_instance, "its prefill instance has gone", now)
            return NO_NEXT_STAGE
        if not self._can_use_decode_instance(routed, now):
            return NO_NEXT_STAGE
        handover.transfer_start_us = now
        index = handover.decode_instance
        if index >= 0 and not self._prepares and (excess := self._reserve(request, index, now)) is not None:
            self._fail(routed, excess, now)
            return NO_NEXT_STAGE
        pipeline, size = self._pipeline, self.bytes_of(request)
        flows = self.link.active + 1
        pipeline.observers.tell(TransferStarted, now, request.request_id, handover.prefill_instance, index, size, flows)
        routed.kind = "transfer-end"
        duration = self._link.start(request.index, size, now, self._overlapped_step(handover))
        if duration is None:
            self._plan_end(now)
        else:
            is_off, finish = partial(self._is_broken_off, routed), partial(self.end, routed)
            end = Revocable("transfer-end", is_off, finish, request=request)
            pipeline.queue.push(now + duration, TRANSFER_END, end)
        return NO_NEXT_STAGE

    def _can_use_decode_instance(self, routed: RoutedRequest, now: int) -> bool:  # noqa: ARG002
        """Whether a chosen decode instance can still be used; otherwise another one is chosen, if there is any."""
        return True

    def bytes_of(self, request: Request) -> int:
        """Bytes of the KV blocks to transfer: the whole prompt except blocks that the decode instance shares."""
        pool = self._registry.pools[handover_of(request).prefill_instance]
        size = pool.engine.block_size_tokens
        blocks = -(-request.input_tokens // size) - request.shared_blocks
        own = self._settings.bytes_per_token
        return blocks * size * (kv_bytes_per_token(pool.model, pool.tensor_parallel) if own is None else own)

    def _overlapped_step(self, handover: Handover) -> OverlappedStep | None:
        if self._settings.overlap == "none":
            return None
        model = self._registry.pools[handover.prefill_instance].model
        return OverlappedStep(handover.last_step_us, model.num_hidden_layers)

    def _plan_end(self, now: int) -> None:
        """Under fair share, schedule the end of the transfer that finishes first if nothing changes."""
        end = self._link.next_end(now)
        if end is None:
            self._planned_end = None
            return
        event = self._planned_end = _PlannedEnd(self)
        self._pipeline.queue.push(end[1], TRANSFER_END, event)

    def plans(self, event: _PlannedEnd) -> bool:
        """Return whether the end of a transfer is still planned as it was when the event was made."""
        return event is self._planned_end

    def end_planned(self, now: int) -> bool:
        """Finish the transfer whose end is planned for now; return whether there is one."""
        end = self._link.next_end(now)
        if end is None:
            return False
        self.end(self.split_requests[end[0]], now)
        self._plan_end(now)
        return True

    def _is_broken_off(self, routed: RoutedRequest) -> bool:
        """Whether the transfer of a request was broken off."""
        return self.split_requests.get(routed.request.index) is not routed

    def end(self, routed: RoutedRequest, now: int) -> None:
        """Finish a transfer: the prompt's KV blocks have arrived."""
        request = routed.request
        handover = handover_of(request)
        self._link.end(request.index, now)
        self.arrived += 1
        handover.transfer_us = now - handover.transfer_start_us
        pipeline, observers = self._pipeline, self._pipeline.observers
        observers.tell(TransferFinished, now, request.request_id, handover.transfer_us)
        if self._prepares:
            self._registry.board.touched[handover.prefill_instance] = None
            self._registry.instances[handover.prefill_instance].on_sent(request, now)
        if handover.decode_instance >= 0:
            self._enqueue_for_decode(routed, now)
        else:
            routed.kind = "decode-routing"
            routed.handler = self._route_decode
            routed.order = DECODE_ROUTING
            pipeline.queue.push(now, DECODE_ROUTING, routed)
        pipeline.lifecycle.end_if_empty(handover.prefill_instance, now)

    def _route_decode(self, routed: RoutedRequest, now: int) -> int:
        self._registry.board.read(now)
        handover = handover_of(routed.request)
        if not self.decode.of(routed.incoming).fleet.members:
            self._pipeline.lifecycle.handle_broken_handover(routed.request, handover.prefill_instance, now, down=False)
            return NO_NEXT_STAGE
        index = self.choose(routed, self.decode, now)
        handover.decode_instance = index
        if (excess := self._reserve(routed.request, index, now)) is not None:
            self._fail(routed, excess, now)
        else:
            self._enqueue_for_decode(routed, now)
        return NO_NEXT_STAGE

    # ---- room for prompts that are not computed yet ----

    def _prepared(self, request: Request, now: int) -> None:
        """Send a request to its prefill: there is room for its prompt on its decode instance."""
        routed = self.split_requests[request.index]
        self._to_prefill(routed)
        self._pipeline.queue.push(now, PREFILL_ROUTING, routed)

    def _expect(self, routed: RoutedRequest, now: int) -> int:
        """Let a request wait for room on its decode instance."""
        request = routed.request
        index = handover_of(request).decode_instance
        routed.kind, routed.instance_index = _EXPECTED, None
        self._registry.board.touched[index] = None
        if (excess := self._registry.instances[index].expect(request, now)) is not None:
            self._fail(routed, excess, now)
        elif request.deadline_us:
            is_over, expire = partial(self._is_prepared, routed), partial(self._expire, routed)
            timeout = Revocable("timeout", is_over, expire, request=request)
            self._pipeline.queue.push(max(now, request.deadline_us), DECODE_ROUTING, timeout)
        return NO_NEXT_STAGE

    def _is_prepared(self, routed: RoutedRequest) -> bool:
        """Whether a request no longer waits for room on its decode instance."""
        return routed.kind != _EXPECTED

    def _expire(self, routed: RoutedRequest, now: int) -> None:
        """Let a request time out that waits for room on its decode instance."""
        request = routed.request
        del self.split_requests[request.index]
        self._forget_expected(request, now)
        index = handover_of(request).decode_instance
        self._registry.commit(routed, index)
        self._registry.instances[index].enqueue(request, now)

    def _forget_expected(self, request: Request, now: int) -> None:
        index = handover_of(request).decode_instance
        self._registry.board.touched[index] = None
        self._registry.instances[index].forget_expected(request, now)

    # ---- instances that go down ----

    def break_off(self, index: int, now: int) -> None:
        """Break off all transfers to or from an instance that is gone with its KV cache."""
        for routed in [*self.split_requests.values()]:
            request = routed.request
            handover = handover_of(request)
            ends = (handover.prefill_instance, handover.decode_instance)
            if index not in ends or not handover.prefilled or handover.transfer_us >= 0:
                continue
            if handover.transfer_start_us >= 0:
                what = "prefill" if index == ends[0] else "decode"
                self._give_up(routed, index, f"its {what} instance has gone", now)
            elif index == ends[0]:
                self._void[request.index] = None

    def _give_up(self, routed: RoutedRequest, index: int, reason: str, now: int) -> None:
        """Give up the transfer of a prompt's KV blocks because an instance is gone."""
        request = routed.request
        handover = handover_of(request)
        self._pipeline.observers.tell(TransferBrokenOff, now, request.request_id, index, reason)
        if handover.transfer_start_us >= 0:
            self.broken_off += 1
            self._link.end(request.index, now)
            if self._planned_end is not None:
                self._plan_end(now)
        self._pipeline.lifecycle.handle_broken_handover(request, index, now, down=True)

    def undo_split(self, request: Request, now: int) -> None:
        """Undo the split of a request that starts over; the decider will be asked again."""
        if request.handover is not None:
            self.split -= 1
        self.forget(request, now)

    def forget(self, request: Request, now: int) -> None:
        """Forget a split request that starts over, or ended between its instances."""
        if self.split_requests.pop(request.index, None) is None:
            return
        handover = handover_of(request)
        if handover.prefilled:
            self._away_us += now - request.first_token_us
        decode = handover.decode_instance
        if handover.transfer_start_us >= 0 and decode >= 0:
            self._registry.board.touched[decode] = None
            self._registry.instances[decode].give_back(request, now)
        for index in (handover.prefill_instance, decode):
            if index >= 0:
                self._pipeline.lifecycle.end_if_empty(index, now)

    def is_transferring(self, index: int) -> bool:
        """Whether KV blocks are being transferred from or to an instance, or soon will be."""
        ways = [handover_of(split.request) for split in self.split_requests.values()]
        return any(
            way.prefilled and way.transfer_us < 0 and index in (way.prefill_instance, way.decode_instance)
            for way in ways
        )

    # ---- end of a request's path ----

    def _reserve(self, request: Request, index: int, now: int) -> Excess | None:
        self._registry.board.touched[index] = None
        return self._registry.instances[index].reserve(request, now, reuse=self._settings.reuse_cached_blocks)

    def _enqueue_for_decode(self, routed: RoutedRequest, now: int) -> None:
        request = routed.request
        del self.split_requests[request.index]
        handover = handover_of(request)
        self._registry.commit(routed, handover.decode_instance)
        self._away_us += now - request.first_token_us
        if request.first_token_us > now:
            self._early_us = [end for end in self._early_us if end > now]
            self._early_us.append(request.first_token_us)
        if self._pipeline.lifecycle.may_enqueue(request, now):
            self._registry.instances[handover.decode_instance].adopt(request, now)

    def _fail(self, routed: RoutedRequest, excess: Excess, now: int) -> None:
        request = routed.request
        self.dropped += 1
        del self.split_requests[request.index]
        handover = handover_of(request)
        self._registry.commit(routed, handover.decode_instance)
        self._registry.instances[handover.decode_instance].drop_unservable(request, excess, now)
        self._pipeline.lifecycle.end_if_empty(handover.prefill_instance, now)

    def between_instances_us(self, now: int) -> int:
        """Total time of requests between their two instances until now; negative where they overlap."""
        total = self._away_us + whole_sum([max(0, end - now) for end in self._early_us])
        total += whole_sum([max(0, now - request.first_token_us) for request in self.transferring()])
        return total

    def transferring(self) -> list[Request]:
        """Return requests whose prompt is computed and that have not reached their decode instance."""
        requests = [split.request for split in self.split_requests.values()]
        return [request for request in requests if request.handover is not None and request.handover.prefilled]

    def expected(self) -> list[Request]:
        """Return requests that wait for room on their decode instance before their prompts are computed."""
        return [split.request for split in self.split_requests.values() if split.kind == _EXPECTED]

    def state(self) -> tuple[object, ...]:
        """Return what it remembers, as plain values (for digests)."""
        ways = tuple((index, split.kind) for index, split in sorted(self.split_requests.items()))
        counts = (self.split, self.dropped, self.broken_off, tuple(self._void))
        return (self.prefill.state(), self.decode.state(), self._decider.state(), self._link.state(), ways, counts)


class PrefillFirst(Splitter):
    """Decides at dispatch; chooses the decode instance when the KV blocks have arrived."""

    def dispatch(self, routed: RoutedRequest, now: int) -> int:
        """Send on an admitted request."""
        model = routed.request.model
        if (not model or model in self._registry.models) and self.decide(routed, now):
            self._to_prefill(routed)
            return now + self._latency_us
        return super().dispatch(routed, now)

    def route(self, routed: RoutedRequest, now: int) -> int:
        """Choose the instance of a request that is not split."""
        if not self._can_route(routed, self.router, now):
            return NO_NEXT_STAGE
        self._notify_decider(routed)
        return self.deliver(routed, self.choose(routed, self.router, now), now)

    def _park_prefill_if_stranded(self, routed: RoutedRequest, now: int) -> bool:
        # The prefilled request will need a decode instance, of the same model.
        self._avoid_models_without_decode(routed)
        return super()._park_prefill_if_stranded(routed, now) or self._pipeline.lifecycle.park_if_stranded(
            routed, self.decode, now
        )

    def _avoid_models_without_decode(self, routed: RoutedRequest) -> None:
        """Fix the model of a request that takes any, if some that could prefill it now could not decode it."""
        if routed.incoming.model or not self.decode.by_model:
            return
        models = dict.fromkeys(self._registry.board.model(index) for index in self.prefill.fleet.members)
        able = [model for model in models if self.decode.by_model[model].fleet.members]
        if len(able) < len(models):
            routed.incoming = routed.incoming._replace(model=[*able, *models][0])


class DecodeFirst(Splitter):
    """Chooses the decode instance first and then decides; KV blocks are reserved when the transfer starts."""

    def route(self, routed: RoutedRequest, now: int) -> int:
        """Choose the decode instance, then decide whether the prompt is computed elsewhere."""
        if not self._can_route(routed, self.decode, now):
            return NO_NEXT_STAGE
        index = self.choose(routed, self.decode, now)
        self._settle_model(routed, index)
        if self.decide(routed, now, self.decode.fleet.place(index)):
            handover = handover_of(routed.request)
            handover.decode_instance = index
            if self._prepares:
                return self._expect(routed, now)
            self._to_prefill(routed)
            return now
        self._notify_decider(routed)
        return self.deliver(routed, index, now)

    def _can_use_decode_instance(self, routed: RoutedRequest, now: int) -> bool:
        handover = handover_of(routed.request)
        members = self.decode.of(routed.incoming).fleet.members
        if handover.decode_instance in members:
            return True
        if not members:
            self._pipeline.lifecycle.handle_broken_handover(routed.request, handover.prefill_instance, now, down=False)
            return False
        self._registry.board.read(now)
        handover.decode_instance = self.choose(routed, self.decode, now)
        return True


class _PlannedEnd:
    """The end of the transfer that finishes first under fair share, unless others begin or end before that."""

    __slots__ = ("_splitter",)

    kind = "transfer-end"
    instance_index = None
    request = None

    def __init__(self, splitter: Splitter) -> None:
        self._splitter = splitter

    @property
    def stale(self) -> bool:
        """Whether the transfers have changed since."""
        return not self._splitter.plans(self)

    def fire(self, now: int) -> bool:
        """Finish the transfer, unless the transfers have changed since."""
        return not self.stale and self._splitter.end_planned(now)

    def drop(self) -> None:
        """Do nothing: no other state depends on it."""
