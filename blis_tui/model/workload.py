"""The sources of requests: clients, sessions and recorded workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.base.classes import dataclass
from blis_tui.model.control_plane import SLO_CLASSES
from blis_tui.model.defaults import CHAT, COMPLETIONS, chat_requests
from blis_tui.model.keys import SMALLEST, DocumentKey, amount, choice, document_key, key, part, plug_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model.control_plane import PluginConfig


class Slice:
    """A part of a trace."""

    from_s = document_key(float, "Where it begins, in seconds of the trace.", default=0.0, minimum=0, maximum=10**9)
    to_s = document_key(
        float,
        "Where it ends, in seconds of the trace; a request that arrives then is not part of it. Without it, the trace"
        " goes on to its end.",
        minimum=SMALLEST,
        maximum=10**9,
        examples=[600],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """A recorded workload. ``path`` is absolute; the digest uses the ``sha256`` of the content instead.

    ``tokenizer`` is no key of a document: a file that counts the tokens of texts, only while a trace is converted.
    """

    path: str
    file: ClassVar[DocumentKey] = document_key(
        str,
        "Path to the trace, relative to this file. Files compressed with gzip or Zstandard are read as they are.",
        required=True,
        minLength=1,
        examples=["requests.csv"],
    )
    format: str = plug_in(
        "workload.trace.format",
        "Layout of the file. Nothing is guessed: a JSON file under `requests` is an error that says which format to"
        " write.",
        default="requests",
    )
    columns: Mapping[str, str] = part(
        "Which column of the file holds what, where its name is not a known one; other columns whose names are unknown"
        " are then ignored.",
        "columns",
        absent={},
        examples=[{"arrival": "timestamp", "input_tokens": "prompt_tokens", "output_tokens": "completion_tokens"}],
    )
    time_unit: str = choice(
        "Unit of arrivals that are numbers. Needed where neither the column's name (`timestamp_ms`) nor the layout of a"
        " known tool tells it; dates need none.",
        {"s": "Seconds.", "ms": "Milliseconds.", "us": "Microseconds.", "ns": "Nanoseconds."},
        absent="",
    )
    limit: int | None = key(
        "Only so many requests, the first of the file; it is read no further. `workload.requests` counts those that are"
        " left of them, in order of arrival.",
        absent=None,
        minimum=1,
        maximum=10**8,
        examples=[10_000],
    )
    slice: tuple[float, float | None] | None = part(
        "Only a part of the trace; arrivals then count from its beginning.",
        Slice,
        absent=None,
        examples=[{"from_s": 3600, "to_s": 4200}],
    )
    scale_rate: float = key(
        "Times of arrival are divided by it: 2.0 is twice the load in half the time. With `pacing: answers` sessions"
        " begin at other times, but the pauses in them stay. Without it, the trace is replayed as it was recorded.",
        absent=1.0,
        minimum=SMALLEST,
        maximum=10**6,
        examples=[2.0],
    )
    rate_per_s: float | None = key(
        "Requests (of sessions: sessions) per second of a file that does not say when they arrive (conversations,"
        " agents' traces, results without times).",
        absent=None,
        minimum=SMALLEST,
        maximum=10**6,
        examples=[2.0],
    )
    arrivals: str = choice(
        "How they arrive at `rate_per_s`. Left out, evenly spaced.",
        {
            "constant": "Evenly spaced.",
            "poisson": "With independent, exponentially distributed gaps, drawn from the experiment's seed.",
        },
        absent="constant",
    )
    block_size_tokens: int | None = key(
        "Tokens of a block of `hash_ids`, where the file does not say it. Left out, 512 for `mooncake`, 16 for"
        " `bailian`.",
        absent=None,
        minimum=1,
        maximum=10**6,
        examples=[64],
    )
    bytes_per_token: float = key(
        "Bytes of UTF-8 text that count as one token, of a file of texts (format `sharegpt`): an estimate, which the"
        " output names. Left out, 4, about right for current tokenizers, in English and, with three bytes a character,"
        " in Chinese. `workload convert --tokenizer` counts instead.",
        absent=4.0,
        minimum=0.1,
        maximum=1000,
        examples=[3.5],
    )
    pacing: str = choice(
        "What requests of sessions after the first wait for, where the file names sessions (`session_id`,"
        " conversations). Left out, the clock.",
        {
            "clock": "The clock: they are sent when they were sent in the trace, whatever the cluster does.",
            "answers": "Answers to those before them, and then the time that lay between in the trace: a closed loop."
            " Prompts begin with what was said before, which is found in the prefix cache.",
        },
        absent="clock",
    )
    sha256: str = key(
        "Digest of the file's content in hexadecimal; when given, the file must match.",
        optional=True,
        pattern="^[0-9a-f]{64}$",
        examples=["e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"],
    )
    tokenizer: str = ""


_LENGTHS: Final = "workload.clients.lengths"
"""The plug point of length distributions."""
_LENGTHS_HERE: Final = "#/$defs/lengths"
_RATIO: Final = {
    "properties": {
        "ratio": {
            "description": "Times as many tokens as the answer will have, to the nearest whole one.",
            "type": "number",
            "minimum": SMALLEST,
            "maximum": 10**6,
        }
    },
    "required": ["ratio"],
    "additionalProperties": False,
}
_BUDGET: Final[dict[str, object]] = {
    "if": {"type": "object", "required": ["ratio"]},
    "then": _RATIO,
    "else": {"if": {"type": "string"}, "then": {"enum": ["none"]}, "else": {"$ref": _LENGTHS_HERE}},
    "examples": [1024, {"ratio": 2.0}, "none"],
}
_MOST_TOKENS: Final = 10**9
_MOST_ADAPTERS: Final = 10**5
_SLO_CLASSES: Final = (
    "Most urgent: a user reads the tokens as they arrive.",
    "Ordinary interactive traffic.",
    "May be rejected under load.",
    "Work that must be done, but at any time.",
    "Least urgent: runs on leftover capacity.",
)
_RATE: Final = (
    "Mean rate of all clients together, in requests per second; where a client has a `rate_curve`, what its factors"
    " multiply."
)
_STAGE_RATE: Final = "Mean rate of all clients together, in requests per second."


@dataclass(frozen=True, slots=True, kw_only=True)
class Prefix:
    """A prompt prefix shared by all requests of a group."""

    group: str = key("Name of the group.", minLength=1, examples=["system-prompt"])
    tokens: int = key(
        "Length of the prefix in tokens, in addition to `input_tokens`: a prompt is as long as both.",
        minimum=1,
        maximum=_MOST_TOKENS,
        examples=[512],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Network:
    """A client's connection."""

    rtt_ms: float = key("Round-trip time in milliseconds.", default=0.0, minimum=0, maximum=10**6, examples=[40])
    bandwidth_mbps: float | None = key(
        "Bandwidth in 10^6 bits per second; a token is four bytes. Unlimited by default.",
        absent=None,
        minimum=SMALLEST,
        maximum=10**9,
        examples=[100],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RatePoint:
    """The rate at one time."""

    at_s: float = key("Time in seconds from the start.", minimum=0, maximum=10**9, examples=[3600])
    factor: float = key(
        "Factor for the client's share of `rate_per_s`; 0 = no requests.",
        minimum=0,
        maximum=10**6,
        examples=[1.5],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RateCurve:
    """A client's rate over time: linear between points."""

    points: tuple[RatePoint, ...] = part(
        "Factors of the client's rate at times from the start; the first at 0, each later than the one before.",
        (RatePoint,),
        minItems=1,
        maxItems=10_000,
        examples=[[{"at_s": 0, "factor": 0.2}, {"at_s": 43200, "factor": 1.0}, {"at_s": 86400, "factor": 0.2}]],
    )
    repeat: bool = key(
        "Whether the curve repeats after the last point, as every day; otherwise the rate stays at the last point's.",
        default=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionCall:
    """One call of every turn."""

    id: str = key("Name of the call, unique in the turn.", minLength=1, maxLength=200, examples=["plan"])
    after: tuple[str, ...] = key(
        "Calls of the turn that must be answered first, each listed above this one. Default: none, the call starts the "
        "turn. Its prompt begins with the prompt and the answer of the first of them; the answers of the others follow"
        " as new text.",
        absent=(),
        items={"type": "string", "minLength": 1},
        uniqueItems=True,
        minItems=1,
        examples=[["plan"]],
    )
    input_tokens: PluginConfig | None = plug_in(
        _LENGTHS,
        "New text of its prompt, in tokens: an instruction, the result of a tool. Default: the client's.",
        absent=None,
        ref=_LENGTHS_HERE,
        examples=[300],
    )
    output_tokens: PluginConfig | None = plug_in(
        _LENGTHS, "Tokens it generates. Default: the client's.", absent=None, ref=_LENGTHS_HERE, examples=[200]
    )
    wait_ms: PluginConfig | None = plug_in(
        _LENGTHS,
        "Milliseconds between the answers that it waits for and sending it, such as the time that a tool takes.",
        absent=None,
        ref=_LENGTHS_HERE,
        examples=[{"kind": "exponential", "mean": 1500}],
    )
    parallel: int = key(
        "Number of times it is sent at once, each with its own lengths.",
        default=1,
        minimum=1,
        maximum=1000,
        examples=[3],
    )
    history: bool = key(
        "Whether its prompt begins with the conversation so far; `false` = a context of its own, as for a sub-agent.",
        default=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """Requests that belong together: the turns of a conversation, or the calls of an agent."""

    turns: PluginConfig = plug_in(
        _LENGTHS,
        "Turns of a session; a plain number is a fixed count.",
        default=1,
        ref=_LENGTHS_HERE,
        examples=[5, {"kind": "uniform", "min": 2, "max": 10}],
    )
    think_time_ms: PluginConfig | None = plug_in(
        _LENGTHS,
        "Milliseconds from the end of a turn to the next one: the time a user takes to read and type, or a tool of the "
        "agent to run. Default: the next turn follows at once.",
        absent=None,
        ref=_LENGTHS_HERE,
        examples=[{"kind": "lognormal", "mu": 9.0, "sigma": 0.8, "max": 120_000}],
    )
    history: str = choice(
        "What a prompt begins with.",
        {
            "full": "The whole conversation so far: prompts grow, and their beginnings are found in the prefix cache.",
            "none": "Only the client's shared prefix: prompts are independent.",
        },
        default="full",
    )
    pacing: str = choice(
        "What the next prompt waits for.",
        {
            "answers": "The answers to the prompts before it; a prompt without an answer cancels the rest of the"
            " session.",
            "clock": "The time since the prompts before it were sent, whatever happens to them.",
        },
        default="answers",
    )
    max_context_tokens: int | None = key(
        "A session ends before the turn in which a prompt and its answer together would exceed this length. Default: "
        "prompts grow until `turns` are over or the model's context is full.",
        absent=None,
        minimum=1,
        maximum=_MOST_TOKENS,
        examples=[32_768],
    )
    calls: tuple[SessionCall, ...] = part(
        "What every turn consists of, where it is more than one request: the calls of an agent, and which of them wait"
        " for which.",
        (SessionCall,),
        absent=(),
        minItems=1,
        maxItems=1000,
        examples=[
            [
                {"id": "plan"},
                {"id": "search", "after": ["plan"], "parallel": 3, "wait_ms": 800},
                {"id": "answer", "after": ["search"]},
            ]
        ],
    )


class AdapterChoice:
    """How a client's adapters are written."""

    names = document_key(
        None,
        "Their names.",
        type="array",
        minItems=1,
        maxItems=_MOST_ADAPTERS,
        uniqueItems=True,
        items={"type": "string", "minLength": 1, "maxLength": 200},
        examples=[["sql", "chat"]],
    )
    count = document_key(
        int,
        "How many there are, instead of `names`: `adapter-1`, `adapter-2`, ...",
        minimum=1,
        maximum=_MOST_ADAPTERS,
        examples=[50],
    )
    prefix = document_key(
        str,
        "What the names of `count` adapters begin with; clients with the same one share adapters.",
        default="adapter",
        minLength=1,
        maxLength=100,
    )
    weights = document_key(
        None,
        "How often each is requested, relative to the others. Default: all equally, or by `zipf`.",
        type="array",
        minItems=1,
        maxItems=_MOST_ADAPTERS,
        items={"type": "number", "minimum": 0, "maximum": 1e9},
        examples=[[3, 1]],
    )
    zipf = document_key(
        float,
        "The k-th is requested 1 / k^zipf times as often as the first: 0 = all equally, about 1 in many catalogues.",
        minimum=0,
        maximum=10,
        examples=[1.0],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterMix:
    """LoRA adapters, and how popular each is."""

    names: tuple[str, ...]
    weights: tuple[float, ...]
    """Weight of each adapter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """What a request declares of the length of its answer, which is cut there; neither = nothing."""

    ratio: float | None = key("Multiple of the tokens that the answer will have.", absent=None)
    tokens: PluginConfig | None = plug_in(_LENGTHS, "A number of tokens, independent of the answer.", absent=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reasoning:
    """How requests think before they answer."""

    ratio: PluginConfig = plug_in(
        "workload.clients.reasoning.ratio",
        "Share of a request's output tokens that is reasoning; a plain number is a fixed share. Tokens are rounded"
        " to whole ones.",
        ref="#/$defs/ratio",
        examples=[0.7, {"kind": "gaussian", "mean": 0.6, "std_dev": 0.2, "max": 0.95}],
    )
    history: str = choice(
        "Which part of answers later prompts of a session include. Default: `dropped`, as in chat templates of "
        "reasoning models.",
        {
            "dropped": "The answers without their reasoning; an engine has to recompute them, because the tokens "
            "before them have changed.",
            "kept": "The answers with their reasoning, which are found in the prefix cache.",
        },
        absent="dropped",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Modality:
    """Items of one kind in prompts."""

    probability: float = key(
        "Probability that a prompt has any of them. Default: 1.",
        absent=1.0,
        minimum=SMALLEST,
        maximum=1,
        examples=[0.3],
    )
    count: PluginConfig = plug_in(
        _LENGTHS,
        "How many such a prompt has; a plain number is a fixed count.",
        default={"kind": "constant", "value": 1},
        ref=_LENGTHS_HERE,
        examples=[2],
    )
    tokens: PluginConfig = plug_in(
        _LENGTHS, "Tokens of each item; a plain number is a fixed count.", ref=_LENGTHS_HERE, examples=[1120]
    )
    distinct: int = key(
        "Number of different items, all equally likely, which an encoder's cache may have (`engine.encoder`). Default: "
        "every item is new.",
        absent=0,
        minimum=1,
        maximum=10**6,
        examples=[50],
    )


_SOME: Final = [{"probability": 0.3, "count": {"kind": "uniform", "min": 1, "max": 3}, "tokens": 1120}]


@dataclass(frozen=True, slots=True, kw_only=True)
class Multimodal:
    """What prompts contain besides text."""

    images: Modality | None = part("Images.", Modality, absent=None, examples=_SOME)
    audio: Modality | None = part("Pieces of audio.", Modality, absent=None, examples=_SOME)
    video: Modality | None = part("Videos.", Modality, absent=None, examples=_SOME)


@dataclass(frozen=True, slots=True, kw_only=True)
class Client:
    """One stream of generated requests."""

    id: str = key("Name of the stream, unique in the workload.", minLength=1, maxLength=200, examples=["chat"])
    share: float = key(
        "Share of rate_per_s; shares need not add up to 1, they are normalised. No effect in a closed loop.",
        default=1.0,
        minimum=SMALLEST,
        maximum=10**9,
    )
    arrivals: PluginConfig = plug_in(
        "workload.clients.arrivals", "How the gaps between requests are drawn.", default={"kind": "poisson"}
    )
    rate_curve: RateCurve | None = part(
        "How the client's rate changes over time: a day's course, a spike, a slow start or end. Linear between the "
        "points. Default: constant.",
        RateCurve,
        absent=None,
        examples=[
            {
                "points": [
                    {"at_s": 0, "factor": 1.0},
                    {"at_s": 600, "factor": 1.0},
                    {"at_s": 610, "factor": 5.0},
                    {"at_s": 670, "factor": 5.0},
                    {"at_s": 680, "factor": 1.0},
                ]
            }
        ],
    )
    input_tokens: PluginConfig = plug_in(
        _LENGTHS,
        "Length of a prompt in tokens, without the shared prefix; a plain number is a fixed count.",
        ref=_LENGTHS_HERE,
        examples=[{"kind": "gaussian", "mean": 256, "std_dev": 100, "min": 2, "max": 800}],
    )
    output_tokens: PluginConfig = plug_in(
        _LENGTHS,
        "Tokens a request generates; a plain number is a fixed count.",
        ref=_LENGTHS_HERE,
        examples=[{"kind": "exponential", "mean": 128, "max": 1024}],
    )
    max_output_tokens: Budget | None = part(
        "The budget that a request declares for its answer (`max_tokens` of an API), which is cut there: a number or a"
        " distribution of tokens; `{ratio: 2.0}` = this multiple of the tokens that it will have; `none` = no budget "
        "beyond the engine's limits. Admission, reservations and routing know the budget, never the answer. Default: a "
        "request declares exactly what it will generate, as benchmark clients do, or the `max` of answers of kind"
        " `until-eos`. With vLLM's asynchronous scheduling an answer that ends before its budget computes one more"
        " token.",
        None,
        absent=None,
        raw=_BUDGET,
    )
    ignore_eos: bool = key(
        "Whether its requests ask for all of their budget (`ignore_eos` of vLLM and SGLang): answers have"
        " `output_tokens`, which is what they declare, and an engine that estimates how long answers get knows it"
        " (SGLang). Absent = answers may end at any token, so far as an engine knows; how long they are is still"
        " `output_tokens`, where kind `until-eos` is a load that was not told to ignore EOS.",
        absent=False,
        examples=[True],
    )
    prefix: Prefix | None = part(
        "A prompt prefix shared by all requests of its group.",
        Prefix,
        absent=None,
        examples=[{"group": "system-prompt", "tokens": 512}],
    )
    repeated_prompts: int = key(
        "The client cycles through this many prompts; in a closed loop, each user repeats one (as inference-perf "
        "does). They are found in the prefix cache from the second time on. Absent = every prompt is"
        " new.",
        absent=0,
        minimum=1,
        maximum=10**5,
        examples=[45],
    )
    adapters: AdapterMix | None = part(
        "LoRA adapters; each request uses one of them (all requests of a session use the same). `engine.lora` sets "
        "their cost. Default: the base model.",
        AdapterChoice,
        absent=None,
        examples=[{"names": ["sql", "chat"], "weights": [3, 1]}, {"count": 50, "zipf": 1.0}],
    )
    session: Session | None = part(
        "Groups its requests into sessions: conversations, or runs of an agent. Arrivals are then arrivals of "
        "sessions, and `rate_per_s` counts sessions; the users of a closed loop hold one session after the other. "
        "Default: independent requests.",
        Session,
        absent=None,
        examples=[
            {"turns": {"kind": "uniform", "min": 2, "max": 10}, "think_time_ms": {"kind": "exponential", "mean": 8000}}
        ],
    )
    reasoning: Reasoning | None = part(
        "Its requests reason before they answer: of the output tokens, the first ones are reasoning. They cost what"
        " other tokens cost; the report (`reasoning`) has them, and the time to the first token of the answer itself."
        " Default: reasoning is not distinguished from the rest of an answer.",
        Reasoning,
        absent=None,
        examples=[{"ratio": 0.7}, {"ratio": {"kind": "beta", "alpha": 6, "beta": 2}}],
    )
    multimodal: Multimodal | None = part(
        "Images, audio and video of its prompts, in addition to the text of `input_tokens`, in tokens as the model's "
        "encoder produces them. The length of a prompt is the sum of all; encoders take no time unless the experiment "
        "has"
        " `engine.encoder`. In sessions every call has its own, and those of earlier calls are part of what was said.",
        Multimodal,
        absent=None,
        minProperties=1,
        examples=[
            {"images": {"count": 2, "tokens": 1120}},
            {"audio": {"probability": 0.5, "tokens": {"kind": "uniform", "min": 100, "max": 750}}},
        ],
    )
    slo_class: str = choice(
        "SLO class, from the most to the least urgent.",
        dict(zip(SLO_CLASSES, _SLO_CLASSES, strict=True)),
        default="standard",
    )
    tenant: str = key(
        "Tenant of the requests, for reports by tenant; empty = no tenant.", default="", examples=["acme"]
    )
    model: str = key(
        "Name of the model that its requests ask for: only instances that serve it are chosen. Default: any instance "
        "may answer.",
        absent="",
        minLength=1,
        examples=["llama-3.1-8b-instruct"],
    )
    timeout_us: int | None = amount(
        "Microseconds after its arrival at which an unfinished request times out; `none` = never.",
        ["none"],
        default="none",
        minimum=1,
        maximum=10**15,
        examples=[30_000_000],
    )
    network: Network | None = part(
        "The client's network connection, which adds to its times to the first and the last token. Off by default.",
        Network,
        absent=None,
        minProperties=1,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """A rate for some time."""

    rate_per_s: float = key(_STAGE_RATE, minimum=SMALLEST, maximum=10**6, examples=[8.0])
    duration_s: float = key("Duration in seconds.", minimum=SMALLEST, maximum=10**8, examples=[600.0])


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The requests: generated by clients, or recorded in a trace."""

    name: str
    requests: int | None = key(
        "Total number of requests of all clients; null = no limit: the horizon, the last stage or the trace ends them.",
        default=None,
        minimum=1,
        maximum=10**8,
        examples=[500],
    )
    sessions: int | None = key(
        "Total number of sessions of all clients, after which no further ones begin; requests of clients without "
        "`session` do not count. Default: no such limit.",
        absent=None,
        minimum=1,
        maximum=10**8,
        examples=[100],
    )
    rate_per_s: float = key(_RATE, absent=0.0, minimum=SMALLEST, maximum=10**6, examples=[8.0])
    stages: tuple[Stage, ...] = part(
        "Instead of `rate_per_s`: rates that follow one another; requests end with the last stage.",
        (Stage,),
        absent=(),
        each={"examples": [{"rate_per_s": 8.0, "duration_s": 600.0}]},
        minItems=1,
        maxItems=10_000,
        examples=[[{"rate_per_s": 8.0, "duration_s": 600.0}, {"rate_per_s": 20.0, "duration_s": 600.0}]],
    )
    exact_stage_counts: bool = key(
        "Whether each stage has exactly rate x duration requests (as in inference-perf) instead of a random number; "
        "of several clients, each has its share of them, rounded. For Poisson arrivals. Absent = drawn.",
        absent=False,
        examples=[True],
    )
    clients: tuple[Client, ...] = part(
        "Streams of generated requests.",
        (Client,),
        absent=(),
        minItems=1,
        examples=[
            [
                {
                    "id": "chat",
                    "input_tokens": {"kind": "gaussian", "mean": 256, "std_dev": 100, "min": 2, "max": 800},
                    "output_tokens": {"kind": "exponential", "mean": 128, "max": 1024},
                }
            ]
        ],
    )
    trace: Trace | None = part(
        "A recorded workload, instead of `clients`.",
        Trace,
        absent=None,
        examples=[{"file": "requests.csv", "format": "requests"}],
    )
    endpoint: str = choice(
        "The endpoint of the API server that all requests use. Left out = `completions`.",
        {
            COMPLETIONS: "Prompts, as the step times were measured with.",
            CHAT: f"Messages, which the server puts into the model's chat template. {chat_requests()} Otherwise, and"
            " where `engine.front_end` has a `request_us`, as with completions. Lengths include the template.",
        },
        absent=COMPLETIONS,
        examples=[CHAT],
    )
