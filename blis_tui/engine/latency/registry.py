"""Step-time models by the name a spec gives them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from blis_tui.engine.latency.blackbox import BlackboxModel
from blis_tui.engine.latency.crossmodel import CrossModel
from blis_tui.engine.latency.roofline import RooflineModel
from blis_tui.engine.latency.trained_physics import trained_physics
from blis_tui.engine.latency.trained_roofline import trained_roofline
from blis_tui.errors import PolicyError

if TYPE_CHECKING:
    from blis_tui.engine.latency.model import StepTimeModel
    from blis_tui.spec.model import Hardware, Latency, Model


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kind:
    """What a model needs: allowed numbers of coefficients, and whether heads must divide evenly."""

    alpha: tuple[int, ...]
    beta: tuple[int, ...]
    divides_heads: bool = False


_KINDS: Final = {
    "blackbox": _Kind(alpha=(3,), beta=(3,)),
    "crossmodel": _Kind(alpha=(3,), beta=(4,)),
    "roofline": _Kind(alpha=(0, 3), beta=(0,)),
    "trained-physics": _Kind(alpha=(3,), beta=(7, 8, 9, 10, 11), divides_heads=True),
    "trained-roofline": _Kind(alpha=(3,), beta=(7,), divides_heads=True),
}

KINDS: Final = tuple(_KINDS)
"""The names of all step-time models, sorted."""


def create(
    latency: Latency,
    model: Model,
    hardware: Hardware,
    *,
    tensor_parallel: int,
    max_num_seqs: int | None = None,
) -> StepTimeModel:
    """Build the step-time model that ``latency`` names.

    Args:
        latency: kind and coefficients.
        model: the model's shape.
        hardware: the accelerator.
        tensor_parallel: accelerators that share each layer.
        max_num_seqs: largest decode batch expected; only sizes tables.

    Raises:
        PolicyError: the kind does not exist, the coefficients are too many, too few, negative or not
            finite, or the model's shape does not suit it.
    """
    _check(latency, model, tensor_parallel)
    if latency.kind == "blackbox":
        return BlackboxModel(latency.alpha, latency.beta, max_num_seqs)
    if latency.kind == "crossmodel":
        return CrossModel(latency.alpha, latency.beta, model, tensor_parallel=tensor_parallel)
    if latency.kind == "roofline":
        return RooflineModel(latency.alpha, model, hardware, tensor_parallel=tensor_parallel, max_num_seqs=max_num_seqs)
    build = trained_physics if latency.kind == "trained-physics" else trained_roofline
    return build(latency.alpha, latency.beta, model, hardware, tensor_parallel=tensor_parallel)


def _check(latency: Latency, model: Model, tensor_parallel: int) -> None:
    """Refuse what no formula can answer."""
    kind = _KINDS.get(latency.kind)
    if kind is None:
        raise PolicyError(f"no step-time model {latency.kind!r}", help=f"the step-time models are {', '.join(KINDS)}")
    for name, values, allowed in (("alpha", latency.alpha, kind.alpha), ("beta", latency.beta, kind.beta)):
        if len(values) not in allowed:
            expected = " or ".join(str(count) for count in allowed)
            raise PolicyError(f"{latency.kind} takes {expected} {name} coefficients, not {len(values)}")
        for position, value in enumerate(values):
            if not 0.0 <= value < float("inf"):
                raise PolicyError(
                    f"{name}[{position}] of {latency.kind} is {value}",
                    help="coefficients are finite and not negative",
                )
    if tensor_parallel < 1:
        raise PolicyError(f"tensor_parallel is {tensor_parallel}", help="it must be at least 1")
    if kind.divides_heads and (
        model.num_attention_heads % tensor_parallel or model.num_key_value_heads % tensor_parallel
    ):
        raise PolicyError(
            f"{latency.kind} cannot split {model.num_attention_heads} heads and "
            f"{model.num_key_value_heads} KV heads of {model.name!r} over {tensor_parallel} accelerators",
            help="choose a tensor_parallel that divides both",
        )
    if model.num_experts > 1 and model.num_experts_per_tok < 1:
        raise PolicyError(f"model {model.name!r} has experts but no num_experts_per_tok")
