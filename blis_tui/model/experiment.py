"""Everything that one simulation needs, and recordings of a real server that it is compared with."""

from __future__ import annotations

from dataclasses import field, replace
from operator import attrgetter
from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.model.control_plane import NAME, SLO_CLASSES, SLO_PRIORITIES, Cluster, named_in
from blis_tui.model.engine import Engine
from blis_tui.model.keys import (
    LARGEST,
    LARGEST_SEED,
    SMALLEST,
    DocumentKey,
    amount,
    choice,
    document_key,
    entry,
    group_of,
    key,
    part,
    plug_in,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model.control_plane import PluginConfig, Policy
    from blis_tui.model.machine import Hardware, Model
    from blis_tui.model.plug_ins import Plugin, Registry
    from blis_tui.model.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTolerance:
    """How far figures of a new recording may be from those that were kept; no run of a server is quite like another."""

    latency: float = key(
        "Share by which means and medians of latencies, and the mean time of a step, may differ.",
        default=0.1,
        minimum=0,
        maximum=10,
        examples=[0.05],
    )
    tail: float = key(
        "Share by which the 99th percentiles of latencies may differ.",
        default=0.25,
        minimum=0,
        maximum=10,
        examples=[0.15],
    )
    counts: float = key(
        "Share by which steps, preemptions, tokens from the prefix cache, generated tokens, running requests and KV"
        " blocks in use may differ; by 2 they always may where they are counted.",
        default=0.1,
        minimum=0,
        maximum=10,
        examples=[0.05],
    )
    error: float = key(
        "By how much the mean absolute error of simulated latencies (a share: 0.08 is 8 %) may differ.",
        default=0.1,
        minimum=0,
        maximum=10,
        examples=[0.05],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class TwinTest:
    """A recording of the server, compared with what was kept of an earlier one and with the simulation."""

    name: str = key("Name of the test: `twin+NAME`.", pattern=NAME, examples=["june"])
    recording: str = key(
        "The folder that `blis-tui observe -o` wrote, relative to this file.",
        minLength=1,
        examples=["recordings/server"],
    )
    steps: str = choice(
        "Where the step times of the simulation come from.",
        {
            "model": "The experiment's step-time model.",
            "measured": "The log in the recording, step by step.",
            "fitted": "A simple model, fitted to that log.",
        },
        default="model",
    )
    tolerance: TwinTolerance = part("How far figures may be from those that were kept.", TwinTolerance, default={})


ANY_INSTANCE: Final = 1 << 15
"""More instances than any run has."""
_MOST_US: Final = 10**15
_HERE: Final = "#/$defs/document/properties/"


@dataclass(frozen=True, slots=True, kw_only=True)
class Pool:
    """A group of equal instances."""

    name: str = key("What reports and screens call it.", pattern=NAME)
    role: str = choice(
        "What its instances do under disaggregation.",
        {
            "any": "Prefill and decode.",
            "prefill": "Prefill only.",
            "decode": "Decode only (and serve requests that are not split).",
            "whole": "Serve only requests that are not split.",
        },
        default="any",
    )
    instances: int = key(
        "How many; with `engine.data_parallel`, model replicas, each of so many ranks.", minimum=1, maximum=10_000
    )
    """Ranks: each is an instance."""
    tensor_parallel: int = key(
        "Accelerators that share one instance's layers; as in `cluster` where it is left out.",
        optional=True,
        minimum=1,
        maximum=1024,
    )
    min_instances: ClassVar[DocumentKey] = document_key(
        int,
        "The least the autoscaler leaves of this pool; as the autoscaler says where it is left out.",
        minimum=0,
        maximum=10_000,
    )
    max_instances: ClassVar[DocumentKey] = document_key(
        int, "The most the autoscaler makes of this pool; likewise.", minimum=1, maximum=10_000
    )
    model: Model = part(
        "What it serves instead of the experiment's model: a name, a path, or the document itself.",
        f"{_HERE}model",
        optional=True,
    )
    hardware: Hardware = part(
        "What it runs on instead of the experiment's hardware: a name, a path, or the document itself.",
        f"{_HERE}hardware",
        optional=True,
    )
    latency: PluginConfig = plug_in(
        "latency",
        "How the duration of its steps is computed, where not as in the experiment.",
        optional=True,
        ref=f"{_HERE}latency",
    )
    engine: Engine = part(
        "Limits of its instances that differ from those of the experiment; the others stay as they are there.",
        Engine,
        optional=True,
        raw={"x-partial": True},
    )
    operators: Mapping[str, object] | None = None
    """Tables of measured operator times, if the step-time model needs them."""

    @property
    def lockstep(self) -> bool:
        """Whether the ranks of a replica step together; otherwise each is an independent engine."""
        return self.engine.expert_ranks > 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Expectation:
    """A metric of the report and what it must be."""

    metric: str = key(
        "Dotted path of a metric in the report, such as `latency.ttft_ms.p99`.",
        minLength=1,
        examples=["latency.ttft_ms.p99", "requests.completed", "throughput.output_tokens_per_s"],
    )
    min: float | None = key(
        "Smallest value that passes, in the metric's own unit.",
        absent=None,
        minimum=-LARGEST,
        maximum=LARGEST,
        examples=[100],
    )
    max: float | None = key(
        "Largest value that passes, in the metric's own unit.",
        absent=None,
        minimum=-LARGEST,
        maximum=LARGEST,
        examples=[250],
    )
    equals: float | str | bool | None = key(
        "The only value that passes.", absent=None, minimum=-LARGEST, maximum=LARGEST, examples=[0]
    )


_DURATION: Final = r"^([0-9]+\.?[0-9]*|\.[0-9]+)(us|ms|s)$"


@dataclass(frozen=True, slots=True, kw_only=True)
class CourseExpectation:
    """What must hold in the course of the run, in the words of breakpoints."""

    always: str = key(
        "A condition on the state that must hold after every event.",
        absent="",
        minLength=1,
        maxLength=1000,
        examples=["kv.utilization < 95%"],
    )
    never: str = key(
        "What must not happen: a kind of record, another breakpoint, or a condition.",
        absent="",
        minLength=1,
        maxLength=1000,
        examples=["preempted", "gateway.waiting > 100"],
    )
    eventually: str = key(
        "What must happen, or hold, once: of the whole run, or each time behind `after`.",
        absent="",
        minLength=1,
        maxLength=1000,
        examples=["waiting == 0"],
    )
    count: str = key(
        "What is counted: records of a kind, or how often a condition becomes true.",
        absent="",
        minLength=1,
        maxLength=1000,
        examples=["preempted"],
    )
    after: str = key(
        "A breakpoint: only what comes behind it counts.",
        absent="",
        minLength=1,
        maxLength=1000,
        examples=["scaled"],
    )
    within: str = key(
        "How long behind `after`, in simulated time.", absent="", pattern=_DURATION, examples=["1s", "250ms"]
    )
    by: str = key("The simulated time by which it must have happened.", absent="", pattern=_DURATION, examples=["30s"])
    min: float | None = key("Smallest count that passes.", absent=None, minimum=0, maximum=LARGEST, examples=[1])
    max: float | None = key("Largest count that passes.", absent=None, minimum=0, maximum=LARGEST, examples=[10])


def _weight(doc: str) -> DocumentKey:
    return document_key(float, doc, minimum=0, maximum=10**6, examples=[1])


def _target(doc: str, example: float) -> float | None:
    return key(doc, absent=None, minimum=SMALLEST, maximum=10**12, examples=[example])


@dataclass(frozen=True, slots=True, kw_only=True)
class SloTarget:
    """The targets of a request."""

    ttft_ms: float | None = _target("Longest time to first token in milliseconds.", 200)
    tpot_ms: float | None = _target(
        "Longest time per output token in milliseconds: a request's mean inter-token latency.", 50
    )
    e2e_ms: float | None = _target("Longest end-to-end latency in milliseconds.", 10_000)
    ttfat_ms: float | None = _target(
        "Longest time to first answer token in milliseconds: to the first token behind the reasoning of clients that"
        " have `reasoning`, or of a trace that says so.",
        5000,
    )


def _of_kind(kind: str, examples: list[str]) -> dict[str, object]:
    """Return the schema of a key that takes another document: its name, its path or its body."""
    other = {"title": f"the name of a {kind} document, a path to one, or its body", "type": "string", "minLength": 1}
    return {
        "if": {"type": "object"},
        "then": {"$ref": f"{kind.lower()}.schema.json#/$defs/document"},
        "else": other,
        "examples": examples,
    }


class FitnessWeights:
    """How much each component counts; all lie between 0 and 1."""

    throughput = _weight("Requests per second v as v / (v + 100).")
    tokens_per_sec = _weight("Output tokens per second v as v / (v + 10000).")
    p99_ttft = _weight("99th percentile of the time to first token v in milliseconds as 1 / (1 + v).")
    p50_ttft = _weight("Median of the time to first token v in milliseconds as 1 / (1 + v).")
    mean_ttft = _weight("Mean of the time to first token v in milliseconds as 1 / (1 + v).")
    p99_e2e = _weight("99th percentile of the end-to-end latency v in milliseconds as 1 / (1 + v).")
    p50_e2e = _weight("Median of the end-to-end latency v in milliseconds as 1 / (1 + v).")
    mean_e2e = _weight("Mean of the end-to-end latency v in milliseconds as 1 / (1 + v).")


class Tolerance:
    """Accepted deviation of one number: the larger of the two bounds."""

    rel = document_key(float, "Relative to the golden value.", minimum=0, maximum=LARGEST)
    abs = document_key(float, "Absolute, in the unit of the metric.", minimum=0, maximum=LARGEST)


class GoldenComparison:
    """How results are compared with the golden files."""

    records = document_key(
        bool, "Whether the stream of event records is compared, too, and not only the report.", default=True
    )
    tolerance = document_key(
        None,
        "Deviations that are accepted, by JSON pointer into the report (`/latency/ttft_ms/p99`); everything else is"
        " compared exactly.",
        values=Tolerance,
        each={"minProperties": 1},
        default={},
        type="object",
        propertyNames={"pattern": "^/", "description": "A JSON pointer, which begins with `/`."},
    )
    redact = document_key(
        None,
        "JSON pointers into the report whose values are replaced by `[redacted]` before comparing.",
        default=[],
        type="array",
        items={"description": "One pointer.", "type": "string", "pattern": "^/"},
    )
    xfail = document_key(
        None,
        "Expectations that are known to be broken, called as in the report's `expectations`: the test passes as long as"
        " they are, and fails when one of them holds.",
        default=[],
        type="array",
        items={
            "description": "A metric, or an expectation of the course of the run.",
            "type": "string",
            "minLength": 1,
        },
        examples=[["latency.ttft_ms.p99", "never preempted"]],
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Experiment:
    """One simulation: what is served, on what, under which load and policy."""

    name: str
    description: str
    extends: ClassVar[DocumentKey] = document_key(
        str,
        "Another experiment (a name, or a path relative to this file) whose keys this one inherits: maps merge, also"
        " with the documents that it names (`workload: {rate_per_s: 5}`); lists, and whole documents with a `kind`,"
        " replace; `key: null` drops a key.",
        minLength=1,
        examples=["quickstart", "./base.blis.yaml"],
    )
    seed: int = key("Seed of all random streams.", default=42, minimum=0, maximum=LARGEST_SEED)
    model: ClassVar[DocumentKey] = document_key(
        None,
        "What is served: the name of a Model document, a Hugging Face id that one lists, a path, or its body. A file at"
        " the path goes before the id.",
        raw=_of_kind("Model", ["qwen3-14b", "Qwen/Qwen3-14B", "./my-model.yaml"]),
    )
    hardware: ClassVar[DocumentKey] = document_key(
        None,
        "What it runs on: the name of a Hardware document, a path, or its body.",
        raw=_of_kind("Hardware", ["h100"]),
    )
    latency: ClassVar[DocumentKey] = plug_in(
        "latency",
        "How the duration of one engine step is computed.",
        default={"kind": "auto"},
        examples=[{"kind": "trained-physics"}],
    )
    workload: Workload = part(
        "The requests: the name of a Workload document, a path, or its body.",
        None,
        optional=True,
        raw=_of_kind("Workload", ["chatbot"]),
    )
    policy: Policy = part(
        "Admission, routing, scheduling, batching and preemption: the name of a Policy document, a path, or its body.",
        None,
        default="default",
        optional=True,
        raw=_of_kind("Policy", ["vllm-v1"]),
    )
    cluster: Cluster = part(
        "The instances, what is known about them, and admission and routing latency.", Cluster, default={}
    )
    engine: ClassVar[DocumentKey] = document_key(Engine, "Limits of one instance, under vLLM's names.", default={})
    pools: tuple[Pool, ...]
    """The pools; instances are numbered pool by pool."""
    horizon_us: int | None = amount(
        "Simulated time in microseconds past which nothing is simulated; `none` = until all requests have left.",
        ["none"],
        default="none",
        minimum=1,
        maximum=_MOST_US,
        examples=[60_000_000],
    )
    warm_up_us: int = key(
        "Requests that arrive earlier than this, in microseconds, are simulated but left out of the report's latencies,"
        " as are gaps between tokens until then. Absent = all count.",
        absent=0,
        minimum=1,
        maximum=_MOST_US,
        examples=[60_000_000],
    )
    expect: tuple[Expectation, ...] = part(
        "Expectations about the report and about the course of the run; each entry becomes a check.",
        ("#/$defs/expected",),
        default=[],
        examples=[[{"metric": "latency.ttft_ms.p99", "max": 250}, {"never": "preempted"}]],
    )
    course: tuple[CourseExpectation, ...] = ()
    """The entries of `expect` about the course of the run."""
    slo_targets: Mapping[str, SloTarget] = part(
        "Latency targets per SLO class. A request that meets them counts as good; the report says how many did, and "
        "`goodput_rps`.",
        {name: entry(SloTarget, f"Of `{name}`.") for name in SLO_CLASSES},
        absent={},
        minProperties=1,
        examples=[{"critical": {"ttft_ms": 200, "tpot_ms": 30}, "batch": {"e2e_ms": 60_000}}],
    )
    fitness_map: ClassVar[DocumentKey] = group_of(
        "A single score for the run, as in BLIS: the sum of weight * component. Off by default.",
        name="fitness",
        examples=[{"weights": {"throughput": 1, "p99_ttft": 2}}],
    )
    fitness: Mapping[str, float] = part(
        "How much each component counts; those left out count nothing.",
        FitnessWeights,
        absent={},
        required=True,
        name="weights",
        group="fitness",
    )
    report: str = choice(
        "Which sections the report has besides those that every run has.",
        {
            "auto": "Those of what the experiment has (pools, a gateway, disaggregation, targets); rejections by"
            " reason, fairness, anomalies and saturation where its cluster is more than one pool behind two policies.",
            "full": "Rejections by reason, fairness, anomalies and saturation in any case.",
        },
        absent="auto",
        examples=["full"],
    )
    counterfactual: int = key(
        "Compare every routing decision with its alternatives: the report has the regret (`routing.regret`), and `run "
        "--decisions` lists this many alternatives, those with the best scores. Absent = no comparison, which takes "
        "less time.",
        absent=0,
        minimum=1,
        maximum=10_000,
        examples=[3],
    )
    cases: ClassVar[DocumentKey] = document_key(
        None,
        "Golden tests of this experiment, each a map of overrides (dotted path: value). Without cases there is one"
        " test, `default`.",
        type="object",
        propertyNames={
            "pattern": "^[A-Za-z0-9][A-Za-z0-9._=,-]{0,99}$",
            "description": (
                "A name of at most 100 letters, digits, `.`, `_`, `=`, `,` and `-`, the first a letter or a digit."
            ),
        },
        additionalProperties={"$ref": "#/$defs/overrides"},
        minProperties=1,
        examples=[{"small-cache": {"engine.kv_blocks": 500}, "four": {"cluster.instances": 4}}],
    )
    matrix: ClassVar[DocumentKey] = document_key(
        None,
        "Golden tests for every combination of these values (dotted path: list or range of values, as in the `axes` of"
        " a study), combined with each of `cases`.",
        type="object",
        minProperties=1,
        additionalProperties={"$ref": "common.schema.json#/$defs/values"},
        examples=[{"cluster.instances": [1, 2], "policy.scheduling.kind": ["fcfs", "sjf"]}],
    )
    tags: ClassVar[DocumentKey] = document_key(
        None,
        "Names by which golden tests can be selected (`pytest -m slow`).",
        default=[],
        type="array",
        items={"description": "One tag: a Python identifier.", "type": "string", "pattern": "^[A-Za-z_][A-Za-z0-9_]*$"},
        examples=[["slow"]],
    )
    skip: ClassVar[DocumentKey] = document_key(
        str, "Why the golden tests of this experiment are not run.", minLength=1, examples=["takes an hour"]
    )
    xfail: ClassVar[DocumentKey] = document_key(
        str,
        "Why the golden tests of this experiment are known to fail.",
        minLength=1,
        examples=["the router ignores a drained instance"],
    )
    golden: ClassVar[DocumentKey] = document_key(
        GoldenComparison,
        "How results are compared with the golden files; the default is byte for byte.",
        default={},
    )
    twins: ClassVar[DocumentKey] = document_key(
        (TwinTest,),
        "Recordings of the server that this experiment describes: each is one more golden test. The golden stores "
        "metrics of the server and of its simulation; a new recording of the same workload is compared with them.",
        minItems=1,
        examples=[[{"name": "june", "recording": "recordings/server", "tolerance": {"latency": 0.05}}]],
    )
    sha256: str
    """Digest of the resolved document; equal digests and seeds mean equal bytes."""
    document: Mapping[str, object] = field(repr=False, compare=False)
    """The resolved document as plain data (what ``spec resolve`` prints)."""
    plugins: Registry = field(repr=False, compare=False)
    """Plug-ins that the document may name."""

    def __repr__(self) -> str:
        """Return one line, because ``document`` is long."""
        return f"<Experiment {self.name}, seed {self.seed}, sha256 {self.sha256[:12]}>"

    @property
    def has_detours(self) -> bool:
        """Whether a gateway may hold requests, or two instances may share one."""
        return self.policy.gateway is not None or self.cluster.disaggregation is not None

    @property
    def request_facts(self) -> tuple[str, ...]:
        """The optional columns of request tables: the model if there are several, retries if they can occur."""
        models = dict.fromkeys(pool.model.name for pool in self.pools)
        return (*(("model",) if len(models) > 1 else ()), *(("retries",) if self.cluster.varies else ()))

    @property
    def plain(self) -> bool:
        """Whether the cluster is one pool behind an admission and a routing policy, without other features."""
        cluster, policy = self.cluster, self.policy
        latencies = {name: getattr(cluster, name) for name in ("admission_latency_us", "routing_latency_us")}
        bare = replace(policy, slo_priorities=SLO_PRIORITIES, tenant_budgets=None, deferral="none", gateway=None)
        return len(self.pools) == 1 and cluster == Cluster(**latencies) and policy == bare

    def plugins_used(self) -> tuple[Plugin, ...]:
        """Users' plug-ins that the experiment names, sorted by plug point and name."""
        if not self.plugins.origins:
            return ()
        named = named_in((self.workload, self.policy, self.cluster, self.pools))
        used = dict.fromkeys(plugin for path, config in named for plugin in self.plugins.used(path, config))
        return tuple(sorted((plugin for plugin in used if plugin.origin is not None), key=attrgetter("path", "name")))

    @property
    def instances(self) -> int:
        """Number of instances of all pools at the start."""
        return whole_sum([pool.instances for pool in self.pools])

    @property
    def instance_numbers(self) -> int:
        """Upper bound (exclusive) of instance numbers; an autoscaler may add any number of instances."""
        return self.instances if self.cluster.autoscaler is None else ANY_INSTANCE
