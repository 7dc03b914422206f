"""Are the courses of clients' rates possible?"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blis_tui.spec.diagnostics import about
from blis_tui.spec.source import as_list, as_map

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from blis_tui.spec.diagnostics import Diagnostic
    from blis_tui.spec.source import DataPath, Document, Json


def check_rate_curve(
    document: Document, path: DataPath, client: Mapping[str, Json], otherwise: str
) -> Iterator[Diagnostic]:
    """Does a course of rates mean something, and go on? ``otherwise``: what says already when requests come."""
    curve = (*path, "rate_curve")
    if otherwise:
        message = f"`rate_curve` has no meaning with {otherwise}: when requests come is said there"
        yield about(document, curve, "BLIS2026", message, key=True, hint="remove one of them")
    last: float | None = None
    factors = []
    for at, point in enumerate(map(as_map, as_list(as_map(client.get("rate_curve")).get("points")))):
        at_s, factor = point.get("at_s"), point.get("factor")
        if not isinstance(at_s, int | float) or not isinstance(factor, int | float):
            return
        factors.append(factor)
        if (last is None and at_s) or (last is not None and at_s <= last):
            message = "the first point is at 0" if last is None else f"{at_s:g} s is not after {last:g} s"
            yield about(
                document, (*curve, "points", at, "at_s"), "BLIS2008", message, hint="list points in order of time"
            )
        last = at_s
    if not any(factors):
        yield about(document, (*curve, "points"), "BLIS2010", "all factors are zero", key=True)
