"""The busiest of several GPUs: against numbers integrated, counted and drawn in other ways."""

from __future__ import annotations

from math import comb, fsum
from statistics import NormalDist

import pytest

from blis_tui.base.streams import Streams
from blis_tui.engine.latency.expert_parallelism import Busiest, expected_largest, popularity_excess

_NORMAL = NormalDist()


def integrated(number: int) -> float:
    """The integral of ``1 - F(x) ** n`` above 0, less that of ``F(x) ** n`` below."""
    step = 0.001
    middles = [step * (at + 0.5) for at in range(8000)]
    above = fsum(1.0 - _NORMAL.cdf(x) ** number for x in middles)
    return step * (above - fsum(_NORMAL.cdf(-x) ** number for x in middles))


@pytest.mark.parametrize("number", [1, 2, 3, 6, 8, 12, 48, 72, 256, 1024])
def test_the_expected_largest_of_normal_values_is_their_integral(number: int) -> None:
    assert expected_largest(number) == pytest.approx(integrated(number), rel=0.015, abs=1e-4)


@pytest.mark.parametrize("tokens", [16, 64, 256, 1024])
def test_with_one_expert_a_token_on_two_gpus_it_is_the_larger_of_two_counts(tokens: int) -> None:
    """Each token goes to either GPU: all ways counted, one by one."""
    ways = sum(comb(tokens, one) * max(one, tokens - one) for one in range(tokens + 1)) / 2**tokens
    busiest = Busiest(gpus=2, experts=10**9, top_k=1, lasting=0.0)
    assert tokens / 2 * busiest.share(tokens) == pytest.approx(ways, rel=0.005)


@pytest.mark.parametrize(("gpus", "tokens", "within"), [(4, 16, 0.02), (8, 64, 0.02), (8, 512, 0.01), (32, 256, 0.02)])
def test_by_chance_it_has_as_many_as_in_drawn_routings(gpus: int, tokens: int, within: float) -> None:
    """Each token draws 8 different ones of 128 experts."""
    experts, top_k, rounds = 128, 8, 12
    stream = Streams(5).stream("routing")
    largest = []
    for _ in range(rounds * 4096 // tokens // gpus + rounds):
        counts = [0] * gpus
        for _ in range(tokens):
            left = list(range(experts))
            for at in range(top_k):
                other = at + int(stream.uniform() * (experts - at))
                left[at], left[other] = left[other], left[at]
                counts[left[at] * gpus // experts] += 1
        largest.append(gpus * max(counts) / (tokens * top_k))
    share = Busiest(gpus=gpus, experts=experts, top_k=top_k, lasting=0.0).share(tokens)
    assert share == pytest.approx(fsum(largest) / len(largest), rel=within)


@pytest.mark.parametrize("lasting", [0.0, 0.2, 1.0])
@pytest.mark.parametrize("gpus", [2, 8, 64])
def test_more_tokens_are_never_fewer_on_the_busiest_and_their_share_tends_to_what_lasts(
    gpus: int, lasting: float
) -> None:
    busiest = Busiest(gpus=gpus, experts=256, top_k=8, lasting=lasting)
    sizes = [1.2**at for at in range(80)]
    there = [size * busiest.share(size) for size in sizes]
    assert there == sorted(there)
    shares = [busiest.share(size) for size in sizes]
    assert shares == sorted(shares, reverse=True)
    assert busiest.share(1e9) == pytest.approx(1.0 + lasting, abs=1e-3)


def test_one_gpu_and_tokens_that_choose_all_experts_have_no_busiest() -> None:
    assert Busiest(gpus=1, experts=8, top_k=2, lasting=0.0).share(1) == 1.0
    assert Busiest(gpus=4, experts=8, top_k=8, lasting=0.0).share(1) == 1.0
    assert popularity_excess(1, 128, 1.0) == popularity_excess(4, 128, 0.0) == 0.0
