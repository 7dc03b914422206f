"""Overrides of routing decisions: which decision about a request, and where the request goes instead."""

from __future__ import annotations

from collections.abc import Mapping
from operator import index
from typing import SupportsIndex, TypeAlias

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
    """Normalize all overrides to ``Reroute``.

    Raises:
        TypeError: one is neither an index nor a ``Reroute``; the engine would fail in the middle of an event.
    """
    return {name: _reroute(name, one) for name, one in (routes or {}).items()}


def _reroute(name: str, given: object) -> Reroute:
    if isinstance(given, Reroute):
        return given
    if isinstance(given, SupportsIndex):
        return Reroute(index(given))
    raise TypeError(f"the route of {name} is the index of an instance or a Reroute, not {given!r}")
