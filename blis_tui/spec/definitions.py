"""The documents and their parts, and the class that defines the keys of each.

Only ``docs/make_schemas.py``, which writes the schemas, needs this module.
"""

from __future__ import annotations

from dataclasses import field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui import model
from blis_tui.base.classes import dataclass
from blis_tui.model.experiment import FitnessWeights, GoldenComparison, TwinTest, TwinTolerance
from blis_tui.model.keys import LARGEST, LARGEST_SEED, SMALLEST, document_key
from blis_tui.model.machine import Link
from blis_tui.spec.study.study_records import Objective
from blis_tui.workload.traces.columns import KNOWN_NAMES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model.keys import DocumentKey


_COEFFICIENTS: Final = "common.schema.json#/$defs/coefficients"
_VALUES: Final = "common.schema.json#/$defs/values"
_MOST: Final = 10**9
_MOST_EXPERTS: Final = 10**6
_WIDEST: Final = 10**15


class Metadata:
    """Name and purpose of a document."""

    name = document_key(
        str,
        "Name shown in reports and messages: lower-case letters, digits, `.` and `-`. Other documents refer to this one"
        " by the name of its file, so give both the same.",
        required=True,
        pattern="^[a-z0-9]([a-z0-9.-]*[a-z0-9])?$",
        maxLength=100,
        examples=["quickstart", "support-chats.v2"],
    )
    description = document_key(
        str, "Purpose of the document, in one sentence.", default="", examples=["Two H100s serve chat traffic."]
    )


class Values:
    """The values to try, in this order: a list, or a range of numbers."""

    start = document_key(
        float, "First value of the range.", name="from", required=True, minimum=-LARGEST, maximum=LARGEST, examples=[5]
    )
    to = document_key(
        float,
        "Last value of the range; with `step`, the largest possible one.",
        required=True,
        minimum=-LARGEST,
        maximum=LARGEST,
        examples=[40],
    )
    step = document_key(float, "Distance from one value to the next.", minimum=SMALLEST, maximum=LARGEST, examples=[5])
    count = document_key(
        int, "How many values the range has, instead of `step`.", minimum=2, maximum=10_000, examples=[8]
    )
    scale = document_key(
        None,
        "With `count`: equal distances between the values, or equal ratios (rounded to four digits).",
        words={"linear": "Equal distances.", "log": "Equal ratios."},
        examples=["log"],
    )


# ---- models ----


class GenerationConfig:
    """How engines sample where a request does not say."""

    temperature = document_key(float, "Divides the logits.", minimum=0, maximum=1000)
    top_p = document_key(float, "Tokens that together have this probability are kept.", minimum=0, maximum=1)
    top_k = document_key(int, "So many of the most likely tokens are kept; 0 or -1 = all.", minimum=-1, maximum=10**9)
    repetition_penalty = document_key(
        float, "Makes tokens less likely that have appeared; 1 = off.", minimum=SMALLEST, maximum=1000
    )


def _count(doc: str, least: int = 0, most: int = _MOST_EXPERTS, **limits: object) -> DocumentKey:
    """Return a count that configurations may also give as null."""
    return document_key(None, doc, type=["integer", "null"], minimum=least, maximum=most, raw=limits)


def _size(doc: str, **limits: object) -> DocumentKey:
    return document_key(int, doc, minimum=1, maximum=_MOST, raw=limits)


def _numbers(doc: str) -> DocumentKey:
    return document_key(
        None, doc, type="array", items={"description": "One.", "type": "integer", "minimum": 1, "maximum": _MOST}
    )


_DTYPES: Final = ("float32", "float16", "bfloat16", "int8", "uint8", "fp8", "float8_e4m3fn", "int4", "nf4")
_EXPERTS: Final = "Other name of num_local_experts."
_KV_HEADS: Final = "Other name of num_key_value_heads."


class RopeScaling:
    """How rotary embeddings are scaled."""

    type = document_key(str, "Kind of scaling (older name).")
    rope_type = document_key(str, "Kind of scaling.")
    factor = document_key(float, "Multiplies the context length.", minimum=SMALLEST, maximum=10**6)
    original_max_position_embeddings = _size("Context length in tokens before scaling.")


class Quantization:
    """How weights are quantised."""

    quant_method = document_key(str, "Method, such as fp8, mxfp4, nvfp4, gptq, awq, modelopt or compressed-tensors.")
    quant_algo = document_key(str, "Algorithm of modelopt, such as NVFP4 or FP8.")
    bits = document_key(int, "Bits of one weight (gptq, awq).", minimum=1, maximum=64)
    ignore = document_key(
        None,
        "What is not quantised (compressed-tensors, modelopt): of a model with experts whose attention is named here,"
        " for all layers, experts alone are.",
        type="array",
        items={"type": "string"},
    )


_LINEAR: Final = " Layers with linear attention (Gated DeltaNet) keep a state for each request instead of a KV cache."
_MAMBA: Final = " Mamba-2 layers keep a state for each request instead of a KV cache."


class LinearAttention:
    """Layers with Kimi Delta Attention, which keep a state for each request instead of a KV cache."""

    kda_layers = _numbers("The numbers of these layers, from 1.")
    full_attn_layers = _numbers("The numbers of the others, which attend fully.")
    num_heads = _count("Heads of one layer.", 1, _MOST)
    head_dim = _count("Width of one head.", 1, _MOST)
    short_conv_kernel_size = _count("Tokens that the convolution before it sees.", 1, _MOST)


class ModelConfig:
    """Hugging Face config.json fields; unknown ones are ignored."""

    hidden_size = _size("Width of the residual stream.", examples=[5120])
    num_hidden_layers = _size("Transformer layers.", examples=[40])
    num_attention_heads = _size("Query heads of one layer.", examples=[40])
    num_key_value_heads = _count(
        "Key/value heads of one layer; absent = as many as query heads.", 1, _MOST, examples=[8]
    )
    num_kv_heads = _size(_KV_HEADS)
    multi_query_group_num = _size(_KV_HEADS)
    head_dim = _count("Width of one head; absent = hidden_size / num_attention_heads.", 1, _MOST, examples=[128])
    intermediate_size = _size("Width of the feed-forward block; absent = 4 * hidden_size.", examples=[17_408])
    ffn_hidden_size = _size("Other name of intermediate_size.")
    intermediate_size_mlp = _size("Width of the dense layers of an interleaved mixture-of-experts model.")
    vocab_size = _size("Entries of the vocabulary.", examples=[151_936])
    torch_dtype = document_key(
        None,
        "Type of activations and KV cache, and of weights unless quantised.",
        words=_DTYPES,
        default="bfloat16",
    )
    dtype = document_key(None, "Newer name of torch_dtype.", words=_DTYPES)
    max_position_embeddings = _size("Longest context in tokens, before rope_scaling.", examples=[40_960])
    model_max_length = _size("Other name of max_position_embeddings.")
    rope_scaling = document_key(
        None,
        "Rotary-embedding scaling, as in the Hugging Face configuration; its factor lengthens the context unless the"
        " type is su, longrope or llama3.",
        within=RopeScaling,
        type=["object", "null"],
        examples=[{"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32_768}],
    )
    tie_word_embeddings = document_key(bool, "Whether input and output embeddings are one matrix.", default=False)
    hidden_act = document_key(
        str, "Activation of the feed-forward block; `relu2` has no gate, and so two matrices.", default="silu"
    )
    mlp_hidden_act = document_key(str, "Other name of hidden_act.")
    model_type = document_key(str, "Architecture family.", examples=["qwen3"])
    num_local_experts = _count("Routed experts of one layer; 0 = dense.", examples=[8])
    num_experts = _count(_EXPERTS)
    n_routed_experts = _count(_EXPERTS)
    num_routed_experts = _count(_EXPERTS)
    num_experts_per_tok = _count("Routed experts that process one token.", examples=[2])
    num_experts_per_token = _count("Other name of num_experts_per_tok.")
    moe_intermediate_size = _count("Width of one routed expert; absent = intermediate_size.", most=_WIDEST)
    shared_expert_intermediate_size = _count(
        "Width of all always-active experts of a layer together; absent = none.", most=_WIDEST
    )
    moe_shared_expert_intermediate_size = _count("Other name of shared_expert_intermediate_size.", most=_WIDEST)
    n_shared_experts = _count("Always-active experts of a layer, each as wide as a routed one.")
    num_shared_experts = _count("Other name of n_shared_experts.")
    interleave_moe_layer_step = _count("Every (step+1)-th layer has experts; absent or 0 = every layer.")
    first_k_dense_replace = _count("The first k layers have no experts.")
    kv_lora_rank = _count(
        "Rank of the compressed KV cache (multi-head latent attention); absent = ordinary KV heads.", most=_WIDEST
    )
    q_lora_rank = _count(
        "Rank to which queries are compressed before they are expanded; absent = they are not.", most=_WIDEST
    )
    qk_nope_head_dim = _count(
        "Width of a head beside its rotary part, under latent attention; counts where `head_dim` is absent.",
        most=_WIDEST,
    )
    qk_rope_head_dim = _count("Rotary part of a compressed key.", most=_WIDEST)
    sliding_window = _count(
        "Tokens that layers with a sliding window see; absent = all layers see the whole context.", most=_WIDEST
    )
    use_sliding_window = document_key(None, "Whether `sliding_window` counts; false = no.", type=["boolean", "null"])
    sliding_window_pattern = _count(
        "Every so many layers, one sees the whole context; absent = none does, unless `layer_types` says so.", 1
    )
    layer_types = document_key(
        None,
        "What each layer's attention is: `full_attention`, `sliding_attention` or `linear_attention`.",
        type=["array", "null"],
        items={"type": "string"},
    )
    full_attention_interval = _count(
        "Every so many layers, one has full attention and the others linear attention, unless `layer_types` says so.",
        1,
        _MOST,
    )
    linear_num_key_heads = _count("Heads of the queries, and of the keys, of such a layer." + _LINEAR, 1, _MOST)
    linear_key_head_dim = _count("Width of one of them.", 1, _MOST)
    linear_num_value_heads = _count("Heads of the values of such a layer.", 1, _MOST)
    linear_value_head_dim = _count("Width of one of them.", 1, _MOST)
    linear_conv_kernel_dim = _count("Tokens that the convolution before it sees; absent = 4.", 1, _MOST)
    mamba_ssm_dtype = document_key(
        None, "Type of the states' matrices; absent = that of activations, in Mamba-2 layers float32.", words=_DTYPES
    )
    mamba_ssm_cache_dtype = document_key(None, "Other name of mamba_ssm_dtype.", words=_DTYPES)
    attn_output_gate = document_key(
        None,
        "Whether full attention's output is multiplied by a gate, projected beside the queries; absent = no, but yes"
        " for `model_type` qwen3_next.",
        type=["boolean", "null"],
    )
    linear_attn_config = document_key(
        None,
        "Layers with Kimi Delta Attention, which keep a state for each request instead of a KV cache.",
        within=LinearAttention,
        type=["object", "null"],
    )
    hybrid_override_pattern = document_key(
        None,
        "What each layer of a Nemotron-H model is: `M` Mamba-2, `*` attention, `-` a feed-forward block, `E` experts."
        + _MAMBA,
        type=["string", "null"],
        raw={"pattern": "^[-ME*]+$"},
    )
    mamba_num_heads = _count("Heads of a Mamba-2 layer.", 1, _MOST)
    mamba_head_dim = _count("Width of one of them.", 1, _MOST)
    ssm_state_size = _count("Width of a head's state.", 1, _MOST)
    n_groups = _count("Groups of heads that share their projections into and out of the state; absent = 1.", 1, _MOST)
    conv_kernel = _count("Tokens that the convolution of a Mamba-2 layer sees; absent = 4.", 1, _MOST)
    index_topk = _count(
        "Tokens of its context that each token attends to, under latent attention with an indexer (sparse attention);"
        " absent = all. `operators` step times count what the indexer costs.",
        most=_WIDEST,
    )
    index_head_dim = _count(
        "Width of the key by which the indexer of sparse attention chooses a token: one byte an element, cached in each"
        " layer beside keys and values; absent = nothing is cached for it.",
        most=_WIDEST,
    )
    quantization_config = document_key(
        None,
        "Weight quantisation, as in the Hugging Face configuration: bits (gptq, awq), fp8, nvfp4, mxfp4 (routed"
        " experts only), or compressed-tensors groups.",
        within=Quantization,
        type=["object", "null"],
        examples=[{"quant_method": "fp8"}],
    )
    text_config = document_key(
        "#/$defs/config",
        "The language model's part of a multi-modal configuration; its fields win over the outer ones.",
    )


class ModelDocument:
    """A transformer's shape, as its Hugging Face config.json states it."""

    huggingface_ids = document_key(
        None,
        "Hugging Face ids by which experiments can name this model, in any case. No part of what is simulated.",
        type="array",
        items={
            "description": "One id: organisation and name.",
            "type": "string",
            "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]*/[A-Za-z0-9][A-Za-z0-9._-]*$",
        },
        examples=[["Qwen/Qwen3-14B"]],
    )
    generation_config = document_key(
        GenerationConfig,
        "What the model's `generation_config.json` says of sampling: engines sample so where a request does not say"
        " otherwise. Step-time models that count sampling look at it.",
        examples=[{"temperature": 0.6, "top_p": 0.9}],
    )
    config = document_key(
        ModelConfig,
        "The Hugging Face config.json fields under their own names; unknown ones are ignored.",
        examples=[
            {
                "hidden_size": 5120,
                "num_hidden_layers": 40,
                "num_attention_heads": 40,
                "num_key_value_heads": 8,
                "head_dim": 128,
                "intermediate_size": 17_408,
                "vocab_size": 151_936,
                "torch_dtype": "bfloat16",
                "max_position_embeddings": 40_960,
                "tie_word_embeddings": False,
                "hidden_act": "silu",
            }
        ],
    )
    config_file = document_key(
        str,
        "Path to a Hugging Face config.json, relative to this file; the alternative to `config`.",
        minLength=1,
        examples=["./config.json"],
    )


# ---- coefficients ----


class MeasuredConfiguration:
    """One measured configuration."""

    model = document_key(str, "Name of the model.", required=True, minLength=1)
    hardware = document_key(str, "Name of the hardware.", required=True, minLength=1)
    tensor_parallel = document_key(int, "Accelerators of one instance.", required=True, minimum=1, maximum=1024)
    engine = document_key(str, "Engine and version that was measured.", default="")
    alpha = document_key(_COEFFICIENTS, "Coefficients outside the steps.", required=True)
    beta = document_key(_COEFFICIENTS, "Coefficients of a step.", required=True)


class LatencyDocument:
    """Coefficients of one step-time model."""

    step_time = document_key(
        None, "The step-time model these coefficients belong to.", required=True, examples=["roofline"]
    )
    alpha = document_key(
        _COEFFICIENTS,
        "Coefficients outside the steps; for every model and accelerator.",
        examples=[[0.0, 0.0, 0.0]],
    )
    beta = document_key(_COEFFICIENTS, "Coefficients of a step; for every model and accelerator.", examples=[[]])
    rows = document_key(
        (MeasuredConfiguration,),
        "Coefficients per model, accelerator and tensor parallelism; the first matching row is used.",
        minItems=1,
        examples=[
            [{"model": "qwen3-14b", "hardware": "h100", "tensor_parallel": 1, "alpha": [0.0, 0.0, 0.0], "beta": []}]
        ],
    )


# ---- traces ----


def _column(name: str, doc: str, example: str) -> DocumentKey:
    """Return a trace column; its known names are those that the readers recognise."""
    known = KNOWN_NAMES[name]
    unit = "; a unit may follow: `timestamp_ms`" if name == "arrival" else ""
    names = ", ".join(f"`{known_name}`" for known_name in known)
    more = f" Known names: {names} (in any case; with or without `_` and spaces{unit})." if len(known) > 1 else ""
    return document_key("#/$defs/column", doc + more, examples=[example])


class TraceColumns:
    """Which column of a trace holds what."""

    arrival = _column(
        "arrival",
        "When the request arrives: a number (see `time_unit`), or an ISO 8601 date and time of day, counted from the"
        " earliest in the file.",
        "timestamp",
    )
    input_tokens = _column(
        "input_tokens", "Tokens of the prompt, not including those of `prefix_length`.", "prompt_tokens"
    )
    output_tokens = _column("output_tokens", "Tokens that the model generates.", "completion_tokens")
    max_output_tokens = _column(
        "max_output_tokens",
        "The budget that the request declares for its answer, which is cut there; 0 or empty = none, and the engine's"
        " limits are its budget. Without this column every request declares just what it generates.",
        "max_tokens",
    )
    ignore_eos = _column(
        "ignore_eos",
        "1 or true = nothing but the budget ends the answer: the request generates all that it declares, and engines"
        " know that. Where budgets are given, such a request needs one.",
        "ignore_eos",
    )
    request_id = _column("request_id", "Name of the request, unique in the file.", "id")
    prefix_group = _column("prefix_group", "Requests of a group share a prompt prefix.", "system_prompt")
    prefix_length = _column(
        "prefix_length", "Tokens of the shared prefix, in addition to `input_tokens`.", "prefix_len"
    )
    prefix_tokens = _column(
        "prefix_tokens", "Tokens of the shared prefix, included in `input_tokens`.", "shared_tokens"
    )
    prefix_segments = _column(
        "prefix_segments",
        "A shared beginning in parts, as JSON: names and tokens, which are among `input_tokens`.",
        "prefix_segments",
    )
    answer_segment = _column(
        "answer_segment",
        "What its answer is called in the `prefix_segments` of prompts that begin with it.",
        "answer_segment",
    )
    slo_class = _column("slo_class", "SLO class: critical, standard, sheddable, batch or background.", "priority_class")
    tenant_id = _column("tenant_id", "Tenant of the request.", "user")
    model = _column("model", "Name of the model that the request asks for; empty = any.", "target_model")
    adapter = _column("adapter", "Name of the LoRA adapter that the request asks for; empty = the base model.", "lora")
    deadline = _column(
        "deadline",
        "When the request times out, in whole microseconds since the start; 0 or empty = never.",
        "deadline_us",
    )
    session_id = _column("session_id", "Conversation that the request belongs to.", "conversation")
    round_index = _column("round_index", "Position of the request in its conversation, from 0.", "turn")
    reasoning_tokens = _column(
        "reasoning_tokens", "How many of the output tokens are reasoning; they come first.", "thinking_tokens"
    )
    reason_ratio = _column(
        "reason_ratio",
        "The share of the output tokens that is reasoning, 0 to 1, instead of `reasoning_tokens`.",
        "reason_ratio",
    )
    image_tokens = _column(
        "image_tokens", "Tokens of the prompt that stand for images; they are among the prompt's.", "image_tokens"
    )
    audio_tokens = _column(
        "audio_tokens", "Tokens of the prompt that stand for audio; they are among the prompt's.", "audio_tokens"
    )
    video_tokens = _column(
        "video_tokens", "Tokens of the prompt that stand for video; they are among the prompt's.", "video_tokens"
    )
    media_items = _column(
        "media_items",
        "The images, audio clips and videos of the prompt in order, as JSON: for each the tokens before it, its tokens,"
        " and a name that equal ones share. Without this column, the prompt has one item of each kind.",
        "media_items",
    )
    e2e = _column(
        "e2e",
        "What the answer took in whole microseconds, as its client saw it; empty = not known. With `pacing: answers`,"
        " the time from the answer to the next request of the session is what was thought.",
        "latency_us",
    )


# ---- studies ----


class Excluded:
    """A value, a list of values, or bounds within which all values are meant."""

    min = document_key(float, "Smallest value that is meant.", minimum=-LARGEST, maximum=LARGEST, examples=[4])
    max = document_key(float, "Largest value that is meant.", minimum=-LARGEST, maximum=LARGEST, examples=[2])


class StudyDocument:
    """Many runs of one experiment: which values to try, and what to look for in the results."""

    experiment = document_key(
        str,
        "The experiment whose settings vary: its name, or the path of its file.",
        minLength=1,
        examples=["quickstart", "experiments/chat.blis.yaml"],
    )
    case = document_key(
        str,
        "Start from this case of the experiment (one of its `cases`, or of those that its `matrix` gives) instead of"
        " the experiment as it stands.",
        default=None,
        minLength=1,
        examples=["small-cache"],
    )
    set = document_key(
        None,
        "Overrides for all runs, by dotted path, as with `--set`.",
        default={},
        type="object",
        additionalProperties={"description": "The value, as it would stand in the experiment."},
        examples=[{"workload.requests": 2000}],
    )
    axes = document_key(
        None,
        "What varies: dotted path of a key of the experiment -> the values to try, as a list or as a range such as"
        " `{from: 5, to: 40, step: 5}` or `{from: 1, to: 64, count: 7, scale: log}`. Every value of one axis meets"
        " every value of the others.",
        default={},
        type="object",
        additionalProperties={"$ref": _VALUES},
        examples=[{"cluster.instances": [1, 2, 4], "workload.rate_per_s": {"from": 5, "to": 40, "step": 5}}],
    )
    zip = document_key(
        None,
        "Paths that change together, as one axis: the first value of each, then the second of each, and so on.",
        default=[],
        type="array",
        items={
            "description": "Paths with equally many values each.",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"$ref": _VALUES},
        },
        examples=[[{"hardware": ["h100", "l40s"], "cluster.tensor_parallel": [1, 2]}]],
    )
    exclude = document_key(
        None,
        "Points to leave out: those that match all keys of one of these entries.",
        default=[],
        type="array",
        items={
            "description": "Path of an axis -> the value to leave out, a list of values, or bounds (`min`, `max`)"
            " within which values are left out.",
            "type": "object",
            "minProperties": 1,
            "additionalProperties": {"$ref": "#/$defs/excluded"},
        },
        examples=[[{"cluster.instances": 1, "workload.rate_per_s": {"min": 30}}]],
    )
    seeds = document_key(
        None,
        "Number of seeds per point: the experiment's own and those after it; or, as a list, the seeds themselves.",
        default=1,
        type=["integer", "array"],
        minimum=1,
        maximum=1000,
        minItems=1,
        items={
            "description": "A seed of the random numbers.",
            "type": "integer",
            "minimum": 0,
            "maximum": LARGEST_SEED,
        },
        maxItems=1000,
        examples=[5, [1, 2, 3]],
    )
    objectives = document_key(
        (Objective,),
        "Metrics to minimise or maximise. The Pareto front has the points that no other point beats in one of them"
        " without being worse in another.",
        default=[],
        examples=[[{"metric": "cost.gpus"}, {"metric": "throughput.output_tokens_per_s", "goal": "max"}]],
    )
    constraints = document_key(
        (model.Expectation,),
        "Bounds that must hold, such as SLOs: on metrics of the report or of `cost`, written as in `expect` of an "
        "experiment.",
        default=[],
        examples=[[{"metric": "latency.ttft_ms.p99", "max": 300}]],
    )
    prices = document_key(
        None,
        "Price of an accelerator in US dollars per hour, by the name of its hardware; takes precedence over "
        "`cost_per_hour_usd` of the hardware document. It affects no simulation, only the metrics of `cost`.",
        type="object",
        additionalProperties={"type": "number", "minimum": 0, "maximum": 10**6},
        examples=[{"h100": 2.5, "l40s": 0.9}],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Definition:
    """One definition of a schema."""

    of: type | None = None
    """The class that defines its keys; None = ``limits`` define everything."""
    kind: str = ""
    """The kind of document that it describes; empty = a part of documents."""
    doc: str = ""
    """Its description, if it is not the class's docstring."""
    limits: Mapping[str, object] = field(default_factory=dict)
    """Additional JSON Schema keywords."""
    point: str = ""
    """The plug point whose plug-ins are allowed here."""
    short: str = "string"
    """Type of the short form allowed instead of a plug-in's map: its name, or a number."""
    open: bool = False
    """Whether other keys are allowed."""
    required: tuple[str, ...] = ()
    """Keys that a separate document must have, but an inline part need not."""
    nameless: bool = False
    """Whether it has no description, because every key that refers to it has one."""


METADATA: Final = "common.schema.json#/$defs/metadata"
SHARED: Final = {"title": "Shared parts", "description": "Definitions that several kinds of document use."}
"""Title and description of the schema of shared parts."""
SHAPES: Final[Mapping[str, type]] = MappingProxyType({"columns": TraceColumns})
"""Names by which records refer to classes in higher layers."""

DEFINITIONS: Final[Mapping[str, Mapping[str, Definition]]] = MappingProxyType(
    {
        "common": {
            "metadata": Definition(of=Metadata, nameless=True),
            "coefficients": Definition(
                doc="Coefficients of a step-time model, in the order its document under `specs/latency/` explains;"
                " microseconds unless said otherwise.",
                limits={
                    "type": "array",
                    "items": {"description": "One coefficient.", "type": "number", "minimum": 0, "maximum": LARGEST},
                    "maxItems": 11,
                },
            ),
            "values": Definition(
                of=Values,
                limits={
                    "title": "a list of values or a range",
                    "type": ["array", "object"],
                    "minItems": 1,
                    "items": {"description": "One value, as it would stand in the experiment."},
                },
            ),
        },
        "experiment": {
            "document": Definition(
                of=model.Experiment,
                kind="Experiment",
                limits={"if": {"required": ["extends"]}, "else": {"required": ["model", "hardware", "workload"]}},
            ),
            "cluster": Definition(of=model.Cluster),
            "engine": Definition(of=model.Engine),
            "expectation": Definition(of=model.Expectation),
            "course_expectation": Definition(of=model.CourseExpectation),
            "expected": Definition(
                doc="A metric of the report and what it must be, or what must hold in the course of the run.",
                limits={
                    "type": "object",
                    "if": {"anyOf": [{"required": [name]} for name in ("always", "never", "eventually", "count")]},
                    "then": {"$ref": "#/$defs/course_expectation"},
                    "else": {"$ref": "#/$defs/expectation"},
                },
            ),
            "overrides": Definition(
                doc="Values to replace, by dotted path; as with `--set`.",
                limits={
                    "type": "object",
                    "additionalProperties": {"description": "The value, as it would stand in the document."},
                },
            ),
            "golden": Definition(of=GoldenComparison),
            "twin": Definition(of=TwinTest),
            "twin_tolerance": Definition(of=TwinTolerance),
            "pool": Definition(of=model.Pool),
            "nodes": Definition(of=model.NodePool),
            "failure": Definition(of=model.Failure),
            "slo_target": Definition(of=model.SloTarget, limits={"minProperties": 1}),
            "fitness_weights": Definition(of=FitnessWeights, limits={"minProperties": 1}),
            "kv_tier": Definition(of=model.KvTier),
        },
        "hardware": {
            "document": Definition(of=model.Hardware, kind="Hardware"),
            "link": Definition(of=Link),
        },
        "latency": {
            "document": Definition(
                of=LatencyDocument,
                kind="Latency",
                limits={"if": {"required": ["rows"]}, "else": {"required": ["alpha", "beta"]}},
            ),
            "row": Definition(of=MeasuredConfiguration),
        },
        "model": {
            "document": Definition(of=ModelDocument, kind="Model"),
            "config": Definition(of=ModelConfig, open=True),
        },
        "policy": {
            "document": Definition(of=model.Policy, kind="Policy"),
            "scorer": Definition(
                doc="One scorer and its weight; a word alone is the scorer of that name with weight 1.",
                point="policy.routing.scorers",
            ),
            "scorers": Definition(
                doc="Scorers with their weights, added up in this order.",
                limits={
                    "type": "array",
                    "minItems": 1,
                    "maxItems": 64,
                    "items": {"$ref": "#/$defs/scorer"},
                    "examples": [[{"kind": "prefix-affinity", "weight": 3}, {"kind": "queue-depth", "weight": 2}]],
                },
            ),
        },
        "study": {
            "document": Definition(of=StudyDocument, kind="Study", required=("experiment",)),
            "excluded": Definition(
                of=Excluded,
                limits={
                    "type": ["object", "array", "string", "number", "boolean", "null"],
                    "items": {"description": "A value that is meant."},
                    "minProperties": 1,
                },
            ),
            "objective": Definition(of=Objective),
        },
        "workload": {
            "document": Definition(of=model.Workload, kind="Workload"),
            "column": Definition(
                doc="Name of a column of the file, as its header has it.",
                limits={"type": "string", "minLength": 1, "maxLength": 200},
            ),
            "client": Definition(of=model.Client),
            "session-call": Definition(of=model.SessionCall),
            "lengths": Definition(
                doc="A distribution of token counts; a plain number is a fixed count.",
                point="workload.clients.lengths",
                short="integer",
                limits={
                    "minimum": 1,
                    "maximum": 10**9,
                    "examples": [
                        {"kind": "constant", "value": 256},
                        {"kind": "gaussian", "mean": 256, "std_dev": 100, "min": 2, "max": 800},
                        {"kind": "lognormal", "mu": 5.5, "sigma": 0.8, "max": 4000},
                        {"kind": "lognormal", "mean": 350, "p95": 900},
                        {"kind": "percentiles", "values": {"p50": 250, "p90": 900, "p99": 4000}},
                        {"kind": "histogram", "edges": [0, 128, 512, 2048], "counts": [420, 310, 55]},
                        {"kind": "exponential", "mean": 128, "max": 1024},
                        {
                            "kind": "pareto-lognormal",
                            "alpha": 1.5,
                            "xm": 100,
                            "mu": 5.5,
                            "sigma": 0.8,
                            "mix_weight": 0.1,
                        },
                        {"kind": "empirical", "weights": {"128": 3, "512": 1}},
                    ],
                },
            ),
            "ratio": Definition(
                doc="A distribution of shares between 0 and 1; a plain number is a fixed share.",
                point="workload.clients.reasoning.ratio",
                short="number",
                limits={"minimum": 0, "maximum": 1},
            ),
            "modality": Definition(of=model.Modality),
        },
    }
)
"""Schema -> its definitions, except those that plug points and ``variants`` add."""
