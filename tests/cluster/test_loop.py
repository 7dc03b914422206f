"""Steps that an instance takes in one go where nobody listens: nothing that can be seen tells it from single ones."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from blis_tui.base.errors import SpecError, StalledError
from blis_tui.cluster.cluster import Cluster
from blis_tui.engine.records import Observers, StepFinished
from blis_tui.engine.step_loop import FastForward
from blis_tui.engine.steps import Steps
from blis_tui.results.request_log import RequestLog
from blis_tui.runs import simulation as module
from blis_tui.runs.simulation import Simulation
from blis_tui.spec.load import load
from tests.builders import ListSource, Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment
    from blis_tui.results.request_log import RequestRow

BLIS: dict[str, object] = {"policy.batching": "blis", "latency": "blackbox", "workload.requests": 20}
VLLM: dict[str, object] = {"workload.requests": 20}
RECORDED: dict[str, object] = {"kind": "recorded", "durations_us": [7000 + 731 * (n % 13) for n in range(900)]}
LENGTHS: dict[str, object] = {
    "input_tokens": {"kind": "uniform", "min": 20, "max": 300},
    "output_tokens": {"kind": "uniform", "min": 1, "max": 90},
}
SESSION: dict[str, object] = {
    "turns": {"kind": "uniform", "min": 1, "max": 5},
    "think_time_ms": {"kind": "uniform", "min": 1, "max": 400},
}
CHATS: dict[str, object] = {"id": "chats", **LENGTHS, "session": SESSION}
USERS: dict[str, object] = {
    "id": "users",
    **LENGTHS,
    "arrivals": {"kind": "closed-loop", "users": 7},
}
SESSIONS: dict[str, object] = {"workload": {"rate_per_s": 9, "sessions": 14, "clients": [CHATS]}}
CLOSED_LOOP: dict[str, object] = {"workload": {"requests": 40, "clients": [USERS]}}
PRECISE: dict[str, object] = {
    "kind": "weighted",
    "scorers": [{"kind": "precise-prefix-cache", "weight": 1}, {"kind": "kv-utilization", "weight": 2}],
}
SPECS: dict[str, dict[str, object]] = {
    "alone": BLIS,
    "round-robin": {**BLIS, "cluster.instances": 3},
    "weighted": {**BLIS, "cluster.instances": 4, "policy.routing": "weighted"},
    "stale-signals": {
        **BLIS,
        "cluster.instances": 3,
        "policy.routing": "weighted",
        "cluster.signals.refresh_interval_us": 50_000,
        "cluster.signals.cache_signal_delay_us": 80_000,
    },
    "prefixes": {
        **VLLM,
        "cluster.instances": 3,
        "policy.routing": {
            "kind": "weighted",
            "scorers": [
                {"kind": "precise-prefix-cache", "weight": 1},
                {"kind": "kv-utilization", "weight": 2},
                {"kind": "load-balance", "weight": 1},
            ],
        },
        "engine.enable_prefix_caching": True,
    },
    "deadlines": {**BLIS, "cluster.instances": 2, "workload.clients.0.timeout_us": 1_500_000},
    "ahead-deadlines": {**VLLM, "cluster.instances": 2, "workload.clients.0.timeout_us": 1_500_000},
    "warm-up": {**BLIS, "cluster.instances": 2, "warm_up_us": 2_000_000},
    "roofline": {**BLIS, "cluster.instances": 2, "latency": "roofline"},
    "operators": {**VLLM, "cluster.instances": 2, "latency": "operators"},
    "fitted": {**VLLM, "cluster.instances": 2, "latency": "fitted"},
    "starved": {**BLIS, "cluster.instances": 2, "engine.kv_blocks": 130},
    "few-places": {**BLIS, "cluster.instances": 2, "engine.max_num_seqs": 4},
    "measured-steps": {**BLIS, "cluster.instances": 1, "latency": RECORDED},
    "ahead": VLLM,
    "crowded-front-end": {
        **VLLM,
        "engine.max_num_seqs": 8,
        "engine.front_end": {"request_us": 900_000, "stream_us": 700},
    },
    "ahead-starved": {**VLLM, "cluster.instances": 2, "engine.kv_blocks": 130},
    "ahead-few-places": {**VLLM, "cluster.instances": 3, "engine.max_num_seqs": 4},
    "ahead-measured-steps": {**VLLM, "cluster.instances": 1, "latency": RECORDED},
    "sglang": {**VLLM, "policy.batching": "sglang", "cluster.instances": 2},
    "sglang-deadlines": {
        **VLLM,
        "policy.batching": {"kind": "sglang", "scheduler_recv_interval": 5},
        "cluster.instances": 2,
        "workload.clients.0.timeout_us": 1_500_000,
    },
    "logged": {**BLIS, "policy.batching": {"kind": "llm-serving-sim", "log_interval": 1.0}, "cluster.instances": 2},
    "sessions": {**SESSIONS, "cluster.instances": 3, "engine.enable_prefix_caching": True},
    "sessions-one-at-a-time": {**SESSIONS, "policy.batching": "blis", "latency": "blackbox", "cluster.instances": 3},
    "sessions-weighted": {**SESSIONS, "cluster.instances": 3, "policy.routing": PRECISE},
    "sessions-starved": {**SESSIONS, "cluster.instances": 2, "engine.kv_blocks": 130},
    "sessions-few-places": {**SESSIONS, "cluster.instances": 2, "engine.max_num_seqs": 2},
    "sessions-sglang": {**SESSIONS, "policy.batching": "sglang", "cluster.instances": 2},
    "sessions-deadlines": {
        "workload": {"rate_per_s": 9, "sessions": 14, "clients": [{**CHATS, "timeout_us": 700_000}]},
        "cluster.instances": 2,
    },
    "sessions-rejected": {
        **SESSIONS,
        "cluster.instances": 2,
        "policy.admission": {"kind": "token-bucket", "capacity_tokens": 900, "refill_tokens_per_s": 900},
    },
    "sessions-among-others": {
        "workload": {"rate_per_s": 20, "requests": 60, "clients": [CHATS, {"id": "single", **LENGTHS}]},
        "cluster.instances": 2,
        "cluster.admission_latency_us": 900,
        "engine.front_end": {"request_us": 90_000, "stream_us": 700},
    },
    "users": {**CLOSED_LOOP, "cluster.instances": 3},
    "users-one-at-a-time": {**CLOSED_LOOP, "policy.batching": "blis", "latency": "blackbox", "cluster.instances": 2},
    "users-and-chats": {
        "workload": {"rate_per_s": 9, "requests": 60, "clients": [CHATS, USERS]},
        "cluster.instances": 2,
        "policy.routing": "least-loaded",
    },
    "split": {
        **VLLM,
        "cluster.instances": 3,
        "cluster.disaggregation": {"prefill_instances": 1, "decode_instances": 2},
    },
    "shared-tier": {
        **VLLM,
        "cluster.instances": 3,
        "engine.kv_blocks": 130,
        "engine.kv_tiers": {"kind": "offload", "tiers": [{"name": "store", "blocks": 90, "shared": True}]},
    },
    "shared-link": {
        **VLLM,
        "cluster.instances": 4,
        "cluster.disaggregation": {
            "prefill_instances": 2,
            "decode_instances": 2,
            "transfer": {"contention": "fair-share", "bandwidth_gb_per_s": 1},
        },
    },
}


@pytest.fixture(scope="module", params=SPECS)
def made(request: pytest.FixtureRequest) -> Experiment:
    return load("quickstart", overrides=SPECS[request.param])


class Single:
    """A twin that takes one event after the other."""

    def __init__(self, made: Experiment) -> None:
        self._simulation = Simulation(made)

    def assert_same(self, other: Simulation) -> None:
        """After as many events it is in the same state."""
        while self._simulation.events < other.events:
            assert self._simulation.step() is not None
        assert (self._simulation.now_us, self._simulation.digest()) == (other.now_us, other.digest())

    @property
    def upcoming_us(self) -> int | None:
        """When its next event happens."""
        upcoming = self._simulation.peek()
        return None if upcoming is None else upcoming.time_us


def test_a_number_of_events_is_kept_to(made: Experiment) -> None:
    simulation, single = Simulation(made), Single(made)
    while not simulation.done:
        before = simulation.events
        simulation.run(max_events=37)
        assert simulation.events == before + 37 or simulation.done
        single.assert_same(simulation)


def test_it_stops_only_where_single_events_lead_to(made: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SLICE_EVENTS", 11)
    seen: list[int] = []

    def look(simulation: Simulation) -> bool:
        seen.append(simulation.events)
        single.assert_same(simulation)
        return len(seen) % 5 > 0  # each fifth time it has to go on from where it stopped

    simulation, single = Simulation(made), Single(made)
    while not simulation.run(go_on=look):
        pass
    assert simulation.done
    assert len(seen) > 10


def test_a_time_is_kept_to(made: Experiment) -> None:
    simulation, single = Simulation(made), Single(made)
    until_us = 0
    while not simulation.done:
        until_us += 123_457
        simulation.run(until_us)
        single.assert_same(simulation)
        assert simulation.now_us <= until_us
        assert single.upcoming_us is None or single.upcoming_us > until_us


def test_stop_leaves_a_state_that_single_events_lead_to(made: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """As a signal's handler does it: in the middle of anything."""
    simulation, single = Simulation(made), Single(made)
    calls = 0
    plan = Steps.run

    def stopping(self: Steps, *given: Any) -> int:
        nonlocal calls
        calls += 1
        if calls % 3 == 0:
            simulation.stop()
        return plan(self, *given)

    monkeypatch.setattr(Steps, "run", stopping)
    stops = 0
    while not simulation.run():
        stops += 1
        with monkeypatch.context() as calm:
            calm.setattr(Steps, "run", plan)
            single.assert_same(simulation)
    assert stops > 3
    assert simulation.done


def test_steps_are_taken_in_one_go(made: Experiment, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else the other tests here would show nothing."""
    goes: list[int] = []
    decode = FastForward._decode

    def counting(self: FastForward, *given: int) -> tuple[int, int, int]:
        answer = decode(self, *given)
        goes.append(answer[0])
        return answer

    monkeypatch.setattr(FastForward, "_decode", counting)
    simulation = Simulation(made)
    loop = simulation.cluster.instances[0].loop
    if not isinstance(loop, FastForward) or loop._max_decodes < 0:
        pytest.skip("its rule plans each step")
    simulation.run()
    if simulation.cluster.instances[0].steps.timed is None:
        assert not goes
        return
    assert max(goes) > 5
    if simulation.cluster.pipeline.can_run_ahead:
        assert len(goes) < 0.8 * sum(goes)


def test_whoever_listens_hears_of_each_step(made: Experiment) -> None:
    simulation = Simulation(made)
    heard: list[StepFinished] = []
    simulation.run(max_events=20)
    simulation.subscribe(StepFinished, heard.append)
    simulation.run()
    assert all(step.event > 20 for step in heard)
    assert len({step.event for step in heard}) == len(heard) > 50
    Single(made).assert_same(simulation)


def test_a_tie_goes_by_instances_and_kinds_of_events() -> None:
    """Both instances step at the same times, and requests arrive at those times, too."""

    def requests() -> list[Request]:
        return [request(number, number // 2 * 110, 10, 12) for number in range(12)]

    made = experiment(instances=2, beta=(110.0, 0.0, 0.0))
    ahead, single = (Cluster(made, ListSource(requests()), RequestLog(detours=False), Observers()) for _ in range(2))
    ahead.run(10_000, exact=False)
    while single.run(1):
        pass
    assert (ahead.now, ahead.events) == (single.now, single.events)
    assert ahead.ledger.fingerprint() == single.ledger.fingerprint()


def test_where_stages_follow_what_leaves_instances_nobody_gets_ahead() -> None:
    """A client that waits for an answer is no such stage: its end is an event as soon as its last step starts."""
    for name in ("quickstart", "conversations"):
        assert Simulation(load(name)).cluster.pipeline.can_run_ahead
    for name in ("disaggregation", "autoscaling", "gateway-queue"):
        assert not Simulation(load(name)).cluster.pipeline.can_run_ahead


def test_where_routing_reads_no_state_instances_run_apart() -> None:
    """Requests that are dealt in turns meet only on their instance: each instance by itself says the same of them."""
    requests = [request(number, number * 35, 10 + number * 7 % 40, 5 + number * 11 % 30) for number in range(60)]
    together = Outcome(experiment(instances=3, blocks=30), copy.deepcopy(requests)).rows
    apart: dict[str, RequestRow] = {}
    for instance in range(3):
        alone = Outcome(experiment(instances=1, blocks=30), copy.deepcopy(requests[instance::3])).rows
        apart |= {name: row._replace(instance=instance) for name, row in alone.items()}
    assert apart == together
    assert any(row.preemptions for row in together.values())


@settings(max_examples=20)
@given(
    made=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 10**6),
            "workload.rate_per_s": st.sampled_from([4, 20, 80]),
            "cluster.instances": st.integers(1, 4),
            "policy.batching": st.sampled_from(["blis", "vllm-v1", "sglang"]),
            "policy.routing": st.sampled_from(["round-robin", "least-loaded", "weighted"]),
            "latency": st.sampled_from(["blackbox", "operators", "roofline"]),
            "engine.max_num_seqs": st.sampled_from([4, 16, 256]),
            "engine.kv_blocks": st.sampled_from([130, 400, 4000]),
            "engine.block_size_tokens": st.sampled_from([8, 16, 64]),
        },
        optional={
            "workload.clients.0.timeout_us": st.sampled_from([300_000, 1_500_000]),
            "cluster.signals.refresh_interval_us": st.sampled_from([1, 5000, 200_000]),
            "engine.front_end": st.just({"request_us": 20_000, "stream_us": 400}),
        },
    ),
    until_us=st.integers(1, 4_000_000),
)
def test_any_cluster_comes_to_the_same_state(made: dict[str, object], until_us: int) -> None:
    experiment = load("quickstart", overrides={"workload.requests": 30, "expect": [], **made})
    ahead, single = Simulation(experiment), Single(experiment)
    for end_us in (until_us, None):
        ahead.run(end_us)
        single.assert_same(ahead)


CHAT: dict[str, object] = {
    "prefix": {"group": "system", "tokens": 40},
    "input_tokens": {"kind": "gaussian", "mean": 90, "std_dev": 60, "min": 2, "max": 300},
    "output_tokens": {"kind": "gaussian", "mean": 60, "std_dev": 40, "min": 1, "max": 200},
}
TIER = st.fixed_dictionaries(
    {
        "blocks": st.sampled_from([0, 20, 400]),
        "bandwidth_tokens_per_us": st.sampled_from([0.001, 0.05, 10]),
        "base_latency_us": st.sampled_from([0, 500]),
    }
)


@settings(max_examples=20)
@given(
    made=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 10**6),
            "workload.rate_per_s": st.sampled_from([4, 20, 80]),
            "cluster.instances": st.integers(1, 4),
            "policy.batching": st.sampled_from(["blis", "vllm-v1"]),
            "policy.routing": st.sampled_from(["round-robin", "least-loaded", "weighted"]),
            "latency": st.sampled_from(["blackbox", "operators"]),
            "engine.max_num_seqs": st.sampled_from([4, 256]),
            "engine.kv_blocks": st.sampled_from([40, 80, 4000]),
        },
        optional={
            "engine.pipeline_parallel": st.just(2),
            "workload.clients.0.timeout_us": st.sampled_from([300_000, 1_500_000]),
            "workload.clients.0.adapters": st.just({"count": 3}),
            "engine.lora": st.just({"max_loras": 2}),
            "engine.speculative": st.just({"draft_tokens": 2, "acceptance": 0.6}),
        },
    ),
    own=st.lists(TIER, max_size=2),
    store=TIER,
    overlap=st.booleans(),
    until_us=st.integers(1, 4_000_000),
)
def test_instances_that_share_a_tier_come_to_the_same_state(
    made: dict[str, object], own: list[dict[str, object]], store: dict[str, object], overlap: bool, until_us: int
) -> None:
    """What one of them stores decides what another computes, so the order of their steps matters."""
    tiers = [{"name": f"own {number}", **tier} for number, tier in enumerate(own)] + [
        {"name": "store", "shared": True, **store}
    ]
    chat = {f"workload.clients.0.{key}": value for key, value in CHAT.items()}
    kept = {"engine.kv_tiers": {"kind": "offload", "tiers": tiers, "overlap": overlap}}
    if "engine.lora" not in made:
        made.pop("workload.clients.0.adapters", None)
    try:
        experiment = load("quickstart", overrides={"workload.requests": 30, "expect": [], **chat, **kept, **made})
    except SpecError:
        reject()
    ahead, single = Simulation(experiment), Single(experiment)
    for end_us in (until_us, None):
        ahead.run(end_us)
        single.assert_same(ahead)


SGLANG = st.fixed_dictionaries(
    {"kind": st.just("sglang")},
    optional={
        "chunked_prefill_size": st.sampled_from(["none", 64, 256]),
        "schedule_conservativeness": st.sampled_from([0, 0.02, 0.3]),
        "overlap_schedule": st.booleans(),
        "scheduler_recv_interval": st.sampled_from([1, 4]),
    },
)
MORE: list[dict[str, object]] = [
    {},
    {"policy.scheduling": "lpm"},
    {"policy.scheduling": "lof"},
    {"policy.batching.chunked_prefill_size": 64, "policy.batching.enable_mixed_chunk": True},
    {"engine.enable_prefix_caching": False},
    {"engine.kv_tiers": {"kind": "hicache", "bandwidth_tokens_per_us": 0.1}},
    {"workload.clients.0.adapters": {"count": 3}, "engine.lora": {"max_loras": 2}},
    {"policy.batching.enable_priority_scheduling": True, "policy.priority": "slo-class"},
]


@settings(max_examples=25)
@given(
    made=st.fixed_dictionaries(
        {
            "seed": st.integers(0, 10**6),
            "workload.rate_per_s": st.sampled_from([4, 20, 80]),
            "cluster.instances": st.integers(1, 2),
            "latency": st.sampled_from(["blackbox", "operators", "trained-physics"]),
            "engine.max_num_seqs": st.sampled_from([3, 16, 256]),
            "engine.kv_blocks": st.sampled_from([40, 80, 4000]),
        },
        optional={"policy.routing": st.sampled_from(["least-loaded", "weighted"])},
    ),
    rule=SGLANG,
    more=st.sampled_from(MORE),
    client=st.fixed_dictionaries(
        {},
        optional={
            "max_output_tokens": st.sampled_from([200, 400]),
            "timeout_us": st.sampled_from([300_000, 1_500_000]),
        },
    ),
    page=st.sampled_from([1, 16]),
    until_us=st.integers(1, 4_000_000),
)
def test_sglang_comes_to_the_same_state_as_if_it_planned_each_step(
    made: dict[str, Any],
    rule: dict[str, object],
    more: dict[str, object],
    client: dict[str, Any],
    page: int,
    until_us: int,
) -> None:
    sized = {"engine.block_size_tokens": page, "engine.kv_blocks": made["engine.kv_blocks"] * 16 // page}
    overrides = {
        "workload": {"requests": 40, "rate_per_s": 1, "clients": [{"id": "only", **CHAT, **client}]},
        **made,
        **sized,
        "policy.batching": rule,
        "expect": [],
        **more,
    }
    experiment = load("quickstart", overrides=overrides)
    ahead, heard = Simulation(experiment), Simulation(experiment)
    heard.subscribe("all", lambda _: None)  # for that, each step is planned
    for end_us in (until_us, None):
        try:
            ahead.run(end_us)
        except StalledError:  # SGLang runs out of memory, or would wait for ever
            return
        heard.run(end_us)
        assert (ahead.now_us, ahead.events, ahead.digest()) == (heard.now_us, heard.events, heard.digest())


def test_every_event_has_a_record(made: Experiment) -> None:
    """The debugger's tape has a row for each event, and counts on that."""
    simulation, seen = Simulation(made), dict[int, None]()
    simulation.subscribe("all", lambda record: seen.setdefault(record.event))
    simulation.run()
    assert [*seen] == [*range(1, simulation.events + 1)]


def test_the_event_that_is_said_to_come_next_does(made: Experiment) -> None:
    """Ends of transfers that share a link move when others begin or end. (A step may find nothing to do.)"""
    simulation = Simulation(made)
    while (upcoming := simulation.step()) is not None:
        assert upcoming.time_us == simulation.now_us or upcoming.kind == "step"
