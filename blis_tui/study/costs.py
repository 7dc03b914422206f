"""Placeholder until costs land: how many GPUs there are."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model import Experiment


def cost_figures(experiment: Experiment, report: Mapping[str, object]) -> Mapping[str, float | None]:
    """What a run costs."""
    gpus = 0
    for pool in experiment.pools:
        gpus += pool.instances * pool.tensor_parallel * pool.engine.pipeline_parallel
    return {"cost.gpus": gpus}
