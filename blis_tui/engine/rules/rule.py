"""The interface of batch-formation rules, and what engines that serve running requests first have in common."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.base.classes import mypyc_attr
from blis_tui.base.pickling import Picklable
from blis_tui.base.portable_math import whole_sum
from blis_tui.engine.options.handover import awaits_blocks, evict_reserved
from blis_tui.engine.plan import DiscardedTokens, Plan
from blis_tui.engine.rules.admission import Admission
from blis_tui.engine.rules.traits import EngineBehavior
from blis_tui.model.plug_ins import PlugPoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.engine.batch import Batch
    from blis_tui.engine.plan import Preemption
    from blis_tui.engine.request import Request
    from blis_tui.engine.stopped import Stopped
    from blis_tui.model import Engine


class BatchRule(Protocol):
    """Decides what an instance's next step works on."""

    @property
    def traits(self) -> EngineBehavior:
        """How its batches differ from the default."""

    def plan(self, batch: Batch) -> Plan:
        """Plan one step: grant prefill chunks and decode tokens, admit waiting requests, preempt if necessary.

        It is not called for plain decodes (nothing prefills, stalls or could be admitted, and budget and free blocks
        cover every decode). If it leaves requests in the queue, it gives the reason in ``Plan.stopped``, which
        explanations quote; without one they say that the rule gives no reason.
        """

    def max_running(self, engine: Engine) -> int:
        """The most requests that may run at the same time."""

    def prefill_threshold(self, engine: Engine) -> int:
        """The ``long_prefill_token_threshold`` in force; 0 = off."""

    def state(self) -> tuple[object, ...]:
        """Return everything it remembers from step to step, as plain values (for digests)."""


_ORDER_MATTERS: Final = -2
_DEFAULT_TRAITS: Final = EngineBehavior()

BATCHING: Final = PlugPoint[[], BatchRule]("policy.batching", "batching rule", BatchRule)


def plan_step(rule: BatchRule, batch: Batch, *, ahead: bool) -> Plan | None:
    """Plan a step; None = nothing can be done before KV blocks arrive.

    If no request fits, waiting requests that hold blocks lose them, the last one first, until one fits. A plan made
    ``ahead`` does not do that, as the step in flight may free some blocks.
    """
    plan = rule.plan(batch)
    if ahead or rule.traits.prepares_handovers or not batch.reserved or batch.running or plan.preempted:
        if plan.preempted and not batch.running and not batch.finishing and awaits_blocks(batch):
            batch.preempted_for_reserved += 1
        return plan
    if batch.awaits_adapter():
        return plan
    if awaits_blocks(batch):
        return None
    preempted: list[Preemption] = []
    while batch.reserved and not batch.running:
        preempted.append(evict_reserved(batch))
        plan = rule.plan(batch)
        if batch.awaits_adapter():
            break
    plan.preempted[:0] = preempted
    return plan


@mypyc_attr(allow_interpreted_subclasses=True)
class Plain(Picklable):
    """Base of most rules: limits as configured, and no memory."""

    def max_running(self, engine: Engine) -> int:
        """Return the configured ``max_num_seqs``."""
        return engine.max_num_seqs

    def prefill_threshold(self, engine: Engine) -> int:
        """Return the configured threshold."""
        return engine.long_prefill_token_threshold

    def state(self) -> tuple[object, ...]:
        """Return nothing, as it has no memory."""
        return ()


@mypyc_attr(allow_interpreted_subclasses=True)
class RunningFirst(Plain):
    """Serves running requests first, then waiting ones from the queue head, while budget, places and blocks last."""

    @property
    def traits(self) -> EngineBehavior:
        """The default traits."""
        return _DEFAULT_TRAITS

    def plan(self, batch: Batch) -> Plan:
        """Plan one step."""
        return self._serve(batch, True)

    def _serve(self, batch: Batch, prompts: bool) -> Plan:
        """Plan one step; without ``prompts``, running requests get nothing for theirs."""
        plan = Plan(self.threshold(batch))
        budget = serve_running(batch, plan, batch.limits.max_num_batched_tokens, prompts)
        if batch.waiting.items:
            if budget > 0:
                self.admit_waiting(batch, plan, budget)
            else:
                plan.stop_untried()
        return plan

    def threshold(self, batch: Batch) -> int:
        """The ``long_prefill_token_threshold`` of the step being planned; 0 = off."""
        return batch.limits.long_prefill_token_threshold

    def padded_tokens(self, batch: Batch) -> int:  # noqa: ARG002  (for rules that pad)
        """Tokens of an admitted request that needs only one, next to decodes with drafts; 0 = no padding."""
        return 0

    def admits(self, batch: Batch, request: Request) -> bool:  # noqa: ARG002  (for rules with further conditions)
        """Whether a waiting request may enter if its KV blocks are free; called in each plan that reaches it."""
        return True

    def why_not(self, batch: Batch, request: Request) -> Stopped | None:  # noqa: ARG002  (for such rules)
        """Why a request that fits may not enter; None = the rule gives no reason."""
        return None

    def admit_waiting(self, batch: Batch, plan: Plan, budget: int) -> None:
        """Admit from the head of the queue as long as everything fits."""
        admission = batch.admission
        if admission is None:
            asks = type(self).admits is not RunningFirst.admits
            admission = batch.admission = Admission(self, batch, asks=asks)
        admission.run(plan, budget)


def serve_running(batch: Batch, plan: Plan, budget: int, prompts: bool = True) -> int:
    """Give running requests their tokens for this step, in the order of their admission.

    A prefill gets ``min(rest of the prompt, threshold, remaining budget)``, a decode one token. If blocks run out,
    victims are preempted. Without ``prompts``, prefills get nothing. Returns the remaining token budget, or -1 if a
    request was preempted.
    """
    cohort = batch.cohort
    in_order = batch.stalled or batch.paused or (batch.encoder is not None and batch.encoder.has_media(batch.prefills))
    if not in_order and (prompts or not batch.prefills):
        if (
            not batch.prefills and cohort.lockstep and not cohort.maybe_finished
        ):  # the usual case when requests are admitted
            decodes = batch.load.decode_requests
            blocks = cohort.due_blocks() if decodes else 0
            if decodes <= budget and blocks <= batch.pool.free:
                if blocks:
                    batch.pool.take(blocks)
                return budget - decodes
        left = _grant_all(batch, plan, budget)
        if left != _ORDER_MATTERS:
            return left
    return _grant_in_order(batch, plan, budget, prompts=prompts)


def _wanted_tokens(request: Request, threshold: int) -> int:
    """Tokens a prefilling request asks for in this step."""
    return _capped(threshold, request.target_tokens - request.computed_tokens)


def _capped(threshold: int, tokens: int) -> int:
    return threshold if 0 < threshold < tokens else tokens


def _grant_all(batch: Batch, plan: Plan, budget: int) -> int:
    """Serve all requests without walking the batch, where the order of granting cannot matter.

    It cannot matter when the budget covers all requests, or when all prefills come after all decodes (then decodes are
    served first either way) and there are enough blocks for all. Returns the same as ``_grant_in_order``.
    """
    pool = batch.pool
    cohort = batch.cohort
    decodes, due = cohort.next_needs(plan.threshold)
    maybe_finished = list(cohort.maybe_finished.values())
    left = budget - decodes - len(maybe_finished)
    if left < 0 or (pool.served_in_order and maybe_finished):
        return _ORDER_MATTERS
    wasted_blocks = whole_sum([pool.missing(request, request.computed_tokens + 1) for request in maybe_finished])
    if not batch.prefills and due + wasted_blocks <= pool.free:
        if due or not cohort.lockstep:
            cohort.take(pool, due)
        _grant_past_end(batch, plan, maybe_finished)
        return left
    prefills = list(batch.prefills.values())
    wants = [_wanted_tokens(request, plan.threshold) for request in prefills]
    total = whole_sum(wants)
    covered = total <= left
    if (not covered or pool.served_in_order) and (maybe_finished or not _prefills_are_last(batch, prefills)):
        return _ORDER_MATTERS
    need = due + wasted_blocks
    grants: list[int] = []
    drafting = batch.speculative
    for request, want in zip(prefills, wants, strict=True):
        grant = min(want, left)
        left -= grant
        grants.append(grant)
        if grant:
            slots = request.computed_tokens + grant if drafting is None else drafting.slots(request, grant)
            need += max(0, pool.missing(request, slots))
    if need > pool.free:
        if not cohort.lockstep or maybe_finished:
            return _ORDER_MATTERS
        serve_with_too_few_blocks(batch, plan, dict(zip(batch.prefills, wants, strict=True)), budget)
        return -1
    cohort.take(pool, due)
    _grant_past_end(batch, plan, maybe_finished)
    for request, grant in zip(prefills, grants, strict=True):
        if grant:
            batch.grant(plan, request, grant)
    return left


def _grant_past_end(batch: Batch, plan: Plan, maybe_finished: list[Request]) -> None:
    """Let requests compute one more token although their answers end in the step in flight, which plans cannot know."""
    for request in maybe_finished:
        batch.pool.extend(request, request.computed_tokens + 1)
        plan.ghosts.append(DiscardedTokens(request, 1, request.computed_tokens))


def _prefills_are_last(batch: Batch, prefills: list[Request]) -> bool:
    """Whether the running list ends with exactly these requests."""
    tail = reversed(batch.running.values())
    return all(next(tail) is request for request in reversed(prefills))


def _grant_in_order(batch: Batch, plan: Plan, budget: int, *, prompts: bool) -> int:
    """Walk the running list request by request, because the budget or the blocks do not cover all."""
    pool = batch.pool
    drafting, encoder = batch.speculative, batch.encoder
    batch.dissolve_cohort()
    granted: dict[int, int] = {}
    decoding: dict[int, Request] = {}
    for request in batch.in_order():
        if budget <= 0:
            break
        slot = request.batch_slot
        if slot < 0:
            continue  # it was preempted for a request before it
        prefilling = slot in batch.prefills
        if not prompts if prefilling else slot in batch.paused:
            continue
        if prefilling:
            tokens = _wanted_tokens(request, plan.threshold)
        else:
            tokens = 1 if drafting is None else _capped(plan.threshold, drafting.width(request))
        tokens = min(tokens, budget)
        if prefilling and encoder is not None:
            tokens = encoder.fit(request, request.computed_tokens, tokens)
        if tokens <= 0:
            continue  # as far as plans know, it may have used up its budget
        slots = request.computed_tokens + tokens if drafting is None else drafting.slots(request, tokens)
        pool.slide(request)
        need = pool.missing(request, slots)
        while need > pool.free:
            victim = batch.choose_victim()
            restored = granted.pop(victim.batch_slot, 0)
            budget += restored
            decoding.pop(victim.batch_slot, None)
            batch.preempt(plan, victim, request, restored)
            if victim is request:
                break
        if request.batch_slot < 0:
            if batch.serves_behind_preempted:
                continue
            break  # it preempted itself: no request behind it is served either
        if prefilling:
            batch.grant(plan, request, tokens)
            if encoder is not None:
                encoder.take(request, plan.chunks[-1])
        else:
            if drafting is None:
                pool.extend(request, slots)
            else:
                pool.hold(request, slots)
                drafting.note_grant(request)
            if slot in batch.finishing:
                plan.ghosts.append(DiscardedTokens(request, tokens, request.computed_tokens))
            else:
                decoding[slot] = request
        granted[slot] = tokens
        budget -= tokens
    batch.reform_cohort(decoding)
    if drafting is not None:
        drafting.grant({request.index: granted[slot] for slot, request in decoding.items()})
    return -1 if plan.preempted else budget


def serve_with_too_few_blocks(batch: Batch, plan: Plan, wants: Mapping[int, int], budget: int) -> None:
    """Serve all running requests, none of which is stalled, in the order of their admission; preempt as needed.

    The step has enough tokens for all decodes but too few KV blocks. Served in batch order, only prefills and decodes
    that cross a block boundary need blocks. All other requests get their token whatever happens, unless they are
    preempted. So it suffices to go through the requests that need blocks, and the cohort stays intact except for the
    victims.

    Args:
        batch: the requests.
        plan: the step's plan, which grants nothing so far.
        wants: batch slot of each prefill -> tokens it asks for, in ascending order of slots.
        budget: token budget of the step. It covers all requests, or all prefills come after all decodes and it covers
            these.
    """
    pool, running = batch.pool, batch.running
    due = batch.cohort.due() if batch.load.decode_requests else {}
    prefills = [*wants]
    asking = sorted([*due, *prefills])
    granted: dict[int, int] = {}
    left = budget - batch.load.decode_requests
    """Budget left after the decodes and ``granted``."""
    at = 0
    while at < len(asking):
        slot = asking[at]
        tokens = min(wants[slot], left) if slot in wants else 0
        if not tokens:
            if slot in wants:
                return
            if pool.free:
                behind = bisect_right(prefills, slot)
                decodes = (bisect_left(asking, prefills[behind]) if behind < len(prefills) else len(asking)) - at
                decodes = min(decodes, pool.free)
                pool.take(decodes)
                at += decodes
                continue
        request = running[slot]
        need = pool.missing(request, request.computed_tokens + tokens) if tokens else 1
        while need > pool.free and request.batch_slot >= 0:
            victim = batch.choose_victim()
            gone = victim.batch_slot
            left += _preempt(batch, plan, victim, request, granted.pop(gone, 0), took_block=gone < slot and gone in due)
            if gone != slot and _remove_slot(asking, gone) and gone < slot:
                at -= 1
            _remove_slot(prefills, gone)
        if request.batch_slot >= 0:
            if tokens:
                batch.grant(plan, request, tokens)
                granted[slot] = tokens
                left -= tokens
                at += 1
            continue
        if not batch.serves_behind_preempted:
            _stall_behind(batch, slot)
            return
        at += 1


def _remove_slot(slots: list[int], slot: int) -> bool:
    """Remove a slot from a sorted list; return whether it was there."""
    place = bisect_left(slots, slot)
    if place == len(slots) or slots[place] != slot:
        return False
    del slots[place]
    return True


def _preempt(batch: Batch, plan: Plan, victim: Request, beneficiary: Request, granted: int, *, took_block: bool) -> int:
    """Preempt a request, which loses its grant of this step; return how much of the budget that frees.

    A victim that decodes and comes before the beneficiary has been served, too.
    """
    if victim.joined_clock < 0:
        batch.preempt(plan, victim, beneficiary, granted)
        return granted
    served = victim.batch_slot < beneficiary.batch_slot
    batch.cohort.leave(victim)
    victim.held_blocks += took_block
    batch.preempt(plan, victim, beneficiary, int(served))
    return 1


def _stall_behind(batch: Batch, slot: int) -> None:
    """Stall the decodes from ``slot`` on in this step."""
    batch.stalls += 1
    for request in reversed(batch.running.values()):
        if request.batch_slot < slot:
            break
        if request.joined_clock >= 0:
            batch.cohort.leave(request)
            batch.stalled[request.batch_slot] = request
