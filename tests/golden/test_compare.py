"""Differences of reports, in the order in which people decide by them."""

from __future__ import annotations

from blis_tui.golden.compare import most_important_first
from blis_tui.runs.documents import Difference


def test_figures_come_first_and_where_the_report_is_from_last() -> None:
    report = (
        "/meta/spec_sha256",
        "/tokens/output",
        "/duration_us",
        "/throughput/requests_per_s",
        "/latency/ttft_ms/mean",
        "/latency/ttft_ms/p99",
        "/requests/completed",
        "/slo/attainment",
        "/kv/hit_rate",
        "/instances/0/steps",
    )
    assert [
        one.path for one in most_important_first(Difference(path=path, kind="changed", old=1, new=2) for path in report)
    ] == [
        "/slo/attainment",
        "/requests/completed",
        "/throughput/requests_per_s",
        "/latency/ttft_ms/p99",
        "/kv/hit_rate",
        "/duration_us",
        "/tokens/output",
        "/latency/ttft_ms/mean",
        "/instances/0/steps",
        "/meta/spec_sha256",
    ]
