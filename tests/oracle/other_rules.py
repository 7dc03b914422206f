"""Batching rules where running requests do not simply go first, written as plainly as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .stops import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .instance import Block, Instance, Job, Plan


def _prompts_first(instance: Instance, plan: Plan, now: int) -> None:
    """``nano``: whole prompts from the head of the queue; a step decodes only if none fits."""
    most = instance.engine.max_num_seqs
    while instance.waiting and plan.budget > 0 and len(plan.admitted) < most:
        job = instance.waiting[0]
        blocks, fits = _found(instance, job, job.target)
        tokens = job.target - len(blocks) * instance.pool.size
        if job.reserved or tokens > plan.budget or not fits:
            plan.stop = _stop(instance, plan, job, blocks, tokens)
            break
        instance.enter(plan, job, blocks, tokens, now)
    else:
        if instance.waiting:
            plan.stop = Stop("tokens" if plan.budget <= 0 else "seqs", 1)
    if plan.tokens:
        return
    plan.budget = most  # from here on it counts requests
    for job in list(instance.running):
        if plan.budget <= 0:
            break
        if job in instance.running:
            if not instance.make_room(plan, job, 1, now):
                break
            instance.grant(plan, job, 1, now)
    plan.stop = plan.stop or Stop("preempted")
    while instance.waiting and plan.budget > 0 and not plan.preempted:
        holders = [] if instance.running else [job for job in instance.waiting if job.reserved]
        job = [*holders, instance.waiting[0]][0]
        if not job.reserved or not instance.admit(plan, job, now):
            break


def _stop(instance: Instance, plan: Plan, job: Job, blocks: list[Block], tokens: int) -> Stop:
    """Why the head of the queue is not admitted."""
    if job.reserved:
        return Stop("apart", name=job.name)
    if tokens > plan.budget:
        return Stop("tokens", tokens, plan.budget, job.name)
    idle = len([block for block in blocks if block in instance.pool.free])
    return Stop("blocks", instance.pool.blocks_for(job.target) - len(blocks) + idle, len(instance.pool.free), job.name)


def _one_pass(instance: Instance, plan: Plan, now: int) -> None:
    """``llm-serving-sim``: all requests by arrival; those that do not fit are skipped."""
    _serve(instance, plan, instance.running + instance.waiting, now)
    if plan.tokens or instance.under_way:
        return
    while instance.running and not plan.tokens:
        oldest = min(instance.running, key=lambda job: job.place)
        tokens = instance.limited(oldest.target - oldest.computed, plan) if oldest.prefilling else 1
        if instance.make_room(plan, oldest, tokens, now):
            instance.grant(plan, oldest, tokens, now)
    _serve(instance, plan, [job for job in instance.running if job not in plan.tokens], now)


def _serve(instance: Instance, plan: Plan, jobs: Iterable[Job], now: int) -> None:
    def turn(job: Job) -> tuple[bool, int, int]:
        decodes = job.reserved or not job.prefilling
        later = decodes and bool(instance.policy.batching.settings.get("prioritize_prefill"))
        return (later, job.request.arrival_us, job.request.index)

    busy = sum(len(jobs) for _, jobs in instance.under_way)
    for job in sorted(jobs, key=turn):
        if plan.budget <= 0 or len(plan.tokens) + busy >= instance.engine.max_num_seqs:
            break
        if job.reserved:
            instance.admit(plan, job, now)
        elif instance.is_busy(job):
            continue
        elif job in instance.waiting:
            blocks, _ = _found(instance, job, job.target)
            start = len(blocks) * instance.pool.size
            tokens = instance.limited(job.target - start, plan)
            blocks, fits = _found(instance, job, start + tokens)
            if fits:
                instance.enter(plan, job, blocks, tokens, now)
        else:
            tokens = instance.limited(job.target - job.computed, plan) if job.prefilling else 1
            if instance.pool.blocks_for(job.computed + tokens) - len(job.table) <= len(instance.pool.free):
                instance.grant(plan, job, tokens, now)


def _found(instance: Instance, job: Job, tokens: int) -> tuple[list[Block], bool]:
    """What the cache holds of its prompt, all but the last token, and whether blocks for so many tokens are free."""
    pool = instance.pool
    blocks = pool.cached(job.tokens, (job.target - 1) // pool.size)
    free = [block for block in pool.free if block not in blocks]
    return blocks, pool.blocks_for(tokens) - len(blocks) <= len(free)


OTHERS: Final[Mapping[str, Callable[[Instance, Plan, int], None]]] = {
    "nano": _prompts_first,
    "llm-serving-sim": _one_pass,
}
