"""A tier that instances share, by hand. Steps take 100 + prefill + 10 * decodes microseconds."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

import blis_tui
from blis_tui.engine.options.shared_tier import SharingTiers
from blis_tui.engine.records import Scheduled, StepFinished, TiersLoaded
from blis_tui.model import Cluster, Failure, KvTier, KvTiers
from blis_tui.results.sections.instances import TiersReport, tiers_report, zero_if_omitted
from blis_tui.runs.simulation import Simulation
from tests.builders import Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.options.tier_store import TierStore
    from blis_tui.engine.request import Request
    from blis_tui.model import Experiment

STORE = KvTier(name="store", blocks=8, bandwidth_tokens_per_us=0.1, base_latency_us=10, shared=True)
"""A block of 4 tokens takes 50 us; two of them together 90."""
CPU = KvTier(name="cpu", blocks=1, bandwidth_tokens_per_us=0.1, base_latency_us=0)
PREFIX = (("x", 8),)


def _asks(index: int, arrival_us: int) -> Request:
    """A prompt of 3 blocks, with a prefix of 2; its answer comes with the prompt's step."""
    return request(index, arrival_us, 12, 1, segments=PREFIX)


def _tiers(*tiers: KvTier, overlap: bool = True) -> KvTiers:
    return KvTiers(kind="offload", tiers=tiers, overlap=overlap)


def _run(tiers: KvTiers, *requests: Request, instances: int = 2, blocks: int = 100) -> tuple[Outcome, TiersReport]:
    outcome = Outcome(experiment(blocks=blocks, instances=instances, kv_tiers=tiers), requests)
    found = tiers_report(outcome.cluster.instances, outcome.cluster.pools)
    assert found is not None
    return outcome, found


def _cached(outcome: Outcome) -> list[tuple[int, int]]:
    """Instance and cached tokens of each scheduled request."""
    return [(record.instance, record.cached_tokens) for record in outcome.records if isinstance(record, Scheduled)]


def _store(outcome: Outcome, instance: int = 0) -> TierStore:
    tiers = outcome.cluster.instances[instance].pool.tiers
    assert isinstance(tiers, SharingTiers)
    return tiers.store


@pytest.mark.parametrize(("overlap", "duration"), [(True, 104), (False, 194)])
def test_one_instance_loads_what_another_has_stored(overlap: bool, duration: int) -> None:
    """Instance 0 computes 12 tokens until 112, and stores two blocks until 202. Instance 1 loads them in 90 us."""
    outcome, found = _run(_tiers(STORE, overlap=overlap), _asks(0, 0), _asks(1, 202))
    assert _cached(outcome) == [(0, 0), (1, 8)]
    first, second = (record for record in outcome.records if isinstance(record, StepFinished))
    assert (first.duration_us, second.time_us, second.duration_us) == (112, 202, duration)
    (loaded,) = (record for record in outcome.records if isinstance(record, TiersLoaded))
    assert (loaded.instance, loaded.tiers) == (1, ("store (stored by others): 2",))
    assert (loaded.transfer_us, loaded.thrashing) == (90, 0)
    assert (found.offloaded, found.reloaded, found.thrashing, found.transfer_us) == (2, 2, 0, 90 + 90)
    tier = found.tiers["store"]
    assert (tier.held, tier.from_others) == (2, 2)
    assert zero_if_omitted("kv_tiers.tiers.store.from_others") == 0


@pytest.mark.parametrize("arrival_us", [112, 201])
def test_blocks_are_found_by_others_when_they_are_there(arrival_us: int) -> None:
    outcome, found = _run(_tiers(STORE), _asks(0, 0), _asks(1, arrival_us))
    assert _cached(outcome) == [(0, 0), (1, 0)]
    assert found.tiers["store"].offloaded == 2  # the second time they are there already


def test_the_instance_itself_finds_them_at_once() -> None:
    """As in a tier of its own: whether it is asked while blocks are on their way makes no difference."""
    blocker = request(1, 112, 24, 1)
    outcome, found = _run(_tiers(STORE), _asks(0, 0), blocker, _asks(2, 113), instances=1, blocks=6)
    assert _cached(outcome)[-1] == (0, 8)
    assert (found.thrashing, found.tiers["store"].from_others) == (2, 0)


def test_what_sinks_from_a_tier_of_its_own_is_found_by_others() -> None:
    """The host keeps the first block of the prefix; the last one, which it got before, went on to the store."""
    outcome, found = _run(_tiers(CPU, STORE), _asks(0, 0), _asks(1, 5_000))
    assert {name: tier.held for name, tier in found.tiers.items()} == {"cpu": 2, "store": 1}
    assert _cached(outcome) == [(0, 0), (1, 0)]  # a prefix without its first block is none
    outcome, found = _run(_tiers(replace(CPU, blocks=0), STORE), _asks(0, 0), _asks(1, 5_000))
    assert _cached(outcome) == [(0, 0), (1, 8)]


def test_capacity_and_order_are_those_of_the_store() -> None:
    """Three prefixes of two blocks from three instances; the one used least recently goes for the third."""
    small = replace(STORE, blocks=4)
    asked = [request(index, 1_000 * index, 12, 1, segments=((name, 8),)) for index, name in enumerate("xyxzxy")]
    outcome, found = _run(_tiers(small), *asked, instances=1, blocks=3)
    alone = [cached for _, cached in _cached(outcome)]
    outcome, found = _run(_tiers(small), *asked, instances=6, blocks=3)
    assert [cached for _, cached in _cached(outcome)] == alone == [0, 0, 8, 0, 8, 0]
    assert _store(outcome) is _store(outcome, 5)
    assert (found.tiers["store"].held, found.tiers["store"].dropped) == (4, 4)


def test_a_request_that_did_not_fit_is_tried_again_when_the_store_has_changed() -> None:
    """With 8 tokens from the store, its next 3 need a third block, and two are free; without them, one suffices.

    Instance 0 stores its first prefix until 402, and replaces it when its second request ends, from 521 on. Instance 1
    decodes, holding three of five blocks from 208 to 648: its steps start at 428, 538, ….
    """
    asked = [_asks(0, 0), request(1, 0, 8, 12), request(2, 313, 12, 1, segments=(("y", 8),)), _asks(3, 410)]
    made = experiment(blocks=5, budget=4, instances=2, kv_tiers=_tiers(replace(STORE, blocks=2)))
    outcome = Outcome(made, asked)
    scheduled = {record.request_id: record for record in reversed(outcome.records) if isinstance(record, Scheduled)}
    assert (scheduled["3"].instance, scheduled["3"].cached_tokens, scheduled["3"].time_us) == (1, 0, 538)
    assert any(record.time_us == 428 for record in outcome.of_kind("scheduling-stopped"))


# ---- instances that come and go ----


def _dying(at_us: int, *tiers: KvTier, repair_us: int | None = None) -> Experiment:
    """Instance 0 dies at this time."""
    failure = Failure(instance=0, at_us=at_us, repair_us=repair_us)
    return replace(experiment(instances=2, kv_tiers=_tiers(*tiers)), cluster=Cluster(failures=(failure,)))


def test_a_store_survives_an_instance_that_dies() -> None:
    """Instance 0 leaves two prefixes, whose first block to go stays on its host, and dies with that.

    When it is back, it finds in the store what had made room on the host for the second prefix: all of the first one.
    """
    asked = [_asks(0, 0), request(1, 5_000, 4, 1), request(2, 6_000, 12, 1, segments=(("y", 8),))]
    outcome = Outcome(_dying(10_000, CPU, STORE, repair_us=1_000), [*asked, request(3, 7_000, 4, 1), _asks(4, 20_000)])
    assert _cached(outcome)[-1] == (0, 8)
    (loaded,) = (record for record in outcome.records if isinstance(record, TiersLoaded))
    assert (loaded.instance, loaded.tiers) == (0, ("store: 2",))
    found = tiers_report(outcome.cluster.instances, outcome.cluster.pools)
    assert found is not None
    assert found.tiers["store"].held == 3


@pytest.mark.parametrize(("died_us", "broken_off", "cached"), [(201, 2, 0), (202, 0, 8)])
def test_what_is_on_its_way_to_the_store_is_lost(died_us: int, broken_off: int, cached: int) -> None:
    """As in the first example, two blocks leave at 112 and are there at 202; instance 1 asks at 5000."""
    outcome = Outcome(_dying(died_us, STORE), [_asks(0, 0), _asks(1, 5_000)])
    assert _cached(outcome) == [(0, 0), (1, cached)]
    assert _store(outcome).broken_off == broken_off


def test_an_instance_that_dies_stores_nothing_more() -> None:
    """Its request has computed its prompt, and starts again on the other one."""
    outcome = Outcome(_dying(300, STORE), [request(0, 0, 12, 9, segments=PREFIX)])
    assert _cached(outcome) == [(0, 0), (1, 0)]
    tier = outcome.cluster.instances[0].pool.tiers
    assert tier is not None
    assert (tier.tiers[0].stored, _store(outcome).broken_off) == (0, 0)


# ---- the same as tiers of one instance, and as without a break ----


def _shipped(shared: bool, **changes: object) -> Experiment:
    tiers = [{"name": "cpu", "blocks": 100, "bandwidth_tokens_per_us": 0.4}]
    tiers.append({"name": "store", "blocks": 900, "base_latency_us": 80, **({"shared": True} if shared else {})})
    kept = {"kind": "offload", "tiers": tiers}
    return blis_tui.load("kv-tiers", set={"workload.requests": 40, "expect": [], "engine.kv_tiers": kept, **changes})


@settings(max_examples=8, deadline=None, phases=[Phase.explicit, Phase.reuse, Phase.generate])
@given(
    seed=st.integers(0, 10**6),
    blocks=st.sampled_from([400, 700]),
    batching=st.sampled_from(["blis", "vllm-v1"]),
    rate=st.sampled_from([2, 30]),
)
def test_of_one_instance_it_gives_the_report_of_its_own_tier(seed: int, blocks: int, batching: str, rate: int) -> None:
    changes = {
        "seed": seed,
        "engine.kv_blocks": blocks,
        "policy.batching": batching,
        "workload.rate_per_s": rate,
    }
    own, shared = (json.loads(blis_tui.run(_shipped(shared, **changes)).to_json()) for shared in (False, True))
    assert own["meta"].pop("spec_sha256") != shared["meta"].pop("spec_sha256")
    unread = [warning for warning in shared["warnings"] if warning["id"] == "unread-keys"]
    assert unread  # that it is shared has no effect
    for report in (own, shared):
        report["warnings"] = [warning for warning in report["warnings"] if warning["id"] != "unread-keys"]
    assert json.dumps(own) == json.dumps(shared)
    found = own["kv_tiers"]
    store = found["tiers"]["store"]
    assert store["reloaded"]
    assert store["hit_rate"] == found["hit_rate"]  # it is the only tier


def test_going_back_restores_the_store() -> None:
    """Once, for all instances; in the same simulation, and in another one."""
    made = _shipped(shared=True, **{"cluster.instances": 3, "cluster.failures": [{"instance": 1, "at_us": 5_000_000}]})
    simulation, other = Simulation(made, check="all"), Simulation(made)
    simulation.run(3_000_000)
    mark, saved, digest = simulation.mark(), simulation.checkpoint(), simulation.digest()
    simulation.run()
    report, end = simulation.report().to_json(), simulation.digest()
    simulation.return_to(mark)
    other.restore(saved)
    for again in (simulation, other):
        assert again.digest() == digest
        stores = [instance.pool.tiers.store for instance in again.cluster.instances if instance.pool.tiers]
        assert len(stores) == 3
        assert stores[0] is stores[1] is stores[2] is not None
        again.run()
        assert (again.report().to_json(), again.digest()) == (report, end)
