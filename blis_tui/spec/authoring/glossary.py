"""Glossary of screens, reports and documents, for users of other engines.

Terms have vLLM's meaning; entries mention where this package counts differently.
"""

from __future__ import annotations

from typing import Final

from blis_tui.base.classes import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A term: its name, its other names, and its meaning."""

    name: str
    also: tuple[str, ...]
    meaning: str


REPRODUCING_BLIS: Final = "Reproducing BLIS"


def _word(name: str, also: str, *sentences: str) -> Word:
    return Word(name, tuple(part.strip() for part in also.split(",") if part), " ".join(sentences))


WORDS: Final = (
    _word(
        "TTFT",
        "time to first token, ttft_ms",
        "From the arrival of a request to its first token at the client: waiting, prefill, and the overheads",
        "before and after them. After a preemption the first time counts; under the batching rule `blis`, the",
        "last.",
    ),
    _word(
        "ITL",
        "inter-token latency, itl_ms, time between tokens, tbt",
        "The time between two tokens of a request that follow one another. One figure for each gap: a request",
        "with many tokens weighs more than one with few. Tokens that come together (speculation) share one gap.",
    ),
    _word(
        "TPOT",
        "time per output token, tpot_ms",
        "(E2E - TTFT) / (output tokens - 1): one figure for each request with two output tokens or more.",
    ),
    _word(
        "E2E",
        "end to end, e2e_ms, latency",
        "From the arrival of a request to its last token at the client.",
    ),
    _word(
        "scheduling delay",
        "scheduling_delay_ms, queueing time",
        "From the arrival of a request to the first step that worked on it.",
    ),
    _word(
        "percentile",
        "p50, p90, p95, p99",
        "Interpolated linearly between the two nearest values, at rank p/100 * (n - 1), as NumPy does by default.",
    ),
    _word(
        "step",
        "iteration, forward pass, engine step",
        "One pass of the model over one batch. Every request that takes part gets its next token at the step's",
        "end, or has a part of its prompt computed.",
    ),
    _word(
        "batch",
        "running batch",
        "The requests that take part in one step; they may be at different places (continuous batching).",
    ),
    _word(
        "prefill",
        "prompt processing",
        "Steps that compute a prompt's tokens, up to the first output token.",
    ),
    _word(
        "decode",
        "generation",
        "Steps that compute one more output token for each request.",
    ),
    _word(
        "chunked prefill",
        "chunk",
        "A prompt that does not fit the step's token budget is computed in parts, beside the decodes of others.",
    ),
    _word(
        "prompt",
        "input, input tokens",
        "What a request sends. Its tokens are computed in prefills, but for those found in the prefix cache.",
    ),
    _word(
        "continuous batching",
        "in-flight batching, iteration-level scheduling",
        "Each step is planned anew: requests join the batch when there is room and leave it when their answer is",
        "complete, without waiting for others (Orca, vLLM).",
    ),
    _word(
        "asynchronous scheduling",
        "async scheduling, async_scheduling, overlap scheduling",
        "The next step is planned while the GPU computes the present one, on the assumption of what that will",
        "bring. On by default with `vllm-v1` (`policy.batching.async_scheduling`).",
    ),
    _word(
        "CUDA graph",
        "cuda graphs, eager, eager mode, enforce_eager",
        "The operators of a step recorded once and launched together. Without (`engine.enforce_eager`) each is",
        "launched by the host, for which small batches wait.",
    ),
    _word(
        "front end",
        "frontend, api server, tokenizer, detokenizer",
        "The process in front of an engine that parses requests, tokenizes prompts and streams tokens. With",
        "`latency: operators` each instance has one, which takes requests in one after the other.",
    ),
    _word(
        "chat template",
        "templates",
        "The text that a server puts around messages to make a prompt of them. Here a prompt is a number of",
        "tokens, template included; leaving earlier reasoning out of later prompts, as templates do, is `history`",
        "of a client's `reasoning`.",
    ),
    _word(
        "token budget",
        "max_num_batched_tokens",
        "How many tokens one step computes at most: a token for each decode, and those of prompts.",
    ),
    _word(
        "KV block",
        "kv blocks, page, block_size_tokens",
        "The unit in which memory for keys and values is given out: the cache of a fixed number of tokens.",
    ),
    _word(
        "prefix caching",
        "cache hit, cached tokens, kv hits, radix cache, prefix cache, apc",
        "Blocks that an earlier request left behind are used again where a prompt begins with the same tokens.",
    ),
    _word(
        "KV cache",
        "kv, paged attention",
        "Keys and values of all tokens that requests have computed, in the memory of the GPUs: what the attention",
        "of later tokens reads. It is given out in blocks (`engine.kv_blocks`); how much fits bounds how many",
        "requests run.",
    ),
    _word(
        "radix tree",
        "radix attention",
        "How SGLang finds cached prefixes: a tree of token sequences whose branches are prefixes that requests",
        "share, in the place of hashes of whole blocks. The batching rule `sglang` has one.",
    ),
    _word(
        "watermark",
        "",
        "KV blocks kept free when a waiting request is admitted, as a share of all, so that those that run can",
        "grow before anyone is preempted (`policy.batching.watermark` of `vllm-v1`).",
    ),
    _word(
        "KV tier",
        "kv tiers, offloading, kv offloading, lmcache, cpu cache, mooncake store, shared kv cache",
        "A place below the GPU's KV cache, in host memory or on disk, that keeps prefixes which the GPU would",
        "lose, and gives them back over a link (`engine.kv_tiers`). The last one may be a store that all instances",
        "share (`shared: true`), as Mooncake's is.",
    ),
    _word(
        "hit rate",
        "hit_rate, cache hit rate, prefix cache hit rate",
        "`kv.hit_rate`: the share of prompt tokens that requests find in the prefix cache when they are first",
        "scheduled, as vLLM and SGLang log it. `kv.block_hit_rate` is BLIS's: KV blocks found, divided by those and",
        "all blocks newly taken, for decodes too.",
    ),
    _word(
        "eviction",
        "evicted",
        "A block that holds a cached prefix and that no request uses is given to another one; the prefix is lost,",
        "or lives on in a tier below.",
    ),
    _word(
        "preemption",
        "preempted, recompute, swapping, preemption by swapping, retraction, retracted",
        "A running request loses its KV blocks to another one and goes back to the queue. Its tokens are computed",
        "again (recompute) or kept in host memory (swapping). SGLang calls it retraction.",
    ),
    _word(
        "victim",
        "victims",
        "The running request that is preempted. `policy.preemption.victim` says which: the youngest (`tail`), the",
        "least urgent, or the one that is cheapest to recompute.",
    ),
    _word(
        "admission",
        "admitted, rejected",
        "In a cluster: whether a request is let in at all (policy.admission). In an instance: when a waiting",
        "request gets its place in the batch.",
    ),
    _word(
        "routing",
        "router, routed",
        "Which instance a request goes to (policy.routing).",
    ),
    _word(
        "gateway",
        "gateway queue, flow control",
        "A queue in front of the router, which holds requests back while all instances are saturated.",
    ),
    _word(
        "think time",
        "think_time, think_time_ms",
        "How long the user of a session waits between an answer and the next prompt",
        "(`workload.clients.session.think_time_ms`).",
    ),
    _word(
        "session",
        "sessions, conversation, multi-turn, turn",
        "A sequence of requests of one user, each prompt continuing from the answers before it. Routing",
        "can keep a session on one instance, where its prefix is cached.",
    ),
    _word(
        "closed loop",
        "closed-loop, users, concurrency",
        "A load from a given number of users, each of whom sends the next request when the previous answer has",
        "arrived: a slow server gets less load. `arrivals: {kind: closed-loop}`.",
    ),
    _word(
        "open loop",
        "open-loop, rate_per_s",
        "A load with a given rate, independent of the responses: if more requests arrive than are served, the queue",
        "grows.",
    ),
    _word(
        "warm-up",
        "warm_up_us, warmup",
        "The time at the start whose requests are left out of latencies (`warm_up_us`); counts and throughput are",
        "of the whole run.",
    ),
    _word(
        "LoRA adapter",
        "lora, adapter, adapters",
        "Small weights beside those of the model that some requests ask for. An instance holds a few on its GPUs",
        "(`engine.lora`), and loads others, which takes time.",
    ),
    _word(
        "instance",
        "replica, engine, server",
        "One serving engine: a scheduler, a KV cache, and the GPUs of its tensor and pipeline parallelism.",
    ),
    _word(
        "rank",
        "data-parallel rank, attention rank, dp rank, dummy batch",
        "One of the data_parallel parts of a replica, with its own queue, batch and KV cache; each is an",
        "instance here. Ranks that share experts step together: the slowest sets the pace, and one",
        "without work runs a dummy batch.",
    ),
    _word(
        "tensor parallelism",
        "tensor parallel, tensor_parallel, tp",
        "Each layer is split over several GPUs, which add up their results in every layer (all-reduce):",
        "`cluster.tensor_parallel`, vLLM's `--tensor-parallel-size`.",
    ),
    _word(
        "pipeline parallelism",
        "pipeline parallel, pipeline_parallel, pp, pipeline bubble, bubble",
        "The layers are spread over stages of GPUs, which work on different batches at a time",
        "(`engine.pipeline_parallel`). The bubble is the time that stages idle while any batch is under way.",
    ),
    _word(
        "data parallelism",
        "data parallel, data_parallel, dp, data-parallel attention, dp attention",
        "Several copies of the attention, each with requests of its own (`engine.data_parallel`). In data-parallel",
        "attention these ranks share the experts of a model, spread over all of their GPUs; ranks of a dense model",
        "are independent engines.",
    ),
    _word(
        "expert parallelism",
        "expert parallel, expert_parallel, ep",
        "Whole experts are spread over the GPUs of a replica, in the place of a part of every expert on each of",
        "them (`engine.expert_parallel`); tokens travel to their experts by all-to-all.",
    ),
    _word(
        "all-to-all",
        "all2all, all_to_all, deepep, dispatch and combine, dispatch, combine",
        "The exchange under expert parallelism: in each layer tokens are sent to the GPUs that hold their experts",
        "(dispatch), and the results come back (combine). DeepEP is a library of kernels for it;",
        "`engine.all_to_all` says whose are used, and the rates of the links.",
    ),
    _word(
        "mixture of experts",
        "moe, expert, experts",
        "A model whose layers have many feed-forward networks (experts), of which each token uses a few:",
        "`num_experts_per_tok` of the model.",
    ),
    _word(
        "MLA",
        "multi-head latent attention, latent attention",
        "Attention of DeepSeek's models: keys and values of a token are kept as one short vector (kv_lora_rank),",
        "whole on every GPU of a tensor-parallel group, so that the KV cache is small but not split.",
    ),
    _word(
        "GQA",
        "grouped-query attention, mqa, num_key_value_heads",
        "Several query heads share one pair of key and value heads: the KV cache is as many times smaller.",
    ),
    _word(
        "pool",
        "pools",
        "Instances of one kind: the same model, hardware and engine settings.",
    ),
    _word(
        "disaggregation",
        "prefill and decode instances, pd, p/d",
        "Prompts are computed on some instances, and their KV cache is sent to others, which decode.",
    ),
    _word(
        "KV transfer",
        "kv transfers, transfer, nixl, handover",
        "The KV blocks of a prompt on their way from the instance that computed it to the one that decodes",
        "(`cluster.disaggregation.transfer`).",
    ),
    _word(
        "speculative decoding",
        "speculation, draft, drafts, drafter, draft tokens",
        "Tokens are guessed cheaply, and a step verifies several at a time: those up to the first wrong guess are",
        "accepted, and one more that the model samples itself (the bonus token). `engine.speculative` says how",
        "many, and how good they are.",
    ),
    _word(
        "MTP",
        "eagle, multi-token prediction, ngram, n-gram",
        "What drafts in speculative decoding (`engine.speculative.method`). EAGLE and MTP (multi-token prediction)",
        "are small models that go on from the hidden states of the large one; n-gram looks for the last words",
        "earlier in the prompt and the answer.",
    ),
    _word(
        "acceptance rate",
        "acceptance, draft_acceptance_rate, acceptance length, mean_acceptance_length",
        "The share of drafted tokens that are accepted. The acceptance length is what a draft brings with its",
        "bonus token: 1 + accepted tokens / drafts.",
    ),
    _word(
        "offered",
        "offered load, arrival rate",
        "What clients send, whether or not it is served: requests and tokens over the time between the first and",
        "the last arrival.",
    ),
    _word(
        "throughput",
        "requests_per_s, output_tokens_per_s",
        "What completed, over the whole simulated time, ramp-up and the last requests' end included.",
    ),
    _word(
        "steady",
        "steady state",
        "The second half of the time in which requests arrive: what was offered in it, and what was served in it.",
    ),
    _word(
        "goodput",
        "slo, slo attainment, slo class",
        "The requests that keep the bounds of their class (`slo_targets`): their share of all that were sent, and",
        "how many of them there were per second (goodput_rps).",
    ),
    _word(
        "knee",
        "capacity, maximum rate",
        "The highest rate at which every bound still holds and no queue keeps growing; above it latencies rise",
        "steeply. `plan --max-rate` encloses it.",
    ),
    _word(
        "fairness",
        "jain, jain_index, jain's index",
        "How evenly tenants are served. Jain's index of their output tokens is 1 where all got the same, and 1 /",
        "tenants where one got everything.",
    ),
    _word(
        "head-of-line blocking",
        "head_of_line_blocking",
        "Requests that could be served wait behind one that cannot. `anomalies.head_of_line_blocking` counts",
        "instances whose queue is, on average, more than twice as long as the mean of their pool.",
    ),
    _word(
        "priority inversion",
        "priority_inversions",
        "An earlier request that takes much longer than a later one of its class. `anomalies.priority_inversions`",
        "counts such pairs where the earlier took more than twice as long.",
    ),
    _word(
        "saturation",
        "saturated, overload, backlog",
        "More requests arrive than can be served, so the queue grows for as long as that lasts.",
    ),
    _word(
        "step-time model",
        "latency model, cost model, operators, fitted",
        "What says how long a step takes, from the tokens in it: `latency`. `operators` sums up measured times of",
        "operators, `fitted` and `roofline` work from a GPU's datasheet, `blackbox` is a line through measured",
        "steps.",
    ),
    _word(
        "roofline",
        "",
        "A step takes the larger of two times: its arithmetic at the GPU's peak rate, or its bytes at the",
        "memory's. Decodes of small batches are bound by memory, prefills by arithmetic. Also the name of a",
        "step-time model.",
    ),
    _word(
        "MFU",
        "model flops utilization",
        "The share of a GPU's peak arithmetic rate that is reached; `hardware.mfu` of the `roofline` step times.",
    ),
    _word(
        "horizon",
        "horizon_us",
        "The simulated time at which a run ends, whatever is in progress (`horizon_us`).",
    ),
    _word(
        "event",
        "event number",
        "One change of the simulated system: an arrival, a decision, a step. Events are numbered from 1; equal",
        "documents and seeds give equal events.",
    ),
    _word(
        "record",
        "records",
        "What an event emits to subscribers and files: a kind, the event's number and time, and fields.",
    ),
    _word(
        "golden",
        "golden test, baseline",
        "The stored result of an experiment, which a test compares with byte for byte.",
    ),
    _word(
        "invariant",
        "invariants, inv",
        "A condition that always holds, such as that every request is in exactly one place. Reports list each as `ok`",
        "or with what is wrong; `run --check all` checks them after every event. INV-1 to INV-11 are explained, too.",
    ),
    _word(
        "twin",
        "twins",
        "A real server and its simulation side by side, under the same requests (`blis-tui twin`).",
    ),
    _word(
        "reasoning",
        "thinking, reasoning tokens, ttfat, time to first answer token",
        "The first part of an answer, which users do not count as such. TTFAT is the time from arrival to the",
        "first token behind it.",
    ),
    _word(
        "digest",
        "state digest, fingerprint",
        "A hash of the whole state of the simulation: equal digests, equal futures.",
    ),
    _word(
        "regret",
        "true regret",
        "What a routing decision cost: the difference to the best choice, by the scores known then, or by running",
        "every choice (true regret).",
    ),
    _word(
        "accuracy",
        "expected error",
        "How far the mean latencies of a run may be from those of a real server. `TTFT ±6 %` is the median error on",
        "measured servers like the simulated one: half of them were closer. `run --explain accuracy` prints the range",
        "of 9 in 10 errors as well; the JSON of `plan`, and of reports with `report: full`, has it in `step_time`.",
        "docs/accuracy.md has the measurements.",
    ),
    _word(
        REPRODUCING_BLIS,
        "blackbox, crossmodel, trained-roofline, roofline-phases, gaie-legacy, always-busiest, inverted-slo,"
        " reverse-priority",
        "Only for comparison with the simulator BLIS: its step-time models, and rules that it has. To model servers,",
        "use the defaults: the accuracy of step times was measured with them.",
    ),
)
