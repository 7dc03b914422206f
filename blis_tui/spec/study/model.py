"""A study: one experiment, what varies in it, and what to look for in the results."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.classes import dataclass
from blis_tui.keys import choice, key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.registry import Registry
    from blis_tui.spec.model import Expectation
    from blis_tui.spec.overrides import Override
    from blis_tui.spec.source import Document, Json

MAX_POINTS: Final = 100_000
"""More points than can be looked at; a study of more has a mistake in it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Objective:
    """A figure of the report or of `cost`, and whether it should be small or large."""

    metric: str = key(
        "Dotted path of the figure in the report, or one of `cost.gpus`, `cost.usd_per_hour`,"
        " `cost.usd_per_million_output_tokens`, `cost.watts`, `cost.wh_per_million_output_tokens`.",
        minLength=1,
        examples=["cost.gpus", "throughput.output_tokens_per_s"],
    )
    goal: Literal["min", "max"] = choice(
        "Whether it should be small or large.",
        {"min": "The smaller, the better.", "max": "The larger, the better."},
        default="min",
        examples=["max"],
    )


@dataclass(frozen=True, slots=True)
class Axis:
    """Values to try one after the other: of one path, or of several that change together."""

    paths: tuple[str, ...]
    rows: tuple[tuple[Override, ...], ...]
    """For each value of the axis what to assign, a path each."""


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of values."""

    number: int
    """From 0, in the order of the axes: the last one varies fastest."""
    overrides: tuple[Override, ...]

    @property
    def coordinates(self) -> dict[str, Json]:
        """Path -> value."""
        return {one.path: one.value.data for one in self.overrides}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """Everything that its runs have in common, and how they differ.

    Raises (from what makes one): SpecError when a document is wrong.
    """

    name: str
    description: str
    experiment: str
    """How the study calls its experiment."""
    base: Document = field(repr=False)
    """The experiment's document as it was read."""
    fixed: tuple[Override, ...] = ()
    """Values that all runs have instead of the experiment's."""
    axes: tuple[Axis, ...] = ()
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    """Each point runs once with each of them."""
    objectives: tuple[Objective, ...] = ()
    constraints: tuple[Expectation, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    """US dollars an hour for one accelerator, by the name of its hardware."""
    plugins: Registry | None = None
    document: Mapping[str, Json] = field(repr=False)
    """The study as plain data, complete."""
    written: Document = field(repr=False)
    """The study with the places where its parts were written."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that vary, in the order of the axes."""
        return tuple(path for axis in self.axes for path in axis.paths)

    @property
    def runs(self) -> int:
        """How many runs there are, equal ones counted."""
        return len(self.points) * len(self.seeds)
