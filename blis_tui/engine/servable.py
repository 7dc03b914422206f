"""Which requests can never run on an instance: judged by what they declare, never by how long their answers will be."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.request import Request


def unservable(batch: Batch, request: Request) -> str:
    """Why ``request`` can never run in a batch; empty when it can. Settles how much it may generate at most.

    Declared budgets must fit beside the prompt, or are cut to what ``max_model_len`` leaves (``cuts_output``). Without
    one, the limits of the instance where it is leave what they leave: ``max_model_len``, and the KV cache.
    """
    prompt, limit = request.input_tokens, batch.limits.max_model_len
    if batch.encoder is not None and (reason := batch.encoder.too_large(request)):
        return reason
    if limit is not None and prompt >= limit:
        return f"prompt of {prompt} tokens, max_model_len is {limit}"
    if request.declared_tokens < 0:
        request.max_output_tokens = _room(batch, request)
    budget = request.max_output_tokens
    if limit is not None and prompt + budget > limit:
        if not batch.traits.cuts_output:
            return f"prompt of {prompt} + {budget} output tokens, max_model_len is {limit}"
        budget = request.max_output_tokens = limit - prompt
    if batch.traits.fits_strictly:
        most = (batch.pool.total - 1) * batch.limits.block_size_tokens - 1 - (not batch.pool.caching)
        if prompt >= most:
            return f"prompt of {prompt} tokens, the KV cache takes {max(most, 0)} with the answer"
        budget = request.max_output_tokens = min(budget, most - prompt)
    tokens = _tokens(batch, request, budget)
    blocks = -(-tokens // batch.limits.block_size_tokens)
    if blocks > batch.pool.total:
        return f"{tokens} tokens need {blocks} KV blocks, there are {batch.pool.total}"
    return ""


def roomy_tokens(batch: Batch) -> int:
    """With a declared answer, a request of at most so many tokens can run as it is; below 0 = ``unservable`` knows."""
    if batch.speculative is not None or batch.encoder is not None:
        return -1
    limits, pool = batch.limits, batch.pool
    most = pool.total * limits.block_size_tokens
    if limits.max_model_len is not None:
        most = min(most, limits.max_model_len)
    if batch.traits.fits_strictly:
        most = min(most, (pool.total - 1) * limits.block_size_tokens - 1 - (not pool.caching))
    return most


def _room(batch: Batch, request: Request) -> int:
    """The longest answer that the limits leave room for, at least 1."""
    limit, slots = batch.limits.max_model_len, batch.pool.total * batch.limits.block_size_tokens
    longest = slots - request.input_tokens + 1
    if limit is not None:
        longest = min(longest, limit - request.input_tokens)
    while longest > 1 and _tokens(batch, request, longest) > slots:  # a few drafts too many
        longest -= 1
    return max(1, longest)


def _tokens(batch: Batch, request: Request, budget: int) -> int:
    """KV slots of a request that generates all it may; its last token never enters the cache."""
    elsewhere = request.handover is not None and not request.handover.prefilled
    answer = 1 if elsewhere else max(budget, 1)
    whole = request.input_tokens + answer - 1
    speculative, limit = batch.speculative, batch.limits.max_model_len
    if speculative is None:
        return whole
    if answer > 1:  # the last step may verify drafts that lie beyond the answer
        drafted = whole + speculative.luck.draft_tokens
        if not batch.traits.keeps_output:  # nor may it be its own victim when too many count as accepted
            drafted += speculative.most_excess
        whole = drafted if limit is None else min(drafted, limit - 1)
    return speculative.slots_for(whole)
