"""Measured servers, and the error of the simulation for each.

For each step-time model, ``measured_errors.json`` has the errors of a run's means on measured servers, and
``median_errors.json`` the medians by GPU. The coefficients
for each server were fitted without it (``benchmarks/leave_out.py`` fits them, ``benchmarks/accuracy.py`` writes the
file). The errors thus tell what to expect of a server that was not measured.
"""

from __future__ import annotations

import json
from bisect import bisect_left, bisect_right
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from blis_tui.classes import NamedTuple
from blis_tui.engine.kv.capacity import parameters

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.spec.model import Experiment, Pool

ENGINES: Final[Mapping[str, str]] = {"vllm-v1": "vllm", "tensorrt-llm": "trtllm"}
"""Batching rule -> the measured engine with that rule."""
LONG_TOKENS: Final = 2048
"""Prompts are classified by whether they are longer; all measured ones are well above or below."""
LOADS: Final = ("few", "some", "many")
"""Classes of the number of requests per instance."""
_AT_A_TIME: Final = (8.0, 64.0)
"""Upper bounds of the first and the second class."""
SIZES: Final = ("below 4B", "4B to 16B", "16B to 64B", "64B to 90B", "90B to 256B", "above 256B")
"""Classes of the number of a model's parameters, of the experts all."""
_BILLIONS: Final = (4.0, 16.0, 64.0, 90.0, 256.0)
"""Upper bounds of the classes but the last, excluded. 70B and 109B are apart, so that each can be left out."""
LEFT_OUT: Final = ("tensor_parallel", "size")
"""Traits whose measured values are also left out of the fit one by one, to know the errors of servers with another one.
"""
CACHED_SHARE: Final = (0.05, 0.9)
"""Prompts are fresh up to the first share of cached tokens, and cached from the second one on. None were measured
between."""


class Traits(NamedTuple):
    """The traits of a server, and of its load, that affect errors."""

    engine: str
    gpu: str
    family: str
    """``dense``, ``moe`` or ``mla``."""
    precision: str
    """Precision of the weights; of the routed experts if there are any."""
    kv_cache: str
    """Precision of the KV cache: ``fp8``, or ``bf16`` for any 16-bit format."""
    tensor_parallel: int
    fresh: bool
    """Whether prompts are computed, instead of being found in the prefix cache again and again."""
    long: bool
    """Whether prompts are longer than ``LONG_TOKENS``."""
    size: str
    """One of ``SIZES``."""
    load: str = ""
    """One of ``LOADS``; empty = unknown (before a run), in which case it is ignored."""


class Measured(NamedTuple):
    """One measured run."""

    server: str
    traits: Traits
    errors: Mapping[str, float]
    """Metric -> simulated / measured - 1, of the means, with coefficients fitted without the server. TTFT is missing if
    the load was near the server's capacity, because then its error is one of waits instead of step times."""
    amplified: float
    """Factor by which the load amplified errors of step times: see ``metrics.amplified``."""
    trust: str
    """The authors' rating of the measurement; empty = none given."""
    ttft_share: float
    """Measured share of TTFT in E2E."""
    without: Mapping[str, Mapping[str, float]] = {}
    """Trait of ``LEFT_OUT`` -> the errors with coefficients fitted without any server that has this one's value of it.
    Not all runs have been simulated so."""

    @property
    def e2e_error(self) -> float | None:
        """The error of E2E, the sum of TTFT and decode time."""
        if "ttft" not in self.errors:
            return None
        first, rest = (1.0 + self.errors[metric] for metric in ("ttft", "itl"))
        return self.ttft_share * first + (1.0 - self.ttft_share) * rest - 1.0


class Known(NamedTuple):
    """The measurements available for a step-time model, and the settings they cover."""

    settings: Mapping[str, object]
    varied: tuple[str, ...]
    coefficients: Mapping[str, str]
    """Measured engine -> the coefficients used to judge it."""
    batching: Mapping[str, Mapping[str, tuple[object, ...]]]
    """Measured engine -> setting of its batching rule -> the simulated values."""
    hardware: Mapping[str, Mapping[str, float]]
    """GPU -> the figures of its document that determine step times and KV blocks."""
    limits: Mapping[str, tuple[int, int]]
    """Engine limit -> its smallest and its largest value on the measured servers."""
    most_tokens: int
    """Largest mean length of a request, prompt and answer together."""
    least_at_a_time: float
    """Smallest mean number of requests at a time on a server."""
    most_at_a_time: float
    """Largest mean number of requests at a time on a server."""
    runs: tuple[Measured, ...]


@cache
def _read(name: str) -> Mapping[str, Any]:
    return cast("Mapping[str, Any]", json.loads(Path(__file__).with_name(name).read_text("utf-8")))


def medians(kind: str) -> Mapping[str, Mapping[str, float]]:
    """Return a step-time model's median errors on measured vLLM servers: GPU -> metric -> percent."""
    found: Mapping[str, Mapping[str, float]] = _read("median_errors.json").get(kind, {})
    return found


@cache
def measured(kind: str) -> Known | None:
    """Return the measurements of a step-time model; None if there are none."""
    found = _read("measured_errors.json").get(kind)
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
        least_at_a_time=found["least_at_a_time"],
        most_at_a_time=found["most_at_a_time"],
        runs=tuple(runs),
    )


def traits_of(
    experiment: Experiment, pool: Pool, *, prompt_tokens: float, cached_share: float, at_a_time: float | None = None
) -> Traits:
    """Return the traits of a pool's instances and of their load.

    Args:
        experiment: the simulated experiment.
        pool: the pool.
        prompt_tokens: mean prompt length.
        cached_share: share of prompt tokens found in the prefix cache.
        at_a_time: requests per instance; None = not known.
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
        size=SIZES[bisect_right(_BILLIONS, parameters(model) / 1e9)],
        load="" if at_a_time is None else LOADS[bisect_left(_AT_A_TIME, at_a_time)],
    )


def nearest(runs: Sequence[Measured], likeness: Sequence[float]) -> str:
    """Return the measured server with the highest likeness; the first one in case of a tie."""
    return runs[max(range(len(runs)), key=likeness.__getitem__)].server
