"""Step-time laws for ``calibrate``: linear in their coefficients, vectorised over steps."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

import numpy as np

from blis_tui.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import TypeAlias

    from numpy.typing import NDArray

    from blis_tui.spec.model import PluginConfig, Pool

    Array: TypeAlias = NDArray[np.float64]
    Work: TypeAlias = tuple[int, float, Sequence[tuple[int, int]]]
    """Work of a step: decodes, sum of their contexts, and for each prompt chunk the tokens computed before and in it.
    """


@dataclass(frozen=True, slots=True)
class Term:
    """A coefficient, and its prior."""

    name: str
    base: float
    spread: float
    """Prior standard deviation around its base."""
    lowest: float


@dataclass(frozen=True, slots=True)
class Loads:
    """Work of steps; every array has one entry per step."""

    decodes: Array
    context: Array
    """Sum of the decodes' contexts."""
    chunks: Array
    """Number of prompt chunks."""
    new: Array
    """Tokens in the chunks."""
    attended: Array
    """Sum over these tokens of the tokens that they attend to."""
    windowed: Array
    """The same sum for layers with a sliding window."""


def loads_of(steps: Iterable[Work], window: int) -> Loads:
    """Sum up the chunks of each step; ``window``: width of the model's sliding window, in tokens."""
    rows: list[tuple[float, ...]] = []
    for decodes, context, chunks in steps:
        new = attended = windowed = 0.0
        for computed, tokens in chunks:
            new += tokens
            before = computed + tokens / 2.0
            attended += tokens * before
            windowed += tokens * min(before, window)
        rows.append((decodes, context, len(chunks), new, attended, windowed))
    return Loads(*np.array(rows, dtype=float).reshape(-1, 6).T)


class Law(Protocol):
    """The coefficients of a step-time model. A step takes the sum of slope x coefficient.

    Slopes depend on coefficients only through which side of a maximum is larger.
    """

    @property
    def kind(self) -> str:
        """The step-time model's name."""
        ...

    @property
    def terms(self) -> tuple[Term, ...]:
        """Its coefficients, in the order of all arrays."""
        ...

    @property
    def kept(self) -> Mapping[str, str]:
        """Settings that are not fitted, and why."""
        ...

    @property
    def constant(self) -> str:
        """The coefficient that is a time per step."""
        ...

    def config(self, values: Array) -> PluginConfig:
        """Return the step-time model with these coefficients."""
        ...

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:
        """Return the slopes of steps: one row per step, microseconds per unit of each coefficient."""
        ...

    def logged(self, slopes: Array) -> Array:
        """Return the part of the slopes that engines log."""
        ...

    def queue(self, tokens: Array) -> Array:
        """Return the slopes of the wait before the queue, for prompts of these lengths."""
        ...

    def client_us(self, tokens: Array) -> Array:
        """Return what clients wait after the step of their last token, by answer length; contains no coefficient."""
        ...

    def others(self, values: Array, pool: Pool) -> list[Array]:
        """Return coefficients with another side of a maximum, if the measurements may not determine the side."""
        ...
