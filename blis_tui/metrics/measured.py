"""What was measured: servers like those that are simulated, and how far off the simulation was.

``measured_errors.json`` has, for each step-time model, the errors of a run's means on measured servers, each with
coefficients that were fitted without that server (``benchmarks/leave_out.py`` fits them, ``benchmarks/accuracy.py``
writes the file): what is quoted of a server that is not among them is then what was seen of others that were not.
"""

from __future__ import annotations

import json
from bisect import bisect_left
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from blis_tui.classes import NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.spec.model import Experiment, Pool

ENGINES: Final[Mapping[str, str]] = {"vllm-v1": "vllm", "tensorrt-llm": "trtllm"}
"""Batching rule -> the measured engine that plans like that."""
LONG_TOKENS: Final = 2048
"""Prompts are told apart by whether they are longer: the measured ones are far from it on either side."""
LOADS: Final = ("few", "some", "many")
"""Classes of how many requests an instance has at a time."""
_AT_A_TIME: Final = (8.0, 64.0)
"""The most of the first class, and of the second."""
CACHED_SHARE: Final = (0.05, 0.9)
"""Up to the first share of cached tokens prompts are fresh, from the second on cached. Between, none were measured."""


class Traits(NamedTuple):
    """What matters of a server, and of its load."""

    engine: str
    gpu: str
    family: str
    """``dense``, ``moe`` or ``mla``."""
    precision: str
    """Of the weights, those of routed experts where there are any."""
    kv_cache: str
    """Its precision: ``fp8``, or ``bf16`` for 16 bits of any kind."""
    tensor_parallel: int
    fresh: bool
    """Whether prompts are computed, and do not come out of the prefix cache again and again."""
    long: bool
    """Whether prompts have more than ``LONG_TOKENS``."""
    load: str = ""
    """Which of ``LOADS``; empty = unknown, as before anything runs: then it does not count."""


class Measured(NamedTuple):
    """One measured run."""

    server: str
    traits: Traits
    errors: Mapping[str, float]
    """Metric -> simulated / measured - 1, of the means; with coefficients that were fitted without the server. TTFT is
    missing where the load was near what the server could serve: then it is of waits, and not of step times."""
    amplified: float
    """How many times an error of steps is in these: see ``metrics.amplified``."""
    trust: str
    """What the measurements' authors think of it; empty = they do not say."""
    ttft_share: float
    """Of its E2E, that is TTFT, as measured."""

    @property
    def e2e_error(self) -> float | None:
        """The error of E2E, which is TTFT and what decodes take."""
        if "ttft" not in self.errors:
            return None
        first, rest = (1.0 + self.errors[metric] for metric in ("ttft", "itl"))
        return self.ttft_share * first + (1.0 - self.ttft_share) * rest - 1.0


class Known(NamedTuple):
    """What was compared of a step-time model, and with which settings."""

    settings: Mapping[str, object]
    varied: tuple[str, ...]
    coefficients: Mapping[str, str]
    """Measured engine -> whose coefficients it was judged with."""
    batching: Mapping[str, Mapping[str, tuple[object, ...]]]
    """Measured engine -> setting of its batching rule -> the values that were simulated."""
    hardware: Mapping[str, Mapping[str, float]]
    """GPU -> the figures of its document that decide step times and KV blocks."""
    limits: Mapping[str, tuple[int, int]]
    """Limit of an engine -> the least and the most that servers had."""
    most_tokens: int
    """Of a request, prompt and answer, in the mean."""
    most_at_a_time: float
    """Requests that a server had."""
    runs: tuple[Measured, ...]


@cache
def measured(kind: str) -> Known | None:
    """What was compared of a step-time model; None = nothing."""
    found = json.loads(Path(__file__).with_name("measured_errors.json").read_text(encoding="utf-8")).get(kind)
    if found is None:
        return None
    runs = (Measured(server, Traits(*traits), *rest) for server, traits, *rest in found["runs"])
    return Known(
        settings=found["settings"],
        varied=tuple(found["varied"]),
        coefficients=found["coefficients"],
        batching={
            engine: {name: tuple(values) for name, values in settings.items()}
            for engine, settings in found["batching"].items()
        },
        hardware=found["hardware"],
        limits={name: (low, high) for name, (low, high) in found["limits"].items()},
        most_tokens=found["most_tokens"],
        most_at_a_time=found["most_at_a_time"],
        runs=tuple(runs),
    )


def traits_of(
    experiment: Experiment, pool: Pool, *, prompt_tokens: float, cached_share: float, at_a_time: float | None = None
) -> Traits:
    """What matters of a pool's instances, and of what they are asked.

    Args:
        experiment: what is simulated.
        pool: whose instances.
        prompt_tokens: how long prompts are in the mean.
        cached_share: of prompt tokens, that come out of the prefix cache.
        at_a_time: requests that an instance has; None = that is not known.
    """
    model = pool.model
    weight = (model.expert_weight_bytes or model.weight_bytes) if model.num_experts else model.weight_bytes
    family = "mla" if model.kv_lora_rank else "moe" if model.num_experts else "dense"
    return Traits(
        engine=ENGINES.get(experiment.policy.batching.kind, ""),
        gpu=pool.hardware.name,
        family=family,
        precision="fp4" if weight < 1.0 else "fp8" if weight < 2.0 else "bf16",
        kv_cache="fp8" if model.kv_cache_bytes < 2.0 else "bf16",
        tensor_parallel=pool.tensor_parallel,
        fresh=cached_share <= CACHED_SHARE[0],
        long=prompt_tokens > LONG_TOKENS,
        load="" if at_a_time is None else LOADS[bisect_left(_AT_A_TIME, at_a_time)],
    )


def nearest(runs: Sequence[Measured], likeness: Sequence[float]) -> str:
    """The measured server that is most like another one; the first of several."""
    return runs[max(range(len(runs)), key=likeness.__getitem__)].server
