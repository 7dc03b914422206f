"""SGLang's servers of two kinds: one computes prompts for others, one generates answers to them.

Source: SGLang 0.5.23, ``disaggregation/decode.py`` (``DecodePreallocQueue``, ``process_decode_queue``,
``get_new_prebuilt_batch``) and ``disaggregation/prefill.py`` (``process_disagg_prefill_inflight_queue``).

A server that decodes makes room for a prompt before another one computes it. Until then the request stands in its
*expected* ones; from then on a stand-in holds the KV blocks (``Batch.reserved``), which the request takes over when its
KV has arrived. It waits then, and joins the running batch in the next step without a prefill. A retracted request keeps
its KV on the host, and waits until there is room for it again.

A server that computes prompts keeps their KV blocks until they are sent (``Batch.sending``).
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.request import WAITING
from blis_tui.engine.sglang.prefill import MOST_NEW_TOKENS
from blis_tui.engine.stopped import MAX_NUM_SEQS, ROOM, Stopped

if TYPE_CHECKING:
    from collections.abc import Collection

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Plan
    from blis_tui.engine.request import Request


RESERVED_TOKENS: Final = 512
"""``num_reserved_decode_tokens``."""
_FEW_PLACES: Final = 32
"""With so many places or fewer, a server may hold the KV of three times as many requests (``pre_alloc_size``)."""


@mypyc_attr(allow_interpreted_subclasses=True)
class Handovers(Picklable):
    """What an instance knows of prompts that are computed on another one than their answers.

    Args:
        reserved_tokens: what each request is expected to generate at least.

    Attributes:
        expected: requests whose prompts will be computed elsewhere once there is room here, by index, in order.
        prepared: those for which room was found in the latest look, until the control plane knows of them.
        received: waiting requests that the scheduler knows to be complete, by index, in the order in which they enter.
        sent: those of ``Batch.sending`` whose KV has been sent since the scheduler last looked.
    """

    def __init__(self, reserved_tokens: int) -> None:
        self._reserved = reserved_tokens
        self.expected: dict[int, Request] = {}
        self.prepared: list[Request] = []
        self.received: dict[int, Request] = {}
        self.sent: list[Request] = []

    @property
    def pending(self) -> bool:
        """Whether the next look, at the start of a step or without one, may change anything."""
        return bool(self.expected or self.sent)

    def settled(self, batch: Batch) -> bool:
        """Whether a plan has nothing to do here."""
        return not (self.expected or batch.waiting.items)

    def excess(self, batch: Batch, request: Request) -> str:
        """Return why there will never be room for a prompt with what is reserved for its answer, or ""."""
        need, have = request.input_tokens + self._reserved, batch.pool.total * batch.limits.block_size_tokens
        if need <= have:
            return ""
        return f"prompt of {request.input_tokens} + {self._reserved} reserved tokens, there are {have}"

    def forget(self, request: Request) -> None:
        """Forget a request that will not come."""
        self.expected.pop(request.index, None)

    def others(self, batch: Batch, count: int | None) -> list[Request]:
        """Return the first waiting requests that compute their prompts here."""
        return [request for request in batch.waiting.ordered() if not _is_elsewhere(request)][:count]

    # ---- looking at the queues ----

    def look(self, batch: Batch, running: Collection[Request]) -> Stopped | None:
        """Make room for retracted requests; if none of them is left, also for expected ones, and see whose KV is here.

        Returns why a retracted request must wait.
        """
        stopped = self._resume(batch, running) if batch.waiting.items else None
        if stopped is None and self.expected:
            self._prepare(batch, running)
        if stopped is None or not (running or self.received):  # (otherwise SGLang would hang)
            self._receive(batch)
        return stopped

    def _receive(self, batch: Batch) -> None:
        """See whose KV has arrived, in the order in which there was room for it (``pop_transferred``)."""
        for request in batch.reserved.values():
            if request.state is WAITING:
                self.received[request.index] = request

    def _resume(self, batch: Batch, running: Collection[Request]) -> Stopped | None:
        budget = self._free(batch) - self._reserved * (len(running) + len(batch.reserved))
        for request in [request for request in batch.waiting.ordered() if _is_elsewhere(request)]:
            if request.index in batch.reserved:
                continue
            tokens = request.target_tokens - 1  # the KV of its latest token is not there yet
            need = tokens + self._reserved
            if self._places(batch, running) <= 0:
                return Stopped(MAX_NUM_SEQS, 1)
            if need > budget:
                return Stopped(ROOM, need, max(0, budget), request)
            budget -= need
            batch.pool.hold(request, tokens)
            request.computed_tokens = tokens
            self.received[request.index] = batch.reserved[request.index] = request
        return None

    def _prepare(self, batch: Batch, running: Collection[Request]) -> None:
        retractable = whole_sum([one.input_tokens + batch.cohort.generated_tokens(one) for one in running])
        alone = max((_longest(one) for one in running), default=retractable) - retractable
        for request in [*self.expected.values()]:
            budget = self._free(batch) - max(self._reserved * (len(running) + len(batch.reserved)), alone)
            need = max(request.input_tokens + self._reserved, _longest(request) - retractable)
            if need > budget or self._places(batch, running) <= 0:
                return
            del self.expected[request.index]
            holder = copy(request)
            batch.pool.hold(holder, request.input_tokens)
            holder.computed_tokens = request.input_tokens
            batch.reserved[request.index] = holder
            self.prepared.append(request)

    def _free(self, batch: Batch) -> int:
        return batch.pool.free * batch.limits.block_size_tokens

    def _places(self, batch: Batch, running: Collection[Request]) -> int:
        """How many more requests may hold KV blocks (``DecodeReqToTokenPool``)."""
        places = batch.limits.max_num_seqs
        return places * (3 if places <= _FEW_PLACES else 1) - len(running) - len(batch.reserved)

    # ---- into the running batch ----

    def enter(self, batch: Batch, plan: Plan, places: int) -> list[Request]:
        """Let waiting requests whose KV is here run from this step on, and return them."""
        held = batch.reserved
        self.received = {index: one for index, one in self.received.items() if held.get(index) is one}
        ready = [*self.received.values()]
        if len(ready) > places:
            plan.stopped = Stopped(MAX_NUM_SEQS, 1)
            del ready[max(0, places) :]
        for request in ready:
            slot = batch.assign_slot(request)
            batch.stalled[slot] = request  # until its first step starts
            del batch.reserved[request.index], self.received[request.index]
            request.target_tokens = request.computed_tokens
            plan.admitted.append(request)
        return ready

    # ---- the other server ----

    def free_sent(self, batch: Batch) -> None:
        """Free the blocks of prompts that have been sent."""
        sent, self.sent = self.sent, []
        for holder in sent:
            del batch.sending[holder.index]
            batch.pool.release(holder, holder.computed_tokens)

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers, as plain values (for digests)."""
        return (list(self.expected), list(self.received), [request.index for request in (*self.prepared, *self.sent)])


def _is_elsewhere(request: Request) -> bool:
    """Whether the prompt of a waiting request was computed on another instance."""
    return request.handover is not None and request.handover.prefilled


def _longest(request: Request) -> int:
    return request.input_tokens + min(request.max_output_tokens, MOST_NEW_TOKENS)
