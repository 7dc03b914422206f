"""Step-time laws as ``calibrate`` needs them: linear in their coefficients, for many steps at once."""

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
    """Of a step: its decodes, their contexts summed, and of each prompt chunk the tokens computed before and in it."""


@dataclass(frozen=True, slots=True)
class Term:
    """A coefficient, and what is expected of it before anything is measured."""

    name: str
    base: float
    spread: float
    """How far from its base it is expected to be: a standard deviation."""
    lowest: float


@dataclass(frozen=True, slots=True)
class Loads:
    """What steps worked on; every array has an entry for each step."""

    decodes: Array
    context: Array
    """Of the decodes, summed."""
    chunks: Array
    """How many prompt chunks."""
    new: Array
    """Their tokens."""
    attended: Array
    """What these attend to: for each token, those before it, summed."""
    windowed: Array
    """The same on layers with a sliding window."""


def loads_of(steps: Iterable[Work], window: int) -> Loads:
    """Sum up the chunks of each step; ``window``: of the model's layers with a sliding window, in tokens."""
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
    """A step-time model's coefficients. A step takes the sum of slope x coefficient over all of them.

    Slopes depend on coefficients only through which side of a maximum counts.
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
        """Settings that no measurement is asked about, and why."""
        ...

    @property
    def constant(self) -> str:
        """The coefficient that is a time per step."""
        ...

    def config(self, values: Array) -> PluginConfig:
        """The step-time model with these coefficients."""
        ...

    def steps(self, values: Array, pool: Pool, loads: Loads) -> Array:
        """Slopes of steps: a row each, microseconds per unit of each coefficient."""
        ...

    def logged(self, slopes: Array) -> Array:
        """Of the slopes of steps, what engines log of them."""
        ...

    def queue(self, tokens: Array) -> Array:
        """Slopes of what requests with prompts of so many tokens wait before they stand in the queue."""
        ...

    def client_us(self, tokens: Array) -> Array:
        """What clients wait beyond the step that makes their last token, of so many tokens; no coefficient."""
        ...

    def others(self, values: Array, pool: Pool) -> list[Array]:
        """Coefficients with which another side of a maximum counts, where the measurements may not tell it."""
        ...
