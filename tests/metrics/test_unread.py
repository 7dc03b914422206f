"""Keys that nothing reads: the warning is there just where leaving the key out changes no request."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.shipped import builtin
from blis_tui.spec.model.policy import SLO_PRIORITIES

if TYPE_CHECKING:
    from pathlib import Path

TIGHT = {"max_num_seqs": 4, "kv_blocks": 64}
CLIENT = {"input_tokens": {"kind": "uniform", "min": 20, "max": 400}, "output_tokens": 60, "share": 0.5}
LOAD = {
    "requests": 60,
    "rate_per_s": 60.0,
    "clients": [{"id": "a", "slo_class": "critical", **CLIENT}, {"id": "b", "slo_class": "background", **CLIENT}],
}
BASE: dict[str, object] = {
    "workload": LOAD,
    "engine": TIGHT,
    "cluster.instances": 1,
    "expect": [],
    "horizon_us": "none",
}
VALUED = {"critical": -3, "background": 7}


def is_read(key: str, value: object, rules: dict[str, object], usual: dict[str, object]) -> bool:
    """Whether the key has an effect, beside these rules and against what is usual; the warning says so just then."""
    runs = [blis_tui.run(blis_tui.load("quickstart", set={**BASE, **rules, **one})) for one in ({key: value}, usual)]
    keys = [key for one in runs[0].warnings if one.id == "unread-keys" for key in one.keys]
    with_it, without = ([row._replace(gateway_us=None) for row in run.rows] for run in runs)
    assert (key in keys) is (with_it == without), (key, rules)
    return key not in keys


def kinds(point: str) -> list[str]:
    return [kind for kind in builtin().names(point) if kind != "lpm"]  # that one needs a radix tree


def test_priorities_are_read_by_some_orders_and_victims() -> None:
    read = {
        (order, victim)
        for order in kinds("policy.scheduling")
        for victim in kinds("policy.preemption.victim")
        if is_read(
            "policy.priority",
            "slo-class",
            {"policy.scheduling": order, "policy.preemption": {"victim": victim}},
            {"policy.priority": "constant"},
        )
    }
    assert {order for order, victim in read if victim == "tail"} == {"priority-fcfs", "reverse-priority"}
    assert ("fcfs", "priority") in read


def test_what_classes_are_worth_is_read_by_some_admission_policies() -> None:
    settings = {
        "token-bucket": {"capacity_tokens": 900, "refill_tokens_per_s": 2000},
        "tier-shed": {"overload_threshold": 3},
    }
    read = {
        kind
        for kind in kinds("policy.admission")
        if is_read(
            "policy.slo_priorities",
            VALUED,
            {"policy.admission": {"kind": kind, **settings.get(kind, {})}},
            {"policy.slo_priorities": SLO_PRIORITIES},
        )
    }
    assert read == {"tier-shed", "gaie-legacy"}


@pytest.mark.parametrize("rule", ["gateway", "tenant_budgets"])
def test_what_classes_are_worth_is_read_elsewhere_too(rule: str) -> None:
    rules = {
        "gateway": {"saturation": {"kind": "concurrency", "max_concurrency": 4}, "bands": True},
        "tenant_budgets": {"fractions": {"acme": 0.1}},
    }
    found = blis_tui.run(
        blis_tui.load("quickstart", set={**BASE, "policy.slo_priorities": VALUED, f"policy.{rule}": rules[rule]})
    )
    assert "unread-keys" not in {one.id for one in found.warnings}


def test_a_gateway_that_is_never_saturated_holds_nothing() -> None:
    saturated = {"saturation": {"kind": "concurrency", "max_concurrency": 4}}
    for gateway, read in (({"max_depth": 3}, False), (saturated, True)):
        assert is_read("policy.gateway", gateway, {}, {}) is read


def test_plug_ins_may_read_anything(tmp_path: Path) -> None:
    file = tmp_path / "orders.py"
    file.write_text(
        "from blis_tui.plugins import SCHEDULING, SortedQueue\n"
        "@SCHEDULING.plugin('mine', 'By priority.')\n"
        "def mine(settings):\n"
        "    return SortedQueue(by_priority, 'Mine')\n"
        "def by_priority(request):\n"
        "    return request.priority\n"
    )
    changes = {**BASE, "policy.priority": "slo-class", "policy.scheduling": "mine"}
    found = blis_tui.run(blis_tui.load("quickstart", set=changes, plugins=[str(file)]))
    assert "unread-keys" not in {one.id for one in found.warnings}
