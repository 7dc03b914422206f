"""Before anything runs, expectations on what no report of the experiment has are named."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.spec.validate import validate
from blis_tui.study.figures import require_expected
from tests.spec.test_metric_names import CHAT

if TYPE_CHECKING:
    from pathlib import Path

IN_THE_REPORT = (
    "latency.ttft_ms.p99",
    "slo_classes.standard.ttft_ms.p99",
    "slo_classes.batch.completed",
    "tenants.acme.total",
    "pools.new.kv.hit_rate",
    "instances.1.routed",
    "invariants.INV-1",
)


def _check(metrics: tuple[str, ...], **more: Any) -> None:
    document = {**yaml.safe_load(CHAT), "expect": [{"metric": metric, "min": 0} for metric in metrics], **more}
    resolved = validate("-", stdin_text=yaml.safe_dump(document)).resolved
    assert resolved is not None
    require_expected(resolved)


@pytest.mark.parametrize(
    ("metric", "hint"),
    [
        ("slo_classes.standrd.ttft_ms.p99", "did you mean `standard`?"),
        ("slo_classes.critical.completed", "clients have `batch`, `standard`"),
        ("tenants.amce.total", "did you mean `acme`?"),
        ("pools.older.busy_share", "did you mean `old`?"),
        ("instances.2.routed", "`instances` has `0`, `1`"),
        ("gateway.peak_depth", "reports contain `gateway` only with"),
        ("speculative.num_draft_tokens", "reports contain `speculative` only with `engine.speculative`"),
    ],
)
def test_what_no_run_reports_is_named(metric: str, hint: str) -> None:
    with pytest.raises(SpecError) as caught:
        _check((*IN_THE_REPORT, metric))
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.message) == ("BLIS2069", f"no run of this experiment reports `{metric}`")
    assert hint in (diagnostic.help or "")


def test_what_the_report_of_a_run_has_is_taken() -> None:
    _check(IN_THE_REPORT)
    report = blis_tui.run(blis_tui.load(yaml.safe_load(CHAT))).to_dict()
    for metric in IN_THE_REPORT:
        here: Any = report
        for step in metric.split("."):
            here = here[int(step)] if isinstance(here, list) else here[step]
        assert here is not None


def test_a_trace_is_not_read_for_that(tmp_path: Path) -> None:
    """Only its rows tell which tenants there are, and it may be large."""
    rows = tmp_path / "rows.jsonl"
    rows.write_text('{"timestamp": 0, "input_length": 5, "output_length": 5, "hash_ids": [0]}\n', encoding="utf-8")
    trace = {"trace": {"file": str(rows), "format": "mooncake"}}
    _check(("tenants.acme.total",), workload=trace)
