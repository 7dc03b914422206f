"""Warnings: found where they belong, with figures that can be counted another way, and nowhere else."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from functools import cache
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest
from click.testing import CliRunner

import blis_tui
from blis_tui.cli.main import cli
from blis_tui.cluster.records import TransferFinished, TransferStarted
from blis_tui.debugger.debugger import Debugger
from blis_tui.debugger.history import run_to_stop
from blis_tui.engine.records import StepFinished
from blis_tui.engine.request import RequestState
from blis_tui.engine.rules.traits import EngineBehavior
from blis_tui.results.lints.finding import Finding, LintContext, load_keys
from blis_tui.results.lints.limits import decode_tail
from blis_tui.results.lints.table import LINTS, check_all
from blis_tui.results.sections.offered_load import Throughflow
from tests.debugger.pressed_runs import RUNS, experiment, finished
from tests.results.tally import ForNobody, Tally, account_of

if TYPE_CHECKING:
    from blis_tui.engine.records import Record
    from blis_tui.results.lints.table import Checkup
    from blis_tui.results.report import Report


def seen(simulation: blis_tui.Simulation) -> LintContext:
    """What the checks look at, to be changed by a test."""
    cluster, log = simulation._cluster, simulation.log
    table, flow = log.table(cluster), Throughflow()
    for block in table.blocks():
        flow.add(block)
    return LintContext(
        experiment=simulation.experiment,
        cluster=cluster,
        flow=flow,
        table=table,
        duration_us=simulation.now_us,
        done=simulation.done,
    )


@cache
def report(name: str, **changed: object) -> Report:
    return blis_tui.run(blis_tui.load(name, set={key.replace("__", "."): value for key, value in changed.items()}))


FEW_SEATS: dict[str, object] = {"engine.max_num_seqs": 256, "engine.max_num_batched_tokens": 2048}
"""What the loads below were chosen for: more wait for a place than with vLLM's defaults on an H100."""
BY_HAND: dict[str, object] = {"latency": "roofline", "policy.batching": "blis"}
"""Steps by a formula, planned as BLIS plans them: what the loads below were chosen for."""


def chat(rate_per_s: float, **changed: object) -> Report:
    """The quickstart's chat traffic on one GPU."""
    return report("quickstart", **BY_HAND, cluster__instances=1, workload__rate_per_s=rate_per_s, **changed)


def ids(found: Report | Checkup) -> list[str]:
    return [one.id for one in (found.findings if not hasattr(found, "warnings") else found.warnings)]


def finding(found: Report | Checkup, name: str) -> Finding:
    listed = found.warnings if hasattr(found, "warnings") else found.findings
    return next(one for one in listed if one.id == name)


# ---- the sums behind them, from the records ----


ON_ONE_INSTANCE = [name for name in RUNS if not name.startswith("split")]
"""The tally knows nothing of transfers: split requests are counted another way in ``test_sections``."""


@pytest.mark.parametrize("name", ON_ONE_INSTANCE)
def test_what_the_engine_adds_up_is_what_the_steps_tell(name: str) -> None:
    """Presence and the times of steps by what limited them, counted from the records."""
    debugger = finished(name)
    run_to_stop(debugger.run())
    tally = Tally(debugger.experiment)
    tally.follow(debugger.tape, len(debugger.tape))
    cluster = debugger.simulation._cluster
    context = seen(debugger.simulation)
    for figure in (
        "prefill_us",
        "beside_prefill_us",
        "full_budget_us",
        "kv_wait_us",
        "seqs_wait_us",
        "allocation_failures",
    ):
        assert context.total(figure) == getattr(tally, figure), figure
    assert cluster.present_us() == tally.present_us() == tally.stays_us() > 0
    if not tally.counts.get("timed-out"):
        assert context.flow.present().total_us(cluster.now) == tally.stays_us()
    assert context.flow.states[RequestState.COMPLETED] == tally.counts.get("completed", 0)


@pytest.mark.parametrize("name", ON_ONE_INSTANCE)
def test_steps_and_requests_agree_everywhere(name: str) -> None:
    """Little's law holds exactly after every event, and the tokens that steps and requests computed agree."""
    debugger = finished(name)
    tally = Tally(debugger.experiment)
    while not tally.follow(debugger.tape, 23):
        assert tally.present_us() == tally.stays_us(), tally.event
    assert not tally.staying
    assert tally.unsound < 0
    assert tally.prefill_tokens > 0
    assert tally.decode_tokens > 0
    prefill, decode = tally.prefill_tokens - tally.ended_prefill_tokens, tally.decode_tokens - tally.ended_decode_tokens
    if debugger.tape.plans_ahead and tally.counts.get("timed-out"):
        nobody = ForNobody(debugger.experiment)
        assert (prefill, decode) == (nobody.prefill_tokens, nobody.decode_tokens)
        assert 0 < decode <= tally.counts["timed-out"]
    else:
        assert (prefill, decode) == (0, 0)


def test_an_account_notices_a_gap() -> None:
    """The books of one request: a chunk that does not continue the one before is found."""
    debugger = finished("prefixes")
    life = list(debugger.tape.life(debugger.tape.name(3)))
    place = next(place for place, event in enumerate(life) if event.what == "chunk")
    assert account_of(life, keeps_output=False).sound
    gap = [*life[:place], replace(life[place], first=life[place].first + 1), *life[place + 1 :]]
    assert not account_of(gap, keeps_output=False).sound


def test_halfway_they_agree_too() -> None:
    debugger = Debugger(experiment("time-outs"))
    run_to_stop(debugger.seek(1500))
    tally = Tally(debugger.experiment)
    tally.follow(debugger.tape, 1500)
    cluster = debugger.simulation._cluster
    instance = debugger.simulation.snapshot().instances[0]
    assert (
        cluster.instances[0].seen.present
        == instance.waiting_count + instance.running_count
        == tally.instances[0].present
    )
    assert cluster.present_us() == tally.present_us()


# ---- defects ----


def test_a_violation_of_littles_law_is_a_defect() -> None:
    simulation = blis_tui.Simulation(experiment("prefixes"))
    simulation.run()
    stays = simulation._cluster.present_us()
    assert "littles-law" not in ids(check_all(seen(simulation)))
    simulation._cluster.instances[0].seen.stays_us += stays // 200
    assert "littles-law" not in ids(check_all(seen(simulation)))
    simulation._cluster.instances[0].seen.stays_us += stays // 50
    found = check_all(seen(simulation)).findings[0]
    assert (found.id, found.severity) == ("littles-law", "error")
    assert found.figures["residual"] == pytest.approx(0.025 * found.figures["arrival_rate_times_mean_stay"], rel=0.01)


# ---- load ----


LOADS: dict[str, tuple[str, dict[str, object], object]] = {
    "workload.rate_per_s": ("quickstart", {"workload.rate_per_s": 400.0, **FEW_SEATS}, 1.0),
    "workload.trace.scale_rate": ("trace-replay", {"workload.trace.scale_rate": 40.0, "cluster.instances": 1}, 0.1),
}


@pytest.mark.parametrize("key", LOADS)
def test_a_key_that_an_overload_names_can_be_used(key: str) -> None:
    """Lowered by it, the run is none any more."""
    name, changes, lower = LOADS[key]
    found = finding(blis_tui.run(blis_tui.load(name, set={**changes, "expect": []})), "overload")
    assert found.keys == ("cluster.instances", key)
    assert f"lower {key}," in found.advice
    calm = blis_tui.run(blis_tui.load(name, set={**changes, key: lower, "expect": []}))
    assert "overload" not in ids(calm)


def test_a_load_is_lowered_by_the_key_that_it_has() -> None:
    replayed = blis_tui.load("trace-replay")
    assert replayed.workload.trace is not None
    paced = replace(replayed.workload, trace=replace(replayed.workload.trace, rate_per_s=5.0))
    assert load_keys(replace(replayed, workload=paced)) == ("workload.trace.rate_per_s",)
    document = dict(blis_tui.load("quickstart").document)
    users = {"kind": "closed-loop", "users": 3}
    workload = {"requests": 5, "clients": [{"id": "a", "arrivals": users, "input_tokens": 9, "output_tokens": 9}]}
    closed = blis_tui.load({**document, "workload": workload, "expect": []})
    assert load_keys(closed) == ("workload.clients.0.arrivals.users",)


def test_every_warning_is_explained() -> None:
    for lint in LINTS:
        text = CliRunner().invoke(cli, ["explain", lint.name]).output
        assert text.startswith(f"{lint.name}: a warning about a run\n")
        assert f"If it was checked and does not appear: {lint.promise}." in text
        assert lint.name in CliRunner().invoke(cli, ["explain"]).output
    assert CliRunner().invoke(cli, ["explain", "overlord"]).exit_code == 2


@pytest.mark.parametrize("requests", [500, 2000])
@pytest.mark.parametrize("rule", ["blis", "vllm-v1"])
def test_eighty_requests_a_second_on_one_gpu_do_not_end_in_silence(requests: int, rule: str) -> None:
    seats = {key.replace(".", "__"): value for key, value in FEW_SEATS.items()}
    made = chat(80, workload__requests=requests, policy__batching__kind=rule, **seats)
    found = finding(made, "overload")
    rows = made.rows
    first, last = min(row.arrival_us for row in rows), max(row.arrival_us for row in rows)
    quarter = (last - first) / 4

    def waiting(place: int) -> float:
        start, end = first + place * quarter, first + (place + 1) * quarter
        spans = [(row.queued_us or 0, row.scheduled_us or 0) for row in rows]
        return sum(max(0, min(end, until) - max(start, since)) for since, until in spans) / quarter

    assert found.figures["waiting_second_quarter"] == pytest.approx(waiting(1), rel=1e-3)
    assert found.figures["waiting_last_quarter"] == pytest.approx(waiting(3), rel=1e-3)
    assert found.figures["offered_requests_per_s"] == made.steady.offered_requests_per_s
    half = (first + last) / 2
    seconds = (last - first) / 2e6
    ended = [row.arrival_us + row.e2e_us for row in rows if row.e2e_us is not None]
    arrived, completed = (
        len([at for at in times if half < at <= last]) / seconds for times in ([row.arrival_us for row in rows], ended)
    )
    statement = f"in the second half of the arrivals, {arrived:.1f} requests/s arrived and {completed:.1f} completed,"
    assert statement in found.message
    assert "cluster.instances" in found.keys
    assert "max-num-seqs" in ids(made)


@pytest.mark.parametrize(("instances", "rate"), [(4, 48), (8, 60)])
def test_a_router_that_leaves_instances_alone_is_no_load_above_the_capacity(instances: int, rate: int) -> None:
    """Neither are more instances wanted, nor would fewer do."""
    load_ = {"workload.rate_per_s": rate, "workload.requests": 800}
    changes = {"cluster.instances": instances, **load_, **FEW_SEATS, "expect": []}
    made = blis_tui.run("quickstart", set={**changes, "policy.routing": "always-busiest"})
    assert "unused-capacity" not in ids(made)
    found = finding(made, "overload")
    busiest = {row.instance for row in made.rows}
    assert len(busiest) == 1
    alone = f"while {instances - 1} of {instances} instances were busy for less than half as long: "
    assert found.message.startswith(f"The router sends more to instance {busiest.pop()} than it can serve, {alone}")
    assert found.keys == ("policy.routing", "workload.rate_per_s")
    assert "Add instances" not in found.advice
    even = blis_tui.run("quickstart", set={**changes, "policy.routing": "least-loaded"})
    assert "overload" not in ids(even)
    assert "unused-capacity" in ids(even)


@pytest.mark.parametrize(("rate", "warned"), [(10, []), (20, []), (30, ["decode-tail"])])
def test_what_one_gpu_can_serve_is_no_overload(rate: int, warned: list[str]) -> None:
    """A run that is short for its load serves fewer requests a second than arrive: start and drain, no overload."""
    made = chat(rate)
    assert ids(made) == warned
    assert made.throughput.requests_per_s < 0.9 * rate or rate == 10
    assert made.steady.requests_per_s == pytest.approx(made.steady.offered_requests_per_s, rel=0.1)


def test_a_short_run_is_mostly_start_and_drain() -> None:
    made = chat(80, workload__requests=100)
    found = finding(made, "start-and-drain")
    stays = [(row.completed_us or 0) - (row.scheduled_us or 0) for row in made.rows]
    assert found.figures["mean_running_us"] == sum(stays) // len(stays)
    assert found.figures["drain_us"] == made.duration_us - max(row.arrival_us for row in made.rows)
    assert "overload" not in ids(made)


def test_few_requests() -> None:
    found = finding(chat(5, workload__requests=40), "few-requests")
    assert found.figures["completed"] == 40
    assert "few-requests" not in ids(chat(5, workload__requests=100))


def test_few_requests_behind_the_warm_up() -> None:
    """And none: then no latency is left, those between tokens included."""
    whole = chat(5, workload__requests=150)
    arrivals = sorted(row.arrival_us for row in whole.rows)
    found = finding(chat(5, workload__requests=150, warm_up_us=arrivals[110]), "few-requests")
    assert found.figures["completed"] == 40
    assert found.message.startswith("Only 40 requests that arrived after the warm-up (warm_up_us) completed: ")
    none = chat(5, workload__requests=150, warm_up_us=arrivals[-1] + 10**9)
    assert finding(none, "few-requests").message.startswith("No request that arrived after the warm-up")
    assert finding(none, "few-requests").keys == ("warm_up_us", "workload.requests")
    assert finding(none, "few-requests").advice.startswith("Lower warm_up_us, or ")
    assert (none.latency.ttft_ms.p50, none.latency.itl_ms.p50) == (None, None)
    assert none.instances[0].itl_ms.p50 is None


def test_a_run_is_made_longer_by_the_key_that_ends_it() -> None:
    cut = chat(80, horizon_us=1_000_000)
    assert finding(cut, "few-requests").keys == finding(cut, "start-and-drain").keys == ("horizon_us",)
    assert "(horizon_us)" in finding(cut, "few-requests").advice
    of_sessions = report("conversations", workload__sessions=10)
    assert finding(of_sessions, "few-requests").keys == ("workload.sessions",)
    assert finding(chat(5, workload__requests=40), "few-requests").keys == ("workload.requests",)


def test_the_horizon_leaves_a_queue() -> None:
    made = chat(80, horizon_us=6_000_000)
    figures = finding(made, "unfinished").figures
    assert figures["still_queued"] == made.requests.still_queued > 100
    assert figures["still_running"] == made.requests.still_running
    assert finding(made, "overload").figures["waiting_last_quarter"] > 100
    late = chat(5, workload__requests=2000, horizon_us=200_000_000)
    assert late.requests.still_running
    assert "unfinished" not in ids(late)


@pytest.mark.parametrize(("instances", "rate"), [(2, 7.5), (4, 40), (5, 80), (8, 60)])
def test_fewer_instances_really_do(instances: int, rate: float) -> None:
    """The instances that are said to do serve the load: nothing queues up, and no limit is met."""
    changed = {"workload__rate_per_s": rate, "workload__requests": 1000}
    many = report("quickstart", **BY_HAND, cluster__instances=instances, **changed)
    found = finding(many, "unused-capacity")
    figures = found.figures
    assert figures["peak_running"] == sum(instance.peak_running for instance in many.instances)
    assert figures["peak_kv_blocks"] == many.kv.peak_used
    needed = int(figures["instances_needed"])
    assert found.message.startswith(f"{needed} instance")
    few = report("quickstart", **BY_HAND, cluster__instances=needed, **changed)
    assert set(ids(few)) <= {"unused-capacity"}
    assert few.steady.requests_per_s == pytest.approx(few.steady.offered_requests_per_s, rel=0.1)


@pytest.mark.parametrize(("requests", "warned"), [(99, False), (100, True)])
def test_few_requests_say_nothing_of_capacity(requests: int, warned: bool) -> None:
    changed = {"workload__rate_per_s": 40, "workload__requests": requests}
    found = report("quickstart", **BY_HAND, cluster__instances=8, **changed)
    assert ("unused-capacity" in ids(found)) == warned


def test_requests_that_all_come_at_once_say_nothing_of_capacity() -> None:
    client = {"id": "c", "arrivals": {"kind": "closed-loop", "users": 200}, "input_tokens": 99, "output_tokens": 9}
    workload = {"requests": 200, "clients": [client]}
    found = blis_tui.run(blis_tui.load("quickstart", set={"workload": workload, "cluster.instances": 8}))
    assert found.offered.requests_per_s is None
    assert found.requests.completed == 200
    assert "unused-capacity" not in ids(found)


@pytest.mark.parametrize("latency", ["roofline", "trained-physics"])
def test_the_capacity_that_is_named_is_what_an_overloaded_instance_serves(latency: str) -> None:
    named = finding(report("quickstart", **BY_HAND, latency__kind=latency, workload__requests=1000), "unused-capacity")
    served = chat(100, latency__kind=latency, workload__requests=3000).steady.requests_per_s
    assert served is not None
    assert 0.6 * served < named.figures["one_serves_requests_per_s"] < 1.05 * served


def test_where_requests_wait_no_instance_is_too_many() -> None:
    """All go to one instance, which is overloaded: fewer instances would change nothing."""
    changed = {"policy__routing": "always-busiest", "workload__rate_per_s": 80, "workload__requests": 600}
    made = report("quickstart", **BY_HAND, cluster__instances=5, **changed)
    assert {"overload", "imbalance"} <= set(ids(made))
    assert "unused-capacity" not in ids(made)
    spread = report("quickstart", **BY_HAND, cluster__instances=5, **{**changed, "policy__routing": "least-loaded"})
    assert "overload" not in ids(spread)


def test_imbalance() -> None:
    simulation = blis_tui.Simulation(experiment("three instances"))
    simulation.run()
    assert "imbalance" not in ids(simulation.checkup())
    simulation._cluster.instances[2].tallies.busy_us *= 9
    found = finding(simulation.checkup(), "imbalance")
    busy = [instance.tallies.busy_us for instance in simulation._cluster.instances]
    assert found.instance == 2
    assert found.figures["times_mean"] == pytest.approx(3 * busy[2] / sum(busy))


# ---- requests that were not served ----


def test_requests_that_were_not_served() -> None:
    rejected = finding(report("admission-control"), "rejected")
    assert rejected.message.startswith("Admission control rejected 50 requests of 500 (10 %); the first was ")
    turned_away = [row for row in report("admission-control").rows if row.state == "rejected"]
    assert rejected.request == turned_away[0].request_id
    late = blis_tui.run(experiment("time-outs"))
    assert finding(late, "timed-out").figures["timed_out"] == late.requests.timed_out > 0
    assert (late.requests.timed_out, finding(late, "timed-out").figures["started_at_once"]) == _timed_out(late)
    short = report("kv-pressure", engine__max_model_len=600, workload__requests=60)
    dropped = finding(short, "dropped")
    assert (short.warnings[0].id, dropped.severity) == ("dropped", "error")
    assert dropped.request == next(row.request_id for row in short.rows if row.state == "dropped-unservable")


def _timed_out(made: Report) -> tuple[int, int]:
    """Requests that timed out, and those of them that were scheduled in the first tenth of their time."""
    late = [row for row in made.rows if row.state == "timed-out"]
    spans = [(row.scheduled_us, row.arrival_us, row.deadline_us or 0) for row in late]
    at_once = [1 for start, arrival, end in spans if start is not None and start - arrival <= (end - arrival) / 10]
    return len(late), len(at_once)


@pytest.mark.parametrize(("instances", "timeout_us", "ran"), [(4, 1_000_000, True), (1, 20_000_000, False)])
def test_more_instances_are_advised_only_where_requests_time_out_in_the_queue(
    instances: int, timeout_us: int, *, ran: bool
) -> None:
    load = {"workload.rate_per_s": 4 if ran else 80, "workload.requests": 400 if ran else 1500}
    changed = {**load, "cluster.instances": instances, "expect": [], "workload.clients.0.timeout_us": timeout_us}
    made = blis_tui.run(blis_tui.load("quickstart", set={"latency": "roofline", "policy.batching": "blis", **changed}))
    warning = finding(made, "timed-out")
    count, at_once = _timed_out(made)
    assert (warning.figures["timed_out"], warning.figures["started_at_once"]) == (count, at_once)
    assert (2 * at_once > count) is ran
    assert ("cluster.instances" in warning.keys) is not ran
    assert ("raise timeout_us" in warning.advice, "add instances" in warning.advice) == (True, not ran)


UNSERVABLE: dict[str, tuple[dict[str, object], list[str]]] = {
    "too long": ({"engine.max_model_len": 600}, ["engine.max_model_len"]),
    "too large": ({"engine.max_model_len": "none", "engine.kv_blocks": 40}, ["engine.kv_blocks"]),
    "as long as the cache": ({"engine.max_model_len": "auto", "engine.kv_blocks": 40}, ["engine.kv_blocks"]),
}


@pytest.mark.parametrize("name", UNSERVABLE)
def test_what_can_never_be_served_says_which_limit_to_raise(name: str) -> None:
    changed, keys = UNSERVABLE[name]
    changed = {"workload.requests": 60, "expect": [], **changed}
    found = finding(blis_tui.run(blis_tui.load("kv-pressure", set=changed)), "dropped")
    assert list(found.keys) == keys
    raised = {**changed, keys[0]: 4096}
    assert "dropped" not in ids(blis_tui.run(blis_tui.load("kv-pressure", set=raised)))


# ---- limits ----


def test_preemptions_by_priority_say_nothing_of_the_kv_cache() -> None:
    batching = {"kind": "sglang", "enable_priority_scheduling": True, "priority_scheduling_preemption_threshold": 1}
    changed = {"policy": {"batching": batching, "priority": "slo-class"}, "engine.max_num_seqs": 24, "expect": []}
    made = blis_tui.run(blis_tui.load("service-classes", set={**changed, "workload.requests": 300}))
    counts = [row.preemptions for row in made.rows]
    assert max(counts) >= 3
    assert "kv-cache" not in ids(made)
    thrashing = finding(made, "thrashing")
    assert thrashing.figures["requests"] == sum(count >= 3 for count in counts)
    assert "policy.batching.priority_scheduling_preemption_threshold" in thrashing.keys
    assert "KV" not in thrashing.advice


@pytest.mark.parametrize(("threshold", "warns"), [(3, False), (4, True), (10, True)])
def test_a_threshold_that_no_service_class_reaches(threshold: int, warns: bool) -> None:
    """Five classes are at most four apart, and it takes more than the threshold."""
    batching = {
        "kind": "sglang",
        "enable_priority_scheduling": True,
        "priority_scheduling_preemption_threshold": threshold,
    }
    changed = {"policy": {"batching": batching, "priority": "slo-class"}, "expect": []}
    made = blis_tui.run(blis_tui.load("service-classes", set={**changed, "workload.requests": 20}))
    assert ("priorities-apart" in ids(made)) == warns
    if warns:
        assert finding(made, "priorities-apart").figures["largest_difference"] == 4


@pytest.mark.parametrize(("name", "with_watermark"), [("kv-pressure", False), ("vllm-preemption", True)])
def test_memory_pressure(name: str, *, with_watermark: bool) -> None:
    made = report(name)
    assert ids(made) == ["kv-cache", "thrashing"]
    counts = {row.request_id: row.preemptions for row in made.rows}
    figures = finding(made, "kv-cache").figures
    assert figures["preemptions"] == sum(counts.values())
    assert figures["preempted_requests"] == sum(count > 0 for count in counts.values())
    assert figures["busy_us"] == sum(instance.busy_us for instance in made.instances)
    thrashing = finding(made, "thrashing")
    assert thrashing.figures == {
        "requests": sum(count >= 3 for count in counts.values()),
        "most_preemptions": max(counts.values()),
    }
    assert counts[str(thrashing.request)] == max(counts.values())
    assert str(thrashing.request) in thrashing.message
    assert ("policy.batching.watermark" in thrashing.keys) == ("watermark" in thrashing.advice) == with_watermark


@pytest.mark.parametrize(("pools", "key"), [(2, "cluster.pools"), (1, "cluster.pools.0.instances")])
def test_where_pools_say_how_many_instances_there_are_the_advice_names_them(pools: int, key: str) -> None:
    """`cluster.instances` is refused beside `cluster.pools`."""
    own = [{"name": f"pool-{number}", "instances": 1} for number in range(pools)]
    load = {"workload.rate_per_s": 300, "workload.requests": 3000}
    overloaded = {"cluster": {"pools": own}, **load, **FEW_SEATS, "expect": []}
    found = finding(blis_tui.run(blis_tui.load("quickstart", set=overloaded)), "overload")
    assert key in found.keys
    assert f"dd instances ({key})" in found.advice


def test_more_memory_ends_them() -> None:
    simulation = blis_tui.Simulation(blis_tui.load("kv-pressure", set={"engine.kv_blocks": 4000}))
    simulation.run()
    checkup = simulation.checkup()
    assert checkup.findings == ()
    assert len(checkup.passed) + len(checkup.skipped) == len([lint for lint in LINTS if lint.common])
    assert checkup.event == simulation.events


def test_waiting_for_blocks_without_any_preemption() -> None:
    """A cache that holds few requests at a time makes the others wait; nobody need be preempted for that."""
    client = {
        "id": "long",
        "arrivals": {"kind": "poisson"},
        "input_tokens": {"kind": "constant", "value": 4000},
        "output_tokens": {"kind": "constant", "value": 10},
    }
    changed = {"workload.clients": [client], "workload.rate_per_s": 30, "engine.kv_blocks": 600, "policy": "vllm-v1"}
    made = blis_tui.run(blis_tui.load("kv-pressure", set=changed))
    assert made.kv.preemptions == 0
    assert finding(made, "kv-cache").figures["kv_wait_us"] > 0


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"engine.disable_hybrid_kv_cache_manager": False}, "(16 tokens each, for 18 layers)"),
        ({}, "(16 tokens each, for 18 layers)"),
        ({"engine.disable_hybrid_kv_cache_manager": True}, "(11,200 tokens)"),
        ({"policy.batching": "sglang"}, "(11,200 tokens)"),
        ({"model": "qwen3-14b"}, "(11,200 tokens)"),
    ],
    ids=str,
)
def test_how_many_tokens_the_cache_holds(changed: dict[str, object], says: str) -> None:
    """In gpt-oss, every other layer has a window; where these count as full, the warning says so."""
    base = {"policy": "vllm-v1", "model": "gpt-oss-120b", "latency": "roofline", "engine.kv_blocks": 700}
    message = finding(blis_tui.run(blis_tui.load("kv-pressure", set={**base, **changed})), "kv-cache").message
    assert f"The KV cache of 700 blocks {says} is too small" in message
    assert ("count as full attention" in message) == ("11,200" in says and "model" not in changed)


def split(order: str, **changed: object) -> tuple[Report, int]:
    """A decode instance with few KV blocks behind a slow link; how often somebody alone was preempted meanwhile."""
    link = {"bandwidth_gb_per_s": 0.001}
    made = blis_tui.load(
        "quickstart",
        set={
            **BY_HAND,
            "workload.requests": 12,
            "workload.rate_per_s": 5,
            "engine.kv_blocks": 60,
            "cluster.instances": 2,
            "cluster.disaggregation": {"prefill_instances": 1, "decode_instances": 1, "order": order, "transfer": link},
            **changed,
        },
    )
    simulation = blis_tui.Simulation(made)
    records: list[Record] = []
    simulation.subscribe("all", records.append)
    simulation.run()
    under_way = alone = 0
    for record in records:
        under_way += isinstance(record, TransferStarted) - isinstance(record, TransferFinished)
        alone += isinstance(record, StepFinished) and bool(record.preempted and under_way and not record.running)
    return simulation.report(), alone


def test_blocks_reserved_for_prompts_on_their_way() -> None:
    """A request that runs alone and lacks them starts again and again until they have arrived."""
    made, alone = split("decode-first")
    crowded = finding(made, "crowded-out")
    assert alone > 20
    assert crowded.figures == {"preemptions": alone, "most_preemptions": alone}
    assert f"{alone} times" in crowded.message
    assert crowded.instance == 1
    # Blocks that are taken on arrival are free before; vLLM admits no request whose whole sequence does not fit.
    assert "crowded-out" not in ids(split("prefill-first")[0])
    assert "crowded-out" not in ids(split("decode-first", **{"policy.batching": "vllm-v1"})[0])


def test_limits_of_a_step() -> None:
    busy = report("fcfs", **BY_HAND)
    assert "budget of 2,048 tokens took 60 %" in finding(busy, "token-budget").message
    share = sum(instance.busy_us for instance in busy.instances) / (len(busy.instances) * busy.duration_us)
    assert f"steps took {100 * share:.0f} % of all time: prefill" in finding(busy, "token-budget").message
    assert "16 were already running (max_num_seqs)" in finding(busy, "max-num-seqs").message
    # Clients that gave up end the run before its last step.
    timeouts = {f"workload__clients__{client}__timeout_us": 100_000 for client in (0, 1)}
    given_up = report("fcfs", **BY_HAND, workload__rate_per_s=2000, **timeouts)
    late = finding(given_up, "token-budget")
    assert late.figures["busy_us"] == late.figures["instances_us"] > len(given_up.instances) * given_up.duration_us
    assert "steps took 100 % of all time" in late.message
    calm = report("fcfs", **BY_HAND, workload__rate_per_s=2)
    assert not {"overload", "max-num-seqs", "token-budget"} & set(ids(calm))


PROMPTS: dict[str, object] = {
    "workload.clients.0.output_tokens": {"kind": "constant", "value": 2},
    "workload.rate_per_s": 400,
    "workload.requests": 600,
    "cluster.instances": 1,
    "engine.max_num_seqs": 1024,
    "expect": [],
}
"""So many prompts that hardly anything but prefill takes time: what a budget gains is how much sooner all are done."""


@pytest.mark.parametrize(
    ("latency", "budget"),
    [("operators", 128), ("operators", 256), ("operators", 2048), ("roofline", 512), ("roofline", 4096)],
)
def test_a_larger_token_budget_is_advised_where_it_computes_prompts_faster(latency: str, budget: int) -> None:
    made, twice = (
        blis_tui.run(
            blis_tui.load("quickstart", set={**PROMPTS, "latency": latency, "engine.max_num_batched_tokens": tokens})
        )
        for tokens in (budget, 2 * budget)
    )
    warning = finding(made, "token-budget")
    faster = 100 * (made.duration_us / twice.duration_us - 1)
    if "engine.max_num_batched_tokens" in warning.keys:
        assert faster > 3
        (percent,) = re.findall(r"(\d+) % more prompt tokens", warning.advice)
        assert int(percent) == pytest.approx(faster, abs=5)
    else:
        assert faster < 7
        assert warning.keys == ("cluster.instances",)


def test_prefill_limits_no_run_whose_other_instances_are_busier() -> None:
    """Prompts fill the steps of two instances that are idle half of the time; those that decode never are."""
    split = blis_tui.run(blis_tui.load("disaggregation"))
    busy = [instance.busy_us / split.duration_us for instance in split.instances]
    assert max(busy[:2]) < 0.6
    assert min(busy[2:]) > 0.9
    assert "token-budget" not in ids(split)


def test_a_budget_that_limits_the_busiest_pool_is_that_pools() -> None:
    """Others have time to spare."""
    pools = [
        {"name": "prefill", "role": "prefill", "instances": 1},
        {"name": "decode", "role": "decode", "instances": 3},
    ]
    prompts = {
        "workload.requests": 100,
        "workload.rate_per_s": 60,
        "workload.clients.0.input_tokens": 2000,
        "workload.clients.0.output_tokens": 8,
        "engine.max_num_batched_tokens": 512,
        "expect": [],
    }
    for listed in (pools, pools[::-1]):
        made = blis_tui.run(
            blis_tui.load("quickstart", set={**prompts, "cluster": {"pools": listed, "disaggregation": {}}})
        )
        assert "of the step time of pool prefill, and" in finding(made, "token-budget").message


def test_prefixes() -> None:
    simulation = blis_tui.Simulation(experiment("prefixes"))
    simulation.run()
    assert "shared prefixes hit the cache" in simulation.checkup().passed
    client = {
        "id": "chat",
        "arrivals": {"kind": "poisson"},
        "input_tokens": {"kind": "constant", "value": 100},
        "output_tokens": {"kind": "constant", "value": 10},
        "prefix": {"group": "all", "tokens": 12},
    }
    made = blis_tui.run(blis_tui.load("kv-pressure", set={"workload.clients": [client], "workload.requests": 60}))
    assert "no prefix is as long as a block (16 tokens)" in finding(made, "prefix-cache").message
    off = finding(report("shared-prefixes", engine__enable_prefix_caching=False, workload__requests=60), "prefix-cache")
    assert off.message.endswith("the prefix cache had no hits: prefix caching is off.")
    assert off.keys == ("engine.enable_prefix_caching",)


def test_prefill_beside_decode() -> None:
    """The share is that of the steps; smaller chunks, as the warning says, make the tail shorter."""
    steps: list[StepFinished] = []
    simulation = blis_tui.Simulation(blis_tui.load("chunked-prefill", set=BY_HAND))
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    found = finding(simulation.report(), "decode-tail")
    assert found.figures["beside_prefill_us"] == sum(
        step.duration_us * step.decode_requests for step in steps if step.chunks
    )
    gaps = sorted(step.duration_us for step in steps for _ in range(step.decode_requests))
    assert found.figures["inter_token_us"] == sum(gaps)
    assert found.figures["itl_p50_ms"] == gaps[len(gaps) // 2] / 1000
    budget = int(found.figures["max_num_batched_tokens"]) // 4
    smaller = blis_tui.run(blis_tui.load("chunked-prefill", set={**BY_HAND, "engine.max_num_batched_tokens": budget}))
    assert smaller.latency.itl_ms.p99 is not None
    assert smaller.latency.itl_ms.p99 < found.figures["itl_p99_ms"]


@pytest.mark.parametrize("rule", ["sglang", "nano"])
def test_decodes_that_wait_for_steps_of_prompts_alone(rule: str) -> None:
    """Steps that prefill do not decode: who has a first token and not the last one waits meanwhile."""
    whole = {"max_num_batched_tokens": 16384, "max_model_len": 16384}
    apart = {"latency": "roofline", "policy": rule, "engine": {} if rule == "sglang" else whole}
    simulation = blis_tui.Simulation(blis_tui.load("chunked-prefill", set=apart))
    steps: list[StepFinished] = []
    simulation.subscribe(StepFinished, steps.append)
    simulation.run()
    found = finding(simulation.report(), "decode-tail")
    decoding: dict[str, bool] = {}
    held_us = 0
    for step in steps:
        if step.chunks:
            assert not step.decode_requests
            held_us += step.duration_us * len(decoding)
        decoding |= dict.fromkeys(step.first_tokens, True)
        for name in step.completed:
            decoding.pop(name, None)
    assert found.figures["beside_prefill_us"] == held_us > 0
    assert "waiting for steps that prefilled" in found.message
    advised: dict[str, object] = {"policy.batching": "vllm-v1"}
    if rule == "sglang":
        advised = {"policy.batching.enable_mixed_chunk": True, "policy.batching.chunked_prefill_size": 512}
    assert [key for key in found.keys if key != "cluster.instances"] == [*advised]
    shorter = blis_tui.run(blis_tui.load("chunked-prefill", set={**apart, **advised})).latency.itl_ms.p99
    assert shorter is not None
    assert shorter < found.figures["itl_p99_ms"]


def test_the_budget_of_a_rule_is_named_as_it_has_it() -> None:
    """SGLang's chunks have a size of their own: a warning names that key, and raising it helps."""
    mixed = {"kind": "sglang", "chunked_prefill_size": 256, "enable_mixed_chunk": True}
    small: dict[str, object] = {"policy.batching": mixed, "workload.rate_per_s": 3, "latency": "roofline", "engine": {}}
    made = blis_tui.run(blis_tui.load("chunked-prefill", set=small))
    found = finding(made, "token-budget")
    key = found.keys[0]
    assert key == "policy.batching.chunked_prefill_size"
    assert key in found.advice
    raised = blis_tui.run(blis_tui.load("chunked-prefill", set={**small, key: 2048}))
    assert "token-budget" not in ids(raised)
    assert "unread-keys" not in ids(raised)


@pytest.mark.parametrize(("itl_us", "beside_us", "found"), [(40, 80, True), (40, 79, False), (39, 80, False)])
def test_decodes_have_a_tail_from_their_bounds_on(itl_us: int, beside_us: int, found: bool) -> None:
    """From four times the median, and a fifth of all time between tokens: 32 * 10 + 2 * 40 is five times 80."""
    gaps_us = {10: 32, itl_us: 2}
    limits = SimpleNamespace(max_num_batched_tokens=64)
    instance = SimpleNamespace(batch=SimpleNamespace(traits=EngineBehavior()))
    stub = SimpleNamespace(
        gaps_us=gaps_us,
        total={"beside_prefill_us": beside_us}.__getitem__,
        limits=limits,
        cluster=SimpleNamespace(instances=[instance]),
    )
    assert isinstance(decode_tail(cast("LintContext", stub)), Finding) == found


# ---- all of them ----

SHIPPED = {
    "admission-control": ["rejected", "max-num-seqs"],
    "burst": [],
    "chunked-prefill": ["decode-tail"],
    "fcfs": ["max-num-seqs", "decode-tail"],
    "mixture-of-experts": [],
    "quickstart": ["unused-capacity"],
    "service-classes": ["overload", "max-num-seqs", "decode-tail"],
    "shared-prefixes": ["unused-capacity"],
    "sjf": ["max-num-seqs", "decode-tail"],
    "steady-chat": [],
    "trace-replay": [],
    "unfair-tenants": ["overload", "max-num-seqs", "decode-tail"],
}
"""What the shipped experiments are warned about; the two about memory pressure are looked at above."""


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_experiments(name: str) -> None:
    assert ids(report(name)) == SHIPPED[name]


def test_at_the_start_checks_say_why_they_are_not_made() -> None:
    simulation = blis_tui.Simulation(experiment("kv-pressure"))
    assert simulation.checkup().findings == ()
    simulation.run(max_events=3)
    checkup = simulation.checkup()
    assert checkup.findings == ()
    assert dict(checkup.skipped)[promise("overload")] == "too few requests have arrived so far"
    assert all(reason for _, reason in checkup.skipped)


def test_every_warning_says_what_to_do() -> None:
    warnings: dict[str, Finding] = {}
    for name in RUNS:
        for warning in blis_tui.run(experiment(name)).warnings:
            warnings[warning.id] = warning
    assert len(warnings) >= 6
    for one in warnings.values():
        assert one.message.endswith(".")
        assert one.advice.endswith(".")
        assert one.figures
        assert one.keys
        assert any(lint.name == one.id for lint in LINTS)


def test_a_report_and_the_debugger_say_the_same() -> None:
    debugger = finished("kv-pressure")
    run_to_stop(debugger.run())
    assert debugger.checkup().findings == debugger.report().warnings == report("kv-pressure").warnings
    run_to_stop(debugger.seek(100))
    assert debugger.checkup().findings == ()
    run_to_stop(debugger.run())


def test_a_host_link_that_nobody_uses() -> None:
    recomputed = {"policy.preemption.restore": "recompute", "workload.requests": 5}
    found = finding(blis_tui.run(blis_tui.load("kv-overload", set=recomputed)), "host-link")
    assert (
        found.message == "engine.host_link has no effect: with `restore: recompute`, nothing is swapped to host memory."
    )
    assert "host-link" not in ids(blis_tui.run(blis_tui.load("kv-overload", set={"workload.requests": 5})))


# ---- users in step ----


def closed_loop(shortest: int, **more: object) -> Report:
    """Eight users whose answers have so many to 60 tokens."""
    lengths = {"input_tokens": 200, "output_tokens": {"kind": "uniform", "min": shortest, "max": 60}}
    client = {"id": "users", "arrivals": {"kind": "closed-loop", "users": 8}, **lengths}
    changed = {"workload": {"requests": 64, "clients": [client]}, "expect": [], "cluster": {"instances": 1}, **BY_HAND}
    return blis_tui.run(blis_tui.load("quickstart", set={**changed, **more}))


def test_users_whose_answers_are_equally_long_stay_in_step() -> None:
    found = closed_loop(60)
    ends = Counter(row.completed_us for row in found.rows)
    together = sum(count for count in ends.values() if count > 1)
    assert finding(found, "users-in-step").figures == {"ended_together": together, "completed": 64, "users": 8}
    assert together > 32
    assert finding(found, "users-in-step").keys == ("workload.clients", "engine.front_end")
    one_by_one = finding(closed_loop(60, **{"engine.front_end": {"request_us": 1}}), "users-in-step")
    assert one_by_one.keys == ("workload.clients",)
    assert "front_end" not in one_by_one.advice


def test_users_whose_answers_differ_do_not() -> None:
    assert "users-in-step" not in ids(closed_loop(20))


# ---- what a run with nothing in it says ----


def promise(name: str) -> str:
    return next(lint.promise for lint in LINTS if lint.name == name)


def test_a_run_in_which_nothing_arrived_says_so() -> None:
    found = finding(chat(5, horizon_us=1), "few-requests")
    assert found.message == "No request arrived within 1 us: the figures of this run say nothing."
    assert found.keys == ("horizon_us",)


def test_without_a_completed_request_nothing_is_said_of_enough_of_them() -> None:
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set={"policy.admission": "reject-all"}))
    simulation.run()
    checkup = check_all(seen(simulation))
    assert (promise("few-requests"), "no request completed") in checkup.skipped
    assert promise("few-requests") not in checkup.passed


def test_requests_that_lost_their_instance_are_left_without_one() -> None:
    """Some had been running on it, so that they never got one would be false."""
    failure = {"instance": 0, "at_us": 500_000}
    fails = {"workload.requests": 50, "cluster.instances": 1, "cluster.failures": [failure]}
    made = blis_tui.run(blis_tui.load("quickstart", set=fails))
    assert made.lifecycle is not None
    assert made.lifecycle.retries > 0
    assert finding(made, "stranded").message.startswith("50 requests of 50 (100 %) were left without an instance;")
    simulation = blis_tui.Simulation(blis_tui.load("quickstart", set={**fails, "horizon_us": 1_000_000}))
    simulation.run()
    assert (promise("stranded"), "the horizon ended the run") in check_all(seen(simulation)).skipped


def test_requests_that_a_gateway_never_looks_at_again_are_not_said_to_lack_an_instance() -> None:
    """The last request ends before signals are read again, and with it what would have had the gateway look."""
    stale = {
        "cluster.instances": 1,
        "cluster.signals.refresh_interval_us": 1_000_000,
        "engine.max_num_seqs": 1,
        "workload.rate_per_s": 20,
        "workload.clients": [{"id": "all", "input_tokens": 100, "output_tokens": 20}],
        "latency": {"kind": "blackbox", "alpha": [0, 0, 0], "beta": [10_000, 0, 0]},
        "policy.gateway.saturation": {"kind": "utilization", "queue_depth_threshold": 1},
    }
    made = blis_tui.run(blis_tui.load("quickstart", set={**stale, "workload.requests": 40}))
    assert made.gateway is not None
    left = made.gateway.depth
    assert left
    assert left == made.requests.still_queued
    found = finding(made, "stranded")
    assert found.message.startswith(f"{left} requests of 40 (")
    assert "stayed in the gateway's queue" in found.message
    assert "without an instance" not in found.message
    ticks = {"policy.gateway.dispatch": {"kind": "tick", "interval_us": 100_000}}
    ended = blis_tui.run(blis_tui.load("quickstart", set={**stale, **ticks, "workload.requests": 40}))
    assert ended.requests.completed == 40


def test_what_is_swapped_is_not_computed_again() -> None:
    changes: dict[str, object] = {
        "cluster.instances": 1,
        "workload.rate_per_s": 40,
        "engine.kv_blocks": 700,
        "engine.host_link": {"bandwidth_gb_per_s": 25},
        "policy.preemption": {"restore": "swap"},
    }
    swaps = blis_tui.run(blis_tui.load("quickstart", set=changes))
    assert swaps.preemption is not None
    assert swaps.preemption.recomputed_tokens == 0 < swaps.preemption.swapped_out
    assert finding(swaps, "thrashing").advice.startswith("The same KV blocks move to the host and back repeatedly: ")


def test_what_a_decode_instance_has_no_room_for_now_is_not_called_unservable() -> None:
    pools = [
        {"name": "p", "role": "prefill", "instances": 1},
        {"name": "d", "role": "decode", "instances": 1, "engine": {"kv_blocks": 400}},
    ]
    prompts = {"kind": "uniform", "min": 10, "max": 5000}
    made = blis_tui.load(
        "quickstart",
        set={
            "workload.requests": 100,
            "workload.rate_per_s": 30,
            "workload.clients.0.input_tokens": prompts,
            "cluster": {"pools": pools, "disaggregation": {}},
        },
    )
    found = blis_tui.run(made)
    assert found.requests.dropped_unservable > 0
    assert max(row.input_tokens for row in found.rows if row.state == "dropped-unservable") < 400 * 16
    dropped = finding(found, "dropped")
    assert "could not be served where they were sent, in pool d;" in dropped.message
    assert dropped.keys == ("cluster.pools.1.engine.kv_blocks",), "its own: that of all engines has no effect on it"
    assert dropped.advice == "Raise cluster.pools.1.engine.kv_blocks, or shorten the prompts."


def test_a_budget_that_decodes_fill_is_not_called_one_of_prefill() -> None:
    short = [{"id": "chat", "input_tokens": 16, "output_tokens": 400}]
    small = {"engine.max_num_batched_tokens": 64, "engine.max_num_seqs": 64, "workload.clients": short}
    made = blis_tui.run(blis_tui.load("quickstart", set={**small, "cluster.instances": 1, "workload.rate_per_s": 40}))
    found = finding(made, "token-budget")
    assert found.message.endswith(": most tokens are decoded, not prefilled.")
    assert found.advice == "Add instances, or raise engine.max_num_batched_tokens and engine.max_num_seqs together."


def test_what_the_prefix_cache_saves_is_no_unused_capacity() -> None:
    """Conversations that fill four caches would find less in three."""
    changes = {"cluster.instances": 4, "engine.kv_blocks": 1500, "policy.routing": "session-affinity", "expect": []}
    made = blis_tui.run("conversations", set={**changes, "workload.sessions": 60, "workload.rate_per_s": 0.5})
    assert 20 * made.tokens.cached > made.tokens.input
    assert "unused-capacity" not in ids(made)
    roomy = blis_tui.run(
        "conversations",
        set={**changes, "workload.sessions": 60, "workload.rate_per_s": 0.5, "engine.kv_blocks": 60_000},
    )
    assert "unused-capacity" in ids(roomy)
