"""What a report says of the step times behind its figures: whose they are, and how far off its means may be."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import WHERE_IT_APPLIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.metrics.expected_error import Expectation, ExpectedError
    from blis_tui.spec.model import Experiment


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """What the instances of a pool run, and how their steps are timed."""

    model: str
    """The name of the model."""
    hardware: str
    """The name of the GPU."""
    tensor_parallel: int
    """GPUs that each layer is split over (of each pipeline stage)."""
    pipeline_parallel: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Stages that the layers are spread over; left out where there is one."""
    data_parallel: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Ranks of a replica, each an instance; left out where there is one."""
    expert_parallel: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """GPUs over which whole experts are spread; left out where each is split like other layers."""
    kind: str
    """The step-time model, chosen where the experiment says ``auto``."""
    expected_error_percent: ExpectedError | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """By how much the means may be off, of what was compared with servers like that, with the coefficients it has; with
    ``report: full``, otherwise left out: later versions know better, and nothing else depends on it."""
    not_measured: Mapping[str, str] | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Metric -> why nothing is known of its error; with ``report: full``, where any is not known."""


def step_times(experiment: Experiment, found: Mapping[str, Expectation] | None = None) -> dict[str, StepTime]:
    """What the figures of each pool rest on, by name; with what is expected of them, where that is to be told."""
    return {
        pool.name: StepTime(
            model=pool.model.name,
            hardware=pool.hardware.name,
            tensor_parallel=pool.tensor_parallel,
            pipeline_parallel=stages if (stages := pool.engine.pipeline_parallel) > 1 else None,
            data_parallel=ranks if (ranks := pool.engine.data_parallel) > 1 else None,
            expert_parallel=ranks * pool.tensor_parallel if pool.engine.expert_parallel else None,
            kind=pool.latency.kind,
            expected_error_percent=None if found is None else found[pool.name].error,
            not_measured=None if found is None else found[pool.name].reasons or None,
        )
        for pool in experiment.pools
    }
