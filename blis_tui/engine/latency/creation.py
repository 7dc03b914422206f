"""Creation of a pool's step-time model, checks of its coefficient lists, and the name that leaves the choice open."""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from blis_tui.base.errors import PolicyError
from blis_tui.engine.latency.model import LATENCY
from blis_tui.model.keys import AUTO, Key

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.client_times import ServiceTimes
    from blis_tui.engine.counts import Tallies
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.model import LinearLayers, Pool, Setting
    from blis_tui.model.plug_ins import NoSettings, Registry


@LATENCY.plugin(AUTO, "`operators` where tables cover model and GPU, else `fitted`.")
def auto(_settings: NoSettings, pool: Pool) -> StepTimeModel:
    """Refuse to create a model: loading an experiment replaces this name by the chosen model.

    Raises:
        PolicyError: always.
    """
    raise PolicyError(f"pool `{pool.name}` has no step-time model yet", help="load the experiment to have one chosen")


@runtime_checkable
class HasFrontEnd(Protocol):
    """A step-time model that knows the service times of the API server process."""

    front_end: ServiceTimes | None


@runtime_checkable
class CountsSteps(Protocol):
    """A step-time model that depends on the number of steps so far."""

    def follow(self, tallies: Tallies) -> None:
        """Attach the model to the tallies of an instance's steps.

        Raises:
            PolicyError: it is attached to another instance already.
        """
        ...


def coefficients(doc: str, *counts: int) -> tuple[float, ...]:
    """Define a setting that lists coefficients, finite and not negative.

    Documents give all of them or omit the key; then the values in ``specs/latency/`` apply.

    Args:
        doc: their meaning, with units.
        counts: allowed numbers of coefficients; 0 among them = experiments created in code may omit them.
    """
    limits = {
        "$ref": "common.schema.json#/$defs/coefficients",
        "minItems": min((count for count in counts if count), default=0),
        "maxItems": max(counts),
    }
    return field(default=(), metadata={"key": Key(doc=doc, limits=limits, optional=True), "counts": counts})


def create_latency(plugins: Registry, pool: Pool) -> StepTimeModel:
    """Create the step-time model of a pool.

    Raises:
        PolicyError: it does not exist, its coefficients are too many, too few, negative or not finite, or the model's
            shape does not suit it.
    """
    kind, model = pool.latency.kind, pool.model
    for setting in fields(plugins.find(LATENCY.path, kind, LATENCY.noun).settings):
        if "counts" in setting.metadata:
            _check(kind, setting.name, pool.latency.settings.get(setting.name, ()), setting.metadata["counts"])
    if pool.tensor_parallel < 1:
        raise PolicyError(f"tensor_parallel is {pool.tensor_parallel}", help="it must be at least 1")
    if model.num_experts > 1 and model.num_experts_per_tok < 1:
        raise PolicyError(f"model {model.name!r} has experts but no num_experts_per_tok")
    latency = plugins.create(LATENCY, kind, pool.latency.settings, pool)
    return latency if model.linear is None else _with_states(latency, pool, model.linear)


def _with_states(latency: StepTimeModel, pool: Pool, linear: LinearLayers) -> StepTimeModel:
    from blis_tui.engine.latency.linear_layers import FROM_SHAPE, States  # noqa: PLC0415  (few models have them)

    return States(latency, pool, linear) if pool.latency.kind in FROM_SHAPE else latency


def _check(kind: str, name: str, values: Setting, counts: Sequence[int]) -> None:
    """Reject coefficients in wrong number or out of range."""
    listed = values if isinstance(values, tuple) else ()
    if len(listed) not in counts:
        expected = " or ".join(str(count) for count in counts)
        raise PolicyError(f"{kind} takes {expected} {name} coefficients, not {len(listed)}")
    for position, value in enumerate(listed):
        if not isinstance(value, int | float) or not 0.0 <= value < float("inf"):
            message = f"{name}[{position}] of {kind} is {value}"
            raise PolicyError(message, help="coefficients are finite and not negative")
