"""Load in stages: rates, exact counts, and prompts that repeat."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from blis_tui.model import Client, PluginConfig, Prefix, Stage, Workload
from blis_tui.spec.shipped import builtin
from blis_tui.workload.source import GeneratedSource

LENGTHS = PluginConfig(kind="gaussian", settings={"mean": 256, "std_dev": 100, "min": 2, "max": 800})
USERS = Client(
    id="users", share=1.0, arrivals=PluginConfig(kind="poisson"), input_tokens=LENGTHS, output_tokens=LENGTHS
)
STAGES = (Stage(rate_per_s=8.0, duration_s=300.0), Stage(rate_per_s=20.5, duration_s=100.0))
STAGED = Workload(name="staged", stages=STAGES, clients=(USERS,))


def arrivals(workload: Workload, seed: int = 1) -> list[int]:
    source = GeneratedSource(workload, seed, builtin())
    found = []
    while (request := source.next_request()) is not None:
        found.append(request.arrival_us)
    return found


def counts(times: list[int]) -> tuple[int, int]:
    first = sum(time <= 300_000_000 for time in times)
    return first, len(times) - first


@pytest.mark.parametrize("kind", ["poisson", "gamma", "weibull", "constant"])
def test_each_stage_has_its_rate_and_the_last_one_ends_the_load(kind: str) -> None:
    settings = {"cv": 1.5} if kind in ("gamma", "weibull") else {}
    client = replace(USERS, arrivals=PluginConfig(kind=kind, settings=settings))
    times = arrivals(replace(STAGED, clients=(client,)))
    first, second = counts(times)
    assert first == pytest.approx(2400, rel=0.1)
    assert second == pytest.approx(2050, rel=0.1)
    assert times == sorted(times)
    assert times[-1] <= 400_000_000


def test_exact_counts_are_exact_and_the_times_poisson() -> None:
    exact = replace(STAGED, exact_stage_counts=True)
    for seed in range(5):
        times = arrivals(exact, seed)
        assert counts(times) == (2400, 2050)
        gaps = [later - earlier for earlier, later in pairwise(times[:2400])]
        mean = sum(gaps) / len(gaps)
        assert mean == pytest.approx(125_000, rel=0.01)
        # Of exponential gaps, 1/e are longer than the mean.
        assert sum(gap > mean for gap in gaps) / len(gaps) == pytest.approx(0.368, abs=0.03)
    assert counts(arrivals(STAGED)) != (2400, 2050)


def test_clients_share_the_exact_counts() -> None:
    clients = (replace(USERS, id="a", share=3.0), replace(USERS, id="b", share=1.0))
    assert counts(arrivals(replace(STAGED, clients=clients, exact_stage_counts=True))) == (2400, 1538 + 513)


def test_repeated_prompts_take_turns() -> None:
    client = replace(USERS, repeated_prompts=3, prefix=Prefix(group="system", tokens=100))
    source = GeneratedSource(Workload(name="repeated", requests=9, rate_per_s=1.0, clients=(client,)), 1, builtin())
    requests = [request for _ in range(9) if (request := source.next_request())]
    prompts = [(request.input_tokens, request.segments) for request in requests]
    assert prompts[:3] * 3 == prompts
    assert set(Counter(prompts).values()) == {3}
    for tokens, segments in prompts:
        assert segments[0] == ("system", 100)
        assert sum(length for _, length in segments) == tokens
    assert len({request.output_tokens for request in requests}) > 3
