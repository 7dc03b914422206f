"""What a batch-formation rule says about itself."""

from __future__ import annotations

from dataclasses import replace

from blis_tui.classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a rule says about itself: the engine keeps to it, explanations tell it."""

    keeps_output: bool = False
    """A preempted request keeps the tokens it has generated and prefills them again; else it generates them again."""
    caches_whole_prompts: bool = False
    """A prompt may be found in the cache as a whole, its last token included: then no token of it is computed."""
    stores_last_token: bool = False
    """The last token of an answer takes a place in the KV cache before all places are given back."""
    chunked_prefill: bool = True
    """A prompt that exceeds what is left of the token budget is split; else it waits for a step it fits in."""
    reserves_whole_prompt: bool = False
    """A request is admitted only when all of its prompt fits into the free blocks, not just its first chunk."""
    watermark: float = 0.0
    """Share of the KV blocks kept free when a request joins others."""
    null_block: bool = False
    """There is one more block than requests can have; shares of the KV blocks count it."""
    vllm_block_pool: bool = False
    """Content is noted and blocks are evicted by the rules of vLLM's block pool: see ``BlockPool``."""
    plans_ahead: bool = False
    """A step is planned while the one before it runs (vLLM's asynchronous scheduling)."""
    plans_past_stops: bool = False
    """A step that is planned so knows which answers end with their budget, but not which end by themselves before it:
    for these it computes one more token, of which nothing comes."""
    busy_until_the_end: bool = False
    """A step keeps the engine busy until it ends, even without a request left: those that come meanwhile wait."""
    skips_empty_steps: bool = False
    """A step that only preempts takes no time."""
    ties_by_name: bool = True
    """Where a sorted queue knows no other difference, names decide; else who came first."""
    running_first: bool = True
    """Running requests go first, the oldest first: victims can be weighed, swapped out and brought back from tiers."""
    prefills_apart: bool = False
    """A step prefills or decodes, never both; prompts go first, and then all decodes stall."""
    limits_each_step: bool = False
    """``max_num_seqs`` bounds how many requests a step serves, not how many hold KV blocks."""
    unlimited_seqs: bool = False
    """``max_num_seqs`` may be 0: no bound."""
    captured_sizes: bool = False
    """Decode steps replay captured CUDA graphs: see ``CapturedSizes``."""
    overtakes: bool | None = None
    """Whether a request that does not fit is skipped, so that those behind it may go first; else none is scheduled
    before the queue head. None = the rule does not say, and explanations say nothing about it."""
    in_order_of_arrival: bool = False
    """Requests are served in the order in which they arrived, whatever the scheduler says."""
    counts_cached_tokens: bool = False
    """What the engine reports as prompt throughput counts tokens that it found in the cache."""
    log_interval_us: int = 0
    """How often the engine prints the throughput of its latest iterations, which reports then have; 0 = it does not."""
    drafters: tuple[str, ...] = ()
    """What may draft tokens that its decodes verify (``engine.speculative.method``)."""
    pipelines: str = ""
    """When it forms batches beside those under way (``pipeline_parallel``): ``stage``, when the first stage is free; or
    ``queue``, until a queue of batches is full, again whenever one of them is over. Empty = never."""
    pipelined: bool = False
    """It has a pipeline: batches under way overlap. The engine says so, of rules that say when they form batches."""
    ranks: bool = False
    """Ranks that share the experts of a model may take their steps together (``engine.data_parallel``)."""
    sizes_pool: str = ""
    """How many KV blocks fit is worked out for each ``rank``, or for a ``static`` share: see ``kv.capacity``."""
    adapters: str = ""
    """How it comes by LoRA adapters that are not there: ``beside`` steps, or ``in-step``; empty = it knows none."""
    encoder: str = ""
    """How it schedules the encoder of media, by a budget and a cache: a request that it has no room for holds up those
    behind it (``in-order``), or is passed over (``passes``); empty = it does not schedule it."""
    whole_media_strictly: bool = False
    """Media whose tokens may not be computed in parts are not split even where a step begins with them."""
    asks_for_more: str = ""
    """What it asks for beside KV blocks and token budget before a request enters, as a sentence; empty = nothing."""
    fits_strictly: bool = False
    """A request enters only when its prompt, what it declares and one more block are less than the KV cache."""
    victims: str = ""
    """Whom it preempts, where that is its own to say, such as "the youngest running request"; empty = the policy's."""
    radix_tree: bool = False
    """A radix tree shares prompts (``kv.radix_pool``), and steps follow one another as in SGLang's event loops."""
    priorities: int = 0
    """Priority comes before the scheduler's order: 1 = the smallest goes first, -1 = the largest; 0 = it does not."""
    step_tokens: int = 0
    """Tokens that a step may compute, where the rule has a setting of its own; 0 = ``max_num_batched_tokens``."""
    step_tokens_setting: str = ""
    """Which setting that is, such as ``chunked_prefill_size``; empty = it has none."""
    serves_behind_own_victim: bool = False
    """Requests behind one that is its own victim get their tokens in the same step, whatever chooses victims."""
    ending_use_adapters: bool = False
    """A request whose last token is being computed counts among those that use LoRA adapters."""
    cuts_output: bool = False
    """Where prompt and declared output exceed ``max_model_len``, the output is cut; else the request is dropped."""

    @property
    def budget_name(self) -> str:
        """What the token budget of a step is called: a setting of the rule, or ``max_num_batched_tokens``."""
        return self.step_tokens_setting or "max_num_batched_tokens"

    def spare_blocks(self, total: int) -> int:
        """The blocks that the watermark keeps free."""
        return int(self.watermark * (total + 1 if self.null_block else total))


def traits_of(traits: Traits, recompute: str | None, *, swaps: bool, pipelined: bool, eager: bool = False) -> Traits:
    """A rule's traits on an instance: whether victims keep what they have generated is the policy's to say.

    Args:
        traits: what the rule says.
        recompute: what victims compute again, ``prompt`` or ``all``; None = as the rule says.
        swaps: whether their KV blocks may be swapped out; then they keep all in any case.
        pipelined: whether it has a pipeline: a batch enters it as soon as it is planned.
        eager: whether its steps are launched without CUDA graphs.
    """
    if eager:
        traits = replace(traits, captured_sizes=False)
    if pipelined:
        traits = replace(traits, plans_ahead=False, pipelined=True)
    if not swaps and recompute is None:
        return traits
    return replace(traits, keeps_output=swaps or recompute == "all")
