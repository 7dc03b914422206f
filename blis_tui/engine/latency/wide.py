"""Experts that are spread over all accelerators of a model replica, and the way of tokens to them and back.

In each layer with experts every token goes to the accelerators that have its experts (dispatch), and the results come
back (combine). Kernels of low latency send it to each of its experts by itself: within the node over NVLink and, at the
same time, to others over the network. Of ``tokens * experts per token`` vectors

    time = latency + max(bytes * (near - 1) / all / NVLink, bytes * (all - near) / all / network)

Kernels of high throughput send it once to each other node, from where it goes on over NVLink, once to each accelerator.
When experts are chosen evenly, a token has some on ``n (1 - (1 - 1/n) ** k)`` of n nodes (or accelerators), and

    time = latency + max(tokens * accelerators / NVLink, tokens * nodes * (n - 1) / n / network)

The accelerator with the most tokens receives ``expert_imbalance`` times as many, and the others wait for it; what it
has more by chance (``latency/busiest.py``) is in the constants, for DeepEP measures tokens that go to random experts.
``docs/wide.md`` compares this with what its kernels take.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.engine.latency.operator_tables import touched_experts
from blis_tui.spec.model import AllToAll

if TYPE_CHECKING:
    from blis_tui.spec.model import Engine, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class Wide:
    """How experts are spread."""

    gpus: int
    """Over how many accelerators: all of a replica."""
    ranks: int
    """Attention ranks of the replica; 1 = its accelerators sum up results by all-reduces, as without experts."""
    imbalance: float
    """Tokens of the accelerator with the most, relative to the mean, when there are many."""
    exchange_us: float = 0.0
    """What dispatch and combine of a layer take beside their bytes."""
    each_us_per_token: float = 0.0
    """The same, more for each token of an accelerator that goes to each of its experts by itself."""
    once_us_per_token: float = 0.0
    """The same of one that goes to each node and accelerator once."""
    backend: str = "auto"
    """Which of the two: see ``AllToAll``."""

    def exchange_of(self, tokens: float, *, prompts: bool) -> float:
        """What dispatch and combine of a layer take for so many tokens of each accelerator; ``prompts``: or of any."""
        once = prompts if self.backend == "auto" else self.backend == "deepep_high_throughput"
        return self.exchange_us + tokens * (self.once_us_per_token if once else self.each_us_per_token)


def wide_of(engine: Engine, model: Model, tensor_parallel: int) -> Wide:
    """How the experts of a rank's model are spread, where ``expert_parallel`` does so."""
    ranks, gpus, imbalance = engine.data_parallel, engine.data_parallel * tensor_parallel, engine.expert_imbalance
    if ranks == 1:
        return Wide(gpus=gpus, ranks=1, imbalance=imbalance)
    links = engine.all_to_all or AllToAll()
    near, chosen = min(links.gpus_per_node, gpus), model.num_experts_per_tok
    nodes = -(-gpus // links.gpus_per_node)
    nvlink, network = links.intra_node_gb_per_s * 1e3, links.inter_node_gb_per_s * 1e3
    each = chosen * max((near - 1) / gpus / nvlink, (gpus - near) / gpus / network)
    once = max(
        touched_experts(gpus, 1.0, chosen) / nvlink, touched_experts(nodes, 1.0, chosen) * (nodes - 1) / nodes / network
    )
    bytes_ = imbalance * model.hidden_size * (links.dispatch_bytes + model.activation_bytes)
    return Wide(
        gpus=gpus,
        ranks=ranks,
        imbalance=imbalance,
        exchange_us=2.0 * links.latency_us,
        each_us_per_token=bytes_ * each,
        once_us_per_token=bytes_ * once,
        backend=links.backend,
    )
