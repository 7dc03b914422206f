"""What a run costs in GPUs, money and electrical energy, by its report and what the hardware documents say.

A document's ``cost_per_hour_usd`` and ``watts`` are of one accelerator; where one that is in use lacks what a figure
needs, the figure is None. Prices differ by place and by the day, so documents that come with the package have none:
give them as ``prices`` of a study (``--price h100=2.5``), or as ``hardware.cost_per_hour_usd``.

The energy model is the usual one of first order: the power of a machine lies between idle and peak in proportion to how
busy it is (Fan, Weber and Barroso: Power Provisioning for a Warehouse-sized Computer, ISCA 2007),

    watts = idle + (peak - idle) * busy share

An accelerator is busy while its instance runs a step. Decoding waits for memory rather than computing, and takes less
than the thermal design power that ``peak`` is, so this is on the safe side. Processors, network and cooling are left
out, and so are places of nodes where no instance is (``lifecycle.cost`` is about nodes).
"""

from __future__ import annotations

from math import fsum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.classes import dataclass
from blis_tui.spec.document_parts import Part

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from blis_tui.spec.model import Experiment, Hardware, Pool

_US_PER_HOUR: Final = 3_600_000_000
_MILLION: Final = 1e6


@dataclass(frozen=True, slots=True)
class _Held:
    """Accelerators of one kind that an instance held."""

    hardware: Hardware
    gpu_us: int
    busy_gpu_us: float
    """The part of that time in which they computed; of a pipeline, each stage by itself."""


def cost_figures(
    experiment: Experiment, report: Mapping[str, object], prices: Mapping[str, float] = MappingProxyType({})
) -> dict[str, float | None]:
    """The figures of ``spec.study.metrics.COSTS``; None = documents do not say what it takes, or nothing was generated.

    Args:
        experiment: what ran.
        report: of its run, as plain data.
        prices: US dollars an hour by hardware, in place of what its documents say.
    """
    said = Part(report, "")
    held = list(_held(experiment, said))
    duration_us, tokens = said.integer("duration_us"), said.part("tokens").integer("output")
    gpu_us = 0
    for one in held:
        gpu_us += one.gpu_us
    usd_us = _total((prices.get(one.hardware.name, one.hardware.usd_per_hour), one.gpu_us) for one in held)
    peak_us = _total((one.hardware.peak_watts, one.gpu_us) for one in held)
    idle_us = _total((one.hardware.idle_watts, one.gpu_us - one.busy_gpu_us) for one in held)
    busy_us = _total((one.hardware.peak_watts, one.busy_gpu_us) for one in held)
    watt_us = None if idle_us is None or busy_us is None else idle_us + busy_us
    # What is a million times larger than an hour's, for each token, is an hour's for a million.
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
    for one, (pool, held_us) in zip(report.parts("instances"), _instances(experiment, report), strict=True):
        stages = pool.engine.pipeline_parallel
        # A step that the horizon cuts counts as a whole among the busy time.
        busy_us = min(one.integer("busy_us") / stages, held_us)
        gpus = pool.tensor_parallel * stages
        yield _Held(pool.hardware, gpus * held_us, gpus * busy_us)


def _instances(experiment: Experiment, report: Part) -> Iterable[tuple[Pool, int]]:
    """The pool of each instance, and how long it held its accelerators."""
    if "lifecycle" not in report.data:
        for pool in experiment.pools:
            for _ in range(pool.instances):
                yield pool, report.integer("duration_us")
        return
    pools = {pool.name: pool for pool in experiment.pools}
    for life in report.part("lifecycle").parts("instances"):
        yield pools[life.text("pool")], life.integer("held_us")


def _total(parts: Iterable[tuple[float | None, float]]) -> float | None:
    """The sum of the products; None where a first factor is missing that would matter."""
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
