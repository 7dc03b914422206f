"""What a batch-formation rule states about itself."""

from __future__ import annotations

from dataclasses import replace

from blis_tui.classes import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Traits:
    """What a rule states about itself; the engine follows it and explanations quote it."""

    keeps_output: bool = False
    """A preempted request keeps its generated tokens and prefills them again; otherwise it generates them again."""
    caches_whole_prompts: bool = False
    """A whole prompt, including its last token, may come from the cache; then no token of it is computed."""
    stores_last_token: bool = False
    """The last token of an answer is stored in the KV cache before the request's blocks are freed."""
    counts_to_limit: bool = True
    """An answer that ``max_model_len`` ends counts the token with which it gets there; otherwise only those before."""
    chunked_prefill: bool = True
    """A prompt that exceeds the rest of the token budget is split; otherwise it waits for a step that it fits into."""
    reserves_whole_prompt: bool = False
    """A request is admitted only when its whole prompt fits into the free blocks, not just its first chunk."""
    watermark: float = 0.0
    """Share of the KV blocks kept free when a request joins running ones."""
    null_block: bool = False
    """There is one block more than requests can use; shares of the KV blocks count it."""
    vllm_block_pool: bool = False
    """Content is recorded and blocks are evicted by the rules of vLLM's block pool: see ``BlockPool``."""
    plans_ahead: bool = False
    """A step is planned while the previous one runs (vLLM's asynchronous scheduling)."""
    plans_past_stops: bool = False
    """A step planned ahead knows which answers end because of their budget, but not which end earlier by themselves.
    For these it computes one wasted token."""
    prefill_interval: int = 0
    """While requests decode, prompts are computed every so many steps, which the rule counts; 0 = in each step."""
    busy_until_the_end: bool = False
    """A step keeps the engine busy until it ends, even if no request is left; requests that arrive meanwhile wait."""
    skips_empty_steps: bool = False
    """A step that only preempts takes no time."""
    ties_by_name: bool = True
    """Ties in a sorted queue are broken by name; otherwise by arrival."""
    running_first: bool = True
    """Running requests go first, the oldest first, so victims can be compared, swapped out and reloaded from tiers."""
    prefills_apart: bool = False
    """A step prefills or decodes, never both; prompts go first, and all decodes stall meanwhile."""
    limits_each_step: bool = False
    """``max_num_seqs`` limits how many requests a step serves, not how many hold KV blocks."""
    unlimited_seqs: bool = False
    """``max_num_seqs`` may be 0: no limit."""
    captured_sizes: bool = False
    """Decode steps replay captured CUDA graphs: see ``CapturedSizes``."""
    overtakes: bool | None = None
    """Whether a request that does not fit is skipped, so that those behind it may go first; otherwise nothing is
    scheduled before the queue head. None = unstated, and explanations do not mention it."""
    in_order_of_arrival: bool = False
    """Requests are served in order of arrival, whatever the scheduler says."""
    counts_cached_tokens: bool = False
    """The engine's reported prompt throughput counts cached tokens."""
    log_interval_us: int = 0
    """How often the engine prints the throughput of its latest iterations, which reports then include; 0 = never."""
    drafters: tuple[str, ...] = ()
    """Drafting methods that it supports (``engine.speculative.method``)."""
    pipelines: str = ""
    """When it forms further batches while others are in flight (``pipeline_parallel``): ``stage``, when the first
    stage is free; ``queue``, until a queue of batches is full, and again whenever one of them ends. Empty = never."""
    pipelined: bool = False
    """It has a pipeline, so batches overlap. The engine sets this for rules that support pipelines."""
    ranks: bool = False
    """Ranks that share a model's experts may step together (``engine.data_parallel``)."""
    sizes_pool: str = ""
    """How the number of KV blocks follows from the memory: see ``kv.capacity.kv_capacity``."""
    adapters: str = ""
    """How it loads LoRA adapters: ``beside`` steps (concurrently), or ``in-step``; empty = it does not support them."""
    encoder: str = ""
    """How it schedules the media encoder, with a budget and a cache: a request without room there blocks those behind
    it (``in-order``), or is skipped (``passes``); empty = it does not schedule the encoder."""
    whole_media_strictly: bool = False
    """Media that must not be split stay whole even if a step begins with them."""
    asks_for_more: str = ""
    """What it requires besides KV blocks and token budget before a request enters, as a sentence; empty = nothing."""
    fits_strictly: bool = False
    """A request enters only if its prompt, its declared output and one more block are smaller than the KV cache."""
    victims: str = ""
    """Which request it preempts, if the rule decides, such as "the youngest running request"; empty = the policy
    decides."""
    radix_tree: bool = False
    """A radix tree shares prompts (``kv.radix_pool``), and steps follow each other as in SGLang's event loops."""
    priorities: int = 0
    """Priority precedes the scheduler's order: 1 = the smallest goes first, -1 = the largest; 0 = it does not."""
    step_tokens: int = 0
    """Token budget of a step, if the rule has its own setting; 0 = ``max_num_batched_tokens``."""
    step_tokens_setting: str = ""
    """The name of that setting, such as ``chunked_prefill_size``; empty = none."""
    serves_behind_own_victim: bool = False
    """Requests behind one that preempts itself still get their tokens in the same step, under any victim rule."""
    ending_use_adapters: bool = False
    """A request whose last token is being computed still counts as using its LoRA adapter."""
    keeps_accepted_drafts: bool = False
    """Accepted drafts are cached once the step that verified them is over, not when their request is planned again."""
    hashes_lookahead: bool = False
    """Drafters that read hidden states: the cache finds a block only before the same next token. Otherwise the last
    cached block of a prompt is computed again."""
    cuts_output: bool = False
    """If prompt and declared output exceed ``max_model_len``, the output is cut; otherwise the request is dropped."""
    cuts_at_most: int | None = None
    """If they exceed it by more tokens than this, the request is dropped all the same; None = never."""

    @property
    def budget_name(self) -> str:
        """The name of the step's token budget: the rule's own setting, or ``max_num_batched_tokens``."""
        return self.step_tokens_setting or "max_num_batched_tokens"

    def spare_blocks(self, total: int) -> int:
        """The blocks that the watermark keeps free."""
        return int(self.watermark * (total + 1 if self.null_block else total))


def traits_of(traits: Traits, recompute: str | None, *, swaps: bool, pipelined: bool, eager: bool = False) -> Traits:
    """Return a rule's traits on an instance; the policy decides whether victims keep their generated tokens.

    Args:
        traits: the rule's own traits.
        recompute: what victims recompute, ``prompt`` or ``all``; None = as the rule says.
        swaps: whether victims' KV blocks may be swapped out; then victims keep everything in any case.
        pipelined: whether the instance has a pipeline: a batch enters it as soon as it is planned.
        eager: whether its steps are launched without CUDA graphs.
    """
    if eager:
        traits = replace(traits, captured_sizes=False)
    if pipelined:
        traits = replace(traits, plans_ahead=False, pipelined=True)
    if not swaps and recompute is None:
        return traits
    return replace(traits, keeps_output=swaps or recompute == "all")
