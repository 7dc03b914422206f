"""Experts spread over all accelerators of a model replica, and the time to send tokens there and back.

In each layer with experts, every token goes to the accelerators that hold its experts (dispatch), and the results come
back (combine). Low-latency kernels send it to each of its experts separately: within the node over NVLink and, at the
same time, to others over the network. For ``tokens * experts per token`` vectors

    time = latency + max(bytes * (near - 1) / all / NVLink, bytes * (all - near) / all / network)

High-throughput kernels send it once to each other node, from where NVLink forwards it once to each accelerator. When
experts are chosen evenly, a token has some on ``n (1 - (1 - 1/n) ** k)`` of n nodes (or accelerators), and

    time = latency + max(tokens * accelerators / NVLink, tokens * nodes * (n - 1) / n / network)

The accelerator with the most tokens receives ``expert_imbalance`` times the mean, and the others wait for it. Its
random excess (``latency/busiest.py``) is part of the constants, because DeepEP measures with tokens that go to random
experts. ``docs/wide.md`` compares the results with measurements of its kernels.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.latency.operator_tables import touched_experts
from blis_tui.spec.model import AllToAll

if TYPE_CHECKING:
    from blis_tui.spec.model import Engine, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpertParallelism:
    """How experts are spread."""

    gpus: int
    """Number of accelerators that experts are spread over: all of a replica."""
    ranks: int
    """Attention ranks of the replica; 1 = its accelerators all-reduce results, as without experts."""
    imbalance: float
    """Load of the accelerator with the most tokens, relative to the mean, when there are many tokens."""
    exchange_us: float = 0.0
    """Constant time of dispatch and combine in a layer."""
    each_us_per_token: float = 0.0
    """Additional time for each token of an accelerator that is sent to each of its experts separately."""
    once_us_per_token: float = 0.0
    """Additional time for each token that is sent once to each node and accelerator."""
    backend: str = "auto"
    """Which of the two kernels is used: see ``AllToAll``."""

    def exchange_of(self, tokens: float, *, prompts: bool) -> float:
        """Time of a layer's dispatch and combine for ``tokens`` per accelerator; ``prompts``: some are of prompts."""
        once = prompts if self.backend == "auto" else self.backend == "deepep_high_throughput"
        return self.exchange_us + tokens * (self.once_us_per_token if once else self.each_us_per_token)


def wide_of(engine: Engine, model: Model, tensor_parallel: int) -> ExpertParallelism:
    """Return how the experts of a rank's model are spread with ``expert_parallel``."""
    ranks, gpus, imbalance = engine.data_parallel, engine.data_parallel * tensor_parallel, engine.expert_imbalance
    if ranks == 1:
        return ExpertParallelism(gpus=gpus, ranks=1, imbalance=imbalance)
    links = engine.all_to_all or AllToAll()
    near, chosen = min(links.gpus_per_node, gpus), model.num_experts_per_tok
    nodes = -(-gpus // links.gpus_per_node)
    nvlink, network = links.intra_node_gb_per_s * 1e3, links.inter_node_gb_per_s * 1e3
    each = chosen * max((near - 1) / gpus / nvlink, (gpus - near) / gpus / network)
    once = max(
        touched_experts(gpus, 1.0, chosen) / nvlink, touched_experts(nodes, 1.0, chosen) * (nodes - 1) / nodes / network
    )
    bytes_ = imbalance * model.hidden_size * (links.dispatch_bytes + model.activation_bytes)
    return ExpertParallelism(
        gpus=gpus,
        ranks=ranks,
        imbalance=imbalance,
        exchange_us=2.0 * links.latency_us,
        each_us_per_token=bytes_ * each,
        once_us_per_token=bytes_ * once,
        backend=links.backend,
    )
