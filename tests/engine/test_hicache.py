"""SGLang's hierarchical cache by hand, and its books in recorded runs, which ``tests/parity`` compares batch for batch.

Steps take 1,000 us; a KV block holds one token.
"""

from __future__ import annotations

import pickle
from typing import TYPE_CHECKING

import pytest

import blis_tui
from blis_tui.cluster.cluster import Cluster as ClusterState
from blis_tui.cluster.state import digest
from blis_tui.engine.records import Observers, StepFinished, TiersLoaded
from blis_tui.engine.sglang.hicache import HostPool
from blis_tui.model import KvTier, KvTiers
from blis_tui.results.request_log import RequestLog
from blis_tui.results.sections.instances import tiers_report
from tests.builders import ListSource, Outcome, experiment, request
from tests.parity.test_sglang import HICACHE, made_of, read, requests_of

if TYPE_CHECKING:
    from blis_tui.engine.request import Request
    from blis_tui.results.sections.instances import TierReport

POLICIES = ("write_through", "write_through_selective", "write_back")


def hicache(policy: str, *, ratio: float = 2.0, base_us: int = 0, tokens_per_us: float = 1.0) -> KvTiers:
    host = KvTier(name="host", blocks=0, bandwidth_tokens_per_us=tokens_per_us, base_latency_us=base_us)
    return KvTiers(kind="hicache", tiers=(host,), ratio=ratio, write_policy=policy)


def run(requests: list[Request], tiers: KvTiers, *, blocks: int = 60, overlap: bool = False) -> Outcome:
    made = experiment(
        batching="sglang",
        settings={"overlap_schedule": overlap},
        block_size=1,
        blocks=blocks,
        beta=(1000.0, 0.0, 0.0),
        kv_tiers=tiers,
    )
    return Outcome(made, requests)


def host_of(outcome: Outcome) -> TierReport:
    report = tiers_report(outcome.cluster.instances, outcome.cluster.pools)
    assert report is not None
    return report.tiers["host"]


def again(prefix: int) -> list[Request]:
    """One that begins with g, one that takes the GPU for itself, and one that begins with g again."""
    group = (("g", prefix),)
    return [
        request(0, 0, prefix + 2, 1, segments=group),
        request(1, 10_000, 50, 1),
        request(2, 20_000, prefix + 3, 1, segments=group),
    ]


def chunks(outcome: Outcome) -> list[list[tuple[str, int, int]]]:
    steps = [record for record in outcome.records if isinstance(record, StepFinished)]
    return [[(each.request_id, each.computed_tokens, each.new_tokens) for each in step.chunks] for step in steps]


@pytest.mark.parametrize("policy", POLICIES)
def test_what_the_gpu_loses_comes_back_if_it_was_written(policy: str) -> None:
    outcome = run(again(20), hicache(policy))
    steps = chunks(outcome)
    assert steps[:2] == [[("0", 0, 22)], [("1", 0, 50)]]
    # Put in once, ``write_through_selective`` has not written it; the GPU's copy went when 1 needed room.
    kept = policy != "write_through_selective"
    assert steps[2] == [("2", 20, 3) if kept else ("2", 0, 23)]
    assert host_of(outcome).reloaded == (20 if kept else 0)
    # Written: all prompts as they were put in; what comes for the second time; or what was evicted.
    stored = {"write_through": 22 + 50 + 3, "write_through_selective": 0, "write_back": 22 + 50}
    assert host_of(outcome).offloaded == stored[policy]
    loads = [
        (record.request_id, record.blocks, record.tiers)
        for record in outcome.records
        if isinstance(record, TiersLoaded)
    ]
    assert loads == ([("2", 20, ("host: 20",))] if kept else loads[:0])


def test_selective_writes_what_is_put_in_twice() -> None:
    group = (("g", 20),)
    requests = [request(number, 5_000 * number, 20 + number, 1, segments=group) for number in range(1, 4)]
    requests += [request(8, 50_000, 58, 1), request(9, 60_000, 25, 1, segments=group)]
    for number, one in enumerate(requests):
        one.index = number
    outcome = run(requests, hicache("write_through_selective"))
    assert host_of(outcome).offloaded == 20  # the group, when the second request had put it in
    assert chunks(outcome)[-1] == [("9", 20, 5)]


def test_less_than_ten_tokens_are_computed_again() -> None:
    assert chunks(run(again(9), hicache("write_through")))[2] == [("2", 0, 12)]
    assert chunks(run(again(10), hicache("write_through")))[2] == [("2", 10, 3)]


@pytest.mark.parametrize("overlap", [False, True])
def test_a_step_lasts_until_what_it_loads_is_there(*, overlap: bool) -> None:
    for base_us, duration_us in ((0, 1000), (3000, 3000 + 40)):
        tiers = hicache("write_through", base_us=base_us, tokens_per_us=0.5)
        outcome = run(again(20), tiers, overlap=overlap)
        last = [record for record in outcome.records if isinstance(record, StepFinished) and record.chunks][-1]
        assert (last.time_us, last.duration_us) == (20_000, duration_us)


def test_what_is_being_written_is_no_room_yet() -> None:
    """Of 60 tokens 1 needs 50, and the 22 of 0 are on their way to the host until 1,000 + 3,000 + 22 us."""
    requests = [request(0, 0, 22, 1), request(1, 500, 50, 1)]
    for base_us, start_us in ((0, 1022), (3000, 4022)):
        outcome = run([*requests], hicache("write_through", base_us=base_us))
        assert [record.time_us for record in outcome.records if isinstance(record, StepFinished)] == [0, start_us]
        requests = [request(0, 0, 22, 1), request(1, 500, 50, 1)]
    # Written back, it is written when it is evicted, and the plan waits for that.
    outcome = run(requests, hicache("write_back", base_us=3000))
    assert [record.time_us for record in outcome.records if isinstance(record, StepFinished)] == [0, 4022]


def test_on_a_tight_cache_writing_through_makes_requests_wait() -> None:
    """As the page on memory says of this experiment."""

    def mean_ttft_ms(tiers: dict[str, object]) -> float:
        changed = {
            "policy": "sglang",
            "engine.block_size_tokens": 1,
            "engine.kv_blocks": 11200,
            "engine.kv_tiers": tiers,
        }
        report = blis_tui.run(blis_tui.load("kv-tiers", set={**changed, "workload.requests": 60}))
        mean = report.latency.ttft_ms.mean
        assert mean is not None
        return mean

    link = {"kind": "hicache", "bandwidth_tokens_per_us": 0.4}
    none, through = mean_ttft_ms({"kind": "none"}), mean_ttft_ms(link)
    back = mean_ttft_ms({**link, "hicache_write_policy": "write_back"})
    assert back < none < through


def test_a_full_host_forgets_what_was_used_least_recently() -> None:
    # Room for 30 + 1: 22 of 0 go for the 50 of 1, which do not fit; then nothing is there to be loaded.
    outcome = run(again(20), hicache("write_through", ratio=0.5))
    assert chunks(outcome)[2] == [("2", 0, 23)]
    assert host_of(outcome).dropped >= 22
    assert host_of(outcome).held <= 31


RUNS = read(HICACHE)


@pytest.mark.parametrize("number", range(0, len(RUNS), 4))
def test_the_books_are_right_at_any_time_and_checkpoints_go_on_alike(number: int) -> None:
    recorded = RUNS[number]

    def cluster() -> ClusterState:
        return ClusterState(made_of(recorded), ListSource(requests_of(recorded)), RequestLog(), Observers())

    whole, parts = cluster(), cluster()
    whole.run(100_000)
    while parts.run(3):
        parts = pickle.loads(pickle.dumps(parts))  # noqa: S301  (our own)
        instance = parts.instances[0]
        pool, batch = instance.pool, instance.batch
        assert isinstance(pool, HostPool)
        holders = [(holder, batch.cohort.held_blocks(holder)) for holder in batch.holders()]
        assert pool.audit(holders) == ""
        assert pool.hicache.tiers[0] is pool.host_tree.host
    assert digest(parts) == digest(whole)
    pool = whole.instances[0].pool
    assert isinstance(pool, HostPool)
    assert not pool.used - pool.tree.held
    pool.reset()
    assert (pool.free, pool.tree.held, pool.host_tree.host.held) == (pool.total, 0, 0)
