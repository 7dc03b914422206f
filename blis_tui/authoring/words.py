"""The words of screens, reports and documents: what each means here, for people who come from another engine.

Field terms keep the meaning that vLLM gives them; where this package counts in its own way, the entry says so.
"""

from __future__ import annotations

from typing import Final

from blis_tui.classes import dataclass


@dataclass(frozen=True, slots=True)
class Word:
    """A term: its name, what it is also called, and what it means."""

    name: str
    also: tuple[str, ...]
    meaning: str


REPRODUCING_BLIS: Final = "Reproducing BLIS"


def _word(name: str, also: str, *sentences: str) -> Word:
    return Word(name, tuple(part.strip() for part in also.split(",")), " ".join(sentences))


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
        "cache hit, cached tokens, kv hits, radix cache",
        "Blocks that an earlier request left behind are used again where a prompt begins with the same tokens.",
    ),
    _word(
        "eviction",
        "evicted",
        "A block that holds a cached prefix and that no request uses is given to another one; the prefix is lost,",
        "or lives on in a tier below.",
    ),
    _word(
        "preemption",
        "preempted, recompute, swapping, retraction, retracted",
        "A running request loses its KV blocks to another one and goes back to the queue. Its tokens are computed",
        "again (recompute) or kept in host memory (swapping). SGLang calls it retraction.",
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
        "saturation",
        "saturated, overload, backlog",
        "More arrives than can be served, so that the queue grows for as long as that lasts.",
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
        "What an event tells listeners and files: a kind, the event's number and time, and fields.",
    ),
    _word(
        "golden",
        "golden test, baseline",
        "The stored result of an experiment, with which a test compares byte for byte.",
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
        REPRODUCING_BLIS,
        "blackbox, crossmodel, trained-roofline, gaie-legacy, always-busiest, inverted-slo, reverse-priority",
        "What is there for comparing with the simulator BLIS alone: its step-time models, and rules that it has. For",
        "servers take the defaults: the accuracy of step times was measured with them.",
    ),
)
