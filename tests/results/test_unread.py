"""Keys that nothing reads: the warning is there just where leaving the key out changes no request."""

from __future__ import annotations

from pathlib import Path

import pytest

import blis_tui
from blis_tui.model.control_plane import SLO_PRIORITIES
from blis_tui.spec.shipped import builtin

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
    keys = [key for warning in runs[0].warnings if warning.id == "unread-keys" for key in warning.keys]
    with_it, without = ([row._replace(gateway_us=None) for row in run.rows] for run in runs)
    assert (key in keys) is (with_it == without), (key, rules)
    return key not in keys


def kinds(point: str) -> list[str]:
    return [kind for kind in builtin().names(point) if kind != "lpm"]  # that one needs a radix tree


def test_priorities_are_read_by_some_orders_and_victims() -> None:
    pairs = {(order, "tail") for order in kinds("policy.scheduling")}
    pairs |= {("fcfs", victim) for victim in kinds("policy.preemption.victim")}
    read = {
        (order, victim)
        for order, victim in sorted(pairs)
        if is_read(
            "policy.priority",
            "slo-class",
            {"policy.scheduling": order, "policy.preemption": {"victim": victim}},
            {"policy.priority": "constant"},
        )
    }
    assert read == {("priority-fcfs", "tail"), ("reverse-priority", "tail"), ("fcfs", "priority")}


@pytest.mark.parametrize("instances", [1, 2])
def test_whether_a_tier_is_shared_is_read_where_another_instance_lists_it(instances: int) -> None:
    prefix = {f"workload.clients.{number}.prefix": {"group": "all", "tokens": 200} for number in range(2)}
    tiers = {"engine.kv_tiers": {"kind": "offload", "tiers": [{"name": "store", "blocks": 900}]}}
    key = "engine.kv_tiers.tiers.0.shared"
    rules = {**prefix, **tiers, "cluster.instances": instances, "workload.rate_per_s": 1.0}
    assert is_read(key, True, rules, {}) is (instances > 1)


@pytest.mark.parametrize("disabled", [False, True])
def test_whether_windows_end_is_read_by_models_with_windows(disabled: bool) -> None:
    for model, read in (("gpt-oss-120b", True), ("qwen3-14b", False)):
        changed = {"engine.disable_hybrid_kv_cache_manager": disabled, "model": model, "policy.batching": "vllm-v1"}
        report = blis_tui.run(blis_tui.load("quickstart", set={**BASE, **changed, "latency": "roofline"}))
        keys = [key for warning in report.warnings if warning.id == "unread-keys" for key in warning.keys]
        assert keys == ([] if read else ["engine.disable_hybrid_kv_cache_manager"]), model


def test_what_goes_by_priority_reads_nothing_where_there_is_but_one() -> None:
    for priority in ("constant", "slo-class"):
        rules: dict[str, object] = {"policy.priority": priority, "policy.batching": "vllm-v1"}
        for order in ("priority-fcfs", "reverse-priority"):
            assert is_read("policy.scheduling", order, rules, {}) is (priority == "slo-class")
        assert is_read("policy.preemption.victim", "priority", rules, {}) is (priority == "slo-class")


@pytest.mark.parametrize("key", ["policy.tenant_budgets.fractions", "policy.gateway.weights"])
def test_shares_of_tenants_that_nobody_is(key: str) -> None:
    """A name that is misspelt leaves its tenant without the limit that was meant for it."""
    mine = {"policy.gateway": {"fairness": "weighted", "saturation": {"kind": "concurrency", "max_concurrency": 2}}}
    few: dict[str, object] = {**BASE, **(mine if "gateway" in key else {}), "workload.clients.0.tenant": "acme"}
    for names, unread in ((["acme"], []), (["acme", "acne"], [f"{key}.acne"])):
        run = blis_tui.run(blis_tui.load("quickstart", set={**few, key: dict.fromkeys(names, 0.5)}))
        assert [one for warning in run.warnings if warning.id == "unread-keys" for one in warning.keys] == unread


def unread_keys(**changes: object) -> list[str]:
    run = blis_tui.run(
        blis_tui.load("quickstart", set={**BASE, **{k.replace("__", "."): v for k, v in changes.items()}})
    )
    return [key for warning in run.warnings if warning.id == "unread-keys" for key in warning.keys]


def test_targets_of_classes_that_nobody_has() -> None:
    """Else a run whose requests are all of other classes has a goodput of zero."""
    targets = {"critical": {"ttft_ms": 200}, "background": {"ttft_ms": 900}}
    assert unread_keys(slo_targets=targets) == []
    assert unread_keys(slo_targets={**targets, "batch": {"e2e_ms": 5000}}) == ["slo_targets.batch"]
    held = {"saturation": {"kind": "concurrency", "max_concurrency": 2}, "order": "slo-deadline"}
    for name, unread in (("critical", []), ("sheddable", ["policy.gateway.slo_targets_us.sheddable"])):
        assert unread_keys(policy__gateway={**held, "slo_targets_us": {name: 500_000}}) == unread


@pytest.mark.parametrize(
    ("path", "value"), [("hardware.memory_bandwidth_tb_per_s", 6.7), ("hardware.peak_tflops.bf16", 2000)]
)
def test_measured_step_times_do_not_depend_on_the_figures_of_the_gpu(path: str, value: float) -> None:
    """Whoever asks what a faster memory would bring gets the same latencies, and is told why."""
    for latency in ("operators", "fitted", "trained-physics"):
        is_used = is_read(path, value, {"latency": latency}, {})
        assert is_used is (latency != "operators")


@pytest.mark.parametrize("name", ["h100", "h200", "b200", "b300", "gb200", "gb300", "l40s", "rtx-pro-6000", "a100-80"])
def test_the_figures_of_shipped_hardware_are_those_of_the_measured_one(name: str) -> None:
    assert unread_keys(hardware=name, model="llama-3.1-8b-instruct", latency="operators") == []


def test_sglang_reads_priorities_where_it_is_told_to() -> None:
    for enabled in (True, False):
        rules = {
            "policy.batching": {"kind": "sglang", "enable_priority_scheduling": enabled},
            "engine": {**TIGHT, "block_size_tokens": 1, "kv_blocks": 2000, "max_model_len": 1024},
        }
        assert is_read("policy.priority", "slo-class", rules, {"policy.priority": "constant"}) is enabled


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
        "tenant_budgets": {"fractions": {"": 0.1}},
    }
    report = blis_tui.run(
        blis_tui.load("quickstart", set={**BASE, "policy.slo_priorities": VALUED, f"policy.{rule}": rules[rule]})
    )
    assert "unread-keys" not in {warning.id for warning in report.warnings}


def test_a_gateway_that_is_never_saturated_holds_nothing() -> None:
    saturated = {"saturation": {"kind": "concurrency", "max_concurrency": 4}}
    for gateway, read in (({"max_depth": 3}, False), (saturated, True)):
        assert is_read("policy.gateway", gateway, {}, {}) is read


def test_the_share_of_memory_is_read_where_kv_blocks_are_worked_out_from_it() -> None:
    for blocks, share, read in (("auto", 0.7, True), (64, 0.7, False), (64, 0.92, True)):
        engine = {"max_num_seqs": 4, "kv_blocks": blocks, "gpu_memory_utilization": share}
        run = blis_tui.run(blis_tui.load("quickstart", set={**BASE, "engine": engine}))
        keys = [key for warning in run.warnings if warning.id == "unread-keys" for key in warning.keys]
        assert keys == ([] if read else ["engine.gpu_memory_utilization"]), (blocks, share)


def test_blocks_that_are_just_what_would_fit_do_not_contradict_the_share_of_memory() -> None:
    """Written down from a run with `kv_blocks: auto`, say."""
    engine = {"gpu_memory_utilization": 0.7, "kv_blocks": "auto"}
    fitting = blis_tui.load("quickstart", set={**BASE, "engine": engine}).pools[0].engine.kv_blocks
    run = blis_tui.run(blis_tui.load("quickstart", set={**BASE, "engine": {**engine, "kv_blocks": fitting}}))
    assert "unread-keys" not in {warning.id for warning in run.warnings}


@pytest.mark.parametrize("rule", ["sglang", "vllm-v1"])
def test_a_rule_with_a_token_budget_of_its_own_reads_no_other(rule: str) -> None:
    rules: dict[str, object] = {"policy": rule, "engine": {**TIGHT, "kv_blocks": 900, "max_model_len": 2048}}
    assert is_read("engine.max_num_batched_tokens", 128, rules, {}) is (rule == "vllm-v1")


SIGNALS: dict[str, int] = {"refresh_interval_us": 700_000, "cache_signal_delay_us": 700_000}
SHARED: dict[str, object] = {
    "cluster.instances": 3,
    "engine": {"max_num_seqs": 4, "kv_blocks": 200},
    "workload.clients.0.prefix": {"group": "system", "tokens": 160},
}


def readers_of(key: str, path: str, values: list[object], rules: dict[str, object]) -> list[object]:
    """The values at a path with which the age of signals has an effect; the warning says so for just the others."""
    signal = f"cluster.signals.{key}"
    return [value for value in values if is_read(signal, SIGNALS[key], {**SHARED, **rules, path: value}, {signal: 0})]


def test_the_age_of_signals_is_read_by_what_compares_them() -> None:
    routing: list[object] = [kind for kind in kinds("policy.routing") if kind not in {"weighted", "always-busiest"}]
    aged = readers_of("refresh_interval_us", "policy.routing", routing, {})
    assert aged == [one for one in routing if one != "round-robin"]
    scorers: list[object] = [kind for kind in kinds("policy.routing.scorers") if kind != "lora-affinity"]
    weighted: dict[str, object] = {"policy.routing": {"kind": "weighted", "scorers": [{"kind": "queue-depth"}]}}
    path = "policy.routing.scorers.0.kind"
    idle = {"active-requests", "no-hit-lru", "precise-prefix-cache", "prefix-affinity"}
    assert set(scorers) - set(readers_of("refresh_interval_us", path, scorers, weighted)) == idle
    assert readers_of("cache_signal_delay_us", path, scorers, weighted) == ["no-hit-lru", "precise-prefix-cache"]
    assert readers_of("cache_signal_delay_us", "policy.routing", routing, {}) == ["least-estimated-ttft"]


def test_the_age_of_signals_is_read_by_admission_and_gateway_too() -> None:
    rules: dict[str, object] = {"policy.routing": "round-robin"}
    settings = {
        "tier-shed": {"overload_threshold": 3},
        "gaie-legacy": {"queue_depth_threshold": 1},
        "token-bucket": {"capacity_tokens": 900, "refill_tokens_per_s": 2000},
    }
    admission: list[object] = [{"kind": kind, **settings.get(kind, {})} for kind in kinds("policy.admission")]
    read = readers_of("refresh_interval_us", "policy.admission", admission, {**rules, "policy.slo_priorities": VALUED})
    assert [one["kind"] for one in read if isinstance(one, dict)] == ["tier-shed", "gaie-legacy"]
    held: dict[str, object] = {**rules, "policy.gateway": {"saturation": {"kind": "concurrency", "max_concurrency": 2}}}
    saturation: list[object] = [{"kind": "concurrency", "max_concurrency": 2}, {"kind": "utilization"}]
    assert readers_of("refresh_interval_us", "policy.gateway.saturation", saturation, held) == saturation[1:]


def test_the_age_of_signals_is_not_read_where_there_is_no_choice() -> None:
    one: dict[str, object] = {"cluster.instances": 1, "policy.routing": "least-loaded"}
    assert not readers_of("refresh_interval_us", "policy.routing", ["least-loaded"], one)
    run = blis_tui.run(blis_tui.load("autoscaling", set={"cluster.signals.refresh_interval_us": 5000, "expect": []}))
    assert "unread-keys" not in {warning.id for warning in run.warnings}


def test_no_shipped_experiment_has_such_keys() -> None:
    """What they set is read: the goldens of their reports have the warnings of whole runs."""
    reports = [path.read_text() for path in sorted((Path(__file__).parents[2] / "golden").glob("*.report.json"))]
    assert len(reports) > 40
    assert not [text[:200] for text in reports if '"unread-keys"' in text]


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
    report = blis_tui.run(blis_tui.load("quickstart", set=changes, plugins=[str(file)]))
    assert "unread-keys" not in {warning.id for warning in report.warnings}


UNUSED: dict[str, tuple[str, str, object]] = {
    "engine.lora.ranks.nosuch": ("lora-adapters", "engine.lora.ranks", {"nosuch": 8}),
    "engine.encoder": ("quickstart", "engine.encoder", {"token_us": 50}),
    "policy.gateway.when_full": ("gateway-queue", "policy.gateway.when_full", "shed-sheddable"),
    "cluster.lifecycle": ("quickstart", "cluster.lifecycle", {"loading_delay_us": 5}),
    "cluster.lifecycle.warm_up_factor": ("autoscaling", "cluster.lifecycle.warm_up_factor", 2),
    "cluster.lifecycle.warm_up_requests": ("autoscaling", "cluster.lifecycle.warm_up_requests", 2),
    "cluster.lifecycle.drain": ("instance-dies", "cluster.lifecycle.drain", "immediate"),
    "cluster.autoscaler.scale_up_threshold": (
        "autoscaling",
        "cluster.autoscaler",
        {"max_instances": 4, "scale_up_threshold": 0.7, "rule": {"kind": "hpa", "target": 5}},
    ),
    "cluster.autoscaler.scale_down_stabilization_window_us": (
        "autoscaling",
        "cluster.autoscaler",
        {"max_instances": 4, "scale_down_stabilization_window_us": 5, "rule": "dynamo-load"},
    ),
    "cluster.autoscaler.scale_up_stabilization_window_us": (
        "autoscaling",
        "cluster.autoscaler",
        {"max_instances": 4, "scale_up_stabilization_window_us": 5, "rule": {"kind": "hpa", "behavior": False}},
    ),
    "cluster.disaggregation.undisaggregated": ("disaggregation", "cluster.disaggregation.undisaggregated", "all"),
    "cluster.failures.0": ("quickstart", "cluster.failures", [{"instance": 0, "at_us": 10**14}]),
}


@pytest.mark.parametrize("key", UNUSED)
def test_what_no_request_and_no_instance_of_the_run_uses_is_told(key: str) -> None:
    name, path, value = UNUSED[key]
    runs = [
        blis_tui.run(blis_tui.load(name, set={"workload.requests": 40, "expect": [], **more}))
        for more in ({}, {path: value})
    ]
    found = [[key for warning in run.warnings if warning.id == "unread-keys" for key in warning.keys] for run in runs]
    assert found == [[], [key]]
    assert [*runs[0].rows.plain()] == [*runs[1].rows.plain()]


def test_media_repairs_and_routers_that_are_used_are_not_told() -> None:
    for name, changes in {
        "photos": {},
        "instance-dies": {},
        "disaggregation": {
            "cluster.disaggregation.undisaggregated": "all",
            "cluster.disaggregation.decider": "direct-to-decode",
        },
    }.items():
        report = blis_tui.run(blis_tui.load(name, set={"workload.requests": 40, "expect": [], **changes}))
        assert "unread-keys" not in {warning.id for warning in report.warnings}, name


@pytest.mark.parametrize("order", ["prefill-first", "decode-first"])
@pytest.mark.parametrize("undisaggregated", ["decode-pool", "all"])
def test_pools_for_unsplit_requests_alone_are_told_where_they_get_none(order: str, undisaggregated: str) -> None:
    roles = ("prefill", "decode", "whole")
    cluster: dict[str, object] = {
        "pools": [{"name": role, "role": role, "instances": 1} for role in roles],
        "disaggregation": {
            "order": order,
            "undisaggregated": undisaggregated,
            "decider": {"kind": "direct-to-decode", "threshold_tokens": 200},
        },
    }
    report = blis_tui.run(blis_tui.load("quickstart", set={"cluster": cluster, "workload.requests": 40}))
    keys = {key for warning in report.warnings if warning.id == "unread-keys" for key in warning.keys}
    assert ("cluster.pools.2" in keys) == (not report.instances[2].routed)
    assert ("cluster.disaggregation.undisaggregated" in keys) == (order == "decode-first" and undisaggregated == "all")


def test_what_a_full_queue_does_is_not_what_a_full_band_does() -> None:
    gateway: dict[str, object] = {
        "bands": True,
        "per_band_capacity": 1,
        "saturation": {"kind": "concurrency", "max_concurrency": 1},
    }
    runs = [
        blis_tui.run(
            blis_tui.load(
                "quickstart", set={"workload.requests": 40, "policy.gateway": {**gateway, "when_full": when_full}}
            )
        )
        for when_full in ("reject", "shed-least-urgent")
    ]
    assert [*runs[0].rows.plain()] == [*runs[1].rows.plain()]
    found = [{key for warning in run.warnings if warning.id == "unread-keys" for key in warning.keys} for run in runs]
    assert found == [set(), {"policy.gateway.when_full"}]


@pytest.mark.parametrize(
    "cluster",
    [
        {
            "instances": 2,
            "disaggregation": {
                "prefill_instances": 1,
                "decode_instances": 1,
                "decider": {"kind": "direct-to-decode", "threshold_tokens": 200},
                "transfer": {"bandwidth_gb_per_s": 1},
            },
        },
        {"instances": 2, "failures": [{"instance": 0, "at_us": 500_000, "repair_us": 1000}]},
    ],
)
def test_an_order_by_arrival_is_not_that_of_the_queue_where_requests_come_from_elsewhere(
    cluster: dict[str, object],
) -> None:
    made: dict[str, object] = {"cluster": cluster, "engine.max_num_seqs": 1, "workload.requests": 60}
    runs = [
        blis_tui.run(blis_tui.load("quickstart", set={**made, "policy.scheduling": order, "workload.rate_per_s": 40}))
        for order in ("fcfs", "priority-fcfs")
    ]
    assert [*runs[0].rows.plain()] != [*runs[1].rows.plain()]
    assert "policy.scheduling" not in {key for warning in runs[1].warnings for key in warning.keys}
