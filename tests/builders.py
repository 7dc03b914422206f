"""Experiments and requests built by hand, for tests of the engine that need no documents."""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.cluster.cluster import Cluster as ClusterState
from blis_tui.engine.records import RECORD_KINDS, Observers, Record
from blis_tui.engine.request import Request, Segments
from blis_tui.model import Cluster, Engine, Experiment, Hardware, Model, PluginConfig, Policy, Pool, Setting, Workload
from blis_tui.results.request_log import RequestLog, RequestRow
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.shipped import builtin

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from blis_tui.engine.profile import Profile
    from blis_tui.model import HostLink, KvTiers

MODEL = Model(
    name="tiny",
    hidden_size=1024,
    num_hidden_layers=8,
    num_attention_heads=8,
    num_key_value_heads=8,
    head_dim=128,
    intermediate_size=4096,
    vocab_size=32000,
    activation_bytes=2.0,
    kv_cache_bytes=2.0,
    weight_bytes=2.0,
    max_position_embeddings=4096,
)
HARDWARE = Hardware(
    name="gpu",
    memory_gib=80.0,
    peak_tflops_bf16=1000.0,
    peak_tflops_fp8=0.0,
    memory_bandwidth_tb_per_s=3.0,
    mfu_prefill=0.5,
    mfu_decode=0.3,
)
VLLM: dict[str, Setting] = {
    "watermark": 0.0,
    "reserve_full_input": True,
    "enable_chunked_prefill": True,
    "async_scheduling": False,
}


def number_of(config: PluginConfig, name: str) -> float:
    """A numeric setting."""
    value = config.settings[name]
    assert isinstance(value, int | float)
    return value


def experiment(
    *,
    max_num_seqs: int = 8,
    budget: int = 64,
    threshold: int = 0,
    max_model_len: int | None = None,
    block_size: int = 4,
    blocks: int = 100,
    caching: bool = True,
    batching: str = "blis",
    settings: dict[str, Setting] | None = None,
    scheduling: str = "fcfs",
    priority: str = "constant",
    victim: str = "tail",
    restore: str = "recompute",
    recompute: str | None = None,
    host_link: HostLink | None = None,
    kv_tiers: KvTiers | None = None,
    admission: PluginConfig | None = None,
    instances: int = 1,
    admission_latency_us: int = 0,
    routing_latency_us: int = 0,
    alpha: tuple[float, ...] = (0.0, 0.0, 0.0),
    beta: tuple[float, ...] = (100.0, 1.0, 10.0),
    horizon_us: int | None = None,
) -> Experiment:
    """An experiment whose steps take ``100 + prefill tokens + 10 * decodes`` microseconds."""
    chosen = dict(VLLM if batching == "vllm-v1" else {}) | (settings or {})
    return Experiment(
        name="hand-made",
        description="",
        seed=0,
        workload=Workload(name="by hand"),
        policy=Policy(
            name="by hand",
            admission=admission or PluginConfig(kind="always-admit"),
            routing=PluginConfig(kind="round-robin"),
            scheduling=PluginConfig(kind=scheduling),
            priority=PluginConfig(kind=priority),
            batching=PluginConfig(kind=batching, settings=chosen),
            preemption_victim=victim,
            preemption_restore=restore,
            preemption_recompute=recompute,
        ),
        cluster=Cluster(admission_latency_us=admission_latency_us, routing_latency_us=routing_latency_us),
        pools=(
            Pool(
                name="only",
                instances=instances,
                model=MODEL,
                hardware=HARDWARE,
                tensor_parallel=1,
                engine=Engine(
                    max_num_seqs=max_num_seqs,
                    max_num_batched_tokens=budget,
                    long_prefill_token_threshold=threshold,
                    max_model_len=max_model_len,
                    block_size_tokens=block_size,
                    kv_blocks=blocks,
                    enable_prefix_caching=caching,
                    host_link=host_link,
                    kv_tiers=kv_tiers,
                ),
                latency=PluginConfig(kind="blackbox", settings={"alpha": alpha, "beta": beta}),
            ),
        ),
        horizon_us=horizon_us,
        expect=(),
        sha256="",
        document={},
        plugins=builtin(),
    )


def profiles(made: Experiment) -> list[Profile]:
    """The instances of an experiment."""
    return [instance.profile for instance in Simulation(made).snapshot(0).instances]


def request(
    index: int,
    arrival_us: int,
    input_tokens: int,
    output_tokens: int,
    *,
    segments: Segments = (),
    slo_class: str = "standard",
    deadline_us: int = 0,
    adapter: str = "",
) -> Request:
    """A request named by its index; ``input_tokens`` includes the segments."""
    return Request(
        index,
        str(index),
        arrival_us,
        input_tokens,
        output_tokens,
        segments=segments,
        slo_class=slo_class,
        deadline_us=deadline_us,
        adapter=adapter,
    )


class ListSource:
    """A workload from a list."""

    def __init__(self, requests: Iterable[Request]) -> None:
        self._requests = list(requests)

    def next_request(self) -> Request | None:
        """The next request of the list."""
        return self._requests.pop(0) if self._requests else None

    def state(self) -> tuple[object, ...]:
        """How many are left."""
        return (len(self._requests),)


class Outcome:
    """A finished run: the cluster, its records by kind, and the requests by name."""

    def __init__(self, made: Experiment, requests: Sequence[Request], max_events: int = 100_000) -> None:
        observers = Observers()
        self.records: list[Record] = []
        observers.add_all(RECORD_KINDS.values(), self.records.append)
        log = RequestLog(detours=made.has_detours)
        self.cluster = ClusterState(made, ListSource(requests), log, observers)
        assert self.cluster.run(max_events) < max_events, "the simulation does not end"
        self.rows: dict[str, RequestRow] = {row.request_id: row for row in log.table(self.cluster)}

    def of_kind(self, kind: str) -> list[Record]:
        """The records of one kind, in order."""
        return [record for record in self.records if record.kind == kind]
