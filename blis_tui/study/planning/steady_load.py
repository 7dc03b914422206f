"""Whether a load lasts: a plan is for one that does, and of one that follows a curve for its peak."""

from __future__ import annotations

from itertools import pairwise
from math import fsum
from typing import TYPE_CHECKING, Final

from blis_tui.base.errors import InputError
from blis_tui.base.source import as_list, as_map
from blis_tui.workload.arrivals import CLOSED_LOOP

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from blis_tui.base.source import Json

    Curve = Sequence[tuple[float, float]]

_NOTHING: Final = 1e-9


def require_steady(workload: Mapping[str, Json], rate_per_s: float | None, *, max_rate: bool = False) -> None:
    """Refuse a load that follows a curve: runs until a verdict is certain would see no more than its beginning.

    Args:
        workload: the workload of a resolved experiment.
        rate_per_s: the rate to plan for; None = the workload's own.
        max_rate: whether the highest rate is asked for instead.

    Raises:
        InputError: it does; the help has the options that plan for its peak.
    """
    listed = enumerate(map(as_map, as_list(workload.get("clients"))))
    clients = {at: client for at, client in listed if _is_rated(client)}
    curves = {at: _curve(client) for at, client in clients.items()}
    rate = rate_per_s or _number(workload, "rate_per_s")
    if all(len(dict.fromkeys(factor for _, factor in curve)) == 1 for curve in curves.values()) or not rate:
        return
    shares = {at: _number(client, "share") for at, client in clients.items()}
    times = dict.fromkeys(at_s for curve in curves.values() for at_s, _ in curve)
    peak = max(
        ({at: share * _factor(curves[at], at_s) for at, share in shares.items()} for at_s in times),
        key=lambda load: fsum(load.values()),
    )
    of_rate = fsum(peak.values()) / fsum(shares.values())
    changes = [f"workload.clients.{at}.rate_curve=null" for at, client in clients.items() if "rate_curve" in client]
    if len(clients) > 1:
        # One that sends nothing at the peak has a share of next to nothing: none is no share.
        changes += [f"workload.clients.{at}.share={share or _NOTHING:.6g}" for at, share in peak.items()]
    raise InputError(
        f"the load follows `rate_curve`, up to {of_rate:.6g} times `rate_per_s`, and a plan is for a load that lasts",
        help=" ".join(
            ["plan for the peak:", *([] if max_rate else [f"--rate {of_rate * rate:.6g}"])]
            + [f"--set {change}" for change in changes]
        )
        + "; `blis-tui run` shows how a cluster copes with the curve",
    )


def _is_rated(client: Mapping[str, Json]) -> bool:
    return as_map(client.get("arrivals")).get("kind") != CLOSED_LOOP


def _curve(client: Mapping[str, Json]) -> Curve:
    """Return times and factors of a client's rate."""
    points = [as_map(point) for point in as_list(as_map(client.get("rate_curve")).get("points"))]
    return [(_number(point, "at_s"), _number(point, "factor")) for point in points] or [(0.0, 1.0)]


def _factor(curve: Curve, at_s: float) -> float:
    """Return the factor at a time; one that repeats is taken to go on as it ends."""
    for (start, low), (end, high) in pairwise(curve):
        if start <= at_s <= end:
            return low + (high - low) * (at_s - start) / (end - start)
    return curve[-1][1]


def _number(figures: Mapping[str, Json], name: str) -> float:
    value = figures.get(name)
    return float(value) if isinstance(value, int | float) else 0.0
