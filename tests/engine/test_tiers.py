"""Tiers below the KV cache, by hand. Steps take 100 + prefill + 10 * decodes microseconds."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blis_tui.engine.options.tiers import Tiers
from blis_tui.engine.plan import Plan
from blis_tui.engine.records import Scheduled, StepFinished, TiersLoaded
from blis_tui.model import KvTier, KvTiers
from blis_tui.results.sections.instances import TiersReport, tiers_report
from tests.builders import Outcome, experiment, request

CPU = KvTier(name="cpu", blocks=8, bandwidth_tokens_per_us=0.1, base_latency_us=10)
"""A block of 4 tokens takes 50 us; two of them together 90."""
DISK = KvTier(name="disk", blocks=8, bandwidth_tokens_per_us=0.01, base_latency_us=100)
PREFIX = (("x", 8),)


def _run(tiers: KvTiers, *, late: int = 20_000, blocker: int = 0) -> tuple[Outcome, TiersReport]:
    """A prompt of 3 blocks with a prefix of 2; one that overwrites the whole cache of 6; the first one again.

    ``blocker``: tokens of a prompt that comes just before that and holds its blocks for a while.
    """
    requests = [request(0, 0, 12, 1, segments=PREFIX), request(1, 5000, 24, 1)]
    if blocker:
        requests.append(request(2, late - 10, blocker, 4))
    requests.append(request(3, late, 12, 1, segments=PREFIX))
    outcome = Outcome(experiment(blocks=6, kv_tiers=tiers), requests)
    cluster = outcome.cluster
    found = tiers_report(cluster.instances, cluster.pools)
    assert found is not None
    return outcome, found


def _last(outcome: Outcome) -> tuple[Scheduled, StepFinished]:
    scheduled = [record for record in outcome.records if isinstance(record, Scheduled)][-1]
    step = next(record for record in outcome.records if isinstance(record, StepFinished) and record.admitted == ("3",))
    return scheduled, step


@pytest.mark.parametrize(("overlap", "duration"), [(True, 104), (False, 194)])
def test_a_request_is_admitted_with_what_a_tier_has(overlap: bool, duration: int) -> None:
    outcome, tiers = _run(KvTiers(kind="offload", tiers=(CPU,), overlap=overlap))
    scheduled, step = _last(outcome)
    assert (scheduled.cached_tokens, scheduled.new_tokens, step.duration_us) == (8, 4, duration)
    assert (tiers.offloaded, tiers.reloaded, tiers.thrashing) == (2, 2, 0)
    assert tiers.tiers["cpu"].held == 2
    assert tiers.transfer_us == 90 + 90


def test_what_makes_room_sinks_to_the_next_tier() -> None:
    outcome, tiers = _run(KvTiers(kind="offload", tiers=(replace(CPU, blocks=1), DISK)))
    (loaded,) = (record for record in outcome.records if isinstance(record, TiersLoaded))
    assert loaded.tiers == ("cpu: 1", "disk: 1")
    assert loaded.transfer_us == 50 + 500
    assert _last(outcome)[1].duration_us == 550
    assert tiers.tiers["cpu"].dropped > 0


@pytest.mark.parametrize("kind", ["mirror", "threshold"])
def test_mirror_and_threshold_bring_blocks_back_when_a_request_does_not_fit(kind: str) -> None:
    """12 tokens of the blocker and its next ones leave 2 free blocks; they take the prefix until all three fit."""
    tiers = KvTiers(kind=kind, tiers=(CPU,), offload_at=0.0, overlap=False)
    outcome, found = _run(tiers)
    assert (_last(outcome)[0].cached_tokens, found.reloaded) == (0, 0)
    outcome, found = _run(tiers, blocker=12)
    assert (_last(outcome)[0].cached_tokens, found.reloaded) == (8, 2)
    assert found.transfer_us >= 2 * 50 + 2 * 50


def test_the_threshold_is_about_blocks_in_use_when_content_is_overwritten() -> None:
    """The second prompt overwrites the prefix when 4 and 5 of 6 blocks are in use: it takes the unused ones first."""
    kept = {
        share: _run(KvTiers(kind="threshold", tiers=(CPU,), offload_at=share))[1].offloaded for share in (0.6, 0.8, 0.9)
    }
    assert kept == {0.6: 2, 0.8: 1, 0.9: 0}


def test_what_comes_back_within_a_millisecond_is_thrashing() -> None:
    tiers = KvTiers(kind="offload", tiers=(CPU,))
    assert _run(tiers, late=5300)[1].thrashing == 0
    requests = [request(0, 0, 12, 1, segments=PREFIX), request(1, 150, 24, 1), request(3, 300, 12, 1, segments=PREFIX)]
    cluster = Outcome(experiment(blocks=6, kv_tiers=tiers), requests).cluster
    found = tiers_report(cluster.instances, cluster.pools)
    assert found is not None
    assert found.thrashing == 2
    tier, pool = found.tiers[CPU.name], cluster.instances[0].pool
    assert tier.blocks == CPU.blocks
    assert tier.hit_rate == found.reloaded / (pool.hits + pool.misses)


def test_preempted_requests_find_their_own_blocks_below() -> None:
    """The prompt of the victim comes back with its first tokens, though the GPU has overwritten them."""
    tiers = KvTiers(kind="offload", tiers=(CPU,))
    requests = [request(0, 0, 8, 16), request(1, 0, 8, 16)]
    outcome = Outcome(experiment(blocks=6, kv_tiers=tiers), requests)
    again = [
        record.cached_tokens for record in outcome.records if isinstance(record, Scheduled) and record.request_id == "1"
    ]
    assert again[0] == 0
    assert max(again[1:]) == 8
    assert {row.output_tokens for row in outcome.rows.values()} == {16}


@pytest.mark.parametrize(("looks", "left"), [((60,), 30), ((10, 20, 60), 30), ((60, 60), 30), ((40, 95), 0)])
def test_idle_time_passes_once_however_often_a_step_is_planned(looks: tuple[int, ...], left: int) -> None:
    """Plans that compute nothing look at the clock, too; the two blocks that left take 90 us together."""
    tiers = Tiers(KvTiers(kind="offload", tiers=(CPU,), overlap=False), 4)
    tiers.store_released((1, 2))
    for now in looks:
        tiers.begin_plan(now)
    assert tiers.lasting_us(Plan(), looks[-1], 100) == 100 + left
