"""Checks whether the step times rest on measurements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from blis_tui.base.units import percent_text, plural
from blis_tui.engine.latency.model import ModelWrapper
from blis_tui.engine.latency.operator_steps import OperatorModel
from blis_tui.engine.latency.wrappers import COMPUTED, HookedModel, Launched, ScaledStepTimes, without_graphs
from blis_tui.results.lints.finding import Finding

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.results.lints.finding import Group, LintContext
EXTRAPOLATED_SHARE: Final = 10
"""Maximum percentage of a step for extrapolated operators without a warning."""


def eager_without_cost(seen: LintContext) -> Finding | str:
    """CUDA graphs are off (``enforce_eager``, ``cudagraph_mode``), but the cost of that is not known here.

    Step times that were measured as a whole apply to servers with graphs or without, whichever was measured.
    """
    kinds = {
        pool.latency.kind: key
        for pool in seen.cluster.pools
        if pool.latency.kind not in COMPUTED and (key := without_graphs(pool.engine))
    }
    if not kinds:
        return ""
    names = " and ".join(f"`{kind}`" for kind in kinds)
    keys = [f"engine.{key}" for key in sorted({*kinds.values()})]
    return Finding(
        id="eager-without-cost",
        message=(
            f"{' and '.join(keys)} has no effect: the cost of launching operators one by one is not known for {names}"
            " step times."
        ),
        figures={"kinds": len(kinds)},
        advice=(
            "Measure the step times on a server without CUDA graphs, or use a step-time model that computes this cost"
            f" (latency.kind: {', '.join(COMPUTED)})."
        ),
        keys=(*keys, "latency.kind"),
    )


def extrapolated(seen: LintContext) -> Finding | str:
    """Operators that were not measured take more than 10 % of a step of the run's largest batch."""
    found = (_extrapolated(seen, group) for group in seen.by_pool())
    return next((one for one in found if one is not None), "")


def _extrapolated(seen: LintContext, group: Group) -> Finding | None:
    model = operators_of(group.instances[0].latency)
    batch = max((instance.tallies.peak_running for instance in group.instances), default=0)
    if model is None or not batch:
        return None
    flow = seen.flow
    context = flow.input_tokens // max(1, flow.total)
    parts = model.costs.parts_us(batch, context)
    whole = guessed = 0.0
    names = []
    for name, (time_us, guessed_us) in parts.items():
        whole += time_us
        guessed += guessed_us
        if 2.0 * guessed_us > time_us:
            names.append(name)
    share = round(guessed), round(whole)
    if 100 * guessed <= EXTRAPOLATED_SHARE * whole:
        return None
    return Finding(
        id="extrapolated",
        message=(
            f"{percent_text(*share)} of a step of {plural(batch, 'decode')}{group.of} is extrapolated from sizes"
            f" or types other than the model's: {', '.join(names)}."
        ),
        figures={"extrapolated_us": share[0], "step_us": share[1], "decodes": batch, "context_tokens": context},
        advice="Treat the step times with more caution than usual, or compare with another step-time model "
        "(latency.kind).",
        keys=("latency.kind",),
    )


def operators_of(latency: StepTimeModel) -> OperatorModel | None:
    """Return the model of measured operators that a step-time model is or wraps; None = it has none."""
    while isinstance(latency, Launched | HookedModel | ScaledStepTimes) or (
        isinstance(latency, ModelWrapper) and latency.paces
    ):
        latency = latency.model
    return latency if isinstance(latency, OperatorModel) else None
