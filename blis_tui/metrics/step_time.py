"""What a report says of the step times behind its figures: whose they are, and how far off they were when measured."""

from __future__ import annotations

import json
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from blis_tui.classes import dataclass
from blis_tui.metrics.stats import WHERE_IT_APPLIES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.spec.model import Experiment, Pool


class _Judged(TypedDict):
    """An entry of ``expected_errors.json``, which ``benchmarks/accuracy.py`` writes."""

    settings: Mapping[str, object]
    varied: list[str]
    gpus: Mapping[str, Mapping[str, float]]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpectedError:
    """Median, over measured vLLM servers on the same GPU, of the absolute error of a run's means, in percent."""

    runs: int
    """How many servers were measured."""
    e2e: float | None
    ttft: float | None
    itl: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepTime:
    """What the instances of a pool run, and how their steps are timed."""

    model: str
    hardware: str
    tensor_parallel: int
    pipeline_parallel: int | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """Left out where there is one stage."""
    kind: str
    """The step-time model, chosen where the experiment says ``auto``."""
    expected_error_percent: ExpectedError | None = field(default=None, metadata=WHERE_IT_APPLIES)
    """With ``report: full``, where it was compared with servers on that GPU, with the coefficients it has. Otherwise
    left out: later versions know better, and nothing else depends on it."""


@cache
def _judged() -> Mapping[str, _Judged]:
    text = Path(__file__).with_name("expected_errors.json").read_text(encoding="utf-8")
    found: Mapping[str, _Judged] = json.loads(text)
    return found


def step_times(experiment: Experiment, errors: Mapping[str, ExpectedError | None]) -> dict[str, StepTime]:
    """What the figures of each pool rest on, by name."""
    return {
        pool.name: StepTime(
            model=pool.model.name,
            hardware=pool.hardware.name,
            tensor_parallel=pool.tensor_parallel,
            pipeline_parallel=stages if (stages := pool.engine.pipeline_parallel) > 1 else None,
            kind=pool.latency.kind,
            expected_error_percent=errors[pool.name] if experiment.report == "full" else None,
        )
        for pool in experiment.pools
    }


def expected_errors(experiment: Experiment) -> dict[str, ExpectedError | None]:
    """How far off each pool's step-time model was; None where nobody has measured that."""
    return {pool.name: _expected(pool) for pool in experiment.pools}


def _expected(pool: Pool) -> ExpectedError | None:
    judged = _judged().get(pool.latency.kind)
    if judged is None or (row := judged["gpus"].get(pool.hardware.name)) is None:
        return None
    for name, own in pool.latency.settings.items():
        value = list(own) if isinstance(own, tuple) else own
        if name not in judged["varied"] and value != judged["settings"].get(name):
            return None
    return ExpectedError(runs=int(row["runs"]), e2e=row.get("e2e"), ttft=row.get("ttft"), itl=row.get("itl"))
