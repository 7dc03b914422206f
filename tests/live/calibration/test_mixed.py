"""Requests of two servers in one file are noticed, those of one server are not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from blis_tui.live.calibration.run import mixed
from tests.live.calibration.servers import BASE, measure, served, with_coefficients

if TYPE_CHECKING:
    from blis_tui.live.calibration.measured import Recording


def recorded(weights: float, seed: int) -> Recording:
    one = served("llama-3.1-8b-instruct", 8.0, 1000, seed, requests=60)
    return measure(with_coefficients(one, replace(BASE, weights=weights)), 0.01)


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_requests_of_one_server_are_no_mixture(seed: int) -> None:
    assert mixed(recorded(1.2, seed)) is None


def test_requests_of_two_servers_are_a_mixture() -> None:
    recording, other = recorded(1.2, 1), recorded(2.4, 2)
    both = sorted((*recording.requests, *other.requests), key=lambda it: it.arrival_us)
    mixture = mixed(replace(recording, requests=tuple(both)))
    assert mixture is not None
    slow, _, judged = mixture.split()[:3]
    assert 55 <= int(slow) <= 60
    assert 105 <= int(judged) <= 120
    assert "a mixture of two servers" in mixture
