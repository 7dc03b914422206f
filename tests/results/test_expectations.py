"""``expect:`` entries against reports."""

import pytest

from blis_tui.model import Expectation
from blis_tui.results.expectations import judge, look_up

REPORT: dict[str, object] = {
    "requests": {"completed": 5},
    "latency": {"ttft_ms": {"p99": None, "p50": 12.5}},
    "instances": [{"steps": 7}],
    "meta": {"complete": True, "engine": "1"},
}


@pytest.mark.parametrize(
    ("expectation", "holds"),
    [
        (Expectation(metric="requests.completed", equals=5), True),
        (Expectation(metric="requests.completed", equals=6), False),
        (Expectation(metric="requests.completed", min=5, max=5), True),
        (Expectation(metric="latency.ttft_ms.p50", max=12.4), False),
        (Expectation(metric="latency.ttft_ms.p50", min=12.6), False),
        (Expectation(metric="latency.ttft_ms.p99", max=250), False),
        (Expectation(metric="instances.0.steps", min=7), True),
        (Expectation(metric="instances.1.steps", min=0), False),
        (Expectation(metric="meta.engine", equals="1"), True),
        (Expectation(metric="meta.complete", equals=True), True),
        (Expectation(metric="meta.complete", equals=1), False),
        (Expectation(metric="instances.0.steps", equals=True), False),
        (Expectation(metric="meta.engine", max=3), False),
        (Expectation(metric="requests", min=0), False),
    ],
)
def test_verdicts(expectation: Expectation, holds: bool) -> None:
    assert judge(expectation, REPORT).ok is holds


def test_a_verdict_says_what_was_found_and_what_was_wanted() -> None:
    assert judge(Expectation(metric="requests.completed", min=6, max=9), REPORT).sentence() == (
        "requests.completed is 5, expected at least 6 and at most 9"
    )
    assert (
        "is nothing, expected at most 250"
        in judge(Expectation(metric="latency.ttft_ms.p99", max=250), REPORT).sentence()
    )


def test_paths_lead_to_values_only() -> None:
    assert look_up("meta.complete", REPORT) is True
    assert look_up("instances.first.steps", REPORT) is None
