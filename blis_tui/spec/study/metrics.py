"""Figures that studies may ask for: those of reports, and what a run costs."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from blis_tui.spec.checks import METRICS, is_open_ended

if TYPE_CHECKING:
    from collections.abc import Mapping

COSTS: Final[Mapping[str, str]] = MappingProxyType(
    {
        "cost.gpus": "GPUs",
        "cost.usd_per_hour": "USD per hour",
        "cost.usd_per_million_output_tokens": "USD per million output tokens",
        "cost.watts": "watts",
        "cost.wh_per_million_output_tokens": "Wh per million output tokens",
    }
)
"""Figures beside the report -> their unit."""


def is_metric(name: str) -> bool:
    """Whether a study can ask for it."""
    return name in METRICS or name in COSTS or is_open_ended(name)
