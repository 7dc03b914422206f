"""Names of metrics are those of reports, also of their entries: classes, tenants, pools."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

import blis_tui
from blis_tui.base.errors import SpecError
from blis_tui.spec.metric_names import all_metrics, entry_metrics, is_metric, is_open_ended

CHAT = """
apiVersion: blis/v1
kind: Experiment
metadata: {name: chat}
model: llama-3.1-8b-instruct
hardware: h100
policy: default
cluster: {pools: [{name: old, instances: 1}, {name: new, instances: 1}]}
workload:
  requests: 30
  rate_per_s: 5
  clients:
    - {id: a, tenant: acme, input_tokens: 9, output_tokens: 3}
    - {id: b, slo_class: batch, input_tokens: 9, output_tokens: 3}
"""
"""Two SLO classes, a tenant, two pools."""


def _with(metric: str) -> dict[str, Any]:
    return {**yaml.safe_load(CHAT), "expect": [{"metric": metric, "min": 0}]}


@pytest.mark.parametrize(
    "metric", ["slo_classes.batch.latency.ttft_ms.p99", "pools.old.kv.hits", "instances.first.routed"]
)
def test_figures_that_no_run_has_are_named(metric: str) -> None:
    with pytest.raises(SpecError, match=r"BLIS2013.*there is no metric named"):
        blis_tui.load(_with(metric))


def test_each_figure_of_the_entries_of_a_report_is_one() -> None:
    report = blis_tui.run(blis_tui.load(yaml.safe_load(CHAT))).to_dict()

    def leaves(part: object, name: str) -> list[str]:
        if isinstance(part, dict):
            return [leaf for key, value in part.items() for leaf in leaves(value, f"{name}.{key}")]
        return [name]

    for part in ("slo_classes", "tenants", "pools"):
        entries = report[part]
        assert isinstance(entries, dict)
        for name, entry in entries.items():
            assert [leaf for leaf in leaves(entry, f"{part}.{name}") if leaf not in entry_metrics(part, name)] == []
    assert not [metric for metric in all_metrics() if is_open_ended(metric) or not is_metric(metric)]
