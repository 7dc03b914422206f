"""Overrides of routing decisions: which decision about a request, and where the request goes instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from blis_tui.classes import NamedTuple


class Reroute(NamedTuple):
    """An override of one of a request's routing decisions; there are several if it is split or retried.

    Attributes:
        instance: the index of the instance to use.
        event: the event of the decision; None = the first decision with the instance among its candidates.
    """

    instance: int
    event: int | None = None


RouteOverrides: TypeAlias = Mapping[str, int | Reroute]
"""Overrides by the request's name; an instance alone stands for ``Reroute(instance)``."""


def normalized_overrides(routes: RouteOverrides | None) -> dict[str, Reroute]:
    """Normalize all overrides to ``Reroute``."""
    return {name: Reroute(one) if isinstance(one, int) else one for name, one in (routes or {}).items()}
