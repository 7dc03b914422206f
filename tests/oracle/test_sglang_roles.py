"""Requests over two of SGLang's servers: the same times as those of an independent model of them."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest

from tests.builders import Outcome, request
from tests.cluster.test_sglang_split import split
from tests.oracle.sglang_roles import Limits, Req, simulate


def drawn(seed: int) -> tuple[Limits, list[Req]]:
    random = Random(seed)  # noqa: S311  (a test)
    limits = Limits(
        prefill_tokens=random.randint(60, 200),
        decode_tokens=random.randint(90, 250),
        max_running=random.choice((1, 2, 3, 8, 40)),
        chunk=random.choice((8, 16, 32, 64)),
        reserved=random.choice((1, 4, 16, 32)),
        latency_us=random.choice((3, 23, 403)),
    )
    requests, now = [], 0
    for index in range(random.randint(2, 30)):
        now += random.choice((0, 1, 7, 61, 397))
        requests.append(Req(str(index), now, random.randint(1, 40), random.randint(2, 40)))
    return limits, requests


@pytest.mark.parametrize("seed", range(200))
def test_times_are_those_of_the_independent_model(seed: int) -> None:
    limits, expected = drawn(seed)
    made = split(
        prefill_blocks=limits.prefill_tokens,
        decode_blocks=limits.decode_tokens,
        max_num_seqs=limits.max_running,
        base_latency_us=limits.latency_us,
        settings={
            "num_reserved_decode_tokens": limits.reserved,
            "chunked_prefill_size": limits.chunk,
            "overlap_schedule": False,
        },
    )
    pools = tuple(replace(pool, engine=replace(pool.engine, enable_prefix_caching=False)) for pool in made.pools)
    asked = [request(int(one.name), one.arrival_us, one.prompt, one.answer) for one in expected]
    try:
        simulate(limits, expected)
    except OverflowError:
        pytest.skip("SGLang fails a request, which waits here")
    rows = Outcome(replace(made, pools=pools), asked).rows
    found = [(rows[one.name].first_token_us, rows[one.name].completed_us) for one in expected]
    assert found == [(one.first_us, one.end_us) for one in expected]
