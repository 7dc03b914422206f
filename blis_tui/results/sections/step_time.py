"""The report's section on step times: the simulated hardware, and the expected errors of the means."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass
from blis_tui.results.stats import OMITTED_IF_ABSENT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.model import Experiment
    from blis_tui.results.expected_error import Expectation, ExpectedError


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """The configuration of a pool's instances, and the source of their step times."""

    model: str
    """The name of the model."""
    hardware: str
    """The name of the GPU."""
    tensor_parallel: int
    """GPUs that each layer is split over (of each pipeline stage)."""
    pipeline_parallel: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Stages that the layers are spread over; left out if there is one."""
    data_parallel: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Ranks of a replica, each an instance; left out if there is one."""
    expert_parallel: int | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """GPUs over which whole experts are spread; left out if experts are split like other layers."""
    kind: str
    """The step-time model, also if the experiment says ``auto``."""
    expected_error_percent: ExpectedError | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Expected error of the means, from measurements of similar servers with the same coefficients. Only with ``report:
    full``, because later versions may change it while no other result depends on it."""
    not_measured: Mapping[str, str] | None = field(default=None, metadata=OMITTED_IF_ABSENT)
    """Metric -> why its error is not known; with ``report: full``, if there is any such metric."""


def step_times(experiment: Experiment, found: Mapping[str, Expectation] | None = None) -> dict[str, StepTime]:
    """Return the configuration of each pool, by name, and its expected errors if they are to be reported."""
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
