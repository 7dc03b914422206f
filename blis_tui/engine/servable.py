"""Which requests can never run on an instance."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.engine.batch import Batch
    from blis_tui.engine.request import Request


def unservable(batch: Batch, request: Request) -> str:
    """Why ``request`` can never run in a batch; empty when it can. Settles how much it may generate at most."""
    prompt = request.input_tokens
    limit = batch.limits.max_model_len
    if limit is not None and prompt >= limit:
        return f"prompt of {prompt} tokens, max_model_len is {limit}"
    if not request.max_output_tokens:
        request.max_output_tokens = request.output_tokens if limit is None else limit - prompt
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
    # The last token generated never enters the cache; the answer of a split request is generated elsewhere.
    elsewhere = request.handover is not None and not request.handover.prefilled
    answer = 1 if elsewhere else max(min(budget, request.output_tokens), 1)
    whole = prompt + answer - 1
    if batch.speculative is not None:
        if answer > 1:  # the last step may verify drafts that lie beyond the answer
            drafted = whole + batch.speculative.luck.draft_tokens
            if not batch.traits.keeps_output:  # nor may it be its own victim when too many count as accepted
                drafted += batch.speculative.most_excess
            whole = drafted if limit is None else min(drafted, limit - 1)
        whole = batch.speculative.slots_for(whole)
    blocks = -(-whole // batch.limits.block_size_tokens)
    if blocks > batch.pool.total:
        return f"{whole} tokens need {blocks} KV blocks, there are {batch.pool.total}"
    return ""
