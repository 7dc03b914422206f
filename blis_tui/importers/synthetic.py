"""Converts lengths as load generators describe them."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blis_tui.spec.source import Json


def clamped_normal(mean: float, std_dev: float, low: int, high: int) -> dict[str, Json]:
    """Return a normal distribution between two bounds; a constant if it cannot vary."""
    low = max(1, low)
    high = max(low, high)
    if low == high or std_dev <= 0.0:
        return {"kind": "constant", "value": min(max(low, int(mean + 0.5)), high)}
    return {"kind": "gaussian", "mean": min(max(mean, low), high), "std_dev": std_dev, "min": low, "max": high}
