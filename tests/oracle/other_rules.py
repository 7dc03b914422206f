"""Batching rules where running requests do not simply go first, written as plainly as possible."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from .stops import Stop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from .instance import Block, Instance, Job, Plan


def _prompts_first(one: Instance, plan: Plan, now: int) -> None:
    """``nano``: whole prompts from the head of the queue; a step decodes only if none fits."""
    most = one.engine.max_num_seqs
    while one.waiting and plan.budget > 0 and len(plan.admitted) < most:
        job = one.waiting[0]
        found, fits = _found(one, job, job.target)
        tokens = job.target - len(found) * one.pool.size
        if job.reserved or tokens > plan.budget or not fits:
            plan.stop = _stop(one, plan, job, found, tokens)
            break
        one.enter(plan, job, found, tokens, now)
    else:
        if one.waiting:
            plan.stop = Stop("tokens" if plan.budget <= 0 else "seqs", 1)
    if plan.tokens:
        return
    plan.budget = most  # from here on it counts requests
    for job in list(one.running):
        if plan.budget <= 0:
            break
        if job in one.running:
            if not one.make_room(plan, job, 1, now):
                break
            one.grant(plan, job, 1, now)
    plan.stop = plan.stop or Stop("preempted")
    while one.waiting and plan.budget > 0 and not plan.preempted:
        holders = [] if one.running else [job for job in one.waiting if job.reserved]
        job = [*holders, one.waiting[0]][0]
        if not job.reserved or not one.admit(plan, job, now):
            break


def _stop(one: Instance, plan: Plan, job: Job, found: list[Block], tokens: int) -> Stop:
    """Why the head of the queue is not admitted."""
    if job.reserved:
        return Stop("apart", name=job.name)
    if tokens > plan.budget:
        return Stop("tokens", tokens, plan.budget, job.name)
    idle = len([block for block in found if block in one.pool.free])
    return Stop("blocks", one.pool.blocks_for(job.target) - len(found) + idle, len(one.pool.free), job.name)


def _one_pass(one: Instance, plan: Plan, now: int) -> None:
    """``llm-serving-sim``: all requests by arrival; those that do not fit are skipped."""
    _serve(one, plan, one.running + one.waiting, now)
    if plan.tokens or one.under_way:
        return
    while one.running and not plan.tokens:
        oldest = min(one.running, key=lambda job: job.place)
        tokens = one.limited(oldest.target - oldest.computed, plan) if oldest.prefilling else 1
        if one.make_room(plan, oldest, tokens, now):
            one.grant(plan, oldest, tokens, now)
    _serve(one, plan, [job for job in one.running if job not in plan.tokens], now)


def _serve(one: Instance, plan: Plan, jobs: Iterable[Job], now: int) -> None:
    def turn(job: Job) -> tuple[bool, int, int]:
        decodes = job.reserved or not job.prefilling
        later = decodes and bool(one.policy.batching.settings.get("prioritize_prefill"))
        return (later, job.request.arrival_us, job.request.index)

    busy = sum(len(jobs) for _, jobs in one.under_way)
    for job in sorted(jobs, key=turn):
        if plan.budget <= 0 or len(plan.tokens) + busy >= one.engine.max_num_seqs:
            break
        if job.reserved:
            one.admit(plan, job, now)
        elif one.is_busy(job):
            continue
        elif job in one.waiting:
            found, _ = _found(one, job, job.target)
            start = len(found) * one.pool.size
            tokens = one.limited(job.target - start, plan)
            found, fits = _found(one, job, start + tokens)
            if fits:
                one.enter(plan, job, found, tokens, now)
        else:
            tokens = one.limited(job.target - job.computed, plan) if job.prefilling else 1
            if one.pool.blocks_for(job.computed + tokens) - len(job.table) <= len(one.pool.free):
                one.grant(plan, job, tokens, now)


def _found(one: Instance, job: Job, tokens: int) -> tuple[list[Block], bool]:
    """What the cache holds of its prompt, all but the last token, and whether blocks for so many tokens are free."""
    pool = one.pool
    found = pool.cached(job.tokens, (job.target - 1) // pool.size)
    free = [block for block in pool.free if block not in found]
    return found, pool.blocks_for(tokens) - len(found) <= len(free)


OTHERS: Final[Mapping[str, Callable[[Instance, Plan, int], None]]] = {
    "nano": _prompts_first,
    "llm-serving-sim": _one_pass,
}
