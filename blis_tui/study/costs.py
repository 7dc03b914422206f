"""The cost of a run in GPUs, money and electrical energy, from its report and the hardware documents.

A document's ``cost_per_hour_usd`` and ``watts`` are per accelerator. A figure is None if an accelerator in use lacks a
value that it needs. Prices differ by place and day, so shipped documents have none: give them as ``prices`` of a study
(``--price h100=2.5``), or as ``hardware.cost_per_hour_usd``.

The energy model is the usual first-order one: a machine's power grows linearly from idle to busy with its utilisation
(Fan, Weber and Barroso: Power Provisioning for a Warehouse-sized Computer, ISCA 2007),

    watts = idle + (busy - idle) * busy share

An accelerator is busy while its instance runs a step. Its power then depends on the bottleneck: memory with few
decodes, compute with prompts and large batches,

    busy = memory_bound + (peak - memory_bound) * min(1, MFU / peak_at_mfu)
    MFU  = 2 * active parameters * tokens computed / (busy time * 16-bit peak FLOPS)

This is within 15 % of the power of an H100 under vLLM with dense models of 8 to 27 billion parameters
(docs/lab/comparisons.md has the measurements and their source). Without ``memory_bound`` a busy accelerator takes
``peak``, which is conservative. An instance computes the prompts of the requests that it was sent, each with the run's
mean number of computed tokens. Processors, network, cooling and unused places of nodes are excluded
(``lifecycle.cost`` covers nodes).
"""

from __future__ import annotations

from math import fsum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.base.classes import dataclass
from blis_tui.base.portable_math import whole_sum
from blis_tui.base.units import in_words
from blis_tui.engine.kv.capacity import active_parameters
from blis_tui.spec.build import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blis_tui.model import Experiment, Hardware, Pool

PRICES: Final = "--price h100=2.5, or hardware.cost_per_hour_usd in the hardware document"
"""How to give a price."""
_US_PER_HOUR: Final = 3_600_000_000
_MILLION: Final = 1e6
_US_PER_S: Final = 1e6
_TERA: Final = 1e12


@dataclass(frozen=True, slots=True)
class _Held:
    """Accelerators of one kind that an instance held."""

    hardware: Hardware
    gpu_us: int
    busy_gpu_us: float
    """Accelerator time spent computing; the stages of a pipeline count separately."""
    flops: float
    """Matrix operations computed in that time."""

    @property
    def busy_watts(self) -> float | None:
        return busy_watts(self.hardware, self.flops * _US_PER_S / self.busy_gpu_us if self.busy_gpu_us else 0.0)


def without_cost(metric: str, experiment: Experiment, prices: Mapping[str, float]) -> str | None:
    """Return what hardware lacks so that a run has no such cost; None if it has one."""
    used = {pool.hardware.name: pool.hardware for pool in experiment.pools}
    if metric.startswith("cost.usd"):
        lacking = [name for name, hardware in used.items() if prices.get(name, hardware.usd_per_hour) is None]
        return f"{in_words(lacking)} has no price: {PRICES}" if lacking else None
    if "watts" in metric or ".wh_" in metric:
        lacking = [
            name for name, hardware in used.items() if hardware.peak_watts is None or hardware.idle_watts is None
        ]
        return f"{in_words(lacking)} has no `watts` in its hardware document" if lacking else None
    return None


def busy_watts(hardware: Hardware, flops_per_s: float) -> float | None:
    """Return the power of one accelerator in steps with this rate of operations; None = not documented."""
    peak, low = hardware.peak_watts, hardware.memory_bound_watts
    if peak is None or low is None:
        return peak
    mfu = flops_per_s / (hardware.peak_tflops_bf16 * _TERA)
    return low + (peak - low) * min(1.0, mfu / hardware.peak_watts_mfu)


def cost_figures(
    experiment: Experiment, report: Mapping[str, object], prices: Mapping[str, float] = MappingProxyType({})
) -> dict[str, float | None]:
    """Return the figures of ``spec.metric_names.COSTS``; None = a document lacks a value, or nothing was generated.

    Args:
        experiment: the simulated experiment.
        report: its report, as plain data.
        prices: US dollars an hour by hardware, which override the hardware documents.
    """
    part = Part(report, "")
    held = list(_held(experiment, part))
    duration_us, tokens = part.integer("duration_us"), part.part("tokens").integer("output")
    gpu_us = whole_sum([usage.gpu_us for usage in held])
    usd_us = _total((prices.get(usage.hardware.name, usage.hardware.usd_per_hour), usage.gpu_us) for usage in held)
    peak_us = _total((usage.hardware.peak_watts, usage.gpu_us) for usage in held)
    idle_us = _total((usage.hardware.idle_watts, usage.gpu_us - usage.busy_gpu_us) for usage in held)
    busy_us = _total((usage.busy_watts, usage.busy_gpu_us) for usage in held)
    watt_us = None if idle_us is None or busy_us is None else idle_us + busy_us
    # A million times the cost of an hour, divided by the tokens of the hour, is the cost of a million tokens.
    per_token = tokens * _US_PER_HOUR / _MILLION
    return {
        "cost.gpus": _share(gpu_us, duration_us),
        "cost.usd_per_hour": _share(usd_us, duration_us),
        "cost.usd_per_million_output_tokens": _share(usd_us, per_token),
        "cost.peak_watts": _share(peak_us, duration_us),
        "cost.watts": _share(watt_us, duration_us),
        "cost.wh_per_million_output_tokens": _share(watt_us, per_token),
    }


def _held(experiment: Experiment, report: Part) -> Iterable[_Held]:
    prompts, requests = report.part("tokens"), 0
    lives = list(zip(report.parts("instances"), _instances(experiment, report), strict=True))
    for part, (pool, _) in lives:
        requests += part.integer("routed") if _computes_prompts(pool) else 0
    for part, (pool, held_us) in lives:
        stages = pool.engine.pipeline_parallel
        # A step that the horizon cuts off counts in full in the busy time.
        busy_us = min(part.integer("busy_us") / stages, held_us)
        gpus = pool.tensor_parallel * stages
        tokens: float = part.integer("output_tokens")
        if requests and _computes_prompts(pool):
            tokens += (prompts.integer("input") - prompts.integer("cached")) * part.integer("routed") / requests
        yield _Held(pool.hardware, gpus * held_us, gpus * busy_us, 2 * active_parameters(pool.model) * tokens)


def _computes_prompts(pool: Pool) -> bool:
    return pool.role != "decode"


def _instances(experiment: Experiment, report: Part) -> Iterable[tuple[Pool, int]]:
    """Yield the pool of each instance, and how long it held its accelerators."""
    if "lifecycle" not in report.data:
        for pool in experiment.pools:
            for _ in range(pool.instances):
                yield pool, report.integer("duration_us")
        return
    pools = {pool.name: pool for pool in experiment.pools}
    for life in report.part("lifecycle").parts("instances"):
        yield pools[life.text("pool")], life.integer("held_us")


def _total(parts: Iterable[tuple[float | None, float]]) -> float | None:
    """Return the sum of the products; None if a relevant first factor is missing."""
    known: list[float] = []
    for rate, amount in parts:
        if rate is None:
            if amount:
                return None
        else:
            known.append(rate * amount)
    return fsum(known)


def _share(total: float | None, of: float) -> float | None:
    return None if total is None or not of else total / of
