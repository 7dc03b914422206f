"""Prefill on some instances, decode on others: who is split, where its halves run, and the transfer between."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.deciders.decider import DECIDER
from blis_tui.cluster.link import Ahead, Link
from blis_tui.cluster.passage import DECODE_ROUTING, PREFILL_ROUTING, TRANSFER_END, TRANSFER_START, Signal
from blis_tui.cluster.records import Split, TransferBrokenOff, TransferFinished, TransferStarted
from blis_tui.engine.kv.capacity import kv_bytes_per_token
from blis_tui.engine.request import Handover, RequestState, handover_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.cluster.passage import Passage
    from blis_tui.cluster.pipeline import Pipeline
    from blis_tui.cluster.router import Router
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Disaggregation, Experiment


class Splitter:
    """Sends requests through two instances.

    Attributes:
        prefill: chooses where a prompt is computed.
        decode: chooses where the answer is generated.
        link: the transfers.
        passages: requests that are split and have not reached their second instance, by their index.
        split: requests that were split.
        dropped: those of them whose KV blocks did not fit where they were to decode.
        arrived: transfers that are over.
        broken_off: transfers that ended with one of their instances.
    """

    def __init__(
        self, experiment: Experiment, settings: Disaggregation, cluster: Pipeline, prefill: Router, decode: Router
    ) -> None:
        self.prefill = prefill
        self.decode = decode
        self.link = Link(settings.transfer)
        self._settings = settings.transfer
        self.passages: dict[int, Passage] = {}
        self.decode_first = settings.order == "decode-first"
        self._cluster = cluster
        self._decider = experiment.plugins.create(DECIDER, settings.decider.kind, settings.decider.settings)
        self._planned_end: Signal | None = None
        """The one that is true, of all that were planned under fair share."""
        self._void: dict[int, None] = {}
        """Requests whose prompt is computed and whose prefill instance has gone before the transfer started."""
        self.split = 0
        self.dropped = 0
        self.arrived = 0
        self.broken_off = 0
        self._away_us = 0
        """Time between prefill and decode instance of all requests that have reached the latter."""
        self._early_us: list[int] = []
        """When prefills end of requests that have reached their second instance before; past ones may be among them."""

    # ---- the decision ----

    def decide(self, passage: Passage, now: int, place: int | None = None) -> bool:
        """Whether the request is split; its way goes on accordingly."""
        request = passage.request
        wanted = min(request.output_tokens, request.max_output_tokens or request.output_tokens)
        split, reason = self._decider.split(passage.incoming, self.decode.fleet, place)
        if not wanted:
            split, reason = False, "no answer to decode"
        observers = self._cluster.observers
        if Split in observers.kinds:
            verdict = "split" if split else "whole"
            observers.emit(Split(observers.event, now, request.request_id, verdict, reason))
        if split:
            self.split += 1
            request.handover = Handover()
            self.passages[request.index] = passage
        return split

    def route_decode_first(self, passage: Passage, now: int) -> None:
        """Choose the decode instance, and then whether the prompt is computed elsewhere."""
        cluster = self._cluster
        index = cluster.choose(passage, self.decode, now)
        self._settle_model(passage, index)
        if self.decide(passage, now, self.decode.fleet.members.index(index)):
            handover = handover_of(passage.request)
            handover.decode_instance = index
            self.go(passage, now)
        else:
            self.learn(passage)
            cluster.deliver(passage, index, now)

    def learn(self, passage: Passage) -> None:
        """The decider hears of every request that is sent somewhere for its prefill."""
        self._decider.sent(passage.incoming, self.decode.fleet)

    def go(self, passage: Passage, now: int) -> None:
        """On to the prefill instance's choice."""
        passage.kind = "prefill-routing"
        passage.handler = self._route_prefill
        self._cluster.queue.push(now, PREFILL_ROUTING, passage)

    def _route_prefill(self, passage: Passage, now: int) -> None:
        cluster = self._cluster
        cluster.board.read(now)
        # What is prefilled now will need an instance that decodes.
        if cluster.strands(passage, self.prefill, now) or (
            not self.decode_first and cluster.strands(passage, self.decode, now)
        ):
            return
        self.learn(passage)
        index = cluster.send(passage, self.prefill, now)
        self._settle_model(passage, index)
        handover = handover_of(passage.request)
        handover.prefill_instance = index

    def _settle_model(self, passage: Passage, index: int) -> None:
        """Where instances serve different models, the first one chosen decides for whom any would do."""
        if self.decode.by_model and not passage.incoming.model:
            passage.incoming = passage.incoming._replace(model=self._cluster.board.model(index))

    # ---- the transfer ----

    def hear(self, departed: Sequence[Request], prefilled: Sequence[Request], now: int) -> None:
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
        passage.instance_index = None
        self._cluster.queue.push(now, TRANSFER_START, passage)

    def _start(self, passage: Passage, now: int) -> None:
        request = passage.request
        handover = handover_of(request)
        if self._void.pop(request.index, 0) is None:
            self._give_up(passage, handover.prefill_instance, "its prefill instance has gone", now)
            return
        cluster = self._cluster
        if self.decode_first and not self._keep_decode_instance(passage, now):
            return
        handover.transfer_start_us = now
        index = handover.decode_instance
        if index >= 0 and (reason := self._reserve(request, index, now)):
            self._fail(passage, reason, now)
            return
        observers = cluster.observers
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
        duration = self.link.start(request.index, self.bytes_of(request), now, self._ahead(handover))
        if duration is None:
            self._plan_end(now)
        else:
            cluster.queue.push(now + duration, TRANSFER_END, _End(self, passage))

    def _keep_decode_instance(self, passage: Passage, now: int) -> bool:
        """Where the decode instance gets no more requests, choose another one; False = there is none."""
        cluster, handover = self._cluster, handover_of(passage.request)
        members = self.decode.of(passage.incoming).fleet.members
        if handover.decode_instance in members:
            return True
        if not members:
            cluster.start_again(passage.request, handover.prefill_instance, now, down=False)
            return False
        cluster.board.read(now)
        handover.decode_instance = cluster.choose(passage, self.decode, now)
        return True

    def bytes_of(self, request: Request) -> int:
        """What the KV blocks amount to that travel: all of its prompt, but those that the decode instance shares."""
        pool = self._cluster.pools[handover_of(request).prefill_instance]
        size = pool.engine.block_size_tokens
        blocks = -(-request.input_tokens // size) - request.shared_blocks
        own = self._settings.bytes_per_token
        return blocks * size * (kv_bytes_per_token(pool.model, pool.tensor_parallel) if own is None else own)

    def _ahead(self, handover: Handover) -> Ahead | None:
        if self._settings.overlap == "none":
            return None
        model = self._cluster.pools[handover.prefill_instance].model
        return Ahead(handover.last_step_us, model.num_hidden_layers)

    def _plan_end(self, now: int) -> None:
        """Under fair share: whoever is through first if nothing changes."""
        found = self.link.next_end(now)
        if found is None:
            self._planned_end = None
            return
        event = self._planned_end = Signal("transfer-end", self._shared_end)
        self._cluster.queue.push(found[1], TRANSFER_END, event)

    def _shared_end(self, event: Signal, now: int) -> bool:
        if event is not self._planned_end:
            return False
        found = self.link.next_end(now)
        if found is None:
            return False
        self.end(self.passages[found[0]], now)
        self._plan_end(now)
        return True

    def end(self, passage: Passage, now: int) -> None:
        """The KV blocks of a prompt have arrived."""
        request = passage.request
        handover = handover_of(request)
        self.link.end(request.index, now)
        self.arrived += 1
        handover.transfer_us = now - handover.transfer_start_us
        cluster = self._cluster
        observers = cluster.observers
        if TransferFinished in observers.kinds:
            observers.emit(TransferFinished(observers.event, now, request.request_id, handover.transfer_us))
        if handover.decode_instance >= 0:
            self._deliver(passage, now)
        else:
            passage.kind = "decode-routing"
            passage.handler = self._route_decode
            cluster.queue.push(now, DECODE_ROUTING, passage)
        cluster.transfer_over(handover.prefill_instance, now)

    def _route_decode(self, passage: Passage, now: int) -> None:
        cluster = self._cluster
        cluster.board.read(now)
        handover = handover_of(passage.request)
        if not self.decode.of(passage.incoming).fleet.members:
            cluster.start_again(passage.request, handover.prefill_instance, now, down=False)
            return
        index = cluster.choose(passage, self.decode, now)
        handover.decode_instance = index
        if reason := self._reserve(passage.request, index, now):
            self._fail(passage, reason, now)
        else:
            self._deliver(passage, now)

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
        cluster = self._cluster
        observers = cluster.observers
        if TransferBrokenOff in observers.kinds:
            observers.emit(TransferBrokenOff(observers.event, now, request.request_id, index, reason))
        if handover.transfer_start_us >= 0:
            self.broken_off += 1
            self.link.end(request.index, now)
            if self._planned_end is not None:
                self._plan_end(now)
        cluster.start_again(request, index, now, down=True)

    def forget(self, request: Request, now: int) -> None:
        """A request that was split starts again, or has ended between its instances."""
        if self.passages.pop(request.index, None) is None:
            return
        handover = handover_of(request)
        if handover.prefilled:
            self._away_us += now - request.first_token_us
        cluster, decode = self._cluster, handover.decode_instance
        if handover.transfer_start_us >= 0 and decode >= 0:
            cluster.instances[decode].give_back(request, now)
        for index in (handover.prefill_instance, decode):
            if index >= 0:
                cluster.transfer_over(index, now)

    def serves(self, index: int) -> bool:
        """Whether KV blocks are on their way from or to an instance, or about to be."""
        ways = [handover_of(one.request) for one in self.passages.values()]
        return any(
            way.prefilled and way.transfer_us < 0 and index in (way.prefill_instance, way.decode_instance)
            for way in ways
        )

    # ---- the end of its way ----

    def _reserve(self, request: Request, index: int, now: int) -> str:
        self._cluster.board.touched[index] = None
        return self._cluster.instances[index].reserve(request, now, reuse=self._settings.reuse_cached_blocks)

    def _deliver(self, passage: Passage, now: int) -> None:
        request = passage.request
        del self.passages[request.index]
        handover = handover_of(request)
        cluster = self._cluster
        cluster.commit(passage, handover.decode_instance)
        self._away_us += now - request.first_token_us
        if request.first_token_us > now:
            self._early_us = [end for end in self._early_us if end > now]
            self._early_us.append(request.first_token_us)
        if cluster.lets_in(request, now):
            cluster.instances[handover.decode_instance].adopt(request, now)

    def _fail(self, passage: Passage, reason: str, now: int) -> None:
        request = passage.request
        self.dropped += 1
        del self.passages[request.index]
        handover, cluster = handover_of(request), self._cluster
        cluster.commit(passage, handover.decode_instance)
        cluster.instances[handover.decode_instance].turn_down(request, reason, now)
        cluster.transfer_over(handover.prefill_instance, now)

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
        return (self.prefill.state(), self.decode.state(), self._decider.state(), self.link.state(), ways, counts)


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
