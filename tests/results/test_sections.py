"""The sections of a report, counted another way: from the records, from the request table, and against each other."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from math import sqrt
from statistics import mean
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.cluster.records import Deferred, Dispatched, Held, Split, TransferFinished, TransferStarted
from blis_tui.engine.records import Rejected, Routed
from blis_tui.results.sections.build import jain_index
from blis_tui.results.sections.request_kinds import doubled_pairs
from blis_tui.spec.metric_names import all_metrics
from tests.nightly import every
from tests.results.clusters import (
    DOCUMENTS,
    TARGETS,
    WEIGHTS,
    document,
    experiment,
    outcome,
    random_document,
    simulated,
)

if TYPE_CHECKING:
    from blis_tui.engine.records import Record
    from blis_tui.model import Experiment
    from blis_tui.results.report import Report
    from blis_tui.results.request_log import RequestRow


def good(row: RequestRow) -> bool:
    target = TARGETS[row.slo_class]
    if row.state != "completed" or row.e2e_us is None or row.ttft_us is None:
        return False
    per_token = (row.e2e_us - row.ttft_us) / max(row.output_tokens - 1, 1)
    figures = {"ttft_ms": row.ttft_us / 1e3, "e2e_ms": row.e2e_us / 1e3, "tpot_ms": per_token / 1e3}
    return all(figures[name] <= limit for name, limit in target.items())


def check(made: Experiment, report: Report, records: tuple[Record, ...]) -> None:
    """Everything that can be counted another way, and everything that must add up."""
    rows, counts = list(report.rows), report.requests
    late = {row.request_id for row in rows if row.arrival_us >= made.warm_up_us}
    states = Counter(row.state for row in rows)
    assert counts.total == len(rows) == counts.injected + counts.rejected
    assert counts.injected == (
        counts.completed + counts.still_queued + counts.still_running + counts.dropped_unservable + counts.timed_out
    )
    assert set(report.invariants.values()) == {"ok"}
    assert "littles-law" not in [warning.id for warning in report.warnings]

    on_hold = 0
    causes = Counter(record.policy for record in records if isinstance(record, Rejected))
    if report.rejections is not None:
        assert sum(report.rejections.values()) == counts.rejected == sum(causes.values())
        gateway = {name: count for name, count in report.rejections.items() if name.startswith("gateway")}
        assert sum(gateway.values()) == causes.pop("gateway", 0)
        assert {name: n for name, n in report.rejections.items() if n and name not in gateway} == causes
    if report.gateway is not None:
        found = report.gateway
        dispatched = [record for record in records if isinstance(record, Dispatched)]
        depths = [record.waiting for record in records if isinstance(record, Held)]
        assert found.offered == found.dispatched + found.full + found.displaced + found.expired + found.depth
        assert found.offered == len(depths) + found.full
        assert found.dispatched == len(dispatched)
        assert found.peak_depth == max(depths, default=0)
        assert found.held == sum(one.waited_us > 0 for one in dispatched)
        if waits := [one.waited_us for one in dispatched if one.request_id in late]:
            assert found.wait_ms.mean == pytest.approx(mean(waits) / 1e3)
        on_hold += found.depth
    if report.deferrals is not None:
        assert report.deferrals.deferred == sum(isinstance(record, Deferred) for record in records)
        on_hold += report.deferrals.waiting
    if report.disaggregation is not None:
        split = report.disaggregation
        started = [record for record in records if isinstance(record, TransferStarted)]
        finished = [record for record in records if isinstance(record, TransferFinished)]
        assert split.split == sum(isinstance(record, Split) and record.verdict == "split" for record in records)
        assert split.transfers == len(started) == len(finished) + split.transfers_under_way
        assert split.transferred_bytes == sum(transfer.bytes for transfer in started)
        assert split.peak_concurrent_transfers == max((transfer.transfers for transfer in started), default=0)
        assert split.completed + split.dropped_at_decode <= split.prefilled <= split.split
        assert split.dropped_at_decode <= counts.dropped_unservable
        if times := [one.duration_us for one in finished if one.request_id in late]:
            assert split.transfer_ms.max == max(times) / 1e3
            assert split.transfer_ms.mean == pytest.approx(mean(times) / 1e3)
        on_hold += split.transfers_under_way
    assert on_hold <= counts.still_queued

    if report.pools is not None:
        pools = report.pools.values()
        routed = Counter(record.instance for record in records if isinstance(record, Routed))
        assert sum(pool.instances for pool in pools) == len(report.instances) == made.instances
        assert sum(pool.routed for pool in pools) == sum(instance.routed for instance in report.instances)
        assert sum(pool.routed for pool in pools) <= sum(routed.values())
        for name in ("completed", "steps", "busy_us", "output_tokens"):
            assert sum(getattr(pool, name) for pool in pools) == sum(
                getattr(instance, name) for instance in report.instances
            )
        assert sum(pool.kv.blocks for pool in pools) == report.kv.blocks
        assert sum(pool.kv.peak_used for pool in pools) == report.kv.peak_used
    if report.slo is not None:
        judged = [row for row in rows if row.slo_class in TARGETS]
        assert report.slo.good == sum(map(good, judged)) == sum(class_.good for class_ in report.slo.classes.values())
        injected = sum(row.state != "rejected" for row in judged)
        assert report.slo.injected == injected
        assert report.slo.attainment == (report.slo.good / injected if injected else None)
        assert report.slo.goodput_rps == pytest.approx(report.slo.good / report.duration_us * 1e6)
        for name, class_ in report.slo.classes.items():
            members = [row for row in judged if row.slo_class == name]
            assert class_.good == sum(map(good, members)) <= class_.completed
            assert {part for part in ("ttft", "tpot", "e2e") if getattr(class_, part) is not None} == {
                part.removesuffix("_ms") for part in TARGETS[name]
            }
            for part in (class_.ttft, class_.tpot, class_.e2e):
                assert part is None or class_.good <= part.met <= part.counted <= class_.completed
    if report.fairness is not None:
        tokens = Counter({row.tenant_id: 0 for row in rows})
        for row in rows:
            tokens[row.tenant_id] += row.output_tokens
        assert report.fairness.tenants == len(report.tenants) == len(tokens)
        assert report.fairness.jain_index == jain_index([*tokens.values()])
    if report.fitness is not None:
        parts = report.fitness.components
        assert report.fitness.score == pytest.approx(sum(WEIGHTS[name] * parts[name] for name in WEIGHTS))
        rate = report.throughput.requests_per_s
        assert parts["throughput"] == pytest.approx(rate / (rate + 100))
        if report.latency.ttft_ms.p99 is not None:
            assert parts["p99_ttft"] == pytest.approx(1 / (1 + report.latency.ttft_ms.p99))
    if report.saturation is not None:
        assert (report.saturation.label, report.saturation.score) == saturation(rows)
    assert states["completed"] == counts.completed


def saturation(rows: list[RequestRow]) -> tuple[str, float]:
    """The composite detector, written down once more: event by event, without sums kept."""
    events = [(row.arrival_us, 0, at) for at, row in enumerate(rows) if row.state != "rejected"]
    events += [(row.completed_us, 1, at) for at, row in enumerate(rows) if row.completed_us is not None]
    events.sort()
    verdicts: list[str] = []
    arrived, latencies, score = 0, [], 0.0
    for time_us, ends, at in events:
        arrived += not ends
        if ends:
            latencies.append(rows[at].e2e_us or 0)
        if time_us <= events[-1][0] - 30_000_000:
            continue
        n, growth = len(latencies), 0.0
        if n >= 20:
            cuts = [0, n // 4, 2 * (n // 4), 3 * (n // 4), n]
            quarters = [mean(latencies[start:end]) for start, end in pairwise(cuts)]
            first, second = mean(latencies[: n // 2]), mean(latencies[n // 2 :])
            growth = max(0.0, (second - first) / first) if quarters == sorted(set(quarters)) else 0.0
        score, floor = max(1 - n / arrived, min(growth, 1.0)), 1 / sqrt(arrived)
        verdicts.append("stable" if score < floor else "overloaded" if growth > floor else "backlogged")
    order = ["stable", "backlogged", "overloaded"]
    return max(order, key=lambda one: (verdicts.count(one), order.index(one))) if verdicts else "stable", score


@pytest.mark.parametrize("name", DOCUMENTS)
def test_every_figure_can_be_counted_another_way(name: str) -> None:
    check(experiment(name), *outcome(name))


@pytest.mark.parametrize("name", DOCUMENTS)
def test_latencies_of_sections_leave_the_warm_up_out(name: str) -> None:
    arrivals = sorted(row.arrival_us for row in outcome(name)[0].rows)
    made = blis_tui.load({**DOCUMENTS[name], "warm_up_us": arrivals[len(arrivals) // 2]})
    check(made, *simulated(made))


@pytest.mark.parametrize("seed", range(12))
def test_random_clusters_add_up(seed: int) -> None:
    made = blis_tui.load(random_document(seed))
    check(made, *simulated(made))


@pytest.mark.parametrize("seed", every(3, range(100, 130)))
def test_more_random_clusters_add_up(seed: int) -> None:
    made = blis_tui.load(random_document(seed))
    check(made, *simulated(made))


@pytest.mark.parametrize("seed", [0, 3])
def test_littles_law_holds_on_the_way_too(seed: int) -> None:
    """After every few events, the number present by the books of requests is the one counted as they come and go."""
    simulation = blis_tui.Simulation(blis_tui.load({**DOCUMENTS["early"], "seed": seed}))
    while not simulation.done:
        simulation.run(max_events=11)
        assert "littles-law" not in [finding.id for finding in simulation.checkup().findings], simulation.events


def test_sections_are_there_where_they_apply() -> None:
    parts = {name: set(outcome(name)[0].to_dict()) for name in DOCUMENTS}
    plain = set(blis_tui.run(blis_tui.load(document({}, {}))).to_dict())
    always = {"fairness", "rejections", "anomalies", "saturation"}
    assert {name: part - plain for name, part in parts.items()} == {
        "gateway": always | {"gateway"},
        "split": always | {"pools", "disaggregation", "slo", "fitness"},
        "early": always | {"pools", "disaggregation", "gateway"},
        "tight": always | {"pools", "disaggregation", "slo"},
        "budgets": always | {"deferrals"},
    }
    assert set(blis_tui.run(blis_tui.load(document({}, {}, report="full"))).to_dict()) - plain == always


LEFT_OUT = (
    "requests.lost",
    "kv.allocation_failures",
    "kv.block_hit_rate",
    *(f"kv.preempted_{one}" for one in ("lookups", "queries", "hits")),
)
"""What reports have only where there was any of it."""


def test_expectations_can_name_every_figure_of_every_section() -> None:
    sections: dict[str, object] = {}
    for one in ("split", "early", "budgets"):
        sections |= outcome(one)[0].to_dict()
    sections |= blis_tui.run(blis_tui.load({**DOCUMENTS["split"], "warm_up_us": 1000, "counterfactual": 1})).to_dict()
    memory = {"policy.preemption.restore": "swap", "engine.kv_tiers": {"kind": "mirror", "cpu_blocks": 9}}
    sections |= blis_tui.run(blis_tui.load(DOCUMENTS["budgets"], set=memory)).to_dict()
    few = {"policy": "llm-serving-sim", "workload.requests": 20, "engine.pipeline_parallel": 2}
    one_pass = blis_tui.run(blis_tui.load("quickstart", set=few)).to_dict()
    sections |= {name: one_pass[name] for name in ("prompt_throughput", "pipeline")}
    of_sessions = {"workload.clients.0.session": {"turns": 2}, "workload.requests": 20}
    sections["sessions"] = blis_tui.run(blis_tui.load("quickstart", set=of_sessions)).to_dict()["sessions"]
    adapted = {
        "workload.clients.0.adapters": {"count": 3},
        "workload.clients.0.reasoning": {"ratio": 0.5},
        "workload.clients.0.multimodal": {"images": {"tokens": 20}},
        "engine.lora": {"max_loras": 2},
        "engine.speculative": {"draft_tokens": 2, "acceptance": 0.6},
        "policy.batching": {"kind": "vllm-v1", "async_scheduling": False},
        "workload.requests": 20,
    }
    drafted = blis_tui.run(blis_tui.load("quickstart", set=adapted)).to_dict()
    sections |= {name: drafted[name] for name in ("adapters", "speculative", "reasoning", "multimodal")}
    wide = {
        "model": "qwen3-30b-a3b",
        "latency": {"kind": "operators"},
        "engine": {"data_parallel": 2, "expert_parallel": True},
        "policy.batching": "vllm-v1",
        "workload.requests": 20,
    }
    sections["ranks"] = blis_tui.run(blis_tui.load("quickstart", set=wide)).to_dict()["ranks"]
    photos = blis_tui.run(blis_tui.load("photos", set={"expect": [], "horizon_us": 100_000}))
    sections["encoder"] = photos.to_dict()["encoder"]
    for metric in (one for one in all_metrics() if not one.startswith("lifecycle.") and one not in LEFT_OUT):
        group, _, name = metric.rpartition(".")
        inside: object = sections
        for part in group.split(".") if group else ():
            assert isinstance(inside, dict)
            inside = inside[part]
        assert isinstance(inside, dict)
        assert name in inside, metric
    wishes = [
        {"metric": "slo.classes.critical.attainment", "min": 0},
        {"metric": "pools.decode.busy_share", "max": 2},
        {"metric": "disaggregation.transfer_ms.p99", "min": 0},
        {"metric": "rejections.always-admit", "equals": 0},
        {"metric": "saturation.label", "equals": "stable"},
        {"metric": "fitness.components.throughput", "max": 1},
    ]
    made = blis_tui.run(blis_tui.load({**DOCUMENTS["split"], "expect": wishes}))
    assert [expectation.value is not None for expectation in made.expectations] == [True] * len(wishes)


def test_a_pool_is_never_busy_for_longer_than_the_run() -> None:
    """The busy time has all of a step that the horizon cuts off."""
    pools = [{"name": name, "instances": 1} for name in ("left", "right")]
    busy = {"cluster": {"pools": pools}, "workload.rate_per_s": 200, "horizon_us": 1_000_000, "expect": []}
    report = blis_tui.run(blis_tui.load("quickstart", set=busy))
    assert report.pools is not None
    assert max(pool.busy_us for pool in report.pools.values()) > report.duration_us == 1_000_000
    assert max(pool.busy_share for pool in report.pools.values()) == 1.0


def test_pairs_of_which_the_earlier_took_twice_as_long() -> None:
    values = [5, 30, 1, 14, 2, 2, 90, 44, 7, 0, 0]
    pairs = [(value, two) for at, value in enumerate(values) for two in values[at + 1 :] if value > 2 * two]
    assert doubled_pairs(values) == (len(pairs), sorted(values))


def test_jains_index() -> None:
    assert jain_index([]) == 0.0
    assert jain_index([0, 0]) == 1.0
    assert jain_index([7, 7, 7]) == 1.0
    assert jain_index([9, 0, 0]) == pytest.approx(1 / 3)


def test_models_have_the_latencies_of_their_requests_without_the_warm_up() -> None:
    names = ("llama-3.1-8b-instruct", "qwen3-14b")
    pools = [{"name": name, "instances": 1, "model": name} for name in names]
    clients = [{"id": name, "model": name, "input_tokens": 300, "output_tokens": 30} for name in names]
    made = {"cluster": {"pools": pools}, "workload": {"requests": 60, "rate_per_s": 40, "clients": clients}}
    report = blis_tui.run(blis_tui.load("quickstart", set={**made, "expect": [], "warm_up_us": 500_000}))
    assert report.models is not None
    assert {model.model for model in report.models} == {*names}
    for model in report.models:
        rows = [row for row in report.rows if row.model == model.model]
        times = [row.e2e_us for row in rows if row.arrival_us >= 500_000 and row.e2e_us is not None]
        assert (model.completed, model.output_tokens) == (len(rows), 30 * len(rows))
        assert 0 < len(times) < len(rows)
        assert (model.e2e_ms.min, model.e2e_ms.max) == (min(times) / 1000, max(times) / 1000)
        assert model.e2e_ms.mean == pytest.approx(sum(times) / len(times) / 1000)
