"""A tier that instances share, by hand. Steps take 100 + prefill + 10 * decodes microseconds."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blis_tui.engine.options.shared_tier import SharingTiers
from blis_tui.engine.records import Scheduled, StepFinished, TiersLoaded
from blis_tui.model import KvTier, KvTiers
from blis_tui.results.sections.instances import TiersReport, tiers_report
from tests.builders import Outcome, experiment, request

if TYPE_CHECKING:
    from blis_tui.engine.options.tier_store import TierStore
    from blis_tui.engine.request import Request

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
    assert (loaded.instance, loaded.tiers, loaded.transfer_us, loaded.thrashing) == (1, ("store: 2",), 90, 0)
    assert (found.offloaded, found.reloaded, found.thrashing, found.transfer_us) == (2, 2, 0, 90 + 90)
    tier = found.tiers["store"]
    assert (tier.held, tier.from_others) == (2, 2)


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
    assert [list(tier.values()) for tier in ({name: t.held for name, t in found.tiers.items()},)] == [[2, 1]]
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
