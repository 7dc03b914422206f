"""What a step-time model is asked, and what it answers.

A model is a pure function of the step's load: prefill chunks one by one (there are few), decoding requests
only as their number and the sum of their contexts. Every published formula here is affine in those two, which
is what lets the engine advance a whole batch in constant time.
"""

from __future__ import annotations

from dataclasses import field, fields
from typing import TYPE_CHECKING, Final, Protocol

from blis_tui.classes import dataclass
from blis_tui.errors import PolicyError
from blis_tui.keys import Key
from blis_tui.registry import PlugPoint
from blis_tui.spec.model import Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    from blis_tui.engine.request import Request
    from blis_tui.registry import Registry
    from blis_tui.spec.model import Setting


@dataclass(slots=True)
class Chunk:
    """A piece of one request's prefill, scheduled in a step."""

    request: Request
    computed: int
    """Tokens already in the KV cache before the step."""
    new: int
    """Tokens this step computes, at least 1."""
    prompt: int
    """Tokens this prefill must reach."""
    cached: int = 0
    """Of ``computed``, the tokens that were found in the cache when this step admitted the request."""


@dataclass(slots=True)
class StepLoad:
    """The work of one step; one mutable record per instance, reused from step to step."""

    chunks: list[Chunk] = field(default_factory=list)
    decode_requests: int = 0
    """Requests that generate one token each."""
    decode_context_tokens: int = 0
    """Their computed tokens before the step, summed."""
    adapters: int = 0
    """Different LoRA adapters of the requests that run."""


class StepTimeModel(Protocol):
    """How long a step takes, and what a request waits for outside of steps. All times in microseconds."""

    output_token_overhead_us: int
    """Added to the first token's latency and to every inter-token latency, but not to the step."""
    post_decode_overhead_us: int
    """Added once to the end-to-end latency of a request that generates anything."""

    def step_time_us(self, load: StepLoad) -> int:
        """Duration of a step with this load, at least 1."""
        ...

    def queueing_time_us(self, request: Request) -> int:
        """From the arrival of ``request`` until it stands in the waiting queue."""
        ...


LATENCY: Final = PlugPoint[[Pool], StepTimeModel]("latency", "step-time model", StepTimeModel)


def coefficients(doc: str, *counts: int) -> tuple[float, ...]:
    """A setting that lists coefficients, finite and not negative.

    Documents give all of them or leave the key out: then those in ``specs/latency/`` count.

    Args:
        doc: what they mean, with their units.
        counts: how many there may be; 0 among others = experiments made by hand may go without.
    """
    limits = {
        "$ref": "common.schema.json#/$defs/coefficients",
        "minItems": min((count for count in counts if count), default=0),
        "maxItems": max(counts),
    }
    return field(default=(), metadata={"key": Key(doc=doc, limits=limits, optional=True), "counts": counts})


def create_latency(plugins: Registry, pool: Pool) -> StepTimeModel:
    """The step-time model of a pool.

    Raises:
        PolicyError: it does not exist, its coefficients are too many, too few, negative or not finite, or the model's
            shape does not suit it.
    """
    kind, model = pool.latency.kind, pool.model
    for one in fields(plugins.find(LATENCY.path, kind, LATENCY.noun).settings):
        if "counts" in one.metadata:
            _check(kind, one.name, pool.latency.settings.get(one.name, ()), one.metadata["counts"])
    if pool.tensor_parallel < 1:
        raise PolicyError(f"tensor_parallel is {pool.tensor_parallel}", help="it must be at least 1")
    if model.num_experts > 1 and model.num_experts_per_tok < 1:
        raise PolicyError(f"model {model.name!r} has experts but no num_experts_per_tok")
    return plugins.create(LATENCY, kind, pool.latency.settings, pool)


def _check(kind: str, name: str, values: Setting, counts: Sequence[int]) -> None:
    """Refuse coefficients that no formula can answer."""
    listed = values if isinstance(values, tuple) else ()
    if len(listed) not in counts:
        expected = " or ".join(str(count) for count in counts)
        raise PolicyError(f"{kind} takes {expected} {name} coefficients, not {len(listed)}")
    for position, value in enumerate(listed):
        if not isinstance(value, int | float) or not 0.0 <= value < float("inf"):
            message = f"{name}[{position}] of {kind} is {value}"
            raise PolicyError(message, help="coefficients are finite and not negative")


class Overheads:
    """The part all models share: times a request spends outside of steps.

    Each is truncated to whole microseconds on its own, as BLIS does.
    """

    __slots__ = ("_queue_per_token_us", "_queue_us", "output_token_overhead_us", "post_decode_overhead_us")

    def __init__(
        self,
        *,
        queue_us: float,
        queue_per_token_us: float,
        output_token_us: float,
        post_decode_us: float,
    ) -> None:
        self._queue_us = queue_us
        self._queue_per_token_us = queue_per_token_us
        self.output_token_overhead_us = int(output_token_us)
        self.post_decode_overhead_us = int(post_decode_us)

    def queueing_time_us(self, request: Request) -> int:
        """From arrival to the waiting queue: tokenization and hand-over, affine in the prompt's length."""
        return int(self._queue_us + self._queue_per_token_us * request.input_tokens)
