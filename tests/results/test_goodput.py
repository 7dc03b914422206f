"""Targets of SLO classes are met up to the very figure."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from blis_tui.engine.request import RequestState
from blis_tui.model import SloTarget
from blis_tui.results.request_book import NO_EXTRAS
from blis_tui.results.sections.quality import slo_report

if TYPE_CHECKING:
    from blis_tui.results.request_log import RequestNumbers, RequestTable

# TTFT 100 ms, TPOT (500 - 100) / 4 = 100 ms, E2E 500 ms
ROW = SimpleNamespace(number=0, state=RequestState.COMPLETED, ttft_us=100_000, e2e_us=500_000, output_tokens=5)
TABLE = SimpleNamespace(group=lambda _row: ("", "", (), 0, "", ""), extras=lambda _number: NO_EXTRAS)


@pytest.mark.parametrize(
    ("target", "good"),
    [
        (SloTarget(ttft_ms=100.0), 1),
        (SloTarget(ttft_ms=99.999), 0),
        (SloTarget(tpot_ms=100.0), 1),
        (SloTarget(tpot_ms=99.999), 0),
        (SloTarget(e2e_ms=500.0), 1),
        (SloTarget(e2e_ms=499.999), 0),
        (SloTarget(ttft_ms=100.0, tpot_ms=100.0, e2e_ms=500.0), 1),
        (SloTarget(ttft_ms=100.0, tpot_ms=99.999, e2e_ms=500.0), 0),
    ],
)
def test_a_figure_that_is_just_the_target_meets_it(target: SloTarget, good: int) -> None:
    rows = [cast("RequestNumbers", ROW)]
    report = slo_report({"standard": target}, rows, cast("RequestTable", TABLE), 2_000_000)
    assert (report.injected, report.good, report.attainment, report.goodput_rps) == (1, good, good, good / 2)
    judged = [met for met in (report.classes["standard"].ttft, report.classes["standard"].tpot) if met is not None]
    assert all(met.counted == 1 for met in judged)
