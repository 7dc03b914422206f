"""Reports of many instances take work in proportion, whatever is expected of them."""

from dataclasses import replace

from blis_tui.model import Expectation
from blis_tui.results.report import build_report
from blis_tui.results.request_log import RequestLog
from tests.builders import Outcome, experiment, request
from tests.work import lines


def _work(instances: int, expectations: int) -> int:
    """What a report is to make, and to write."""
    made = replace(
        experiment(instances=instances),
        expect=tuple(Expectation(metric="requests.completed", equals=count) for count in range(expectations)),
    )
    outcome = Outcome(made, [request(0, 0, 8, 4)])
    cluster = outcome.cluster
    log = cluster.ledger
    assert isinstance(log, RequestLog)

    def report() -> None:
        found = build_report(made, cluster, log, complete=True, duration_us=cluster.now, invariants={})
        assert found.to_json().count('"routed"') == instances
        assert [verdict.ok for verdict in found.expectations] == [count == 1 for count in range(expectations)]

    report()  # what is imported on the way is no work
    return lines(report)


def test_expectations_cost_no_report_each() -> None:
    assert _work(100, 20) < 1.1 * _work(100, 1)


def test_twice_as_many_instances_are_twice_the_work() -> None:
    assert _work(200, 1) < 2.2 * _work(100, 1)
