"""A study: one experiment, what varies in it, and what to look for in the results."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING, Final, Literal

from blis_tui.base.classes import dataclass
from blis_tui.model.keys import choice, key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from blis_tui.base.source import Document, Json
    from blis_tui.model import Expectation
    from blis_tui.model.plug_ins import Registry
    from blis_tui.spec.overrides import Override

MAX_POINTS: Final = 100_000
"""Maximum number of points; a study with more contains a mistake."""


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
    """Values to try one after the other, for one path or for several that change together."""

    paths: tuple[str, ...]
    rows: tuple[tuple[Override, ...], ...]
    """For each value of the axis, one assignment per path."""


@dataclass(frozen=True, slots=True)
class Point:
    """One combination of values."""

    number: int
    """Its number from 0, in the order of the axes: the last one varies fastest."""
    overrides: tuple[Override, ...]

    @property
    def coordinates(self) -> dict[str, Json]:
        """The assigned values by path."""
        return {override.path: override.value.data for override in self.overrides}


@dataclass(frozen=True, slots=True, kw_only=True)
class Study:
    """What the runs have in common, and how they differ.

    Functions that make one raise SpecError for an invalid document.
    """

    name: str
    description: str
    experiment: str
    """The study's reference to its experiment."""
    base: Document = field(repr=False)
    """The experiment's document as it was read."""
    fixed: tuple[Override, ...] = ()
    """Assignments that all runs share."""
    axes: tuple[Axis, ...] = ()
    points: tuple[Point, ...]
    seeds: tuple[int, ...]
    """Each point runs once with each seed."""
    objectives: tuple[Objective, ...] = ()
    constraints: tuple[Expectation, ...] = ()
    prices: Mapping[str, float] = field(default_factory=dict)
    """US dollars per hour for one accelerator, by hardware name."""
    plugins: Registry | None = None
    document: Mapping[str, Json] = field(repr=False)
    """The complete study as plain data."""
    written: Document = field(repr=False)
    """The study with the positions of its parts."""

    @property
    def paths(self) -> tuple[str, ...]:
        """The paths that vary, in the order of the axes."""
        return tuple(path for axis in self.axes for path in axis.paths)

    @property
    def runs(self) -> int:
        """Number of runs, including equal ones."""
        return len(self.points) * len(self.seeds)
