"""Loads that follow a curve are planned for at their peak."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from blis_tui.base.errors import InputError
from blis_tui.study.planning.steady_load import require_steady

Curve = list[tuple[float, float]]
DAY: Curve = [(0, 0.1), (10, 0.4), (20, 1.0), (30, 0.2)]
NIGHT: Curve = [(0, 1.5), (15, 0.5), (40, 1.2)]


def workload(*curves: Curve | None, shares: tuple[float, ...] = (1.0, 3.0)) -> dict[str, Any]:
    clients: list[dict[str, Any]] = []
    for curve, share in zip(curves, shares, strict=False):
        points = [{"at_s": at_s, "factor": factor} for at_s, factor in curve or ()]
        clients.append({"share": share, **({} if curve is None else {"rate_curve": {"points": points}})})
    return {"rate_per_s": 8.0, "clients": clients}


def rate_at(load: dict[str, Any], at_s: float) -> float:
    """Worked out the long way: each client's part of the rate, by its curve."""
    whole = 0.0
    for client in load["clients"]:
        points = [(point["at_s"], point["factor"]) for point in client.get("rate_curve", {}).get("points", [])]
        factor = points[-1][1] if points else 1.0
        for (start, low), (end, high) in pairwise(points):
            if start <= at_s < end:
                factor = low + (high - low) * (at_s - start) / (end - start)
        whole += client["share"] * factor
    return float(8.0 * whole / sum(client["share"] for client in load["clients"]))


@pytest.mark.parametrize("curves", [(DAY,), (DAY, NIGHT), (DAY, None), (None, NIGHT)])
def test_the_peak_is_where_all_clients_together_send_most(curves: tuple[Curve | None, ...]) -> None:
    load = workload(*curves)
    with pytest.raises(InputError, match=r"follows `rate_curve`, up to [\d.]+ times `rate_per_s`") as error:
        require_steady(load, None)
    advice = error.value.help or ""
    match = re.match(r"plan for the peak: --rate ([\d.]+) --set ", advice)
    assert match is not None
    highest = max(rate_at(load, at_s / 10) for at_s in range(401))
    assert float(match[1]) == pytest.approx(highest, rel=1e-4)
    # Its shares are those of that moment.
    shares = [float(share) for share in re.findall(r"\.share=([\d.]+)", advice)]
    if shares:
        old = sum(client["share"] for client in load["clients"])
        assert 8.0 * sum(shares) / old == pytest.approx(highest, rel=1e-4)
    assert advice.count("rate_curve=null") == len([curve for curve in curves if curve])


def test_what_is_asked_for_is_in_the_advice() -> None:
    with pytest.raises(InputError) as error:
        require_steady(workload(DAY), 40.0)
    copes = "; `blis-tui run` shows how a cluster copes with the curve"
    assert error.value.help == f"plan for the peak: --rate 40 --set workload.clients.0.rate_curve=null{copes}"
    with pytest.raises(InputError) as error:
        require_steady(workload(DAY), None, max_rate=True)
    assert error.value.help == f"plan for the peak: --set workload.clients.0.rate_curve=null{copes}"


def test_a_client_that_sends_nothing_at_the_peak_keeps_a_share_that_a_document_may_have() -> None:
    with pytest.raises(InputError) as error:
        require_steady(workload([(0, 1.0), (10, 0.0)], [(0, 0.0), (10, 5.0)]), None)
    shares = re.findall(r"\.share=(\S+?)[; ]", f"{error.value.help} ")
    assert [float(share) for share in shares] == [1e-9, 15.0]


def test_a_load_that_lasts_is_none_of_it() -> None:
    require_steady(workload(None), None)
    require_steady(workload([(0, 0.5)]), 3.0)
    users = workload(DAY)
    users["clients"][0]["arrivals"] = {"kind": "closed-loop", "users": 3}
    require_steady(users, None)
