"""Routing decisions that are overruled: which one of a request, and where it goes instead."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from blis_tui.classes import NamedTuple


class Reroute(NamedTuple):
    """Where a request goes instead, and by which of its routing decisions: it has several when it is split or retried.

    Attributes:
        instance: the index of the instance.
        event: the event of the decision; None = the first among whose candidates the instance is.
    """

    instance: int
    event: int | None = None


Routes: TypeAlias = Mapping[str, int | Reroute]
"""Decisions to overrule, by the request's name; an instance alone stands for ``Reroute(instance)``."""


def reroutes(routes: Routes | None) -> dict[str, Reroute]:
    """The same, written out."""
    return {name: Reroute(one) if isinstance(one, int) else one for name, one in (routes or {}).items()}
