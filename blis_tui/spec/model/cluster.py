"""The control plane in front of the instances, the signals that it sees, and the lifecycle of instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.classes import dataclass
from blis_tui.keys import Said, amount, choice, key, part, plug_in, said

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model.policy import PluginConfig

_MOST_INSTANCES: Final = 10_000
_LONGEST_US: Final = 10**12
NAME: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Pattern of names that records and reports show."""
_ROUTING: Final = "policy.schema.json#/$defs/document/properties/routing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """How fresh the figures are that admission, gateway and router see."""

    results: str = choice(
        "When the results of a step (who has left the batch, what is in the cache) are seen.",
        {
            "step-end": "At its end.",
            "step-start": "From its start, as in the BLIS simulator: the step's outcome is known before it has run.",
        },
        default="step-end",
    )
    refresh_interval_us: int = key(
        "Age in microseconds at which queue, batch and KV figures are renewed; 0 = always fresh. What is in flight is"
        " always known.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    cache_signal_delay_us: int = key(
        "Age in microseconds at which the view of the prefix caches is renewed; 0 = always fresh.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The link over which prefilled KV blocks reach the decode instance."""

    bandwidth_gb_per_s: float = key(
        "Bandwidth in 10^9 bytes per second.", default=25.0, exclusiveMinimum=0, maximum=10**6
    )
    base_latency_us: int = key("Latency of every transfer in microseconds.", default=50, minimum=0, maximum=10**9)
    bytes_per_token: int | None = amount(
        "Bytes of a token's keys and values on one accelerator; `model` = as the model and the tensor parallelism of"
        " each prefill instance say.",
        ["model"],
        default="model",
        minimum=1,
        maximum=10**9,
    )
    starts: str = choice(
        "When a transfer starts.",
        {
            "step-end": "At the end of the step that completes the prefill.",
            "step-start": "At its start, as in the BLIS simulator.",
        },
        default="step-end",
    )
    contention: str = choice(
        "How transfers under way at the same time share the bandwidth.",
        {
            "none": "Each has all of it.",
            "fair-share": "Equal shares at any time.",
            "fixed-at-start": "The equal share when it starts, for its whole time, as in the BLIS simulator.",
        },
        default="none",
    )
    overlap: str = choice(
        "Whether a prompt's KV blocks start on their way while the last step of its prefill computes; `none` where it"
        " is left out.",
        {
            "none": "They go when it is over.",
            "layer-wise": "Those of a layer go while later layers are computed: only what that does not cover is left"
            " after the step.",
        },
        absent="none",
    )
    reuse_cached_blocks: bool = key(
        "Do not transfer blocks of a prompt that the decode instance has in its prefix cache. It needs"
        " `order: decode-first`.",
        absent=False,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Disaggregation:
    """Prefill on some instances, decode on others."""

    prefill_instances: ClassVar[Said] = said(
        int,
        "Instances that only prefill: the first ones. Where pools have roles, it may be left out.",
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    decode_instances: ClassVar[Said] = said(
        int,
        "Instances that decode: those after them. Where pools have roles, it may be left out.",
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    decider: PluginConfig = plug_in(
        "cluster.disaggregation.decider", "Which requests are split.", default={"kind": "always"}
    )
    order: str = choice(
        "When the decode instance is chosen.",
        {
            "prefill-first": "When the transfer ends; its KV blocks are taken then.",
            "decode-first": "Before the prefill; its KV blocks are reserved when the transfer starts.",
        },
        default="prefill-first",
    )
    undisaggregated: str = choice(
        "Where requests go that are not split.",
        {"decode-pool": "To an instance that decodes.", "all": "To any instance."},
        default="decode-pool",
    )
    prefill_routing: PluginConfig = plug_in(
        "policy.routing",
        "How the prefill instance is chosen; as `policy.routing` says where it is left out.",
        ref=_ROUTING,
        optional=True,
    )
    decode_routing: PluginConfig = plug_in(
        "policy.routing",
        "How the decode instance is chosen; as `policy.routing` says where it is left out.",
        ref=_ROUTING,
        optional=True,
    )
    transfer: Transfer = part("The link between them.", Transfer, default={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """How an instance comes, and how it goes."""

    loading_delay_us: int = key(
        "Time in microseconds that an instance loads its weights before it gets requests.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
        examples=[60_000_000],
    )
    warm_up_requests: int = key(
        "So many requests leave an instance before it is warm.", default=0, minimum=0, maximum=10**9
    )
    warm_up_factor: float = key(
        "How many times as long its steps take until then.", default=1.0, minimum=1, maximum=1000
    )
    drain: str = choice(
        "What becomes of the requests of an instance that the autoscaler takes away.",
        {
            "wait": "It serves them to the end.",
            "redirect": "It serves those that run; those that wait are routed again.",
            "immediate": "It stops after its step; they are lost.",
        },
        default="wait",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """When which instances die. Give `at_us` or `mean_time_between_us`."""

    instance: int | None = key(
        "The number of the one that dies, from 0; where it is left out, all (or those of `pool`).",
        absent=None,
        minimum=0,
        maximum=10**6,
    )
    pool: str | None = key("The pool whose instances die.", absent=None, minLength=1)
    at_us: int | None = key("When, in microseconds.", absent=None, minimum=0, maximum=10**15, examples=[5_000_000])
    mean_time_between_us: int | None = key(
        "Mean time in microseconds from an instance's start to its death, which is random (exponential).",
        absent=None,
        minimum=1,
        maximum=10**15,
        examples=[3_600_000_000],
    )
    repair_us: int | None = amount(
        "Time in microseconds from its death until it loads again; `none` = it never comes back.",
        ["none"],
        default="none",
        minimum=0,
        maximum=_LONGEST_US,
    )
    requests: str = choice(
        "What becomes of its requests.",
        {
            "retry": "They are routed again and start from the beginning; their arrival stays.",
            "lose": "They are lost.",
        },
        default="retry",
    )
    max_retries: int = key(
        "A request under which more instances have died is lost.", default=3, minimum=0, maximum=10**6
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A time that varies: normally distributed, never below 0."""

    mean_us: int = key("Mean in microseconds.", name="mean", default=0, minimum=0, maximum=_LONGEST_US)
    std_dev_us: int = key(
        "Standard deviation in microseconds; times below 0 count as 0.",
        name="std_dev",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class NodePool:
    """A pool of equal machines."""

    name: str = key("What records and reports call its nodes, with a number.", pattern=NAME)
    gpu: str = key("The hardware of the instances that they can host, by its name.", minLength=1, examples=["h100"])
    gpus_per_node: int = key("Accelerators of a node.", minimum=1, maximum=1024, examples=[8])
    initial: int = key("Nodes that are there from the start.", default=1, minimum=0, maximum=10_000)
    min: int = key(
        "Empty nodes are given back as long as more than these are left.", default=0, minimum=0, maximum=10_000
    )
    max: int = key("Nodes there can be.", default=10_000, minimum=1, maximum=10_000)
    provisioning_delay: Delay = part(
        "From the order of a node to its being there.", Delay, name="provisioning_delay_us", default={}
    )
    cost_per_hour: float | None = key(
        "What a node costs per hour, in any currency.", absent=None, minimum=0, maximum=1e9, examples=[98.32]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """Adds and removes instances by what they hold and what waits."""

    interval_us: int = key(
        "Time in microseconds between two looks at the cluster.", default=15_000_000, minimum=1000, maximum=_LONGEST_US
    )
    min_instances: ClassVar[Said] = said(
        int,
        "The least instances of each pool that does not say otherwise; 0 = scale to zero.",
        default=1,
        minimum=0,
        maximum=_MOST_INSTANCES,
    )
    max_instances: ClassVar[Said] = said(
        int,
        "The most instances of each pool that does not say otherwise.",
        required=True,
        minimum=1,
        maximum=_MOST_INSTANCES,
        examples=[8],
    )
    bounds: Mapping[str, tuple[int, int]]
    """Pool -> minimum and maximum number of instances."""
    kv_utilization_threshold: float = key(
        "Share of an instance's KV cache that counts as supply.", default=0.8, exclusiveMinimum=0, maximum=1
    )
    scale_up_threshold: float = key(
        "More instances are needed when demand is above this share of the supply.",
        default=0.8,
        exclusiveMinimum=0,
        maximum=1,
    )
    scale_down_boundary: float = key(
        "Fewer are enough when demand is below this share of the supply.",
        default=0.4,
        exclusiveMinimum=0,
        maximum=1,
    )
    avg_input_tokens: int = key("KV tokens that a waiting request counts for.", default=512, minimum=1, maximum=10**9)
    scale_up_window_us: int = key(
        "Time in microseconds that more must be needed before instances are added.",
        name="scale_up_stabilization_window_us",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    scale_down_window_us: int = key(
        "Time in microseconds that fewer must be enough before instances are removed.",
        name="scale_down_stabilization_window_us",
        default=300_000_000,
        minimum=0,
        maximum=_LONGEST_US,
    )
    scrape_delay: Delay = part("From a decision to its effect.", Delay, name="scrape_delay_us", default={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The instances, and what the way to them costs."""

    instances: ClassVar[Said] = said(
        int,
        "Number of engine instances (data-parallel replicas); with `pools` their sum. With `engine.data_parallel` each"
        " is a model replica of so many ranks.",
        default=1,
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    tensor_parallel: ClassVar[Said] = said(
        int, "Accelerators that share one instance's layers.", default=1, minimum=1, maximum=1024
    )
    admission_latency_us: int = key(
        "Time between a request's arrival and its admission, in microseconds.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    routing_latency_us: int = key(
        "Time between a request's admission and its arrival at an instance, in microseconds.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    signals: Signals = part(
        "How fresh the figures are that admission, gateway and router see. Where it is left out, they are always"
        " fresh.",
        Signals,
        filled=True,
    )
    disaggregation: Disaggregation | None = part(
        "Prefill on some instances, decode on others, with a transfer of KV blocks between. Off where it is left out.",
        Disaggregation,
        absent=None,
    )
    pools: ClassVar[Said] = said(
        ("#/$defs/pool",),
        "Groups of equal instances. `cluster.instances` is their sum and may be left out; what a pool does not say is"
        " as in the experiment.",
        minItems=1,
        maxItems=100,
    )
    lifecycle: Lifecycle | None = part(
        "How instances come and go. Those of the start are there and warm.", Lifecycle, absent=None
    )
    nodes: tuple[NodePool, ...] = part(
        "The machines that instances are placed on: each on the first node with enough free accelerators of its"
        " hardware. Where it is left out, there is always room.",
        (NodePool,),
        absent=(),
        minItems=1,
        maxItems=100,
    )
    failures: tuple[Failure, ...] = part("Instances that die.", (Failure,), absent=(), minItems=1, maxItems=1000)
    autoscaler: Autoscaler | None = part(
        "Adds and removes instances by demand. Off where it is left out.", Autoscaler, absent=None
    )

    @property
    def varies(self) -> bool:
        """Whether instances may come or go during a run."""
        return bool(self.lifecycle or self.failures or self.nodes or self.autoscaler)
