"""Allowed deviations of a result from its golden."""

from __future__ import annotations

from dataclasses import field
from typing import TYPE_CHECKING

from blis_tui.base.classes import dataclass

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class Tolerance:
    """Allowed deviation of one number from its golden value: the larger of two bounds."""

    rel: float = 0.0
    abs: float = 0.0

    def accepts(self, golden: float, found: float) -> bool:
        """Return whether ``found`` is close enough."""
        return abs(found - golden) <= max(self.abs, self.rel * abs(golden))


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparisonOptions:
    """How results are compared with golden files."""

    records: bool = True
    tolerance: Mapping[str, Tolerance] = field(default_factory=dict)
    redact: tuple[str, ...] = ()
