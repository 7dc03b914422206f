"""Experts spread over the GPUs of a model replica: the busiest GPU, and what sending tokens there and back takes.

How many tokens the busiest GPU has, for which the other GPUs wait
------------------------------------------------------------------
Each of ``T`` tokens chooses ``k`` of ``E`` experts; each of ``N`` GPUs has ``E / N`` of them. If all experts are
equally likely, the tokens of a GPU are a sum of ``T`` hypergeometric draws, with relative variance ``(N - 1) (E - k) /
((E - 1) T k)``. If experts differ in popularity, with the squared coefficient of variation ``s``, that difference lasts
from step to step; the total popularity of a GPU's experts has the variance ``(1 - 1 / N) s N / E``.

The largest of ``N`` independent normal values is on average ``e(N)`` standard deviations above the mean (L. H. C.
Tippett, Biometrika 17, 1925); if the sum of the values is fixed, as here, ``sqrt(N / (N - 1))`` times that. Each layer
has its own busiest GPU, so over a step's layers the expectation counts.

Dispatch and combine
--------------------
In each layer with experts, every token goes to the accelerators that hold its experts (dispatch), and the results come
back (combine). Low-latency kernels send it to each of its experts separately: within the node over NVLink and, at the
same time, to others over the network. For ``tokens * experts per token`` vectors

    time = latency + max(bytes * (near - 1) / all / NVLink, bytes * (all - near) / all / network)

High-throughput kernels send it once to each other node, from where NVLink forwards it once to each accelerator. When
experts are chosen evenly, a token has some on ``n (1 - (1 - 1/n) ** k)`` of n nodes (or accelerators), and

    time = latency + max(tokens * accelerators / NVLink, tokens * nodes * (n - 1) / n / network)

The accelerator with the most tokens receives ``expert_imbalance`` times the mean, and the others wait for it. Its
random excess (above) is part of the constants, because DeepEP measures with tokens that go to random
experts. ``docs/lab/comparisons.md`` compares the results with measurements of its kernels.
"""

from __future__ import annotations

from bisect import bisect_right
from math import sqrt
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import ln
from blis_tui.engine.latency.operator_tables import touched_experts
from blis_tui.model import AllToAll

if TYPE_CHECKING:
    from blis_tui.model import Engine, Model

_LARGEST: Final = (0.0, 0.5642, 1.0294, 1.4236, 1.7660, 2.0697, 2.3437, 2.5946, 2.8269, 3.0439, 3.2482)
"""Expected maximum of 1, 2, 4, ... 1024 standard normal values."""


def expected_largest(number: int) -> float:
    """Expected maximum of ``number`` independent standard normal values, within 1.5 %; constant from 1,024 on."""
    sizes = [1 << power for power in range(len(_LARGEST))]
    at = bisect_right(sizes, number) - 1
    if at == len(sizes) - 1:
        return _LARGEST[-1]
    return _LARGEST[at] + (_LARGEST[at + 1] - _LARGEST[at]) * ln(number / sizes[at]) / ln(2.0)


def popularity_excess(gpus: int, experts: int, spread: float) -> float:
    """Long-run excess of the busiest GPU's load over the mean, as a share of the mean.

    Args:
        gpus: number of GPUs that the experts are spread over.
        experts: of the model.
        spread: squared coefficient of variation of an expert's popularity.
    """
    return expected_largest(gpus) * sqrt(spread * gpus / experts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Busiest:
    """The GPU with the most tokens."""

    gpus: int
    experts: int
    top_k: int
    lasting: float
    """Excess over the mean at any number of tokens: ``popularity_excess``, or what is known of a balancer."""

    def share(self, tokens: float) -> float:
        """Load of the busiest GPU relative to the mean; it approaches ``1 + lasting`` as ``tokens`` grows.

        ``tokens``: at least 1. ``tokens * share`` never falls.
        """
        if self.gpus == 1:
            return 1.0
        varies = self.gpus * (self.experts - self.top_k) / ((self.experts - 1) * self.top_k * tokens)
        largest = expected_largest(self.gpus)
        return 1.0 + sqrt(self.lasting * self.lasting + largest * largest * varies)


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
