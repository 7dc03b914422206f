"""``nano``: the scheduler of nano-vLLM. Prompts go first: a step is either all prefill or all decode.

Source: nano-vLLM, ``engine/scheduler.py``, ``engine/block_manager.py``, ``engine/model_runner.py``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.engine.options.handover import admit_prefilled, first_with_blocks
from blis_tui.engine.plan import Plan
from blis_tui.engine.rules.rule import BATCHING, Plain, serve_running
from blis_tui.engine.rules.traits import EngineBehavior
from blis_tui.engine.stopped import APART, BLOCKS, MAX_NUM_SEQS, PREEMPTED, TOKENS, Stopped

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.model import Engine
    from blis_tui.model.plug_ins import NoSettings


@BATCHING.plugin("nano", "Prompts first: a step prefills whole prompts or decodes, never both.")
class NanoBatching(Plain):
    """Forms a step from whole prompts; if none fits, the step decodes.

    Prompts are taken from the queue head while ``max_num_seqs`` and ``max_num_batched_tokens`` allow and the blocks of
    the whole sequence are free; no request overtakes another. A decode step gives one token each to up to
    ``max_num_seqs`` running requests, in the order of their admission; it uses no token budget. A preempted request
    keeps its generated tokens.
    """

    def __init__(self, settings: NoSettings) -> None:  # noqa: ARG002  (there are none)
        self.traits = EngineBehavior(
            keeps_output=True,
            running_first=False,
            chunked_prefill=False,
            reserves_whole_prompt=True,
            busy_until_the_end=True,
            skips_empty_steps=True,
            ties_by_name=False,
            cuts_output=True,
            overtakes=False,
            prefills_apart=True,
            limits_each_step=True,
            captured_sizes=True,
            counts_cached_tokens=True,
            sizes_pool="rank",
        )

    def plan(self, batch: Batch) -> Plan:
        """Plan one step."""
        plan = Plan()
        self._prefill(batch, plan)
        if plan.chunks:
            batch.dissolve_cohort()
        else:
            self._take_over(batch, plan, serve_running(batch, plan, batch.limits.max_num_seqs))
        return plan

    def prefill_threshold(self, engine: Engine) -> int:  # noqa: ARG002  (the protocol's signature)
        """Prompts are never split."""
        return 0

    def _prefill(self, batch: Batch, plan: Plan) -> None:
        """Admit whole prompts from the head of the queue while they fit."""
        waiting, pool = batch.waiting, batch.pool
        size = pool.block_size_tokens
        budget = batch.limits.max_num_batched_tokens
        while waiting.items:
            if budget <= 0 or len(plan.admitted) >= batch.limits.max_num_seqs:
                plan.stopped = Stopped(TOKENS if budget <= 0 else MAX_NUM_SEQS, 1)
                break
            request = waiting.head()
            attempt = (request.index, pool.epoch, budget)
            if request.index in batch.reserved:
                plan.stopped = Stopped(APART, request=request)
                break
            if attempt == batch.refused:
                plan.stopped = batch.stopped
                break
            known = request.target_tokens
            cached = pool.cached_prefix(request, (known - 1) // size)
            tokens = known - cached * size
            if tokens > budget:
                plan.stopped = Stopped(TOKENS, tokens, budget, request)
                break
            need = pool.missing(request, known) - cached + pool.idle_among(request, cached)
            if need > pool.free:
                batch.refused = attempt
                plan.stopped = batch.stopped = Stopped(BLOCKS, need, pool.free, request, tried_us=batch.now)
                break
            batch.admit(plan, request, cached, tokens)
            budget -= tokens

    def _take_over(self, batch: Batch, plan: Plan, places: int) -> None:
        """Admit requests from the head of the queue whose prompts were computed elsewhere, to decode, too."""
        waiting, pool = batch.waiting, batch.pool
        while waiting.items:
            request = (None if batch.running else first_with_blocks(batch)) or waiting.head()
            if request.index not in batch.reserved:
                plan.stopped = plan.stopped or Stopped(PREEMPTED)  # else no request was waiting before
                break
            if places <= 0:
                plan.stopped = Stopped(PREEMPTED) if plan.preempted else Stopped(MAX_NUM_SEQS, 1)
                break
            need = pool.missing(request, request.computed_tokens + 1)
            if need > pool.free:
                plan.stopped = Stopped(BLOCKS, need, pool.free, request)
                break
            admit_prefilled(batch, plan, request)
            places -= 1
