"""What the control plane sees of an instance's prefix cache, counted by hand. Blocks hold four tokens."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blis_tui.model import Signals
from tests.builders import Outcome, experiment, request


@pytest.mark.parametrize(("delay_us", "seen"), [(0, 3 / 8), (1_000_000, 0.0)])
def test_the_hit_rate_counts_blocks_hit_and_is_as_old_as_the_view_of_the_cache(delay_us: int, seen: float) -> None:
    prefix = (("system", 12),)
    plain = experiment()
    made = replace(plain, cluster=replace(plain.cluster, signals=Signals(cache_signal_delay_us=delay_us)))
    asked = [request(0, 0, 15, 1, segments=prefix), request(1, 1_000, 15, 1, segments=prefix)]
    outcome = Outcome(made, asked)
    pool = outcome.cluster.instances[0].pool
    assert (pool.hits, pool.misses) == (3, 5)  # four blocks, then three of them again and one of its own
    assert outcome.cluster.registry.board.of(0, 2_000).cache.hit_rate == seen


def test_the_hit_rate_of_an_instance_without_requests_is_zero() -> None:
    assert Outcome(experiment(), []).cluster.registry.board.cache(0).hit_rate == 0.0
