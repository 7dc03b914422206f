"""What a batch-formation rule is, and the half of a step that running-first engines share."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from blis_tui.engine.instance import Instance
    from blis_tui.engine.request import Request
    from blis_tui.spec.model import Engine


class BatchRule(Protocol):
    """Decides what an instance's next step works on. It remembers nothing from step to step."""

    stores_last_token: bool
    """Whether the last token of an answer takes a place in the KV cache before all places are given back."""

    def schedule(self, instance: Instance) -> None:
        """Plan one step: grant prefill chunks and decode tokens, admit waiting requests, preempt if need be.

        It is called unless the step is a plain decode (nothing prefills, stalls or could be admitted, and budget and
        free blocks cover every decode). A rule that lets no decode advance in this step sets ``instance.advance`` to
        False.
        """

    def prefill_threshold(self, engine: Engine) -> int:
        """The ``long_prefill_token_threshold`` in force; 0 = off."""

    def restart(self, request: Request) -> None:
        """A preempted request lost its KV cache: set what it must compute again, and what it still has."""


def schedule_running(instance: Instance, budget: int) -> int:
    """Give running requests their tokens for this step, in the order of their admission.

    A prefill gets ``min(what is left of it, threshold, budget left)``, a decode one token. Where blocks run out,
    victims are preempted. Returns the token budget that is left, or -1 when something was preempted.
    """
    if not instance.stalled:
        left = _grant_all(instance, budget)
        if left >= 0:
            return left
    return _grant_in_order(instance, budget)


def _want(instance: Instance, request: Request) -> int:
    """Tokens a prefilling request asks for in this step."""
    want = request.target_tokens - request.computed_tokens
    threshold = instance.long_prefill_token_threshold
    return threshold if 0 < threshold < want else want


def _grant_all(instance: Instance, budget: int) -> int:
    """Serve everybody without walking the batch, where order cannot matter; -1 = it could.

    It cannot when the budget covers all wishes, nor when all prefills stand behind all decodes (then the decodes are
    served first in either view); and the blocks must suffice for all.
    """
    pool = instance.pool
    load = instance.load
    left = budget - load.decode_requests
    if left < 0:
        return -1
    prefills = list(instance.prefills.values())
    wants = [_want(instance, request) for request in prefills]
    total = 0
    for want in wants:
        total += want
    if total > left and not _prefills_are_last(instance, prefills):
        return -1
    due = need = len(instance.cohort.due()) if load.decode_requests else 0
    grants: list[int] = []
    for request, want in zip(prefills, wants, strict=True):
        grant = min(want, left)
        left -= grant
        grants.append(grant)
        need += pool.missing(request, request.computed_tokens + grant) if grant else 0
    if need > pool.free:
        return -1
    if due:
        pool.take(due)
    for request, grant in zip(prefills, grants, strict=True):
        if grant:
            instance.grant(request, grant)
    return left


def _prefills_are_last(instance: Instance, prefills: list[Request]) -> bool:
    """Whether the running list ends in exactly these requests."""
    tail = reversed(instance.running.values())
    return all(next(tail) is request for request in reversed(prefills))


def _grant_in_order(instance: Instance, budget: int) -> int:
    """Walk the running list request by request: the budget or the blocks do not cover everybody."""
    pool = instance.pool
    instance.dissolve_cohort()
    granted: dict[int, int] = {}
    decoding: dict[int, Request] = {}
    preempted = False
    for request in list(instance.running.values()):
        if budget <= 0:
            break
        slot = request.batch_slot
        if slot < 0:
            continue  # it fell victim to a request before it
        prefilling = slot in instance.prefills
        tokens = min(_want(instance, request), budget) if prefilling else 1
        need = pool.missing(request, request.computed_tokens + tokens)
        while need > pool.free:
            victim = instance.choose_victim()
            budget += granted.pop(victim.batch_slot, 0)
            decoding.pop(victim.batch_slot, None)
            instance.preempt(victim, request)
            preempted = True
            if victim is request:
                break
        if request.batch_slot < 0:
            break  # it was its own victim: nobody behind it is served either
        if prefilling:
            instance.grant(request, tokens)
        else:
            pool.extend(request, request.computed_tokens + 1)
            decoding[slot] = request
        granted[slot] = tokens
        budget -= tokens
    instance.reform_cohort(decoding)
    return -1 if preempted else budget
