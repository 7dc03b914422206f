"""Prefill on some instances, decode on others: who is split, where its halves run, and the transfer between."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.cluster.link import Ahead, Link
from blis_tui.cluster.passage import DECODE_ROUTING, PREFILL_ROUTING, STAYS, TRANSFER_END, TRANSFER_START, Signal
from blis_tui.cluster.pipeline import Dispatcher
from blis_tui.cluster.policy import DECIDER
from blis_tui.cluster.records import Split, TransferBrokenOff, TransferFinished, TransferStarted
from blis_tui.engine.kv.capacity import kv_bytes_per_token
from blis_tui.engine.request import Handover, RequestState, handover_of
from blis_tui.errors import SimulationError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from blis_tui.cluster.passage import Passage
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.cluster.reroute import Reroute
    from blis_tui.cluster.router import Router
    from blis_tui.engine.request import Request
    from blis_tui.engine.stopped import Excess
    from blis_tui.spec.model import Disaggregation, Experiment

_WHETHER_AND_WHY: Final = 2
"""The length of a decider's answer."""


class Splitter(Dispatcher):
    """Sends requests through two instances, those that the decider says.

    Args:
        experiment: names the decider.
        settings: how they are split.
        pipeline: what it is a part of.
        routers: choose instances for requests that are not split, for their prompts, and for their answers.
        routes: routing decisions to overrule.

    Attributes:
        prefill: chooses where a prompt is computed.
        decode: chooses where the answer is generated.
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
        self._planned_end: Signal | None = None
        """The one that is true, of all that were planned under fair share."""
        self._void: dict[int, None] = {}
        """Requests whose prompt is computed and whose prefill instance has gone before the transfer started."""
        self._away_us = 0
        """Time between prefill and decode instance of all requests that have reached the latter."""
        self._early_us: list[int] = []
        """When prefills end of requests that have reached their second instance before; past ones may be among them."""

    # ---- the decision ----

    @property
    def splits(self) -> bool:
        """They may."""
        return True

    def decide(self, passage: Passage, now: int, place: int | None = None) -> bool:
        """Whether the request is split; ``place``: that of its decode instance, where it is chosen already."""
        request = passage.request
        split, reason = self._decided(passage, place)
        if not request.declared_tokens:
            split, reason = False, "no answer to decode"
        observers = self._pipeline.observers
        if Split in observers.kinds:
            verdict = "split" if split else "whole"
            observers.emit(Split(observers.event, now, request.request_id, verdict, reason))
        if split:
            self.split += 1
            request.handover = Handover()
            self.passages[request.index] = passage
        return split

    def _decided(self, passage: Passage, place: int | None) -> tuple[bool, str]:
        """What the decider answers.

        Raises:
            SimulationError: it is not whether and why.
        """
        split: Callable[..., object] = self._decider.split  # what a plug-in answers may be anything
        answer = split(passage.incoming, self.decode.fleet, place)
        if isinstance(answer, tuple | list) and len(answer) == _WHETHER_AND_WHY:
            whether, why = answer
            if whether in (True, False) and isinstance(why, str):  # so are NumPy's
                return bool(whether), why
        raise SimulationError(
            f"the decider `{self._decider_name}` answers {answer!r} for {passage.request.request_id}",
            help="`split` returns whether the request is split, and a reason",
        )

    def go_on(self, passage: Passage, now: int) -> None:
        """A request that waited for an instance to come up goes where it was going."""
        if passage.request.handover is None:
            super().go_on(passage, now)
        else:
            self._to_prefill(passage)
            self._pipeline.queue.push(now, PREFILL_ROUTING, passage)

    def _learn(self, passage: Passage) -> None:
        """The decider hears of every request that is sent somewhere for its prefill."""
        self._decider.sent(passage.incoming, self.decode.fleet)

    def _to_prefill(self, passage: Passage) -> None:
        """The prefill instance is chosen next."""
        passage.kind = "prefill-routing"
        passage.handler = self._route_prefill
        passage.order = PREFILL_ROUTING

    def _route_prefill(self, passage: Passage, now: int) -> int:
        self._roster.board.read(now)
        if self._strands_prefill(passage, now):
            return STAYS
        self._learn(passage)
        index = self.choose(passage, self.prefill, now)
        there_us = self.deliver(passage, index, now)
        self._settle_model(passage, index)
        handover = handover_of(passage.request)
        handover.prefill_instance = index
        return there_us

    def _strands_prefill(self, passage: Passage, now: int) -> bool:
        """Whether an instance is missing without which the prefill cannot begin."""
        return self._pipeline.lifecycle.strands(passage, self.prefill, now)

    def _settle_model(self, passage: Passage, index: int) -> None:
        """Where instances serve different models, the first one chosen decides for requests that take any of them."""
        if self.decode.by_model and not passage.incoming.model:
            passage.incoming = passage.incoming._replace(model=self._roster.board.model(index))

    # ---- the transfer ----

    def departed(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:
        """Requests have left their instances; the prompts of some are computed."""
        for request in departed:
            if request.state > RequestState.RUNNING:  # dropped or timed out before its transfer
                self.passages.pop(request.index, None)
        for request in prefilled:
            self._prefilled(request, now)

    def _prefilled(self, request: Request, now: int) -> None:
        """A prompt is computed: its KV blocks go to the decode instance."""
        passage = self.passages[request.index]
        passage.kind = "transfer-start"
        passage.handler = self._start
        passage.order = TRANSFER_START
        passage.instance_index = None
        self._pipeline.queue.push(now, TRANSFER_START, passage)

    def _start(self, passage: Passage, now: int) -> int:
        request = passage.request
        handover = handover_of(request)
        if self._void.pop(request.index, 0) is None:
            self._give_up(passage, handover.prefill_instance, "its prefill instance has gone", now)
            return STAYS
        if not self._keeps_decode_instance(passage, now):
            return STAYS
        handover.transfer_start_us = now
        index = handover.decode_instance
        if index >= 0 and (excess := self._reserve(request, index, now)) is not None:
            self._fail(passage, excess, now)
            return STAYS
        pipeline, observers = self._pipeline, self._pipeline.observers
        if TransferStarted in observers.kinds:
            observers.emit(
                TransferStarted(
                    observers.event,
                    now,
                    request.request_id,
                    handover.prefill_instance,
                    index,
                    self.bytes_of(request),
                    self.link.active + 1,
                )
            )
        passage.kind = "transfer-end"
        duration = self._link.start(request.index, self.bytes_of(request), now, self._ahead(handover))
        if duration is None:
            self._plan_end(now)
        else:
            pipeline.queue.push(now + duration, TRANSFER_END, _End(self, passage))
        return STAYS

    def _keeps_decode_instance(self, passage: Passage, now: int) -> bool:  # noqa: ARG002
        """Whether the decode instance, if it is chosen, still is one; else another is chosen, if there is any."""
        return True

    def bytes_of(self, request: Request) -> int:
        """What the KV blocks amount to that travel: all of its prompt, but those that the decode instance shares."""
        pool = self._roster.pools[handover_of(request).prefill_instance]
        size = pool.engine.block_size_tokens
        blocks = -(-request.input_tokens // size) - request.shared_blocks
        own = self._settings.bytes_per_token
        return blocks * size * (kv_bytes_per_token(pool.model, pool.tensor_parallel) if own is None else own)

    def _ahead(self, handover: Handover) -> Ahead | None:
        if self._settings.overlap == "none":
            return None
        model = self._roster.pools[handover.prefill_instance].model
        return Ahead(handover.last_step_us, model.num_hidden_layers)

    def _plan_end(self, now: int) -> None:
        """Under fair share: the transfer that is through first if nothing changes."""
        found = self._link.next_end(now)
        if found is None:
            self._planned_end = None
            return
        event = self._planned_end = Signal("transfer-end", self._shared_end)
        self._pipeline.queue.push(found[1], TRANSFER_END, event)

    def _shared_end(self, event: Signal, now: int) -> bool:
        if event is not self._planned_end:
            return False
        found = self._link.next_end(now)
        if found is None:
            return False
        self.end(self.passages[found[0]], now)
        self._plan_end(now)
        return True

    def end(self, passage: Passage, now: int) -> None:
        """The KV blocks of a prompt have arrived."""
        request = passage.request
        handover = handover_of(request)
        self._link.end(request.index, now)
        self.arrived += 1
        handover.transfer_us = now - handover.transfer_start_us
        pipeline, observers = self._pipeline, self._pipeline.observers
        if TransferFinished in observers.kinds:
            observers.emit(TransferFinished(observers.event, now, request.request_id, handover.transfer_us))
        if handover.decode_instance >= 0:
            self._adopt(passage, now)
        else:
            passage.kind = "decode-routing"
            passage.handler = self._route_decode
            passage.order = DECODE_ROUTING
            pipeline.queue.push(now, DECODE_ROUTING, passage)
        pipeline.lifecycle.end_if_empty(handover.prefill_instance, now)

    def _route_decode(self, passage: Passage, now: int) -> int:
        self._roster.board.read(now)
        handover = handover_of(passage.request)
        if not self.decode.of(passage.incoming).fleet.members:
            self._pipeline.lifecycle.start_again(passage.request, handover.prefill_instance, now, down=False)
            return STAYS
        index = self.choose(passage, self.decode, now)
        handover.decode_instance = index
        if (excess := self._reserve(passage.request, index, now)) is not None:
            self._fail(passage, excess, now)
        else:
            self._adopt(passage, now)
        return STAYS

    # ---- instances that go ----

    def break_off(self, index: int, now: int) -> None:
        """An instance has gone with its KV cache: nothing is transferred to it or from it any more."""
        for passage in [*self.passages.values()]:
            request = passage.request
            handover = handover_of(request)
            ends = (handover.prefill_instance, handover.decode_instance)
            if index not in ends or not handover.prefilled or handover.transfer_us >= 0:
                continue
            if handover.transfer_start_us >= 0:
                what = "prefill" if index == ends[0] else "decode"
                self._give_up(passage, index, f"its {what} instance has gone", now)
            elif index == ends[0]:
                self._void[request.index] = None

    def _give_up(self, passage: Passage, index: int, reason: str, now: int) -> None:
        """The KV blocks of a prompt cannot be transferred because an instance has gone."""
        request = passage.request
        handover = handover_of(request)
        observers = self._pipeline.observers
        if TransferBrokenOff in observers.kinds:
            observers.emit(TransferBrokenOff(observers.event, now, request.request_id, index, reason))
        if handover.transfer_start_us >= 0:
            self.broken_off += 1
            self._link.end(request.index, now)
            if self._planned_end is not None:
                self._plan_end(now)
        self._pipeline.lifecycle.start_again(request, index, now, down=True)

    def take_back(self, request: Request, now: int) -> None:
        """A request starts again: whether it is split will be decided anew."""
        if request.handover is not None:
            self.split -= 1
        self.forget(request, now)

    def forget(self, request: Request, now: int) -> None:
        """A request that was split starts again, or has ended between its instances."""
        if self.passages.pop(request.index, None) is None:
            return
        handover = handover_of(request)
        if handover.prefilled:
            self._away_us += now - request.first_token_us
        decode = handover.decode_instance
        if handover.transfer_start_us >= 0 and decode >= 0:
            self._roster.instances[decode].give_back(request, now)
        for index in (handover.prefill_instance, decode):
            if index >= 0:
                self._pipeline.lifecycle.end_if_empty(index, now)

    def serves(self, index: int) -> bool:
        """Whether KV blocks are on their way from or to an instance, or about to be."""
        ways = [handover_of(one.request) for one in self.passages.values()]
        return any(
            way.prefilled and way.transfer_us < 0 and index in (way.prefill_instance, way.decode_instance)
            for way in ways
        )

    # ---- the end of its way ----

    def _reserve(self, request: Request, index: int, now: int) -> Excess | None:
        self._roster.board.touched[index] = None
        return self._roster.instances[index].reserve(request, now, reuse=self._settings.reuse_cached_blocks)

    def _adopt(self, passage: Passage, now: int) -> None:
        request = passage.request
        del self.passages[request.index]
        handover = handover_of(request)
        self._roster.commit(passage, handover.decode_instance)
        self._away_us += now - request.first_token_us
        if request.first_token_us > now:
            self._early_us = [end for end in self._early_us if end > now]
            self._early_us.append(request.first_token_us)
        if self._pipeline.lifecycle.lets_in(request, now):
            self._roster.instances[handover.decode_instance].adopt(request, now)

    def _fail(self, passage: Passage, excess: Excess, now: int) -> None:
        request = passage.request
        self.dropped += 1
        del self.passages[request.index]
        handover = handover_of(request)
        self._roster.commit(passage, handover.decode_instance)
        self._roster.instances[handover.decode_instance].turn_down(request, excess, now)
        self._pipeline.lifecycle.end_if_empty(handover.prefill_instance, now)

    def away_us(self, now: int) -> int:
        """Time of requests between their two instances, added up until now; negative where they overlap."""
        total = self._away_us
        for end in self._early_us:
            total += max(0, end - now)  # as long as its step runs, it is on both
        for request in self.transferring():
            total += max(0, now - request.first_token_us)
        return total

    def transferring(self) -> list[Request]:
        """Requests whose prompt is computed and that have not reached their second instance."""
        found = [one.request for one in self.passages.values()]
        return [request for request in found if request.handover is not None and request.handover.prefilled]

    def state(self) -> tuple[object, ...]:
        """What it remembers, as plain values (for digests)."""
        ways = tuple((index, one.kind) for index, one in sorted(self.passages.items()))
        counts = (self.split, self.dropped, self.broken_off, tuple(self._void))
        return (self.prefill.state(), self.decode.state(), self._decider.state(), self._link.state(), ways, counts)


class PrefillFirst(Splitter):
    """Decides at dispatch; the decode instance is chosen when the KV blocks have arrived."""

    def dispatch(self, passage: Passage, now: int) -> int:
        """An admitted request has come."""
        model = passage.request.model
        if (not model or model in self._roster.models) and self.decide(passage, now):
            self._to_prefill(passage)
            return now + self._latency_us
        return super().dispatch(passage, now)

    def route(self, passage: Passage, now: int) -> int:
        """Choose the instance of a request that is not split."""
        if not self._can_route(passage, self.router, now):
            return STAYS
        self._learn(passage)
        return self.deliver(passage, self.choose(passage, self.router, now), now)

    def _strands_prefill(self, passage: Passage, now: int) -> bool:
        # What is prefilled now will need an instance that decodes.
        return super()._strands_prefill(passage, now) or self._pipeline.lifecycle.strands(passage, self.decode, now)


class DecodeFirst(Splitter):
    """Chooses the decode instance, and decides then; its KV blocks are reserved when the transfer starts."""

    def route(self, passage: Passage, now: int) -> int:
        """Choose the decode instance, and then whether the prompt is computed elsewhere."""
        if not self._can_route(passage, self.decode, now):
            return STAYS
        index = self.choose(passage, self.decode, now)
        self._settle_model(passage, index)
        if self.decide(passage, now, self.decode.fleet.place(index)):
            handover = handover_of(passage.request)
            handover.decode_instance = index
            self._to_prefill(passage)
            return now
        self._learn(passage)
        return self.deliver(passage, index, now)

    def _keeps_decode_instance(self, passage: Passage, now: int) -> bool:
        handover = handover_of(passage.request)
        members = self.decode.of(passage.incoming).fleet.members
        if handover.decode_instance in members:
            return True
        if not members:
            self._pipeline.lifecycle.start_again(passage.request, handover.prefill_instance, now, down=False)
            return False
        self._roster.board.read(now)
        handover.decode_instance = self.choose(passage, self.decode, now)
        return True


class _End:
    """The end of a transfer whose duration does not depend on others."""

    __slots__ = ("_passage", "_splitter")

    kind = "transfer-end"
    instance_index = None

    def __init__(self, splitter: Splitter, passage: Passage) -> None:
        self._splitter = splitter
        self._passage = passage

    @property
    def request(self) -> Request:
        """Whose KV blocks arrive."""
        return self._passage.request

    @property
    def stale(self) -> bool:
        """Whether it was broken off."""
        return self._splitter.passages.get(self.request.index) is not self._passage

    def happen(self, now: int) -> bool:
        """They have arrived, if nothing came between."""
        if self.stale:
            return False
        self._splitter.end(self._passage, now)
        return True

    def drop(self) -> None:
        """Nothing depends on it."""
