"""Metrics that studies may use: those of reports, and the cost of a run."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.spec.metric_names import is_metric as is_of_reports
from blis_tui.spec.metric_names import is_open_ended

if TYPE_CHECKING:
    from collections.abc import Mapping

COSTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cost.gpus": "Accelerators that instances hold, on average over the run.",
        "cost.usd_per_hour": "What these cost in an hour, in US dollars.",
        "cost.usd_per_million_output_tokens": "US dollars for a million generated tokens.",
        "cost.peak_watts": "What these take at most, in watts.",
        "cost.watts": "What these take on average, in watts.",
        "cost.wh_per_million_output_tokens": "Watt-hours for a million generated tokens.",
    }
)
"""Additional metrics and their descriptions."""


def is_metric(name: str) -> bool:
    """Return whether a study can use the metric."""
    return is_of_reports(name) or name in COSTS or is_open_ended(name)
