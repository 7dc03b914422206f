"""The control plane in front of the instances, the signals that it sees, and the lifecycle of instances."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Final

from blis_tui.base.classes import dataclass
from blis_tui.model.keys import SMALLEST, DocumentKey, amount, choice, document_key, key, part, plug_in

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model.policy import PluginConfig

_MOST_INSTANCES: Final = 10_000
_LONGEST_US: Final = 10**12
NAME: Final = "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"
"""Pattern of names that records and reports show."""
_ROUTING: Final = "policy.schema.json#/$defs/document/properties/routing"


@dataclass(frozen=True, slots=True, kw_only=True)
class Signals:
    """How fresh the figures are that admission, gateway and router see."""

    results: str = choice(
        "When the results of a step (which requests have left the batch, what is in the cache) become visible.",
        {
            "step-end": "At its end.",
            "step-start": "From its start, as in the BLIS simulator: the step's outcome is known before it has run.",
        },
        default="step-end",
    )
    refresh_interval_us: int = key(
        "Age in microseconds at which queue, batch and KV signals are refreshed; 0 = always fresh. Requests in flight "
        "are always known.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    cache_signal_delay_us: int = key(
        "Age in microseconds at which the view of the prefix caches is refreshed; 0 = always fresh.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transfer:
    """The link over which prefilled KV blocks reach the decode instance."""

    bandwidth_gb_per_s: float = key(
        "Bandwidth in 10^9 bytes per second.", default=25.0, minimum=SMALLEST, maximum=10**6
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
        "How concurrent transfers share the bandwidth.",
        {
            "none": "Each has the full bandwidth.",
            "fair-share": "All active transfers have equal shares at any time.",
            "fixed-at-start": "Each keeps the equal share that it has when it starts, as in the BLIS simulator.",
        },
        default="none",
    )
    overlap: str = choice(
        "Whether the transfer of a prompt's KV blocks overlaps with the last step of its prefill. Default: `none`.",
        {
            "none": "The transfer starts when the step is over.",
            "layer-wise": "The blocks of a layer are sent while later layers are computed; only the rest is left after "
            "the step.",
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

    prefill_instances: ClassVar[DocumentKey] = document_key(
        int,
        "Number of instances that only prefill: the first ones. Not needed if pools have roles.",
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    decode_instances: ClassVar[DocumentKey] = document_key(
        int,
        "Number of instances that decode: those after them. Not needed if pools have roles.",
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    decider: PluginConfig = plug_in(
        "cluster.disaggregation.decider", "Which requests are split.", default={"kind": "always"}
    )
    order: str = choice(
        "When the decode instance is chosen.",
        {
            "prefill-first": "When the transfer ends; its KV blocks are allocated then.",
            "decode-first": "Before the prefill; its KV blocks are reserved when the transfer starts.",
        },
        default="prefill-first",
    )
    undisaggregated: str = choice(
        "Where requests that are not split go; with `order: decode-first` always to a decode instance.",
        {"decode-pool": "To a decode instance.", "all": "To any instance."},
        default="decode-pool",
    )
    prefill_routing: PluginConfig = plug_in(
        "policy.routing",
        "How the prefill instance is chosen. Default: by `policy.routing`.",
        ref=_ROUTING,
        optional=True,
    )
    decode_routing: PluginConfig = plug_in(
        "policy.routing",
        "How the decode instance is chosen. Default: by `policy.routing`.",
        ref=_ROUTING,
        optional=True,
    )
    transfer: Transfer = part("The link between prefill and decode instances.", Transfer, default={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Lifecycle:
    """How an instance comes, and how it goes."""

    loading_delay_us: int = key(
        "Time in microseconds for which an instance loads its weights before it receives requests.",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
        examples=[60_000_000],
    )
    warm_up_requests: int = key(
        "Number of requests that leave an instance before it is warm.", default=0, minimum=0, maximum=10**9
    )
    warm_up_factor: float = key(
        "Factor by which its steps take longer until then.", default=1.0, minimum=1, maximum=1000
    )
    drain: str = choice(
        "What happens to the requests of an instance that the autoscaler removes.",
        {
            "wait": "It serves them to completion.",
            "redirect": "It serves running requests to completion; waiting ones are routed again.",
            "immediate": "It stops after its current step; its requests are lost.",
        },
        default="wait",
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """When which instances die. Give `at_us` or `mean_time_between_us`."""

    instance: int | None = key(
        "Index of the instance that fails, from 0. Default: all (or those of `pool`).",
        absent=None,
        minimum=0,
        maximum=10**6,
    )
    pool: str | None = key("The pool whose instances fail.", absent=None, minLength=1)
    at_us: int | None = key(
        "Time of the failure, in microseconds.", absent=None, minimum=0, maximum=10**15, examples=[5_000_000]
    )
    mean_time_between_us: int | None = key(
        "Mean time in microseconds from an instance's start to its failure, which is random (exponential).",
        absent=None,
        minimum=1,
        maximum=10**15,
        examples=[3_600_000_000],
    )
    repair_us: int | None = amount(
        "Time in microseconds from its failure until it loads again; `none` = it never comes back.",
        ["none"],
        default="none",
        minimum=0,
        maximum=_LONGEST_US,
    )
    requests: str = choice(
        "What happens to its requests.",
        {
            "retry": "They are routed again and start from the beginning; their arrival time stays.",
            "lose": "They are lost.",
        },
        default="retry",
    )
    max_retries: int = key(
        "A request whose instances have failed more often than this is lost.", default=3, minimum=0, maximum=10**6
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

    name: str = key("Name of its nodes in records and reports, followed by a number.", pattern=NAME)
    gpu: str = key("Name of the hardware of the instances that they can host.", minLength=1, examples=["h100"])
    gpus_per_node: int = key("Accelerators per node.", minimum=1, maximum=1024, examples=[8])
    initial: int = key("Nodes that are ready from the start.", default=1, minimum=0, maximum=10_000)
    min: int = key("Minimum number of nodes; empty nodes above it are released.", default=0, minimum=0, maximum=10_000)
    max: int = key("Maximum number of nodes.", default=10_000, minimum=1, maximum=10_000)
    provisioning_delay: Delay = part(
        "Time from requesting a node until it is ready.", Delay, name="provisioning_delay_us", default={}
    )
    cost_per_hour: float | None = key(
        "What a node costs per hour, in any currency.", absent=None, minimum=0, maximum=1e9, examples=[98.32]
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Autoscaler:
    """Adds and removes instances by what they hold and what waits."""

    interval_us: int = key(
        "Time in microseconds between two evaluations.", default=15_000_000, minimum=1000, maximum=_LONGEST_US
    )
    min_instances: ClassVar[DocumentKey] = document_key(
        int,
        "Minimum instances of each pool that does not set its own; 0 = scale to zero.",
        default=1,
        minimum=0,
        maximum=_MOST_INSTANCES,
    )
    max_instances: ClassVar[DocumentKey] = document_key(
        int,
        "Maximum instances of each pool that does not set its own.",
        required=True,
        minimum=1,
        maximum=_MOST_INSTANCES,
        examples=[8],
    )
    bounds: Mapping[str, tuple[int, int]]
    """Pool -> minimum and maximum number of instances."""
    kv_utilization_threshold: float = key(
        "Share of an instance's KV cache that counts as supply.", default=0.8, minimum=SMALLEST, maximum=1
    )
    scale_up_threshold: float = key(
        "More instances are needed when demand is above this share of the supply.",
        default=0.8,
        minimum=SMALLEST,
        maximum=1,
    )
    scale_down_boundary: float = key(
        "Fewer are enough when demand is below this share of the supply.",
        default=0.4,
        minimum=SMALLEST,
        maximum=1,
    )
    avg_input_tokens: int = key("KV tokens that each waiting request counts as.", default=512, minimum=1, maximum=10**9)
    scale_up_window_us: int = key(
        "Time in microseconds for which more instances must be needed before any are added.",
        name="scale_up_stabilization_window_us",
        default=0,
        minimum=0,
        maximum=_LONGEST_US,
    )
    scale_down_window_us: int = key(
        "Time in microseconds for which fewer instances must be enough before any are removed.",
        name="scale_down_stabilization_window_us",
        default=300_000_000,
        minimum=0,
        maximum=_LONGEST_US,
    )
    scrape_delay: Delay = part("Delay from a decision to its effect.", Delay, name="scrape_delay_us", default={})


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """The instances, and what the way to them costs."""

    instances: ClassVar[DocumentKey] = document_key(
        int,
        "Number of engine instances (data-parallel replicas); with `pools` their sum, with"
        " `disaggregation.prefill_instances` and `decode_instances` at least theirs. With `engine.data_parallel` each"
        " is a model replica of so many ranks.",
        default=1,
        minimum=1,
        maximum=_MOST_INSTANCES,
    )
    tensor_parallel: ClassVar[DocumentKey] = document_key(
        int, "Accelerators that each layer of an instance is split over.", default=1, minimum=1, maximum=1024
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
        "How fresh the signals are that admission, gateway and router see. Default: always fresh.",
        Signals,
        filled=True,
    )
    disaggregation: Disaggregation | None = part(
        "Prefill on some instances and decode on others, with a transfer of KV blocks between them. Off by default.",
        Disaggregation,
        absent=None,
    )
    pools: ClassVar[DocumentKey] = document_key(
        ("#/$defs/pool",),
        "Groups of identical instances. `cluster.instances` is their sum and may be omitted; a pool inherits what it "
        "does not set from the experiment.",
        minItems=1,
        maxItems=100,
    )
    lifecycle: Lifecycle | None = part(
        "How instances are started and stopped. Those present at the start are loaded and warm.", Lifecycle, absent=None
    )
    nodes: tuple[NodePool, ...] = part(
        "The nodes that instances are placed on: each on the first node with enough free accelerators of its hardware. "
        "Default: there is always room.",
        (NodePool,),
        absent=(),
        minItems=1,
        maxItems=100,
    )
    failures: tuple[Failure, ...] = part("Failures of instances.", (Failure,), absent=(), minItems=1, maxItems=1000)
    autoscaler: Autoscaler | None = part(
        "Adds and removes instances by demand. Off by default.", Autoscaler, absent=None
    )

    @property
    def varies(self) -> bool:
        """Whether instances may come or go during a run."""
        return bool(self.lifecycle or self.failures or self.nodes or self.autoscaler)
